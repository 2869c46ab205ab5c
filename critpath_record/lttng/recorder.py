"""Records through LTTng's kernel tracer, in a private session.

It does what one would do with `lttng` in a terminal, and undoes every step when one
fails: load the profile into a session, start, stop, read the counts, destroy.
"""

from __future__ import annotations

import contextlib
import copy
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree as ET

from critpath.errors import CritpathError, UnreadableError, UsageError
from critpath.model import Gap
from critpath.schema.ways import PACKETS, way_of_requests
from critpath_marks.channels import RECORDER
from critpath_marks.sessions import new_session_name, owner_of
from critpath_record.budget.gaps import (
    BASE,
    JOURNAL,
    SELECTED,
    finish_gaps,
    is_under_budget,
    last_time,
    read_summary,
)
from critpath_record.budget.gaps import FILE as GAPS
from critpath_record.budget.recording import BudgetRecording
from critpath_record.ctf.statedump import write_sockets
from critpath_record.dirfd import path_for_children
from critpath_record.ftrace import raw as raws
from critpath_record.ftrace.drain import online_cpus
from critpath_record.identity import is_dead_session
from critpath_record.lttng import program
from critpath_record.lttng.daemon import (
    destroy_session,
    end_session,
    end_unused_daemons,
    find_own_daemons,
    losses,
    start_daemon,
    stop_session,
    sum_losses,
)
from critpath_record.lttng.gate import (
    FLUSHED_EVERY,
    SessionGate,
    Tracker,
    attach,
    find_daemons,
)
from critpath_record.lttng.preflight import find_needs, offered_way
from critpath_record.lttng.program import LttngError, is_installed, list_sessions
from critpath_record.manifests import read_manifest
from critpath_record.profiles import WITHOUT, parse_profile, read_instruction, refuse_profile
from critpath_record.recorder import TRACE, UnfinishedError
from critpath_record.sockets import scan_open
from critpath_record.source import Source, Taken, UnderBudget

if TYPE_CHECKING:
    from critpath_record.budget.control import Budget
    from critpath_record.recorder import RecorderSettings

__all__ = ["LttngRecorder", "find_needs", "finish_killed", "offered_way", "open_recorder"]

# Marks of programs in Python come through LTTng-UST's agent, as records of this logger.
LOGGER: Final = "critpath"
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_USER_CONTEXTS: Final = ("vpid", "vtid", "procname")
SWITCH: Final = "sched_switch"
_FORMATS_SINCE: Final = (2, 15)  # before, LTTng writes CTF 1.8 and has no choice


