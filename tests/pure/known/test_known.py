"""The store of what was seen before: what it keeps, what it answers, what it refuses."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.commands import main
from critpath.errors import EXIT_UNREADABLE, UnreadableError, UsageError
from critpath.known.entries import (
    Store,
    _flat_pairs,
    _pairs,
    _wrong_pair,
    add_entry,
    make_entry_text,
    open_store,
)
from critpath.model.signatures import Counts, Entry
from critpath.signatures.incidents import search_incident
from critpath.signatures.library import make_library, make_vectors
from critpath.signatures.lookup import check, make_entry, search_states
from critpath.text.known import describe_answer, describe_check
from critpath.units import NS_PER_S

Run = Callable[..., Any]
TERMS = tuple(f"sys:call{number:02}" for number in range(40))
SECOND = NS_PER_S


def usual(label: int) -> np.ndarray:
    """Return what a label does a second: some terms of its own, some of everybody's."""
    rng = np.random.default_rng(label)
    rates = rng.lognormal(4, 1.5, len(TERMS))
    rates[rng.random(len(TERMS)) < 0.4] = 0
    return rates


def draw(
    label: int,
    seed: int,
    *,
    documents: int = 20,
    day: float = 0.15,
    rates: np.ndarray | None = None,
) -> Counts:
    """Draw a session: its intervals differ from the usual in the same way, and a bit each."""
    rng = np.random.default_rng((label, seed))
    mean = (usual(label) if rates is None else rates) * rng.lognormal(0, day, len(TERMS))
    table = rng.poisson(mean * rng.lognormal(0, 0.05, (documents, len(TERMS))))
    return counts_of(table)


