//! Packs, and files of other formats, as input: unpacked or imported into a private directory that is removed afterwards.

use std::path::{Path, PathBuf};

use rankdiff_trace::TraceDir;
use rankdiff_trace::pack::{Limits, is_pack, unpack};
use tempfile::TempDir;

use crate::commands::import::as_trace;
use crate::drafts::Draft;
use crate::failure::{Failure, USAGE};

/// Inputs that can be read as directories or files of traces.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    paths: Vec<PathBuf>,
    /// Where packs are unpacked, and the packs.
    unpacked: Vec<(Draft<TempDir>, PathBuf)>,
    /// What an importer left out, in words.
    remarks: Vec<String>,
}

impl Inputs {
    /// What somebody named; packs are unpacked.
    pub(crate) fn open(named: &[PathBuf]) -> Result<Inputs, Failure> {
        let mut inputs = Inputs::default();
        for path in named {
            if is_pack(path) {
                let place = unpack_pack(path)?;
                inputs.paths.push(place.path().to_owned());
                inputs.unpacked.push((place, path.clone()));
            } else if let Some((place, remarks)) = as_trace(path)? {
                inputs.paths.push(place.path().to_owned());
                inputs.unpacked.push((place, path.clone()));
                inputs.remarks.extend(remarks);
            } else {
                inputs.paths.push(path.clone());
            }
        }
        Ok(inputs)
    }

    /// Where they can be read.
    pub(crate) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// What importers left out, in words.
    pub(crate) fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// A message, with a pack's name in place of where it was unpacked.
    pub(crate) fn shown(&self, text: &str) -> String {
        self.unpacked.iter().fold(text.to_owned(), |text, (place, pack)| {
            text.replace(&*place.path().to_string_lossy(), &pack.to_string_lossy())
        })
    }
}

fn unpack_pack(path: &Path) -> Result<Draft<TempDir>, Failure> {
    let place = Draft::make(|| tempfile::Builder::new().prefix("rankdiff-pack-").tempdir())?;
    let into = TraceDir::open(place.path())?;
    unpack(path, &into, Limits::default()).map_err(|error| Failure::new(USAGE, error))?;
    Ok(place)
}
