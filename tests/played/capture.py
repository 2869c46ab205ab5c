"""Records once what the played kernel plays: `python capture.py DIR`, as root.

A command of a few processes, three requests over a loopback connection and marks, on every
cpu of this machine; the recorder's own raw data is kept, and what tracefs says of itself.
"""

from __future__ import annotations

import io
import json
import lzma
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final
from unittest import mock

from critpath_marks.sessions import new_session_name
from critpath_record import profiles
from critpath_record.ftrace import recorder as module
from critpath_record.recorder import RecorderSettings

sys.path.insert(0, str(Path(__file__).parent))
from tracefs import PAGE, Recording, find_records

TRACEFS: Final = Path("/sys/kernel/tracing")
EVENTS: Final = (
    *("sched_switch", "sched_waking", "sched_wakeup_new", "sched_process_fork"),
    *("sched_process_exec", "sched_process_exit", "irq_handler_entry", "irq_handler_exit"),
    *("irq_softirq_raise", "timer_expire_entry"),
    *("irq_softirq_entry", "irq_softirq_exit", "timer_hrtimer_expire_entry"),
    *("timer_hrtimer_expire_exit", "sk_data_ready", "sock_recv_length", "sock_send_length"),
    *("inet_sock_set_state", "tcp_rcv_space_adjust", "net_dev_queue", "net_if_receive_skb"),
)
CALLS: Final = ("read", "write", "futex", "sendto", "recvfrom", "clock_nanosleep")
_RULE: Final = "<event><name>{}</name><enabled>true</enabled><type>{}</type></event>"
_PROFILE: Final = """<?xml version="1.0" encoding="UTF-8"?>
<sessions><session><name>x</name><domains><domain><type>KERNEL</type><channels><channel>
<name>kernel</name><enabled>true</enabled><events>{}</events></channel></channels>
</domain></domains></session></sessions>
"""
COMMAND: Final = """
import os, socket, subprocess, threading
def mark(text):
    os.write(int(os.environ["CRITPATH_MARKER_FD"]), text.encode())
for number in range(5):
    subprocess.run(["/bin/true"])
listening = socket.create_server(("127.0.0.1", 0))
def serve():
    connection, _ = listening.accept()
    while connection.recv(100):
        connection.sendall(b"answer")
threading.Thread(target=serve).start()
with socket.create_connection(listening.getsockname()) as client:
    for number in range(3):
        mark(f"critpath:begin request {number}")
        client.sendall(b"GET /%d" % number)
        client.recv(100)
        mark(f"critpath:end request {number}")
"""


def capture(place: Path) -> dict[str, object]:
    """Record into a directory; return what else is to be known."""
    home = place / "profiles"
    home.mkdir()
    rules = [_RULE.format(name, "TRACEPOINT") for name in EVENTS]
    rules += [_RULE.format(name, "SYSCALL") for name in CALLS]
    (home / "played.lttng").write_text(_PROFILE.format("".join(rules)), encoding="utf-8")
    out = place / "recording"
    out.mkdir()
    settings = RecorderSettings(
        new_session_name(), out, profile="played", keep_raw=True, buffer_bytes=4 << 20
    )
    with mock.patch.object(profiles, "profile_directory", return_value=home):
        recorder = module.FtraceRecorder(settings)
        try:
            begin = recorder.open()
            with subprocess.Popen(
                ["python3", "-S", "-c", COMMAND],
                env={"PATH": "/usr/local/bin:/usr/bin:/bin", **recorder.environment()},
                pass_fds=recorder.descriptors(),
            ) as command:
                code = command.wait()
            end = recorder.close()
            recorder.drain(lambda _: None)
        finally:
            recorder.abort()
    return {"pid": command.pid, "code": code, "begin": begin, "end": end}


def hide_this_machine(raw: Path) -> None:
    """Let nothing say where this was recorded, or what else ran: names become ``other``."""
    about = json.loads((raw / "raw.json").read_text(encoding="utf-8"))
    about["host"] |= {"name": "played", "net_devices": "", "timer_functions": ""}
    write(raw / "raw.json", about)
    known = {b"python3", b"true", b"<idle>"}
    for name in ("statedump.json", "statedump-end.json"):
        rows = json.loads((raw / name).read_text(encoding="utf-8"))
        known |= {row[4].encode() for row in rows if row[7] or row[4].startswith("critpath-")}
        for row in rows:
            row[4] = row[4] if row[4].encode() in known else "other"
        write(raw / name, rows)
    for name in ("sockets.json", "sockets-end.json", "descriptors.json", "descriptors-end.json"):
        write(raw / name, [])
    groups = json.loads((raw / "cgroups.json").read_text(encoding="utf-8"))
    write(raw / "cgroups.json", [row for row in groups if row[2] == 0][:5])
    texts = {f"formats/{p.name}": p.read_bytes() for p in (raw / "formats").iterdir()}
    recording = Recording(texts, {})
    names = {number: name for name, number in recording.ids.items()}
    for file in raw.glob("cpu?"):
        data = file.read_bytes()
        pages = [bytearray(data[at : at + PAGE]) for at in range(0, len(data), PAGE)]
        for page in pages:
            for _, first, last in find_records(page):
                name = names[page[first] | page[first + 1] << 8]
                hide_names(page, first, last, recording.fields[name], known)
        file.write_bytes(b"".join(pages))


def hide_names(
    page: bytearray, first: int, last: int, fields: dict[str, tuple[int, int]], known: set[bytes]
) -> None:
    """Hide the names of programs in one record."""
    for field, (at, size) in fields.items():
        place = first + at
        if size == 4 and field in {"comm", "filename", "parent_comm", "child_comm"}:  # __data_loc
            place = first + int.from_bytes(page[place : place + 2], "little")
            size = int.from_bytes(page[first + at + 2 : first + at + 4], "little")  # noqa: PLW2901
        elif not field.endswith("comm"):
            continue
        text = bytes(page[place : place + size]).partition(b"\0")[0]
        if (
            text not in known
            and text.rpartition(b"/")[2] not in known
            and not text.startswith(b"swapper/")
        ):
            text = b"other"
        page[place : min(place + size, last)] = text[: size - 1].ljust(size, b"\0")


def write(file: Path, document: object) -> None:
    """Write a document."""
    file.write_text(json.dumps(document, separators=(",", ":")), encoding="utf-8")


def main(place: Path) -> None:
    """Record, and write the archive of it."""
    with tempfile.TemporaryDirectory() as scratch:
        facts = capture(Path(scratch))
        raw = Path(scratch) / "recording" / "raw"
        hide_this_machine(raw)
        events = {p.name.replace(".", ":", 1) for p in (raw / "formats").iterdir()}
        available = [x for x in (TRACEFS / "available_events").read_text().split() if x in events]
        (raw / "available_events").write_text("".join(f"{x}\n" for x in available))
        (raw / "facts.json").write_text(json.dumps(facts))
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for file in sorted(x for x in raw.rglob("*") if x.is_file()):
                entry = tarfile.TarInfo(str(file.relative_to(raw)))
                entry.size = file.stat().st_size
                tar.addfile(entry, io.BytesIO(file.read_bytes()))
        (place / "recording.tar.xz").write_bytes(lzma.compress(buffer.getvalue(), preset=9))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
