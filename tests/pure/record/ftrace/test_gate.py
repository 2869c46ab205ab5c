"""A layer's gate, on a played kernel: by its events, by its instance, and switched off."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from critpath.errors import CritpathError
from critpath_marks.sessions import new_session_name
from critpath_record.budget.control import SOFT, TRACING_ON
from critpath_record.ftrace.gate import Layer

EVENTS = ("sched/sched_switch", "sched/sched_waking", "irq/softirq_entry")
TRIGGER = "events/sched/sched_kthread_stop/trigger"


@pytest.fixture
def make_layer(played: Any) -> Iterator[Callable[[], Layer]]:
    made: list[Layer] = []

    def make() -> Layer:
        made.append(Layer(played.root, new_session_name(), "base", EVENTS))
        available = played.recording.texts["available_events"].decode().split()
        made[-1].make([name.replace(":", "/", 1) for name in available], 1 << 20)
        made[-1].open_counts([0, 1])
        return made[-1]

    yield make
    for layer in made:
        layer.remove()
    assert played.instances == []


def pass_one(played: Any) -> None:
    played.emit("sched/sched_switch", 0, prev_comm=b"a", next_comm=b"b")


def test_closed_softly_its_events_stay_and_return_at_once(
    played: Any, make_layer: Callable[[], Layer]
) -> None:
    layer = make_layer()
    assert layer.state == SOFT
    assert len(layer.switches) == len(EVENTS)
    assert layer.instance.read(TRIGGER).count("if common_pid < 0") == len(EVENTS)
    pass_one(played)
    assert layer.counts([0, 1]) == [0, 0]
    layer.open()
    pass_one(played)
    layer.close()
    pass_one(played)
    assert layer.counts([0, 1]) == [1, 0]
    os.pwrite(layer.switches[0], b"1", 0)  # by a program
    layer.adopt()
    pass_one(played)
    assert layer.counts([0]) == [2]
    layer.end()  # whoever opens it
    pass_one(played)
    assert layer.counts([0]) == [2]
    played.drop(1, 5)
    assert layer.lost([0, 1]) == [0, 5]


def test_where_the_kernel_takes_no_trigger_its_instance_is_switched(
    played: Any, make_layer: Callable[[], Layer]
) -> None:
    """And none of those that it had taken stays."""
    triggers = [0]
    write = played.write

    def refuse_the_third(descriptor: int, text: bytes) -> None:
        triggers[0] += b"enable_event" in text and not text.startswith(b"!")
        if triggers[0] == 3 and b"enable_event" in text and not text.startswith(b"!"):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        write(descriptor, text)

    played.write = refuse_the_third
    layer = make_layer()
    assert layer.state == TRACING_ON
    assert layer.instance.read(TRIGGER) == ""
    assert len(layer.switches) == 1
    pass_one(played)
    layer.open()
    pass_one(played)
    layer.close()
    pass_one(played)
    assert layer.counts([0]) == [1]
    assert set(layer.events) == set(EVENTS)
    layer.turn_off()
    assert not layer.is_off
    layer.open()
    layer.instance.write("tracing_on", "0")
    assert layer.put_right()
    assert not layer.put_right()
    pass_one(played)
    assert layer.counts([0]) == [2]


def test_switched_off_its_costliest_events_are_gone_until_it_opens(
    make_layer: Callable[[], Layer],
) -> None:
    layer = make_layer()
    layer.turn_off()
    layer.turn_off()
    assert layer.is_off
    left = layer.instance.read(TRIGGER)
    assert ("softirq_entry" in left, "sched_switch" in left) == (True, False)
    assert not layer.put_right()
    layer.open()
    assert not layer.is_off
    assert layer.instance.read(TRIGGER).count("enable_event") == len(EVENTS)
    layer.close()
    layer.turn_off()
    layer.adopt()
    assert not layer.is_off


def test_a_layer_that_cannot_be_made_is_an_error(
    played: Any, make_layer: Callable[[], Layer]
) -> None:
    played.refuse("make", "critpath-layer-*", errno.ENOMEM)
    with pytest.raises(CritpathError):
        make_layer()
    assert played.instances == []


def test_a_kernel_without_triggers_or_without_an_event_is_recorded_as_far_as_it_goes(
    played: Any, make_layer: Callable[[], Layer]
) -> None:
    played.lack("sched/sched_kthread_stop/trigger")
    played.lack("irq/softirq_entry")
    layer = make_layer()
    assert layer.state == TRACING_ON
    assert layer.missing == ("irq/softirq_entry",)
    assert {*layer.events} == {*EVENTS[:2]}
    layer.open()
    pass_one(played)
    assert layer.counts([0]) == [1]


def test_an_event_that_somebody_else_has_switched_is_put_right(
    make_layer: Callable[[], Layer],
) -> None:
    layer = make_layer()
    for is_open in (True, False):
        (layer.open if is_open else layer.close)()
        assert not layer.put_right()
        file = layer.instance.path / "events/sched/sched_switch/enable"
        file.write_text(f"{int(not is_open)}\n", encoding="ascii")
        assert layer.put_right()
        assert file.read_text(encoding="ascii")[0] == str(int(is_open))
