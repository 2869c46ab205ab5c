"""One flight recorder of this kernel: what is held, dumped, put right and left."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from critpath_record.flight.conditions import Condition
from critpath_record.flight.dumps import find_dumps
from critpath_record.flight.state import RunningFlight
from critpath_record.flight.triggers import Triggers
from critpath_record.stacks.sources import find_obstacles

pytestmark = pytest.mark.usefixtures("traceable")

INSTANCES = Path("/sys/kernel/tracing/instances")
RUN = Path("/run/critpath")
# Others may mark executions meanwhile: these have a name of their own.
KIND = f"checkout-{os.getpid()}"
SLOW = f"latency {KIND} > 250ms"
# Answers requests; one that is asked to be slow waits, in an execution that it marks.
SERVER = """
import http.server, sys, time
from critpath_marks.marks import execution
class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.path == "/slow":
            with execution(sys.argv[1]):
                time.sleep(0.3)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")
    def log_message(self, *_):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Answer)
print(server.server_port, flush=True)
server.serve_forever()
"""


def instances_of(pid: int) -> list[str]:
    return [p.name for p in INSTANCES.iterdir() if f"-{pid}-" in p.name]


class Flight:
    """A flight recorder that runs, and a server beside it that is asked."""

    def __init__(self, start: Callable[..., Any], top: Path) -> None:
        self.place = top / f"{top.name}-{os.getpid()}"
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.manager.bind(str(top / "notify"))
        self.manager.settimeout(60)
        (top / "server.py").write_text(SERVER)
        self.server = start(sys.executable, "server.py", KIND, cwd=top)
        self.port = int(self.server.read_out())
        # Where they can be had.
        self.stacks = () if find_obstacles("native") else ("--stacks", "native,samples")
        self.stacks += () if find_obstacles("files") else ("--files",)
        self.client = http.client.HTTPConnection("127.0.0.1", self.port)
        self.get("/")  # connected before anything is recorded
        # What the first look at stacks costs is little of so long a horizon: it closes nothing.
        words = ("--profile", "requests", "--memory", "16M", "--overhead", "1000%/10s")
        when = ("--when", SLOW, "--dumps", "2", "--after", "0", "--usual", "0")
        self.recorder = start(
            *(sys.executable, "-m", "critpath", "record", "--always", "-o", self.place),
            *(*words, *when, "--calibrate", "off", *self.stacks),
            cwd=top,
            NOTIFY_SOCKET=str(top / "notify"),
        )
        self.recorder.wait_until_said("flight recorder: profile")

    def get(self, path: str) -> None:
        self.client.request("GET", path)
        self.client.getresponse().read()

    def trigger(self, made: Path) -> dict[str, Any]:
        return json.loads((made / "critpath.json").read_text())["trigger"]

    def dumps_for(self, when: str) -> list[Path]:
        return [made for made in find_dumps(self.place) if self.trigger(made)["when"] == when]


@pytest.fixture(scope="module")
def flight(start: Callable[..., Any], tmp_path_factory: Any) -> Iterator[Flight]:
    made = Flight(start, tmp_path_factory.mktemp("flight"))
    yield made
    made.client.close()
    made.manager.close()


def test_a_slow_execution_is_saved_and_told(
    flight: Flight, wait_for: Callable[..., Any], critpath: Callable[..., Any]
) -> None:
    assert flight.manager.recv(4096).startswith(b"READY=1\nSTATUS=flight recorder")
    # Nothing of what must not run as root is in the process.
    assert "numpy" not in Path(f"/proc/{flight.recorder.pid}/maps").read_text()
    for path in ("/", "/", "/slow", "/"):
        flight.get(path)
    [slow] = wait_for(lambda: flight.dumps_for(SLOW))
    found = json.loads((slow / "critpath.json").read_text())
    assert found["trigger"]["kind"] == KIND
    assert found["execution"] == "marker"
    shown = critpath("path", slow)
    assert shown.returncode == 0, shown.stderr
    # The slow one is whole, and what it waited for is known.
    assert "waiting for a timer" in shown.stdout


def test_requests_of_a_server_without_marks_are_in_a_dump(
    flight: Flight, critpath: Callable[..., Any]
) -> None:
    from critpath.schema.ways import SOCKETS  # noqa: PLC0415
    from critpath_record.ftrace.preflight import offered_way  # noqa: PLC0415

    if offered_way() != SOCKETS:
        pytest.skip("this kernel has no events of sockets")
    for path in ("/", "/", "/slow", "/"):
        flight.get(path)
    done = critpath("dump", flight.place, "--reason", "to see")
    assert done.returncode == 0, done.stderr
    made = Path(done.stdout.strip())
    assert critpath("doctor", made).returncode == 0
    done = critpath("path", made, "--execution", f"requests:port={flight.port}")
    assert done.returncode == 0, done.stderr
    # The first and the last of a connection may reach over the edges; the slow one is whole.
    longest = r"[2-4] requests, median .*, longest ([3-9]\d\d ms|[\d.]+ s)"
    assert re.search(longest, done.stdout), done.stdout
    assert "waiting for a timer" in done.stdout
    if not flight.stacks:
        return
    # The stacks are named, and no memory of a program stays.
    names = {file.name for file in (made / "stacks").iterdir()}
    files = {"files.json", "files.bin"} if "--files" in flight.stacks else set()
    assert names == {"frames.json", "samples.bin", "python.json", "python.bin", *files}
    manifest = json.loads((made / "critpath.json").read_text())
    assert manifest["layers"]["stacks"]["covers"] > 0
    assert manifest["recorder"]["stacks"]["samples"] > 0
    line = 1 + SERVER[: SERVER.index("time.sleep")].count("\n")
    done = critpath("path", made, "--execution", f"requests:port={flight.port}", "--top", 5)
    assert f"do_GET ({flight.place.parent.name}/server.py:{line})" in done.stdout, done.stdout


def test_requests_are_followed_live(flight: Flight, wait_for: Callable[..., Any]) -> None:
    from critpath.schema.ways import SOCKETS  # noqa: PLC0415
    from critpath_record.ftrace.preflight import offered_way  # noqa: PLC0415

    if offered_way() != SOCKETS:
        pytest.skip("this kernel has no events of sockets")

    def told() -> list[Any]:
        answer = RunningFlight.find(flight.place).ask({"top": 0, "from": 0}, 10)
        return [row for row in answer["requests"] if row[0].endswith(f":{flight.port}")]

    def followed() -> bool:
        # The budget of a busy machine may leave some out: more are asked until enough are seen.
        for path in ("/", "/", "/slow", "/"):
            flight.get(path)
        return sum(row[1] for row in told()) >= before + 4

    before = sum(row[1] for row in told())
    wait_for(followed)
    [(_, requests, took, cut, resets, _)] = told()
    assert took > 300_000_000
    assert resets == 0
    assert cut < requests  # by dumps, and where nothing was recorded


def test_what_others_switch_is_a_gap_and_put_right(
    flight: Flight, wait_for: Callable[..., Any]
) -> None:
    [base] = [name for name in instances_of(flight.recorder.pid) if "layer-base" in name]
    (INSTANCES / base / "tracing_on").write_text("0")
    wait_for(lambda: (INSTANCES / base / "tracing_on").read_text().strip() == "1")
    flight.recorder.send(signal.SIGUSR1)
    [made] = wait_for(lambda: flight.dumps_for("signal USR1"))
    gaps = [json.loads(line) for line in (made / "gaps.jsonl").read_text().splitlines()]
    assert [gap for gap in gaps if gap["why"] == "other"]


def test_it_ends_as_it_is_asked_to_and_leaves_what_it_made(
    flight: Flight, wait_for: Callable[..., Any], critpath: Callable[..., Any]
) -> None:
    def told() -> dict[str, Any]:
        return json.loads(critpath("dump", "--status", flight.place, "--json").stdout)["dumps"]

    wait_for(lambda: told()["made"] == 3)
    assert told()["kept"] == 3  # one that a condition made, and two that were asked for
    assert critpath("dump", "--stop", flight.place).returncode == 0
    assert flight.recorder.end() == 0
    assert json.loads((flight.place / "flight.json").read_text())["state"] == "stopped"
    assert not instances_of(flight.recorder.pid)
    assert not [p for p in RUN.iterdir() if flight.place.name in p.name]


def test_the_kernel_tells_which_process_failed(
    start: Callable[..., Any], wait_for: Callable[..., Any], tmp_path: Path
) -> None:
    triggers = Triggers([Condition.parse("exit != 0")])
    # Not a process of ours: that a dump fails is no reason for another.
    shell = start("sh", "-c", "sh -c 'echo $$; exit 3'; exit 0", cwd=tmp_path)
    failing = int(shell.read_out())
    assert shell.end() == 0
    found: dict[int, int] = {}  # others fail, too

    def told() -> int | None:
        found.update(triggers._read_exits())
        return found.get(failing)

    assert wait_for(told) == 3
    triggers.close()


def test_one_that_is_killed_leaves_nothing(
    start: Callable[..., Any],
    wait_for: Callable[..., Any],
    critpath: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """While it makes a dump."""
    place = tmp_path / f"{tmp_path.name}-{os.getpid()}"
    words = ("record", "--always", "--profile", "minimal", "--memory", "8M", "-o", place)
    # To be asked so often costs more than 1 %, and nothing would be opened.
    more = ("--calibrate", "off", "--overhead", "1000%/10s")
    recorder = start(sys.executable, "-m", "critpath", *words, *more, cwd=tmp_path)
    recorder.wait_until_said("flight recorder: profile")

    def dumps() -> bool:
        recorder.send(signal.SIGUSR1)  # while nothing is held yet, none is made
        return len([*place.iterdir()]) > 1

    wait_for(dumps)
    recorder.send(signal.SIGKILL)
    recorder.process.wait()
    # What others leave at this moment is not of this test: it need not find a clean machine.
    cleaned = critpath("doctor", "--clean")
    assert cleaned.returncode in {0, 1}
    assert not instances_of(recorder.pid)
    assert not [p for p in RUN.iterdir() if place.name in p.name or f"-{recorder.pid}-" in p.name]
    left = {p.name for p in place.iterdir()} - {p.name for p in find_dumps(place)}
    assert left == {"flight.json"}, (cleaned.stdout, cleaned.stderr)
    assert json.loads((place / "flight.json").read_text())["state"] == "killed"
    for made in find_dumps(place):
        assert json.loads((made / "critpath.json").read_text())["state"] in {
            *("complete", "interrupted")
        }
        assert critpath("doctor", made).returncode == 0
