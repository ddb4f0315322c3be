#!/usr/bin/env python3
"""Check scenario files against the grammar of FORMAT.md and against themselves.

usage: check_cases.py [FILE...]      default: ../cases/*.yaml beside this script's folder

Grammar: unknown keys, ops, dtypes, flags and malformed calls are errors. Content: the streams are expanded; per group the
first position is computed where (op, count, dtype, redop, root) differ or a member lacks the call, and compared with the
verdict; point-to-point messages are paired; completion is simulated and compared with the flags. Exit 1 on any error.
"""

import math
import re
import sys
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from pathlib import Path

import yaml

COLLECTIVES = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter", "all_to_all",
               "barrier", "scan"}
CREATION = {"comm_init", "comm_split", "comm_dup", "comm_free"}
P2P = {"send", "recv"}
DTYPE_BYTES = {"i8": 1, "u8": 1, "i16": 2, "u16": 2, "i32": 4, "u32": 4, "i64": 8, "u64": 8, "f16": 2, "bf16": 2, "f32": 4,
               "f64": 8}
INT_KEYS = {"root", "peer", "tag", "key"}
NUMBER_KEYS = {"t", "dur"}
LIST_KEYS = {"splits", "recv_splits"}
CALL_KEYS = INT_KEYS | NUMBER_KEYS | LIST_KEYS | {"redop", "stream", "thread", "color", "arg", "level"}
FLAGS = {"pending", "incomplete", "done", "captured", "never_entered"}
LEVELS = {"c10d", "nccl", "gloo", "mpi"}
REDOPS = {"sum", "prod", "min", "max", "avg", "band", "bor", "bxor"}
CLASSES = {"code_divergence", "uneven_inputs", "parameter_mismatch", "logical_mismatch", "order_inversion", "group_creation",
           "p2p_deadlock", "p2p_mismatch", "rank_failed", "straggler", "driver_stall", "device_stall", "host_stall",
           "unknown", "clean"}
WHAT = {"count", "dtype", "redop", "root", "splits"}
CI = {"pass", "pass_with_warning", "fail", "inconclusive"}
RANK_SET_KEYS = {"victims", "direct_victims", "transitive_victims", "waiting_ranks", "stalled_ranks", "late_ranks",
                 "failed_ranks", "missing_callers", "collateral_exits"}
VERDICT_KEYS = RANK_SET_KEYS | {"accept", "class", "what", "group", "first_visible", "first_divergence", "cycle", "sides", "suspects",
                                "late_ms", "must_say", "must_not_say", "findings_max", "ci"}
DOC_KEYS = {"id", "world", "step_ms", "blocking", "groups", "streams", "missing_files", "truncated", "lost", "attached_at",
            "clock_offset_ms", "snapshot_t", "end", "evidence", "rank_info", "verdict"}
GROUP_KEYS = {"ranks", "desc", "created_by", "parent", "color"}
STATES = {"alive_waiting", "alive_running", "alive_blocked", "alive_stopped"}
THREAD_TYPES = {"name": str, "state": str, "syscall": str, "device": str, "request": int, "result": str,
                "each_ms": (int, float), "times": int, "since_ms": (int, float), "cpu_ms": (int, float), "wchan": str,
                "python": str, "native": str, "io": str, "children": int}
THREAD_STATES = {"blocked", "running", "sleeping", "disk_sleep", "stopped"}
# Classes whose first visible position is no difference of signatures.
NOT_BY_SIGNATURE = {"p2p_deadlock", "p2p_mismatch", "group_creation", "logical_mismatch", "device_stall", "driver_stall",
                    "unknown"}


class CaseError(Exception):
    """A document breaks the grammar or contradicts itself."""


def need(condition, message):
    if not condition:
        raise CaseError(message)


def is_int(value):
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value):
    return is_int(value) or isinstance(value, float) and math.isfinite(value)


