"""From a log of blocks to the verdict, its sentence and its exit code."""

from __future__ import annotations

import contextlib
import re
from functools import partial

import numpy as np
import pytest
from pure.ab.asked import request_of

from critpath.ab import run as pipeline_ab
from critpath.ab.judgement import Judge
from critpath.ab.run import TracedSlots, block_order, judge_again
from critpath.commands.ab import _record_blocks
from critpath.documents import AbBlock, AbPlan
from critpath.report.document.as_json import load_document, to_json
from critpath_record.runner import RunResult


def plan_of(**options) -> AbPlan:
    return request_of(**options).plan


def log_of(blocks, factor=1.0, *, slow=0.0, run_factor=None, noise=0.03, seed=1, shape=1, **more):
    """Return blocks of a program of 10 ms, B of which takes `factor` of A's."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(blocks):
        order = block_order(7, number)
        times, run = [], []
        for side in order:
            one = 1e7 * np.exp(rng.normal(0, noise, shape))
            run.append([int(x * (run_factor or factor if side == "B" else 1)) for x in one])
            one = one * (factor if side == "B" else 1)
            one = one + 3e7 * (rng.random(shape) < slow) * (side == "B")
            times.append([int(x) for x in one])
        found.append(AbBlock(order=order, times=times, run=run, **more))
    return found


def judged(plan, log, stopped_by="max_blocks"):
    judge = Judge(plan)
    for block in log:
        judge.add(block)
        if judge.decided:
            stopped_by = "e"
            break
    return judge.document(version="1", discarded=None, spent_s=1.0, stopped_by=stopped_by)


@pytest.mark.parametrize(
    ("options", "verdict", "code", "begins"),
    [
        ({"factor": 1.1}, "slower", 1, "SLOWER: B takes 8"),
        ({"factor": 1.0}, "not_slower", 0, "NOT SLOWER: B typically takes "),
        ({"factor": 0.8}, "faster", 0, "FASTER: B typically takes 2"),
        ({"slow": 0.12}, "slower_in_part", 1, "SLOWER IN PART: "),
        ({"noise": 1.0}, "undecided", 3, "UNDECIDED: after 200 blocks "),
    ],
)
def test_verdicts(options, verdict, code, begins):
    document = judged(plan_of(), log_of(200, **options))
    assert (document.verdict, document.exit) == (verdict, code)
    assert document.sentences[0].startswith(begins)
    assert "seed 7" in document.sentences[0]


def test_the_figures_of_a_slower_program():
    document = judged(plan_of(), log_of(200, 1.1))
    low, high = document.interval
    assert low < 1.1 < high
    assert document.ratio == pytest.approx(1.1, abs=0.03)
    assert document.e.alarm >= 100
    assert document.executions.a == document.executions.b == 2 * document.blocks


@pytest.mark.parametrize("options", [{}, {"factor": 1.1}, {"noise": 1.0}, {"slow": 0.2}])
def test_again_gives_the_same_bytes(options):
    text = to_json(judged(plan_of(), log_of(120, **options)))
    assert to_json(judge_again(load_document(text))) == text


def test_running_time_decides_where_waiting_hides_it():
    log = log_of(200, run_factor=1.1, factor=1.0)
    assert judged(plan_of(of="time"), log).verdict == "not_slower"
    assert judged(plan_of(of="run"), log).verdict == "slower"
    assert judged(plan_of(of="both"), log).verdict == "slower"


def test_the_running_time_is_said_where_time_does_not_tell():
    log = log_of(60, noise=0.6)
    rng = np.random.default_rng(2)
    for block in log:
        block.run = [[int(1e7 * np.exp(rng.normal(0, 0.01)))] for _ in range(4)]
    document = judged(plan_of(), log)
    assert document.exit == 3
    assert "time on a cpu" in document.sentences[1]
    assert "not slower than 5 %" in document.sentences[1]


def test_failures_of_one_side_make_it_invalid():
    log = log_of(10)
    for block in log:
        block.failed = [int(side == "B") for side in block.order]
    judge = Judge(plan_of())
    for block in log[:3]:
        judge.add(block)
    assert judge.invalid
    document = judge.document(version="1", discarded=None, spent_s=1.0, stopped_by="invalid")
    assert (document.verdict, document.exit) == ("invalid", 4)
    assert document.sentences[0].startswith("INVALID: B failed 6 times, A 0")


def test_a_rare_failure_drops_its_block():
    log = log_of(60, 1.0)
    log[3].failed = [1, 0, 0, 0]
    document = judged(plan_of(), log)
    assert document.verdict == "not_slower"
    assert document.dropped == 1
    assert any("do not count" in sentence for sentence in document.sentences)


def test_failures_can_count_as_slow():
    log = log_of(200)
    for block in log[5::2]:
        block.failed = [int(side == "B") for side in block.order]
        block.times = [
            [] if side == "B" else t for side, t in zip(block.order, block.times, strict=True)
        ]
    document = judged(plan_of(failures_are_slow=True, slot=1), log)
    assert document.exit == 1


def test_labels_are_judged_each_by_itself():
    log = log_of(100, shape=2, labels=[["buy", "look"]] * 4)
    for block in log:
        block.times = [
            [t[0], int(t[1] * (1.2 if side == "B" else 1))]
            for side, t in zip(block.order, block.times, strict=True)
        ]
    document = judged(plan_of(slot=2), log)
    assert document.exit == 1
    assert document.labels["look"].verdict == "slower"
    assert document.labels["buy"].verdict != "slower"
    assert document.by_evidence == ["look"]


def test_a_difference_that_went_away_is_no_alarm():
    log = log_of(40, 1.4) + log_of(80, 1.0, seed=3)
    judge = Judge(plan_of())
    for block in log:
        judge.add(block)
    document = judge.document(version="1", discarded=None, spent_s=1.0, stopped_by="e")
    assert document.verdict.startswith("slower")
    assert document.exit == 3
    assert any("the difference itself changed" in s for s in document.sentences)


def test_drift_is_told_and_cancelled():
    log = log_of(60, 1.0)
    for number, block in enumerate(log):
        block.times = [[int(t * (1 + number / 100)) for t in slot] for slot in block.times]
    document = judged(plan_of(), log)
    assert document.verdict == "not_slower"
    assert any("both became" in sentence for sentence in document.sentences)


def test_carry_over_is_estimated():
    log = log_of(120, noise=0.01)
    for block in log:
        block.times = [
            [int(t * (1.1 if i and block.order[i - 1] == "B" else 1)) for t in slot]
            for i, slot in enumerate(block.times)
        ]
    judge = Judge(plan_of(slot=1))
    for block in log:
        judge.add(block)
    document = judge.document(version="1", discarded=None, spent_s=1.0, stopped_by="e")
    assert document.carry_over.estimate == pytest.approx(0.1, abs=0.01)
    assert any("right after B" in sentence for sentence in document.sentences)
    # It biases the difference: by nothing in ABBA, by half of it in BAAB.
    assert 0.94 < document.ratio < 1.0
    told = next(s for s in document.sentences if "right after B" in s)
    assert "moves the difference by about -2.5 %" in told
    assert "--prepare" in told
    assert "--skip-first" in told


def test_without_the_first_of_each_slot_nothing_is_carried_over():
    log = log_of(120, 1.03, noise=0.01, shape=3)
    for block in log:
        for i in range(1, 4):
            if block.order[i - 1] == "B" and block.order[i] == "A":
                block.times[i][0] = int(block.times[i][0] * 1.5)
    with_all = judged(plan_of(slot=3), log)
    assert with_all.ratio < 0.99
    assert any("right after B" in sentence for sentence in with_all.sentences)
    without = judged(plan_of(slot=3, skip_first=True), log)
    assert without.ratio == pytest.approx(1.03, abs=0.01)
    assert not any("right after B" in sentence for sentence in without.sentences)
    assert (without.executions.a, len(without.block_log[0].times[0])) == (4 * without.blocks, 3)
    # The log has every execution: `--again` leaves out the same ones.
    assert to_json(judge_again(load_document(to_json(without)))) == to_json(without)


def test_a_percentile_that_was_asked_for_is_not_claimed_early():
    document = judged(plan_of(tails=(0.99,)), log_of(60))
    assert any(s.startswith("p99: not decided") for s in document.sentences)


def test_a_clock_that_stands_still_is_told():
    log = [AbBlock(order=block_order(7, i), times=[[10]] * 4, run=[[0]] * 4) for i in range(30)]
    document = judged(plan_of(), log)
    assert any("too coarse" in sentence for sentence in document.sentences)


def labelled(blocks, names, factors, seed=1):
    """Return blocks whose slots have one execution of each name, B's with a factor each."""
    log = log_of(blocks, shape=len(names), seed=seed, labels=[list(names)] * 4)
    for block in log:
        block.times = [
            [int(t * (f if side == "B" else 1)) for t, f in zip(slot, factors, strict=True)]
            for side, slot in zip(block.order, block.times, strict=True)
        ]
    return log


