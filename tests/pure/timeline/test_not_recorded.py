"""What a trace lacks is told once, with what the tool that wrote it records next time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from oracle.perf_write import PerfFile, switch

from critpath.convert import convert_foreign
from critpath.model import EventClass, Events, Kind
from critpath.read import KERNEL_EVENTS, Recording
from critpath.schema.environment import Environment
from critpath.schema.ways import RECORD_NEXT
from critpath.text import notes
from critpath.timeline.streaming import find_not_recorded

ALL = (Kind.SWITCH, Kind.WAKING, Kind.IRQ_ENTRY, Kind.EXIT)


def events_of(kinds: tuple[Kind, ...], state: str = "int", tracer: str = "") -> Events:
    """Return no events of classes of these kinds."""
    classes = tuple(
        EventClass(kind.name, kind, ("prev_state",), (state,))
        if kind == Kind.SWITCH
        else EventClass(kind.name, kind, (), ())
        for kind in kinds
    )
    none, few = np.zeros(0, np.int64), np.zeros(0, np.int32)
    environment = (Environment(tracer_name=tracer),)
    return Events(none, few, few, none, none, classes, (), environment=environment)


@pytest.mark.parametrize(
    ("kinds", "state", "missing"),
    [
        (ALL, "int", ()),
        ((Kind.SWITCH, Kind.WAKEUP, Kind.SOFTIRQ_ENTRY, Kind.EXIT), "int", ()),
        (ALL, "absent", ("states",)),
        ((Kind.SWITCH,), "int", ("wakes", "interrupts", "exits")),
    ],
)
def test_what_is_missing(
    tmp_path: Path, kinds: tuple[Kind, ...], state: str, missing: tuple[str, ...]
) -> None:
    found = find_not_recorded(Recording(tmp_path), events_of(kinds, state), ())
    assert [of.missing for of in found] == [missing] * bool(missing)


@pytest.mark.parametrize(
    ("tracer", "command"),
    [("perf", "perf record -a"), ("lttng-modules", "lttng enable-event"), ("", "critpath record")],
)
def test_the_command_is_that_of_the_tracer(tmp_path: Path, tracer: str, command: str) -> None:
    (found,) = find_not_recorded(Recording(tmp_path), events_of((Kind.SWITCH,), tracer=tracer), ())
    assert f"; next time: {command}" in notes.word(found)


def test_a_converted_file_names_its_tool(tmp_path: Path) -> None:
    file = PerfFile(names=("sched_switch",))
    file.sample(0, 3000, "sched_switch", switch(0, 0, 71), 0)
    (tmp_path / "perf.data").write_bytes(file.file())
    made = tmp_path / "made"
    made.mkdir()
    convert_foreign(tmp_path / "perf.data", made)
    recording = Recording(made)
    (found,) = find_not_recorded(recording, recording.read(KERNEL_EVENTS), ())
    assert found.tool == "perf.data"
    assert notes.word(found).endswith(RECORD_NEXT["perf.data"])


def test_a_text_shows_only_what_occurred(tmp_path: Path) -> None:
    """Events that a trace.dat describes need not have been asked for; nothing tells of exits."""
    text = (
        "# tracer: nop\n"
        "  app-70    [000] d..2. 100.000005: sched_switch: prev_comm=app prev_pid=70 prev_prio=120"
        " prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120\n"
    )
    (tmp_path / "trace.txt").write_text(text)
    made = tmp_path / "made"
    made.mkdir()
    convert_foreign(tmp_path / "trace.txt", made)
    recording = Recording(made)
    events = recording.read(KERNEL_EVENTS)
    (found,) = find_not_recorded(recording, events, {Kind.SWITCH})
    assert found.missing == ("wakes", "interrupts")
    assert not find_not_recorded(recording, events, {Kind.SWITCH, Kind.WAKING, Kind.TIMER_ENTRY})


def test_each_tool_has_a_command_with_switches_and_wakes() -> None:
    for tool, command in RECORD_NEXT.items():
        assert not tool or ("sched_switch" in command and "sched_waking" in command)
