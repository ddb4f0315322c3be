//! What a right verdict says.

use rankdiff_trace::RankSet;

/// A place that a right verdict names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Name of the communicator.
    pub group: String,
    /// Positions that explain the streams equally well; none: a position is not asked for.
    pub first: Vec<u64>,
}

/// A right answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Truth {
    /// Class.
    pub class: &'static str,
    /// Which argument differs.
    pub what: Option<&'static str>,
    /// Where: one of these.
    pub places: Vec<Placed>,
    /// Suspects.
    pub suspects: RankSet,
    /// The suspects may also be left open.
    pub or_none: bool,
    /// A rank of the wait cycle, where the answer is one.
    pub cycle: Option<u32>,
    /// Words of the finding, in lower case.
    pub says: &'static str,
}

impl Truth {
    /// The place is one of these positions of a group; the rank is the suspect.
    pub(super) fn of(class: &'static str, group: &str, first: Vec<u64>, suspect: u32) -> Truth {
        Truth {
            class,
            what: None,
            places: vec![Placed { group: group.to_owned(), first }],
            suspects: RankSet::from_iter([suspect]),
            or_none: false,
            cycle: None,
            says: "",
        }
    }

    /// A circle of waits that a rank is in, whichever communicator it is told on.
    pub(super) fn circle(class: &'static str, rank: u32) -> Truth {
        Truth {
            class,
            what: None,
            places: Vec::new(),
            suspects: RankSet::from_iter([rank]),
            or_none: true,
            cycle: Some(rank),
            says: "",
        }
    }
}
