//! Which rank a process plays, from what its launcher put into its environment.
//!
//! The environment is what the process was started with: changes it makes itself are not visible from outside. A
//! communicator's creation may know better; `process.rs` decides between the two.

use std::collections::BTreeMap;

use rankdiff_trace::{RankDef, RankSource};

/// Names that launchers use, the most specific first. One launcher's rank is only taken with the same launcher's size.
const LAUNCHERS: &[Names] = &[
    Names { rank: "RANK", world: &["WORLD_SIZE"], local: "LOCAL_RANK", attempt: "TORCHELASTIC_RESTART_COUNT" },
    Names {
        rank: "OMPI_COMM_WORLD_RANK",
        world: &["OMPI_COMM_WORLD_SIZE"],
        local: "OMPI_COMM_WORLD_LOCAL_RANK",
        attempt: "",
    },
    Names { rank: "PMI_RANK", world: &["PMI_SIZE"], local: "MPI_LOCALRANKID", attempt: "" },
    Names {
        rank: "MV2_COMM_WORLD_RANK",
        world: &["MV2_COMM_WORLD_SIZE"],
        local: "MV2_COMM_WORLD_LOCAL_RANK",
        attempt: "",
    },
    Names { rank: "PMIX_RANK", world: &["PRTE_SIZE", "SLURM_NTASKS"], local: "", attempt: "" },
    Names {
        rank: "SLURM_PROCID",
        world: &["SLURM_NTASKS", "SLURM_NPROCS"],
        local: "SLURM_LOCALID",
        attempt: "SLURM_RESTART_COUNT",
    },
];

struct Names {
    rank: &'static str,
    world: &'static [&'static str],
    local: &'static str,
    attempt: &'static str,
}

/// A process's environment.
pub type Environment = BTreeMap<String, String>;

/// Parses the bytes of /proc/PID/environ; what is not `NAME=value` in UTF-8 is left out (names looked for are ASCII).
pub fn parse_environment(bytes: &[u8]) -> Environment {
    bytes
        .split(|&byte| byte == 0)
        .filter_map(|entry| std::str::from_utf8(entry).ok())
        .filter_map(|entry| entry.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// The rank that the environment names, if it names one.
///
/// A rank at or above its world's size is a leftover of another launcher and is passed over.
pub fn rank_from(environment: &Environment) -> Option<RankDef> {
    let number = |name: &str| environment.get(name).and_then(|value| value.trim().parse::<u32>().ok());
    LAUNCHERS.iter().find_map(|names| {
        let rank = number(names.rank)?;
        let world = names.world.iter().find_map(|name| number(name));
        if world.is_some_and(|world| rank >= world) {
            return None;
        }
        Some(RankDef {
            rank,
            world,
            local_rank: number(names.local),
            attempt: number(names.attempt).unwrap_or(0),
            source: RankSource::Environment,
        })
    })
}

/// The job's id, if a launcher gave one.
pub fn job_id_from(environment: &Environment) -> Option<&str> {
    ["TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "PMI_JOBID", "PBS_JOBID", "LSB_JOBID"]
        .iter()
        .find_map(|name| environment.get(*name).map(String::as_str))
        .filter(|id| !id.is_empty() && *id != "none")
}

#[cfg(test)]
mod tests {
    use super::{job_id_from, parse_environment, rank_from};

    fn rank(text: &str) -> Option<(u32, Option<u32>, Option<u32>)> {
        let environment = parse_environment(text.replace(' ', "\0").as_bytes());
        rank_from(&environment).map(|def| (def.rank, def.world, def.local_rank))
    }

    #[test]
    fn each_launcher_is_known() {
        assert_eq!(rank("RANK=3 WORLD_SIZE=8 LOCAL_RANK=1"), Some((3, Some(8), Some(1))));
        assert_eq!(rank("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2"), Some((0, Some(2), None)));
        assert_eq!(rank("PMI_RANK=1 PMI_SIZE=4 MPI_LOCALRANKID=1"), Some((1, Some(4), Some(1))));
        assert_eq!(rank("SLURM_PROCID=5 SLURM_NTASKS=6 SLURM_LOCALID=2"), Some((5, Some(6), Some(2))));
        assert_eq!(rank("HOME=/ PATH=x"), None);
    }

    #[test]
    fn a_launcher_inside_another_is_not_mixed_up() {
        // srun starts one task that runs torchrun: the worker's own rank is torchrun's.
        assert_eq!(rank("SLURM_PROCID=0 SLURM_NTASKS=1 RANK=7 WORLD_SIZE=8"), Some((7, Some(8), None)));
        // A leftover rank that cannot be: the other launcher's is taken.
        assert_eq!(rank("RANK=9 WORLD_SIZE=1 PMI_RANK=1 PMI_SIZE=2"), Some((1, Some(2), None)));
    }

    #[test]
    fn torn_and_foreign_bytes_are_left_out() {
        let environment = parse_environment(b"RANK=1\0\xff\xfe=x\0NOVALUE\0WORLD_SIZE=2\0TORCHELASTIC_RUN_ID=abc");
        assert_eq!(rank_from(&environment).expect("a rank").rank, 1);
        assert_eq!(job_id_from(&environment), Some("abc"));
    }
}
