"""Writes the seeds: small inputs of every kind, made by what writes traces and files here.

    python tests/fuzz/seeds.py

They are in ``corpus/TARGET`` beside what fuzzing has found since; the same seeds come from
the same sources, so that running it again changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import random
import struct
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(1, str(Path(__file__).resolve().parent.parent))

import saved
import sockets
import stacks
import streams
import told
from oracle import trace_dat_write
from oracle.ctf_write import Generator, Writer
from oracle.perf_write import PerfFile, switch, waking

from critpath import __version__
from critpath.documents.calibration import (
    CALIBRATION_FORMAT,
    CalibrationDocument,
    DetectableEntry,
    FalseAlarmsEntry,
    FloorEntry,
    LackEntry,
    RateEntry,
    RecordingEntry,
)
from critpath.graph.critical_path import take_executions
from critpath.model import Kind
from critpath.read.metadata.load import read_metadata_bytes
from critpath.read.metadata.schema import IntegerClass, VarintClass
from critpath.schema.environment import Environment
from critpath.store.dataset import DATASET, part_name
from critpath.store.sessions import make_sessions

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

CORPUS = HERE / "corpus"


def keep(target: str, data: bytes) -> None:
    """Put an input into a target's corpus, under the name that libFuzzer gives it."""
    directory = CORPUS / target
    directory.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha1(data, usedforsecurity=False).hexdigest()
    (directory / name).write_bytes(data)


