"""What a first look says: of drawn events exactly, of recordings alike in every format."""

from __future__ import annotations

import csv
import json
import sys
from io import StringIO
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "timeline"))
from building import build

from critpath.documents.look import LOOK_FORMAT, LookDocument
from critpath.engines import Budget
from critpath.glance.looking import Looking
from critpath.model import Kind
from critpath.read import WholeRecording
from critpath.text import look as words
from critpath.timeline.streaming import Assumptions, replay_stream

GOLDEN = Path(__file__).with_name("golden")
SORTS = ("cpu", "wait", "worst", "blocked", "wakes", "migrations")


def look_at(rows, *, sort="cpu", most=0):
    events = build(rows)
    replayed = replay_stream(
        lambda: WholeRecording(events), Assumptions(waking=True, syscalls=False), [], Budget()
    )
    document = LookDocument(
        format=LOOK_FORMAT,
        version="1",
        source="drawn",
        hosts=["host"],
        kernel="6.1.0",
        begin=events.begin,
        end=events.end,
        epoch_ns=0,
        total=len(rows),
        events=[],
        losses=[],
        sort=sort,
    )
    Looking(replayed, sort, most).fill(document)
    return document


SWITCH, WAKING, WAKEUP = Kind.SWITCH, Kind.WAKING, Kind.WAKEUP
# Thread 1 sleeps and is woken by 2 of the other cpu, which 3 preempts; 1 waits for 3, twice as
# long as for nobody, and goes to the other cpu.
DRAWN = [
    (0, 0, SWITCH, (0, 0, 1)),
    (0, 1, SWITCH, (0, 0, 2)),
    (10, 0, SWITCH, (1, 1, 3)),
    (18, 1, WAKING, (1, 0)),
    (20, 0, WAKEUP, (1, 0)),
    (60, 0, SWITCH, (3, 0, 0)),
    (70, 1, SWITCH, (2, 0, 1)),
    (90, 1, SWITCH, (1, 0, 2)),
    (95, 1, SWITCH, (2, 2, 1)),
    (100, 1, SWITCH, (1, 1, 0)),
]


def test_drawn_threads():
    document = look_at(DRAWN)
    rows = {row.tid: row for row in document.threads}
    assert [row.tid for row in document.threads] == [2, 3, 1]
    one, two, three = (rows[tid] for tid in (1, 2, 3))
    assert (one.cpu, one.turns, one.migrations) == (35, 3, 1)
    assert (one.wait, one.waits, one.preempted, one.wait_p50, one.wait_p99) == (55, 2, 1, 5, 50)
    assert (one.blocked, one.woken, one.unwoken, one.wakes) == (10, 1, 0, 0)
    assert one.states == {"RUN": 35, "WAIT_CPU": 55, "WAIT_TASK": 10}
    assert (two.cpu, two.wait, two.wakes, two.blocked) == (75, 20, 1, 5)
    assert (two.unwoken, three.cpu, three.wait) == (5, 50, 40)
    worst = one.worst
    assert (worst.begin, worst.end, worst.cpu, worst.tid) == (20, 70, 0, 1)
    assert (worst.rival, worst.rival_tid, worst.rival_time, worst.others) == ("t3", 3, 40, 0)
    assert (two.worst.rival, two.worst.rival_tid) == ("t1", 1)
    # Nobody had the cpu that it left, and did not get again.
    assert (three.worst.rival, three.worst.rival_tid, three.worst.rival_time) == ("idle", None, 40)
    assert document.waiting == pytest.approx((55 + 20 + 40) / 100)


def test_drawn_processors():
    first, second = look_at(DRAWN).cpus
    assert (first.cpu, first.busy, first.idle, first.unobserved, first.turns) == (0, 60, 40, 0, 2)
    assert (second.cpu, second.busy, second.idle, second.turns) == (1, 100, 0, 4)


