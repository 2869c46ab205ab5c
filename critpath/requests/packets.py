"""When data arrived and which socket is whose, told by packets: where no event tells arrivals.

Recordings without ``sk_data_ready`` have what sockets send and receive, and packets with their
headers.  The packet that a thread queues within a send names both ends of its socket; the packet
that comes for these ends is the arrival, unless TCP's sequence numbers say that it came before
(it was sent again) or that something before it is missing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from critpath.model import I32, I64, U8, EventChunk, EventClass, Events, Kind
from critpath.model.requests import NONE, Act
from critpath.read import HEADER_LENGTHS, HEADERS
from critpath.records import dataclass
from critpath.requests.endpoints import Dumped, EndpointColumn, complete_lives, read_ends

_TCP: Final = 6  # technical
_WORD: Final = 1 << 32  # technical: sequence numbers come again after so many
_HALF: Final = 1 << 31  # technical: what lies further ahead lies behind
_SYN: Final = 2  # technical: a flag of TCP
# technical: bytes of a packet from which on a longer send is made of several of them
_FULL: Final = 1_000
_MOST_EARLY: Final = 64  # technical: packets of a connection that wait for one that is missing
_ENDS: Final = slice(EndpointColumn.LOCAL_HIGH, EndpointColumn.REMOTE_PORT + 1)
_MOVES: Final = (int(Act.RECEIVE), int(Act.SEND))

# Time, act, thread, host, endpoint, value.
Rows = tuple[I64, U8, I32, I32, I32, I64]
Ends = tuple[int, ...]  # two halves of an address and a port, of both ends


@dataclass(slots=True)
class _Packet:
    """A packet with data.

    Attributes
    ----------
    source : Ends
        Its sender's end before the other.
    sequence : int
        Of its first byte; -1 where that is not told.
    """

    time: int
    host: int
    tid: int
    source: Ends
    size: int
    sequence: int


@dataclass(frozen=True)
class Named:
    """What packets tell: rows of `Activity`, the endpoints, and uses of sockets without ends."""

    rows: Rows
    endpoints: I64
    unknown: int


class PacketEvents:
    """Collects packets, and who had which cpu."""

    def __init__(self) -> None:
        self._switches: list[I64] = []  # [n, 4]: host, cpu, time, who has it from then on
        self._sent: list[I64] = []  # [n, 12]: host, cpu, time, ends, size, sequence
        self._came: list[I64] = []

    def feed(self, chunk: EventChunk | Events, classes: Sequence[EventClass]) -> None:
        """Take note of some events, which come after those before."""
        for number, of in enumerate(classes):
            headed = of.kind in {Kind.NET_SEND, Kind.NET_RECEIVE} and _has_headers(of)
            if not headed and of.kind not in {Kind.SWITCH, Kind.CURRENT, Kind.SOCKET_SEGMENT}:
                continue
            rows = np.flatnonzero(chunk.event_class == number)
            if not len(rows):
                continue
            fields = np.arange(len(of.fields))
            values = chunk.values[chunk.offset[rows][:, np.newaxis] + fields]
            where = np.stack(
                [np.full(len(rows), of.host), chunk.cpu[rows], chunk.timestamp[rows]], axis=1
            )
            if of.kind in {Kind.SWITCH, Kind.CURRENT}:
                who = values[:, 4 if of.kind == Kind.SWITCH else 0]
                self._switches.append(np.column_stack([where, who]))
            elif of.kind == Kind.SOCKET_SEGMENT:
                ends = np.array([_turn(_flatten(v[:9])) for v in values.tolist()], np.int64)
                told = [where, ends, values[:, 9:10], np.full((len(rows), 1), NONE)]
                self._came.append(np.hstack(told)[values[:, 9] > 0])
            else:
                to = self._sent if of.kind == Kind.NET_SEND else self._came
                to.append(_read_packets(where, values, [*of.fields]))

    def finish(self, rows: Rows, endpoints: I64, dumped: Sequence[Dumped] = ()) -> Named:
        """Return the rows with arrivals, of endpoints that packets give their ends.

        Parameters
        ----------
        rows : tuple of arrays
            In order of time.
        endpoints : int64 [n, 18]
        dumped : sequence of Dumped
            Sockets that were there before.
        """
        on = _Processors(self._switches)
        sent, came = (list(on.find(some)) for some in (self._sent, self._came))
        endpoints = endpoints.copy()
        complete_lives(endpoints, dumped)
        time, act, tid, host, endpoint, value = (np.array(one, np.int64) for one in rows)
        where = np.flatnonzero(np.isin(act, _MOVES) & (endpoint >= 0))
        tcp = endpoints[:, EndpointColumn.PROTOCOL] == _TCP
        where = where[tcp[endpoint[where]]]
        ends = _name_sends(where, (time, act, tid, host, value), sent)
        endpoints, endpoint = _part_lives(endpoints, (time, act, endpoint), ends)
        moves = _Moves(where, (time, act, tid, host, endpoint))
        told = list(_find_arrivals(endpoints, sent, came, moves))
        told += _follow_sends(endpoints, where, {at for *_, at, _ in told}, moves)
        arrivals = np.array(told, np.int64).reshape(-1, 6)
        known = endpoints[:, EndpointColumn.KNOWN] == 1
        unknown = int((~known[endpoint[where]]).sum())
        together = [
            np.concatenate([one, arrivals[:, at]])
            for at, one in enumerate((time, act, tid, host, endpoint, value))
        ]
        order = np.argsort(together[0], kind="stable")
        wide = [column[order] for column in together]
        tids, hosts, ats = (column.astype(np.int32) for column in wide[2:5])
        made = wide[0], wide[1].astype(np.uint8), tids, hosts, ats, wide[5]
        return Named(made, endpoints, unknown)


def _has_headers(of: EventClass) -> bool:
    wanted = (*HEADERS, *HEADER_LENGTHS)
    types = dict(zip(of.fields, of.types, strict=True))
    return all(types.get(name, "absent") != "absent" for name in wanted)


def _read_packets(where: I64, values: I64, fields: list[str]) -> I64:
    """Return the packets of TCP that carry data, or begin a direction; of IPv6 only the ports."""
    near, sport, far, dport, sequence, _, flags = (values[:, fields.index(n)] for n in HEADERS)
    header, offset = (values[:, fields.index(name)] for name in HEADER_LENGTHS)
    # technical: a header's length counts words of four bytes; of IPv6 it is always ten
    size = values[:, fields.index("len")] - 4 * np.where(header > 0, header, 10) - 4 * offset
    opens = flags & _SYN > 0  # which counts as a byte
    size, sequence = np.where(opens, 0, size), sequence + opens
    keep = (sport > 0) & (dport > 0) & (offset > 0) & ((size > 0) | opens)
    zero = np.zeros_like(near)
    ends = np.stack([zero, near & (_WORD - 1), sport, zero, far & (_WORD - 1), dport], axis=1)
    return np.column_stack([where, ends, size, sequence & (_WORD - 1)])[keep]


def _flatten(values: Sequence[int]) -> Ends:
    local, remote = read_ends(values)
    return (*local, *remote)


def _turn(ends: Ends) -> Ends:
    """Return both ends, the other one first."""
    return (*ends[3:], *ends[:3])


class _Processors:
    """Who had which cpu when."""

    def __init__(self, switches: Sequence[I64]) -> None:
        empty = np.zeros((0, 4), np.int64)
        of = np.concatenate([empty, *switches])
        order = np.lexsort((of[:, 2], of[:, 1], of[:, 0]))
        self._of, self._key = of[order], of[order, 0] * _WORD + of[order, 1]

    def find(self, packets: Sequence[I64]) -> Iterator[_Packet]:
        """Yield packets in order of time, each with the thread that had its cpu, -1 for none."""
        of = np.concatenate([np.zeros((0, 11), np.int64), *packets])
        of = of[np.argsort(of[:, 2], kind="stable")]
        first = np.searchsorted(self._key, of[:, 0] * _WORD + of[:, 1])
        last = np.searchsorted(self._key, of[:, 0] * _WORD + of[:, 1], side="right")
        for row, low, high in zip(of.tolist(), first.tolist(), last.tolist(), strict=True):
            at = low + int(np.searchsorted(self._of[low:high, 2], row[2], side="right")) - 1
            tid = int(self._of[at, 3]) if at >= low else NONE
            yield _Packet(row[2], row[0], tid or NONE, tuple(row[3:9]), row[9], row[10])


def _name_sends(
    where: I64, columns: tuple[I64, I64, I64, I64, I64], sent: Sequence[_Packet]
) -> dict[int, Ends]:
    """Return both ends of the socket of each send within which its thread queued its packet."""
    queued: dict[tuple[int, int], list[_Packet]] = defaultdict(list)
    for packet in sent:
        queued[packet.host, packet.tid].append(packet)
    time, act, tid, host, value = columns
    passed: Counter[tuple[int, int]] = Counter()
    found = {}
    for row in where.tolist():
        thread = int(host[row]), int(tid[row])
        mine, at = queued.get(thread, []), passed[thread]
        within = at
        while within < len(mine) and mine[within].time <= time[row]:
            within += 1
        passed[thread] = within
        if act[row] != Act.SEND:
            continue
        size = int(value[row])
        # Of what this call sends, not of what its thread sends for others meanwhile.
        told = [p for p in mine[at:within] if p.size == size or _FULL <= p.size < size]
        if told:
            found[row] = told[-1].source
    return found


def _part_lives(
    endpoints: I64, columns: tuple[I64, I64, I64], ends: dict[int, Ends]
) -> tuple[I64, I64]:
    """Give endpoints their ends; a socket whose ends change is another from then on.

    Its kernel address was used again, and no event told that: what follows the last send of the
    old one, and the end of what it received, is of the new one.
    """
    time, act, endpoint = columns
    unnamed = endpoints[:, EndpointColumn.KNOWN] == 0
    rows = np.flatnonzero((endpoint >= 0) & unnamed[endpoint] & np.isin(act, (*_MOVES, Act.FINISH)))
    by_endpoint: dict[int, list[int]] = defaultdict(list)
    for row in rows.tolist():
        by_endpoint[int(endpoint[row])].append(row)
    endpoint, more = endpoint.copy(), [*endpoints.copy()]
    for of, mine in by_endpoint.items():
        at, last = of, None
        for place, row in enumerate(mine):
            if row not in ends:
                continue
            if last is not None and ends[row] != last:
                begun = next(
                    k + 1
                    for k in range(place - 1, -1, -1)
                    if mine[k] in ends or act[mine[k]] == Act.FINISH
                )
                life = endpoints[of].copy()
                life[EndpointColumn.OPENED] = time[mine[begun]]
                life[EndpointColumn.FIRST] = 1 if act[mine[begun]] == Act.RECEIVE else 2
                life[[EndpointColumn.PARTNER, EndpointColumn.VOTES]] = NONE, 0
                more[at][EndpointColumn.CLOSED] = time[mine[begun]] - 1
                more.append(life)
                at = len(more) - 1
                endpoint[mine[begun:]] = at
            last = ends[row]
            more[at][_ENDS], more[at][EndpointColumn.KNOWN] = last, 1
    return np.array(more, np.int64).reshape(-1, len(EndpointColumn)), endpoint


class _Moves:
    """What each thread received or sent next."""

    def __init__(self, where: I64, columns: tuple[I64, I64, I64, I64, I64]) -> None:
        self.columns = columns
        time, act, tid, host, endpoint = columns
        self._of: dict[tuple[int, int], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for row in where.tolist():
            times, sends = self._of[int(host[row]), int(tid[row])]
            times.append(int(time[row]))
            sends.append(int(endpoint[row]) if act[row] == Act.SEND else NONE)

    def is_sending(self, host: int, tid: int, when: int, endpoints: Sequence[int]) -> bool:
        """Tell whether a thread's next move is a send of one of some endpoints."""
        times, sends = self._of.get((host, tid), ([], []))
        at = int(np.searchsorted(times, when))
        return at < len(times) and sends[at] in endpoints