def parse_ranks(value):
    """Ranks of '0-5,7', of [0, 1], of 6 or of '' as a set. Raises CaseError on anything else and on duplicates."""
    if value is None or value == "" or value == []:
        return set()
    if is_int(value):
        return {value}
    ranks = []
    if isinstance(value, list):
        need(all(is_int(rank) for rank in value), f"not a list of ranks: {value!r}")
        ranks = value
    else:
        need(isinstance(value, str), f"not a rank set: {value!r}")
        for part in value.replace(" ", "").split(","):
            match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
            need(match, f"not a rank set: {value!r}")
            first, last = int(match[1]), int(match[2] or match[1])
            need(first <= last, f"range runs backward: {value!r}")
            ranks += range(first, last + 1)
    need(len(ranks) == len(set(ranks)), f"rank given twice: {value!r}")
    return set(ranks)


def format_ranks(ranks):
    """{0,1,2,5} as '0-2,5'."""
    parts, ranks = [], sorted(ranks)
    while ranks:
        length = 1
        while length < len(ranks) and ranks[length] == ranks[0] + length:
            length += 1
        parts.append(str(ranks[0]) if length == 1 else f"{ranks[0]}-{ranks[length - 1]}")
        ranks = ranks[length:]
    return ",".join(parts)


def type_bytes(text):
    """Size of a derived type given as bytes (`96`) or as runs of basic types (`4xf32+2xi64`)."""
    runs = [run.split("x") for run in text.split("+")]
    return int(text) if text.isdigit() else sum(int(times) * DTYPE_BYTES[name] for times, name in runs)


@dataclass
class Call:
    op: str
    count: int | None
    dtype: str | None
    group: str
    site: str
    keys: dict = field(default_factory=dict)
    flags: set = field(default_factory=set)

    @property
    def executed(self):
        return "never_entered" not in self.flags and "captured" not in self.flags

    @property
    def collective(self):
        return self.op.removeprefix("i") in COLLECTIVES or self.op in COLLECTIVES

    def visible_op(self):
        """The op the recorder can see: below the framework a barrier is an all_reduce of one element."""
        return "all_reduce" if self.op == "barrier" and self.keys.get("level") == "nccl" else self.op

    def size(self):
        """Bytes where they can be told, so that a derived type matches a basic one of the same signature size."""
        if self.dtype is None or self.count is None:
            return None
        if self.dtype.startswith("type:"):
            return self.count * type_bytes(self.dtype.rsplit(":", 1)[1])
        return self.count * DTYPE_BYTES[self.dtype]

    def signature(self, derived):
        """What must agree. derived: some member uses a derived type here, so compare bytes instead of count and dtype."""
        op = self.visible_op()
        if op == "barrier":
            return (op,)
        if "splits" in self.keys:
            return (op, self.dtype)
        shape = (self.size(),) if derived else (self.count, self.dtype)
        return (op, *shape, self.keys.get("redop", "sum"), self.keys.get("root"))


def parse_call(text):
    need(isinstance(text, str), f"not a call: {text!r}")
    words = text.split()
    need(len(words) >= 5, f"call too short: {text!r}")
    op, count, dtype, group, site = words[:5]
    base = op[1:] if op.startswith("i") else op
    need(op in COLLECTIVES | CREATION | P2P or base in COLLECTIVES | P2P, f"unknown op in {text!r}")
    need(count == "-" or count.isdigit(), f"count in {text!r}")
    need(dtype == "-" or dtype in DTYPE_BYTES or re.fullmatch(r"type:[^:\s]+:(\d+|\d+x\w+(\+\d+x\w+)*)", dtype), f"dtype in {text!r}")
    need(re.fullmatch(r"@\w+", group), f"group in {text!r}")
    need("=" not in site and site not in FLAGS and all(site.split(">")), f"site in {text!r}")
    call = Call(op, None if count == "-" else int(count), None if dtype == "-" else dtype, group[1:], site)
    for word in words[5:]:
        key, equals, value = word.partition("=")
        if not equals:
            need(word in FLAGS, f"unknown flag {word!r} in {text!r}")
            call.flags.add(word)
            continue
        need(value and key not in call.keys, f"{word!r} in {text!r}")
        if key == "error":
            call.flags.add(word)
            continue
        need(key in CALL_KEYS, f"unknown key {key!r} in {text!r}")
        if key in INT_KEYS:
            need(re.fullmatch(r"-?\d+", value), f"{word!r} in {text!r}")
            value = int(value)
        elif key in NUMBER_KEYS:
            need(re.fullmatch(r"\d+(\.\d+)?", value), f"{word!r} in {text!r}")
            value = float(value)
        elif key in LIST_KEYS:
            need(re.fullmatch(r"\[\d+(,\d+)*\]", value), f"{word!r} in {text!r}")
            value = [int(part) for part in value[1:-1].split(",")]
        elif key == "color":
            need(value == "none" or value.isdigit(), f"{word!r} in {text!r}")
        elif key == "level":
            need(value in LEVELS, f"{word!r} in {text!r}")
        elif key == "redop":
            need(value in REDOPS or value.isdigit(), f"{word!r} in {text!r}")
        call.keys[key] = value
    need(len(call.flags & {"pending", "incomplete", "done", "never_entered"}) <= 1, f"flags contradict each other in {text!r}")
    need(base not in P2P and op not in P2P or "peer" in call.keys, f"peer missing in {text!r}")
    need(not {"splits", "recv_splits"} & call.keys.keys() or base == "all_to_all" or op == "all_to_all",
         f"splits on another op in {text!r}")
    return call


