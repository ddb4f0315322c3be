//! The table of calls: a row for each, in the order of their entries.

use parquet::data_type::ByteArray;
use rankdiff_trace::{Call, CommRef, Completion, DType, Op, RedOp, SiteRef};
use rustc_hash::FxHashMap;

use super::table::{Cell, Kind, Table};
use crate::export::ExportError;
use crate::export::view::{View, elements, flags, identity, redop};
use crate::step_marks::StepMarks;

pub(super) const COLUMNS: &[(&str, Kind)] = &[
    ("process", Kind::U32),
    ("rank", Kind::U32),
    ("host", Kind::Text),
    ("pid", Kind::U32),
    ("thread", Kind::U32),
    ("thread_seq", Kind::U64),
    ("comm", Kind::Text),
    ("comm_id", Kind::Text),
    ("library", Kind::Text),
    ("op", Kind::Text),
    ("seq", Kind::U64),
    ("count", Kind::U64),
    ("dtype", Kind::Text),
    ("bytes", Kind::U64),
    ("redop", Kind::Text),
    ("root", Kind::U32),
    ("peer", Kind::U32),
    ("tag", Kind::I64),
    ("send_elements", Kind::U64),
    ("recv_elements", Kind::U64),
    ("flags", Kind::Text),
    ("stream", Kind::U64),
    ("group", Kind::U32),
    ("enter", Kind::Time),
    ("exit", Kind::Time),
    ("duration_ns", Kind::U64),
    ("completed", Kind::Time),
    ("result", Kind::I64),
    ("made_comm_id", Kind::Text),
    ("site", Kind::Text),
    ("site_function", Kind::Text),
    ("site_file", Kind::Text),
    ("site_line", Kind::U32),
    ("label", Kind::Text),
    ("step", Kind::U64),
];

/// Texts that many calls of a process share, made once.
#[derive(Default)]
struct Texts {
    ops: FxHashMap<(Op, u32, CommRef), Cell>,
    comms: FxHashMap<CommRef, [Cell; 3]>,
    dtypes: FxHashMap<DType, Cell>,
    redops: FxHashMap<RedOp, Cell>,
    flags: FxHashMap<u32, Cell>,
    sites: FxHashMap<SiteRef, [Cell; 4]>,
    labels: FxHashMap<u32, Cell>,
}

impl Texts {
    fn comm(&mut self, view: &View<'_>, comm: CommRef) -> [Cell; 3] {
        let make = || match view.comm(comm) {
            Some((title, def)) => [Cell::known(title), Cell::text(identity(def.identity)), Cell::known(&def.library)],
            None => [Cell::Null, Cell::Null, Cell::Null],
        };
        self.comms.entry(comm).or_insert_with(make).clone()
    }

    fn site(&mut self, view: &View<'_>, site: SiteRef) -> [Cell; 4] {
        let make = || match view.site(site) {
            Some(site) => [
                Cell::known(&site.text),
                Cell::known(&site.frame.function),
                Cell::known(&site.frame.file),
                Cell::uint((site.frame.line != 0).then_some(site.frame.line)),
            ],
            None => [Cell::Null, Cell::Null, Cell::Null, Cell::Null],
        };
        self.sites.entry(site).or_insert_with(make).clone()
    }
}

/// Adds the calls of a process.
pub(super) fn rows(process: usize, view: &View<'_>, table: &mut Table) -> Result<(), ExportError> {
    let key = &view.trace.key;
    let host = Cell::Text(ByteArray::from(key.host.as_bytes().to_vec()));
    let mut texts = Texts::default();
    let mut steps = StepMarks::of(view.trace);
    for at in view.by_entry() {
        let Some(call) = view.trace.calls.get(at) else { continue };
        let step = steps.of_call(call);
        table.row(row(process, call, view, &mut texts, host.clone(), step))?;
    }
    Ok(())
}

/// A row, its cells in the order of [`COLUMNS`].
fn row(
    process: usize,
    call: &Call,
    view: &View<'_>,
    texts: &mut Texts,
    host: Cell,
    step: Option<u64>,
) -> [Cell; COLUMNS.len()] {
    let [comm, comm_id, library] = texts.comm(view, call.comm);
    let [_, made_comm_id, _] = texts.comm(view, call.made);
    let [site, site_function, site_file, site_line] = texts.site(view, call.site);
    let form = call.flags.0;
    let op = texts.ops.entry((call.op, form, call.comm)).or_insert_with(|| Cell::text(Some(view.op(call)))).clone();
    let dtype = texts.dtypes.entry(call.dtype).or_insert_with(|| Cell::text(view.dtype(call.dtype))).clone();
    let redop = texts.redops.entry(call.redop).or_insert_with(|| Cell::text(redop(call))).clone();
    let flags = texts.flags.entry(form).or_insert_with(|| Cell::text(flags(call))).clone();
    let label = texts.labels.entry(call.label).or_insert_with(|| Cell::known(view.label(call.label).unwrap_or("")));
    let label = label.clone();
    let completed = match call.completion {
        Completion::At(ns) => Some(view.wall_time(ns)),
        Completion::Unknown | Completion::Pending => None,
    };
    [
        Cell::Uint(process as u64),
        Cell::uint(view.rank(call)),
        host,
        Cell::Uint(u64::from(view.trace.key.pid)),
        Cell::Uint(u64::from(call.thread)),
        Cell::Uint(call.thread_seq),
        comm,
        comm_id,
        library,
        op,
        Cell::uint(call.seq),
        Cell::uint(call.count),
        dtype,
        Cell::uint(view.bytes(call)),
        redop,
        Cell::uint(call.root),
        Cell::uint(call.peer),
        Cell::int(call.tag),
        Cell::uint(elements(&call.sends)),
        Cell::uint(elements(&call.recvs)),
        flags,
        Cell::uint((call.stream != 0).then_some(call.stream)),
        Cell::uint((call.group != 0).then_some(call.group)),
        Cell::Int(view.wall_time(call.enter)),
        Cell::int(call.exit.map(|exit| view.wall_time(exit))),
        Cell::uint(call.exit.map(|exit| exit.saturating_sub(call.enter))),
        Cell::int(completed),
        Cell::int(call.result),
        made_comm_id,
        site,
        site_function,
        site_file,
        site_line,
        label,
        Cell::uint(step),
    ]
}
