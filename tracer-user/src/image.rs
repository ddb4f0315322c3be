//! The memory image of a process: which objects are mapped where.

use std::path::PathBuf;
use std::sync::Arc;

use rankdiff_trace::{Frame, FrameKind};
use rustc_hash::FxHashMap;

use crate::elf::ElfInfo;
use crate::maps::{self, FileKey, Mapping};
use crate::symbols::Symbols;

/// What is mapped in a process.
#[derive(Debug, Clone, Default)]
pub struct Image {
    mappings: Vec<Mapping>,
    /// Data symbols of the executable and of the collective libraries.
    pub symbols: Symbols,
}

/// Where an address lies.
#[derive(Debug, Clone)]
pub struct Place {
    /// Module and offset, no names yet.
    pub frame: Frame,
    /// A path at which the object can be opened now.
    pub open: PathBuf,
}

impl Image {
    /// Reads the memory map again. Objects in `known` contribute their data symbols.
    pub fn refresh(&mut self, pid: u32, known: &FxHashMap<FileKey, Arc<ElfInfo>>) {
        // A process that is gone keeps the last map that was seen. One that is not yet reaped has an empty map.
        let Ok(mappings) = maps::read_maps(pid) else { return };
        if mappings.is_empty() {
            return;
        }
        self.mappings = mappings;
        self.symbols = Symbols::default();
        let mut seen = Vec::new();
        // The executable is mapped first, so its copies of library globals are found before the originals.
        for mapping in &self.mappings {
            let Some(key) = mapping.key else { continue };
            if seen.contains(&key) {
                continue;
            }
            if let Some(elf) = known.get(&key)
                && let Some(bias) = elf.load_bias(mapping)
            {
                seen.push(key);
                self.symbols.add(bias, Arc::clone(elf));
            }
        }
    }

    /// The mappings.
    pub fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }

    /// The module and file offset of an address; `None` if nothing is mapped there.
    pub fn place(&self, pid: u32, address: u64, known: &FxHashMap<FileKey, Arc<ElfInfo>>) -> Option<Place> {
        let mapping = self.mappings.iter().find(|mapping| mapping.contains(address))?;
        let build_id = mapping.key.and_then(|key| known.get(&key)).map(|elf| elf.build_id().to_owned());
        let frame = Frame {
            kind: FrameKind::Native,
            module: mapping.path.display().to_string(),
            build_id: build_id.unwrap_or_default(),
            offset: mapping.offset_of(address).unwrap_or(address - mapping.start),
            ..Frame::default()
        };
        Some(Place { frame, open: maps::openable_path(pid, mapping) })
    }
}

#[cfg(test)]
mod tests {
    use super::Image;
    use crate::procfs;
    use rustc_hash::FxHashMap;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    #[test]
    fn an_ended_process_keeps_its_last_map() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat");
        let mut image = Image::default();
        image.refresh(child.id(), &FxHashMap::default());
        let mapped = image.mappings().len();
        assert!(mapped > 0, "a running process has a map");
        drop(child.stdin.take());
        // It has ended, and nobody has asked for its status yet.
        let until = Instant::now() + Duration::from_secs(10);
        while procfs::executable(child.id()).is_some() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        image.refresh(child.id(), &FxHashMap::default());
        assert_eq!(image.mappings().len(), mapped);
        child.wait().expect("own child");
        image.refresh(child.id(), &FxHashMap::default());
        assert_eq!(image.mappings().len(), mapped);
    }
}
