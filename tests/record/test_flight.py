"""The flight recorder: its parts, and whole flights of this machine's kernel."""

from __future__ import annotations

import collections
import contextlib
import fcntl
import http.client
import itertools
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.commands.top import Ended, Frame, label_rows, percentile
from critpath.errors import UsageError
from critpath.record.budget.calibrate import TABLE
from critpath.record.budget.control import Budget, Control, Reading
from critpath.record.budget.gaps import read_journal
from critpath.record.flight import state
from critpath.record.flight.conditions import CONDITIONS, parse_condition
from critpath.record.flight.dumps import Trigger, find_dumps, remove_oldest
from critpath.record.flight.live import MARKER, PROCESS, Formats, LiveExecutions
from critpath.record.flight.memory import Held, Loss, MarkPages, MemoryJournal
from critpath.record.flight.pages import HEAD, cut, cut_page, is_empty
from critpath.record.flight.service import Refusals
from critpath.record.flight.state import prepare_directory
from critpath.record.ftrace._pages import list_records
from critpath.record.ftrace.ctf_writer import read_stats
from critpath.units import NS_PER_S
from critpath_marks.sessions import new_session_name

pytestmark = pytest.mark.xdist_group("kernel")

CRITPATH = (sys.executable, "-m", "critpath")
ALWAYS = (
    *(*CRITPATH, "record", "--always", "--profile", "minimal", "--memory", "8M"),
    *("--overhead", "50%", "--calibrate", "off", "-o"),
)
INSTANCES = Path("/sys/kernel/tracing/instances")
RUN = Path("/run/critpath")
MARKS = """
import time
from critpath_marks.marks import execution
for number in range(200):
    with execution("checkout"):
        time.sleep(0.4 if number == 50 else 0.002)
"""
PING_PONG = """
import os
ask, answer = os.eventfd(0), os.eventfd(0)
if os.fork() == 0:
    while True:
        os.eventfd_read(ask)
        os.eventfd_write(answer, 1)
while True:
    os.eventfd_write(ask, 1)
    os.eventfd_read(answer)
"""


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
    ],
)
def test_conditions_are_parsed(text: str, word: str, name: str, limit: float) -> None:
    found = parse_condition(text)
    assert (found.word, found.name, found.limit) == (word, name, limit)
    assert found.signal == (signal.SIGUSR2 if word == "signal" else 0)


@given(st.text(max_size=60))
def test_anything_else_is_refused_with_the_list_of_words(text: str) -> None:
    known = any(text.split()[:1] == [word] for word in CONDITIONS)
    if not known:
        with pytest.raises(UsageError) as error:
            parse_condition(text)
        assert all(form in error.value.do for form in CONDITIONS.values())


@pytest.mark.parametrize(
    "text", ["__import__('os').system('true')", "exit != 1", "signal KILL", "latency x > 0ms"]
)
def test_a_bad_condition_is_exit_code_2(tmp_path: Path, text: str) -> None:
    done = critpath("record", "--always", "--when", text, "-o", tmp_path / "f")
    assert done.returncode == 2
    assert all(form in done.stderr for form in CONDITIONS.values())
    assert not (tmp_path / "f").exists()


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
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
    live = LiveExecutions(Formats(5, 8, 9, 8))
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
    live = LiveExecutions(Formats(5, 8, 9, 8))
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
    LiveExecutions(Formats(5, 8, 9, 8)).add([HEAD.pack(1, len(data)) + data])
    cut_page(HEAD.pack(1, len(data)) + data, 5)


# Locks, sockets and links


@pytest.fixture
def registry(monkeypatch, tmp_path: Path) -> Path:
    """Return a directory of locks of our own."""
    place = tmp_path / "run"
    place.mkdir(mode=0o700)
    monkeypatch.setattr(state, "registry_directory", lambda **_: place)
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


# Dumps in a directory


def put_dump(top: Path, name: str) -> Path:
    (top / name).mkdir()
    (top / name / "critpath.json").write_text("{}")
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
    rows = label_rows(Frame(0, 10.0, ended, {"b": {"WAIT_DISK": 0.5}}))
    assert [(r["label"], r["rate"], r["p50_ns"], r["p99_ns"]) for r in rows] == [
        ("a", 10.0, 50, 99),
        ("b", 0.1, 10, 10),
    ]
    assert rows[0]["shares"] == {"RUN": 1.0}
    assert rows[1]["shares"] == {"WAIT_DISK": 0.5}