def test_labels_share_the_level():
    # The one label's evidence at the end is above 100, and not above 100 for each of twenty.
    names = [f"kind {n:02}" for n in range(20)]
    slots = {"slot": 20}
    log = labelled(200, names, [1.12, *[1.0] * 19])
    alone = [
        AbBlock(
            order=block.order,
            times=[slot[:1] for slot in block.times],
            run=[slot[:1] for slot in block.run],
            labels=[["kind 00"]] * 4,
        )
        for block in log
    ]
    one, all_of_them = judged(plan_of(slot=1), alone), judged(plan_of(**slots), log)
    assert one.verdict == all_of_them.verdict == "slower"
    assert one.blocks < all_of_them.blocks
    assert one.labels["kind 00"].e.alarm < 2000 <= all_of_them.labels["kind 00"].e.alarm
    assert all_of_them.by_evidence == ["kind 00"]


def test_a_label_with_too_few_blocks_does_not_stop_the_run_and_cannot_pass():
    log = labelled(60, ["usual", "rare"], [1.0, 1.5])
    for block in log[4:]:
        block.labels = [["usual"]] * 4
        block.times = [slot[:1] for slot in block.times]
        block.run = [slot[:1] for slot in block.run]
    document = judged(plan_of(slot=2), log)
    assert document.verdict == "not_slower"
    assert document.labels["rare"].verdict == "too_few"
    assert "rare: too few, 4 blocks with both" in document.sentences


