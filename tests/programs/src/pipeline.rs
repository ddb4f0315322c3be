//! Messages of pipelines: each stage passes activations on and gradients back, micro-batch by micro-batch, one forward and
//! one backward in turn, with several chunks of the model on each rank or one.
//!
//! The order in which stages are let go on is chance. Any order that was possible once is one that cannot deadlock.

use std::collections::BTreeSet;

use fastrand::Rng;

/// A message between two ranks of a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passed {
    /// Sender.
    pub from: u32,
    /// Receiver.
    pub to: u32,
    /// Forward: activations.
    pub forward: bool,
    /// Which part of the batch.
    pub micro_batch: u32,
    /// Chunk of the model at the receiver.
    pub chunk: u32,
}

/// The messages of one step, in an order in which they can be passed.
pub fn messages(rng: &mut Rng, ranks: &[u32], micro_batches: u32, chunks: u32) -> Vec<Passed> {
    let stages = ranks.len() as u32;
    let virtual_stages = stages * chunks;
    let rank_of = |stage: u32| ranks[(stage % stages) as usize];
    let mut forward_done: BTreeSet<(u32, u32)> = BTreeSet::new();
    let mut backward_done: BTreeSet<(u32, u32)> = BTreeSet::new();
    let mut in_flight = vec![0_u32; stages as usize];
    let mut passed = Vec::new();
    let total = virtual_stages * micro_batches;
    while (backward_done.len() as u32) < total {
        let mut ready: Vec<(bool, u32, u32)> = Vec::new();
        for stage in 0..virtual_stages {
            let next_forward = (0..micro_batches).find(|&batch| !forward_done.contains(&(stage, batch)));
            if let Some(batch) = next_forward
                && (stage == 0 || forward_done.contains(&(stage - 1, batch)))
            {
                ready.push((true, stage, batch));
            }
            let next_backward = (0..micro_batches).find(|&batch| !backward_done.contains(&(stage, batch)));
            if let Some(batch) = next_backward
                && forward_done.contains(&(stage, batch))
                && (stage + 1 == virtual_stages || backward_done.contains(&(stage + 1, batch)))
            {
                ready.push((false, stage, batch));
            }
        }
        // One forward, one backward: a stage that holds enough activations gives some back first, if it can.
        let warm = |stage: u32| in_flight[(stage % stages) as usize] >= (stages - stage % stages) * chunks;
        let fits = |&(forward, stage, _): &(bool, u32, u32)| !forward || !warm(stage);
        let preferred: Vec<_> = ready.iter().copied().filter(fits).collect();
        let Some(&(forward, stage, micro_batch)) = rng.choice(if preferred.is_empty() { &ready } else { &preferred })
        else {
            break;
        };
        let chunk = stage / stages;
        let source = if forward { stage.checked_sub(1) } else { Some(stage + 1).filter(|&next| next < virtual_stages) };
        if let Some(from) = source.map(rank_of).filter(|&from| from != rank_of(stage)) {
            passed.push(Passed { from, to: rank_of(stage), forward, micro_batch, chunk });
        }
        let held = &mut in_flight[(stage % stages) as usize];
        if forward {
            forward_done.insert((stage, micro_batch));
            *held += 1;
        } else {
            backward_done.insert((stage, micro_batch));
            *held = held.saturating_sub(1);
        }
    }
    passed
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::messages;

    #[test]
    fn every_micro_batch_passes_every_stage_forward_and_back() {
        for seed in 0..50 {
            let mut rng = Rng::with_seed(seed);
            let (stages, batches, chunks) = (rng.u32(2..5), rng.u32(1..6), rng.u32(1..4));
            let ranks: Vec<u32> = (0..stages).map(|stage| 3 + 2 * stage).collect();
            let passed = messages(&mut rng, &ranks, batches, chunks);
            // Between virtual stages, once forward and once back.
            assert_eq!(passed.len() as u32, 2 * (stages * chunks - 1) * batches, "{seed}");
            let forward = passed.iter().filter(|one| one.forward).count();
            assert_eq!(forward * 2, passed.len(), "{seed}");
        }
    }
}
