"""Turns of endpoints that serve: the requests of a recording, before anybody asks who works."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Final

import numpy as np

from critpath.model import I32, I64, U8, Bool, Loss, Workers
from critpath.model.containers import Places, is_container, name_in_place, strip_instance
from critpath.model.gaps import Gaps
from critpath.model.requests import (
    NONE,
    Act,
    Activity,
    Certainty,
    Collected,
    Endpoints,
    RequestAccount,
    RequestTable,
)
from critpath.records import dataclass
from critpath.requests._turns import Cutter
from critpath.requests.datagrams import split_datagrams
from critpath.requests.endpoints import FIRST, UDP, UNIX, resolve_endpoints
from critpath.requests.endpoints import EndpointColumn as Column
from critpath.requests.jobs import Messages, split_jobs
from critpath.requests.sessions import place_sessions
from critpath.requests.streams import split_streams
from critpath.requests.stretches import Parts, Stretches, part_activity
from critpath.schema.parameters.ab import WINDOWS
from critpath.schema.parameters.requests import TURNS

BY_ARRIVAL, BY_WAKE, BY_READ = range(3)
# What makes a boundary less than certain: `RequestTable.why`.
WHYS: Final = (
    *("", "multiplexed", "read late", "begun by a wake", "role by who received first"),
    *("answered in pieces over time", "one of several datagrams", "came with one of several"),
)
MULTIPLEXED, _READ_LATE, _BY_WAKE, _ROLE, _STREAM, _DATAGRAMS, _ONE_OF_SEVERAL = range(1, 8)

MOST_LABELS: Final = 64  # technical: of a service's messages
# What an account (`RequestAccount`) has of every endpoint.
COUNTED: Final = "incomplete", "unsolicited", "skipped", "busy_periods", "streams", "datagrams"
_MOST_CLASSES: Final = 100  # technical: of like turns, those with most changes of places
_OF_TURNS: Final = (Act.ARRIVAL, Act.RECEIVE, Act.SEND, Act.OPEN, Act.CLOSE)
_MOVES: Final = (Act.ARRIVAL, Act.RECEIVE, Act.SEND)
_ERLANG: Final = "beam.smp"  # technical: what all programs of its machine are called
_AMQP: Final = frozenset((5671, 5672))  # technical: ports
_LIMITS: Final = np.iinfo(np.int64)
_MIX: Final = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(31))


@dataclass(frozen=True, eq=False)
class Turns:
    """Turns as `_turns.Cutter` makes them, one row each, in order of their ends."""

    table: I64
    incomplete: I64
    unsolicited: I64
    part: I64 = field(default_factory=lambda: np.zeros(0, np.int64))  # of each, of `Parts`

    def column(self, number: int) -> I64:
        """Return one column: see `cut_turns`."""
        found: I64 = self.table[:, number]
        return found


ENDPOINT, NUMBER, BEGIN, RECEIVED, ANSWERED, END, READER, TID = range(8)
BYTES_IN, BYTES_OUT, INTRUSIONS, HOW, PAUSES = range(8, 13)


def cut_turns(
    activity: Activity, endpoints: Endpoints, hosts: int, parts: Parts | None = None
) -> Turns:
    """Return the turns of endpoints that serve; with gaps, of every part of one by itself."""
    of, ends = (activity, endpoints) if parts is None else (parts.activity, parts.endpoints)
    host = of.host if parts is None else parts.stretches.host[of.host].astype(np.int32)
    cutter = Cutter(len(ends), hosts)
    cutter.feed(
        *(of.time_ns, of.act, of.tid, host, of.endpoint, of.value, _peers_here(ends)),
        (ends.serves == 1).astype(np.uint8),
    )
    counts, table = cutter.take_counts(len(ends)), cutter.take_turns()
    part = table[:, ENDPOINT].copy()
    if parts is not None:
        table[:, ENDPOINT] = parts.of[part]
        every = np.zeros((len(endpoints), 2), np.int64)
        np.add.at(every, parts.of, counts)
        counts = every
    return Turns(table, counts[:, 0], counts[:, 1], part)


def _peers_here(endpoints: Endpoints) -> I32:
    """Return the other end where that is on the same host: who did what there tells of this one."""
    peer = endpoints.peer
    here = (peer >= 0) & (endpoints.host[peer] == endpoints.host) if len(peer) else peer >= 0
    return np.where(here, peer, np.int32(NONE)).astype(np.int32)


@dataclass(frozen=True, eq=False)
class FoundTurns:
    """What `find_turns` returns.

    Attributes
    ----------
    activity : Activity
    endpoints : Endpoints
    requests : RequestTable
        Without what says who works for them (``parent``, ``true_ns``, ...).
    account : RequestAccount
    counts : int64 [endpoints, len(COUNTED)]
        What of the account is of each endpoint.
    service : int64 [endpoints]
        The service that each is of; -1 where it has no turn.
    processes : Processes
    cut : bool [requests]
        Which began, or went on, in a gap, or may have.
    goes_on : bool [requests]
        Which of these are but the end of what the same endpoint had begun before a gap.
    parts : Parts or None
        Of a recording with gaps, what happened between them.
    connection : int64 [endpoints]
        The endpoint of which each is a stream or a job; itself for others.
    messages : Messages
        What went through brokers.
    """

    activity: Activity
    endpoints: Endpoints
    requests: RequestTable
    account: RequestAccount
    counts: I64
    service: I64
    processes: Processes
    cut: Bool
    goes_on: Bool
    parts: Parts | None
    connection: I64
    messages: Messages

    @property
    def guessed(self) -> Bool:
        """Return of which requests only who received first says who serves; of TCP."""
        of = self.requests.endpoint
        first: Bool = (self.endpoints.role_how[of] == FIRST) & (self.endpoints.family[of] != UNIX)
        return first


def find_turns(
    collected: Collected,
    workers: Workers,
    name_of: Callable[[int], str],
    *,
    end: int,
    losses: Sequence[Loss] = (),
    gaps: Gaps | None = None,
    skip: int = 0,
    begin: int = 0,
    hosts: Sequence[str] = (),
    far: I64 | None = None,
    aligned: Collection[int] = (),
    places: Places | None = None,
) -> FoundTurns:
    """Find the requests of a recording.

    Parameters
    ----------
    collected : Collected
    workers : Workers
        The recording's threads.
    name_of : callable
        Text of a code of the recording's strings.
    begin, end : int
        Of the recording (ns).
    losses : sequence of Loss
        Turns within are incomplete.
    gaps : Gaps, optional
        When nothing was recorded: requests that may have begun, or gone on, within are `cut`.
    skip : int
        How many turns to leave out at the begin of each connection.
    hosts : sequence of str
        Of several, what they are called: services are named with their host.
    far : int64 [n, 2] or None
        Connections between them: rows of their two ends.
    aligned : collection of int
        Those whose times are of one clock.
    places : Places, optional
        In which container each process is: services are named with theirs.
    """
    collected, unsure = split_datagrams(place_sessions(collected))
    processes = Processes(workers, name_of, places)
    users = processes.users(collected.activity, len(collected.endpoints))
    processes.name_rabbitmq(collected, users)
    several = len(hosts) > 1
    table = collected.endpoints
    host = collected.activity.host
    count = 1 + int(max(host.max(initial=0), table[:, Column.HOST].max(initial=0)))
    stretches = Stretches(gaps, count) if gaps is not None and len(gaps) else None
    if stretches is not None:
        first = vote_first(collected.activity, table[:, Column.FIRST], stretches)
        collected = replace(collected, endpoints=put_column(table, Column.FIRST, first))
    streams, messages = split_jobs(
        split_streams(collected, resolve_endpoints(collected, users, end, far, aligned)),
        processes.name,
    )
    collected, endpoints, activity = streams.collected, streams.endpoints, streams.activity
    unsure = unsure[streams.connection]
    parts = None if stretches is None else part_activity(activity, endpoints, stretches)
    turns = cut_turns(activity, endpoints, count, parts)
    cut = goes_on = np.zeros(len(turns.table), np.bool_)
    if parts is not None:
        turns, cut, goes_on = add_partial(turns, parts)
    udp = collected.endpoints[:, Column.PROTOCOL] == UDP
    names = Names(endpoints, processes, udp, hosts if several else (), messages.broker)
    service = names.services(turns)
    if parts is not None:
        service = name_unread(turns, service, endpoints)
    reordered = find_reordered(
        activity,
        turns.column(ENDPOINT),
        turns.column(ANSWERED),
        turns.column(END),
        (turns.column(BYTES_IN), turns.column(BYTES_OUT)),
        service.astype(np.int64),
    )
    multiplexed = find_multiplexed(
        *(turns.column(ENDPOINT), turns.column(NUMBER), turns.column(INTRUSIONS) + reordered),
        names.of_endpoints(turns, service),
    )
    service = names.mark(service, multiplexed[turns.column(ENDPOINT)])
    of = turns.column(ENDPOINT)
    turns.table[:, NUMBER] = np.where(
        streams.number[of] > 0, streams.number[of], turns.column(NUMBER)
    )
    opened = np.zeros(len(endpoints), np.bool_)
    opened[activity.endpoint[(activity.act == Act.OPEN) & (activity.value > 0)]] = True
    early = opened[of] & (turns.column(NUMBER) <= skip)
    lost = overlaps_loss(turns, losses, begin, end)
    if parts is not None:
        cut = cut | may_go_on(turns, parts, service, cut)
    keep = np.flatnonzero(~early & ~lost)
    keep = keep[np.argsort(turns.column(BEGIN)[keep], kind="stable")]

    def of_each(which: Bool | I64) -> I64:
        return np.bincount(of[which], minlength=len(endpoints))

    counts = np.stack(
        [
            turns.incomplete + streams.incomplete + of_each((lost | cut) & ~early & ~goes_on),
            turns.unsolicited,
            of_each(early),
            of_each(keep[multiplexed[of][keep]]),
            of_each(keep[turns.column(PAUSES)[keep] >= TURNS.pauses]),
            of_each(keep[unsure[of][keep]]),
        ],
        axis=1,
    )
    account = RequestAccount(
        **dict(zip(COUNTED, counts.sum(axis=0).tolist(), strict=True)),
        way=collected.way,
        unknown=collected.unknown,
        rings=collected.rings,
    )
    doubts = multiplexed, unsure, streams.guessed
    requests = _build(turns, keep, endpoints, service, doubts, names.strings)
    requests = name_messages(requests, collected)
    services = names.of_endpoints(turns, service)
    found = activity, endpoints, requests, account, counts, services, processes
    return FoundTurns(*found, cut[keep], goes_on[keep], parts, streams.connection, messages)


def find_multiplexed(endpoint: I64, number: I64, intrusions: I64, service: I64) -> Bool:
    """Return which endpoints have several requests under way at once.

    Under load several are sent, and answered, in one piece, and few turns show it: so a service
    is judged as a whole, too.  A request may itself come in pieces; what is usual there is no sign.

    Parameters
    ----------
    endpoint, number, intrusions : int64 [turns]
        Of each turn: whose and which it is, and how often data came apart before its answer, or
        whether that came in another order.
    service : int64 [endpoints]
        -1 for none.
    """
    late = number > TURNS.greeting
    endpoint, intrusions = endpoint[late], intrusions[late]
    many = np.bincount(endpoint, minlength=len(service))
    intruded = np.zeros(len(service), np.int64)
    of_turn = service[endpoint]
    found = np.zeros(len(service), np.bool_)
    for each in np.unique(of_turn).tolist():
        turns, mine = of_turn == each, service == each
        usual = int(np.median(intrusions[turns]))
        intruded += np.bincount(endpoint[turns & (intrusions > usual)], minlength=len(service))
        total, of = int(intruded[mine].sum()), int(many[mine].sum())
        found |= mine & (intruded >= TURNS.fewest) & (intruded > TURNS.intruded * many)
        if total >= TURNS.fewest and total > TURNS.intruded_all * of:
            found |= mine & ((intruded > 0) | (many < TURNS.enough))
    return found


def find_reordered(
    activity: Activity,
    endpoint: I64,
    answered: I64,
    end: I64,
    sizes: tuple[I64, I64],
    service: I64,
) -> Bool:
    """Return which turns sent the pieces of a like turn's answer in a rarer order.

    The pieces of one answer are always sent in the same order.  Where a program gathers some of
    them before it sends, it is cut between its pieces, of which each is sent alone at times.
    Answers to several requests are mixed: what lies between the cuts of different turns is nothing
    that was ever sent.

    Parameters
    ----------
    activity : Activity
    endpoint, answered, end : int64 [turns]
        Of each turn; its first and last send.
    sizes : tuple of int64 [turns]
        Bytes in and out: turns of a service with the same are like each other.
    service : int64 [turns]
    """
    found = np.zeros(len(endpoint), np.bool_)
    turns = np.flatnonzero((answered < end) & (sizes[1] < TURNS.small_answer))
    if not len(turns):
        return found
    first, many, sent = _find_sends(activity, endpoint[turns], answered[turns], end[turns])
    turns, first, many = (column[many > 1] for column in (turns, first, many))
    if not len(turns):
        return found
    like = _hash(_hash(_hash(service[turns]) + _hash(sizes[0][turns])) + _hash(sizes[1][turns]))
    starts = np.cumsum(many) - many
    place = np.arange(int(many.sum())) - np.repeat(starts, many)
    size = sent[np.repeat(first, many) + place]
    order = np.add.reduceat(_hash(_hash(size) + _hash(place)), starts)
    family = _hash(like + np.add.reduceat(_hash(size), starts))
    odd = _find_rarer(family, order) & (many >= TURNS.fewest_pieces)
    classes, counts = np.unique(like[odd], return_counts=True)
    for each in classes[np.argsort(-counts, kind="stable")][:_MOST_CLASSES]:
        mine = np.flatnonzero(like == each)
        ways = mine[np.unique(order[mine], return_index=True)[1]]
        pieces = [sent[first[way] : first[way] + many[way]].tolist() for way in ways.tolist()]
        if not is_one_sequence(pieces):
            found[turns[mine[odd[mine]]]] = True
    return found


def is_one_sequence(ways: Sequence[Sequence[int]]) -> bool:
    """Return whether answers that were cut in these ways may be of the same pieces in order."""
    cuts = sorted({int(at) for way in ways for at in np.cumsum([0, *way])})
    sent = {size for way in ways for size in way}
    between = [after - before for before, after in pairwise(cuts)]
    return 2 * sum(size not in sent for size in between) < len(between)


def _find_sends(activity: Activity, endpoint: I64, answered: I64, end: I64) -> tuple[I64, I64, I64]:
    """Return each turn's first send and how many they are, among the bytes of all sends."""
    wanted = np.zeros(int(endpoint.max()) + 1, np.bool_)
    wanted[endpoint] = True
    rows = np.flatnonzero(activity.act == Act.SEND)
    of = activity.endpoint[rows]
    rows = rows[(of >= 0) & (of < len(wanted)) & wanted[np.clip(of, 0, len(wanted) - 1)]]
    count = len(activity) + 1
    rows = rows[np.argsort(activity.endpoint[rows], kind="stable")]
    key = activity.endpoint[rows].astype(np.int64) * count + rows
    at = activity.time_ns
    since = np.searchsorted(key, endpoint * count + np.searchsorted(at, answered, side="left"))
    until = np.searchsorted(key, endpoint * count + np.searchsorted(at, end, side="right"))
    first: I64 = since.astype(np.int64)
    return first, until - first, activity.value[rows]


