"""The simulated tables of the specification, measured again with critpath's own functions.

    python evaluation/simulation/simulated.py [--table TABLE ...] [--repeats R] [--settings TEXT]

Prints every figure with its standard error, the specification's beside it in brackets,
and marks with ! what is more than two standard errors of the difference away.  Tables:

rules          how often the paper's rules alarm when both sets are alike
equivalent-t2  the factor t2 that Fisher's exact test amounts to
false-alarms   how often the permutation test, and `detect` as shipped, alarm for equal sets
gate           the same, and the power of both
groups         the gate's permutations of large sets in groups beside those of single executions
covariance     draws from the covariance of the statistics, beside permutations: both for equal sets
sessions       false alarms where every session has its own speed
outliers       healthy executions that the paper's mean + k std marks
conformal      p-values and marks of single executions, by several scores
"""

from __future__ import annotations

import argparse
import math
import time
import zlib
from collections.abc import Callable, Iterable
from typing import Final

import numpy as np
import single
import spec_tables as spec
from distributions import CHANGED, STATES, Setting, delayed, multiplied, table, with_new_state
from figures import Cell, markdown, verdict

from critpath.detect import coarse
from critpath.detect.coarse import algorithm1, detect
from critpath.model import I64
from critpath.schema.parameters import list_parameters, overridden
from critpath.stats.permutations import Strata, family_of, gate

ALPHA: Final = 0.01
FLOOR: Final = 0.05
PERMUTATIONS: Final = 599
LARGE: Final = (
    Setting("lognormal .3", 10_000, 10_000),
    Setting("rare states", 10_000, 10_000),
    Setting("heavy tail", 10_000, 10_000),
    Setting("heavy tail", 20_000, 2_000),
)
# And the share of the executions that have each of half of the states.
LOPSIDED: Final = (
    (Setting("lognormal .3", 1_000, 1_000), 1.0),
    (Setting("lognormal .3", 1_000, 1_000), 0.002),
    (Setting("lognormal .3", 1_800, 200), 1.0),
    (Setting("lognormal .3", 1_800, 200), 0.05),
    (Setting("lognormal .3", 1_800, 200), 0.002),
)
MOST: Final = 0.012  # false alarms of the default decision
# The paper's rules, as (t1, t2, y reference) of one call each.
CALLS: Final = (
    (1.5, 1.25, "a1"),
    (1.0, 1.5, "a1"),
    (1.5, 2.0, "a1"),
    (1.5, 3.0, "a1"),
    (1.5, 1.5, "a2"),
)


def random(*key: object) -> np.random.Generator:
    """Return a generator that depends on the key alone: settings may be run one by one."""
    return np.random.default_rng(zlib.crc32(repr(key).encode()))


def chosen(settings: Iterable[Setting], text: str) -> list[Setting]:
    return [setting for setting in settings if text in setting.name]


# -- The paper's rules -------------------------------------------------------------------


def alarms(normal: I64, sample: I64) -> list[bool]:
    """Which of the rules fire in any state; the average rule first, as the table has them."""
    found = [algorithm1(normal, sample, t1=a, t2=b, y_reference=y) for a, b, y in CALLS]
    average = [bool(found[i].average_fires.any()) for i in (0, 1)]
    return [*average, *(bool(f.probability_fires.any()) for f in found)]


def mann_whitney(normal: I64, sample: I64) -> bool:
    """Holm's procedure rejects something if the least p is at most level / states."""
    from scipy.stats import mannwhitneyu  # noqa: PLC0415 - takes half a second to import

    p = mannwhitneyu(sample, normal, alternative="greater", method="asymptotic").pvalue
    return bool(np.nanmin(p) <= ALPHA / STATES)


def rules(repeats: int, text: str) -> str:
    cells, rows = [], []
    for setting in chosen(spec.RULES, text):
        rng = random("rules", setting)
        fired = np.zeros(len(spec.RULES_COLUMNS))
        for _ in range(repeats):
            normal, sample = setting.pair(rng)
            fired += [*alarms(normal, sample), mann_whitney(normal, sample)]
        row = [
            Cell(share, repeats, told, spec.RULES_REPEATS)
            for share, told in zip(fired / repeats, spec.RULES[setting], strict=True)
        ]
        rows.append((setting.name, row))
        cells += row
    return markdown("equal sets: alarms", spec.RULES_COLUMNS, rows) + "\n\n" + verdict(cells)