class LttngRecorder(UnderBudget, Source):
    """One recording through LTTng: see `critpath_record.recorder.Recorder`."""

    def __init__(self, settings: RecorderSettings) -> None:
        self._settings = settings
        self._output = (settings.directory / TRACE).absolute()
        self._file: SessionFile | None = None
        self._version = self._modules = ""
        self._agent = False
        self._sessions: list[str] = []  # that are made
        self._raw = settings.write_directory / raws.RAW
        self._budget: BudgetRecording | None = None
        self._warnings: list[str] = []
        self._begin = self._end = 0
        self._state: dict[str, str] = {}
        self._gaps: tuple[Gap, ...] = ()
        self._sockets: list[tuple[str, Sequence[Any], bool]] = []

    def open(self) -> int:
        """Load the profile into a new session and start it."""
        if not program.is_installed():
            raise CritpathError(
                "LTTng is not installed: no lttng, or no lttng-sessiond",
                "sudo apt install lttng-tools lttng-modules-dkms, or --recorder ftrace",
            )
        try:
            end_unused_daemons()
            if not program.is_reachable():
                self._start_daemon()
            self._version = program.version()
            self._file = self._load(self._settings.session, self._output)
            self._python_agent()
            if self._settings.budget is not None:
                self._start_budget(self._settings.budget)
            program.run_lttng("start", self._settings.session)
            self._modules = program.modules_version()
            self._state = self._describe()
            if self._budget is not None:
                self._budget.begin(online_cpus())
            self._begin = time.monotonic_ns()
            self._dump_sockets(last=False)
        except BaseException:
            with contextlib.suppress(CritpathError):
                self.abort()
            raws.discard_raw(self._settings.write_directory)
            raise
        return self._begin

    def environment(self) -> Mapping[str, str]:
        """Return the variable that tells marks which way to take."""
        return {RECORDER: "lttng" if self._agent else "lttng-logger"}

    @property
    def failure(self) -> CritpathError | None:
        """Why a budget cannot be held any more; what cannot be written LTTng counts as lost."""
        return self._budget.failure() if self._budget is not None else None

    def close(self) -> int:
        """Stop the session, and wait for the consumer daemon to write the trace."""
        with self._keeping():
            if self._budget is not None:
                self._budget.end_watching()
            end = self._end = time.monotonic_ns()
            self._gaps = tuple(self._find_changes(end))
            self._dump_sockets(last=True)
            warnings = [*filter(None, map(stop_session, self._sessions))]
            if self._budget is not None:
                self._budget.stop()
                warnings += self._budget.warnings
        self._warnings += warnings
        return end

    def drain(self, report: Callable[[str], None]) -> Taken:
        """Read the counts, destroy the session and check that there is a trace."""
        with self._keeping():
            report("reading LTTng's counts")
            counted = [one for name in self._sessions for one in program.list_channels(name)]
            self._remove_sessions(wait=True)
            self._end_daemons()
        self._write_sockets()
        # LTTng's daemon wrote by name: to what this recording's directory was by then.
        written = _trace_format(self._settings.write_directory / "trace" / "kernel" / "metadata")
        if written != self._settings.trace_format:
            self._warnings.append(f"asked for {self._settings.trace_format}, LTTng wrote {written}")
        return Taken(
            loss=sum_losses(counted),
            facts=self._facts(counted, written),
            warnings=tuple(self._warnings),
            release=partial(raws.discard_raw, self._settings.write_directory),
            **_result_of_gaps(
                self._raw, self._settings.write_directory, self._begin, self._end, self._gaps
            ),
        )

    def _start_budget(self, budget: Budget) -> None:
        """Make the session of what is opened and closed, and start it closed."""
        self._raw.mkdir(mode=0o700)  # before there are events: one that is killed has gaps
        session = new_session_name()
        made = self._load(session, self._output / BASE)
        if SWITCH not in made.events:
            raise CritpathError(
                f"LTTng does not record {SWITCH} with this profile: there is nothing to open",
                "take another profile, or leave --overhead out",
            )
        tracker = Tracker(session)
        tracker.follow(every=False)
        program.run_lttng("start", session)
        index = self._settings.write_directory / TRACE / BASE / "kernel" / "index"
        gate = SessionGate(session, index, made.channel, tracker, find_daemons)
        gate.events = made.events
        self._budget = BudgetRecording(
            self._settings.session, budget, self._raw, runs=self._settings.runs
        )
        self._budget.beside = self._beside
        attach(self._budget, gate, self._raw)

    def _remove_sessions(self, *, wait: bool) -> None:
        if self._budget is not None:
            self._budget.remove()
        while self._sessions:
            destroy_session(self._sessions[-1], wait=wait)
            self._sessions.pop()

    def _dump_sockets(self, *, last: bool) -> None:
        """Note which sockets are open, if what is recorded is about sockets."""
        for name, rows, said in scan_open(self._file.events if self._file else ()):
            self._sockets.append((name, rows, last))
            self._warnings += [said] if said else []

    def _write_sockets(self) -> None:
        """Write them beside LTTng's trace, with its clock: the kernel's, named by its boot."""
        try:
            clock = uuid.UUID(_BOOT.read_text(encoding="ascii").strip())
            write_sockets(
                self._settings.write_directory / TRACE / "sockets",
                self._sockets,
                clock=clock,
                epoch=time.time_ns() - time.monotonic_ns(),
                environment={"hostname": os.uname().nodename, "domain": "kernel"},
            )
        except (OSError, ValueError) as error:
            shutil.rmtree(self._settings.write_directory / TRACE / "sockets", ignore_errors=True)
            self._warnings.append(f"which sockets were open is not in the trace: {error}")

    def _describe(self) -> dict[str, str]:
        """Return the session's own state; nothing where LTTng does not tell."""
        with contextlib.suppress(program.LttngError):
            return program.describe_session(self._settings.session)
        return {}

    def _find_changes(self, end: int) -> Iterator[Gap]:
        """Yield a gap over everything for what is not as it was begun; LTTng tells no more."""
        now = self._describe()
        for name, was in self._state.items() if now else ():
            if now.get(name) != was:
                yield Gap(self._begin, end, -1, f"LTTng: {name} was changed by somebody else")

    @contextlib.contextmanager
    def _keeping(self) -> Iterator[None]:
        """Destroy the session where an error ends this, and keep what LTTng has written."""
        try:
            yield
        except BaseException as error:
            with contextlib.suppress(CritpathError):
                self.abort()
            if isinstance(error, CritpathError):
                raise UnfinishedError(error.what, error.do) from error
            raise

    def abort(self) -> None:
        """Destroy the session at once."""
        try:
            self._remove_sessions(wait=False)
        finally:
            self._end_daemons()

    def _start_daemon(self) -> None:
        if os.geteuid() != 0:
            raise _unavailable()
        start_daemon(self._settings.session)

    def _load(self, session: str, output: Path) -> SessionFile:
        """Load the profile with the session's name and output; under a budget there are two."""
        try:
            available = program.list_kernel_events()
        except program.LttngError as error:
            raise _unavailable(error.reason) from None
        part = None if self._settings.budget is None else session == self._settings.session
        made = make_session_file(
            replace(self._settings, session=session),
            output,
            available,
            formats=program.parse_version(self._version) >= _FORMATS_SINCE,
            always=part,
        )
        # `lttng load` wants a file that has a name; it is read before load returns.  Where the
        # directory's name leads meanwhile, somebody else's file may be.
        place = path_for_children(self._settings.write_directory) / f".{session}.lttng"
        try:
            with place.open("x", encoding="utf-8") as stream:
                stream.write(made.text)
            self._sessions.append(session)
            program.run_lttng("load", f"--input-path={place}", session)
        finally:
            place.unlink(missing_ok=True)
        if made.missing and session == self._settings.session:
            self._warnings.append(
                "events that this tracer does not have: " + ", ".join(made.missing)
            )
        for name in made.added:
            try:
                program.run_lttng(
                    "add-context", "--kernel", f"--session={session}",
                    f"--channel={made.channel}", f"--type={name}",
                )  # fmt: skip
            except program.LttngError as error:
                self._warnings.append(f"no context {name}: {error.reason}")
        return made

    def _python_agent(self) -> None:
        """Record marks of programs in Python, if this LTTng can."""
        session = f"--session={self._settings.session}"
        types = [f"--type={name}" for name in _USER_CONTEXTS]
        try:
            program.run_lttng("enable-event", "--python", session, LOGGER)
            program.run_lttng("add-context", "--userspace", session, *types)
        except program.LttngError:
            return  # an LTTng without user-space tracing: marks go to /proc/lttng-logger
        self._agent = True

    def _end_daemons(self) -> None:
        mine = self._settings.session
        end_unused_daemons(mine)
        if any(name == mine for _, name in find_own_daemons()):
            self._warnings.append(
                "the session daemon started for this recording is used by others: it stays"
                " (critpath doctor --clean ends it later)"
            )

    def _facts(self, counted: list[program.ChannelCounts], written: str) -> dict[str, object]:
        assert self._file is not None  # noqa: S101 - start() came before
        events = [*self._file.events, *(self._budget.events if self._budget else ())]
        return {
            "name": "lttng",
            "version": self._version,
            "modules": self._modules,
            "events": list(events),
            "requests": way_of_requests(events, PACKETS[0]),
            "contexts": [*self._file.contexts, *self._file.added],
            "buffer_bytes": self._file.buffer_bytes,
            "format": written,
            "python_agent": self._agent,
            "channels": [
                {
                    "domain": channel.domain.lower(),
                    "name": channel.name,
                    "discarded_events": channel.discarded,
                    "lost_packets": channel.lost_packets,
                }
                for channel in counted
            ],
        }


