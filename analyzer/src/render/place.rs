//! Where a call was made, in the few words that a line has room for.
//!
//! A real stack has thirty frames, and its innermost ones are the framework's wrappers, the same on every side. People
//! look for their own code: the innermost frames outside installed packages. If these are the same on all sides too, the
//! frame where the stacks part is shown instead.

use rankdiff_trace::{Frame, FrameKind};

use crate::finding::CallText;

/// A call's place in short.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Place {
    /// Functions, outermost first, at most [`FUNCTIONS`].
    pub(super) functions: Vec<String>,
    /// 'file:line', or empty.
    pub(super) location: String,
}

/// Functions that are shown at most.
pub(super) const FUNCTIONS: usize = 3;

/// The places of the sides of one finding, in their order; empty where nothing is known.
pub(super) fn places(calls: &[Option<&CallText>]) -> Vec<Place> {
    let stacks: Vec<Vec<Frame>> = calls.iter().map(|call| call.map(callers).unwrap_or_default()).collect();
    let places: Vec<Place> = stacks.iter().map(|stack| own_code(stack)).collect();
    let known: Vec<&Vec<Frame>> = stacks.iter().filter(|stack| !stack.is_empty()).collect();
    let mut shown = places.iter().filter(|place| **place != Place::default());
    let first_shown = shown.next();
    match known.as_slice() {
        [first, rest @ ..]
            if shown.all(|place| Some(place) == first_shown) && rest.iter().any(|stack| stack != first) =>
        {
            let shared = shared_prefix(&known);
            stacks.iter().map(|stack| describe(stack.get(shared..=shared).unwrap_or_default())).collect()
        }
        _ => places,
    }
}

/// The frames of a call, without those below a collective of objects: that is named as the call itself.
fn callers(call: &CallText) -> Vec<Frame> {
    let mut all = frames(call);
    let is_it = |frame: &Frame| call.object.is_some_and(|name| frame.function.ends_with(name));
    if let Some(at @ 1..) = all.iter().rposition(is_it) {
        all.truncate(at);
    }
    all
}

/// The frames of a call; where there is only the one-line form, that taken apart.
pub(super) fn frames(call: &CallText) -> Vec<Frame> {
    if call.frames.is_empty() {
        call.site.split('>').map(str::trim).filter(|part| !part.is_empty()).map(text_frame).collect()
    } else {
        call.frames
            .iter()
            .map(|frame| if is_bare_text(frame) { text_frame(&frame.function) } else { frame.clone() })
            .collect()
    }
}

fn is_bare_text(frame: &Frame) -> bool {
    frame.kind == FrameKind::Text && frame.file.is_empty()
}

/// 'function', 'file:line' or 'file:line:function'.
fn text_frame(text: &str) -> Frame {
    let mut frame = Frame { kind: FrameKind::Text, function: text.to_owned(), ..Frame::default() };
    let Some((file, rest)) = text.split_once(':') else {
        return frame;
    };
    let (line, function) = rest.split_once(':').unwrap_or((rest, ""));
    if let Ok(line) = line.parse() {
        frame.file = file.to_owned();
        frame.line = line;
        frame.function = function.to_owned();
    }
    frame
}

/// The innermost frames outside installed packages and, where a function is known in some, outside nameless code.
fn own_code(stack: &[Frame]) -> Place {
    let is_own = |frame: &&Frame| {
        let installed = ["site-packages/", "dist-packages/", "<frozen ", "/lib/python"];
        !installed.iter().any(|part| frame.file.contains(part))
    };
    let has_python = stack.iter().any(|frame| frame.kind == FrameKind::Python);
    let wanted = |frame: &&Frame| !has_python || frame.kind != FrameKind::Native;
    let own: Vec<Frame> = stack.iter().filter(is_own).filter(wanted).cloned().collect();
    describe(if own.is_empty() { stack } else { &own })
}

/// Number of outermost frames that all stacks share.
fn shared_prefix(stacks: &[&Vec<Frame>]) -> usize {
    let shortest = stacks.iter().map(|stack| stack.len()).min().unwrap_or_default();
    (0..shortest)
        .find(|&at| stacks.iter().any(|stack| stack.get(at) != stacks.first().and_then(|first| first.get(at))))
        .unwrap_or(shortest)
}

