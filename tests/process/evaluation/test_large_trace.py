"""What the generator of large traces writes is a trace, and a machine that could be."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from critpath.errors import UsageError
from critpath.flow import extract
from critpath.model import EventRequest, Kind
from critpath.read.traces import read_events

EVERYTHING = (EventRequest(Kind.OTHER, ("*",), (("*",),)),)
EVENTS = 10_000
SMALL = {"cpus": 4, "threads": 200, "executions": 20}
WAKES = ("sched_waking", "sched_wakeup", "sched_wakeup_new")

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.fixture(scope="module")
def large_trace(load):
    return load("evaluation/benchmarks/large_trace.py")


@pytest.fixture(scope="module")
def trace(large_trace, tmp_path_factory) -> tuple[Path, dict]:
    place = tmp_path_factory.mktemp("trace") / "large"
    return place, large_trace.generate(place, EVENTS, **SMALL)


def rows(events) -> list[tuple]:
    """Every event: time, processor, name, fields by name."""
    found = []
    for i in range(len(events)):
        of = events.classes[events.event_class[i]]
        values = events.values[events.offset[i] :][: len(of.fields)].tolist()
        fields = {
            name: events.strings[value] if kind == "str" else value
            for name, kind, value in zip(of.fields, of.types, values, strict=True)
        }
        found.append((int(events.timestamp[i]), int(events.cpu[i]), of.name, fields))
    return found


def counted(path: Path) -> tuple[int, str]:
    """Events that babeltrace2 counts, and what it complains of."""
    done = subprocess.run(
        ["babeltrace2", str(path), "-c", "sink.utils.counter"],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(re.findall(r"(\d+) Event messages", done.stdout)[-1]), done.stderr


@pytest.mark.skipif(shutil.which("babeltrace2") is None, reason="needs the babeltrace2 command")
@pytest.mark.parametrize("cpus", [64, pytest.param(1, marks=pytest.mark.deep)])
def test_babeltrace2_counts_the_events_asked_for_and_complains_of_nothing(
    large_trace, tmp_path, cpus
):
    truth = large_trace.generate(tmp_path / "large", 100_003, cpus=cpus)
    assert counted(tmp_path / "large") == (100_003, "")
    assert truth["events"] == sum(truth["counts"].values()) == 100_003


def test_both_readers_read_the_same(trace):
    path, truth = trace
    ours = read_events(path, EVERYTHING, reader="native")
    assert ours.total == len(ours) == EVENTS
    assert (ours.losses, ours.warnings) == ((), ())
    assert dict(Counter(name for _, _, name, _ in rows(ours))) == truth["counts"]
    try:
        theirs = read_events(path, EVERYTHING, reader="babeltrace2")
    except UsageError as error:
        pytest.skip(str(error))
    assert sorted(map(repr, rows(theirs))) == sorted(map(repr, rows(ours)))


def test_switches_and_wakes_fit_each_other(trace):
    """A twin of what a scheduler keeps: who runs where, and who sleeps."""
    running: dict[int, int] = {}
    where: dict[int, int] = {}
    state: dict[int, str] = {}
    seen = Counter()
    for _, cpu, name, fields in rows(read_events(trace[0], EVERYTHING)):
        tid = fields.get("tid")
        if name == "sched_switch":
            left, new = fields["prev_tid"], fields["next_tid"]
            assert running.get(cpu, left) == left
            seen[fields["prev_state"]] += 1
            if new:
                assert where.get(new) is None, "it runs on one processor"
                assert state.get(new, "awake") == "awake"
                where[new] = cpu
            if left:
                where[left] = None
                state[left] = "awake" if fields["prev_state"] in (0, 256) else "asleep"
            running[cpu] = new
        elif name in WAKES:
            assert where.get(tid) is None
            before = "asleep" if name == "sched_waking" else "woken"
            assert state.get(tid, before) == ("forked" if name == "sched_wakeup_new" else before)
            state[tid] = "woken" if name == "sched_waking" else "awake"
        elif name == "sched_process_fork":
            assert fields["child_tid"] not in state
            state[fields["child_tid"]] = "forked"
        elif name in ("sched_process_exec", "sched_process_exit"):
            assert running[cpu] == tid
        elif cpu in running:  # in the context of the thread that runs
            assert running[cpu] == fields.get("vtid", tid)
    assert set(seen) == {0, 1, 2, 32, 128, 256}


def test_executions_are_found_and_wait_for_what_the_simulation_has(large_trace, trace):
    path, truth = trace
    found = extract([path], specification=large_trace.EXECUTION)
    assert len(found.executions) == truth["ended"] == truth["begun"] == SMALL["executions"]
    assert not found.lossy.any()


def test_the_same_options_give_the_same_bytes(large_trace, trace, tmp_path):
    path, _ = trace
    large_trace.generate(tmp_path / "again", EVENTS, **SMALL)
    files = sorted(p.relative_to(path) for p in path.rglob("*") if p.is_file())
    assert len(files) == 2 * (2 * SMALL["cpus"] + 1) + 1
    for file in files:
        assert (path / file).read_bytes() == (tmp_path / "again" / file).read_bytes()
    large_trace.generate(tmp_path / "other", EVENTS, seed=2, **SMALL)
    kernel = Path("kernel/kernel_0")
    assert (path / kernel).read_bytes() != (tmp_path / "other" / kernel).read_bytes()


def test_losses_are_counted_as_lttng_counts_them(large_trace, tmp_path):
    path = tmp_path / "lossy"
    truth = large_trace.generate(path, EVENTS, **SMALL, loss=0.05, subbuffer=1 << 14)
    events = read_events(path, EVERYTHING, reader="native")
    assert events.total == EVENTS
    assert sum(loss.events for loss in events.losses) == truth["lost"]
    assert 0.02 < truth["lost"] / EVENTS < 0.1
    if shutil.which("babeltrace2"):
        number, said = counted(path)
        assert number == EVENTS
        tracer = sum(int(n) for n in re.findall(r"WARNING: Tracer discarded (\d+) event", said))
        assert tracer in (0, truth["lost"])  # the counter leaves what was lost to messages


def test_switches_can_be_missing(large_trace, tmp_path):
    path = tmp_path / "missing"
    truth = large_trace.generate(path, EVENTS, **SMALL, missing_switches=0.01)
    events = read_events(path, EVERYTHING, reader="native")
    assert (events.total, events.losses) == (EVENTS, ())
    assert truth["missing"] == pytest.approx(0.01 * truth["counts"]["sched_switch"], rel=0.5)
    assert sum(later != before for before, later in handed_over(events)) >= truth["missing"] / 2


def handed_over(events) -> list[tuple[int, int]]:
    """The thread each switch went to, and the one that the next switch there comes from."""
    pairs, running = [], {}
    for _, cpu, name, fields in rows(events):
        if name == "sched_switch":
            if cpu in running:
                pairs.append((running[cpu], fields["prev_tid"]))
            running[cpu] = fields["next_tid"]
    return pairs
