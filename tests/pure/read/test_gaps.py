"""Lists of gaps: what is read, and what is refused, with what and where."""

from __future__ import annotations

import json
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.errors import UnreadableError
from critpath.model import Gap, Manifest
from critpath.model.gaps import BASE, LAYERS, REASONS, Gaps, join_gaps, make_gaps
from critpath.read import gaps as reading
from critpath.read.gaps import read_gaps
from critpath.read.manifest import read_manifest
from critpath_record.manifests import write_manifest

BEGIN, END = 100, 1_000
MANIFEST = Manifest(
    *("complete", "", (), "", (), {}, "", {}, {}, BEGIN, END), gaps_file="gaps.jsonl"
)


def line(begin, end, /, *, layer="base", why="budget", **more):
    times = {"begin": begin, "closed": begin + 1, "opening": end - 1, "end": end}
    return json.dumps({**times, "layer": layer, "why": why, **more}) + "\n"


def read(place, text, manifest=MANIFEST):
    (place / "gaps.jsonl").write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_gaps(place, manifest)


def test_a_list_is_read_with_its_layers(tmp_path):
    text = line(100, 200) + line(110, 190, layer="syscalls", why="off") + line(200, 300)
    found = read(tmp_path, text)
    assert found.begin.tolist() == [100, 110, 200]
    assert [LAYERS[code] for code in found.layer] == ["base", "syscalls", "base"]
    assert [REASONS[code] for code in found.why] == ["budget", "off", "budget"]
    assert found.of(BASE).end.tolist() == [200, 300]


def test_a_last_line_that_is_cut_off_is_ignored(tmp_path):
    whole = line(100, 200)
    for size in range(len(whole) - 1):
        assert len(read(tmp_path, whole + whole[:size])) == 1


def test_a_manifest_with_a_list_is_of_the_second_format(tmp_path):
    write_manifest(tmp_path, MANIFEST)
    assert json.loads((tmp_path / "critpath.json").read_text())["format"] == "critpath/recording/2"
    assert read_manifest(tmp_path) == MANIFEST


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (line(100, 200) + line(150, 250), "line 2: the gap of base overlaps"),
        (line(300, 400) + line(100, 200), "line 2: the gap of base is out of order"),
        (line(200, 100), "line 1: the gap ends before it begins"),
        (line(100, 200, closed=199, opening=150), "line 1: the gap ends before it begins"),
        (line(50, 200), "line 1: the gap lies outside the recording"),
        (line(900, 1_001), "line 1: the gap lies outside the recording"),
        (line(100, 200) + "nonsense\n", "line 2: no JSON object"),
        (line(100, 200) + "[1]\n", "line 2: no JSON object"),
        ("{}, {}\n", "line 1: no JSON object"),
        ("[" * 900 + "\n", "line 1: no JSON object"),
        (line(100, 200, layer="kernel"), "line 1: 'layer' is none"),
        (line(100, 200, why=[]), "line 1: 'why' is none"),
        (line(100, 200, begin=True), "line 1: 'begin' is no time"),
        (line(100, 200, begin=1e2), "line 1: 'begin' is no time"),
        (line(100, 200, end=1 << 70), "line 1: 'end' is no time"),
        (line(100, 200, more="x" * 1_000), "a line has more than 1,000 bytes"),
        (b"\xff\xfe\n", "line 1: no JSON object"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path, text, what):
    with pytest.raises(UnreadableError) as caught:
        read(tmp_path, text)
    assert what in caught.value.what
    assert caught.value.exit_code == 4
    assert caught.value.do


def test_too_many(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MOST_GAPS", 3)
    text = "".join(line(100 + 10 * i, 110 + 10 * i) for i in range(4))
    with pytest.raises(UnreadableError, match="more than 3 gaps"):
        read(tmp_path, text)


def test_a_list_that_is_missing_or_elsewhere(tmp_path):
    with pytest.raises(UnreadableError, match=r"gaps\.jsonl: No such file"):
        read_gaps(tmp_path, MANIFEST)
    (tmp_path / "gaps.jsonl").symlink_to("/etc/passwd")
    with pytest.raises(UnreadableError, match="not beside its manifest"):
        read_gaps(tmp_path, MANIFEST)


def test_what_a_recorder_noticed_are_gaps(tmp_path):
    noticed = (Gap(150, 250, -1, "tracing was off"), Gap(200, 400, 0, "the instance was cleared"))
    manifest = Manifest(*("complete", "", (), "", (), {}, "", {}, {}, BEGIN, END), gaps=noticed)
    found = read_gaps(tmp_path, manifest)
    assert (found.begin.tolist(), found.end.tolist()) == ([150], [400])


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(tmp_path_factory, content):
    with suppress(UnreadableError):
        read(tmp_path_factory.mktemp("gaps"), content)


SPANS = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)), max_size=8)


@given(SPANS, SPANS, st.lists(st.tuples(st.integers(-5, 70), st.integers(1, 20)), max_size=9))
def test_joined_gaps_hide_what_either_hides(ones, others, windows):
    def made(spans):
        rows, last = [], 0
        for begin, length in spans:
            low = last + begin % 7
            rows.append((low, low, low + length, low + length, BASE, 0, 0))
            last = low + length
        return make_gaps(rows)

    parts = [made(ones), made(others)]
    joined = join_gaps(parts)
    assert (joined.begin[1:] >= joined.end[:-1]).all()
    begin = np.array([low for low, _ in windows], np.int64)
    end = begin + np.array([length for _, length in windows], np.int64)
    host = np.zeros(len(windows), np.int64)
    either = parts[0].overlap(host, begin, end) | parts[1].overlap(host, begin, end)
    assert (joined.overlap(host, begin, end) == either).all()
    assert not Gaps().overlap(host, begin, end).any()
