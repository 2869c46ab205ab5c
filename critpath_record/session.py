"""Records from beginning to end; `record` is the entry."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from critpath.errors import EXIT_INTERNAL, CritpathError
from critpath.model import Manifest, Run, StreamFacts
from critpath.model.recording import (
    BLOCK_RUNS,
    COMPLETE,
    FORMER_BLOCK_RUNS,
    INTERRUPTED,
    NORMAL,
    SAMPLE,
    Chosen,
)
from critpath.schema.ways import REQUESTS, SOCKETS
from critpath.units import plural, safe_text
from critpath_marks.sessions import new_session_name, pid_namespace
from critpath_record import rooted
from critpath_record._pulse import name_thread
from critpath_record._spawn import become_subreaper
from critpath_record.cleanup import remove_leftovers
from critpath_record.ftrace.cleanup import describe_left
from critpath_record.ftrace.marks import MarkRequests
from critpath_record.group_names import GroupNames
from critpath_record.identity import (
    FOREIGN_CLOCK,
    INITIAL_PID_NAMESPACE,
    NO_PROC,
    SESSION_VARIABLE,
    has_foreign_clock,
    lacks_proc,
)
from critpath_record.limits import Limits, name_disks
from critpath_record.machine import Machine, make_probes
from critpath_record.manifests import (
    append_run,
    complete_manifests,
    end_facts,
    initial_manifest,
    keep_unfinished,
    link_beside,
    note_chosen,
    write_manifest,
    write_selected,
)
from critpath_record.output import OutputDirectory
from critpath_record.profiles import MINIMAL, profile_events
from critpath_record.recorder import (
    NEEDS,
    RECORDERS,
    TRACE,
    TRACING,
    Leftover,
    Outcome,
    RecorderSettings,
    Recording,
    RecordRequest,
    Reporter,
    Requirement,
    UnfinishedError,
)
from critpath_record.registry import register, unregister
from critpath_record.runner import Executable, Runner, RunResult, find_executable
from critpath_record.signals import InheritedState, Signals, StopRequested
from critpath_record.source import Source, Taken
from critpath_record.user import User

if TYPE_CHECKING:
    from critpath_record.scripts import ScriptWatch

_NAMED: Final = 5
# The recorder that holds a budget unless another is asked for that can.
_FOR_BUDGETS: Final = "ftrace"
COUNTING: Final = "counts"  # the recorder that makes no trace
_HURRIED: Final = -15  # technical: a nice value before those of everything usual
_LOOK: Final = 1.0  # seconds between looks whether the recorder still records


Survey = Callable[[Path], tuple[StreamFacts, ...]]
Observer = Callable[[str, RunResult], None]
Counter = Callable[[Path], Chosen | None]


def record(
    request: RecordRequest,
    reporter: Reporter,
    survey: Survey = lambda _: (),
    observe: Observer = lambda *_: None,
    count: Counter = lambda _: None,
) -> Outcome:
    """Record what was asked for.

    `reporter`: receives progress and warnings.  `survey`: tells what each stream file of a finished
    recording holds (`critpath.read.streams.survey_streams`), for its manifest, where its tracer
    does not.  `observe`: told of
    every run: which command it was of (``A`` or ``B``), and how it ended.  `count`: counts what a
    budget chose of the executions that programs mark (`critpath.graph.count_chosen`).

    Raises UsageError if the output cannot be used.  Raises CommandError if the command cannot be
    executed; nothing is left on disk.  Raises CritpathError if recording failed; nothing is left,
    on disk or in the tracer.
    """
    name_thread(b"critpath-record")  # in a trace no other critpath, nor another Python
    inherited = InheritedState.capture()
    user = User.behind_sudo(inherited.environment, as_root=request.as_root)
    caller = user or User.behind_helper()
    rooted.use_capabilities()
    session = new_session_name()
    output = OutputDirectory.check(request.output, session, force=request.force, user=user)
    commands = request.commands
    if request.budget is not None:
        from critpath_record.budget.selection import (  # noqa: PLC0415 - only if asked
            check_runs,
            check_span,
        )

        if chooses_runs(request):
            check_runs(request.budget.share, request.runs * len(commands))
        check_span(request.budget.share, request.duration)
    if request.functions:
        from critpath_record.functions import check_python, with_agent  # noqa: PLC0415 - as above

        commands = tuple(map(with_agent, commands))
    programs = tuple(find_executable(c, inherited.environment) for c in commands)
    if request.functions:
        for program in programs:
            check_python(program, user)
    container = 0
    if request.container:
        from critpath_record.containers import resolve_container  # noqa: PLC0415 - as above

        container = resolve_container(request.container)
    if not request.profile:
        request = replace(request, profile=choose_profile(request, reporter))
    settings = RecorderSettings(
        session=session,
        directory=request.directories(output.building)[0],
        profile=request.profile,
        buffer_bytes=request.buffer_bytes,
        trace_format=request.trace_format,
        keep_raw=request.keep_raw,
        mark_users=User.find_markers(request.marks_from, caller),
        marks_required=request.marks_from not in {"", "none"},
        command_uid=caller.uid if caller else 0,
        labels_from=request.labels_from,
        tasks=request.tasks,
        budget=request.budget,
        runs=chooses_runs(request),
        lasts=request.duration,
        counts=request.counts,
    )
    with Signals(inherited, reporter.say) as signals, subreaper():
        with signals.watching():
            remove_stale(reporter)
            name = request.recorder
            if request.budget is not None and name == "auto":
                name = _FOR_BUDGETS
            choice, why = choose_recorder(name, settings)
        reporter.say(f"recorder: {choice}" + (f" ({why})" if why else ""))
        free = output.low_free_space()
        if free is not None:
            reporter.say(f"warning: only {free / 2**20:.0f} MiB are free for {output.target}")
        runner = Runner(inherited, user, signals, reporter.say)
        running = _Session(
            *(request, reporter, output, programs, container, settings, choice, user, signals),
            *(runner, survey, observe, count),
        )
        if free is not None:
            # Who recorded from elsewhere has read nothing of this.
            running.notes.append(f"only {free / 2**20:.0f} MiB were free when the recording began")
        return running.record()


@dataclass
class _Session:
    request: RecordRequest
    reporter: Reporter
    output: OutputDirectory
    programs: tuple[Executable, ...]
    container: int
    settings: RecorderSettings
    recorder: str  # its name
    user: User | None
    signals: Signals
    runner: Runner
    survey: Survey
    observe: Observer
    count: Counter
    sources: list[Source] = field(default_factory=list)  # that have begun, in this order
    tracer: Source = field(default_factory=Source)  # that of them which makes the trace
    manifests: list[Manifest] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failed: CritpathError | None = None
    recorded: Taken | None = None
    limits: Limits | None = None
    requests: MarkRequests | None = None
    machine: Machine | None = None
    scripts: ScriptWatch | None = None
    groups: GroupNames = field(default_factory=lambda: GroupNames())  # noqa: PLW0108 - played
    end: int = 0  # until when it was recorded
    complete: bool = False  # nothing that comes then may cost it
    kept: bool = False  # for somebody else to finish

    def record(self) -> Outcome:
        """Record, and leave nothing behind if that fails."""
        # Before the directory exists, so that a registered session always leads to it.
        owner = (self.user.uid, self.user.gid) if self.user else None
        settings = self.settings
        place, keep = self.directories[0], settings.keep_raw
        register(settings.session, place, self.recorder, owner, keep_raw=keep)
        try:
            self.output.make()
            try:
                return self._record()
            except StopRequested:
                return self._keep_readable()
        except UnfinishedError as error:
            # It has taken itself down, and must not remove what it keeps.
            self.sources = [one for one in self.sources if one is not self.tracer]
            self.output.restore_name_in_error(error)
            error.end = error.end or self.end
            found = dict(zip(self.directories, self.manifests, strict=True))
            wrong = keep_unfinished(self.output, found, self.notes, error)
            self.kept = isinstance(wrong, UnfinishedError)
            self.output.restore_name_in_error(wrong)
            raise wrong from None
        except BaseException as error:
            self._abort()
            if not self.complete:
                self.output.discard()
            self.output.restore_name_in_error(error)
            raise
        finally:
            self.output.close()
            if self.requests is not None:
                self.requests.close()
            if self.limits is not None:
                self.limits.stop()
            self._abort_sources()
            if not self.kept:
                unregister(self.settings.session)

    def _record(self) -> Outcome:
        for directory in self.directories:
            if directory != self.output.write_path:
                directory.mkdir(mode=0o700)
        self._warm_up()
        if self.signals.poll():
            return self._discard()
        self._start()
        if self.programs:
            with Path(os.devnull).open("r+b", buffering=0) as nothing:
                self._record_runs(nothing.fileno())
        else:
            with self._hurry():  # else what is to last seconds ends when its turn comes
                self._record_machine()
        if self.programs and not any(m.runs for m in self.manifests):
            self._abort()
            return self._discard()
        self._finish(self._stop())
        self._publish()
        return self._outcome(self._exit_code())

    @property
    def directories(self) -> tuple[Path, ...]:
        """Where the recordings are written; the first has the trace."""
        return self.request.directories(self.output.write_path)

    def _warm_up(self) -> None:
        for number in range(self.request.warmup):
            for program in self.programs:
                if self.signals.poll():
                    return
                self.reporter.run(number + 1, self.request.warmup, "warm-up")
                self._prepare(f"warm-up {number + 1}")
                if not self.signals.poll():
                    self.runner.run(
                        program,
                        environment={SESSION_VARIABLE: self.settings.session},
                        timeout=self.request.timeout,
                    )

    def _start(self) -> None:
        self.reporter("starting the recorder")
        if pid_namespace() != INITIAL_PID_NAMESPACE:
            self.notes.append(
                "critpath runs in a container (a pid namespace of its own): the trace has other "
                "pids, so runs cannot be matched with processes"
            )
        settings = replace(self.settings, fd_directory=self.directories[0])
        self.tracer = _import_recorder(self.recorder).open_recorder(settings)
        # Before there is anything in the tracer: whose it is can be seen from then on.
        self.manifests = [
            initial_manifest(
                self.request,
                index,
                session=self.settings.session,
                recorder=self.recorder,
                container=self.container,
                notes=self.notes,
            )
            for index in range(len(self.directories))
        ]
        self._write()
        machine = Machine(make_probes() if self.request.probe else {})
        traced = self.recorder != COUNTING  # counts are of no program by its name
        if traced:
            self.groups.look()
        if traced and not self.programs and pid_namespace() == INITIAL_PID_NAMESPACE:
            # Before anything is recorded: whose exec is in the trace was heard of.
            from critpath_record.scripts import ScriptWatch  # noqa: PLC0415 - not for a command

            self.scripts = ScriptWatch()
            self.scripts.start()
        with self.signals.watching(), self._hurry():
            begin = self._open_sources()
        if traced:  # the files of all groups cost more than counting
            self.limits = Limits(born=self.groups.note_birth)
            self.limits.start()
        self.machine = machine
        machine.start()
        self.runner.rescan_children()
        named = self.groups.found
        self.manifests = [replace(m, begin=begin, groups=named) for m in self.manifests]
        self._write()

    def _make_sources(self) -> Iterator[Source]:
        """Yield what takes a part of the recording, each when its turn to begin has come."""
        directory, names = self.directories[0], self.request.stacks
        if self.request.functions:
            from critpath_record.budget.account import share_of  # noqa: PLC0415 - only if asked
            from critpath_record.functions import SHARE, FunctionFiles  # noqa: PLC0415 - as above

            given = self.settings.budget
            # At most half of a budget; what they do not take is the kernel's events'.
            share = SHARE if given is None else share_of(given.overhead / 2)
            yield FunctionFiles(directory, share, self.user)
        # A budget has to know its gates.
        early = ("files",) if self.settings.budget is None else names
        first = tuple(name for name in names if name in early)
        yield from self._make_stacks(first)
        yield self.tracer
        if self.request.tasks:
            from critpath_record.tasks import TaskAgents  # noqa: PLC0415 - only if asked

            yield TaskAgents(self.settings.session)
        yield from self._make_stacks(tuple(name for name in names if name not in first))
        if asked := self.request.counts:
            from critpath_record.counts.counting import Counting  # noqa: PLC0415 - rarely needed

            scope = asked.scope or ("command" if self.programs else "machine")
            yield Counting(
                replace(asked, scope=scope),
                *(directory, self.settings.session),
                container=0 if asked.scope else self.container,
            )

    def _make_stacks(self, names: tuple[str, ...]) -> Iterator[Source]:
        if names:
            from critpath_record.stacks.sources import (  # noqa: PLC0415 - only if asked
                STACKS,
                StackRequest,
                find_scope,
                open_stacks,
            )

            place = self.directories[0] / STACKS
            place.mkdir(mode=0o700, exist_ok=True)
            asked = StackRequest(
                *(place, self.user),
                python="python" in self.request.stacks,
                session=self.settings.session,
                budgeted=self.settings.budget is not None,
                **find_scope(self.request.scope, self.container, command=bool(self.programs)),
            )
            yield from open_stacks(names, asked)

    def _open_sources(self) -> int:
        """Begin with all sources; return when the tracer had begun."""
        begin = 0
        for source in self._make_sources():
            if source is self.tracer:
                gates = [one.gate for one in self.sources]
                source.open_beside([gate for gate in gates if gate is not None])
            self.sources.append(source)
            source.prepare()
            at = source.open()
            begin = at if source is self.tracer else begin
            self._note_told(source)
        if self.request.budget is not None:
            for source in self.sources:
                if source.cost() is not None:
                    self.tracer.charge_beside(source.name, cast("Callable[[], float]", source.cost))
        return begin

    @contextlib.contextmanager
    def _hurry(self) -> Iterator[None]:
        """Go before others for the while: on a starved machine a step would take seconds.

        Not where somebody chose another priority, nor where daemons are started that would keep it.
        """
        thread = os.PRIO_PROCESS, 0
        before = os.getpriority(*thread)
        if before == 0 and self.recorder == "ftrace":
            with contextlib.suppress(OSError):
                os.setpriority(*thread, _HURRIED)
        try:
            yield
        finally:
            if os.getpriority(*thread) != before:
                os.setpriority(*thread, before)

    def _close_sources(self) -> int:
        """End all sources, those that explain the tracer's events last; return when it ended."""
        end = 0
        before = [source for source in reversed(self.sources) if not source.follows]
        for source in (*before, *(source for source in self.sources if source.follows)):
            at = source.close()
            end = at if source is self.tracer else end
            self._note_told(source)
        return end

    def _drain_sources(self) -> Taken:
        """Put what all sources took into place; return that of the tracer, with others' facts."""
        recorded = Taken()
        ordered = sorted(self.sources, key=lambda source: source is not self.tracer)
        for source in ordered:
            source.span = self.manifests[0].begin, self.end
            found = source.drain(self.reporter)
            self.sources.remove(source)
            if source is self.tracer:
                recorded = found
                continue
            self.notes += found.warnings
            facts = {**recorded.facts, **({source.name: found.facts} if found.facts else {})}
            recorded = replace(recorded, facts=facts, beside=(*recorded.beside, *found.beside))
        return recorded

    def _note_told(self, source: Source) -> None:
        fields: dict[str, Any] = {**source.tell()}
        if fields:
            self.manifests = [replace(manifest, **fields) for manifest in self.manifests]

    def _abort_sources(self) -> None:
        """End at once what has begun; the first failure is the one to raise, so others are said."""
        while self.sources:
            try:
                self.sources.pop().abort()
            except CritpathError as error:
                self._warn(f"{error.what} ({error.do})")
            except OSError as error:
                self._warn(f"what was recorded could not be removed: {error}")

    def _write(self) -> None:
        for directory, manifest in zip(self.directories, self.manifests, strict=True):
            write_manifest(directory, manifest)

    def _record_runs(self, nothing: int) -> None:
        """Run the command; two in blocks of two, each in an order that a coin has chosen."""
        environment = {SESSION_VARIABLE: self.settings.session}
        for source in self.sources:
            environment |= source.environment()
        keep = [descriptor for source in self.sources for descriptor in source.descriptors()]
        initial = pid_namespace() == INITIAL_PID_NAMESPACE
        total = self.request.runs * len(self.programs)
        order = "A" * total
        if len(self.programs) > 1:
            order = self._draw_order(total)
        kinds = [program.name for program in self.programs]
        if len({*kinds}) < len(kinds):
            kinds = [f"{name}, {of}" for name, of in zip(kinds, (NORMAL, SAMPLE), strict=True)]
        done_of = [0] * len(self.programs)
        for number, which in enumerate(order):
            index = "AB".index(which)
            done_of[index] += 1
            own = done_of[index]
            self.reporter.run(number + 1, total)
            self._prepare(f"run {own}")
            if self.signals.poll():
                return
            for source in self.sources:
                source.begin_run(kinds[index], limited=self.request.timeout > 0)
            done = self.runner.run(
                self.programs[index],
                group=max(source.group for source in self.sources),
                environment=environment,
                keep=keep,
                timeout=self.request.timeout,
                streams=(-1, -1, -1) if self.request.show_output else (nothing,) * 3,
            )
            for source in reversed(self.sources):
                source.end_run(kinds[index], done.running)
                source.note_run(kinds[index], own, done.begin, done.pid)
            self.observe("AB"[index], done)
            pid = done.pid if initial else 0
            self._add_run(
                index,
                Run(
                    *(own, pid, done.begin, done.end, done.exit_code),
                    timed_out=done.timed_out,
                    outlived=done.outlived,
                    interrupted=bool(self.signals.poll()),
                    executed=done.executed,
                    kernel=done.kernel,
                    faults=done.faults,
                ),
            )
            if self.signals.poll() or self._check_failure(f"in run {own}"):
                return

    def _draw_order(self, total: int) -> str:
        """Draw the order of two commands and note it: what comes back in turns is then noise."""
        order, runs = self.request.order, FORMER_BLOCK_RUNS
        if not order:
            import random  # noqa: PLC0415 - of two commands only

            coin = random.Random(os.urandom(4))  # noqa: S311 - a schedule, not a secret
            pairs = (coin.choice(("AB", "BA")) for _ in range(total // BLOCK_RUNS))
            order, runs = "".join(pairs), BLOCK_RUNS
        self.manifests = [
            replace(manifest, order=order, block_runs=runs) for manifest in self.manifests
        ]
        self._write()
        return order

    def _check_failure(self, where: str) -> bool:
        """Return whether the recorder has given up, so that further runs would not be recorded."""
        error = next((one.failure for one in self.sources if one.failure is not None), None)
        if error is not None and self.failed is None:
            self.output.restore_name_in_error(error)
            self.notes.append(f"recording ended {where}: {error.what}")
            self.failed = error
        return error is not None

    def _add_run(self, index: int, run: Run) -> None:
        """Add a run to its manifest, and to the list on disk in case the recorder is killed."""
        self.output.check_unchanged()
        before = self.manifests[index]
        self.manifests[index] = replace(before, runs=(*before.runs, run))
        if wrong := append_run(self.directories[index], run):
            self.notes.append(wrong)

    def _record_machine(self) -> None:
        """Wait while the whole machine is recorded."""
        if self.recorder == "ftrace":  # anybody may write to LTTng's logger file
            # A machine without the directory can be recorded all the same.
            with contextlib.suppress(OSError, CritpathError):
                self.requests = MarkRequests(self.settings.session)
        seconds = self.request.duration
        self.reporter.say(
            f"recording for {seconds:g} s; Ctrl-C ends it before"
            if seconds
            else "recording until Ctrl-C"
        )
        until = time.monotonic() + seconds if seconds else None
        while not self.signals.first:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return
            self.reporter.wait(left, self.tracer.count_events)
            info = self.signals.wait(min(left or _LOOK, _LOOK))
            if self.requests is not None:
                self.requests.look()
            if self._check_failure("early"):
                return
            if info is not None and info.si_signo != signal.SIGCHLD:
                self.signals.note(info)

    def _stop(self) -> int:
        self.reporter("stopping the recorder")
        self.output.check_unchanged()
        self._end_machine()
        with self.signals.watching(), self._hurry():
            self.end = end = self._close_sources()
        if not self.programs:
            self.reporter.say("recorded; writing the trace")
        self._check_failure("while it was stopped")
        if self.requests is not None and self.requests.programs:
            self.notes.append(describe_without_access(self.requests.programs))
        if self.limits is not None:
            self.groups.look()
            self.manifests = [replace(m, groups=self.groups.found) for m in self.manifests]
            self.notes += self.limits.notes(end - self.manifests[0].begin)
            reached = {"limits": self.limits.facts(), "disks": name_disks()}
            self.manifests = [replace(m, machine={**m.machine, **reached}) for m in self.manifests]
        return end

    def _end_machine(self) -> None:
        """Note what the machine was like and what interpreters ran; idempotent."""
        scripts, self.scripts = self.scripts, None
        if scripts is not None:
            found, said = scripts.stop()
            self.notes += said
            self.manifests = [replace(m, scripts=found) for m in self.manifests]
        machine, self.machine = self.machine, None
        if machine is not None:
            measured = machine.stop(alone=bool(self.programs))
            self.manifests = [
                end_facts(replace(m, machine=measured), machine.clock) for m in self.manifests
            ]

    def _finish(self, end: int) -> None:
        """Put the trace into place and complete the manifests."""
        self.reporter("writing the trace")
        # From here on there are files only, and bytes that others wrote.
        rooted.drop_capabilities()
        with self.signals.watching():
            self.recorded = recorded = self._drain_sources()
            self._complete(INTERRUPTED if self.failed else COMPLETE, end, recorded)

    def _complete(self, state: str, end: int, recorded: Taken) -> None:
        first, *others = self.directories
        for other in others:
            link_beside(first, other)
        warnings = [self.output.restore_name(text) for text in (*self.notes, *recorded.warnings)]
        found = dict(zip(self.directories, self.manifests, strict=True))
        try:
            streams = recorded.streams
            if not streams and (first / TRACE).is_dir():
                self.reporter("counting what was recorded")
                streams = self.survey(first)
            elif recorded.beside:  # what another source wrote
                from critpath_record.recovery import measure_streams  # noqa: PLC0415 - rare

                streams = measure_streams(first, streams)
        except (CritpathError, OSError) as error:  # no reason to lose a recording
            streams = ()
            text = f"what the trace holds could not be counted: {error}"
            warnings.append(self.output.restore_name(text))
        self.manifests = complete_manifests(found, state, end, recorded, warnings, streams)
        self.complete = True
        self._note_chosen(first)
        self._release(recorded)

    def _note_chosen(self, directory: Path) -> None:
        """Note what a budget chose of executions that programs mark, as the marks say."""
        if not self.manifests[0].overhead or self.settings.runs:
            return
        try:
            chosen = self.count(directory)
        except (CritpathError, OSError) as error:  # no reason to lose a recording
            self._warn(f"which runs were chosen could not be counted: {error}")
            return
        if chosen is not None:
            write_selected(directory, chosen)
            self.manifests = [note_chosen(manifest, chosen) for manifest in self.manifests]
            self._write()

    def _release(self, recorded: Taken) -> None:
        try:
            recorded.release()
        except OSError as error:
            self._warn(f"what the trace was made of could not be removed: {error.strerror}")

    def _publish(self) -> None:
        if wrong := self.output.publish(self.user):
            self._warn(wrong)

    def _prepare(self, before: str) -> None:
        """Run ``--prepare``; its failure ends the recording."""
        line = self.request.prepare
        if not line or self.signals.poll():
            return
        shell = Executable(b"/bin/sh", (b"sh", b"-c", os.fsencode(line)))
        done = self.runner.run(shell, environment={SESSION_VARIABLE: self.settings.session})
        if done.exit_code and not self.signals.first:
            raise CritpathError(
                f"--prepare failed with {done.exit_code} before {before}: {line}",
                "correct it, or end it with '|| true' if its failure does not matter",
            )

    def _keep_readable(self) -> Outcome:
        """End at once; keep the recording if it is readable already."""
        self._abort()
        self.survey, self.count = lambda _: (), lambda _: None  # they take as long as reading
        if self.complete and self.recorded is not None:
            self._release(self.recorded)
            self._publish()
            return self._outcome(self.signals.exit_code)
        self.output.check_unchanged()
        trace = self.directories[0] / TRACE
        readable = trace.is_dir() and any(trace.rglob("metadata"))
        readable |= self.recorder == COUNTING
        if not (readable and self.manifests and self.output.building == self.output.target):
            return self._discard()
        self.notes.append("the recording was interrupted before it was finished")
        end = max((r.end for m in self.manifests for r in m.runs), default=self.manifests[0].begin)
        recorded = self.recorded or Taken(facts=self.manifests[0].recorder)
        self._complete(INTERRUPTED, end, recorded)
        self._publish()
        return self._outcome(self.signals.exit_code)

    def _discard(self) -> Outcome:
        self.output.discard()
        return Outcome(self.signals.exit_code)

    def _abort(self) -> None:
        self._end_machine()
        self._abort_sources()

    def _warn(self, what: str) -> None:
        self.reporter.say(self.output.restore_name(f"warning: {what}"))

    def _exit_code(self) -> int:
        """Return the first exit code that is not 0; a recording cut short has one, too."""
        if self.failed:
            return EXIT_INTERNAL
        runs = sorted((run for m in self.manifests for run in m.runs), key=lambda r: r.begin)
        failed = next((run.exit_code for run in runs if run.exit_code), 0)
        wanted = self.request.runs * len(self.programs)
        return failed or (self.signals.exit_code if len(runs) < wanted else 0)

    def _outcome(self, exit_code: int) -> Outcome:
        places = self.request.directories(self.request.output)
        recordings = tuple(Recording(p, m) for p, m in zip(places, self.manifests, strict=True))
        return Outcome(exit_code, recordings, self.output.size())


def chooses_runs(request: RecordRequest) -> bool:
    """Return whether a budget chooses runs: not where one run marks its executions itself."""
    marked = request.execution.partition(",")[0] == "marker" and len(request.commands) == 1
    return bool(request.commands) and not (marked and request.runs == 1)


def describe_without_access(programs: Sequence[tuple[str, str]]) -> str:
    """Say which programs would mark executions and may not: their names and users."""
    shown = ", ".join(f"{name} ({user})" for name, user in programs[:_NAMED])
    shown += ", ..." * (len(programs) > _NAMED)
    users = ",".join(dict.fromkeys(user for _, user in programs))
    return f"marks without access: {shown}: record with --marks-from {users}"


# Before a recording begins


def remove_stale(reporter: Reporter) -> None:
    """Remove what dead recorders left, so that it does not disturb this recording."""
    if rooted.channel is not None:
        if said := describe_left():
            reporter.say(said)
        return
    gone: list[str] = []

    def report(leftover: Leftover, error: CritpathError | None) -> None:
        if error is None:
            gone.append(f"{leftover.kind} {leftover.name}")
        else:
            reporter.say(f"warning: {error.what} ({error.do})")

    remove_leftovers(report)
    if gone:
        shown = ", ".join(gone[:3]) + (", ..." if len(gone) > 3 else "")
        reporter.say(f"removed {plural(len(gone), 'leftover')} of a killed recorder: {shown}")


@contextlib.contextmanager
def subreaper() -> Iterator[None]:
    """Adopt orphaned descendants of the command, so that they are seen."""
    before = become_subreaper(True)
    try:
        yield
    finally:
        become_subreaper(before)


# Choosing the recorder, and what it records


def choose_profile(request: RecordRequest, reporter: Reporter) -> str:
    """Return what is recorded of a machine, where nobody says: requests, if servers listen here.

    Only by events of sockets: what takes their place is all system calls, which cost too much to
    be recorded unasked.
    """
    from critpath_record.sockets import find_servers  # noqa: PLC0415 - of the whole machine only

    if request.recorder not in {"auto", "ftrace"} or not (servers := find_servers()):
        return MINIMAL
    with contextlib.suppress(CritpathError):
        if _import_needs("ftrace").offered_way(mount=True) == SOCKETS:
            named = ", ".join(map(safe_text, servers[:_NAMED])) + ", ..." * (len(servers) > _NAMED)
            reporter.say(
                f"servers listen here ({named}), so their requests are recorded (--profile "
                f"{REQUESTS}; --profile {MINIMAL} undoes it)"
            )
            if not request.labels_from:
                reporter.say(
                    "--labels-from bytes would tell them apart by method and path, SQL or command: "
                    "the recording then has what begins their messages (docs/labels.md)"
                )
            return REQUESTS
    return MINIMAL


def _import_recorder(name: str) -> Any:
    return importlib.import_module(RECORDERS[name])


def _import_needs(name: str) -> Any:
    return importlib.import_module(NEEDS[name])


def choose_recorder(name: str, settings: RecorderSettings) -> tuple[str, str]:
    """Return a recorder's name, for ``auto`` the first that can record; and why no earlier can."""
    if lacks_proc():
        raise CritpathError(*NO_PROC)
    if has_foreign_clock():
        raise CritpathError(*FOREIGN_CLOCK)
    profile = profile_events(settings.profile)
    names = list(TRACING) if name == "auto" else [name]
    if profile.replaced:  # best recorded by who needs no substitutes
        names.sort(key=lambda n: _import_needs(n).offered_way() != SOCKETS)
    why = ""
    for candidate in names:
        found: list[Requirement] = _import_needs(candidate).find_needs(settings)
        fatal = [obstacle for obstacle in found if obstacle.fatal]
        if not fatal:
            return candidate, why
        if len(names) == 1:
            raise CritpathError(
                f"the {candidate} recorder cannot record here: {fatal[0].what}",
                f"{fatal[0].do} (critpath doctor shows all that is missing)",
            )
        why += f"{'; ' * bool(why)}{candidate}: {fatal[0].what}"
    raise CritpathError(
        f"nothing can record here: {why}", "critpath doctor says how to mend each of these"
    )
