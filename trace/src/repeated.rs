//! What a segment begins with beside definitions, so that it reads alone: the latest clocks, attributes and step mark.

use crate::definitions::Latest;
use crate::evidence::{Attribute, ClockSnapshot, StepMark};
use crate::queues::Queues;

/// The latest records of these kinds that were sealed.
#[derive(Debug, Default)]
pub(crate) struct Repeated {
    pub(crate) clock: Option<ClockSnapshot>,
    /// Told apart by (rank, key).
    pub(crate) attributes: Latest<(Option<u32>, String), Attribute>,
    pub(crate) step: Option<StepMark>,
}

impl Repeated {
    /// Moves on behind what waits; what could not be written is repeated all the more.
    pub(crate) fn advance(&mut self, queues: &Queues) {
        self.clock = queues.clocks.last().copied().or(self.clock);
        self.step = queues.steps.last().copied().or(self.step);
        for attribute in &queues.attributes {
            self.attributes.define((attribute.rank, attribute.key.clone()), attribute.clone());
        }
    }
}
