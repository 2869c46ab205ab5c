"""Slices without a network: signals, two hosts, losses, and what kind descriptors are."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_implicit import make_activity, make_calls

from critpath.model import Loss, Workers
from critpath.model.requests import MARKERS, Act
from critpath.requests import implicit

PROCESSES = {1: 1, 2: 1, 3: 1, 4: 4, 5: 4}
ACTS = (*[Act.SLEEP, Act.WAKE, Act.RUN] * 3, Act.CREATE, Act.EXIT, Act.RECEIVE, Act.PREEMPT)


@pytest.fixture(scope="module")
def drawing(load: Any) -> ModuleType:
    return load("pure/requests/drawing.py")


def draw_rows(seed: int, many: int = 60) -> list[tuple[int, Act, int, int, int]]:
    """Return what threads do, one thing at a time."""
    rng = np.random.default_rng(seed)
    rows = []
    for at in range(many):
        act = ACTS[int(rng.integers(0, len(ACTS)))]
        about = act in {Act.WAKE, Act.CREATE}
        tid = int(rng.choice([-1, 1, 2, 3, 4, 5] if act == Act.WAKE else [1, 2, 3, 4, 5]))
        value = int(rng.integers(1, 6)) if about else 0
        rows.append(
            (10 * at, act, tid, int(rng.integers(0, 3)) if act == Act.RECEIVE else -1, value)
        )
    return rows


def columns_of(found: Any) -> list[tuple[int, ...]]:
    columns = (found.host, found.tid, found.begin_ns, found.end_ns, found.parent)
    return list(zip(*(c.tolist() for c in columns), strict=True))


def list_calls(seed: int, many: int = 40) -> list[tuple[int, int, str, bool, int]]:
    """Return calls of threads, and signals, between what they do."""
    rng = np.random.default_rng(seed)
    rows = []
    for at in range(many):
        tid = int(rng.integers(1, 6))
        name = str(rng.choice(["futex", "read", "write", "signal_deliver", "signal_generate"]))
        if name == "signal_generate":
            rows.append((13 * at + 1, tid, name, True, int(rng.integers(1, 6))))
        elif name == "signal_deliver":
            rows.append((13 * at + 1, tid, name, True, 10))
        else:
            about = int(rng.choice([8, 12, 16])) if name == "futex" else int(rng.integers(3, 6))
            rows.append((13 * at + 1, tid, name, bool(rng.random() < 0.6), about))
    return rows


def find(drawing: ModuleType, rows: Any, marker: str, calls: Any = None, **more: Any) -> Any:
    table = make_calls(calls) if calls else None
    activity = rows if hasattr(rows, "act") else make_activity(rows)
    return implicit.find_slices(
        activity, more.pop("workers", drawing.workers_of(PROCESSES)), marker, table, **more
    )


@pytest.mark.parametrize("marker", ["wake", "fork", "futex", "pipe", "eventfd", "unix", "signal"])
def test_hosts_whose_threads_have_the_same_ids_are_apart(drawing: ModuleType, marker: str) -> None:
    """What two hosts do at once comes to what each of them does alone."""
    some = 0
    for seed in range(8):
        alone, tables = [], []
        for host in (0, 1):
            rows, calls = draw_rows(2 * seed + host, 150), list_calls(2 * seed + host, 110)
            families = np.array([implicit.UNIX, 2, implicit.UNIX])
            found = find(drawing, rows, marker, calls, families=families)
            alone += [(host, *row[1:4]) for row in columns_of(found)]
            tables.append((make_activity(rows), make_calls(calls)))
        names = tuple(sorted({n for _, calls in tables for n in calls.names}))
        acts: dict[str, Any] = {
            name: np.concatenate([getattr(of, name) for of, _ in tables])
            for name in ("time_ns", "act", "tid", "host", "endpoint", "value")
        }
        acts["host"] = np.repeat([0, 1], [len(of) for of, _ in tables]).astype(np.int32)
        order = np.argsort(acts["time_ns"], kind="stable")
        activity = type(tables[0][0])(**{name: column[order] for name, column in acts.items()})
        call = np.concatenate(
            [np.array([names.index(n) for n in of.names])[of.call] for _, of in tables]
        )
        host = np.repeat([0, 1], [len(of.tid) for _, of in tables])
        columns = [
            np.concatenate([getattr(of, n) for _, of in tables])
            for n in ("time_ns", "tid", "begins", "value")
        ]
        by = np.argsort(columns[0], kind="stable")
        time, tid, begins, value = (column[by] for column in columns)
        calls = implicit.Calls(time, host[by], tid, call[by], begins, value, names)
        one = drawing.workers_of(PROCESSES)
        twice: dict[str, Any] = {
            n: np.concatenate([getattr(one, n)] * 2) for n in Workers.__annotations__
        }
        twice["host"] = np.repeat(np.array([0, 1], np.int64), len(one.tid))
        found = implicit.find_slices(
            activity, Workers(**twice), marker, calls, np.array([implicit.UNIX, 2, implicit.UNIX])
        )
        assert sorted(row[:4] for row in columns_of(found)) == sorted(alone)
        parents = found.parent[found.parent >= 0]
        assert (found.host[parents] == found.host[found.parent >= 0]).all()
        some += len(alone)
    assert some > (5 if marker not in {"pipe", "eventfd"} else -1)


@pytest.mark.parametrize("seed", range(25))
def test_signals_as_the_plain_twin(drawing: ModuleType, seed: int) -> None:
    """From a signal's arrival to the next sleep or exit; the first of several before it."""
    rows, calls = draw_rows(300 + seed), list_calls(300 + seed)
    found = find(drawing, rows, "signal", calls)
    made: dict[tuple[int, int], list[Any]] = {}
    cut = set()
    for time, tid, name, _, _ in calls:
        if name != "signal_deliver":
            continue
        ends = [t for t, a, of, *_ in rows if of == tid and t >= time
                and a in {Act.SLEEP, Act.EXIT}]  # fmt: skip
        if not ends:
            cut.add(tid)
            continue

        def sent(to: int, until: int = time) -> list[tuple[int, int]]:
            return [(t, by) for t, by, n, _, about in calls
                    if n == "signal_generate" and about == to and t <= until]  # fmt: skip

        known = sent(tid) or sent(PROCESSES[tid])
        when, by = known[-1] if known else (time, 0)
        made.setdefault((tid, ends[0]), [time, ends[0], tid, by, when])
    slices = sorted(made.values(), key=lambda s: (s[0], s[2], s[1]))
    slices = [s for s in slices if s[1] > s[0]]
    assert [row[1:4] for row in columns_of(found)] == [(s[2], s[0], s[1]) for s in slices]
    assert {tid for _, tid, _ in found.incomplete.tolist()} == cut
    for at, (_, _, _, by, when) in enumerate(slices):
        above = [n for n, s in enumerate(slices[:at]) if s[2] == by and s[0] <= when <= s[1]]
        assert found.parent[at] == (above[-1] if above else -1)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_received_first_after_a_sleep_is_what_it_was_for(
    drawing: ModuleType, seed: int
) -> None:
    """Of all that a thread receives until it sleeps again; if it is of a wanted endpoint."""
    workers = drawing.workers_of(PROCESSES)
    threads = implicit._Threads(make_activity(draw_rows(seed, 600)), workers)
    wanted = np.array([0, 2])
    of, chosen = threads.receive_on(wanted)
    sleeps = threads.sleep.tolist()
    some = 0
    for number, sleep in enumerate(sleeps):
        until = sleeps[number + 1] if number + 1 < len(sleeps) else len(threads.act)
        receives = [
            at for at in range(sleep, until)
            if threads.act[at] == Act.RECEIVE and threads.life[at] == threads.life[sleep]
        ]  # fmt: skip
        mine = [at for at in receives if threads.endpoint[at] in wanted]
        assert of[number] == (threads.endpoint[mine[0]] if mine else -1)
        first = bool(mine) and mine[0] == receives[0]
        assert chosen[number] == (first and threads.woken_by_thread[number])
        some += bool(chosen[number])
    assert some


