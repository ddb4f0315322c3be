//! Healthy programs: nothing at warning level or above.

use fastrand::Rng;
use rankdiff_analyzer::finding::{Class, Severity};

use crate::program::Program;
use crate::{report, seed, times};

/// What the recorder missed of a healthy job.
fn blindness(rng: &mut Rng, program: &mut Program, calls: u64) {
    if program.world < 3 {
        return;
    }
    let rank = rng.u32(0..program.world);
    match rng.u8(0..6) {
        0 => program.blind.push(format!("attached_at: {{\"{rank}\": {}}}", rng.u64(1..200 * calls.max(1)))),
        1 => program.blind.push(format!(
            "lost: {{\"{rank}\": [{{after_call: {}, events: {}}}]}}",
            rng.u64(1..calls.max(2)),
            rng.u64(1..40)
        )),
        2 => program.blind.push(format!("missing_files: \"{rank}\"")),
        3 => program.blind.push(format!("clock_offset_ms: {{\"{rank}\": {}}}", rng.u64(1..100_000))),
        _ => {}
    }
}

#[test]
fn healthy_programs_are_clean() {
    let seed = seed("healthy_programs_are_clean");
    let mut false_alarms = Vec::new();
    for number in 0..times(500) {
        let mut rng = Rng::with_seed(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        // Log-uniform, most of them short.
        let calls = 2_f64.powf(rng.f64() * 10.0) as u64;
        let mut program = Program::random(&mut rng, calls);
        blindness(&mut rng, &mut program, calls);
        let end = format!("{{\"0-{}\": {{exited: 0, t: 100000000}}}}", program.world - 1);
        let document = program.document(&format!("R{number}"), &end);
        let report = report(&document);
        let loud: Vec<String> = report
            .findings
            .iter()
            .filter(|finding| finding.severity >= Severity::Warning)
            .map(|finding| format!("{} {}", finding.code, finding.headline))
            .collect();
        if !loud.is_empty() || report.class != Class::Clean {
            let kept = std::env::temp_dir().join(format!("rankdiff-healthy-{seed}-{number}.yaml"));
            std::fs::write(&kept, &document).expect("the temporary directory takes it");
            false_alarms.push(format!("{}: {:?} {loud:?}", kept.display(), report.class));
        }
    }
    assert!(false_alarms.is_empty(), "{} false alarms:\n{}", false_alarms.len(), false_alarms.join("\n"));
}