def test_a_block_in_which_a_side_has_none_of_a_label_does_not_count_for_it():
    log = labelled(60, ["usual", "other"], [1.0, 1.0])
    for block in log[::2]:
        block.labels = [["usual", "usual" if side == "B" else "other"] for side in block.order]
    document = judged(plan_of(slot=2), log)
    assert document.labels["other"].blocks == document.blocks // 2


def test_a_label_that_comes_late_has_no_share_of_the_level_and_is_said():
    log = labelled(60, ["usual", "late"], [1.0, 2.0])
    for block in log[:9]:
        block.labels = [["usual", "usual"]] * 4
    document = judged(plan_of(slot=2), log)
    assert "late" not in document.labels
    assert document.verdict == "not_slower"
    assert any(s.endswith("not judged by itself: late") for s in document.sentences)


def test_labels_of_failed_executions_are_unknown():
    log = labelled(60, ["usual", "other"], [1.0, 1.0])
    for block in log[3:6]:
        block.failed = [1, 0, 0, 0]
        block.labels = [list(slot) for slot in block.labels]
        for column in (block.times, block.run, block.labels):
            column[0] = column[0][:1]
    document = judged(plan_of(slot=2, failures_are_slow=True), log)
    assert document.labels["other"].blocks == document.blocks


def test_undecided_says_how_many_blocks_would_do():
    document = judged(plan_of(), log_of(30, 1.0, noise=0.12))
    assert document.verdict == "undecided"
    found = re.search(r"About (\d+) blocks would do", document.sentences[0])
    assert 30 < int(found[1]) <= 150


