//! Calls of one thread on their way into the stream: kept in the order they were made until they return.
//!
//! A call that has not returned at a flush is written without its return; the return follows as a record of its own.

use std::collections::VecDeque;

use rankdiff_trace::{Call, CommRef, Gap, GapCause, Record, Return};

use crate::communicators::Creation;

/// A recorded call that may still return.
#[derive(Debug)]
pub struct Open {
    /// The call; `None` for an auxiliary function, which is no call of the job's pattern.
    pub call: Option<Call>,
    /// The communicator it was made on.
    pub comm: CommRef,
    /// Raw values, given back to the decoder at the return; empty where the return teaches it nothing.
    pub args: Vec<u64>,
    /// Memory regions, likewise.
    pub regions: [Vec<u8>; 2],
    /// The communicator that it is about to make.
    pub creation: Option<Creation>,
    /// Whether a return is awaited.
    pub returns: bool,
    /// Whether the call is in the stream already.
    pub written: bool,
    /// Ordinal on the thread.
    pub seq: u64,
}

/// One thread.
#[derive(Debug)]
pub struct Thread {
    tid: u32,
    next_seq: u64,
    last_time: u64,
    queue: VecDeque<Open>,
    /// Calls seen, auxiliary ones included.
    pub seen: u64,
    /// Calls known to be lost.
    pub lost: u64,
}

impl Thread {
    /// A thread that made no call yet; its calls begin at `first_seq` (0 unless the recorder came late).
    pub fn new(tid: u32, now: u64) -> Thread {
        Thread { tid, next_seq: 0, last_time: now, queue: VecDeque::new(), seen: 0, lost: 0 }
    }

    /// Notes the entry with this ordinal; returns the gap before it, if there is one.
    pub fn enter(&mut self, seq: u64, time: u64) -> Option<Gap> {
        self.seen += 1;
        if seq == u64::MAX {
            return None;
        }
        let gap = self.gap_up_to(seq, time);
        self.next_seq = seq + 1;
        self.last_time = time;
        gap
    }

    /// The gap between the last call seen and this ordinal, if calls are missing there.
    pub fn gap_up_to(&mut self, seq: u64, before: u64) -> Option<Gap> {
        let missing = seq.checked_sub(self.next_seq).filter(|&missing| missing > 0)?;
        self.lost += missing;
        let first_thread_seq = self.next_seq;
        self.next_seq = seq;
        Some(Gap {
            cause: GapCause::RingFull,
            thread: self.tid,
            first_thread_seq,
            events: Some(missing),
            after: self.last_time,
            before,
        })
    }

    /// Queues a call.
    pub fn push(&mut self, open: Open) {
        self.queue.push_back(open);
    }

    /// The call with this ordinal that awaits its return or its out handle.
    pub fn find(&mut self, seq: u64) -> Option<&mut Open> {
        self.queue.iter_mut().rev().find(|open| open.seq == seq)
    }

    /// Completes the call with this ordinal; returns a record if it was in the stream already.
    pub fn returned(&mut self, seq: u64, exit: u64, result: i64) -> Option<Record> {
        let open = self.find(seq)?;
        open.returns = false;
        let call = open.call.as_mut()?;
        call.exit = Some(exit);
        call.result = Some(result);
        if !open.written {
            return None;
        }
        Some(Record::Return(Return {
            thread: call.thread,
            thread_seq: call.thread_seq,
            exit,
            result,
            made: call.made,
            completion: call.completion,
        }))
    }

    /// Takes the calls from the front that are complete, in order.
    pub fn take_complete(&mut self) -> impl Iterator<Item = Call> + '_ {
        std::iter::from_fn(|| {
            loop {
                self.queue.front().filter(|open| !open.returns)?;
                let open = self.queue.pop_front()?;
                if !open.written
                    && let Some(call) = open.call
                {
                    return Some(call);
                }
            }
        })
    }

    /// Copies every call that is not in the stream yet, in order; those that await a return stay queued.
    pub fn take_all(&mut self) -> Vec<Call> {
        let mut calls = Vec::new();
        for open in &mut self.queue {
            if !open.written {
                open.written = true;
                calls.extend(open.call.clone());
            }
        }
        self.queue.retain(|open| open.returns);
        calls
    }

    /// Whether a call that blocks has not returned.
    pub fn is_inside(&self) -> bool {
        self.queue.iter().any(|open| open.returns && open.call.is_some())
    }

    /// Whether anything waits to be written.
    pub fn is_dirty(&self) -> bool {
        self.queue.iter().any(|open| !open.written)
    }
}

#[cfg(test)]
mod tests {
    use super::{Open, Thread};
    use rankdiff_trace::{Call, CommRef, Record};

    fn open(seq: u64, returns: bool) -> Open {
        Open {
            call: Some(Call { thread: 5, thread_seq: seq, ..Call::default() }),
            comm: CommRef::NONE,
            args: Vec::new(),
            regions: [Vec::new(), Vec::new()],
            creation: None,
            returns,
            written: false,
            seq,
        }
    }

    fn numbers(calls: impl IntoIterator<Item = Call>) -> Vec<u64> {
        calls.into_iter().map(|call| call.thread_seq).collect()
    }

    #[test]
    fn calls_leave_in_the_order_they_were_made() {
        let mut thread = Thread::new(5, 0);
        for (seq, returns) in [(0, true), (1, false), (2, true)] {
            assert_eq!(thread.enter(seq, seq * 10), None);
            thread.push(open(seq, returns));
        }
        assert_eq!(numbers(thread.take_complete()), [0_u64; 0], "the first has not returned");
        assert_eq!(thread.returned(2, 99, 0), None);
        assert_eq!(thread.returned(0, 100, 0), None);
        assert_eq!(numbers(thread.take_complete()), [0, 1, 2]);
        assert!(!thread.is_inside());
    }

    #[test]
    fn a_return_after_a_flush_is_a_record_of_its_own() {
        let mut thread = Thread::new(5, 0);
        thread.push(open(0, true));
        assert_eq!(numbers(thread.take_all()), [0]);
        assert!(thread.is_inside());
        let Some(Record::Return(back)) = thread.returned(0, 7, 3) else { panic!("a return record") };
        assert_eq!((back.thread_seq, back.exit, back.result), (0, 7, 3));
        assert_eq!(numbers(thread.take_complete()), [0_u64; 0]);
    }

    #[test]
    fn missing_ordinals_are_a_placed_gap() {
        let mut thread = Thread::new(5, 100);
        assert_eq!(thread.enter(0, 110), None);
        let gap = thread.enter(4, 150).expect("three calls are missing");
        assert_eq!((gap.first_thread_seq, gap.events, gap.after, gap.before), (1, Some(3), 110, 150));
        let tail = thread.gap_up_to(7, 200).expect("two at the end");
        assert_eq!((tail.first_thread_seq, tail.events), (5, Some(2)));
        assert_eq!((thread.seen, thread.lost), (2, 5));
    }
}
