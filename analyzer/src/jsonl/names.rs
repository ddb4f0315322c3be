//! Names of what the trace format has numbers for.

use std::borrow::Cow;

use rankdiff_trace::{CallFlags, FrameKind, GapCause, Level, Provenance, RankSource, Semantics};

use super::Refused;

/// Bits of [`CallFlags`].
const FLAGS: &[(u32, &str)] = &[
    (CallFlags::NONBLOCKING.0, "nonblocking"),
    (CallFlags::IN_PLACE.0, "in_place"),
    (CallFlags::NESTED.0, "nested"),
    (CallFlags::CAPTURED.0, "captured"),
    (CallFlags::PERSISTENT.0, "persistent"),
    (CallFlags::UNREADABLE.0, "unreadable"),
    (CallFlags::VECTORS_CUT.0, "vectors_cut"),
    (CallFlags::INCOMPLETE.0, "incomplete"),
    (CallFlags::DONE.0, "done"),
    (CallFlags::ROOT_IS_SELF.0, "root_is_self"),
    (CallFlags::BYSTANDER.0, "bystander"),
    (CallFlags::ANY_SOURCE.0, "any_source"),
    (CallFlags::ANY_TAG.0, "any_tag"),
    (CallFlags::GROUPED.0, "grouped"),
];

/// Bits of [`Semantics`].
const SEMANTICS: &[(u32, &str)] = &[
    (Semantics::BLOCKING.0, "blocking"),
    (Semantics::NONBLOCKING_DISTINCT.0, "nonblocking_distinct"),
    (Semantics::GROUP_P2P_UNORDERED.0, "group_p2p_unordered"),
    (Semantics::GROUP_ORDER_ACROSS_COMMS.0, "group_order_across_comms"),
    (Semantics::SENDS_MAY_BUFFER.0, "sends_may_buffer"),
    (Semantics::BARRIER_IS_ALL_REDUCE.0, "barrier_is_all_reduce"),
    (Semantics::P2P_SIZE_EXACT.0, "p2p_size_exact"),
];

/// Codes of [`Level`].
const LEVELS: &[(u32, &str)] = &[(1, "framework"), (2, "library"), (3, "transport")];
/// Codes of [`Provenance`].
const PROVENANCES: &[(u32, &str)] =
    &[(1, "created"), (2, "predefined"), (3, "declared"), (4, "inferred"), (5, "unknown")];
/// Codes of [`RankSource`].
const SOURCES: &[(u32, &str)] = &[(1, "library"), (2, "environment"), (3, "declared"), (4, "inferred")];
/// Codes of [`FrameKind`].
const FRAMES: &[(u32, &str)] = &[(1, "native"), (2, "python"), (3, "text")];

/// What stands before the number of something without a name.
const NUMBERED: &str = "code_";
/// What stands before the number of a bit without a name.
const BIT: &str = "bit_";

