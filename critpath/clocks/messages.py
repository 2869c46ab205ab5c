"""Messages: the bytes that one end of a connection sent and the other received.

A byte keeps its position in the stream whatever becomes of segments, so no header is needed,
and retransmissions do not matter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from critpath.clocks.connections import (
    NEVER,
    Connection,
    HostOperations,
    HostSockets,
    Stream,
    join_ends,
)
from critpath.clocks.turns import OpenConnection, find_shifts, make_turns, settle_shifts
from critpath.model import F64, I64, Bool
from critpath.model.clocks import ClockAlignment, Crossings, HostClock, JoinedAccount, Messages
from critpath.model.requests import Act, Certainty
from critpath.schema.parameters.clocks import CLOCKS

_MOST_PARTS: Final = 8  # technical: between losses
_SEQUENCE: Final = slice(4, 6)  # of a packet's headers: seq and ack_seq


@dataclass(frozen=True, eq=False)
class HostPackets:
    """The packets that one host sent and received, where a trace has their headers.

    Attributes
    ----------
    times : int64 [n]
    received : bool [n]
    headers : int64 [n, fields]
        What a packet keeps on its way (`critpath.timeline.network.HEADERS`).
    """

    times: I64
    received: Bool
    headers: I64


def pair_packets(hosts: Sequence[HostPackets]) -> Mapping[tuple[int, int], Crossings]:
    """Pair packets between hosts: a packet sent again has the same headers, and is the first.

    Only those with TCP's sequence numbers: all others of one flow look alike.
    """
    sent: dict[tuple[int, ...], tuple[int, int]] = {}
    numbered = [of.headers[:, _SEQUENCE].any(axis=1) for of in hosts]
    for place, (of, known) in enumerate(zip(hosts, numbered, strict=True)):
        rows = np.flatnonzero(~of.received & known)
        for key, time in zip(of.headers[rows].tolist(), of.times[rows].tolist(), strict=True):
            sent.setdefault(tuple(key), (place, time))
    found: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for place, (of, known) in enumerate(zip(hosts, numbered, strict=True)):
        rows = np.flatnonzero(of.received & known)
        for key, time in zip(of.headers[rows].tolist(), of.times[rows].tolist(), strict=True):
            sender, left = sent.get(tuple(key), (place, 0))
            if sender != place:
                found[sender, place].append((left, time))
                del sent[tuple(key)]
    return {
        pair: Crossings(*np.ascontiguousarray(np.array(rows, np.int64).T))
        for pair, rows in found.items()
    }


def find_messages(
    hosts: Sequence[HostSockets], *, together: bool = False
) -> tuple[Messages, JoinedAccount]:
    """Find which bytes that one thread sent another received, on one host and between hosts.

    Parameters
    ----------
    hosts : sequence of HostSockets
    together : bool
        Whether all times are of one clock (one kernel, or aligned): then messages that are all of
        one size are distinguished by when they can have left.

    Returns
    -------
    messages : Messages
        Bounds are 0 until `bound_messages` has set them.
    account : JoinedAccount
    """
    operations = [HostOperations(of) for of in hosts]
    joined = join_ends(hosts, operations)
    rows: list[I64] = [np.zeros((0, _COLUMNS), np.int64)]
    unmatched = lost = within = 0
    left: dict[tuple[int, int], list[_Left]] = defaultdict(list)
    for connection in joined.connections:
        one, other = connection.one, connection.other
        inside = one[0] == other[0]
        within += inside
        lossy = not inside and any(_is_lossy(hosts, end) for end in (one, other))
        lost += lossy
        missing = []
        for source, target in ((one, other), (other, one)):
            sent = operations[source[0]].stream(source[1], Act.SEND)
            got = operations[target[0]].stream(target[1], Act.RECEIVE)
            if not len(sent) or not len(got):
                continue
            if _is_datagram(hosts, source):
                found = _match_datagrams(sent, got)
            else:
                found = _match_parts(sent, got, together=together or inside)
            if found is None:
                unmatched += not inside
                missing.append((source, target))
                continue
            rows.append(_name_ends(found, source, target, connection.sure))
        if missing and not inside and not lossy and not _is_datagram(hosts, one):
            left[one[0], other[0]].append(_Left(connection, missing))
    for pair, some in left.items():
        more = _settle_left(pair, some, operations, rows)
        unmatched -= len(more)
        rows += more
    account = JoinedAccount(
        *(len(joined.connections) - within, unmatched, lost, within),
        *(joined.translated, joined.doubtful),
    )
    return _to_messages(np.concatenate(rows)), account


@dataclass(frozen=True)
class _Left:
    """A connection, and the directions of it of which it is not known what is what."""

    connection: Connection
    missing: Sequence[tuple[tuple[int, int], tuple[int, int]]]


def _settle_left(
    pair: tuple[int, int],
    left: Sequence[_Left],
    operations: Sequence[HostOperations],
    rows: Sequence[I64],
) -> list[I64]:
    """Return the pieces of directions that are known by the turns of both ends."""
    known = find_crossings(_to_messages(np.concatenate(rows)))
    none = Crossings(np.zeros(0, np.int64), np.zeros(0, np.int64))
    to, back = known.get(pair, none), known.get(pair[::-1], none)
    streams = []
    for of in left:
        (a, here), (b, there) = of.connection.one, of.connection.other
        streams.append(
            (
                (operations[a].stream(here, Act.SEND), operations[b].stream(there, Act.RECEIVE)),
                (operations[b].stream(there, Act.SEND), operations[a].stream(here, Act.RECEIVE)),
            )
        )
    edges = [(operations[place].begin, operations[place].end) for place in pair]
    turns = [
        OpenConnection(make_turns(to[0], back[1], *edges[0]), make_turns(back[0], to[1], *edges[1]))
        for to, back in streams
    ]
    settled = settle_shifts(
        turns, (to.arrived, to.left - to.arrived), (back.left, back.arrived - back.left)
    )
    found = []
    for number, same in settled.items():
        shifts = find_shifts(turns[number], same)
        of = left[number]
        for source, target in of.missing:
            way = source != of.connection.one
            sent, got = streams[number][way]
            pieces = _take_pieces(sent, got, shifts[way], Certainty.LIKELY)
            found.append(_name_ends(pieces, source, target, of.connection.sure))
    return found


def _name_ends(
    found: I64, source: tuple[int, int], target: tuple[int, int], sure: Certainty
) -> I64:
    """Return pieces with the ends that they went between."""
    found[:, _SURE] = np.maximum(found[:, _SURE], sure)
    ends = np.broadcast_to(np.array([*source, *target], np.int64), (len(found), 4))
    return np.concatenate([ends, found], axis=1)


# technical: columns of what is found: four that say which ends, and those of `_take_pieces`.
_COLUMNS: Final = 14
_SURE: Final = 9  # technical
_RECEIVED: Final = 9  # technical


def _to_messages(table: I64) -> Messages:
    table = table[np.argsort(table[:, _RECEIVED], kind="stable")]
    narrow = table[:, :6].astype(np.int32)
    return Messages(
        sender_host=narrow[:, 0],
        sender_endpoint=narrow[:, 1],
        sender_tid=narrow[:, 4],
        receiver_host=narrow[:, 2],
        receiver_endpoint=narrow[:, 3],
        receiver_tid=narrow[:, 5],
        left_ns=table[:, 6],
        sent_ns=table[:, 7],
        arrived_ns=table[:, 8],
        received_ns=table[:, _RECEIVED],
        bytes=table[:, 10],
        position=table[:, 11],
        last=table[:, 12] > 0,
        sure=table[:, 13].astype(np.uint8),
        bound_ns=np.zeros(len(table), np.int64),
    )


def _is_lossy(hosts: Sequence[HostSockets], end: tuple[int, int]) -> bool:
    """Return whether something was lost on a host while a connection was open."""
    of, at = hosts[end[0]], end[1]
    begin, close = int(of.endpoints.opened_ns[at]), int(of.endpoints.closed_ns[at])
    return any(low <= close and begin <= high for low, high in of.lossy)


def _is_datagram(hosts: Sequence[HostSockets], end: tuple[int, int]) -> bool:
    of = hosts[end[0]].datagram
    return of is not None and bool(of[end[1]])


def bound_messages(messages: Messages, alignment: ClockAlignment) -> Messages:
    """Say of messages whose times are the reference's by how much both clocks may be wrong."""
    bound = np.zeros(len(messages), np.int64)
    between = messages.sender_host != messages.receiver_host
    for host, times in (
        (messages.sender_host, messages.sent_ns),
        (messages.receiver_host, messages.received_ns),
    ):
        for place, clock in enumerate(alignment.hosts):
            rows = np.flatnonzero(between & (host == place))
            if not clock.aligned:
                bound[rows] = -1
            elif len(rows):
                low, high = _bounds_at(clock, times[rows])
                more = np.ceil(np.maximum(-low, high)).astype(np.int64)
                bound[rows] = np.where(bound[rows] < 0, -1, bound[rows] + more)
    return replace(messages, bound_ns=bound)


