//! What a user may set about an analysis.

use std::collections::BTreeMap;
use std::time::Duration;

/// Settings of an analysis; the defaults suit a job that nobody knows anything about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// A wait is long from here on. Never below twice the job's own longest completed wait.
    pub stall_after: Duration,
    /// Most calls that a rank may be ahead or behind for the shift test.
    pub k_shift: usize,
    /// Number of ranks that the job should have, where the traces do not say.
    pub expected_world: Option<u32>,
    /// Calls that are decoded at most where digests are looked at first; `None`: as many as 128 blocks of the usual size,
    /// or one call in 250 where that is more.
    pub decode_calls: Option<u64>,
    /// Boot id by host name: hosts with equal ones (containers of one machine) share their clock.
    pub boots: BTreeMap<String, String>,
    /// Codes or beginnings of codes of the checks that run; empty for all.
    pub select: Vec<String>,
    /// Codes or beginnings of codes of checks that do not.
    pub ignore: Vec<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            stall_after: Duration::from_secs(30),
            k_shift: 64,
            expected_world: None,
            decode_calls: None,
            boots: BTreeMap::new(),
            select: Vec::new(),
            ignore: Vec::new(),
        }
    }
}

impl Options {
    /// Whether the check with this code runs.
    pub fn runs(&self, code: &str) -> bool {
        let named = |list: &[String]| list.iter().any(|prefix| !prefix.is_empty() && code.starts_with(prefix.as_str()));
        (self.select.is_empty() || named(&self.select)) && !named(&self.ignore)
    }

    /// The limit in ns.
    pub(crate) fn stall_ns(&self) -> i64 {
        i64::try_from(self.stall_after.as_nanos()).unwrap_or(i64::MAX / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::Options;

    #[test]
    fn codes_are_selected_by_prefix() {
        let options = Options { select: vec!["D".into()], ignore: vec!["D004".into()], ..Options::default() };
        assert!(options.runs("D001"));
        assert!(!options.runs("D004"));
        assert!(!options.runs("H001"));
        assert!(Options::default().runs("H001"));
    }
}
