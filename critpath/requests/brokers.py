"""Messages that go through brokers: who put each into a queue, and who took it.

A broker passes on what it is given: what one client receives is as long as what another sent, but
for a constant that is their protocol's.  Where that holds for messages of several lengths it is no
accident; of those with one length the oldest comes first.  Labels of bytes say besides which
commands put and take, whatever the lengths.  Only what clients do is looked at, so the broker may
be on another machine.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import field
from itertools import combinations
from typing import Final, TypeVar

import numpy as np

from critpath.model import F64, I32, I64, Bool
from critpath.model.requests import NONE, Act, Collected, Endpoints
from critpath.model.vectors import find_distinct
from critpath.records import dataclass
from critpath.requests.crossings import OperationRows
from critpath.requests.endpoints import EndpointColumn as Column
from critpath.schema.parameters.requests import BROKERS

# What labels say of a message: it goes into a queue, or one of a queue is asked for or comes.
PUTS: Final = frozenset(
    ("LPUSH", "LPUSHX", "RPUSH", "RPUSHX", "XADD", "PUBLISH", "basic.publish", "PUB", "HPUB")
)
TAKES: Final = frozenset(
    (
        *("BLMOVE", "BLMPOP", "BLPOP", "BRPOP", "BRPOPLPUSH", "LMPOP", "LPOP", "RPOP", "RPOPLPUSH"),
        *("XREAD", "XREADGROUP", "basic.deliver", "basic.get-ok", "MSG", "HMSG"),
    )
)
_FULL: Final = 4096  # technical: a receive of a multiple of this goes on in the next
_LONG_AGO: Final = -(1 << 62)  # technical
_PIECES: Final = (1, 2, 3)  # technical: sends of one message, as clients make them
_LAST: Final = 64  # technical: messages before a receive that it is compared with
_LEARNED: Final = 2000  # technical: receives of a program that are
_TRIED: Final = 3  # technical: differences of lengths
_TOGETHER: Final = 6  # technical: waiting messages of which several may come at once


@dataclass(frozen=True, eq=False)
class Delivered:
    """Messages that clients of brokers received, in order of time; several may come in one.

    Attributes
    ----------
    row : int64 [messages]
        The receive, as a row of the activity.
    put, first : int64 [messages]
        The last and the first send that put it there.
    before : int64 [messages]
        How many were in the queue when it was put there, as far as they were seen.
    probability : float64 [messages]
        That these sends are the right ones.
    """

    row: I64
    put: I64
    first: I64
    before: I64
    probability: F64

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True, eq=False)
class _Moved:
    """What went between a broker and its clients, in order of when the broker had it."""

    row: I64  # of the activity
    order: I64
    size: I64
    program: I64
    endpoint: I64
    labelled: Bool  # by its label it is put into a queue, or taken from one


@dataclass(frozen=True, eq=False)
class _Sent(_Moved):
    """What the clients sent, as messages of so many sends each; the row is the last."""

    first: I64


@dataclass(frozen=True, eq=False)
class _Got(_Moved):
    """What the clients received."""

    asked: I64  # when the client had last sent something there
    own: I64  # how long that was
    question: I64  # its row, -1 for none


_Table = TypeVar("_Table", _Sent, _Got)


def find_delivered(
    collected: Collected, endpoints: Endpoints, name: Callable[[int, int], str]
) -> Delivered:
    """Find the messages that clients of brokers received, and who put each there.

    Parameters
    ----------
    collected, endpoints
        Of the recording.
    name : callable
        What the process of a host's thread is called.
    """
    found: list[_Found] = []
    for sent, got in _Clients(collected, endpoints, name).list_brokers():
        found += _Broker(sent, got).join()
    found.sort(key=lambda one: (one.row, one.put))
    columns = ("row", "put", "first", "before")
    row, put, first, before = (
        np.array([getattr(one, of) for one in found], np.int64) for of in columns
    )
    sure = np.array([one.probability for one in found], np.float64)
    return Delivered(row, put, first, before, sure)


class _Labels:
    """What received messages are called, by the row of the receive."""

    def __init__(self, collected: Collected) -> None:
        acts = collected.activity
        ends: dict[tuple[int, int], list[int]] = defaultdict(list)
        columns = (collected.endpoints[:, c].tolist() for c in (Column.HOST, Column.SOCKET))
        for at, key in enumerate(zip(*columns, strict=True)):
            ends[key].append(at)
        of: dict[tuple[int, int], list[tuple[int, str]]] = defaultdict(list)
        for when, host, socket, _, _, label in collected.messages:
            if label and (host, socket) in ends:
                of[host, socket].append((when, label))
        self._labelled: dict[int, str] = {}
        received = acts.act == Act.RECEIVE if of else np.zeros(len(acts), np.bool_)
        by = np.flatnonzero(received & (acts.endpoint >= 0))
        by = by[np.argsort(acts.endpoint[by], kind="stable")]
        place = acts.endpoint[by]
        for key, said in of.items():
            low, high = (
                np.searchsorted(place, ends[key]),
                np.searchsorted(place, ends[key], "right"),
            )
            rows = np.sort(np.concatenate([by[a:b] for a, b in zip(low, high, strict=True)]))
            if not len(rows):
                continue
            times = acts.time_ns[rows]
            heard = np.array([time for time, _ in said], np.int64)
            after = np.minimum(np.searchsorted(times, heard), len(rows) - 1)
            one = np.maximum(after - 1, 0)
            sooner = np.abs(times[one] - heard) <= np.abs(times[after] - heard)
            nearest = rows[np.where(sooner, one, after)].tolist()
            for row, (_, label) in zip(nearest, said, strict=True):
                self._labelled.setdefault(row, label)

    def find(self, rows: I64, which: Collection[str]) -> tuple[Bool, Bool]:
        """Return which rows have a label, and which one of these."""
        labels = [self._labelled.get(row, "") for row in rows.tolist()] if self._labelled else []
        if not labels:
            return np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
        return np.array([label != "" for label in labels]), np.array([x in which for x in labels])


class _Clients:
    """What the clients of each broker sent and received."""

    def __init__(
        self, collected: Collected, endpoints: Endpoints, name: Callable[[int, int], str]
    ) -> None:
        self._acts = acts = collected.activity
        self._endpoints = endpoints
        moves = np.isin(acts.act, (Act.SEND, Act.RECEIVE)) & (acts.endpoint >= 0)
        moves &= endpoints.serves[np.maximum(acts.endpoint, 0)] == 0
        rows = np.flatnonzero(moves & (acts.tid > 0))
        self._rows = rows[np.argsort(acts.endpoint[rows], kind="stable")]
        codes: dict[str, int] = {}
        pairs = np.column_stack([acts.host[rows], acts.tid[rows]])
        each, number = find_distinct(pairs)
        programs = [codes.setdefault(name(*pair), len(codes)) for pair in each.tolist()]
        self._program = np.full(len(acts), NONE, np.int64)
        self._program[rows] = np.array(programs, np.int64)[number]
        self._labels = _Labels(collected)
        self._arrivals, self._receives = (
            OperationRows(acts, Act.ARRIVAL),
            OperationRows(acts, Act.RECEIVE),
        )

    def list_brokers(self) -> Iterator[tuple[list[_Sent], _Got]]:
        """Yield of everybody whom several connections lead to what went there and came back."""
        acts, ends, rows = self._acts, self._endpoints, self._rows
        of = acts.endpoint[rows].astype(np.int64)
        peer = ends.peer[of]
        path = np.where(peer >= 0, ends.path[np.maximum(peer, 0)], ends.path[of])
        keys = np.column_stack([ends.remote_address[of], ends.remote_port[of], path])
        number = find_distinct(keys)[1]
        for each in range(int(number.max(initial=-1)) + 1):
            mine = rows[number == each]
            _, port, where = keys[np.argmax(number == each)]
            if len(np.unique(acts.endpoint[mine])) > 1 and (port or where):
                got = self._take_got(mine)
                many = len(got.row) >= BROKERS.fewest
                if got.labelled.any() or (many and len(np.unique(got.size)) >= BROKERS.lengths):
                    yield [self._take_sent(mine, pieces) for pieces in _PIECES], got

    def _take_sent(self, rows: I64, pieces: int) -> _Sent:
        """Return what was sent in so many sends each, one right after the other."""
        acts = self._acts
        end, tid, time = (c[rows] for c in (acts.endpoint, acts.tid, acts.time_ns))
        sends = acts.act[rows] == Act.SEND
        goes_on = sends & _is_like_before(end, tid, sends)
        goes_on &= np.diff(time, prepend=_LONG_AGO) < BROKERS.apart
        run = np.cumsum(~goes_on) - 1
        start = np.flatnonzero(~goes_on)
        place = np.arange(len(rows)) - start[run]
        length = np.bincount(run)[run]
        last = np.flatnonzero(sends & (length % pieces == 0) & (place % pieces == pieces - 1))
        total = np.concatenate([[0], np.cumsum(np.where(sends, acts.value[rows], 0))])
        of = rows[last]
        there = self._endpoints.peer[acts.endpoint[of]].astype(np.int64)
        came = self._arrivals.before(there, of)
        read = self._receives.after(there, np.where(came >= 0, came, of))
        order = acts.time_ns[np.where(read >= 0, read, of)]
        named, labelled = self._labels.find(read, PUTS)
        size = total[last + 1] - total[last - pieces + 1]
        table = _Sent(
            *(of, order, size, self._program[of], acts.endpoint[of].astype(np.int64), labelled),
            rows[last - pieces + 1],
        )
        return _take(table, labelled | ~named)

    def _take_got(self, rows: I64) -> _Got:
        """Return what was received: what fills a buffer goes on in the next."""
        acts = self._acts
        end, value = acts.endpoint[rows].astype(np.int64), acts.value[rows]
        receives = acts.act[rows] == Act.RECEIVE
        full = (value > 0) & (value % _FULL == 0)
        goes_on = receives & _is_like_before(end, receives) & np.append(False, full[:-1])
        head = np.flatnonzero(receives & ~goes_on)
        total = np.concatenate([[0], np.cumsum(np.where(receives, value, 0))])
        size = np.diff(total[np.append(head, len(rows))])
        sent = np.maximum.accumulate(np.where(receives, NONE, np.arange(len(rows))))[head]
        asks = (sent >= 0) & (end[sent] == end[head])
        of, at = rows[head], end[head]
        came = self._arrivals.before(at, of)
        asked = np.where(asks, acts.time_ns[rows[sent]], _LONG_AGO)
        order = acts.time_ns[np.where(came >= 0, came, of)]
        order = np.minimum(np.maximum(order, asked), acts.time_ns[of])
        fetch = self._receives.before(self._endpoints.peer[at].astype(np.int64), of)
        named, labelled = self._labels.find(fetch, TAKES)
        comes, tells = self._labels.find(of, TAKES)
        own, question = np.where(asks, value[sent], NONE), np.where(asks, rows[sent], NONE)
        table = _Got(of, order, size, self._program[of], at, labelled | tells, asked, own, question)
        return _take(table, labelled | tells | ~(named | comes))


def _is_like_before(*columns: I32 | I64 | Bool) -> Bool:
    """Return which rows are like the one before in all of some columns."""
    like = np.ones(len(columns[0]), np.bool_)
    like[:1] = False
    for of in columns:
        like[1:] &= of[1:] == of[:-1]
    return like


def _take(table: _Table, which: Bool) -> _Table:
    """Return some rows of a table, in order of when the broker had them."""
    rows = np.flatnonzero(which)
    rows = rows[np.argsort(table.order[rows], kind="stable")]
    return type(table)(*(getattr(table, name)[rows] for name in table.__dataclass_fields__))


def _list_differences(differs: I64, sizes: I64) -> list[int]:
    """Return the differences that most lengths have."""
    pairs = find_distinct(np.column_stack([differs, sizes]))[0][:, 0]
    values, counts = np.unique(pairs, return_counts=True)
    found: list[int] = values[np.argsort(-counts, kind="stable")][:_TRIED].tolist()
    return found


@dataclass(frozen=True)
class _Channel:
    """Whose messages come to a program how much longer than they were sent."""

    pieces: int  # place in what was sent
    program: int
    more: int


@dataclass
class _Found:
    """A message, as `Delivered` has it; `got` and `sent` are its places at its broker."""

    row: int
    put: int
    first: int
    got: int
    order: tuple[int, int]  # when it was put there, and when it came
    alone: bool  # no other of its length was there
    before: int = 0
    probability: float = 0.0


@dataclass
class _Waiting:
    """Messages that were put into queues, by channel and length, and not taken yet."""

    sent: Sequence[_Sent]
    places: dict[tuple[int, int, int], list[int]] = field(default_factory=dict)
    taken: set[int] = field(default_factory=set)  # rows of the activity
    # By channel, the last that were taken: what many overtook is not waiting any more.
    last: dict[tuple[int, int], list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        found: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        for pieces, of in enumerate(self.sent):
            keys = zip(of.program.tolist(), of.size.tolist(), strict=True)
            for place, (program, size) in enumerate(keys):
                found[pieces, program, size].append(place)
        self.places = dict(found)

    def take(self, pieces: int, place: int) -> None:
        """Take a message."""
        of = self.sent[pieces]
        self.taken.add(int(of.row[place]))
        last = self.last.setdefault((pieces, int(of.program[place])), [])
        insort(last, place)
        del last[:-_LAST]

    def first(self, pieces: int, program: int) -> int:
        """Return the first of a channel that may still wait."""
        last = self.last.get((pieces, program), [])
        return last[0] if len(last) == _LAST else 0

    def list_there(self, key: tuple[int, int, int], order: int, endpoint: int) -> list[int]:
        """Return what waits, of one channel and length, and was there at a time."""
        of, places = self.sent[key[0]], self.places.get(key, [])
        first = self.first(key[0], key[1])
        while places and (places[0] < first or int(of.row[places[0]]) in self.taken):
            places.pop(0)
        found = []
        for at in places:
            if of.order[at] > order:
                break
            if of.endpoint[at] != endpoint and int(of.row[at]) not in self.taken:
                found.append(at)
        return found


class _Broker:
    """One broker: learns who passes messages to whom, and joins them."""

    def __init__(self, sent: list[_Sent], got: _Got) -> None:
        self._sent, self._got = sent, got
        self._labelled = bool(got.labelled.any()) and any(of.labelled.any() for of in sent)

    def join(self) -> list[_Found]:
        """Return the messages that went through it."""
        channels = {
            program: found
            for program in np.unique(self._got.program).tolist()
            if (found := self._learn(program))
        }
        return self._judge(self._leave_out_odd(self._follow(channels))) if channels else []

    # ------------------------------------------------------------ who passes on to whom

    def _learn(self, program: int) -> list[_Channel]:
        """Return the channels by which messages come to a program."""
        got, found = self._got, list[_Channel]()
        left = np.flatnonzero(got.program == program)[:_LEARNED]
        least = BROKERS.share * len(left)
        while len(left) and len(found) < BROKERS.channels:
            tried = [
                (_Channel(pieces, other, explained[0]), explained[1])
                for pieces, of in enumerate(self._sent)
                for other in np.unique(of.program).tolist()
                if (explained := self._explain(left, pieces, other, least)) is not None
            ]
            if not tried:
                break
            channel, which = max(tried, key=lambda one: int(one[1].sum()))
            found.append(channel)
            left = left[~which]
        return found

    def _explain(
        self, left: I64, pieces: int, program: int, least: float
    ) -> tuple[int, Bool] | None:
        """Return by how much what came is longer than what a program sent, and where that fits."""
        got, sent = self._got, self._sent[pieces]
        mine = np.flatnonzero(sent.program == program)
        if not len(mine):
            return None
        until = np.searchsorted(sent.order[mine], got.order[left], side="right")
        at = until[:, np.newaxis] - 1 - np.arange(_LAST)
        there = mine[np.maximum(at, 0)]
        known = (at >= 0) & (sent.endpoint[there] != got.endpoint[left][:, np.newaxis])
        if self._labelled:
            known &= sent.labelled[there] & got.labelled[left][:, np.newaxis]
        differs = got.size[left][:, np.newaxis] - sent.size[there]
        known &= np.abs(differs) <= BROKERS.added
        number = np.broadcast_to(np.arange(len(left))[:, np.newaxis], at.shape)[known]
        if not len(number):
            return None
        sizes = got.size[left][number]
        for more in _list_differences(differs[known], sizes):
            which = (known & (differs == more)).any(axis=1)
            if which.sum() >= least and (self._labelled or self._is_sure(left[which])):
                return more, which
        return None

    def _is_sure(self, which: I64) -> bool:
        """Tell whether it is no accident that what came is as long as what was sent."""
        if len(which) < BROKERS.fewest:
            return False
        size, own = self._got.size[which], self._got.own[which]
        # An answer as long as its own question is an echo.
        asks = np.unique((size - own)[own >= 0], return_counts=True)[1]
        if asks.max(initial=0) >= BROKERS.alike * len(which) and len(np.unique(own)) > 1:
            return False
        counts = np.unique(size, return_counts=True)[1]
        return len(counts) >= BROKERS.lengths and bool(counts.max() < BROKERS.alike * len(which))

    # ------------------------------------------------------------ which is which

    def _follow(self, channels: dict[int, list[_Channel]]) -> list[_Found]:
        """Join what came with the oldest of its length that was put there and not taken."""
        waiting, got = _Waiting(self._sent), self._got
        found: list[_Found] = []
        columns = (got.program, got.order, got.size, got.endpoint, got.asked, got.row)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for place, (program, order, size, endpoint, asked, row) in enumerate(rows):
            for several in (1, 2, 3):
                chosen = self._choose(
                    waiting, channels.get(program, []), several, (order, size, endpoint, asked)
                )
                if chosen is not None:
                    for pieces, at, alone in chosen:
                        waiting.take(pieces, at)
                        of = self._sent[pieces]
                        found.append(
                            _Found(
                                *(row, int(of.row[at]), int(of.first[at]), place),
                                *((int(of.order[at]), order), alone),
                            )
                        )
                    break
        return found

    def _choose(
        self,
        waiting: _Waiting,
        channels: list[_Channel],
        several: int,
        came: tuple[int, int, int, int],
    ) -> list[tuple[int, int, bool]] | None:
        """Return the messages that came in one receive, if so many did."""
        order, size, endpoint, asked = came
        best: list[tuple[int, int, bool]] | None = None
        for channel in channels:
            of = self._sent[channel.pieces]
            if several == 1:
                key = channel.pieces, channel.program, size - channel.more
                fits = waiting.list_there(key, order, endpoint)
                # A queue that had something would have answered at once.
                later = [at for at in fits if of.order[at] > asked]
                if later and order - asked > BROKERS.apart:
                    fits = later
                chosen = [(channel.pieces, fits[0], len(fits) == 1)] if fits else None
            else:
                chosen = self._add_up(waiting, channel, several, came)
            if chosen and (best is None or self._is_older(chosen[0], best[0])):
                best = chosen
        return best

    def _is_older(self, one: tuple[int, int, bool], other: tuple[int, int, bool]) -> bool:
        orders = [self._sent[pieces].order[at] for pieces, at, _ in (one, other)]
        return bool(orders[0] < orders[1])

    def _add_up(
        self,
        waiting: _Waiting,
        channel: _Channel,
        several: int,
        came: tuple[int, int, int, int],
    ) -> list[tuple[int, int, bool]] | None:
        """Return several that are together as long as what came."""
        order, size, endpoint, _ = came
        of = self._sent[channel.pieces]
        last = int(np.searchsorted(of.order, order, side="right"))
        there = [
            at
            for at in range(
                max(last - _LAST, waiting.first(channel.pieces, channel.program), 0), last
            )
            if of.program[at] == channel.program
            and of.endpoint[at] != endpoint
            and int(of.row[at]) not in waiting.taken
        ][:_TOGETHER]
        for some in combinations(there, several):
            if int(of.size[list(some)].sum()) + several * channel.more == size:
                return [(channel.pieces, at, False) for at in some]
        return None

    def _leave_out_odd(self, found: list[_Found]) -> list[_Found]:
        """Leave out what came over connections by which little else is passed on."""
        many, which = Counter(self._got.endpoint.tolist()), self._got.endpoint.tolist()
        passed = Counter(which[one] for one in {of.got for of in found})
        least = {of: max(2, BROKERS.passed * count) for of, count in many.items()}
        found = [
            of for of in found if self._labelled or passed[which[of.got]] >= least[which[of.got]]
        ]
        programs = self._got.program.tolist()
        odd = set() if self._labelled else self._find_disorder(found) | self._find_answered(found)
        return [of for of in found if programs[of.got] not in odd]

    def _find_disorder(self, found: list[_Found]) -> set[int]:
        """Return the programs to whom it is chance that messages fit.

        They come in no order, or later than a queue that had them would have answered.
        """
        last: dict[int, int] = {}
        counts: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
        for of in found:
            at, program = int(self._got.endpoint[of.got]), int(self._got.program[of.got])
            asked, mine = int(self._got.asked[of.got]), counts[program]
            mine[2] += 1
            mine[3] += of.order[0] < asked < of.order[1] - BROKERS.apart
            if of.alone:
                mine[0] += 1
                mine[1] += of.order[0] < last.get(at, of.order[0])
                last[at] = of.order[0]
        return {
            program
            for program, (alone, back, many, late) in counts.items()
            if back > BROKERS.disorder * alone or late > BROKERS.disorder * many
        }

    def _find_answered(self, found: list[_Found]) -> set[int]:
        """Return the programs that get their messages for others: answers of a common server."""
        puts = {of.put for of in found}
        many, answers = Counter[int](), Counter[int]()
        for of in found:
            program = int(self._got.program[of.got])
            many[program] += 1
            answers[program] += int(self._got.question[of.got]) in puts
        return {of for of, count in answers.items() if count > BROKERS.answered * many[of]}

    def _judge(self, found: list[_Found]) -> list[_Found]:
        """Say how many were before each, and how probable it is that each is the right one.

        How often one overtakes another is seen at those that no other is as long as.
        """
        put, came = (np.array([one.order[n] for one in found], np.int64) for n in (0, 1))
        before = np.searchsorted(np.sort(put), put) - np.searchsorted(np.sort(came), put, "right")
        # In order of their coming: whether one that was put there sooner comes later.
        later = np.minimum.accumulate(np.append(put[1:], np.iinfo(np.int64).max)[::-1])[::-1]
        alone = np.array([one.alone for one in found], np.bool_)
        overtakes = int((put > later)[alone].sum())
        surest = 1 - (overtakes + BROKERS.mistakes) / (int(alone.sum()) + 1)
        for one, many in zip(found, before.tolist(), strict=True):
            one.before = max(many, 0)
            one.probability = BROKERS.alone if one.alone else max(min(surest, BROKERS.alone), 0.0)
        return found
