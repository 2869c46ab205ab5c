"""Hostile and invalid traces end in a clean error or in counted losses."""

from __future__ import annotations

import pytest

from critpath.errors import UnreadableError
from critpath.model import EventRequest, Kind
from critpath.read.event_names import KERNEL_EVENTS
from critpath.read.traces import read_events

EVERYTHING = (EventRequest(Kind.OTHER, ("*",), (("*",),)),)

# Events that are whole in the traces that babeltrace2's authors call valid.
VALID = {
    "stream/pass/2-packets": 2,
    "stream/pass/2-packets-no-packet-size": 2,
    "stream/pass/empty-struct": 1,
    "stream/pass/sequence-with-empty-struct": 1,
    "stream/pass/single-string-event-twice": 2,
    "stream/pass/variant-missing-fields": 1,
    "metadata/pass/string-literal-escape": 7809,
}


def outcome(directory, wanted):
    """'clean', or the events and losses read; anything else is a failure of the test."""
    error = None
    try:
        result = read_events(directory, wanted)
    except UnreadableError as refused:
        error, result = refused, "clean"
    if error is None:
        assert result.total > 0
    else:
        assert error.what
        assert "\n" not in error.what
        assert error.do
    return result


@pytest.mark.parametrize("wanted", [EVERYTHING, KERNEL_EVENTS], ids=["every field", "kernel"])
def test_every_malformed_trace(shared, wanted):
    root = shared("malformed")
    cases = [m.parent for m in sorted(root.rglob("metadata")) if m.is_file()]
    assert len(cases) >= 91
    for case in cases:
        name = str(case.relative_to(root))
        result = outcome(case, wanted)
        if name in VALID:
            assert result != "clean", name
            assert result.total == VALID[name]
            assert not result.losses
        elif name.startswith("stream/fail"):
            # What could be read before the damage is kept, and the damage is counted.
            assert result == "clean" or any(x.packets for x in result.losses), name
        elif name.startswith("metadata/"):
            assert result == "clean", name


def test_the_trace_that_stops_babeltrace2s_muxer(shared):
    result = outcome(shared("malformed") / "stream/pass/lttng-modules-trace", EVERYTHING)
    assert result.total == len(result) == 39_537