def equivalent_t2(_repeats: int, text: str) -> str:
    rows, wrong = [], 0
    for (n, m), told in spec.T2.items():
        if text not in f"{n}/{m}":
            continue
        row = []
        for share, expected in zip(spec.T2_SHARES, told, strict=True):
            value = least_t2(n, m, round(share * n))
            same = (np.isnan(value) and np.isnan(expected)) or abs(value / expected - 1) < 0.005
            wrong += not same
            row.append(f"{value:.3g} ({expected:.3g}){'' if same else ' !'}".replace("nan", "none"))
        rows.append((f"{n}/{m}", row))
    body = markdown("t2", [f"p1={share:g}" for share in spec.T2_SHARES], rows)
    return f"{body}\n\n{wrong} of {sum(len(row) for _, row in rows)} cells differ."


def least_t2(n: int, m: int, above: int) -> float:
    """Find the least ratio p2 / p1 that fires with t2 decided by Fisher's exact test."""
    normal = np.zeros((n, STATES), np.int64)
    normal[:above] = 1
    for count in range(1, m + 1):
        sample = np.zeros((m, STATES), np.int64)
        sample[:count] = 1
        found = algorithm1(normal, sample, t2=None, alpha=ALPHA)
        if found.probability_fires.all():
            return float((count / m) / (above / n))
    return float("nan")


# -- The gate ----------------------------------------------------------------------------


def by_gate(normal: I64, sample: I64, floor: float = FLOOR) -> tuple[bool, bool]:
    """Decide as section 4.2 has it: whether p alone fails, and p with the effect floor."""
    x = np.column_stack([normal, normal.sum(axis=1)])
    y = np.column_stack([sample, sample.sum(axis=1)])
    nothing = np.zeros(len(x), np.int64), np.zeros(len(y), np.int64)
    found = gate(x, y, *nothing, alpha=ALPHA, permutations=PERMUTATIONS)
    low = found.p_value <= ALPHA
    large = y.mean(axis=0) - x.mean(axis=0) >= floor * x[:, -1].mean()
    return bool(low.any()), bool((low & large).any())


def decide_only() -> None:
    """Leave out what `detect` computes only to show it: it takes most of its time."""
    coarse.false_alarms = lambda *_: 0.0
    list_parameters()["effects.replicates"].value = 1  # of the intervals


def by_default(normal: I64, sample: I64, **settings: I64) -> bool:
    found = detect(table(normal), table(sample), permutations=PERMUTATIONS, alpha=ALPHA,
                   floor=FLOOR, **settings)  # fmt: skip
    return found.flagged


def averages(normal: I64, sample: I64) -> bool:
    return bool(algorithm1(normal, sample, t1=1.5, t2=1.5).average_fires.any())


