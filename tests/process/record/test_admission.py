"""Gates of other processes: of a child, of one that is gone, and of a recorder that is not one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from critpath_marks import gate as layout
from critpath_marks.gate import Gate
from critpath_marks.sessions import new_session_name
from critpath_record.budget.admission import Admission

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "played"))
from budgeted import Switch
from played_time import PlayedTime


@pytest.fixture
def admission(tmp_path: Path) -> Iterator[tuple[Admission, Switch]]:
    place = tmp_path / "instances" / "critpath-layer-1"
    place.mkdir(parents=True)
    gate = Switch(PlayedTime(), "base", place / "tracing_on")
    made = Admission(new_session_name(), 7, [gate.file])
    made.publish({}, 1.0)
    yield made, gate
    made.close()
    os.close(gate.file)


def join(admission: Admission) -> Gate:
    """What a program makes of the descriptors that it inherits."""
    chances, counts, told, *switches = (os.dup(file) for file in admission.descriptors)
    return Gate(chances, counts, told, switches)


def test_a_child_closes_the_gate_that_another_thread_was_in(
    admission: tuple[Admission, Switch],
) -> None:
    program = join(admission[0])
    inside, done = threading.Event(), threading.Event()

    def hold() -> None:
        with program._lock:
            inside.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait(60)
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # it would wait for ever
        program.close()
        os._exit(program.enter("kind")[0] != 0)
    assert os.waitpid(child, 0)[1] == 0
    done.set()
    thread.join()
    program.close()


def test_a_process_that_is_gone_is_not_inside(admission: tuple[Admission, Switch]) -> None:
    shared, gate = admission
    child = os.fork()
    if child == 0:
        join(shared).enter("kind")
        os.kill(os.getpid(), 9)
    os.waitpid(child, 0)
    assert gate.records
    assert not shared.look().busy


OTHER = """
import json, sys
import critpath_marks.gate as module
from critpath_marks.channels import _move_high
for line in sys.stdin:
    place, text = json.loads(line)
    module.TRACEFS = (place,)
    gate = module.open_gate(text, _move_high)
    print(json.dumps(gate is not None), flush=True)
    if gate is not None:
        gate.enter("kind")
        gate.close()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="a layer's instance is made by root")
def test_a_stale_gate_of_another_process_is_none(
    admission: tuple[Admission, Switch], tmp_path: Path
) -> None:
    """What a program did not inherit must be of the recorder that wrote it, and the kernel's."""
    shared, gate = admission
    owner, _, rest = shared.text.partition(":")
    pid, _, started = owner.partition(".")
    words = rest.split(",")
    unsealed = os.memfd_create(layout.COUNTS, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(unsealed, layout.COUNTS_BYTES)
    asked = [
        (str(tmp_path), shared.text),
        ("/sys/kernel/tracing", shared.text),
        (str(tmp_path), f"{pid}:{rest}"),
        (str(tmp_path), f"{pid}.0:{rest}"),
        (str(tmp_path), f"{pid}.{int(started) + 1}:{rest}"),
        (str(tmp_path), f"{owner}:{words[0]},{unsealed},{words[2]},{words[3]}"),
    ]
    answers = subprocess.run(
        [sys.executable, "-c", OTHER],
        input="".join(f"{json.dumps(line)}\n" for line in asked),
        capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    assert [json.loads(line) for line in answers] == [True, *[False] * 5]
    assert gate.records  # by the first
    os.close(unsealed)
