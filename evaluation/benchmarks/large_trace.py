"""A large LTTng kernel trace of a machine that is simulated, written fast.

    python evaluation/benchmarks/large_trace.py OUT --events 10e6 --cpus 8 --seed 1

The simulation (``large_trace.c``) is a scheduler, not noise: run queues, time slices and
preemption; pools of workers that take requests from network interrupts, take locks, wait
for the disk and call each other; kernel threads, timers, ticks, and processes that are
forked, execute a program and exit.  Every switch goes on from the one before it on its
processor, threads are woken while they sleep, and the states are those of kernels from
4.18 on.  Nothing is lost and nothing is missing unless asked for.

``OUT`` has the layout that LTTng 2.13 writes: ``kernel`` with one stream and index per
processor, events and contexts of the profile `minimal` and sched_wakeup; and
``ust/uid/0/64-bit`` with a mark where each execution begins and ends, to be read with::

    --execution events:app:request_begin,app:request_end,key=id

``OUT/truth.json`` has the options and what was written of every event.  The same options
give the same bytes.  Needs a C compiler.
"""

from __future__ import annotations

import argparse
import atexit
import hashlib
import json
import shutil
import struct
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent
EXECUTION: Final = "events:app:request_begin,app:request_end,key=id"
OFFSET: Final = 1_795_235_710_216_766_193  # of the monotonic clock from the epoch, ns
CREATED: Final = "20261121T043527+0000"

BASE: Final = """\
typealias integer { size = 8; align = 8; signed = false; } := uint8_t;
typealias integer { size = 16; align = 8; signed = false; } := uint16_t;
typealias integer { size = 32; align = 8; signed = false; } := uint32_t;
typealias integer { size = 64; align = 8; signed = false; } := uint64_t;
typealias integer { size = 64; align = 8; signed = false; } := unsigned long;
typealias integer { size = 5; align = 1; signed = false; } := uint5_t;
typealias integer { size = 27; align = 1; signed = false; } := uint27_t;
"""

HEADERS: Final = "\n".join(
    f"""typealias integer {{
\tsize = {bits}; align = {align}; signed = false;
\tmap = clock.monotonic.value;
}} := uint{bits}_clock_monotonic_t;
"""
    for bits, align in ((27, 1), (32, 8), (64, 8))
) + "".join(
    f"""
struct event_header_{name} {{
\tenum : uint{tag}_t {{ compact = 0 ... {last - 1}, extended = {last} }} id;
\tvariant <id> {{
\t\tstruct {{
\t\t\tuint{bits}_clock_monotonic_t timestamp;
\t\t}} compact;
\t\tstruct {{
\t\t\tuint32_t id;
\t\t\tuint64_clock_monotonic_t timestamp;
\t\t}} extended;
\t}} v;
}} align(8);
"""
    for name, tag, last, bits in (("compact", 5, 31, 27), ("large", 16, 65535, 32))
)

PACKET: Final = """
struct packet_context {
\tuint64_clock_monotonic_t timestamp_begin;
\tuint64_clock_monotonic_t timestamp_end;
\tuint64_t content_size;
\tuint64_t packet_size;
\tuint64_t packet_seq_num;
\tunsigned long events_discarded;
\tuint32_t cpu_id;
};
"""

_WAKE: Final = "comm:text tid:i32 prio:i32 target_cpu:i32"

# In the order of the ids; large_trace.c writes fields in this order.
KERNEL_EVENTS: Final = (
    (
        "lttng_statedump_process_state",
        (
            "tid:i32 pid:i32 ppid:i32 name:text type:i32 mode:i32 submode:i32 status:i32"
            " cpu:u32 file_table_address:x64"
        ),
    ),
    ("lttng_statedump_end", ""),
    ("lttng_statedump_start", ""),
    ("timer_hrtimer_expire_exit", "hrtimer:x64"),
    ("timer_hrtimer_expire_entry", "hrtimer:x64 now:i64 function:x64"),
    ("irq_softirq_exit", "vec:u32"),
    ("irq_softirq_entry", "vec:u32"),
    ("irq_handler_exit", "irq:i32 ret:i32"),
    ("irq_handler_entry", "irq:i32 name:string"),
    ("sched_process_exit", "comm:text tid:i32 prio:i32"),
    ("sched_process_exec", "filename:string tid:i32 old_tid:i32"),
    (
        "sched_process_fork",
        (
            "parent_comm:text parent_tid:i32 parent_pid:i32 parent_ns_inum:u32 child_comm:text"
            " child_tid:i32 vtids:sequence child_pid:i32 child_ns_inum:u32"
        ),
    ),
    ("sched_wakeup_new", _WAKE),
    ("sched_waking", _WAKE),
    ("sched_wakeup", _WAKE),
    (
        "sched_switch",
        (
            "prev_comm:text prev_tid:i32 prev_prio:i32 prev_state:i64 next_comm:text"
            " next_tid:i32 next_prio:i32"
        ),
    ),
)
MARKS: Final = (
    ("app:request_begin", "id:i32 type:string"),
    ("app:request_end", "id:i32 type:string"),
)


