"""No document contradicts its own figures, whatever the sets are like.

``CRITPATH_COMPARISONS=10000`` tries as many as that (13 minutes of one cpu; with
``OPENBLAS_NUM_THREADS=1``, without which threads that wait for work take as much again).
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import replace

import numpy as np
import pytest

from critpath.flow import compare
from critpath.model import CompareSettings
from critpath.report.document.comparison import comparison_document
from critpath.report.html.as_html import show_ratio
from critpath.schema.environment import Environment
from critpath.text.answer import describe_headline, describe_why, first_cause, listed_causes
from critpath.text.explanation import describe_cause
from critpath.units import format_pair

from .drawn_sets import draw

MANY = int(os.environ.get("CRITPATH_COMPARISONS", "300"))
FEW = 6
# A wait that became shorter stood for longer work of whom it was for, and both took longer.
KNOWN = (4888, 8767, 9457)
BASE = (("r", 300.0), ("h", 120.0), ("k", 40.0), ("d", 60.0), ("T", 200.0), ("r", 50.0))
FAULTS = ("none", "none", "longer", "rare", "counts", "less", "new", "pace", "label")
WEATHER = ("none", "none", "busy", "crowded", "turns")  # what the machine does besides
LONG = (("s", 900.0), ("d", 400.0)) * 4  # what executions of another type do besides


def add_weather(rng, words, weather):
    """Return an execution that waits for a cpu besides: before all that runs, as long as it."""
    result = []
    for letter, us in words:
        result.append([letter, us])
        if letter in "rh" and weather != "none" and rng.random() < 0.7:
            wait = {"busy": "nmo"[rng.integers(3)], "crowded": "w", "turns": "n"}[weather]
            wait = "N" if letter == "h" else wait
            result += [[wait, us * (2 if weather == "busy" else 1)], [letter, us / 2]]
    return result


def draw_set(rng, n, spread, fault, *, kinds, together, blocked, mix=0.0, pace=1.0, weather="none"):
    """Return n executions of some kinds, with a fault of random size in a random place.

    A share of ``mix`` is of another type, which no label tells; all is ``pace`` times as long.
    """
    place, size = int(rng.integers(len(BASE))), float(rng.choice([0.1, 0.3, 1.0, 4.0]))
    rare = rng.random(n) < 0.2
    label = rng.integers(kinds, size=n)
    long = rng.permutation(n) < round(mix * n)
    rows = []
    for i in range(n):
        base = BASE + LONG if long[i] else BASE
        words = [[letter, pace * us * (1 + int(label[i]))] for letter, us in base]
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
        if weather != "none":
            words = add_weather(rng, words, weather)
        noise = rng.lognormal(0, spread, len(words))
        rows.append(" ".join(f"{w[0]}{w[1] * x:.3f}" for w, x in zip(words, noise, strict=True)))
    made = draw(rows)
    names = tuple(f"kind {k}" for k in label.tolist()) if kinds > 1 else made.executions.label
    session = "one" if together else f"of {fault} {rng.integers(1 << 30)}"
    begins = made.executions.begin[::2].tolist()  # of the blocks, where the sets are interleaved
    return replace(
        made,
        executions=replace(made.executions, label=names),
        specification="marker",
        environment=(
            Environment(
                recorded_session=session,
                hostname="here",
                recorded_blocks=tuple(begins) if blocked else None,
            ),
            Environment(recording="drawn", clock_epoch=0),
        ),
    )


def without_subject(sentence):
    """Return what a cause's sentence says of its executions: the second line may say "they"."""
    return re.sub("^.*? (request|execution)s?( examined)? ", "", sentence)


