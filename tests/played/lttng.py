"""A machine with LTTng on it, played: `lttng` and `lttng-sessiond` as 2.13.9 behaves in the guest.

Its state is a directory.  In one process with critpath it answers what `lttng` would; as a program
(``python -S``, called ``lttng`` or ``lttng-sessiond``, with PLAYED in its environment) it is what a
test of processes starts.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

NAMESPACE = 'xmlns="https://lttng.org/xml/ns/lttng-mi"'


class LttngError(Exception):
    """What `lttng` prints to stderr, and its exit code."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


class Machine:
    """The machine's state: facts (what LTTng does), calls, sessions and the daemon."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._sessions = directory / "sessions"
        self.daemons: dict[int, str] = {}  # played ones: their pids, each with its session

    def set(self, **facts: object) -> None:
        (self.directory / "facts.json").write_text(json.dumps({**self.facts(), **facts}))

    def facts(self) -> dict:
        place = self.directory / "facts.json"
        if place.exists():
            return json.loads(place.read_text())
        return {"version": "2.13.9", "events": ["sched_switch", "sched_waking", "lttng_logger"]}

    def calls(self) -> list[list[str]]:
        place = self.directory / "calls"
        lines = place.read_text().splitlines() if place.exists() else []
        return [json.loads(line) for line in lines]

    def verbs(self) -> list[str]:
        """What was asked of lttng, in order, less the asking."""
        verbs = [
            next(a for a in call if not a.startswith("-") and a != "xml") for call in self.calls()
        ]
        return [verb for verb in verbs if verb not in {"list", "version"}]

    def add_session(self, name: str, path: str = "/elsewhere") -> None:
        place = self._sessions / name
        place.mkdir(parents=True)
        (place / "path").write_text(path)

    def sessions(self) -> list[str]:
        return sorted(p.name for p in self._sessions.iterdir()) if self._sessions.exists() else []

    def daemon_runs(self) -> int:
        """Return the pid of the session daemon, 0 without one."""
        try:
            pid = int((self.directory / "daemon").read_text())
            if pid not in self.daemons:
                os.kill(pid, 0)
        except (OSError, ValueError):
            return 0
        return pid

    def start_foreign_daemon(self) -> None:
        """One that systemd started."""
        (self.directory / "daemon").write_text(str(os.getpid()))

    def loaded(self) -> str:
        """Return the session file that was loaded last."""
        return (self.directory / "loaded").read_text()

    def tree(self) -> ET.Element:
        return ET.fromstring(self.loaded())  # noqa: S314 - our own

    def answer(self, arguments: Sequence[str]) -> str:
        """Do what one call of `lttng` does; return what it prints, or raise LttngError."""
        with (self.directory / "calls").open("a") as stream:
            stream.write(json.dumps([*arguments]) + "\n")
        facts = self.facts()
        words = [a for a in arguments if not a.startswith("-") and a != "xml"]
        options = dict(a[2:].split("=", 1) for a in arguments if a.startswith("--") and "=" in a)
        verb, names = words[0], words[1:]
        if verb == "version":
            return _print("version", f"<version><string>{facts['version']}</string></version>")
        if not self.daemon_runs():
            raise LttngError("No session daemon is available")
        if verb in facts.get("fails", {}):
            raise LttngError(facts["fails"][verb])
        if facts.get("prints"):
            return facts["prints"]
        if verb == "list" and "--kernel" in arguments:
            return _list_events(facts["events"])
        if verb == "list":
            return self._list(names, facts.get("counts", [0, 0]))
        if verb == "load":
            self._load(Path(options["input-path"]).read_text())
        elif verb in {"start", "stop"}:
            place = self._sessions / names[0]
            if not place.exists():
                raise LttngError("Session name not found", 23)
            if verb == "start":
                self._start(place, facts.get("metadata", "").encode())
        elif verb == "destroy":
            if not (self._sessions / names[0]).exists():
                raise LttngError(f"Session name {names[0]} not found", 23)
            shutil.rmtree(self._sessions / names[0])
        return ""

    def _list(self, names: Sequence[str], counts: Sequence[int]) -> str:
        there = self.sessions()
        if names and names[0] not in there:
            raise LttngError(f"Session '{names[0]}' not found")
        listed = [self._describe(name, *counts) for name in names or there]
        return _print("list", "<sessions>" + "".join(listed) + "</sessions>")

    def _describe(self, name: str, discarded: int, lost: int) -> str:
        path = escape((self._sessions / name / "path").read_text())
        return (
            f"<session><name>{name}</name><path>{path}</path><domains>"
            "<domain><type>KERNEL</type><channels><channel><name>kernel</name><attributes>"
            "<subbuffer_size>1048576</subbuffer_size><subbuffer_count>8</subbuffer_count>"
            f"<discarded_events>{discarded}</discarded_events>"
            f"<lost_packets>{lost}</lost_packets></attributes></channel></channels></domain>"
            "</domains></session>"
        )

    def _load(self, text: str) -> None:
        (self.directory / "loaded").write_text(text)
        session = ET.fromstring(text).find("session")  # noqa: S314 - our own
        assert session is not None
        path = session.findtext(".//destination/path") or ""
        self.add_session(session.findtext("name") or "", path)

    def _start(self, place: Path, metadata: bytes) -> None:
        trace = Path((place / "path").read_text()) / "kernel"
        trace.mkdir(parents=True)
        head = b"\x1e{" if "CTF_2" in self.loaded() else b"\x57\x1d\xd1\x75"
        (trace / "metadata").write_bytes(metadata or head)


def _list_events(names: Sequence[str]) -> str:
    if not names:
        raise LttngError("Unable to list kernel events: Kernel tracer not available")
    events = "".join(f"<event><name>{name}</name></event>" for name in names)
    return _print("list", f"<domains><domain><events>{events}</events></domain></domains>")


def _print(name: str, inner: str) -> str:
    head = f'<?xml version="1.0" encoding="UTF-8"?>\n<command {NAMESPACE}><name>{name}</name>'
    return f"{head}\n<output>{inner}</output></command>\n"


# As programs


def be_lttng(machine: Machine) -> None:
    arguments = sys.argv[1:]
    verb = next((a for a in arguments if not a.startswith("-") and a != "xml"), "")
    if verb in machine.facts().get("hangs", []):
        signal.pause()
    sys.stdout.write(machine.answer(arguments))


def be_daemon(machine: Machine) -> None:
    """Run until SIGTERM."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text("lttng-sessiond")  # the real one is found by it
    if machine.facts().get("daemon_fails"):
        raise LttngError(machine.facts()["daemon_fails"])
    if machine.daemon_runs():
        raise LttngError("A session daemon is already running.")
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    (machine.directory / "daemon").write_text(str(os.getpid()))
    while True:
        signal.pause()


