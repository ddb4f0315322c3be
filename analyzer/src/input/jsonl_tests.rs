//! Files that are cut, edited, newer or hostile: what is missing becomes a gap, what is wrong is named with its line.

use std::io::Cursor;
use std::path::Path;

use proptest::prelude::{any, proptest};
use rankdiff_trace::{GapCause, Record};

use super::{Jsonl, MAX_LINE};
use crate::input::{ImportError, Importer as _, Item};

const HEADER: &str = "{\"kind\":\"header\",\"format\":\"rankdiff-jsonl\",\"version\":\"1.0\"}\n";
const PROCESS: &str = "{\"kind\":\"process\",\"host\":\"a\",\"pid\":1,\"start_time\":2}\n";

fn call(enter: u64) -> String {
    format!("{{\"kind\":\"call\",\"op\":\"barrier\",\"thread\":1,\"thread_seq\":{enter},\"enter_ns\":{enter}}}\n")
}

fn end(calls: u64) -> String {
    format!("{{\"kind\":\"end\",\"closed\":true,\"calls\":{calls}}}\n")
}

/// All items, and the remarks at the end.
fn read(bytes: &[u8]) -> Result<(Vec<Item>, Vec<String>), ImportError> {
    let mut input = Jsonl.open(Path::new("x.jsonl"), Box::new(Cursor::new(bytes)))?;
    let mut items = Vec::new();
    while let Some(item) = input.next_item()? {
        items.push(item);
    }
    Ok((items, input.remarks()))
}

fn text(lines: &[&str]) -> Vec<u8> {
    lines.concat().into_bytes()
}

/// Calls, gaps (cause, events, after, before), and whether each process was closed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    calls: usize,
    gaps: Vec<(GapCause, Option<u64>, u64, u64)>,
    closed: Vec<bool>,
}

fn seen(items: &[Item]) -> Seen {
    let mut seen = Seen::default();
    for item in items {
        match item {
            Item::Record(record) => match &**record {
                Record::Call(_) => seen.calls += 1,
                Record::Gap(gap) => seen.gaps.push((gap.cause, gap.events, gap.after, gap.before)),
                _ => {}
            },
            Item::End { closed } => seen.closed.push(*closed),
            Item::Job(_) | Item::Process(_) => {}
        }
    }
    seen
}

#[test]
fn a_whole_file_has_no_remarks() {
    let (items, remarks) = read(&text(&[HEADER, PROCESS, &call(1), "\n  \n", &call(2), &end(2)])).expect("whole");
    assert_eq!(seen(&items), Seen { calls: 2, gaps: vec![], closed: vec![true] });
    assert!(remarks.is_empty(), "{remarks:?}");
    // The same twice, one behind the other, as `cat` leaves it.
    let one = text(&[HEADER, PROCESS, &call(1), &end(1)]);
    assert_eq!(seen(&read(&[one.clone(), one].concat()).expect("whole").0).closed, [true, true]);
}

#[test]
fn what_is_missing_becomes_a_gap() {
    // Cut between two lines, inside one, and before the next process.
    for cut in [text(&[HEADER, PROCESS, &call(5)]), text(&[HEADER, PROCESS, &call(5), "{\"kind\":\"ca"])] {
        let (items, remarks) = read(&cut).expect("readable");
        let gaps = vec![(GapCause::Torn, None, 5, u64::MAX)];
        assert_eq!(seen(&items), Seen { calls: 1, gaps, closed: vec![false] });
        assert!(remarks.len() == 1 && remarks[0].contains("cut off"), "{remarks:?}");
    }
    // Lines that somebody took out.
    let (items, remarks) = read(&text(&[HEADER, PROCESS, &call(5), &end(3)])).expect("readable");
    assert_eq!(seen(&items).gaps, [(GapCause::Unknown, Some(2), 0, u64::MAX)]);
    assert!(remarks[0].contains("2 calls"), "{remarks:?}");
    // Calls that a newer writer knows.
    let newer = call(6).replace("barrier", "all_dance");
    let (items, remarks) =
        read(&text(&[HEADER, PROCESS, &call(5), &newer, &newer, &call(7), &newer, &end(5)])).expect("readable");
    let gaps = vec![(GapCause::Unknown, Some(2), 5, 8), (GapCause::Unknown, Some(1), 7, u64::MAX)];
    assert_eq!(seen(&items), Seen { calls: 2, gaps, closed: vec![true] });
    assert!(remarks.len() == 1 && remarks[0].contains("3 calls"), "{remarks:?}");
    let (items, remarks) = read(&text(&[HEADER, PROCESS, "{\"kind\":\"weather\"}\n", &end(0)])).expect("readable");
    assert!(seen(&items).gaps.is_empty() && remarks[0].contains("1 lines"), "{remarks:?}");
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    let refused = |bytes: &[u8], words: &[&str]| {
        let said = read(bytes).expect_err("wrong").to_string();
        for word in words {
            assert!(said.contains(word), "'{word}' is missing in: {said}");
        }
    };
    refused(b"", &["x.jsonl", "empty"]);
    refused(&text(&[PROCESS]), &["x.jsonl line 1", "no header"]);
    refused(&text(&[HEADER, &call(1)]), &["x.jsonl line 2", "without a `process`"]);
    refused(&text(&[HEADER, &end(1)]), &["line 2", "without a `process`"]);
    refused(&text(&[HEADER, PROCESS, "\n", "{\"kind\":\"call\"}\n"]), &["line 4", "missing field"]);
    refused(&text(&[HEADER, PROCESS, "\u{0}\n"]), &["line 3"]);
    refused(&text(&[&HEADER.replace("1.0", "2.0")]), &["rankdiff-jsonl 2.0", "1.0"]);
    let long = vec![b' '; MAX_LINE as usize + 2];
    refused(&[HEADER.as_bytes(), &long, b"\n"].concat(), &["line 2", "longer than"]);
}

proptest! {
    #[test]
    fn every_prefix_gives_a_prefix_of_the_calls(cut in any::<proptest::sample::Index>(), flip in any::<u8>(), at in any::<proptest::sample::Index>()) {
        let mut whole = text(&[HEADER, PROCESS, &call(1), &call(2), &end(2), PROCESS, &call(3), &end(1)]);
        let cut = cut.index(whole.len());
        if let Ok((items, _)) = read(&whole[..cut]) {
            let found = seen(&items);
            // A process that is not whole says so.
            assert!(found.calls <= 3 && found.closed.iter().filter(|&&closed| !closed).count() == found.gaps.len());
        }
        let at = at.index(whole.len());
        whole[at] ^= flip;
        let _ = read(&whole);
    }
}
