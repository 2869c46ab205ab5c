"""A baseline instead of the recording: the same answer, byte for byte; a small file."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath import flow
from critpath.documents import ComparisonDocument
from critpath.model import CompareSettings
from critpath.report.document.as_json import to_json
from critpath.report.document.comparison import comparison_document
from critpath.schema.environment import read_environment
from critpath.store import save_paths
from critpath.store.baseline import Baseline, load_baseline, save_baseline
from critpath.store.sessions import anonymize, make_sessions, stratified_sample
from critpath.text.notes import word_all

QUICK = CompareSettings(permutations=999)


@pytest.fixture(scope="module")
def saved(paths_of, tmp_path_factory):
    """Return a function from recordings' names to a baseline file of them."""

    def save(*names, most=0):
        file = tmp_path_factory.mktemp("baseline") / "b.json"
        sessions = make_sessions([paths_of(name) for name in names], most)
        save_baseline(Baseline(sessions, interrupts=True, version="0"), file)
        return file

    return save


def document_of(normal, sample) -> ComparisonDocument:
    document = comparison_document(flow.compare(normal, sample, QUICK))
    for one in (document.sets.normal, document.sets.sample):
        one.sources = [source.rpartition("/")[2] for source in one.sources]
    return document


@pytest.mark.parametrize(
    "sample",
    [
        *("sample-lock", "sample-quota"),
        *(pytest.param(name, marks=pytest.mark.deep) for name in ("sample-delay", "sample-fsync")),
    ],
)
def test_the_answer_is_the_recordings(paths_of, saved, sample):
    normal = flow.extract([saved("normal")], specification=None)
    one = to_json(document_of(normal, paths_of(sample)))
    assert one == to_json(document_of(paths_of("normal"), paths_of(sample)))


def test_as_the_sample_too_and_of_two_recordings(paths_of, saved, extracted):
    sample = flow.extract([saved("sample-delay")], specification=None)
    both = flow.extract([extracted("normal"), extracted("normal-2")], specification=None)
    loaded = flow.extract([saved("normal", "normal-2")], specification=None)
    one = to_json(document_of(loaded, sample))
    assert one == to_json(document_of(both, paths_of("sample-delay")))


def test_nothing_of_this_machine_is_in_it(saved, guest):
    text = saved("normal").read_text()
    assert str(guest("normal").parent) not in text
    assert '"/' not in text
    assert json.loads(text)["sessions"][0]["sources"] == ["normal"]


def test_it_is_small(paths_of, saved, guest, tmp_path):
    trace = sum(f.stat().st_size for f in guest("normal").rglob("trace/**/*") if f.is_file())
    save_paths(paths_of("normal"), tmp_path / "p.parquet")
    size = saved("normal").stat().st_size
    assert size < trace / 10
    assert size < 2 * (tmp_path / "p.parquet").stat().st_size


def test_what_is_left_out_is_said(saved):
    file = saved("normal", most=30)
    [session] = load_baseline(file).sessions
    assert (len(session.paths), session.left_out) == (30, 75)
    loaded = flow.extract([file], specification=None)
    said = word_all(loaded.warnings)
    assert "normal: 75 of 105 runs are not in the baseline (--executions)" in said
    labels = loaded.executions.label
    assert {labels.count(label) for label in set(labels)} == {4, 5}


@given(
    labels=st.lists(st.sampled_from(["", "a", "b", "c"]), max_size=60),
    most=st.integers(0, 40),
)
def test_what_is_kept_stands_for_all(labels, most):
    rows = stratified_sample(labels, most, 3).tolist()
    assert rows == sorted(set(rows))
    kept = [labels[row] for row in rows]
    if not most or len(labels) <= most:
        assert rows == list(range(len(labels)))
        return
    assert set(kept) == set(labels)
    assert len(rows) == max(most, len(kept)) if most >= len(set(labels)) else True
    for label in set(labels):
        share = most * labels.count(label) / len(labels)
        assert abs(kept.count(label) - max(share, 1)) <= 1 + len(set(labels))


def test_some_executions_of_a_set_are_those(paths_of):
    normal = paths_of("normal")
    rows = np.array([0, 7, 104])
    some = normal.take(rows)
    assert some.executions.id == tuple(normal.executions.id[i] for i in rows)
    for place, row in enumerate(rows):
        mine = slice(some.paths.start[place], some.paths.start[place + 1])
        theirs = slice(normal.paths.start[row], normal.paths.start[row + 1])
        for name in ("begin", "end", "state", "detail", "tid", "cpu"):
            found = getattr(some.paths, name)[mine].tolist()
            assert found == getattr(normal.paths, name)[theirs].tolist()


def test_recordings_are_called_by_their_own_names(paths_of):
    from dataclasses import replace  # noqa: PLC0415 - near its use

    told = {"recording": "/srv/runs/normal", "trace_name": "normal", "x": "/etc/y"}
    normal = replace(
        paths_of("normal"),
        sources=("/srv/runs/normal",),
        environment=(read_environment(told),),
        specification="windows:/srv/w.csv",
        warnings=("/srv/runs/normal: cut", "see /srv/other/file: it", "a 1/2 of app:x"),
    )
    one, two = anonymize([normal, normal])
    assert one.sources == ("normal",)
    assert one.specification == "windows:w.csv"
    assert one.warnings == ("normal: cut", "see file: it", "a 1/2 of app:x")
    cleaned = {"recording": "normal", "trace_name": "normal", "x": "y"}
    assert one.environment == (read_environment(cleaned),)
    assert two.sources == ("normal-2",)
    assert two.environment[0].recording == "normal-2"
    assert two.warnings[0] == "normal-2: cut"
    assert anonymize([one])[0].warnings == one.warnings
