//! One file per command.

pub mod analyze;
pub mod doctor;
pub mod explain;
pub mod list_probes;
pub mod manual;
pub mod record;
pub mod show;
pub mod synth;
