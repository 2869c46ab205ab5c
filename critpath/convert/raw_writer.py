"""Writes what another tool recorded as the ftrace recorder leaves it: a raw directory.

``critpath_record.ftrace.convert`` makes the trace of it, as of a recording of our own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from critpath.errors import CritpathError, UnreadableError
from critpath.units import plural, safe_text
from critpath_record.ftrace import EventFormat, PageLayout, ThreadState, describe_raw, parse_format

# Of `_page_writer.pxi`.
HEADER_PAGE: Final = """\
\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;
\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;
\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;
\tfield: char data;\toffset:16;\tsize:16368;\tsigned:0;
"""
HEADER_EVENT: Final = """\
# compressed entry header
\ttype_len    :    5 bits
\ttime_delta  :   27 bits
\tarray       :   32 bits

\tpadding     : type == 29
\ttime_extend : type == 30
\ttime_stamp : type == 31
\tdata max type_len  == 28
"""
MOST_CPUS: Final = 4096
MOST_FORMATS: Final = 1 << 14
MOST_THREADS: Final = 1 << 20
DAMAGED: Final = "copy it again, or record again: it is damaged"
_TIMES: Final = 1 << 62  # ns: sums of times must not overflow
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,100}")


class RawWriter:
    """A raw directory that a reader of a foreign file fills.

    A reader sets what it knows of `clock`, `epoch`, `host` and `big_endian`; adds the formats of
    the events, then the pages (`take_pages` of what a `PageWriter` of `_page_writer.pxi` wrote
    into `directory`, or files ``cpuN`` of the kernel's own pages, with `set_pages`); and says what
    was lost (`lose`) and what users should know (`warn`).

    Attributes
    ----------
    directory : Path
        Where ``cpuN`` go.
    clock : str
        The kernel's name of the clock: ``mono``, ``boot``, ``local``, ``global``, ...
    epoch : int
        From that clock's zero to the Unix epoch (ns); 0 unknown.
    host : dict
        ``name``, ``kernel``, ``machine``, ``cpus``, as far as they are known.
    tool : dict
        ``name`` and ``version`` of what recorded, as far as they are known.
    big_endian : bool
        The byte order of pages and records.
    """

    def __init__(self, file: Path, directory: Path) -> None:
        self.file, self.directory = file, directory
        self.clock, self.epoch, self.big_endian = "mono", 0, False
        self.host: dict[str, Any] = {}
        self.tool: dict[str, str] = {}
        self.warnings: list[str] = []
        self._names: set[str] = set()
        self._numbers: dict[int, str] = {}
        self.begin = 0  # of the first event (ns), once it is finished
        self._threads: dict[int, ThreadState] = {}
        self._started: dict[int, int] = {}  # process of each thread that began since
        self._cpus: set[int] = set()
        self._counted: dict[int, dict[str, int]] = {}
        self._lost: dict[int, int] = {}  # beyond what pages say
        self._placed: dict[int, tuple[int, int]] = {}  # what they say, and in how many unknown
        self._span: tuple[int, int] | None = None
        self._page: tuple[str, str] = HEADER_PAGE, HEADER_EVENT
        self._formats = directory / "formats"
        self._formats.mkdir(mode=0o700)

    def broken(self, what: str) -> UnreadableError:
        """Return the error of a file that is damaged or cut off."""
        return UnreadableError(f"{self.file}: {safe_text(what)}", DAMAGED)

    def warn(self, text: str) -> None:
        """Note what users should know, once."""
        if text not in self.warnings:
            self.warnings.append(text)

    def add_format(self, group: str, text: str) -> EventFormat | None:
        """Add an event by the kernel's description of it; None, with a warning, if it has none.

        The ID in it is the ``common_type`` of its records.
        """
        try:
            form = parse_format(Path(f"{group}/format"), text)
        except CritpathError as error:
            self.warn(f"an event without a usable description is left out: {error.what}")
            return None
        if not _PLAIN.fullmatch(group) or len(self._names) >= MOST_FORMATS:
            self.warn(f"events of the group {safe_text(group)[:40]!r} are left out")
            return None
        name = f"{group}.{form.name}"
        if form.number in self._numbers or name in self._names:
            if self._numbers.get(form.number) != name:
                self.warn(f"{name}: has the ID of {self._numbers.get(form.number, name)}")
            return None
        self._names.add(name)
        self._numbers[form.number] = name
        (self._formats / name).write_text(text, encoding="utf-8")
        return form

    def add_thread(self, tid: int, tgid: int, comm: str) -> None:
        """Add a thread that was there at the begin, with the process that it belongs to.

        A name alone is in every switch: what does not know the process adds nothing.
        """
        fits = 0 < tid < 1 << 31 and 0 < tgid < 1 << 31
        if fits and len(self._threads) < MOST_THREADS:
            self._threads.setdefault(tid, ThreadState(0, tid, tgid, 0, comm, "", 0, 0, 0))

    def add_started(self, tid: int, tgid: int) -> None:
        """Add a thread that began since, with its process: its fork does not tell whose it is."""
        fits = 0 < tid < 1 << 31 and 0 < tgid < 1 << 31
        if fits and (tid in self._started or len(self._started) < MOST_THREADS):
            self._started[tid] = tgid

    def lose(self, cpu: int, events: int) -> None:
        """Note that a cpu lost events, of which no page says when."""
        if 0 <= cpu < MOST_CPUS and 0 < events < _TIMES:
            self._lost[cpu] = self._lost.get(cpu, 0) + events

    def count(self, cpu: int, counts: Mapping[str, int]) -> None:
        """Add the kernel's counts of a cpu's buffer (``overrun``, ``read events``, ...).

        They include the losses in pages and those given to `lose`.
        """
        if 0 <= cpu < MOST_CPUS:
            of = self._counted.setdefault(cpu, {})
            for name, number in counts.items():
                of[name] = min(of.get(name, 0) + number, _TIMES)

    def set_page(self, header_page: str, header_event: str) -> None:
        """Say what pages look like that the kernel wrote itself."""
        self._page = header_page, header_event

    def parse_layout(self) -> PageLayout:
        """Return what these pages look like."""
        return PageLayout.parse(self.file, self._page[0])

    def name_of(self, number: int) -> str:
        """Return ``group.event`` of an event's ID; "" if it has no format."""
        return self._numbers.get(number, "")

    def add_cpu(self, cpu: int, first: int = 0, last: int = 0) -> None:
        """Note a cpu, and times of its first and last event (ns), as far as they are known."""
        if not 0 <= cpu < MOST_CPUS:
            raise self.broken(f"has a cpu of the number {cpu}")
        self._cpus.add(cpu)
        if 0 < first < _TIMES:
            begin, end = self._span or (first, 0)
            self._span = min(begin, first), max(end, last)

    def take_pages(self, written: Mapping[int, tuple[int, int, int, int, int, int, int]]) -> None:
        """Take what `PageWriter.close` returned."""
        for cpu, (records, first, last, late, too_long, lost, unknown) in sorted(written.items()):
            self.add_cpu(cpu, *((first, last) if records else ()))
            self._placed[cpu] = lost, unknown
            if late:
                self.warn(
                    f"cpu {cpu}: {plural(late, 'event')} earlier than the one before, whose time"
                    " they were given"
                )
            if too_long:
                self.lose(cpu, too_long)
                self.warn(f"cpu {cpu}: {plural(too_long, 'event')} too long, left out: lost")

    def _sum_losses(self) -> dict[int, dict[str, int]]:
        """Return the counts of each cpu; of one that has none, what it is known to have lost.

        A cpu that is not among them lost what its pages say.
        """
        found = {cpu: dict(of) for cpu, of in self._counted.items()}
        for cpu, lost in self._lost.items():
            if cpu not in found:
                placed, unknown = self._placed.get(cpu, (0, 0))
                found[cpu] = {"overrun": placed + lost}
                if unknown:
                    self.warn(
                        f"cpu {cpu}: events are missing at {plural(unknown, 'place')} that the"
                        " file has no number for; each counts as one"
                    )
        return found

    def finish(self) -> None:
        """Write the descriptions: the raw directory is whole then."""
        if not self._names:
            raise self.broken("describes no event")
        if self._span is None:
            raise self.broken("has no event")
        begin, end = self._span
        self.begin = begin
        threads = [of._replace(time=begin) for of in self._threads.values()]
        started = [
            ThreadState(_TIMES, tid, tgid, 0, "", "", 0, 0, 0)
            for tid, tgid in self._started.items()
        ]
        describe_raw(
            self.directory,
            {
                "session": self.file.name,
                "clock": self.clock,
                "epoch": self.epoch if abs(self.epoch) < _TIMES else 0,
                "big_endian": self.big_endian,
                "cpus": sorted(self._cpus),
                "begin": begin,
                "end": end,
                "host": self.host,
                "recorder": self.tool,
            },
            page=self._page,
            threads=threads,
            started=started,
            stats=self._sum_losses(),
        )
