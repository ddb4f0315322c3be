//! README.md is true: every command line in its shell blocks is run, and every other command line that it shows uses
//! commands and flags that exist.

use std::fs;
use std::process::Command;

use rankdiff_tests::examples::slot;
use rankdiff_tests::process;
use rankdiff_tests::recorder::{LIMIT, Place, run};
use rankdiff_tests::{binary, is_privileged, root};

/// What stands before a block that is not to be run.
const NOT_RUN: &str = "<!-- not run -->";

/// A block of code.
struct Block {
    language: String,
    lines: Vec<String>,
    run: bool,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    let mut before = "";
    for line in page.lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(language), None) => {
                open = Some(Block { language: language.to_owned(), lines: Vec::new(), run: before != NOT_RUN });
            }
            (None, Some(block)) => block.lines.push(line.to_owned()),
            (None, None) if !line.trim().is_empty() => before = line.trim(),
            (None, None) => {}
        }
        if open.is_none() && line.starts_with("```") {
            before = "";
        }
    }
    blocks
}

/// Command lines of a shell block, without prompts and output.
fn commands(block: &Block) -> Vec<String> {
    match block.language.as_str() {
        "console" => block.lines.iter().filter_map(|line| line.strip_prefix("$ ")).map(str::to_owned).collect(),
        "sh" | "bash" => {
            block.lines.iter().filter(|line| !line.is_empty() && !line.starts_with('#')).cloned().collect()
        }
        _ => Vec::new(),
    }
}

fn page() -> String {
    fs::read_to_string(root().join("README.md")).expect("a README")
}

#[test]
fn the_commands_of_the_readme_run() {
    if !is_privileged("readme") {
        return;
    }
    let mut count = 0;
    for command in blocks(&page()).iter().filter(|block| block.run).flat_map(commands) {
        count += 1;
        // What runs these tests cannot be run by them: it must be there.
        if let Some(task) = command.strip_prefix("cargo xtask ") {
            let task = task.split(' ').next().unwrap_or_default();
            let helped = process::run(rankdiff_tests::cargo().args(["xtask", task, "--help"]), 5 * LIMIT);
            assert_eq!(helped.code, 0, "{command}: {}", helped.stderr);
            continue;
        }
        let _slot = slot();
        let place = Place::new();
        // What cargo would build is the binary under test. The workspace has several: cargo must be told which.
        let line = command.replace("cargo run --release --bin rankdiff -- ", "rankdiff ");
        assert!(
            !line.starts_with("cargo "),
            "{command}: cargo does not know which program is meant, or the test does not"
        );
        let own = place.path().join("bin");
        fs::create_dir_all(&own).expect("own folder");
        std::os::unix::fs::symlink(binary(), own.join("rankdiff")).expect("own folder");
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(std::iter::once(own).chain(std::env::split_paths(&path))).expect("folders");
        let mut shell = Command::new("sh");
        shell.args(["-c", &line]).env("PATH", path).current_dir(place.path());
        place.prepare(&mut shell);
        let ended = process::run(&mut shell, LIMIT);
        // A report with findings is what most of them are for.
        let findings = line.starts_with("rankdiff ") && ended.code == 1 && !ended.stdout.is_empty();
        assert!(ended.code == 0 || findings, "{command}: {}\n{}\n{}", ended.code, ended.stdout, ended.stderr);
    }
    assert!(count > 0, "README.md has no command lines: are they in blocks of `sh` or `console`?");
}

/// Flags of a command line, up to the command that it is given.
fn flags(words: &[&str]) -> Vec<String> {
    let own = words.iter().take_while(|word| **word != "--");
    own.filter(|word| word.starts_with("--")).map(|word| word.split('=').next().unwrap_or(word).to_owned()).collect()
}

#[test]
fn the_readme_shows_commands_and_flags_that_exist() {
    let page = page();
    let shown = blocks(&page).into_iter().flat_map(|block| block.lines).collect::<Vec<_>>();
    let inline = page.split('`').skip(1).step_by(2).map(str::to_owned);
    let mut count = 0;
    for line in shown.into_iter().chain(inline) {
        let Some(rest) = line.trim().strip_prefix("rankdiff ") else { continue };
        let words: Vec<&str> = rest.split_whitespace().collect();
        let Some(command) = words.first() else { continue };
        let help = run([command, "--help"]);
        assert_eq!(help.code, 0, "`{line}`: there is no such command");
        for flag in flags(&words) {
            assert!(help.stdout.contains(&flag), "`{line}`: {command} has no {flag}");
        }
        count += 1;
    }
    assert!(count >= 3, "README.md shows only {count} command lines");
}

#[test]
fn blocks_are_told_apart() {
    let page =
        "a\n```sh\nls\n# no\n```\n<!-- not run -->\n\n```sh\nrm\n```\n```console\n$ pwd\n/\n```\n```text\n$ x\n```\n";
    let blocks = blocks(page);
    let run: Vec<bool> = blocks.iter().map(|block| block.run).collect();
    assert_eq!(run, [true, false, true, true]);
    let lines: Vec<String> = blocks.iter().filter(|block| block.run).flat_map(commands).collect();
    assert_eq!(lines, ["ls", "pwd"]);
}