@pytest.mark.parametrize("marker", ["wake", "fork"])
def test_what_a_loss_touches_is_left_out_and_counted(drawing: ModuleType, marker: str) -> None:
    for seed in range(10):
        rows = draw_rows(seed)
        whole = columns_of(find(drawing, rows, marker))
        for begin, end, host in ((100, 140, 0), (200, 200, 0), (100, 300, 1)):
            losses = [Loss(begin, end, host, 0, 1, 0, "discarded")]
            found = find(drawing, rows, marker, losses=losses)
            kept = [
                row for row in whole
                if host != 0 or row[2] > end or row[3] < begin
            ]  # fmt: skip
            assert [row[:4] for row in columns_of(found)] == [row[:4] for row in kept]
            lost = len(whole) - len(kept)
            assert found.lost == lost
            # Who was begun by what is left out has no cause any more.
            place = {whole.index(row): at for at, row in enumerate(kept)}
            assert found.parent.tolist() == [place.get(row[4], -1) for row in kept]


def test_the_last_of_a_threads_moments() -> None:
    rng = np.random.default_rng(3)
    for many in (0, 1, 2, 9, 30):
        keys, times = rng.integers(0, 3, many), np.sort(rng.integers(0, 20, many))
        key, time = (each.reshape(-1) - 1 for each in np.indices((5, 24)))
        want = []
        for of, at in zip(key.tolist(), time.tolist(), strict=True):
            rows = [n for n in range(many) if keys[n] == of and times[n] <= at]
            want.append(max(rows, key=lambda n: (times[n], n)) if rows else -1)
        assert implicit._last_before(keys, times, key, time).tolist() == want


