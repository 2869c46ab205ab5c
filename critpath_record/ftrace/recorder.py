"""The ftrace recorder: the kernel's own tracer through tracefs, without any package.

While it records, it only moves full pages of the ring buffers to ``raw/`` of the
recording; at the end it converts them to an LTTng trace.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from critpath import __version__
from critpath.confined import run_confined
from critpath.errors import CritpathError, UsageError
from critpath.model.recording import MOUNTED
from critpath.schema.ways import SOCKETS, way_of_requests
from critpath_marks.channels import DESCRIPTOR, MARKER
from critpath_marks.gate import GATE
from critpath_record.budget.gaps import FILE as GAPS
from critpath_record.budget.gaps import SELECTED, finish_gaps, is_under_budget, read_summary
from critpath_record.dirfd import list_matching
from critpath_record.ftrace import raw as raws
from critpath_record.ftrace import tracefs
from critpath_record.ftrace.cleanup import has_unsaved_pages
from critpath_record.ftrace.convert import LOSS_COUNTERS, ConversionResult, convert
from critpath_record.ftrace.drain import Drain, online_cpus, watermark
from critpath_record.ftrace.events import (
    SEGMENTS,
    SWITCH,
    EventSelection,
    abbreviate_groups,
    find_net_devices,
    find_timer_functions,
    lttng_name,
    select_events,
)
from critpath_record.ftrace.hands import Pulse, Watch
from critpath_record.ftrace.marks import EVERYBODY, UserMarks
from critpath_record.ftrace.preflight import (
    CLOCK,
    buffer_bytes,
    find_needs,
    offered_way,
)
from critpath_record.ftrace.tracefs import Instance, scan_threads
from critpath_record.manifests import sample_clock
from critpath_record.proc import list_pids, read_text
from critpath_record.profiles import profile_events, profile_label
from critpath_record.recorder import TRACE, RecorderSettings, UnfinishedError
from critpath_record.registry import once_a_boot
from critpath_record.sockets import scan_open
from critpath_record.source import Count, Source, Taken, UnderBudget

if TYPE_CHECKING:
    from critpath_record.budget.recording import BudgetRecording
    from critpath_record.ftrace.gate import Layer
    from critpath_record.ftrace.received import ReceivedLabels

__all__ = ["FtraceRecorder", "find_needs", "finish_killed", "offered_way", "open_recorder"]

_SETTLE: Final = 0.001  # s
_EVENTS: Final = ("entries", "read events")  # of the kernel's counts: still there, and moved


def open_recorder(settings: RecorderSettings) -> Source:
    """Return a recorder, which has made nothing; raises UsageError for another trace format."""
    if settings.trace_format != FORMAT:
        raise UsageError(
            f"the ftrace recorder writes {FORMAT}, not {settings.trace_format}",
            "leave --trace-format out, or take --recorder lttng",
        )
    return FtraceRecorder(settings)


class FtraceRecorder(UnderBudget, Source):
    """Records through a private instance of tracefs, until `failure` (a full disk) if any."""

    def __init__(self, settings: RecorderSettings) -> None:
        self._settings = settings
        self._raw = settings.write_directory / raws.RAW
        self._instance: Instance | None = None
        self._drain: Drain | None = None
        self._hands: Watch | None = None
        self._pulse: Pulse | None = None
        self._marker = -1
        self._marks: UserMarks | None = None
        self._labels: ReceivedLabels | None = None
        self._budget: BudgetRecording | None = None
        self._layers: list[Layer] = []
        self._selection = EventSelection((), ())
        self._description: dict[str, object] = {}
        self._buffer_bytes = 0
        self._ended = 0
        self._grouped: set[int] = set()  # processes whose control groups were there at the begin
        self._stats: dict[int, dict[str, int]] = {}
        self._warnings: list[str] = []

    @property
    def failure(self) -> CritpathError | None:
        """Why tracing was turned off early, None if it was not."""
        found = self._drain.failure if self._drain else None
        return found or (self._budget.failure() if self._budget else None)

    def open(self) -> int:
        """Make the instance, turn tracing on, and note which threads exist.

        Returns when tracing was on (ns, CLOCK_MONOTONIC).  Raises CritpathError, and leaves
        nothing, if the kernel refuses.
        """
        try:
            return self._start()
        except BaseException as error:
            # The first failure is the one to raise.
            with contextlib.suppress(CritpathError, OSError):
                self.abort()
            if isinstance(error, OSError):
                raise _unwritable(self._raw, error) from None
            raise

    def environment(self) -> Mapping[str, str]:
        """Return where a command writes its markers: a path that it may open, and a descriptor."""
        path = self._active_instance().path / "trace_marker"
        uid = self._settings.command_uid
        if uid and self._marks is not None and {uid, EVERYBODY} & {*self._settings.mark_users}:
            path = self._marks.path
        admission = self._budget.admission if self._budget else None
        return {
            MARKER: str(path),
            DESCRIPTOR: str(self._marker),
            **({GATE: admission.text} if admission else {}),
        }

    def descriptors(self) -> tuple[int, ...]:
        """Return the descriptors for commands that may not open the files themselves."""
        admission = self._budget.admission if self._budget else None
        return (self._marker, *(admission.descriptors if admission else ()))

    def count_events(self) -> Count:
        """Return what the kernel's buffers had so far."""
        instance = self._active_instance()
        counts = [instance.stats(cpu) for cpu in instance.cpus()]
        lost = sum(of.get(name, 0) for of in counts for name in LOSS_COUNTERS)
        more = self._budget.count_events() if self._budget else 0
        return Count(more + sum(of.get(name, 0) for of in counts for name in _EVENTS), lost)

    def close(self) -> int:
        """Turn tracing off and drain the buffers.

        Returns when the trace ends (ns, CLOCK_MONOTONIC): earlier than now after a `failure`.
        """
        with self._keeping():
            return self._stop()

    def drain(self, report: Callable[[str], None]) -> Taken:
        """Remove the instance and convert what was recorded into ``trace/``."""
        failure = self.failure
        with self._keeping():
            self._remove_instance()
            converted = self._convert(report)
        warnings = [*self._warnings, *converted.warnings]
        if self._settings.tasks and not converted.tasks:
            from critpath_record.tasks import NOBODY  # noqa: PLC0415 - only if asked

            warnings.append(NOBODY)
        if failure is not None:
            warnings.insert(0, f"{failure.what} ({failure.do})")
        facts = {
            **recorder_facts(self._description, converted),
            "priority": self._drain.priority if self._drain else "normal",
        }
        release = partial(
            raws.discard_raw, self._settings.write_directory, keep=self._settings.keep_raw
        )
        return Taken(
            *(converted.loss, facts, tuple(warnings), release),
            streams=converted.streams,
            **result_of_gaps(self._raw, self._settings.write_directory, converted),
        )

    def _convert(self, report: Callable[[str], None]) -> ConversionResult:
        """Convert what was recorded, in a thread that may open nothing else."""
        directory = self._settings.write_directory
        work = partial(convert, self._raw, directory / TRACE, report)
        return run_confined(work, (), (directory,))

    def abort(self) -> None:
        """Turn tracing off and remove the instance and the raw data; idempotent."""
        try:
            self._take_down()
        finally:
            raws.discard_raw(self._settings.write_directory, keep=self._settings.keep_raw)

    def _start(self) -> int:
        profile = profile_events(self._settings.profile)
        root = tracefs.find() or tracefs.mount()
        if tracefs.was_mounted_here():
            self._warnings.append(f"{MOUNTED}; it is now, at {root}, and stays so")
        # Known before it is made: an abort at any moment removes it.
        self._instance = instance = Instance.pin(root, self._settings.session)
        instance.make()
        # Before other files: some shells write to descriptors below 10 only.
        self._marker = instance.open("trace_marker", os.O_WRONLY)
        os.set_inheritable(self._marker, True)
        self._set_up(instance)
        available = _available(root)
        self._raw.mkdir(mode=0o700)
        selection = self._split(root, select_events(profile, available), available)
        instance.own({*selection.events, *self._all_events()})
        self._enable(instance, selection, available)
        raws.reserve_space(self._raw)
        header = instance.read("events/header_page")
        size = raws.page_bytes(header)
        raws.copy_descriptions(instance, self._raw, self._all_events())
        self._describe(root, size)
        self._drain = Drain(instance, self._raw, size, self._buffer_bytes, self._turn_off)
        self._drain.start(online_cpus())
        self._open_marks(root, size)
        self._open_labels()
        if self._budget is not None:
            for layer in self._layers:
                layer.start(
                    self._raw / raws.LAYERS / layer.name, size, self._turn_off, self._budget.poke
                )
            self._budget.measure()
        instance.write("tracing_on", "1")
        begin = time.monotonic_ns()
        if self._budget is not None:
            self._budget.begin(self._drain.cpus)
        if self._labels is not None:
            self._labels.open()
        self._pulse = Pulse(instance, self._drain.cpus)
        self._hands = Watch(instance, self._selection.events)
        if not self._hands.watched:
            self._warnings.append("the kernel does not tell who writes to the tracer's files")
        raws.write_json(self._raw / "statedump.json", scan_threads())
        groups = scan_cgroups()
        self._grouped = {row[1] for row in groups}
        raws.write_json(self._raw / "cgroups.json", groups)
        self._dump_sockets()
        self._description.update(begin=begin, cpus=self._drain.cpus)
        # The last of all: of a recorder that is killed before there is no recording.
        raws.write_description(self._raw, self._description)
        return begin

    def _dump_sockets(self, when: str = "") -> None:
        """Note which sockets are open, if what is recorded is about sockets."""
        names = {lttng_name(*e.split("/")) for e in self._selection.events}
        for name, rows, said in scan_open(names):
            raws.write_json(self._raw / f"{name}{when}.json", rows)
            self._warnings += [said] if said else []

    def _open_marks(self, root: Path, page: int) -> None:
        """Let other users' programs mark executions, if any may."""
        settings = self._settings
        if not settings.mark_users:
            return
        try:
            self._marks = UserMarks(
                *(root, settings.session, settings.mark_users, self._raw / raws.MARKS, page)
            )
        except CritpathError as error:
            if settings.marks_required:
                raise
            self._warnings.append(f"{error.what} ({error.do})")

    def _open_labels(self) -> None:
        """Label what is received, if that is asked for."""
        asked = self._settings.labels_from
        if not asked:
            return
        from critpath_record.ftrace.received import (  # noqa: PLC0415 - only if asked
            NO_SOCKETS,
            ReceivedLabels,
        )

        if way_of_requests(lttng_name(*e.split("/")) for e in self._selection.events) != SOCKETS:
            raise CritpathError(*NO_SOCKETS)
        headers, tls = (word in asked.split(",") for word in ("traceparent", "tls"))
        decrypted = None
        if tls:
            from critpath_record.ftrace.decrypted import Decrypted  # noqa: PLC0415 - only if asked

            decrypted = Decrypted(headers=headers)
        self._labels = ReceivedLabels(self._raw / raws.LABELS, headers=headers, decrypted=decrypted)
        self._description["labels"] = {"from": asked}

    def _end_labels(self) -> None:
        """End labelling and note what it had; idempotent."""
        labels, self._labels = self._labels, None
        if labels is None:
            return
        labels.close()
        taken = labels.drain(lambda _: None)
        self._description["labels"] = {"from": self._settings.labels_from, **taken.facts}
        self._warnings += taken.warnings

    def _set_up(self, instance: Instance) -> None:
        instance.write("tracing_on", "0")
        instance.write("trace_clock", CLOCK)
        # A full buffer then marks where the loss is; discarding would only count it.
        instance.write("options/overwrite", "1")
        instance.write("options/markers", "1")
        kib = -(-buffer_bytes(self._settings) // 1024)
        instance.write("buffer_size_kb", str(kib))
        cpu = instance.cpus()[0]
        self._buffer_bytes = int(instance.read(f"per_cpu/cpu{cpu}/buffer_size_kb").split()[0]) << 10
        with contextlib.suppress(CritpathError):  # Linux 4.20 and later
            instance.write("buffer_percent", str(watermark(self._buffer_bytes)))

    def _split(self, root: Path, events: EventSelection, available: list[str]) -> EventSelection:
        """Make the layers of a recording under a budget; return what is always recorded."""
        settings = self._settings
        if settings.budget is None:
            return events
        from critpath_record.budget.recording import BudgetRecording  # noqa: PLC0415 - only if asked
        from critpath_record.ftrace.gate import make_layers  # noqa: PLC0415 - as above

        self._budget = budget = BudgetRecording(
            *(settings.session, settings.budget, self._raw),
            runs=settings.runs,
            timeout=settings.longest,
            lasts=settings.lasts,
        )
        budget.beside = self._beside
        kept, self._layers = make_layers(
            *(root, settings.session, events.events, available, self._buffer_bytes)
        )
        budget.layers = self._layers
        if SWITCH not in budget.events:
            raise _no_switches()
        return EventSelection(tuple(kept), events.missing)

    def _all_events(self) -> tuple[str, ...]:
        more = self._budget.events if self._budget else []
        return tuple(sorted({*self._selection.events, *more}))

    def _enable(self, instance: Instance, events: EventSelection, available: list[str]) -> None:
        refused = instance.enable_events(abbreviate_groups(events.events, available))
        enabled = set(instance.enabled_events())
        if SWITCH not in enabled and self._budget is None:
            raise _no_switches()
        absent = sorted({*events.events} - enabled)
        missing = (*events.missing, *absent)
        self._selection = EventSelection(tuple(sorted(enabled)), missing)
        if missing:
            shown = ", ".join(missing[:8]) + (", ..." if len(missing) > 8 else "")
            why = f" ({'; '.join(refused[:2])})" if refused else ""
            profile = profile_label(self._settings.profile)
            self._warnings.append(
                f"this kernel has not all events of the profile {profile}: {shown}{why}"
            )

    def _describe(self, root: Path, page: int) -> None:
        host = os.uname()
        self._description = {
            "session": self._settings.session,
            "clock": CLOCK,
            "epoch": measure_epoch(),
            "page_bytes": page,
            "cpus": online_cpus(),
            "profile": profile_label(self._settings.profile),
            "events": list(self._all_events()),
            "missing": list(self._selection.missing),
            "buffer_bytes": self._buffer_bytes,
            "tracefs": str(root),
            "host": {
                "name": host.nodename,
                "kernel": host.release,
                "machine": host.machine,
                "timer_functions": once_a_boot("timer_functions", find_timer_functions),
                "net_devices": find_net_devices(),
            },
            "recorder": {"name": "ftrace", "version": __version__},
        }

    def _turn_off(self) -> None:
        """End tracing from a thread that cannot write any more."""
        if self._instance is not None:
            self._ended = self._ended or time.monotonic_ns()
            with contextlib.suppress(CritpathError):
                self._instance.write("tracing_on", "0")

    def _stop(self) -> int:
        instance, drain = self._active_instance(), self._drain
        if self._budget is not None:
            self._budget.end_watching()
        self._end_watching()
        end = self._ended or time.monotonic_ns()
        instance.write("tracing_on", "0")
        try:
            # Where the kernel lets one be born in another group, nothing tells of a move.
            born = [row for row in scan_cgroups() if row[1] not in self._grouped]
            raws.write_json(self._raw / f"cgroups{raws.AT_END}.json", born)
            self._dump_sockets(raws.AT_END)
        except OSError as error:  # a full disk is no reason to lose the kernel's counts
            self._warnings.append(f"what was there at the end is not recorded: {error.strerror}")
        if self._marks is not None:
            self._marks.stop()
        self._end_labels()
        # An event that is just being written is in the buffer by then.
        time.sleep(_SETTLE)
        if self._budget is not None:
            self._budget.stop()
            self._warnings += self._budget.warnings
        if drain is not None:
            drain.stop()
            self._description["cpus"] = drain.cpus
        end = min(end, self._ended or end)
        self._stats = {cpu: instance.stats(cpu) for cpu in instance.cpus()}
        self._stats = {cpu: counts for cpu, counts in self._stats.items() if any(counts.values())}
        self._description["end"] = self._ended = end
        raws.free_reserved_space(self._raw)
        raws.write_stats(self._raw, self._stats)
        raws.write_description(self._raw, self._description)
        raws.write_json(self._raw / f"statedump{raws.AT_END}.json", scan_threads())
        return end

    def _end_watching(self) -> None:
        """End the watch and the beats, and note what they tell; idempotent."""
        hands, self._hands = self._hands, None
        if hands is not None:
            gaps = hands.stop(self._ended or time.monotonic_ns())
            self._description["gaps"] = [asdict(gap) for gap in gaps]
        pulse, self._pulse = self._pulse, None
        if pulse is not None:
            self._description["beats"] = {str(cpu): n for cpu, n in pulse.stop().items()}

    @contextlib.contextmanager
    def _keeping(self) -> Iterator[None]:
        """Keep what was recorded where an error ends this, but not where the user does."""
        try:
            yield
        except Exception as error:
            raise self._keep_unfinished(error) from error
        except BaseException:
            self.abort()
            raise

    def _keep_unfinished(self, error: Exception) -> UnfinishedError:
        """Take everything down but the raw data, from which a trace can be made later."""
        wrong = self.failure or error
        with contextlib.suppress(CritpathError, OSError):  # an instance that is busy is turned off
            self._take_down()
        if isinstance(wrong, OSError):
            wrong = _unwritable(self._raw, wrong)
        elif not isinstance(wrong, CritpathError):
            text = f"{type(wrong).__name__}: {wrong}"
            wrong = CritpathError(f"no trace could be made ({text})", "report this")
        return UnfinishedError(wrong.what, wrong.do, self._ended)

    def _take_down(self) -> None:
        """Turn tracing off, close every file and remove the instance; the raw data stays."""
        self._end_watching()
        if self._instance is not None:
            with contextlib.suppress(CritpathError):
                self._instance.write("tracing_on", "0")
        if self._drain is not None:
            self._drain.abandon()
        if self._labels is not None:
            self._labels.abort()
        self._remove_marks()
        self._close_files()
        if self._budget is not None:
            self._budget.remove()
        if self._instance is not None:
            instance, self._instance = self._instance, None
            instance.remove()

    def _remove_instance(self) -> None:
        """Remove the instance before converting: it costs the machine memory and time."""
        self._remove_marks()
        self._close_files()
        if self._budget is not None:
            try:
                self._budget.remove()
            except CritpathError as error:
                self._warnings.append(f"{error.what} ({error.do})")
        if self._instance is None:
            return
        instance, self._instance = self._instance, None
        try:
            instance.remove()
        except CritpathError as error:
            # What the command left running holds the marker: no reason to lose a trace.
            self._warnings.append(f"{error.what} ({error.do})")

    def _remove_marks(self) -> None:
        marks, self._marks = self._marks, None
        if marks is not None and (wrong := marks.remove()):
            self._warnings.append(wrong)

    def _close_files(self) -> None:
        """Close what keeps the instance busy."""
        marker, self._marker = self._marker, -1
        if marker >= 0:
            os.close(marker)

    def _active_instance(self) -> Instance:
        if self._instance is None:
            raise RuntimeError("the recorder was not started")
        return self._instance


def _no_switches() -> CritpathError:
    return CritpathError(
        f"the kernel does not record {SWITCH}, without which there is no analysis",
        "run critpath doctor; another kernel, or --recorder lttng, may do",
    )


def result_of_gaps(raw: Path, directory: Path, converted: ConversionResult) -> dict[str, Any]:
    """Return what a `Taken` has of gaps, after writing the file of those of a budget."""
    if not is_under_budget(raw):
        return {"gaps": converted.gaps}
    description = raws.read_description(raw)
    finish_gaps(raw, directory, int(description["begin"]), converted.end, converted.gaps)
    beside = tuple(name for name in (GAPS, SELECTED) if (directory / name).is_file())
    return {"gaps_file": GAPS, "overhead": read_summary(raw), "beside": beside}


def measure_epoch() -> int:
    """Return the offset from CLOCK_MONOTONIC to the Unix epoch (ns)."""
    now, real = sample_clock(64)
    return real - now


def _available(root: Path) -> list[str]:
    """Return the kernel's events as ``group/event``."""
    lines = Instance(root).read("available_events").splitlines()
    return [line.replace(":", "/", 1) for line in lines if ":" in line]


def _unwritable(raw: Path, error: OSError) -> CritpathError:
    return CritpathError(
        f"{raw} cannot be written: {error.strerror or error}", "record to another place: -o DIR"
    )


# Control groups at the start, from /proc; a trace has moves only


# ns, process, number of the hierarchy, path.
CgroupRow = tuple[int, int, int, str]

_UNIFIED: Final = 0  # number of version 2's one hierarchy


def scan_cgroups() -> list[CgroupRow]:
    """Return a row for every process and hierarchy.

    Roots of version 1's hierarchies, in which most processes are, are left out.  The
    hierarchy's number is that of `cgroup_attach_task`'s ``dst_root``.
    """
    rows: list[CgroupRow] = []
    for pid in list_pids():
        # Before it is read: what a move says, even one that comes right then, is newer.
        now = time.monotonic_ns()
        for line in read_text(f"/proc/{pid}/cgroup").splitlines():
            number, _, path = line.split(":", 2)
            if path and (path != "/" or int(number) == _UNIFIED):
                rows.append((now, pid, int(number), path))
    return rows


# Finishing the recording of a killed recorder


FORMAT: Final = "ctf-1.8"

_CONTEXTS: Final = ("tid", "common_flags")


def finish_killed(directory: Path, report: Callable[[str], None]) -> Taken | None:
    """Convert what a dead recorder left in ``raw/`` into ``trace/``.

    Returns None where recording had not begun.  Raises CritpathError, and changes nothing,
    if no trace can be made.
    """
    raw, trace = directory / raws.RAW, directory / TRACE
    if not raw.is_dir():
        raws.discard_raw(directory)
        # The trace was put there by somebody, or there was nothing yet.
        made = list_matching(trace, "*", "metadata")
        return Taken(facts={"name": "ftrace", "format": FORMAT}) if made else None
    if not raws.is_described(raw):
        raws.discard_raw(directory)
        return None
    description = raws.read_description(raw)
    if has_unsaved_pages(str(description.get("session"))):
        raise CritpathError(
            f"the kernel still holds a part of what belongs to {raw}",
            "make room there, then: critpath doctor --clean",
        )
    # Cpus that came while it was recorded have a file only.
    with_files = {int(p.name[3:]) for p in list_matching(raw, "cpu*") if p.name[3:].isdecimal()}
    if not with_files <= {*description.get("cpus", [])}:
        description["cpus"] = sorted(with_files | {*description.get("cpus", [])})
        raws.write_description(raw, description)
    if trace.is_dir() and not trace.is_symlink():
        # Killed between the trace and its end: the same trace is made again.
        shutil.rmtree(trace)
    raws.free_reserved_space(raw)
    converted = convert(raw, trace, report)
    return Taken(
        loss=converted.loss,
        **result_of_gaps(raw, directory, converted),
        facts=recorder_facts(description, converted),
        warnings=converted.warnings,
        release=partial(raws.discard_raw, directory),
        begin=int(description["begin"]),
        end=converted.end,
        streams=converted.streams,
    )


def recorder_facts(
    description: Mapping[str, object], converted: ConversionResult
) -> dict[str, object]:
    """Return what a manifest says; of ``event_count``, the kernel's events, the loss is a share."""
    recorder = description.get("recorder")
    labels = description.get("labels")
    return {
        "name": "ftrace",
        "version": recorder.get("version", "") if isinstance(recorder, dict) else "",
        "events": list(converted.names),
        "event_count": converted.recorded,
        "marks": converted.marks,
        "tasks": converted.tasks,
        "missing": description.get("missing", []),
        "requests": way_of_requests(converted.names, SEGMENTS),
        "contexts": list(_CONTEXTS),
        "buffer_bytes": description.get("buffer_bytes", 0),
        "format": FORMAT,
        "clock": {"name": "monotonic", "epoch": description.get("epoch", 0)},
        "tracefs": description.get("tracefs", ""),
        **({"labels": labels} if labels else {}),
    }