open_recorder = LttngRecorder


def _unavailable(reason: str = "no session daemon") -> CritpathError:
    """Return an error that says why the kernel tracer is unavailable."""
    for obstacle in find_needs(None):
        if obstacle.fatal:
            return CritpathError(obstacle.what, obstacle.do)
    return CritpathError(
        f"LTTng's kernel tracer is not available: {reason}",
        "sudo modprobe lttng-tracer; if that fails, sudo dmesg tells why",
    )


def _trace_format(metadata: Path) -> str:
    """Return the format of the trace that LTTng wrote."""
    try:
        with metadata.open("rb") as stream:
            head = stream.read(16)
    except OSError:
        head = b""
    if not head:
        raise CritpathError(
            f"LTTng left no trace in {metadata.parent}",
            "see what the session daemon says: journalctl -u lttng-sessiond",
        )
    # JSON text sequences begin with a record separator; CTF 1.8 with its packets' magic
    # number or, as text, with a comment.
    return "ctf-2" if head[:1] in {b"\x1e", b"{"} else "ctf-1.8"


def finish_killed(directory: Path, report: Callable[[str], None]) -> Taken:
    """Finish the recording of a recorder that was killed.

    LTTng's consumer daemon went on writing: the trace is complete once its session is ended,
    here or by `find_leftovers` before.  Raises CritpathError if that fails.
    """
    place = (directory / TRACE).absolute()
    session = ""
    with contextlib.suppress(UnreadableError):  # its manifest may never have come
        session = read_manifest(directory).session
    there: dict[str, str] = {}
    if is_installed():
        with contextlib.suppress(LttngError):  # no daemon: no session
            there = list_sessions()
    if session in there and not is_dead_session(session):
        raise CritpathError(
            f"the session {session} still records into {directory}", "end its recorder first"
        )
    # Under a budget there are two, of one owner.
    owner = owner_of(session)
    own = [name for name in there if owner and owner_of(name) == owner]
    if own:
        report("ending its LTTng session")
        for name in own:
            end_session(name)
        end_unused_daemons()
    gaps = _result_of_killed(directory)
    if not (place / "kernel" / "metadata").is_file():
        raise CritpathError(f"no trace in {place}", "nothing was recorded: remove it")
    if session not in losses:
        return Taken(
            facts={"name": "lttng"},
            warnings=("LTTng's count of discarded events is lost: the trace's own marks tell",),
            **gaps,
        )
    mine = [name for name in losses if owner_of(name) == owner]
    loss = tuple(one for name in mine for one in losses[name])
    return Taken(loss=loss, facts={"name": "lttng"}, **gaps)


