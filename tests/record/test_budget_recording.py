"""Recording under a budget: its parts, and whole recordings of this machine's kernel."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.commands.settings import WrongValueError, as_budget, split_budget
from critpath.record.budget import calibrate
from critpath.record.budget.calibrate import AGAIN, NEVER, TABLE, find_costs
from critpath.record.budget.gaps import (
    Journal,
    LayerGap,
    finish_gaps,
    join_overlapping,
    read_journal,
)
from critpath.record.budget.loop import BusyTimes
from critpath.record.budget.natural import (
    STRETCH,
    Neighbours,
    compare_medians,
    compare_sides,
    pool_kinds,
)
from critpath.record.budget.selection import Kinds
from critpath.record.flight.dumps import dump_request
from critpath.record.ftrace.gate import instance_name, split_layers, split_name
from critpath.record.manifests import initial_manifest, write_manifest
from critpath.record.recovery import finish_recording
from critpath_marks.sessions import new_session_name

pytestmark = pytest.mark.xdist_group("kernel")

CRITPATH = (sys.executable, "-m", "critpath")
FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
INSTANCES = Path("/sys/kernel/tracing/instances")
TURNS = """
import os, sys, time
a, b, until = os.eventfd(0), os.eventfd(0), time.monotonic() + float(sys.argv[1])
if os.fork() == 0:
    while time.monotonic() < until + 1:
        os.eventfd_read(a)
        os.eventfd_write(b, 1)
else:
    while time.monotonic() < until:
        os.eventfd_write(a, 1)
        os.eventfd_read(b)
    os.killpg(0, 9)
