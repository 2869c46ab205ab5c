"""What ``perf data convert --to-ctf`` writes is a kernel's trace: a stream per cpu, or one."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from critpath.model import Kind
from critpath.read import KERNEL_EVENTS, Recording

UNSIGNED = "integer { size = %d; align = 8; signed = %s; encoding = none; base = decimal; }"
U32, U64 = UNSIGNED % (32, "false"), UNSIGNED % (64, "false")
S32, S64 = UNSIGNED % (32, "true"), UNSIGNED % (64, "true")
TEXT = "string { encoding = UTF8; }"
COMMON = (
    *((U64, "perf_ip"), (S32, "perf_tid"), (S32, "perf_pid"), (U64, "perf_id")),
    *((U32, "common_type"), (U32, "common_flags"), (S32, "common_pid")),
)
EVENTS = {
    "sched:sched_switch": (
        *((TEXT, "prev_comm"), (S32, "prev_pid"), (S32, "prev_prio"), (S64, "prev_state")),
        *((TEXT, "next_comm"), (S32, "next_pid"), (S32, "next_prio")),
    ),
    "sched:sched_waking": ((TEXT, "comm"), (S32, "pid"), (S32, "prio"), (U32, "target_cpu")),
    "syscalls:sys_enter_read": ((U32, "nr"),),
}


def metadata(*, per_cpu: bool) -> str:
    """The metadata as perf has babeltrace write it; early versions had the cpu in events."""
    cpu = () if per_cpu else ((U32, "perf_cpu"),)
    events = "".join(
        f'event {{ id = {number}; name = "{name}"; stream_id = 0; fields := struct {{ '
        + " ".join(f"{kind} {field};" for kind, field in (*COMMON, *cpu, *fields))
        + " } align(8); };\n"
        for number, (name, fields) in enumerate(EVENTS.items())
    )
    return f"""/* CTF 1.8 */
typealias {UNSIGNED % (8, "false")} := uint8_t;
trace {{ major = 1; minor = 8; byte_order = le; packet.header := struct {{
  {U32} magic; uint8_t uuid[16]; {U32} stream_id; }} align(8); }};
env {{ host = "vm"; sysname = "Linux"; release = "4.0.0"; domain = "kernel";
  tracer_name = "perf"; }};
clock {{ name = perf_clock; freq = 1000000000; offset_s = 0; offset = 0; absolute = FALSE; }};
stream {{ id = 0; event.header := struct {{ {U32} id; integer {{ size = 64; align = 8;
    signed = false; map = clock.perf_clock.value; }} timestamp; }} align(8);
  packet.context := struct {{ {U64} timestamp_begin; {U64} timestamp_end; {U64} content_size;
    {U64} packet_size; {U64} events_discarded; {f"{U32} cpu_id;" if per_cpu else ""} }} align(8);
}};
{events}"""


def pack(cpu: int, time: int, number: int, *values: object, per_cpu: bool) -> bytes:
    """An event."""
    fields = [*COMMON, *(() if per_cpu else ((U32, "perf_cpu"),)), *[*EVENTS.values()][number]]
    known = [0, 7, 7, 1, 300 + number, 0, 7, *(() if per_cpu else (cpu,)), *values]
    data = struct.pack("<IQ", number, time)
    for (kind, _), value in zip(fields, known, strict=True):
        if kind == TEXT:
            data += str(value).encode() + b"\0"
        else:
            data += struct.pack({U32: "<I", U64: "<Q", S32: "<i", S64: "<q"}[kind], value)
    return data


def write(place: Path, *, per_cpu: bool) -> None:
    """Write a trace of two cpus."""
    place.mkdir()
    (place / "metadata").write_text(metadata(per_cpu=per_cpu))
    rows = [
        (0, 1000, 0, "swapper/0", 0, 120, 0, "a", 7, 120),
        (1, 1500, 0, "swapper/1", 0, 120, 0, "b", 8, 120),
        (0, 2000, 1, "c", 9, 120, 1),
        (1, 2200, 2, 0),
        (0, 2500, 0, "a", 7, 120, 1, "swapper/0", 0, 120),
    ]
    for number, chosen in enumerate([{0}, {1}] if per_cpu else [{0, 1}]):
        body = b"".join(pack(*row, per_cpu=per_cpu) for row in rows if row[0] in chosen)
        head = struct.pack("<I16sI", 0xC1FC1FC1, bytes(16), 0)
        size = 8 * (len(head) + 40 + 4 * per_cpu + len(body))
        context = struct.pack("<5Q", 0, 5000, size, size, 0)
        context += struct.pack("<I", number) * per_cpu
        (place / f"perf_stream_{number}").write_bytes(head + context + body)


@pytest.mark.parametrize("reader", ["native", "babeltrace2"])
@pytest.mark.parametrize("per_cpu", [True, False])
def test_it_is_read_with_its_cpus(tmp_path: Path, per_cpu: bool, reader: str) -> None:
    if reader == "babeltrace2":
        pytest.importorskip("bt2")
    write(tmp_path / "ctf", per_cpu=per_cpu)
    events = Recording(tmp_path / "ctf").read(KERNEL_EVENTS, reader)
    kinds = [events.classes[number].kind for number in events.event_class.tolist()]
    assert list(zip(events.timestamp.tolist(), events.cpu.tolist(), kinds, strict=True)) == [
        (1000, 0, Kind.SWITCH),
        (1500, 1, Kind.SWITCH),
        (2000, 0, Kind.WAKING),
        (2200, 1, Kind.SYSCALL_ENTRY),
        (2500, 0, Kind.SWITCH),
    ]
    switch = next(of for of in events.classes if of.kind == Kind.SWITCH)
    assert switch.fields == ("prev_comm", "prev_tid", "prev_state", "next_comm", "next_tid")
    assert [events.values[at + 4] for at in events.offset[[0, 1, 4]]] == [7, 8, 0]


def test_that_losses_are_not_in_it_is_told(tmp_path: Path) -> None:
    write(tmp_path / "ctf", per_cpu=True)
    (told,) = Recording(tmp_path / "ctf").read(KERNEL_EVENTS).warnings
    assert "critpath reads perf.data itself" in str(told)