fn describe(stack: &[Frame]) -> Place {
    let named: Vec<String> = stack.iter().rev().map(function).filter(|name| !name.is_empty()).collect();
    // A script's top level is above everything and says nothing unless it made the call itself.
    let told = |at: usize, name: &str| at == 0 || name != "<module>";
    let functions = named.iter().enumerate().filter(|(at, name)| told(*at, name)).map(|(_, name)| name.clone());
    let functions: Vec<String> = functions.take(FUNCTIONS).collect();
    let located = stack.iter().rev().take(FUNCTIONS).map(|frame| location(frame, false));
    let location = located.into_iter().find(|location| !location.is_empty()).unwrap_or_default();
    Place { functions: functions.into_iter().rev().collect(), location }
}

/// The function's name, or where in which object it is; empty if neither is known.
fn function(frame: &Frame) -> String {
    if !frame.function.is_empty() {
        frame.function.clone()
    } else if !frame.module.is_empty() {
        format!("{}+{:#x}", file_name(&frame.module), frame.offset)
    } else {
        String::new()
    }
}

/// 'file:line' of a frame; the whole path, or its last part.
pub(super) fn location(frame: &Frame, whole_path: bool) -> String {
    let file = if whole_path { &frame.file } else { file_name(&frame.file) };
    match (file.is_empty(), frame.line) {
        (true, _) => String::new(),
        (false, 0) => file.to_owned(),
        (false, line) => format!("{file}:{line}"),
    }
}

/// A frame in one line with all that is known of it.
pub(super) fn whole(frame: &Frame) -> String {
    let (function, location) = (function(frame), location(frame, true));
    match (function.is_empty(), location.is_empty()) {
        (false, false) => format!("{function} ({location})"),
        (false, true) => function,
        (true, false) => location,
        (true, true) => "(unknown)".to_owned(),
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::{Place, places};
    use crate::finding::CallText;
    use rankdiff_trace::{Frame, FrameKind};

    fn python(function: &str, file: &str, line: u32) -> Frame {
        Frame { kind: FrameKind::Python, function: function.into(), file: file.into(), line, ..Frame::default() }
    }

    fn call(frames: Vec<Frame>) -> CallText {
        CallText { frames, ..CallText::default() }
    }

    fn place(functions: &[&str], location: &str) -> Place {
        Place { functions: functions.iter().map(|&name| name.to_owned()).collect(), location: location.to_owned() }
    }

    #[test]
    fn own_code_comes_before_wrappers() {
        let native = Frame { kind: FrameKind::Native, function: "ncclAllReduce".into(), ..Frame::default() };
        let call = call(vec![
            python("main", "/job/train.py", 200),
            python("step", "/job/train.py", 88),
            python("wrapper", "/usr/lib/python3/dist-packages/x/log.py", 81),
            native,
        ]);
        assert_eq!(places(&[Some(&call)]), [place(&["main", "step"], "train.py:88")]);
    }

    #[test]
    fn sides_that_look_alike_show_where_they_part() {
        let through = |line, outer: &str| {
            call(vec![
                python("main", "/job/train.py", line),
                python(outer, "/job/loop.py", 7),
                python("a", "/job/sync.py", 1),
                python("b", "/job/sync.py", 2),
                python("sync", "/job/sync.py", 3),
            ])
        };
        let (left, right) = (through(10, "train"), through(20, "validate"));
        let parting = [place(&["main"], "train.py:10"), place(&["main"], "train.py:20"), Place::default()];
        assert_eq!(places(&[Some(&left), Some(&right), None]), parting);
        let innermost = place(&["a", "b", "sync"], "sync.py:3");
        assert_eq!(places(&[Some(&left), Some(&left)]), [innermost.clone(), innermost]);
    }

    #[test]
    fn one_line_sites_are_taken_apart() {
        let text = |site: &str| CallText { site: site.into(), ..CallText::default() };
        assert_eq!(
            places(&[Some(&text("train.py:88:train_step>loss.backward"))]),
            [place(&["train_step", "loss.backward"], "train.py:88")]
        );
        assert_eq!(places(&[Some(&text("main>train.py:88"))]), [place(&["main"], "train.py:88")]);
        assert_eq!(places(&[Some(&text("std::thread:x"))]), [place(&["std::thread:x"], "")]);
        assert_eq!(places(&[Some(&text(""))]), [Place::default()]);
    }

    #[test]
    fn nameless_code_is_named_by_object_and_offset() {
        let frame = Frame { module: "/usr/lib/libtorch.so".into(), offset: 0x51c3a0, ..Frame::default() };
        assert_eq!(places(&[Some(&call(vec![frame]))]), [place(&["libtorch.so+0x51c3a0"], "")]);
    }
}
