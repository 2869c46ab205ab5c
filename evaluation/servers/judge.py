"""Compares what critpath finds of recorded servers with what they and their client logged."""

from __future__ import annotations

import bisect
import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))

from cases import CASES, DATAGRAMS, PORTS
from results import write_results

from critpath.model import EventRequest, Kind
from critpath.model.requests import Act, Certainty
from critpath.read.recording import Recording
from critpath.read.traces import read_events
from critpath.requests.find import FoundRequests
from critpath.requests.turns import WHYS

_NEAR: Final = 100_000  # ns that a begin or an end may be off
_JUDGED: Final = 100  # requests of a connection that must be noticed to be shared
_OVERLAPS: Final = 0.05  # of them that begin while another is under way


@dataclass(frozen=True)
class Asked:
    """A request or a sub-request, as who made it logged it; its connection by the asking port."""

    number: int
    port: int
    begin: int
    end: int


@dataclass(frozen=True)
class Handled:
    """What a handler logged."""

    thread: int
    asked: tuple[Asked, ...]
    as_request: Asked  # at the server that passed it on


def judge(place: Path, names: Iterable[str]) -> None:
    """Judge every recording of these cases, and write the table and all counts."""
    counts: dict[str, dict[str, Counter[str]]] = {}
    for name in names:
        for recorded in sorted((place / name).glob("*/recording")):
            for row, found in judge_one(name, recorded.parent):
                counts.setdefault(row, {})[recorded.parent.name] = found
                print(f"{row} {recorded.parent.name}: {shares(found)}", flush=True)
    write_results(place / "requests.json", counts)
    text = "\n".join(table(counts)) + "\n"
    (place / "requests.md").write_text(text)
    print(text)


def judge_neighbours(place: Path, names: Iterable[str], critpath: str) -> None:
    """Compare recordings without and with a neighbour on every processor: nothing became slower."""
    found: Counter[str] = Counter()
    lines = []
    for name in names:
        for busy in sorted((place / name).glob("*-busy/recording")):
            alone = busy.parent.with_name(busy.parent.name.removesuffix("-busy")) / "recording"
            if not alone.exists():
                continue
            done = subprocess.run(
                [critpath, "compare", alone, busy, "--execution", "requests", "--json", "-"],
                capture_output=True,
                text=True,
                check=False,
            )
            try:
                document = json.loads(done.stdout)
            except ValueError:
                document = {"verdict": f"failed ({done.returncode})", "detection": {}}
            said = ", ".join(
                f"{s['kind']} {s['name']}" for s in document["detection"].get("signs", ())
            )
            found[document["verdict"]] += 1
            lines.append(f"| {name} | {alone.parent.name} | {document['verdict']} | {said} |")
            print(lines[-1], flush=True)
    total = ", ".join(f"{count} {verdict}" for verdict, count in found.most_common())
    head = "| case | connections | verdict | signs |\n|---|---:|---|---|\n"
    (place / "neighbours.md").write_text(head + "\n".join(lines) + f"\n\n{total}\n")
    print(f"without and with a neighbour on every processor: {total}")


@dataclass(frozen=True)
class Connection:
    """One connection of a recording: what its client logged, what critpath says."""

    requests: int
    overlap: float  # share that began while another of the connection was under way
    multiplexed: bool
    periods: int
    inside: int  # of these, within a time in which the client waited for something
    covered: int  # requests during which there is such a period
    streams: int


def judge_sharing(place: Path, names: Iterable[str]) -> None:
    """Judge which connections are called multiplexed, and what is made of them."""
    head = "| server | | connections | overlap | at once | noticed | else called so | periods "
    lines = [f"{head}| within | requests in one | streams |", "|---|---" + "|---" * 9 + "|"]
    total: Counter[str] = Counter()
    for name in names:
        for busy in (False, True):
            found = [
                one
                for file in sorted((place / name).glob("*/recording"))
                if file.parent.name.endswith("-busy") == busy
                for one in find_connections(file.parent)
            ]
            if found:
                counts = count_sharing(found)
                total.update(counts)
                title = f"| {CASES[name].title} | {'busy' if busy else 'idle'} | {len(found)} "
                lines.append(title + "".join(f"| {cell} " for cell in sharing_cells(counts)) + "|")
                print(lines[-1], flush=True)
    lines.append(
        f"| all | | {total['all']} " + "".join(f"| {c} " for c in sharing_cells(total)) + "|"
    )
    (place / "sharing.md").write_text("\n".join(lines) + "\n")
    print(lines[-1])