def expand(steps):
    """The units of one rank in program order: a unit is a list of calls, of one or of one group call."""
    need(isinstance(steps, list), "a stream or do: is not a list")
    units = []
    for step in steps:
        if isinstance(step, str):
            units.append([parse_call(step)])
            continue
        need(isinstance(step, dict), f"not a step: {step!r}")
        if "repeat" in step:
            need(step.keys() <= {"repeat", "do", "mark", "mark_from"} and "do" in step, f"keys of a repeat: {list(step)}")
            need(is_int(step["repeat"]) and step["repeat"] >= 0, f"repeat: {step['repeat']!r}")
            need("mark_from" not in step or "mark" in step and is_int(step["mark_from"]), "mark_from")
            need(isinstance(step.get("mark", ""), str), "mark")
            units += expand(step["do"]) * step["repeat"]
        elif "group_call" in step:
            need(set(step) == {"group_call"} and step["group_call"], f"keys of a group_call: {list(step)}")
            units.append([parse_call(call) for call in step["group_call"]])
        else:
            need(set(step) == {"sleep_ms"} and is_number(step["sleep_ms"]), f"unknown step: {step!r}")
    return units


def last_entry(steps, step_ms, now=0.0):
    """Earliest time in ms at which the last call of a stream can be entered, if nothing is waited for."""
    for step in steps:
        if isinstance(step, str):
            now = parse_call(step).keys.get("t", now + step_ms)
        elif "repeat" in step:
            for _round in range(step["repeat"]):
                now = last_entry(step["do"], step_ms, now)
        else:
            now += step.get("sleep_ms", step_ms)
    return now


def check_thread(thread):
    need(isinstance(thread, dict) and thread.keys() <= THREAD_TYPES.keys(), f"unknown key of a thread: {thread!r}")
    for key, value in thread.items():
        need(isinstance(value, THREAD_TYPES[key]) and not isinstance(value, bool), f"thread {key}: {value!r}")
    need(thread.get("state", "blocked") in THREAD_STATES, f"thread state {thread.get('state')!r}")


def check_end(end):
    if isinstance(end, str):
        need(end in STATES, f"unknown end {end!r}")
        return
    need(isinstance(end, dict), f"end: {end!r}")
    kinds = {"exited", "signal"} & end.keys()
    need(len(kinds) == 1 and end.keys() <= kinds | {"t", "by"}, f"end: {end!r}")
    need(all(is_int(end[kind]) for kind in kinds) and is_number(end.get("t")), f"end: {end!r}")
    need(isinstance(end.get("by", ""), str), f"end: {end!r}")


def rank_map(doc, name, check_value):
    """Check a mapping of rank sets to values; every rank at most once. Returns the value of each rank."""
    mapping = doc.get(name, {})
    need(isinstance(mapping, dict), f"{name} is no mapping")
    by_rank = {}
    for key, value in mapping.items():
        need(isinstance(key, str), f"{name}: quote the key {key!r}")
        ranks = parse_ranks(key)
        need(ranks and max(ranks) < doc["world"], f"{name}: ranks {key!r}")
        need(key == format_ranks(ranks), f"{name}: {key!r} is not the compressed form {format_ranks(ranks)!r}")
        need(not ranks & by_rank.keys(), f"{name}: rank given twice in {key!r}")
        check_value(value, ranks)
        by_rank.update(dict.fromkeys(ranks, value))
    return by_rank


