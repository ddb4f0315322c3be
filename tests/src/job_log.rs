//! What the example jobs say of their own calls (`RANKDIFF_JOB_LOG`, see `examples/README.md`): the truth that
//! recordings and verdicts are compared with.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// One call, as the job logged it just before making it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Thread, 0 for the first that called.
    pub thread: u32,
    /// Ordinal on the thread.
    pub ordinal: u64,
    /// C function.
    pub function: String,
    /// Communicator, by the job's own name for it.
    pub comm: String,
    /// Elements.
    pub count: Option<u64>,
    /// Type, by its C name.
    pub dtype: Option<String>,
    /// Root or peer.
    pub root: Option<i64>,
    /// Reduction, by its C name.
    pub redop: Option<String>,
}

impl Line {
    fn parse(text: &str) -> Option<Line> {
        let words: Vec<&str> = text.split(' ').collect();
        let [thread, ordinal, function, comm, count, dtype, root, redop] = words.try_into().ok()?;
        let given = |word: &str| (word != "-").then(|| word.to_owned());
        Some(Line {
            thread: thread.parse().ok()?,
            ordinal: ordinal.parse().ok()?,
            function: function.to_owned(),
            comm: comm.to_owned(),
            count: (count != "-").then(|| count.parse()).transpose().ok()?,
            dtype: given(dtype),
            root: (root != "-").then(|| root.parse()).transpose().ok()?,
            redop: given(redop),
        })
    }

    /// The operation, as rankdiff names it; `None` for a function that is unknown here.
    pub fn op(&self) -> Option<&'static str> {
        let plain = self.function.trim_start_matches("MPI_").trim_start_matches("nccl");
        OPS.iter().find(|(function, _)| *function == plain).map(|(_, op)| *op)
    }

    /// Whether it takes a position on its communicator: neither a creation or release nor a message.
    pub fn is_collective(&self) -> bool {
        self.op()
            .is_some_and(|op| !op.starts_with("comm_") && !matches!(op, "send" | "recv") && !op.ends_with("_create"))
    }

    /// What must be the same on all members, for calls that are no v-forms.
    pub fn signature(&self) -> (&str, Option<u64>, Option<&str>, Option<i64>, Option<&str>) {
        (&self.function, self.count, self.dtype.as_deref(), self.root, self.redop.as_deref())
    }
}

/// Functions without their libraries' prefixes, and what they are.
const OPS: &[(&str, &str)] = &[
    ("Barrier", "barrier"),
    ("Ibarrier", "ibarrier"),
    ("Allreduce", "all_reduce"),
    ("AllReduce", "all_reduce"),
    ("Iallreduce", "iall_reduce"),
    ("Bcast", "broadcast"),
    ("Broadcast", "broadcast"),
    ("Ibcast", "ibroadcast"),
    ("Reduce", "reduce"),
    ("Allgather", "all_gather"),
    ("AllGather", "all_gather"),
    ("ReduceScatter", "reduce_scatter"),
    ("Gather", "gather"),
    ("Gatherv", "gather_v"),
    ("Scatter", "scatter"),
    ("Scatterv", "scatter_v"),
    ("AlltoAll", "all_to_all"),
    ("Alltoallv", "all_to_all_v"),
    ("Neighbor_allgather", "neighbor_all_gather"),
    ("Send", "send"),
    ("Recv", "recv"),
    ("CommInitRank", "comm_init"),
    ("Comm_split", "comm_split"),
    ("CommSplit", "comm_split"),
    ("Comm_dup", "comm_dup"),
    ("Comm_create_group", "comm_create"),
    ("Intercomm_create", "intercomm_create"),
    ("Cart_create", "topology_create"),
    ("Comm_free", "comm_free"),
    ("CommDestroy", "comm_free"),
    // Methods of torch's process groups.
    ("barrier", "barrier"),
    ("allreduce", "all_reduce"),
    ("broadcast", "broadcast"),
    ("reduce", "reduce"),
    ("allgather", "all_gather"),
    ("send", "send"),
    ("recv", "recv"),
];

