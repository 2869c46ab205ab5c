"""Whole flights over a played kernel, in played time."""

from __future__ import annotations

import contextlib
import errno
import gc
import itertools
import json
import os
import re
import signal
import sys
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from critpath.errors import CritpathError
from critpath_record.flight import dumps, memory, service
from critpath_record.flight.live import MARKER

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "played"))
from flown import Flown

USR1, USR2 = 10, 12


def read(place: Path, name: str = "critpath.json") -> Any:
    return json.loads((place / name).read_text())


def gaps_of(made: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (made / "gaps.jsonl").read_text().splitlines()]


def test_a_flight_from_begin_to_end(
    fly: Callable[..., Flown], critpath: Callable[..., Any]
) -> None:
    flown = fly("latency checkout > 250ms", dumps=2)
    place = flown.place
    headline = "profile minimal, under 50 %; 0 dumps"
    assert flown.said == [f"flight recorder: {headline}"]
    assert place.stat().st_mode & 0o777 == 0o700
    for number in range(3):
        flown.mark(f"critpath:begin checkout {number}")
        flown.switch()
        flown.time.pass_time(0.1)
        flown.mark(f"critpath:end checkout {number}")
    assert [p.name for p in place.iterdir()] == ["flight.json"]  # nothing before the trigger
    flown.mark("critpath:begin checkout slow")
    flown.switch()
    flown.time.pass_time(0.4)
    flown.mark("critpath:end checkout slow")
    flown.time.pass_time(0.1)
    [slow] = flown.dumps
    manifest = read(slow)
    trigger = manifest["trigger"]
    assert (trigger["when"], trigger["kind"]) == ("latency checkout > 250ms", "checkout")
    assert trigger["id"] == "slow"
    assert trigger["value"].startswith("40")
    assert manifest["begin"] < trigger["at"] <= manifest["end"] + 1_000_000
    assert manifest["state"] == "complete"
    assert gaps_of(slow)[0]["why"] == "start"
    # By command and by signal, more than the hour's triggers.
    for _ in range(2):
        flown.time.pass_time(1)
        flown.switch()
        done = critpath("dump", place, "--reason", "to see")
        assert done.returncode == 0, done.stderr
    made = Path(done.stdout.strip())
    flown.time.pass_time(1)
    flown.switch()
    flown.signal(USR1)
    kept = [p.name.partition("-")[2] for p in flown.dumps]
    assert kept == ["latency-checkout", "to-see", "signal-usr1"]
    assert made in flown.dumps  # the first that was asked for is gone
    assert critpath("doctor", made).returncode == 0
    assert read(made)["trigger"]["value"] == "to see"
    flown.time.pass_time(2)
    status = json.loads(critpath("dump", "--status", place, "--json").stdout)
    assert (status["dumps"]["made"], status["dumps"]["removed"]) == (4, 1)
    assert (status["dumps"]["kept"], status["dumps"]["refused"]) == (3, {})
    assert status["overhead"]["target"] == 0.5
    assert 0.9 < status["covers"] <= 1
    assert re.search(r"holds .* at the present rate", critpath("dump", place, "--status").stdout)
    assert critpath("dump", "--stop", place).returncode == 0
    flown.thread.join(5)
    assert not flown.thread.is_alive()
    assert read(place, "flight.json")["state"] == "stopped"
    assert list(flown.run_directory.iterdir()) == []


def test_who_watches_is_told_what_ended(fly: Callable[..., Flown]) -> None:
    flown = fly()
    seen = flown.ask(top=-1)["seen"]  # from now on somebody looks on
    flown.time.pass_time(1)
    for number in range(3):
        flown.mark(f"critpath:begin job {number}", f"critpath:end job {number}")
    flown.time.pass_time(1)
    told = flown.ask(top=seen)
    ended = [one for one in told["ended"] if one[0] == MARKER]
    assert [one[1] for one in ended] == ["job"] * 3
    assert all(begin < end for _, _, begin, end in ended)
    assert (told["seen"], told["more"], told["missed"]) == (seen + 3, False, 0)
    flown.time.pass_time(15)  # nobody does any more
    flown.mark("critpath:begin job 9", "critpath:end job 9")
    flown.time.pass_time(1)
    assert flown.ask(top=0)["seen"] == seen + 3


