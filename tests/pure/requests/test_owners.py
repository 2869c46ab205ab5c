"""Who works for whom: drawings, the native pass against its plain twin, and what always holds."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.model import Workers
from critpath.model.requests import (
    Act,
    Activity,
    Certainty,
    Endpoints,
    RequestTable,
    Rule,
    Subrequests,
)
from critpath.requests import owners as owning
from critpath.schema.parameters.requests import OWNERS

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def drawing(load: Any) -> ModuleType:
    return load("pure/requests/drawing.py")


@pytest.fixture(scope="module")
def simulate(load: Any) -> ModuleType:
    return load("pure/requests/simulate.py")


@pytest.fixture(scope="module")
def plain(load: Any) -> ModuleType:
    return load("oracle/owners.py")


def test_drawings(drawing: ModuleType) -> None:
    drawings = list(drawing.read_drawings(HERE / "drawings" / "owners.txt"))
    assert len(drawings) >= 60
    for each in drawings:
        tables = drawing.draw(each)
        found = owning.find_owners(*tables.arguments)
        subs = drawing.found_subs(tables, found.subrequests)
        assert {n: subs[n] for n in each.subs} == each.subs, each.title
        if not each.slices:
            continue
        slices = found.slices
        got = {
            (int(t), int(b), int(e), tables.numbers[r] if r >= 0 else "*", Rule(h))
            for t, b, e, r, h in zip(
                *(slices.tid, slices.begin_ns, slices.end_ns, slices.request, slices.how),
                strict=True,
            )
        }
        for line in each.slices:
            name, begin, end, request, how = line.split()
            last = end.endswith("+")  # the last of several
            of = name if ":" not in end else end.partition(":")[0]
            times = [t for w, t in each.lines[of] if w == end.rpartition(":")[2].rstrip("+")]
            want = (
                tables.tids[name],
                each.time(name, begin),
                times[-1] if last else times[0],
                request,
                Rule[how.upper().replace("-", "_")],
            )
            assert want in got, (each.title, line, sorted(got))
        for name in {line.split()[0] for line in each.slices}:
            of_thread = sum(line.startswith(f"{name} ") for line in each.slices)
            assert of_thread == sum(g[0] == tables.tids[name] for g in got), each.title


def run_twin(
    plain: ModuleType, made: Any, lead: np.ndarray, learned: Any, given: np.ndarray
) -> Any:
    """Make the twin's pass over the numbers that the native one gets."""
    loops = np.flatnonzero(made.loops)
    pids = dict(zip(made.workers.tid.tolist(), made.workers.pid.tolist(), strict=True))
    root = np.full(len(made.at), -1) if learned is None else learned.root
    requests = [
        plain.Request(
            *(i, *map(int, made.times[i]), int(made.reader[i]), int(made.service[i])),
            pids.get(int(client) & 0xFFFFFFFF, int(client) & 0xFFFFFFFF) if client >= 0 else -1,
        )
        for i, client in enumerate(made._find_clients())
    ]
    for request, node in zip(requests, root.tolist(), strict=True):
        request.root = request.node = node
    table = made.subrequests
    subs = [
        plain.Sub(i, *map(int, row), connects=bool(c), open=not c)
        for i, (row, c) in enumerate(
            zip(
                np.column_stack([table.begin_ns, table.end_ns, table.endpoint, made.asked]),
                table.connects,
                strict=True,
            )
        )
    ]
    turns: dict[int, list[int]] = {}
    order = np.lexsort((np.concatenate([made.times[:, 0], table.begin_ns]),))
    for row in order.tolist():
        own = row < len(made.at)
        endpoint = made.at[row] if own else table.endpoint[row - len(made.at)]
        turns.setdefault(int(endpoint), []).append(row if own else row - len(made.at))
    answerers = {
        int(t)
        for t, r in zip(
            made._number(
                owning.thread_keys(made.endpoints.host[made.requests.endpoint], made.requests.tid)
            ),
            made.reader,
            strict=False,
        )
        if t != r
    }
    threads = [
        plain.Thread(
            loop=i in loops,
            answers=i in answerers,
            process=pids.get(int(k) & 0xFFFFFFFF, -int(k)),
            lead=int(lead[i]),
        )
        for i, k in enumerate(made.keys)
    ]
    twin = plain.Owners(
        requests, subs, threads, turns, (made.endpoints.serves == 1).tolist(),
        *((), ()) if learned is None else (learned.child.tolist(), learned.may.tolist()),
        given.tolist(),
    )  # fmt: skip
    activity = made.activity
    columns = (activity.time_ns, activity.act, made.thread, activity.endpoint, made.woken)
    twin.run(zip(*(c.tolist() for c in columns), strict=True))
    return twin