def check_gaps(value, _ranks):
    need(isinstance(value, list) and value, f"lost: {value!r}")
    for gap in value:
        need(isinstance(gap, dict) and set(gap) == {"after_call", "events"} and all(map(is_int, gap.values())), f"lost: {gap!r}")


def check_evidence(value, _ranks):
    need(isinstance(value, dict) and value.keys() <= {"threads", "log", "log_t"}, f"evidence: {value!r}")
    for thread in value.get("threads", []):
        check_thread(thread)
    need(all(isinstance(line, str) for line in value.get("log", [])), "evidence: log")
    need("log_t" not in value or "log" in value and is_number(value["log_t"]), "evidence: log_t")


def check_rank_info(value, ranks):
    need(isinstance(value, dict), f"rank_info: {value!r}")
    for key, attribute in value.items():
        need(not isinstance(attribute, dict), f"rank_info {key}")
        need(not isinstance(attribute, list) or len(attribute) == len(ranks), f"rank_info {key}: one value per rank")


def check_number(value, _ranks):
    need(is_number(value), f"not a number: {value!r}")


def load_groups(doc):
    groups = {}
    need(isinstance(doc["groups"], dict) and doc["groups"], "groups")
    for name, group in doc["groups"].items():
        need(isinstance(name, str) and re.fullmatch(r"\w+", name), f"group name {name!r}")
        if isinstance(group, dict):
            need(group.keys() <= GROUP_KEYS and "ranks" in group, f"keys of group {name}: {list(group)}")
            need(group.get("parent", name) in doc["groups"], f"group {name}: unknown parent")
            group = group["ranks"]
        need(isinstance(group, list), f"group {name}: ranks are a list")
        members = parse_ranks(group)
        need(members and max(members) < doc["world"], f"group {name}: ranks {group!r}")
        groups[name] = members
    return groups


def check_verdict(doc, groups):
    verdict = doc["verdict"]
    need(isinstance(verdict, dict) and verdict.keys() <= VERDICT_KEYS, f"unknown verdict key: {set(verdict) - VERDICT_KEYS}")
    need(verdict.get("class") in CLASSES, f"class {verdict.get('class')!r}")
    need(("what" in verdict) == (verdict["class"] == "parameter_mismatch"), "what goes with parameter_mismatch")
    need(verdict.get("what", "count") in WHAT, f"what: {verdict.get('what')!r}")
    need(verdict.get("ci", "pass") in CI, f"ci: {verdict.get('ci')!r}")
    need("group" not in verdict or verdict["group"] in groups, f"unknown group {verdict.get('group')!r}")
    for key in ("first_visible", "first_divergence", "findings_max"):
        need(key not in verdict or is_int(verdict[key]) and verdict[key] >= 0, key)
    need("first_divergence" not in verdict or verdict["first_divergence"] <= verdict["first_visible"], "first_divergence")
    need("late_ms" not in verdict or is_number(verdict["late_ms"]), "late_ms")
    for key in RANK_SET_KEYS & verdict.keys():
        ranks = parse_ranks(verdict[key])
        need(isinstance(verdict[key], str) and verdict[key] == format_ranks(ranks), f"{key}: not in compressed form")
        need(ranks <= set(range(doc["world"])), f"{key}: ranks")
    for key in {"suspects", "cycle"} & verdict.keys():
        need(isinstance(verdict[key], list) and parse_ranks(verdict[key]) <= set(range(doc["world"])), key)
    for key in {"must_say", "must_not_say"} & verdict.keys():
        need(isinstance(verdict[key], list) and verdict[key], key)
        for text in verdict[key]:
            need(isinstance(text, str) and text == text.lower() and all(text.split("|")), f"{key}: {text!r}")
            need(text == " ".join(text.split()), f"{key}: {text!r} has stray blanks")
            need(key == "must_say" or "|" not in text, f"{key}: no alternatives there: {text!r}")
    sides = rank_map({"world": doc["world"], "sides": verdict.get("sides", {})}, "sides",
                     lambda text, _ranks: need(isinstance(text, str) and text, "sides"))
    need(not sides or "group" in verdict and sides.keys() <= groups[verdict["group"]], "sides outside the group")
    accept = verdict.get("accept", {})
    need(isinstance(accept, dict) and accept.keys() <= {"class", "what", "first_divergence"}, "accept")
    need(all(isinstance(values, list) and values for values in accept.values()), "accept: a list of values for each key")
    if verdict["class"] == "clean":
        need(verdict.keys() <= {"class", "must_say", "must_not_say", "ci"} and verdict.get("ci") == "pass", "clean verdict")
    if verdict["class"] in {"order_inversion", "p2p_deadlock"} and "cycle" in verdict:
        need(len(verdict["cycle"]) >= 2, "cycle")


