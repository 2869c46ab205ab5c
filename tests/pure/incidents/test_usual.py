"""What is usual is thinned evenly, bounded, and found by the hour."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from critpath.incidents.times import format_time, parse_time
from critpath.incidents.usual import UsualFile, choose_removed, find_deployed, order_files
from critpath.store import Baseline, Session

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "end_to_end"))
from drawn_sets import draw

HOUR, DAY = 3600, 24 * 3600
MONDAY = parse_time("2026-11-30T00:00:00Z")


def test_a_file_says_of_which_hours_it_is() -> None:
    file = UsualFile.at(parse_time("2026-11-29T07:30:00Z"), 3)
    assert file.name == "20261129T06Z-3.baseline.json"
    assert UsualFile.named(file.name) == file
    for name in ("x", "20261129T06Z-3.json", "99999999T99Z-1.baseline.json", "../" + file.name):
        assert UsualFile.named(name) is None


@given(st.integers(0, 2**40), st.integers(0, 10**8))
def test_names_and_files_are_one(second: int, age: int) -> None:
    file = UsualFile.at(second % (3 * 10**9), age)
    assert file.begin == 0 or UsualFile.named(file.name) == file


def test_the_nearest_hour_comes_first() -> None:
    now = MONDAY + 30 * HOUR  # Tuesday, 06:00
    files = [UsualFile.at(now - HOUR * back, 0) for back in (6, 12, 18, 24, 48, 72, 168)]
    files.append(UsualFile.at(now - HOUR, 1))
    found = [(now - f.begin) // HOUR for f in order_files(files, now + 60, 0)]
    # Yesterday's hour, that of last week, of the weekend; then the hours beside it.
    assert found == [24, 168, 48, 72, 6, 18, 12]
    assert [f.age for f in order_files(files, now, 1)] == [1]


@given(
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 3), st.integers(1, 90)), max_size=80),
    st.integers(0, 3),
)
def test_disk_is_bounded(rows: list[tuple[int, int, int]], age: int) -> None:
    now = MONDAY + 200 * 6 * HOUR
    sizes = {UsualFile.at(MONDAY + 6 * HOUR * n, of): mib << 20 for n, of, mib in rows}
    gone = choose_removed(sizes, now, age)
    left = {f: size for f, size in sizes.items() if f not in gone}
    assert len(gone) == len(set(gone))
    assert all(f.begin >= now - 14 * DAY and f.age > age - 2 for f in left)
    assert sum(left.values()) <= 256 << 20
    # What is the only one of its hour of the week goes when no hour has two.
    hours = Counter(f.begin % (7 * DAY) for f in left)
    fit = [f for f in sizes if f.begin >= now - 14 * DAY and f.age > age - 2]
    lost = {f.begin % (7 * DAY) for f in fit} - set(hours)
    assert not lost or max(hours.values(), default=1) == 1


def session(number: int, labels: list[str]) -> Session:
    paths = draw([f"r{10 + i} h5" for i in range(len(labels))])
    paths = replace(paths, executions=replace(paths.executions, label=tuple(labels)))
    return Session(paths, (format_time(MONDAY + number * HOUR),))


@given(
    st.lists(
        st.lists(st.sampled_from(["cart", "pay", ""]), min_size=1, max_size=30),
        min_size=1,
        max_size=8,
    ),
    st.integers(1, 12),
    st.integers(1, 5),
)
def test_thinning_is_even_and_bounded(labels: list[list[str]], most: int, recordings: int) -> None:
    before = Baseline(tuple(session(i, of) for i, of in enumerate(labels)), True, "1")
    after = before.thin(most, recordings)
    assert 1 <= len(after.sessions) <= recordings
    counts = [Counter(each.paths.executions.label) for each in after.sessions]
    for label in ("cart", "pay", ""):
        assert sum(of[label] for of in counts) <= most
    for each in after.sessions:
        old = next(s for s in before.sessions if s.recorded == each.recorded)
        assert each.left_out == len(old.paths) - len(each.paths)
        assert set(each.paths.executions.begin) <= set(old.paths.executions.begin)
    if sum(map(len, labels)) <= most and len(labels) <= recordings:
        assert [len(s.paths) for s in after.sessions] == [len(of) for of in labels]
    # The first and the last recording stay.
    if recordings >= 2 and most >= 3 * len(labels):
        assert after.sessions[0].recorded == before.sessions[0].recorded
        assert after.sessions[-1].recorded == before.sessions[-1].recorded


def test_recordings_stay_spread_when_they_come_one_by_one() -> None:
    kept = Baseline((session(0, ["a"] * 9),), True, "1")
    for number in range(1, 48):
        grown = structs.replace(kept, sessions=(*kept.sessions, session(number, ["a"] * 9)))
        kept = grown.thin(200, 6)
    hours = [(parse_time(s.recorded[0]) - MONDAY) // HOUR for s in kept.sessions]
    assert (hours[0], hours[-1]) == (0, 47)
    assert max(b - a for a, b in pairwise(hours)) <= 24


@pytest.mark.parametrize(
    ("looks", "deployed"),
    [
        (["a-1-1 5", "a-1-1 5"], [[], []]),
        (["a-1-1 5", "a-1-2 5"], [[], ["web"]]),  # another file
        (["a-1-1 5", "a-1-1 9", "a-1-1 9"], [[], ["web"], []]),  # it began anew
        (["a-1-1 5", "a-1-1 9", "a-1-1 12", "a-1-1 15"], [[], ["web"], [], []]),  # it always does
        # Another of that name, as old as the machine, ended: it goes on itself.
        (["a-1-1 2 5", "a-1-1 5 5"], [[], []]),
        (["a-1-1 2 5", "a-1-1 5 7", "a-1-1 8 9"], [[], [], ["web"]]),
    ],
)
def test_deployments(looks: list[str], deployed: list[list[str]]) -> None:
    known: dict[str, str] = {}
    found = []
    for look in looks:
        names, known = find_deployed(known, {"web": look, "cron": look}, {"web", "other"})
        found.append(names)
    assert found == deployed
    assert set(known) == {"web"}