def _find_rarer(family: I64, order: I64) -> Bool:
    """Return which rows have another order than most of their family."""
    family = np.unique(family, return_inverse=True)[1].reshape(-1)
    _, kind, counts = np.unique(_hash(family) + order, return_inverse=True, return_counts=True)
    kind = kind.reshape(-1)
    first = np.unique(kind, return_index=True)[1]
    by = np.lexsort((counts, family[first]))  # the most frequent of each family comes last
    usual = np.zeros(int(family.max()) + 1, np.int64)
    usual[family[first[by]]] = by
    return np.asarray(kind != usual[family], np.bool_)


def _hash(values: I64) -> I64:
    """Return numbers that are as good as random, the same for the same."""
    mixed = (values.astype(np.uint64) + _MIX[0]) * _MIX[1]
    mixed = (mixed ^ (mixed >> _MIX[2])) * _MIX[0]
    return np.asarray((mixed ^ (mixed >> _MIX[2])).view(np.int64))


def overlaps_loss(turns: Turns, losses: Sequence[Loss], begin: int, end: int) -> Bool:
    """Return which turns lie where events are missing, as far as anybody knows where."""
    found = np.zeros(len(turns.table), np.bool_)
    for loss in losses:
        if loss.begin > begin or loss.end < end:
            found |= (turns.column(BEGIN) < loss.end) & (turns.column(END) > loss.begin)
    return found