@given(st.lists(st.integers(0, 100), min_size=1), st.floats(0.01, 1))
def test_a_percentile_is_the_nearest_rank(times: list[int], part: float) -> None:
    times.sort()
    found = percentile(times, part)
    assert sum(t <= found for t in times) >= part * len(times) - 1e-9
    assert sum(t < found for t in times) < part * len(times)


# A week in a minute


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
    assert not marks.bytes


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
    held = Held(100, {"base": {0: Pages()}}, counts, [marks], 4096, losses)
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


@pytest.mark.long
def test_a_week_in_a_minute(tmp_path: Path) -> None:
    """Windows, triggers, marks that end and marks that never do: nothing held grows."""
    clock = [0.0]
    budget = Budget(0.01, 10.0)
    control = Control(budget, TABLE, ["base", "network"], 2, 1)
    journal, refusals = MemoryJournal(), Refusals(6, lambda: clock[0])
    marks = MarkPages(Gates(tmp_path), [0, 1], 4096, 1 << 16)
    live = LiveExecutions(Formats(5, 8, 9, 8))
    recent = collections.deque(maxlen=1000)
    held = (control, journal, refusals, marks, live, recent)
    opened: frozenset[str] = frozenset()
    sizes, made, wait = [], 0, 0.05
    for minute in range(7 * 24 * 60):
        for _ in range(20):  # as often as it wants to look; of a minute the rest is idle
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
        if minute % (24 * 60) == 24 * 60 - 1:
            sizes.append(size_of(held, set()))
    marks.close()
    assert made == 6 * 24 * 7
    assert refusals.counts["too many an hour"] == 7 * 24 * 60 - made
    assert len(sizes) == 7
    # Lists fill up to their bounds on the first days.
    assert sizes[-1] <= 1.01 * sizes[2], sizes
    assert len(journal.rows) == journal.rows.maxlen
    assert sizes[-1] < 20 << 20


# On this kernel


def critpath(*words: object, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CRITPATH, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        **options,
    )


@pytest.fixture
def needs_ftrace() -> None:
    from critpath.record.ftrace.recorder import missing_requirements  # noqa: PLC0415

    fatal = [o.what for o in missing_requirements(None) if o.fatal]
    if os.geteuid() or fatal:
        pytest.skip(f"ftrace cannot record here: {fatal[0] if fatal else 'not root'}")


def name_of(place: Path) -> str:
    return f"{place.name}-{os.getpid()}"


@contextlib.contextmanager
def flight(place: Path, *words: str, env=None) -> Iterator[subprocess.Popen[str]]:
    """Run a flight recorder; it records when this is entered."""
    process = subprocess.Popen(
        [*ALWAYS, place, *words],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
    )
    try:
        line = ""
        while "flight recorder: profile" not in line:
            line = process.stderr.readline()
            assert line, "it has ended"
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def instances_of(process: subprocess.Popen[str]) -> list[str]:
    return [p.name for p in INSTANCES.iterdir() if f"-{process.pid}-" in p.name]


def process_instance(process: subprocess.Popen[str]) -> str:
    """Return the instance of a flight recorder that programs write their marks to."""
    return next(name for name in instances_of(process) if not name.startswith("critpath-layer"))


def until(condition, seconds: float = 30.0):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.05)
    pytest.fail("it did not happen")
    return None


