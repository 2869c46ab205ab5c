"""Packets that contradict themselves or each other: where a trace cannot be believed.

Nothing guards the bytes of a trace: no checksum, no count of events.  But what its packets
say of themselves hangs together, and where it does not, something between was changed or
is missing, and nobody knows what.  That is a loss of that time, of at least one packet.

Of every trace it is held that a packet's events lie within its times, that its time does
not run backwards, and that the packets of a stream follow each other in the order of their
numbers.  LTTng keeps more: a packet is as long as its content, rounded up to pages; its
stream is called by its cpu; and tracing stops before all buffers are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

import numpy as np

from critpath.model import Loss
from critpath.read.packet_columns import NEVER, Damage, PacketBit, PacketColumn, Packets, Tracer
from critpath.read.steps import Role
from critpath.units import NS_PER_S

# LTTng 2.1 wrote packets that overlap by 2 us, whose events do not; clocks jump farther.
# Snapshots are taken while events go on, one buffer after the other.
TOUCHING: Final = NS_PER_S // 1000
_EARLIEST: Final = TOUCHING - (1 << 63)
_MOST: Final = 100  # losses of one stream, or one file, each with its place


def contradictions(of: Packets, tracer: Tracer, bits: int, end: int) -> list[Loss]:
    """Return when a stream's packets cannot be believed.

    Parameters
    ----------
    of : Packets
    tracer : Tracer
    bits : int
        Of the packets' numbers.
    end : int
        Of the recording (ns).
    """
    found = chain(_within(of, tracer, end), _backwards(of, end), _between(of, tracer, bits))
    return gathered(_once(found), f"contradiction: {of.name(0)}")


def gathered(found: Iterable[Loss], what: str) -> list[Loss]:
    """Return the first losses one by one, and all others of a host as one of their whole time.

    Parameters
    ----------
    found : iterable of Loss
    what : str
        Begins the reason of the others.
    """
    losses: list[Loss] = []
    rest: dict[int, Loss] = {}
    more: dict[int, int] = {}
    for loss in found:
        if len(losses) < _MOST:
            losses.append(loss)
            continue
        of = rest.get(loss.host, loss)
        more[loss.host] = more.get(loss.host, 0) + 1
        rest[loss.host] = replace(
            of,
            begin=min(of.begin, loss.begin),
            end=max(of.end, loss.end),
            cpu=loss.cpu if loss.cpu == of.cpu else -1,
            packets=loss.packets + (of.packets if of is not loss else 0),
        )
    together = (replace(of, reason=f"{what}: and {more[at]:,} more") for at, of in rest.items())
    return [*losses, *together]


def _once(found: Iterable[Loss]) -> Iterator[Loss]:
    """Yield losses of which no packet is counted twice."""
    counted: set[str] = set()
    for loss in found:
        packet = loss.reason.rpartition(": ")[0]
        packets = 0 if packet in counted else loss.packets
        counted.add(packet)
        yield replace(loss, packets=packets)


def _backwards(of: Packets, end: int) -> Iterator[Loss]:
    """Yield from when on it is unknown which packets of a file have the wrong time."""
    latest = max(end, int(of.high.max(initial=end)))
    for row in np.flatnonzero(of.back != NEVER).tolist():
        place = f"{of.name(row)}: packet at byte {of.table[row, PacketColumn.OFFSET]}"
        low, high = int(min(of.back[row], of.low[row])), latest
        cpu = int(of.table[row, PacketColumn.CPU])
        reason = "it begins before the packet before it in the file"
        yield Loss(low, high, of.host, cpu, 0, 1, f"contradiction: {place}: {reason}")


def _within(of: Packets, tracer: Tracer, end: int) -> Iterator[Loss]:
    table = of.table
    some, whole = (
        table[:, PacketColumn.EVENTS] > 0,
        (table[:, PacketColumn.DAMAGE] == 0) & (table[:, PacketColumn.WHERE] >= 0),
    )
    outside = some & (
        (table[:, PacketColumn.FIRST] < of.begin)
        | of.ended & (table[:, PacketColumn.LAST] > of.end)
    )
    turned = of.ended & (of.end < of.begin)
    backwards = table[:, PacketColumn.PRESENT] >> PacketBit.TURNED & 1 != 0
    declared = table[:, PacketColumn.PRESENT] >> Role.END & 1 != 0
    unfinished = declared & ~of.ended
    misnamed = np.zeros(len(table), bool)
    uneven = np.zeros(len(table), bool)
    if tracer.lttng:
        named = 1 << Role.INSTANCE | 1 << Role.CPU
        misnamed = (table[:, PacketColumn.PRESENT] & named == named) & (
            table[:, PacketColumn.INSTANCE] != table[:, PacketColumn.CPU]
        )
        # One that the file's end cuts is believed up to there, if its sizes may be true.
        cut = (table[:, PacketColumn.DAMAGE] <= Damage.OUTSIDE) & (table[:, PacketColumn.WHERE] < 0)
        uneven = (whole | cut) & (table[:, PacketColumn.PRESENT] >> PacketBit.UNEVEN & 1 != 0)
    odd = outside | turned | backwards | unfinished | misnamed | uneven
    for row in np.flatnonzero(odd).tolist():
        place = f"{of.name(row)}: packet at byte {table[row, PacketColumn.OFFSET]}"
        cpu = int(table[row, PacketColumn.CPU])
        told = int(whole[row])  # one that is damaged besides is counted as that
        spans = [(int(of.low[row]), int(of.high[row]))]
        # Where the packet should be, if its times are wrong.
        expected = int(of.before[row]), int(of.after[row])
        if misnamed[row]:
            reason, cpu = "its stream belongs to another cpu", -1
            spans.append(expected)
        elif turned[row]:
            reason = "it ends before it begins"
            spans.append(expected)
        elif outside[row]:
            reason = "events lie outside of its time"
            spans.append(expected)
        elif backwards[row]:
            reason = "time runs backwards within it"
        elif unfinished[row]:
            reason = "it was never finished"
            # It is right up to its last event, if that is one.
            right = some[row] and not table[row, PacketColumn.PRESENT] >> PacketBit.UNWRITTEN & 1
            low = int(table[row, PacketColumn.LAST] if right else of.begin[row])
            spans = [(low, max(int(of.high[row]), expected[1]))]
        else:
            reason = "its sizes contradict each other"
            spans = [(spans[0][0], max(spans[0][1], expected[1], end)), expected]
        yield from _all_of(spans, of.host, cpu, told, f"contradiction: {place}: {reason}")


def _all_of(
    spans: Sequence[tuple[int, int]], host: int, cpu: int, packets: int, reason: str
) -> Iterator[Loss]:
    """Yield spans of time as losses, together where they meet; the packets count once."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted((low, max(low, high)) for low, high in spans):
        if joined and low <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], high)
        else:
            joined.append((low, high))
    for number, (low, high) in enumerate(joined):
        yield Loss(low, high, host, cpu, 0, 0 if number else packets, reason)