def counts_of(table: np.ndarray, terms: tuple[str, ...] = TERMS, **more: object) -> Counts:
    document, term = np.nonzero(table)
    begin = SECOND * np.arange(len(table), dtype=np.int64)
    return Counts(
        vocabulary=terms,
        scopes=("command",),
        begin=begin,
        end=begin + SECOND,
        scope=np.zeros(len(table), np.int32),
        lossy=np.zeros(len(table), np.bool_),
        document=document.astype(np.int32),
        term=term.astype(np.int32),
        count=table[document, term].astype(np.int64),
        interval=SECOND,
        source="bpf",
        **more,  # type: ignore[arg-type]
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of six labels with five sessions each."""
    place = tmp_path_factory.mktemp("made") / "team.known"
    for label in range(6):
        for session in range(5):
            entry = make_entry(f"work-{label}", draw(label, session), note=f"note {session}")
            entry = replace(entry, recorded=f"2026-05-{session + 1:02}T10:00:00Z")
            add_entry(place, entry, None)
    return place


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    """A copy of it, which a test may change."""
    return Path(shutil.copytree(made, tmp_path / "team.known"))


def test_what_is_known_is_found_and_how_sure_that_is(store: Path) -> None:
    known = open_store(store)
    for label in range(6):
        answer = search_states(known, draw(label, 99), level=0.01)
        assert answer.answer == "known"
        first = answer.matches[0]
        assert first.label == f"work-{label}"
        assert first.sessions == 5
        assert first.note == "note 4"
        assert first.similarity > 0.9
        assert answer.p > answer.level
        assert answer.agreement == 1
        assert first.terms


def test_a_stranger_is_like_nothing_known(store: Path) -> None:
    known = open_store(store)
    found = [search_states(known, draw(label, 1), level=0.01).answer for label in range(50, 60)]
    assert found.count("unknown") >= 9


def test_parts_of_an_explanation_add_up_to_the_similarity(store: Path) -> None:
    known = make_library(open_store(store).entries)
    assert known is not None
    answer = search_states(open_store(store), draw(2, 99), level=0.01)
    shown = sum(term.part for term in answer.matches[0].terms)
    assert 0 < shown <= answer.matches[0].similarity + 1e-9


def test_two_states_in_one_recording_are_stretches_of_time(store: Path) -> None:
    one, other = draw(1, 99, documents=12), draw(4, 99, documents=12)
    both = np.zeros((24, len(TERMS)), np.int64)
    both[one.document, one.term] = one.count
    both[12 + other.document, other.term] = other.count
    answer = search_states(open_store(store), counts_of(both), level=0.01)
    assert answer.agreement < 0.8
    assert [stretch.label for stretch in answer.timeline] == ["work-1", "work-4"]
    assert answer.timeline[0].end == 12 * SECOND


def test_too_little_is_inconclusive(store: Path) -> None:
    known = open_store(store)
    assert search_states(known, draw(1, 99, documents=4), level=0.01).answer == "inconclusive"
    quiet = counts_of(np.ones((20, len(TERMS)), np.int64))
    answer = search_states(known, quiet, level=0.01)
    assert answer.answer == "inconclusive"
    assert answer.quiet == 20


def test_other_events_are_not_comparable(store: Path) -> None:
    table = np.full((20, 40), 500)
    others = counts_of(table, tuple(f"tracepoint{number:02}" for number in range(40)))
    answer = search_states(open_store(store), others, level=0.01)
    assert answer.answer == "not comparable"
    assert not answer.matches
    assert len(answer.left_out) == 30


def test_what_was_not_looked_at_is_not_zero(store: Path) -> None:
    """A few terms less, of little weight, and the answer stays; similarity is over the others."""
    asked = draw(3, 99)
    rare = np.argsort(np.bincount(asked.term, asked.count, minlength=40))[:8]
    kept = np.setdiff1d(np.arange(40), rare)
    table = np.zeros((20, 40), np.int64)
    table[asked.document, asked.term] = asked.count
    fewer = counts_of(table[:, kept], tuple(TERMS[at] for at in kept))
    answer = search_states(open_store(store), fewer, level=0.01)
    assert (answer.answer, answer.matches[0].label) == ("known", "work-3")


def test_terms_that_never_occur_change_nothing(store: Path) -> None:
    known = open_store(store)
    wider = tuple(sorted((*TERMS, "sys:never", "zzz")))
    place = np.array([wider.index(term) for term in TERMS])
    more = Store_with(
        known, lambda c: replace(c, vocabulary=wider, term=place[c.term].astype(np.int32))
    )
    one = search_states(known, draw(2, 99), level=0.01)
    other = search_states(more, draw(2, 99), level=0.01)
    assert one.matches[0].similarity == pytest.approx(other.matches[0].similarity, abs=1e-12)
    assert one.p == other.p


def Store_with(known, change):  # noqa: N802 - a store whose counts are changed
    return replace(known, entries=tuple(replace(e, counts=change(e.counts)) for e in known.entries))


def test_the_order_of_entries_changes_no_answer(store: Path) -> None:
    known = open_store(store)
    turned = replace(known, entries=known.entries[::-1])
    one, other = (search_states(each, draw(2, 99), level=0.01) for each in (known, turned))
    assert one.answer == other.answer
    assert [m.label for m in one.matches] == [m.label for m in other.matches]
    assert one.p == pytest.approx(other.p)
    assert known.digest == turned.digest


def test_labels_that_are_one_thing_are_twins(store: Path) -> None:
    known = open_store(store)
    for session in range(5):
        entry = make_entry("twin-of-1", draw(1, 50 + session))
        add_entry(store, entry, open_store(store))
    found = check(open_store(store), level=0.01)
    assert found is not None
    assert ["twin-of-1", "work-1"] in found.twins
    answer = search_states(open_store(store), draw(1, 99), level=0.01)
    assert set(answer.matches[0].labels) == {"twin-of-1", "work-1"}
    assert answer.agreement == 1
    assert len(known.entries) == 30


def test_check_judges_each_session_by_the_others(store: Path) -> None:
    found = check(open_store(store), level=0.01)
    assert found is not None
    assert [one.judged for one in found.labels] == [100] * 6
    assert sum(one.right for one in found.labels) >= 590
    assert found.recognised >= 0.9 * found.strangers
    unknown, judged = (
        sum(getattr(one, of) for one in found.labels) for of in ("unknown", "judged")
    )
    assert unknown <= 0.1 * judged
    assert found.level == 0.05  # of 30 sessions one is the strangest more often than in .01
    assert found.calibrated
    assert (found.judged_sessions, found.needed_sessions) == (30, 19)
    assert not found.doubtful


@pytest.mark.parametrize(
    ("level", "sessions", "used", "calibrated"),
    [
        (0.01, 9, 0.05, False),
        (0.01, 99, 0.05, True),
        (0.01, 201, 0.01, True),
        (0.05, 18, 0.05, False),
    ],
)
def test_a_level_takes_sessions_not_intervals(
    level: float, sessions: int, used: float, calibrated: bool
) -> None:
    """Of n sessions one more is the strangest in 1 / (n + 1), however many intervals they have."""
    entries = tuple(
        replace(make_entry(f"work-{at % 3}", draw(at % 3, at, documents=10)), name=f"{at}")
        for at in range(sessions)
    )
    found = check(Store(Path("drawn.known"), entries), level=level)
    assert found is not None
    assert (found.level, found.judged_sessions, found.calibrated) == (used, sessions, calibrated)
    lines = describe_check(found)
    assert any(f"{sessions} sessions could be judged" in line for line in lines) != calibrated
    assert any("cannot show 0.01" in line for line in lines) == (used > level)


def test_a_poisoned_entry_is_named(store: Path) -> None:
    """Somebody keeps what is work-2 under the name of work-5."""
    added = add_entry(store, make_entry("work-5", draw(2, 77)), open_store(store))
    found = check(open_store(store), level=0.01)
    assert found is not None
    assert added.name in found.doubtful


def test_with_few_sessions_it_says_that_it_is_not_calibrated(tmp_path: Path) -> None:
    place = tmp_path / "few.known"
    for label in range(3):
        entry = make_entry(f"work-{label}", draw(label, 0))
        add_entry(place, entry, open_store(place) if place.exists() else None)
    answer = search_states(open_store(place), draw(1, 99), level=0.01)
    assert answer.answer == "inconclusive"
    assert "not calibrated" in answer.reasons[0]
    assert answer.matches[0].label == "work-1"


@pytest.mark.deep
@pytest.mark.parametrize("sessions", [3, 4, 5, 8])
def test_known_things_are_called_unknown_no_more_often_than_the_level(
    sessions: int,
) -> None:
    """Across drawn stores: of recordings of what is known, by medians of sessions."""
    unknown = asked = 0
    for draw_of in range(20):
        entries = [
            replace(
                make_entry(f"work-{label}", draw(label, 1000 * draw_of + session)),
                name=f"{session}",
            )
            for label in range(8)
            for session in range(sessions)
        ]
        known = make_library(entries)
        assert known is not None
        calibration = known.calibration
        if not calibration.is_calibrated(sessions=True):
            continue
        for label in range(8):
            vectors, rows = make_vectors(draw(label, 1000 * draw_of + 500), known.terms)
            distances = calibration.to_labels(vectors[rows])
            nearest = np.argmin(distances, axis=1)
            strange = calibration.strange(distances[np.arange(len(rows)), nearest], nearest)
            p = float(calibration.p_values(np.median(strange), sessions=True))
            unknown += p <= 0.05
            asked += 1
    rate, error = unknown / asked, (0.05 * 0.95 / asked) ** 0.5
    assert rate <= 0.05 + 2 * error, f"{sessions} sessions: {rate:.3f} of {asked}"


# Incidents


def _incident(label: str, work: int, session: int, more: np.ndarray) -> Entry:
    normal = draw(work, session)
    sample = draw(work, session, rates=usual(work) + more)
    return make_entry(label, sample, normal=normal)


def test_a_fault_is_known_from_another_workload() -> None:
    faults = {"hog": np.zeros(40), "storm": np.zeros(40)}
    faults["hog"][:4] = 3_000
    faults["storm"][30:36] = 2_000
    entries = tuple(
        replace(_incident(label, work, 10 + work, more), name=f"{label}/{work}")
        for label, more in faults.items()
        for work in (0, 1, 2)
    )
    known = Store(Path("team.known"), entries)
    for label, more in faults.items():
        asked = _incident("", 4, 77, more)
        answer = search_incident(known, causes={}, sample=asked.counts, normal=asked.normal)
        assert (answer.answer, answer.matches[0].label) == ("known", label)
        assert answer.matches[0].part == "counts"
        assert answer.matches[0].sessions == 3


def test_causes_are_compared_with_threads_and_without() -> None:
    lock = {"WAIT_FUTEX": 5e6, "WAIT_FUTEX@holder": 5e6}
    disk = {"WAIT_DISK": 5e6, "WAIT_DISK@writer": 5e6}
    entries = tuple(
        replace(
            make_entry(label, counts_of(np.zeros((0, 40), np.int64)), causes=causes), name=label
        )
        for label, causes in (("lock", lock), ("disk", disk))
    )
    known = Store(Path("team.known"), entries)
    answer = search_incident(known, causes={"WAIT_DISK": 2e6, "WAIT_DISK@other": 2e6})
    assert answer.matches[0].label == "disk"
    assert 0.35 < answer.matches[0].similarity < 0.7
    assert "not calibrated" in answer.reasons[0]
    assert search_incident(known, causes={"WAIT_NET": 1e6}).answer == "unknown"


def _fault(label: int, random: np.random.Generator) -> dict[str, float]:
    usual_costs = np.random.default_rng(100 + label).exponential(1e6, 6)
    costs = usual_costs * random.lognormal(0, 0.4, 6)
    names = [f"WAIT_{label}_{i}" for i in range(3)] + [f"RUN{'@r' * (i % 2)}_{i}" for i in range(3)]
    return dict(zip(names, costs.tolist(), strict=True))


def _faults(random: np.random.Generator, labels: int, sessions: int) -> Store:
    nothing = counts_of(np.zeros((0, 40), np.int64))
    entries = tuple(
        replace(
            make_entry(f"fault{label}", nothing, causes=_fault(label, random)),
            name=f"{label}/{session}",
        )
        for label in range(labels)
        for session in range(sessions)
    )
    return Store(Path("team.known"), entries)


def test_p_values_of_incidents_are_uniform_and_strangers_are_unknown() -> None:
    from scipy.stats import kstest  # noqa: PLC0415

    random = np.random.default_rng(5)
    p, strange = [], []
    for _ in range(100):
        known = _faults(random, 7, 3)
        answer = search_incident(known, _fault(int(random.integers(7)), random))
        assert answer.calibrated
        assert answer.level == 0.05
        assert (answer.answer == "unknown") == (answer.p <= 0.05)
        p.append(answer.p)
        stranger = {f"OTHER_{i}": cost for i, cost in enumerate(random.exponential(1e6, 6))}
        strange.append(search_incident(known, stranger | {"RUN_0": 1e5}).answer == "unknown")
    # Ranks among 21 others: spread over their steps they are uniform.
    spread = np.array(p) - random.random(len(p)) / 22
    assert kstest(spread, "uniform").pvalue > 0.01
    assert (np.array(p) <= 0.05).mean() <= 0.05 + 2 * (0.05 * 0.95 / len(p)) ** 0.5
    assert all(strange)


@pytest.mark.parametrize(("sessions", "calibrated"), [(9, False), (10, True)])
def test_nineteen_incidents_that_can_be_judged_calibrate(sessions: int, calibrated: bool) -> None:
    random = np.random.default_rng(3)
    answer = search_incident(_faults(random, 2, sessions), _fault(0, random))
    assert answer.calibrated == calibrated
    assert any("not calibrated: 18 incidents" in reason for reason in answer.reasons) != calibrated
    lines = describe_answer(answer)
    assert ("; p " in lines[0]) == calibrated
    assert any("not calibrated" in line for line in lines) != calibrated


def test_counts_of_a_fault_that_was_never_seen_are_like_nothing() -> None:
    faults = np.zeros((3, 40))
    faults[0, :4], faults[1, 30:36], faults[2, 15:21] = 3_000, 2_000, 2_500
    entries = tuple(
        replace(_incident(f"fault{at}", work, 10 * session + work, faults[at]), name=f"{at}/{work}")
        for at in range(2)
        for work in range(4)
        for session in range(1, 4)
    )
    known = Store(Path("team.known"), entries)
    for at, status in enumerate(("known", "known", "unknown")):
        asked = _incident("", 1, 77, faults[at])
        answer = search_incident(known, {}, asked.counts, asked.normal)
        assert answer.calibrated
        assert answer.answer == status, answer.p


# The store as files


@given(st.integers(0, 5), st.integers(1, 70), st.text(max_size=40), st.text(max_size=40))
def test_an_entry_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, label: int, documents: int, note: str, link: str
) -> None:
    place = tmp_path_factory.mktemp("store") / "x.known"
    entry = make_entry(f"l.{label}", draw(label, 1, documents=documents), note=note, link=link)
    added = add_entry(place, entry, None)
    (found,) = open_store(place).entries
    assert make_entry_text(found) == make_entry_text(entry)
    assert (found.name, found.digest) == (added.name, added.digest)
    assert len(found.counts) == min(documents, 64)
    assert found.left_out == max(0, documents - 64)
    for line in (place / "entries" / added.name).read_text().splitlines():
        assert len(line) < 20_000


def test_what_is_there_already_and_what_was_counted_otherwise_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "x.known"
    entry = replace(make_entry("one", draw(1, 1)), recorded="2026-01-01T00:00:00Z")
    add_entry(place, entry, None)
    with pytest.raises(UsageError, match="has this session of one already"):
        add_entry(place, entry, open_store(place))
    other = make_entry("one", replace(draw(1, 2), interval=2 * SECOND))
    with pytest.raises(UsageError, match="other sessions of one have interval"):
        add_entry(place, other, open_store(place))
    add_entry(place, other, open_store(place), force=True)
    assert len(open_store(place).entries) == 2


def test_labels_are_removed_and_renamed(store: Path) -> None:
    known = open_store(store)
    known.relabel("work-1", "better-name")
    after = open_store(store)
    assert sum(e.label == "better-name" for e in after.entries) == 5
    assert sum(e.label == "work-1" for e in after.entries) == 0
    assert len(after.remove(["better-name", after.entries[-1].name])) == 6
    assert len(open_store(store).entries) == 24
    with pytest.raises(UsageError, match="no label and no entry"):
        open_store(store).remove(["work-1"])


BAD = {
    "no JSON": lambda text: text[:-20],
    "a list": lambda _: "[]",
    "another format": lambda text: text.replace("known-entry/1", "known-entry/9"),
    "another label": lambda text: text.replace('"label": "one"', '"label": "two"'),
    "a path as label": lambda text: text.replace('"label": "one"', '"label": "../../x"'),
    "negative count": lambda text: _edit(
        text, lambda d: d["documents"][0]["counts"][0].__setitem__(1, -1)
    ),
    "count of 2^63": lambda text: _edit(
        text, lambda d: d["documents"][0]["counts"][0].__setitem__(1, 2**63)
    ),
    "term twice": lambda text: _edit(
        text, lambda d: d["documents"][0]["counts"].insert(0, d["documents"][0]["counts"][0])
    ),
    "term out of range": lambda text: _edit(
        text, lambda d: d["documents"][0]["counts"][-1].__setitem__(0, 4000)
    ),
    "ends before it begins": lambda text: _edit(text, lambda d: d["documents"][0].update(end=-1)),
    "unsorted vocabulary": lambda text: _edit(text, lambda d: d["vocabulary"].reverse()),
    "long term": lambda text: _edit(text, lambda d: d["vocabulary"].append("z" * 300)),
    "too many documents": lambda text: _edit(
        text, lambda d: d.update(documents=d["documents"] * 80)
    ),
    "fraction": lambda text: _edit(text, lambda d: d["documents"][0].update(begin=0.5)),
    "infinite cause": lambda text: _edit(text, lambda d: d.update(causes={"RUN": 1e300})),
    "a note that is a number": lambda text: _edit(text, lambda d: d.update(note=7)),
    "deep": lambda text: text[:-2] + ', "x": ' + "[" * 100_000 + "]" * 100_000 + "}",
}


def _edit(text: str, change) -> str:
    document = json.loads(text)
    change(document)
    return json.dumps(document)


@pytest.mark.parametrize("what", BAD)
def test_a_bad_entry_is_named_and_can_be_left_out(tmp_path: Path, what: str) -> None:
    place = tmp_path / "x.known"
    good = replace(make_entry("one", draw(1, 1)), recorded="2026-01-01T00:00:00Z")
    bad = replace(make_entry("one", draw(1, 2)), recorded="2026-01-02T00:00:00Z")
    add_entry(place, good, None)
    file = place / "entries" / add_entry(place, bad, open_store(place)).name
    file.write_text(BAD[what](file.read_text()))
    with pytest.raises(UnreadableError, match=file.name):
        open_store(place)
    left = open_store(place, skip_bad=True)
    assert len(left.entries) == 1
    assert file.name in left.notes[0]


WHOLE = st.one_of(st.integers(-2, 12), st.integers(2**50 - 2, 2**64), st.booleans())
PAIRS = st.one_of(
    st.lists(st.lists(WHOLE, min_size=1, max_size=3), max_size=4),
    st.lists(st.tuples(st.integers(0, 12), st.integers(1, 2**50)), max_size=6).map(
        lambda pairs: [[term, count] for term, count in sorted(dict(pairs).items())]
    ),
    st.one_of(WHOLE, st.text(max_size=3), st.lists(WHOLE, max_size=3)),
)


@given(st.lists(PAIRS, min_size=1, max_size=3), st.sampled_from([None, 1]))
def test_native_pairs_are_those_of_the_plain_reader_or_left_to_it(
    every: list[object], indent: int | None
) -> None:
    texts = [json.dumps(pairs, indent=indent).encode() for pairs in every]
    found = _flat_pairs(texts, 10)
    usual = all(
        isinstance(pairs, list)
        and not _wrong_pair(pairs, 10)
        and all(count < 2**50 for _, count in pairs)
        for pairs in every
    )
    assert (found is not None) == usual
    if found is not None:
        wanted = _pairs(texts, 10, "documents")
        assert found[0].tolist() == wanted[0].tolist()
        assert found[1] == wanted[1]


@pytest.mark.parametrize("what", ["link", "pipe", "directory", "link to directory", "name"])
def test_nothing_in_a_store_is_followed(tmp_path: Path, what: str) -> None:
    place = tmp_path / "x.known"
    add_entry(place, make_entry("one", draw(1, 1)), None)
    target = place / "entries/one/2026-01-02T00-00-00Z-aaaaaa.json"
    if what == "link":
        (tmp_path / "secret").write_text("{}")
        target.symlink_to(tmp_path / "secret")
    elif what == "pipe":
        os.mkfifo(target)
    elif what == "directory":
        target.mkdir()
    elif what == "link to directory":
        target = place / "entries/two"
        target.symlink_to(tmp_path)
    else:
        target = place / "entries/one/notes.txt"
        target.write_text("x")
    with pytest.raises(UnreadableError, match=target.name):
        open_store(place)
    assert len(open_store(place, skip_bad=True).entries) == 1


def test_no_label_leaves_the_store(critpath: Run, tmp_path: Path) -> None:
    for label in ("../x", "a/b", ".hidden", "", "x" * 65, "a b", "ä"):
        done = critpath("known", "add", tmp_path / "x.known", tmp_path, "--label", label)
        assert done.returncode == 2, label
        assert not (tmp_path / "x.known").exists()


def test_the_commands(critpath: Run, store: Path, tmp_path: Path) -> None:
    listed = critpath("known", "list", store)
    assert listed.returncode == 0
    assert listed.stdout.count("work-") == 6
    page = tmp_path / "check.html"
    checked = critpath("known", "check", store, "--json", "-", "--html", page)
    document = json.loads(checked.stdout)
    assert "work-3" in page.read_text(encoding="utf-8")
    assert len(document["tree"]) == 5
    assert sorted(name for of in document["groups"] for name in of) == [
        f"work-{n}" for n in range(6)
    ]
    assert document["format"] == "critpath/known-check/1"
    assert [one["label"] for one in document["labels"]] == [f"work-{n}" for n in range(6)]
    shown = critpath("known", "show", store, "work-3")
    assert "5 sessions" in shown.stdout
    grouped = critpath("known", "groups", store)
    assert grouped.stdout.count("|") == 5
    by_documents = critpath("known", "groups", store, "--method", "ward")
    assert by_documents.stdout.startswith("purity 1.000")
    assert critpath("known", "list", tmp_path / "none.known").returncode == 4
    assert critpath("known", "show", store, "nobody").returncode == 2
    assert critpath("known", "remove", store, "work-0").returncode == 0
    assert len(open_store(store).entries) == 25


@pytest.mark.deep
def test_a_fault_of_one_making_is_known_by_that_of_another(
    critpath: Run, answer: Callable[..., Any], extracted: Callable[[str], Path], tmp_path: Path
) -> None:
    """The guest's recordings, and the same faults recorded with another clock."""
    faults = ("delay", "fsync", "lock", "quota")
    saved = {}
    for making in ("", "steady-"):
        for fault in faults:
            found = answer(f"{making}sample-{fault}", normal=f"{making}normal")
            assert found.code == 1, found.stderr
            saved[making, fault] = tmp_path / f"{making}{fault}.json"
            saved[making, fault].write_bytes(found.json)
    for making, other in (("", "steady-"), ("steady-", "")):
        place = tmp_path / f"{making}x.known"
        for fault in faults:
            added = critpath("known", "add", place, saved[making, fault], "--label", fault)
            assert added.returncode == 0, added.stderr
        for fault in faults:
            found = critpath("known", "search", place, saved[other, fault], "--json", "-")
            assert json.loads(found.stdout)["known"]["matches"][0]["label"] == fault
    compared = critpath(
        *("compare", extracted("steady-normal"), extracted("steady-sample-lock")),
        *("--known", tmp_path / "x.known", "--html", tmp_path / "x.html"),
        *("--markdown", tmp_path / "x.md", "--json", tmp_path / "x.json"),
    )
    assert compared.returncode == 1
    assert "Seen before: like lock" in compared.stdout
    assert "Seen before" in (tmp_path / "x.html").read_text()
    assert "Seen before: like lock" in (tmp_path / "x.md").read_text()
    assert json.loads((tmp_path / "x.json").read_text())["known"]["answer"] == "known"
    shared_page = critpath(
        *("report", "--redact", tmp_path / "x.json", "--html", tmp_path / "shared.html")
    )
    assert shared_page.returncode == 0, shared_page.stderr
    assert "Seen before" not in (tmp_path / "shared.html").read_text()


def test_a_level_that_cannot_be_reached_is_no_answer(store: Path) -> None:
    """With 600 intervals no p-value is as small as a thousandth."""
    answer = search_states(open_store(store), draw(55, 1), level=0.001)
    assert answer.answer == "inconclusive" or answer.p <= answer.level
    known = make_library(open_store(store).entries)
    assert known is not None
    assert len(known.calibration.known) == 600
    assert not known.calibration.is_calibrated(0.001)


@pytest.mark.parametrize(
    "recorded", ["9999-99-99T99:99:99Z", "\u0662026-01-02T00:00:00Z", "2026-01-02", "yesterday"]
)
def test_times_that_are_none_are_refused(tmp_path: Path, recorded: str) -> None:
    place = tmp_path / "x.known"
    file = place / "entries" / add_entry(place, make_entry("one", draw(1, 1)), None).name
    document = json.loads(file.read_text())
    file.write_text(json.dumps({**document, "recorded": recorded}))
    with pytest.raises(UnreadableError, match="recorded"):
        open_store(place)


def test_a_huge_cause_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "x.known"
    file = place / "entries" / add_entry(place, make_entry("one", draw(1, 1)), None).name
    document = json.loads(file.read_text())
    file.write_text(json.dumps({**document, "causes": {"RUN": 10**400}}))
    with pytest.raises(UnreadableError, match="causes"):
        open_store(place)


def test_what_is_named_twice_is_removed_once(store: Path) -> None:
    known = open_store(store)
    assert len(known.remove(["work-1", "work-1", known.entries[5].name])) == 5


def test_an_odd_entry_does_not_narrow_what_others_are_compared_by(store: Path) -> None:
    odd = tuple(TERMS[::2])
    table = np.zeros((20, len(odd)), np.int64)
    table[:, :10] = 400
    add_entry(store, make_entry("aa-odd", counts_of(table, odd)), open_store(store))
    answer = search_states(open_store(store), draw(2, 99), level=0.01)
    assert answer.matches[0].label == "work-2"
    assert len(answer.left_out) == 1
    assert "aa-odd" in answer.left_out[0]
    found = check(open_store(store), level=0.01)
    assert found is not None
    assert len(found.notes) == 1 or "aa-odd" in [one.label for one in found.labels]


def test_a_store_whose_directory_is_a_link_is_refused(store: Path, capsys: Any) -> None:
    (store / "entries").rename(store / "elsewhere")
    (store / "entries").symlink_to("elsewhere")
    for more in ((), ("--skip-bad",)):
        assert main(["known", "list", str(store), *more]) == EXIT_UNREADABLE
        assert "entries: a link" in capsys.readouterr().err


@pytest.mark.parametrize("byte", [b"\xff", b"\xed\xa0\x80", rb"\ud800", b"\0"])
def test_a_byte_that_is_no_letter_is_named_wherever_it_is(store: Path, byte: bytes) -> None:
    file = next((store / "entries").rglob("*.json"))
    text = file.read_bytes()
    places = range(0, len(text), max(len(text) // 40, 1))
    for at in [*places, text.index(b'"note"') + 9, text.index(b'"sys:') + 3]:
        file.write_bytes(text[:at] + byte + text[at:])
        others = open_store(store, skip_bad=True)
        assert len(others.entries) in {29, 30}
        if len(others.entries) == 29:
            with pytest.raises(UnreadableError, match=file.name):
                open_store(store)
