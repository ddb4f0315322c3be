//! Positions: counters per communicator, per peer and tag, and the generation of reused handles.
//!
//! They advance at entry, whether or not the record finds room, so a position survives a lost record. A nested call
//! advances nothing: the call around it did.

use rankdiff_common::event::flag;
use rankdiff_common::map::{CommCounters, CommKey, PeerKey, lost};
use rankdiff_common::probe::{ProbeDesc, counter, handle};

use crate::maps::{COMMS, NO_EXIST, PEERS};
use crate::memory::{fetch_add, read_user};
use crate::output::count_lost;
use crate::values::Values;

/// Where a call stands on its communicator.
pub(crate) struct Position {
    /// Handle of the communicator, 0 if none.
    pub(crate) comm: u64,
    /// Value of the call's counter before it.
    pub(crate) seq: u64,
    /// Generation of the handle.
    pub(crate) generation: u32,
    /// [`flag`]s for the record.
    pub(crate) flags: u8,
}

/// Finds a call's communicator and advances its counter.
#[inline(always)]
pub(crate) fn position(desc: &ProbeDesc, values: &mut Values, tgid: u32, nested: bool) -> Position {
    let mut position = Position { comm: 0, seq: 0, generation: 0, flags: flag::NO_SEQ };
    if desc.comm_handle == handle::NONE {
        return position;
    }
    let Some(comm) = values.get(desc.comm).and_then(|value| held(value, desc.comm_handle)) else {
        position.flags = flag::NO_SEQ | flag::COMM_UNREADABLE;
        return position;
    };
    position.comm = comm;
    let key = CommKey { handle: comm, tgid, reserved: 0 };
    let counts = desc.counter != counter::NONE && !nested;
    let counters = if counts { counters(&key) } else { COMMS.get_ptr_mut(&key) };
    let Some(counters) = counters else {
        if counts {
            count_lost(lost::COUNTER);
        }
        return position;
    };
    // SAFETY: points into a map value; read in one instruction.
    position.generation = unsafe { (*counters).generation };
    if !counts {
        return position;
    }
    let seq = match desc.counter {
        // SAFETY (both): points into a map value.
        counter::COLLECTIVE => Some(unsafe { fetch_add(&raw mut (*counters).collectives, 1) }),
        counter::CREATION => Some(unsafe { fetch_add(&raw mut (*counters).creations, 1) }),
        counter::SEND | counter::RECV => {
            let seq = peer(desc, values, &key, position.generation);
            if seq.is_none() {
                count_lost(lost::COUNTER);
            }
            seq
        }
        counter::FREE => {
            restart(counters);
            None
        }
        _ => None,
    };
    if let Some(seq) = seq {
        position.seq = seq;
        position.flags = 0;
    }
    position
}

/// Starts a new generation of a handle and gives its number; `None`: no room for it.
#[inline(always)]
pub(crate) fn register(handle: u64, tgid: u32) -> Option<u32> {
    let counters = counters(&CommKey { handle, tgid, reserved: 0 });
    if counters.is_none() {
        count_lost(lost::COUNTER);
    }
    counters.map(restart)
}

/// The generation that a handle has.
#[inline(always)]
pub(crate) fn generation(handle: u64, tgid: u32) -> u32 {
    // SAFETY: points into a map value; read in one instruction.
    COMMS.get_ptr(&CommKey { handle, tgid, reserved: 0 }).map_or(0, |counters| unsafe { (*counters).generation })
}

/// The handle that a value is or points to.
#[inline(always)]
pub(crate) fn held(value: u64, mode: u8) -> Option<u64> {
    match mode {
        handle::VALUE32 => Some(value & 0xffff_ffff),
        handle::VALUE64 => Some(value),
        handle::AT32 => read_user::<u32>(value).map(u64::from),
        handle::AT64 => read_user(value),
        _ => None,
    }
}

/// Counters of a communicator, made if there are none.
#[inline(always)]
fn counters(key: &CommKey) -> Option<*mut CommCounters> {
    if let Some(counters) = COMMS.get_ptr_mut(key) {
        return Some(counters);
    }
    let _ = COMMS.insert(key, &CommCounters { collectives: 0, creations: 0, generation: 0, reserved: 0 }, NO_EXIST);
    COMMS.get_ptr_mut(key)
}

/// Begins the next generation.
#[inline(always)]
fn restart(counters: *mut CommCounters) -> u32 {
    // SAFETY: points into a map value. A program that uses a handle while it is released or created is wrong anyway, so
    // plain stores do.
    unsafe {
        (*counters).collectives = 0;
        (*counters).creations = 0;
        (*counters).generation = (*counters).generation.wrapping_add(1);
        (*counters).generation
    }
}

/// Advances the counter of a (communicator, peer, tag, direction).
#[inline(always)]
fn peer(desc: &ProbeDesc, values: &mut Values, comm: &CommKey, generation: u32) -> Option<u64> {
    let key = PeerKey {
        handle: comm.handle,
        tgid: comm.tgid,
        generation,
        peer: values.get(desc.peer).unwrap_or(0) as u32,
        tag: values.get(desc.tag).unwrap_or(0) as u32,
        direction: u32::from(desc.counter),
        reserved: 0,
    };
    let mut count = PEERS.get_ptr_mut(&key);
    if count.is_none() {
        let _ = PEERS.insert(&key, &0, NO_EXIST);
        count = PEERS.get_ptr_mut(&key);
    }
    // SAFETY: points into a map value.
    count.map(|count| unsafe { fetch_add(count, 1) })
}