def first_difference(sequences, members, key):
    """First position where key(calls) differs between members or a member lacks the call; None if all agree."""
    for position in range(max((len(sequences[rank]) for rank in members), default=0)):
        calls = {rank: sequences[rank][position] for rank in members if position < len(sequences[rank])}
        if len(calls) < len(members) or len({key(call, calls) for call in calls.values()}) > 1:
            return position, calls
        vectors = {rank: call for rank, call in calls.items() if "splits" in call.keys}
        if vectors and not matrix_agrees(vectors, members):
            return position, calls
    return None


def matrix_agrees(calls, members):
    """What i sends to j is what j expects from i; the sum of a rank's splits is its count."""
    order = sorted(members)
    for i, sender in enumerate(order):
        call = calls.get(sender)
        if call is None or len(call.keys["splits"]) != len(order) or call.count != sum(call.keys["splits"]):
            return False
        for j, receiver in enumerate(order):
            if receiver in calls and calls[receiver].keys["recv_splits"][i] != call.keys["splits"][j]:
                return False
    return True


def by_signature(call, calls):
    return call.signature(any((other.dtype or "").startswith("type:") for other in calls.values()))


def by_meaning(call, _calls):
    return call.site, call.keys.get("arg")


class Simulation:
    """Which calls complete if every rank issues its stream in order; blocking ranks stop at a call that does not."""

    def __init__(self, units, groups, blocking):
        self.units, self.groups, self.blocking = units, groups, blocking
        self.entered, self.complete = set(), set()
        self.instances = self.number_calls()
        self.instance_of = {id(call): key for key, calls in self.instances.items() for call in calls.values()}
        self.partners = self.pair_messages()
        self.run()

    def number_calls(self):
        """Members' calls of each instance: key (group, 'coll' or 'create', ordinal), value rank -> call identity."""
        instances = defaultdict(dict)
        for rank, units in self.units.items():
            counters = Counter()
            for call in (call for unit in units for call in unit if "captured" not in call.flags):
                if call.op in P2P:
                    continue
                kind = "coll" if call.collective else "create"
                instances[call.group, kind, counters[call.group, kind]][rank] = call
                counters[call.group, kind] += 1
        return instances

    def pair_messages(self):
        queues = defaultdict(deque)
        for rank, units in self.units.items():
            for call in (call for unit in units for call in unit if call.op in P2P):
                ends = (rank, call.keys["peer"]) if call.op == "send" else (call.keys["peer"], rank)
                queues[call.op, call.group, *ends, call.keys.get("tag")].append(call)
        partners = {}
        for (op, *edge), calls in queues.items():
            others = queues.get(("recv" if op == "send" else "send", *edge), ())
            partners.update((id(call), other) for call, other in zip(calls, others))
        return partners

    def run(self):
        position = dict.fromkeys(self.units, 0)
        moved = True
        while moved:
            moved = False
            for rank, units in self.units.items():
                while position[rank] < len(units):
                    unit = units[position[rank]]
                    if any("never_entered" in call.flags for call in unit):
                        break
                    if id(unit[0]) not in self.entered:
                        self.entered.update(map(id, unit))
                        moved = True
                    if self.blocking and not all(self.is_done(call) for call in unit):
                        break
                    position[rank] += 1
            finished = [call for call in self.calls() if id(call) not in self.complete and self.can_complete(call)]
            self.complete.update(map(id, finished))
            moved |= bool(finished)

    def calls(self):
        return (call for units in self.units.values() for unit in units for call in unit)

    def is_done(self, call):
        return id(call) in self.complete or not call.executed or "done" in call.flags

    def can_complete(self, call):
        if id(call) not in self.entered or not call.executed:
            return False
        if call.op in P2P:
            partner = self.partners.get(id(call))
            return partner is not None and id(partner) in self.entered and partner.size() == call.size()
        key = self.instance_of[id(call)]
        calls = self.instances[key]
        if calls.keys() != self.groups[call.group] or not all(id(other) in self.entered for other in calls.values()):
            return False
        return len({by_signature(other, calls) if call.collective else other.op for other in calls.values()}) == 1


