"""What executions do more often heads the answer, with what it brings along; facts say it."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from detailing import detailed

from critpath import flow
from critpath.detect.machine import find_strangers
from critpath.model import CompareSettings, State
from critpath.model.details import Detail
from critpath.report.document.comparison import comparison_document
from critpath.text.answer import describe_headline, describe_why
from critpath.text.page import find_deciding_p

from .drawn_sets import draw


def compare(normal, sample):
    return flow.compare(normal, sample, CompareSettings(permutations=999))


def executions(count, unit, times, rest="r3000", seed=1):
    """Return executions of a rest and so many units, every duration within a tenth."""
    chance = random.Random(seed)  # noqa: S311 - durations, no secrets

    def vary(word):
        return f"{word[0]}{float(word[1:]) * chance.uniform(0.95, 1.05):.3f}"

    return [" ".join(map(vary, f"{rest} {f'{unit} ' * times}r50".split())) for _ in range(count)]


def first(normal, sample):
    document = comparison_document(compare(draw(normal), draw(sample)))
    assert document.causes, document.reasons
    return document.verdict, document.causes[0]


def test_more_trips_to_a_thread_are_one_cause_with_what_each_brings_along():
    unit = "r60 h20 i90"  # prepared, done, waited for a cpu
    verdict, cause = first(executions(20, unit, 2), executions(20, unit, 22, seed=2))
    assert verdict == "anomaly"
    facts = cause.facts
    assert (facts.state, facts.role, facts.peer) == ("RUN", "helper", "helper")
    assert (facts.counted, facts.count_before, facts.count_after) == ("trips", 2, 22)
    assert (facts.executions, facts.of, facts.certainty) == (20, 20, "observed")
    assert facts.share > 0.9


def test_a_trip_whose_work_takes_the_callers_cpu_counts_as_one():
    asleep, preempted = "r60 h20 i90", "r60 k20"  # the helper works while it sleeps, or instead
    sample = executions(20, f"{asleep} {preempted} {preempted}", 7, seed=2)
    verdict, cause = first(executions(20, asleep, 2), sample)
    assert verdict == "anomaly"
    facts = cause.facts
    assert (facts.role, facts.counted, facts.count_after) == ("helper", "trips", 21)
    assert facts.share > 0.8


def test_helpers_that_interrupt_a_longer_computation_are_no_cause_of_it():
    # As garbage collectors do, whenever a thread has allocated enough: what it ran before
    # such an interruption is no preparation, which would be about the same every time.
    started = "r900 h20 r5 h20 r200 h30"
    normal = executions(20, f"{started} r100 k20", 1)
    uneven = "r10 k20 r700 k20 r6 k20 r250 k20 r3 k20 r8 k20"
    _, cause = first(normal, executions(20, f"{started} r100 k20 {uneven}", 1, seed=2))
    assert (cause.facts.state, cause.facts.role) == ("RUN", "")


def test_more_waits_are_told_by_their_number():
    unit = "r20 d40 i90"
    verdict, cause = first(executions(20, unit, 1), executions(20, unit, 6, seed=2))
    assert verdict == "anomaly"
    facts = cause.facts
    assert (facts.state, facts.counted) == ("WAIT_DISK", "waits")
    assert (facts.count_before, facts.count_after) == (1, 6)


def test_a_wait_that_everybody_makes_longer_is_no_cause_before_what_grew():
    normal = executions(20, "h200 k300", 2)
    sample = executions(20, "h700 k900", 2, seed=2)
    _, cause = first(normal, sample)
    assert (cause.facts.state, cause.facts.role) == ("RUN", "helper")


def test_a_sample_that_is_faster_is_explained_as_well():
    unit = "r20 T900"
    verdict, cause = first(executions(20, unit, 6), executions(20, unit, 1, seed=2))
    assert verdict == "ok"
    assert cause.contribution < 0
    assert (cause.facts.state, cause.facts.peer) == ("WAIT_TIMER", "helper")
    assert cause.facts.time_before == pytest.approx(5.4e6, rel=0.02)


def test_every_state_says_how_often_executions_are_in_it():
    normal, sample = executions(20, "r20 d40", 1), executions(20, "r20 d40", 6, seed=2)
    document = comparison_document(compare(draw(normal), draw(sample)))
    counts = {s.state: (s.normal_count, s.sample_count) for s in document.states}
    assert counts["WAIT_DISK"] == (1, 6)
    assert counts["total"] == (None, None)


def test_strangers_are_who_is_there_in_both_sets_and_not_of_the_program():
    def waited(*names):
        """Return executions of which one waited for each of a run's names."""
        strings = ("", "worker", *(f"{name} (9)" for run in names for name in run))
        drawing = draw(["r9 c9"] * sum(map(len, names)))
        codes = np.arange(2, len(strings), dtype=np.int32)
        detail = np.where(np.arange(2 * len(codes)) % 2, np.repeat(codes, 2), 0)
        paths = replace(drawing.paths, detail=detail.astype(np.int32), strings=strings)
        paths = detailed(paths)
        runs = np.repeat(np.arange(len(names)), [len(run) for run in names])
        return replace(drawing, paths=paths), runs

    usual, alike = waited(*[["cc1", "helper"]] * 5), waited(*[["cc1", "helper"]] * 5)
    new = waited(*[["hog", "worker"]] * 5)
    assert find_strangers(usual[0], alike[0], {"helper"}, (usual[1], alike[1])) == {"cc1"}
    assert find_strangers(usual[0], new[0], {"helper"}, (usual[1], new[1])) == {"cc1"}
    once = waited(["hog"], *[["worker"]] * 4)
    assert find_strangers(usual[0], once[0], {"helper"}, (usual[1], once[1])) == {"cc1", "hog"}


