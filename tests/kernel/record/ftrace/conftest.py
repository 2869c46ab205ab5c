"""Raw recordings for the converter, made here as root."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from critpath_marks.sessions import new_session_name

TRACEFS = Path("/sys/kernel/tracing")
SCHED = ("switch", "waking", "wakeup_new", "process_fork", "process_exec", "process_exit")
EVENTS = (
    *(f"sched/sched_{name}" for name in SCHED),
    *("task/task_newtask", "irq/irq_handler_entry", "irq/irq_handler_exit"),
    *("irq/softirq_entry", "irq/softirq_exit"),
    *("timer/hrtimer_expire_entry", "timer/hrtimer_expire_exit"),
)


def threads():
    found = []
    for place in Path("/proc").glob("[0-9]*/task/[0-9]*"):
        try:
            head, _, rest = (place / "stat").read_text().rpartition(")")
            fields = rest.split()
            tid, tgid = int(place.name), int(place.parts[2])
            space = (place / "ns" / "pid").stat().st_ino
        except OSError:
            continue
        row = [time.monotonic_ns(), tid, tgid, int(fields[1]), head.partition("(")[2]]
        found.append([*row, fields[0], int(fields[36]), int(fields[6]) >> 21 & 1, space])
    return found


class Instance:
    """A private instance whose buffers are read when it has stopped."""

    def __init__(self, directory: Path, kib: int, raw: Path) -> None:
        self.home, self.raw = directory, raw
        self.cpus = sorted(int(p.name[3:]) for p in (self.home / "per_cpu").iterdir())
        for name, value in (
            *(("tracing_on", 0), ("trace_clock", "mono"), ("buffer_size_kb", kib)),
            ("options/overwrite", 1),
        ):
            (self.home / name).write_text(str(value))

    def start(self, session: str = "critpath-test") -> None:
        (self.raw / "formats").mkdir(parents=True)
        for name in ("header_page", "header_event"):
            (self.raw / name).write_text((self.home / "events" / name).read_text())
        for event in (*EVENTS, "ftrace/print"):
            text = (TRACEFS / "events" / event / "format").read_text()
            (self.raw / "formats" / event.replace("/", ".")).write_text(text)
        for event in EVENTS:
            (self.home / "events" / event / "enable").write_text("1")
        system = os.uname()
        self.about = {
            "format": "critpath/raw/1",
            "session": session,
            "clock": "mono",
            "epoch": time.time_ns() - time.monotonic_ns(),
            "page_bytes": 4096,
            "cpus": self.cpus,
            "profile": "minimal",
            "events": list(EVENTS),
            "host": {"name": "host", "kernel": system.release, "machine": system.machine},
            "recorder": {"version": "0.1.0"},
        }
        (self.home / "tracing_on").write_text("1")
        self.about["begin"] = time.monotonic_ns()
        (self.raw / "raw.json").write_text(json.dumps(self.about))
        (self.raw / "statedump.json").write_text(json.dumps(threads()))

    def mark(self, text: bytes) -> None:
        descriptor = os.open(self.home / "trace_marker", os.O_WRONLY)
        try:
            os.write(descriptor, text)
        finally:
            os.close(descriptor)

    def stop(self) -> dict[int, str]:
        """Save the pages; return the kernel's own text of them by cpu."""
        (self.home / "tracing_on").write_text("0")
        self.about["end"] = time.monotonic_ns()
        (self.raw / "statedump-end.json").write_text(json.dumps(threads()))
        stats, texts = {}, {}
        for cpu in self.cpus:
            home = self.home / "per_cpu" / f"cpu{cpu}"
            texts[cpu] = (home / "trace").read_text(encoding="utf-8", errors="replace")
            descriptor = os.open(home / "trace_pipe_raw", os.O_RDONLY | os.O_NONBLOCK)
            try:
                with (self.raw / f"cpu{cpu}").open("wb") as stream:
                    while page := self.read(descriptor):
                        stream.write(page)
            finally:
                os.close(descriptor)
            lines = (line.partition(":") for line in (home / "stats").read_text().splitlines())
            stats[cpu] = {k: int(v) for k, _, v in lines if v.strip().isdecimal()}
        (self.raw / "stats.json").write_text(json.dumps(stats))
        (self.raw / "raw.json").write_text(json.dumps(self.about))
        return texts

    @staticmethod
    def read(descriptor: int) -> bytes:
        try:
            return os.read(descriptor, 4096)
        except BlockingIOError:
            return b""


@pytest.fixture(scope="module")
def make_instance():
    """Return a function that makes an instance; skip where there is no tracefs for us."""
    if os.geteuid() or not os.access(TRACEFS / "instances", os.W_OK):
        pytest.skip("needs root and a tracefs that can be mounted")
    made = []

    def make(kib: int, raw: Path) -> Instance:
        home = TRACEFS / "instances" / new_session_name()
        try:
            home.mkdir()
        except OSError as error:
            pytest.skip(f"no instance can be made: {error}")
        made.append(home)
        return Instance(home, kib, raw)

    yield make
    for home in made:
        (home / "tracing_on").write_text("0")
        (home / "events" / "enable").write_text("0")
        home.rmdir()