def private_copies(units):
    """repeat shares call objects; give every call an identity of its own."""
    return [[Call(c.op, c.count, c.dtype, c.group, c.site, c.keys, c.flags) for c in unit] for unit in units]


def check_completion(doc, units, groups):
    simulation = Simulation(units, groups, doc.get("blocking", False))
    in_flight = doc["verdict"]["class"] in {"device_stall"}
    for rank, rank_units in units.items():
        for call in (call for unit in rank_units for call in unit if call.executed):
            what = f"rank {rank}: {call.op} @{call.group} in {call.site}"
            need(id(call) in simulation.entered, f"{what} cannot be entered, a call before it never returns")
            if "pending" in call.flags:
                need(in_flight or id(call) not in simulation.complete, f"{what} is marked pending but would complete")
            elif "done" not in call.flags and not any(flag.startswith("error=") for flag in call.flags):
                need(id(call) in simulation.complete, f"{what} has no flag but never completes")


def check_positions(doc, units, groups):
    """Compare the claimed first visible position with the computed ones. Returns a line for the report."""
    verdict = doc["verdict"]
    computed = {}
    for name, members in groups.items():
        sequences = {rank: [call for unit in units[rank] for call in unit
                            if call.group == name and call.collective and call.executed] for rank in members & units.keys()}
        signature = first_difference(sequences, members & units.keys(), by_signature)
        meaning = first_difference(sequences, members & units.keys(), by_meaning)
        computed[name] = (signature and signature[0], meaning and meaning[0])
        if verdict["class"] == "clean" and signature:
            position, calls = signature
            need(len({by_signature(call, calls) for call in calls.values()}) == 1
                 and all("pending" in call.flags for call in calls.values()),
                 f"healthy, but {name} differs at {position}")
    claimed, group = verdict.get("first_visible"), verdict.get("group")
    summary = " ".join(f"{name}:{a if a is not None else '-'}" for name, (a, _b) in computed.items())
    if claimed is None:
        if verdict["class"] in {"order_inversion", "device_stall", "driver_stall"}:
            need(all(a is None or "cycle" in verdict for a, _b in computed.values()), f"signatures differ: {summary}")
        return summary
    need(group is not None, "first_visible without a group")
    if verdict["class"] == "logical_mismatch":
        need(computed[group][0] is None, f"signatures differ: {summary}")
        need(computed[group][1] == claimed, f"first_visible {claimed}, computed from sites {computed[group][1]}")
    elif verdict["class"] not in NOT_BY_SIGNATURE:
        need(computed[group][0] == claimed, f"first_visible {claimed}, computed {computed[group][0]}")
    return summary


def check_sides(doc, units, groups):
    """Each side is one class of equal calls at the first visible position, and its words are in that call."""
    verdict = doc["verdict"]
    if "sides" not in verdict:
        return
    position, classes = verdict["first_visible"], defaultdict(set)
    for rank in groups[verdict["group"]] & units.keys():
        calls = [call for unit in units[rank] for call in unit if call.group == verdict["group"] and call.executed]
        collectives = [call for call in calls if call.collective]
        call = collectives[position] if position < len(collectives) else calls[-1] if calls[-1].op in CREATION else None
        shown = f"{call.visible_op()} {call.count} {call.dtype} {call.site} {call.keys.get('arg', '')}" if call else "no call"
        classes[shown].add(rank)
    for key, text in verdict["sides"].items():
        shown = next((shown for shown, ranks in classes.items() if ranks == parse_ranks(key)), None)
        need(shown, f"side {key}: sides at {position} are {[format_ranks(ranks) for ranks in classes.values()]}")
        missing = [word for word in text.split() if word not in shown]
        need(not missing, f"side {key}: {missing} not in the call at {position}: {shown}")