def figures_denied(document):
    """Return where sentences, pictures and tests have different times.

    One rule: before and after are of executions in the mix of types that there is after.
    """
    kinds, whole = document.pictures.kinds, document.detection.whole or document.states[-1]
    pair = whole.normal_mean, whole.sample_mean
    found = []
    if abs(pair[1] - pair[0] - whole.effect) > 0.5:
        found.append("the effect is not what its means differ by")
    if len(kinds) == 1 and not np.allclose(kinds[0].mean, pair, atol=1):
        found.append(f"the only kind has {kinds[0].mean}, the test {pair}")
    for kind in kinds:
        sides = dict(zip(("before", "after"), kind.mean, strict=True))
        for drawn in kind.means:
            if abs(drawn.mean - sides.get(drawn.group, drawn.mean)) > 1:
                found.append(f"drawn {drawn.group} are {drawn.mean}, and {sides}")
            if abs(sum(one.time for one in drawn.stretches) - drawn.mean) > len(drawn.stretches):
                found.append(f"what is drawn of {drawn.group} does not add up")
    return found + headline_denied(document, pair)


def headline_denied(document, whole):
    """Return what the first sentence and the page's number have of no figures of the document."""
    head, gate = describe_headline(document), document.detection.gate
    if head.before is None:
        return []
    of = [kind for kind in document.pictures.kinds if head.label in {None, kind.label}]
    known = [whole, *(pair for kind in of for pair in (kind.mean, kind.usual))]
    known += [(kind.mean[0], kind.slow_mean) for kind in of if kind.slow_mean is not None]
    known += [(gate.normal, gate.sample)] if gate else []
    work = document.detection.work
    known += [(work.mean, work.mean + work.effect)] if work and work.mean else []
    ratio = head.after / head.before if head.before else math.inf
    told = [" ".join(one) in head.sentence for one in format_pair(head.before, head.after)]
    share, way, times = (
        re.search(r"are ([\d.]+) % (slower|faster)|take ([\d.]+) times|$", head.sentence)
    ).groups()
    sign, shown, unit = (
        re.search(
            r"<b>([+\u2212]?)([\d.,]+)(\u202f%|\N{MULTIPLICATION SIGN})|$", show_ratio(document)
        )
    ).groups()
    page = float(shown.replace(",", "")) if shown else ratio
    if unit == "\u202f%":
        page = 1 + (page if sign == "+" else -page) / 100
    right = {
        "no such figures": any(
            np.allclose(pair, (head.before, head.after), atol=1) for pair in known
        ),
        "others are told": all(told),
        "another ratio": times is None or abs(float(times) / ratio - 1) < 0.06,
        "another way": way is None or (way == "slower") == (ratio > 1),
        "another share": share is None or abs(float(share) - 100 * abs(ratio - 1)) < 0.6,
        f"the page has {page}": abs(page - ratio) < max(0.006, 0.06 * ratio * (unit != "\u202f%")),
    }
    return [f"{head.sentence}: {what}" for what, holds in right.items() if not holds]


def causes_denied(document):
    """Return where causes do not add up, are told twice, or are missing from the list."""
    found = []
    for cause in document.causes:
        because = cause.facts.because
        if because is not None:
            parts = [getattr(because, name) for name in because.__struct_fields__]
            if sum(parts) != round(cause.contribution):
                found.append(f"{cause.sentence}: {parts} are not {cause.contribution}")
        times = cause.facts.time_before, cause.facts.time_after
        if None not in times and (times[1] - times[0]) * cause.contribution < 0:
            found.append(f"{cause.sentence}: its times go the other way")
        rivals = math.fsum(one.share for one in cause.facts.rivals)
        if rivals > 1 + 1e-9:
            found.append(f"{cause.sentence}: rivals have {rivals}")
        if cause.facts.brought and cause.facts.rivals:
            found.append(f"{cause.sentence}: who had the cpu is named, and is no cause")
    whole, total = document.because, document.detection.whole or document.states[-1]
    if whole is not None:
        parts = [getattr(whole, name) for name in whole.__struct_fields__]
        if sum(parts) != round(total.effect):
            found.append(f"{parts} are not {total.effect}")
    shares = math.fsum(cause.share for cause in document.causes if (cause.share or 0) > 0)
    if shares > 1 + 1e-9:
        found.append(f"shares of causes add up to {shares}")
    word = describe_headline(document).word
    if word in {"SLOWER", "FASTER"}:
        way = 1 if word == "SLOWER" else -1
        told = [c for c in document.causes if way * c.contribution > 0]
        largest = max(told, key=lambda c: abs(c.contribution) * len(c.positions), default=None)
        if largest and largest not in [cause for _, cause in listed_causes(document, 2)]:
            found.append(f"{largest.sentence}: the largest cause is not listed")
    said = [(without_subject(c.sentence), {*c.positions}) for c in document.causes]
    twice = [a for i, (a, x) in enumerate(said) for b, y in said[:i] if a == b and not x & y]
    return found + [f"{sentence}: told twice" for sentence in twice]


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
        # Of recordings made apart, the machine may have made a state what it is, but not the whole.
        if detection.flagged and (total.flagged or not detection.apart):
            found.append("OK, and a state or the whole is flagged")
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
    return found + figures_denied(document) + causes_denied(document)


