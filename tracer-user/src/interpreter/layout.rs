//! Where things lie in each version of CPython, as data.
//!
//! The numbers are `offsetof` in each version's own headers, on x86-64. From 3.13 on an interpreter carries the most
//! important ones itself (`_Py_DebugOffsets`, at the beginning of `_PyRuntime`): of 3.13 they must be those of the table, of
//! 3.14 they are taken from there, and refused where they do not fit what else is known.

use rankdiff_common::python::{NONE, PythonConfig};

use super::Unsupported;
use super::lines::LineFormat;

/// Bytes of the interpreter's own offsets that are read.
const DEBUG_OFFSETS: usize = 400;
/// What they begin with.
const COOKIE: &[u8] = b"xdebugpy";

/// Where the parts of one version lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Minor version of Python 3.
    pub minor: u8,
    /// What the eBPF programs are told; `runtime` is 0.
    pub config: PythonConfig,
    /// Form of line tables.
    pub lines: LineFormat,
    /// Offset in a code object of its first instruction, where a frame has the address of its instruction; else 0.
    pub instructions: u32,
}

/// What 3.9 to 3.12 have in common; versions differ from it in what they name.
const BASE: PythonConfig = PythonConfig {
    runtime: 0,
    interpreters_head: 40,
    main_thread: NONE,
    interpreter_next: 0,
    threads_head: 0,
    thread_prev: 0,
    thread_next: 1,
    thread_interpreter: 2,
    thread_id: 0,
    thread_frame: 0,
    cframe_current: NONE,
    frame_base: 0,
    frame_code: 0,
    frame_previous: 1,
    frame_instruction: 7,
    instruction_bytes: 8,
    frame_owner: NONE,
    code_version: NONE,
    code_stamp: 48,
    function_flag: 0,
    code_file: 112,
    code_name: 128,
    code_lines: 136,
    code_first_line: 68,
    string_ascii: 40,
    string_compact: 56,
    generation: 0,
};

const V3_9: Layout = Layout {
    minor: 9,
    config: PythonConfig {
        interpreters_head: 32,
        main_thread: 72,
        threads_head: 8,
        thread_id: 176 / 8,
        thread_frame: 24 / 8,
        // From `f_back` on.
        frame_base: 24,
        frame_code: 1,
        frame_previous: 0,
        frame_instruction: (104 - 24) / 8,
        instruction_bytes: 4,
        // From the flags' word on: stack size, flags.
        code_stamp: 32,
        function_flag: 32,
        code_file: 104,
        code_name: 112,
        code_lines: 120,
        code_first_line: 40,
        string_ascii: 48,
        string_compact: 72,
        ..BASE
    },
    lines: LineFormat::Lnotab,
    instructions: 0,
};

const V3_10: Layout = Layout {
    minor: 10,
    config: PythonConfig { frame_instruction: (96 - 24) / 8, ..V3_9.config },
    lines: LineFormat::Linetable,
    instructions: 0,
};

const V3_11: Layout = Layout {
    minor: 11,
    config: PythonConfig {
        main_thread: 80,
        threads_head: 16,
        thread_id: 152 / 8,
        thread_frame: 56 / 8,
        cframe_current: 8,
        frame_code: 32 / 8,
        frame_previous: 48 / 8,
        frame_instruction: 56 / 8,
        frame_owner: 69,
        code_first_line: 72,
        string_ascii: 48,
        string_compact: 72,
        ..BASE
    },
    lines: LineFormat::Locations,
    instructions: 184,
};

const V3_12: Layout = Layout {
    minor: 12,
    config: PythonConfig {
        main_thread: 64,
        threads_head: 72,
        thread_id: 136 / 8,
        thread_frame: 56 / 8,
        cframe_current: 0,
        frame_owner: 70,
        code_version: 92,
        ..BASE
    },
    lines: LineFormat::Locations,
    instructions: 192,
};

const V3_13: Layout = Layout {
    minor: 13,
    config: PythonConfig {
        interpreters_head: 632,
        main_thread: 656,
        interpreter_next: 7264,
        threads_head: 7344,
        thread_id: 152 / 8,
        thread_frame: 72 / 8,
        cframe_current: NONE,
        ..V3_12.config
    },
    lines: LineFormat::Locations,
    instructions: 200,
};

/// The layout of a minor version; `runtime` gives so many bytes of `_PyRuntime`, as the file has them.
pub(super) fn of(minor: u8, runtime: &dyn Fn(usize) -> Option<Vec<u8>>) -> Result<Layout, Unsupported> {
    match minor {
        9 => Ok(V3_9),
        10 => Ok(V3_10),
        11 => Ok(V3_11),
        12 => Ok(V3_12),
        13 | 14 => from_debug_offsets(minor, &runtime(DEBUG_OFFSETS).ok_or(Unsupported::Unreadable)?),
        _ => Err(Unsupported::Version(format!("3.{minor}"))),
    }
}

