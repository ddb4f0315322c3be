//! Sizes and times on the command line.

use std::time::Duration;

use rankdiff_trace::Keep;

use crate::args::duration;

/// Least that can be kept: below it there is hardly a segment.
const LEAST: u64 = 1 << 20;
/// Least time that can be kept.
const SHORTEST: Duration = Duration::from_secs(1);

/// Parses `2GiB`, `500MB`, `64k`: K, M, G and T are powers of 1024, with a B behind them of 1000.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    // The number first: without one, the rest is no unit.
    let number: f64 = number.parse().map_err(|_| "expected a number with a unit, such as 2GiB".to_owned())?;
    let unit = unit.trim();
    let base: f64 = if unit.len() == 2 && unit.to_ascii_uppercase().ends_with('B') { 1000.0 } else { 1024.0 };
    let power = match unit.to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 1,
        "M" | "MB" | "MIB" => 2,
        "G" | "GB" | "GIB" => 3,
        "T" | "TB" | "TIB" => 4,
        _ => return Err(format!("unknown unit `{unit}`: use KiB, MiB, GiB or TiB")),
    };
    let bytes = number * base.powi(power);
    // 2^63 and more cannot be on any disk.
    if bytes < 9.2e18 { Ok(bytes as u64) } else { Err("is more than any disk holds".to_owned()) }
}

/// Parses a size of what may be on the disk.
pub(crate) fn disk(text: &str) -> Result<u64, String> {
    let bytes = size(text)?;
    if bytes >= LEAST { Ok(bytes) } else { Err("is too little: at least 1MiB".to_owned()) }
}

/// Parses what is kept: a time (`30m`, `2h`, `90s`) or a size (`2GiB`, `500M`). Only `m` could be both: small it is
/// minutes, large it is mebibytes.
pub(crate) fn keep(text: &str) -> Result<Keep, String> {
    let unit = text.trim().trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').trim();
    match unit {
        "" => Err("say what it counts: a time (30m, 2h) or a size (2GiB, 500MiB)".to_owned()),
        "ms" | "s" | "m" | "min" | "h" => {
            let window = duration(text)?;
            if window >= SHORTEST { Ok(Keep::Window(window)) } else { Err("is too short: at least 1s".to_owned()) }
        }
        _ => match size(text) {
            Ok(bytes) if bytes >= LEAST => Ok(Keep::Bytes(bytes)),
            Ok(_) => Err("is too little: at least 1MiB".to_owned()),
            Err(_) => Err("expected a time (30m, 2h) or a size (2GiB, 500MiB)".to_owned()),
        },
    }
}

/// Bytes for people: `1.5 MiB`.
pub(crate) fn bytes(number: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = number as f64;
    let mut at = 0;
    while value >= 1024.0 && at + 1 < units.len() {
        value /= 1024.0;
        at += 1;
    }
    let unit = units.get(at).copied().unwrap_or_default();
    if at == 0 { format!("{number} {unit}") } else { format!("{value:.1} {unit}") }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rankdiff_trace::Keep;

    use super::{bytes, disk, keep, size};

    #[test]
    fn sizes() {
        for (text, expected) in [
            ("2GiB", 2 << 30),
            ("2G", 2 << 30),
            ("2 GiB", 2 << 30),
            ("1.5k", 1536),
            ("500MB", 500_000_000),
            ("7", 7),
            ("7B", 7),
            ("1TiB", 1 << 40),
        ] {
            assert_eq!(size(text), Ok(expected), "{text}");
        }
        for bad in ["", "GiB", "2 parsecs", "-1G", "1e30T", "9999999999T", "2GG", "1..2M"] {
            assert!(size(bad).is_err(), "{bad}");
        }
        assert!(disk("10k").expect_err("too little").contains("at least 1MiB"));
    }

    #[test]
    fn what_is_kept() {
        assert_eq!(keep("30m"), Ok(Keep::Window(Duration::from_secs(1800))));
        assert_eq!(keep("30M"), Ok(Keep::Bytes(30 << 20)));
        assert_eq!(keep("2GiB"), Ok(Keep::Bytes(2 << 30)));
        assert_eq!(keep("1.5h"), Ok(Keep::Window(Duration::from_secs(5400))));
        for (bad, words) in [
            ("30", "say what it counts"),
            ("", "say what it counts"),
            ("30x", "expected a time"),
            ("10ms", "at least 1s"),
            ("100k", "at least 1MiB"),
            ("-5m", "expected a time"),
        ] {
            let text = keep(bad).expect_err(bad);
            assert!(text.contains(words), "{bad}: {text}");
        }
    }

    #[test]
    fn bytes_for_people() {
        assert_eq!(bytes(1023), "1023 bytes");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
    }
}