def _find_arrivals(
    endpoints: I64, sent: Sequence[_Packet], came: Sequence[_Packet], moves: _Moves
) -> Iterator[tuple[int, int, int, int, int, int]]:
    """Yield a row for each packet by which data is there to be received."""
    by_ends = _group_ends(endpoints)
    opened = endpoints[:, EndpointColumn.OPENED]
    closed = endpoints[:, EndpointColumn.CLOSED]
    expected: dict[tuple[int, ...], _Stream] = {}
    for packet in sent:  # to oneself
        expected.setdefault((packet.host, *_turn(packet.source)), _Stream(packet))
    for packet in came:
        target = packet.host, *_turn(packet.source)
        if not packet.size:
            expected[target] = _Stream(packet)
            continue
        living = [
            at for at in by_ends.get(target, ()) if closed[at] < 0 or packet.time <= closed[at]
        ]
        if not living or not expected.setdefault(target, _Stream(packet)).take(packet):
            continue
        # Of several that had these ends one after the other the first that is not over.
        at = min(living, key=lambda one: int(opened[one]))
        peers = by_ends.get((packet.host, *packet.source), ())
        sender = moves.is_sending(packet.host, packet.tid, packet.time, peers)
        who = packet.tid if sender else NONE
        yield packet.time, int(Act.ARRIVAL), who, packet.host, at, 0


