"""A flight recorder and its metrics are asked by root, and by who is named; others are refused."""

from __future__ import annotations

import os
import pwd
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from critpath.commands import main
from critpath_marks.marks import execution
from critpath_record.flight.state import RunningFlight, lock_path, socket_path

pytestmark = pytest.mark.usefixtures("traceable")

CRITPATH = (sys.executable, "-m", "critpath")
KIND = f"checkout-{os.getpid()}"
NOBODY = pwd.getpwnam("nobody").pw_uid
OTHER = NOBODY - 1
REQUEST = b"GET /metrics HTTP/1.0\r\n\r\n"


def as_user(uid: int, work: Callable[[], str]) -> str:
    """Return what some work as a user says; why it failed, if it did."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        said = "nothing"
        try:
            os.setgroups([])
            os.setgid(pwd.getpwuid(uid).pw_gid if uid == NOBODY else uid)
            os.setuid(uid)
            os.chdir("/")
            said = work()
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is said
            said = type(error).__name__
        finally:
            os.write(writing, said.encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as stream:
        said = stream.read()
    os.waitpid(pid, 0)
    return said


def read(place: str) -> str:
    """Return what there is to read at a place of metrics."""
    what, _, where = place.partition(":")
    if what == "file":
        return Path(where).read_text()
    family = socket.AF_UNIX if what == "unix" else socket.AF_INET
    with socket.socket(family) as to:
        to.settimeout(60)
        to.connect(where if what == "unix" else (what, int(where)))
        answer = b""
        with suppress(ConnectionError):
            to.sendall(REQUEST)
            while part := to.recv(1 << 16):
                answer += part
    return answer.decode()


class Flight:
    """A flight recorder, and what tells its metrics at three places, in two ways each."""

    def __init__(self, start: Callable[..., Any], hold_port: Callable[[], int], top: Path) -> None:
        self.place = top / f"{top.name}-{os.getpid()}"
        self.recorder = start(
            *(*CRITPATH, "record", "--always", "-o", self.place, "--profile", "minimal"),
            *("--memory", "8M", "--overhead", "1000%", "--usual", "0", "--calibrate", "off"),
            cwd=top,
        )
        self.recorder.wait_until_said("flight recorder: profile")
        self.told = {"alone": [], "nobody": []}
        self.tellers = []
        for number, (who, places) in enumerate(self.told.items()):
            places += [f"127.0.0.1:{hold_port()}"]
            places += [f"unix:{top}/{number}.sock", f"file:{top}/{number}.prom"]
            more = ("--for", who) if who == "nobody" else ()
            for place in places:
                words = (*CRITPATH, "metrics", place, self.place, "--every", "1s", *more)
                self.tellers.append(start(*words, cwd=top))

    def until(self, place: str, text: str) -> str:
        """Return what is told once it has a text: root is answered."""
        while True:
            with execution(KIND):
                pass
            with suppress(OSError):
                if text in (found := read(place)):
                    return found


@pytest.fixture(scope="module")
def flight(start: Callable[..., Any], hold_port: Callable[[], int]) -> Iterator[Flight]:
    if os.geteuid():
        pytest.skip("becomes other users, which needs root")
    # Not pytest's place: another pytest that begins takes others' right to pass away.
    with tempfile.TemporaryDirectory(prefix="asked-", dir="/var/tmp") as name:
        top = Path(name)
        top.chmod(0o711)  # or nobody would fail before
        made = Flight(start, hold_port, top)
        yield made
        for one in made.tellers:
            one.kill()
        RunningFlight.find(made.place).ask({"stop": True}, 10)
        made.recorder.end()


def test_root_is_told_of_marked_executions(flight: Flight) -> None:
    for places in flight.told.values():
        for place in places:
            found = flight.until(place, f'_count{{kind="{KIND}"}}')
            text = found[found.index("# HELP") :]
            kinds = {family.name: family for family in text_string_to_metric_families(text)}
            up = kinds["critpath_flight_up"].samples
            assert [one.value for one in up] == [1]
            assert {one.labels["over"] for one in kinds["critpath_cost_ratio"].samples} == {
                *("budget", "run", "second")
            }


@pytest.mark.parametrize("uid", [NOBODY, OTHER])
@pytest.mark.parametrize("verb", ["dump", "dump --stop", "top --duration 1", "metrics file:x"])
def test_no_other_user_asks_a_flight_recorder(flight: Flight, verb: str, uid: int) -> None:
    def ask(*place: object) -> str:
        with redirect_stderr(StringIO()) as said:
            code = main([*verb.split(), *map(str, place)])
        return f"{code} {said.getvalue()}"

    if verb.startswith("top"):  # what it imports stands where nobody may look
        with redirect_stdout(StringIO()):
            assert main([*verb.split(), str(flight.place)]) == 0
    # A directory that is no flight recorder's to who may not look into it is a recording for top.
    for place in ((),) if verb.startswith("top") else ((), (flight.place,)):
        said = as_user(uid, lambda place=place: ask(*place))
        assert said.startswith("2 critpath: no flight recorder runs"), said
        assert "that this user may ask" in said
    assert RunningFlight.find(flight.place).ask({"status": True}, 10)["dumps"]["made"] == 0


def test_neither_its_socket_nor_its_dumps_are_others(flight: Flight) -> None:
    path = socket_path(lock_path(flight.place))

    def connect() -> str:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as to:
            to.connect(str(path))
        return "connected"

    assert as_user(NOBODY, connect) == "PermissionError"
    assert as_user(NOBODY, lambda: str([*flight.place.iterdir()])) == "PermissionError"
    # And were the directory open, the socket itself would not be.
    assert path.stat().st_mode & 0o022 == 0
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_metrics_are_told_to_who_is_named_alone(flight: Flight) -> None:
    for who, places in flight.told.items():
        for place in places:
            flight.until(place, "critpath_flight_up")
            for uid in (NOBODY, OTHER):
                said = as_user(uid, lambda place=place: read(place))
                allowed = who == "nobody" and uid == NOBODY
                assert ("critpath_flight_up" in said) == allowed, (place, uid, said)
                assert allowed or said in {"PermissionError", ""} or " 403 " in said
