#!/usr/bin/env python3
"""Writes a job as the dumps that PyTorch's Flight Recorder would have left of it: one pickle a rank, version 2.10.

    rankdiff export TRACE --to jsonl -o - | python3 dumps.py FOLDER

The content is the trace's own: the same calls, positions, sizes, types, call sites and times. What a dump has and a
trace has not is what NCCL's recorder writes for such a call. Deliberately not here: send and receive (dumps pair them
by another number), and what dumps cannot hold (root, reduction).
"""

import json
import os
import pickle
import sys

VERSION = "2.10"
PREFIX = "nccl_trace_rank_"
# Pickles of the recorder itself are of this protocol.
PROTOCOL = 2
TIMEOUT_MS = 600_000

DTYPES = {
    "u8": "Byte", "i8": "Char", "i16": "Short", "i32": "Int", "i64": "Long",
    "f16": "Half", "bf16": "BFloat16", "f32": "Float", "f64": "Double",
}
# Name in a dump; elements of input and of output, in blocks of a member: 1, or "all" for a block of each member.
OPS = {
    "all_reduce": ("all_reduce", 1, 1),
    "broadcast": ("broadcast", 1, 1),
    "reduce": ("reduce", 1, 1),
    "all_gather": ("_all_gather_base", 1, "all"),
    "reduce_scatter": ("_reduce_scatter_base", "all", 1),
    "all_to_all": ("all_to_all", "all", "all"),
    "barrier": ("all_reduce_barrier", 1, 1),
}


class Process:
    """What is known of a process while its lines are read."""

    def __init__(self, line):
        clock = line["clock"]
        self.offset = clock["realtime"] - clock["monotonic"]
        self.rank = None
        self.sites = {}
        self.comms = {}
        self.entries = []

    def comm(self, line):
        number = str(len(self.comms))
        members = line["members"]
        if sorted(members) != members:
            sys.exit(f"dumps.py: the members of {line['name']} are in no rising order, which no dump can say")
        self.comms[line["id"]] = (line["name"], line.get("desc", "undefined"), members, number)

    def call(self, line):
        name, desc, members, number = self.comms[line["comm"]]
        if line["op"] not in OPS or "seq" not in line:
            sys.exit(f"dumps.py: a call {line['op']} has no place in the dumps that are made here")
        op, sent, received = OPS[line["op"]]
        blocks = {1: 1, "all": len(members)}
        count = line.get("count", 1)
        dtype = DTYPES[line.get("dtype", "f32")]
        completed = line.get("completed_ns")
        entered = line["enter_ns"] + self.offset
        self.entries.append({
            "frames": self.sites.get(line.get("site"), []),
            "record_id": len(self.entries),
            "pg_id": int(number),
            "process_group": (name, desc),
            # They count from 1.
            "collective_seq_id": line["seq"] + 1,
            "p2p_seq_id": 0,
            "op_id": len(self.entries) + 1,
            "profiling_name": f"nccl:{op}",
            "time_created_ns": entered,
            "input_sizes": [[count * blocks[sent]]],
            "input_dtypes": [dtype],
            "output_sizes": [[count * blocks[received]]],
            "output_dtypes": [dtype],
            "state": "scheduled" if completed is None else "completed",
            "time_discovered_started_ns": None,
            "time_discovered_completed_ns": None if completed is None else completed + self.offset,
            "retired": completed is not None,
            "timeout_ms": TIMEOUT_MS,
            "is_p2p": False,
            "thread_id": str(line.get("thread", 0)),
            "thread_name": "python",
        })

    def dump(self):
        config = {
            name: {"name": name, "desc": desc, "ranks": str(members)}
            for name, desc, members, _ in self.comms.values()
        }
        done = [entry["collective_seq_id"] for entry in self.entries if entry["retired"]]
        last = self.entries[-1]["collective_seq_id"] if self.entries else -1
        status = {
            "last_enqueued_collective": last,
            "last_started_collective": -1,
            "last_completed_collective": done[-1] if done else -1,
        }
        return {
            "version": VERSION,
            "comm_lib_version": "",
            "pg_config": config,
            "pg_status": {"0": status},
            "entries": self.entries,
        }


def frames(line):
    """The frames of a site, innermost first."""
    return [
        {"name": frame.get("function", ""), "filename": frame.get("file", ""), "line": frame.get("line", 0)}
        for frame in reversed(line["frames"])
    ]


def write(folder, process):
    if process is None:
        return 0
    if process.rank is None:
        sys.exit("dumps.py: a process without a rank")
    with open(os.path.join(folder, f"{PREFIX}{process.rank}"), "wb") as out:
        pickle.dump(process.dump(), out, PROTOCOL)
    return len(process.entries)


def main():
    folder = sys.argv[1]
    os.makedirs(folder)
    process = None
    entries = 0
    for text in sys.stdin:
        line = json.loads(text)
        kind = line["kind"]
        if kind == "process":
            entries += write(folder, process)
            process = Process(line)
        elif kind == "rank":
            process.rank = line["rank"]
        elif kind == "site":
            process.sites[line["id"]] = frames(line)
        elif kind == "comm":
            process.comm(line)
        elif kind == "call":
            process.call(line)
    entries += write(folder, process)
    print(entries)


if __name__ == "__main__":
    main()