def test_what_is_asked_is_not_trusted(fly: Callable[..., Flown]) -> None:
    """Junk, clients that say nothing, and names as long as marks allow: it goes on, and answers."""
    flown = fly()
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(flown.connect())
            flown.time.settle()
        for junk in (b"[" * 4000, b"\xff" * 99, b"1", b'{"dump":', b"x" * 100_000):
            with contextlib.suppress(ConnectionError):
                assert flown.send(junk) == b""
        for seen in (b"-1", b"1e9", b"true", b"[]", b'"x"', b"9" * 4000):
            flown.send(b'{"top": %s}' % seen)
        seen = flown.ask(top=10**12)["seen"]
        for number in range(100):
            flown.kernel.mark(f"critpath:begin {'%1b' * 200} {number}")
            flown.kernel.mark(f"critpath:end {'%1b' * 200} {number}")
        flown.kernel.end_pages()
        flown.time.pass_time(1)
        names: list[str] = []
        answers, more = 0, True
        while more:
            answer = flown.ask(top=seen)
            seen, more = answer["seen"], answer["more"]
            names += [one[1] for one in answer["ended"]]
            answers += 1
        assert len(names) == 100
        assert answers > 1  # one answer is one message
        assert len({*names}) == 1
        assert "\x1b" not in names[0]
        flown.switch()
        assert flown.ask(dump="\x1b[31m")["dump"]
    [made] = flown.dumps
    assert "\x1b" not in (made / "critpath.json").read_text()


def test_a_trigger_too_many_is_refused_and_counted(fly: Callable[..., Flown]) -> None:
    flown = fly("signal USR2", at_most=2)
    refused: dict[str, int] = {}
    for passed, number, refused in (
        (1, 1, {}),
        (1, 1, {"too soon after another": 1}),
        (60, 2, {"too soon after another": 1}),
        (60, 2, {"too soon after another": 1, "too many an hour": 1}),
        (3600, 3, {"too soon after another": 1, "too many an hour": 1}),
    ):
        flown.kernel.clock.now += passed * 1_000_000_000  # in which nobody ran
        flown.time.pass_time(0.2)
        flown.switch()
        flown.time.pass_time(0.2)
        flown.signal(USR2)
        assert len(flown.dumps) == number
        assert flown.status()["dumps"]["refused"] == refused
    said = [line for line in flown.said if line.startswith("refused")]
    assert len(said) == len(refused)
    assert said[0].startswith("refused (too soon after another): signal USR2")


def test_events_that_are_lost_fire_loss(fly: Callable[..., Flown]) -> None:
    """Buffers that somebody else keeps from overwriting lose what comes once they are full."""
    flown = fly("loss")
    flown.time.pass_time(2)
    flown.switch()
    before = flown.time.clock.now
    flown.kernel.drop(0, 70)
    flown.time.pass_time(2)
    [made] = flown.dumps
    manifest = read(made)
    assert manifest["trigger"]["when"] == "loss"
    # 70 of the layer, and as many of the buffer of marks.
    assert manifest["trigger"]["value"] == "140"
    assert sum(of["events"] for of in manifest["loss"]) == 140
    lost = [gap for gap in gaps_of(made) if (gap["layer"], gap["why"]) == ("base", "other")]
    # It is noticed within a second: no path crosses that time.
    assert lost
    assert min(gap["begin"] for gap in lost) >= before - 1_100_000_000
    assert max(gap["end"] for gap in lost) >= before


