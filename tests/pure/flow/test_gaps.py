"""Gaps cut into real recordings: what is whole has the path that it had, the rest is partial."""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from detailing import texts_of

sys.path.insert(0, str(Path(__file__).parents[1] / "timeline"))
from gap_cuts import draw_gaps

from critpath.engines.limits import Budget
from critpath.errors import UnreadableError
from critpath.flow import extract, extract_recording
from critpath.model import STATES, ExtractSettings, State
from critpath.model.gaps import LAYERS, REASONS, Gaps, make_gaps
from critpath.read.recording import Recording
from critpath.read.traces import describe, read_events
from critpath.timeline.streaming import read_timelines

REQUESTS = "events:app:request_begin,app:request_end,key=id"
FIELDS = ("begin", "closed", "opening", "end")
DATA_ONLY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # not in every 3.11


def with_gaps(recording: Path, place: Path, gaps: Gaps, **manifest) -> Path:
    """Copy a recording, and say that some of it was not recorded: its edges hide all of it."""
    # In a trace that no recorder of ours wrote, its files would be taken for damaged streams.
    ours = (recording / "critpath.json").exists()
    trace = place if ours else place / "trace"
    shutil.copytree(recording, trace, symlinks=True, dirs_exist_ok=True)
    about = {"format": "critpath/recording/2", "state": "complete", "gaps": "gaps.jsonl"}
    (place / "critpath.json").write_text(json.dumps({**about, **manifest}))
    lines = [
        {
            **{name: int(getattr(gaps, name)[i]) for name in FIELDS},
            "layer": LAYERS[gaps.layer[i]],
            "why": REASONS[gaps.why[i]],
        }
        for i in range(len(gaps))
    ]
    (place / "gaps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return place


def hidden(gaps: Gaps) -> Gaps:
    """The same gaps with edges that meet: events within are passed over, not an error."""
    middle = (gaps.begin + gaps.end) // 2
    return Gaps(gaps.begin, middle, middle, gaps.end, gaps.layer, gaps.why, gaps.host)


def drawn(recording: Path, seed: int, count: int, share: float) -> Gaps:
    events = read_events(recording, ())
    return hidden(draw_gaps(events, np.random.default_rng(seed), count, share=share))


def rows_of(found) -> dict[tuple[str, int], list[tuple[object, ...]]]:
    """The path of every execution; where a thread slept is not asked for."""
    paths, result = found.paths, {}
    running = np.isin(paths.state, [int(s) for s in State if s < State.WAIT_TASK and s])
    columns = [
        *(paths.begin.tolist(), paths.end.tolist(), [STATES[s] for s in paths.state]),
        *(texts_of(paths), [paths.strings[code] for code in paths.comm]),
        *(paths.tid.tolist(), paths.host.tolist(), np.where(running, paths.cpu, -1).tolist()),
    ]
    rows = list(zip(*columns, strict=True))
    for i, name in enumerate(found.executions.id):
        key = (name, int(found.executions.begin[i]))
        result[key] = rows[paths.start[i] : paths.start[i + 1]]
    return result


def assert_sound(recording: Path, cut: Path, gaps: Gaps, text: str, **settings) -> tuple[int, int]:
    """What is whole is as it was, and overlaps no gap; how many are, and avoid all gaps."""
    before = extract([recording], specification=text, **settings)
    after = extract([cut], specification=text, **settings)
    known, found = rows_of(before), rows_of(after)
    for key, rows in found.items():
        assert rows == known[key], key
    of = before.executions
    avoids = ~gaps.overlap(of.host, of.begin, of.end)
    names = zip(of.id, of.begin.tolist(), strict=True)
    assert {key for key, clear in zip(names, avoids, strict=True) if clear} >= found.keys()
    assert not (after.paths.state == State.NOT_RECORDED).any()
    [told] = [e.gaps for e in after.environment if e.gaps is not None]
    assert (told.gaps, told.whole) == (len(gaps), len(after))
    return len(after), int(avoids.sum())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["normal", "sample-lock", "sample-quota"])
def test_requests_of_the_guest(guest, tmp_path, name, seed):
    recording = guest(name)
    gaps = drawn(recording, seed, (5, 20, 60)[seed], 0.1)
    cut = with_gaps(recording, tmp_path / "cut", gaps)
    whole, clear = assert_sound(recording, cut, gaps, REQUESTS)
    assert 0.8 * clear <= whole <= clear, (whole, clear)


@pytest.mark.parametrize("text", ["thread", "process"])
@pytest.mark.parametrize("name", ["public/tc-bug446190", "public/bt-tracefile-rotation"])
def test_public_traces(shared, tmp_path, name, text):
    recording = shared(name)
    gaps = drawn(recording, 1, 3, 0.1)
    cut = with_gaps(recording, tmp_path / "cut", gaps)
    assert_sound(recording, cut, gaps, text)