def _integer(bits: int, signed: int, encoding: str = "none", base: int = 10) -> str:
    return (
        f"integer {{ size = {bits}; align = 8; signed = {signed}; encoding = {encoding};"
        f" base = {base}; }}"
    )


def _field(name: str, kind: str) -> str:
    if kind == "string":
        return f"string _{name};"
    if kind.startswith("text"):
        return f"{_integer(8, 1, 'UTF8')} _{name}[{kind[4:] or 16}];"
    if kind == "sequence":
        return (
            f"{_integer(8, 0)} __{name}_length;\n\t\t{_integer(32, 1)} _{name}[ __{name}_length ];"
        )
    bits = int(kind[1:])
    return f"{_integer(bits, int(kind[0] == 'i'), base=16 if kind[0] == 'x' else 10)} _{name};"


def _fields(text: str) -> str:
    return "".join(f"\t\t{_field(*part.split(':'))}\n" for part in text.split())


def _tsdl(uuid: str, clock: str, environment: dict[str, Any], header: str, context: str) -> str:
    lines = "".join(f"\t{key} = {json.dumps(value)};\n" for key, value in environment.items())
    grouped = f"{uuid[:8]}-{uuid[8:12]}-{uuid[12:16]}-{uuid[16:20]}-{uuid[20:]}"
    ticks = f"{clock[:8]}-{clock[8:12]}-{clock[12:16]}-{clock[16:20]}-{clock[20:]}"
    return f"""{BASE}
trace {{
\tmajor = 1;
\tminor = 8;
\tuuid = "{grouped}";
\tbyte_order = le;
\tpacket.header := struct {{
\t\tuint32_t magic;
\t\tuint8_t  uuid[16];
\t\tuint32_t stream_id;
\t\tuint64_t stream_instance_id;
\t}};
}};

env {{
{lines}}};

clock {{
\tname = "monotonic";
\tuuid = "{ticks}";
\tdescription = "Monotonic Clock";
\tfreq = 1000000000; /* Frequency, in Hz */
\t/* clock value offset from Epoch is: offset * (1/freq) */
\toffset = {OFFSET};
}};

{HEADERS}{PACKET}
stream {{
\tid = 0;
\tevent.header := struct event_header_{header};
\tpacket.context := struct packet_context;
\tevent.context := struct {{
{_fields(context)}\t}};
}};
"""


def _event(number: int, name: str, fields: str) -> str:
    level = "\tloglevel = 13;\n" if ":" in name else ""
    return (
        f'\nevent {{\n\tname = "{name}";\n\tid = {number};\n\tstream_id = 0;\n{level}'
        f"\tfields := struct {{\n{_fields(fields)}\t}};\n}};\n"
    )


def _packets(text: str, uuid: str, size: int = 4096) -> bytes:
    """Metadata in packets, as LTTng writes it."""
    head = struct.calcsize("<I16sIIIBBBBB")
    data, out = text.encode("ascii"), b""
    for begin in range(0, len(data), size - head):
        part = data[begin : begin + size - head]
        content = 8 * (head + len(part))
        out += struct.pack(
            "<I16sIIIBBBBB", 0x75D11D57, bytes.fromhex(uuid), 0, content, 8 * size, 0, 0, 0, 1, 8
        )
        out += part.ljust(size - head, b"\0")
    return out


