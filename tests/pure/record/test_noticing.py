"""What a flight recorder notices of requests: by conditions, and beside what is usual."""

# ruff: noqa: ARG002 - what stands in for requests is asked as they are
from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.schema.parameters.noticing import NOTICING
from critpath.units import NS_PER_S
from critpath_record.flight import noticing
from critpath_record.flight._requests import (
    count_all,
    count_over,
    find_bucket,
    find_quantile,
    merge,
    time_of,
)
from critpath_record.flight.conditions import Condition
from critpath_record.flight.kinds import Kinds, Processes
from critpath_record.flight.noticing import (
    ADOPTED,
    LONGER,
    MACHINE,
    RESETS,
    Noticing,
    RequestConditions,
    Window,
    describe,
)
from critpath_record.flight.usual import (
    Counts,
    Level,
    Null,
    Watched,
    find_lasting,
    find_spread,
    weigh,
)

BLOCK = round(NOTICING.block * NS_PER_S)


# Sketches


@given(st.integers(1100, 1 << 41))
def test_a_bucket_is_within_a_share_of_its_times(ns: int) -> None:
    assert abs(time_of(find_bucket(ns)) / ns - 1) < 0.0112


def make_sketch(times: list[int]) -> bytes:
    counts: dict[int, int] = {}
    for ns in times:
        counts[find_bucket(ns)] = counts.get(find_bucket(ns), 0) + 1
    return b"".join(
        at.to_bytes(4, "little") + n.to_bytes(4, "little") for at, n in sorted(counts.items())
    )


@given(st.lists(st.integers(0, 1 << 43), max_size=60), st.lists(st.integers(0, 1 << 43)))
def test_sketches_are_merged_and_asked(one: list[int], other: list[int]) -> None:
    both = merge([make_sketch(one), b"", make_sketch(other)])
    times = sorted(find_bucket(ns) for ns in (*one, *other))
    assert both == make_sketch([*one, *other])
    assert count_all(both) == len(times)
    for part in (0.5, 0.9, 0.99, 1.0):
        wanted = times[math.ceil(part * len(times) - 1e-12) - 1] if times else -1
        assert find_quantile(both, part) == wanted
        assert count_over(both, wanted) == sum(at > wanted for at in times)


# The statistic


def test_counts_that_differ_by_chance_alone_have_no_spread() -> None:
    draw = random.Random(3)  # noqa: S311 - no secret
    many = [100] * 300
    by_chance = [sum(draw.random() < 0.1 for _ in range(100)) for _ in many]
    assert find_spread(many, by_chance, 0.1) < 0.004
    wide = [
        sum(draw.random() < share for _ in range(100))
        for share in (draw.betavariate(0.9, 8.1) for _ in many)
    ]
    assert 0.06 < find_spread(many, wide, 0.1) < 0.15  # the truth is 0.1
    assert find_lasting(many, wide, Null(0.1, 0.1)) == 1
    row = [x for x in wide for _ in range(5)][:300]
    assert 3 < find_lasting(many, row, Null(0.1, 0.1)) < 8


@pytest.mark.parametrize("odds", NOTICING.alternatives)
@pytest.mark.parametrize("spread", [0.001, 0.05, 0.3])
def test_a_bet_wins_nothing_on_average_where_all_is_usual(odds: float, spread: float) -> None:
    null, n = Null(0.1, spread), 30
    many = 1 / spread - 1
    a, b = 0.1 * many, 0.9 * many
    g = math.lgamma
    mean = sum(
        math.comb(n, x)
        * math.exp(g(x + a) + g(n - x + b) - g(n + a + b) - g(a) - g(b) + g(a + b))
        * math.exp(weigh(n, x, null, odds))
        for x in range(n + 1)
    )
    assert mean == pytest.approx(1)


