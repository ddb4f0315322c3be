//! What holds for every file of the repository: nothing in it names the machine or the place it was made on, links lead
//! somewhere, no source file has grown into several.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rankdiff_tests::root;

/// Most lines of a source file.
const MOST_LINES: usize = 700;
/// Files that other programs wrote somewhere else: kept as they are.
const FOREIGN: &[&str] = &["Cargo.lock", "tests/corpus/data"];

/// Files below a folder, without what is built and what git keeps.
fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the checkout can be listed") {
        let entry = entry.expect("an entry of a folder");
        let name = entry.file_name();
        let kind = entry.file_type().expect("a file has a type");
        if kind.is_dir() && name != "target" && name != ".git" && name != "__pycache__" {
            walk(&entry.path(), found);
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
}

/// Every file of the repository, by its path from the root.
fn files() -> Vec<PathBuf> {
    let mut found = Vec::new();
    // Traces that somebody recorded in the checkout are ignored by git, and by this.
    walk(root(), &mut found);
    let mut files: Vec<PathBuf> = found
        .into_iter()
        .filter(|path| path.extension().is_none_or(|extension| extension != "rdt"))
        .map(|path| path.strip_prefix(root()).expect("it is below the root").to_path_buf())
        .filter(|path| !path.iter().any(|part| part.to_string_lossy().starts_with("rankdiff-trace-")))
        .collect();
    files.sort();
    assert!(files.len() > 50, "only {} files: the walk is broken", files.len());
    files
}

/// Places that mean something on one machine only, and hosts that only a package manager has to know. Put together here
/// so that this file does not hold them itself.
fn forbidden() -> Vec<String> {
    let folders = ["root", "work"].iter().map(|name| format!("/{name}/"));
    let hosts = ["pypi.", "pythonhosted.", "static.crates.", "index.crates.", "deb.debian.", "registry.npmjs."];
    let tops = ["org", "org", "io", "io", "org", "org"];
    folders.chain(hosts.iter().zip(tops).map(|(host, top)| format!("{host}{top}"))).collect()
}

/// What follows the text, each time that it stands in the bytes where a path or a host begins.
fn named<'a>(bytes: &'a [u8], text: &str) -> impl Iterator<Item = &'a [u8]> {
    let part_of_a_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-$}*/".contains(byte);
    bytes.windows(text.len()).enumerate().filter_map(move |(at, window)| {
        let begins = !at.checked_sub(1).and_then(|at| bytes.get(at)).is_some_and(part_of_a_word);
        let found = begins && window == text.as_bytes();
        found.then(|| bytes.get(at + text.len()..).unwrap_or_default())
    })
}

/// Whether somebody's own folder is named. People in examples have names of one letter.
fn names_somebody(bytes: &[u8]) -> bool {
    let made_up = |name: &&[u8]| name.len() <= 1 || matches!(*name, b"user" | b"you");
    ["home", "Users"].iter().any(|folder| {
        named(bytes, &format!("/{folder}/"))
            .filter_map(|rest| rest.split(|byte| !byte.is_ascii_alphanumeric()).next())
            .any(|name| !made_up(&name))
    })
}

