#!/usr/bin/env python3
"""Reads rankdiff traces from docs/format.md alone, and checks their digests.

    read_rdt.py PATH...      segments, or directories of them: a JSON object a line for every record, then one a stream
                             with what was checked; exit code 1 if a digest is not what its calls give

It shares no code with rankdiff: what it cannot read, the document does not say. Needs Python's `zstandard`; with
`xxhash`, digests are checked as well. The sums are those of docs/format.md, 'Digests'; `digests.py` computes them.
The live tail is left out: this reads what blocks hold.
"""

import json
import struct
import sys
import zlib
from pathlib import Path

import zstandard

MAGIC = b"\x89RDT\r\n\x1a\n"
BLOCK_MAGIC = b"RDb\n"
REPEATED = 1 << 8
VECTORS_CUT = 1 << 6
# What stands for an absent peer and tag where numbers are foreseen.
ABSENT_PEER, ABSENT_TAG = (1 << 32) - 1, -(1 << 63)
MASK = (1 << 64) - 1

OPS = {
    1: "barrier", 2: "all_reduce", 3: "broadcast", 4: "reduce", 5: "all_gather", 6: "all_gather_v",
    7: "reduce_scatter", 8: "reduce_scatter_v", 9: "gather", 10: "gather_v", 11: "scatter", 12: "scatter_v",
    13: "all_to_all", 14: "all_to_all_v", 15: "all_to_all_w", 16: "scan", 17: "exscan", 18: "neighbor_all_gather",
    19: "neighbor_all_gather_v", 20: "neighbor_all_to_all", 21: "neighbor_all_to_all_v", 22: "neighbor_all_to_all_w",
    23: "file_collective", 24: "window_collective", 64: "send", 65: "recv", 96: "comm_init", 97: "comm_split",
    98: "comm_dup", 99: "comm_create", 100: "comm_shrink", 101: "comm_grow", 102: "intercomm_create",
    103: "intercomm_merge", 104: "topology_create", 128: "comm_free", 129: "comm_abort", 130: "comm_finalize",
    160: "init", 161: "finalize", 162: "abort", 192: "group_start", 193: "group_end", 224: "wait",
}
RANKS, COMMS, TYPES, SITES, LABELS = 1, 2, 3, 4, 5
CALLS, RETURNS, CLOCKS, GAPS, STATES, THREADS, LOGS, ATTRIBUTES, STEPS, FRONTIER, END = 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 32


class Damaged(Exception):
    """The bytes are not what the format says."""