"""


@pytest.mark.parametrize(
    ("text", "overhead", "horizon"),
    [("3%", 0.03, None), ("0.03", 0.03, None), ("3%/10s", 0.03, 10.0), ("1000% / 1h", 10, 3600.0)],
)
def test_a_budget_is_an_overhead_and_a_horizon(
    text: str, overhead: float, horizon: float | None
) -> None:
    assert split_budget(as_budget(text)) == (overhead, horizon)


@pytest.mark.parametrize("text", ["0", "0%", "-1%", "1001%", "x", "3%/0.5s", "3%/2h", ".", True])
def test_other_budgets_are_refused(text: object) -> None:
    with pytest.raises(WrongValueError, match="such as 3%"):
        as_budget(text)


def test_what_is_a_layer() -> None:
    events = ["sched/sched_switch", "sched/sched_process_exec", "syscalls/sys_enter_read"]
    always, layers = split_layers(events)
    assert always == ("sched/sched_process_exec",)
    assert layers == {"base": ("sched/sched_switch",), "syscalls": ("syscalls/sys_enter_read",)}
    assert list(split_layers([*events, "tcp/tcp_probe"])[1]) == ["base", "full"]
    session = new_session_name()
    assert split_name(instance_name("base", session)) == ("base", session)
    assert split_name(session) == ("", session)


def test_a_journal_that_was_cut_off_is_read_to_its_last_whole_line(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.close_layer("base", "start", lambda: None)
    journal.open_layer("base", lambda: None)
    journal.close_layer("base", "budget", lambda: None)
    journal.close()
    rows = [json.loads(line) for line in (tmp_path / "journal").read_text().splitlines()]
    with (tmp_path / "journal").open("a") as stream:
        stream.write('{"layer":"base","opening":1')
    end = rows[-1]["closed"] + 1000
    first, last = read_journal(tmp_path / "journal", rows[1]["begin"], end)
    opened = rows[2]
    assert (first.begin, first.why, first.end) == (rows[1]["begin"], "start", opened["end"])
    assert (last.begin, last.why, last.end) == (rows[4]["begin"], "budget", end)


def test_a_kill_while_a_gate_closes_leaves_a_gap_that_no_event_contradicts(tmp_path: Path) -> None:
    """Whether the gate was closed by then, only the recorder knew."""
    journal = Journal(tmp_path / "journal")
    journal.close_layer("base", "start", lambda: None)
    journal.open_layer("base", lambda: None)

    def be_killed() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        journal.close_layer("base", "budget", be_killed)
    journal.close()
    rows = [json.loads(line) for line in (tmp_path / "journal").read_text().splitlines()]
    closing = rows[-1]["closing"]
    _, last = read_journal(tmp_path / "journal", rows[0]["closing"], closing + 1000)
    assert (last.begin, last.end, last.why) == (closing, closing + 1000, "budget")
    assert last.closed == last.opening


TIMES = st.tuples(st.integers(0, 99), *[st.integers(0, 9)] * 3).map(itertools.accumulate).map(tuple)


@given(st.lists(st.tuples(TIMES, st.sampled_from(["base", "syscalls"])), max_size=20))
def test_gaps_that_overlap_are_one_that_is_silent_only_where_they_are(
    rows: list[tuple[tuple[int, int, int, int], str]],
) -> None:
    gaps = [LayerGap(*times, layer, "budget") for times, layer in rows]
    joined = join_overlapping(gaps)
    for layer in ("base", "syscalls"):
        own = [gap for gap in joined if gap.layer == layer]
        assert all(a.end <= b.begin for a, b in itertools.pairwise(own))
        covered = {t for gap in own for t in range(gap.begin, gap.end)}
        mine = [gap for gap in gaps if gap.layer == layer]
        assert covered == {t for g in mine for t in range(g.begin, g.end)}
        silent = {t for gap in own for t in range(gap.closed, gap.opening)}
        assert silent <= {t for gap in mine for t in range(gap.closed, gap.opening)}
    assert all(g.begin <= g.closed <= g.opening <= g.end for g in joined)


def test_files_of_gaps_are_as_the_specification_has_them(tmp_path: Path) -> None:
    (tmp_path / "gaps-journal.jsonl").write_text(
        '{"layer":"base","begin":5,"closed":6,"why":"start"}\n'
        '{"layer":"base","opening":3000020,"end":3000021}\n'
        '{"layer":"base","begin":3000025,"closed":3000026,"why":"budget"}\n'
        '{"layer":"base","opening":3000030,"end":3000031}\n'
    )
    finish_gaps(tmp_path, tmp_path, 10, 10**7, ())
    first, second = map(json.loads, (tmp_path / "gaps.jsonl").read_text().splitlines())
    # What met an open gate may be written within a millisecond after it was closed.
    assert first == {
        "begin": 10, "closed": 1000006, "opening": 3000020, "end": 3000021,
        "layer": "base", "why": "start",
    }  # fmt: skip
    assert [second[key] for key in ("begin", "closed", "opening", "end")] == [
        *(3000025, 3000030, 3000030, 3000031)
    ]


def test_the_coin_spends_its_share_and_is_the_same_for_a_seed() -> None:
    """Runs of 10 ms of which recording takes a fifth, at 3 %."""
    for seed in range(5):
        kinds, cost, chosen = Kinds(0.03, seed), 0.0, []
        for run in range(3000):
            taken, chance = kinds.toss("job", 0.03 * 0.01 * run - cost)
            assert 0 <= chance <= 1
            cost += 0.002 * taken
            chosen.append(taken)
            kinds.note({"job": 1}, 0.01)
            if taken:
                kinds.note_cost({"job": 1}, 0.002)
        assert cost / 30 == pytest.approx(0.03, rel=0.05)
        again = Kinds(0.03, seed)
        assert again.toss("job", 0.0)[0] == chosen[0]


def test_a_rare_kind_is_not_crowded_out() -> None:
    """1 % of kind B, which costs ten times as much: all of it fits into its share."""
    kinds, chance, cost = Kinds(0.03, 1), random.Random(5), 0.0  # noqa: S311 - drawn
    seen, taken = {"a": 0, "b": 0}, {"a": 0, "b": 0}
    for run in range(20_000):
        kind = "b" if chance.random() < 0.01 else "a"
        got, p = kinds.toss(kind, 0.03 * 0.01 * run - cost)
        assert 0 <= p <= 1
        seen[kind] += 1
        kinds.note({kind: 1}, 0.01)
        if got:
            taken[kind] += 1
            cost += (each := 0.01 if kind == "b" else 0.001)
            kinds.note_cost({kind: 1}, each)
    assert cost / 200 == pytest.approx(0.03, rel=0.05)
    assert taken["b"] / seen["b"] > 0.8
    assert taken["a"] / seen["a"] < 0.3


def test_the_cost_of_several_kinds_together_is_found() -> None:
    kinds, chance = Kinds(0.1, 1), random.Random(5)  # noqa: S311 - drawn
    kinds.note({"a": 100, "b": 100}, 1.0)
    for _ in range(2000):
        counts = {"a": chance.randrange(4), "b": chance.randrange(4)}
        kinds.note_cost(counts, 0.001 * counts["a"] + 0.008 * counts["b"])
    found = kinds.chances(0.0)
    assert found["b"] / found["a"] == pytest.approx(1 / 8, rel=0.3)


def test_what_lasts_far_longer_than_its_kind_is_given_up() -> None:
    kinds = Kinds(0.1, 1)
    for took in (1.0, 2.0, 3.0, 4.0):
        kinds.note_time("job", took)
        assert kinds.longest("job") == 0
    kinds.note_time("job", 5.0)
    assert kinds.longest("job") == 60
    assert kinds.longest("other") == 0


def test_the_natural_experiment_finds_what_was_added() -> None:
    chance = random.Random(4)  # noqa: S311 - drawn
    others = [chance.lognormvariate(0, 0.1) for _ in range(400)]
    ours = [1.08 * chance.lognormvariate(0, 0.1) for _ in range(200)]
    ratio, low, high = compare_medians(ours, others, 1)
    assert low < 1.08 < high
    assert low < ratio < high < low + 0.1


def test_kinds_with_other_chances_are_compared_each_with_its_own() -> None:
    """Of kind b, ten times as long, nearly all are recorded: that makes nothing slower."""
    chance = random.Random(4)  # noqa: S311 - drawn
    times = {
        kind: {
            side: [mean * chance.lognormvariate(0, 0.1) for _ in range(count)]
            for side, count in ((True, 90 if kind == "b" else 10), (False, 50))
        }
        for kind, mean in (("a", 1.0), ("b", 10.0))
    }
    found = compare_sides(*pool_kinds(times), 1, "overhead")
    assert found is not None
    assert found["low"] < 0.03
    assert found["high"] > -0.03
    assert abs(found["overhead"]) < 0.05


def test_busy_times_are_those_of_the_kernel() -> None:
    times = BusyTimes([0])
    until = time.monotonic() + 0.2
    while time.monotonic() < until:
        pass
    [busy] = times.passed()
    assert 0 <= busy < 10
    times.close()


def test_without_calibration_the_table_is_taken(tmp_path: Path) -> None:
    assert find_costs(NEVER, [], 0, "x", tmp_path / "costs") is TABLE


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--overhead", "0", "-a"), "is not an overhead"),
        (("--overhead", "3%", "--recorder", "counts", "-a"), "cannot hold a budget"),
        (("--overhead", "3%", "--overhead-of", "command", "-a"), "without a command"),
    ],
)
def test_what_cannot_be_held_is_refused(
    tmp_path: Path, arguments: tuple[str, ...], what: str
) -> None:
    done = _critpath(tmp_path, "record", *arguments)
    assert done.returncode == 2
    assert what in done.stderr


# On the kernel


@pytest.fixture(scope="module")
def traceable() -> None:
    """Skip with the reason where ftrace cannot record."""
    from critpath.record.ftrace.recorder import missing_requirements  # noqa: PLC0415 - as others

    fatal = [o.what for o in missing_requirements(None) if o.fatal]
    if fatal:
        pytest.skip(f"ftrace cannot record here: {fatal[0]}")


def _critpath(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SUDO_")}
    clean["XDG_CACHE_HOME"] = str(place)
    return subprocess.run(
        [*CRITPATH, *arguments],
        cwd=place, env=clean, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def _gaps(place: Path) -> tuple[dict[str, object], list[dict[str, int]]]:
    manifest = json.loads((place / "critpath.json").read_text(encoding="utf-8"))
    assert manifest["format"] == "critpath/recording/2"
    assert manifest["gaps"] == "gaps.jsonl"
    gaps = [json.loads(line) for line in (place / "gaps.jsonl").read_text().splitlines()]
    last = manifest["begin"]
    for gap in gaps:
        assert last <= gap["begin"] <= gap["closed"] <= gap["opening"] <= gap["end"]
        last = gap["end"] if gap["layer"] == "base" else last
    assert last <= manifest["end"]
    return manifest, gaps


@pytest.mark.usefixtures("traceable")
def test_the_machine_under_a_budget(tmp_path: Path) -> None:
    load = subprocess.Popen([sys.executable, "-c", TURNS, "6"], start_new_session=True)
    try:
        done = _critpath(tmp_path, "record", "--overhead", "5%", "-a", "--duration", "5", "-o", "a")
    finally:
        load.wait()
    assert done.returncode == 0, done.stderr
    manifest, gaps = _gaps(tmp_path / "a")
    held = manifest["overhead"]
    assert gaps[0]["why"] == "start"
    late = any("too late" in text for text in manifest["warnings"])  # type: ignore[attr-defined]
    assert held["counted"] > 0  # type: ignore[index]
    assert held["counted"] < 1.5 * 0.05 or late  # type: ignore[index]
    assert held["target"] == 0.05  # type: ignore[index]
    assert manifest["layers"]["base"]["windows"] >= 1  # type: ignore[index]
    assert manifest["layers"]["base"]["events"] > 100  # type: ignore[index]
    assert "% counted" in done.stderr
    metadata = (tmp_path / "a" / "trace" / "kernel" / "metadata").read_text()
    assert "critpath_gap_begin" in metadata
    assert not [p for p in INSTANCES.iterdir() if p.name.endswith(f".{manifest['session']}")]


@pytest.mark.usefixtures("traceable")
def test_runs_are_recorded_whole_or_not_at_all(tmp_path: Path) -> None:
    """With a time limit of the user's, or a run that has to wait for a cpu is given up."""
    done = _critpath(
        tmp_path, "record", "--overhead", "20%", "-n", "30", "--timeout", "60", "-o", "r",
        "--", "sh", "-c", "sleep 0",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    manifest, gaps = _gaps(tmp_path / "r")
    chosen = {
        json.loads(line)["key"]
        for line in (tmp_path / "r" / "selected.jsonl").read_text().splitlines()
    }
    runs = manifest["runs"]
    assert len(runs) == 30  # type: ignore[arg-type]
    assert chosen
    for run in runs:  # type: ignore[attr-defined]
        inside = [g for g in gaps if g["begin"] < run["end"] and g["end"] > run["begin"]]
        if run["number"] in chosen:
            assert not inside
        else:
            # In one gap, edges included: it may begin within the millisecond in which events that
            # met an open gate are still written, which no path uses either.
            [gap] = inside
            assert gap["begin"] <= run["begin"]
            assert run["end"] <= gap["end"]
    assert manifest["executions"] == {"sh": {"seen": 30, "selected": len(chosen), "cut": 0}}


@pytest.mark.long
@pytest.mark.usefixtures("traceable")
def test_a_run_that_lasts_far_longer_than_the_others_is_given_up(tmp_path: Path) -> None:
    """The ninth of ten runs sleeps: it is chosen, its gate closes before its end.

    It sleeps five times as long as the eight before took together: their median is at most twice
    their mean, so that is over 20 medians however busy the machine is.  Runs are busy for some
    20 ms, so that recording every one is within the budget anywhere.
    """
    line = (
        "[ -e t ] || date +%s%N > t; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done;"
        " echo >> n; test $(wc -l < n) -ne 9 ||"
        " sleep $(( ($(date +%s%N) - $(cat t)) / 200000000 + 1 ))"
    )
    done = _critpath(
        tmp_path, "record", "--overhead", "900%", "-n", "10", "-o", "c", "--", "sh", "-c", line
    )
    assert done.returncode == 0, done.stderr
    manifest, gaps = _gaps(tmp_path / "c")
    rows = [json.loads(x) for x in (tmp_path / "c" / "selected.jsonl").read_text().splitlines()]
    [(name, counts)] = manifest["executions"].items()  # type: ignore[attr-defined]
    assert (name, counts["seen"], counts["selected"]) == ("sh", 10, len(rows))
    assert counts["cut"] >= 1  # another one may have waited for a cpu for as long
    assert rows
    assert {row["key"] for row in rows} <= {*range(1, 11)} - {9}
    long = manifest["runs"][8]  # type: ignore[index]
    [cut] = [g for g in gaps if long["begin"] < g["begin"] < long["end"]]
    assert cut["end"] >= long["end"]
    assert any("given up" in text for text in manifest["warnings"])  # type: ignore[attr-defined]


def test_commands_that_are_compared_have_one_chance_within_the_budget() -> None:
    share, cost, chosen = 0.05, 0.0, {"dear": 0, "cheap": 0}
    kinds, order, busy = Kinds(share, 3, alike=True), random.Random(4), 0.0  # noqa: S311 - drawn
    for _ in range(4000):
        kind = order.choice(["dear", "cheap"])
        taken, _ = kinds.toss(kind, share * busy - cost)
        busy += 0.02
        kinds.note({kind: 1}, 0.02)
        if taken:
            chosen[kind] += 1
            each = {"dear": 0.02, "cheap": 0.002}[kind]
            cost += each
            kinds.note_cost({kind: 1}, each)
    assert cost <= share * busy + 0.02
    assert cost >= 0.8 * share * busy
    assert abs(chosen["dear"] - chosen["cheap"]) < 4 * sum(chosen.values()) ** 0.5


@pytest.mark.usefixtures("traceable")
def test_both_of_two_commands_are_chosen_by_one_coin(tmp_path: Path) -> None:
    done = _critpath(
        tmp_path, "record", "--overhead", "50%", "-n", "16", "-o", "i",
        "--interleave", "true", "sh -c :",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, gaps = _gaps(tmp_path / "i" / "normal")
    second, others = _gaps(tmp_path / "i" / "sample")
    assert gaps == others
    assert first["overhead"] == second["overhead"]
    assert len(gaps) > 1


class UselessGate:
    """Behind which nothing is ever counted: nothing can be measured by it."""

    name, state, is_open = "base", "soft", False

    def open(self) -> None: ...

    def close(self) -> None: ...

    def counts(self, cpus: list[int]) -> list[int]:
        return [0 for _ in cpus]


def test_measuring_that_comes_to_nothing_is_charged(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(calibrate, "_MOST_SECONDS", 0.05)
    cpu = min(os.sched_getaffinity(0))
    begin = time.thread_time()
    costs = find_costs(AGAIN, [UselessGate()], cpu, "", tmp_path / "costs.json")
    took = time.thread_time() - begin
    assert not costs.measured
    assert (costs.events, costs.closed) == (TABLE.events, TABLE.closed)
    assert 0 < costs.seconds <= took
    assert not (tmp_path / "costs.json").exists()


def test_killed_before_it_noted_its_begin_it_has_the_begin_of_what_it_recorded(
    unpack, tmp_path: Path
) -> None:
    """The manifest is of before the recorder began."""
    made = unpack(FIXTURES / "ftrace-raw" / "minimal.tar.xz")
    place = tmp_path / "k"
    place.mkdir(mode=0o700)
    raw = next(made.rglob("raw.json")).parent
    shutil.copytree(raw, place / "raw")
    about = json.loads((raw / "raw.json").read_text())
    request = dump_request("1", "minimal", "")
    first = initial_manifest(
        *(request, 0), session="critpath-1-2-3-00000000", recorder="ftrace", container=0, notes=()
    )
    write_manifest(place, first)
    assert first.begin == 0
    assert finish_recording(place, lambda _: None) is not None
    manifest = json.loads((place / "critpath.json").read_text())
    assert manifest["begin"] == about["begin"]
    assert manifest["begin"] < manifest["end"]


@pytest.mark.usefixtures("traceable")
def test_a_killed_recorder_leaves_gaps_and_nothing_else(tmp_path: Path) -> None:
    running = subprocess.Popen(
        [*CRITPATH, "record", "--overhead", "5%", "-a", "--duration", "60", "-o", "k"],
        cwd=tmp_path, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert running.stderr is not None
    for line in running.stderr:
        if "recording for" in line:
            break
    time.sleep(1.5)
    running.send_signal(signal.SIGKILL)
    running.wait()
    running.stderr.close()
    time.sleep(0.5)
    mine = [p for p in INSTANCES.iterdir() if f"-{running.pid}-" in p.name]
    assert len(mine) == 2
    assert all((p / "tracing_on").read_text().strip() == "0" for p in mine)
    _critpath(tmp_path, "doctor", "--clean")
    assert not any(p.exists() for p in mine)
    manifest, gaps = _gaps(tmp_path / "k")
    assert manifest["state"] == "interrupted"
    assert gaps
    names = sorted(place.name for place in (tmp_path / "k").iterdir())
    assert names == ["critpath.json", "gaps.jsonl", "trace"]


class FakeThreads:
    """Threads that have so many time slices a second, each dearer by a share while recorded."""

    def __init__(self, chance: random.Random) -> None:
        self.chance, self.ran, self.slices = chance, 0.0, 0

    def pass_time(self, seconds: float, more: float) -> None:
        slices = int(10_000 * seconds * self.chance.uniform(0.5, 1.5))
        self.slices += slices
        self.ran += 40e-6 * slices * more * self.chance.uniform(0.95, 1.05)

    def scan(self) -> None: ...

    def close(self) -> None: ...

    def read(self) -> dict[str, tuple[float, int]]:
        return {"one": (self.ran, self.slices)}


def test_time_before_and_after_openings_tells_what_events_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Truly 12 %, counted as 8 %, whatever the program does: the correction becomes 1.5."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    compared = Neighbours()
    threads = FakeThreads(random.Random(3))  # noqa: S311 - drawn
    monkeypatch.setattr(compared, "_threads", threads)
    for number in range(400):
        compared.prepare()
        now[0] += STRETCH
        threads.pass_time(STRETCH, 1.0)
        assert compared.open()
        before = threads.ran
        now[0] += STRETCH
        threads.pass_time(STRETCH, 1.12)
        ran = threads.ran - before
        assert compared.charge(ran / 1.08 * 0.08) == pytest.approx(STRETCH)
        compared.end()
        now[0] += 0.05
        if number == 20:
            assert compared.ratio() is None
            assert compared.correct(1.2) == 1.2
    ratio, low, high = compared.ratio() or (0, 0, 0)
    assert low < 1.5 < high
    assert low < ratio < high < low + 0.4
    assert compared.correct(1.2) == pytest.approx(1.5, abs=0.15)
    compared.prepare()
    now[0] += 1.0  # a poll that came late: other times
    assert not compared.open()
