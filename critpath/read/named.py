"""Which cpus the events of a trace name: one without a stream is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from critpath.model import Kind

if TYPE_CHECKING:
    from critpath.model import I32, I64, EventClass

_WAKES: Final = {Kind.WAKEUP, Kind.WAKEUP_NEW, Kind.WAKING}
# Threads are woken everywhere all the time: some of the events tell as much as all.  Which
# ones does not depend on how they come: the first, and some of every so many.
_FIRST, _SOME, _EVERY = 1 << 18, 1 << 16, 1 << 22
_TWICE: Final = 2  # a single event may be damaged
_MOST_CPUS: Final = 1 << 16


class NamedCpus:
    """Gathers where threads were woken, by host, from some of the events."""

    def __init__(self) -> None:
        self._seen = 0
        self._found: dict[tuple[int, int], int] = {}

    def look(
        self, event_class: I32, offset: I64, values: I64, classes: Sequence[EventClass]
    ) -> None:
        """Look at the next chunk."""
        begin, end = self._seen, self._seen + len(event_class)
        self._seen = end
        for low, high in _looked_at(begin, end):
            of = slice(max(low - begin, 0), high - begin)
            self._count(event_class[of], offset[of], values, classes)

    def _count(
        self, event_class: I32, offset: I64, values: I64, classes: Sequence[EventClass]
    ) -> None:
        for number, of in enumerate(classes):
            if of.kind not in _WAKES or "target_cpu" not in of.fields:
                continue
            place = of.fields.index("target_cpu")
            if of.types[place] == "absent":
                continue
            rows = np.flatnonzero(event_class == number)
            cpus, counts = np.unique(values[offset[rows] + place], return_counts=True)
            for cpu, count in zip(cpus.tolist(), counts.tolist(), strict=True):
                if 0 <= cpu < _MOST_CPUS:
                    key = of.host, cpu
                    self._found[key] = self._found.get(key, 0) + count

    def of(self, host: int) -> set[int]:
        """Return the cpus of a host that several events name."""
        return {cpu for (at, cpu), count in self._found.items() if at == host and count >= _TWICE}


def _looked_at(begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield which of some rows of the recording are looked at."""
    if begin < _FIRST:
        yield begin, min(end, _FIRST)
    for low in range(begin - begin % _EVERY, end, _EVERY):
        high = min(low + _SOME, end)
        if low >= _FIRST and high > begin:
            yield max(low, begin), high