def _result_of_gaps(
    raw: Path, directory: Path, begin: int, end: int, noticed: Sequence[Gap]
) -> dict[str, Any]:
    """Return what a `Taken` has of gaps, after writing the file of those of a budget."""
    if not raw.is_dir():
        return {"gaps": tuple(noticed)}
    finish_gaps(raw, directory, begin, end, noticed)
    beside = tuple(name for name in (GAPS, SELECTED) if (directory / name).is_file())
    return {"gaps_file": GAPS, "overhead": read_summary(raw), "beside": beside}


def _result_of_killed(directory: Path) -> dict[str, Any]:
    """Return the same of a recorder that was killed: what was closed then was so to the end."""
    raw = directory / raws.RAW
    if not raw.is_dir():
        return {}
    begin = read_manifest(directory).begin
    end = max(time.monotonic_ns(), last_time(raw / JOURNAL))
    # Killed before anything was opened for good: what calibration recorded is no path.
    noticed = () if is_under_budget(raw) else (Gap(begin, end, -1, "the recorder was killed"),)
    found = _result_of_gaps(raw, directory, begin, end, noticed)
    return {**found, "end": end, "release": partial(raws.discard_raw, directory)}


# The session file that `lttng load` gets


# What a session file's schema does not know, `lttng add-context` still does.
_INSTRUCTION: Final = "critpath-context"
# What there was before, who is who, and marks; the rest a budget opens and closes.
_ALWAYS: Final = re.compile(r"lttng_|sched_process_(fork|exec|exit)$|cgroup_attach_task$")
_SMALLEST: Final = 4096  # a sub-buffer is a power of two, of a page at least
_TRACE_FORMATS: Final = {"ctf-1.8": "CTF_1_8", "ctf-2": "CTF_2"}


@dataclass(frozen=True)
class SessionFile:
    """A session file, ready to be written, and what it makes LTTng record."""

    text: str  # XML
    channel: str  # name of the kernel channel
    events: tuple[str, ...]  # names or patterns, as in the trace
    contexts: tuple[str, ...]  # as `lttng add-context` calls them, without ``added``
    added: tuple[str, ...]  # contexts to add after loading
    missing: tuple[str, ...]  # events that this tracer lacks: left out
    buffer_bytes: int  # per CPU