def test_what_is_asked_for_comes_first_and_the_rest_is_counted():
    document = look_at(DRAWN, sort="worst", most=2)
    assert [row.tid for row in document.threads] == [1, 3]
    assert document.further_threads == 1
    assert [row.comm for row in look_at(DRAWN, sort="wakes", most=1).threads] == ["t2"]
    assert [row.comm for row in look_at(DRAWN, sort="migrations", most=1).threads] == ["t1"]
    assert [row.comm for row in look_at(DRAWN, sort="blocked", most=1).threads] == ["t1"]


def test_threads_of_a_process_are_one():
    """Two threads of process 7: a wait of either is one of the process, the longest is whose."""
    rows = [
        *[(0, 0, Kind.STATEDUMP, (tid, 5, 7, 1, "app")) for tid in (7, 8)],
        (0, 0, SWITCH, (0, 0, 7)),
        (10, 0, SWITCH, (7, 0, 8)),
        (40, 0, SWITCH, (8, 0, 7)),
        (50, 0, SWITCH, (7, 0, 0)),
    ]
    [row] = [row for row in look_at(rows).processes if row.pid == 7]
    assert (row.threads, row.cpu, row.turns, row.waits) == (2, 50, 3, 2)
    assert (row.wait_p50, row.worst.tid, row.worst.rival_tid) == (10, 7, 8)


def test_words_of_a_look():
    document = look_at(DRAWN)
    assert words.headline(document) == "drawn: 100 ns of 2 CPUs, 10 events (100,000,000/s)"
    assert [words.blockers(row) for row in document.threads] == [
        "not woken 5.0 %",
        "",
        "thread 10 %",
    ]
    assert words.next_commands(document) == [
        "critpath path drawn --tid 1 --from 0 --to 100 --segments",
        "critpath view drawn --tid 1 --from 0 --to 100",
    ]


def test_a_thread_without_a_name_is_told_by_its_id():
    document = look_at(DRAWN)
    document.worst.comm = ""
    assert words.worst_wait(document) == (
        "longest wait for a CPU: 50 ns, of thread 1 at 20 ns, for CPU 0 that `t3` (tid 3) had"
    )


@pytest.fixture
def path(critpath, guest, monkeypatch):
    """Return a function that looks at a guest's recording as a user does."""

    def run(name, *arguments, columns=120):
        place = guest(name)
        monkeypatch.setenv("COLUMNS", str(columns))
        return critpath("path", place.name, *arguments, cwd=place.parent)

    return run


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("name", ["sample-quota", "lossy"])
def test_a_recording_on_a_terminal(path, golden, name, columns):
    done = path(name, "--look", columns=columns)
    assert done.returncode == 0
    golden(GOLDEN / f"{name}-{columns}.txt", done.stdout + done.stderr)
    tables = done.stdout.partition("\n\n")[2].splitlines()
    assert max(len(line) for line in tables if not line.startswith("%")) <= columns


def test_the_page_shows_what_is_printed(path):
    shown = path("sample-lock", "--look", "--top", "6", columns=100).stdout
    page = (Path(__file__).parents[3] / "docs" / "looking.md").read_text(encoding="utf-8")
    assert "\n".join(line.rstrip() for line in shown.splitlines()) in page


def numbers(path, name, *arguments):
    document = json.loads(path(name, *arguments, "--format", "json", "--look").stdout)
    return document, list(
        csv.DictReader(StringIO(path(name, *arguments, "--format", "csv").stdout))
    )