@cache
def program() -> Path:
    """Compile the simulation, once a process."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise FileNotFoundError("no C compiler: cc is not on PATH")
    place = tempfile.mkdtemp(prefix="critpath-large-trace-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    target = Path(place) / "large_trace"
    command = [compiler, "-std=gnu11", "-O2", "-Wall", "-o", str(target)]
    subprocess.run([*command, str(HERE / "large_trace.c")], check=True)
    return target


def generate(
    out: Path,
    events: int,
    *,
    cpus: int = 8,
    threads: int = 2000,
    executions: int | None = None,
    seed: int = 1,
    subbuffer: int = 1 << 18,
    loss: float = 0.0,
    missing_switches: float = 0.0,
) -> dict[str, Any]:
    """Write a trace.

    Parameters
    ----------
    out : Path
        Directory; made, must not have a trace in it.
    events : int
        Events in the trace, marks among them; exactly so many are written.
    cpus, threads : int
        Of the machine.
    executions : int, optional
        Marked requests, spread over the events; by default 1,000 in 10 M.
    seed : int
        Another one, another trace.
    subbuffer : int
        Bytes of a packet at most.
    loss : float
        Share of the kernel's events that is discarded, in bursts at the beginning of
        packets, and counted in them as LTTng does.
    missing_switches : float
        Share of the switches that is left out and counted nowhere.

    Returns
    -------
    dict
        What ``truth.json`` has: options, and of what was written ``events``, ``counts``
        by name, executions ``begun`` and ``ended``, ``lost``, ``missing``, ``bytes``.
    """
    if executions is None:
        executions = max(1, events // 10_000)
    kernel, user = out / "kernel", out / "ust" / "uid" / "0" / "64-bit"
    for place in (kernel, user):
        (place / "index").mkdir(parents=True)
    options = {
        "events": events,
        "cpus": cpus,
        "threads": threads,
        "executions": executions,
        "seed": seed,
        "subbuffer": subbuffer,
        "loss": loss,
        "missing_switches": missing_switches,
    }
    ids = [
        hashlib.md5(f"{part} {json.dumps(options)}".encode(), usedforsecurity=False).hexdigest()
        for part in ("kernel", "ust", "clock")
    ]
    common = {"hostname": "simulated", "trace_name": "large", "trace_creation_datetime": CREATED}
    in_kernel = {
        "domain": "kernel",
        "sysname": "Linux",
        "kernel_release": "6.1.0-50-cloud-amd64",
        "kernel_version": "#1 SMP PREEMPT_DYNAMIC Debian 6.1.176-1 (2026-07-02)",
        "tracer_name": "lttng-modules",
        "tracer_major": 2,
        "tracer_minor": 13,
        "tracer_patchlevel": 9,
        "trace_buffering_scheme": "global",
    }
    in_user = {
        "domain": "ust",
        "tracer_name": "lttng-ust",
        "tracer_major": 2,
        "tracer_minor": 13,
        "tracer_buffering_scheme": "uid",
        "tracer_buffering_id": 0,
        "architecture_bit_width": 64,
    }
    for place, uuid, environment, header, context, classes in (
        (kernel, ids[0], in_kernel, "compact", "pid:i32 tid:i32", KERNEL_EVENTS),
        (user, ids[1], in_user, "large", "vpid:i32 vtid:i32 procname:text17", MARKS),
    ):
        text = _tsdl(uuid, ids[2], {**environment, **common}, header, context)
        text += "".join(_event(i, name, fields) for i, (name, fields) in enumerate(classes))
        (place / "metadata").write_bytes(_packets(text, uuid))
    arguments = [kernel, user, events, cpus, threads, executions, seed, subbuffer]
    arguments += [loss, missing_switches, ids[0], ids[1]]
    done = subprocess.run(
        [str(program()), *map(str, arguments)], check=True, stdout=subprocess.PIPE, text=True
    )
    truth = {"options": options, **json.loads(done.stdout)}
    (out / "truth.json").write_text(json.dumps(truth, indent=1) + "\n", encoding="ascii")
    return truth


def main() -> None:
    """Write the trace that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--events", type=float, default=10e6)
    parser.add_argument("--cpus", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2000)
    parser.add_argument("--executions", type=int, help="default: 1,000 in 10 M events")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--subbuffer", type=int, default=1 << 18, help="bytes, default 256 KiB")
    parser.add_argument("--loss", type=float, default=0.0, help="share of events discarded")
    parser.add_argument("--missing-switches", type=float, default=0.0, help="share left out")
    options = vars(parser.parse_args())
    out, events = options.pop("out"), int(options.pop("events"))
    truth = generate(out, events, **options)
    print(
        f"{truth['events']:,} events, {truth['bytes'] / 1e6:,.1f} MB,"
        f" {(truth['end'] - truth['begin']) / 1e9:.2f} s,"
        f" {truth['ended']:,} executions; {truth['lost']:,} discarded,"
        f" {truth['missing']:,} switches left out"
    )
    print(f"read the executions with --execution {EXECUTION}")


if __name__ == "__main__":
    main()
