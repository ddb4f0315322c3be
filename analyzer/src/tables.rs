//! What streams number for themselves (call sites, labels, signatures) numbered once for the whole job, so that two
//! ranks' calls compare by an integer.

use rankdiff_trace::{Frame, Signature};
use rustc_hash::FxHashMap;

/// Texts and signatures of a job. Index 0 of sites and labels stands for 'not known'.
#[derive(Debug)]
pub(crate) struct Tables {
    sites: Vec<Site>,
    site_index: FxHashMap<String, u32>,
    labels: u32,
    label_index: FxHashMap<String, u32>,
    signatures: Vec<Signature>,
    signature_index: FxHashMap<Signature, u32>,
}

/// A call site by its text.
#[derive(Debug, Default)]
pub(crate) struct Site {
    /// Frames in one line, outermost first.
    pub(crate) text: String,
    /// The frames.
    pub(crate) frames: Vec<Frame>,
}

impl Default for Tables {
    fn default() -> Tables {
        Tables {
            sites: vec![Site::default()],
            site_index: FxHashMap::default(),
            labels: 1,
            label_index: FxHashMap::default(),
            signatures: Vec::new(),
            signature_index: FxHashMap::default(),
        }
    }
}

impl Tables {
    /// The number of a call site.
    pub(crate) fn site(&mut self, frames: &[Frame]) -> u32 {
        let text = site_text(frames);
        if text.is_empty() {
            return 0;
        }
        if let Some(&id) = self.site_index.get(&text) {
            return id;
        }
        let id = self.sites.len() as u32;
        self.sites.push(Site { text: text.clone(), frames: frames.to_vec() });
        self.site_index.insert(text, id);
        id
    }

    /// The number of a label.
    pub(crate) fn label(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        if let Some(&id) = self.label_index.get(text) {
            return id;
        }
        let id = self.labels;
        self.labels += 1;
        self.label_index.insert(text.to_owned(), id);
        id
    }

    /// The number of a signature.
    pub(crate) fn signature(&mut self, signature: Signature) -> u32 {
        if let Some(&id) = self.signature_index.get(&signature) {
            return id;
        }
        let id = self.signatures.len() as u32;
        self.signatures.push(signature.clone());
        self.signature_index.insert(signature, id);
        id
    }

    /// A call site by its number.
    pub(crate) fn site_of(&self, id: u32) -> Option<&Site> {
        self.sites.get(id as usize).filter(|_| id != 0)
    }

    /// Text of a call site; empty if not known.
    pub(crate) fn site_text(&self, id: u32) -> &str {
        self.site_of(id).map_or("", |site| &site.text)
    }

    /// A signature by its number.
    pub(crate) fn signature_of(&self, id: u32) -> Option<&Signature> {
        self.signatures.get(id as usize)
    }
}

/// A call site in one line. Paths are cut to their last part: they differ between hosts and containers.
pub(crate) fn site_text(frames: &[Frame]) -> String {
    let mut text = String::new();
    for frame in frames {
        let part = frame_text(frame);
        if part.is_empty() {
            continue;
        }
        if !text.is_empty() {
            text.push('>');
        }
        text.push_str(&part);
    }
    text
}

fn frame_text(frame: &Frame) -> String {
    let base = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let mut parts = Vec::new();
    if !frame.file.is_empty() {
        parts.push(base(&frame.file));
        if frame.line > 0 {
            parts.push(frame.line.to_string());
        }
    }
    if !frame.function.is_empty() {
        parts.push(frame.function.clone());
    }
    if parts.is_empty() && !frame.module.is_empty() {
        return format!("{}+{:#x}", base(&frame.module), frame.offset);
    }
    parts.join(":")
}

#[cfg(test)]
mod tests {
    use rankdiff_trace::Frame;

    use super::Tables;

    #[test]
    fn sites_are_one_line_and_numbered_once() {
        let mut tables = Tables::default();
        let frames = [
            Frame { file: "/home/x/train.py".into(), line: 88, function: "train_step".into(), ..Frame::default() },
            Frame { module: "/usr/lib/libtorch.so".into(), offset: 0x51c, ..Frame::default() },
        ];
        let id = tables.site(&frames);
        assert_eq!(tables.site_text(id), "train.py:88:train_step>libtorch.so+0x51c");
        assert_eq!(tables.site(&frames), id);
        assert_eq!(tables.site(&[]), 0);
        assert_eq!(tables.site_text(0), "");
    }
}
