"""Counts while something is recorded: reads at the times of a grid, and writes a line each time."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Final

from critpath.errors import CritpathError, with_sudo
from critpath.model.recording import COUNTS
from critpath.units import NS_PER_S, plural
from critpath_record._pulse import name_thread
from critpath_record.counts.attach import ProgramCounts, refusal
from critpath_record.counts.events import FREE, Counted, select_counted
from critpath_record.counts.fallback import FreeCounts, PerfCounts
from critpath_record.counts.functions import find_functions
from critpath_record.counts.groups import (
    Group,
    find_group,
    find_root,
    free_places,
    free_terms,
    group_of_container,
    make_group,
    read_free,
    remove_group,
)
from critpath_record.ftrace import tracefs
from critpath_record.recorder import CountsRequest
from critpath_record.source import Source, Taken

FORMAT: Final = "critpath/counts/1"
MACHINE, COMMAND = "machine", "command"
_SHOWN: Final = 8


Reader = ProgramCounts | PerfCounts | FreeCounts


class Counting(Source):
    """Counts from `open` to `close` into a file of the recording.

    `directory`: the recording's own; or what is called with each line, the header first, instead of
    writing it.  `container`: pid namespace of the container that is recorded, 0 for none.
    """

    def __init__(
        self,
        asked: CountsRequest,
        directory: Path | Callable[[Mapping[str, Any]], None],
        session: str,
        container: int = 0,
    ) -> None:
        self._asked = asked
        self._directory = directory
        self._session = session
        self._container = container
        self._source: Reader | None = None
        self._group: Group | None = None
        self._procs = -1
        self._free: list[tuple[int, tuple[Path, ...]]] = []  # scopes that the kernel itself counts
        self._before: list[list[int]] = []
        self._begin = 0
        self._next = 0
        self._lines = 0
        self._loss = 0
        self._stream: IO[bytes] | None = None
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: CritpathError | None = None
        self._facts: Mapping[str, object] | None = None
        self.warnings: list[str] = []

    @property
    def failure(self) -> CritpathError | None:
        """Why counting ended before `close`."""
        return self._failure

    @property
    def gone(self) -> bool:
        """Tell whether the control group that is counted was removed meanwhile."""
        return self._group is not None and not self._group.path.exists()

    @property
    def group(self) -> int:
        """Descriptor by which the command joins its control group; -1 for none."""
        return self._procs

    def open(self) -> int:
        """Attach, and count from now on; raises CritpathError, and leaves nothing."""
        try:
            self._start()
        except BaseException:
            self.abort()
            raise
        return self._begin

    def _start(self) -> None:
        scope = self._find_scope()
        self._source = source = self._open()
        scopes = [MACHINE] if self._group is None else [MACHINE, scope]
        root = find_root()
        places: list[tuple[Path, ...]] = [free_places(root) if root else ()]
        if self._group:
            places.append(free_places(self._group.path, self._group.name))
        self._free = [(n, p) for n, p in enumerate(places) if read_free(p)]
        header = {
            "format": FORMAT,
            "terms": [*source.terms, *(free_terms() if self._free else ())],
            "scopes": scopes,
            "clock": "monotonic",
            "interval": self._asked.interval,
            "how": source.how,
            "events": self._asked.events,
        }
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            if isinstance(self._directory, Path):
                file = self._directory / COUNTS
                file.parent.mkdir(mode=0o700, exist_ok=True)
                self._stream = os.fdopen(os.open(file, flags, 0o600), "wb", buffering=0)
            self._write(header)
        except OSError as error:
            raise _unwritable(error) from None
        self._before, self._begin = self._read()
        source.count_misses()
        self._next = self._begin + self._asked.interval
        self._thread = threading.Thread(target=self._run, name="counts", daemon=True)
        self._thread.start()

    def _find_scope(self) -> str:
        """Find or make the control group; return what its scope is called."""
        asked = self._asked.scope
        if self._asked.events == FREE or (asked == MACHINE and not self._container):
            return MACHINE
        if self._container:
            self._group = group_of_container(self._container)
            return self._group.name
        if asked == COMMAND:
            try:
                self._group, self._procs = make_group(self._session)
            except CritpathError as error:
                self.warnings.append(f"counts are of the machine only: {error.what}")
                return MACHINE
            return COMMAND
        self._group = find_group(asked)
        return self._group.name

    def _select(self) -> list[Counted]:
        root = tracefs.find() or tracefs.mount()
        try:
            lines = (root / "available_events").read_text(encoding="ascii").splitlines()
        except OSError as error:
            raise CritpathError(
                f"the kernel's events cannot be listed: {error.strerror}",
                f"record as root: {with_sudo('record ...')}",
            ) from None
        available = [line.replace(":", "/", 1) for line in lines if ":" in line]
        return select_counted(self._asked.events, available)

    def _open(self) -> Reader:
        """Attach programs, or counting events of perf where the kernel takes none."""
        if self._asked.events == FREE:
            return FreeCounts()
        counted = self._select()
        if self._asked.functions:
            counted = [*counted, *self._find_functions()]
        try:
            return ProgramCounts(counted, self._group)
        except OSError as error:
            refused = refusal(error)
        try:
            source = PerfCounts(counted, self._group)
        except OSError:
            raise refused from None
        self.warnings.append(f"{refused.what}: perf counts {len(source.terms)} events instead")
        return source

    def _find_functions(self) -> list[Counted]:
        """Return the functions that are asked for, if the kernel lets them be counted."""
        try:
            found = find_functions(self._asked.functions)
            ProgramCounts(found[:1], None).close()
        except OSError as error:
            refused = refusal(error)
            raise CritpathError(
                f"this kernel lets no functions be counted: {refused.what}",
                "leave --kernel-functions out; critpath doctor says what the kernel offers",
            ) from None
        return found

    def _run(self) -> None:
        name_thread(b"critpath-counts")
        while True:
            with self._lock:
                left = (self._next - time.monotonic_ns()) / NS_PER_S
            if self._stopping.wait(max(left, 0)):
                return
            with self._lock:
                if time.monotonic_ns() >= self._next:
                    self._end_interval()
                    if self._failure is not None:
                        return
                    late = time.monotonic_ns() - self._next
                    interval = self._asked.interval
                    self._next += interval * (1 + max(late, 0) // interval)

    def begin_run(self, kind: str, *, limited: bool) -> bool:
        """End an interval where a run begins."""
        del kind, limited
        self._cut()
        return True

    def end_run(self, kind: str, busy: int) -> None:
        """End an interval where a run ends."""
        del kind, busy
        self._cut()

    def _cut(self) -> None:
        """End an interval now, and begin the grid again."""
        with self._lock:
            if self._stream is not None and self._failure is None:
                self._end_interval()
                self._next = self._begin + self._asked.interval

    def _read(self) -> tuple[list[list[int]], int]:
        """Return all counts so far, by scope and term, and when they were read."""
        if self._source is None:
            raise RuntimeError("nothing is counted")
        before = time.monotonic_ns()
        found = self._source.read()
        when = (before + time.monotonic_ns()) // 2
        terms = free_terms() if self._free else []
        free: dict[int, Mapping[str, int]] = {n: read_free(p) for n, p in self._free}
        counts = [
            counts + [free.get(scope, {}).get(term, 0) for term in terms]
            for scope, counts in enumerate(found)
        ]
        return counts, when

    def _end_interval(self) -> None:
        try:
            now, end = self._read()
            counts = [
                [[term, n - b] for term, (n, b) in enumerate(zip(new, old, strict=True)) if n > b]
                for new, old in zip(now, self._before, strict=True)
            ]
            loss = self._source.count_misses() if self._source else 0
            self._write({"begin": self._begin, "end": end, "counts": counts, "loss": loss})
        except OSError as error:
            self._failure = _unwritable(error)
            return
        self._before, self._begin = now, end
        self._loss += loss
        self._lines += 1

    def _write(self, line: Mapping[str, Any]) -> None:
        if not isinstance(self._directory, Path):
            self._directory(line)
        elif self._stream is not None:
            self._stream.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def close(self) -> int:
        """Count no more."""
        self._end_thread()
        source = self._source
        if self._failure is None:
            self._end_interval()
        if source is not None and source.skipped:
            shown = ", ".join(source.skipped[:_SHOWN])
            more = ", ..." * (len(source.skipped) > _SHOWN)
            self.warnings.append(f"this kernel lets nothing be attached to {shown}{more}")
        if self._loss:
            self.warnings.append(
                f"{plural(self._loss, 'hit')} interrupted one another and were not counted: "
                "the intervals are marked"
            )
        if self._failure is not None:
            self.warnings.append(f"counting ended early: {self._failure.what}")
        self._facts = self.tell()
        self.abort()
        return 0

    def drain(self, report: Callable[[str], None]) -> Taken:
        """Return what there is to warn of."""
        del report
        return Taken(warnings=tuple(self.warnings))

    def tell(self) -> Mapping[str, object]:
        """Return what the manifest says of counts."""
        if self._facts is not None:
            return self._facts
        source = self._source
        facts = {
            "path": COUNTS,
            "interval": self._asked.interval,
            "how": source.how if source else "",
            "events": self._asked.events,
            "skipped": source.skipped if source else [],
            "scope": self._asked.scope if self._group else MACHINE,
            "lines": self._lines,
            "lost": self._loss,
        }
        return {"counts": facts}

    def _end_thread(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def abort(self) -> None:
        """Detach everything and remove the group; idempotent."""
        self._end_thread()
        source, self._source = self._source, None
        if source is not None:
            source.close()
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
        if self._procs >= 0:
            os.close(self._procs)
            self._procs = -1
            if self._group is not None:
                try:
                    remove_group(self._group.path)
                except CritpathError as error:
                    self.warnings.append(f"{error.what} ({error.do})")
        self._group = None


def _unwritable(error: OSError) -> CritpathError:
    return CritpathError(f"counts cannot be written: {error.strerror}", "make room there")