def _bounds_at(clock: HostClock, times: I64) -> tuple[F64, F64]:
    """Return a clock's bounds at times of the reference."""
    if not len(clock.sure):
        return np.zeros(len(times)), np.zeros(len(times))
    own = clock.sure[:, 0]
    moved = np.maximum.accumulate(own + clock.offsets(own))
    at, asked = (moved - moved[0]).astype(np.float64), (times - moved[0]).astype(np.float64)
    return np.interp(asked, at, clock.sure[:, 1]), np.interp(asked, at, clock.sure[:, 2])


def find_crossings(messages: Messages) -> Mapping[tuple[int, int], Crossings]:
    """Return what bounds clocks, by sender and receiver: each receive with the send of its end.

    What is not certain counts only between hosts that nothing certain went between, both ways.
    """
    found: dict[tuple[int, int], Crossings] = {}
    known = (messages.left_ns != NEVER) & (messages.sender_host != messages.receiver_host)
    known &= messages.last & (messages.sure < Certainty.DOUBTFUL)
    ends = np.column_stack([messages.sender_host, messages.receiver_host])
    certain = messages.sure == Certainty.CERTAIN
    sure = {(a, b) for a, b in np.unique(ends[known & certain], axis=0).tolist()}
    for a, b in np.unique(ends[known], axis=0).tolist():
        rows = known & (messages.sender_host == a) & (messages.receiver_host == b)
        if {(a, b), (b, a)} <= sure:
            rows &= certain
        found[a, b] = Crossings(messages.left_ns[rows], messages.arrived_ns[rows])
    return found