def test_what_lasts_is_told_once_and_is_usual_after_a_day() -> None:
    watched = Watched()
    draw = random.Random(5)  # noqa: S311 - no secret

    def add(share: float) -> None:
        above = sum(draw.random() < share for _ in range(50))
        watched.add(Counts(50, (above, above // 10, 0)))

    for _ in range(400):
        add(0.1)
        assert not watched.is_due(10, 1.0)
    blocks = next(n for n in itertools.count(1) if add(0.8) or watched.is_due(10, 1.0))
    assert blocks <= 4
    watched.raise_alarm()
    for _ in range(NOTICING.adopted - 1):
        add(0.8)
        assert not watched.is_due(10, 1.0)
        assert not watched.is_adopted()
    add(0.8)
    assert watched.is_adopted()
    for _ in range(NOTICING.calm):
        assert not watched.is_over()
        add(0.05)
    assert watched.is_over()


# All kinds


class Given:
    """Requests of which it is said what is in each block."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.limits: dict[int, int] = {}

    def look_at_open(self, longest: int) -> None:
        """Nothing is done."""

    def set_limit(self, kind: int, ns: int) -> None:
        self.limits[kind] = ns

    def take_block(self) -> list[tuple[Any, ...]]:
        rows, self.rows = self.rows, []
        return rows


class Story:
    """Blocks of some kinds, as they go by."""

    def __init__(self, kinds: int = 6) -> None:
        self.draw = random.Random(11)  # noqa: S311 - no secret
        self.given, self.names = Given(), ["other", *(f"kind-{n}" for n in range(1, kinds + 1))]
        self.noticing = Noticing(self.given, self.names)  # type: ignore[arg-type]
        self.at = 0

    def go(self, blocks: int, slow: dict[int, float] | None = None, **more: Any) -> list[Any]:
        found = []
        for _ in range(blocks):
            self.at += BLOCK
            for kind in range(1, len(self.names)):
                level = (slow or {}).get(kind, 1.0)
                times = [round(level * self.draw.lognormvariate(15, 0.5)) for _ in range(40)]
                early, resets = more.get("early", {}), more.get("resets", {})
                if kind in early:
                    times = []
                self.given.rows.append(
                    (kind, len(times), sum(times), 0, resets.get(kind, 0), 0, 0, 0,
                     early.get(kind, 0), make_sketch(times))
                )  # fmt: skip
            found += self.noticing.end_block(self.at)
        return found


def test_one_kind_that_is_slower_is_named_with_before_and_after() -> None:
    story = Story()
    assert story.go(400) == []
    [one] = story.go(20, {3: 4.0})
    assert (one.how, one.kind, one.kinds, one.of) == (LONGER, "kind-3", 1, 6)
    assert one.since == 400 * BLOCK
    assert 3.3 < one.after / one.before < 4.8
    assert "p99 " in describe(one) or "p90 " in describe(one)
    assert story.go(30) == []  # it is over, and as usual again
    assert [one.kind for one in story.go(20, {3: 4.0})] == ["kind-3"]


def test_what_is_usual_outlives_its_recorder(tmp_path: Path, monkeypatch: Any) -> None:
    story = Story()
    story.go(400)
    now = [1e9]
    monkeypatch.setattr(noticing.time, "time", lambda: now[0])
    for live in (lived := Live(), Live()):
        live.requests = story.given  # type: ignore[assignment]
    before = RequestConditions(lived, [])  # type: ignore[arg-type]
    before.noticing = story.noticing
    before.keep(tmp_path / "usual.json")
    # Another recorder, whose kinds have other numbers.
    later = Story()
    later.names[:] = ["other", *reversed(story.names[1:])]
    after = RequestConditions(live, [])  # type: ignore[arg-type]
    live.kinds.find_named = later.names.index  # type: ignore[method-assign]
    now[0] += 3600
    after.noticing = later.noticing
    after.recall(tmp_path / "usual.json")
    assert {*later.noticing.kinds} == {*range(1, 7)}
    limits = [of.find_limit(0.25) for of in (story.noticing.kinds[3], later.noticing.kinds[4])]
    assert limits[0] == limits[1] > 0
    assert later.given.limits[4] == limits[0]
    assert later.go(30) == []
    assert [one.kind for one in later.go(20, {4: 4.0})] == ["kind-3"]
    # What is too old says nothing, nor does what is damaged.
    now[0] += 86_400
    for text in ("", "{}", '{"format": "critpath/usual-times/1", "at": 1e9}'):
        late = RequestConditions(live, [])  # type: ignore[arg-type]
        late.recall(tmp_path / "usual.json")
        (tmp_path / "usual.json").write_text(text)
        assert late.noticing.kinds == {}
    damaged = {"kind-1": [[1], [1], [], 1, 0], "kind-2": 7, "kind-4": [[], [5, 9, 0, 0], [], 1, 0]}
    late.noticing.recall(damaged, later.names.index)
    assert late.noticing.kinds == {}


def test_less_than_what_matters_is_not_told() -> None:
    story = Story()
    story.go(400)
    assert story.go(40, {3: 1.1}) == []


def test_all_kinds_at_once_are_the_machines_and_told_once() -> None:
    story = Story()
    story.go(400)
    [one] = story.go(40, dict.fromkeys(range(1, 7), 3.0))
    assert (one.how, one.of) == (MACHINE, 6)
    assert one.kinds >= 4
    assert f"as are {one.kinds} of 6 kinds" in describe(one)


def test_requests_that_are_not_answered_at_all_are_slow() -> None:
    story = Story()
    story.go(400)
    assert story.given.limits[2] > 0
    [one] = story.go(6, early={2: 5})
    assert (one.how, one.kind) == (LONGER, "kind-2")


def test_resets_are_a_signal_of_their_own() -> None:
    story = Story()
    story.go(400)
    [one] = story.go(6, resets={4: 20})
    assert (one.how, one.kind, one.quantile) == (RESETS, "kind-4", 0)
    assert one.after == pytest.approx(1 / 3)
    assert describe(one).startswith("resets ")


def test_a_change_that_lasts_a_day_is_usual() -> None:
    story = Story(2)
    story.go(400)
    assert [one.how for one in story.go(20, {1: 4.0})] == [LONGER]
    of = story.noticing.kinds[1].watched
    of.alarmed = NOTICING.adopted  # nearly a day goes by
    assert [one.how for one in story.go(1, {1: 4.0})] == [ADOPTED]
    assert story.go(400, {1: 4.0}) == []


def test_kinds_without_requests_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noticing, "_IDLE", 20)
    story = Story()
    story.go(5)
    for _ in range(21):
        story.at += BLOCK
        story.noticing.end_block(story.at)
    assert story.noticing.kinds == {}


# Conditions


class Followed:
    """Counts of one kind, as they are said to be."""

    def __init__(self) -> None:
        self.many = self.longer = self.open = 0
        self.worst = (0, 0)

    def count_longer(self, kind: int, limit: int) -> tuple[int, int]:
        return self.many, self.longer

    def count_open(self, kind: int, limit: int) -> int:
        return self.open

    def take_worst(self, kind: int) -> tuple[int, int]:
        found, self.worst = self.worst, (0, 0)
        return found

    def look_at_open(self, longest: int) -> None:
        """Nothing is open."""

    def take_block(self) -> list[Any]:
        return []


def seconds(window: Window, of: Followed, steps: list[tuple[int, int]]) -> Iterator[str]:
    for at, (many, longer) in enumerate(steps):
        of.many, of.longer = of.many + many, of.longer + longer
        yield window.look(1, at * NS_PER_S)


def test_a_percentile_over_some_time() -> None:
    of = Followed()
    window = Window(of, Condition.parse("latency web:80 p99 > 250ms over 3s"))  # type: ignore[arg-type]
    found = [*seconds(window, of, [(100, 0)] * 5 + [(100, 2), (100, 2)] + [(100, 0)] * 5)]
    assert [at for at, text in enumerate(found) if text] == [6]  # told when it begins, and once
    assert found[6] == "4 of 300 longer"
    of.open = 50  # nothing is answered any more
    assert window.look(1, 13 * NS_PER_S)


def test_a_rate_that_falls_to_nothing() -> None:
    of = Followed()
    window = Window(of, Condition.parse("rate web:80 < 5/s over 3s"))  # type: ignore[arg-type]
    found = [*seconds(window, of, [(10, 0)] * 5 + [(0, 0)] * 6 + [(10, 0)] * 4 + [(0, 0)] * 3)]
    assert [text for text in found if text] == ["3.33/s", "3.33/s"]


class Live:
    def __init__(self) -> None:
        self.requests, self.kinds = Followed(), Kinds(lambda _: None)
        self.kinds.names = ["other", "web:80", "web:80 (pod shop/web-*)", "db:5432"]

    def end_block(self) -> None: ...


def test_each_request_that_is_too_long_is_told_also_before_it_is_answered() -> None:
    live = Live()
    words = [Condition.parse(text) for text in ("latency web:80 > 250ms", "loss")]
    conditions = RequestConditions(live, words)  # type: ignore[arg-type]
    assert [*conditions.look(1)] == []
    live.requests.worst = (300_000_000, 7)
    [one] = conditions.look(2)
    assert (one.kind, one.value, one.id) == ("web:80", "300 ms", "7")
    assert [*conditions.look(3)] == []
    live.requests.open = 1
    found = [*conditions.look(4)]
    assert [one.kind for one in found] == ["web:80", "web:80 (pod shop/web-*)"]
    assert {one.value for one in found} == {"not answered yet"}


# What kinds are called


def test_kinds_are_named_after_the_process_its_port_and_its_container(tmp_path: Any) -> None:
    def process(pid: int, comm: str, group: str, *tids: int) -> None:
        for tid in (pid, *tids):
            place = tmp_path / "proc" / str(tid)
            place.mkdir(parents=True)
            (place / "status").write_text(
                f"Name:\t{comm}\nUmask:\t0022\nTgid:\t{pid}\nPid:\t{tid}\n"
            )
            (place / "comm").write_text(f"{comm}\n")
            (place / "cgroup").write_text(f"0::{group}\n")

    process(7, "worker-3", "/", 8)
    process(9, "web\x1b[2J", "/lxc/shop")
    kinds = Kinds(Processes(tmp_path).find, most=3)
    assert kinds.find(8, 80, 2, 0) == kinds.find(7, 80, 2, 0) == 1
    assert kinds.find(9, 80, 2, 0) == 2
    assert kinds.names[1] == "worker:80"
    assert kinds.names[2].endswith(":80 (container shop)")
    assert "\x1b" not in kinds.names[2]
    # Of one that is gone another's at its port; what a process says to itself is no request.
    assert kinds.find(99, 80, 2, 0) == 2
    assert kinds.find(99, 81, 2, 0) == 0
    assert kinds.find(7, 0, 1, 8) == -1
    assert kinds.find(7, 0, 1, 9) == 3
    assert kinds.names[3] == "worker:unix"
    assert kinds.find(7, 90, 2, 0) == 0
    kinds.free([2])
    assert kinds.find(7, 90, 2, 0) == 2
    assert kinds.names == ["other", "worker:80", "worker:90", "worker:unix"]
    assert kinds.list_named("worker:90") == [2]


def test_what_a_level_comes_to_by_itself_is_no_news() -> None:
    level = Level()
    draw = random.Random(3)  # noqa: S311 - no secret
    for _ in range(500):
        level.now = draw.gauss(0, 0.1)
        level.add(over=False, told=False)
    calm = level.find_bar(12, 1.0)
    assert 0.3 < calm < 0.5
    # It rose, and fell again: as much is seen by itself. As long as it lasts it is not.
    for _ in range(5):
        level.now = 1.0
        level.add(over=True, told=False)
    assert level.find_bar(12, 1.0) < 0.6
    level.now = 0.0
    level.add(over=False, told=False)
    assert level.find_bar(12, 1.0) == pytest.approx(1.0 + NOTICING.beyond)
    # What was told was none, and a day later nothing is left of it.
    level.now = 3.0
    level.add(over=True, told=True)
    for _ in range(NOTICING.adopted):
        level.now = draw.gauss(0, 0.1)
        level.add(over=False, told=False)
    assert level.find_bar(12, 1.0) < 0.6