def test_a_second_above_the_budget_fires_overhead(fly: Callable[..., Flown]) -> None:
    """A second may cost more than the budget, which holds over a horizon."""
    flown = fly("overhead > 1x", overhead=0.01)
    for _ in range(40):
        flown.switch(200)
        flown.time.pass_time(0.05)
        if flown.dumps:
            break
    found = read(flown.dumps[0])["trigger"]
    assert found["when"] == "overhead > 1x"
    assert float(found["value"].removesuffix("x")) >= 1


def test_a_full_disk_costs_the_dump_and_not_the_flight(
    fly: Callable[..., Flown], critpath: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    flown = fly()
    flown.switch()
    free = [1000]
    monkeypatch.setattr(
        service.os, "statvfs", lambda _: SimpleNamespace(f_bavail=free[0], f_frsize=1, f_blocks=9)
    )
    done = critpath("dump", flown.place)
    assert done.returncode == 3
    assert "disk full" in done.stderr
    assert "free space" in done.stderr
    done = critpath("dump", flown.place, "--json")
    assert done.returncode == 3
    assert json.loads(done.stdout) == {"refused": "disk full"}
    assert [p.name for p in flown.place.iterdir()] == ["flight.json"]
    free[0] = 1 << 40
    assert critpath("dump", flown.place).returncode == 0


def test_a_disk_that_is_full_only_while_it_is_written_costs_the_dump(
    fly: Callable[..., Flown], critpath: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    flown = fly()
    flown.switch()
    write = service.raws.copy_descriptions

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(service.raws, "copy_descriptions", refuse)
    assert "disk full" in critpath("dump", flown.place).stderr
    assert [p.name for p in flown.place.iterdir()] == ["flight.json"]
    assert any("No space left" in line for line in flown.said)
    monkeypatch.setattr(service.raws, "copy_descriptions", write)
    flown.switch()
    assert critpath("dump", flown.place).returncode == 0


def test_what_others_switch_is_a_gap_and_put_right(
    fly: Callable[..., Flown], critpath: Callable[..., Any]
) -> None:
    flown = fly()
    flown.time.pass_time(1.5)
    flown.switch()
    before = flown.time.clock.now
    [layer] = flown.flight._memory.layers
    for name in ("tracing_on", f"events/{layer.events[0]}/enable"):
        file = flown.instance("base") / name
        file.write_text("0\n")
        flown.time.pass_time(1.5)
        assert file.read_text().strip() == "1", name
    (flown.instance() / "tracing_on").write_text("0\n")
    flown.time.pass_time(1.5)
    assert (flown.instance() / "tracing_on").read_text().strip() == "1"
    warned = [line for line in flown.said if "somebody else switched" in line]
    assert [line.split()[4] for line in warned] == ["base:", "base:", "marks:"]
    flown.switch()
    done = critpath("dump", flown.place)
    assert done.returncode == 0, done.stderr
    made = Path(done.stdout.strip())
    others = [gap for gap in gaps_of(made) if gap["why"] == "other"]
    assert others
    assert min(gap["begin"] for gap in others) >= before - 1_100_000_000
    assert max(gap["end"] for gap in others) > before
    assert critpath("doctor", made).returncode == 0


def test_nothing_is_held_while_the_budget_is_used_up(
    fly: Callable[..., Flown], critpath: Callable[..., Any]
) -> None:
    flown = fly()
    done = critpath("dump", flown.place)
    assert done.returncode == 3
    assert "nothing was recorded in the last" in done.stderr
    assert flown.dumps == []
    assert flown.status()["dumps"]["refused"] == {"failed": 1}


def test_what_sockets_do_is_recorded_all_the_time_and_threads_as_the_budget_allows(
    fly: Callable[..., Flown],
) -> None:
    """Beside a machine that makes more events than may be recorded, the profile stays."""
    flown = fly(overhead=0.01, profiles=("requests", "minimal"))
    assert flown.status()["profile"] == "requests"
    for _ in range(100):
        flown.switch(1000)
        flown.kernel.emit("sock/sk_data_ready", 0, times=3)
        flown.time.pass_time(0.05)
    status = flown.status()
    assert status["layers"] == ["base", "network"]
    covers = status["layers_cover"]
    assert covers["network"] > 0.99
    assert 0.0 < covers["base"] < 0.2
    assert status["covers"] == covers["base"]
    # More than may be recorded all the time is recorded together with what threads do.
    for _ in range(250):
        flown.kernel.emit("sock/sk_data_ready", 0, times=300)
        flown.switch(1000)
        flown.time.pass_time(0.05)
    before = flown.status()["layers_cover"]
    assert 0.2 < before["network"] < 0.9
    # And all the time again, when there are fewer.
    for _ in range(350):
        flown.kernel.emit("sock/sk_data_ready", 0, times=3)
        flown.switch(1000)
        flown.time.pass_time(0.05)
    assert flown.flight._control.pinned == {"network"}


def test_requests_of_a_server_without_marks_are_in_a_dump(
    fly: Callable[..., Flown], critpath: Callable[..., Any]
) -> None:
    flown = fly(profiles=("requests",), overhead=10.0)
    flown.time.pass_time(0.1)
    flown.kernel.play()
    flown.kernel.end_pages()
    done = critpath("dump", flown.place)
    assert done.returncode == 0, done.stderr
    made = Path(done.stdout.strip())
    shown = critpath("path", made, "--execution", "requests")
    assert shown.returncode == 0, shown.stderr
    assert re.search(r"[1-3] requests?, ", shown.stdout), shown.stdout


def test_one_of_each_name_runs(
    fly: Callable[..., Flown], critpath: Callable[..., Any], tmp_path: Path
) -> None:
    """A second one, of the same directory or of another of that name, leaves nothing behind."""
    flown = fly()
    flown.switch()
    assert critpath("dump", flown.place).returncode == 0
    flown.time.settle()  # it writes its state after it has answered
    places = (flown.place, flown.run_directory)

    def look() -> list[tuple[str, bytes]]:
        found = [file for place in places for file in sorted(place.rglob("*"))]
        return [(str(file), file.read_bytes() if file.is_file() else b"") for file in found]

    before, instances = look(), flown.kernel.instances
    other = tmp_path / "other" / flown.place.name
    for place in (flown.place, other):
        again = critpath("record", "--always", "-o", place)
        assert again.returncode == 2
        assert "runs already" in again.stderr
        assert (look(), flown.kernel.instances) == (before, instances)
    assert not other.parent.exists()
    flown.switch()
    assert critpath("dump", flown.place).returncode == 0
    assert flown.status()["dumps"]["made"] == len(flown.dumps) == 2


def test_what_goes_on_is_saved_a_while_later_and_what_is_usual_every_so_often(
    fly: Callable[..., Flown],
) -> None:
    flown = fly("latency checkout > 250ms", usual=60.0, keep=30.0, after=5.0)

    def switch(seconds: int) -> None:
        for _ in range(seconds):
            flown.switch()
            flown.time.pass_time(1)

    def names() -> list[str]:
        return [p.name.partition("-")[2] for p in flown.dumps]

    switch(15)
    assert names() == []
    switch(18)  # once as much is held as a dump has at most, then each minute
    assert names() == ["usual"]
    switch(50)
    flown.mark("critpath:begin checkout 1")
    switch(1)
    flown.mark("critpath:end checkout 1")
    switch(3)  # what is usual would have been due, and would have taken what is held
    assert names() == ["usual"]
    switch(6)
    assert names()[:2] == ["usual", "latency-checkout"]
    trigger, end = (read(flown.dumps[1])[key] for key in ("trigger", "end"))
    assert 4e9 < end - trigger["at"] < 7e9
    switch(90)
    assert names()[2:] == ["usual", "usual"]
    assert read(flown.dumps[-1])["trigger"]["when"] == "usual"
    assert flown.status()["dumps"]["refused"] == {}


def test_what_is_noticed_soon_after_another_is_saved_when_it_may_be(
    fly: Callable[..., Flown],
) -> None:
    """By the same condition, a minute after the other; by another one, once that is made."""
    flown = fly("latency checkout > 250ms", "signal USR2", after=5.0)
    moments = []

    def switch(seconds: int) -> None:
        for _ in range(seconds):
            flown.switch()
            flown.time.pass_time(1)

    for number, later in ((1, 20), (2, 20), (3, 40)):
        flown.mark(f"critpath:begin checkout {number}")
        switch(1)
        flown.mark(f"critpath:end checkout {number}")
        moments.append(flown.time.clock.now)
        switch(later)
    triggers = [(read(place)["trigger"], read(place)["end"]) for place in flown.dumps]
    assert len(triggers) == 2
    for (trigger, _), moment in zip(triggers, moments, strict=False):
        assert 0 <= trigger["at"] - moment < 2e9
    assert 59e9 < triggers[1][1] - triggers[0][1] < 62e9
    assert flown.status()["dumps"]["refused"] == {}


def test_an_alarm_after_a_dump_of_what_is_usual_has_the_time_before_that(
    fly: Callable[..., Flown], critpath: Callable[..., Any]
) -> None:
    """What is usual takes nothing away: only the moment of it is a gap."""
    flown = fly("latency checkout > 250ms", usual=60.0, keep=30.0, after=0.0)
    for _ in range(33):
        flown.switch()
        flown.time.pass_time(1)
    [usual] = flown.dumps
    assert flown.status()["held"] > 28
    flown.mark("critpath:begin checkout 1")
    flown.switch()
    flown.time.pass_time(0.4)
    flown.mark("critpath:end checkout 1")
    flown.time.pass_time(1)
    slow = flown.dumps[-1]
    assert slow != usual
    of_usual, of_slow = (read(place) for place in (usual, slow))
    assert 28e9 < of_slow["end"] - of_slow["begin"] <= 30e9
    # All of what was recorded in that time is there, in order, and the dump between is a gap.
    assert of_slow["recorder"]["event_count"] == pytest.approx(50 * 30, abs=160)
    assert critpath("doctor", slow).returncode == 0
    [gap] = [gap for gap in gaps_of(slow) if gap["why"] == "dump" and gap["end"] < of_slow["end"]]
    assert gap["begin"] <= of_usual["end"] <= gap["end"]
    # The next one has what came after it.
    assert flown.status()["held"] < 2
    flown.switch()
    flown.time.pass_time(1)
    flown.signal(USR1)
    last = read(flown.dumps[-1])
    assert last["begin"] >= of_slow["end"]
    assert [p.name for p in flown.place.iterdir() if p.name.startswith(".")] == []


def test_dumps_one_after_the_other_leave_nothing_out_and_refuse_none(
    fly: Callable[..., Flown], critpath: Callable[..., Any]
) -> None:
    """What a dump costs is on an account of its own: the flight records on."""
    flown = fly(overhead=0.01, memory=1 << 20)
    for _ in range(10):
        for _ in range(40):
            flown.switch(20)
            flown.time.pass_time(0.05)
        assert critpath("dump", flown.place).returncode == 0
    status = flown.status()
    assert status["covers"] > 0.9
    assert status["dumps"]["refused"] == {}
    times = [(of["begin"], of["end"]) for of in map(read, flown.dumps)]
    for (_, end), (begin, _) in itertools.pairwise(times):
        assert 0 <= begin - end < 10_000_000


def test_a_refusal_costs_nothing(fly: Callable[..., Flown], critpath: Callable[..., Any]) -> None:
    """Where nothing was recorded nothing is closed, moved, or made."""
    flown = fly()
    calls = len(flown.kernel.calls)
    assert critpath("dump", flown.place).returncode == 3
    made = [call for call in flown.kernel.calls[calls:] if call[0] == "write"]
    assert made == []
    assert flown.flight.loop.gates.windows <= 1
    assert [p.name for p in flown.place.iterdir()] == ["flight.json"]


def test_a_machine_that_was_suspended_is_said_and_is_part_of_no_execution(
    fly: Callable[..., Flown], critpath: Callable[..., Any]
) -> None:
    """Clocks jump apart by hours; programs were stopped for a second around that, too."""
    flown = fly("latency checkout > 250ms", overhead=0.02)
    flown.time.pass_time(5)
    flown.switch(20)
    before = flown.time.clock.now
    real = flown.time.real
    spent = flown.flight._control.counted()
    flown.mark("critpath:begin checkout 1", "critpath:begin checkout 2")
    flown.time.pass_time(0.2)
    flown.mark("critpath:begin checkout 3")
    flown.time.suspend(3 * 3600)
    flown.time.clock.now += 1_000_000_000
    flown.mark("critpath:end checkout 1", "critpath:end checkout 3")
    flown.time.pass_time(0.1)
    after = flown.time.clock.now
    flown.mark("critpath:end checkout 2")
    flown.switch(20)
    flown.time.pass_time(1)
    assert flown.dumps == []
    assert flown.flight._control.counted() <= spent + 0.02
    done = critpath("dump", flown.place)
    assert done.returncode == 0, done.stderr
    made = Path(done.stdout.strip())
    [gap] = [gap for gap in gaps_of(made) if gap["why"] == "other"]
    assert before <= gap["begin"] + 250_000_000
    assert gap["begin"] < after - 900_000_000
    assert gap["end"] <= after
    manifest = read(made)
    [said] = [one for one in manifest["warnings"] if "suspended" in one]
    assert said.startswith("the machine was suspended for 180 min, 5 s after the begin: ")
    assert manifest["clock"]["epoch"] == pytest.approx(real + 3 * 3600 * 10**9, abs=10**6)
    assert critpath("doctor", made).returncode == 0
    # The next one, which begins later, has no gap of it, and what is slow now is an alarm.
    flown.mark("critpath:begin checkout 4")
    flown.switch(20)
    flown.time.pass_time(0.4)
    flown.mark("critpath:end checkout 4")
    flown.time.pass_time(0.1)
    later = flown.dumps[-1]
    assert later != made
    assert read(later)["trigger"]["id"] == "4"
    assert not [one for one in read(later)["warnings"] if "suspended" in one]
    assert not [gap for gap in gaps_of(later) if gap["why"] == "other"]


def test_a_clock_that_is_set_changes_neither_order_nor_limits_of_dumps(
    fly: Callable[..., Flown], critpath: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Back by a year, ahead by a day, and where it was: names, `at-most` and what is kept."""
    flown = fly("signal USR2", at_most=3, dumps=2)
    monkeypatch.setattr(dumps, "time", flown.time)
    seen = []
    for days in (0, -365, 1, 0):
        flown.time.real += days * 86_400 * 1_000_000_000
        flown.switch()
        flown.time.pass_time(61)
        flown.signal(USR2)
        flown.time.pass_time(0.1)
        seen += [made for made in flown.dumps if made not in seen]
        assert seen[-2:] == flown.dumps
    assert [made.name for made in seen] == sorted(made.name for made in seen)
    assert len(seen) == 3
    assert flown.status()["dumps"]["refused"] == {"too many an hour": 1}
    flown.time.real += 2 * 3600 * 1_000_000_000  # an hour of the day is none
    flown.signal(USR2)
    assert flown.status()["dumps"]["refused"] == {"too many an hour": 2}
    spans = [(m["begin"], m["end"]) for m in map(read, flown.dumps)]
    assert spans == sorted(spans)
    for made in flown.dumps:
        assert critpath("doctor", made).returncode == 0


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ENODEV, errno.EIO])
def test_a_tracer_that_is_gone_ends_it_with_what_to_do(
    fly: Callable[..., Flown], number: int
) -> None:
    flown = fly("latency checkout > 250ms")
    flown.switch()
    flown.time.pass_time(1)
    for action in ("read", "open", "write"):
        flown.kernel.refuse(action, "tracing_on", number)
        flown.kernel.refuse(action, "per_cpu/*", number)
    flown.time.pass_time(1.5)
    check_end(flown)


def test_a_file_of_the_tracer_that_fails_ends_it_too(
    fly: Callable[..., Flown], monkeypatch: pytest.MonkeyPatch
) -> None:
    flown = fly("latency checkout > 250ms")

    def fail(*_: object) -> bytes:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    monkeypatch.setattr(memory.MarkPages, "_read_one", fail)
    flown.time.pass_time(1.5)
    check_end(flown)


def check_end(flown: Flown) -> None:
    """It ended by itself, with what and what to do, and left nothing half-written."""
    flown.thread.join(5)
    error, flown.failure = flown.failure, None
    assert isinstance(error, CritpathError), error
    assert error.exit_code == 125
    assert error.do
    assert "\n" not in error.what + error.do
    assert [p.name for p in flown.place.iterdir()] == ["flight.json"]
    assert read(flown.place, "flight.json")["state"] == "stopped"
    assert [*flown.run_directory.iterdir()] == []


def test_tracefs_that_is_mounted_elsewhere_is_none_of_its_business(
    fly: Callable[..., Flown], critpath: Callable[..., Any]
) -> None:
    flown = fly()
    flown.kernel.unmount()
    flown.switch()
    flown.time.pass_time(2)
    done = critpath("dump", flown.place)
    assert done.returncode == 0, done.stderr
    flown.kernel.mount()
    flown.switch()
    flown.time.pass_time(2)
    assert critpath("dump", flown.place).returncode == 0
    assert len(flown.dumps) == 2


def test_a_suspension_is_a_gap_of_every_layer_also_for_requests_that_are_followed(
    fly: Callable[..., Flown],
) -> None:
    flown = fly(profiles=("requests",), overhead=10.0)
    flown.time.pass_time(2)
    before = flown.time.look()
    crossed = []
    requests = flown.flight._live.requests
    flown.flight._live.requests = SimpleNamespace(
        **{name: getattr(requests, name) for name in dir(requests) if name[0] != "_"}
        | {"cross_gap": crossed.append}
    )
    flown.time.suspend(0.05)  # as it is when the clocks are read slowly
    flown.time.pass_time(1.5)
    assert crossed == []
    flown.time.suspend(7200)
    flown.time.pass_time(1.5)
    journal = flown.flight._memory.journal
    assert crossed == journal.list_opened({"network"}, before)
    assert len(crossed) == len(journal.list_opened({"base"}, before)) == 1
    flown.flight._live.requests = requests


def test_a_day_leaves_memory_files_and_threads_as_they_were(
    fly: Callable[..., Flown], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 24 hours with a dump every second one the last ones need no more than the first ones."""
    monkeypatch.setattr(service, "_TICK", (0.05, 1200.0))
    monkeypatch.setattr(service, "_SECOND", 1200.0)
    flown = fly(dumps=3)
    flown.flight.rest = flown.flight.loop.control.longest = flown.time.step = 1200.0
    ours = tracemalloc.Filter(True, f"{Path(service.__file__).parents[1]}/*")

    def fly_on(dumps: int) -> tuple[int, int, int, int]:
        for _ in range(dumps):
            flown.time.pass_time(7190)
            flown.switch()
            flown.time.pass_time(5)
            flown.signal(signal.SIGUSR1)
            flown.time.pass_time(5)
        gc.collect()
        taken = tracemalloc.take_snapshot().filter_traces([ours]).statistics("filename")
        files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - no object for each
        return sum(of.size for of in taken), len(gc.get_objects()), files, threading.active_count()

    tracemalloc.start()
    try:
        size, objects, *others = fly_on(2)
        later, more, *now = fly_on(10)
    finally:
        tracemalloc.stop()
    assert flown.status()["dumps"]["made"] == 12
    assert now == others
    assert more < objects + 100
    assert later < size + 20 * 1024  # what the journal and the losses keep is bounded, too
