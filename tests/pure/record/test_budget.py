"""Recording under a budget: what is asked for, what it costs, gaps, coins and comparisons."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from critpath.commands.settings import WrongValueError, as_budget, split_budget
from critpath.errors import UsageError
from critpath.stats.medians import compare_medians, compare_sides
from critpath_marks.sessions import new_session_name
from critpath_record.budget import calibrate, natural
from critpath_record.budget.account import share_of
from critpath_record.budget.calibrate import AGAIN, AUTO, NEVER, TABLE, find_costs
from critpath_record.budget.control import Costs
from critpath_record.budget.gaps import (
    Journal,
    LayerGap,
    finish_gaps,
    join_overlapping,
    read_journal,
)
from critpath_record.budget.natural import Neighbours, pool_kinds
from critpath_record.budget.selection import Kinds, check_runs, check_span
from critpath_record.flight.dumps import dump_request
from critpath_record.ftrace.gate import instance_name, split_layers
from critpath_record.ftrace.tracefs import split_name
from critpath_record.manifests import initial_manifest, write_manifest
from critpath_record.recovery import finish_recording

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "played"))
from budgeted import Gate
from played_time import play_time

from critpath.schema.parameters.budget import MEASURED, NATURAL

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"


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


@pytest.mark.parametrize("order", [("budget", "other"), ("other", "budget")])
def test_what_others_did_is_not_lost_in_a_gap_made_on_purpose(order: tuple[str, str]) -> None:
    spans = [(0, 10, 50, 60), (40, 40, 80, 80)]
    gaps = [LayerGap(*span, "base", why) for span, why in zip(spans, order, strict=True)]
    [joined] = join_overlapping(gaps)
    assert (joined.begin, joined.end, joined.why) == (0, 80, "other")


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


def test_without_calibration_the_table_is_taken(tmp_path: Path) -> None:
    assert find_costs(NEVER, [], 0, tmp_path / "costs") is TABLE


class Blocks:
    """Work whose blocks make events: each takes longer while it is recorded."""

    def __init__(self, patch: pytest.MonkeyPatch, each: float, noise: float, events: int) -> None:
        self.time = play_time(patch, calibrate)
        self.time.loops = 0
        self.gates = [Gate(self.time, "base"), Gate(self.time, "network")]
        self.each, self.noise, self.events = each, noise, events
        self.chance = random.Random(3)  # noqa: S311 - drawn
        self.measured = 0
        for name in ("measure_turns", "measure_calls"):
            patch.setattr(calibrate, name, self.measure)
        patch.setattr(calibrate.os, "sched_setaffinity", lambda *_: None)
        self.load = 0.0
        patch.setattr(calibrate.os, "getloadavg", lambda: (self.load * (os.cpu_count() or 1),))

    def measure(self, _: int) -> int:
        opened = [gate for gate in self.gates if gate.is_open]
        for gate in opened:
            gate.recorded += self.events
        ns = 1_500_000 * (1 + abs(self.chance.gauss(0, self.noise)))
        ns += self.events * self.each * len(opened)
        self.time.spend(ns / 1e9)
        self.time.clock.now += int(ns)
        self.measured += 1
        return int(ns)


def test_what_an_event_costs_is_measured_once_and_then_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    blocks, place = Blocks(monkeypatch, 258.0, 0.01, 600), tmp_path / "cache" / "costs.json"
    costs = find_costs(AUTO, blocks.gates, 0, place)
    assert costs.measured
    for name in ("base", "network"):
        assert costs.events[name] == pytest.approx(258, rel=0.1)
    assert costs.events["syscalls"] == TABLE.events["syscalls"]
    assert 0 < costs.interval < 0.4
    assert costs.seconds == pytest.approx(blocks.measured * 1.6e-3, rel=0.2)
    assert not any(gate.is_open for gate in blocks.gates)
    before = blocks.measured
    again = find_costs(AUTO, blocks.gates, 0, place)
    assert (again.events, again.seconds, blocks.measured) == (costs.events, 0.0, before)
    find_costs(AGAIN, blocks.gates, 0, place)
    monkeypatch.setattr(calibrate, "machine_model", lambda: "another cpu")
    find_costs(AUTO, blocks.gates, 0, place)
    assert blocks.measured > 2 * before
    assert len(json.loads(place.read_text())) == 2


def test_what_an_event_costs_is_measured_again_when_it_is_old_or_the_machine_is_fuller(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It doubled within two hours; where nobody pays for measuring what was known is taken."""
    blocks, place = Blocks(monkeypatch, 150.0, 0.01, 600), tmp_path / "costs.json"
    wall = [1e9]
    monkeypatch.setattr(blocks.time, "time", lambda: wall[0], raising=False)

    def find(measure: calibrate.Measure | None = calibrate.measure_events) -> Costs:
        return find_costs(AUTO, blocks.gates, 0, place, measure)

    assert find().events["base"] == pytest.approx(150, rel=0.1)
    blocks.each = 300.0
    wall[0] += MEASURED.fresh / 2
    assert find().events["base"] == pytest.approx(150, rel=0.1)
    blocks.load = 2.0  # a full machine
    assert find().events["base"] == pytest.approx(300, rel=0.1)
    blocks.load = 0.0
    wall[0] += MEASURED.fresh
    assert find(None).events["base"] == pytest.approx(150, rel=0.1)
    assert find().events["base"] == pytest.approx(300, rel=0.1)
    calibrate.forget_costs(place)  # as a recording that has found another cost
    assert find(None) is TABLE
    wall[0] += MEASURED.kept
    find()
    wall[0] += MEASURED.kept
    assert find(None) is TABLE


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"%s": 1}', '{"%s": {"at": 1e99}}', '{"%s": {"at": 0, "events": []}}']
)
def test_a_file_of_costs_that_is_none_is_measured_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    blocks, place = Blocks(monkeypatch, 258.0, 0.01, 600), tmp_path / "costs.json"
    names = [f"{gate.name}:{gate.state}" for gate in blocks.gates]
    place.write_text(text.replace("%s", calibrate.machine_key(names)))
    assert find_costs(AUTO, blocks.gates, 0, place).measured
    before = blocks.measured
    assert before > 0
    find_costs(AUTO, blocks.gates, 0, place)
    assert blocks.measured == before


