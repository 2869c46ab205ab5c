"""Where the time of a dump's requests goes: of those that its recorder chose, by their chances."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from critpath.errors import CritpathError

if TYPE_CHECKING:
    from critpath.commands.settings import Settings
    from critpath.model import PathSet

REQUESTS: Final = "requests"
_NICE: Final = 19
_MOST_BYTES: Final = 1 << 24
_Key = tuple[int, int, int]  # begin, end, thread
# By kind, and by state and peer ("" for its own): a part of all time.
Shares = Mapping[str, Mapping[tuple[str, str], float]]


def read_chances(dump: Path) -> dict[_Key, float]:
    """Return with which chance each request was chosen; of a damaged file none."""
    from critpath.model.recording import SAMPLED, SAMPLED_FORMAT  # noqa: PLC0415 - start-up time

    with contextlib.suppress(OSError, ValueError, TypeError, LookupError, RecursionError):
        file = dump / SAMPLED
        if file.stat().st_size <= _MOST_BYTES:
            document = json.loads(file.read_bytes())
            rows = document["requests"] if document["format"] == SAMPLED_FORMAT else []
            return {
                (int(begin), int(end), int(tid)): float(chance)
                for _, begin, end, tid, chance in rows
                if 0 < float(chance) <= 1
            }
    return {}


def walk(dump: Path, settings: Settings, what: str | None) -> tuple[PathSet, Sequence[float]]:
    """Return the paths of the requests that were chosen, and what each stands for.

    Of a dump without such a choice, or of other executions, all of them.
    """
    from critpath import flow  # noqa: PLC0415 - numpy and the stages

    chances = read_chances(dump) if what == REQUESTS else {}
    paths = flow.extract(
        [dump],
        specification=what,
        reader=settings["reader"],
        interrupts=settings["interrupts"],
        max_memory=settings["max-memory"],
        only=frozenset(chances),
    )
    of = paths.executions
    keys = zip(of.begin.tolist(), of.end.tolist(), of.tid.tolist(), strict=True)
    return paths, [1 / chances.get(key, 1.0) for key in keys]


def find_shares(
    paths: PathSet, weights: Sequence[float], name_of: Callable[[str], str] = str
) -> Shares:
    """Return where the time of each kind goes: by state and by whose thread, "" for its own.

    Requests are of the service that answers them, as a flight recorder calls them.
    """
    import numpy as np  # noqa: PLC0415 - start-up time

    from critpath.model import STATES  # noqa: PLC0415 - as above
    from critpath.model.requests import service_of  # noqa: PLC0415 - as above
    from critpath.model.vectors import role_name, show_family  # noqa: PLC0415 - as above

    of, executions = paths.paths, paths.executions
    labels = [label or comm for label, comm in zip(executions.label, executions.comm, strict=True)]
    if paths.kind == REQUESTS:
        labels = [name_of(service_of(label)) for label in labels]
    kinds = list(dict.fromkeys(labels))
    number = {kind: index for index, kind in enumerate(kinds)}
    kind = np.array([number[label] for label in labels], np.int64)[of.path]
    own = (of.tid == executions.tid[of.path]) & (of.host == executions.host[of.path])
    peer = np.where(own, -1, of.comm)
    rows = np.stack([kind, of.state.astype(np.int64), peer.astype(np.int64)])
    keys, places = np.unique(rows, axis=1, return_inverse=True)
    took = (of.end - of.begin) * np.asarray(weights, np.float64)[of.path]
    times = np.bincount(places.ravel(), took)
    whole = np.bincount(keys[0], times, len(kinds))
    found: dict[str, dict[tuple[str, str], float]] = {}
    for at, state, who, ns in zip(*keys.tolist(), times.tolist(), strict=True):
        if ns > 0:
            key = STATES[state], show_family(role_name(of.strings[who])) if who >= 0 else ""
            mine = found.setdefault(kinds[at], {})
            mine[key] = mine.get(key, 0.0) + ns / whole[at]
    return found


class Walker:
    """Walks what was chosen of the newest dump, beside all else and at the lowest priority."""

    def __init__(
        self, settings: Settings, what: Sequence[str], name_of: Callable[[str], str] = str
    ) -> None:
        self.shares: Shares = {}
        self.source = self._asked = ""
        self.took = 0.0  # s of cpu time that the flight recorder does not know of yet
        self._settings, self._what, self._name_of = settings, what, name_of
        self._thread: threading.Thread | None = None

    def look(self, dump: str) -> None:
        """Walk a dump unless that is done, or another is being walked."""
        if dump in {"", self._asked} or (self._thread is not None and self._thread.is_alive()):
            return
        self._asked = dump
        self._thread = threading.Thread(target=self._run, args=(Path(dump),), daemon=True)
        self._thread.start()

    def take_cost(self) -> float:
        """Return what walking took since this was asked last (s of cpu time)."""
        took, self.took = self.took, 0.0
        return took

    def _run(self, dump: Path) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        with contextlib.suppress(OSError, AttributeError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        before = time.thread_time()
        found: dict[str, Mapping[tuple[str, str], float]] = {}
        for shares in self._walk_each(dump):
            found |= shares
        self.took += time.thread_time() - before
        if found:
            self.shares, self.source = found, dump.name

    def _walk_each(self, dump: Path) -> Iterator[Shares]:
        for what in self._what:
            with contextlib.suppress(CritpathError, OSError):  # it has none, or was removed
                yield find_shares(*walk(dump, self._settings, what), self._name_of)
