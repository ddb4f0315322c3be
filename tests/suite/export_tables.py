"""What an export holds, read by other tools' own libraries; printed as JSON.

    export_tables.py parquet DIR [SQL...]   counts and sums of the tables (DuckDB), and that each query runs
    export_tables.py perfetto FILE          tracks, slices and flows, decoded with Perfetto's published schema
"""

import json
import os
import sys


def parquet(folder, queries):
    import duckdb

    os.chdir(folder)
    connection = duckdb.connect()
    one = lambda text: connection.execute(text).fetchall()
    tables = ["calls", "communicators", "ranks", "gaps", "events"]
    return {
        "rows": {name: one(f"SELECT count(*) FROM '{name}.parquet'")[0][0] for name in tables},
        "types": {row[0]: str(row[1]) for row in one("DESCRIBE SELECT * FROM 'calls.parquet'")},
        "by_op": one("SELECT op, count(*), CAST(sum(count) AS UBIGINT) FROM 'calls.parquet' GROUP BY op ORDER BY op"),
        "returned": one("SELECT count(exit), CAST(sum(duration_ns) AS UBIGINT) FROM 'calls.parquet'")[0],
        "order": one(
            "SELECT count(*) FROM (SELECT epoch_ns(enter) - lag(epoch_ns(enter)) OVER "
            "(PARTITION BY process ORDER BY file_row_number) AS step FROM "
            "read_parquet('calls.parquet', file_row_number = true)) WHERE step < 0"
        )[0][0],
        "elapsed": one("SELECT epoch_ns(max(enter)) - epoch_ns(min(enter)) FROM 'calls.parquet'")[0][0],
        "sites": one("SELECT DISTINCT site, site_function, site_file, site_line FROM 'calls.parquet' ORDER BY ALL"),
        "gaps": one("SELECT rank, cause, CAST(events AS UBIGINT) FROM 'gaps.parquet' ORDER BY ALL"),
        "events": one("SELECT kind, count(*) FROM 'events.parquet' GROUP BY kind ORDER BY kind"),
        "ranks": one("SELECT rank, CAST(calls AS UBIGINT), closed, state FROM 'ranks.parquet' ORDER BY rank"),
        "orphans": one("SELECT count(*) FROM 'calls.parquet' ANTI JOIN 'communicators.parquet' USING (comm_id)")[0][0],
        "queries": [len(one(query)) for query in queries],
    }


def perfetto(path):
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

    trace = schema.Trace()
    with open(path, "rb") as file:
        trace.ParseFromString(file.read())
    event = schema.TrackEvent
    processes, tracks, names, texts, depth = {}, {}, {}, {}, {}
    slices, instants, flows, wrong, last = [], [], {}, [], {}
    for packet in trace.packet:
        # What the schema does not know would be kept here.
        if len(packet.SerializeToString()) != packet.ByteSize():
            wrong.append("size")
        sequence = packet.trusted_packet_sequence_id
        if packet.sequence_flags & 1:
            names, texts = {}, {}
        data = packet.interned_data
        for known, table in ((data.event_names, names), (data.debug_annotation_names, names)):
            for entry in known:
                table[(known is data.event_names, sequence, entry.iid)] = entry.name
        for entry in data.debug_annotation_string_values:
            texts[(sequence, entry.iid)] = entry.str.decode()
        descriptor = packet.track_descriptor
        if descriptor.HasField("process"):
            processes[descriptor.uuid] = (descriptor.process.process_name, descriptor.process.pid)
        elif descriptor.uuid:
            tracks[descriptor.uuid] = (descriptor.name, descriptor.parent_uuid)
        if not packet.HasField("track_event"):
            continue
        body = packet.track_event
        track = body.track_uuid
        if track not in tracks or tracks[track][1] not in processes:
            wrong.append("track")
            continue
        name = body.name or names.get((True, sequence, body.name_iid), "")
        notes = {}
        for note in body.debug_annotations:
            key = names.get((False, sequence, note.name_iid), "?")
            kind = note.WhichOneof("value")
            value = getattr(note, kind)
            notes[key] = texts.get((sequence, value), "?") if kind == "string_value_iid" else value
        if "?" in notes or "?" in notes.values():
            wrong.append("string")
        where = (processes[tracks[track][1]][0], tracks[track][0])
        if body.type in (event.TYPE_SLICE_BEGIN, event.TYPE_SLICE_END) and packet.timestamp < last.get(track, 0):
            wrong.append("order")
        if body.type == event.TYPE_SLICE_BEGIN:
            last[track] = packet.timestamp
            depth[track] = depth.get(track, 0) + 1
            if depth[track] > 1:
                wrong.append("overlap")
            slices.append([*where, name, notes])
            for flow in body.flow_ids:
                flows.setdefault(flow, []).append(where[0])
        elif body.type == event.TYPE_SLICE_END:
            last[track] = packet.timestamp
            depth[track] -= 1
        else:
            instants.append([*where, name])
    return {
        "processes": sorted(processes.values()),
        "slices": slices,
        "open": sum(depth.values()),
        "instants": instants,
        "flows": sorted(sorted(members) for members in flows.values()),
        "wrong": wrong,
        "clocks": [[clock.clock_id, clock.timestamp] for p in trace.packet for clock in p.clock_snapshot.clocks],
    }


if __name__ == "__main__":
    kind, path, *rest = sys.argv[1:]
    print(json.dumps(parquet(path, rest) if kind == "parquet" else perfetto(path)))