def put_column(table: I64, number: int, values: I64) -> I64:
    """Return a table with other values in one column."""
    result = table.copy()
    result[:, number] = values
    return result


def vote_first(activity: Activity, first: I64, stretches: Stretches) -> I64:
    """Return what endpoints do first: in most stretches, as a gap may hide that of one.

    1 for to receive, 2 for to send, as in `critpath.requests.endpoints.EndpointColumn.FIRST`.
    """
    moves = np.isin(activity.act, (Act.RECEIVE, Act.SEND)) & (activity.endpoint >= 0)
    rows = np.flatnonzero(moves)
    stretch = stretches.find(activity.host[rows], activity.time_ns[rows])
    pairs = activity.endpoint[rows].astype(np.int64) * len(stretches) + stretch
    keys, at = np.unique(pairs, return_index=True)
    sends = activity.act[rows[at]] == Act.SEND
    votes = np.bincount(keys // len(stretches), np.where(sends, -1, 1), minlength=len(first))
    return np.where(votes > 0, 1, np.where(votes < 0, 2, first))


def add_partial(turns: Turns, parts: Parts) -> tuple[Turns, Bool, Bool]:
    """Add what gaps cut as turns, from or to the gap's edge; return also which these are.

    And which of them are the end of what was begun before the gap.

    Whose answer is the first that an endpoint does after a gap was asked before; what arrives and
    is not answered goes on.
    """
    rows = np.flatnonzero(np.isin(parts.activity.act, _OF_TURNS) & (parts.activity.endpoint >= 0))
    rows = rows[parts.endpoints.serves[parts.activity.endpoint[rows]] == 1]
    acts, part = parts.activity.act[rows], parts.activity.endpoint[rows].astype(np.int64)
    time, many = parts.activity.time_ns[rows], len(parts.of)
    stretch, stretches = parts.stretch, parts.stretches

    def find_first(which: Bool) -> I64:
        found = np.full(many, _LIMITS.max)
        np.minimum.at(found, part[which], time[which])
        return found

    def find_last(which: Bool) -> I64:
        found = np.full(many, _LIMITS.min)
        np.maximum.at(found, part[which], time[which])
        return found

    begin, over = np.full(many, _LIMITS.max), np.full(many, _LIMITS.min)
    np.minimum.at(begin, turns.part, turns.column(BEGIN))
    np.maximum.at(over, turns.part, turns.column(END))
    opened = find_first(acts == Act.OPEN)
    early = (time < np.minimum(begin, opened)[part]) & stretches.follows_gap[stretch][part]
    heads = find_last(early & (acts == Act.SEND))
    over = np.maximum(over, heads)
    over = np.maximum(over, find_last(acts == Act.CLOSE))
    late = (time > over[part]) & stretches.precedes_gap[stretch][part]
    tails = find_first(late & np.isin(acts, (Act.ARRIVAL, Act.RECEIVE)))
    received = find_first(late & (acts == Act.RECEIVE))
    first_moves = find_first(np.isin(acts, _MOVES))
    places = _Places(part, time)

    def find_tid(which: I64, when: I64) -> I64:
        found: I64 = parts.activity.tid[rows[places.find_last(which, when)]].astype(np.int64)
        return found

    made = []
    which = np.flatnonzero(heads > _LIMITS.min)
    low = stretches.begin[stretch[which]]
    tid = find_tid(which, heads[which])
    made.append(_make_partial(parts, which, low, low, heads[which], tid))
    begun = np.zeros(many, np.bool_)  # the part before, of the same endpoint, was cut off
    begun[1:] = (tails[:-1] < _LIMITS.max) & (parts.of[1:] == parts.of[:-1])
    ends = [np.zeros(len(turns.table), np.bool_), begun[which]]
    # Its first send was counted as incomplete, more of them as answers to nothing.
    unsolicited, incomplete = turns.unsolicited.copy(), turns.incomplete.copy()
    more = early & (acts == Act.SEND)
    np.subtract.at(unsolicited, parts.of[part[more]], 1)
    np.add.at(unsolicited, parts.of[which], 1)
    np.subtract.at(incomplete, parts.of[which], 1)
    which = np.flatnonzero(tails < _LIMITS.max)
    np.subtract.at(incomplete, parts.of[which[received[which] < _LIMITS.max]], 1)
    before = (tails == first_moves)[which] & (received == tails)[which]
    before &= stretches.follows_gap[stretch[which]] & (opened[which] > tails[which])
    low = np.where(before, stretches.begin[stretch[which]], tails[which])
    high, read = stretches.end[stretch[which]], received[which] < _LIMITS.max
    tid = np.zeros(len(which), np.int64)
    tid[read] = find_tid(which[read], received[which[read]])
    made.append(_make_partial(parts, which, low, np.where(read, received[which], high), high, tid))
    table = np.vstack([turns.table, *(rows for rows, _ in made)])
    part = np.concatenate([turns.part, *(of for _, of in made)])
    cut = np.arange(len(table)) >= len(turns.table)
    goes_on = np.concatenate([*ends, np.zeros(len(made[1][1]), np.bool_)])
    order = np.lexsort((table[:, END], table[:, BEGIN], part))
    number = np.arange(len(table)) - np.searchsorted(table[order, ENDPOINT], table[order, ENDPOINT])
    table[order, NUMBER] = number + 1
    by_end = np.argsort(table[:, END], kind="stable")
    made_of = replace(
        turns,
        table=table[by_end],
        part=part[by_end],
        incomplete=np.maximum(incomplete, 0),
        unsolicited=np.maximum(unsolicited, 0),
    )
    return made_of, cut[by_end], goes_on[by_end]


class _Places:
    """Where the acts of each endpoint's part are, in order of time."""

    def __init__(self, part: I64, time: I64) -> None:
        self._times, rank = np.unique(time, return_inverse=True)
        self._order = np.lexsort((time, part))
        self._keys = part[self._order] * (len(self._times) + 1) + rank.reshape(-1)[self._order]

    def find_last(self, part: I64, time: I64) -> I64:
        """Return the last act of parts up to some times, -1 for none."""
        first = part * (len(self._times) + 1)
        keys = first + np.searchsorted(self._times, time, side="right") - 1
        at = np.searchsorted(self._keys, keys, side="right") - 1
        known = (at >= 0) & (np.append(self._keys, 0)[at] >= first)
        return np.where(known, np.append(self._order, NONE)[at], NONE)


def _make_partial(
    parts: Parts, which: I64, begin: I64, received: I64, end: I64, tid: I64
) -> tuple[I64, I64]:
    """Return rows as those of turns."""
    made = np.zeros((len(which), PAUSES + 1), np.int64)
    for column, values in (
        (ENDPOINT, parts.of[which]), (BEGIN, begin), (RECEIVED, received), (ANSWERED, end),
        (END, end), (READER, tid), (TID, tid),
    ):  # fmt: skip
        made[:, column] = values
    return made, which


def name_unread(turns: Turns, service: I32, endpoints: Endpoints) -> I32:
    """Return services with those of turns that nobody received, as others came to the same port."""
    of, read = turns.column(ENDPOINT), turns.column(READER) > 0
    port = (endpoints.host[of].astype(np.int64) << 32) + endpoints.local_port[of]
    result = service.copy()
    for place in (port, of):
        there = dict(zip(place[read].tolist(), service[read].tolist(), strict=True))
        mine = zip(place[~read].tolist(), result[~read].tolist(), strict=True)
        result[~read] = [there.get(key, code) for key, code in mine]
    return result


def may_go_on(turns: Turns, parts: Parts, service: I32, cut: Bool) -> Bool:
    """Return which turns may have begun, or gone on, in the gap that is next to them.

    Only where nothing was seen at their endpoint between the gap and them, and so near to it as
    pieces of a request of their service, or of an answer, come apart; or where what was seen of it
    has fewer bytes than any other.
    """
    acts, part = parts.activity, turns.part
    moves = np.flatnonzero(np.isin(acts.act, _MOVES) & (acts.endpoint >= 0))
    of, time = acts.endpoint[moves].astype(np.int64), acts.time_ns[moves]
    first, last = np.full(len(parts.of), _LIMITS.max), np.full(len(parts.of), _LIMITS.min)
    np.minimum.at(first, of, time)
    np.maximum.at(last, of, time)
    opened = np.zeros(len(parts.of), np.bool_)
    opened[acts.endpoint[(acts.act == Act.OPEN) & (acts.endpoint >= 0)]] = True
    begin, end = turns.column(BEGIN), turns.column(END)
    stretch, stretches = parts.stretch[part], parts.stretches
    is_first = (begin <= first[part]) & stretches.follows_gap[stretch] & ~opened[part]
    is_last = (end >= last[part]) & stretches.precedes_gap[stretch]
    comes = _span_of_request(turns, of, time, acts.act[moves])
    goes = end - turns.column(ANSWERED)
    found = np.zeros(len(part), np.bool_)
    for each in np.unique(service[~cut]).tolist():
        mine = (service == each) & ~cut
        for near, span, room, size in (
            (is_first, comes, begin - stretches.begin[stretch], turns.column(BYTES_IN)),
            (is_last, goes, stretches.end[stretch] - end, turns.column(BYTES_OUT)),
        ):
            far = mine & ~near
            known = far if far.sum() >= WINDOWS.fewest else mine
            least = np.quantile(span[known], WINDOWS.nearly_all, method="higher")
            found |= mine & near & ((room < least) | (size < size[known].min()))
    return found


def _span_of_request(turns: Turns, part: I64, time: I64, act: U8) -> I64:
    """Return for how long what each turn was asked came in: 0 where it came at once."""
    span = np.zeros(len(turns.table), np.int64)
    for kind, since in ((Act.ARRIVAL, BEGIN), (Act.RECEIVE, RECEIVED)):
        rows = np.flatnonzero(act == kind)
        last = _Places(part[rows], time[rows]).find_last(turns.part, turns.column(ANSWERED) - 1)
        came = np.where(last >= 0, time[rows][last] if len(rows) else 0, _LIMITS.min)
        span = np.maximum(span, np.maximum(came, turns.column(since)) - turns.column(since))
    return span


def _build(
    turns: Turns,
    keep: I64,
    endpoints: Endpoints,
    service: I32,
    doubts: tuple[Bool, Bool, Bool],
    strings: Sequence[str],
) -> RequestTable:
    """Return the rows to keep as requests."""
    codes = {text: len(WHYS) + i for i, text in enumerate(strings)}
    code_of = np.array([codes[text] for text in strings], np.int32)
    table = turns.table[keep]
    of = table[:, ENDPOINT]
    none = np.full(len(keep), NONE, np.int32)
    certainty = np.full(len(keep), Certainty.CERTAIN, np.uint8)
    why = np.zeros(len(keep), np.int32)
    for rows, sure, reason in (
        (endpoints.role_how[of] == FIRST, Certainty.LIKELY, _ROLE),
        (table[:, HOW] == BY_WAKE, Certainty.LIKELY, _BY_WAKE),
        (doubts[2][of], Certainty.LIKELY, _ONE_OF_SEVERAL),
        (table[:, PAUSES] >= TURNS.pauses, Certainty.LIKELY, _STREAM),
        (table[:, HOW] == BY_READ, Certainty.DOUBTFUL, _READ_LATE),
        (doubts[0][of], Certainty.DOUBTFUL, MULTIPLEXED),
        (doubts[1][of], Certainty.DOUBTFUL, _DATAGRAMS),
    ):
        certainty[rows], why[rows] = sure, reason
    lasting = table[:, END] - table[:, BEGIN]
    services = code_of[service[keep]] if len(keep) else np.zeros(0, np.int32)
    return RequestTable(
        endpoint=of.astype(np.int32),
        turn=table[:, NUMBER].astype(np.int32),
        service=services,
        label=services,
        begin_ns=table[:, BEGIN].copy(),
        received_ns=table[:, RECEIVED].copy(),
        answered_ns=table[:, ANSWERED].copy(),
        end_ns=table[:, END].copy(),
        reader_tid=table[:, READER].astype(np.int32),
        tid=table[:, TID].astype(np.int32),
        bytes_in=table[:, BYTES_IN].copy(),
        bytes_out=table[:, BYTES_OUT].copy(),
        parent=none,
        true_ns=lasting,
        asked_ns=np.zeros(len(keep), np.int64),
        queued_ns=table[:, RECEIVED] - table[:, BEGIN],
        threads=np.ones(len(keep), np.int32),
        boundary=certainty,
        why=why,
        message=np.zeros(len(keep), np.int32),
        trace_id=np.zeros(len(keep), np.int32),
        strings=(*WHYS, *strings),
    )


def name_messages(requests: RequestTable, collected: Collected) -> RequestTable:
    """Say what each request is called: the first label of what was received between its ends.

    A service with many has the rarer ones called by their first word: a path may have names in
    it that nobody can tell from words.
    """
    if not collected.messages or not len(requests):
        return requests
    of_socket: dict[tuple[int, int], list[int]] = {}
    for row, (_, host, socket, *_) in enumerate(collected.messages):
        of_socket.setdefault((host, socket), []).append(row)
    times = np.array([row[0] for row in collected.messages], np.int64)
    socket, host = (collected.endpoints[:, c].tolist() for c in (Column.SOCKET, Column.HOST))
    first = np.full(len(requests), NONE, np.int64)
    order = np.argsort(requests.endpoint, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(requests.endpoint[order])) + 1):
        endpoint = int(requests.endpoint[rows[0]])
        mine = np.array(of_socket.get((host[endpoint], socket[endpoint]), ()), np.int64)
        if not len(mine):
            continue
        mine = mine[np.argsort(times[mine], kind="stable")]
        at = np.searchsorted(times[mine], requests.begin_ns[rows])
        some = at < len(mine)
        found = mine[at[some]]
        within = times[found] <= requests.end_ns[rows[some]]
        first[rows[some][within]] = found[within]
    labels = [collected.messages[row][5] if row >= 0 else "" for row in first.tolist()]
    strings = list(requests.strings)
    codes = {text: code for code, text in enumerate(strings)}
    codes[""] = 0
    message = [
        codes.setdefault(text, len(codes))
        for text in keep_common(labels, requests.service.tolist())
    ]
    traces = [_format_trace(collected.messages[row]) if row >= 0 else "" for row in first.tolist()]
    return replace(
        requests,
        message=np.array(message, np.int32),
        trace_id=np.array([codes.setdefault(t, len(codes)) for t in traces], np.int32),
        strings=tuple(codes),
    )


