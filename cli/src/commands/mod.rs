//! One file per command.

pub(crate) mod analyze;
pub(crate) mod doctor;
pub(crate) mod dump;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod import;
pub(crate) mod info;
pub(crate) mod list_probes;
pub(crate) mod manual;
pub(crate) mod pack;
pub(crate) mod record;
pub(crate) mod show;
pub(crate) mod synth;
