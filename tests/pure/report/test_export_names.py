"""Whatever a traced program calls itself, viewers of other makers only show it."""

from __future__ import annotations

import json
import unicodedata
from functools import cache

from hypothesis import example, given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace import perfetto_trace_pb2

from critpath.report.document.as_json import load_document, to_json
from critpath.report.document.comparison import comparison_document
from critpath.report.exports.as_perfetto import perfetto_trace
from critpath.report.exports.as_speedscope import speedscope_profiles
from critpath.report.exports.exported import Exported, read_aligned_executions

HOSTILE = (
    "</ScRiPt><img src=x onerror=alert(1)>",
    "\x1b[2J\x1b]0;owned\x07",
    "\x9b31m",
    "abc\u202egnp.exe",
    "a\u2028b\u2029c",
    "two\nlines\rhere",
    "%0A::error::x",
    "\ud800lone",
    "\x7f\x00",
    "\u200b\ufeff",
    "{}%s${x}",
    '"}],"profiles":[]',
)
UNSAFE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
anything = st.text(min_size=1, max_size=24) | st.sampled_from(HOSTILE)


def hostile(test):
    for name in HOSTILE:
        test = example(name=name)(test)
    return given(name=anything)(test)


def sets_with(factory, name):
    names = factory.Names.all(name)
    comparison = factory.comparison(names=names, normals=3, samples=2, anomalous=1, columns=7)
    document = load_document(to_json(comparison_document(comparison)))
    explained = read_aligned_executions(document, name, ())
    return [Exported(name, comparison.normal), explained]


def texts(message):
    for descriptor, values in message.ListFields():
        several = values if hasattr(values, "append") else [values]
        for value in several:
            if descriptor.message_type:
                yield from texts(value)
            elif isinstance(value, str):
                yield value
            elif isinstance(value, bytes):
                yield value.decode("utf-8")


def check_texts(found):
    assert found
    assert not {c for text in found for c in text if unicodedata.category(c) in UNSAFE}


@cache
def usual_trace(factory):
    trace = perfetto_trace_pb2.Trace()
    trace.ParseFromString(b"".join(perfetto_trace(sets_with(factory, "w"))))
    return trace


@hostile
def test_perfetto(factory, name):
    trace = perfetto_trace_pb2.Trace()
    trace.ParseFromString(b"".join(perfetto_trace(sets_with(factory, name))))
    usual = usual_trace(factory)
    check_texts(list(texts(trace)))
    events = [p.track_event for p in trace.packet if p.HasField("track_event")]
    assert [(e.type, e.track_uuid) for e in events] == [
        (p.track_event.type, p.track_event.track_uuid)
        for p in usual.packet
        if p.HasField("track_event")
    ]


@hostile
def test_speedscope(factory, name):
    text = b"".join(speedscope_profiles(sets_with(factory, name)))
    assert text.isascii()
    assert b"\x7f" not in text
    assert b"\n" not in text[:-1]
    found = json.loads(text)
    check_texts([frame["name"] for frame in found["shared"]["frames"]])
    check_texts([profile["name"] for profile in found["profiles"]] + [found["name"]])
    assert len(found["profiles"]) == 4