@pytest.mark.long
@pytest.mark.usefixtures("needs_ftrace")
def test_a_flight_from_begin_to_end(request, tmp_path: Path) -> None:
    place = tmp_path / name_of(tmp_path)
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(tmp_path / "notify"))
    request.addfinalizer(manager.close)
    manager.settimeout(30)
    env = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
    options = ("--when", "latency checkout > 250ms", "--at-most", "2/h", "--dumps", "2")
    with flight(place, *options, env=env) as process:
        assert manager.recv(4096).startswith(b"READY=1\nSTATUS=flight recorder")
        assert place.stat().st_mode & 0o777 == 0o700
        assert critpath("record", "--always", "-o", place).returncode == 2  # one of each name
        # Nothing of what must not run as root is in the process.
        maps = Path(f"/proc/{process.pid}/maps").read_text()
        assert "numpy" not in maps
        before = [p.name for p in place.iterdir()]
        program = [sys.executable, "-c", MARKS]
        marks = Path(__file__).parents[2] / "marks"
        path = f"{marks}:{os.environ.get('PYTHONPATH', '')}"
        subprocess.run(program, env={**os.environ, "PYTHONPATH": path}, check=True)
        [slow] = until(lambda: find_dumps(place))
        assert before == ["flight.json"]  # nothing was written before the trigger
        manifest = json.loads((slow / "critpath.json").read_text())
        trigger = manifest["trigger"]
        assert trigger["when"] == "latency checkout > 250ms"
        assert trigger["kind"] == "checkout"
        assert manifest["execution"] == "marker"
        assert manifest["begin"] < trigger["at"] < manifest["end"] + NS_PER_S
        shown = critpath("path", slow, "--format", "json")
        assert shown.returncode == 0, shown.stderr
        # The slow one is whole, and what it waited for is known.
        assert "WAIT_TIMER" in critpath("path", slow).stdout
        # By command and by signal, more than the hour's triggers.
        for _ in range(2):
            done = critpath("dump", place, "--reason", "to see")
            assert done.returncode == 0, done.stderr
        made = Path(done.stdout.strip())
        process.send_signal(signal.SIGUSR1)
        until(lambda: any("usr1" in p.name for p in find_dumps(place)))
        until(lambda: len(find_dumps(place)) == 2)  # the oldest two are gone
        assert made in find_dumps(place)
        whole = critpath("verify", made)
        assert whole.returncode == 0, whole.stdout
        assert json.loads((made / "critpath.json").read_text())["trigger"]["value"] == "to see"

        def told() -> dict:
            return json.loads(critpath("dump", "--status", place, "--json").stdout)

        status = until(lambda: (now := told())["dumps"]["made"] == 4 and now)
        assert status["dumps"]["closed"] > 0
        assert status["overhead"]["target"] == 0.5
        lines = critpath("dump", place, "--status").stdout
        assert re.search(r"holds .* of .* at the present rate", lines)
        rows = critpath("top", place, "--json", "--duration", "0.1", "--window", "999").stdout
        top = json.loads(rows.splitlines()[0])
        [label] = [row for row in top["labels"] if row["label"] == "checkout"]
        assert 0 < label["count"] <= 200  # what ends while gates are closed is not seen
        assert 2_000_000 < label["p50_ns"] <= label["p99_ns"] <= label["time_ns"]
        assert critpath("dump", "--stop", place).returncode == 0
        assert process.wait(60) == 0
    assert json.loads((place / "flight.json").read_text())["state"] == "stopped"
    assert not instances_of(process)
    assert not (RUN / f"flight-{place.name}").exists()
    replay = critpath("top", made, "--json", "--execution", "process")
    assert replay.returncode in {0, 3}


