"""A recording from its beginning to its end: `record` is the story."""

from __future__ import annotations

import os
import shutil
import signal
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from critpath.errors import EXIT_INTERNAL, CritpathError
from critpath.model import Manifest, Run
from critpath.model.recording import COMPLETE, INTERRUPTED
from critpath.record.before import container_namespace, subreaper, sweep
from critpath.record.caller import Caller
from critpath.record.choose import Choice, choose_recorder
from critpath.record.host import INITIAL_PID_NAMESPACE
from critpath.record.identity import SESSION_VARIABLE
from critpath.record.keeping import complete_manifests, first_manifest, keep_unfinished, note_run
from critpath.record.link import link_tree
from critpath.record.manifest import write_manifest
from critpath.record.place import Place
from critpath.record.program import Program, find_program
from critpath.record.recorder import Recorded, Recorder, RecorderSettings, UnfinishedError
from critpath.record.registry import register, unregister
from critpath.record.request import TRACE, Outcome, Recording, Request, Tell
from critpath.record.runner import Runner
from critpath.record.signals import Signals, Stopped
from critpath.record.throttling import Throttling
from critpath.record.user import User, invoking_user
from critpath_marks.sessions import new_name, pid_namespace

_LOOK: Final = 1.0  # seconds between looks whether the recorder still records


def record(request: Request, tell: Tell) -> Outcome:
    """Record what was asked for.

    Parameters
    ----------
    request : Request
    tell : Tell

    Returns
    -------
    Outcome

    Raises
    ------
    UsageError
        If the output cannot be used.
    CommandError
        If the command cannot be executed; nothing is left on disk.
    CritpathError
        If recording failed; nothing is left, on disk or in the tracer.
    """
    caller = Caller.now()
    user = invoking_user(caller.environment, as_root=request.as_root)
    session = new_name()
    place = Place.check(request.output, session, force=request.force)
    programs = tuple(find_program(c, caller.environment) for c in request.commands)
    container = container_namespace(request.container)
    settings = RecorderSettings(
        session=session,
        directory=request.directories(place.building)[0],
        profile=request.profile,
        buffer_bytes=request.buffer_bytes,
        trace_format=request.trace_format,
        keep_raw=request.keep_raw,
    )
    with Signals(caller, tell.say) as signals, subreaper():
        with signals.watching():
            sweep(tell)
            choice = choose_recorder(request.recorder, settings)
        tell.say(f"recorder: {choice.name}" + (f" ({choice.why})" if choice.why else ""))
        free = place.room()
        if free is not None:
            tell.say(f"warning: only {free / 2**20:.0f} MiB are free for {place.target}")
        runner = Runner(caller, user, signals, tell.say)
        running = _Session(
            request, tell, place, programs, container, settings, choice, user, signals, runner
        )
        return running.record()