fn name_of(table: &[(u32, &'static str)], code: u32) -> Cow<'static, str> {
    match table.iter().find(|known| known.0 == code) {
        Some((_, name)) => Cow::Borrowed(name),
        None => Cow::Owned(format!("{NUMBERED}{code}")),
    }
}

fn code_of(table: &[(u32, &str)], name: &str) -> Option<u8> {
    let named = table.iter().find(|known| known.1 == name).map(|known| known.0);
    let code = named.or_else(|| name.strip_prefix(NUMBERED)?.parse().ok())?;
    u8::try_from(code).ok()
}

fn bit_names(table: &[(u32, &'static str)], bits: u32) -> Vec<Cow<'static, str>> {
    (0..32)
        .filter(|bit| bits & (1 << bit) != 0)
        .map(|bit| match table.iter().find(|known| known.0 == 1 << bit) {
            Some((_, name)) => Cow::Borrowed(*name),
            None => Cow::Owned(format!("{BIT}{bit}")),
        })
        .collect()
}

fn bits_of(table: &[(u32, &str)], names: &[Cow<'_, str>]) -> Result<u32, Refused> {
    names.iter().try_fold(0, |bits, name| {
        let named = table.iter().find(|known| known.1 == &**name).map(|known| known.0);
        let numbered = || name.strip_prefix(BIT)?.parse::<u32>().ok().and_then(|bit| 1_u32.checked_shl(bit));
        named.or_else(numbered).map(|bit| bits | bit).ok_or(Refused::Newer)
    })
}

pub(super) fn flags(flags: CallFlags) -> Vec<Cow<'static, str>> {
    bit_names(FLAGS, flags.0)
}

pub(super) fn flags_of(names: &[Cow<'_, str>]) -> Result<CallFlags, Refused> {
    bits_of(FLAGS, names).map(CallFlags)
}

pub(super) fn semantics(semantics: Semantics) -> Vec<Cow<'static, str>> {
    bit_names(SEMANTICS, semantics.0)
}

pub(super) fn semantics_of(names: &[Cow<'_, str>]) -> Result<Semantics, Refused> {
    bits_of(SEMANTICS, names).map(Semantics)
}

pub(super) fn cause(cause: GapCause) -> Cow<'static, str> {
    cause.name().into()
}

pub(super) fn cause_of(name: &str) -> Result<GapCause, Refused> {
    let mut known = (0..=u8::MAX).filter_map(GapCause::from_code);
    known.find(|cause| cause.name() == name).ok_or(Refused::Newer)
}

pub(super) fn level(level: Level) -> Cow<'static, str> {
    name_of(LEVELS, level as u32)
}

pub(super) fn level_of(name: &str) -> Result<Level, Refused> {
    code_of(LEVELS, name).and_then(Level::from_code).ok_or(Refused::Newer)
}

pub(super) fn provenance(provenance: Provenance) -> Cow<'static, str> {
    name_of(PROVENANCES, provenance as u32)
}

pub(super) fn provenance_of(name: &str) -> Result<Provenance, Refused> {
    code_of(PROVENANCES, name).and_then(Provenance::from_code).ok_or(Refused::Newer)
}

pub(super) fn source(source: RankSource) -> Cow<'static, str> {
    name_of(SOURCES, source as u32)
}

pub(super) fn source_of(name: &str) -> Result<RankSource, Refused> {
    code_of(SOURCES, name).and_then(RankSource::from_code).ok_or(Refused::Newer)
}

pub(super) fn frame(kind: FrameKind) -> Cow<'static, str> {
    name_of(FRAMES, kind as u32)
}

pub(super) fn frame_of(name: &str) -> Result<FrameKind, Refused> {
    code_of(FRAMES, name).and_then(FrameKind::from_code).ok_or(Refused::Newer)
}

#[cfg(test)]
mod tests {
    use rankdiff_trace::{CallFlags, GapCause, Level, Provenance, RankSource, Semantics};

    use super::{FLAGS, SEMANTICS, bit_names, bits_of, cause, cause_of};

    #[test]
    fn every_code_has_a_name_that_leads_back() {
        for code in 0..=u8::MAX {
            if let Some(known) = GapCause::from_code(code) {
                assert_eq!(cause_of(&cause(known)).expect("known"), known);
            }
            if let Some(known) = Level::from_code(code) {
                assert_eq!(super::level_of(&super::level(known)).expect("known"), known);
            }
            if let Some(known) = Provenance::from_code(code) {
                assert_eq!(super::provenance_of(&super::provenance(known)).expect("known"), known);
            }
            if let Some(known) = RankSource::from_code(code) {
                assert_eq!(super::source_of(&super::source(known)).expect("known"), known);
            }
        }
    }

    #[test]
    fn bits_without_a_name_survive() {
        for bits in [0, 1, 1 << 13, 1 << 31 | 1, u32::MAX] {
            for table in [FLAGS, SEMANTICS] {
                assert_eq!(bits_of(table, &bit_names(table, bits)).expect("known"), bits);
            }
        }
        assert!(bits_of(FLAGS, &["bit_32".into()]).is_err());
        assert!(bits_of(FLAGS, &["something_new".into()]).is_err());
        assert_eq!(bit_names(FLAGS, CallFlags::GROUPED.0), ["grouped"]);
        assert_eq!(bit_names(SEMANTICS, Semantics::BLOCKING.0), ["blocking"]);
    }
}
