"""Functions of the command, recorded: on the path, in causes, and within a budget."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from critpath_record.functions import FILE

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "played"))
from pythons import find_pythons

NEW, OLD = find_pythons(12, 13), find_pythons(8, 9, 10, 11)

pytestmark = [
    pytest.mark.usefixtures("traceable"),
    pytest.mark.skipif(not NEW, reason="no Python 3.12 or later is here"),
]

# Says what each of its spins took, by its own clock.
PROGRAM = """
import time
def spin(ms):
    begin = time.process_time_ns()
    while time.process_time_ns() < begin + ms * 1_000_000:
        for _ in range(500): pass
    print(time.process_time_ns() - begin)
def encode(ms): spin(ms)
def fetch(): time.sleep(0.02)
def main():
    encode({ms}); fetch(); spin(6)
main()
"""


@pytest.fixture(scope="module")
def compared(record, tmp_path_factory):
    """Record two programs in turn, of which one spins for longer."""
    place = tmp_path_factory.mktemp("functions")
    for name, ms in (("normal", 4), ("sample", 84)):
        (place / f"{name}.py").write_text(PROGRAM.replace("{ms}", str(ms)))
    commands = (f"{NEW[-1]} {name}.py" for name in ("normal", "sample"))
    done = record(place, "r", "--functions", "-n", 16, "--interleave", *commands)
    assert "functions, " in done.said
    took = [int(line) for line in done.out.split()]
    return place / "r", took


def test_a_path_names_the_functions_that_ran(critpath, compared):
    place, took = compared
    shown = critpath("path", place / "sample", "--segments").stdout
    assert "spin (sample.py:3)" in shown
    # Of the sample alone: it spins for longer than the other can.
    spins = [sum(pair) for pair in zip(took[::2], took[1::2], strict=True)]
    whole = sum(each for each in spins if each > 50_000_000)
    lines = critpath("path", place / "sample", "--format", "json").stdout.splitlines()
    assert len(lines) == 16
    segments = [each for line in lines for each in json.loads(line)["segments"]]
    spun = sum(s["end"] - s["begin"] for s in segments if s["detail"].startswith("spin ("))
    # No event tells when the machine below takes the cpu: the process's own time lacks that.
    assert 0.8 < spun / whole < 1.25


def test_a_cause_names_the_function_and_vectors_stay(critpath, compared, tmp_path):
    place, _ = compared
    sets = []
    for name in ("normal", "sample"):
        sets.append(tmp_path / name)
        shutil.copytree(place / name, sets[-1])
    done = critpath("compare", *sets, "--json", tmp_path / "c.json")
    assert done.returncode == 1, done.stdout
    document = json.loads((tmp_path / "c.json").read_text())
    # On a busy machine waits for a cpu may come before it.
    running = [cause for cause in document["causes"] if cause["facts"]["state"] == "RUN"]
    assert running[0]["facts"]["location"] == "spin (sample.py:3)"
    # Vectors are those of the same recordings without functions.
    for one in sets:
        (one / FILE).unlink()
    critpath("compare", *sets, "--json", tmp_path / "d.json")
    other = json.loads((tmp_path / "d.json").read_text())
    assert other["symbols"] == document["symbols"]
    assert other["states"] == document["states"]


def test_functions_have_at_most_half_of_a_budget_and_are_charged(record, critpath, tmp_path):
    (tmp_path / "app.py").write_text(PROGRAM.replace("{ms}", "2"))
    record(tmp_path, "r", "--functions", "--overhead", "20%", "-n", 4, "--", NEW[0], "app.py")
    held = json.loads((tmp_path / "r" / "critpath.json").read_text())["overhead"]
    assert held["target"] == pytest.approx(0.2)
    listed = json.loads((tmp_path / "r" / FILE).read_text())
    trace = tmp_path / "r" / "trace" / "functions"
    # Of a stream's bytes an event takes less than 40.
    least = sum(stream.stat().st_size for stream in trace.glob("functions_*")) / 40
    assert least * 60e-9 < held["cost"]["functions"] < 0.2
    assert {"main", "spin", "fetch"} <= {one["name"] for one in listed["functions"]}
    for reader in ("native", *["babeltrace2"] * (shutil.which("babeltrace2") is not None)):
        shown = critpath("path", tmp_path / "r", "--segments", "--reader", reader)
        assert "spin (app.py:3)" in shown.stdout, shown.stderr


def test_an_older_python_ends_with_2_and_says_so(critpath, tmp_path):
    if not OLD:
        pytest.skip("no Python before 3.12 is here")
    done = critpath("record", "--functions", "-o", tmp_path / "r", "--", OLD[0], "app.py")
    assert done.returncode == 2
    assert "needs Python 3.12 or later" in done.stderr
    assert not (tmp_path / "r").exists()


SERVER = """
import sys
def spin():
    for _ in range(20_000): pass
print(flush=True)
for _ in sys.stdin:
    spin()
    print(flush=True)
"""


def test_a_program_that_begins_beside_a_flight_is_in_its_dump(start, critpath, tmp_path):
    """And notes nothing more once the flight has ended, which leaves nothing."""
    from critpath.functions import agent  # noqa: PLC0415 - as others
    from critpath_record.shared import PLACE  # noqa: PLC0415 - as others

    if Path(PLACE).exists():
        pytest.skip("a flight recorder has functions here")
    (tmp_path / "app.py").write_text(SERVER)
    place = tmp_path / f"functions-{os.getpid()}"
    words = ("record", "--always", "--functions", "--overhead", "1000%", "--calibrate", "off")
    words += ("--memory", "16M", "--usual", "0", "-o", place)
    recorder = start(sys.executable, "-m", "critpath", *words, cwd=tmp_path)
    recorder.wait_until_said("flight recorder: profile")
    program = start(NEW[-1], agent.__file__, "app.py", cwd=tmp_path)
    program.read_out()
    for _ in range(200):
        program.process.stdin.write("\n")
        program.process.stdin.flush()
        program.read_out()
    done = critpath("dump", place)
    assert done.returncode == 0, done.stderr
    made = Path(done.stdout.strip())
    found = json.loads((made / FILE).read_text())
    assert "spin" in {function["name"] for function in found["functions"]}
    assert found["events"] >= 200
    cost = json.loads((made / "critpath.json").read_text())["overhead"]["cost"]
    assert cost["functions"] >= 0
    assert critpath("doctor", made).returncode == 0
    assert critpath("dump", place, "--stop").returncode == 0
    recorder.end()
    assert not Path(PLACE).exists()
