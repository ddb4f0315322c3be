//! The page of dated results: which commit, on what machine, what came out.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::process;

/// Where results are kept.
pub(crate) const PAGE: &str = "docs/long-run.md";

/// When and on what a run began.
pub(crate) struct Origin {
    date: String,
    commit: String,
    machine: String,
}

impl Origin {
    /// Taken before the run: a result belongs to what was tested, not to what the tree became meanwhile.
    pub(crate) fn now(root: &Path) -> Result<Origin> {
        let date = process::output(Command::new("date").args(["--utc", "+%Y-%m-%d"]))?;
        // Marked where files differ from the commit.
        let describe = ["describe", "--always", "--dirty", "--abbrev=10"];
        let commit = process::output(Command::new("git").current_dir(root).args(describe))?;
        let kernel = process::output(Command::new("uname").arg("--kernel-release"))?;
        let processors = process::output(&mut Command::new("nproc"))?;
        // How busy it was before: on a machine that others use, only ratios mean anything.
        let load = fs::read_to_string("/proc/loadavg").context("cannot read the load")?;
        let load = load.split_whitespace().next().unwrap_or("unknown");
        // The release without what its builder added: nothing that names the machine.
        let kernel = kernel.split(|c: char| c != '.' && !c.is_ascii_digit()).next().unwrap_or_default();
        let machine = format!("{} processors, Linux {kernel}, load {load} before", processors.trim());
        Ok(Origin { date: date.trim().to_owned(), commit: commit.trim().to_owned(), machine })
    }
}

/// Adds a section to the page.
pub(crate) fn add(root: &Path, origin: &Origin, command: &str, taken: Duration, body: &str) -> Result<()> {
    let path = root.join(PAGE);
    let mut page = fs::read_to_string(&path).with_context(|| format!("cannot read {PAGE}"))?;
    let section = section(origin, command, taken, body);
    page.push_str(&section);
    fs::write(&path, page).with_context(|| format!("cannot write {PAGE}"))?;
    process::say(&format!("added to {PAGE}:\n{section}"));
    Ok(())
}

fn section(origin: &Origin, command: &str, taken: Duration, body: &str) -> String {
    let Origin { date, commit, machine } = origin;
    let minutes = taken.as_secs().div_ceil(60);
    format!("\n## {date}, commit {commit}\n\n`{command}`, {minutes} min, {machine}\n\n{}\n", body.trim())
}

#[cfg(test)]
mod tests {
    use super::{Origin, section};
    use std::time::Duration;

    #[test]
    fn a_section_says_when_what_and_on_what() {
        let origin = Origin {
            date: "2026-01-02".to_owned(),
            commit: "abc".to_owned(),
            machine: "2 processors, Linux 6.1".to_owned(),
        };
        assert_eq!(
            section(&origin, "cargo xtask long --repeat 9", Duration::from_secs(61), "- kill -9: 9 of 9\n"),
            "\n## 2026-01-02, commit abc\n\n`cargo xtask long --repeat 9`, 2 min, 2 processors, Linux 6.1\n\n- kill -9: 9 \
             of 9\n"
        );
    }
}