def _group_ends(endpoints: I64) -> dict[tuple[int, ...], list[int]]:
    """Return the endpoints that have a host and both ends; those of IPv6 by their ports, too.

    Of packets over IPv6 no addresses are told: those of two sockets with equal ports are nobody's.
    """
    found: dict[tuple[int, ...], list[int]] = defaultdict(list)
    by_ports: dict[tuple[int, ...], set[tuple[int, ...]]] = defaultdict(set)
    for at in np.flatnonzero(endpoints[:, EndpointColumn.KNOWN] == 1).tolist():
        host, ends = int(endpoints[at, EndpointColumn.HOST]), tuple(endpoints[at, _ENDS].tolist())
        found[host, *ends].append(at)
        high, low, port, far_high, far_low, far_port = ends
        if high or far_high or not (0 <= low < _WORD and 0 <= far_low < _WORD):
            by_ports[host, 0, 0, port, 0, 0, far_port].add((host, *ends))
    for ports, each in by_ports.items():
        if len(each) == 1 and ports not in found:
            found[ports] = found[each.pop()]
    return found


def _follow_sends(
    endpoints: I64, where: I64, told: set[int], moves: _Moves
) -> Iterator[tuple[int, int, int, int, int, int]]:
    """Yield arrivals at those of which no packet tells any, from sends on the same machine.

    A send is recorded when its call ends; who is sent to may have received by then.
    """
    time, act, tid, host, endpoint = moves.columns
    here: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for at in np.flatnonzero(endpoints[:, EndpointColumn.KNOWN] == 1).tolist():
        here[int(endpoints[at, EndpointColumn.HOST]), *endpoints[at, _ENDS].tolist()].append(at)
    closed = endpoints[:, EndpointColumn.CLOSED]
    received: dict[int, list[int]] = defaultdict(list)
    for row in where[act[where] == Act.RECEIVE].tolist():
        received[int(endpoint[row])].append(int(time[row]))
    before: dict[tuple[int, int], int] = {}
    for row in where.tolist():
        thread, now = (int(host[row]), int(tid[row])), int(time[row])
        last = before.get(thread, 0)
        before[thread] = now
        if act[row] != Act.SEND or thread[1] <= 0:
            continue
        ends = _turn(tuple(endpoints[endpoint[row], _ENDS].tolist()))
        for at in here.get((thread[0], *ends), ()):
            if at in told or 0 <= closed[at] < now:
                continue
            times = received[at]
            first = int(np.searchsorted(times, last, side="right"))
            when = min(now, times[first] - 1) if first < len(times) else now
            yield max(when, last), int(Act.ARRIVAL), thread[1], thread[0], at, 0
            break


class _Stream:
    """How far one direction of a connection has come."""

    def __init__(self, first: _Packet) -> None:
        self._next = first.sequence
        self._early: dict[int, int] = {}  # where what came too early begins and ends

    def take(self, packet: _Packet) -> bool:
        """Tell whether something can be received by a packet that could not before."""
        if packet.sequence < 0:  # what the socket itself took
            return True
        end = (packet.sequence + packet.size) % _WORD
        if (packet.sequence - self._next) % _WORD < _HALF and packet.sequence != self._next:
            self._early[packet.sequence] = end
            if len(self._early) <= _MOST_EARLY:
                return False
            self._early.clear()  # what is missing was lost from the recording
            self._next = end
            return True
        if (end - self._next) % _WORD >= _HALF or end == self._next:
            return False
        self._next = end
        while self._next in self._early:
            self._next = self._early.pop(self._next)
        return True