def count_sharing(found: list[Connection]) -> Counter[str]:
    """Count connections: which share, which are called so, and what their periods are worth."""
    shares = [one for one in found if one.requests >= _JUDGED and one.overlap >= _OVERLAPS]
    others = [one for one in found if one.overlap == 0]
    called = [one for one in shares if one.multiplexed]
    return Counter(
        {
            "all": len(found),
            "requests": sum(one.requests for one in found),
            "overlapping": round(sum(one.requests * one.overlap for one in found)),
            "shares": len(shares),
            "noticed": len(called),
            "others": len(others),
            "wrongly": sum(one.multiplexed for one in others),
            "periods": sum(one.periods for one in called),
            "inside": sum(one.inside for one in called),
            "called requests": sum(one.requests for one in called),
            "covered": sum(one.covered for one in called),
            "streams": sum(one.streams for one in found),
        }
    )


def sharing_cells(counts: Mapping[str, int]) -> tuple[str, ...]:
    """Return the cells of a row of the table."""
    return (
        share(counts, "overlapping", "requests"),
        str(counts["shares"]),
        share(counts, "noticed", "shares"),
        f"{counts['wrongly']} of {counts['others']}" if counts["others"] else "–",
        str(counts["periods"] or "–"),
        share(counts, "inside", "periods"),
        share(counts, "covered", "called requests"),
        str(counts["streams"]),
    )


def find_connections(recorded: Path) -> Iterator[Connection]:
    """Yield the connections to a recorded server."""
    found = find_requests(recorded / "recording")
    table, ends = found.requests, found.endpoints
    rows = np.flatnonzero(ends.local_port[table.endpoint] == PORTS["served"])
    by_port: dict[int, list[Asked]] = defaultdict(list)
    for one in read_client(recorded / "client"):
        by_port[one.port].append(one)
    port_of = ends.remote_port[table.endpoint[rows]]
    for port, asked in by_port.items():
        asked.sort(key=lambda one: one.begin)
        until, overlapping = 0, 0
        waits: list[list[int]] = []
        for one in asked:
            if one.begin < until:
                overlapping += 1
                waits[-1][1] = until = max(until, one.end)
            else:
                waits.append([one.begin - _NEAR, one.end + _NEAR])
                until = one.end
        mine = rows[port_of == port]
        # The handshakes of TLS and HTTP/2 come before.
        mine = mine[table.end_ns[mine] > asked[0].begin]
        begins = [wait[0] for wait in waits]
        inside = [
            (begin, end)
            for begin, end in zip(
                table.begin_ns[mine].tolist(), table.end_ns[mine].tolist(), strict=True
            )
            if (at := bisect.bisect_right(begins, begin) - 1) >= 0 and end <= waits[at][1] + _NEAR
        ]
        ended = [end for _, end in inside]
        covered = sum(
            (at := bisect.bisect_left(ended, one.begin)) < len(inside) and inside[at][0] < one.end
            for one in asked
        )
        why = {table.strings[code] for code in np.unique(table.why[mine]).tolist()}
        streams = int((table.why[mine] == WHYS.index("answered in pieces over time")).sum())
        yield Connection(
            *(len(asked), overlapping / len(asked), "multiplexed" in why),
            *(len(mine), len(inside), covered, streams),
        )


def judge_one(name: str, recorded: Path) -> Iterator[tuple[str, Counter[str]]]:
    """Yield a row's name and counts: of the server asked, and of the one behind it."""
    case = CASES[name]
    found = find_requests(recorded / "recording")
    if case.mode in DATAGRAMS:
        yield name, count_datagrams(found, recorded)
        return
    asked = read_client(recorded / "client")
    handled = read_handlers(recorded / "handlers", asked)
    arrivals = Arrivals(recorded / "recording")
    known = threads_of(recorded)
    asks = [PORTS[name] for name in case.asks.split()]
    ports = PORTS["served"], asks
    if not case.behind:
        yield name, count(found, ports, asked, handled, arrivals, known)
        return
    # Who passes on asks over the port that the one behind saw.
    passed = {
        number: Handled(0, (one.as_request,), one.as_request) for number, one in handled.items()
    }
    yield name, count(found, ports, asked, passed, arrivals, known)
    of_behind = [one.as_request for one in handled.values()]
    ports = PORTS["behind"], [PORTS[name] for name in CASES[case.behind].asks.split()]
    yield f"{name}: behind", count(found, ports, of_behind, handled, None, set())


