//! The demo's launcher: starts the ranks as a launcher would, and waits for them.

use std::process::Command;

use crate::args::{DemoJob, Fault, Story};
use crate::failure::{Failure, USAGE};

/// Variable that carries the unique id of the world communicator, hexadecimal.
pub(crate) const ID_VARIABLE: &str = "RANKDIFF_DEMO_ID";

/// The fault's flags, to be passed on.
pub(crate) fn fault_arguments(fault: &Fault) -> Vec<String> {
    let mut arguments = vec![
        format!("--fault-rank={}", fault.fault_rank),
        format!("--fault-step={}", fault.fault_step),
        format!("--ranks={}", fault.ranks),
    ];
    if fault.healthy {
        arguments.push("--healthy".to_owned());
    }
    arguments
}

/// Starts every rank and waits for all; the first code that is not 0 is the job's.
pub(crate) fn run(args: &DemoJob) -> Result<u8, Failure> {
    let failed = |error: std::io::Error| Failure::new(USAGE, error);
    let this = std::env::current_exe().map_err(failed)?;
    let id = std::env::var(ID_VARIABLE).or_else(|_| super::rank::new_id())?;
    let story = match args.story {
        Story::Diverge => "diverge",
        Story::Stall => "stall",
    };
    let mut children = Vec::new();
    for rank in 0..args.fault.ranks {
        let child = Command::new(&this)
            .args(["demo-rank", "--story", story])
            .args(fault_arguments(&args.fault))
            .env("RANK", rank.to_string())
            .env("LOCAL_RANK", rank.to_string())
            .env("WORLD_SIZE", args.fault.ranks.to_string())
            .env(ID_VARIABLE, &id)
            .spawn()
            .map_err(failed)?;
        children.push(child);
    }
    let mut code = 0;
    for mut child in children {
        let status = child.wait().map_err(failed)?;
        if code == 0 {
            code = rankdiff_tracer::record::exit_code(status).clamp(0, 255) as u8;
        }
    }
    Ok(code)
}
