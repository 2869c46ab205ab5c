"""Twins of what `critpath.requests` does with whole columns: row by row, in plain Python."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

from critpath.model.requests import LINK_KINDS, Act, Certainty

NEVER = -(2**63)


def thread_key(host: int, tid: int) -> int:
    """Return one number for a thread of a host."""
    return (int(host) << 32) | (int(tid) & 0xFFFFFFFF)


def rows_of(table: Any) -> list[Any]:
    """Return the rows of a table as objects whose attributes are its columns."""
    names = [n for n in table.__annotations__ if n != "strings"]
    columns = [getattr(table, name).tolist() for name in names]
    rows = zip(*columns, strict=True)
    return [SimpleNamespace(**dict(zip(names, row, strict=True))) for row in rows]


def find_process(workers: list[Any], key: int) -> int:
    """Return the process of a thread: of its latest life, its own key where none is known."""
    found = key
    for each in workers:
        if thread_key(each.host, each.tid) == key:
            found = thread_key(each.host, each.pid) if each.pid > 0 else key
    return found


def cut_turns(acts: list[Any], ends: list[Any]) -> list[tuple[int, int, int, int, int]]:
    """Return endpoint, begin, end, thread, connects of what is asked, in order of begin."""
    opened = [
        (row.endpoint, row.time_ns, row.time_ns, row.tid, 1)
        for row in acts
        if row.act == Act.OPEN
        and row.value == 2
        and row.tid >= 0
        and ends[row.endpoint].serves == 0
    ]
    asked = []
    for at, end in enumerate(ends):
        turn: list[Any] = []
        moves = [r for r in acts if r.endpoint == at and r.act in {Act.SEND, Act.RECEIVE}]
        for row in [*(moves if end.serves == 0 else ()), None]:
            begins = row is not None and row.act == Act.SEND
            over = row is None or (begins and (not turn or turn[-1].act == Act.RECEIVE))
            if over and turn and turn[-1].act == Act.RECEIVE:
                asked.append((at, turn[0].time_ns, turn[-1].time_ns, turn[0].tid, 0))
            turn = [] if over else turn
            if row is not None and (begins or turn):
                turn.append(row)
    return sorted([*opened, *asked], key=lambda turn: turn[1])


def last_row(
    acts: list[Any], wanted: set[Act], end: int, time: int, *, before: bool = False
) -> int:
    """Return the last row of an endpoint up to a time, or before it; -1: none."""
    found = [
        at
        for at, row in enumerate(acts)
        if row.endpoint == end
        and row.act in wanted
        and (row.time_ns < time if before else row.time_ns <= time)
    ]
    return found[-1] if found else -1


def find_previous(acts: list[Any], end: int, time: int) -> int:
    """Return when an endpoint last received or sent before a time; long ago if never."""
    at = last_row(acts, {Act.SEND, Act.RECEIVE}, end, time, before=True)
    return acts[at].time_ns if at >= 0 else NEVER


def find_departures(acts: list[Any]) -> list[int]:
    """Return when the bytes of every row left: with the packet just before it, of its thread."""
    before: dict[int, Any] = {}
    result = []
    for row in acts:
        result.append(row.time_ns)
        if row.tid > 0 and row.act in {Act.SEND, Act.RECEIVE, Act.LEAVE}:
            key = thread_key(row.host, row.tid)
            packet = before.get(key)
            if row.act == Act.SEND and packet is not None and packet.act == Act.LEAVE:
                result[-1] = packet.time_ns
            before[key] = row
    return result


def find_child(acts: list[Any], ends: list[Any], requests: list[Any], sub: Any) -> int:
    """Return the request that a sub-request is where it arrives; -1: none."""
    peer = ends[sub.endpoint].peer
    if peer < 0 or sub.connects:
        return -1
    far = ends[peer].host != ends[sub.endpoint].host
    since = find_previous(acts, sub.endpoint, sub.begin_ns)
    for row in sorted(range(len(requests)), key=lambda r: requests[r].end_ns):
        its = requests[row]
        if its.endpoint == peer and (its.begin_ns >= since if far else its.end_ns > sub.begin_ns):
            return row if its.begin_ns < sub.end_ns else -1
    return -1


def find_sent(acts: list[Any], ends: list[Any], requests: list[Any], sub: Any) -> int:
    """Return when a sub-request was under way: when it arrived, if that is known."""
    if sub.child < 0:
        return int(sub.begin_ns)
    its = requests[sub.child]
    here = ends[sub.endpoint].host == ends[its.endpoint].host
    between = find_previous(acts, sub.endpoint, sub.begin_ns) < its.begin_ns < sub.begin_ns
    return int(its.begin_ns if here and between else sub.begin_ns)


def union(spans: list[tuple[int, int]], begin: int, end: int) -> int:
    """Return how many ns between two times some span covers."""
    return sum(any(a <= t < b for a, b in spans) for t in range(begin, end))


def find_transit(
    acts: list[Any], ends: list[Any], requests: list[Any], sub: Any
) -> tuple[int, int, int, int]:
    """Return when what a host asked another left, was there, its answer left, and was there."""
    peer = ends[sub.endpoint].peer
    if sub.connects or (peer >= 0 and ends[peer].host == ends[sub.endpoint].host):
        return -1, -1, -1, -1
    departures = find_departures(acts)
    sent = last_row(acts, {Act.SEND}, sub.endpoint, sub.begin_ns)
    came = last_row(acts, {Act.ARRIVAL}, sub.endpoint, sub.end_ns)
    left = min(departures[sent] if sent >= 0 else sub.begin_ns, sub.begin_ns)
    answered = acts[came].time_ns if came >= 0 else sub.end_ns
    if sub.child < 0:
        return left, -1, -1, min(max(answered, sub.begin_ns), sub.end_ns)
    its = requests[sub.child]
    last = last_row(acts, {Act.SEND}, its.endpoint, its.end_ns)
    answer_left = departures[last] if last >= 0 else its.end_ns
    answered = min(max(answered, its.begin_ns), sub.end_ns)
    return (
        min(left, its.begin_ns),
        its.begin_ns,
        min(max(answer_left, its.begin_ns), answered),
        answered,
    )


def find_life(workers: list[Any], host: int, tid: int, time: int) -> int:
    """Return the life of a thread that a time falls into: the last begun, else its first."""
    lives = [
        (each.first, at)
        for at, each in enumerate(workers)
        if each.first >= 0 and each.idle_cpu < 0 and each.tid > 0
        and (each.host, each.tid) == (host, tid)
    ]  # fmt: skip
    begun = [life for life in lives if life[0] <= time]
    return max(begun)[1] if begun else min(lives)[1] if lives else -1


def find_receipts(
    acts: list[Any], messages: list[Any], workers: list[Any]
) -> list[tuple[int, int, int, int]]:
    """Return sender, when it left, receiver, when it was there: of what ended a sleep."""
    firsts: dict[tuple[int, int], int] = {}  # the first byte of what a receive got
    for at, each in enumerate(messages):
        key = each.receiver_endpoint, each.received_ns
        if key not in firsts or each.position < messages[firsts[key]].position:
            firsts[key] = at
    of_row = {
        last_row(acts, {Act.RECEIVE}, end, got): at for (end, got), at in sorted(firsts.items())
    }
    departures, before = find_departures(acts), dict[int, int]()
    links = set()
    for at, row in enumerate(acts):
        if row.tid <= 0 or row.act not in {Act.SEND, Act.RECEIVE, Act.SLEEP}:
            continue
        key = thread_key(row.host, row.tid)
        slept, before[key] = before.get(key, -1), at
        if slept < 0 or acts[slept].act != Act.SLEEP or row.act != Act.RECEIVE or at not in of_row:
            continue
        its = messages[of_row[at]]
        came = [
            n for n in range(slept + 1, at)
            if acts[n].act == Act.ARRIVAL and acts[n].endpoint == row.endpoint
        ]  # fmt: skip
        sent = last_row(acts, {Act.SEND}, its.sender_endpoint, its.sent_ns)
        if not came or sent < 0:
            continue
        arrived = acts[came[0]].time_ns
        left = min(departures[sent], arrived - 1)
        sender = find_life(workers, acts[sent].host, acts[sent].tid, left)
        receiver = find_life(workers, row.host, row.tid, row.time_ns)
        if sender >= 0 and receiver >= 0:
            links.add((sender, left, receiver, arrived))
    return sorted(links)


def write_labels(
    ends: Any, requests: Any, subs: list[Any], nameless: dict[int, str], doubted: float
) -> list[str]:
    """Return each request's label: its service, message, and whom it asks."""
    service, strings = requests.service.tolist(), requests.strings
    calls = [sub for sub in subs if sub.request >= 0 and not sub.connects]
    answers = defaultdict(set)
    for sub in calls:
        if sub.child >= 0:
            answers[int(ends.remote_port[sub.endpoint])].add(service[sub.child])
    named: list[str] = []
    unknown = set()
    for sub in calls:
        at, port = sub.endpoint, int(ends.remote_port[sub.endpoint])
        of = service[sub.child] if sub.child >= 0 else 0
        if sub.child < 0 and ends.peer[at] >= 0 and len(answers.get(port, ())) == 1:
            [of] = answers[port]
        if of > 0:
            named.append(strings[of])
        elif ends.path[at] > 0:
            named.append(ends.strings[ends.path[at]])
        elif port:
            named.append(f":{port}")
        else:
            unknown.add(int(ends.family[at]))
            named.append("")
    other = nameless.get(*unknown, "?") if len(unknown) == 1 else "?"
    named = [name or other for name in named]
    asks: dict[int, set[str]] = defaultdict(set)
    for sub, name in zip(calls, named, strict=True):
        asks[sub.request].add(name)
    for code in set(service):
        mine = [n for n, sub in enumerate(calls) if service[sub.request] == code]
        doubt = sum(calls[n].attribution == Certainty.DOUBTFUL for n in mine)
        if doubt > doubted * len(mine):
            every = {named[n] for n in mine}
            asks.update({row: every for row, of in enumerate(service) if of == code})
    labels = []
    for row, (code, message) in enumerate(zip(service, requests.message.tolist(), strict=True)):
        text = strings[code] + (f" {strings[message]}" if message > 0 else "")
        labels.append(text + (" → " + ", ".join(sorted(asks[row])) if asks.get(row) else ""))
    return labels


