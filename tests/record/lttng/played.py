# ruff: noqa: T201, PLR0912 - a program of its own, one branch for each verb
"""`lttng` and `lttng-sessiond`, played: see conftest.py.  Runs without site-packages."""

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

HERE = Path(os.environ["PLAYED"])
FACTS = json.loads((HERE / "facts.json").read_text())
SESSIONS = HERE / "sessions"
NAMESPACE = 'xmlns="https://lttng.org/xml/ns/lttng-mi"'


def fail(message, code=1):
    print("Error:", message, file=sys.stderr)
    sys.exit(code)


def daemon():
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text("lttng-sessiond")
    if FACTS.get("daemon_fails"):
        fail(FACTS["daemon_fails"])
    if daemon_runs():
        fail("A session daemon is already running.")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    (HERE / "daemon").write_text(str(os.getpid()))
    while True:
        time.sleep(0.05)


def daemon_runs():
    try:
        os.kill(int((HERE / "daemon").read_text()), 0)
    except (OSError, ValueError):
        return False
    return True


def answer(name, inner):
    print(f'<?xml version="1.0" encoding="UTF-8"?>\n<command {NAMESPACE}><name>{name}</name>')
    print(f"<output>{inner}</output></command>")


def listed(name):
    place = SESSIONS / name
    counts = FACTS.get("counts", [0, 0])
    return (
        f"<session><name>{name}</name><path>{escape((place / 'path').read_text())}</path><domains>"
        "<domain><type>KERNEL</type><channels><channel><name>kernel</name><attributes>"
        "<subbuffer_size>1048576</subbuffer_size><subbuffer_count>8</subbuffer_count>"
        f"<discarded_events>{counts[0]}</discarded_events>"
        f"<lost_packets>{counts[1]}</lost_packets></attributes></channel></channels></domain>"
        "</domains></session>"
    )


def main():
    arguments = sys.argv[1:]
    with (HERE / "calls").open("a") as stream:
        print(json.dumps(arguments), file=stream)
    words = [a for a in arguments if not a.startswith("-") and a != "xml"]
    options = dict(a[2:].split("=", 1) for a in arguments if a.startswith("--") and "=" in a)
    verb, names = words[0], words[1:]
    if verb == "version":
        answer("version", f"<version><string>{FACTS['version']}</string></version>")
        return
    if not daemon_runs():
        fail("No session daemon is available")
    if verb in FACTS.get("fails", {}):
        fail(FACTS["fails"][verb])
    if FACTS.get("prints"):
        print(FACTS["prints"])
        return
    time.sleep(FACTS.get("slow", {}).get(verb, 0))
    if verb == "list" and "--kernel" in arguments:
        if not FACTS["events"]:
            fail("Unable to list kernel events: Kernel tracer not available")
        events = "".join(f"<event><name>{e}</name></event>" for e in FACTS["events"])
        answer("list", f"<domains><domain><events>{events}</events></domain></domains>")
    elif verb == "list":
        there = sorted(p.name for p in SESSIONS.iterdir()) if SESSIONS.exists() else []
        if names and names[0] not in there:
            fail(f"Session '{names[0]}' not found")
        chosen = names or there
        answer("list", "<sessions>" + "".join(map(listed, chosen)) + "</sessions>")
    elif verb == "load":
        text = Path(options["input-path"]).read_text()
        (HERE / "loaded").write_text(text)
        session = ET.fromstring(text).find("session")  # noqa: S314 - our own
        place = SESSIONS / session.findtext("name")
        place.mkdir(parents=True)
        (place / "path").write_text(session.findtext(".//destination/path"))
    elif verb in {"start", "stop"}:
        place = SESSIONS / names[0]
        if not place.exists():
            fail("Session name not found", 23)
        if verb == "start":
            trace = Path((place / "path").read_text()) / "kernel"
            trace.mkdir(parents=True)
            head = b"\x1e{" if "CTF_2" in (HERE / "loaded").read_text() else b"\x57\x1d\xd1\x75"
            (trace / "metadata").write_bytes(FACTS.get("metadata", "").encode() or head)
    elif verb == "destroy":
        if not (SESSIONS / names[0]).exists():
            fail(f"Session name {names[0]} not found", 23)
        shutil.rmtree(SESSIONS / names[0])


if Path(sys.argv[0]).name == "lttng":
    main()
else:
    daemon()
