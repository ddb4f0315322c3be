//! What stands in for names, paths and texts.
//!
//! Different things stay different, and the same thing stays the same, over the whole trace: whether ranks share a host,
//! a file or a value is what verdicts are made of. Only what they are called is gone.

use std::collections::BTreeMap;

/// Words of log lines that say what happened; everything else of a line is dropped.
const TELLING: &[&str] = &["traceback", "exception", "raised", "watchdog", "timeout", "timed out"];
/// Folders that say that a file was installed and not written for the job.
const INSTALLED: &[&str] = &["site-packages", "dist-packages"];
/// Attributes whose values are numbers and plain words by their nature.
const PLAIN_KEYS: &[&str] = &["local_rank", "numa", "device", "stage", "pipeline_stage", "rank", "node", "world_size"];

/// Numbers for things, in the order in which they are first met.
#[derive(Debug, Default)]
pub(super) struct Numbers(BTreeMap<String, usize>);

impl Numbers {
    pub(super) fn of(&mut self, text: &str) -> usize {
        let next = self.0.len() + 1;
        *self.0.entry(text.to_owned()).or_insert(next)
    }
}

/// A path's last part.
pub(super) fn base(path: &str) -> &str {
    path.rsplit(['/', '\\']).find(|part| !part.is_empty()).unwrap_or_default()
}

/// The path of a source file or library: its own name, in a numbered folder.
pub(super) fn path(folders: &mut Numbers, path: &str) -> String {
    let name = base(path);
    let Some(folder) = path.strip_suffix(name).filter(|folder| !folder.is_empty()) else { return name.to_owned() };
    let number = folders.of(folder.trim_end_matches(['/', '\\']));
    match INSTALLED.iter().find(|part| folder.split('/').any(|word| word == **part)) {
        Some(part) => format!("dir{number}/{part}/{name}"),
        None => format!("dir{number}/{name}"),
    }
}

/// A text in which paths may stand, such as stacks of function names: of every path its last part stays.
pub(super) fn stack(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for word in
        text.split_inclusive(|c: char| c.is_whitespace() || matches!(c, '>' | '(' | ')' | '"' | '\'' | ',' | '='))
    {
        let is_speed = word.trim_end().ends_with("B/s");
        out.push_str(if word.contains('/') && !is_speed { base(word) } else { word });
    }
    out
}

/// The file that a thread works on. Devices, pipes and sockets say what it waits for; other paths are somebody's.
pub(super) fn device(path: &str) -> String {
    let kept = !path.contains('/') || (path.starts_with("/dev/") && !path.starts_with("/dev/shm/"));
    if kept { path.to_owned() } else { "/redacted".to_owned() }
}

/// A log line: its length, and which telling words are in it.
pub(super) fn log_line(text: &str) -> String {
    let lower = text.to_lowercase();
    let telling: Vec<&str> = TELLING.iter().copied().filter(|word| lower.contains(word)).collect();
    let says = if telling.is_empty() { String::new() } else { format!(" (says: {})", telling.join(", ")) };
    format!("log line of {} bytes{says}", text.len())
}

/// The value of an attribute. Numbers stay, and words of attributes that are known to hold nothing else; of all others
/// only whether two are equal.
pub(super) fn value(values: &mut Numbers, key: &str, value: &str) -> String {
    let is_number = !value.is_empty() && value.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | '-'));
    let is_word = value.len() <= 32 && value.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ':'));
    if is_number && value.len() <= 8 || is_word && PLAIN_KEYS.contains(&key) {
        return value.to_owned();
    }
    format!("value{}", values.of(&format!("{key}={value}")))
}

/// The name of an attribute: a variable's, or a word.
pub(super) fn key(key: &str) -> String {
    if key.contains('/') { base(key).to_owned() } else { key.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::{Numbers, base, device, log_line, path, stack, value};

    #[test]
    fn paths_keep_their_last_part_and_stay_different() {
        let mut folders = Numbers::default();
        let mut of = |text: &str| path(&mut folders, text);
        assert_eq!(of("/data/u/secret/train.py"), "dir1/train.py");
        assert_eq!(of("/data/u/other/train.py"), "dir2/train.py");
        assert_eq!(of("/data/u/secret/model.py"), "dir1/model.py");
        assert_eq!(of("/opt/x/lib/python3.11/site-packages/torch/nn.py"), "dir3/site-packages/nn.py");
        assert_eq!(of("train.py"), "train.py");
        assert_eq!(of("C:\\u\\train.py"), "dir4/train.py");
        assert_eq!(of(""), "");
        assert_eq!(base("/a/b/"), "b");
        assert_eq!(base("///"), "");
    }

    #[test]
    fn stacks_keep_functions() {
        assert_eq!(stack("main>train (/data/u/x/train.py:31)>step"), "main>train (train.py:31)>step");
        assert_eq!(stack("read /data/u/secret.bin at 3 MB/s"), "read secret.bin at 3 MB/s");
        assert_eq!(stack("pthread_cond_wait"), "pthread_cond_wait");
        assert_eq!(stack("--config=/etc/x"), "--config=x");
    }

    #[test]
    fn devices_stay_and_files_do_not() {
        for kept in ["", "/dev/nvidia0", "/dev/infiniband/uverbs0", "pipe:[7]", "socket:[8]", "anon_inode:[eventpoll]"]
        {
            assert_eq!(device(kept), kept);
        }
        for gone in ["/data/u/x", "/dev/shm/u-secret", "u/x"] {
            assert_eq!(device(gone), "/redacted");
        }
    }

    #[test]
    fn log_lines_keep_what_verdicts_read() {
        assert_eq!(log_line("hello"), "log line of 5 bytes");
        assert_eq!(log_line("Watchdog: timed OUT at /x"), "log line of 25 bytes (says: watchdog, timed out)");
    }

    #[test]
    fn values_stay_equal_or_different() {
        let mut values = Numbers::default();
        let mut of = |key: &str, text: &str| value(&mut values, key, text);
        assert_eq!(of("numa", "1"), "1");
        assert_eq!(of("device", "gpu:3"), "gpu:3");
        assert_eq!(of("LD_PRELOAD", "/data/u/x.so"), "value1");
        assert_eq!(of("LD_PRELOAD", "/data/u/y.so"), "value2");
        assert_eq!(of("LD_PRELOAD", "/data/u/x.so"), "value1");
        assert_eq!(of("user", "jane"), "value3");
        assert_eq!(of("account", "4711471147114711"), "value4");
        assert_eq!(of("device", "/dev/x y"), "value5");
        assert_eq!(of("x", ""), "value6");
    }
}