def keep_common(labels: Sequence[str], services: Sequence[int]) -> list[str]:
    """Return labels, of each service the most common only; of others the first word."""
    counts = Counter(pair for pair in zip(services, labels, strict=True) if pair[1])
    kept: dict[int, set[str]] = {}
    for (service, label), _ in counts.most_common():
        mine = kept.setdefault(service, set())
        if len(mine) < MOST_LABELS:
            mine.add(label)
    return [
        label if not label or label in kept[service] else f"{label.partition(' ')[0]} …"
        for service, label in zip(services, labels, strict=True)
    ]


def _format_trace(message: tuple[int, int, int, int, int, str]) -> str:
    high, low = (value & 2**64 - 1 for value in message[3:5])
    return f"{high:016x}{low:016x}" if high or low else ""


class Processes:
    """Which process a thread is of, what it is called, and in which container or pod it is."""

    def __init__(
        self, workers: Workers, name_of: Callable[[int], str], places: Places | None = None
    ) -> None:
        self._places = places or Places()
        self._pid: dict[tuple[int, int], int] = {}
        self._name: dict[tuple[int, int], str] = {}
        columns = (workers.host, workers.tid, workers.pid, workers.name)
        for host, tid, pid, name in zip(*(c.tolist() for c in columns), strict=True):
            if tid > 0:
                self._pid[host, tid] = pid if pid > 0 else tid
                self._name[host, tid] = name_of(name)

    def pid(self, host: int, tid: int) -> int:
        """Return the process of a thread; itself where it is not known."""
        return self._pid.get((host, tid), tid)

    def thread(self, host: int, tid: int) -> str:
        """Return what a thread is called."""
        return self._name.get((host, tid), "")

    def names(self, host: int, tid: int) -> frozenset[str]:
        """Return what a thread and its process may be called."""
        return frozenset(
            {self.thread(host, tid), self.thread(host, self.pid(host, tid)), self.name(host, tid)}
        )

    def name(self, host: int, tid: int) -> str:
        """Return what a thread's process is called, without its number among its like."""
        pid = self.pid(host, tid)
        return strip_instance(self._name.get((host, pid)) or self._name.get((host, tid), ""))

    def name_rabbitmq(self, collected: Collected, users: Sequence[frozenset[int]]) -> None:
        """Call RabbitMQ so, by what it is sent, or its port: it is called like Erlang's machine."""
        told = {(m[1], m[2]) for m in collected.messages if m[-1] == "basic.publish"}
        columns = (Column.HOST, Column.SOCKET, Column.LOCAL_PORT)
        rows = zip(*(collected.endpoints[:, of].tolist() for of in columns), strict=True)
        for (host, socket, port), pids in zip(rows, users, strict=True):
            if (host, socket) in told or port in _AMQP:
                called = ((host, pid) for pid in pids if self.thread(host, pid) == _ERLANG)
                self._name |= dict.fromkeys(called, "rabbitmq")

    def container(self, host: int, tid: int) -> str:
        """Return the container or pod that a thread is in, "" for none that is known."""
        place = self._places.last(host, self.pid(host, tid))
        return place if is_container(place) else ""

    def users(self, activity: Activity, count: int) -> Sequence[frozenset[int]]:
        """Return the processes that received from or sent to each endpoint."""
        moves = np.flatnonzero((activity.act == Act.RECEIVE) | (activity.act == Act.SEND))
        found: list[set[int]] = [set() for _ in range(count)]
        # A socket is of one host.
        pairs = (activity.endpoint[moves].astype(np.int64) << 32) + activity.tid[moves]
        rows = moves[np.unique(pairs, return_index=True)[1]]
        columns = (activity.endpoint, activity.host, activity.tid)
        for endpoint, host, tid in zip(*(c[rows].tolist() for c in columns), strict=True):
            found[endpoint].add(self.pid(host, tid))
        return [frozenset(each) for each in found]


