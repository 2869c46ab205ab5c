"""The schemas of real traces, compared with babeltrace2's own reading of their metadata."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path

import pytest

from critpath.read.metadata.load import read_metadata
from critpath.read.metadata.schema import (
    ArrayClass,
    FloatClass,
    IntegerClass,
    StringClass,
    StructureClass,
    VariantClass,
)
from critpath.read.program import is_text

SYSTEM_PYTHON = "/usr/bin/python3"  # the one that Debian's python3-bt2 serves

ORACLE = """
import json, sys
import bt2

SCOPES = {v: k for k, v in vars(bt2.FieldPathScope).items() if isinstance(v, int)}

def names(of):
    return {c.__name__.strip("_").removesuffix("Const") for c in type(of).__mro__}

def show(of):
    if of is None:
        return None
    kinds = names(of)
    if "StructureFieldClass" in kinds:
        return ["structure", [[n, show(m.field_class)] for n, m in of.items()]]
    if "VariantFieldClass" in kinds:
        options = [[n, show(o.field_class), ranges(o)] for n, o in of.items()]
        path = of.selector_field_path
        return ["variant", options, SCOPES[path.root_scope], len(path)]
    if "StaticArrayFieldClass" in kinds:
        return ["array", show(of.element_field_class), of.length]
    if "DynamicArrayFieldClass" in kinds:
        return ["array", show(of.element_field_class), "dynamic"]
    if "EnumerationFieldClass" in kinds:
        signed = "SignedIntegerFieldClass" in kinds
        labels = [[l, sorted([r.lower, r.upper] for r in m.ranges)] for l, m in of.items()]
        base = int(of.preferred_display_base)
        return ["integer", of.field_value_range, signed, base, sorted(labels)]
    if "IntegerFieldClass" in kinds:
        signed = "SignedIntegerFieldClass" in kinds
        return ["integer", of.field_value_range, signed, int(of.preferred_display_base), []]
    if "RealFieldClass" in kinds:
        return ["real"]
    if "StringFieldClass" in kinds:
        return ["string"]
    raise TypeError(kinds)

def ranges(option):
    return sorted([r.lower, r.upper] for r in option.ranges)

make = bt2.ComponentSpec.from_named_plugin_and_component_class
for message in bt2.TraceCollectionMessageIterator(make("ctf", "fs", {"inputs": [sys.argv[1]]})):
    if "StreamBeginningMessage" in names(message):
        break
trace = message.stream.trace
streams = {}
for number in trace.cls:
    stream = trace.cls[number]
    clock = stream.default_clock_class
    events = {}
    for event in stream.values():
        events[event.id] = [event.name, show(event.specific_context_field_class),
                            show(event.payload_field_class)]
    streams[number] = {
        "packet": show(stream.packet_context_field_class) if stream.supports_packets else None,
        "context": show(stream.event_common_context_field_class),
        "events": events,
        "clock": clock and [clock.name, clock.frequency, clock.offset.seconds, clock.offset.cycles,
                            str(clock.uuid or "")],
    }
environment = {k: int(v) if "IntegerValue" in names(v) else str(v)
               for k, v in trace.environment.items()}
print(json.dumps({"streams": streams, "uuid": str(trace.uuid or ""), "environment": environment}))
"""

TRACES = [
    "guest full/trace/kernel",
    "guest full/trace/ust/uid/0/64-bit",
    "guest normal/trace/kernel",
    "guest python/trace/ust/uid/0/64-bit",
    "shared public/bt-multi-domains/kernel",
    "shared public/bt-multi-domains/ust",
    "shared public/cb-nodes-pipeline/kernel",
    "shared public/cb-nodes-pipeline/ust/uid/1000/64-bit",
    "shared public/selora-namespace_live/namespace_live/kernel",
    "shared public/selora-old_trace/old_trace/kernel",
    "shared public/tc-bug446190",
    "shared public/tc-many-threads",
    "shared public/tc-scp_dest",
]
# Much as another, or of a trace that takes long to unpack.
LASTING = {
    "guest normal/trace/kernel",
    "shared public/selora-namespace_live/namespace_live/kernel",
    "shared public/selora-old_trace/old_trace/kernel",
    "shared public/tc-many-threads",
}


@cache
def has_bt2():
    if not Path(SYSTEM_PYTHON).exists():
        return False
    done = subprocess.run([SYSTEM_PYTHON, "-c", "import bt2"], capture_output=True, check=False)
    return done.returncode == 0


@pytest.fixture(
    params=[pytest.param(t, marks=pytest.mark.deep if t in LASTING else ()) for t in TRACES]
)
def trace(request, guest, shared):
    if not has_bt2():
        pytest.skip("python3-bt2 is not installed")
    kind, _, path = request.param.partition(" ")
    parts = path.split("/")
    if kind == "guest":
        return guest(parts[0]).joinpath(*parts[1:])
    return shared("/".join(parts[:2])).joinpath(*parts[2:])


def bare(name):
    return name.removeprefix("_")


def show(of):
    """Describe a field class as the oracle does."""
    match of:
        case None:
            shown = None
        case StructureClass():
            shown = ["structure", [[bare(m.name), show(m.field)] for m in of.members]]
        case VariantClass():
            options = [
                [bare(o.name), show(o.field), sorted([low, high] for low, high in o.ranges)]
                for o in of.options
            ]
            shown = ["variant", options, SCOPES[of.selector[0]], len(of.selector) - 1]
        case ArrayClass() if is_text(of):
            shown = ["string"]
        case ArrayClass():
            length = of.length if isinstance(of.length, int) else "dynamic"
            shown = ["array", show(of.element), length]
        case IntegerClass():
            labels = [[label, sorted(map(list, spans))] for label, spans in of.mappings]
            shown = ["integer", of.bits, of.signed, of.base, sorted(labels)]
        case FloatClass():
            shown = ["real"]
        case StringClass():
            shown = ["string"]
        case _:
            raise TypeError(of)
    return shown


SCOPES = {
    "packet-context": "PACKET_CONTEXT",
    "event-common-context": "EVENT_COMMON_CONTEXT",
    "event-specific-context": "EVENT_SPECIFIC_CONTEXT",
    "event-payload": "EVENT_PAYLOAD",
}


def without_roles(structure):
    """What babeltrace2 keeps of a packet context: the members that it does not use itself."""
    if structure is None:
        return None
    kept = [m for m in structure.members if not getattr(m.field, "roles", None)]
    return ["structure", [[bare(m.name), show(m.field)] for m in kept]]


def test_every_class_is_as_babeltrace2_reads_it(trace):
    command = [SYSTEM_PYTHON, "-c", ORACLE, str(trace)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    expected = json.loads(done.stdout)
    found = read_metadata(trace)
    assert found.uuid == expected["uuid"]
    assert found.environment.saved() == expected["environment"]
    assert {str(number) for number in found.streams} >= expected["streams"].keys()
    for number, theirs in expected["streams"].items():
        ours = found.streams[int(number)]
        assert without_roles(ours.packet_context) == theirs["packet"]
        assert show(ours.event_context) == theirs["context"]
        clock = found.clocks[ours.clock]
        seconds, cycles = divmod(clock.offset, clock.frequency)
        assert theirs["clock"] == [
            *(clock.name, clock.frequency),
            *(clock.offset_seconds + seconds, cycles, clock.uuid),
        ]
        assert ours.events.keys() == {int(n) for n in theirs["events"]}
        for event, (name, context, payload) in theirs["events"].items():
            mine = ours.events[int(event)]
            assert [mine.name, show(mine.context)] == [name, context]
            assert show(mine.payload) == payload, name
