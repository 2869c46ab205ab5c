"""A recorder that records nothing, and a system that refuses what it is told to."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from critpath.errors import CritpathError
from critpath.model import CpuLoss
from critpath.model.recording import RECORDING
from critpath_record import manifests, recorder
from critpath_record.recorder import Requirement
from critpath_record.source import Count, Source, Taken


@dataclass
class Plan:
    """What the recorder does, and what the system refuses.

    Attributes
    ----------
    log : Path
        A file that gets the recorder's calls; ``LOG.instance`` stands for what it has in the
        kernel.
    fail : str
        The step that fails: ``open``, ``close``, ``drain``, ``run`` (while the command runs) or
        ``later`` (there is no trace yet).
    lost : int
        Events.
    full : str
        What the system refuses for want of room: ``manifest`` (the completed one of `half`, or
        of the only recording), ``link``, ``owner``, ``name`` (the place that --force replaces)
        or ``release``.
    missing : mapping
        Why a recorder cannot record here, by its name.
    on : mapping
        What happens besides in a step, by its name (``finished``: the trace is there).
    threads : int
        Of the recorder's own, with a priority that no command should have.
    clock : module
        What it takes for `time`.
    way : str
        By which way requests of servers can be found here.
    """

    log: Path
    fail: str = ""
    lost: int = 0
    full: str = ""
    half: str = ""
    missing: Mapping[str, str] = field(default_factory=dict)
    on: dict[str, Callable[[], object]] = field(default_factory=dict)
    threads: int = 0
    way: str = "sockets"
    clock: Any = time

    @property
    def instance(self) -> Path:
        return self.log.with_suffix(".instance")

    def calls(self) -> list[str]:
        return self.log.read_text().split() if self.log.exists() else []


class FakeRecorder(Source):
    """Takes every step of a recorder, as the plan says."""

    def __init__(self, settings: recorder.RecorderSettings, plan: Plan) -> None:
        self.settings, self.plan = settings, plan
        self.done = threading.Event()
        self.threads: list[threading.Thread] = []
        self.descriptors_: list[int] = []
        self.counted = 0

    def _step(self, name: str) -> None:
        with self.plan.log.open("a") as log:
            log.write(name + "\n")
        self.plan.on.get(name, int)()
        if name == self.plan.fail:
            self._remove()
            raise CritpathError(f"cannot {name}", "try something else")

    def _drain(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), -5)
        self.done.wait()

    def _remove(self) -> None:
        self.done.set()
        for thread in self.threads:
            thread.join()
        while self.descriptors_:
            os.close(self.descriptors_.pop())
        self.threads = []
        self.plan.instance.unlink(missing_ok=True)

    def open(self) -> int:
        assert self.settings.directory.is_dir()
        assert [p.name for p in self.settings.directory.iterdir()] == ["critpath.json"]
        self.plan.instance.write_text(self.settings.session)
        leak = os.open(os.devnull, os.O_RDONLY)  # not what any command should have
        os.set_inheritable(leak, True)
        self.descriptors_ = [os.open(os.devnull, os.O_WRONLY), leak]
        self.threads = [
            threading.Thread(target=self._drain, daemon=True) for _ in range(self.plan.threads)
        ]
        for thread in self.threads:
            thread.start()
        self._step("open")
        return int(self.plan.clock.clock_gettime_ns(time.CLOCK_MONOTONIC))

    def environment(self) -> dict[str, str]:
        return {"CRITPATH_MARKER": f"/dev/fd/{self.descriptors_[0]}"}

    def descriptors(self) -> tuple[int, ...]:
        return (self.descriptors_[0],)

    def count_events(self) -> Count:
        self.counted += 1
        return Count(1000 * self.counted, self.plan.lost if self.counted > 1 else 0)

    @property
    def failure(self) -> CritpathError | None:
        return CritpathError("no space left", "make room") if self.plan.fail == "run" else None

    def close(self) -> int:
        self._step("close")
        return int(self.plan.clock.clock_gettime_ns(time.CLOCK_MONOTONIC))

    def drain(self, report: Callable[[str], None]) -> Taken:
        report("converting")
        self._step("drain")
        raw = self.settings.directory / "raw"
        if self.plan.full or self.plan.fail == "later":
            raw.mkdir()
            (raw / "raw.json").touch()
        if self.plan.fail == "later":
            self._remove()
            raise recorder.UnfinishedError("no space left", "make room")
        kernel = self.settings.directory / "trace" / "kernel"
        kernel.mkdir(parents=True)
        (kernel / "metadata").write_text("/* CTF 1.8 */\n")
        (kernel / "channel0_0").write_bytes(b"x" * 1000)
        self._remove()
        self.plan.on.get("finished", int)()
        lost = self.plan.lost
        return Taken(
            loss=(CpuLoss(0, lost), CpuLoss(1, 0)),
            facts={
                "name": "ftrace",
                "version": "0",
                "events": ["sched_switch"],
                "event_count": 9 * lost or 42,
                "buffer_bytes": 4096,
            },
            warnings=("a warning of the recorder",) if lost else (),
            release=self._release,
        )

    def _release(self) -> None:
        if self.plan.full == "release":
            refuse_room()
        shutil.rmtree(self.settings.write_directory / "raw", ignore_errors=True)

    def abort(self) -> None:
        self._step("abort")
        self._remove()


def refuse_room(*_: object, **__: object) -> None:
    raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))


Setter = Callable[[Any, str, object], None]


def install(plan: Plan, replace: Setter = setattr) -> None:
    """Put the fake in the place of every recorder, and have the system refuse what it shall."""
    found = {}
    for name in ("lttng", "ftrace"):
        module: Any = ModuleType(f"fake_{name}")
        reason = plan.missing.get(name)
        module.open_recorder = lambda settings: FakeRecorder(settings, plan)
        module.find_needs = lambda _, name=name, reason=reason: (
            [Requirement("x", reason, f"mend {name}")] if reason else []
        )
        module.finish_killed = lambda *_: None
        module.offered_way = lambda **_: plan.way
        sys.modules[module.__name__] = module
        found[name] = module.__name__
    for place in ("recorder", "session", "cleanup", "recovery"):
        of = sys.modules.get(f"critpath_record.{place}")
        if hasattr(of, "RECORDERS"):
            replace(of, "RECORDERS", found)
        if hasattr(of, "NEEDS"):
            replace(of, "NEEDS", found)
        if hasattr(of, "LEFTOVERS"):
            replace(of, "LEFTOVERS", ())
    _refuse(plan, replace)


def _refuse(plan: Plan, replace: Setter) -> None:
    write, rename = manifests.write_manifest, os.rename

    def write_manifest(directory: Path, manifest: Any) -> None:
        if manifest.state != RECORDING and plan.half in {"", directory.name}:
            refuse_room()
        write(directory, manifest)

    def rename_one(source: Any, target: Any, **places: Any) -> None:
        if source == "rec":
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        rename(source, target, **places)

    if plan.full == "manifest":
        replace(manifests, "write_manifest", write_manifest)
    elif plan.full == "link":
        replace(os, "link", refuse_room)
        replace(shutil, "copy2", refuse_room)
    elif plan.full == "owner":
        replace(os, "fchmod", refuse_room)
    elif plan.full == "name":
        replace(os, "rename", rename_one)