@dataclass
class _Session:
    request: Request
    tell: Tell
    place: Place
    programs: tuple[Program, ...]
    container: int
    settings: RecorderSettings
    choice: Choice
    user: User | None
    signals: Signals
    runner: Runner
    recorder: Recorder | None = None
    manifests: list[Manifest] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failed: CritpathError | None = None
    recorded: Recorded | None = None
    throttling: Throttling | None = None
    end: int = 0  # until when it was recorded
    complete: bool = False  # nothing that comes then may cost it
    kept: bool = False  # for somebody else to finish

    def record(self) -> Outcome:
        """Record, and leave nothing behind if that fails."""
        # Before there is a directory: whoever finds the session finds what is in it.
        owner = (self.user.uid, self.user.gid) if self.user else None
        register(self.settings.session, self.directories[0], self.choice.name, owner)
        try:
            self.place.make()
            try:
                return self._record()
            except Stopped:
                return self._stopped()
        except UnfinishedError as error:
            self.place.name_in(error)
            error.end = error.end or self.end
            found = dict(zip(self.directories, self.manifests, strict=True))
            wrong = keep_unfinished(self.place, found, self.notes, error)
            self.kept = isinstance(wrong, UnfinishedError)
            self.place.name_in(wrong)
            raise wrong from None
        except BaseException as error:
            self._abort()
            if not self.complete:
                self.place.discard()
            self.place.name_in(error)
            raise
        finally:
            self.place.close()
            if not self.kept:
                unregister(self.settings.session)

    def _record(self) -> Outcome:
        for directory in self.directories:
            if directory != self.place.writing:
                directory.mkdir(mode=0o700)
        self._warm_up()
        if self.signals.poll():
            return self._nothing()
        self._start()
        if self.programs:
            self._runs()
        else:
            self._machine()
        if self.programs and not any(m.runs for m in self.manifests):
            self._abort()
            return self._nothing()
        self._finish(self._stop())
        self._settle()
        return self._outcome(self._exit_code())

    # ------------------------------------------------------------------ its steps

    @property
    def directories(self) -> tuple[Path, ...]:
        """Where the recordings are written; the first has the trace."""
        return self.request.directories(self.place.writing)

    def _warm_up(self) -> None:
        for number in range(self.request.warmup):
            for program in self.programs:
                if self.signals.poll():
                    return
                self.tell.run(number + 1, self.request.warmup, "warm-up")
                self._prepare(f"warm-up {number + 1}")
                if not self.signals.poll():
                    self.runner.run(
                        program,
                        environment={SESSION_VARIABLE: self.settings.session},
                        timeout=self.request.timeout,
                    )

    def _start(self) -> None:
        self.tell("starting the recorder")
        if pid_namespace() != INITIAL_PID_NAMESPACE:
            self._note(
                "critpath runs in a container (a pid namespace of its own): the trace has other "
                "pids, so runs cannot be matched with processes"
            )
        self.recorder = self.choice.open(replace(self.settings, writing=self.directories[0]))
        # Before there is anything in the tracer: whose it is can be seen from then on.
        self.manifests = [
            first_manifest(
                self.request,
                index,
                session=self.settings.session,
                recorder=self.choice.name,
                container=self.container,
                notes=self.notes,
            )
            for index in range(len(self.directories))
        ]
        self._write()
        with self.signals.watching():
            begin = self.recorder.start()
        self.throttling = Throttling()
        self.runner.forget()
        self.manifests = [replace(m, begin=begin) for m in self.manifests]
        self._write()

    def _write(self) -> None:
        for directory, manifest in zip(self.directories, self.manifests, strict=True):
            write_manifest(directory, manifest)

    def _runs(self) -> None:
        """Run the commands in turn: ABAB for two."""
        recorder = self._running()
        environment = {**recorder.environment(), SESSION_VARIABLE: self.settings.session}
        initial = pid_namespace() == INITIAL_PID_NAMESPACE
        total = self.request.runs * len(self.programs)
        for number in range(total):
            index = number % len(self.programs)
            own = number // len(self.programs) + 1
            self.tell.run(number + 1, total)
            self._prepare(f"run {own}")
            if self.signals.poll():
                return
            done = self.runner.run(
                self.programs[index],
                environment=environment,
                keep=recorder.descriptors(),
                timeout=self.request.timeout,
            )
            pid = done.pid if initial else 0
            self._add(
                index,
                Run(
                    *(own, pid, done.begin, done.end, done.exit_code),
                    timed_out=done.timed_out,
                    outlived=done.outlived,
                    interrupted=bool(self.signals.poll()),
                ),
            )
            if self.signals.poll() or self._failed(f"in run {own}"):
                return

    def _failed(self, where: str) -> bool:
        """Tell whether the recorder has given up: what runs on would not be recorded."""
        error = self._running().failure
        if error is not None and self.failed is None:
            self.place.name_in(error)
            self._note(f"recording ended {where}: {error.what}")
            self.failed = error
        return error is not None

    def _add(self, index: int, run: Run) -> None:
        """Note a run, on disk too: a recorder that is killed must not lose those that ended."""
        self.place.check_unchanged()
        before = self.manifests[index]
        self.manifests[index] = replace(before, runs=(*before.runs, run))
        if wrong := note_run(self.directories[index], run):
            self._note(wrong)

    def _machine(self) -> None:
        """Wait while the whole machine is recorded."""
        seconds = self.request.duration
        self.tell.say(
            f"recording for {seconds:g} s; Ctrl-C ends it before"
            if seconds
            else "recording until Ctrl-C"
        )
        until = time.monotonic() + seconds if seconds else None
        while not self.signals.first:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return
            info = self.signals.wait(min(left or _LOOK, _LOOK))
            if self._failed("early"):
                return
            if info is not None and info.si_signo != signal.SIGCHLD:
                self.signals.note(info)

    def _stop(self) -> int:
        self.tell("stopping the recorder")
        self.place.check_unchanged()
        with self.signals.watching():
            self.end = end = self._running().stop()
        self._failed("while it was stopped")
        if self.throttling is not None:
            self.notes += self.throttling.notes(end - self.manifests[0].begin)
        return end

    def _finish(self, end: int) -> None:
        """Put the trace into place and complete the manifests."""
        self.tell("writing the trace")
        with self.signals.watching():
            self.recorded = recorded = self._running().finish(self.tell)
            self.recorder = None
            self._complete(INTERRUPTED if self.failed else COMPLETE, end, recorded)

    def _complete(self, state: str, end: int, recorded: Recorded) -> None:
        first, *others = self.directories
        for other in others:
            # Linking may be what was interrupted.
            shutil.rmtree(other / TRACE, ignore_errors=True)
            link_tree(first / TRACE, other / TRACE)
        said = [self.place.named(text) for text in (*self.notes, *recorded.warnings)]
        found = dict(zip(self.directories, self.manifests, strict=True))
        self.manifests = complete_manifests(found, state, end, recorded, said)
        self.complete = True
        self._release(recorded)

    def _release(self, recorded: Recorded) -> None:
        try:
            recorded.release()
        except OSError as error:
            self._warn(f"what the trace was made of could not be removed: {error.strerror}")

    def _settle(self) -> None:
        if wrong := self.place.settle(self.user):
            self._warn(wrong)

    # ---------------------------------------------------------- what may come between

    def _prepare(self, before: str) -> None:
        """Run ``--prepare``; its failure ends the recording."""
        line = self.request.prepare
        if not line or self.signals.poll():
            return
        shell = Program(b"/bin/sh", (b"sh", b"-c", os.fsencode(line)))
        done = self.runner.run(shell, environment={SESSION_VARIABLE: self.settings.session})
        if done.exit_code and not self.signals.first:
            raise CritpathError(
                f"--prepare failed with {done.exit_code} before {before}: {line}",
                "correct it, or end it with '|| true' if its failure does not matter",
            )

    def _stopped(self) -> Outcome:
        """End at once: keep what can be read already, and nothing else."""
        self._abort()
        if self.complete and self.recorded is not None:
            self._release(self.recorded)
            self._settle()
            return self._outcome(self.signals.exit_code)
        self.place.check_unchanged()
        trace = self.directories[0] / TRACE
        readable = trace.is_dir() and any(trace.rglob("metadata"))
        if not (readable and self.manifests and self.place.building == self.place.target):
            return self._nothing()
        self._note("the recording was interrupted before it was finished")
        end = max((r.end for m in self.manifests for r in m.runs), default=self.manifests[0].begin)
        recorded = self.recorded or Recorded(facts=self.manifests[0].recorder)
        self._complete(INTERRUPTED, end, recorded)
        self._settle()
        return self._outcome(self.signals.exit_code)

    def _nothing(self) -> Outcome:
        self.place.discard()
        return Outcome(self.signals.exit_code)

    def _abort(self) -> None:
        recorder, self.recorder = self.recorder, None
        if recorder is None:
            return
        try:
            recorder.abort()
        except CritpathError as error:
            # The first failure is the one to tell; what is left is named too.
            self._warn(f"{error.what} ({error.do})")
        except OSError as error:
            self._warn(f"what was recorded could not be removed: {error}")

    def _warn(self, what: str) -> None:
        self.tell.say(self.place.named(f"warning: {what}"))

    # ------------------------------------------------------------------- small facts

    def _running(self) -> Recorder:
        if self.recorder is None:
            raise RuntimeError("no recorder runs")
        return self.recorder

    def _note(self, warning: str) -> None:
        self.notes.append(warning)

    def _exit_code(self) -> int:
        """Return the first code that is not 0; a recording that was cut short has one too."""
        if self.failed:
            return EXIT_INTERNAL
        runs = sorted((run for m in self.manifests for run in m.runs), key=lambda r: r.begin)
        failed = next((run.exit_code for run in runs if run.exit_code), 0)
        wanted = self.request.runs * len(self.programs)
        return failed or (self.signals.exit_code if len(runs) < wanted else 0)

    def _outcome(self, exit_code: int) -> Outcome:
        places = self.request.directories(self.request.output)
        recordings = tuple(Recording(p, m) for p, m in zip(places, self.manifests, strict=True))
        return Outcome(exit_code, recordings, self.place.size())
