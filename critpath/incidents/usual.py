"""What is usual: baselines of six hours each, thinned, of two weeks, by deployment.

A file's name says of which hours it is and how many deployments there were before:
``20261129T06Z-0.baseline.json``.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from msgspec import structs

from critpath.errors import CritpathError, UsageError
from critpath.incidents.times import format_time, parse_time
from critpath.model import PathSet
from critpath.model.joining import join_sets
from critpath.model.paths import find_epochs
from critpath.store import Baseline, make_sessions
from critpath.units import NS_PER_S
from critpath.untrusted import find_trouble

DIRECTORY: Final = "usual"
_BLOCK: Final = 6 * 3600  # s of a file
_DAY, _WEEK = 24 * 3600, 7 * 24 * 3600
_MOST_AGE: Final = 14 * _DAY
_MOST_BYTES: Final = 256 << 20
OF_A_KIND: Final = 200  # executions of a kind in a file, and of a dump that are looked at
_RECORDINGS: Final = 12  # in a file
_AGES: Final = 2  # what runs now, and before it was deployed
_ENOUGH: Final = 50  # technical: executions; more files are taken until there are so many
_MOST_FILES: Final = 4  # technical: that are taken together
_NEAREST: Final = 6  # technical: recordings that a dump is held against
_FEWEST: Final = 3  # technical: recordings, that tell by how much recordings differ
_T = TypeVar("_T")
_MOST_PROGRAMS: Final = 10_000  # names that are kept in mind
_NAME: Final = re.compile(r"(\d{8}T\d{2})Z-(\d{1,9})\.baseline\.json", re.ASCII)


@dataclass(frozen=True)
class UsualFile:
    """One file of what is usual: its name, when it begins (s since 1970), of which age."""

    name: str
    begin: int
    age: int

    @classmethod
    def at(cls, second: int, age: int) -> UsualFile:
        """Return the file for a moment."""
        begin = second // _BLOCK * _BLOCK
        text = format_time(begin).replace("-", "").partition(":")[0]
        return cls(f"{text}Z-{age}.baseline.json", begin, age)

    @classmethod
    def named(cls, name: str) -> UsualFile | None:
        """Return what a name says, None if it is no such name."""
        found = _NAME.fullmatch(name)
        begin = parse_time(f"{found[1]}0000Z") if found else 0
        return cls(name, begin, int(found[2])) if found and begin else None


@dataclass(frozen=True)
class Found:
    """What is usual at some hour: its executions, the files they are of, whether of before."""

    paths: PathSet
    files: tuple[str, ...]
    recorded: tuple[str, ...]
    age: int


def order_files(files: Sequence[UsualFile], second: int, age: int) -> list[UsualFile]:
    """Return files of an age, nearest first: in hour of the day, kind of day, then in days."""
    block = second // _BLOCK * _BLOCK

    def distance(file: UsualFile) -> tuple[int, bool, int]:
        apart = (block - file.begin) % _DAY
        other_day = _is_weekend(file.begin) != _is_weekend(block)
        return min(apart, _DAY - apart), other_day, abs(block - file.begin)

    return sorted((f for f in files if f.age == age), key=distance)


def _is_weekend(second: int) -> bool:
    return (second // _DAY + 3) % 7 >= 5  # technical: 1970 began on a Thursday


def choose_removed(sizes: dict[UsualFile, int], now: int, age: int) -> list[UsualFile]:
    """Return the files to remove: too old, of former ages, and what there is no room for.

    The oldest first; of those of the same hours of the week the only one last.
    """
    gone = [f for f in sizes if f.begin < now - _MOST_AGE or f.age <= age - _AGES]
    left = sorted((f for f in sizes if f not in gone), key=lambda f: (f.begin, f.age))
    room = sum(sizes[f] for f in left)
    while room > _MOST_BYTES and len(left) > 1:
        hours = [f.begin % _WEEK for f in left]
        first = next((f for f, of in zip(left, hours, strict=True) if hours.count(of) > 1), left[0])
        left.remove(first)
        gone.append(first)
        room -= sizes[first]
    return gone


def find_deployed(
    known: Mapping[str, str], programs: Mapping[str, str], names: set[str]
) -> tuple[list[str], dict[str, str]]:
    """Return which programs of some names were deployed, and what to keep in mind of all.

    Another file is a deployment, and so is the same one if all its processes began after all
    those that there were. A program of which that is so each time (a process for each request)
    is none.

    Parameters
    ----------
    known : mapping of str to str
        By name of a thread: file, when the last began, and how often in a row all were new.
    programs : mapping of str to str
        As a dump says it: file, when the first began, and the last.
    names : set of str
        Of threads that executions are of.
    """
    deployed, kept = [], dict(known)
    for name in sorted(names & programs.keys()):
        file, first, *others = programs[name].split()
        last = others[0] if others else first  # dumps of earlier versions have the first alone
        was = known.get(name, "").split()
        if len(was) != 3 or not (was[1] + was[2]).isdecimal():
            kept[name] = f"{file} {last} 0"
            continue
        anew = int(was[2]) + 1 if int(first) > int(was[1]) else 0
        if was[0] != file or anew == 1:
            deployed.append(name)
        kept[name] = f"{file} {last} {min(anew, 9)}"
    while len(kept) > _MOST_PROGRAMS:
        del kept[next(iter(kept))]
    return deployed, kept


def measure_load(paths: PathSet) -> float:
    """Return how many requests a second a recording had, of which some are kept; 0: not known."""
    count = sum(of.requests.requests or 0 for of in paths.environment if of.requests)
    ends = paths.executions.end
    took = int(ends.max() - paths.executions.begin.min()) if len(ends) else 0
    return count * NS_PER_S / took if took > 0 else 0.0


def choose_before(of: Sequence[_T], ends: Sequence[float], until: float) -> list[_T]:
    """Return what ended before a time; the first few where it is fewer, as few tell nothing."""
    first = sorted(ends)[:_FEWEST][-1:]
    last = max(first, default=0.0)
    return [one for one, end in zip(of, ends, strict=True) if end < until or end <= last]


def find_end(paths: PathSet) -> float:
    """Return when the last execution ended (s since 1970); 0 if not known."""
    return max(
        (
            float(paths.executions.end[paths.session == source].max(initial=0) + epoch) / NS_PER_S
            for source, epoch in enumerate(find_epochs(paths))
            if epoch
        ),
        default=0.0,
    )


def choose_alike(loads: Sequence[float], load: float) -> list[int]:
    """Return which recordings have about some load, in their order: the nearest ones."""

    def apart(place: int) -> float:
        known = min(loads[place], load) > 0
        return abs(math.log(loads[place] / load)) if known else 0.0

    return sorted(sorted(range(len(loads)), key=apart)[:_NEAREST])


class Usual:
    """What is usual, in a directory."""

    def __init__(self, directory: Path, *, interrupts: bool, version: str) -> None:
        self._place, self._interrupts, self._version = directory, interrupts, version

    def _files(self) -> list[UsualFile]:
        names = os.listdir(self._place) if self._place.is_dir() else []  # noqa: PTH208 - names
        return [f for name in sorted(names) if (f := UsualFile.named(name)) is not None]

    @property
    def is_empty(self) -> bool:
        """Whether nothing usual is kept."""
        return not self._files()

    def newest_age(self) -> int:
        """Return how many deployments there were before the newest file."""
        return max((file.age for file in self._files()), default=0)

    def find(
        self,
        second: int,
        age: int,
        specification: str,
        load: float = 0.0,
        until: float = math.inf,
    ) -> Found | None:
        """Return what is usual at some hour, of executions that were found in one way.

        Of its recordings that ended before ``until`` (s since 1970) those with about as many
        requests a second as ``load``; that of before the last deployment if there is no other.
        """
        files = self._files()
        for of in (age, age - 1):
            sets: list[tuple[PathSet, str, tuple[str, ...]]] = []
            for file in order_files(files, second, of)[:_MOST_FILES]:
                if sum(len(each) for each, *_ in sets) >= _ENOUGH:
                    break
                baseline = self._load(file)
                if baseline is None:
                    continue
                place = self._place / file.name
                listed = baseline.list_sets(place, interrupts=self._interrupts)
                sets += [
                    (each, file.name, session.recorded)
                    for each, session in zip(listed, baseline.sessions, strict=True)
                    if each.specification == specification
                ]
            sets = choose_before(sets, [find_end(each) for each, *_ in sets], until)
            if sets:
                near = choose_alike([measure_load(each) for each, *_ in sets], load)
                chosen = [sets[place] for place in near]
                names = dict.fromkeys(name for _, name, _ in chosen)
                recorded = tuple(when for *_, of_one in chosen for when in of_one)
                return Found(join_sets([each for each, *_ in chosen]), (*names,), recorded, of)
        return None

    def _load(self, file: UsualFile) -> Baseline | None:
        """Return a file's baseline, None where it is damaged or was made in another way."""
        place = self._place / file.name
        try:
            baseline = None if place.is_symlink() else Baseline.load(place)
        except CritpathError as error:
            if find_trouble(error):  # it may be whole, and is not to be replaced
                raise
            return None
        return baseline if baseline and baseline.interrupts == self._interrupts else None

    def forget(self, since: float, second: int, age: int) -> None:
        """Leave out what was recorded since then (s since 1970), and less than a block ago."""
        for at in {UsualFile.at(second - _BLOCK, age), UsualFile.at(second, age)}:
            baseline = self._load(at)
            if baseline is None:
                continue
            ends = [find_end(one.paths) for one in baseline.sessions]
            left = choose_before(baseline.sessions, ends, since)
            if len(left) < len(baseline.sessions):
                structs.replace(baseline, sessions=tuple(left)).save(self._place / at.name)

    def add(self, paths: PathSet, second: int, age: int) -> None:
        """Add what was recorded, and remove what there is no room for."""
        self._place.mkdir(mode=0o700, exist_ok=True)
        file = UsualFile.at(second, age)
        place = self._place / file.name
        new = make_sessions([paths], 0)
        old = self._load(file)
        if old is None:
            baseline = Baseline(new, self._interrupts, self._version)
        else:
            try:
                old.require_new([paths], place)
            except UsageError:
                return
            baseline, _ = old.add(new, self._version, _RECORDINGS + 1)
        if place.is_symlink():
            place.unlink()
        baseline.thin(OF_A_KIND, _RECORDINGS).save(place)
        sizes = {f: (self._place / f.name).lstat().st_size for f in self._files()}
        for each in choose_removed(sizes, second, age):
            (self._place / each.name).unlink(missing_ok=True)
