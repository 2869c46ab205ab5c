"""What each part of recording takes from what is recorded: probe, beats, watch, softirq_raise.

``python evaluation/benchmarks/beats.py [ROUNDS]``, as root, on a machine that may be traced.

Two loads in processes of their own, tied to one cpu: hashing, and round trips over TCP on
loopback between two processes.  In every round each way of recording is on for a while, in
random order.  A cost is the median over rounds of what the load got done without it, against
with it: without is the same round's turn with the events of the profile `minimal` but
`irq/softirq_raise`, and nothing else.  "a second of the load's own cpu time" leaves out who
else had the cpu, its neighbours and the recorder's threads, whose own time is given below.

Each cost is less than what a shared machine's speed changes by from turn to turn.  So beats and
probes are on at `TIMES` their pace, softirq_raise in so many instances, and a cost is divided.
"""

from __future__ import annotations

import contextlib
import hashlib
import multiprocessing
import os
import random
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

from critpath_marks.sessions import new_session_name
from critpath_record import machine
from critpath_record.ftrace import hands, tracefs
from critpath_record.ftrace.drain import online_cpus
from critpath_record.ftrace.recorder import FtraceRecorder
from critpath_record.ftrace.tracefs import Instance
from critpath_record.recorder import RecorderSettings

SPAN = 0.4  # s
TIMES = 10
RAISE = "events/irq/softirq_raise/enable"
Pace = tuple[int, float, float]  # units done, wall s, cpu s


def hash_blocks(ends: Connection) -> None:
    """Hash for so many seconds whenever asked to."""
    block = b"x" * 4096
    while (span := ends.recv()) is not None:
        begin, cpu, units = time.monotonic(), time.process_time(), 0
        while time.monotonic() - begin < span:
            hashlib.sha256(block).digest()
            units += 1
        ends.send((units, time.monotonic() - begin, time.process_time() - cpu))


def echo(listening: socket.socket) -> None:
    """Answer one client until it hangs up; the last answer is the cpu time used."""
    peer, _ = listening.accept()
    with peer:
        while data := peer.recv(64):
            peer.sendall(f"{time.process_time():.9f}".encode() if data == b"?" else data)


def trip(ends: Connection) -> None:
    """Make round trips for so many seconds whenever asked to."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = multiprocessing.Process(target=echo, args=(listening,))
        server.start()
        with socket.create_connection(listening.getsockname()) as server_end:
            server_end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

            def ask(text: bytes) -> bytes:
                server_end.sendall(text)
                return server_end.recv(64)

            while (span := ends.recv()) is not None:
                before = float(ask(b"?")) + time.process_time()
                begin, units = time.monotonic(), 0
                while time.monotonic() - begin < span:
                    ask(b"x")
                    units += 1
                wall = time.monotonic() - begin
                ends.send((units, wall, float(ask(b"?")) + time.process_time() - before))
        server.join()


@contextlib.contextmanager
def load(run: Callable[[Connection], None], cpu: int) -> Iterator[Callable[[], Pace]]:
    """Run a load on one cpu; yield what measures it."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=run, args=(theirs,))
    process.start()
    os.sched_setaffinity(process.pid or 0, {cpu})

    def measure() -> Pace:
        ours.send(SPAN)
        found: Pace = ours.recv()
        return found

    try:
        yield measure
    finally:
        ours.send(None)
        process.join()


def thread_times() -> dict[str, int]:
    """Return the cpu time (ns) of this process' threads by name."""
    found: dict[str, int] = {}
    for task in Path("/proc/self/task").iterdir():
        name = (task / "comm").read_text().strip()
        found[name] = found.get(name, 0) + int((task / "schedstat").read_text().split()[0])
    return found


