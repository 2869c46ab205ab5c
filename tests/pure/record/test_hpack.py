"""Which request a block of headers is: by examples of the standard, and what hostile bytes do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath_record.hpack import Headers, UnknownBlockError, decode_text

# RFC 7541, C.4: three requests over one connection, coded by Huffman.
REQUESTS = (
    "828684418cf1e3c2e5f23a6ba0ab90f4ff",
    "828684be5886a8eb10649cbf",
    "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
)
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def literal(name, value, *, keeps=True):
    """Return a header; a number is a name of the static table."""
    first = 0x40 if keeps else 0
    head = bytes([first | name]) if isinstance(name, int) else bytes([first, len(name)]) + name
    return head + bytes([len(value)]) + value


def test_texts_of_the_standard():
    assert decode_text(bytes.fromhex("f1e3c2e5f23a6ba0ab90f4ff")) == b"www.example.com"
    assert decode_text(bytes.fromhex("25a849e95ba97d7f")) == b"custom-key"
    with pytest.raises(UnknownBlockError):
        decode_text(b"\xff\xff\xff\xff")


def test_requests_of_the_standard():
    headers = Headers()
    found = [headers.label(bytes.fromhex(one), whole=True)[0] for one in REQUESTS]
    assert found == ["GET /", "GET /", "GET /index.html"]


def test_a_path_that_was_sent_before_is_known_by_its_place():
    headers = Headers()
    path = literal(4, b"/users/17?token=hunter2")
    assert headers.label(b"\x83\x86" + path, whole=True)[0] == "POST /users/:id"
    other = literal(1, b"localhost")
    assert headers.label(b"\x83\xbe" + other, whole=True)[0] == "POST /users/:id"
    assert headers.label(b"\x83\xbf", whole=True)[0] == "POST /users/:id"


def test_names_of_grpc_stay_and_values_do_not():
    headers = Headers()
    path = literal(4, b"/grpc.health.v1.Health2/Check")
    assert headers.label(b"\x83" + path, whole=True)[0] == "POST /:id/Check"
    kind = literal(31, b"application/grpc+proto")
    assert headers.label(b"\x83\xbe" + kind, whole=True)[0] == "POST /grpc.health.v1.Health2/Check"


def test_answers_have_no_label_and_neither_has_what_follows_on_them():
    headers = Headers()
    assert headers.label(b"\x88", whole=True)[0] == ""
    assert headers.label(b"\x83" + literal(4, b"/a"), whole=True)[0] == ""


def test_what_a_cut_block_may_have_added_is_not_guessed():
    headers = Headers()
    headers.label(b"\x82" + literal(4, b"/first"), whole=True)
    cut = b"\x82" + literal(4, b"/second")
    assert headers.label(cut, whole=False)[0] == "GET /second"
    assert headers.label(b"\x82\xbe", whole=True)[0] == "GET …"
    headers.label(b"\x82" + literal(4, b"/third"), whole=True)
    assert headers.label(b"\x82\xbe", whole=True)[0] == "GET /third"


def test_a_trace_id_is_taken_and_kept_in_no_table():
    headers = Headers()
    value = f"00-{TRACE}-00f067aa0ba902b7-01".encode()
    block = b"\x82\x84" + literal(b"traceparent", value)
    assert headers.label(block, whole=True) == ("GET /", bytes.fromhex(TRACE))
    assert all(TRACE.encode() not in text for _, text, _ in headers._table)


def test_old_entries_make_room():
    headers = Headers()
    headers.label(b"\x82" + literal(4, b"/old"), whole=True)
    for _ in range(40):
        headers.label(literal(b"x", b"y" * 100), whole=True)
    assert len(headers._table) < 35
    headers.label(b"\x20", whole=True)  # a table of nothing
    assert not headers._table


@given(st.lists(st.tuples(st.binary(max_size=80), st.booleans()), max_size=8))
def test_any_bytes_have_a_label_or_none(blocks):
    headers = Headers()
    for block, whole in blocks:
        label, trace = headers.label(block, whole=whole)
        assert len(label.encode()) <= 64
        assert len(trace) == 16
    assert headers._size <= 1 << 16
