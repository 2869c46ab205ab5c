"""Turns and what they are called, row by row; and what drawn recordings come to, in whole."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from critpath.model import EventChunk, EventClass, Kind, Loss, Workers
from critpath.model.gaps import BASE, make_gaps
from critpath.model.requests import Act, Activity, Certainty, Collected
from critpath.requests import activity as collecting
from critpath.requests import turns
from critpath.requests.activity import ActivityEvents
from critpath.requests.endpoints import EndpointColumn
from critpath.requests.turns import COUNTED, Processes, Turns, find_multiplexed, find_turns
from critpath.schema.parameters.requests import TURNS

HERE = Path(__file__).resolve().parent
NAMES = ("?", "web", "web-1", "worker/2", "db")


@pytest.fixture(scope="module")
def recordings(load: Any) -> list[tuple[Collected, Workers]]:
    """Return drawn activity at drawn endpoints, and threads with names."""
    drawing = load("pure/requests/drawing.py")
    drawn = load("pure/requests/drawn_tables.py")
    lives = load("pure/requests/test_wild_endpoints.py")
    found = []
    for seed in range(60):
        collected, *_ = lives.draw_lives(400 + seed)
        world = drawn.draw_world(drawing, 400 + seed)
        ends = collected.endpoints[:3].copy()
        ends[ends[:, EndpointColumn.PARTNER] >= 3, EndpointColumn.PARTNER] = -1
        ends[:1, EndpointColumn.OPENING] = 1
        many, rng = len(ends), np.random.default_rng(seed)
        activity = world.activity
        if not many:
            continue
        moved = activity.endpoint >= 0
        endpoint = np.where(moved, activity.endpoint % many, -1).astype(np.int32)
        hosts = ends[:, EndpointColumn.HOST].astype(np.int32)
        host = np.where(moved, hosts[endpoint], activity.host).astype(np.int32)
        columns = (activity.time_ns, activity.act, activity.tid, host, endpoint)
        activity = type(activity)(*columns, activity.value)
        name = rng.integers(0, len(NAMES), len(world.workers.tid)).astype(np.int32)
        workers = Workers(
            **{n: getattr(world.workers, n) for n in Workers.__annotations__ if n != "name"},
            name=name,
        )
        sockets = ends[:, EndpointColumn.SOCKET]
        messages = [
            (int(at), int(hosts[end]), int(sockets[end]), int(high), int(high) // 2, str(label))
            for at, end, high, label in zip(
                np.sort(rng.integers(0, 60, 12)), rng.integers(0, many, 12),
                rng.integers(-3, 3, 12), rng.choice(["GET /a", "GET /b", "PUT /a"], 12),
                strict=True,
            )
        ]  # fmt: skip
        whole = Collected(
            activity, ends, collected.dumped, messages=messages,
            paths={at: path for at, path in collected.paths.items() if at < many},
        )  # fmt: skip
        found.append((whole, workers))
    return found


def test_what_drawn_recordings_come_to(golden: Any, recordings: Any) -> None:
    lines = []
    for number, (collected, workers) in enumerate(recordings):
        more: dict[str, Any] = {}
        if number % 3 == 0:
            more["losses"] = [Loss(10, 20, 0, 0, 1, 0, "discarded")]
        if number % 4 == 0:
            more["gaps"] = make_gaps([(25, 26, 29, 30, BASE, 0, 0)])
        if number % 2:
            more |= {"hosts": ("a", "b"), "aligned": {0, 1}}
        found = find_turns(
            collected, workers, NAMES.__getitem__, end=100, skip=number % 5 // 4, **more
        )
        table, text = found.requests, found.requests.strings
        lines.append(
            f"{number} {dict(zip(COUNTED, found.counts.sum(axis=0).tolist(), strict=True))}"
        )
        lines.append(f"{number} {found.service.tolist()} {found.guessed.tolist()}")
        columns = (
            *(table.endpoint, table.turn, table.begin_ns, table.received_ns, table.answered_ns),
            *(table.end_ns, table.reader_tid, table.tid, table.bytes_in, table.bytes_out),
            *(table.queued_ns, table.true_ns, table.boundary, found.cut),
        )
        for row, at in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
            words = [
                text[c[row]] for c in (table.service, table.why, table.message, table.trace_id)
            ]
            lines.append(f"{number}.{row} {' '.join(map(str, at))} {words}")
    golden(HERE / "snapshots" / "wild_turns.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize("seed", range(40))
def test_connections_with_several_requests_at_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ends = 5
    service = rng.integers(-1, 2, ends)
    service[:2] = 0, 1
    many = rng.integers(0, 260, ends) * (service >= 0)
    endpoint = np.repeat(np.arange(ends), many)
    number = np.concatenate([np.arange(1, n + 1) for n in many]).astype(np.int64)
    rate = rng.choice([0, 0.01, 0.02, 0.05], ends)
    intrusions = (rng.random(len(endpoint)) < rate[endpoint]).astype(np.int64) + seed % 2
    want = []
    rows = list(zip(endpoint.tolist(), number.tolist(), intrusions.tolist(), strict=True))
    late = [(at, n) for at, place, n in rows if place > TURNS.greeting]
    usual = {
        each: int(np.median([n for at, n in late if service[at] == each]))
        for each in {int(service[at]) for at, _ in late}
    }
    odd = [sum(n > usual[int(service[at])] for at, n in late if at == end) for end in range(ends)]
    of = [sum(at == end for at, _ in late) for end in range(ends)]
    for end in range(ends):
        its = [other for other in range(ends) if service[other] == service[end]]
        alone = odd[end] >= TURNS.fewest and odd[end] > TURNS.intruded * of[end]
        total, all_of = sum(odd[at] for at in its), sum(of[at] for at in its)
        shared = total >= TURNS.fewest and total > TURNS.intruded_all * all_of
        known = int(service[end]) in usual
        want.append(known and (alone or (shared and (odd[end] > 0 or of[end] < TURNS.enough))))
    assert find_multiplexed(endpoint, number, intrusions, service).tolist() == want


def test_sends_of_each_turn(recordings: Any) -> None:
    for collected, _ in recordings:
        activity = collected.activity
        many = len(collected.endpoints)
        rng = np.random.default_rng(many)
        endpoint = rng.integers(0, many, 12)
        answered = rng.integers(0, 50, 12)
        end = answered + rng.integers(0, 20, 12)
        first, count, sent = turns._find_sends(activity, endpoint, answered, end)
        of = zip(endpoint.tolist(), answered.tolist(), end.tolist(), strict=True)
        for row, (at, begin, until) in enumerate(of):
            want = [
                int(activity.value[n]) for n in range(len(activity))
                if activity.act[n] == Act.SEND and activity.endpoint[n] == at
                and begin <= activity.time_ns[n] <= until
            ]  # fmt: skip
            assert sent[first[row] : first[row] + count[row]].tolist() == want


def test_orders_that_are_rarer_than_most_of_their_family() -> None:
    for seed in range(30):
        rng = np.random.default_rng(seed)
        family, order = rng.integers(0, 3, 20), rng.choice([5, -7, 11], 20, p=[0.6, 0.3, 0.1])
        found = turns._find_rarer(family, order).tolist()
        for each in range(3):
            mine = np.flatnonzero(family == each)
            counts = Counter(order[mine].tolist()).most_common()
            kept = {int(order[row]) for row in mine if not found[row]}
            if len(mine):
                assert len(kept) == 1
                assert dict(counts)[kept.pop()] == counts[0][1]


def make_turns(rows: list[tuple[int, int, int]]) -> Turns:
    """Return turns of endpoint, begin, end."""
    table = np.zeros((len(rows), 13), np.int64)
    for column, values in zip(
        (turns.ENDPOINT, turns.BEGIN, turns.END), np.array(rows).T, strict=True
    ):
        table[:, column] = values
    none = np.zeros(9, np.int64)
    return Turns(table, none, none)


def test_turns_beside_losses() -> None:
    every = [(0, begin, begin + length) for begin in range(0, 40, 3) for length in (0, 2, 9)]
    of = make_turns(every)
    for loss in ((10, 20), (0, 20), (10, 50), (0, 50), (0, 60), (12, 12)):
        found = turns.overlaps_loss(of, [Loss(*loss, 0, 0, 1, 0, "lost")], 0, 50)
        # Of what is lost somewhere in all of the recording, nobody knows where.
        somewhere = loss[0] <= 0 and loss[1] >= 50
        want = [not somewhere and begin < loss[1] and end > loss[0] for _, begin, end in every]
        assert found.tolist() == want


def test_of_many_labels_the_most_common_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "MOST_LABELS", 2)
    labels = ["GET /a", "GET /b", "GET /a", "", "PUT /c", "GET /b", "PUT /c", "PUT /c", "PUT /d"]
    services = [1, 1, 1, 1, 1, 1, 1, 1, 2]
    want = [*labels]
    want[1] = want[5] = "GET …"  # two of each, and the other came first
    assert turns.keep_common(labels, services) == want
    assert turns.keep_common([], []) == []


def test_what_threads_are_called(recordings: Any) -> None:
    plain = {"web-1": "web", "worker/2": "worker"}
    for collected, workers in recordings[:12]:
        of = Processes(workers, NAMES.__getitem__)
        pids, names = {}, {}
        columns = (workers.host, workers.tid, workers.pid, workers.name)
        for host, tid, pid, name in zip(*(c.tolist() for c in columns), strict=True):
            if tid > 0:
                pids[host, tid] = pid if pid > 0 else tid
                names[host, tid] = NAMES[name]
        for host in (0, 1):
            for tid in range(-1, 6):
                pid = pids.get((host, tid), tid)
                own, above = names.get((host, tid), ""), names.get((host, pid), "")
                assert of.pid(host, tid) == pid
                assert of.thread(host, tid) == own
                name = plain.get(above or own, above or own)
                assert of.name(host, tid) == name
                assert of.names(host, tid) == {own, above, name}
        activity = collected.activity
        users: list[set[int]] = [set() for _ in collected.endpoints]
        for act, end, tid, host in zip(
            activity.act, activity.endpoint, activity.tid, activity.host, strict=True
        ):
            if act in {Act.SEND, Act.RECEIVE} and end >= 0:
                users[end].add(pids.get((int(host), int(tid)), int(tid)))
        moved = activity.endpoint >= 0
        kept = type(activity)(
            *(getattr(activity, n)[moved] for n in ("time_ns", "act", "tid", "host", "endpoint")),
            activity.value[moved],
        )
        found = of.users(kept, len(users))
        assert [*map(set, found)] == users


def test_two_tables_of_rows_in_order_of_time() -> None:
    rng = np.random.default_rng(1)
    for many, more in ((0, 0), (5, 0), (0, 4), (9, 7)):
        one, other = (rng.integers(0, 9, (n, 6)) for n in (many, more))
        one, other = (table[np.argsort(table[:, 0], kind="stable")] for table in (one, other))
        kinds = (np.int64, np.uint8, np.int32, np.int32, np.int32, np.int64)
        rows: Any = tuple(c.astype(k) for c, k in zip(one.T, kinds, strict=True))
        found = collecting._merge_rows(rows, other)
        want = sorted([*one.tolist(), *other.tolist()], key=lambda row: row[0])
        assert [list(row) for row in zip(*(c.tolist() for c in found), strict=True)] == want
        assert [c.dtype for c in found] == [*map(np.dtype, kinds)]


@pytest.mark.parametrize("every", [True, False])
def test_of_threads_that_use_no_socket_only_what_they_do_to_those_that_do_is_kept(
    every: bool, recordings: Any
) -> None:
    """Threads of a process that uses one are all kept, and who wakes or creates them."""
    seen = set()
    for collected, workers in recordings:
        rows = collected.activity
        columns = (rows.time_ns, rows.act, rows.tid, rows.host, rows.endpoint, rows.value)
        events = ActivityEvents(np.zeros((2, 1), np.int64), waking=True, every=every)
        ends = collected.endpoints
        # By packets users are known once all is joined: it is the table that is kept of.
        events._rows = SimpleNamespace(
            take_rows=lambda columns=columns: columns, take_endpoints=lambda ends=ends: ends,
            hidden=3, renamed=1,
        )  # fmt: skip
        events._packets = SimpleNamespace(
            finish=lambda rows, ends, _: SimpleNamespace(rows=rows, endpoints=ends, unknown=0)
        )
        found = events.finish(workers, ())
        pids = {
            (h, t): p for h, t, p in zip(
                workers.host.tolist(), workers.tid.tolist(), workers.pid.tolist(), strict=True
            )
        }  # fmt: skip
        every_row = list(zip(*(c.tolist() for c in columns), strict=True))
        users = {
            (host, tid) for _, act, tid, host, *_ in every_row if act in {Act.SEND, Act.RECEIVE}
        }
        lives = list(zip(workers.host.tolist(), workers.tid.tolist(), workers.pid.tolist(),
                         strict=True))  # fmt: skip
        processes = {(h, p) for h, t, p in lives if (h, t) in users and p > 0}
        threads = users | {(h, t) for h, t, p in lives if (h, p) in processes}
        want = []
        for row in every_row:
            _, act, tid, host, end, value = row
            about = act in {Act.WAKE, Act.CREATE} and (host, value) in threads
            if every or end >= 0 or (host, tid) in threads or about:
                want.append(row)
        got = found.activity
        kept = (got.time_ns, got.act, got.tid, got.host, got.endpoint, got.value)
        assert list(zip(*(c.tolist() for c in kept), strict=True)) == want
        assert found.hidden == 3
        assert found.alike == (len({*ends[:, EndpointColumn.SOCKET].tolist()}) == 1)
        seen.add(len(want) < len(every_row))
        assert len(pids) <= len(lives)
    assert seen == ({False} if every else {True, False})


@pytest.mark.parametrize("waking", [True, False])
@pytest.mark.parametrize("leaving", [True, False])
@pytest.mark.parametrize("way", ["sockets", "calls"])
def test_events_that_tell_something(waking: bool, leaving: bool, way: str) -> None:
    """Those of sockets only where they tell of sockets; none whose first fields are absent."""
    events = ActivityEvents(np.zeros((1, 1), np.int64), waking=waking, leaving=leaving, way=way)
    needed = {Kind.SOCKET_SEND: 4, Kind.SOCKET_RECEIVE: 4, Kind.SOCKET_ARRIVAL: 3,
              Kind.SOCKET_OF: 3, Kind.SOCKET_STATE: 4, Kind.SWITCH: 5}  # fmt: skip
    for kind in Kind:
        wanted = kind in collecting._THREADS - {Kind.WAKING}
        wanted |= kind == (Kind.WAKING if waking else Kind.WAKEUP)
        wanted |= kind in collecting.SOCKETS and way == "sockets"
        wanted |= kind == Kind.TASKS or (kind == Kind.NET_SEND and leaving)
        # What marks say is text, or they say nothing.
        assert events._kind_of(EventClass("x", Kind.TASKS, ("a",), ("int",))) == Kind.OTHER
        for absent in range(8):
            types = ["str" if kind == Kind.TASKS else "int"] * 7
            if absent < 7:
                types[absent] = "absent"
            of = EventClass("x", kind, tuple("abcdefg"), tuple(types))
            kept = wanted and absent >= needed.get(kind, 1)
            assert events._kind_of(of) == (kind if kept else Kind.OTHER)


def test_why_a_request_is_less_than_certain(recordings: Any) -> None:
    """The worst reason counts, and the last of those that are as bad."""
    collected, _ = recordings[0]
    lives = collected.endpoints
    many = 4
    ends = SimpleNamespace(role_how=np.array([turns.FIRST, 1, 1, 1]))
    table = np.zeros((16, 13), np.int64)
    table[:, turns.ENDPOINT] = np.repeat(np.arange(many), 4)
    table[:, turns.HOW] = np.tile([turns.BY_ARRIVAL, turns.BY_WAKE, turns.BY_READ, 0], 4)
    table[:, turns.PAUSES] = np.tile([0, 0, 0, TURNS.pauses], 4)
    table[1, turns.PAUSES] = TURNS.pauses - 1
    none = np.zeros(many, np.int64)
    several = np.array([1, 0, 0, 0], np.bool_)
    doubts = np.array([0, 0, 1, 0], np.bool_), np.array([0, 0, 0, 1], np.bool_), several
    found = turns._build(
        Turns(table, none, none), np.arange(16), ends, np.zeros(16, np.int32), doubts, ("web:80",)
    )
    sure, likely, doubtful = Certainty.CERTAIN, Certainty.LIKELY, Certainty.DOUBTFUL
    first = [(likely, 7), (likely, 7), (doubtful, 2), (likely, 5)]
    plain = [(sure, 0), (likely, 3), (doubtful, 2), (likely, 5)]
    want = [*first, *plain, *[(doubtful, 1)] * 4, *[(doubtful, 6)] * 4]
    assert list(zip(found.boundary.tolist(), found.why.tolist(), strict=True)) == want
    assert [found.strings[code] for code in found.service] == ["web:80"] * 16
    assert len(lives)


def test_services_with_several_requests_at_once_have_another_name() -> None:
    """Only what is on such a connection; each service has one such name."""

    class Ends(SimpleNamespace):
        def __len__(self) -> int:
            return 5

    ends = Ends(
        host=np.array([0, 1, 0, 0, 0]), family=np.array([2, 10, 1, 2, 1]),
        local_port=np.array([80, 81, 0, 0, 0]), path=np.array([0, 0, 1, 0, 0]),
        strings=("", "/run/served"),
    )  # fmt: skip
    udp = np.array([0, 0, 0, 1, 0], np.bool_)
    columns = {n: np.zeros(2, np.int64) for n in Workers.__annotations__}
    columns |= {"host": np.array([0, 1]), "tid": np.array([5, 5]), "name": np.array([2, 4])}
    columns = {
        n: c.astype(np.int32 if n in {"name", "idle_cpu"} else np.int64) for n, c in columns.items()
    }
    processes = Processes(Workers(**columns), NAMES.__getitem__)
    rows = [(0, 1, 2), (1, 3, 4), (2, 5, 6), (3, 7, 8), (4, 9, 10), (0, 11, 12)]
    of = make_turns(rows)
    of.table[:, turns.TID] = 5
    for hosts in ((), ("a", "b")):
        names = turns.Names(ends, processes, udp, hosts)
        service = names.services(of)
        at = ["@a", "@b"] if hosts else ["", ""]
        want = [f"web{at[0]}:80", f"db{at[1]}:81", f"web{at[0]}:/run/served", f"web{at[0]}:udp",
                f"web{at[0]}:unix", f"web{at[0]}:80"]  # fmt: skip
        assert [names.strings[code] for code in service] == want
        assert names.of_endpoints(of, service).tolist() == service[:5].tolist()
        many = np.array([1, 0, 1, 0, 0, 0], np.bool_)
        marked = names.mark(service, many)
        assert [names.strings[code] for code in marked] == [
            f"{name} (multiplexed)" if which else name
            for name, which in zip(want, many, strict=True)
        ]
        assert service.tolist() == names.services(of).tolist()
        both = names.mark(service, np.ones(6, np.bool_))
        assert both[0] == both[5] == marked[0]
    none = turns.Names(ends, processes, np.zeros(5, np.bool_)).services(make_turns(rows[3:4]))
    assert none.tolist() == [0]


@pytest.mark.parametrize(
    ("types", "told"),
    [
        (("int", "str", "int", "int"), True), (("int", "int", "int", "int"), False),
        (("str", "int", "int", "int"), False), (("int", "str", "absent", "int"), False),
        (("absent", "str", "int", "int"), False), (("int", "str", "int", "absent"), False),
    ],
)  # fmt: skip
def test_labels_of_messages_are_taken_where_they_are_texts(
    types: tuple[str, ...], told: bool
) -> None:
    fields = ("sk", "label", "trace_id_high", "trace_id_low")
    classes = [
        EventClass("other", Kind.SWITCH, tuple("abcde"), ("int",) * 5),
        EventClass("label", Kind.MESSAGE_LABEL, fields, types, host=3),
    ]
    rows = [(10, 1, [77, 2, -5, 6]), (20, 0, [0, 1, 0, 0, 1]), (30, 1, [78, 1, 0, 9])]
    offsets = np.cumsum([0, *(len(values) for *_, values in rows)])[:-1]
    chunk = EventChunk(
        np.array([time for time, *_ in rows], np.int64), np.zeros(3, np.int32),
        np.array([of for _, of, _ in rows], np.int32), offsets.astype(np.int64),
        np.array([v for *_, values in rows for v in values], np.int64),
    )  # fmt: skip
    events = ActivityEvents(np.zeros((4, 1), np.int64), waking=True)
    events.feed(chunk, classes)
    found = events.finish(no_threads(), ("", "GET /", "PUT /")).messages
    want = [(10, 3, 77, -5, 6, "PUT /"), (30, 3, 78, 0, 9, "GET /")]
    assert [*found] == (want if told else [])


@pytest.mark.parametrize("absent", [(), ("tid",), ("length", "stream", "flags", "size", "tid")])
def test_older_recordings_say_less_of_a_message(absent: tuple[str, ...]) -> None:
    kinds = {"sk": "int", "label": "str"}
    kinds |= dict.fromkeys(("trace_id_high", "trace_id_low", "length"), "int")
    kinds |= dict.fromkeys(("stream", "flags", "size", "tid"), "int")
    types = tuple("absent" if name in absent else kind for name, kind in kinds.items())
    classes = [EventClass("label", Kind.MESSAGE_LABEL, tuple(kinds), types)]
    rows = [
        [77, 1, 0, 0, 50, 3, 6, 41, 9],
        [78, 1, 0, 0, 51, 0, 0, 0, 9],
        [5, 1, 0, 0, 52, 0, 16, 0, 9],
    ]
    chunk = EventChunk(
        np.array([10, 20, 30], np.int64), np.zeros(3, np.int32), np.zeros(3, np.int32),
        np.arange(0, 27, 9, dtype=np.int64), np.array(rows, np.int64).reshape(-1),
    )  # fmt: skip
    events = ActivityEvents(np.zeros((4, 1), np.int64), waking=True)
    events.feed(chunk, classes)
    found = events.finish(no_threads(), ("", "GET /"))
    of_session = [30, 0, 5, 52, 0, 16, 0, 0, 0, 0, 9]
    if "stream" in absent:
        assert [(m[0], m[2]) for m in found.messages] == [(10, 77), (20, 78), (30, 5)]
        assert not len(found.frames)
    else:
        assert [(m[0], m[2]) for m in found.messages] == [(20, 78)]
        of_stream = [10, 0, 77, 50, 3, 6, 41, 0, 0, 0, 0 if absent else 9]
        of_session[-1] = of_stream[-1]
        assert found.frames.tolist() == [of_stream, of_session]


def no_threads() -> Workers:
    """Return no threads."""
    kinds = {
        n: np.int32 if n in {"name", "idle_cpu"} else np.int64 for n in Workers.__annotations__
    }
    return Workers(**{n: np.zeros(0, kind) for n, kind in kinds.items()})


def test_rabbitmq_is_called_so() -> None:
    """The process 3 is sent AMQP, 5 listens at its port, 7 asks there; 9 is another of Erlang."""
    pids = [3, 5, 7, 9]
    columns = {name: np.zeros(len(pids), np.int64) for name in Workers.__annotations__}
    columns |= {"tid": np.array(pids), "pid": np.array(pids)}
    of = Processes(Workers(**columns), lambda _: "beam.smp")
    table = np.zeros((4, len(EndpointColumn)), np.int64)
    table[:, EndpointColumn.SOCKET] = [30, 50, 70, 90]
    table[:, EndpointColumn.LOCAL_PORT] = [1, 5672, 2, 3]
    messages = [
        *((1, 0, 30, 0, 0, "basic.publish"), (2, 0, 70, 0, 0, "basic.deliver")),
        (3, 0, 90, 0, 0, "GET /"),
    ]
    large, small = np.zeros(0, np.int64), np.zeros(0, np.int32)
    nothing = Activity(large, np.zeros(0, np.uint8), small, small, small, large)
    collected = Collected(nothing, table, (), messages=messages)
    of.name_rabbitmq(collected, [frozenset({pid}) for pid in pids])
    names = [of.name(0, pid) for pid in pids]
    assert names == ["rabbitmq", "rabbitmq", "beam.smp", "beam.smp"]
