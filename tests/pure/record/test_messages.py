"""What messages are called: nothing that varies, nothing that somebody wrote as a value."""

from __future__ import annotations

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from critpath_record.messages import (
    HEADERS,
    LABEL,
    WINDOW,
    MessageLabels,
    find_trace_id,
    label_message,
)

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def postgres(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack(">I", len(body) + 4) + body


def query(text: str) -> bytes:
    return postgres(b"Q", text.encode() + b"\0")


def mysql(text: str) -> bytes:
    return len(text).to_bytes(3, "little") + b"\0\3" + text.encode()


@pytest.mark.parametrize(
    ("message", "label"),
    [
        (b"GET / HTTP/1.1\r\n", "GET /"),
        (b"GET /users/123/orders?token=hunter2 HTTP/1.1\r\nHost: x\r\n", "GET /users/:id/orders"),
        (b"POST /a/9b2e4f00-1111-2222-3333-444455556666 HTTP/1.0\r\n", "POST /a/:id"),
        (b"PUT /api/v2/me;session=hunter2 HTTP/1.1", "PUT /api/v2/me"),
        (b"DELETE /k/deadbeef00/x#hunter2 HTTP/1.1", "DELETE /k/:id/x"),
        (b"GET http://anna:hunter2@host/inner HTTP/1.1", "GET /inner"),
        (b"GET /reset/aGVsbG8gd29ybGQgaHVudGVyMg== HTTP/1.1", "GET /reset/:id"),
        (b"GET /u/anna@example.org HTTP/1.1", "GET /u/:id"),
        (b"GET /static/app.3f2a9c.js HTTP/1.1", "GET /static/:id.js"),
        (b"GET /index.html HTTP/1.1", "GET /index.html"),
        (b"GET /a//b/ HTTP/1.1", "GET /a//b/"),
        (b"OPTIONS /x HT", "OPTIONS /x"),
        (b"GET /users/" + b"a" * 60, "GET /users/…"),
        (b"GET /x\x1b[31m<script> HTTP/1.1\r\n", "GET /:id"),
        (b"GET something else\r\n", ""),
        (b"GET /x is no request", ""),
        (b"HTTP/1.1 200 OK\r\n\r\nhunter2", ""),
        (b"*3\r\n$3\r\nSET\r\n$7\r\nhunter2\r\n", "SET"),
        (b"*2\r\n$4\r\nhget\r\n$1\r\nx\r\n", "HGET"),
        (b"*4\r\n$13\r\nZRANGEBYSCORE\r\n$1", "ZRANGEBYSCORE"),
        (b"*2\r\n$8\r\nJSON.GET\r\n$1\r\nx", "JSON.GET"),
        (b"*2\r\n$7\r\nhunter2\r\n$1\r\nx\r\n", ""),  # an answer has the same form
        (b"\1\0\1\0\0\0\x0d\0\x3c\0\x28\0\0\0\7hunter2\0\xce", "basic.publish"),
        (b"\1\0\1\0\0\0\x23\0\x3c\0\x3c\5ctag1", "basic.deliver"),
        (b"\1\0\1\0\0\0\x0d\0\x3c\0\x50\0\0\0\0\0\0\0\1\0\xce", ""),
        (b"PUB hunter2 11\r\nhello world\r\n", "PUB"),
        (b"MSG hunter2 1 11\r\nhello world\r\n", "MSG"),
        (b"PUBLIC hunter2", ""),
        (b"*2\r\n$5\r\nguess\r\n$1\r\nx\r\n", ""),
        (query("BEGIN"), "BEGIN"),
        (
            query("SELECT a FROM t WHERE id = 17 AND b > -2.5e3"),
            "SELECT a FROM t WHERE id = ? AND b > ?",
        ),
        (query("select x\n  from t1\twhere id in (1, 2,3)"), "select x from t1 where id in (?)"),
        (query("SELECT 1 FROM u WHERE p = 'hunter2'"), "SELECT ? FROM u WHERE p =?"),
        (query("INSERT INTO u VALUES ($$hunter2$$)"), "INSERT INTO u VALUES (?"),
        (query("/* hunter2 */ -- hunter2\nDELETE FROM x"), "DELETE FROM x"),
        (query("DELETE FROM x -- hunter2"), "DELETE FROM x"),
        (query('SELECT "u"."id" FROM "u"'), 'SELECT "u"."id" FROM "u"'),
        (query("/* never ends hunter2"), ""),
        (query("hunter2"), ""),
        (mysql('SELECT * FROM u WHERE p = "hunter2"'), "SELECT * FROM u WHERE p =?"),
        (mysql("SELECT a FROM t # hunter2"), "SELECT a FROM t"),
        (b"\x09\0\0\0\3\0\1COMMIT", "COMMIT"),
        (b"", ""),
        (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", ""),
    ],
)
def test_what_a_message_is_called(message, label):
    assert label_message(message[:WINDOW]) == label
    assert MessageLabels().label(1, message[:WINDOW]) == label


def test_a_statement_that_was_prepared_is_known_by_its_name_on_its_connection():
    labels = MessageLabels()
    parse = postgres(b"P", b"s1\0SELECT a FROM t WHERE id = $1\0\0\0")
    bind = postgres(b"B", b"\0s1\0\0\1\0\0\0\1\0\0\0\7hunter2")
    assert labels.label(1, bind) == ""
    assert labels.label(1, parse) == labels.label(1, bind) == "SELECT a FROM t WHERE id = ?"
    assert labels.label(2, bind) == ""


def test_a_statement_is_called_the_same_whatever_number_its_name_ends_with():
    labels, text = MessageLabels(), b"SELECT id, name, price FROM items WHERE owner = $1 AND b = 3"
    names = (b"__stmt_9__", b"__stmt_a1__", b"__stmt_fff__")
    said = {labels.label(1, postgres(b"P", n + b"\0" + text + b"\0\0\0")[:WINDOW]) for n in names}
    assert len(said) == 1
    assert said.pop().endswith(" …")


def test_a_trace_id_is_found_in_a_comment_of_a_statement():
    comment = f"/*app='shop',traceparent='00-{TRACE}-00f067aa0ba902b7-01'*/"
    assert find_trace_id(query(f"SELECT 1 {comment}")).hex() == TRACE
    assert find_trace_id(postgres(b"P", f"s\0{comment} SELECT 1\0".encode())).hex() == TRACE
    assert find_trace_id(mysql(f"SELECT 1 {comment}")).hex() == TRACE
    assert find_trace_id(query(f"SELECT 1 {comment[2:]}")) == bytes(16)  # no comment
    assert find_trace_id(query(f"SELECT 1 {comment[:60]}")) == bytes(16)
    assert find_trace_id(f"GET / HTTP/1.1\r\nx: {comment}\r\n\r\n".encode()) == bytes(16)


def test_what_was_prepared_is_forgotten_when_a_connection_begins():
    labels = MessageLabels()
    bind = postgres(b"B", b"\0s1\0\0\1\0\0\0\1\0\0\0\7hunter2")
    for socket in (1, 2):
        labels.label(socket, postgres(b"P", b"s1\0SELECT a FROM t\0\0\0"))
    assert labels.label(1, b"\0\0\0\x29\0\3\0\0user\0hunter2\0\0") == ""
    assert (labels.label(1, bind), labels.label(2, bind)) == ("", "SELECT a FROM t")


def test_long_statements_are_called_alike_whatever_their_name_is():
    labels = MessageLabels()
    text = b"SELECT abalance, filler, bid FROM pgbench_accounts WHERE aid = $1"
    found = {
        labels.label(1, postgres(b"P", name + b"\0" + text + b"\0\0\0")[:WINDOW])
        for name in (b"", b"s", b"_pg3_12")
    }
    assert found == {"SELECT abalance, filler, bid FROM …"}


@pytest.mark.parametrize("name", ["traceparent", "Traceparent", "TRACEPARENT"])
def test_the_trace_that_a_request_belongs_to(name):
    head = "GET / HTTP/1.1\r\nHost: x\r\n"
    value = f"00-{TRACE}-00f067aa0ba902b7-01"
    assert find_trace_id(f"{head}{name}: {value}\r\n\r\n".encode()).hex() == TRACE
    assert find_trace_id(f"{head}\r\n{name}: {value}\r\n".encode()) == bytes(16)  # the body
    assert find_trace_id(f"{head}x-{name}: {value}\r\n".encode()) == bytes(16)
    assert find_trace_id(f"{head}{name}: {value[:30]}".encode()) == bytes(16)
    assert find_trace_id(f"{head}{name}: ff{value[2:]}\r\n".encode()) == bytes(16)


starts = st.sampled_from(
    (b"GET /", b"POST /", b"*2\r\n$", b"Q\0\0\0\x20SELECT ", b"P\0\0\0\x20", b"")
)


@given(starts, st.binary(max_size=HEADERS))
@example(b"Q\0\0\0\x20", b"SELECT \xff\xfe\x1b]0;x\x07 FROM \xe2\x80\xae")
def test_whatever_bytes_come_labels_are_short_and_plain(start, rest):
    message = (start + rest)[:WINDOW]
    label = MessageLabels().label(1, message)
    assert len(label.encode()) <= LABEL
    assert label.isprintable()
    assert len(find_trace_id(start + rest)) == 16


values = st.text("abcdefghijklmnop0123456789", min_size=8, max_size=20).map("zq7".__add__)


@given(values)
def test_no_value_gets_into_a_label(value):
    for message in (
        f"GET /find?q={value} HTTP/1.1\r\nCookie: {value}\r\n".encode(),
        f"GET /users/{value} HTTP/1.1\r\n".encode(),
        f"*3\r\n$3\r\nGET\r\n${len(value)}\r\n{value}\r\n".encode(),
        f"*1\r\n${len(value)}\r\n{value}\r\n".encode(),
        query("UPDATE t SET a='VALUE'".replace("VALUE", value)),
        query("UPDATE t SET a=$q$VALUE$q$".replace("VALUE", value)),
        mysql('UPDATE t SET a="VALUE"'.replace("VALUE", value)),
        postgres(b"B", f"\0\0\0\1\0\0\0\1\0\0\0\7{value}".encode()),
        value.encode(),
    ):
        assert value[3:] not in MessageLabels().label(1, message[:WINDOW])


BEGINS = [b"GET /", b"POST /a/", b"Q\0\0\0\x40SELECT ", b"*1\r\n$4\r\n", b"P\0\0\0\x40s\0SELECT "]


@given(st.sampled_from(BEGINS), st.binary(max_size=64))
def test_whatever_bytes_say_no_label_has_what_a_terminal_or_a_page_would_obey(begin, rest):
    label = MessageLabels().label(1, (begin + rest)[:WINDOW])
    assert len(label.encode()) <= LABEL
    assert label.isprintable()