def check_document(doc):
    """Check one document. Returns a summary line; raises CaseError."""
    need(isinstance(doc, dict), "a document is no mapping")
    need(doc.keys() <= DOC_KEYS, f"unknown keys: {sorted(doc.keys() - DOC_KEYS)}")
    missing = {"id", "world", "groups", "streams", "end", "verdict"} - doc.keys()
    need(not missing, f"missing keys: {sorted(missing)}")
    need(isinstance(doc["id"], str) and re.fullmatch(r"[\w-]+", doc["id"]), f"id {doc['id']!r}")
    need(is_int(doc["world"]) and doc["world"] > 0, "world")
    need(is_number(doc.get("step_ms", 10)) and isinstance(doc.get("blocking", False), bool), "step_ms or blocking")
    need(is_number(doc.get("snapshot_t", 0)), "snapshot_t")
    groups = load_groups(doc)
    missing_files = parse_ranks(doc.get("missing_files"))
    need(missing_files <= set(range(doc["world"])), "missing_files")
    units = {}
    rank_map(doc, "streams", lambda steps, ranks: units.update((rank, private_copies(expand(steps))) for rank in ranks))
    need(units.keys() | missing_files == set(range(doc["world"])), f"streams: ranks {format_ranks(units)}")
    for rank, rank_units in units.items():
        for call in (call for unit in rank_units for call in unit):
            need(call.group in groups and rank in groups[call.group], f"rank {rank} is no member of @{call.group}")
            for key in {"root", "peer"} & call.keys.keys():
                need(call.keys[key] in groups[call.group], f"{key}={call.keys[key]} is no member of @{call.group}")
    ends = rank_map(doc, "end", lambda end, _ranks: check_end(end))
    need(ends.keys() >= units.keys() - missing_files, f"end: ranks {format_ranks(ends)}")
    for key, steps in doc["streams"].items():
        last = last_entry(steps, doc.get("step_ms", 10))
        for rank in parse_ranks(key) & ends.keys():
            need(not isinstance(ends[rank], dict) or ends[rank]["t"] > last, f"rank {rank} ends before its last call at {last} ms")
    rank_map(doc, "truncated", check_number)
    rank_map(doc, "attached_at", check_number)
    rank_map(doc, "clock_offset_ms", check_number)
    rank_map(doc, "lost", check_gaps)
    rank_map(doc, "evidence", check_evidence)
    rank_map(doc, "rank_info", check_rank_info)
    check_verdict(doc, groups)
    summary = check_positions(doc, units, groups)
    check_sides(doc, units, groups)
    if not missing_files:
        check_completion(doc, units, groups)
    return summary


def load_documents(path):
    """The documents of one scenario file. Duplicate keys, which YAML loaders let pass, are errors."""
    class Loader(yaml.SafeLoader):
        pass

    def mapping(loader, node):
        keys = [loader.construct_object(key, deep=True) for key, _value in node.value]
        twice = [key for key, count in Counter(keys).items() if count > 1]
        need(not twice, f"key given twice: {twice}")
        return loader.construct_mapping(node, deep=True)

    Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    return [doc for doc in yaml.load_all(Path(path).read_text(encoding="utf-8"), Loader) if doc is not None]


def main(arguments):
    here = Path(__file__).resolve().parent
    files = [Path(name) for name in arguments] or sorted((here.parent / "cases").glob("*.yaml"))
    errors, ids = 0, {}
    for path in files:
        try:
            docs = load_documents(path)
        except (CaseError, yaml.YAMLError, OSError) as error:
            print(f"ERROR {path.name}: {error}")
            errors += 1
            continue
        for doc in docs:
            name = doc.get("id") if isinstance(doc, dict) else None
            try:
                need(name not in ids, f"id also in {ids.get(name)}")
                ids[name] = path.name
                summary = check_document(doc)
                verdict = doc["verdict"]
                print(f"ok    {name:20} {verdict['class']:20} claimed {str(verdict.get('first_visible', '-')):>4}  computed {summary}")
            except CaseError as error:
                errors += 1
                print(f"ERROR {path.name} {name}: {error}")
    print(f"{len(files)} files, {len(ids)} documents, {errors} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
