"""What the program did is told from what the machine did to it, on sets of drawn executions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from critpath import flow
from critpath.model import CompareSettings
from critpath.report.document.comparison import comparison_document
from critpath.schema.environment import Environment
from critpath.text.answer import describe_why

from .drawn_sets import draw

NORMALS, SAMPLES = 30, 12


def compare_rows(*rows):
    """Return the document of two sets that were recorded in turns, from drawn executions."""
    sets = [draw(of) for of in rows]
    blocks = [tuple(one.executions.begin[::2].tolist()) for one in sets]
    sets = [
        replace(
            one,
            environment=(
                Environment(recorded_session="one", hostname="here", recorded_blocks=begins),
            ),
        )
        for one, begins in zip(sets, blocks, strict=True)
    ]
    return comparison_document(flow.compare(*sets, CompareSettings(permutations=999)))


def vary(rng, words, noise=0.03):
    return " ".join(f"{w[0]}{float(w[1:]) * rng.normal(1, noise):.3f}" for w in words.split())


def compare(normal, sample, *, seed=1, noise=0.03):
    """Return the document of sets drawn from one execution each, every duration varied."""
    rng = np.random.default_rng(seed)
    sides = (normal, NORMALS), (sample, SAMPLES)
    return compare_rows(*([vary(rng, one, noise) for _ in range(n)] for one, n in sides))


def parts(facts):
    because = facts.because
    return {name: getattr(because, name) for name in because.__struct_fields__}


@pytest.mark.parametrize(
    ("normal", "sample", "role", "ran"),
    [
        # Worker and neighbour take turns: cut while it runs.
        ("r500 d100 " + "r4000 n6000 " * 2, "r500 d100 " + "r4000 n6000 " * 12, "", 48.5),
        # Two neighbours, and what became longer is between other steps.
        ("r3000 m2000 r1500 n900 d300", "r3000 m2000 " + "r3000 n2000 " * 6 + "d300", "", 21),
        # Another thread computes longer for it, and waits as often.
        ("r500 h4000 N5000 h4000 r300", "r500 " + "h4000 N5000 " * 8 + "h4000 r300", "helper", 36),
        # What was too short to be cut is now long enough.
        ("r300 d900 n2000 r50", "r300 d900 n2000 " + "r3000 n9000 " * 6, "", 18.3),
    ],
)
def test_a_computation_that_became_longer_names_no_neighbour(normal, sample, role, ran):
    document = compare(normal, sample)
    facts = document.causes[0].facts
    assert (facts.state, facts.role) == ("RUN", role)
    assert facts.work_after == pytest.approx(ran * 1e6, rel=0.05)
    why = describe_why(document)
    assert "waits for a CPU grew with it" in why
    assert not {"cc1", "make"} & set(why.replace("`", " ").split())
    due = parts(facts)
    assert due["length"] > 0.8 * sum(map(abs, due.values()))
    assert document.because.length > 0.8 * document.states[-1].effect


def test_the_first_sentence_says_what_trips_cost_with_what_they_bring():
    document = compare("r500 h100 r900 n600", "r500 " + "h100 r900 n600 " * 9)
    why = describe_why(document)
    assert "for helper 9 times instead of once" in why.replace("`", "")
    lost = document.causes[0].contribution / 1e6
    assert lost > 5
    assert why.endswith(f", +{lost:.2f} ms with what it brings along.")


def test_how_long_another_thread_ran_stands_beside_a_busier_machine():
    # It computes three times as long, and the machine makes it wait longer for each of it.
    document = compare("r500 h4000 N1000 h4000 r300", "r500 " + "h4000 N30000 " * 5 + "h4000 r300")
    (cause,) = document.causes
    assert (cause.facts.state, cause.facts.role, cause.facts.brought) == ("RUN", "helper", False)
    assert "running for 24.0 ms instead of 8.0 ms and, for most of the time," in cause.sentence


@pytest.mark.parametrize(
    ("normal", "sample", "told"),
    [
        ("r9000 d500 n800 r9000", "r9000 d500 n4000 r4000 n12000 r5000", "`cc1`"),
        ("r9000 d500 n800 r9000", "r9000 d500 n4000 r4000 m12000 r5000", "`make` (79 %)"),
        (
            "r9000 n900 r9000 d500",
            "r9000 n5900 r3000 m4000 r3000 o3000 r3000 d500",
            "several others (`cc1` 42 %, `make` 33 %)",
        ),
    ],
)
def test_strangers_that_had_more_of_a_cpu_are_named_with_their_share(normal, sample, told):
    # What strangers do is no verdict alone.
    document = compare(normal, f"{sample} t9000", noise=0.001)
    (cause,) = [c for c in document.causes if c.facts.state == "WAIT_CPU"]
    facts = cause.facts
    assert f"busy running {told}" in cause.sentence
    due = parts(facts)
    assert due["machine"] > 0.95 * sum(map(abs, due.values()))
    assert sum(one.share for one in facts.rivals) == pytest.approx(1)


def test_the_programs_own_threads_crowd_it():
    document = compare("r5000 w100 r5000 n200 r900", "r5000 w9000 r5000 n200 r900")
    facts = document.causes[0].facts
    assert (facts.cause_id, [one.ours for one in facts.rivals]) == ("own-threads", [True])
    due = parts(facts)
    assert due["crowding"] > 0.95 * sum(map(abs, due.values()))


@pytest.mark.parametrize(
    ("trip", "before", "after"),
    [("r20 h200 n900 ", 1, 20), ("r30 N400 h300 ", 2, 8), ("r10 T500 h50 n700 ", 1, 12)],
)
def test_more_visits_have_the_waits_of_their_trips(trip, before, after):
    document = compare(f"r900 {trip * before} r900", f"r900 {trip * after} r900")
    facts = document.causes[0].facts
    assert (facts.role, facts.state == "WAIT_CPU") == ("helper", False)
    due = parts(facts)
    assert due["visits"] > 0.8 * sum(map(abs, due.values()))


@pytest.mark.parametrize(
    ("way", "trip", "who"),
    [
        # What a trip brings along is its asker's: what it runs before, and waits for a CPU behind.
        ("h900 | h200", "h30 a20 N900 ", ["helper", "app"]),
        ("h900 | h200", "h300 a40 N200 ", ["helper", "app"]),
        ("h900 | h200", "h30 A700 a20 N900 ", ["helper", "app"]),
        ("h300 a900 | a100 h200", "a30 b20 A900 ", ["helper", "app", "base"]),
        ("h300 a900 | a100 h200", "a150 b60 ", ["helper", "app", "base"]),
        ("h300 a900 N400 | a100 h200", "a30 B300 b20 A500 a60 A50 ", ["helper", "app", "base"]),
        # The proxy asks the app once more for each: the count is the app's.
        ("h300 | h200", "h30 a400 b20 A90 a10 N600 ", ["helper", "app"]),
    ],
)
@pytest.mark.parametrize("busy", [False, True])
def test_more_trips_of_a_middle_tier_name_whom_it_asks(way, trip, who, busy):
    first, last = way.split("|")
    n1, n2 = ("n2000 r300 ", "N2000 ") if busy else ("", "")
    sides = [f"r900 {n1}{first}{n2}{trip * count}{last} r200" for count in (1, 15)]
    document = compare(*sides, noise=0.1)
    facts = document.causes[0].facts
    assert (facts.counted, facts.role, facts.through) == ("trips", who[-1], who[:-1])
    assert (facts.count_before, facts.count_after) == (1, 15)
    assert f"for `{who[-1]}` 15 times instead of once" in describe_why(document)


@pytest.mark.parametrize("sleep", [3000, 40_000])
def test_the_end_of_a_chain_is_named_with_the_way_to_it(sleep):
    document = compare("r900 h300 r900", f"r900 h300 l{sleep} h100 r900")
    facts = document.causes[0].facts
    assert (facts.state, facts.role, facts.through) == ("WAIT_TIMER", "locker", ["helper"])
    assert ", through `helper`, for thread `locker`, which was sleeping" in describe_why(document)


def test_a_neighbour_of_some_and_one_of_the_others_are_one_cause():
    rng = np.random.default_rng(5)
    rows = ["r9000 d500 n4000 r4000 n12000 r5000"] * 8 + ["r9000 d500 m4000 r4000 m12000 r5000"] * 4
    normal = ["r9000 d500 n800 r9000"] * NORMALS
    rows = [f"{one} t9000" for one in rows]
    document = compare_rows(*([vary(rng, one) for one in of] for of in (normal, rows)))
    waits = [c for c in document.causes if c.facts.state == "WAIT_CPU"]
    assert [len(cause.positions) for cause in waits] == [SAMPLES]