# One direction of a connection.


def _match_parts(sent: Stream, got: Stream, *, together: bool) -> I64 | None:
    """Return the pieces of what was sent that were received; None where no two are known.

    What comes after a loss counts from there, and so does what was there before the recording.
    """
    senders, receivers = (
        [of.take(of.part == part) for part in np.unique(of.part[of.part >= 0]).tolist()]
        for of in (sent, got)
    )
    if max(len(senders), len(receivers)) > _MOST_PARTS:
        return None
    found: list[I64] = []
    for source in senders:
        for target in receivers:
            if source.part[0] == target.part[0] == 0 and source.whole and target.whole:
                pieces = _match_begins(source, target, cut=len(senders) > 1)
            else:
                pieces = _match_part(source, target, together=together)
            if pieces is not None:
                found.append(pieces)
    return np.concatenate(found) if found else None


def _match_begins(sent: Stream, got: Stream, *, cut: bool) -> I64 | None:
    """Return pieces where both count from the connection's begin; `cut`: sends may be lost."""
    if cut or got.ends[-1] <= sent.ends[-1]:
        return _take_pieces(sent, got, 0, Certainty.CERTAIN)
    # Sends are missing: at the end of the recording, or such as the kernel does not tell.
    if sent.closed or _share(sent.ends, got.ends) < CLOCKS.agree:
        return None
    return _take_pieces(sent, got, 0, Certainty.LIKELY)


def _match_part(sent: Stream, got: Stream, *, together: bool) -> I64 | None:
    """Return pieces where it is not known what was sent and received before."""
    base = [int(of.ends[0]) for of in (sent, got)]
    shift = find_shift(sent.ends - base[0], got.ends - base[1])
    sure = Certainty.LIKELY
    if shift is None:
        shift = _find_shift_by_rhythm(sent, got, base)
    if shift is None and together:
        shift, sure = _find_shift_by_time(sent, got, base), Certainty.DOUBTFUL
    if shift is None:
        return None
    return _take_pieces(sent, got, shift + base[0] - base[1], sure)


def _share(sent: I64, got: I64) -> float:
    """Return the share of receives that end where a send does, of those within what was sent."""
    inside = got[(got >= sent[0]) & (got <= sent[-1])]
    return float(np.isin(inside, sent).mean()) if len(inside) else 0.0


def _take_pieces(sent: Stream, got: Stream, shift: int, sure: Certainty) -> I64:
    """Return a row per piece: tids; left, sent, arrived, received; bytes, position, last, sure."""
    ends = got.ends + shift
    edges = np.union1d(sent.ends, ends)
    i, j = np.searchsorted(sent.ends, edges), np.searchsorted(ends, edges)
    begin = max(sent.begin, got.begin + shift)
    inside = (i < len(sent.ends)) & (j < len(ends)) & (edges > begin)
    edges, i, j = edges[inside], i[inside], j[inside]
    sizes = np.diff(edges, prepend=begin)
    return np.column_stack(
        [
            *(sent.tid[i], got.tid[j], sent.bound[i], sent.times[i], got.bound[j], got.times[j]),
            *(sizes, edges - sizes, edges == ends[j], np.full(len(i), sure)),
        ]
    ).astype(np.int64)