/// The logs of a job, by rank.
#[derive(Debug, Clone, Default)]
pub struct JobLog(pub BTreeMap<u32, Vec<Line>>);

impl JobLog {
    /// Reads every log in a folder. A last line without its end was being written when its process was killed.
    ///
    /// # Panics
    /// If a file is no log.
    pub fn read(folder: &Path) -> JobLog {
        let entries = fs::read_dir(folder).expect("the logs' folder");
        let mut ranks = BTreeMap::new();
        for path in entries.flatten().map(|entry| entry.path()) {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let rank = name.strip_prefix("rank-").and_then(|rank| rank.parse().ok()).expect("named after a rank");
            let text = fs::read_to_string(&path).expect("a log is text");
            let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
            let lines: Option<Vec<Line>> = whole.lines().map(Line::parse).collect();
            ranks.insert(rank, lines.unwrap_or_else(|| panic!("{}: a line that is none", path.display())));
        }
        JobLog(ranks)
    }

    /// Calls of a rank.
    pub fn rank(&self, rank: u32) -> &[Line] {
        self.0.get(&rank).map_or(&[], Vec::as_slice)
    }

    /// A rank's collectives on a communicator: the index is the position.
    pub fn collectives(&self, rank: u32, comm: &str) -> Vec<&Line> {
        self.rank(rank).iter().filter(|line| line.comm == comm && line.is_collective()).collect()
    }

    /// The first position on a communicator where two ranks did not do the same; `None` if they agree as far as both
    /// went, which is where the shorter one ends.
    pub fn first_difference(&self, one: u32, other: u32, comm: &str) -> Option<u64> {
        let (one, other) = (self.collectives(one, comm), self.collectives(other, comm));
        one.iter().zip(&other).position(|(a, b)| a.signature() != b.signature()).map(|position| position as u64)
    }

    /// Position of the nth call of a function on a communicator, from 0.
    pub fn position_of(&self, rank: u32, comm: &str, function: &str, nth: u32) -> Option<u64> {
        let calls = self.collectives(rank, comm);
        let mut found = calls.iter().enumerate().filter(|(_, line)| line.function == function);
        found.nth(nth as usize).map(|(position, _)| position as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::{JobLog, Line};

    fn line(text: &str) -> Line {
        Line::parse(text).expect("a line")
    }

    #[test]
    fn lines_are_read() {
        let call = line("0 24 ncclAllReduce world 2695 ncclFloat32 - ncclSum");
        assert_eq!((call.thread, call.ordinal, call.op(), call.count), (0, 24, Some("all_reduce"), Some(2695)));
        assert_eq!((call.root, call.redop.as_deref()), (None, Some("ncclSum")));
        assert_eq!(Line::parse("0 24 ncclAllReduce world x ncclFloat32 - ncclSum"), None);
        assert_eq!(Line::parse("0 24 ncclAllReduce"), None);
    }

    #[test]
    fn positions_count_collectives_of_one_communicator() {
        let own =
            ["0 0 MPI_Comm_dup world - - - -", "0 1 MPI_Barrier copy - - - -", "0 2 MPI_Bcast world 4 MPI_INT 0 -"];
        let other = ["0 0 MPI_Bcast world 4 MPI_INT 1 -"];
        let parse = |lines: &[&str]| lines.iter().map(|text| line(text)).collect();
        let log = JobLog([(0, parse(&own)), (1, parse(&other))].into());
        assert_eq!(log.first_difference(0, 1, "world"), Some(0));
        assert_eq!(log.first_difference(0, 1, "copy"), None);
        assert_eq!(log.position_of(0, "world", "MPI_Bcast", 0), Some(0));
        assert_eq!(log.position_of(0, "world", "MPI_Bcast", 1), None);
    }
}