def check_twin(plain: ModuleType, arguments: tuple[Any, ...], lead: int, *, learn: bool) -> None:
    """Compare every figure of the native pass with the twin's."""
    made = owning._Attribution(*arguments)
    leads = np.full(len(made.keys), lead, np.int32)
    owners = made._run(leads)
    learned = made._learn(owners) if learn else None
    given = np.full(len(owners), -1, np.int32)
    given[::3] = owners[::3, 0]
    owners = made._run(leads, learned, given)
    twin = run_twin(plain, made, leads, learned, given)
    wanted = [[s.owner, s.how, s.sure, s.departure] for s in twin.subs]
    np.testing.assert_array_equal(owners, np.array(wanted).reshape(-1, 4))
    slices = [
        [s.thread, s.begin, s.end, s.request, s.unanswered, s.how, s.sure, s.kind]
        for s in twin.slices
    ]
    np.testing.assert_array_equal(made.native.take_slices(), np.array(slices).reshape(-1, 8))
    np.testing.assert_array_equal(
        made.native.take_heals(), np.array(twin.heals, np.int64).reshape(-1, 4)
    )
    receives, closed = made.native.take_steps()
    assert receives.sum() == sum(twin.steps.values())
    assert closed.sum() == sum(twin.closed.values())


def test_twin_on_servers(simulate: ModuleType, drawing: ModuleType, plain: ModuleType) -> None:
    for number, name in enumerate(simulate.CLASSES):
        world = simulate.simulate(name, (3, 16)[number % 2], 60, number)
        check_twin(plain, simulate.arguments(world, drawing), number % 3, learn=number % 2 == 0)


ROWS = st.lists(
    st.tuples(st.sampled_from("RSEsrzwc"), st.integers(0, 3), st.integers(0, 3)), max_size=60
)


@given(ROWS, st.integers(0, 2), st.booleans())
def test_twin_on_anything(
    drawing: ModuleType, plain: ModuleType, rows: list[tuple[str, int, int]], lead: int, learn: bool
) -> None:
    tables = anything(drawing, rows)
    if tables is not None:
        check_twin(plain, tables.arguments, lead, learn=learn)
        check_invariants(tables.arguments)


def anything(drawing: ModuleType, rows: list[tuple[str, int, int]]) -> Any:
    """Return the tables of threads that do these things, one after another."""
    made = drawing.Drawing("anything")
    made.lines = {f"t{i}": [] for i in range(4)} | {"net": []}
    numbers, state, late = [0] * 4, [""] * 4, [""] * 4  # late: of which a send goes on
    asked, open_calls = [0] * 4, [False] * 4
    for k, (what, thread, other) in enumerate(rows):
        line, time = made.lines[f"t{thread}"], 1000 * (k + 1)
        name, turn = "abcd"[other], f"{other}.{numbers[other]}"
        if what == "R":
            if state[other] in {"S", "E"} or not numbers[other]:
                numbers[other] += 1
            late[other] = turn if state[other] == "E" else late[other]
            state[other] = "R"
            line.append((f"R{other}.{numbers[other]}", time))
        elif what == "S" and late[other]:
            line.append((f"S{late[other]}", time))
            late[other] = ""
        elif what == "S" and state[other]:
            state[other] = "S"
            line.append((f"S{turn}", time))
        elif what == "E" and state[other] == "R" and not late[other]:
            # The answer has arrived, and the next request, before the call ends that sends it.
            state[other] = "E"
            line.append((f"E{turn}", time))
            made.lines["net"].append((f"A{other}.{numbers[other] + 1}", time + 500))
        elif what == "s":
            if not open_calls[other]:
                asked[other] += 1
            open_calls[other] = True
            line.append((f"s{name}{asked[other]}", time))
        elif what == "r" and open_calls[other]:
            open_calls[other] = False
            line.append((f"r{name}{asked[other]}", time))
        elif what == "z":
            line.append(("z", time))
        elif what == "w" and thread != other:
            line.append((f"!t{other}", time))
    if not any(word[0] == "S" for line in made.lines.values() for word, _ in line):
        return None
    return drawing.draw(made)