class Ways:
    """The ways of recording: each puts one part on, and takes it off again."""

    def __init__(self, recorder: FtraceRecorder, root: Path) -> None:
        recorder._pulse.stop()
        self._instance, self._events = recorder._instance, recorder._selection.events
        recorder._hands.stop(time.monotonic_ns())
        recorder._pulse = recorder._hands = None
        self._instance.write(RAISE, "0")
        self.more = [Instance.pin(root, new_session_name() + f"-{n}") for n in range(TIMES)]
        for instance in self.more:
            instance.make()
            instance.write("trace_clock", "mono")
            instance.write("buffer_size_kb", "64")
        self._probes = machine.make_probes()
        self.names = ("tracing", "softirq_raise", "probe", "beats", "watch", "all, once")
        self.threads: dict[str, list[int]] = {}

    @contextlib.contextmanager
    def on(self, name: str) -> Iterator[None]:
        """Record this way."""
        every = name == "all, once"
        times = 1 if every else TIMES
        with contextlib.ExitStack() as parts:
            for instance in self.more[:times] if every or name == "softirq_raise" else ():
                instance.write(RAISE, "1")
                parts.callback(instance.write, RAISE, "0")
            if every or name == "probe":
                machine.PERIOD, machine._SHARE = 0.05 / times, 0.0024 * times
                measuring = machine.Machine(self._probes)
                measuring.start()
                parts.callback(measuring.stop, alone=False)
            if every or name == "watch":
                watch = hands.Watch(self._instance, self._events)
                parts.callback(lambda: watch.stop(time.monotonic_ns()))
            if every or name == "beats":
                hands.PERIOD = 10_000_000 // times
                parts.callback(hands.Pulse(self._instance, online_cpus()).stop)
            time.sleep(0.02)
            before = thread_times()
            yield
            for thread, used in thread_times().items() if every else ():
                self.threads.setdefault(thread, []).append(used - before.get(thread, used))


def interval(values: list[float], times: int) -> str:
    """Return the median in percent, with an interval of 95 % from the order statistics."""
    ordered = sorted(value / times for value in values)
    reach = 0.98 * len(ordered) ** 0.5
    low = ordered[max(0, round(len(ordered) / 2 - reach) - 1)]
    high = ordered[min(len(ordered) - 1, round(len(ordered) / 2 + reach))]
    return f"{100 * statistics.median(ordered):+.2f} % ({100 * low:+.2f} to {100 * high:+.2f})"


def measure_load(ways: Ways, run: Callable[[Connection], None], rounds: int) -> None:
    """Print a load's table."""
    found: dict[str, list[Pace]] = {name: [] for name in ways.names}
    ways.threads = {}
    with load(run, online_cpus()[-1]) as measure:
        for _ in range(rounds):
            for name in random.sample(ways.names, len(ways.names)):
                with ways.on(name):
                    found[name].append(measure())
    base = found["tracing"]
    print(f"{run.__name__}: {statistics.median(u / c for u, _, c in base):,.0f} a cpu second")
    print("| with | wall | a second of the load's own cpu time |\n|---|---:|---:|")
    for name, paces in found.items():
        if paces is not base:
            times = TIMES if name in {"softirq_raise", "probe", "beats"} else 1
            cells = [
                interval(
                    [(b[0] / b[of]) / (p[0] / p[of]) - 1 for b, p in zip(base, paces, strict=True)],
                    times,
                )
                for of in (1, 2)
            ]
            print(f"| {name} | {cells[0]} | {cells[1]} |")
    for name, used in sorted(ways.threads.items()):
        print(f"{name:16} {100 * statistics.mean(used) / 1e9 / SPAN:.3f} % of a cpu")
    print(flush=True)


def main() -> None:
    """Record, and measure each load."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    with tempfile.TemporaryDirectory() as place:
        recorder = FtraceRecorder(RecorderSettings(new_session_name(), Path(place)))
        recorder.open()
        ways = Ways(recorder, tracefs.find())
        try:
            for run in (hash_blocks, trip):
                measure_load(ways, run, rounds)
        finally:
            for instance in ways.more:
                instance.remove()
            recorder.abort()


if __name__ == "__main__":
    main()
