"""Reads a trace with the classes that Perfetto publishes, and prints it as JSON.

Where TRACE_PROCESSOR names Perfetto's own program, that is asked as well.
"""
import json, os, sys
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

trace = Trace()
with open(sys.argv[1], "rb") as file:
    trace.ParseFromString(file.read())
found = {"tracks": {}, "counters": {}, "events": []}
for packet in trace.packet:
    if packet.HasField("track_descriptor"):
        track = packet.track_descriptor
        found["tracks"][track.uuid] = track.name
        if track.HasField("counter"):
            found["counters"][track.name] = track.counter.unit_name
    if packet.HasField("track_event"):
        event = packet.track_event
        found["events"].append(
            {
                "at": packet.timestamp,
                "track": found["tracks"][event.track_uuid],
                "row": event.track_uuid,
                "type": TrackEvent.Type.Name(event.type),
                "name": event.name,
                "value": event.double_counter_value,
                "flows": list(event.flow_ids),
                "notes": {note.name: note.string_value for note in event.debug_annotations},
            }
        )
if program := os.environ.get("TRACE_PROCESSOR"):
    from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

    with TraceProcessor(sys.argv[1], config=TraceProcessorConfig(bin_path=program)) as processor:
        count = lambda what: next(iter(processor.query(f"select count(*) as n from {what}"))).n
        found["processor"] = {"slices": count("slice"), "flows": count("flow"), "counters": count("counter")}
print(json.dumps(found))
