"""Puts what the kernel counted as lost into the places where the pages say it was."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from critpath.units import plural

# Everything that never got into a page, or was overwritten there before it was read.
COUNTERS = ("overrun", "commit overrun", "dropped events")


@dataclass(frozen=True)
class PlacedLoss:
    """The loss of one cpu.

    Attributes
    ----------
    places : array of int64
        Pairs, ascending: a page and the number of events lost before it.
    events : int
        All of them, placed or not.
    warnings : tuple of str
    """

    places: array[int]
    events: int
    warnings: tuple[str, ...]


def place_losses(
    cpu: int,
    missed: Sequence[int],
    damaged: Sequence[int],
    records: int,
    stats: Mapping[str, int] | None,
) -> PlacedLoss:
    """Place the events that one cpu's buffer lost.

    Parameters
    ----------
    cpu : int
    missed : sequence of int
        Pairs: a page and how many events went missing before it, -1 for some.
    damaged : sequence of int
        Pages whose rest could not be decoded.
    records : int
        Records that were found in the pages, whether there is a program for them or not.
        What conversion adds (``critpath_current``, the statedump) is none of them: the
        kernel did not count it.
    stats : mapping of str to int, or None
        ``per_cpu/cpuN/stats``: it has the total; the pages have the places.

    Returns
    -------
    PlacedLoss
        Without `stats`, a place without a number counts as one event at least.
    """
    counted: dict[int, int] = {}
    unknown: list[int] = []
    for page, count in zip(missed[::2], missed[1::2], strict=True):
        if count > 0:
            counted[page] = counted.get(page, 0) + count
        else:
            unknown.append(page)
    unknown = sorted({*unknown, *(page + 1 for page in damaged)})
    sure = sum(counted.values())
    warnings = []
    if damaged:
        warnings.append(
            f"cpu {cpu}: {plural(len(damaged), 'page')} of the buffer damaged or cut off:"
            " what was behind the damage is missing"
        )
    if stats is not None:
        total, odd = _total(cpu, sure, records, stats)
        warnings += odd
    else:
        total = sure + len(unknown)
        if unknown:
            warnings.append(
                f"cpu {cpu}: events are missing at {plural(len(unknown), 'place')} that the"
                " kernel has no number for; each counts as one"
            )
    rest = total - sure
    for number, page in enumerate(unknown):
        share = rest // len(unknown) + (number < rest % len(unknown))
        if share:
            counted[page] = counted.get(page, 0) + share
    if rest and not unknown:
        warnings.append(
            f"cpu {cpu}: {plural(rest, 'event')} lost at a time that the kernel does not tell"
        )
    places = array("q")
    for page in sorted(counted):
        places.extend((page, counted[page]))
    return PlacedLoss(places, total, tuple(warnings))


def _total(
    cpu: int, sure: int, records: int, stats: Mapping[str, int]
) -> tuple[int, tuple[str, ...]]:
    """Return how many events were lost by the kernel's counters, and what is odd about it."""
    # Read from the buffer, or still in it, and not among the pages.
    unseen = max(0, stats.get("read events", records) + stats.get("entries", 0) - records)
    total = unseen + sum(stats.get(name, 0) for name in COUNTERS)
    warnings = []
    if unseen:
        warnings.append(
            f"cpu {cpu}: {plural(unseen, 'event')} of the kernel's buffer did not get into"
            " the recording"
        )
    if sure > total:
        warnings.append(
            f"cpu {cpu}: the pages say that {plural(sure, 'event')} went missing, the"
            f" kernel's counters {total:,}: the greater is taken"
        )
    return max(total, sure), tuple(warnings)
