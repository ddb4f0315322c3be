//! The header of a segment: whose stream it is, which part of it, and the clocks when it began.

use std::path::Path;

use crate::error::ReadError;
use crate::evidence::ClockSnapshot;
use crate::limits;
use crate::stream::ProcessKey;
use crate::wire::{Cursor, Malformed};

/// First bytes of every segment. Not text, and broken by anything that translates line ends.
pub const MAGIC: [u8; 8] = *b"\x89RDT\r\n\x1a\n";
/// Major version: a reader of another one refuses the file.
pub const FORMAT_MAJOR: u16 = 1;
/// Minor version: a reader of an older one reads what it knows.
pub const FORMAT_MINOR: u16 = 0;

/// Magic, version and length.
pub(crate) const FIXED: usize = 16;
/// Longest job id and host name that are written.
const MAX_NAME: usize = 4096;

/// The header of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SegmentHeader {
    /// Minor version of the writer.
    pub minor: u16,
    /// Job id.
    pub job_id: String,
    /// Whose stream it is.
    pub key: ProcessKey,
    /// Equal in all segments of one recording: realtime of its start, ns.
    pub session: u64,
    /// Place of the segment in the recording, from 1.
    pub ordinal: u32,
    /// The newest clocks that the writer knew.
    pub clock: ClockSnapshot,
}