class Bytes:
    """A cursor."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def left(self):
        return len(self.data) - self.at

    def take(self, length):
        if length > self.left():
            raise Damaged("cut off")
        self.at += length
        return self.data[self.at - length : self.at]

    def unpack(self, form):
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))

    def varint(self):
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if value > MASK:
                raise Damaged("a varint of more than 64 bits")
            if byte < 0x80:
                return value
            shift += 7

    def zigzag(self):
        return unzigzag(self.varint())


def unzigzag(value):
    return (value >> 1) ^ -(value & 1)


def undelta(coded, base):
    return (base + unzigzag(coded)) & MASK


# --- Segments and blocks --------------------------------------------------------------------------------------------


def read_header(data):
    """The header of a segment, and where the blocks begin."""
    if data[:8] != MAGIC:
        raise Damaged("no rankdiff trace")
    major, minor, length = struct.unpack_from("<HHI", data, 8)
    if major not in (0, 1):
        raise Damaged(f"format {major}.{minor}, this reads 0.x and 1.x")
    if not 20 <= length <= min(len(data), 64 << 10):
        raise Damaged("its header is cut off")
    if zlib.crc32(data[: length - 4]) != struct.unpack_from("<I", data, length - 4)[0]:
        raise Damaged("its header's checksum is wrong")
    cursor = Bytes(data[16 : length - 4])
    ordinal, pid, start_time, session, monotonic, boottime, realtime = cursor.unpack("IIQQQQQ")
    host = cursor.take(cursor.unpack("I")[0]).decode(errors="replace")
    job_id = cursor.take(cursor.unpack("I")[0]).decode(errors="replace")
    header = {
        "minor": minor, "ordinal": ordinal, "host": host, "pid": pid, "start_time": start_time, "session": session,
        "clock": [monotonic, boottime, realtime], "job_id": job_id,
    }
    return header, length


def blocks(data, at):
    """The whole blocks from the front: (kind, flags, count, calls before, digest table, payload or None). Raises behind
    them if the file does not end there."""
    expected = None
    while at < len(data):
        if len(data) - at < 56:
            raise Damaged(f"torn tail at byte {at}")
        fixed = data[at : at + 56]
        magic, kind, flags, stored, raw, count, table_length, _, _, before, body_crc, crc = struct.unpack(
            "<4sHHIIIIQQQII", fixed
        )
        if magic != BLOCK_MAGIC:
            raise Damaged(f"no block at byte {at}")
        if stored > 17 << 20 or raw > 16 << 20 or count > 65536 or table_length > 8 << 20:
            raise Damaged(f"a length over its limit at byte {at}")
        table = data[at + 56 : at + 56 + table_length]
        if len(table) < table_length:
            raise Damaged(f"torn tail at byte {at}")
        if zlib.crc32(table, zlib.crc32(fixed[:52])) != crc:
            raise Damaged(f"a wrong checksum at byte {at}")
        payload = data[at + 56 + table_length : at + 56 + table_length + stored]
        if len(payload) < stored:
            raise Damaged(f"torn tail at byte {at}")
        if expected is not None and before != expected:
            raise Damaged(f"a block out of its order at byte {at}")
        expected = before + (count if kind == CALLS else 0)
        if flags & 0xFE:  # expired, or a newer version's
            payload = None
        else:
            if zlib.crc32(payload) != body_crc:
                raise Damaged(f"a wrong checksum at byte {at}")
            if flags & 1:
                payload = zstandard.ZstdDecompressor().decompress(payload, max_output_size=raw)
            if len(payload) != raw:
                raise Damaged(f"a payload of another length at byte {at}")
        yield kind, flags, count, before, table, payload
        at += 56 + table_length + stored
        if kind == END:
            return


# --- Calls and returns ----------------------------------------------------------------------------------------------


class Columns:
    """The columns of a payload; `next` gives the next value of one."""

    def __init__(self, payload):
        self.columns = {}
        cursor = Bytes(payload)
        while cursor.left():
            column, mode = cursor.take(2)
            body = Bytes(cursor.take(cursor.varint()))
            if mode not in (0, 1):
                raise Damaged("a column's mode")
            self.columns[column] = body.varint() if mode == 0 else body

    def next(self, column):
        values = self.columns.get(column, 0)
        return values if isinstance(values, int) else values.varint()

    def vector(self):
        return [self.next(13) for _ in range(self.next(13))]

    def finish(self):
        for column, values in self.columns.items():
            if column <= 24 and not isinstance(values, int) and values.left():
                raise Damaged("a column is too long")


def completion_of(shape, columns, base):
    kind = shape >> 10 & 3
    return [None, lambda: undelta(columns.next(20), base), lambda: "pending", None][kind]


def calls_of(payload, count):
    columns = Columns(payload)
    foreseen, threads = {}, {}
    enter = stream = 0
    for _ in range(count):
        shape = columns.next(1)
        code = columns.next(2)
        call = {"op": OPS.get(code), "code": code, "comm": columns.next(3), "made": columns.next(4)}
        seq = columns.next(5) if shape & 1 else None
        call["flags"] = columns.next(6)
        call["count"] = columns.next(7) if shape & 2 else None
        dtype, redop = shape >> 12 & 3, shape >> 14 & 3
        call["dtype"] = [None, "basic", "derived", "raw"][dtype] and [["none", "basic", "derived", "raw"][dtype], columns.next(8)]
        call["redop"] = [None, "predefined", "dynamic", "raw"][redop] and [["none", "predefined", "dynamic", "raw"][redop]]
        if redop in (1, 3):
            call["redop"].append(columns.next(9))
        call["root"] = columns.next(10) if shape & 4 else None
        call["peer"] = columns.next(11) if shape & 8 else None
        call["tag"] = unzigzag(columns.next(12)) if shape & 16 else None
        call["sends"] = columns.vector() if shape & 256 else []
        call["recvs"] = columns.vector() if shape & 512 else []
        thread = call["thread"] = columns.next(14)
        next_seq, last_group = threads.get(thread, (0, 0))
        call["thread_seq"] = undelta(columns.next(15), next_seq)
        stream = call["stream"] = undelta(columns.next(16), stream)
        coded = columns.next(17)
        call["group"] = undelta(coded - 1, last_group) if coded else 0
        threads[thread] = (call["thread_seq"] + 1 & MASK, call["group"] or last_group)
        if seq is not None:
            if code < 64:
                key = (call["comm"],)
            elif 96 <= code < 128:
                key = (call["comm"], "creations")
            else:
                peer = ABSENT_PEER if call["peer"] is None else call["peer"]
                tag = ABSENT_TAG if call["tag"] is None else call["tag"]
                key = (call["comm"], code, peer, tag)
            seq = undelta(seq, foreseen.get(key, 0))
            foreseen[key] = seq + 1 & MASK
        call["seq"] = seq
        enter = call["enter"] = undelta(columns.next(18), enter)
        call["exit"] = undelta(columns.next(19), enter) if shape & 32 else None
        completion = completion_of(shape, columns, enter if call["exit"] is None else call["exit"])
        call["completion"] = completion and completion()
        call["result"] = unzigzag(columns.next(21)) if shape & 64 else None
        call["site"], call["label"] = columns.next(22), columns.next(23)
        call["rank"] = columns.next(24) if shape & 128 else None
        yield call
    columns.finish()


def returns_of(payload, count):
    columns = Columns(payload)
    threads, exit_time = {}, 0
    for _ in range(count):
        shape = columns.next(1)
        entry = {"made": columns.next(4), "thread": columns.next(14)}
        entry["thread_seq"] = undelta(columns.next(15), threads.get(entry["thread"], 0))
        threads[entry["thread"]] = entry["thread_seq"] + 1 & MASK
        exit_time = entry["exit"] = undelta(columns.next(19), exit_time)
        completion = completion_of(shape, columns, exit_time)
        entry["completion"] = completion and completion()
        entry["result"] = unzigzag(columns.next(21))
        yield entry
    columns.finish()


# --- Rows -----------------------------------------------------------------------------------------------------------


class Row(Bytes):
    """The fields of a row."""

    def __init__(self, data, strings):
        super().__init__(data)
        self.strings = strings

    u = Bytes.varint
    i = Bytes.zigzag

    def s(self):
        number = self.varint()
        return self.strings[number - 1] if number else ""

    def optional(self):
        return self.varint() if self.varint() else None

    def list(self, item):
        return [item() for _ in range(self.varint())]


def rows_of(payload, count):
    cursor = Bytes(payload)
    strings = [cursor.take(cursor.varint()).decode() for _ in range(cursor.varint())]
    for _ in range(count):
        yield Row(cursor.take(cursor.varint()), strings)
    if cursor.left():
        raise Damaged("more rows than records")


def signed(value):
    return value if value is None else unzigzag(value)


def comm(row):
    found = {"id": row.u(), "identity": row.take(16)[::-1].hex(), "provenance": row.u(), "name": row.s()}
    found |= {"desc": row.s(), "library": row.s(), "level": row.u(), "semantics": row.u(), "size": row.optional()}
    found["my_rank"] = row.optional()
    members, following = [], 0
    for _ in range(row.u()):
        members.append(following + row.i())
        following = members[-1] + 1
    found |= {"members": members, "owner": row.optional(), "parent": row.u(), "ordinal": row.u()}
    return found | {"color": signed(row.optional()), "key": signed(row.optional()), "inter": row.u() != 0}


def state(row):
    found = {"at": row.u(), "life": row.u()}
    if found["life"] == 1:
        found["code"] = row.i()
    elif found["life"] == 2:
        found |= {"signal": row.i(), "by": row.u(), "pid": row.u(), "name": row.s()}
    return found


def thread(row):
    found = {"at": row.u(), "tid": row.u()}
    found |= {name: row.s() for name in ("name", "state", "syscall", "device")}
    found |= {"request": row.optional(), "result": row.s()}
    found |= {name: row.optional() for name in ("each_ms", "times", "since_ms", "cpu_ms")}
    found |= {name: row.s() for name in ("wchan", "python", "native", "io")}
    return found | {"children": row.optional()}


def frame(row):
    return {
        "kind": row.u(), "function": row.s(), "file": row.s(), "line": row.u(), "module": row.s(),
        "build_id": row.s(), "offset": row.u(),
    }


ROWS = {
    RANKS: ("rank", lambda row: {
        "rank": row.u(), "world": row.optional(), "local_rank": row.optional(), "attempt": row.u(), "source": row.u()}),
    COMMS: ("comm", comm),
    TYPES: ("type", lambda row: {
        "id": row.u(), "name": row.s(), "size": row.optional(), "runs": row.list(lambda: [row.u(), row.u()])}),
    SITES: ("site", lambda row: {"id": row.u(), "frames": row.list(lambda: frame(row))}),
    LABELS: ("label", lambda row: {"id": row.u(), "text": row.s()}),
    CLOCKS: ("clock", lambda row: {"monotonic": row.u(), "boottime": row.u(), "realtime": row.u()}),
    GAPS: ("gap", lambda row: {
        "cause": row.u(), "thread": row.u(), "first_thread_seq": row.u(), "events": row.optional(), "after": row.u(),
        "before": row.u()}),
    STATES: ("state", state),
    THREADS: ("thread", thread),
    LOGS: ("log", lambda row: {"at": row.u(), "text": row.s()}),
    ATTRIBUTES: ("attribute", lambda row: {"rank": row.optional(), "key": row.s(), "value": row.s()}),
    STEPS: ("step", lambda row: {"at": row.u(), "thread": row.u(), "first_thread_seq": row.u(), "step": row.u()}),
    END: ("end", lambda row: {"last": row.u() != 0, "calls": row.u(), "lost_calls": row.u()}),
}

# --- Streams --------------------------------------------------------------------------------------------------------


class Stream:
    """What the segments of one recording say, returns joined to their calls."""

    def __init__(self, header):
        self.key = {name: header[name] for name in ("host", "pid", "start_time", "session")}
        self.calls, self.definitions, self.others = [], {}, []
        self.places, self.twice = {}, set()
        self.problems, self.unjoined, self.expired, self.closed = [], 0, 0, False
        self.read_calls = 0
        self.digests = None

    def segment(self, path, data, at):
        self.closed = False
        try:
            for block in blocks(data, at):
                self.block(*block)
        except Damaged as error:
            self.problems.append(f"{path.name}: {error}")

    def block(self, kind, flags, count, before, table, payload):
        if before > self.read_calls:
            self.problems.append(f"{before - self.read_calls} calls are missing")
            self.read_calls, self.digests = before, None
        if payload is None:
            if kind == CALLS:
                self.read_calls += count
                self.expired += count
                self.digests = None
            return
        if kind == CALLS:
            self.read_calls += count
            calls = list(calls_of(payload, count))
            for call in calls:
                self.places[call["thread"], call["thread_seq"]] = len(self.calls)
                self.calls.append(call)
            if self.digests:
                self.digests.block(calls, table)
        elif kind == RETURNS:
            for entry in returns_of(payload, count):
                place = self.places.get((entry["thread"], entry["thread_seq"]))
                if place is None:
                    self.unjoined += 1
                else:
                    if self.calls[place]["exit"] is not None:
                        self.twice.add(place)
                    join(self.calls[place], entry)
        elif kind == FRONTIER:
            # Calls that were read before, once more.
            for call in calls_of(payload, count):
                self.again(call)
        elif kind in ROWS:
            name, fields = ROWS[kind]
            for record in (fields(row) for row in rows_of(payload, count)):
                if not flags & REPEATED or kind <= LABELS or (kind, name, record) not in self.others:
                    self.record(kind, name, record)
            if kind == END and self.digests:
                self.digests.end(table)

    def again(self, call):
        """A call that should have been read before: all of it, or without its vectors if they were long."""
        place = self.places.get((call["thread"], call["thread_seq"]))
        known = None if place is None else self.calls[place]
        if known and call["flags"] & VECTORS_CUT and not known["flags"] & VECTORS_CUT:
            known = known | {"sends": [], "recvs": [], "flags": known["flags"] | VECTORS_CUT}
        # Which of two returns of one call a frontier shows is not said.
        if known != call and place not in self.twice and self.digests:
            self.problems.append(f"the frontier says {call}, before it was {known}")

    def record(self, kind, name, record):
        if kind == END:
            self.closed = record["last"]
        elif kind <= LABELS:
            key = (record["rank"], record["attempt"]) if kind == RANKS else record["id"]
            self.definitions.setdefault(name, {})[key] = record
            if self.digests and kind in (COMMS, TYPES):
                self.digests.define(name, record)
        else:
            self.others.append((kind, name, record))

    def lines(self):
        for name in ("rank", "comm", "type", "site", "label"):
            for record in self.definitions.get(name, {}).values():
                yield {"record": name} | record
        for call in self.calls:
            yield {"record": "call"} | call
        for _, name, record in sorted(self.others, key=lambda other: other[0]):
            yield {"record": name} | record
        summary = {"record": "stream"} | self.key | {"closed": self.closed, "unjoined": self.unjoined, "expired": self.expired}
        summary["problems"] = self.problems
        if self.digests:
            summary |= {"checked": self.digests.checked, "wrong": self.digests.wrong}
        yield summary


def join(call, entry):
    call["exit"], call["result"] = entry["exit"], entry["result"]
    if entry["made"]:
        call["made"] = entry["made"]
    if entry["completion"] is not None:
        call["completion"] = entry["completion"]


def read(paths, make_digests):
    """The streams of these files, by host, process, start and session; segments by their ordinal."""
    streams = {}
    for path in paths:
        data = path.read_bytes()
        try:
            header, at = read_header(data)
        except Damaged as error:
            print(f"{path}: {error}", file=sys.stderr)
            continue
        key = (header["host"], header["pid"], header["start_time"], header["session"])
        streams.setdefault(key, []).append((header["ordinal"], path, header, data, at))
    for _, segments in sorted(streams.items()):
        stream = Stream(segments[0][2])
        stream.digests = make_digests()
        last = 0
        for ordinal, path, _, data, at in sorted(segments, key=lambda segment: segment[:2]):
            if ordinal <= last:
                stream.problems.append(f"{path.name}: segment {ordinal} again")
                continue
            if ordinal != last + 1:
                stream.problems.append(f"segments {last + 1} to {ordinal - 1} are missing")
            last = ordinal
            stream.segment(path, data, at)
        yield stream


def main(arguments):
    paths = []
    for argument in map(Path, arguments):
        paths += sorted(argument.glob("*.rdt")) if argument.is_dir() else [argument]
    try:
        from digests import Digests as make_digests
    except ModuleNotFoundError as error:
        print(f"digests are not checked: {error}", file=sys.stderr)
        make_digests = lambda: None  # noqa: E731
    wrong = 0
    for stream in read(paths, make_digests):
        for line in stream.lines():
            print(json.dumps(line, ensure_ascii=False))
        wrong += len(stream.digests.wrong) if stream.digests else 0
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