def try_comparison(seed):
    rng = np.random.default_rng(seed)
    n, m = (int(x) for x in rng.choice([8, 12, 20, 30, 60], 2))
    fault, spread = str(rng.choice(FAULTS)), float(rng.choice([0.03, 0.1, 0.3, 0.8]))
    of = {"kinds": int(rng.choice([1, 1, 2, 3])), "together": bool(rng.random() < 0.5)}
    of["blocked"] = of["together"] and seed % 2 == 0
    more = np.random.default_rng(seed + 1_000_000)  # what was drawn before stays as it was
    mixes = (
        [float(each) for each in more.choice([0.0, 0.2, 0.5, 0.8], 2)] if seed % 3 == 0 else [0, 0]
    )
    # The same on both sides, or on one: what was drawn before stays as it was.
    weathers = [str(each) for each in np.random.default_rng(seed + 2_000_000).choice(WEATHER, 2)]
    weathers = weathers if seed % 2 else weathers[:1] * 2
    sets = [
        draw_set(rng, size, spread, which, mix=mix, weather=weather, **of)
        for size, which, mix, weather in zip((n, m), ("none", fault), mixes, weathers, strict=True)
    ]
    level = (("WAIT_DISK", "warn"),) if seed % 5 == 0 else ()
    settings = CompareSettings(permutations=999, explain_limit=3, level=level)
    document = comparison_document(compare(*sets, settings))
    return [f"{seed} ({fault}, {n} x {m}, {spread}): {each}" for each in contradictions(document)]


@pytest.mark.parametrize(
    ("before", "after"),
    [(0.2, 0.8), (0.8, 0.2), pytest.param(0.5, 0.5, marks=pytest.mark.deep)],
)
def test_the_first_sentence_is_the_truth_whatever_mix_of_types_there_is(before, after):
    """Everything takes exactly 1.2 times as long; what was asked more often is no slowdown."""
    rng = np.random.default_rng(1)
    times = {long: sum(us for _, us in BASE + LONG * long) * 1000 for long in (False, True)}
    expected = after * times[True] + (1 - after) * times[False]
    of = {"kinds": 1, "together": True, "blocked": False}
    normal, sample = (
        draw_set(rng, 60, 0.0, "none", mix=mix, pace=pace, **of)
        for mix, pace in ((before, 1.0), (after, 1.2))
    )
    found = comparison_document(compare(normal, sample, CompareSettings(permutations=999)))
    head = describe_headline(found)
    assert head.word == "SLOWER"
    assert (head.before, head.after) == pytest.approx((expected, 1.2 * expected), rel=1e-5)
    assert "are 20 % slower" in head.sentence
    assert found.states[-1].effect == pytest.approx(0.2 * expected, rel=1e-4)


def test_few_comparisons_contradict_nothing():
    assert [each for seed in (*range(FEW), *KNOWN) for each in try_comparison(seed)] == []


@pytest.mark.deep
def test_many_comparisons_contradict_nothing():
    assert [each for seed in range(FEW, MANY) for each in try_comparison(seed)] == []