def test_evidence_at_the_border_of_every_statistic():
    for statistic, factor, code in (
        ("geo", 1.1, 1),
        ("mean", 1.1, 1),
        ("min", 1.1, 1),
        ("min", 1.0, 0),
    ):
        document = judged(plan_of(statistic=statistic), log_of(200, factor))
        assert document.exit == code
    assert "says nothing of rare slow runs" in document.sentences[0]
    # What is not always there is not in the least time.
    rare = judged(plan_of(statistic="min", tails=()), log_of(200, slow=0.08))
    assert rare.ratio == pytest.approx(1.0, abs=0.03)


def test_b_that_changes_the_machine_is_told():
    log = log_of(60)
    for number, block in enumerate(log):
        block.probes = {"l1": [9_000 + number + 900 * (side == "B") for side in block.order]}
    judge = Judge(plan_of())
    for block in log:
        judge.add(block)
    document = judge.document(version="1", discarded=None, spent_s=1.0, stopped_by="e")
    assert any("B changes the machine" in sentence for sentence in document.sentences)
    assert document.machine.by_side["l1"]["e"] >= 200


def test_two_kinds_of_time_share_the_level():
    # Either may alarm: at twice the evidence.
    log = log_of(200, 1.08, run_factor=1.0)
    one, both = judged(plan_of(of="time"), log), judged(plan_of(of="both"), log)
    assert one.verdict == both.verdict == "slower"
    assert both.blocks >= one.blocks
    assert both.e.alarm >= 200


def busy_log(blocks, factor, *, sleep=0.0, seed=3):
    """Return blocks of programs that compute for 10 ms on a busy machine; B may sleep, too."""
    found = log_of(blocks, factor, noise=0.02)
    rng = np.random.default_rng(seed)
    for block in found:
        waits = rng.exponential(2e7, (4, 1)).astype(int)
        block.waited = waits.tolist()
        for slot, (side, wait) in enumerate(zip(block.order, waits[:, 0], strict=True)):
            block.times[slot][0] += int(wait) + int(sleep * 1e7 * (side == "B"))
    return found


@pytest.mark.parametrize(
    ("factor", "code", "begins"),
    [
        (1.1, 1, r"SLOWER: B takes \d+\.\d % more time on a cpu than A \(\+.* to \+.* %\): "),
        (1.0, 0, r"NOT SLOWER: B typically takes \d\.\d % (more|less) time on a cpu than A "),
    ],
)
def test_time_on_a_cpu_decides_where_both_compute(factor, code, begins):
    log = busy_log(60, factor)
    without = judged(plan_of(), log)
    assert (without.verdict, without.decided_by) == ("undecided", "time")
    found = judged(plan_of(computes=True), log)
    assert (found.exit, found.decided_by, found.stopped_by) == (code, "run", "e")
    assert re.match(begins, found.sentences[0])
    assert "time from exec to exit: " in found.sentences[1]
    assert "not decided; both commands compute" in found.sentences[1]
    # Either may decide, so each has half of the level.
    assert max(found.e.alarm, found.e.not_slower) >= 200
    assert to_json(judge_again(found)) == to_json(found)


def test_time_on_a_cpu_does_not_decide_where_b_began_to_sleep():
    # The warm-up of A and B, say, was before the sleep began.
    found = judged(plan_of(computes=True), busy_log(60, 1.0, sleep=0.5))
    assert found.verdict == "undecided"
    assert found.running.verdict == "not_slower"
    # Neither does it where nothing is known of waits.
    log = busy_log(60, 1.0)
    for block in log:
        block.waited = []
    assert judged(plan_of(computes=True), log).verdict == "undecided"


