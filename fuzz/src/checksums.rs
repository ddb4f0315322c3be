//! Puts the checksums of a segment right, so that what a fuzzer changed is read rather than refused.

use xxhash_rust::xxh3::xxh3_64;

/// Length of a block's fixed header.
const BLOCK_HEADER: usize = 56;
const BLOCK_MAGIC: &[u8] = b"RDb\n";

fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    let field = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(field.try_into().ok()?) as usize)
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(field) = bytes.get_mut(at..at + 4) {
        field.copy_from_slice(&value.to_le_bytes());
    }
}

/// Computes every checksum anew, as far as the lengths lead; blocks hold at most `records` records, so that a small
/// input stays a small trace.
pub fn repair(bytes: &mut [u8], records: u32) {
    let Some(header) = u32_at(bytes, 12).filter(|&length| (20..=bytes.len()).contains(&length)) else { return };
    let crc = crc32fast::hash(&bytes[..header - 4]);
    put(bytes, header - 4, crc);
    let mut at = header;
    let mut calls_before = 0_u64;
    while at + BLOCK_HEADER <= bytes.len() {
        let lengths = (u32_at(bytes, at + 8), u32_at(bytes, at + 16), u32_at(bytes, at + 20));
        let (Some(stored), Some(count), Some(table)) = lengths else { return };
        let end = (at + BLOCK_HEADER).saturating_add(table).saturating_add(stored);
        if end > bytes.len() {
            return;
        }
        bytes[at..at + 4].copy_from_slice(BLOCK_MAGIC);
        let count = (count as u32).min(records);
        put(bytes, at + 16, count);
        bytes[at + 40..at + 48].copy_from_slice(&calls_before.to_le_bytes());
        if bytes[at + 4..at + 6] == [16, 0] {
            calls_before += u64::from(count);
        }
        let body = at + BLOCK_HEADER + table;
        let crc = crc32fast::hash(&bytes[body..end]);
        put(bytes, at + 48, crc);
        let mut head = crc32fast::Hasher::new();
        head.update(&bytes[at..at + 52]);
        head.update(&bytes[at + BLOCK_HEADER..body]);
        put(bytes, at + 52, head.finalize());
        at = end;
    }
}

/// Where a tail's ring begins, bytes of a row, and where its two seal records are.
const RING: usize = 4096;
const ROW: usize = 128;
const SEALS: [usize; 2] = [2112, 2144];

/// Computes the checksums of a live tail anew: of its header, of its seal records and of each row.
pub fn repair_tail(bytes: &mut [u8]) {
    let Some(header) = u32_at(bytes, 12).filter(|&length| (20..=bytes.len().min(2048)).contains(&length)) else {
        return;
    };
    let crc = crc32fast::hash(&bytes[..header - 4]);
    put(bytes, header - 4, crc);
    for at in SEALS {
        if let Some(seal) = bytes.get_mut(at..at + 32) {
            let hash = xxh3_64(&seal[..24]);
            seal[24..].copy_from_slice(&hash.to_le_bytes());
        }
    }
    for row in bytes.get_mut(RING..).into_iter().flat_map(|ring| ring.chunks_exact_mut(ROW)) {
        let hash = xxh3_64(&row[8..]);
        row[..8].copy_from_slice(&hash.to_le_bytes());
    }
}

/// The same segment without compression, for a fuzzer to change the records themselves. What is no whole block is left
/// out.
pub fn unpacked(bytes: &[u8]) -> Vec<u8> {
    let Some(header) = u32_at(bytes, 12).filter(|&length| length <= bytes.len()) else { return Vec::new() };
    let mut out = bytes[..header].to_vec();
    let mut at = header;
    while let (Some(stored), Some(raw), Some(table)) =
        (u32_at(bytes, at + 8), u32_at(bytes, at + 12), u32_at(bytes, at + 20))
    {
        let body = at + BLOCK_HEADER + table;
        let Some(payload) = bytes.get(body..body + stored) else { break };
        let mut fixed = bytes[at..body].to_vec();
        let plain = if fixed[6] & 1 == 1 { zstd::bulk::decompress(payload, raw).ok() } else { None };
        if let Some(plain) = &plain {
            fixed[6] &= !1;
            put(&mut fixed, 8, plain.len() as u32);
        }
        out.extend_from_slice(&fixed);
        out.extend_from_slice(plain.as_deref().unwrap_or(payload));
        at = body + stored;
    }
    repair(&mut out, u32::MAX);
    out
}
