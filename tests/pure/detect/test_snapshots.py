"""What each judge says of a handful of drawn sets, as it said before: `pytest --update` accepts.

Inputs are drawn as whole numbers, which are the same on every machine and with every NumPy.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from critpath.detect import (
    calibration,
    coarse,
    comparability,
    families,
    flame,
    machine,
    tails,
    verdict,
)
from critpath.detect.judging import judge
from critpath.documents import DetectableEntry, FalseAlarmsEntry
from critpath.documents.base import change
from critpath.model import (
    ChainTimes,
    CompareSettings,
    Rival,
    State,
    Symbol,
    VectorTable,
)
from critpath.schema.environment import read_environment
from critpath.stats import means, permutations
from critpath.stats.rows import make_seed

GOLDEN = Path(__file__).with_name("golden")
SYMBOLS = (
    *(Symbol(State.RUN), Symbol(State.RUN, "server"), Symbol(State.WAIT_CPU)),
    *(Symbol(State.WAIT_DISK), Symbol(State.WAIT_TIMER), Symbol(State.QUEUED, "server")),
    *(Symbol(State.IRQ), Symbol(State.WAIT_TASK, "kworker/#")),
)
COUNTS = np.array([3, 2, 1, 1, 0, 1, 1, 0])
MEANS = np.array([4_000_000, 2_000_000, 200_000, 1_000_000, 300_000, 150_000, 20_000, 0])


@pytest.fixture
def snapshot(load, golden):
    """Compare facts with those that are kept under a name."""

    def compare(name, facts):
        golden(GOLDEN / f"{name}.txt", load("oracle/facts.py").text_of(facts))

    return compare


def varied(rng, shape, percent=20):
    """Return factors around 1000 that are no farther from it than so many percent."""
    far = 10 * percent // 4
    return 1000 + rng.integers(-far, far + 1, (4, *shape)).sum(axis=0)


def table(seed, n=30, *, times=(1,) * 8, more=(0,) * 8, counts=(0,) * 8, percent=20, rows=None):
    """Return executions; of the ``rows`` alone if given, they are slower or do more."""
    rng = np.random.default_rng(seed)
    here = np.zeros(n, np.bool_)
    here[slice(None) if rows is None else rows] = True
    factor = np.where(here[:, None], np.rint(100 * np.asarray(times)).astype(np.int64), 100)
    drawn = MEANS * varied(rng, (n, 8), percent) // 1000 * factor // 100
    drawn += np.where(here[:, None], np.asarray(more, np.int64), 0)
    number = COUNTS + np.where(here[:, None], np.asarray(counts), 0)
    number = np.maximum(number + (rng.integers(0, 8, (n, 8)) == 0), 0)
    return VectorTable(SYMBOLS, number * (drawn > 0), drawn)


def only(factor, *places):
    return tuple(factor if i in places else 1 for i in range(8))


def at(amount, *places):
    return tuple(amount if i in places else 0 for i in range(8))


# What the sample does otherwise, and how many executions either set has.
SETS = {
    "alike": (30, 20, {}),
    "slower-6": (30, 20, {"times": (1.06,) * 8}),
    "slower-4": (60, 40, {"times": (1.04,) * 8}),
    "slower-40": (30, 20, {"times": (1.4,) * 8}),
    "faster": (30, 20, {"times": (0.7,) * 8}),
    "disk": (30, 20, {"times": only(2.0, 3)}),
    "disk-much": (30, 20, {"times": only(4.5, 3)}),
    "sleep": (30, 20, {"times": only(3, 4), "counts": at(2, 4)}),
    "sleep-longer": (30, 20, {"times": only(5, 4)}),
    "server": (30, 20, {"times": only(1.9, 1)}),
    "server-more": (30, 20, {"times": only(2.5, 1), "counts": at(3, 1)}),
    "cpu": (30, 20, {"times": only(9, 2), "counts": at(2, 2)}),
    "queue": (30, 20, {"times": only(40, 5), "counts": at(1, 5)}),
    "queue-and-more": (30, 20, {"times": only(3, 1, 5), "counts": at(2, 1, 5)}),
    "new-helper": (30, 20, {"more": at(900_000, 7), "counts": at(1, 7)}),
    "some": (40, 40, {"times": (2.5,) * 8, "rows": slice(0, 6)}),
    "few": (8, 5, {"times": (1.5,) * 8}),
    "three": (3, 3, {"times": (2,) * 8}),
}


def as_rows(n, way):
    """Return types, sessions, or blocks of n executions."""
    place = np.arange(n)
    ways = {"one": 0 * place, "thirds": place % 3, "halves": place * 2 // n,
            "fours": place * 4 // n, "tens": place * 10 // n,
            "most": 1 * (place % 6 < 1)}  # fmt: skip
    return ways[way]


def detected(normal, sample, **options):
    found = {"permutations": 299, "screening": False, **options}
    return coarse.detect(normal, sample, **found)


@pytest.mark.parametrize("name", SETS)
def test_a_comparison(snapshot, name):
    n, m, changed = SETS[name]
    normal, sample = table(1, n), table(2, m, **changed)
    facts = {}
    for way in ("one", "thirds", "most"):
        types = {"normal_type": as_rows(n, way), "sample_type": as_rows(m, way)}
        found = detected(normal, sample, **types)
        facts[way] = found
        outliers = SimpleNamespace(anomalous=np.arange(m) < 3)
        for apart in (None, verdict.Apart(0.2, 0.1, (3, 3)), verdict.Apart(
            0.1, float("inf"), (1, 1), Rival("stress", 1e5, 1.5e6)
        ), verdict.Apart(0.1, 0.1, (2, 1), Rival("stress", 0, 1e4))):  # fmt: skip
            said = verdict.decide(
                found, outliers, (np.zeros(n, np.bool_), np.zeros(m, np.bool_)), ((), ()),
                apart=apart, note="it",
            )  # fmt: skip
            facts[f"{way} {apart and apart.slower} {apart and apart.beyond}"] = said
        facts[f"{way} queue"] = machine.find_queue(found)
        for rival in (
            None,
            Rival("x", 1e4, 3e5),
            *(
                Rival(machine.IDLE, before, after)
                for before, after in ((1e4, 3e5), (4e5, 9e5), (5e5, 9e5), (0, 381_838), (1e6, 9e5))
            ),
        ):
            for told in (False, True):
                key = f"{way} limit {rival and (rival.name, rival.before, rival.after)} {told}"
                facts[key] = machine.find_limit(rival, found, throttled=told)
    snapshot(name, facts)


def labels_of(n):
    return [("get", "put", "list")[i % 3] for i in range(n)]


OPTIONS = {
    "levels": {"alpha": 0.2, "floor": 0.01},
    "no-floor": {"floor": 0.0},
    "screening": {"screening": True},
    "rule-a1": {"rule": "paper"},
    "rule-t2": {"rule": "paper", "t2": 1.2, "t1": 1.1, "y_reference": coarse.Y_REFERENCES[1]},
    "percentile": {"percentile": 0.9},
    "sessions": {"session": "fours"},
    "two-sessions": {"session": "halves"},
    "runs": {"run": "fours"},
    "runs-10": {"run": "tens", "clean": True},
    "blocks": {"run": "tens", "block": "tens", "clean": True},
    "blocks-alone": {"block": "tens", "clean": True},
    "few-blocks-alone": {"block": "fours", "clean": True},
    "strict": {"alpha": 0.02, "permutations": 999, "session": "tens"},
    "few-blocks": {"run": "tens", "block": "fours"},
    "labels": {"labels": True},
}


def options_of(name, n, m, normal, sample):
    given = dict(OPTIONS[name])
    result = {}
    for key, way in given.items():
        if key == "session":
            result |= {"normal_session": as_rows(n, way), "sample_session": as_rows(m, way)}
        elif key in {"run", "block"}:
            result[f"{key}s"] = as_rows(n, way), as_rows(m, way)
        elif key == "clean":
            quiet = np.where(np.arange(8) == 2, 0, 1)
            result["clean"] = tuple(
                VectorTable(t.symbols, t.counts, t.durations * quiet) for t in (normal, sample)
            )
        elif key == "labels":
            result["labels"] = labels_of(n), labels_of(m)
        else:
            result[key] = way
    return result


@pytest.mark.parametrize("option", OPTIONS)
def test_a_comparison_with_options(snapshot, option):
    facts = {}
    for name, (n, m, changed) in {
        "slower": (40, 30, {"times": (1.06,) * 8}),
        "some": (40, 30, {"times": only(3, 1, 3), "rows": slice(0, 6)}),
    }.items():
        normal, sample = table(3, n), table(4, m, **changed)
        options = options_of(option, n, m, normal, sample)
        facts[name] = detected(normal, sample, **options)
        types = {"normal_type": as_rows(n, "thirds"), "sample_type": as_rows(m, "thirds")}
        facts[f"{name} typed"] = detected(normal, sample, **options, **types)
    snapshot(f"option-{option}", facts)


@pytest.mark.parametrize("level", [(("*", "warn"),), (("total", "off"), ("WAIT_*", "off")),
                                   (("RUN@*", "error"), ("*", "off"), ("total", "error")),
                                   (("*", "off"), ("total", "error"))])  # fmt: skip
def test_levels(snapshot, level):
    facts = {}
    for name, times in (("server", only(1.9, 1)), ("disk", only(2.5, 3))):
        normal, sample = table(5), table(6, times=times)
        found = judge(
            normal, sample, CompareSettings(permutations=299, level=level),
            labels=(labels_of(30), labels_of(30)), sessions=(None, None), screening=False,
        )  # fmt: skip
        facts[name] = found.detection, found.warnings, found.outliers
    snapshot("level-" + "-".join(f"{len(p)}{what}" for p, what in level), facts)


def test_the_gate_in_its_units(snapshot):
    facts = {}
    for n, m in ((5, 4), (30, 20), (20, 200)):
        rng = np.random.default_rng(n)
        x = 10_000 * varied(rng, (n, 3), 40)
        y = 10_000 * varied(rng, (m, 3), 40) * np.array([100, 108, 130]) // 100
        for way in ("one", "halves", "thirds", "most"):
            strata = as_rows(n, way), as_rows(m, way)
            facts[f"{n} {m} {way}"] = permutations.gate(x, y, *strata, alpha=0.05, permutations=199)
        for way in ("fours", "tens"):
            units = as_rows(n, way), as_rows(m, way)
            for kind in ("sessions", "blocks"):
                try:
                    facts[f"{n} {m} {kind} {way}"] = permutations.gate(
                        x, y, as_rows(n, "one"), as_rows(m, "one"), alpha=0.05, permutations=199,
                        **{kind: units},
                    )  # fmt: skip
                except ValueError:
                    facts[f"{n} {m} {kind} {way}"] = "ValueError"
            facts[f"{n} {m} runs {way}"] = means.compare_runs(x / 1.0, y / 1.0, *units)
            facts[f"{n} {m} rest {way}"] = means.compare_blocks(x / 1.0, y / 1.0, units)
            facts[f"{n} {m} spread {way}"] = (
                comparability.session_spread(x[:, 0], as_rows(n, "thirds"), units[0]),
                comparability.floor_share(0.001, x[:, 0], as_rows(n, "thirds"), units[0]),
                comparability.floor_share(0.9, x[:, 0], as_rows(n, "thirds"), units[0]),
                comparability.floor_share(0.1, x[:, 0], as_rows(n, "one"), None),
            )
    snapshot("gate", facts)


def test_assignments_of_units(snapshot):
    facts = {"seed": make_seed(np.arange(5), np.arange(12).reshape(3, 4))}
    scores = [np.arange(12.0).reshape(6, 2) ** 2, np.arange(6.0).reshape(3, 2) + 1]
    for chosen in ((2, 1), (4, 2), (3, 3), (0, 1)):
        plan = permutations.Assignments((6, 3), chosen)
        facts[f"{chosen}"] = plan.ways, plan.exact, plan.smaller, plan.as_given()
        every = [plan.sums(picked, scores) for picked in plan.every()]
        facts[f"{chosen} sums"] = every
        facts[f"{chosen} given"] = plan.sums(plan.as_given(), scores)
        drawn = list(plan.drawn(np.random.default_rng(1), 7))
        facts[f"{chosen} drawn"] = [plan.sums(picked, scores) for picked in drawn]
    many = permutations.Assignments((900, 40), (3, 20))
    facts["many"] = many.ways, many.exact
    facts["many drawn"] = [
        [each.sum(axis=1) for each in picked]
        for picked in many.drawn(np.random.default_rng(2), 9)
    ]  # fmt: skip
    for blocks in (3, 5, 15, 700):
        flips = permutations.Flips(blocks)
        facts[f"flips {blocks}"] = flips.ways, flips.exact, flips.as_given()
    flips = permutations.Flips(4)
    facts["flips"] = list(flips.every())
    facts["flips drawn"] = list(flips.drawn(np.random.default_rng(3), 5))
    facts["flips sums"] = flips.sums(next(flips.every()), [np.arange(8.0).reshape(4, 2)])
    facts["ways"] = [
        permutations.count_ways(c) for c in ((), [(3, 2)], [(3, 2), (10, 7)], [(900, 900)])
    ]
    for ours, theirs in ((1, 4), (2, 2), (4, 4), (3, 9)):
        for level in (0.2, 0.03, 0.01):
            sets = np.arange(ours).repeat(2), np.arange(theirs).repeat(2)
            known, why = comparability.permutable(*sets, level)
            facts[f"permutable {ours} {theirs} {level}"] = known is not None, why
            between = comparability.exchangeable(sets, level)
            facts[f"exchangeable {ours} {theirs} {level}"] = between is not None
    facts["exchangeable"] = [
        comparability.exchangeable((np.arange(k), np.arange(k)), 1 / 64) is not None
        for k in range(7, 13)
    ]
    batch = [np.stack([np.array([[0.0, 1], [2, 3], [4, 50], [6, 7]]), np.ones((4, 2))])]
    facts["balance"] = [*permutations.balance(iter(batch), 4, np.array([[1.0, 2], [1, 1]]))]
    facts["balance one"] = [*permutations.balance(iter([]), 0, np.array([[1.0, 2]]))]
    snapshot("assignments", facts)


def test_effects(snapshot):
    facts = {}
    rng = np.random.default_rng(5)
    x = 1000 * varied(rng, (40, 3), 40)
    y = 1100 * varied(rng, (24, 3), 40)
    for way in ("one", "thirds", "most"):
        types = as_rows(40, way), as_rows(24, way)
        facts[way] = means.effects(x, y, *types, 7, replicates=50)
        facts[f"{way} errors"] = means.standard_errors(x, y, *types)
        orphans = types[1].copy()
        orphans[:3] = 9
        facts[f"{way} orphans"] = means.effects(x, y, types[0], orphans, 7, replicates=20)
        for units in ("fours", "tens", "halves"):
            both = as_rows(40, units), as_rows(24, units)
            for kind in ("runs", "blocks"):
                facts[f"{way} {kind} {units}"] = means.effects(
                    x, y, *types, 7, replicates=20, **{kind: both}
                )
        facts[f"{way} ordinal"] = coarse.ordinal_effects(x, y, *types)
    for error in (0.0, 1.0, 30.0):
        for critical in (0.0, 2.5, 4.0):
            for floor in (0.0, 3.0, 80.0):
                key = f"shift {error} {critical} {floor}"
                facts[key] = families.detectable_shift(error, critical, floor)
    values = np.array([-1.0, 0, 1, 1.5, 2, 2.5, 3, 4, 10])
    for error in (0.0, 0.5, 1, 3):
        facts[f"large {error}"] = families.reach_floor(values, np.full(9, error), 2.0)
    for way in ("one", "thirds"):
        normal, sample = table(7, 30), table(8, 24, times=(3,) * 8, rows=slice(0, 3))
        types = as_rows(30, way), as_rows(24, way)
        facts[f"unusual {way}"] = families.score_unusualness(normal, sample, *types)
    facts["mix"] = [
        coarse.mix_shift(np.arange(a) % b, np.arange(c) % d)
        for a, b, c, d in ((30, 3, 20, 3), (30, 3, 20, 1), (30, 1, 20, 4), (9, 2, 50, 2))
    ]
    snapshot("effects", facts)


def test_the_papers_algorithm(snapshot):
    facts = {}
    rng = np.random.default_rng(6)
    x = 1000 * varied(rng, (30, 4), 40) * np.array([1, 1, 1, 0])
    y = 1000 * varied(rng, (12, 4), 40) * np.array([100, 115, 160, 30]) // 100
    for t1 in (1.0, 1.2, 1.5):
        for t2 in (None, 0.5, 1.2, 3.0):
            for reference in coarse.Y_REFERENCES:
                facts[f"{t1} {t2} {reference}"] = coarse.algorithm1(
                    x, y, t1=t1, t2=t2, y_reference=reference
                )
    facts["one"] = coarse.algorithm1(x[:1], y[:1], names=("a", "b", "c", "d"))
    facts["false alarms"] = [
        coarse.false_alarms(x.T.copy(), m, coarse.apply_rules, 3) for m in (2, 5, 12)
    ]  # fmt: skip
    snapshot("paper", facts)


def test_tails_and_quantiles(snapshot):
    facts = {}
    for n, m, slow, factor in (
        *((24, 24, 6, 3), (24, 24, 3, 3), (24, 24, 2, 9), (60, 30, 5, 2), (19, 24, 6, 3)),
        *((20, 6, 3, 4), (200, 100, 3, 5), (40, 5, 3, 3), (60, 60, 30, 2), (60, 60, 0, 1)),
    ):
        rng = np.random.default_rng(n + m)
        for heavy in (False, True):
            x, y = 1000 * varied(rng, (n,), 30), 1000 * varied(rng, (m,), 30)
            if heavy:
                x[: n // 12 + 1] *= 4
            y[:slow] *= factor
            for way in ("one", "halves", "most"):
                types = as_rows(n, way), as_rows(m, way)
                found = tails.slow_end(x, y, *types, 0.01)
                facts[f"{n} {m} {slow} {heavy} {way}"] = found
            if slow == 6:
                facts[f"quantiles {n} {m} {heavy}"] = (
                    tails.percentiles(x, y, (labels_of(n), labels_of(m)), 0.9),
                    tails.percentiles(x, y, None),
                )
    for n in (0, 1, 5, 6, 7, 8, 100, 600):
        for q in (0.01, 0.5, 0.9, 0.99):
            values = np.arange(n, dtype=np.int64) ** 2
            facts[f"quantile {n} {q}"] = tails.compare_quantile("x", q, values, values[::2] + 9)
    snapshot("tails", facts)


def trial_of(seed, n, m, *, strata, floor, permutations=199):
    rng = np.random.default_rng(seed)
    tables = [table(rng.integers(99), size) for size in (n, m)]
    return calibration.Trial(
        *tables, judged=(tables[0], tables[1]), fold=np.eye(8, dtype=np.int64),
        strata=(as_rows(n, strata), as_rows(m, strata)), alpha=0.05, floor=floor,
        permutations=permutations,
    )  # fmt: skip


def test_calibration(snapshot):
    facts = {}
    mean = float(MEANS.sum())
    for strata, floors in (("one", (0.0, 0.3)), ("thirds", (0.05,)), ("most", (0.05,))):
        for floor in floors:
            trials = [trial_of(k, 40, 20, strata=strata, floor=floor) for k in range(5)]
            for name, columns, rows in (("all", slice(None), 20), ("disk", 3, 20), ("few", 0, 4)):
                pattern = np.zeros((20, 8))
                pattern[:rows, columns] = 1 / 8 if name == "all" else 1.0
                patterns = [pattern] * 5
                key = f"{strata} {floor} {name}"
                facts[f"{key} lacking"] = [t.lacking(pattern) for t in trials]
                for share in (0, 2, 6, 12, 40):
                    shift = np.rint(pattern * share * mean / 100).astype(np.int64)
                    facts[f"{key} alarms {share}"] = [t.alarms(shift) for t in trials]
                for guess in (0.0, 0.1 * mean):
                    facts[f"{key} smallest {guess > 0}"] = calibration.smallest_shift(
                        trials, patterns, mean, guess=guess
                    )
    few = [trial_of(k, 3, 3, strata="one", floor=0.0) for k in range(3)]
    facts["never"] = calibration.smallest_shift(few, [np.zeros((3, 8))] * 3, mean)
    facts["few"] = calibration.smallest_shift(few, [np.full((3, 8), 0.125)] * 3, mean)
    for count, of, units in ((0, 20, None), (20, 20, None), (3, 50, None), (5, 40, 4), (5, 9, 99)):
        facts[f"rate {count} {of} {units}"] = calibration.rate(count, of, units)
    rng = np.random.default_rng(9)
    for way in ("one", "halves", "thirds", "fours"):
        for percent in (4, 60):
            total = 1000 * varied(rng, (36,), percent)
            for types in ("one", "thirds"):
                facts[f"floor {way} {percent} {types}"] = calibration.advise_floor(
                    total, as_rows(36, types), as_rows(36, way), "abcd", 0.02
                )
    snapshot("calibration", facts)


def test_the_verdict_of_a_calibration(snapshot):
    def alarms(kind, size, count, of):
        found = calibration.rate(count, of)
        return FalseAlarmsEntry(kind, size, 90, of, found, found, None, found)

    rng = np.random.default_rng(10)
    facts = {}
    for counts in ((0, 0), (3, 0), (30, 0), (0, 9), (1, 1), (0, 30), (4, 10)):
        for sizes in ((10, 30, 50), (10, 20)):
            given = [alarms("shuffled", s, counts[0], 200) for s in sizes]
            across = [alarms("sessions", s, counts[1], 100) for s in sizes]
            for percent, sessions in ((10, "fours"), (80, "fours"), (10, "one")):
                total = 1000 * varied(rng, (36,), percent)
                total[as_rows(36, sessions) == 1] *= 1 + percent // 50
                floor = calibration.advise_floor(
                    total, as_rows(36, "one"), as_rows(36, sessions), "abcd", 0.05
                )
                shown = [
                    DetectableEntry(
                        *(s, 90, "total", "", 1e6, 7e4 + s, None, None), by_floor=False, trials=9
                    )
                    for s in sizes
                ]
                for rule in ("gate", "paper"):
                    settings = CompareSettings(rule=rule)
                    for of, which in ((given + across, "both"), (across, "across")):
                        key = f"{counts} {sizes[-1]} {percent} {sessions} {rule} {which}"
                        facts[key] = calibration.conclude(settings, of, shown, floor, 1e6)
    facts["nothing shown"] = calibration.conclude(
        CompareSettings(), [alarms("shuffled", 30, 0, 9)], [], floor, 1e6
    )
    snapshot("calibration-verdict", facts)


def test_the_flame_graph(snapshot):
    chains = ((), ("db",), ("db", "disk"), ("cache",))
    leaves = ((0, State.RUN), (0, State.WAIT_CPU), (1, State.RUN), (1, State.WAIT_CPU),
              (2, State.WAIT_DISK), (3, State.RUN))  # fmt: skip
    means = np.array([500_000, 50_000, 800_000, 20_000, 300_000, 400])
    rng = np.random.default_rng(11)
    facts = {}
    for name, times, rows in (("disk", 3, slice(0, None, 3)), ("all", 2, slice(None)),
                              ("alike", 1, slice(None))):  # fmt: skip
        normal = means * varied(rng, (36, 6), 60) // 1000
        sample = means * varied(rng, (30, 6), 60) // 1000
        sample[rows, 4] *= times
        whole = detected(table(1), table(2, times=(1.5,) * 8)).states[-1]
        for labels in (((), ()), (labels_of(36), labels_of(30))):
            for way, units in (("one", {}), ("thirds", {}), ("one", {"runs": "tens"}),
                               ("one", {"runs": "tens", "blocks": "tens"})):  # fmt: skip
                given = {k: (as_rows(36, v), as_rows(30, v)) for k, v in units.items()}
                sets = flame.FlameSets(
                    labels, (as_rows(36, way), as_rows(30, way)),
                    (as_rows(36, "one"), as_rows(30, "one")), **given,
                )  # fmt: skip
                for which in (None, whole):
                    found = flame.build_flame(
                        ChainTimes(chains, leaves, normal, sample), sets, level=0.05,
                        permutations=199, directions=("more", "less"), whole=which,
                    )  # fmt: skip
                    key = f"{name} {len(labels[0])} {way} {sorted(units)} {which is None}"
                    facts[key] = [
                        (one.parent, one.kind, one.name, one.before, one.after, one.change)
                        for one in found
                    ]
    snapshot("flame", facts)


def test_recordings_of_other_times(snapshot):
    rng = np.random.default_rng(12)
    facts = {}
    for sessions in (("one", "one"), ("fours", "halves"), ("halves", "fours"), ("fours", "one")):
        for percent, slower in ((10, 100), (10, 130), (60, 108)):
            x = 1000 * varied(rng, (40,), percent)
            y = 10 * slower * varied(rng, (24,), percent)
            for known in (None, 0.02, 0.5):
                for way in ("one", "thirds"):
                    key = f"{sessions} {percent} {slower} {known} {way}"
                    facts[key] = machine.beyond_sessions(
                        (x, y), (as_rows(40, way), as_rows(24, way)),
                        (as_rows(40, sessions[0]), as_rows(24, sessions[1])), known, 0.01,
                    )  # fmt: skip
    snapshot("apart", facts)


def test_doubts(snapshot):
    normal, sample = table(1), table(2, times=(1.5,) * 8)
    found = detected(normal, sample)
    facts = {}
    for torn in (0, 1, 2, 3):
        for which in (0, 1):
            lossy = [np.zeros(30, np.bool_), np.zeros(30, np.bool_)]
            lossy[which][:torn] = True
            for marked in (0, 1, 30):
                for minimum in (0, 30, 31):
                    outliers = SimpleNamespace(anomalous=np.arange(30) >= 30 - marked)
                    facts[f"{torn} {which} {marked} {minimum}"] = verdict.decide(
                        found, outliers, tuple(lossy), ((), ()), minimum=minimum
                    )
    outliers = SimpleNamespace(anomalous=np.zeros(30, np.bool_))
    calm = (np.zeros(30, np.bool_),) * 2, ((), ())
    total = found.states[-1]
    for effect in (-1.0, 0.0, 1e5, 5e5, 1e6):
        for low in (0.0, found.floor, found.floor + 1):
            for shown in (None, 4e5, 5e5):
                states = [*found.states[:-1], change(total, effect=effect, effect_low=low)]
                one = change(found, states=states, flagged=False, detectable=shown)
                facts[f"unflagged {effect} {low > found.floor} {low} {shown}"] = verdict.decide(
                    one, outliers, *calm
                )
    for before, after in ((0.0, 5e5), (2e5, 5e5), (3e5, 6e5), (3e5, 9e5), (0.0, found.floor)):
        held = change(
            found.states[4], state="WAIT_QUOTA", role="", normal_mean=before,
            sample_mean=after, effect=after - before,
        )  # fmt: skip
        symbols = (*found.symbols, Symbol(State.WAIT_QUOTA))
        one = change(found, states=[*found.states[:-1], held, total], symbols=symbols)
        facts[f"quota {before} {after}"] = machine.find_limit(None, one, throttled=False)
    for low, effect in ((None, 1e6), (0.0, 1e6), (1.0, 1e3), (1.0, 5e5), (1.0, 383_500.0)):
        gated = tails.compare_quantile("", 0.5, normal.total, sample.total)
        gated = change(gated, low=low, sample=(gated.normal or 0) + effect)
        one = change(found, gate=gated)
        facts[f"quantile {low} {effect}"] = (
            verdict.decide(one, outliers, *calm), verdict.is_alarm(one, None)
        )  # fmt: skip
    levels = (("RUN*", "warn"), ("*", "off"), ("RUN@server", "error"), ("WAIT_?ISK", "error"),
              ("*@kworker*", "warn"), ("*@", "error"), ("tot*", "warn"))  # fmt: skip
    for k in range(len(levels)):
        facts[f"levels {k}"] = verdict.symbol_levels(SYMBOLS, levels[k:])
        facts[f"levels to {k}"] = verdict.symbol_levels(SYMBOLS, levels[:k])
    snapshot("doubts", facts)


def drawn_waits(load, seed, n, rivals, *, environment=(), sessions=1):
    """Return executions that wait for a cpu that somebody has: a name's chance of that (%)."""
    draw = load("pure/end_to_end/drawn_sets.py").draw
    rng = np.random.default_rng(seed)
    letters = {"helper": "k", "idle": "i", "locker": "q"}
    words = []
    for _ in range(n):
        text = "r900"
        for name, chance in rivals.items():
            if rng.integers(100) < chance:
                text += f" {letters[name]}{rng.integers(1, 900)} r{rng.integers(1, 99)}"
        words.append(text)
    made = draw(words, session=[i * sessions // n for i in range(n)])
    return replace(made, environment=tuple(map(read_environment, environment)))


def test_who_had_the_cpu(snapshot, load):
    facts = {}
    for seed in range(4):
        normal = drawn_waits(load, seed, 12, {"helper": 30 * seed, "idle": 50})
        for chance in (0, 30, 60, 100):
            sample = drawn_waits(load, 10 + seed, 8, {"helper": chance, "idle": 60, "locker": 20})
            key = f"{seed} {chance}"
            facts[f"{key} rival"] = machine.find_rival(normal, sample)
            facts[f"{key} back"] = machine.find_rival(sample, normal)
            for roles in ((), ("helper",)):
                for runs in (None, (as_rows(12, "thirds"), as_rows(8, "halves"))):
                    facts[f"{key} {roles} {runs is None}"] = machine.find_strangers(
                        normal, sample, roles, runs
                    )
    snapshot("rivals", facts)


def test_what_is_said_of_the_sets(snapshot, load):
    """Environments that differ more and less than what counts."""
    known = {"recorded_session": "s1", "kernel_release": "6.1", "hostname": "a"}
    route = {
        "route_executions": 12, "route_perhaps_veth": 2, "route_devices_veth": 2,
        "route_packets_veth": 240, "route_begun_veth": 200, "route_names_veth": "a/b",
        "route_perhaps_bridged_veth": 1, "route_devices_bridged_veth": 1,
        "route_packets_bridged_veth": 120, "route_names_bridge": "br0",
    }  # fmt: skip
    plain = {key: n for key, n in route.items() if "bridge" not in key}
    others = {
        "same": known,
        "kernel": known | {"kernel_release": "6.2"},
        "session": known | {"recorded_session": "s2", "recorded_beside": "normal"},
        "runs": known | {"runs_recorded": 40, "runs_missing": 3},
        "runs-few": known | {"runs_recorded": 40, "runs_missing": 2},
        **{
            f"requests-{part}": known | {"requests": 100, "requests_doubtful": part}
            for part in (4, 5, 6, 20, 21)
        },
        "route": known | route,
        "plain": known | plain,
        "more": known | route | {"route_packets_veth": 301, "route_perhaps_veth": 3},
        "most": known | plain | {"route_packets_veth": 900, "route_devices_veth": 5},
    }  # fmt: skip
    sets = {
        name: drawn_waits(load, 3, 12, {"helper": 50}, environment=({"recording": "r", **facts},))
        for name, facts in others.items()
    }
    facts = {}
    for one, normal in sets.items():
        for other, sample in sets.items():
            if one not in {"same", "route", "plain"} and other != "same":
                continue
            facts[f"{one} {other}"] = (
                comparability.set_warnings(normal, sample, 3),
                comparability.missing_runs(normal, sample),
                comparability.doubtful_requests(normal, sample),
                comparability.recorded_apart(normal, sample),
                comparability.find_routes(normal, sample) or "no",
                comparability.find_runs(normal, sample) or "no",
            )
    for begins in ("100 500", "0 3000000 3000000", "0 2500000 4000000 9000000"):
        entry = {"recording": "r", "recorded_session": "s1", "recorded_blocks": begins,
                 "recorded_turns": begins, "clock_epoch": 5}  # fmt: skip
        one, other = (
            drawn_waits(load, seed, 9, {"helper": 50}, environment=(entry,)) for seed in (5, 6)
        )
        facts[begins] = (
            comparability.find_blocks(one, other) or "no",
            comparability.find_runs(one, other) or "no",
            comparability.recorded_apart(one, other),
        )
    for share in (1, 3, 5, 7, 10, 12, 20):
        types = np.arange(60) % 20 < share
        for theirs in (0, 1):
            facts[f"partial {share} {theirs}"] = comparability.partial_comparison_note(
                types.astype(np.int64), np.full(30, theirs, np.int64)
            )
    snapshot("sets", facts)


def test_how_many_executions_are_needed(snapshot):
    """Types that hardly meet, or not at all."""
    facts = {}
    for n, m in ((4, 3), (6, 6), (9, 3), (40, 3), (12, 40)):
        for alpha in (0.001, 0.01, 0.2):
            for name, types in {
                "alike": (np.arange(n) % 2, np.arange(m) % 2),
                "apart": (np.zeros(n, np.int64), np.ones(m, np.int64)),
                "one": (np.arange(n) % 3, np.where(np.arange(m) == 0, 0, 5)),
            }.items():
                normal, sample = table(n, n), table(m, m, times=(1.6,) * 8)
                found = detected(
                    normal, sample, normal_type=types[0], sample_type=types[1], alpha=alpha,
                    permutations=9999 if alpha < 0.01 else 999,
                )  # fmt: skip
                outliers = SimpleNamespace(anomalous=np.zeros(m, np.bool_))
                calm = (np.zeros(n, np.bool_), np.zeros(m, np.bool_)), ((), ())
                facts[f"{n} {m} {alpha} {name}"] = (
                    found.enough, found.needed, found.flagged, found.remarks, found.detectable,
                    verdict.decide(found, outliers, *calm),
                )  # fmt: skip
    snapshot("needed", facts)


def test_many_executions_are_drawn_in_groups(snapshot):
    facts = {}
    rng = np.random.default_rng(13)
    for n, m in ((9000, 700), (12_000, 9000)):
        x = 1000 * varied(rng, (n, 2), 40)
        y = 1000 * varied(rng, (m, 2), 40) * np.array([100, 102]) // 100
        for way in ("one", "most"):
            facts[f"{n} {m} {way}"] = permutations.gate(
                x, y, as_rows(n, way), as_rows(m, way), alpha=0.05, permutations=39
            )
    snapshot("groups", facts)


def test_columns_that_are_often_nothing(snapshot):
    facts = {}
    rng = np.random.default_rng(14)
    for n, m in ((4, 4), (5, 4), (4, 5), (8, 6)):
        x, y = (1000 * varied(rng, (size, 6), 40) for size in (n, m))
        for column in range(6):
            x[: column * n // 5, column] = 0
            y[: (5 - column) * m // 6, column] = 0
        none = np.zeros(n, np.int64), np.zeros(m, np.int64)
        facts[f"{n} {m}"] = coarse.ordinal_effects(x, y, *none)
        facts[f"{m} {n}"] = coarse.ordinal_effects(y, x, *none[::-1])
    snapshot("ordinal", facts)
