"""The digests of docs/format.md, computed from decoded calls and compared with those that a file holds.

Written from the document alone; `read_rdt.py` uses it.
"""

import struct

import xxhash

MASK = (1 << 64) - 1
CHECKPOINT_EVERY = 256

NONBLOCKING, IN_PLACE, NESTED, CAPTURED, PERSISTENT, UNREADABLE, VECTORS_CUT = (1 << bit for bit in range(7))
ROOT_IS_SELF, BYSTANDER, ANY_SOURCE, ANY_TAG = (1 << bit for bit in range(9, 13))
NONBLOCKING_DISTINCT = 2

# What takes part in a signature: elements, reduction, root.
GIVEN, LEFT_OUT, NONE = "given", "left out", "none"
PARTS = {
    "barrier": (NONE, NONE, NONE),
    "broadcast": (GIVEN, NONE, GIVEN),
    "gather": (GIVEN, NONE, GIVEN),
    "scatter": (GIVEN, NONE, GIVEN),
    "reduce": (GIVEN, GIVEN, GIVEN),
    "all_reduce": (GIVEN, GIVEN, NONE),
    "reduce_scatter": (GIVEN, GIVEN, NONE),
    "scan": (GIVEN, GIVEN, NONE),
    "exscan": (GIVEN, GIVEN, NONE),
    "all_gather": (GIVEN, NONE, NONE),
    "all_to_all": (GIVEN, NONE, NONE),
    "neighbor_all_gather": (GIVEN, NONE, NONE),
    "neighbor_all_to_all": (GIVEN, NONE, NONE),
    "all_gather_v": (LEFT_OUT, NONE, NONE),
    "reduce_scatter_v": (LEFT_OUT, GIVEN, NONE),
    "gather_v": (LEFT_OUT, NONE, GIVEN),
    "scatter_v": (LEFT_OUT, NONE, GIVEN),
    "all_to_all_v": (LEFT_OUT, NONE, NONE),
    "neighbor_all_gather_v": (LEFT_OUT, NONE, NONE),
    "neighbor_all_to_all_v": (LEFT_OUT, NONE, NONE),
    "all_to_all_w": ("w", NONE, NONE),
    "neighbor_all_to_all_w": ("w", NONE, NONE),
    "file_collective": ("w", NONE, NONE),
    "window_collective": ("w", NONE, NONE),
}
NO_PART, TAG_LEFT_OUT, NOT_KNOWN, PRESENT = b"\0", b"\1", b"\2", b"\3"


def u(form, *values):
    return struct.pack("<" + form, *values)


def xxh3(data):
    return xxhash.xxh3_64_intdigest(data)


