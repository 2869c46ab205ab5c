"""Baselines: the same paths again, in text that can be looked at, checked on the way in."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from detailing import detailed
from hypothesis import given
from hypothesis import strategies as st

from critpath.errors import UnreadableError
from critpath.model import PathSet
from critpath.model.stacks import read_stack, word_stack
from critpath.store.baseline import (
    FORMAT,
    Baseline,
    Session,
    baseline_text,
    digest_document,
    load_baseline,
    save_baseline,
)
from critpath.store.formats import is_baseline_file
from critpath.text.notes import word_all

_PLACE = importlib.util.spec_from_file_location("gate_drawn", Path(__file__).with_name("drawn.py"))
drawn = importlib.util.module_from_spec(_PLACE)
sys.modules["gate_drawn"] = drawn
_PLACE.loader.exec_module(drawn)


def utf8(text: str) -> str:
    """A file in UTF-8 holds no lone surrogates."""
    return text.encode("utf-8", "replace").decode("utf-8")


def plain(paths: PathSet) -> dict:
    """Everything of a set, texts instead of codes."""
    of, executions = paths.paths, paths.executions
    stacks = [*(read_stack(utf8(word_stack(each))) for each in of.stacks), None]
    return {
        "ids": [utf8(t) for t in executions.id],
        "labels": [utf8(t) for t in executions.label],
        "comms": [utf8(t) for t in executions.comm],
        **{n: getattr(executions, n).tolist() for n in ("begin", "end", "tid", "host")},
        "incomplete": executions.incomplete,
        "notes": [utf8(t) for t in word_all(executions.notes)],
        "start": of.start.tolist(),
        "columns": {
            n: getattr(of, n).tolist()
            for n in (
                *("begin", "end", "state", "tid", "host", "cpu", "lossy", "elsewhere_idle"),
                *("beneath", "uncertainty", "confidence", "others"),
            )
        },
        "detail": [of.details[c].with_texts(utf8) for c in of.detail.tolist()],
        "comm": [utf8(of.strings[c]) for c in of.comm.tolist()],
        **{
            name: [stacks[c] for c in getattr(of, name).tolist()]
            for name in ("stack", "waker_stack")
        },
        "session": paths.session.tolist(),
        "sources": [utf8(t) for t in paths.sources],
        "specification": utf8(paths.specification),
        "losses": [
            (x.begin, x.end, x.host, x.cpu, x.events, x.packets, utf8(x.reason))
            for x in paths.losses
        ],
        "lossy": paths.lossy.tolist(),
        "environment": [
            {utf8(k): utf8(v) if isinstance(v, str) else v for k, v in e.saved().items()}
            for e in paths.environment
        ],
        "events": paths.events,
        "warnings": [utf8(t) for t in word_all(paths.warnings)],
    }


def baseline(*sets: PathSet, left_out: int = 0) -> Baseline:
    sessions = tuple(Session(s, ("",) * len(s.sources), left_out) for s in sets)
    return Baseline(sessions, interrupts=True, version="0.1.0")


@given(sets=st.lists(drawn.path_sets(), min_size=1, max_size=3))
def test_any_paths_survive(tmp_path_factory, sets):
    file = tmp_path_factory.mktemp("any") / "b.json"
    save_baseline(baseline(*sets, left_out=3), file)
    assert is_baseline_file(file)
    found = load_baseline(file)
    assert [plain(s.paths) for s in found.sessions] == [plain(s) for s in sets]
    assert {s.left_out for s in found.sessions} == {3}
    assert baseline_text(found) == baseline_text(baseline(*sets, left_out=3))
    for session in found.sessions:
        assert not session.paths.paths.begin.flags.writeable


@given(paths=drawn.path_sets())
def test_the_text_can_do_no_harm_and_has_a_line_for_each_execution(paths):
    text = baseline_text(baseline(paths))
    assert text.isascii()
    assert set(text) - {"\n"} <= set(map(chr, range(32, 127)))
    assert sum(line.startswith('{"id":') for line in text.splitlines()) == len(paths)


def one() -> PathSet:
    """Two executions of three segments, one of them lossy."""
    from critpath.model import CriticalPaths, Executions, State  # noqa: PLC0415 - near its use

    return PathSet(
        executions=Executions(
            id=("7@1000", "7@2000"),
            begin=np.array([1000, 2000]),
            end=np.array([1060, 2060]),
            tid=np.array([7, 7]),
            host=np.array([0, 0]),
            comm=("app", "app"),
            label=("read", ""),
        ),
        paths=detailed(
            CriticalPaths(
                start=np.array([0, 3, 6]),
                begin=np.array([1000, 1010, 1030, 2000, 2010, 2030]),
                end=np.array([1010, 1030, 1060, 2010, 2030, 2060]),
                state=np.array([State.RUN, State.WAIT_CPU, State.RUN] * 2, np.uint8),
                detail=np.array([0, 1, 0] * 2, np.int32),
                comm=np.array([2] * 6, np.int32),
                tid=np.array([7] * 6),
                host=np.zeros(6, np.int64),
                cpu=np.array([0, -1, 1] * 2, np.int32),
                lossy=np.array([0, 0, 0, 0, 1, 0], np.bool_),
                strings=("", "who (3)", "app"),
            )
        ),
        session=np.zeros(2, np.int64),
        sources=("normal",),
        specification="process",
        losses=(),
        lossy=np.array([False, True]),
        events=9,
    )


EXPECTED = """{
"format": "critpath/baseline/2",
"critpath": "0.1.0",
"interrupts": true,
"sessions": [
{
"sources": ["normal"],
"recorded": [""],
"specification": "process",
"events": 9,
"incomplete": 0,
"left_out": 0,
"origin": 1000,
"notes": [],
"warnings": [],
"losses": [],
"environment": [],
"means": [
["total",60,120],
["RUN",40,80],
["WAIT_CPU",20,40]
],
"kinds": [
["RUN",{}],
["WAIT_CPU",{"peer":"who","peer_tid":3}]
],
"threads": [
[7,0,"app"]
],
"executions": [
{"id":"7@1000","thread":0,"label":"read","begin":0,"path":[0,0,0,10,1,0,-1,20,0,0,1,30]},
{"id":"7@2000","thread":0,"begin":1000,"lossy":true,"lossy_segments":[1],"path":[0,0,0,10,1,0,-1,20,0,0,1,30]}
]
}
]
}
"""


def test_how_it_looks():
    text, mark, digest = baseline_text(baseline(one())).rpartition(',\n"digest": "')
    assert f"{text}\n}}\n" == EXPECTED  # those of earlier versions have no digest
    assert mark
    assert digest == f'{digest_document(json.loads(EXPECTED))}"\n}}\n'


def test_a_file_of_the_first_format_is_read(tmp_path):
    file, now = tmp_path / "a.baseline", tmp_path / "b.baseline"
    now.write_text(EXPECTED, encoding="utf-8")
    text = EXPECTED.replace("critpath/baseline/2", "critpath/baseline/1").replace("{}", '""')
    file.write_text(text.replace('{"peer":"who","peer_tid":3}', '"who (3)"'), encoding="utf-8")
    first, second = (plain(load_baseline(each).sessions[0].paths) for each in (file, now))
    assert first == second


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("critpath/baseline/2", "critpath/baseline/3", "format 'critpath/baseline/3'"),
        ('"interrupts": true', '"interrupts": 1', "interrupts lacks or is not true or false"),
        ('"origin": 1000,\n', "", "sessions[0].origin lacks"),
        ('"sources": ["normal"]', '"sources": []', "sessions[0].recorded"),
        ('"events": 9', '"events": true', "sessions[0].events"),
        ('"events": 9', '"events": -9', "sessions[0].events"),
        ('"events": 9', '"events": NaN', "sessions[0].events"),
        ('"events": 9', '"events": 9,\n"events": 9', "a key is there twice"),
        ('"events": 9', '"events": ' + "9" * 5000, "limit"),
        ('["RUN",{}]', '["RUNS",{}]', "sessions[0].kinds[0]"),
        ('[7,0,"app"]', '[7,"app"]', "sessions[0].threads[0]"),
        ('"path":[0,0,0,10', '"path":[0,0,0', "sessions[0].executions[0].path"),
        ('"path":[0,0,0,10', '"path":[0,0,0,10.5', "sessions[0].executions[0].path"),
        ('"path":[0,0,0,10', '"path":[0,0,0,-10', "sessions[0].executions[0].path"),
        ('"path":[0,0,0,10', '"path":[9,0,0,10', "sessions[0].executions[0].path"),
        ('"path":[0,0,0,10', f'"path":[0,0,0,{2**62}', "sessions[0].executions[0].begin"),
        ('"path":[0,0,0,10', '"path":[0,0,0,11', "the file was changed"),
        ('"lossy_segments":[1]', '"lossy_segments":[3]', "executions[1].lossy_segments"),
        ('"thread":0,"begin"', '"thread":1,"begin"', "executions[1].thread"),
        ('"notes": []', '"notes": [', ":14: no valid JSON"),
        ("{\n", "<<<<<<< HEAD\n{\n", ":1: no valid JSON"),
        ('"environment": []', '"environment": [{"a":1.5}]', "environment[0].a"),
        ('"losses": []', '"losses": [{"begin":1}]', "losses[0]"),
        ('"notes": []', '"notes": ' + "[" * 100_000, ""),
    ],
)
def test_what_is_wrong_is_named(tmp_path, old, new, says):
    file = tmp_path / "b.json"
    assert old in EXPECTED
    file.write_text(EXPECTED.replace(old, new, 1))
    with pytest.raises(UnreadableError) as caught:
        load_baseline(file)
    assert str(file) in caught.value.what
    assert says in caught.value.what
    assert "\n" not in caught.value.what
    assert "critpath baseline save" in caught.value.do


JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(),
        st.text(max_size=5),
        st.sampled_from([FORMAT, "RUN", 2**63, -(2**63), 2**31, 2**62]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


def places(value, above=()):
    yield above
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(inner, (*above, key))


@given(data=st.data())
def test_a_changed_file_is_read_or_refused(tmp_path_factory, data):
    document = json.loads(EXPECTED)
    for _ in range(data.draw(st.integers(1, 2))):
        place = data.draw(st.sampled_from(list(places(document))))
        value = data.draw(JSON)
        if not place:
            document = value
            break
        inner = document
        for key in place[:-1]:
            inner = inner[key]
        if data.draw(st.booleans()):
            inner[place[-1]] = value
        else:
            del inner[place[-1]]
    file = tmp_path_factory.mktemp("changed") / "b.json"
    file.write_text(json.dumps(document))
    refused_or_read(file)


@given(
    cut=st.integers(0, len(EXPECTED)),
    at=st.integers(0, len(EXPECTED)),
    put=st.binary(max_size=4),
)
def test_damaged_bytes_are_read_or_refused(tmp_path_factory, cut, at, put):
    content = EXPECTED.encode()[: max(cut, 1)]
    file = tmp_path_factory.mktemp("bytes") / "b.json"
    file.write_bytes(content[:at] + put + content[at + len(put) :])
    refused_or_read(file)


def refused_or_read(file: Path) -> None:
    is_baseline_file(file)
    try:
        found = load_baseline(file)
    except UnreadableError:
        return
    for session in found.sessions:
        paths = session.paths
        assert (paths.executions.end >= paths.executions.begin).all()
        assert len(paths) == len(paths.session)
    baseline_text(found)


def test_what_is_no_file_is_no_baseline(tmp_path):
    assert not is_baseline_file(tmp_path)
    assert not is_baseline_file(tmp_path / "none")
    with pytest.raises(UnreadableError):
        load_baseline(tmp_path / "none")
    with pytest.raises(UnreadableError):
        load_baseline(tmp_path)


@pytest.mark.parametrize(
    "entry",
    [{"clock_epoch": 5}, {"recording": "r"}, {"recording": "r", "clock_epoch": "5"}],
)
def test_an_environment_that_others_rely_on_is_checked(tmp_path, entry):
    file = tmp_path / "b.json"
    text = EXPECTED.replace('"environment": []', f'"environment": [{json.dumps(entry)}]')
    file.write_text(text)
    with pytest.raises(UnreadableError) as caught:
        load_baseline(file)
    assert "environment[0]" in caught.value.what