class Machine(Generator):
    """Writes packets of a few threads on a cpu for a schema that was read from metadata."""

    def write(self, out, of, path, env, fixed):
        """Give numbers of threads, of cpus and of everything else plausible values."""
        if isinstance(of, IntegerClass) and not of.roles and not of.mappings:
            env[path] = value = self.value(path[-1], of.bits)
            out.align(of.align)
            out.number(value, of.bits, big=of.big_endian, reverse=of.bit_reversed)
            return
        if isinstance(of, VarintClass) and not of.roles:
            env[path] = self.value(path[-1], 7)
            out.align(8)
            self.varint(out, of, env[path])
            return
        super().write(out, of, path, env, fixed)

    def value(self, name: str, bits: int) -> int:
        """Return a value for a field by its name."""
        most = (1 << bits) - 1
        if name == "cpu_id":
            return self.cpu
        if "tid" in name or "pid" in name:
            return self.rng.randint(0, 5)
        if name.endswith("state"):
            return self.rng.choice([0, 0, 1, 2, 16, 256])
        if name.endswith(("n", "m", "length", "len")):
            return self.rng.randint(0, 3)
        return self.rng.randint(0, min(most, 9))

    def trace(self, schema, cpu: int, packets: int, count: int) -> bytes:
        """Return a stream file."""
        self.cpu = cpu
        [stream] = schema.streams.values()
        clock, data = 1_000_000 + cpu, b""
        # A trace without switches is refused; with more of them there is more to walk.
        switches = [n for n, e in stream.events.items() if e.name.endswith("sched_switch")]
        self.numbers = [*stream.events, *switches * (len(stream.events) // 3)]
        for sequence in range(packets):
            data += self.one_packet(schema, stream, clock, sequence, count)
            clock += 20_000
        return data

    def one_packet(self, schema, stream, clock: int, sequence: int, count: int) -> bytes:
        """Return the bytes of a packet: written twice, as its size is known at its end."""
        state, content, size = self.rng.getstate(), 0, 0
        for _ in range(2):
            self.rng.setstate(state)
            out, env, now = Writer(), {}, clock
            fixed = {
                "packet-magic-number": 0xC1FC1FC1,
                "data-stream-class-id": stream.id,
                "packet-content-length": content,
                "packet-total-length": size,
                "packet-sequence-number": sequence,
                "discarded-event-record-counter-snapshot": 0,
                "default-clock-timestamp": clock,
                "packet-end-default-clock-timestamp": clock + 20_000,
            }
            if schema.packet_header:
                self.write(out, schema.packet_header, ("packet-header",), env, fixed)
            self.write(out, stream.packet_context, ("packet-context",), env, fixed)
            for _ in range(count):
                now += self.rng.randint(1, 400)
                number = self.rng.choice(self.numbers)
                inner = dict(env)
                stamp = {"default-clock-timestamp": now, "event-record-class-id": number}
                self.write(out, stream.event_header, ("event-header",), inner, stamp)
                event = stream.events[number]
                for scope, of in (
                    ("event-common-context", stream.event_context),
                    ("event-specific-context", event.context),
                    ("event-payload", event.payload),
                ):
                    if of is not None:
                        self.write(out, of, (scope,), inner, {})
            content = len(out.bits)
            size = -(-content // 64) * 64
        return out.data().ljust(size // 8, b"\0")


def uuid_into(data: bytes, schema) -> bytes:
    """Put the trace's UUID where packets of LTTng have it."""
    if not schema.uuid:
        return data
    ours, out = bytes.fromhex(schema.uuid.replace("-", "")), bytearray(data)
    magic, at = struct.pack("<I", 0xC1FC1FC1), 0
    while (at := data.find(magic, at)) >= 0:
        out[at + 4 : at + 20] = ours
        at += 4
    return bytes(out)


def stream_seeds() -> None:
    """Streams for every metadata, and packets of random schemas."""
    for number, name in enumerate(streams.METADATA):
        schema = read_metadata_bytes((HERE / "metadata" / name).read_bytes(), name)
        for way in (0, 80, 42, 5, 64, 6, 11):
            machine = Machine(number * 100 + way)
            count = machine.rng.choice([3, 8, 15])
            files = [machine.trace(schema, cpu, 2, count) for cpu in range(2)]
            files = [uuid_into(data, schema) for data in files]
            keep("streams", bytes([number, way]) + streams.BETWEEN.join(files))
            if not way and number:
                (HERE / "metadata" / name).with_suffix(".stream").write_bytes(files[0])
        # The same machine and another, whose clocks have to be aligned.
        following = streams.METADATA[(number + 1) % len(streams.METADATA)]
        other = read_metadata_bytes((HERE / "metadata" / following).read_bytes(), following)
        for way in (128, 192, 133):
            machine = Machine(number * 100 + way)
            files = [
                uuid_into(machine.trace(of, cpu, 1, 10), of)
                for cpu in range(2)
                for of in (schema, other)
            ]
            keep("streams", bytes([number, way]) + streams.BETWEEN.join(files))
    for seed in range(len(streams.METADATA), 40):
        make = Generator(seed)
        schema = make.schema()
        clock = make.rng.randrange(1 << 40)
        data, clock = make.packet(schema, clock, 3)
        more, _ = make.packet(schema, clock, 2)
        keep("streams", bytes([seed, 0]) + data + more)


def generated() -> list[bytes]:
    """Return the kernel's streams of a simulated machine, their UUID that of our metadata."""
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "trace"
        program = ROOT / "evaluation" / "benchmarks" / "large_trace.py"
        options = ["--events", "400", "--cpus", "2", "--threads", "50", "--subbuffer", "4096"]
        command = [sys.executable, str(program), str(out), *options, "--executions", "3"]
        subprocess.run(command, check=True, capture_output=True)
        files = [path.read_bytes() for path in sorted((out / "kernel").glob("kernel_*"))]
    schema = read_metadata_bytes((HERE / "metadata" / "lttng-2.13.tsdl").read_bytes(), "metadata")
    return [uuid_into(data, schema) for data in files]


def store_seeds() -> list[tuple[str, bytes]]:
    """Counts, and what a store has: its own file and an entry."""
    second = 10**9
    counts = [
        {
            "format": "critpath/counts/1", "terms": ["sys:read", "sched_switch"],
            "scopes": ["machine", "/shop/db"], "clock": "monotonic", "interval": second,
            "how": "bpf",
        },
        {"begin": 0, "end": second, "counts": [[[0, 90], [1, 7]], [[0, 5]]], "loss": 0},
        {"begin": second, "end": 2 * second, "counts": [[[1, 9]], []], "loss": 1},
    ]  # fmt: skip
    rows = [
        {"begin": n * second, "end": (n + 1) * second, "counts": [[0, 700 + n], [1, 90]]}
        for n in range(6)
    ]
    entry = {
        "format": "critpath/known-entry/1", "label": "nginx", "kind": "state",
        "recorded": "2026-05-03T14:02:11Z", "note": "", "link": "", "host": {}, "left_out": 0,
        "scope": "machine", "interval": second, "source": "bpf",
        "vocabulary": ["sched_switch", "sys:read"], "documents": rows,
    }  # fmt: skip
    return [
        ("counts", "".join(json.dumps(line) + "\n" for line in counts).encode()),
        ("known", json.dumps({"format": "critpath/known/1"}).encode()),
        ("entry", json.dumps(entry).encode()),
        ("entry", json.dumps({**entry, "kind": "incident", "normal": rows[:3]}).encode()),
    ]


def saved_seeds() -> None:
    """Files that critpath writes, of a simulated machine and of a synthetic comparison."""
    sys.path[:0] = [str(ROOT / "tests" / "pure" / "report")]
    import factory  # noqa: PLC0415 - by its place

    from critpath import flow  # noqa: PLC0415 - as below
    from critpath.report.document.as_json import to_json  # noqa: PLC0415
    from critpath.report.document.comparison import comparison_document  # noqa: PLC0415
    from critpath.report.document.path import write_paths  # noqa: PLC0415
    from critpath.store import save_paths  # noqa: PLC0415
    from critpath.store.baseline import Baseline, baseline_text  # noqa: PLC0415

    given = HERE / "saved"
    given.mkdir(exist_ok=True)
    recording = streams.place("lttng-2.13.tsdl")
    streams.write_files(
        recording / "kernel", [(HERE / "metadata" / "lttng-2.13.stream").read_bytes()]
    )
    whole = flow.extract([recording], specification="thread")
    paths = take_executions(whole, np.arange(min(len(whole), 12)))
    paths = replace(
        paths, sources=("recording",), environment=(Environment(recording="r", clock_epoch=1),)
    )
    save_paths(paths, given / "paths.parquet")
    parquet = (given / "paths.parquet").read_bytes()
    listed = {
        "format": DATASET, "critpath": "0", "executions": len(paths),
        "segments": int(paths.paths.start[-1]),
        "parts": [{
            "file": part_name(0), "recordings": ["r"], "executions": len(paths),
            "segments": int(paths.paths.start[-1]), "bytes": len(parquet),
            "sha256": hashlib.sha256(parquet).hexdigest(),
        }],
    }  # fmt: skip
    sessions = make_sessions([paths], 0)
    small = factory.comparison(normals=8, samples=3, anomalous=1, columns=12)
    for kind, data in (
        ("manifest", json.dumps(MANIFEST_SEED).encode()),
        ("paths", parquet),
        ("columns", bytes(30)),
        ("columns", bytes([1, 0, *bytes(8), 131, 2, *bytes(7), 9, 200, 1, *bytes(8)])),
        ("list", json.dumps(listed).encode()),
        ("baseline", baseline_text(Baseline(sessions, interrupts=True, version="0")).encode()),
        ("document", to_json(comparison_document(small)).encode()),
        ("document", to_json(calibration()).encode()),
        ("document", b"".join(write_paths(paths)).split(b"\n")[0]),
        *store_seeds(),
    ):
        keep("saved", bytes([saved.KINDS.index(kind)]) + data)


def calibration() -> CalibrationDocument:
    """Return what a calibration may say."""
    rate = RateEntry(1, 200, 0.005, 0.0001, 0.028)
    return CalibrationDocument(
        format=CALIBRATION_FORMAT,
        version=__version__,
        verdict="calibrated",
        reasons=["a reason"],
        warnings=["a warning"],
        executions=300,
        mean=10e6,
        alpha=0.01,
        splits=200,
        permutations=599,
        false_alarms=[FalseAlarmsEntry("shuffled", 10, 100, 200, rate, rate, rate, rate)],
        missing=[LackEntry("sessions", 100, 40, 0)],
        detectable=[
            DetectableEntry(10, 100, "total", "", 10e6, 0.6e6, 0.06, 0.06, True, 40),
            DetectableEntry(10, 100, "rare", "", 10e6, 0.6e6, 0.06, 0.06, True, 40),
            DetectableEntry(10, 100, "new", "", 0.0, 0.6e6, 0.06, None, True, 40),
            DetectableEntry(10, 100, "state", "RUN", 8e6, None, None, None, False, 40),
        ],
        floor=FloorEntry(
            recordings=[RecordingEntry("a", 100, 9.8e6), RecordingEntry("b", 100, 10e6)],
            spread=0.02,
            spread_high=0.088,
            expected=0.01,
            recommended=0.06,
            in_force=0.06,
        ),
        settings={"alpha": 0.01},
    )


MANIFEST_SEED = {
    "format": "critpath/recording/1", "state": "complete", "session": "s",
    "command": ["sleep", "1"],
    "execution": "process", "recorder": {"name": "lttng"}, "profile": "minimal",
    "clock": {"name": "monotonic"}, "host": {"name": "h", "cpus": 2, "cpu_model": "m"},
    "begin": 1, "end": 9, "warmup": 0, "prepare": "", "timeout": 0.5, "interleaved": "",
    "container": 0, "trace": "kernel", "warnings": ["w"], "critpath": "0",
    "loss": [{"cpu": 0, "events": 3, "packets": 1}],
    "runs": [{"number": 1, "pid": 7, "begin": 1, "end": 9, "exit_code": 0, "timed_out": False,
              "outlived": 0, "interrupted": False}],
}  # fmt: skip


def socket_seeds() -> None:
    """Write servers that answer, ask and hand over, as the target reads events; and conditions."""
    number = {kind: at for at, kind in enumerate(sockets.KINDS)}
    chance = random.Random(5)  # noqa: S311 - inputs, not secrets

    def event(kind: Kind, cpu: int, *fields: int) -> bytes:
        given = (bytes(fields) + bytes(sockets.WIDTHS[kind]))[: sockets.WIDTHS[kind]]
        return bytes([number[kind], cpu, chance.randrange(1, 9)]) + given

    def run(cpu: int, tid: int) -> bytes:
        return event(Kind.SWITCH, cpu, 0, 0, 0, 0, tid)

    def move(kind: Kind, cpu: int, socket: int) -> bytes:
        return event(kind, cpu, socket, 2, 6, 50, 0)

    accept = event(Kind.SOCKET_STATE, 0, 30, 80, 40, 2, 1, 2, 0, 0, 0, 0, 6, 3, 1)
    connect = event(Kind.SOCKET_STATE, 0, 31, 50, 90, 2, 1, 1, 0, 0, 0, 0, 6, 2, 1)
    served = event(Kind.SOCKET_STATE, 1, 32, 90, 50, 2, 1, 1, 0, 0, 0, 0, 6, 3, 1)
    arrive, receive, send = Kind.SOCKET_ARRIVAL, Kind.SOCKET_RECEIVE, Kind.SOCKET_SEND
    plain = [move(arrive, 0, 30), move(receive, 0, 30), move(send, 0, 30)]
    tiers = [
        *(*plain[:2], move(arrive, 0, 32), move(send, 0, 31), move(receive, 1, 32)),
        *(move(arrive, 1, 31), move(send, 1, 32), move(receive, 0, 31), plain[2]),
    ]
    helped = [plain[0], plain[1], event(Kind.WAKING, 0, 2), run(0, 0), run(1, 2), plain[2]]
    begin = [run(0, 1), run(1, 4), accept, connect, served]
    for turns in (plain, tiers, helped, [*plain[:2], *tiers, plain[2]]):
        keep("sockets", bytes([sockets.EVENTS]) + b"".join(begin + turns * 3))
    for text in (
        "latency >= p90",
        "not (thread == 'server 101' or cpu == 1) and idle.mean < 20ms",
        "label in ['get', \"put\"] and process ~ '^ser.*r$'",
        "any(latency >= 1s)",
        "((((latency > 1us))))",
    ):
        keep("sockets", bytes([sockets.CONDITION]) + text.encode())


def stack_seeds() -> None:
    """Write what perf and addr2line print, a file of perf's, and the stacks of a recording."""
    at = "0x0000000000001241"
    printed = (
        " 12/13 100.000000005:   sched:sched_switch: prev_comm=app prev_pid=13 prev_state=S\n"
        "\t           cf545 clock_nanosleep@GLIBC_2.2.5+0x65 (/nowhere/libc.so.6)\n"
        "\t            1241 nap+0x21 (/nowhere/my app)\n"
        "\tffffffffffffffff [unknown] ([unknown])\n\n"
        " 12/12 100.000000009:   sched:sched_waking: comm=a pid=13 prio=120 target_cpu=001\n"
        "\t            1300 main+0x1 (/nowhere/my app)\n\n"
        " 12/12 100.100000000:    1000000 cpu-clock/freq=199/u:\n"
        "\t    7fd9e52970b5 py::Pool.get:/srv/pool.py+0x5 (/tmp/perf-12.map)\n\n"
        " 0/0 100.200000000: PERF_RECORD_LOST lost 12\n"
    )
    lines = f"{at}\nnap\n/srv/app.c:5 (discriminator 2)\nouter\n/srv/app.c:9\n"
    keep("stacks", b"\0" + printed.encode())
    keep("stacks", b"\0" + printed.encode() + stacks.BETWEEN + lines.encode())
    executed = struct.pack("<IHHII", 3, 1 << 13, 24, 5, 5) + b"app".ljust(8, b"\0")
    mapped = struct.pack("<IIQQQ", 5, 5, 4096, 4096, 0).ljust(64, b"\0") + b"[stack]\0"
    records = executed + struct.pack("<IHH", 10, 0, 8 + len(mapped)) + mapped
    header = struct.pack("<8sQQQQQQ", b"PERFILE2", 104, 0, 0, 0, 56, len(records))
    keep("stacks", b"\1" + header + records)
    keep("stacks", b"\2" + stacks.FRAMES)
    keep("stacks", b"\3" + stacks.SAMPLES)


def foreign_seeds() -> None:
    """Write small files of other tools."""
    for order in "<>":
        for piped in (False, True):
            file = PerfFile(order=order, cpus=2, beside=piped)
            file.index()
            file.comm(70, 70, "server")
            file.fork(70, 71, 70)
            for number, tid in enumerate((70, 71, 0)):
                file.sample(number % 2, 1000 * number, "sched_waking", waking(tid, 0), 70)
                file.sample(number % 2, 1000 * number + 9, "sched_switch", switch(0, 1, tid), 0)
                file.lost(0, 1000 * number + 10, 3)
                file.round()
            file.lost_samples(1, 9)
            keep("foreign", file.pipe() if piped else file.file())
    for big in (False, True):
        pages = (trace_dat_write.draw(n, big=big, count=40) for n in range(2))
        one, other = (
            trace_dat_write.Buffer(of, name) for of, name in zip(pages, ("", "b"), strict=True)
        )
        keep("foreign", trace_dat_write.trace(one, big=big).version_6())
        for compression in ("zlib", "zstd"):
            keep("foreign", trace_dat_write.trace(one, other, big=big).version_7(compression))
    keep(
        "foreign",
        b"# tracer: nop\n#\n"
        b"     app-70    [000] d..2. 100.000005: sched_switch: prev_comm=app prev_pid=70"
        b" prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120\n"
        b"  <idle>-0     [000] dNh2. 100.000009: sched_waking: comm=app pid=70 prio=120"
        b" target_cpu=000\n"
        b"CPU:0 [LOST 12 EVENTS]\n",
    )


def told_seeds() -> None:
    """Write messages, header blocks, frames, groups' names, files of runtimes and an answer."""
    number = {kind: at for at, kind in enumerate(told.KINDS)}

    def write(kind: str, *parts: bytes) -> None:
        keep("told", bytes([number[kind]]) + told.BETWEEN.join(parts))

    statement = b"SELECT a FROM t WHERE id = $1\0\0\0"
    request = b"GET /users/17/orders?x=1 HTTP/1.1\r\n"
    write("messages", request, b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n")
    write("messages", b"P\0\0\0\x28s1\0" + statement, b"B\0\0\0\x10\0s1\0\0\0\0\1\0\0")
    update = b"Q\0\0\0\x30UPDATE t SET a=b WHERE c IN (1, d)\0"
    write("messages", update, b"\x20\0\0\0\3GRANT x TO y")
    block = b"\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"
    literal = b"\0\5:path\x0a/users/17?\x83\x40\x0bcontent-type\x10application/grpc"
    write("headers", b"\1" + block, b"\1\x82\x84\xbe", b"\0" + literal)
    head = len(block).to_bytes(3, "big") + b"\1\5\0\0\0\1" + bytes(7)
    reset, padded = b"\0\0\4\3\0\0\0\0\1" + bytes(7), head[:4] + b"\x2d" + head[5:]
    write("frames", head + block, reset, padded + block)
    paths = (*told.PATHS.values(), "/lxc/a/system.slice/b\\x2dc.service")
    write("groups", "\n".join(paths).encode())
    docker = {"Name": "/web", "Config": {"Image": "i", "Labels": {"io.kubernetes.pod.name": "p"}}}
    user = b"u:x:1000:1::/srv/u:/bin/sh"
    write("docker", json.dumps(docker).encode(), b'{"data-root": "/srv/docker"}', user)
    listed = [{"id": told.ID, "names": ["web"], "metadata": '{"image-name": "i"}'}]
    write("podman", json.dumps(listed).encode(), b'[storage]\ngraphroot = "/srv/c"\n')
    notes = {f"io.kubernetes.cri.{of}-name": of for of in ("container", "sandbox")}
    write("bundle", json.dumps({"annotations": notes}).encode())
    write("webhook", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


def main() -> None:
    """Write every seed."""
    random.seed(0)
    stream_seeds()
    machine = generated()
    for way in (*range(0, 64, 9), 64, 80):
        keep("streams", bytes([0, way]) + streams.BETWEEN.join(machine))
    (HERE / "metadata" / "lttng-2.13.stream").write_bytes(machine[0][:4096])
    for path in sorted((HERE / "metadata").iterdir()):
        if path.suffix != ".stream":
            keep("metadata", path.read_bytes())
    saved_seeds()
    socket_seeds()
    stack_seeds()
    foreign_seeds()
    told_seeds()


if __name__ == "__main__":
    main()