def check_invariants(arguments: tuple[Any, ...]) -> None:
    """Check what holds of any recording: section 15 of the specification."""
    activity, _, _, requests, _ = arguments
    found = owning.find_owners(*arguments)
    slices, subs = found.slices, found.subrequests
    for tid in np.unique(slices.tid):
        mine = slices.tid == tid
        assert (slices.begin_ns[mine][1:] >= slices.end_ns[mine][:-1]).all()
    of = slices.request >= 0
    assert (slices.begin_ns[of] >= requests.begin_ns[slices.request[of]]).all()
    assert (slices.end_ns[of] <= requests.end_ns[slices.request[of]]).all()
    assert (slices.run_ns >= 0).all()
    assert (slices.idle_ns >= 0).all()
    assert (slices.run_ns + slices.idle_ns == slices.end_ns - slices.begin_ns).all()
    assert (np.diff(slices.begin_ns) >= 0).all()
    asks = subs.request >= 0
    assert (subs.begin_ns[asks] >= requests.begin_ns[subs.request[asks]]).all()
    assert (subs.how[~asks] == Rule.NONE).all()
    assert (subs.attribution[~asks] == Certainty.DOUBTFUL).all()
    assert len(activity) >= len(subs)


def test_invariants_on_servers(simulate: ModuleType, drawing: ModuleType) -> None:
    for number, name in enumerate(simulate.CLASSES):
        world = simulate.simulate(name, 16, 100, 100 + number)
        check_invariants(simulate.arguments(world, drawing))


def test_of_nothing_nothing_is_found(drawing: ModuleType) -> None:
    """No activity and no requests, but what somebody asked whom nobody saw act."""
    for asked in (0, 1):
        endpoints = drawing.fill(Endpoints, asked, host=np.zeros(asked), serves=np.zeros(asked))
        subs = drawing.fill(
            Subrequests, asked, endpoint=np.zeros(asked), begin_ns=np.ones(asked),
            end_ns=np.full(asked, 5), tid=np.ones(asked), connects=np.zeros(asked),
        )  # fmt: skip
        activity, workers = drawing.fill(Activity, 0), drawing.fill(Workers, 0)
        requests = drawing.fill(RequestTable, 0, strings=("",))
        found = owning.find_owners(activity, workers, endpoints, requests, subs)
        assert (found.subrequests.request == -1).all()
        assert not len(found.slices)


def test_who_is_not_received_yet_does_not_ask(simulate: ModuleType, drawing: ModuleType) -> None:
    """Two requests that are exchanged: what one asked before the other came stays its own."""
    world = simulate.simulate("loop, pooled (asyncio)", 4, 40, 1)
    of = owning._Attribution(*simulate.arguments(world, drawing))
    every = np.zeros(len(of.keys), np.int32)
    before = of._run(every)[:, 0]
    last = np.full(len(of.subrequests), len(world.requests) - 1, np.int32)
    owner = of._run(every, None, last)[:, 0]
    late = of.times[last[0], 1] >= of.subrequests.begin_ns
    assert late.sum() > len(late) / 2
    assert (owner[late] == before[late]).all()


