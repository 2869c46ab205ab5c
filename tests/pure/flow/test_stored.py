"""A comparison whose segments stay in their files says the same as one in memory."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest

from critpath import flow, store
from critpath.flow import _join_parts
from critpath.model import CompareSettings, Piece, State, StoredPaths, join_paths
from critpath.report.document.as_json import to_json
from critpath.report.document.comparison import comparison_document
from critpath.report.document.path import write_paths
from critpath.store.reading import load_paths
from critpath.vectors.table import ALPHABETS, Coder, vector_table, vectors_of, with_like_states

NAMES = ("normal", "sample-lock")


@pytest.fixture(scope="module")
def sets(paths_of):
    return [paths_of(name) for name in NAMES]


@pytest.fixture(scope="module")
def stored(sets, tmp_path_factory):
    """Return the same sets in row groups of a few executions, which stay where they are."""
    home = tmp_path_factory.mktemp("stored")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("critpath.store.writing.GROUP_EXECUTIONS", 7)
        for name, one in zip(NAMES, sets, strict=True):
            store.save_paths(one, home / name)
    return [load_paths(home / name, resident=0) for name in NAMES]


@pytest.mark.parametrize("options", [{}, {"vector": "state"}, {"msa": "joint"}])
def test_the_same_document(sets, stored, options):
    if "vector" in options and "vector" not in asdict(CompareSettings()):
        pytest.skip("one alphabet only")
    settings = CompareSettings(permutations=999, **options)
    assert all(isinstance(one.paths, StoredPaths) for one in stored)
    documents = [
        to_json(comparison_document(flow.compare(*each, settings))) for each in (sets, stored)
    ]
    assert documents[0] == documents[1]
    assert '"anomaly"' in documents[0]
    assert not any("begin" in vars(one.paths) for one in stored)  # never all of them at once


def test_the_same_paths_as_json(sets, stored):
    for whole, apart in zip(sets, stored, strict=True):
        assert b"".join(write_paths(apart)) == b"".join(write_paths(whole))
        assert "begin" not in vars(apart.paths)


@pytest.mark.parametrize("kind", sorted(ALPHABETS))
def test_the_same_vectors(sets, stored, kind, monkeypatch):
    for limit in (64, 7):
        monkeypatch.setattr("critpath.vectors.table.LIMIT", limit)
        whole = ALPHABETS[kind](sets)
        coder = Coder(stored, kind)
        assert (coder.symbols, coder.folded) == (whole.symbols, whole.folded)
        for one, codes, apart in zip(sets, whole.codes, stored, strict=True):
            expected = vector_table(one, whole.symbols, codes)
            found = vectors_of(apart, coder)
            for name in ("counts", "durations", "structure"):
                np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_what_system_calls_tell_is_left_out_of_stored_paths_too(sets, stored):
    def traced(one):
        """Return a set as if it had been traced with system calls."""

        def change(paths):
            state = np.where(paths.state == State.RUN, np.uint8(State.RUN_USER), paths.state)
            return replace(paths, state=state)

        return replace(one, paths=one.paths.map(change))

    expected = with_like_states(sets[0], traced(sets[1]), "thread")
    found = with_like_states(stored[0], traced(stored[1]), "thread")
    assert found[3] == expected[3] != ()
    assert found[2].symbols == expected[2].symbols
    for one, other in zip(found[:2], expected[:2], strict=True):
        assert isinstance(one.paths, StoredPaths)
        np.testing.assert_array_equal(one.paths.state, other.paths.state)
        np.testing.assert_array_equal(one.paths.start, other.paths.start)


def test_sets_of_one_recording_have_its_facts_once(sets):
    halves = [sets[0].take(np.arange(0, 50)), sets[0].take(np.arange(50, len(sets[0])))]
    whole = _join_parts(halves)
    assert (whole.sources, whole.events) == (sets[0].sources, sets[0].events)
    assert (whole.warnings, whole.environment) == (sets[0].warnings, sets[0].environment)
    assert whole.executions.notes == sets[0].executions.notes
    assert whole.executions.id == sets[0].executions.id
    assert whole.session.tolist() == sets[0].session.tolist()
    joined = join_paths([half.paths for half in halves])
    np.testing.assert_array_equal(whole.paths.begin, joined.begin)


def test_who_waits_knows_the_verdict_before_all_is_explained(sets):
    told = []
    quick = CompareSettings(permutations=999)
    verdict = flow.compare(*sets, quick, progress=told.append).verdict
    word = {"anomaly": "slower; ", "ok": "no slower; ", "inconclusive": "inconclusive; "}[verdict]
    known = [message.startswith(word) for message in told]
    # From then on every message has it, and at least the last two stages are still to come.
    assert known == sorted(known)
    assert sum(known) >= 2
    assert next(message for message in told if "(4 of 4)" in message).startswith(word)


def test_joining_fetches_nothing_that_is_stored(sets):
    def fetch():
        raise AssertionError("fetched")

    part = replace(sets[0], paths=StoredPaths([Piece(len(sets[0]), fetch)]))
    assert _join_parts(iter([part])) is part
