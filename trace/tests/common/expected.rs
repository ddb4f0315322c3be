//! What reading a stream must give, by the plainest means.

use rankdiff_trace::{CommRef, Completion, ProcessKey, ProcessTrace, Record};

/// The trace of these records: the latest of each definition, returns in their calls, the rest in order.
pub(crate) fn expected(key: ProcessKey, records: &[Record], closed: bool) -> ProcessTrace {
    fn put<T>(into: &mut Vec<T>, new: T, same: impl Fn(&T) -> bool) {
        match into.iter_mut().find(|old| same(old)) {
            Some(old) => *old = new,
            None => into.push(new),
        }
    }
    let mut trace = ProcessTrace { key, closed, ..ProcessTrace::default() };
    for record in records.iter().cloned() {
        match record {
            Record::Rank(def) => put(&mut trace.ranks, def, |old| (old.rank, old.attempt) == (def.rank, def.attempt)),
            Record::Comm(def) => {
                let id = def.id;
                put(&mut trace.comms, def, |old| old.id == id);
            }
            Record::Type(def) => {
                let id = def.id;
                put(&mut trace.types, def, |old| old.id == id);
            }
            Record::Site(def) => {
                let id = def.id;
                put(&mut trace.sites, def, |old| old.id == id);
            }
            Record::Label(id, text) => put(&mut trace.labels, (id, text), |old| old.0 == id),
            Record::Call(call) => trace.calls.push(call),
            Record::Return(entry) => {
                let call = trace
                    .calls
                    .iter_mut()
                    .find(|call| (call.thread, call.thread_seq) == (entry.thread, entry.thread_seq))
                    .expect("returns follow their calls");
                call.exit = Some(entry.exit);
                call.result = Some(entry.result);
                if entry.made != CommRef::NONE {
                    call.made = entry.made;
                }
                if entry.completion != Completion::Unknown {
                    call.completion = entry.completion;
                }
            }
            Record::Clock(clock) => trace.clocks.push(clock),
            Record::Gap(gap) => trace.gaps.push(gap),
            Record::State(state) => trace.states.push(state),
            Record::Thread(state) => trace.threads.push(state),
            Record::Log(line) => trace.logs.push(line),
            Record::Attribute(attribute) => trace.attributes.push(attribute),
            Record::Step(step) => trace.steps.push(step),
            _ => unreachable!("a kind that these tests do not know"),
        }
    }
    trace
}