def make_session_file(
    settings: RecorderSettings,
    output: Path,
    available: set[str],
    *,
    formats: bool,
    always: bool | None = None,
) -> SessionFile:
    """Fill in a profile; of a recording under a budget with what is `always` recorded, or not."""
    if settings.trace_format not in _TRACE_FORMATS:
        raise UsageError(
            f"no trace format {settings.trace_format!r}",
            f"take one of {', '.join(_TRACE_FORMATS)}",
        )
    if settings.trace_format != "ctf-1.8" and not formats:
        raise UsageError(
            f"this LTTng does not write {settings.trace_format}",
            "leave --trace-format out, or install LTTng 2.15 or later",
        )
    root = parse_profile(settings.profile)
    try:
        session, channel, events, contexts = _find_parts(root)
    except ValueError as error:
        raise refuse_profile(settings.profile, str(error)) from None
    _find_child(session, "name").text = settings.session
    for saved in session.findall("output"):
        session.remove(saved)
    if formats:
        ET.SubElement(session, "trace_format").text = _TRACE_FORMATS[settings.trace_format]
    consumer = ET.SubElement(ET.SubElement(session, "output"), "consumer_output")
    ET.SubElement(consumer, "enabled").text = "true"
    ET.SubElement(ET.SubElement(consumer, "destination"), "path").text = str(output)
    kept, missing = _remove_missing(events, available)
    if always is not None:
        kept = _keep_part(events, available, always=always)
    if always is False:
        for name in ("read_timer_interval", "switch_timer_interval"):
            for element in channel.findall(name):
                channel.remove(element)
            # The schema has an order.
            place = list(channel).index(_find_child(channel, "subbuffer_count")) + 1
            element = ET.Element(name)
            element.text = str(FLUSHED_EVERY)
            channel.insert(place, element)
    bytes_per_cpu = _set_buffer_size(channel, settings.buffer_bytes)
    added = [word for element in contexts for word in read_instruction(element, _INSTRUCTION)]
    return SessionFile(
        text='<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode"),
        channel=_find_child(channel, "name").text or "",
        events=kept,
        contexts=tuple((c.text or "").lower() for c in contexts.iterfind("context/type")),
        added=tuple(added),
        missing=missing,
        buffer_bytes=bytes_per_cpu,
    )


def _find_parts(root: ET.Element) -> tuple[ET.Element, ET.Element, ET.Element, ET.Element]:
    """Return the session, its kernel channel, that one's events and contexts."""
    session = _find_child(root, "session")
    for name in ("name", "domains/domain/channels/channel/name"):
        _find_child(session, name)
    channel = _find_child(session, "domains/domain/channels/channel")
    if channel.find("contexts") is None:  # of a channel without any
        ET.SubElement(channel, "contexts")
    return session, channel, _find_child(channel, "events"), _find_child(channel, "contexts")


def _remove_missing(
    events: ET.Element, available: set[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Remove events that the tracer lacks, which old ones refuse; return names kept and removed."""
    kept: list[str] = []
    missing: list[str] = []
    instead = False  # what another tracer has instead is no lack
    for event in list(events):
        if replaced := read_instruction(event, WITHOUT):
            if available.issuperset(replaced):
                for element in list(events)[list(events).index(event) :]:
                    events.remove(element)
                break
            missing = [name for name in missing if name not in replaced]
            instead = True
            continue
        name = event.findtext("name") or ""
        if event.findtext("type") == "SYSCALL":
            kept += [f"syscall_entry_{name}", f"syscall_exit_{name}"]
        elif any(fnmatchcase(one, name) for one in available):
            kept.append(name)
        else:
            events.remove(event)
            missing += [name] * (not instead)
    return tuple(kept), tuple(missing)


def _keep_part(events: ET.Element, available: set[str], *, always: bool) -> tuple[str, ...]:
    """Keep the events that are always recorded, or the others, each by its name; return those."""
    kept: list[str] = []
    for event in list(events):
        events.remove(event)
        name = event.findtext("name") or ""
        if event.findtext("type") == "SYSCALL":
            if not always:
                events.append(event)
                kept += [f"syscall_entry_{name}", f"syscall_exit_{name}"]
            continue
        for one in sorted(x for x in available if fnmatchcase(x, name)):
            if bool(_ALWAYS.match(one)) == always and one not in kept:
                own = copy.deepcopy(event)
                _find_child(own, "name").text = one
                events.append(own)
                kept.append(one)
    return tuple(kept)


def _set_buffer_size(channel: ET.Element, wanted: int) -> int:
    """Set the size of the sub-buffers; return the bytes per CPU."""
    size, count = _find_child(channel, "subbuffer_size"), _find_child(channel, "subbuffer_count")
    number = int(count.text or 1)
    if wanted:
        # Two at least: one is written while the other is read.
        while number > 2 and wanted // number < _SMALLEST:
            number //= 2
        each = _SMALLEST
        while each * number < wanted:
            each *= 2
        size.text, count.text = str(each), str(number)
    return int(size.text or 0) * number


def _find_child(element: ET.Element, path: str) -> ET.Element:
    found = element.find(path)
    if found is None:
        raise ValueError(f"has no {path}")
    return found
