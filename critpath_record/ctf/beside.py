"""What LTTng has no events for: labels of received messages, and when gates were closed."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from critpath_record.budget.gaps import LayerGap
from critpath_record.ctf.trace import CtfEventClass, TraceWriter, declare_fields, pack_text

LABEL: Final = "critpath_message_label"
_LABEL_FIELDS: Final = declare_fields(
    "x8 sk, u4 length, x8 trace_id_high, x8 trace_id_low, u4 stream, u4 flags, u4 size, u4 tid, "
    "text label"
)
_LABEL_FACTS: Final = struct.Struct("<QIQQIIII")
_GAP_FIELDS: Final = declare_fields("text layer, text why")
_AT_ONCE: Final = 4096  # events of a packet

# When, socket, thread, size, trace, stream with its frames' flags and size, label.
LabelRow = tuple[int, int, int, int, bytes, int, int, int, str]
Packets = Iterator[tuple[int, int, list[bytes]]]


def label_class(number: int) -> CtfEventClass:
    """Return the event class of messages' labels."""
    return CtfEventClass(LABEL, number, _LABEL_FIELDS)


def pack_labels(
    writer: TraceWriter, number: int, found: Iterable[LabelRow], span: tuple[int, int]
) -> Packets:
    """Yield packets of labels; what was received outside of the recording is left out."""
    rows = (r for r in found if span[0] <= r[0] <= span[1] and r[2] < 1 << 31)
    while some := list(islice(rows, _AT_ONCE)):
        events = [
            writer.pack_event(number, when, tid)
            + _LABEL_FACTS.pack(socket, size, *struct.unpack(">QQ", trace), *stream, tid)
            + pack_text(label)
            for when, socket, tid, size, trace, *stream, label in some
        ]
        yield some[0][0], some[-1][0], events


def gap_classes(first: int) -> tuple[CtfEventClass, ...]:
    """Return the event classes of a gap's begin and end, numbered from `first`."""
    names = ("critpath_gap_begin", "critpath_gap_end")
    return tuple(CtfEventClass(name, first + i, _GAP_FIELDS) for i, name in enumerate(names))


def pack_gaps(
    writer: TraceWriter, classes: Sequence[CtfEventClass], gaps: Sequence[LayerGap]
) -> Packets:
    """Yield packets that say when gates were closed."""
    begin, end = (one.id for one in classes)
    rows = [(gap.begin, begin, gap) for gap in gaps] + [(gap.end, end, gap) for gap in gaps]
    rows.sort(key=lambda row: row[:2])
    for at in range(0, len(rows), _AT_ONCE):
        some = rows[at : at + _AT_ONCE]
        events = [
            writer.pack_event(number, when) + pack_text(gap.layer) + pack_text(gap.why)
            for when, number, gap in some
        ]
        yield some[0][0], some[-1][0], events
