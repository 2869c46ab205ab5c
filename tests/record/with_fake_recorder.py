"""critpath with a recorder that records nothing: ``python with_fake_recorder.py record ...``.

What the recorder does is set in the environment: FAKE_LOG (a file that its calls go to),
FAKE_SLOW and FAKE_FAIL (``start``, ``stop`` or ``finish``; FAKE_LATE before raising).
``later`` is a recorder that cannot make its trace yet.  FAKE_LOG.instance stands for what it
has in the kernel.  FAKE_FULL is what the system refuses for want of room: ``manifest`` (the
completed one of FAKE_HALF, or of the only recording), ``link``, ``owner``, ``name`` (the
place that --force replaces) or ``release``.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import threading
import time
from pathlib import Path
from types import ModuleType

from critpath.commands import entry, record
from critpath.errors import CritpathError
from critpath.model import CpuLoss
from critpath.model.recording import RECORDING
from critpath.record import manifests, recorder, registry
from critpath.record.recorder import RecorderResult, Requirement

LOG = Path(os.environ["FAKE_LOG"])
INSTANCE = LOG.with_suffix(".instance")


class FakeRecorder:
    def __init__(self, settings):
        self.settings = settings
        self.done = threading.Event()
        self.threads = []

    def _step(self, name):
        with LOG.open("a") as log:
            log.write(name + "\n")
        if name in os.environ.get("FAKE_SLOW", "").split(","):
            time.sleep(float(os.environ.get("FAKE_SECONDS", "1.5")))
        if name in os.environ.get("FAKE_FAIL", "").split(","):
            self._remove()
            raise CritpathError(f"cannot {name}", "try something else")

    def _drain(self):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), -5)
        while not self.done.wait(0.05):
            pass

    def _remove(self):
        self.done.set()
        for thread in self.threads:
            thread.join()
        self.threads = []
        INSTANCE.unlink(missing_ok=True)

    def start(self):
        assert self.settings.directory.is_dir()
        assert [p.name for p in self.settings.directory.iterdir()] == ["critpath.json"]
        INSTANCE.write_text(self.settings.session)
        # Not what any command should have.
        self.leak = os.open(os.devnull, os.O_RDONLY)
        os.set_inheritable(self.leak, True)
        self.marker = os.open(os.devnull, os.O_WRONLY)
        if os.geteuid() == 0:
            self.threads = [threading.Thread(target=self._drain, daemon=True) for _ in range(2)]
            for thread in self.threads:
                thread.start()
        self._step("start")
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC)

    def environment(self):
        return {"CRITPATH_MARKER": f"/dev/fd/{self.marker}"}

    def descriptors(self):
        return (self.marker,)

    def count_events(self):
        self.counted = getattr(self, "counted", 0) + 1
        lost = int(os.environ.get("FAKE_LOST", "0"))
        return recorder.Count(1000 * self.counted, lost if self.counted > 1 else 0)

    @property
    def failure(self):
        if "run" in os.environ.get("FAKE_FAIL", "").split(","):
            return CritpathError("no space left", "make room")
        return None

    def stop(self):
        self._step("stop")
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC)

    def finish(self, tell):
        tell("converting")
        self._step("finish")
        if "later" in os.environ.get("FAKE_FAIL", "").split(","):
            (self.settings.directory / "raw").mkdir()
            (self.settings.directory / "raw" / "raw.json").touch()
            self._remove()
            raise recorder.UnfinishedError("no space left", "make room")
        if FULL:
            (self.settings.directory / "raw").mkdir()
            (self.settings.directory / "raw" / "raw.json").touch()
        kernel = self.settings.directory / "trace" / "kernel"
        kernel.mkdir(parents=True)
        (kernel / "metadata").write_text("/* CTF 1.8 */\n")
        (kernel / "channel0_0").write_bytes(b"x" * 1000)
        self._remove()
        if "finished" in os.environ.get("FAKE_SLOW", ""):
            self._step("finished")
        lost = int(os.environ.get("FAKE_LOST", "0"))
        return RecorderResult(
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

    def _release(self):
        if FULL == "release":
            no_room()
        shutil.rmtree(self.settings.write_directory / "raw", ignore_errors=True)

    def abort(self):
        self._step("abort")
        self._remove()


def fake(name):
    module = ModuleType(f"fake_{name}")
    reason = os.environ.get(f"FAKE_NO_{name.upper()}")
    module.open_recorder = FakeRecorder
    module.missing_requirements = lambda _: (
        [Requirement("x", reason, f"mend {name}")] if reason else []
    )
    module.find_leftovers = list
    module.finish_killed = lambda *_: None
    sys.modules[module.__name__] = module
    return module.__name__


FULL = os.environ.get("FAKE_FULL", "")


def no_room(*_, **__):
    raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))


def refuse():
    """Have the system refuse what FAKE_FULL says."""
    write, rename = manifests.write_manifest, os.rename

    def write_manifest(directory, manifest):
        if manifest.state != RECORDING and HALF in {"", directory.name}:
            no_room()
        write(directory, manifest)

    def rename_one(source, target, **places):
        if source == "rec":
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        rename(source, target, **places)

    if FULL == "manifest":
        manifests.write_manifest = write_manifest
    elif FULL == "link":
        os.link = shutil.copy2 = no_room
    elif FULL == "owner":
        os.fchmod = no_room
    elif FULL == "name":
        os.rename = rename_one


HALF = os.environ.get("FAKE_HALF", "")
refuse()
registry._ROOT = LOG.with_suffix(".registry")
recorder.RECORDERS = {name: fake(name) for name in ("lttng", "ftrace")}
record.survey_recorded = lambda _: ()  # what a fake writes is no trace

if __name__ == "__main__":
    entry()