def shortest_period(runs):
    """The shortest word of which the word of these runs is a repetition, and how often; None if a run is too long."""
    merged = []
    for basic, times in runs:
        if times == 0:
            continue
        if merged and merged[-1][0] == basic:
            merged[-1][1] += times
            if merged[-1][1] > MASK:
                return None
        else:
            merged.append([basic, times])
    if not merged:
        return [], 0
    if len(merged) == 1:
        return [[merged[0][0], 1]], merged[0][1]
    # A repetition of k words shows in the runs: k equal groups, or, where the word's ends are of one type, groups
    # that share a merged run between them.
    count = len(merged)
    for period in range(1, count + 1):
        if count % period == 0 and merged == merged[:period] * (count // period):
            if count // period > 1 or merged[0][0] != merged[-1][0]:
                return merged[:period], count // period
    # Ends of one type: first run a, last run b, joints a + b.
    first, last = merged[0], merged[-1]
    if first[0] == last[0]:
        joint = [first[0], first[1] + last[1]]
        for inner in range(1, count):
            if (count - 1) % inner:
                continue
            repeats = (count - 1) // inner
            groups = [merged[1 + i * inner : 1 + (i + 1) * inner] for i in range(repeats)]
            if all(group[:-1] == groups[0][:-1] for group in groups) and all(
                group[-1] == joint for group in groups[:-1]
            ):
                return [first] + groups[0][:-1] + [last], repeats
    return merged, 1


def elements(dtype, count, types):
    """The bytes of `count` elements, and whether they prove what is transferred; None if not known."""
    if count == 0:
        return b"\0" + b"\1" + u("QQ", 0, 0), True
    if dtype is None:
        return None
    kind, value = dtype
    if kind == "raw":
        return b"\3" + u("Q", value) + b"\1" + u("QQ", count, 0), True
    if kind == "derived":
        known = types.get(value)
        if known is None:
            return None
        if not known["runs"]:
            if known["size"] is None:
                return None
            return b"\4" + u("Q", known["size"]) + b"\1" + u("QQ", count, 0), False
        runs = known["runs"]
    else:
        runs = [[value, 1]]
    period = shortest_period(runs)
    if period is None:
        return None
    word, times = period
    if not word:
        return b"\0" + b"\1" + u("QQ", 0, 0), True
    times *= count
    if len(word) == 1 and word[0][1] == 1:
        unit = b"\1" + u("B", word[0][0])
    else:
        unit = b"\2" + u("Q", len(word)) + b"".join(u("BQ", basic, repeat) for basic, repeat in word)
    return unit + b"\1" + u("QQ", times & MASK, times >> 64), True


def is_vector_form(call):
    if call["op"] == "all_to_all":
        return bool(call["sends"] or call["recvs"] or call["flags"] & VECTORS_CUT)
    return call["op"].endswith(("_v", "_w"))


class Chain:
    def __init__(self, comm):
        self.comm, self.facts = comm, {}
        self.adrift, self.mark = True, 0
        self.base = self.upto = self.running = self.pairs_base = self.pairs = 0
        self.interval = self.interval_base = 0
        self.sends = self.recvs = self.unknown = self.sum = 0

    def restart(self, base, mark):
        self.adrift, self.mark = False, mark
        self.base = self.upto = self.pairs_base = self.interval_base = base
        self.running = self.pairs = self.interval = 0

    def entry(self, checkpoint):
        interval = None
        if checkpoint and self.upto - self.interval_base & MASK == CHECKPOINT_EVERY:
            interval = self.interval
        return (self.comm, self.mark, self.base, self.upto, self.running, interval, self.pairs_base, self.pairs)

    def p2p(self):
        return (self.comm, self.sends, self.recvs, self.unknown, self.sum)


class Digests:
    """The digests of a stream so far."""

    def __init__(self):
        self.types, self.chains = {}, {}
        self.checked, self.wrong = 0, []

    def define(self, name, record):
        if name == "type":
            self.types[record["id"]] = record
        else:
            self.chain(record["id"]).facts = record

    def chain(self, comm):
        return self.chains.setdefault(comm, Chain(comm))

    def block(self, calls, table):
        """Goes over a block's calls and compares with its table."""
        checkpoints, moved, spoken = [], set(), set()
        for call in calls:
            # Calls of an unknown operation are a newer version's.
            if call["op"] is None or call["comm"] == 0 or call["flags"] & (NESTED | CAPTURED):
                continue
            chain = self.chain(call["comm"])
            if call["code"] < 64:
                moved.add(call["comm"])
                checkpoint = self.collective(chain, call)
                checkpoints += [checkpoint] if checkpoint else []
            elif call["code"] < 96:
                spoken.add(call["comm"])
                self.message(chain, call)
        expected = [("checkpoint", *point) for point in checkpoints]
        expected += [("end", *self.chains[comm].entry(False)) for comm in sorted(moved)]
        expected += [("p2p", *self.chains[comm].p2p()) for comm in sorted(spoken)]
        self.compare(expected, table)

    def end(self, table):
        """The table of a segment's end: every communicator that had such calls so far."""
        found = entries(table)
        used = {entry[1] for entry in found if entry[0] == "end"}
        spoken = {entry[1] for entry in found if entry[0] == "p2p"}
        expected = [("end", *self.chain(comm).entry(False)) for comm in sorted(used)]
        expected += [("p2p", *self.chain(comm).p2p()) for comm in sorted(spoken)]
        for comm, chain in self.chains.items():
            if (not chain.adrift or chain.mark) and comm not in used:
                self.wrong.append(f"the segment's end lacks communicator {comm}")
        self.compare(expected, table)

    def compare(self, expected, table):
        found = entries(table)
        self.checked += len(found)
        for index in range(max(len(expected), len(found))):
            one = expected[index] if index < len(expected) else None
            other = found[index] if index < len(found) else None
            if one != other:
                self.wrong.append(f"calls give {one}, the file says {other}")

    def collective(self, chain, call):
        seq = call["seq"]
        if seq is None:
            chain.restart(chain.upto, 1)
            chain.adrift = True
            return None
        if chain.adrift:
            chain.restart(seq, chain.mark)
        elif seq != chain.upto:
            chain.restart(seq, 1)
        signature = self.signature(call, chain.facts)
        following = seq + 1 & MASK
        if signature is None:
            chain.restart(following, 2)
            return None
        value = u("Q", xxh3(signature))
        chain.running = xxh3(u("Q", chain.running) + value)
        chain.interval = xxh3(u("Q", chain.interval) + value)
        chain.upto = following
        if is_vector_form(call):
            pairs = self.pairs(call, chain.facts)
            if pairs is None:
                chain.pairs_base, chain.pairs = following, 0
            else:
                chain.pairs = chain.pairs + pairs & MASK
        if following % CHECKPOINT_EVERY:
            return None
        entry = chain.entry(True)
        chain.interval, chain.interval_base = 0, following
        return entry

    def signature(self, call, facts):
        """The bytes of a call's signature; None if it proves nothing."""
        flags, op = call["flags"], call["op"]
        if flags & UNREADABLE:
            return None
        form = 0
        if facts.get("semantics", 0) & NONBLOCKING_DISTINCT:
            form = 3 if flags & PERSISTENT else 2 if flags & NONBLOCKING else 1
        parts = [u("HB", call["code"], form)]
        of_elements, of_reduction, of_root = PARTS[op]
        inter = facts.get("inter", False)
        if flags & BYSTANDER:
            parts += [NO_PART if part == NONE else TAG_LEFT_OUT for part in (of_elements, of_reduction, of_root)]
            return b"".join(parts)
        if of_elements == GIVEN and is_vector_form(call):
            of_elements = LEFT_OUT
        if of_elements == NONE:
            parts.append(NO_PART)
        elif of_elements == "w" or (inter and op != "all_reduce"):
            parts.append(TAG_LEFT_OUT)
        elif of_elements == LEFT_OUT:
            if not self.vector_type_is_known(call):
                return None
            parts.append(TAG_LEFT_OUT)
        else:
            known = None if call["count"] is None else elements(call["dtype"], call["count"], self.types)
            if known is None or not known[1]:
                return None
            parts.append(PRESENT + known[0])
        if of_reduction == NONE:
            parts.append(NO_PART)
        elif call["redop"] is None:
            return None
        else:
            kind, *value = call["redop"]
            code = {"predefined": b"\1", "dynamic": b"\2", "raw": b"\3"}[kind]
            parts.append(PRESENT + code + (u("B" if kind == "predefined" else "Q", *value) if value else b""))
        if of_root == NONE:
            parts.append(NO_PART)
        elif inter or flags & ROOT_IS_SELF:
            parts.append(TAG_LEFT_OUT)
        elif call["root"] is None:
            return None
        else:
            parts.append(PRESENT + u("I", call["root"]))
        return b"".join(parts)

    def vector_type_is_known(self, call):
        known = elements(call["dtype"], 1, self.types)
        if known is not None:
            return known[1]
        entries_ = call["sends"] + call["recvs"]
        if call["op"] == "reduce_scatter_v" and not entries_:
            return False
        if any(entries_):
            return False
        if entries_ and call["op"] in ("reduce_scatter_v", "all_to_all", "all_to_all_v"):
            return True
        if entries_ and call["count"] is None:
            return True
        return call["count"] == 0

    def pairs(self, call, facts):
        """What this member adds to the pair sum; None if that is not known."""
        me, size, op = facts.get("my_rank"), facts.get("size"), call["op"]
        if me is None or facts.get("inter") or call["flags"] & VECTORS_CUT:
            return None

        def whole(vector):
            return bool(vector) and (size is None or size == len(vector))

        in_place = call["flags"] & IN_PLACE
        sends, recvs, count, root = call["sends"], call["recvs"], call["count"], call["root"]
        sent, expected = [], []
        if op in ("all_to_all_v", "all_to_all"):
            own = recvs if in_place else sends
            if not whole(own) or not whole(recvs):
                return None
            sent, expected = list(enumerate(own)), list(enumerate(recvs))
        elif op == "all_gather_v":
            if not whole(recvs):
                return None
            own = recvs[me : me + 1] if count is None or in_place else [count]
            if not own:
                return None
            sent, expected = [(peer, own[0]) for peer in range(len(recvs))], list(enumerate(recvs))
        elif op == "reduce_scatter_v":
            vector = sends or recvs
            if not whole(vector) or me >= len(vector):
                return None
            sent, expected = list(enumerate(vector)), [(peer, vector[me]) for peer in range(len(vector))]
        elif op in ("gather_v", "scatter_v"):
            vector = recvs if op == "gather_v" else sends
            if root is None or (root == me and not whole(vector)):
                return None
            own = None if in_place else count
            if own is None and root == me and me < len(vector):
                own = vector[me]
            if own is None:
                return None
            rest = list(enumerate(vector)) if root == me else []
            sent, expected = ([(root, own)], rest) if op == "gather_v" else (rest, [(root, own)])
        else:
            return None
        total = 0
        for pairs, sign, sender in ((sent, 1, True), (expected, -1, False)):
            for peer, number in pairs:
                if number == 0:
                    continue
                known = elements(call["dtype"], number, self.types)
                if known is None or not known[1]:
                    return None
                ends = (me, peer) if sender else (peer, me)
                total += sign * xxh3(b"\1" + u("IIQ", *ends, call["seq"]) + known[0])
        return total & MASK

    def message(self, chain, call):
        facts = chain.facts
        me, peer, seq, count = facts.get("my_rank"), call["peer"], call["seq"], call["count"]
        known = None
        unknown = call["flags"] & (UNREADABLE | ANY_SOURCE | ANY_TAG) or facts.get("inter")
        if not unknown and None not in (me, peer, seq, count):
            known = elements(call["dtype"], count, self.types)
        if known is None or not known[1]:
            chain.unknown += 1
            return
        send = call["op"] == "send"
        ends = (me, peer) if send else (peer, me)
        tag = b"\0" + u("q", 0) if call["tag"] is None else b"\1" + u("q", call["tag"])
        value = xxh3(b"\2" + u("II", *ends) + tag + u("Q", seq) + known[0])
        chain.sends, chain.recvs = chain.sends + send, chain.recvs + (not send)
        chain.sum = chain.sum + (value if send else -value) & MASK


def entries(table):
    """The entries of a digest table that this reader knows."""
    from read_rdt import Bytes

    cursor, found = Bytes(table), []
    while cursor.left():
        kind = cursor.varint()
        body = Bytes(cursor.take(cursor.varint()))
        if kind in (1, 2):
            comm, flags, base, length = body.varint(), body.take(1)[0], body.varint(), body.varint()
            running = body.unpack("Q")[0]
            interval = body.unpack("Q")[0] if flags & 1 else None
            pairs_base, pairs = base, 0
            if flags & 2:
                pairs_base, pairs = base + body.varint() & MASK, body.unpack("Q")[0]
            name = "checkpoint" if kind == 1 else "end"
            mark, upto = flags >> 2 & 3, base + length & MASK
            found.append((name, comm, mark, base, upto, running, interval, pairs_base, pairs))
        elif kind == 3:
            found.append(("p2p", *(body.varint() for _ in range(4)), body.unpack("Q")[0]))
    return found
