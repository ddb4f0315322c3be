//! Collectives of objects: one call of the program that the framework makes of two, lengths first and then bytes.
//!
//! Told by the function at the call site: nothing in the calls themselves says that they belong together. What they pass is
//! padded to the longest, so that members agree on both, whatever their objects.

use rankdiff_trace::{Basic, DType, Frame};

/// Functions that pass objects.
const NAMES: [&str; 6] = [
    "broadcast_object_list",
    "all_gather_object",
    "gather_object",
    "scatter_object_list",
    "send_object_list",
    "recv_object_list",
];

/// The function among these frames that passes objects, if there is one.
pub(crate) fn function_of(frames: &[Frame]) -> Option<&'static str> {
    // The innermost frames are the library's own wrappers.
    frames.iter().rev().find_map(|frame| {
        let name = frame.function.rsplit([':', '.']).next().unwrap_or_default();
        NAMES.into_iter().find(|known| *known == name)
    })
}

/// Whether one of two calls of an object's function passes lengths, the other one bytes.
pub(crate) fn are_both_parts(one: DType, other: DType) -> bool {
    let lengths = |dtype| matches!(dtype, DType::Basic(Basic::I64 | Basic::I32));
    let bytes = |dtype| matches!(dtype, DType::Basic(Basic::U8));
    lengths(one) && bytes(other) || bytes(one) && lengths(other)
}

/// Which of the two calls passes elements of this type.
pub(crate) fn part(dtype: Option<&str>) -> &'static str {
    match dtype {
        Some("i64" | "i32") => "its lengths",
        _ => "its bytes",
    }
}

#[cfg(test)]
mod tests {
    use rankdiff_trace::Frame;

    use super::{function_of, part};

    fn frames(functions: &[&str]) -> Vec<Frame> {
        functions.iter().map(|name| Frame { function: (*name).to_owned(), ..Frame::default() }).collect()
    }

    #[test]
    fn the_function_is_found_below_wrappers_and_nowhere_else() {
        assert_eq!(function_of(&frames(&["train", "broadcast_object_list", "wrapper"])), Some("broadcast_object_list"));
        assert_eq!(function_of(&frames(&["train", "gather_object"])), Some("gather_object"));
        assert_eq!(function_of(&frames(&["dist.all_gather_object"])), Some("all_gather_object"));
        assert_eq!(function_of(&frames(&["train.py:7:scatter_object_list"])), Some("scatter_object_list"));
        assert_eq!(function_of(&frames(&["my_all_gather_object_of_mine", "train"])), None);
        assert_eq!(function_of(&[]), None);
        assert_eq!((part(Some("i64")), part(Some("u8")), part(None)), ("its lengths", "its bytes", "its bytes"));
    }
}
