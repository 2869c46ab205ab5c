"""A stranger who came with the sample is named with its CPU and the kinds of request it hit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from critpath import flow
from critpath.model import CompareSettings
from critpath.report.document.comparison import comparison_document
from critpath.schema.environment import Environment
from critpath.text.answer import describe_headline, describe_why

from .drawn_sets import draw

EACH = 20  # of a kind


def vary(rng, words):
    """Return an execution as drawn, with work that varies little and waits that vary much."""
    spread = {"n": 0.5, "m": 0.2, "o": 0.5, "N": 0.5}
    times = [float(w[1:]) * rng.lognormal(0, spread.get(w[0], 0.03)) for w in words.split()]
    return " ".join(f"{w[0]}{time:.3f}" for w, time in zip(words.split(), times, strict=True))


def compare(before, after, *, seed=1, in_turns=True):
    """Return the document of two sets of `read` and `write` processes."""
    rng = np.random.default_rng(seed)
    sets = []
    for name, sides in (("one", before), ("one" if in_turns else "other", after)):
        rows = [vary(rng, kind) for kind in sides for _ in range(EACH)]
        order = np.arange(len(rows)).reshape(2, EACH).T.reshape(-1)
        one = draw([rows[i] for i in order])
        labels = tuple(np.array(["read", "write"])[order // EACH].tolist())
        place = Environment(recorded_session=name, hostname="here")
        of = replace(one.executions, label=labels)
        sets.append(replace(one, executions=of, environment=(place,)))
    return comparison_document(flow.compare(*sets, CompareSettings(permutations=999)))


READ = "r900 n400 d200"


@pytest.mark.parametrize("in_turns", [True, False])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("r1000 n1500 d100", "r1000 m6000 d100"),  # others gave way to it
        ("r1000 d100", "r1000 m3000 d100"),
        ("r300 h500 N700 d400", "r300 h500 N700 m4000 d400"),  # and of others there are as many
    ],
)
def test_who_came_is_named_with_the_cpu_and_the_kind(before, after, in_turns):
    document = compare((READ, before), (READ, after), in_turns=in_turns)
    assert document.verdict == "by_machine"
    weather = document.detection.weather
    assert weather.kinds == ["write"]
    assert ([one.name for one in weather.rivals], weather.cpus) == (["make"], [0])
    headline, why = describe_headline(document), describe_why(document)
    assert headline.title == "SLOWER, BY THE MACHINE"
    assert headline.sentence.startswith("`write` processes")
    assert "CPU 0, which `make` had" in why
    marked = document.rows("sample", "label", "anomalous")
    hit = [label for label, anomalous in marked if anomalous]
    assert (set(hit), len(hit) >= 0.9 * EACH) == ({"write"}, True)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("r1000 m3000 d100", "r1000 m3300 d100"),  # there before
        ("r1000 n1500 d100", "r1000 n2600 d100"),
        ("r1000 n3000 d100", "r1000 n3000 m50 d100"),  # it took little
        ("r1000 w800 d100", "r1000 w6000 d100"),  # of the program
    ],
)
def test_who_was_there_or_is_of_the_program_did_not_come(before, after):
    document = compare((READ, before), (READ, after))
    weather = document.detection.weather
    assert document.detection.came is None
    assert weather is None or weather.before > 0.05 * weather.after


def test_where_others_gave_way_to_it_as_much_nobody_knows_whether_it_made_them_slower():
    document = compare((READ, "r1000 n3000 d100"), (READ, "r1000 m3000 d100"))
    assert document.verdict == "inconclusive"
    assert document.detection.came.kinds == ["write"]
    assert "`write` processes wait" in describe_headline(document).sentence
    assert "CPU 0, which `make` had" in describe_headline(document).sentence


@pytest.mark.parametrize("in_turns", [True, False])
def test_what_the_program_did_beside_it_is_the_programs(in_turns):
    document = compare(
        (READ, "r1000 n1500 d100"), (READ, "r9000 d2000 " * 3 + "m3000 d100"), in_turns=in_turns
    )
    assert document.verdict == "anomaly"


def test_of_healthy_worlds_nobody_comes():
    """In 60 worlds any of three strangers has the cpu of any request, and some come in bursts."""
    rng = np.random.default_rng(7)
    said = []
    for _ in range(60):
        sets = []
        for _ in range(2):
            burst = rng.choice(["n", "m", "o"]), *np.sort(rng.uniform(0, 1.2, 2))
            rows = []
            for i in range(2 * EACH):
                who = burst[0] if burst[1] < i / 2 / EACH < burst[2] else rng.choice(list("nmo"))
                rows.append(f"r{rng.normal(1000, 30):.3f} {who}{rng.exponential(800):.3f} d100")
            one = draw(rows)
            place = Environment(recorded_session="one", hostname="here")
            sets.append(replace(one, environment=(place,)))
        document = comparison_document(
            flow.compare(*sets, CompareSettings(permutations=999), flame=False)
        )
        said.append(document.verdict == "by_machine" or document.detection.came is not None)
    assert sum(said) <= 1