/// The layout of an interpreter that says where its parts lie.
fn from_debug_offsets(minor: u8, bytes: &[u8]) -> Result<Layout, Unsupported> {
    let offsets = DebugOffsets { minor, bytes };
    let version = offsets.version()?;
    if offsets.at(16)? != 0 {
        return Err(Unsupported::FreeThreaded(version));
    }
    let Some(places) = Places::of(minor) else { return Err(Unsupported::Version(version)) };
    let mut layout = V3_13;
    layout.minor = minor;
    let config = &mut layout.config;
    let known = V3_13.config;
    config.interpreters_head = offsets.offset(40, "the list of interpreters")?;
    config.interpreter_next = offsets.offset(64, "the next interpreter")?;
    config.threads_head = offsets.offset(72, "the list of threads")?;
    // The id of the main thread stands behind the interpreters: first, main one, next id. Where that was not looked up
    // in the headers, it is not taken.
    config.main_thread = if minor == 13 { config.interpreters_head.saturating_add(24) } else { NONE };
    let thread = places.thread;
    config.thread_prev = offsets.word(thread, "thread_state.prev")?;
    config.thread_next = offsets.word(thread + 8, "thread_state.next")?;
    config.thread_interpreter = offsets.word(thread + 16, "thread_state.interp")?;
    config.thread_frame = offsets.word(thread + 24, "thread_state.current_frame")?;
    config.thread_id = offsets.word(thread + 32, "thread_state.thread_id")?;
    let frame = places.frame;
    config.frame_previous = offsets.word(frame, "interpreter_frame.previous")?;
    config.frame_code = offsets.word(frame + 8, "interpreter_frame.executable")?;
    config.frame_instruction = offsets.word(frame + 16, "interpreter_frame.instr_ptr")?;
    config.frame_owner = offsets.offset(frame + 32, "interpreter_frame.owner")?;
    // The eBPF programs read so much of each.
    let state_words = [
        (config.thread_prev, "thread_state.prev"),
        (config.thread_next, "thread_state.next"),
        (config.thread_interpreter, "thread_state.interp"),
        (config.thread_frame, "thread_state.current_frame"),
        (config.thread_id, "thread_state.thread_id"),
    ];
    let frame_words = [
        (config.frame_previous, "interpreter_frame.previous"),
        (config.frame_code, "interpreter_frame.executable"),
        (config.frame_instruction, "interpreter_frame.instr_ptr"),
        (config.frame_owner / 8, "interpreter_frame.owner"),
    ];
    let limits = [
        (state_words.as_slice(), rankdiff_common::python::STATE_WORDS),
        (frame_words.as_slice(), rankdiff_common::python::FRAME_WORDS),
    ];
    for (words, limit) in limits {
        if let Some((_, what)) = words.iter().find(|(word, _)| *word as usize >= limit) {
            return Err(offsets.other(what));
        }
    }
    // Parts that the interpreter does not tell lie between these, so these must be where they are known to be.
    let code = places.code;
    for (at, expected, what) in [
        (code, known.code_file, "code_object.filename"),
        (code + 16, known.code_name, "code_object.qualname"),
        (code + 24, known.code_lines, "code_object.linetable"),
        (code + 32, known.code_first_line, "code_object.firstlineno"),
    ] {
        if offsets.offset(at, what)? != expected {
            return Err(offsets.other(what));
        }
    }
    layout.instructions = offsets.offset(code + 64, "code_object.co_code_adaptive")?;
    if minor == 13 {
        check_known(&layout, &offsets)?;
    }
    Ok(layout)
}

/// Checks that 3.13 has its parts where the table has them. Its lists may move with a patch release, as nothing else
/// depends on them.
fn check_known(layout: &Layout, offsets: &DebugOffsets<'_>) -> Result<(), Unsupported> {
    let (found, known) = (&layout.config, &V3_13.config);
    let parts = [
        (found.thread_prev, known.thread_prev, "thread_state.prev"),
        (found.thread_next, known.thread_next, "thread_state.next"),
        (found.thread_interpreter, known.thread_interpreter, "thread_state.interp"),
        (found.thread_id, known.thread_id, "thread_state.thread_id"),
        (found.thread_frame, known.thread_frame, "thread_state.current_frame"),
        (found.frame_previous, known.frame_previous, "interpreter_frame.previous"),
        (found.frame_code, known.frame_code, "interpreter_frame.executable"),
        (found.frame_instruction, known.frame_instruction, "interpreter_frame.instr_ptr"),
        (found.frame_owner, known.frame_owner, "interpreter_frame.owner"),
        (layout.instructions, V3_13.instructions, "code_object.co_code_adaptive"),
    ];
    match parts.iter().find(|(found, expected, _)| found != expected) {
        Some((.., what)) => Err(offsets.other(what)),
        None => Ok(()),
    }
}

/// Where a version's own offsets of thread states, frames and code objects begin, behind the size of each.
struct Places {
    thread: usize,
    frame: usize,
    code: usize,
}

impl Places {
    fn of(minor: u8) -> Option<Places> {
        match minor {
            13 => Some(Places { thread: 160, frame: 232, code: 280 }),
            // Three more of interpreters (the main thread, two generations), two more of frames.
            14 => Some(Places { thread: 184, frame: 256, code: 320 }),
            _ => None,
        }
    }
}

