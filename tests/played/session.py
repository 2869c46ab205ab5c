"""critpath record in this process, with a fake recorder and commands that are played."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from critpath.commands import record as verb
from critpath_record import cleanup, recovery, registry, scripts, session, signals, sockets
from critpath_record.group_names import GroupNames
from critpath_record.identity import INITIAL_PID_NAMESPACE
from tests.played.processes import STAYS, Clock, PlayedProcess, World
from tests.played.recorder import Plan, install

__all__ = ["STAYS", "PlayedProcess", "PlayedSession"]

Completed = subprocess.CompletedProcess[str]


class NothingWatched:
    """In the place of what looks at the whole machine while it is recorded."""

    def __init__(self, *_: object, **__: object) -> None:
        self.clock: list[tuple[int, int]] = []

    def start(self) -> None:
        """Look at nothing."""

    def stop(self, **_: object) -> Any:
        return {}

    def facts(self) -> list[Any]:
        return []

    def notes(self, _time: int) -> tuple[str, ...]:
        return ()


class NoScripts(NothingWatched):
    def stop(self, **_: object) -> Any:
        return (), ()


def no_requests(*_: object) -> None:
    raise OSError("no place for requests of marks")


class PlayedSession:
    """A directory to record in; what commands do there, and what the fake recorder did.

    A command is a function that gets the process which it is: it returns its exit code, or
    `STAYS` if it ends by a signal or by the clock.
    """

    def __init__(
        self, place: Path, monkeypatch: pytest.MonkeyPatch, critpath: Callable[..., Completed]
    ) -> None:
        self.servers: list[str] = []
        self.load = 0.0
        self.place, self._monkeypatch, self._critpath = place / "here", monkeypatch, critpath
        self._programs = place / "programs"
        self.machine = place / "machine"  # whose processes and runtimes there are
        (self.machine / "proc").mkdir(parents=True)
        self.place.mkdir()
        self._programs.mkdir()
        self.log = place / "fake.log"
        self.output = self.place / "rec"
        self.registry = place / "registry"
        self.clock = Clock()
        self.world = World(self.clock)
        self.commands(true=lambda _: 0, sh=lambda _: 0)

    def commands(self, **acts: Callable[[PlayedProcess], int | None]) -> None:
        """Say what commands there are and what they do."""
        for name, act in acts.items():
            program = self._programs / name
            program.touch()
            program.chmod(0o755)
            self.world.commands[name] = act

    def record(
        self,
        *arguments: object,
        env: dict[str, str] | None = None,
        output: str | None = "rec",
        **plan: Any,
    ) -> Done:
        """Record into ``rec``, or as the arguments say; `plan` is of the fake recorder."""
        if output and "-o" not in arguments:
            arguments = ("-o", output, *arguments)
        planned = Plan(self.log, clock=self.clock, **plan)
        self.log.unlink(missing_ok=True)
        with self._monkeypatch.context() as patch:
            for name in [n for n in os.environ if n.startswith(("SUDO_", "CRITPATH_"))]:
                patch.delenv(name)
            for name, value in {"PATH": str(self._programs), **(env or {})}.items():
                patch.setenv(name, value)
            self._play(patch, planned)
            done = self._critpath("record", *arguments, cwd=self.place)
        return Done(done.returncode, done.stdout, done.stderr)

    def _play(self, patch: pytest.MonkeyPatch, plan: Plan) -> None:
        patch.setattr(registry, "_ROOT", self.registry)
        patch.setattr(verb, "survey_recorded", lambda _: ())  # what a fake writes is no trace
        patch.setattr(session, "Signals", self.world.make_signals)
        patch.setattr(session, "name_thread", lambda _: None)
        patch.setattr(session, "become_subreaper", bool)
        patch.setattr(session, "pid_namespace", lambda: INITIAL_PID_NAMESPACE)
        for name in ("Limits", "Machine"):
            patch.setattr(session, name, NothingWatched)
        patch.setattr(session, "GroupNames", lambda: GroupNames(self.machine))
        patch.setattr(scripts, "ScriptWatch", NoScripts)
        patch.setattr(session, "MarkRequests", no_requests)
        patch.setattr(session, "name_disks", dict)
        patch.setattr(sockets, "find_servers", lambda: self.servers)
        patch.setattr("os.getloadavg", lambda: (self.load, 0.0, 0.0))
        patch.setattr(session, "make_probes", dict)
        assert recovery.RECORDERS  # imported, so that the fakes are put there, too
        assert cleanup.LEFTOVERS
        install(plan, patch.setattr)
        self.world.play(patch.setattr, session, signals)

    def manifest(self, name: str = "rec") -> dict[str, Any]:
        return dict(json.loads((self.place / name / "critpath.json").read_text(encoding="utf-8")))

    def calls(self) -> list[str]:
        return self.log.read_text().split() if self.log.exists() else []

    @property
    def started(self) -> list[PlayedProcess]:
        """What was started, in order."""
        return self.world.started

    @property
    def instance(self) -> bool:
        return self.log.with_suffix(".instance").exists()

    def is_clean(self) -> bool:
        """Whether nothing is left but what was there."""
        return not self.instance and not self.output.exists()


class Done:
    """How critpath ended, and what it and its commands printed."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err