def test_what_every_execution_waits_longer_for_is_told_where_a_stranger_hides_it():
    def beside(sleep, seed):
        """Return executions of 3 ms that wait for a cpu that a stranger has, most of the time."""
        chance = np.random.default_rng(seed)
        waits = chance.exponential(8_000, 20)
        drawing = draw([f"r1000 c{wait:.3f} r2000 T{sleep} r50" for wait in waits])
        paths = drawing.paths
        details = (*paths.details, Detail("cc1", 9))
        detail = np.where(paths.state == State.WAIT_CPU, len(details) - 1, paths.detail)
        return replace(
            drawing, paths=replace(paths, detail=detail.astype(np.int32), details=details)
        )

    found = comparison_document(compare(beside(300, 1), beside(1_500, 2)))
    assert found.verdict == "anomaly"
    headline = describe_headline(found).sentence
    assert headline.startswith("Processes are 36 % slower in their own work, 3.35 ms → 4.55 ms; ")
    assert headline.endswith(" is within noise")
    why = describe_why(found)
    assert "`helper`" in why
    facts = found.causes[0].facts
    assert (facts.time_before, facts.time_after) == pytest.approx((3e5, 1.5e6), rel=0.02)
    assert len(found.causes[0].positions) >= 18
    assert find_deciding_p(found) < 0.01  # which all outputs give; the whole's is no evidence


def noisy(seed, added, count=24):
    """Return executions that vary by more than most of what is added to their wait."""
    chance = random.Random(seed)  # noqa: S311 - durations, no secrets
    return [
        f"r{chance.gauss(3000, 150):.3f} d{chance.uniform(20, 40) + added(i):.3f} r50"
        for i in range(count)
    ]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("added", [200.0, 300.0, 450.0])
def test_what_all_became_slower_by_is_not_told_of_the_unlucky_alone(seed, added):
    normal, sample = noisy(seed, lambda _: 0.0), noisy(seed + 50, lambda _: added)
    document = comparison_document(compare(draw(normal), draw(sample)))
    assert describe_headline(document).sentence.startswith("Processes are ")
    assert describe_why(document).startswith("They wait ")
    assert len(document.causes[0].positions) >= 22  # not only those that took longer in all


def test_a_third_that_became_slower_is_told_of_alone():
    sample = noisy(52, lambda i: 0.0 if i % 3 else 900.0)
    document = comparison_document(compare(draw(noisy(2, lambda _: 0.0)), draw(sample)))
    assert describe_headline(document).sentence.startswith("8 of 24 processes take ")
    assert describe_why(document).startswith("They wait ")


@pytest.mark.deep
def test_a_lock_that_is_new_mostly_comes_before_longer_waits_for_a_cpu():
    """Some of the slow ones have a trip more to the helper: that is not why it waits for a cpu."""

    def drawn(slow, chance):
        trips = chance.choice((2, 2, 3)) + (slow and chance.random() < 0.6)
        wait = 2400 if slow else 700
        trip = [f"q{chance.expovariate(1 / wait) + 1:.3f} h500 r100" for _ in range(trips)]
        locked = [f"l{chance.uniform(1350, 1650):.3f}"] if slow else []
        return " ".join(["r300", *trip, *locked, "r200"])

    peers = []
    for seed in range(10):
        chance = random.Random(seed)  # noqa: S311 - durations, no secrets
        sets = [draw([drawn(of and i % 2, chance) for i in range(30)]) for of in (False, True)]
        peers.append(comparison_document(compare(*sets)).causes[0].facts.peer)
    assert peers.count("locker") >= 7, peers
