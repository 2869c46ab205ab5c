"""The ftrace recorder on this machine's own kernel: one recording, and what holds of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from critpath.errors import CritpathError
from critpath.model import Kind
from critpath.read.event_names import KERNEL_EVENTS
from critpath.read.traces import read_events
from critpath_marks.sessions import new_session_name
from critpath_record.ftrace import tracefs
from critpath_record.ftrace.preflight import find_needs
from critpath_record.ftrace.recorder import open_recorder
from critpath_record.recorder import RecorderSettings

HINDERED = [o.what for o in find_needs(RecorderSettings("", Path())) if o.fatal]
pytestmark = [
    pytest.mark.xdist_group("kernel"),
    pytest.mark.skipif(bool(HINDERED), reason="; ".join(HINDERED)),
]

NOBODY = 65534
# By its name for who may open it, by a descriptor for everybody; and processes that are counted.
SCRIPT = """
echo by-path >"$CRITPATH_MARKER"
setpriv --reuid 65534 --regid 65534 --clear-groups /bin/bash -c '
    echo by-descriptor >&"$CRITPATH_MARKER_FD"; ! test -w "$CRITPATH_MARKER"' || exit 9
for i in 1 2 3 4 5; do /bin/true; done
"""


class Recorded:
    """A recording of the script, and what the kernel counted meanwhile."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.settings = RecorderSettings(new_session_name(), place, keep_raw=True)
        self.descriptors = sum(1 for _ in Path("/proc/self/fd").iterdir())
        recorder = open_recorder(self.settings)
        try:
            self.begin = recorder.open()
            self.before = recorder.count_events()
            with subprocess.Popen(
                ["/bin/bash", "-c", SCRIPT],
                env={**os.environ, **recorder.environment()},
                pass_fds=recorder.descriptors(),
            ) as command:
                self.code = command.wait()
            self.pid = command.pid
            self.after = recorder.count_events()
            self.end = recorder.close()
            self.result = recorder.drain(lambda _: None)
        finally:
            recorder.abort()

    @property
    def counts(self) -> dict[int, dict[str, int]]:
        document = json.loads((self.place / "raw/stats.json").read_text(encoding="utf-8"))
        return {int(cpu): counts for cpu, counts in document.items()}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    if shutil.which("setpriv") is None:
        pytest.skip("util-linux's setpriv is not here")
    return Recorded(tmp_path_factory.mktemp("live"))


def test_a_command_with_its_processes_is_in_the_trace(recorded, rows):
    assert recorded.code == 0
    assert (recorded.result.loss, recorded.result.warnings) == ((), ())
    events = read_events(recorded.place / "trace", KERNEL_EVENTS)
    assert events.losses == ()
    found, _ = rows(recorded.place / "trace")
    # The machine is traced as a whole: others start programs, too.
    children = {
        f["child_tid"]
        for _, _, name, f in found
        if name == "sched_process_fork" and f["parent_tid"] == recorded.pid
    }
    started = [f for _, _, name, f in found if name == "sched_process_exec"]
    trues = [f for f in started if f["filename"] == "/bin/true" and f["tid"] in children]
    assert len(trues) == 5
    exits = {f["tid"]: t for t, _, name, f in found if name == "sched_process_exit"}
    assert all(recorded.begin <= exits[f["tid"]] <= recorded.end for f in trues)
    assert {c.kind for c in events.classes} >= {Kind.EXEC, Kind.EXIT, Kind.FORK}


def test_a_command_marks_through_a_path_and_whoever_it_is_through_a_descriptor(recorded, rows):
    found, _ = rows(recorded.place / "trace")
    texts = [f["buf"].strip() for _, _, name, f in found if name == "print"]
    assert [text for text in texts if text.startswith("by-")] == ["by-path", "by-descriptor"]


def test_every_event_that_the_kernel_counted_is_in_the_pages(recorded):
    counts = recorded.counts
    assert sum(c["read events"] for c in counts.values()) > 100
    assert {c["entries"] + c["overrun"] for c in counts.values()} == {0}
    assert recorded.result.facts["event_count"] == sum(c["read events"] for c in counts.values())
    assert recorded.after.events > recorded.before.events
    assert recorded.after.lost == 0
    for cpu in counts:
        assert (recorded.place / f"raw/cpu{cpu}").stat().st_size % 4096 == 0


def test_nothing_is_left_of_it(recorded):
    root = tracefs.find()
    assert not (root / "instances" / recorded.settings.session).exists()
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) <= recorded.descriptors


def test_babeltrace2_reads_it_too(recorded):
    native = read_events(recorded.place / "trace", KERNEL_EVENTS)
    try:
        other = read_events(recorded.place / "trace", KERNEL_EVENTS, reader="babeltrace2")
    except CritpathError as error:
        pytest.skip(error.what)
    assert native.timestamp.tolist() == other.timestamp.tolist()


def test_an_instance_that_is_held_is_turned_off_and_who_holds_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(tracefs, "_BUSY_TRIES", 2)
    settings = RecorderSettings(new_session_name(), tmp_path)
    recorder = open_recorder(settings)
    recorder.open()
    path = Path(recorder.environment()["CRITPATH_MARKER"]).parent
    with subprocess.Popen(
        ["cat"], stdin=subprocess.PIPE, pass_fds=recorder.descriptors()
    ) as process:
        recorder.close()
        warnings = recorder.drain(lambda _: None).warnings
        assert f"process {process.pid} (cat)" in warnings[0]
        assert (path / "tracing_on").read_text(encoding="ascii").strip() == "0"
        assert (path / "set_event").read_text(encoding="ascii") == ""
    tracefs.Instance(path).remove()
    assert not path.exists()