def test_costs_are_kept_only_where_nobody_else_leads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A link in place of the file or the directory, and a directory that others may write."""
    blocks, own = Blocks(monkeypatch, 258.0, 0.01, 600), tmp_path / "own"
    own.mkdir()
    victim = tmp_path / "victim"
    victim.write_text("as it was")
    (own / "costs.json").symlink_to(victim)
    assert find_costs(AUTO, blocks.gates, 0, own / "costs.json").measured
    assert victim.read_text() == "as it was"
    assert not (own / "costs.json").is_symlink()
    (tmp_path / "led").symlink_to(own)
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    before = (own / "costs.json").read_bytes()
    for place in ("led", "shared"):
        assert find_costs(AGAIN, blocks.gates, 0, tmp_path / place / "costs.json").measured
    assert (own / "costs.json").read_bytes() == before
    assert [*(tmp_path / "shared").iterdir()] == []
    assert [p.name for p in own.iterdir()] == ["costs.json"]


def test_no_variable_leads_root(monkeypatch: pytest.MonkeyPatch) -> None:
    led = {"XDG_CACHE_HOME": "/u/cache", "HOME": "/u"}
    monkeypatch.setattr(calibrate.os, "geteuid", lambda: 0)
    assert str(calibrate.cache_place(led)) == "/var/cache/critpath/costs.json"
    monkeypatch.setattr(calibrate.os, "geteuid", lambda: 1000)
    assert str(calibrate.cache_place(led)) == "/u/cache/critpath/costs.json"


@pytest.mark.parametrize(
    ("each", "noise", "events"), [(258.0, 5.0, 600), (258.0, 0.01, 0), (0.0, 0.0, 600)]
)
def test_measuring_that_comes_to_nothing_is_charged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, each: float, noise: float, events: int
) -> None:
    """Where others have the cpu, where nothing is counted, where an event costs nothing."""
    blocks = Blocks(monkeypatch, each, noise, events)
    costs = find_costs(AGAIN, blocks.gates, 0, tmp_path / "costs.json")
    assert not costs.measured
    assert all(costs.events[name] >= ns for name, ns in TABLE.events.items())
    assert costs.closed == TABLE.closed
    assert costs.seconds > 0
    assert not (tmp_path / "costs.json").exists()
    assert not any(gate.is_open for gate in blocks.gates)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--overhead", "0", "-a"), "is not an overhead"),
        (("--overhead", "3%", "--recorder", "counts", "-a"), "cannot hold a budget"),
        (("--overhead", "3%", "--overhead-of", "command", "-a"), "without a command"),
    ],
)
def test_what_cannot_be_held_is_refused(
    critpath: Callable[..., Any], arguments: tuple[str, ...], what: str
) -> None:
    done = critpath("record", *arguments)
    assert done.returncode == 2
    assert what in done.stderr


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


@settings(max_examples=300)
@given(
    share=st.sampled_from([0.005, 0.01, 0.03, 0.1]),
    dear=st.floats(0.002, 0.45),
    runs=st.integers(2, 120),
    seed=st.integers(0, 99),
    wrong=st.floats(0.7, 2.0),
)
def test_no_run_is_recorded_that_is_not_paid_for_when_it_ends(
    share: float, dear: float, runs: int, seed: int, wrong: float
) -> None:
    """However few and dear they are, and though what one costs is expected by a count alone."""
    kinds, coin = Kinds(share, seed, alike=True), random.Random(seed)  # noqa: S311 - drawn
    busy = cost = 0.0
    for _ in range(runs):
        taken, chance = kinds.toss("job", share * busy - cost)
        assert taken <= (chance > 0)
        each = coin.uniform(0.09, 0.11)
        busy += each
        kinds.note({"job": 1}, each)
        if taken:
            cost += dear * each
            kinds.note_cost({"job": 1}, dear * each)
        else:
            kinds.expect("job", wrong * dear * each)
        assert cost <= 1.1 * share * busy + 0.25 * dear * each


def test_many_cheap_runs_are_recorded_as_often_as_the_budget_allows() -> None:
    kinds, cost = Kinds(0.03, 3, alike=True), 0.0
    for run in range(3000):
        taken, _ = kinds.toss("job", 0.03 * 0.1 * run - cost)
        kinds.note({"job": 1}, 0.1)
        if taken:
            cost += 0.02
            kinds.note_cost({"job": 1}, 0.02)
        else:
            kinds.expect("job", 0.02)
    assert cost / 300 == pytest.approx(0.03, rel=0.05)


def test_one_run_is_refused_before_it_begins_where_nothing_is_known() -> None:
    for runs, overhead in ((1, 0.5), (2, 0.01), (40, 0.001)):
        check_runs(share_of(overhead), runs)
    with pytest.raises(UsageError, match="one run under 1 % cannot be recorded") as error:
        check_runs(share_of(0.01), 1)
    assert "-n 20" in error.value.do


def test_a_time_that_does_not_pay_for_looking_is_refused_with_what_would() -> None:
    for overhead, seconds in ((0.01, 0.0), (0.01, 2.0), (0.1, 0.2), (5.0, 0.1)):
        check_span(share_of(overhead), seconds)
    with pytest.raises(UsageError, match=r"1 % of 0.1 s is 1.0 ms") as error:
        check_span(share_of(0.01), 0.1)
    assert error.value.do == "record for longer (--duration 1.2), or allow more (--overhead 14%)"
    check_span(share_of(0.14), 0.1)


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
    time = play_time(monkeypatch, natural)
    time.loops = 0
    compared = Neighbours()
    threads = FakeThreads(random.Random(3))  # noqa: S311 - drawn
    monkeypatch.setattr(compared, "_threads", threads)
    for number in range(400):
        compared.prepare()
        time.pass_time(NATURAL.stretch)
        threads.pass_time(NATURAL.stretch, 1.0)
        assert compared.open()
        before = threads.ran
        time.pass_time(NATURAL.stretch)
        threads.pass_time(NATURAL.stretch, 1.12)
        ran = threads.ran - before
        assert compared.charge(ran / 1.08 * 0.08) == pytest.approx(NATURAL.stretch)
        compared.end()
        time.pass_time(0.05)
        if number == 20:
            assert compared.ratio() is None
            assert compared.correct(1.2) == 1.2
    ratio, low, high = compared.ratio() or (0, 0, 0)
    assert low < 1.5 < high
    assert low < ratio < high < low + 0.4
    assert compared.correct(1.2) == pytest.approx(1.5, abs=0.15)
    compared.prepare()
    time.pass_time(1.0)  # a poll that came late: other times
    assert not compared.open()


def test_the_threads_that_had_most_are_compared_and_own_ones_never(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thread whose numbers cannot be read is left out; looking again is worth it seldom."""
    time = play_time(monkeypatch, natural)
    time.loops = 0
    threads = natural.Threads()
    threads.scan()
    own = f"/proc/{os.getpid()}/"
    assert not [path for path in threads.read() if path.startswith(own)]
    chosen = {*threads.read()}
    threads.scan()
    assert {*threads.read()} <= chosen
    monkeypatch.setattr(natural.os, "getpid", lambda: 0)  # now this process is another
    monkeypatch.setattr(natural.heapq, "nlargest", lambda _, of, **__: [*of])
    time.pass_time(6)
    threads.scan()
    found = {path: of for path, of in threads.read().items() if path.startswith(own)}
    assert found
    assert all(ran > 0 and slices >= 0 for ran, slices in found.values())
    threads.close()
    assert threads.read() == {}
