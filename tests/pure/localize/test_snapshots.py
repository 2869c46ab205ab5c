"""What is said of drawn differences and their causes, as it was said before.

``pytest --update`` accepts what changed.  Inputs are drawn as whole numbers, which are the same
on every machine and with every NumPy.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs
from pure.localize.findings import alter, make_finding

from critpath import flow
from critpath.documents import FindingPart
from critpath.localize import columns, counts, explaining, findings, segments
from critpath.localize import facts as told
from critpath.localize.causes import (
    Explained,
    charge_findings,
    find_rival,
    group_causes,
    group_findings,
    in_order_of_causes,
    pair_offsetting,
)
from critpath.model import (
    LOCAL_PACKET,
    REMOTE_PACKET,
    Alignment,
    Charge,
    CompareSettings,
    Context,
    Loop,
    State,
    Step,
    Symbol,
    VectorTable,
)
from critpath.model.details import read_detail
from critpath.model.stacks import Frame
from critpath.vectors import Coder, Weather

GOLDEN = Path(__file__).with_name("golden")
MS = 1_000_000
SYMBOLS = (
    *(Symbol(State.RUN), Symbol(State.WAIT_TIMER), Symbol(State.WAIT_DISK)),
    *(Symbol(State.WAIT_CPU), Symbol(State.RUN, "holder"), Symbol(State.WAIT_DISK, "jbd#")),
    *(Symbol(State.WAIT_CPU, "holder"), Symbol(State.UNKNOWN), Symbol(State.QUEUED, "holder")),
    *(Symbol(State.WAIT_NET), Symbol(State.RUN_SYSCALL), Symbol(State.WAIT_QUOTA)),
)


@pytest.fixture
def snapshot(load, golden):
    """Compare facts with those that are kept under a name."""

    def compare(name, facts):
        golden(GOLDEN / f"{name}.txt", load("oracle/facts.py").text_of(facts))

    return compare


def aligned(seed, *, rows, width, gaps=0.1, other=0.05, last=(), loops=(), turns=()):
    """Return rows that mostly have the letter of their column; ``last`` changes the last row.

    Each of ``last`` is a column, its letter (-1 for a gap, -2 for the usual one), and how many
    times as long it is.  In the columns of ``turns`` the process runs and waits for a disk.
    """
    rng = random.Random(seed)  # noqa: S311 - no secret
    usual = [rng.randrange(len(SYMBOLS) - 5) for _ in range(width)]
    for first, end in turns:
        usual[first:end] = [(0, 2)[i % 2] for i in range(end - first)]
    base = [rng.randrange(50_000, 3 * MS) for _ in range(width)]
    changed = {column: (letter, times) for column, letter, times in last}
    places, codes, lengths = [], [], []
    for row in range(rows):
        place, code, length = [], [], []
        for column in range(width):
            letter, time = usual[column], base[column] * rng.randrange(85, 116) // 100
            if rng.random() < other:
                letter = rng.randrange(len(SYMBOLS))
            if rng.random() < gaps:
                letter = -1
            if row == rows - 1 and column in changed:
                new, times = changed[column]
                letter, time = (usual[column] if new == -2 else new), int(time * times)
            place.append(-1 if letter < 0 else len(code))
            if letter >= 0:
                code.append(letter)
                length.append(time)
        places.append(place)
        codes.append(np.array(code, np.uint8))
        lengths.append(np.array(length, np.int64))
    return Alignment(
        np.array(places, np.int32).reshape(rows, width), tuple(codes), tuple(lengths), loops=loops
    )


def loop(first, last, period, normal, mine):
    return Loop(first, last, period, np.array([*normal, mine], np.int32))


ALIGNED = {
    "one-longer": {"rows": 9, "width": 12, "last": [(3, -2, 6)]},
    "two-longer": {"rows": 9, "width": 14, "last": [(2, -2, 9), (9, -2, 5), (11, -1, 0)]},
    "new": {"rows": 7, "width": 12, "last": [(4, 7, 3), (5, 7, 2), (8, 9, 1)]},
    "missing": {"rows": 8, "width": 12, "last": [(i, -1, 0) for i in (1, 2, 3)]},
    "shorter": {"rows": 8, "width": 12, "last": [(i, -2, 0.1) for i in range(9)]},
    "alike": {"rows": 9, "width": 12, "gaps": 0.0, "other": 0.0},
    "wild": {"rows": 9, "width": 24, "gaps": 0.4, "other": 0.3, "last": [(5, 3, 8)]},
    "wide": {"rows": 30, "width": 40, "last": [(30, -2, 8), (31, -2, 3), (6, 10, 4)]},
    "few": {"rows": 4, "width": 8, "last": [(3, -2, 5)]},
    "five": {"rows": 6, "width": 8, "gaps": 0.0, "other": 0.0, "last": [(3, -2, 1.4)]},
    "pair": {"rows": 2, "width": 8, "last": [(3, -2, 5)]},
    "three": {"rows": 3, "width": 8, "last": [(3, -2, 5), (4, 11, 2)]},
    "moved": {"rows": 9, "width": 12, "last": [(3, 3, 1), (4, 0, 2), (5, 3, 9)]},
    "many": {"rows": 12, "width": 36, "last": [(i, -2, 1.6 + i % 3) for i in range(0, 36, 2)]},
    "turns-more": {
        "rows": 7, "width": 16, "gaps": 0.0, "other": 0.0, "turns": [(4, 12)],
        "last": [(4, -2, 4), (7, -2, 3), (14, -2, 2)], "loops": (loop(4, 12, 2, [3] * 6, 7),),
    },
    "turns-less": {
        "rows": 6, "width": 20, "turns": [(2, 8), (10, 18)],
        "last": [(4, -1, 0), (5, -1, 0), (6, -1, 0), (15, -2, 3)],
        "loops": (loop(2, 8, 2, [3, 4, 3, 4, 3], 1), loop(10, 18, 2, [2, 3, 2, 2, 3], 4)),
    },
    "turns-edge": {
        "rows": 3, "width": 12, "gaps": 0.0, "other": 0.0, "turns": [(2, 8)],
        "last": [(9, -2, 4)], "loops": (loop(2, 8, 2, [2, 2], 3),),
    },
    "loop-more": {
        "rows": 7, "width": 16, "gaps": 0.0, "other": 0.0,
        "last": [(i, -2, 3) for i in range(4, 10)], "loops": (loop(4, 10, 2, [3] * 6, 9),),
    },
    "loop-less": {
        "rows": 7, "width": 16, "last": [(i, -1, 3) for i in range(6, 10)],
        "loops": (loop(4, 10, 3, [5, 6, 5, 6, 5, 6], 2), loop(11, 15, 2, [2] * 6, 3)),
    },
    "loop-usual": {
        "rows": 7, "width": 16, "last": [(6, -2, 7)],
        "loops": (loop(4, 10, 3, [5, 9, 4, 6, 5, 6], 8), loop(11, 13, 2, [1, 2, 1, 1, 2, 1], 9)),
    },
}  # fmt: skip


def laid_out(codes, durations, rng):
    """Lay segments end to end; those of other threads have their names."""
    end = 5000 + np.cumsum(durations, dtype=np.int64)
    roles = [SYMBOLS[c].role for c in codes]
    details = {State.WAIT_DISK: "vda|vdb", State.WAIT_CPU: "stress (12)|idle|holder (99)",
               State.RUN: "|f1|f2", State.RUN_SYSCALL: "read|futex"}  # fmt: skip
    chosen = [rng.choice(details.get(SYMBOLS[c].state, "").split("|")) for c in codes]
    return segments.Segments(
        end - durations, end, np.array([99 if r else 7 for r in roles], np.int64),
        tuple(r.replace("#", "2") or "worker" for r in roles),
        tuple(read_detail(SYMBOLS[c].state, text) for c, text in zip(codes, chosen, strict=True)),
        np.array([rng.randrange(-1, 3) for _ in codes], np.int64),
        np.array([rng.randrange(0, 999) for _ in codes], np.int64),
    )  # fmt: skip


@pytest.mark.parametrize("name", ALIGNED)
def test_differences_of_an_alignment(snapshot, name):
    facts = {}
    for seed in (1, 2, 3):
        alignment = aligned(seed, **ALIGNED[name])
        statistics = columns.column_statistics(alignment)
        rng = random.Random(seed)  # noqa: S311 - no secret
        *normal, mine = [
            laid_out(codes.tolist(), lengths, rng)
            for codes, lengths in zip(alignment.sequences, alignment.durations, strict=True)
        ]
        facts[f"{seed} columns"] = statistics
        facts[f"{seed} strict"] = columns.column_statistics(
            alignment, p_min=0.3, k=0.5
        ).abnormal_state
        for known in ((), normal):
            found, rest = findings.find_differences(
                ("3", 3), alignment, statistics, SYMBOLS, mine, known
            )
            facts[f"{seed} found {bool(known)}"] = found, rest
        matrix = findings.Matrix.of(alignment, [3, 6])
        facts[f"{seed} loops"] = [(one.first, one.period) for one in matrix.loops]
        facts[f"{seed} candidates"] = findings.find_candidates(matrix, statistics, SYMBOLS)
        facts[f"{seed} odd"] = findings.judge_totals(matrix.totals)
    snapshot(f"aligned-{name}", facts)


def test_stretches_of_columns(snapshot):
    rng = random.Random(4)  # noqa: S311 - no secret
    facts = {"none": findings.maximal_stretches(np.zeros(3))}
    for size in (1, 2, 3, 5, 8, 8, 8, 13, 21, 34):
        values = np.array([rng.randrange(-20, 24) for _ in range(size)], np.int64)
        sparse = np.where(np.arange(size) % 3 == 0, values * 5, 0)
        for name, each in (("full", values), ("sparse", sparse), ("less", -abs(values))):
            facts[f"{size} {name} {each.sum()}"] = (
                findings.maximal_stretches(each.astype(float)),
                findings.max_scoring_segment(each),
                findings.max_scoring_segment(each, unseen=True),
            )
    for n in (2, 3, 4, 5, 6):
        values = np.array([[rng.randrange(99) for _ in range(n)] for _ in range(3)], float)
        sizes = np.full(3, n, np.int64)
        facts[f"medians {n}"] = columns.medians_without_each(values, sizes)
    for n in (4, 5, 6, 20):
        for far in (1, 2, 3, 10):
            totals = np.array([[1000 + 37 * (i % 5), 5000 + i, 0] for i in range(n + 1)]) * 1000
            totals[-1, 0] *= far
            facts[f"totals {n} {far}"] = findings.judge_totals(totals)
    snapshot("stretches", facts)


def drawn_findings(seed, number, executions, *, overlap=False):
    """Return findings of executions, some of one thread and some of others."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    result = []
    for place in range(number):
        symbol = SYMBOLS[rng.randrange(len(SYMBOLS))]
        state = symbol.state
        size = rng.choice((-3, -1, 1, 2, 4, 9, 20)) * MS + rng.randrange(MS)
        expected = rng.choice((0, 1, 3)) * MS + max(0, -size)
        first = rng.randrange(6) if overlap else rng.randrange(40)
        detail = {
            State.WAIT_CPU: rng.choice(("stress (12)", "idle", "holder (99)", "cron")),
            State.WAIT_DISK: rng.choice(("vda", "vdb", "")),
            State.RUN_SYSCALL: "read",
            State.WAIT_NET: rng.choice(("", "eth0")),
            State.QUEUED: rng.choice(("", "others")),
            State.RUN: rng.choice(("", "f1")),
        }.get(state, "")
        begin = rng.randrange(100) * MS
        in_loop = rng.random() < 0.25
        kind = "longer" if size > 0 else "shorter"
        kind = "loop-count" if in_loop else kind if expected else "new-state"
        result.append(
            make_finding(
                execution=rng.randrange(executions), rank=place + 1,
                kind=kind,
                symbol=symbol, detail=detail, tid=99 if symbol.role else 7,
                comm=symbol.role.replace("#", "2") or "worker", begin=begin,
                end=begin + abs(size), columns=[first, first + rng.randrange(1, 5)],
                observed=float(size + expected), expected=float(expected),
                contribution=float(size), share=size / (40 * MS), probability=rng.random(),
                before="RUN",
                parts=[FindingPart("loop-count" if in_loop else "longer", float(size))],
                abnormal=rng.random() < 0.7, offset=rng.choice((0.0, 0.5 * size, 0.2 * size)),
                iterations=float(rng.randrange(3, 30)) if in_loop else None,
                normal_iterations=[4.0, 1.0] if in_loop else [None, None],
                longest=float(rng.choice((1, 5, 60)) * MS // 2),
                details=rng.choice(((), ((detail, 0.7), ("stress (12)", 0.3)))),
                elsewhere_idle=rng.choice((0.0, 0.5 * abs(size), None)),
                cpus=rng.choice(((), (1,), (1, 2), (-1,))),
            )
        )  # fmt: skip
    return result


def drawn_counts(seed, executions, normals=20):
    """Return how often drawn executions do what, and how long that takes."""
    rng = np.random.default_rng(seed)
    n, m, k = normals, executions, len(SYMBOLS)
    usual = rng.integers(0, 6, k)
    numbers = [np.maximum(usual + rng.integers(-1, 2, (rows, k)), 0) for rows in (n, m)]
    numbers[1] *= rng.integers(1, 4, k)
    lengths = [MS * each * rng.integers(5, 15, each.shape) // 10 for each in numbers]
    trips = [rng.integers(1, 3, (rows, 1)) * times for rows, times in ((n, 1), (m, 3))]
    tables = [VectorTable(SYMBOLS, c, d) for c, d in zip(numbers, lengths, strict=True)]
    halves = np.arange(n // 2), np.arange(n)
    return counts.count_steps(
        SYMBOLS, (tables[0], tables[1]), ("holder",), (trips[0], trips[1]),
        {e: halves[e % 2] for e in range(m)},
        {"stress": (0.0, 0.8), "cron": (0.3, 0.4), "holder": (0.0, 0.9)},
    )  # fmt: skip


def drawn_charges(seed, executions):
    rng = random.Random(seed)  # noqa: S311 - no secret
    steps = (Step(None, "holder"), Step(State.WAIT_DISK, ""), Step(State.WAIT_TIMER, ""))
    return {
        e: [
            Charge(
                step, float(rng.randrange(3)), float(rng.randrange(4, 9)),
                Symbol(step.state or State.RUN, step.role),
                {s: float(rng.randrange(1, 9) * MS) for s in rng.sample(SYMBOLS, 4)},
            )
            for step in rng.sample(steps, rng.randrange(1, 3))
        ]
        for e in range(executions)
        if e % 3
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_causes_of_drawn_findings(snapshot, seed):
    executions = 3 + seed
    found = drawn_findings(seed, 14 + 2 * seed, executions, overlap=seed % 2 == 1)
    explained = [Explained(e, (20.0 + e) * MS, 3 + 4 * (e % 2)) for e in range(executions)]
    known = drawn_counts(seed, executions)
    charges = drawn_charges(seed, executions)
    rng = random.Random(seed)  # noqa: S311 - no secret
    contexts = [
        Context(
            rng.choice(("", "read", "read", "futex")), rng.choice(({}, {"a.c:3": 5, "b.c:4": 9})),
            rng.choice(({}, {"w.c:1": 4})), rng.choice(("", "lock.c:9")),
        )
        for _ in found
    ]  # fmt: skip
    facts = {}
    for name, more in {
        "plain": {},
        "counts": {"counts": known},
        "charges": {"charges": charges, "counts": known, "contexts": contexts},
        "charges-only": {"charges": charges},
        "faster": {"faster": True},
        "quota": {"quota": True, "inferred": {"holder"}, "contexts": contexts},
        "flagged": {"flagged": {"WAIT_TIMER", "WAIT_DISK@jbd#"}},
    }.items():
        causes = group_causes(found, explained, executions + 2, **more)
        facts[name] = causes
        ordered, renamed = in_order_of_causes(found, causes)
        facts[f"{name} order"] = [f.rank for f in ordered], [c.main for c in renamed]
    charged = charge_findings(found, charges)
    facts["charged"] = charged
    facts["groups"] = [str(group) for group in map(list, group_findings(found, charged))]
    facts["offsetting"] = pair_offsetting(found)
    facts["rivals"] = [find_rival(each, known) for each in found]
    snapshot(f"causes-{seed}", facts)


def test_counts_of_steps(snapshot):
    facts = {}
    for seed in range(4):
        known = drawn_counts(seed, 4)
        for e in range(4):
            facts[f"{seed} {e}"] = known.of(e), known.usual(e), known.risen(e)
        for symbol in SYMBOLS:
            facts[f"{seed} {symbol.name}"] = (
                known.growth(symbol, [0, 1, 3]), known.is_more_often(symbol, [0, 1, 2, 3]),
                known.apart(Step.of(symbol), [1, 2]), known.mean_counts(Step.of(symbol), [0, 3]),
            )  # fmt: skip
    facts["newcomers"] = [known.is_newcomer(name) for name in ("stress", "cron", "holder", "x")]
    for after in (0.0, 0.1, 0.2, 0.25, 0.3, 0.5):
        for before in (0.0, 0.01, 0.02, 0.05, 0.1):
            one = structs.replace(known, rivals={"x": (before, after)})
            facts[f"newcomer {before} {after}"] = one.is_newcomer("x")
    snapshot("counts", facts)


WORDS = "r3 T2 c1 r2 h4 k2 r9 d3 c2 h1 q2 h3 r1 t2 r5 s2 k3 r2 h2 u1 r3"


def test_charges_of_steps(snapshot, load):
    """What more occurrences of steps brought along, on drawn paths."""
    draw = load("pure/end_to_end/drawn_sets.py").draw
    facts = {}
    for seed in range(8):
        rng = random.Random(seed)  # noqa: S311 - no secret
        words = [w for w in WORDS.split() for _ in range(rng.randrange(0, 4))]
        rng.shuffle(words)
        text = " ".join(f"{w[0]}{int(w[1:]) * rng.randrange(80, 120)}" for w in words) or "r1"
        one = draw([text])
        symbols, codes = [], []
        for state, comm in zip(one.paths.state.tolist(), one.paths.comm.tolist(), strict=True):
            symbol = Symbol(State(state), "" if comm == 1 else one.paths.strings[comm])
            if symbol not in symbols:
                symbols.append(symbol)
            codes.append(symbols.index(symbol))
        risen = {Step(None, "helper"): (2.0, 9.0), Step(State.WAIT_DISK, ""): (0.0, 3.0),
                 Step(State.WAIT_TIMER, ""): (1.0, 4.0),
                 Step(State.WAIT_TIMER, "helper"): (2.0, 3.0)}  # fmt: skip
        usual = {symbol: 150_000.0 * (i + 1) for i, symbol in enumerate(symbols)}
        for inferred in ((), ("helper",)):
            facts[f"{seed} {inferred}"] = counts.charge_steps(
                one, codes, symbols, risen, usual, inferred
            )
        facts[f"{seed} none"] = counts.charge_steps(one, codes, symbols, {}, usual)
        facts[f"{seed} rivals"] = counts.count_rivals(Weather.of(one, Coder((one,), "thread")))
    snapshot("charges", facts)


def jittered(rng, words, percent):
    """Vary every duration by so many percent."""
    return " ".join(
        f"{w[0]}{int(w[1:]) * rng.randrange(1000 - 10 * percent, 1001 + 10 * percent) // 1000}"
        for w in words.split()
    )


SETS = {
    "disk": ("r1500 d300 r2000", "r1500 d3000 r2000"),
    "late-helper": ("r1500 s20 k2000 r2000 d300 r200", "r1500 s20 T3000 h2000 r2000 d300 r200"),
    "helper-has-cpu": ("r1500 h2000 r2000", "r1500 k5000 r2000"),
    "idle-cpu": ("r1500 i5 r4000 d100 r500", "r1500 i3000 r4000 d100 r500"),
    "many-waits": ("r2000 t100 c20 r2000", "r2000 " + "t100 c20 r100 " * 9 + "r1100"),
    "more-trips": ("r500 h300 c50 r800", "r500 " + "h300 c50 r90 " * 7 + "r260"),
    "unknown": ("r2000 d1000 r1000", "r2000 d3000 u2500 r1000"),
    "two-causes": ("r900 d400 r800 t200 r900", "r900 d1400 r800 t1900 r900"),
    "faster": ("r2000 d3000 r1000", "r2000 d900 r1000"),
    "locker": ("r800 l300 r900 l300 r400", "r800 l1300 r900 l1200 r400 l50 r90"),
    "alike": ("r800 d300 r900", "r800 d300 r900"),
}


@pytest.mark.parametrize("name", SETS)
def test_a_comparison_of_drawn_sets(snapshot, load, name):
    draw = load("pure/end_to_end/drawn_sets.py").draw
    rng = random.Random(name)  # noqa: S311 - no secret
    normal = draw([jittered(rng, SETS[name][0], 4) for _ in range(24)])
    facts = {}
    for which, hit in (("all", 10), ("some", 4)):
        drawn = [jittered(rng, SETS[name][i < hit], 4) for i in range(10)]
        sample = draw(drawn)
        found = flow.compare(normal, sample, CompareSettings(), flame=False)
        facts[which] = found.verdict, found.findings, found.causes
        facts[f"{which} selected"] = [segments.select_executions(found, k) for k in (1, 3, 50)]
        facts[f"{which} faster"] = segments.is_faster(found)
        facts[f"{which} contexts"] = [segments.find_context(sample, f) for f in found.findings[:9]]
        facts[f"{which} elsewhere"] = told.find_elsewhere(found.findings)
    snapshot(f"compared-{name}", facts)


def test_when_enough_are_explained(snapshot):
    facts = {}
    for number in (0, 1, 8, 9, 10, 17, 18, 19, 27, 40, 60, 100, 333):
        batches = explaining.in_batches(range(number))
        facts[f"batches {number}"] = [len(b) for b in batches]
        facts[f"batch {number}"] = [np.array(b, np.int64) for b in batches[:3]]
    for seed in range(6):
        rng = random.Random(seed)  # noqa: S311 - no secret
        for spread in (1, 4, 9):
            executions = 27
            sizes = {e: (20 + rng.randrange(-spread, spread + 1)) * MS for e in range(executions)}
            found = []
            for e, ns in sizes.items():
                for place, (symbol, part) in enumerate(
                    ((SYMBOLS[1], 1.0), (SYMBOLS[2], 0.1 * seed + 0.02 * (e % spread)))
                ):
                    found.append(
                        make_finding(
                            execution=e,
                            rank=place + 1,
                            symbol=symbol,
                            observed=ns * part,
                            expected=0.0,
                            contribution=ns * part,
                            share=0.5,
                        )
                    )
            causes = []
            for known in (18, 27):
                explained = [Explained(e, 1.5 * sizes[e], 20) for e in range(known)]
                mine = [f for f in found if f.position < known]
                causes.append(group_causes(mine, explained, known))
            excess = {e: 1.5 * ns for e, ns in sizes.items()}
            facts[f"settled {seed} {spread}"] = explaining.is_settled(*causes, found, excess)
    snapshot("enough", facts)


BUSY = "vda, busy with requests of `x`"
DETAILS = ("", "x", "idle", "above all cron", LOCAL_PACKET, REMOTE_PACKET, BUSY, "cron (9)")


def test_the_facts_of_every_state(snapshot):
    """A cause of one finding, in every state and with what may qualify it."""
    first = drawn_findings(1, 1, 1)[0]
    known = drawn_counts(3, 1)
    facts = {}
    for state in State:
        for detail in DETAILS:
            for role in ("", "holder"):
                one = alter(
                    first, symbol=Symbol(state, role), detail=detail, details=(),
                    comm=role or "worker", observed=9.0 * MS, expected=MS, contribution=8.0 * MS,
                    longest=2.0 * MS - (role == ""), elsewhere_idle=2.0 * MS, cpus=(1,),
                )  # fmt: skip
                plain, limited, counted = (
                    group_causes([one], [Explained(0, 9.0 * MS, 8)], 2, **more)[0].facts
                    for more in ({}, {"quota": True}, {"counts": known, "inferred": {"holder"}})
                )
                facts[f"{state.name} {detail} {role}"] = (
                    plain.peer, plain.device, plain.call, plain.certainty, plain.comm,
                    plain.elsewhere_idle, plain.cpu, limited.certainty, counted.peer,
                    counted.certainty, counted.counted, counted.count_after,
                )  # fmt: skip
    snapshot("states", facts)


def test_who_had_the_cpu(snapshot):
    first = drawn_findings(1, 1, 1)[0]
    known = drawn_counts(3, 1)
    facts = {}
    for part in (0.0, 0.05, 0.099, 0.1, 0.3, 0.5, 0.7, 1.0):
        for other in ("idle", "cron (3)", "holder (9)", "zsh"):
            for longest in (float("nan"), 1.0, 1_999_999.0, 2_000_000.0):
                for observed, more in ((8, 8), (8, 2), (8, -1), (8, 0), (3, 1)):
                    one = alter(
                        first, symbol=SYMBOLS[3], longest=None if np.isnan(longest) else longest,
                        observed=float(observed * MS),
                        contribution=float(more * MS),
                        details=(("stress (12)", part), (other, 1 - part)),
                    )  # fmt: skip
                    key = f"{part} {other} {longest} {observed} {more}"
                    facts[key] = find_rival(one, known)
    snapshot("rivals", facts)


def test_time_that_only_moved(snapshot):
    """Findings of opposite sign, nearer and farther from each other."""
    first = drawn_findings(1, 1, 1)[0]
    facts = {}
    for begin, end in ((0, 4), (2, 4), (3, 7), (4, 8), (5, 7), (6, 9), (1, 3), (4, 5)):
        for size in (-9, -6, -5, -3, -1, 3):
            pair = [
                alter(
                    first, symbol=SYMBOLS[place * 3], columns=columns_of,
                    contribution=float(ns * MS), observed=float(max(ns, 0) * MS + MS),
                    expected=float(max(-ns, 0) * MS + MS), offset=offset * MS,
                    kind=kind,
                    begin=columns_of[0] * MS, end=columns_of[1] * MS,
                )
                for place, columns_of, ns, offset, kind in (
                    (0, (2, 6), 6, 5.0, "longer"), (1, (begin, end), size, -2.0, "shorter"),
                    (2, (8, 10), 2, 0.0, "extra"),
                )
            ]  # fmt: skip
            key = f"{begin} {end} {size}"
            facts[f"{key} pairs"] = pair_offsetting(pair)
            facts[f"{key} groups"] = [str(list(group)) for group in group_findings(pair, {})]
            loops = [alter(one, kind="loop-count", iterations=9.0, normal_iterations=[4.0, 0.0])
                     for one in pair]  # fmt: skip
            facts[f"{key} loops"] = [str(list(group)) for group in group_findings(loops, {})]
    snapshot("moved", facts)


def test_where_findings_stand(snapshot, load):
    """The call and the place in the code, on a path with stacks."""
    draw = load("pure/end_to_end/drawn_sets.py").draw
    facts = {}
    for seed in range(5):
        rng = random.Random(seed)  # noqa: S311 - no secret
        letters = "rtdchukiTsql"
        sample = draw(
            [" ".join(f"{rng.choice(letters)}{rng.randrange(9, 99)}" for _ in range(14))] * 2
        )
        paths = sample.paths
        main = Frame("main", "app.c", 1, "app", True)
        stacks = tuple((Frame(f"work{i}", "app.c", i, "app", True), main) for i in range(4))
        codes = [
            np.array([rng.choice(range(-1, 4)) for _ in range(len(paths.state))], np.int32)
            for _ in range(2)
        ]
        sample = replace(
            sample,
            paths=replace(paths, stacks=stacks, stack=codes[0], waker_stack=codes[1]),
        )
        rows = segments.rows_of(sample.paths, 1)
        model = drawn_findings(1, 1, 1)[0]
        for place in range(rows.start, rows.stop):
            role = "" if sample.paths.tid[place] == 7 else "helper"
            for width in (0, 2):
                last = min(place + width, rows.stop - 1)
                one = alter(
                    model, execution=1, symbol=Symbol(State(int(sample.paths.state[place])), role),
                    begin=int(sample.paths.begin[place]), end=int(sample.paths.end[last]),
                )  # fmt: skip
                facts[f"{seed} {place} {width}"] = segments.find_context(sample, one, 1)
    snapshot("contexts", facts)


def test_what_a_thread_did_meanwhile(snapshot):
    found = drawn_findings(2, 30, 6)
    queued = [alter(f, symbol=SYMBOLS[8], contribution=abs(f.contribution)) for f in found[:12]]
    known = drawn_counts(2, 6)
    causes = group_causes([*queued, *found[12:]], [Explained(e, 9.0 * MS, 8) for e in range(6)], 6)
    facts = {}
    for seed in range(12):
        rng = np.random.default_rng(seed)
        before = rng.integers(0, 3, (20, len(State))) * MS
        after = before[:6] + rng.integers(-1, 2, (6, len(State))) * MS
        after[:, seed % len(State)] += 5 * (seed % 4) * MS
        told_of = counts.add_meanwhile(causes, known, lambda *_, b=before, a=after: (b, a))
        facts[f"{seed}"] = [
            (State[of.meanwhile], of.meanwhile_before, of.meanwhile_after) if of.meanwhile else None
            for of in (cause.facts for cause in told_of)
        ]
    snapshot("meanwhile", facts)