def find_links(
    acts: list[Any], ends: list[Any], requests: list[Any], subs: list[Any], slices: list[Any]
) -> list[tuple[int, int, int, int, str]]:
    """Return from, to, sent, received and kind of what leads from one slice to another."""

    def slice_at(key: int, time: int, *, right: bool) -> int:
        mine = [n for n, each in enumerate(slices) if thread_key(each.host, each.tid) == key]
        mine.sort(key=lambda n: slices[n].begin_ns)
        for n in mine:
            if slices[n].end_ns > time or (not right and slices[n].end_ns == time):
                return n
        return -1

    asks, answers, wakes = [], [], []
    for sub in subs:
        if sub.child >= 0 and sub.request >= 0:
            its = requests[sub.child]
            there = ends[its.endpoint].host
            asker = thread_key(ends[sub.endpoint].host, sub.tid)
            reader, answerer = (thread_key(there, tid) for tid in (its.reader_tid, its.tid))
            asks.append((asker, sub.begin_ns, reader, its.received_ns, 0))
            answers.append((answerer, its.end_ns, asker, sub.end_ns, 0))
    for row in acts:
        if row.act == Act.WAKE and row.tid >= 0:
            by, of = (thread_key(row.host, tid) for tid in (row.tid, row.value))
            wakes.append((by, row.time_ns, of, row.time_ns, 1))
    found = []
    for by, sent, of, received, wake in (*asks, *answers, *wakes):
        one, other = slice_at(by, sent, right=False), slice_at(of, received, right=True)
        if one < 0 or other < 0 or by == of or slices[one].begin_ns > sent:
            continue
        if wake and (slices[one].request < 0 or slices[one].request != slices[other].request):
            continue
        found.append((one, other, sent, received, LINK_KINDS[0 if wake else 1]))
    return sorted(found, key=lambda link: link[2])