def count_datagrams(found: FoundRequests, recorded: Path) -> Counter[str]:
    """Count what is right of requests over UDP: whose they are, the client's threads tell."""
    table, activity = found.requests, found.activity
    lines = [line.split() for line in (recorded / "client").read_text().splitlines()]
    asked = [Asked(int(number), int(tid), int(b), int(e)) for number, _, b, e, tid in lines]
    sends = np.flatnonzero((activity.act == Act.SEND) & (activity.endpoint >= 0))
    sender = dict(zip(activity.endpoint[sends].tolist(), activity.tid[sends].tolist(), strict=True))
    peers = found.endpoints.peer[table.endpoint].tolist()
    tids = np.array([sender.get(peer, 0) for peer in peers])
    rows = np.flatnonzero(np.isin(tids, [one.port for one in asked]))
    at = Rows(rows, tids[rows], table.begin_ns, table.end_ns)
    handled = read_handlers(recorded / "handlers", asked)
    known = threads_of(recorded)
    result: Counter[str] = Counter(truth=len(asked), found=len(rows))
    for one in asked:
        row = at.match(one)
        if row < 0:
            continue
        result["matched"] += 1
        result["begin"] += 0 <= int(table.begin_ns[row]) - one.begin <= _NEAR
        # The handler's own clock, or before the client had it: the event comes after the send.
        end = int(table.end_ns[row])
        result["end"] += int(table.begin_ns[row]) < end <= one.end + _NEAR
        result["threads"] += 1
        of = handled.get(one.number)
        tid = int(table.tid[row])
        result["thread"] += tid == of.thread if of else tid in known
    return result


def find_requests(recording: Path, specification: str = "requests") -> FoundRequests:
    """Return what critpath finds."""
    from critpath import flow
    from critpath.engines.limits import Budget
    from critpath.executions.specification import parse_specification
    from critpath.read.event_names import KERNEL_EVENTS, SOCKET_EVENTS
    from critpath.requests import find as requesting
    from critpath.timeline.opening import RecordingOpener
    from critpath.timeline.streaming import replay_recording

    chosen = parse_specification(specification)
    opened = Recording(recording)
    wanted = (*KERNEL_EVENTS, *chosen.get_requests(), *SOCKET_EVENTS)
    opener = RecordingOpener(opened, wanted, "auto")
    asked = opener, opened, [chosen], Budget.within(0), ()
    with replay_recording(*asked) as replayed:
        # Not `find_requests`, which chooses executions: all that was found.
        return requesting._find_turns(replayed, chosen, opened, flow._learn_ways)


def count(
    found: FoundRequests,
    ports: tuple[int, list[int]],
    asked: list[Asked],
    handled: Mapping[int, Handled],
    arrivals: Arrivals | None,
    known: set[int],
) -> Counter[str]:
    """Count what is right at a port, of what it asks of another.

    `arrivals` is None where the client's times are not known.
    """
    table, ends = found.requests, found.endpoints
    port, asks = ports
    rows = np.flatnonzero(ends.local_port[table.endpoint] == port)
    inside = min((a.begin for a in asked), default=0), max((a.end for a in asked), default=0)
    rows = rows[(table.end_ns[rows] > inside[0]) & (table.begin_ns[rows] < inside[1])]
    remote = ends.remote_port[table.endpoint[rows]]
    at = Rows(rows, remote, table.begin_ns, table.end_ns)
    result: Counter[str] = Counter(truth=len(asked), found=len(rows))
    number_of: dict[int, int] = {}
    for one in asked:
        row = at.match(one)
        if row < 0 or row in number_of:
            continue
        number_of[row] = one.number
        result["matched"] += 1
        off = int(table.begin_ns[row]) - one.begin
        begin = arrivals is None or 0 <= off <= _NEAR
        end = arrivals is None or arrivals.near(one, int(table.end_ns[row]))
        result["begin"] += begin
        result["end"] += end
        sure = Certainty(table.boundary[row]).name.lower()
        result[f"boundary {sure}"] += 1
        result[f"boundary {sure} right"] += begin and end
        thread = handled[one.number].thread if one.number in handled else 0
        if thread or known:
            result["threads"] += 1
            right = table.tid[row] == thread if thread else int(table.tid[row]) in known
            result["thread"] += bool(right)
    if arrivals is not None:
        _count_own_time(result, found, asked, handled, number_of, arrivals)
    _count_subrequests(result, found, handled, number_of, asks)
    return result


