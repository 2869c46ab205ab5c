"""The flight recorder: its parts."""

from __future__ import annotations

import collections
import errno
import fcntl
import itertools
import json
import os
import re
import signal
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.commands.top import Ended, Screen, label_rows, percentile
from critpath.commands.walking import read_chances
from critpath.errors import UsageError
from critpath.metrics.shares import ANSWER, OWN, QUEUED, read_times
from critpath.model.recording import SAMPLED, SAMPLED_FORMAT
from critpath.units import NS_PER_S
from critpath_marks.sessions import new_session_name
from critpath_record.budget.calibrate import TABLE
from critpath_record.budget.control import Budget, Control, Reading
from critpath_record.budget.gaps import read_journal
from critpath_record.flight import live as live_module
from critpath_record.flight import memory, state
from critpath_record.flight.conditions import CONDITIONS, Condition
from critpath_record.flight.dumps import (
    Dump,
    Trigger,
    dump_request,
    find_dumps,
    remove_oldest,
)
from critpath_record.flight.kinds import Kinds
from critpath_record.flight.live import MARKER, PROCESS, Formats, LiveExecutions
from critpath_record.flight.memory import Held, Loss, MarkPages, MemoryJournal
from critpath_record.flight.pages import HEAD, cut, cut_page, is_empty
from critpath_record.flight.service import Refusals
from critpath_record.flight.state import prepare_directory
from critpath_record.ftrace._pages import list_records
from critpath_record.ftrace.raw import read_stats

# Conditions


@pytest.mark.parametrize(
    ("text", "word", "name", "limit"),
    [
        ("latency checkout > 250ms", "latency", "checkout", 250_000_000),
        ("latency  a/b>1.5s", "latency", "a/b", 1_500_000_000),
        ("latency view cart > 1s", "latency", "view cart", 1_000_000_000),
        ("loss", "loss", "", 0),
        ("signal USR2", "signal", "USR2", 0),
        ("exit != 0", "exit", "", 0),
        ("pressure memory some 150ms/1s", "pressure", "memory", 150_000_000),
        ("overhead > 2x", "overhead", "", 2),
        ("latency web:80 p99 > 250ms over 30s", "latency", "web:80", 250_000_000),
        ("latency GET /cart p99.9 > 1s over 1min", "latency", "GET /cart", NS_PER_S),
        ("latency p50 > 2ms over 10s", "latency", "", 2_000_000),
        ("latency p99x > 2ms", "latency", "p99x", 2_000_000),
        ("rate web:80 < 0.5/s over 30s", "rate", "web:80", 0.5),
        ("slower than usual", "slower", "", 0),
        ("slower than usual by 50% at most 0.1/day", "slower", "", 0.5),
    ],
)
def test_conditions_are_parsed(text: str, word: str, name: str, limit: float) -> None:
    found = Condition.parse(text)
    assert (found.word, found.name, found.limit) == (word, name, limit)
    assert found.signal == (signal.SIGUSR2 if word == "signal" else 0)


@given(st.text(max_size=60))
def test_anything_else_is_refused_with_the_list_of_words(text: str) -> None:
    known = any(text.split()[:1] == [word] for word in CONDITIONS)
    if not known:
        with pytest.raises(UsageError) as error:
            Condition.parse(text)
        assert all(form in error.value.do for form in CONDITIONS.values())


@pytest.mark.parametrize(
    "text",
    [
        *("__import__('os').system('true')", "exit != 1", "signal KILL", "latency x > 0ms"),
        *("latency > 3ms", "latency x p99 > 1s", "latency x > 1s over 3s", "rate x < 0/s over 3s"),
        *(
            "latency x p0 > 1s over 3s",
            "slower than usual by 0%",
            "slower than usual at most 0/day",
        ),
    ],
)
def test_a_bad_condition_is_exit_code_2(
    critpath: Callable[..., Any], tmp_path: Path, text: str
) -> None:
    done = critpath("record", "--always", "--when", text, "-o", tmp_path / "f")
    assert done.returncode == 2
    assert all(form in done.stderr for form in CONDITIONS.values())
    assert not (tmp_path / "f").exists()