def main() -> None:
    machine = Machine(Path(os.environ["PLAYED"]))
    try:
        (be_lttng if Path(sys.argv[0]).name == "lttng" else be_daemon)(machine)
    except LttngError as error:
        sys.stderr.write(f"Error: {error}\n")
        sys.exit(error.code)


# In the process of critpath


def play(machine: Machine, replace, programs, clock) -> None:
    """Let `critpath_record.lttng` find this LTTng in the place of programs and daemons.

    Parameters
    ----------
    machine : Machine
    replace : callable
        `pytest.MonkeyPatch.setattr`.
    programs : module
        `tests.played.programs`.
    clock : Clock
        In the place of `time` where critpath waits for a daemon.
    """
    from critpath_record.lttng import daemon, program  # noqa: PLC0415 - not for the programs

    def run(words, timeout=None, **_):
        verb = next((a for a in words[1:] if not a.startswith("-") and a != "xml"), "")
        if verb in machine.facts().get("hangs", []):
            raise program.subprocess.TimeoutExpired(words, timeout)
        try:
            return programs.CompletedProcess(words, 0, machine.answer(words[1:]).encode(), b"")
        except LttngError as error:
            return programs.CompletedProcess(words, error.code, b"", f"Error: {error}\n".encode())

    def launch(_program, environment, stderr):
        pid = 5_000_000 + len(machine.daemons)  # above all that a kernel gives
        said = machine.facts().get("daemon_fails")
        if said:
            os.write(stderr, f"Error: {said}\n".encode())
            return pid
        machine.daemons[pid] = environment[daemon.DAEMON_VARIABLE]
        (machine.directory / "daemon").write_text(str(pid))
        return pid

    def send(pid, number):
        if pid not in machine.daemons:
            raise ProcessLookupError
        if number in {signal.SIGTERM, signal.SIGKILL}:
            del machine.daemons[pid]
            (machine.directory / "daemon").unlink()

    replace(program, "subprocess", programs.PlayedPrograms(run))
    replace(daemon, "time", clock)
    replace(daemon, "_launch", launch)
    replace(daemon, "send", send)
    replace(daemon, "_is_alive", lambda pid, _started=0: pid in machine.daemons)
    replace(daemon, "_session_members", lambda _: [])
    replace(daemon, "list_pids", lambda: [*machine.daemons])
    replace(daemon, "read_name", lambda _: "lttng-sessiond")
    replace(daemon, "read_stat", lambda _: ["S", "1"])
    replace(daemon, "read_variable", lambda pid, _name: machine.daemons[pid])