@pytest.mark.parametrize("budget", [Budget(500, 0, spills=False), Budget(100, 1, spills=True)])
def test_blocks_and_groups_of_any_size_give_the_same(guest, tmp_path, monkeypatch, budget):
    recording = guest("sample-lock")
    gaps = drawn(recording, 7, 30, 0.2)
    cut = with_gaps(recording, tmp_path / "cut", gaps)
    expected = extract([cut], specification=REQUESTS)
    monkeypatch.setattr(Budget, "within", lambda _: budget)
    found = extract([cut], specification=REQUESTS, max_memory=1 << 40)
    assert rows_of(found) == rows_of(expected)
    assert found.environment == expected.environment


def test_no_interval_spans_a_gap(guest, tmp_path):
    gaps = drawn(guest("normal"), 4, 20, 0.2)
    cut = with_gaps(guest("normal"), tmp_path / "cut", gaps)
    events, timelines = read_timelines(cut)
    assert len(events.gaps) == len(gaps)
    known = timelines.state != State.NOT_RECORDED
    owner = np.repeat(np.arange(len(timelines.workers)), np.diff(timelines.start))
    host = timelines.workers.host[owner]
    assert not gaps.overlap(host[known], timelines.begin[known], timelines.end[known]).any()
    assert not gaps.overlap(
        np.zeros(len(timelines.ran_begin), np.int64), timelines.ran_begin, timelines.ran_end
    ).any()


def test_those_that_are_not_whole_show_what_was_not_recorded(guest, paths_of, tmp_path):
    gaps = drawn(guest("normal"), 5, 30, 0.3)
    cut = with_gaps(guest("normal"), tmp_path / "cut", gaps)
    [whole] = extract_recording(Recording(cut), ExtractSettings(REQUESTS))
    [partial] = extract_recording(Recording(cut), ExtractSettings(REQUESTS, partial=True))
    every = paths_of("normal")
    assert len(whole) + len(partial) == len(every)
    assert not set(whole.executions.id) & set(partial.executions.id)
    hidden_in = np.zeros(len(partial), np.int64)
    paths = partial.paths
    mine = paths.state == State.NOT_RECORDED
    np.add.at(hidden_in, paths.path[mine], paths.duration[mine])
    assert (hidden_in > 0).all()
    [told] = [e.gaps for e in partial.environment if e.gaps is not None]
    assert sum(told.by_label["partial"].values()) == told.partial == len(partial)


def test_an_event_where_a_gap_says_that_there_is_none(guest, tmp_path):
    events = read_events(guest("normal"), ())
    low, high = events.begin, events.end
    middle = (low + high) // 2
    gaps = make_gaps([(middle, middle, high, high, 0, 0, 0)])
    cut = with_gaps(guest("normal"), tmp_path / "cut", gaps)
    with pytest.raises(UnreadableError, match="lies in a gap") as caught:
        extract([cut], specification=REQUESTS)
    assert caught.value.exit_code == 4


def test_without_gaps_nothing_is_said(guest, paths_of, tmp_path):
    cut = with_gaps(guest("normal"), tmp_path / "cut", make_gaps([]))
    assert describe(cut)
    found = extract([cut], specification=REQUESTS)
    assert rows_of(found) == rows_of(paths_of("normal"))
    assert not [e for e in found.environment if e.gaps is not None]


@pytest.mark.parametrize("seed", range(3))
def test_requests_of_servers(tmp_path, seed):
    """What is seen to begin and end between gaps is as it was; the rest is counted."""
    archive = Path(__file__).parents[3] / "fixtures/requests/memcached.tar.xz"
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, **DATA_ONLY)  # noqa: S202 - of this repository
    recording = tmp_path / "memcached"
    gaps = drawn(recording, seed, (5, 20, 60)[seed], 0.1)
    about = json.loads((recording / "critpath.json").read_text())
    about |= {"format": "critpath/recording/2", "gaps": "gaps.jsonl"}
    cut = with_gaps(recording, tmp_path / "cut", gaps)
    (cut / "critpath.json").write_text(json.dumps(about))
    before = extract([recording], specification="requests")
    after = extract([cut], specification="requests")
    known = {key[1]: rows for key, rows in rows_of(before).items()}
    for (_, begin), rows in rows_of(after).items():
        assert rows == known[begin]
    of = before.executions
    clear = int((~gaps.overlap(of.host, of.begin, of.end)).sum())
    assert 0.7 * clear <= len(after) <= clear
    assert after.executions.incomplete > 0