def test_instructions_decide_where_they_are_asked_for():
    log = log_of(40, 1.0, noise=0.5)
    for block in log:
        block.counted = [[1_000_000 if side == "A" else 1_060_000] for side in block.order]
    found = judged(plan_of(of="instructions"), log)
    assert (found.verdict, found.decided_by, found.exit) == ("slower", "instructions", 1)
    assert found.sentences[0].startswith("SLOWER: B takes 6.0 % more instructions than A (")
    assert found.counted.typical.a == 1_000_000
    assert found.running.verdict == found.time.verdict == "undecided"


@pytest.mark.parametrize(
    ("factor", "says"),
    [
        (2.5, r"B takes 2\.5 times A's time \(2\.\d to 2\.\d times\)"),
        (0.4, r"B typically takes 60\.\d % less time than A \(-6\d\.\d to -5\d\.\d %\)"),
    ],
)
def test_large_changes_are_said_as_compare_says_them(factor, says):
    assert re.search(says, judged(plan_of(), log_of(60, factor, noise=0.01)).sentences[0])


def test_a_limit_that_says_nothing_is_not_written():
    for blocks, factor, noise, says in (
        (15, 1.0, 2.0, "(no limit)"),
        (30, 1.0, 3.0, "(at most 5.6 times)"),
        (14, 3.0, 1.2, "(at least 0.62 times)"),
    ):
        wide = judged(plan_of(max_blocks=blocks), log_of(blocks, factor, noise=noise))
        assert says in wide.sentences[0]
        assert "--until" not in wide.sentences[0]


# The loop itself, with slots that are made up.


class MadeUp:
    """Slots whose times are drawn: what the loop asks for is noted."""

    interrupted, ended_by = False, 0

    def __init__(self, *, equal=False, factor=1.0):
        self.rng, self.equal, self.factor = np.random.default_rng(4), equal, factor
        self.asked = []

    def run_block(self, order, executions):
        self.asked.append((order, executions))
        of = {"A": 1e7, "B": 1e7 * self.factor}
        times = [
            (of[side] * self.rng.lognormal(0, 0.02, executions)).astype(int).tolist()
            for side in order
        ]
        run = [[10_000_000] * executions for _ in order] if self.equal else times
        return AbBlock(order=order, times=times, run=run)


class Said:
    def __init__(self):
        self.lines, self.looks = [], []

    def say(self, line):
        self.lines.append(line)

    def look(self, line):
        self.looks.append(line)


def compared(slots, **options):
    said = Said()
    request = request_of(every_block=True, **options)
    return pipeline_ab.compare_commands(request, contextlib.nullcontext(slots), said), said


def test_the_loop_ends_when_something_is_shown_and_repeats_its_orders():
    slots = MadeUp(factor=1.2)
    document, said = compared(slots)
    assert (document.verdict, document.stopped_by) == ("slower", "e")
    assert document.slot == 2  # 20 ms of 10 ms executions
    orders = [order for order, _ in slots.asked[1:]]  # after the warm-up, A B B A
    assert orders == [block_order(7, n) for n in range(document.blocks)]
    assert slots.asked[0] == ("ABBA", 1)
    assert "up to 200 blocks" in said.lines[0]
    assert re.match(r"block 1, 8 runs, .*: B .*; slower than 2.5 %: E ", said.looks[0])


def test_a_clock_that_is_too_coarse_doubles_the_executions_of_a_slot():
    document, _ = compared(MadeUp(equal=True), of="run", max_blocks=1)
    assert document.slot == 4
    document, _ = compared(MadeUp(equal=True), of="time", max_blocks=1)
    assert document.slot == 2


