//! Running other programs: what is run is shown, what fails says how to run it again.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Triple of the programs that are built: the only one supported so far.
pub(crate) const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Cargo, in the checkout. Cargo's own variables of the running `cargo xtask` are left out: they describe that build.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    for (name, _) in env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"CARGO_PKG_") || name == "CARGO_MANIFEST_DIR" {
            command.env_remove(name);
        }
    }
    command
}

/// Where cargo builds.
pub(crate) fn target_dir(root: &Path) -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir))
}

/// A command as a person would type it.
pub(crate) fn shown(command: &Command) -> String {
    let mut words = Vec::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            words.push(format!("{}={}", name.to_string_lossy(), quoted(value)));
        }
    }
    let program = Path::new(command.get_program());
    words.push(quoted(program.file_name().unwrap_or(program.as_os_str())));
    words.extend(command.get_args().map(quoted));
    words.join(" ")
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=,+@%".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.into_owned();
    }
    // A control character, as in cargo's encoded flags, has no plain spelling.
    if word.chars().any(char::is_control) {
        let escaped = word.chars().map(|character| match character {
            '\'' | '\\' => format!("\\{character}"),
            character if character.is_ascii_control() => format!("\\x{:02x}", u32::from(character)),
            character => character.to_string(),
        });
        return format!("$'{}'", escaped.collect::<String>());
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Runs a command that prints what it has to say; a failure names the command.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let text = shown(command);
    let status = command.status().with_context(|| format!("cannot start `{text}`"))?;
    ensure!(status.success(), "`{text}` failed ({status})");
    Ok(())
}

/// Runs a command and gives what it printed; its errors go to ours.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let text = shown(command);
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot start `{text}`"))?;
    ensure!(output.status.success(), "`{text}` failed ({})", output.status);
    String::from_utf8(output.stdout).with_context(|| format!("`{text}` printed something that is no text"))
}

/// Runs a command, shows what it prints while it does, and gives it.
pub(crate) fn watched(command: &mut Command) -> Result<String> {
    let text = shown(command);
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start `{text}`"))?;
    let mut printed = String::new();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines() {
            let line = line.with_context(|| format!("cannot read what `{text}` prints"))?;
            say(&line);
            printed.push_str(&line);
            printed.push('\n');
        }
    }
    let status = child.wait().with_context(|| format!("cannot wait for `{text}`"))?;
    ensure!(status.success(), "`{text}` failed ({status})");
    Ok(printed)
}

/// Whether a command can be started and succeeds; nothing is shown.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// The first program of this name on PATH.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// A Python that has these modules: the one on PATH, or else the system's, which the system's packages belong to.
pub(crate) fn python(modules: &[&str]) -> Result<PathBuf> {
    let imports = format!("import {}", modules.join(", "));
    ["python3", "/usr/bin/python3"]
        .iter()
        .map(PathBuf::from)
        .find(|python| succeeds(Command::new(python).args(["-c", &imports])))
        .with_context(|| format!("no python3 that has {}: run cargo xtask setup", modules.join(" and ")))
}

/// Whether we are root.
pub(crate) fn is_root() -> bool {
    // The real uid of the process that owns /proc/self; asking for it needs no dependency.
    std::os::unix::fs::MetadataExt::uid(&match fs::metadata("/proc/self") {
        Ok(metadata) => metadata,
        Err(_) => return false,
    }) == 0
}

/// A command that runs as root: itself, or through sudo.
pub(crate) fn as_root(program: &str) -> Result<Command> {
    if is_root() {
        return Ok(Command::new(program));
    }
    ensure!(find_program("sudo").is_some(), "`{program}` must run as root, and there is no sudo");
    let mut command = Command::new("sudo");
    command.arg(program);
    Ok(command)
}

/// PATH with a folder in front.
pub(crate) fn path_with(folder: &Path) -> Result<OsString> {
    let mut folders = vec![folder.to_path_buf()];
    folders.extend(env::var_os("PATH").iter().flat_map(env::split_paths));
    env::join_paths(folders).context("a folder of PATH has a separator in its name")
}

/// Prints a line of the task's own.
#[expect(clippy::print_stdout, reason = "the result of the command")]
pub(crate) fn say(line: &str) {
    println!("{line}");
}

#[cfg(test)]
mod tests {
    use super::shown;
    use std::process::Command;

    #[test]
    fn a_command_is_shown_as_it_would_be_typed() {
        let mut command = Command::new("/somewhere/cargo");
        command.args(["test", "--", "it's", ""]).env("FLAGS", "a b");
        assert_eq!(shown(&command), r"FLAGS='a b' cargo test -- 'it'\''s' ''");
        let mut command = Command::new("cargo");
        command.env("FLAGS", "-a\x1f-b");
        assert_eq!(shown(&command), r"FLAGS=$'-a\x1f-b' cargo");
    }
}
