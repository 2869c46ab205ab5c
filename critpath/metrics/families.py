"""Metrics as facts: families, of which each format makes its own text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from critpath.units import NS_PER_S, safe_text

SCALE: Final = 5  # buckets to a doubling: 2**5, each 2.2 % wide
_LONGEST: Final = 200  # letters of a label's value
OTHER: Final = "(other)"  # what is one too many


@dataclass
class Histogram:
    """How long things took, in exponential buckets: bucket ``i`` ends at 2**(i / 2**scale) s."""

    scale: int = SCALE
    count: int = 0
    total: float = 0.0  # s
    buckets: Counter[int] = field(default_factory=Counter)

    def add(self, ns: float, times: int = 1) -> None:
        """Count something that took so long."""
        seconds = max(ns, 1.0) / NS_PER_S
        self.buckets[math.ceil(math.log2(seconds) * 2**self.scale)] += times
        self.count += times
        self.total += seconds * times

    def narrow(self, most: int) -> Histogram:
        """Return it in at most so many adjacent buckets, by joining pairs."""
        scale, buckets = self.scale, self.buckets
        while buckets and max(buckets) - min(buckets) >= most:
            joined: Counter[int] = Counter()
            for index, times in buckets.items():
                joined[-(-index // 2)] += times
            scale, buckets = scale - 1, joined
        return Histogram(scale, self.count, self.total, buckets)

    def up_to(self, power: int) -> int:
        """Return how many took at most 2**power s."""
        last = power * 2**self.scale
        return sum(times for index, times in self.buckets.items() if index <= last)


@dataclass(frozen=True)
class Sample:
    """A value, and what it is of."""

    value: float | Histogram
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Family:
    """Samples of one thing.

    Attributes
    ----------
    name : str
        Without the suffixes that a format adds (``_total``).
    kind : str
    unit : str
        In which `name` ends, "" for none.
    meaning : str
    samples : tuple of Sample
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    unit: str
    meaning: str
    samples: tuple[Sample, ...]


@dataclass(frozen=True)
class Report:
    """Everything at one moment.

    Attributes
    ----------
    families : tuple of Family
    since, now : int
        ns since 1970: when counters were 0, and when this was so.
    host : str
    version : str
        Of critpath.
    """

    families: tuple[Family, ...]
    since: int
    now: int
    host: str = ""
    version: str = ""


class Named:
    """Gives the first names their own place, and all later ones together another."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()
        self._folded: set[str] = set()

    def place(self, name: str) -> str:
        """Return the label's value for a name."""
        name = safe_text(name)[:_LONGEST]
        if name in self._known or len(self._known) < self._most:
            self._known.add(name)
            return name
        if len(self._folded) < self._most:  # how many they are is told up to here
            self._folded.add(name)
        return OTHER

    @property
    def folded(self) -> int:
        """How many names have no place of their own; at most as many as have one."""
        return len(self._folded)