impl SegmentHeader {
    /// The header's bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&FORMAT_MAJOR.to_le_bytes());
        out.extend_from_slice(&FORMAT_MINOR.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.ordinal.to_le_bytes());
        out.extend_from_slice(&self.key.pid.to_le_bytes());
        out.extend_from_slice(&self.key.start_time.to_le_bytes());
        out.extend_from_slice(&self.session.to_le_bytes());
        for time in [self.clock.monotonic, self.clock.boottime, self.clock.realtime] {
            out.extend_from_slice(&time.to_le_bytes());
        }
        for name in [&self.key.host, &self.job_id] {
            let name = clip(name, MAX_NAME);
            out.extend_from_slice(&(name.len() as u32).to_le_bytes());
            out.extend_from_slice(name.as_bytes());
        }
        let length = (out.len() + 4) as u32;
        out[FIXED - 4..FIXED].copy_from_slice(&length.to_le_bytes());
        let crc = crc32fast::hash(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// Checks the first [`FIXED`] bytes of a file and gives the length of the whole header.
    ///
    /// `begin` may be shorter where the file is.
    pub(crate) fn length(path: &Path, begin: &[u8]) -> Result<usize, ReadError> {
        if begin.is_empty() {
            return Err(ReadError::Empty { path: path.to_owned() });
        }
        let magic = &MAGIC[..MAGIC.len().min(begin.len())];
        if !begin.starts_with(magic) {
            return Err(ReadError::Foreign { path: path.to_owned(), begins: printable(begin) });
        }
        let damaged = |what: &str| ReadError::Header { path: path.to_owned(), what: what.to_owned() };
        let cut = |_: Malformed| damaged("its header is cut off");
        let mut cursor = Cursor::new(begin.get(MAGIC.len()..).unwrap_or(&[]));
        let (major, minor) = (cursor.u16("").map_err(cut)?, cursor.u16("").map_err(cut)?);
        if major != FORMAT_MAJOR {
            return Err(ReadError::Version {
                path: path.to_owned(),
                found_major: major,
                found_minor: minor,
                known_major: FORMAT_MAJOR,
            });
        }
        let length = cursor.u32("").map_err(cut)? as usize;
        if !(FIXED + 4..=limits::MAX_HEADER).contains(&length) {
            return Err(damaged(&format!("its header claims {length} bytes")));
        }
        Ok(length)
    }

    /// Reads a whole header.
    pub(crate) fn decode(path: &Path, bytes: &[u8]) -> Result<SegmentHeader, ReadError> {
        let damaged = |what: &str| ReadError::Header { path: path.to_owned(), what: what.to_owned() };
        let Some((covered, crc)) = bytes.split_last_chunk::<4>() else { return Err(damaged("its header is cut off")) };
        if crc32fast::hash(covered) != u32::from_le_bytes(*crc) {
            return Err(damaged("its header's checksum is wrong"));
        }
        SegmentHeader::decode_fields(covered).map_err(|Malformed(what)| damaged(&format!("its header has no {what}")))
    }

    fn decode_fields(covered: &[u8]) -> Result<SegmentHeader, Malformed> {
        let mut cursor = Cursor::new(covered);
        cursor.take(MAGIC.len() + 2, "magic")?;
        let minor = cursor.u16("version")?;
        cursor.u32("length")?;
        let ordinal = cursor.u32("ordinal")?;
        let pid = cursor.u32("process id")?;
        let start_time = cursor.u64("start time")?;
        let session = cursor.u64("session")?;
        let clock = ClockSnapshot {
            monotonic: cursor.u64("clock")?,
            boottime: cursor.u64("clock")?,
            realtime: cursor.u64("clock")?,
        };
        let mut name = |what| {
            let length = cursor.u32(what)? as usize;
            Ok(String::from_utf8_lossy(cursor.take(length, what)?).into_owned())
        };
        let host = name("host name")?;
        let job_id = name("job id")?;
        // What a newer minor version put behind is skipped.
        Ok(SegmentHeader { minor, job_id, key: ProcessKey { host, pid, start_time }, session, ordinal, clock })
    }
}

/// The longest beginning of a string that takes at most `limit` bytes.
pub(crate) fn clip(text: &str, limit: usize) -> &str {
    let mut end = text.len().min(limit);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// The first bytes of a foreign file for a message.
fn printable(begin: &[u8]) -> String {
    let begin = begin.get(..begin.len().min(8)).unwrap_or(begin);
    format!("\"{}\"", begin.escape_ascii())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{FIXED, FORMAT_MAJOR, SegmentHeader, clip};
    use crate::error::ReadError;
    use crate::evidence::ClockSnapshot;
    use crate::stream::ProcessKey;

    fn header() -> SegmentHeader {
        SegmentHeader {
            minor: super::FORMAT_MINOR,
            job_id: "job-7".to_owned(),
            key: ProcessKey { host: "n0".to_owned(), pid: 77, start_time: 123_456 },
            session: 99,
            ordinal: 3,
            clock: ClockSnapshot { monotonic: 1, boottime: 2, realtime: 3 },
        }
    }

    fn read(bytes: &[u8]) -> Result<SegmentHeader, ReadError> {
        let path = Path::new("x.rdt");
        let length = SegmentHeader::length(path, &bytes[..bytes.len().min(FIXED)])?;
        SegmentHeader::decode(path, bytes.get(..length).unwrap_or(bytes))
    }

    #[test]
    fn round_trips_and_skips_what_a_newer_minor_adds() {
        let mut bytes = header().encode();
        assert_eq!(read(&bytes).expect("whole"), header());
        bytes.truncate(bytes.len() - 4);
        bytes.extend_from_slice(b"something new");
        let length = (bytes.len() + 4) as u32;
        bytes[10..12].copy_from_slice(&9_u16.to_le_bytes());
        bytes[12..16].copy_from_slice(&length.to_le_bytes());
        let crc = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        assert_eq!(read(&bytes).expect("newer minor"), SegmentHeader { minor: 9, ..header() });
    }

    #[test]
    fn every_prefix_and_every_flipped_byte_is_an_error() {
        let bytes = header().encode();
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length]).is_err(), "prefix of {length} bytes");
        }
        for index in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[index] ^= 0x10;
            assert!(read(&flipped).is_err(), "byte {index}");
        }
    }

    #[test]
    fn each_foreign_input_has_its_own_message() {
        let text = |bytes: &[u8]| read(bytes).expect_err("foreign").to_string();
        assert!(text(b"").contains("is empty"), "{}", text(b""));
        assert!(text(b"{\"a\": 1}").starts_with("not a rankdiff trace: x.rdt begins with \"{\\\"a\\\": 1}\""));
        assert!(text(b"\x89PNG\r\n\x1a\nxxxxxxxx").contains("\\x89PNG"), "{}", text(b"\x89PNG\r\n\x1a\nxxxxxxxx"));
        let mut newer = header().encode();
        newer[8..10].copy_from_slice(&(FORMAT_MAJOR + 1).to_le_bytes());
        assert!(text(&newer).contains("format 2.0; this build reads 1.x"), "{}", text(&newer));
    }

    #[test]
    fn clips_at_characters() {
        assert_eq!(clip("aé", 2), "a");
        assert_eq!(clip("aé", 3), "aé");
    }
}