@pytest.mark.parametrize(("share", "followed"), [(8, True), (2, False)])
def test_what_most_contradict_is_not_followed(
    simulate: ModuleType, drawing: ModuleType, monkeypatch: Any, share: int, followed: bool
) -> None:
    """How a loop goes round is believed while few requests contradict it."""
    world = simulate.simulate("loop, pooled (asyncio)", 4, 80, 1)
    of = owning._Attribution(*simulate.arguments(world, drawing))
    lead = np.zeros(len(of.keys), np.int32)
    owners = of._run(lead)
    [loop] = np.flatnonzero(of.loops)
    against = np.array([[1, loop, row, row] for row in range(80 // share)])
    monkeypatch.setattr(of, "_follow_rounds", lambda _, mine: (owners[mine, 0], against))
    of._try_pools(owners, lead, None)
    assert of.followed[loop] == followed


def test_a_small_loop_seen_from_both_ends_stays_doubtful(
    simulate: ModuleType, drawing: ModuleType
) -> None:
    """Too few requests to say what is usual, but enough to say that no order held."""
    world = simulate.simulate("loop, pooled (asyncio)", 4, OWNERS.few - 1, 1)
    of = owning._Attribution(*simulate.arguments(world, drawing))
    owners = of._run(np.zeros(len(of.keys), np.int32))
    assert owners[:, 1].tolist().count(Rule.ORDER) > 3
    of.by_ends |= of.loops
    subs = of._make_tables(owners).subrequests
    assert (subs.attribution[subs.how == Rule.ORDER] == Certainty.DOUBTFUL).all()


def test_a_loop_that_works_at_once_has_slices_of_its_own(
    simulate: ModuleType, drawing: ModuleType
) -> None:
    world = simulate.simulate("direct loop, pooled (Node)", 16, 200, 1)
    slices = owning.find_owners(*simulate.arguments(world, drawing)).slices
    steps = slices.request >= 0
    assert steps.sum() > 390  # two of each request
    assert simulate.count_work(world, slices) == pytest.approx((1.0, 0.0), abs=0.001)


def test_nobody_guesses_what_a_queue_of_callbacks_runs(
    simulate: ModuleType, drawing: ModuleType
) -> None:
    world = simulate.simulate("loop, pooled (asyncio)", 16, 200, 1)
    found = owning.find_owners(*simulate.arguments(world, drawing))
    own, other = simulate.count_work(world, found.slices)
    assert other < 0.001
    assert own < 0.05
    shared = found.slices.request < 0
    assert found.slices.unanswered[shared].max() > 8
    assert (found.subrequests.request == world.owner).all()


def test_who_waits_for_a_connection_is_overtaken(simulate: ModuleType, drawing: ModuleType) -> None:
    """Three connections for all: the order of receives alone tells who has them."""
    for clients in (4, 16, 64):
        world = simulate.simulate("loop, a pool of 3 (asyncio)", clients, 150, clients)
        subs = owning.find_owners(*simulate.arguments(world, drawing)).subrequests
        assert (subs.request == world.owner).all()
        assert (subs.attribution <= Certainty.LIKELY).all()
        assert (subs.attribution == Certainty.LIKELY).sum() > 290


def test_what_helpers_do_is_followed_where_nothing_contradicts_the_order(
    simulate: ModuleType, drawing: ModuleType
) -> None:
    """What is called likely is right; a contradiction makes all of a loop with helpers doubtful."""
    likely = 0
    for seed in range(60):
        world = simulate.simulate("loop, two helpers between 2 calls", 4, 12, seed)
        of = owning._Attribution(*simulate.arguments(world, drawing))
        subs = of.find().subrequests
        sure = subs.attribution == Certainty.LIKELY
        assert (subs.request == world.owner)[sure].all(), seed
        assert not (len(of.broken) and sure.any()), seed
        likely += int(sure.sum())
    assert likely > 400


def test_where_work_goes_from_thread_to_thread_only_one_request_alone_is_sure(
    drawing: ModuleType,
) -> None:
    """Two threads go on for each other, as goroutines do; every other turn has one request."""
    made = drawing.Drawing("goroutines")
    made.lines = {"p.x": [], "p.y": []}
    one, other = made.lines.values()
    for turn in range(1, 21):
        at, a, b = 20_000 * turn, f"{100 * turn}", f"{100 * turn + 10}"
        both = turn % 2 == 0
        one += [(f"R{a}", at), (f"sa{turn}", at + 2000), (f"S{a}", at + 9000)]
        other += [(f"R{b}", at + 1000)] if both else []
        # Whose it is: that of the request which the other thread received.
        other += [(f"sb{turn}", at + 3000)] if both else []
        other += [(f"ra{turn}", at + 5000)]
        one += [(f"rb{turn}", at + 6000)] if both else []
        other += [(f"S{b}", at + 8000)] if both else []
    for line in (one, other):
        line.sort(key=lambda word: word[1])
    tables = drawing.draw(made)
    found = owning.find_owners(*tables.arguments)
    owner = drawing.found_subs(tables, found.subrequests)
    for turn in range(1, 21):
        if turn % 2:
            assert owner[f"a{turn}"] == f"{100 * turn} alone certain"
        else:
            assert owner[f"a{turn}"].split()[-1] in {"doubtful", "-"}
            assert owner[f"b{turn}"].split()[-1] in {"doubtful", "-"}
    sure = found.slices.attribution == Certainty.CERTAIN
    numbers = {tables.numbers[row] for row in found.slices.request[sure].tolist()}
    assert numbers
    assert all(int(number) // 100 % 2 for number in numbers)


def test_run_and_cpus(drawing: ModuleType) -> None:
    [each] = [
        d
        for d in drawing.read_drawings(HERE / "drawings" / "owners.txt")
        if d.title.startswith("own: a sleep for a lock")
    ]
    tables = drawing.draw(each)
    slices = owning.find_owners(*tables.arguments).slices
    [row] = np.flatnonzero(slices.request == 0)
    slept, woken = each.time("w1", "z"), each.time("net", "!w1") + 1
    assert slices.idle_ns[row] == woken - slept
    assert slices.cpus[row] == 1
    assert Act.RUN in tables.activity.act


def test_what_is_sent_twice_at_one_time_is_asked_once(
    simulate: ModuleType, drawing: ModuleType
) -> None:
    """Two calls within a tick of the clock; a list of what is pending went round for ever."""
    for name in simulate.CLASSES:
        world = simulate.simulate(name, 4, 40, 1)
        activity, *others = simulate.arguments(world, drawing)
        rows = np.repeat(np.arange(len(activity)), 1 + (activity.act == Act.SEND))
        twice = owning.find_owners(activity.take(rows), *others)
        once = owning.find_owners(activity, *others)
        same = twice.subrequests.request == once.subrequests.request
        assert same.sum() >= 0.9 * len(same), name