def find_shift(sent: I64, got: I64) -> int | None:
    """Return what to add to positions of receives so that most end where a send does.

    By runs of sizes that occur in both, else by all places where ends may meet.  None where
    several do as well: of messages of one size it is unknown which is which.
    """
    shifts = _shifts_of_runs(sent, got)
    asked = min(CLOCKS.samples, max(len(got) - CLOCKS.run, 0))
    if not len(shifts):
        tried, near = got[: CLOCKS.tried], sent[: 2 * CLOCKS.tried]
        shifts, asked = (near[:, None] - tried[None, :]).ravel(), len(tried)
    if asked < 4 or not len(shifts):
        return None
    found, counts = np.unique(shifts, return_counts=True)
    order = np.argsort(counts)[::-1][:2]
    best = int(counts[order[0]])
    rival = int(counts[order[1]]) if len(order) > 1 else 0
    shift = int(found[order[0]])
    if best < 4 or rival > CLOCKS.rival * best or _share(sent, got + shift) < CLOCKS.agree:
        return None
    return shift


def _shifts_of_runs(sent: I64, got: I64) -> I64:
    """Return the shifts at which runs of sizes of receives are found among sends."""
    if min(len(sent), len(got)) <= CLOCKS.run:
        return np.zeros(0, np.int64)
    windows = [
        np.lib.stride_tricks.sliding_window_view(np.diff(of), CLOCKS.run) for of in (sent, got)
    ]
    factors = np.cumprod(np.full(CLOCKS.run, 0x5DEECE66D, np.int64))  # wraps, as it may
    keys = [(of * factors).sum(axis=1) for of in windows]
    order = np.argsort(keys[0], kind="stable")
    asked = np.unique(np.linspace(0, len(keys[1]) - 1, CLOCKS.samples).astype(np.int64))
    first, last = (np.searchsorted(keys[0][order], keys[1][asked], s) for s in ("left", "right"))
    found = [
        sent[order[a : min(b, a + CLOCKS.samples)]] - got[at]
        for a, b, at in zip(first.tolist(), last.tolist(), asked.tolist(), strict=True)
    ]
    return np.concatenate(found)


def _find_shift_by_rhythm(sent: Stream, got: Stream, base: list[int]) -> int | None:
    """Return the shift at which the time between receives is that between sends.

    Clocks need not agree for that, and drift counts little between two messages.  None where
    another shift does nearly as well: of messages at even times it is unknown which is which.
    """
    ends, tried = sent.ends[: CLOCKS.longest] - base[0], got.ends[: CLOCKS.tried] - base[1]
    found, counts = np.unique((ends[:, None] - tried[None, :]).ravel(), return_counts=True)
    enough = counts >= max(CLOCKS.agree * counts.max(), CLOCKS.least)
    shifts = found[enough][: CLOCKS.longest]
    if len(shifts) < 2:
        return None
    places = np.searchsorted(ends, tried[None, :] + shifts[:, None])
    inside = places < len(ends)
    places[~inside] = 0
    inside &= ends[places] == tried[None, :] + shifts[:, None]
    apart = (got.times[: CLOCKS.tried][None, :] - sent.times[places]).astype(np.float64)
    apart[~inside] = np.nan
    with np.errstate(invalid="ignore"):
        uneven = np.nanmedian(np.abs(np.diff(apart, axis=1)), axis=1)
    order = np.argsort(uneven)[:2]
    if not uneven[order[1]] > CLOCKS.surer * uneven[order[0]]:
        return None
    return int(shifts[order[0]])


def _find_shift_by_time(sent: Stream, got: Stream, base: list[int]) -> int | None:
    """Return the shift by which receives come soonest after their sends, and never before."""
    asked = np.unique(np.linspace(0, len(got) - 1, CLOCKS.samples).astype(np.int64))
    at = np.searchsorted(sent.times, got.times[asked], "right") - 1
    inside = at >= 0
    if inside.sum() < 4:
        return None
    shifts, counts = np.unique(
        (sent.ends[at[inside]] - base[0]) - (got.ends[asked[inside]] - base[1]), return_counts=True
    )
    shift = int(shifts[np.argmax(counts)])
    ends = got.ends - base[1] + shift
    of = np.searchsorted(sent.ends - base[0], ends)
    within = of < len(sent)
    early = sent.bound[of[within]] > got.times[within]
    agrees = _share(sent.ends - base[0], ends) >= CLOCKS.agree
    return (
        shift if counts.max() >= CLOCKS.rival * len(asked) and agrees and not early.any() else None
    )


def _match_datagrams(sent: Stream, got: Stream) -> I64 | None:
    """Return datagrams by their order, where as many came as went, and each of its size."""
    if len(sent) != len(got) or not np.array_equal(sent.ends, got.ends):
        return None
    return _take_pieces(sent, got, 0, Certainty.LIKELY)