class Names:
    """What services are called: the serving process and its port, or its path."""

    def __init__(
        self,
        endpoints: Endpoints,
        processes: Processes,
        udp: Bool,
        hosts: Sequence[str] = (),
        queues: Mapping[int, str] = MappingProxyType({}),
    ) -> None:
        self._endpoints, self._processes, self._queues = endpoints, processes, queues
        self._udp, self._hosts = udp, hosts
        self._codes: dict[str, int] = {}

    @property
    def strings(self) -> Sequence[str]:
        """Return the names, by code."""
        return tuple(self._codes)

    def _code(self, text: str) -> int:
        return self._codes.setdefault(text, len(self._codes))

    def services(self, turns: Turns) -> I32:
        """Return the code of each turn's service."""
        of, by = turns.column(ENDPOINT), turns.column(TID)
        _, first, each = np.unique((of << 32) + by, return_index=True, return_inverse=True)
        pairs = zip(of[first].tolist(), by[first].tolist(), strict=True)
        codes = [self._code(self._name(endpoint, tid)) for endpoint, tid in pairs]
        found: I32 = np.array(codes, np.int32)[each.reshape(-1)]
        return found

    def _name(self, endpoint: int, tid: int) -> str:
        of = self._endpoints
        host = int(of.host[endpoint])
        comm = self._processes.name(host, tid)
        if self._hosts:
            comm = f"{comm}@{self._hosts[host]}"
        if endpoint in self._queues:
            name = f"{comm} (queue of {self._queues[endpoint]})"
        elif of.family[endpoint] == UNIX:
            name = f"{comm}:{of.strings[of.path[endpoint]] or 'unix'}"
        else:
            # Of UDP no event tells the port, and what was there before hides which socket it is.
            name = f"{comm}:{of.local_port[endpoint] or ('udp' if self._udp[endpoint] else '?')}"
        return name_in_place(name, self._processes.container(host, tid))

    def of_endpoints(self, turns: Turns, service: I32) -> I64:
        """Return the code of the service that each endpoint is of; -1 where it has no turn."""
        found: I64 = np.full(len(self._endpoints), NONE, np.int64)
        found[turns.column(ENDPOINT)] = service
        return found

    def mark(self, service: I32, multiplexed: Bool) -> I32:
        """Return the codes, with another name where several requests are under way at once."""
        names = self.strings
        result = service.copy()
        for code in np.unique(service[multiplexed]).tolist():
            result[multiplexed & (service == code)] = self._code(f"{names[code]} (multiplexed)")
        return result