@pytest.mark.parametrize("name", ["sample-quota", "plain", "lossy"])
def test_json_csv_and_text_say_the_same(path, name):
    document, rows = numbers(path, name)
    span = document["end"] - document["begin"]
    assert document["format"] == LOOK_FORMAT
    assert all(c["busy"] + c["idle"] + c["unobserved"] == span for c in document["cpus"])
    assert all(c["unobserved"] >= 0 for c in document["cpus"])
    assert sum(of["count"] for of in document["events"]) <= document["total"]
    assert len(rows) == len(document["threads"])
    for row, of in zip(rows, document["threads"], strict=True):
        assert sum(of["states"].values()) <= span
        assert of["cpu"] + of["wait"] + of["blocked"] <= sum(of["states"].values())
        for key, value in of.items():
            if key == "states":
                assert {s: int(row[f"{s}_ns"]) for s in value} == value
            elif key == "worst":
                found = row["worst_begin_ns"], row["worst_end_ns"], row["worst_rival"]
                wanted = (value["begin"], value["end"], value["rival"]) if value else ("", "", "")
                assert found == tuple(map(str, wanted))
            else:
                name_ = f"{key}_ns" if f"{key}_ns" in row else key
                assert row[name_] == ("" if value is None else str(value))
    # On a terminal the same threads, in the same order.
    shown = path(name, "--look", "--by", "thread").stdout.split("─\n")[1].splitlines()
    for line, of in zip(shown, document["threads"], strict=False):
        if not line.startswith(("%", "no room")):
            assert line.startswith(of["comm"])


@pytest.mark.parametrize("sort", SORTS)
def test_rows_are_sorted_by_what_is_asked_for(path, sort):
    document, _ = numbers(path, "sample-quota", "--sort", sort)
    key = (
        (lambda row: row["worst"]["end"] - row["worst"]["begin"] if row["worst"] else 0)
        if sort == "worst"
        else lambda row: row[sort]
    )
    for rows in (document["threads"], document["processes"]):
        values = [key(row) for row in rows]
        assert values == sorted(values, reverse=True)
    first, _ = numbers(path, "sample-quota", "--sort", sort, "--top", "2")
    assert first["threads"] == document["threads"][:2]
    assert first["further_threads"] == len(document["threads"]) - 2


def test_a_trace_of_which_nothing_says_what_an_execution_is(critpath, shared):
    place = shared("public/tc-bug446190")
    done = critpath("path", place.name, "--top", "3", cwd=place.parent)
    assert done.returncode == 0
    assert "threads, by time on a CPU: 3 of 198" in done.stdout
    assert "--tid 184 --from 7633688544089 --to 7633709361189" in done.stderr
    paths = critpath("path", place.name, "--segments", cwd=place.parent)
    assert (paths.returncode, paths.stdout) == (2, "")
    assert "nothing says what a run is" in paths.stderr


def test_a_trace_without_switches_says_so(critpath, shared):
    place = shared("public/bt-multi-domains")
    done = critpath("path", place.name, "--look", cwd=place.parent)
    assert done.returncode == 0
    assert "lost: 728 events on CPU 0 (discarded)" in done.stdout
    assert "no sched_switch event" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--look", "--tid", "3"), "--tid is about paths"),
        (("--sort", "wait", "--segments"), "--segments is about paths"),
        (("--look", "--format", "graphml"), "graphml is a format of paths"),
        (("--format", "csv", "--id", "3"), "--id is about paths"),
    ],
)
def test_a_look_has_no_paths(path, arguments, said):
    done = path("plain", *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert not done.stdout


def test_a_look_is_written_whole_or_not_at_all(path, guest, tmp_path):
    del guest
    place = tmp_path / "threads.csv"
    done = path("plain", "-o", place)
    assert done.returncode == 0
    assert place.read_text(encoding="utf-8").startswith("host,pid,tid,comm,")
    assert "threads written to" in done.stderr


def test_a_look_from_python(guest, path):
    import critpath as cp  # noqa: PLC0415 - the API, as programs have it

    document, rows = numbers(path, "plain")
    found = cp.look(guest("plain"))
    assert found.to_dict() == document | {"source": str(guest("plain"))}
    assert repr(found).startswith(f"{guest('plain')}: 614 ms of 2 CPUs, ")
    columns = found.threads.table_columns()
    assert [*columns] == [*rows[0]]
    assert columns["cpu_ns"].values.tolist() == [int(row["cpu_ns"]) for row in rows]
    assert len(cp.look(guest("plain"), sort="worst", top=3).processes) == 3
    with pytest.raises(cp.UsageError, match="no key"):
        cp.look(guest("plain"), sort="age")