def find_last(acts: list[Any]) -> list[int]:
    """Return what each row's thread had done last before it; -1: nothing, or an interrupt."""
    before: dict[int, int] = {}
    result = []
    for row in acts:
        key = thread_key(row.host, row.tid)
        result.append(before.get(key, -1) if row.tid >= 0 else -1)
        before[key] = row.act
    return result


def find_hand_backs(
    acts: list[Any], ends: list[Any], thread: list[int], woken: list[int], loop: int,
    helpers: list[int], most: float,
) -> dict[int, list[tuple[int, int]]]:  # fmt: skip
    """Return when each helper tells a loop that it is done, and when it was done."""
    own = {
        row.endpoint for row, of in zip(acts, thread, strict=True)
        if of == loop and row.act == Act.RECEIVE and row.endpoint >= 0
        and ends[row.endpoint].serves not in {0, 1}
    }  # fmt: skip
    found: dict[int, list[tuple[int, int]]] = {}
    for helper in helpers:
        moments, candidates = [], list[tuple[int, int]]()  # how long it had run, and when
        ran, running = 0, None
        for row, of, wakes in zip(acts, thread, woken, strict=True):
            if of != helper:
                continue
            if running is None or row.act == Act.RUN:
                running = row.time_ns
            send = row.act == Act.SEND and row.endpoint >= 0 and ends[row.endpoint].peer in own
            if row.act == Act.SLEEP:
                ran, candidates = 0, []
            elif row.act == Act.PREEMPT or send or (row.act == Act.WAKE and wakes == loop):
                ran, running = ran + row.time_ns - running, row.time_ns
                candidates.append((ran, row.time_ns))
            if send:
                best = None
                for one in candidates[:-1]:
                    if best is None or one[0] > best[0] / most:
                        best = one
                early = best is not None and best[0] > most * ran
                moments.append((row.time_ns, best[1] if best and early else row.time_ns))
                ran, candidates = 0, []
        if moments:
            found[helper] = moments
    return found


def find_ready(acts: list[Any], thread: list[int], woken: list[int], loop: int) -> dict[int, int]:
    """Return, of receives after which a loop sleeps for no message, when it goes on."""
    found: dict[int, int] = {}
    read, slept = None, False
    columns = zip(acts, thread, woken, find_last(acts), strict=True)
    for row, of, wakes, last in columns:
        if of != loop and not (row.act == Act.WAKE and wakes == loop):
            continue
        if row.act == Act.RECEIVE and row.endpoint < 0:
            continue
        if of == loop and row.act == Act.RECEIVE:
            read, slept = row.time_ns, False
        elif read is None or row.act == Act.PREEMPT:
            continue
        elif of != loop:  # who sends, or an interrupt, brings a message: that it waited for
            if slept and (row.tid < 0 or last in {Act.ARRIVAL, Act.OPEN}):
                read = None
        elif row.act == Act.SLEEP:
            slept = True
        elif row.act == Act.RUN:
            if slept:
                found[read] = row.time_ns
        else:
            read = None
    return found
