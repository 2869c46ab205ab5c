"""No document contradicts its own figures, whatever the sets are like.

``CRITPATH_COMPARISONS=10000`` tries as many as that (13 minutes of one cpu; with
``OPENBLAS_NUM_THREADS=1``, without which threads that wait for work take as much again).
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from critpath.model import CompareSettings
from critpath.pipeline.comparison import compare
from critpath.report.document.comparison import comparison_document
from critpath.text.answer import describe_headline, describe_why, first_cause
from critpath.text.explanation import describe_cause

from .drawn_sets import draw

MANY = int(os.environ.get("CRITPATH_COMPARISONS", "300"))
BASE = (("r", 300.0), ("h", 120.0), ("k", 40.0), ("d", 60.0), ("T", 200.0), ("r", 50.0))
FAULTS = ("none", "none", "longer", "rare", "counts", "less", "new", "pace", "label")


def draw_set(rng, n, spread, fault, *, kinds, together, blocked):
    """Return n executions of some kinds, with a fault of random size in a random place."""
    place, size = int(rng.integers(len(BASE))), float(rng.choice([0.1, 0.3, 1.0, 4.0]))
    rare = rng.random(n) < 0.2
    label = rng.integers(kinds, size=n)
    rows = []
    for i in range(n):
        words = [[letter, us * (1 + int(label[i]))] for letter, us in BASE]
        if (
            fault == "longer"
            or (fault == "rare" and rare[i])
            or (fault == "label" and not label[i])
        ):
            words[place][1] *= 1 + size * (5 if fault == "rare" else 1)
        elif fault == "less":
            words[place][1] /= 1 + size
        elif fault == "pace":
            words = [[letter, us * (1 + size)] for letter, us in words]
        elif fault == "new":
            words.insert(place, ["t", 100 * size])
        elif fault == "counts":
            words += [["d", 20.0], ["r", 10.0]] * (1 + int(4 * size))
        noise = rng.lognormal(0, spread, len(words))
        rows.append(" ".join(f"{w[0]}{w[1] * x:.3f}" for w, x in zip(words, noise, strict=True)))
    made = draw(rows)
    names = tuple(f"kind {k}" for k in label.tolist()) if kinds > 1 else made.executions.label
    session = "one" if together else f"of {fault} {rng.integers(1 << 30)}"
    begins = made.executions.begin[::2].tolist()  # of the blocks, where the sets are interleaved
    steps = [begins[0], *(after - before for before, after in pairwise(begins))]
    blocks = {"recorded_blocks": " ".join(map(str, steps))} if blocked else {}
    return replace(
        made,
        executions=replace(made.executions, label=names),
        specification="marker",
        environment=(
            {"recorded_session": session, "hostname": "here", **blocks},
            {"recording": "drawn", "clock_epoch": 0},
        ),
    )


def without_subject(sentence):
    """Return what a cause's sentence says of its executions: the second line may say "they"."""
    return re.sub("^.*? (request|execution)s?( examined)? ", "", sentence)


def contradictions(document):
    """Return what a document says that its own figures deny."""
    detection, total = document.detection, document.states[-1]
    found = [
        f"{state.state}: the effect is outside of its interval"
        for state in document.states
        if not state.effect_low <= state.effect <= state.effect_high
    ]
    if document.verdict == "ok":
        if total.effect_low > detection.floor:
            found.append("OK, and the interval of the effect is above the floor")
        if detection.detectable is not None and total.effect >= detection.detectable:
            found.append("OK, and the effect is what would have shown")
        if detection.flagged:
            found.append("OK, and a state is flagged")
    if document.verdict == "anomaly":
        if not detection.flagged:
            found.append("an anomaly that nothing flags")
        told = first_cause(document, "SLOWER")
        if told is not None and (told.contribution or 0.0) <= 0:
            found.append("an anomaly told by what takes less time")
        head = describe_headline(document)
        if head.before is not None and head.after is not None and head.after <= head.before:
            found.append("a slowdown whose figures are of a speed-up")
        if told is not None and without_subject(describe_cause(document, told)) not in (
            describe_why(document)
        ):
            found.append("the second line is not the first cause")
        if not any(s.flagged and s.effect > 0 for s in document.states) and not detection.slow:
            found.append("an anomaly, and nothing takes longer")
    if not document.reasons:
        found.append("a verdict without a reason")
    return found


def try_comparison(seed):
    rng = np.random.default_rng(seed)
    n, m = (int(x) for x in rng.choice([8, 12, 20, 30, 60], 2))
    fault, spread = str(rng.choice(FAULTS)), float(rng.choice([0.03, 0.1, 0.3, 0.8]))
    of = {"kinds": int(rng.choice([1, 1, 2, 3])), "together": bool(rng.random() < 0.5)}
    of["blocked"] = of["together"] and seed % 2 == 0
    sets = draw_set(rng, n, spread, "none", **of), draw_set(rng, m, spread, fault, **of)
    settings = CompareSettings(permutations=1999, explain_limit=3)
    document = comparison_document(compare(*sets, settings))
    return [f"{seed} ({fault}, {n} x {m}, {spread}): {each}" for each in contradictions(document)]


def test_few_comparisons_contradict_nothing():
    assert [each for seed in range(25) for each in try_comparison(seed)] == []


@pytest.mark.long
def test_many_comparisons_contradict_nothing():
    assert [each for seed in range(25, MANY) for each in try_comparison(seed)] == []