def test_what_does_not_go_together_is_refused(critpath: Callable[..., Any], tmp_path: Path) -> None:
    for words in (
        ("--always", "-o", tmp_path / "f", "--", "true"),
        ("--always",),
        ("--always", "-a", "-o", tmp_path / "f"),
        ("--always", "--recorder", "lttng", "-o", tmp_path / "f"),
        ("--always", "--counts", "-o", tmp_path / "f"),
        ("--keep", "5min", "--", "true"),
        ("--always", "--at-most", "0/h", "-o", tmp_path / "f"),
    ):
        assert critpath("record", *words).returncode == 2, words
    assert critpath("dump", tmp_path).returncode == 2
    assert critpath("top", tmp_path).returncode in {2, 4}


def test_a_directory_that_others_could_exchange_is_refused(tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    with pytest.raises(UsageError, match="could be exchanged"):
        prepare_directory(open_to_all / "flight")
    open_to_all.chmod(0o1777)
    made = prepare_directory(open_to_all / "flight")
    assert made.stat().st_mode & 0o777 == 0o700
    assert prepare_directory(open_to_all / "not" / "there").is_dir()
    assert prepare_directory(made) == made  # ours
    (open_to_all / "file").write_text("")
    with pytest.raises(UsageError, match="cannot make"):
        prepare_directory(open_to_all / "file" / "flight")
    (made / "mine").write_text("")
    with pytest.raises(UsageError, match="others' files are in it: mine"):
        prepare_directory(made)
    (open_to_all / "link").symlink_to(made)
    with pytest.raises(UsageError):
        prepare_directory(open_to_all / "link")


# Pages


def make_page(
    begin: int, steps: list[tuple[int, bytes]], size: int = 4096, missed: int = 0
) -> bytes:
    """Return a page as the kernel writes it: deltas, extended where they are long."""
    data = b""
    for delta, content in steps:
        if delta >= 1 << 27:
            data += struct.pack("=II", 30 | (delta & 0x7FF_FFFF) << 5, delta >> 27)
            delta = 0  # noqa: PLW2901 - what is left of it
        content = content.ljust(-(-len(content) // 4) * 4 or 4, b"\0")  # noqa: PLW2901
        if len(content) <= 28 * 4:
            data += struct.pack("=I", len(content) // 4 | delta << 5) + content
        else:
            data += struct.pack("=II", delta << 5, len(content) + 4) + content
    return (HEAD.pack(begin, len(data) | missed) + data).ljust(size, b"\0")


STEPS = st.lists(
    st.tuples(st.integers(0, 1 << 30), st.binary(min_size=1, max_size=130)), max_size=20
)


@given(st.integers(0, 1 << 60), STEPS, st.integers(0, 1 << 34))
def test_a_page_is_cut_to_the_records_since_a_time(
    tmp_path_factory, begin: int, steps, after: int
) -> None:
    page = make_page(begin, steps, missed=1 << 31)
    before = list(list_records(page))
    times = list(itertools.accumulate((delta for delta, _ in steps), initial=begin))[1:]
    assert [time for time, _ in before] == times
    short = cut_page(page, begin + after)
    assert list(list_records(short)) == [one for one in before if one[0] >= begin + after]
    assert len(short) == len(page)
    file = tmp_path_factory.mktemp("page") / "cpu0"
    file.write_bytes(short)
    assert is_empty(file, 4096) == (not list(list_records(short)))
    assert not HEAD.unpack_from(short)[1] >> 30  # nothing says any more that events were lost


@given(st.lists(STEPS, min_size=1, max_size=6), st.integers(0, 1 << 33))
def test_a_file_is_cut_to_the_records_since_a_time(tmp_path_factory, pages, after: int) -> None:
    file = tmp_path_factory.mktemp("pages") / "cpu0"
    at, made = 1000, []
    for steps in pages:
        made.append(make_page(at, steps))
        at += sum(delta for delta, _ in steps)
    file.write_bytes(b"".join(made))
    cut(file, 4096, 1000 + after)
    data = file.read_bytes()
    found = [one for n in range(0, len(data), 4096) for one in list_records(data[n : n + 4096])]
    # Where pages begin at the same time the last of them is as good as the first.
    wanted = [one for page in made for one in list_records(page) if one[0] >= 1000 + after]
    assert found == wanted[len(wanted) - len(found) :]
    assert all(time == 1000 + after for time, _ in wanted[: len(wanted) - len(found)])


def mark(number: int, text: bytes, pid: int = 7) -> bytes:
    return struct.pack("=HBBiQ", number, 0, 0, pid, 0) + text


def test_marks_and_processes_become_executions() -> None:
    exit_ = struct.pack("=HBBi16s", 9, 0, 0, 8, b"job")
    page = make_page(
        100,
        [
            (0, mark(5, b"critpath:begin a%20b 1\n")),
            (5, mark(5, b"critpath:begin c\n")),
            (5, struct.pack("=HBBi", 8, 0, 0, 8) + bytes(8)),
            (10, mark(5, b"critpath:end a%20b 1\n")),
            (10, mark(5, b"critpath:end c\n")),
            (0, mark(5, b"critpath:end never\n") + bytes(200)),
            (10, exit_),
        ],
    )
    live = LiveExecutions(Formats(5, 8, 9, 8), Kinds())
    found = [(e.what, e.kind, e.id, e.begin, e.end) for e in live.add([page])]
    assert found == [
        (MARKER, "a b", "1", 100, 120),
        (MARKER, "c", "7", 105, 130),
        (PROCESS, "job", "8", 110, 140),
    ]


def test_what_ended_while_nobody_looked_is_not_taken_for_slow() -> None:
    begin, end = (
        make_page(t, [(0, mark(5, b"critpath:%s a\n" % w))])
        for t, w in ((1, b"begin"), (9, b"end"))
    )
    live = LiveExecutions(Formats(5, 8, 9, 8), Kinds())
    live.add([begin])
    live.forget()
    assert not live.add([end])
    live.add([begin])
    assert len(live.add([end])) == 1
    lost = HEAD.pack(9, HEAD.unpack_from(end)[1] | 1 << 31) + end[HEAD.size :]
    # An end and another begin may be among what was lost.
    assert not live.add([begin, lost])


@given(st.binary(max_size=300))
def test_a_damaged_page_does_no_harm(data: bytes) -> None:
    LiveExecutions(Formats(5, 8, 9, 8), Kinds()).add([HEAD.pack(1, len(data)) + data])
    cut_page(HEAD.pack(1, len(data)) + data, 5)


# Locks, sockets and links


@pytest.fixture
def registry(monkeypatch, tmp_path: Path) -> Path:
    """Return a directory of locks of our own."""
    place = tmp_path / "run"
    place.mkdir(mode=0o700)
    monkeypatch.setattr(state, "registry_directory", lambda **_: place)
    monkeypatch.setattr(state, "find_flights", lambda: sorted(place.glob("flight-*")))
    return place


def test_flight_recorders_have_sockets_of_their_own(registry: Path, tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("a.v1", "a.v2", "a.sock")]
    paths = [state.lock_path(place) for place in places]
    sockets = [state.socket_path(path) for path in paths]
    assert len({*paths, *sockets}) == 6
    assert {path.parent for path in paths} == {registry}


@pytest.mark.usefixtures("registry")
def test_what_is_cleaned_up_is_not_the_lock_of_one_that_has_begun(tmp_path: Path) -> None:
    dead = re.sub(r"-\d+(-\w+)$", r"-1\1", new_session_name())
    path = state.lock_path(tmp_path)
    path.write_text(json.dumps({"session": dead, "directory": str(tmp_path)}))
    [left] = state.find_leftovers()
    with state.hold_lock(tmp_path, new_session_name()):
        left.remove()
        assert path.exists()
        with pytest.raises(UsageError, match="runs already"):
            state.hold_lock(tmp_path, dead).__enter__()
    assert not path.exists()


@pytest.mark.usefixtures("registry")
def test_what_a_killed_one_kept_for_the_next_dump_is_removed(tmp_path: Path) -> None:
    """And half of a dump that was being removed; what others put there is not."""
    dead = re.sub(r"-\d+(-\w+)$", r"-1\1", new_session_name())
    for name in (f".held-{dead}", ".gone-20261101T000000Z-loss", ".others"):
        (tmp_path / name / "base").mkdir(parents=True)
        (tmp_path / name / "base" / "cpu0").write_bytes(b"x")
    (tmp_path / ".held-link").symlink_to(tmp_path / ".others")
    (tmp_path / "flight.json").write_text(json.dumps({"session": dead}))
    state.lock_path(tmp_path).write_text(json.dumps({"session": dead, "directory": str(tmp_path)}))
    [left] = state.find_leftovers()
    left.remove()
    assert {p.name for p in tmp_path.iterdir()} - {"run"} == {
        *(".others", ".held-link", "flight.json")
    }
    assert (tmp_path / ".others" / "base" / "cpu0").exists()


# Dumps in a directory


def put_dump(top: Path, name: str, when: str = "loss") -> Path:
    (top / name).mkdir()
    (top / name / "critpath.json").write_text(json.dumps({"trigger": {"when": when}}))
    return top / name


def test_the_oldest_dumps_are_removed_but_none_that_is_read(tmp_path: Path) -> None:
    made = [put_dump(tmp_path, f"2026112{n}T000000-loss") for n in range(5)]
    (tmp_path / "mine").mkdir()
    (tmp_path / "20261101T000000-link").symlink_to(tmp_path / "mine")
    with (made[0] / "critpath.json").open("rb") as read:
        fcntl.flock(read, fcntl.LOCK_SH)
        assert remove_oldest(tmp_path, 2) == 2
    assert find_dumps(tmp_path) == [made[0], *made[3:]]
    assert remove_oldest(tmp_path, 2) == 1
    assert max(p.name for p in tmp_path.iterdir()) == "mine"


def test_dumps_stand_in_the_order_in_which_they_were_made_whatever_the_clock_says(
    tmp_path: Path,
) -> None:
    """Summer time ends, a clock is set back: the newest dump is not taken for the oldest."""
    earlier = put_dump(tmp_path, "29991231T235959-loss")  # an earlier version's: local time
    ahead = put_dump(tmp_path, "29991231T235959Z.9-loss")
    made = []
    for _ in range(2):
        dump = Dump(tmp_path, Trigger("loss"), dump_request("", "minimal", ""))
        made.append(put_dump(tmp_path, dump.target.name))
        assert find_dumps(tmp_path) == [earlier, ahead, *made]
    assert [place.name for place in made] == [f"29991231T235959Z.{n}-loss" for n in (10, 11)]
    assert remove_oldest(tmp_path, 1, made[1]) == 3
    assert find_dumps(tmp_path) == [made[1]]


def test_the_one_just_made_is_never_removed(tmp_path: Path) -> None:
    made = put_dump(tmp_path, "20261101T000000Z-loss")
    put_dump(tmp_path, "20261102T000000Z-loss")
    assert remove_oldest(tmp_path, 1, made) == 0
    assert made.exists()


def test_conditions_remove_no_dump_that_was_asked_for_and_none_that_is_to_be_kept(
    tmp_path: Path,
) -> None:
    asked = [
        put_dump(tmp_path, "20261101T000000Z-usual", "command"),
        put_dump(tmp_path, "20261102T000000Z-usr1", "signal USR1"),
    ]
    kept = put_dump(tmp_path, "20261103T000000Z-loss")
    (kept / "keep").touch()
    for second in range(5):
        put_dump(tmp_path, f"20261104T00000{second}Z-loss")
    assert remove_oldest(tmp_path, 2) == 3
    assert find_dumps(tmp_path)[:3] == [*asked, kept]
    assert len(find_dumps(tmp_path)) == 5


def test_a_dump_that_may_be_kept_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is, the disk does not answer."""
    dumps = [put_dump(tmp_path, f"2026110{day}T000000Z-loss") for day in (1, 2, 3)]
    refuse_looks(monkeypatch, "keep")
    assert remove_oldest(tmp_path, 1) == 0
    monkeypatch.undo()
    assert find_dumps(tmp_path) == dumps


def refuse_looks(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let every question for what has this name fail, as of a disk that is broken."""
    real = os.lstat

    def look(path: Any, **how: Any) -> os.stat_result:
        if Path(path).name == name:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(path, **how)

    monkeypatch.setattr(os, "lstat", look)
    monkeypatch.setattr(Path, "lstat", look)


def test_a_dump_is_named_after_what_triggered_it() -> None:
    assert Trigger("latency ../../x > 1s", kind="../../x").word == "latency-x"
    assert Trigger("signal USR1", kind="USR1").word == "signal-usr1"
    assert Trigger("\n").word == "dump"
    assert Trigger("command", "../Users say: slow").word == "users-say-slow"
    assert Trigger("command").word == "command"


def test_one_condition_does_not_take_all_dumps_of_an_hour() -> None:
    clock = [0.0]
    refusals = Refusals(3, lambda: clock[0])
    made = []
    for second in range(3700):
        clock[0] = float(second)
        for when in ("loss", "exit != 0") if second in {5, 6, 3650} else ("loss",):
            if not refusals.refusal(when):
                refusals.note_made(when)
                made.append((second, when))
    assert made == [
        (0, "loss"),
        (5, "exit != 0"),
        (60, "loss"),
        (3600, "loss"),
        (3650, "exit != 0"),
        (3660, "loss"),
    ]


# What top shows


def test_rows_of_labels() -> None:
    ended = [Ended("a", 0, n + 1, {"RUN": 1.0}) for n in range(100)] + [Ended("b", 0, 10)]
    rows = label_rows(Screen(0, 10.0, ended, shares={"b": {("WAIT_DISK", ""): 0.5}}))
    assert [(r["label"], r["rate"], r["p50_ns"], r["p99_ns"]) for r in rows] == [
        ("a", 10.0, 50, 99),
        ("b", 0.1, 10, 10),
    ]
    assert rows[0]["shares"] == {"RUN": 1.0}
    assert rows[1]["shares"] == {"WAIT_DISK": 0.5}


def test_where_time_goes_is_counted_of_all_and_told_apart_by_those_walked() -> None:
    times = read_times(1000, [100, 0, [["db:5432", 3, 500], [":53", 1, 100]]])
    request = {"label": "web:80", "count": 4, "rate": 0.4, "p50_ns": 1, "p99_ns": 2}
    request |= {"time_ns": 1000, "times": times}
    walked = {("RUN", ""): 0.2, ("WAIT_DISK", "db"): 0.5, ("WAIT_CPU", "helper"): 0.2}
    walked[QUEUED, ""] = 0.1
    [row] = label_rows(Screen(0, 10.0, [], [request], {"web:80": walked}))
    assert row["shares"] == {QUEUED: 0.1, ANSWER: 0.6, "RUN": 0.15, "WAIT_CPU": 0.15}
    assert row["asked"] == {"db:5432": 0.5, ":53": 0.1}
    [row] = label_rows(Screen(0, 10.0, [], [request]))
    assert row["shares"] == {QUEUED: 0.1, ANSWER: 0.6, OWN: 0.3}
    [row] = label_rows(Screen(0, 10.0, [], [{**request, "times": {}}]))
    assert row["shares"] == {}


def test_what_is_damaged_of_a_choice_is_no_choice(tmp_path: Path) -> None:
    assert read_chances(tmp_path) == {}
    file = tmp_path / SAMPLED
    whole = {"format": SAMPLED_FORMAT, "requests": [["a", 1, 2, 3, 0.5], ["a", 1, 2, 4, 0]]}
    for document in ([], {}, {**whole, "format": "x"}, {**whole, "requests": [[1]]}):
        file.write_text(json.dumps(document))
        assert read_chances(tmp_path) == {}
    file.write_text(json.dumps(whole))
    assert read_chances(tmp_path) == {(1, 2, 3): 0.5}


@given(st.lists(st.integers(0, 100), min_size=1), st.floats(0.01, 1))
def test_a_percentile_is_the_nearest_rank(times: list[int], part: float) -> None:
    times.sort()
    found = percentile(times, part)
    assert sum(t <= found for t in times) >= part * len(times) - 1e-9
    assert sum(t < found for t in times) < part * len(times)


# Days in a moment


def size_of(thing: object, seen: set[int]) -> int:
    """Return the bytes of a thing and of all that it holds."""
    if id(thing) in seen:
        return 0
    seen.add(id(thing))
    size = sys.getsizeof(thing)
    if isinstance(thing, dict):
        size += sum(size_of(one, seen) for pair in thing.items() for one in pair)
    elif isinstance(thing, list | tuple | set | frozenset | collections.deque):
        size += sum(size_of(one, seen) for one in thing)
    elif type(thing).__module__.startswith("critpath."):
        size += size_of(vars(thing), seen)
    return size


class Gates:
    """What `MarkPages` reads: a page a second of each cpu, and pairs of marks in it."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def open(self, name: str, flags: int) -> int:
        (self.place / name.replace("/", "-")).write_bytes(b"")
        return os.open(self.place / name.replace("/", "-"), flags)


def test_marks_of_one_cpu_alone_are_saved(tmp_path: Path) -> None:
    marks = MarkPages(Gates(tmp_path), [0, 1], 4096, 1 << 16)
    page = make_page(5, [(0, mark(5, b"critpath:begin job 1"))])
    marks.keep(1, page)
    marks.save(tmp_path, 0)
    marks.close()
    assert (tmp_path / "cpu0").read_bytes() == b""
    assert (tmp_path / "cpu1").read_bytes() == page.ljust(4096, b"\0")
    assert marks.bytes  # the next dump may hold it, too


class Pages:
    """Pages of a layer's cpu that are all there."""

    def save(self, file: Path) -> None:
        file.write_bytes(make_page(50, [(0, b"x")]))

    def close(self) -> None: ...


def test_what_was_lost_is_counted_where_a_dump_holds_its_time(tmp_path: Path) -> None:
    """By layer and cpu, as losses and as times that no path crosses; what came before is not."""
    marks = MarkPages(Gates(tmp_path), [0, 1], 4096, 1 << 16)
    losses = [
        Loss(10, 90, "layers/base", 0, 1000),  # of before what is held
        Loss(90, 190, "layers/base", 0, 3),
        Loss(190, 290, "layers/base", 0, 4),
        Loss(190, 290, ".", 1, 5),
    ]
    counts = {"base": {0: {"entries": 0, "overrun": 77}}}
    held = Held(100, {"base": {0: Pages()}}, counts, {".": marks}, 4096, losses)
    raw = tmp_path / "raw"
    raw.mkdir()
    begin = held.save(raw, 0, 1000)
    assert begin == 100
    assert read_stats(raw / "layers/base/stats.json") == {0: {"entries": 0, "dropped events": 7}}
    assert read_stats(raw / "stats.json") == {1: {"dropped events": 5}}
    times = [(gap["begin"], gap["end"]) for gap in held.silences(begin)]
    assert times == [(90, 190), (190, 290)]
    marks.close()


def test_a_layer_that_is_closed_anyway_is_not_taken_for_open_again(tmp_path: Path) -> None:
    """Whatever others switched meanwhile: it is a gap until it is opened here."""
    journal = MemoryJournal()
    journal.note_closed("base", 100, 110, "budget")
    journal.note_other("base", 200)
    journal.note_opened("base", 300, 310)
    file = tmp_path / "journal"
    file.write_text("".join(json.dumps(row) + "\n" for row in journal.rows))
    [gap] = read_journal(file, 0, 1000)
    assert (gap.begin, gap.opening, gap.end) == (100, 300, 310)


def test_what_others_switched_after_a_dump_is_a_gap_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last look was before the dump; that opened it, so others closed it later."""
    journal = MemoryJournal()
    monkeypatch.setattr(memory.time, "monotonic_ns", lambda: 9_000_000)
    journal.note_closed("base", 3_000_000, 3_000_010, "dump")
    journal.note_opened("base", 5_000_000, 5_000_010)
    journal.note_other("base", 2_000_000)
    file = tmp_path / "journal"
    file.write_text("".join(json.dumps(row) + "\n" for row in journal.rows))
    gaps = [(gap.begin, gap.end, gap.why) for gap in read_journal(file, 0, 10_000_000)]
    assert gaps == [(3_000_000, 5_000_010, "dump"), (5_000_010, 9_000_000, "other")]


def test_whatever_comes_nothing_that_is_held_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows, triggers, marks that end and marks that never do, of eight hours."""
    monkeypatch.setattr(memory, "_ROWS", 500)  # bounds that are met within one
    monkeypatch.setattr(live_module, "_MOST_OPEN", 1000)
    clock = [0.0]
    budget = Budget(0.01, 10.0)
    control = Control(budget, TABLE, ["base", "network"], 2, 1)
    journal, refusals = MemoryJournal(), Refusals(6, lambda: clock[0])
    marks = MarkPages(Gates(tmp_path), [0, 1], 4096, 1 << 16)
    live = LiveExecutions(Formats(5, 8, 9, 8), Kinds())
    recent = collections.deque(maxlen=1000)
    held = (control, journal, refusals, marks, live, recent)
    opened: frozenset[str] = frozenset()
    sizes, made, wait = [], 0, 0.05
    for minute in range(8 * 60):
        for _ in range(10):  # as often as it wants to look; of a minute the rest is idle
            clock[0] += wait
            events = {name: [round(1e6 * wait) * (name in opened)] * 2 for name in control.layers}
            decision = control.step(Reading(clock[0], [wait, wait / 4], events, 1e-5))
            wait = decision.wait
            for name in control.layers:
                if (name in decision.open) != (name in opened):
                    step = journal.open_layer if name in decision.open else journal.close_layer
                    step(name, *(["budget"] * (name not in decision.open)), lambda: None)
            opened = decision.open
        clock[0] = 60.0 * (minute + 1)
        at = round(clock[0] * NS_PER_S)
        kinds = [b"job", *(b"never%d" % number for number in range(20))]
        steps = [(0, mark(5, b"critpath:begin %s %d" % (kind, minute))) for kind in kinds]
        steps.append((9, mark(5, b"critpath:end job %d" % minute)))
        page = make_page(at, steps)[:1000]
        marks.keep(minute % 2, page)
        recent.extend(live.add([page]))
        if why := refusals.refusal("loss"):
            refusals.note(why)
        else:
            refusals.note_made("loss")
            made += 1
        if minute % 60 == 59:
            sizes.append(size_of(held, set()))
    marks.close()
    assert made == 6 * 8
    assert refusals.counts["too many an hour"] == 8 * 60 - made
    # Lists fill up to their bounds in the first hours.
    assert sizes[-1] <= 1.01 * sizes[2], sizes
    assert len(journal.rows) == journal.rows.maxlen
    assert sizes[-1] < 2 << 20