/// The interpreter's own offsets: 64-bit numbers.
struct DebugOffsets<'a> {
    minor: u8,
    bytes: &'a [u8],
}

impl DebugOffsets<'_> {
    fn at(&self, offset: usize) -> Result<u64, Unsupported> {
        let bytes = self.bytes.get(offset..).and_then(|bytes| bytes.first_chunk::<8>());
        bytes.map(|bytes| u64::from_le_bytes(*bytes)).ok_or(Unsupported::Unreadable)
    }

    /// The version, which must be the one that the file has elsewhere.
    fn version(&self) -> Result<String, Unsupported> {
        let version = self.at(8)?;
        let (major, minor, micro) = (version >> 24 & 0xff, version >> 16 & 0xff, version >> 8 & 0xff);
        let text = format!("{major}.{minor}.{micro}");
        if !self.bytes.starts_with(COOKIE) || (major, minor) != (3, u64::from(self.minor)) {
            return Err(Unsupported::Layout { version: format!("3.{}", self.minor), what: "its debug offsets" });
        }
        Ok(text)
    }

    fn offset(&self, at: usize, what: &'static str) -> Result<u32, Unsupported> {
        // No structure is that large.
        u32::try_from(self.at(at)?).ok().filter(|&offset| offset < 1 << 24).ok_or_else(|| self.other(what))
    }

    /// An offset, in words.
    fn word(&self, at: usize, what: &'static str) -> Result<u32, Unsupported> {
        let offset = self.offset(at, what)?;
        if offset % 8 == 0 { Ok(offset / 8) } else { Err(self.other(what)) }
    }

    fn other(&self, what: &'static str) -> Unsupported {
        Unsupported::Layout { version: format!("3.{}", self.minor), what }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Places, V3_13, of};
    use crate::interpreter::Unsupported;

    /// Debug offsets that say what the table has.
    fn offsets(minor: u8) -> Vec<u8> {
        let mut bytes = vec![0; 600];
        bytes[..8].copy_from_slice(b"xdebugpy");
        let mut put = |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        let places = Places::of(minor).expect("a version with places");
        put(8, 3 << 24 | u64::from(minor) << 16 | 0x5f0);
        for (at, value) in [(40, 632), (64, 7264), (72, 7344)] {
            put(at, value);
        }
        for (index, value) in [0, 8, 16, 72, 152].into_iter().enumerate() {
            put(places.thread + 8 * index, value);
        }
        for (index, value) in [8, 0, 56, 80, 70].into_iter().enumerate() {
            put(places.frame + 8 * index, value);
        }
        for (index, value) in [112, 120, 128, 136, 68, 52, 96, 104, 200].into_iter().enumerate() {
            put(places.code + 8 * index, value);
        }
        bytes
    }

    fn layout(minor: u8, bytes: &[u8]) -> Result<super::Layout, Unsupported> {
        of(minor, &|size| bytes.get(..size).map(<[u8]>::to_vec))
    }

    #[test]
    fn an_interpreter_that_agrees_with_the_table_is_taken() {
        assert_eq!(layout(13, &offsets(13)), Ok(V3_13));
        let newer = layout(14, &offsets(14)).expect("fits");
        assert_eq!((newer.minor, newer.config.thread_id, newer.instructions), (14, 19, 200));
    }

    #[test]
    fn what_differs_is_refused_and_named() {
        let mut bytes = offsets(13);
        bytes[192..200].copy_from_slice(&160_u64.to_le_bytes());
        let refused = layout(13, &bytes).expect_err("another place");
        assert_eq!(refused, Unsupported::Layout { version: "3.13".to_owned(), what: "thread_state.thread_id" });
        let mut bytes = offsets(14);
        bytes[352] = 72;
        assert!(matches!(layout(14, &bytes), Err(Unsupported::Layout { what: "code_object.firstlineno", .. })));
    }

    #[test]
    fn free_threaded_builds_and_unknown_versions_are_refused() {
        let mut bytes = offsets(13);
        bytes[16] = 1;
        assert_eq!(layout(13, &bytes), Err(Unsupported::FreeThreaded("3.13.5".to_owned())));
        assert_eq!(layout(15, &offsets(13)), Err(Unsupported::Version("3.15".to_owned())));
        assert!(matches!(layout(14, &offsets(13)), Err(Unsupported::Layout { .. })), "of another version");
        assert_eq!(layout(13, &[]), Err(Unsupported::Unreadable));
    }

    proptest! {
        #[test]
        fn damaged_offsets_are_refused_or_stay_inside_what_is_read(at in 0..400_usize, byte in any::<u8>()) {
            let mut bytes = offsets(14);
            bytes[at] = byte;
            if let Ok(layout) = layout(14, &bytes) {
                let config = layout.config;
                prop_assert!(config.thread_id < 24 && config.thread_frame < 24 && config.frame_owner < 88);
            }
        }
    }
}
