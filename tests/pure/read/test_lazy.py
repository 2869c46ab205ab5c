"""Event classes parsed when they are needed, and packets larger than the decoder's window."""

from __future__ import annotations

import struct

import pytest

from critpath.errors import MetadataError
from critpath.model import EventRequest, Kind
from critpath.read.metadata import tsdl
from critpath.read.metadata.load import read_metadata_bytes
from critpath.read.traces import describe, find_traces, read_events

HEAD = """/* CTF 1.8 */
typealias integer { size = 8; align = 8; signed = false; } := uint8_t;
typealias integer { size = 16; align = 8; signed = false; } := uint16_t;
trace { major = 1; minor = 8; byte_order = le; };
clock { name = mono; freq = 1000000000; };
typealias integer { size = 64; align = 8; map = clock.mono.value; } := time_t;
stream {
    id = 0;
    packet.context := struct { uint8_t cpu_id; };
    event.header := struct { uint16_t id; time_t timestamp; };
};
"""
EVENT = """event {{
    name = "event_{0}";
    id = {0};
    stream_id = 0;
    fields := struct {{ {1} }};
}};
"""
SIMPLE = "uint8_t _a; integer { size = 32; align = 8; signed = 1; } _b[3]; string _text;"
EVERYTHING = (EventRequest(Kind.OTHER, ("*",), (("*",),)),)


def metadata(fields=None, count=400):
    fields = fields or {}
    return HEAD + "".join(EVENT.format(n, fields.get(n, SIMPLE)) for n in range(count))


def write(directory, text, *events):
    directory.mkdir(exist_ok=True)
    (directory / "metadata").write_text(text)
    data = b"".join(struct.pack("<HQ", number, time) + rest for number, time, rest in events)
    (directory / "c_0").write_bytes(b"\0" + data)
    return directory


def test_events_parsed_later_are_those_parsed_at_once(monkeypatch):
    forms = {
        1: "uint8_t n; uint8_t data[n]; string s[2];",
        2: "uint8_t data[id]; uint8_t after;",  # as long as the header's id
        3: "enum : uint8_t { a, b = 7 } tag; variant <tag> { uint8_t a; string b; } v;",
        4: "struct { uint8_t a, b; } inner; uint8_t c; string d;",
        5: "time_t when; integer { size = 8; map = clock.other.value; } then;",
        6: "",
        7: "typealias uint8_t := byte; byte x;",
        8: "/* a comment */ uint8_t x; // and } another {\n",
        9: "uint8_t x;\n}; context := struct { uint8_t y;",
    }
    text = metadata(forms).encode()
    assert len(text) > 32768
    later = read_metadata_bytes(text, "metadata")
    monkeypatch.setattr(tsdl, "_WHOLE", 1 << 40)
    whole = read_metadata_bytes(text, "metadata")
    assert dict(later.streams[0].events.items()) == whole.streams[0].events
    assert later.clocks == whole.clocks
    assert later.warnings == whole.warnings
    assert 9 in later.streams[0].events
    assert 400 not in later.streams[0].events


def test_a_length_in_the_events_header(tmp_path):
    text = metadata({2: "uint8_t data[id]; uint8_t after;"})
    path = write(tmp_path / "t", text, (2, 5, b"ab\x07"), (2, 6, b"ab\x08"))
    events = read_events(path, (EventRequest(Kind.OTHER, ("event_2",), (("after",),)),))
    assert events.values.tolist() == [7, 8]


def test_an_event_that_never_occurs_may_be_malformed(tmp_path):
    text = metadata({7: "nothing_t x;"})
    events = read_events(write(tmp_path / "t", text, (8, 5, bytes(13) + b"x\0")), EVERYTHING)
    assert events.total == 1
    assert "event_7" in describe(tmp_path / "t")[0].events