def _between(of: Packets, tracer: Tracer, bits: int) -> Iterator[Loss]:
    table = of.table
    some = table[:, PacketColumn.EVENTS] > 0
    # Not their difference, which times at the ends of the range have none of.
    overlap = of.begin[1:] < np.maximum(of.end[:-1], _EARLIEST) - TOUCHING
    mixed = some[:-1] & some[1:] & (table[:-1, PacketColumn.LAST] > table[1:, PacketColumn.FIRST])
    numbered = table[:, PacketColumn.PRESENT] >> Role.SEQUENCE & 1 != 0
    numbered = numbered[:-1] & numbered[1:]
    numbers = table[:, PacketColumn.SEQUENCE].view(np.uint64)
    step = numbers[1:] - numbers[:-1] & np.uint64((1 << bits) - 1)
    back = numbered & ((step == 0) | (step >= np.uint64(1 << (bits - 1))))
    other = (
        table[:-1, PacketColumn.CPU] != table[1:, PacketColumn.CPU]
        if tracer.lttng
        else np.zeros(len(overlap), bool)
    )
    for row in np.flatnonzero(overlap | mixed | back | other).tolist():
        pair = (row, row + 1)
        spans = [(int(min(of.low[list(pair)])), int(max(of.high[list(pair)])))]
        spans += [(int(of.before[i]), int(of.after[i])) for i in pair]
        place = f"{of.name(row + 1)}: packet at byte {table[row + 1, PacketColumn.OFFSET]}"
        reason = "its clock and that of the packet before disagree"
        if numbered[row] and step[row] == 0:
            reason = "it has the number of the packet before"
        cpu = int(table[row + 1, PacketColumn.CPU])
        if other[row]:
            reason, cpu = "it is of another cpu than the packet before", -1
        yield from _all_of(spans, of.host, cpu, 1, f"contradiction: {place}: {reason}")
