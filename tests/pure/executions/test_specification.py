"""What ``--execution`` accepts, and what it says about everything else."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.errors import UsageError
from critpath.executions.specification import parse_specification
from critpath.model import Kind
from critpath.units import escape_name

PYTHON = (
    r"events:lttng_python:event[logger_name=app][msg~request_begin (?P<id>\d+) (?P<type>\S+)],"
    r"lttng_python:event[logger_name=app][msg~request_end (?P<id>\d+)],key=id,label=type"
)


@pytest.mark.parametrize("kind", ["process", "thread", "marker"])
def test_kinds_without_anything_more(kind):
    assert parse_specification(kind).kind == kind
    with pytest.raises(UsageError, match="takes nothing"):
        parse_specification(f"{kind}:x")


def test_events_with_key_and_label():
    found = parse_specification("events:app:request_begin,app:request_end,key=id,label=type")
    assert found.begin.name == "app:request_begin"
    assert found.end.name == "app:request_end"
    assert (found.key, found.label) == ("id", "type")


def test_log_messages_select_and_parse():
    found = parse_specification(PYTHON)
    logger, message = found.begin.conditions
    assert (logger.field, logger.value) == ("logger_name", "app")
    assert message.match("request_begin 12 sleep") == {"id": "12", "type": "sleep"}
    assert message.match("request_end 12") is None
    assert found.begin.parsed == {"id", "type"}
    assert found.end.parsed == {"id"}


def test_commas_and_brackets_inside_brackets():
    found = parse_specification(r"events:a:b[msg~x{1,3}[0-9,]+ (\]|\[)][who=a,b\]\\c],a:e")
    pattern, equal = found.begin.conditions
    assert pattern.match("xx1,2 ]") == {}
    assert pattern.match("xx1,2 )") is None
    assert equal.value == "a,b]\\c"
    assert found.end.name == "a:e"


def test_windows_keep_the_path_as_written():
    assert parse_specification("windows:/tmp/a:b,c.csv").file == "/tmp/a:b,c.csv"  # noqa: S108 - a name, not used


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not what --execution takes"),
        ("proces", "not what --execution takes"),
        ("events:", "only one event"),
        ("events:a", "only one event"),
        ("events:a,", "without a name"),
        ("events:a,b,colour=x", "not an option"),
        ("events:a,b,key=", "not an option"),
        ("events:a,b,key=x,key=y", "twice"),
        ("events:a[x,b", "without its ']'"),
        ("events:a]x,b", "without its '['"),
        ("events:a[x],b", "not a condition"),
        ("events:a[x=1]y,b", "follows a condition"),
        ("events:a[x=1]y[z=1],b", "follows a condition"),
        ("events:a[x~(],b", "not valid"),
        (f"events:a[x~{'y' * 1001}],b", "1001 characters"),
        ("windows:", "names no file"),
        ("process" * 2000, "14,000 characters"),
    ],
)
def test_errors_say_what_and_what_to_do(text, says):
    with pytest.raises(UsageError) as caught:
        parse_specification(text)
    assert says in caught.value.what
    assert caught.value.do
    assert "\n" not in caught.value.what + caught.value.do


def test_a_near_miss_is_corrected():
    with pytest.raises(UsageError) as caught:
        parse_specification("proces")
    assert caught.value.do.startswith("write process[,comm=NAME]")


def test_what_must_be_read():
    both = parse_specification("events:a:b[x=1],a:e,key=id,label=type").get_requests()
    assert [w.names for w in both] == [("a:b",), ("a:e",)]
    assert all(w.kind == Kind.OTHER for w in both)
    assert [f[0] for f in both[0].fields] == [
        *("x", "id", "type", "vtid", "vpid", "procname", "tid", "pid")
    ]
    # One event name, one class to read; what is parsed from the message is no field.
    (one,) = parse_specification(PYTHON).get_requests()
    assert [f[0] for f in one.fields][:2] == ["logger_name", "msg"]
    assert ("id",) not in one.fields
    # ... but the end does not parse the label, so it may be recorded there.
    assert ("type",) in one.fields
    assert parse_specification("process").get_requests() == ()


def test_a_name_with_glob_characters_means_itself():
    (one, _) = parse_specification(r"events:odd\[*\]?,b").get_requests()
    assert fnmatch.fnmatchcase("odd[*]?", one.names[0])
    assert not fnmatch.fnmatchcase("odd*x", one.names[0])


@given(st.text(min_size=1, max_size=30).map(str.strip).filter(bool))
def test_any_name_survives_escaping(name):
    found = parse_specification(f"events:{escape_name(name)},x")
    assert found.begin.name == name


@given(st.text(alphabet="events:[]=~,\\abkeyl(?P<>)*+. \n", max_size=60))
def test_any_text_is_parsed_or_refused(text):
    for candidate in (text, "events:" + text):
        try:
            found = parse_specification(candidate)
        except UsageError:
            continue
        assert found.text == candidate


@given(st.text(max_size=4000))
def test_what_is_long_is_repeated_in_part(text):
    errors = []
    for form in ("{}", "events:{}", "process,{}", "thread:{}", "events:a[{}],b", "process,ns={}"):
        try:
            parse_specification(form.format(text))
        except UsageError as error:
            errors += [error.what, error.do]
    assert all(len(said) < 300 for said in errors)


def test_how_long_it_was_is_said():
    with pytest.raises(UsageError, match=r"x{160}\.\.\. \(3,000 characters\)"):
        parse_specification("x" * 3000)