@pytest.mark.parametrize("seed", range(20))
def test_the_slice_that_began_another(seed: int) -> None:
    """The last begun of whose time it was; not one that begins later itself."""
    rng = np.random.default_rng(seed)
    many = 14
    begin = np.sort(rng.integers(0, 40, many))
    end = begin + rng.integers(1, 25, many)
    key, by = rng.integers(1, 4, many), rng.integers(0, 4, many)
    sent = np.maximum(begin - rng.integers(0, 6, many), 0)
    found = implicit._find_parents(key, begin, end, by, sent).tolist()
    for at, got in enumerate(found):
        could = [
            n for n in range(many)
            if key[n] == by[at] and begin[n] <= sent[at]
        ]  # fmt: skip
        could.sort(key=lambda n: (begin[n], n))
        fits = [n for n in could[-implicit._DEEPEST :] if n < at and end[n] >= sent[at]]
        assert got == (fits[-1] if fits else -1)


def test_first_causes() -> None:
    for parent, want in (
        ([], []), ([-1], [0]), ([-1, 0, 1, 2, 3], [0] * 5),
        ([-1, -1, 0, 1, 3, 2], [0, 1, 0, 1, 1, 0]),
    ):  # fmt: skip
        zeros = np.zeros(len(parent), np.int64)
        slices = implicit.ImplicitSlices(
            zeros, zeros, zeros + np.arange(len(parent)), zeros, np.array(parent, np.int64),
            np.zeros((0, 2), np.int64),
        )  # fmt: skip
        assert slices.root.tolist() == want
        told = slices.link_columns()
        caused = [n for n, of in enumerate(parent) if of >= 0]
        assert told["to_slice"].values.tolist() == caused
        assert told["from_slice"].values.tolist() == [parent[n] for n in caused]
        assert told["sent_ns"].values.tolist() == caused


DESCRIPTORS = (
    *("socket", "openat", "timerfd_create", "eventfd2", "eventfd"),  # their result
    *("connect", "recvfrom"),  # what they name
    "close",
)


@pytest.mark.parametrize("call", DESCRIPTORS)
@pytest.mark.parametrize("where", ["own", "parent", "other process", "other number", "later"])
def test_what_kind_a_descriptor_is(call: str, where: str) -> None:
    """By the last call that made or used it, in its process or in whose descriptors it has."""
    tid, number, time = 1, 5, 10
    if where == "parent":
        tid = 2
    elif where == "other process":
        tid = 3
    elif where == "other number":
        number = 6
    elif where == "later":
        time = 99
    begins = call in {"connect", "recvfrom", "close"}
    before = (1, tid, "openat", False, number)  # an older call counts no longer
    calls = make_calls([before, (time, tid, call, begins, number), (100, 9, "read", True, 1)])
    threads = SimpleNamespace(
        process=lambda key: key, since=np.array([50]), _creators={1: 2}, sleep=np.zeros(1)
    )
    key, of = np.array([1]), np.array([5])
    seen = where in {"own", "parent"}
    last = call if seen else "openat" if where == "later" else ""
    for marker in ("pipe", "eventfd"):
        found = implicit._Threads._is_kind(threads, marker, calls, key, of)
        relevant = {n for n, _ in MARKERS[marker].others}
        its = last if last in relevant else "openat" if seen and "openat" in relevant else ""
        if its == "close":
            its = ""
        want = its.startswith("eventfd") if marker == "eventfd" else not its
        assert found.tolist() == [want]