def _count_own_time(
    result: Counter[str],
    found: FoundRequests,
    asked: list[Asked],
    handled: Mapping[int, Handled],
    number_of: Mapping[int, int],
    arrivals: Arrivals,
) -> None:
    """Count how near a request's own time is to what the logs say, where all it asked is sure.

    By the logs: from before the client's write until the answer arrived, less what lies between
    the handler's time before a sub-request's write and the last receive before that after its read
    (later it waits for the interpreter's lock, or its turn in the loop: that is its own time).
    """
    subs = found.subrequests
    sure = Counter(
        subs.request[(subs.attribution < Certainty.DOUBTFUL) & (subs.connects == 0)].tolist()
    )
    client = {one.number: one for one in asked}
    for row, number in number_of.items():
        one, of = client[number], handled.get(number)
        end = arrivals.last(one)
        if of is None or not of.thread or not of.asked or sure[row] < len(of.asked) or not end:
            continue
        spent, until = 0, 0
        for sub in sorted(of.asked, key=lambda each: each.begin):
            received = arrivals.received(sub)
            spent += max(0, received - max(sub.begin, until))
            until = max(until, received)
        off = abs(int(found.requests.true_ns[row]) - (end - one.begin - spent))
        result["own times"] += 1
        result["own half"] += off <= _NEAR // 2
        result["own near"] += off <= max(_NEAR, (end - one.begin) // 20)


def _count_subrequests(
    result: Counter[str],
    found: FoundRequests,
    handled: Mapping[int, Handled],
    number_of: Mapping[int, int],
    asks: list[int],
) -> None:
    """Count for which sub-requests the right request is named."""
    table, ends = found.subrequests, found.endpoints
    # Two sockets may have the same port, with different peers.
    asked_of = np.isin(ends.remote_port[table.endpoint], asks)
    rows = np.flatnonzero((table.connects == 0) & asked_of)
    local = ends.local_port[table.endpoint[rows]]
    at = Rows(rows, local, table.begin_ns, table.end_ns)
    for number, one in handled.items():
        for asked in one.asked:
            result["subrequests"] += 1
            row = at.match(asked)
            if row < 0:
                result["subrequests missing"] += 1
                continue
            if table.request[row] < 0:
                result["subrequests of nobody"] += 1
                continue
            right = number_of.get(int(table.request[row])) == number
            sure = Certainty(table.attribution[row]).name.lower()
            result["subrequests right"] += right
            tenth = min(int(10 * table.probability[row]), 9)
            result[f"tenth {tenth}"] += 1
            result[f"tenth {tenth} right"] += right
            result[f"tenth {tenth} stated"] += float(table.probability[row])
            result[sure] += 1
            result[f"{sure} right"] += right


class Rows:
    """Rows of a table by the port of who asked, to find the one of a moment."""

    def __init__(self, rows: object, ports: object, begin: object, end: object) -> None:
        self._of: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for row, port in zip(rows.tolist(), ports.tolist(), strict=True):
            self._of[port].append((int(begin[row]), int(end[row]), row))
        for each in self._of.values():
            each.sort()

    def match(self, one: Asked) -> int:
        """Return the row with the same port that overlaps it most, -1 if none does."""
        best, most = -1, 0
        of = self._of.get(one.port, [])
        last = bisect.bisect_right(of, (one.end + _NEAR,))
        for begin, end, row in of[:last]:
            overlap = min(end, one.end) - max(begin, one.begin)
            if overlap > most:
                best, most = row, overlap
        return best


class Arrivals:
    """When data arrived at the client's sockets: read from the events, without critpath's rules."""

    def __init__(self, recording: Path) -> None:
        wanted = (
            EventRequest(Kind.OTHER, ("tcp_rcv_space_adjust",), (("skaddr",), ("sport",))),
            EventRequest(Kind.OTHER, ("sk_data_ready",), (("skaddr",),)),
        )
        events = read_events(recording / "trace", wanted)
        owner, ready = events.rows("tcp_rcv_space_adjust"), events.rows("sk_data_ready")
        pairs = zip(
            events.column(owner, "sport").tolist(),
            events.column(owner, "skaddr").tolist(),
            strict=True,
        )
        self._sockets: dict[int, set[int]] = defaultdict(set)
        self._received: dict[int, list[int]] = defaultdict(list)
        for (port, socket), time in zip(pairs, events.timestamp[owner].tolist(), strict=True):
            self._sockets[port].add(socket)
            self._received[port].append(time)
        self._times: dict[int, list[int]] = defaultdict(list)
        columns = (events.column(ready, "skaddr"), events.timestamp[ready])
        for socket, time in zip(*(c.tolist() for c in columns), strict=True):
            self._times[socket].append(time)

    def received(self, one: Asked) -> int:
        """Return when something was received last meanwhile, by whoever asked from that port."""
        times = self._received.get(one.port, [])
        at = bisect.bisect_left(times, one.end) - 1
        return times[at] if at >= 0 and times[at] >= one.begin else one.end

    def last(self, one: Asked) -> int:
        """Return when data arrived last while the client waited, 0 if it never did."""
        found = 0
        for socket in self._sockets.get(one.port, ()):
            times = self._times[socket]
            at = bisect.bisect_left(times, one.end) - 1
            if at >= 0 and times[at] >= one.begin:
                found = max(found, times[at])
        return found

    def near(self, one: Asked, time: int) -> bool:
        """Return whether data arrived near that time, while the client waited."""
        for socket in self._sockets.get(one.port, ()):
            times = self._times[socket]
            first, last = (bisect.bisect_left(times, t) for t in (one.begin, one.end))
            if any(abs(t - time) <= _NEAR for t in times[first:last]):
                return True
        return False


def read_client(file: Path) -> list[Asked]:
    """Read what the client logged."""
    rows = (line.split() for line in file.read_text().splitlines())
    return [Asked(*map(int, row[:4])) for row in rows]


def read_handlers(file: Path, asked: list[Asked]) -> dict[int, Handled]:
    """Read what the handlers logged of the client's requests (a warm-up may have left a row)."""
    client = {one.number: one for one in asked}
    found = {}
    for line in file.read_text().splitlines():
        number, thread, begin, end, peer, *subs = line.split()
        of = client.get(int(number))
        if of is None or int(begin) < of.begin or int(begin) > of.end:
            continue
        made = tuple(Asked(int(number), *map(int, sub.split(":"))) for sub in subs)
        request = Asked(int(number), int(peer), int(begin), int(end))
        found[int(number)] = Handled(int(thread), made, request)
    return found


def threads_of(recorded: Path) -> set[int]:
    """Return the server's threads."""
    file = recorded / "threads"
    return {*map(int, file.read_text().split())} if file.exists() else set()


# The table


def shares(found: Mapping[str, int]) -> str:
    """Return one recording's shares, for people who watch."""
    return ", ".join(
        f"{title} {share(found, part, whole)}" for title, part, whole in COLUMNS if found.get(whole)
    )


COLUMNS: Final = (
    ("precision", "matched", "found"),
    ("recall", "matched", "truth"),
    ("begin", "begin", "matched"),
    ("end", "end", "matched"),
    ("thread", "thread", "threads"),
    ("own time, 50 µs", "own half", "own times"),
    ("100 µs or 5 %", "own near", "own times"),
    ("sub-requests", "subrequests right", "subrequests"),
    ("of certain", "certain right", "certain"),
    ("of likely", "likely right", "likely"),
    ("of doubtful", "doubtful right", "doubtful"),
)


def share(found: Mapping[str, int], part: str, whole: str) -> str:
    """Return a share with three digits, and of how many where it says how sure critpath is."""
    total = found.get(whole, 0)
    if not total:
        return "–"
    of = f" ({total})" if whole in {"certain", "likely", "doubtful"} else ""
    return f"{int(1000 * found.get(part, 0) / total) / 1000:.3f}{of}"


def table(counts: Mapping[str, Mapping[str, Mapping[str, int]]]) -> Iterator[str]:
    """Yield the lines of the table: a row for each server, idle and beside a neighbour."""
    titles = [title for title, _, _ in COLUMNS]
    yield f"| server | | connections | {' | '.join(titles)} |"
    yield f"|---|---|---|{'---|' * len(titles)}"
    for name, recordings in counts.items():
        title = (
            CASES[name.partition(":")[0]].title + name.partition(":")[1] + name.partition(":")[2]
        )
        for busy in (False, True):
            chosen = {n: c for n, c in recordings.items() if n.endswith("-busy") == busy}
            if not chosen:
                continue
            total: Counter[str] = Counter()
            for one in chosen.values():
                total.update(one)
            asked = ", ".join(sorted((n.removesuffix("-busy") for n in chosen), key=int))
            cells = [share(total, part, whole) for _, part, whole in COLUMNS]
            yield f"| {title} | {'busy' if busy else 'idle'} | {asked} | {' | '.join(cells)} |"