@pytest.mark.parametrize(("sleeps", "computes"), [(0.0, True), (0.3, False)])
def test_the_warm_up_tells_whether_both_compute(sleeps, computes):
    class Busy(MadeUp):
        def run_block(self, order, executions):
            block = super().run_block(order, executions)
            # The first execution of A reads from a disk; it is not held against A.
            waits = [0, 5_000_000, 9_000_000, 1_000_000]
            block.waited = [[wait] * executions for wait in waits]
            more = [9e7 if len(self.asked) == 1 else 0, 0, 0, 0]
            block.times = [
                [int(t * (1 + sleeps)) + wait + int(late) for t in slot]
                for slot, wait, late in zip(block.run, waits, more, strict=True)
            ]
            return block

    document, _ = compared(Busy(factor=1.2), max_blocks=1)
    assert document.computes is computes


def test_what_is_announced_is_no_longer_than_the_time():
    for time, says in ((3.0, "up to about 37 blocks, 3.00 s"), (100.0, "up to 200 blocks, 16")):
        _, said = compared(MadeUp(), time=time, max_blocks=200)
        assert said.lines[0].startswith(says), said.lines


def test_nothing_begins_after_the_time(monkeypatch):
    moments = iter(np.arange(0, 1000, 1.0))
    monkeypatch.setattr(pipeline_ab.time, "monotonic", lambda: float(next(moments)))
    document, _ = compared(MadeUp(), time=10.0, slot=1)
    assert (document.verdict, document.stopped_by, document.exit) == ("undecided", "time", 3)


def recorded(monkeypatch, tmp_path, *, stop=10**6, failing=()):
    """Return slots whose recorder runs nothing, and the orders that it was asked for."""
    asked = []

    def record(request, _reporter, observe):
        asked.append(request.order)
        for i, side in enumerate(request.order):
            number = 48 * (len(asked) - 1) + i
            if number >= stop:
                return
            took = 10_000_000 if side == "A" else 13_000_000
            code = int(number in failing)
            observe(side, RunResult(9, 0, took + 5, code, False, 0, executed=5, running=took // 2))

    monkeypatch.setattr("critpath_record.session.record", record)
    request = request_of(traced=True, max_blocks=20)
    return TracedSlots(request, tmp_path, partial(_record_blocks, request, None)), asked


def test_recorded_blocks_are_the_seeds_and_their_times_those_of_the_runs(monkeypatch, tmp_path):
    slots, asked = recorded(monkeypatch, tmp_path, failing={5})
    blocks = [slots.run_block(block_order(7, number), 1) for number in range(20)]
    assert [block.order for block in blocks] == [block_order(7, n) for n in range(20)]
    assert list(map(len, asked)) == [48, 32]  # no more than the blocks that were asked for
    assert slots.parts == [tmp_path / "000", tmp_path / "001"]
    for block in blocks[2:]:
        for side, times, run in zip(block.order, block.times, block.run, strict=True):
            assert times == [10_000_000 if side == "A" else 13_000_000]
            assert run == [times[0] // 2]
    assert blocks[1].failed == [0, 1, 0, 0]
    assert blocks[1].times[1] == []


def test_recorded_blocks_end_where_the_user_ends_them(monkeypatch, tmp_path):
    slots, asked = recorded(monkeypatch, tmp_path, stop=55)
    blocks = [slots.run_block("ABBA", 1) for _ in range(14)]
    assert [block is None for block in blocks] == [False] * 13 + [True]
    assert slots.interrupted
    assert len(asked) == 2


def test_a_verdict_of_recorded_blocks_says_so_and_what_tracing_costs():
    discarded = AbBlock(order="ABBA", times=[[8_000_000]] * 4, run=[[8_000_000]] * 4)
    judge = Judge(plan_of(traced=True))
    for block in log_of(20, 1.3, noise=0.01):
        judge.add(block)
    document = judge.document(
        version="1", discarded=discarded, spent_s=1.0, stopped_by="e", cause=None
    )
    said = next(s for s in document.sentences if "with tracing" in s)
    assert re.search(r"A takes \+2[45]\.\d %, B takes \+6\d\.\d % of its time without", said)
    assert "2 runs each" in said
    assert judge_again(document).sentences == document.sentences