def test_a_malformed_event_that_occurs_is_refused_with_its_line(tmp_path):
    text = metadata({7: "uint8_t a;\n nothing_t x;"})
    path = write(tmp_path / "t", text, (7, 5, b"\0\0"))
    line = 1 + text[: text.index("nothing_t")].count("\n")
    with pytest.raises(MetadataError, match=f"metadata:{line}: .*nothing_t"):
        read_events(path, EVERYTHING)
    with pytest.raises(MetadataError, match=f"metadata:{line}: .*nothing_t"):
        describe(path)[0].events["event_7"]


def test_events_that_come_twice_or_of_no_stream_are_refused_at_once():
    twice = metadata() + EVENT.format(3, SIMPLE)
    with pytest.raises(MetadataError, match=f"metadata:{metadata().count(chr(10)) + 1}: .*twice"):
        read_metadata_bytes(twice.encode(), "metadata")
    astray = metadata() + EVENT.format(1000, SIMPLE).replace("stream_id = 0", "stream_id = 1")
    with pytest.raises(MetadataError, match="of stream 1, which is missing"):
        read_metadata_bytes(astray.encode(), "metadata")


def test_lines_of_faults_behind_events_that_were_left_out():
    text = metadata() + "stream { id = 0; unknown_t x; };"
    with pytest.raises(MetadataError, match=f"metadata:{text.count(chr(10)) + 1}: "):
        read_metadata_bytes(text.encode(), "metadata")


def test_metadata_is_parsed_once_until_it_changes(tmp_path):
    path = write(tmp_path / "t", metadata(), (8, 5, bytes(13) + b"x\0"))
    first = find_traces(path)[0].schema
    assert find_traces(path)[0].schema is first
    (path / "metadata").write_text(metadata().replace("event_8", "other_8"))
    assert find_traces(path)[0].schema.streams[0].events[8].name == "other_8"


def test_an_unknown_attribute_of_an_event_that_occurs_is_said(tmp_path):
    odd = "integer { size = 8; odd = 1; } x;"
    path = write(tmp_path / "t", metadata({8: odd, 9: odd.replace("odd", "odder")}), (8, 5, b"\1"))
    warnings = read_events(path, EVERYTHING).warnings
    assert [w for w in warnings if "odd" in w] == ["unknown attribute 'odd' of 'integer' ignored"]


def test_a_packet_larger_than_the_window(tmp_path):
    # Texts of all lengths, so that fields of every kind lie across the window's ends, and
    # some that are longer than it.
    lengths = [*range(0, 3000, 7), 262_143, 262_144, 700_000, *range(2000)]
    rest = struct.Struct("<Biii")
    path = write(
        tmp_path / "t",
        metadata(),
        *(
            (n % 300, n, rest.pack(n % 251, n, -n, 1) + b"x" * length + b"\0")
            for n, length in enumerate(lengths)
        ),
    )
    events = read_events(path, EVERYTHING)
    assert not events.losses
    assert events.timestamp.tolist() == list(range(len(lengths)))
    rows = range(len(lengths))
    texts = [events.strings[events.values[o + 1]] for o in events.offset.tolist()]
    assert [len(t) for t in texts] == lengths
    assert [events.values[events.offset[r]] for r in rows] == [r % 251 for r in rows]


def test_the_place_of_damage_far_into_a_packet(tmp_path):
    good = [(8, n, bytes(13) + b"x" * 400 + b"\0") for n in range(2000)]
    path = write(tmp_path / "t", metadata(), *good, (8, 9999, bytes(13) + b"without an end"))
    events = read_events(path, EVERYTHING)
    assert len(events) == 2000
    (loss,) = events.losses
    assert f"at byte {1 + 2000 * (10 + 13 + 401)}:" in loss.reason


def test_fields_that_no_event_has_are_0(tmp_path):
    path = write(tmp_path / "t", metadata({8: "uint8_t a;"}), *((8, n, b"\7") for n in range(99)))
    wanted = (EventRequest(Kind.OTHER, ("event_8",), (("nowhere",), ("nor here",))),)
    for _ in range(2):  # the second time in memory that was used before
        values = read_events(path, wanted).values
        assert values.tolist() == [0] * 198
        read_events(path, EVERYTHING)