#[test]
fn nothing_names_a_machine() {
    let own = root().to_string_lossy().into_owned();
    let forbidden = forbidden();
    let mut wrong = Vec::new();
    for path in files() {
        if FOREIGN.iter().any(|foreign| path.starts_with(foreign)) {
            continue;
        }
        let bytes = fs::read(root().join(&path)).expect("a file of the checkout can be read");
        for text in forbidden.iter().chain([&own]) {
            if named(&bytes, text).next().is_some() {
                wrong.push(format!("{} names {text}", path.display()));
            }
        }
        if names_somebody(&bytes) {
            wrong.push(format!("{} names somebody's own folder", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn places_are_found_where_they_begin() {
    let folder = forbidden().swap_remove(0);
    assert_eq!(named(format!("in {folder}x").as_bytes(), &folder).collect::<Vec<_>>(), [b"x"]);
    assert_eq!(named(format!("some{folder}x").as_bytes(), &folder).count(), 0);
    assert_eq!(named(b"nothing", &folder).count(), 0);
    assert!(names_somebody(format!("/{}/jane/train.py", "home").as_bytes()));
    assert!(!names_somebody(format!("/{}/u/train.py", "home").as_bytes()));
}

#[test]
fn source_files_have_one_purpose() {
    let mut wrong = Vec::new();
    for path in files() {
        let is_source =
            path.extension().is_some_and(|extension| extension == "rs" || extension == "py" || extension == "c");
        if is_source {
            let lines = fs::read_to_string(root().join(&path)).expect("a source file is text").lines().count();
            if lines > MOST_LINES {
                wrong.push(format!("{}: {lines} lines, at most {MOST_LINES}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Text without its code, in which brackets mean something else.
fn without_code(text: &str) -> String {
    let mut prose = String::new();
    let mut in_block = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if !in_block && !line.starts_with("    ") {
            // Odd parts are between backticks.
            prose.extend(line.split('`').step_by(2));
            prose.push('\n');
        }
    }
    prose
}

/// Targets of the links of a page.
fn links(text: &str) -> Vec<String> {
    let prose = without_code(text);
    prose
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target.trim().to_owned())
        .collect()
}

/// Anchors of a page: its headings as web pages of it have them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut in_block = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        in_block ^= line.trim_start().starts_with("```");
        let heading = line.trim_start_matches('#');
        if !in_block && line.starts_with('#') && heading.starts_with(' ') {
            let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            found.insert(kept.collect::<String>().to_lowercase().replace(' ', "-"));
        }
    }
    found
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut wrong = Vec::new();
    for path in files().into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "md")) {
        let text = fs::read_to_string(root().join(&path)).expect("a page is text");
        for link in links(&text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() {
                root().join(&path)
            } else {
                root().join(path.parent().unwrap_or(Path::new(""))).join(file)
            };
            let reached = match fs::read_to_string(&target) {
                Ok(page) => anchor.is_empty() || anchors(&page).contains(anchor),
                Err(_) => target.exists() && anchor.is_empty(),
            };
            if !reached {
                wrong.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "links that lead nowhere:\n{}", wrong.join("\n"));
}

#[test]
fn links_and_anchors_are_read() {
    let page =
        "# Two words, `code`\n\nsee [a](b.md#c) and `[no](code)`\n\n    [no](indented)\n```\n[no](block)\n# no\n```\n";
    assert_eq!(links(page), ["b.md#c"]);
    assert_eq!(anchors(page).into_iter().collect::<Vec<_>>(), ["two-words-code"]);
}

/// Beginnings of the words that name a collective library.
const LIBRARIES: &[&str] = &["nccl", "rccl", "mccl", "hccl", "cncl", "oneccl", "gloo", "mpi"];

/// The first library that the code of a line names; what a comment says is the reader's business.
fn library_in(line: &str) -> Option<&'static str> {
    let code = line.split("//").next().unwrap_or_default().to_lowercase();
    let words = code.split(|c: char| !c.is_ascii_alphanumeric());
    words.into_iter().find_map(|word| LIBRARIES.iter().copied().find(|library| word.starts_with(library)))
}

#[test]
fn the_kernel_side_and_the_trace_know_no_library() {
    let knows_none = ["tracer-common/src", "tracer-ebpf/src", "trace/src"];
    let mut wrong = Vec::new();
    let mut seen = 0;
    for path in files().into_iter().filter(|path| knows_none.iter().any(|folder| path.starts_with(folder))) {
        // Scenario files say which library made a call, as a job does.
        if path.starts_with("trace/src/testgen") {
            continue;
        }
        seen += 1;
        let text = fs::read_to_string(root().join(&path)).expect("a source file is text");
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate() {
            if let Some(library) = library_in(line) {
                wrong.push(format!("{}:{}: {library}", path.display(), number + 1));
            }
        }
    }
    assert!(seen > 20, "only {seen} files were looked at");
    assert!(wrong.is_empty(), "a library's name in code that must know none:\n{}", wrong.join("\n"));
}

#[test]
fn library_names_are_found_in_code_only() {
    assert_eq!(library_in("if name == \"NCCL\" {"), Some("nccl"));
    assert_eq!(library_in("let ncclComm = 1;"), Some("nccl"));
    assert_eq!(library_in("compile(impl) // as MPI does"), None);
}