ANSWERS = """
import http.server, sys, time
class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.path == "/slow":
            time.sleep(0.3)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")
    def log_message(self, *_):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Answer)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.mark.long
@pytest.mark.usefixtures("needs_ftrace")
def test_requests_of_a_server_without_marks_are_in_a_dump(tmp_path: Path) -> None:
    from critpath.record.ftrace.preflight import offered_way  # noqa: PLC0415
    from critpath.record.profiles import SOCKETS  # noqa: PLC0415

    if offered_way() != SOCKETS:
        pytest.skip("this kernel has no events of sockets")
    place = tmp_path / name_of(tmp_path)
    server = subprocess.Popen([sys.executable, "-c", ANSWERS], stdout=subprocess.PIPE, text=True)
    client = http.client.HTTPConnection("127.0.0.1", int(server.stdout.readline()))
    try:
        client.request("GET", "/")  # connected before anything is recorded
        client.getresponse().read()
        with flight(place, "--profile", "requests", "--overhead", "1000%"):
            for path in ("/", "/", "/slow", "/"):
                client.request("GET", path)
                client.getresponse().read()
            made = Path(critpath("dump", place).stdout.strip())
    finally:
        client.close()
        server.kill()
        server.communicate()
    done = critpath("path", made, "--execution", f"requests:port={client.port}")
    assert done.returncode == 0, done.stderr
    # The first and the last of a connection may reach over the edges; the slow one is whole.
    assert re.search(
        r"[2-4] executions, median .*, longest ([3-9]\d\d ms|[\d.]+ s)", done.stdout
    ), done.stdout
    assert "WAIT_TIMER" in done.stdout


@pytest.mark.long
@pytest.mark.usefixtures("needs_ftrace")
def test_what_is_asked_is_not_trusted(tmp_path: Path) -> None:
    """Junk, clients that say nothing, and names as long as marks allow: it goes on, and answers."""
    place = tmp_path / name_of(tmp_path)

    def send(message: bytes) -> bytes:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as to:
            to.settimeout(30)
            to.connect(str(RUN / f"flight-{place.name}.sock"))
            to.send(message)
            return to.recv(1 << 20)

    with flight(place) as process, contextlib.ExitStack() as stack:
        for _ in range(40):
            idle = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            idle.connect(str(RUN / f"flight-{place.name}.sock"))
        for junk in (b"[" * 4000, b"\xff" * 99, b"1", b'{"dump":', b"x" * 100_000):
            assert send(junk) == b""
        for seen in (b"-1", b"1e9", b"true", b"[]", b'"x"', b"9" * 4000):
            send(b'{"top": %s}' % seen)

        def ended() -> int:
            return json.loads(send(b'{"top": 1%s}' % (b"0" * 12)))["seen"]

        seen = ended()
        marker = INSTANCES / process_instance(process) / "trace_marker"
        for batch in range(12):
            before = ended()
            for number in range(100 * batch, 100 * batch + 100):
                for step in ("begin", "end"):
                    marker.write_text(f"critpath:{step} {'%1b' * 200} {number}\n")
            until(lambda since=before: ended() >= since + 100)
        names: list[str] = []
        more = True
        while more:
            answer = json.loads(send(b'{"top": %d}' % seen))
            seen, more = answer["seen"], answer["more"]
            names += [one[1] for one in answer["ended"] if one[0] == MARKER]
        assert len(names) >= 1100  # others' processes end, too: the last batch may be under way
        assert len({*names}) == 1
        assert "\x1b" not in names[0]
        assert json.loads(send(b'{"dump": "\\u001b[31m"}'))["dump"]
        assert process.poll() is None
    [made] = find_dumps(place)
    assert "\x1b" not in (made / "critpath.json").read_text()


@pytest.mark.long
@pytest.mark.usefixtures("needs_ftrace")
def test_a_trigger_too_many_is_refused_and_counted(tmp_path: Path) -> None:
    place = tmp_path / name_of(tmp_path)
    options = ("--when", "exit != 0", "--when", "signal USR2", "--at-most", "1/h")
    with flight(place, *options) as process:
        subprocess.run(["sh", "-c", "exit 3"], check=False)
        until(lambda: find_dumps(place))
        trigger = json.loads((find_dumps(place)[0] / "critpath.json").read_text())["trigger"]
        assert trigger["when"] == "exit != 0"

        def told() -> dict:
            return json.loads(critpath("dump", place, "--status", "--json").stdout)["dumps"]

        until(lambda: told()["made"] == 1)
        process.send_signal(signal.SIGUSR2)
        until(lambda: told()["refused"].get("too many an hour"))
        assert len(find_dumps(place)) == 1


@contextlib.contextmanager
def busy_program() -> Iterator[None]:
    """Run two processes that wake each other without end."""
    program = subprocess.Popen([sys.executable, "-c", PING_PONG], start_new_session=True)
    try:
        yield
    finally:
        os.killpg(program.pid, signal.SIGKILL)
        program.wait()


def trigger_of(place: Path) -> dict[str, object]:
    """Wait for a dump; return why it was made."""
    [made, *_] = until(lambda: find_dumps(place), 120)
    return json.loads((made / "critpath.json").read_text())["trigger"]


@pytest.mark.long
@pytest.mark.usefixtures("needs_ftrace")
def test_events_that_are_lost_fire_loss(tmp_path: Path) -> None:
    """Buffers that somebody else keeps from overwriting lose what comes once they are full."""
    place = tmp_path / name_of(tmp_path)
    with flight(place, "--when", "loss", "--memory", "1M") as process, busy_program():
        [base] = [name for name in instances_of(process) if "layer-base" in name]
        (INSTANCES / base / "options" / "overwrite").write_text("0")
        found = trigger_of(place)
        [made] = find_dumps(place)
        manifest = json.loads((made / "critpath.json").read_text())
        gaps = [json.loads(line) for line in (made / "gaps.jsonl").read_text().splitlines()]
    assert found["when"] == "loss"
    assert int(str(found["value"])) > 0
    assert sum(of["events"] for of in manifest["loss"]) >= int(str(found["value"]))
    lost = [gap for gap in gaps if (gap["layer"], gap["why"]) == ("base", "other")]
    assert lost
    # It is noticed within a second or two: no path crosses that time.
    assert max(gap["end"] for gap in lost) >= found["at"] - 2_000_000_000


@pytest.mark.long
@pytest.mark.usefixtures("needs_ftrace")
def test_a_second_above_the_budget_fires_overhead(tmp_path: Path) -> None:
    """A second may cost more than the budget, which holds over a horizon."""
    place = tmp_path / name_of(tmp_path)
    budget = ("--overhead", "2%", "--when", "overhead > 1x")
    with flight(place, *budget), busy_program():
        found = trigger_of(place)
    assert found["when"] == "overhead > 1x"
    assert float(str(found["value"]).removesuffix("x")) >= 1


@pytest.mark.long
@pytest.mark.usefixtures("needs_ftrace")
def test_a_full_disk_costs_the_dump_and_not_the_flight(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=80m", "none", disk], check=True)
    try:
        place = disk / name_of(tmp_path)
        with flight(place) as process:
            filler = disk / "filler"
            filler.write_bytes(bytes(70 << 20))
            done = critpath("dump", place)
            assert done.returncode == 3
            assert "disk full" in done.stderr
            assert "free space" in done.stderr
            done = critpath("dump", place, "--json")
            assert done.returncode == 3
            assert json.loads(done.stdout) == {"refused": "disk full"}
            assert "free space" in done.stderr
            assert [p.name for p in place.iterdir()] == ["flight.json"]
            filler.unlink()
            assert critpath("dump", place).returncode == 0
            assert process.poll() is None
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.long
@pytest.mark.usefixtures("needs_ftrace")
def test_what_others_switch_is_a_gap_and_put_right(tmp_path: Path) -> None:
    place = tmp_path / name_of(tmp_path)
    with flight(place) as process:
        time.sleep(1.5)
        [base] = [name for name in instances_of(process) if "layer-base" in name]
        (INSTANCES / base / "tracing_on").write_text("0")
        until(lambda: (INSTANCES / base / "tracing_on").read_text().strip() == "1")
        time.sleep(0.3)
        done = critpath("dump", place)
        assert done.returncode == 0, done.stderr
        made = Path(done.stdout.strip())
    gaps = [json.loads(line) for line in (made / "gaps.jsonl").read_text().splitlines()]
    [other] = [gap for gap in gaps if gap["why"] == "other"]
    assert other["end"] - other["begin"] > 0
    assert critpath("verify", made).returncode == 0


@pytest.mark.long
@pytest.mark.usefixtures("needs_ftrace")
def test_killed_at_random_moments_it_leaves_nothing(tmp_path: Path) -> None:
    place = tmp_path / name_of(tmp_path)
    coin = random.Random(19)  # noqa: S311 - a coin
    for number in range(20):
        process = subprocess.Popen([*ALWAYS, place], stderr=subprocess.DEVNULL)
        time.sleep(coin.uniform(0.1, 2.0))
        if number % 2 and (place / "flight.json").is_file():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGUSR1)
            time.sleep(coin.uniform(0.0, 0.8))
        process.kill()
        process.wait()
        # What others leave at this moment is not of this test: it need not find a clean machine.
        done = critpath("doctor", "--clean")
        assert done.returncode in {0, 1}, done.stderr
        assert not instances_of(process)
        assert not [p for p in RUN.glob("*") if f"-{process.pid}-" in p.name]
        assert not (RUN / f"flight-{place.name}").exists()
        if not place.exists():
            continue
        left = {p.name for p in place.iterdir()} - {p.name for p in find_dumps(place)}
        assert left <= {"flight.json"}, left
        if left:
            assert json.loads((place / "flight.json").read_text())["state"] == "killed"
        for made in find_dumps(place):
            found = json.loads((made / "critpath.json").read_text())
            assert found["state"] in {"complete", "interrupted"}
            assert found["trigger"]["when"] == "signal USR1"
            assert critpath("verify", made).returncode == 0