def gates(repeats: int, text: str) -> str:
    """Run the gate and the default decision over every setting, equal sets and changed ones."""
    power = max(10, repeats * spec.POWER_REPEATS // spec.GATE_REPEATS)
    fewer = max(5, power // 2)  # of the default decision, which takes four times as long
    cells, rows, defaults, worst = [], [], [], 0.0
    for setting in chosen(spec.GATE, text):
        shares, default = one_gate(setting, repeats, power, fewer)
        counts = [repeats, repeats, *[power] * 7]
        told = [spec.GATE_REPEATS, spec.GATE_REPEATS, *[spec.POWER_REPEATS] * 7]
        row = [
            Cell(a, b, c, d, 0.0005 if d > spec.POWER_REPEATS else 0.005)
            for a, b, c, d in zip(shares, counts, spec.GATE[setting], told, strict=True)
        ]
        rows.append((setting.name, row))
        cells += row
        worst = max(worst, default[0])
        few = [Cell(share, fewer) for share in default[1:]]
        high = " !" if default[0] > MOST else ""
        defaults.append((setting.name, [f"{Cell(default[0], repeats)}{high}", *few]))
    first = markdown("the gate of 4.2", spec.GATE_COLUMNS, rows)
    columns = ("A/A", "+50 % one state", "x2 one state", "+1x total in 20 %", "new state")
    second = markdown("default decision", columns, defaults)
    return (
        f"{first}\n\n{verdict(cells)}\n\n{second}\n\nHighest false-alarm rate of the default "
        f"decision: {worst:.3f}, wanted: at most {MOST}; {repeats} repeats, "
        f"power {power} and {fewer}."
    )


def false_alarms(repeats: int, text: str) -> str:
    """Count alarms for equal sets alone: a small rate asks for many repeats."""
    cells, rows, alarms = [], [], np.zeros(3)
    for setting in chosen(spec.GATE, text):
        rng = random("false alarms", setting)
        alike = np.zeros(3)
        for _ in range(repeats):
            normal, sample = setting.pair(rng)
            alike += [*by_gate(normal, sample), by_default(normal, sample)]
        told = [*spec.GATE[setting][:2], None]
        shares = alike / repeats
        row = [Cell(a, repeats, b, spec.GATE_REPEATS) for a, b in zip(shares, told, strict=True)]
        rows.append((setting.name, [*row[:2], f"{row[2]}{' !' if shares[2] > MOST else ''}"]))
        cells += row[:2]
        alarms += alike
    columns = ("p alone (4.2)", "with the floor (4.2)", "default decision")
    body = markdown("equal sets: alarms", columns, rows)
    total = repeats * len(rows)
    mean = ", ".join(str(Cell(count / total, total)) for count in alarms)
    return f"{body}\n\n{verdict(cells)} Mean of all settings: {mean}."


def one_gate(
    setting: Setting, repeats: int, power: int, fewer: int
) -> tuple[list[float], list[float]]:
    rng = random("gate", setting)
    alike = np.zeros(3)
    for _ in range(repeats):
        normal, sample = setting.pair(rng)
        alike += [*by_gate(normal, sample), by_default(normal, sample)]
    found, default, paper = np.zeros((4, 2)), np.zeros(4), np.zeros(2)
    for number in range(power):
        normal, sample = setting.pair(rng)
        pairs = [
            (normal, multiplied(sample, 1.5)),
            (normal, multiplied(sample, 2.0)),
            (normal, delayed(sample, normal, rng)),
            with_new_state(normal, sample, rng),
        ]
        found += [by_gate(*pair) for pair in pairs]
        if number < fewer:
            default += [by_default(*pair) for pair in pairs]
        paper += [averages(*pairs[0]), averages(*pairs[2])]
    found, default, paper, alike = found / power, default / fewer, paper / power, alike / repeats
    shares = [alike[0], alike[1], found[0, 1], found[1, 1], found[2, 1], *found[3], *paper]
    return shares, [alike[2], *default]


# -- Groups ----------------------------------------------------------------------------------


def alike(rng: np.random.Generator, durations: I64) -> I64:
    """Let neighbours share a factor, as a machine's moods make them: autocorrelation 0.9."""
    factor = np.empty(len(durations))
    last = 0.0
    for i, step in enumerate(rng.normal(0, 0.05 * math.sqrt(1 - 0.9**2), len(durations)).tolist()):
        factor[i] = last = 0.9 * last + step
    return np.rint(durations * np.exp(factor)[:, None]).astype(np.int64)


def groups(repeats: int, text: str) -> str:
    """Decide on the same large sets twice: groups of executions change places, or single ones."""
    usual = list_parameters()["permutations.units"].declared
    rows, far, decided, same = [], 0, 0, 0
    for setting in chosen(LARGE, text):
        for neighbours in ("", ", neighbours alike"):
            rng = random("groups", setting, neighbours)
            fired = np.zeros((3, 2))
            for _ in range(repeats):
                normal, sample = setting.pair(rng)
                if neighbours:
                    normal, sample = alike(rng, normal), alike(rng, sample)
                spread = normal[:, CHANGED].std() * math.sqrt(1 / len(normal) + 1 / len(sample))
                factor = 1 + 3 * spread / normal[:, CHANGED].mean()
                sets = (sample, multiplied(sample, factor), delayed(sample, normal, rng, 0.003))
                for i, changed in enumerate(sets):
                    both = []
                    for units in (usual, len(normal) + len(sample)):
                        with overridden("permutations.units", units):
                            both.append(by_gate(normal, changed)[0])
                    fired[i] += both
                    decided, same = decided + 1, same + (both[0] == both[1])
            cells = [Cell(ours, repeats, theirs, repeats, 0.0) for ours, theirs in fired / repeats]
            rows.append((f"{setting.name}{neighbours}", cells))
            far += sum(cell.far for cell in cells)
    columns = ("A/A", "one state, 3 standard errors", "+1x total in 0.3 %")
    body = markdown("groups (single executions)", columns, rows)
    return (
        f"{body}\n\n{far} of {3 * len(rows)} cells differ by more than two standard errors; "
        f"{same / decided:.1%} of {decided} decisions are the same."
    )


# -- Covariance ------------------------------------------------------------------------------


def by_covariance(normal: I64, sample: I64, rng: np.random.Generator) -> bool:
    """Decide as the gate's p would if its statistics were normal, with their covariance."""
    values = np.concatenate([sample, normal])
    values = np.column_stack([values, values.sum(axis=1)])
    strata = Strata.of(np.zeros(len(normal), np.int64), np.zeros(len(sample), np.int64))
    family = family_of(values, strata, None, ALPHA, rng)
    (units,), many = family.units, family.plan.chosen[0]
    apart = many * (len(units) - many) / (len(units) - 1)
    share, axes = np.linalg.eigh(apart * np.cov(units.T, bias=True))
    drawn = rng.standard_normal((PERMUTATIONS, len(share))) * np.sqrt(np.maximum(share, 0))
    drawn = (drawn @ axes.T / family.divisors[0]).max(axis=1)
    found = (family.sums(family.plan.as_given())[0] / family.divisors[0]).max()
    return bool(1 + (drawn >= found).sum() <= ALPHA * (1 + PERMUTATIONS))


def covariance(repeats: int, text: str) -> str:
    """Count alarms for equal sets; CPU time with what both do beside: scores and their order."""
    rows = []
    for setting, share in LOPSIDED:
        if text not in setting.name:
            continue
        rng = random("covariance", setting, share)
        alarms, taken = np.zeros(2), np.zeros(2)
        for _ in range(repeats):
            pair = setting.pair(rng)
            for each in pair:
                each[:, ::2] *= rng.random(each[:, ::2].shape) < share
            marks = [time.process_time()]
            alarms[0] += by_gate(*pair)[0]
            marks.append(time.process_time())
            alarms[1] += by_covariance(*pair, rng)
            marks.append(time.process_time())
            taken += np.diff(marks)
        cells = [str(Cell(count / repeats, repeats)) for count in alarms]
        cells += [f"{1e3 * one / repeats:.1f}" for one in taken]
        rows.append((f"{setting.name}, {share:.1%} have each other state", cells))
    columns = ("permutations", "covariance", "permutations, ms", "covariance, ms")
    return markdown(f"equal sets: alarms at {ALPHA}", columns, rows)


# -- Sessions ----------------------------------------------------------------------------


def session(setting: Setting, rng: np.random.Generator, n: int, sd: float) -> I64:
    """Draw one session: its speed in every state differs by a factor of that deviation."""
    part = Setting(setting.data, n, 1).pair(rng)[0]
    return np.rint(part * np.maximum(rng.normal(1, sd, STATES), 0)).astype(np.int64)


def sessions(repeats: int, text: str) -> str:
    """Normal and sample set of one session each, and three normal sessions against one."""
    told = {0.05: ("42-95 %", "0-4 %", "0-1.3 %"), 0.1: ("", "1-20 %", "0.3-2.7 %")}
    columns = ("p alone", "floor 5 %", "floor 10 %", "default, 1 session",
               "default, 3 normal sessions")  # fmt: skip
    parts = []
    for sd, ranges in told.items():
        rows = [("specification, range over data", [*ranges, "", ""])]
        for setting in chosen(spec.GATE, text):
            if (setting.normal, setting.sample) != (100, 100):
                continue
            rng = random("sessions", setting, sd)
            count = np.zeros(5)
            for _ in range(repeats):
                normal, sample = (session(setting, rng, 100, sd) for _ in range(2))
                three = np.concatenate([session(setting, rng, n, sd) for n in (34, 33, 33)])
                belongs = np.repeat(np.arange(3), (34, 33, 33))
                p, five = by_gate(normal, sample)
                count += [
                    p, five, by_gate(normal, sample, 0.1)[1], by_default(normal, sample),
                    by_default(three, sample, normal_session=belongs,
                               sample_session=np.zeros(100, np.int64)),
                ]  # fmt: skip
            rows.append((setting.name, [Cell(share, repeats) for share in count / repeats]))
        parts.append(markdown(f"equal sets, sessions differ by {sd:.0%}", columns, rows))
    return "\n\n".join(parts)


# -- Single executions -------------------------------------------------------------------


def paper_outliers(repeats: int, text: str) -> str:
    cells, rows = [], []
    for setting in chosen(spec.OUTLIERS, text):
        rng = random("outliers", setting)
        share = np.zeros(len(spec.OUTLIER_FACTORS))
        for _ in range(repeats):
            pair = setting.pair(rng)
            share += [
                single.judged(*pair, k=k, types_known=True).paper.mean()
                for k in spec.OUTLIER_FACTORS
            ]
        row = [
            Cell(value, repeats, told, spec.OUTLIER_REPEATS, 0.005)
            for value, told in zip(share / repeats, spec.OUTLIERS[setting], strict=True)
        ]
        rows.append((setting.name, row))
        cells += row
    body = markdown("healthy, marked", [f"k={k:g}" for k in spec.OUTLIER_FACTORS], rows)
    said = (
        "Errors are those of independent sets; the specification's repeats are not told, 200 taken."
    )
    return f"{body}\n\n{verdict(cells)} {said}"


def conformal(repeats: int, text: str) -> str:
    """Compare scores of single executions, healthy and with one in ten delayed."""
    rows = []
    for setting in chosen(single.SETTINGS, text):
        rng = random("conformal", setting)
        rows += [
            (f"{setting.name}: {name}", [f"{share:.3f}" for share in shares])
            for name, shares in single.compare(setting, rng, repeats)
        ]
    columns = ("p <= .01", "p <= .05", "any mark", "delayed: p <= .01", "delayed: marked")
    body = markdown("executions", columns, rows)
    return f'{body}\n\n{repeats} pairs of sets a row; "any mark" is to be at most {single.LEVEL}.'


# Repeats of a quick run and of the one that the documents quote.
TABLES: Final[dict[str, tuple[Callable[[int, str], str], int, int]]] = {
    "rules": (rules, 50, 2000),
    "equivalent-t2": (equivalent_t2, 1, 1),
    "false-alarms": (false_alarms, 10, 2000),
    "gate": (gates, 5, 500),
    "groups": (groups, 2, 200),
    "covariance": (covariance, 20, 2000),
    "sessions": (sessions, 4, 200),
    "outliers": (paper_outliers, 5, 200),
    "conformal": (conformal, 2, 400),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="The simulated tables of the specification.")
    parser.add_argument("--table", action="append", choices=TABLES, help="default: all of them")
    parser.add_argument(
        "--repeats", type=int, help="simulations of a cell (default: of a quick run)"
    )
    parser.add_argument("--full", action="store_true", help="as many as the documents quote")
    parser.add_argument("--settings", default="", help="only those whose name contains this")
    asked = parser.parse_args()
    decide_only()
    for name in asked.table or TABLES:
        measure, quick, full = TABLES[name]
        repeats = asked.repeats or (full if asked.full else quick)
        begin = time.monotonic()
        print(f"## {name}\n\n{measure(repeats, asked.settings)}\n", flush=True)
        print(f"({repeats} repeats, {time.monotonic() - begin:.0f} s)\n", flush=True)


if __name__ == "__main__":
    main()
