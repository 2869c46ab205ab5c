"""How sets are told apart, at the limits: slow ends, sessions, runs, doubts, levels."""

from __future__ import annotations

import math
from fnmatch import fnmatchcase
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from critpath.detect import coarse, comparability, tails, verdict
from critpath.model import State, Symbol
from critpath.schema.parameters.detect import COMPARABILITY, EFFECTS, GATE, TAILS


@pytest.mark.parametrize("seed", range(20))
def test_logarithms_are_over_the_median_of_a_type(seed: int) -> None:
    rng = np.random.default_rng(seed)
    normal, sample = rng.integers(0, 1000, 60), rng.integers(0, 1000, 30)
    types = rng.integers(0, 3, 60), rng.integers(0, 5, 30)
    types[0][: 40 + seed] = 0  # of some types there are few, of some none
    ours, theirs, middle = tails._ratios(normal, sample, *types)
    known = {}
    for s in np.unique(types[1]).tolist():
        mine = normal[types[0] == s]
        if len(mine) >= TAILS.least_normal:
            known[s] = max(np.median(mine), 1.0)
    want = [
        math.log(max(value, 1) / known[s])
        for s in known
        for value, of in zip(normal, types[0], strict=True)
        if of == s
    ]
    assert ours.tolist() == pytest.approx(want)
    for value, of, found in zip(sample, types[1], theirs, strict=True):
        if of in known:
            assert found == pytest.approx(math.log(max(value, 1) / known[of]))
        else:
            assert math.isnan(found)
    some = [value for value, of in zip(sample, types[1], strict=True) if of in known]
    assert middle == np.median(some)


@pytest.mark.parametrize("slow", range(0, 13, 2))
def test_as_many_slow_ones_as_are_added_are_found(slow: int) -> None:
    rng = np.random.default_rng(7)
    normal, sample = (rng.lognormal(10, 0.1, n).astype(np.int64) for n in (120, 60))
    sample[:slow] *= 50
    zeros = np.zeros(120, np.int64), np.zeros(60, np.int64)
    found = tails.slow_end(normal, sample, *zeros, 0.01)
    if slow >= TAILS.least_slow + 1:
        assert found.p_value <= 0.01
        assert {*found.members.tolist()} <= {*range(slow)}
        assert len(found.members) == found.slow
    if not slow:
        assert found.p_value > 0.05
    # The least that would have shown, would.
    assert found.shown is not None
    many, longer = found.shown
    assert many >= TAILS.least_slow
    less = 2 * TAILS.least_fitted - 1
    few = tails.slow_end(normal[:less], sample, zeros[0][:less], zeros[1], 0.01)
    assert (few.p_value, few.slow, few.shown) == (1.0, 0, None)
    more = sample.copy()
    more[:slow] //= 50
    order = np.argsort(-more)
    more[order[:many]] = np.median(more) + 1.05 * longer
    assert tails.slow_end(normal, more, *zeros, 0.01).p_value <= 0.01


@pytest.mark.parametrize("q", [0.05, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("n", [0, 1, 3, 10, 60, 400])
def test_a_quantile_is_between_order_statistics(n: int, q: float) -> None:
    values = np.random.default_rng(n).permutation(n) * 10
    each = (1 - TAILS.confidence) / 4
    below = [stats.binom.cdf(i - 1, n, q) for i in range(1, n + 1)]  # P(fewer than i are below)
    low = [i for i, p in enumerate(below, 1) if p <= each]
    high = [i for i, p in enumerate(below, 1) if p >= 1 - each]
    ordered = sorted(values.tolist())
    want = ordered[max(low) - 1] if low else None, ordered[min(high) - 1] if high else None
    assert tails._bound_quantile(values, q) == want
    entry = tails.compare_quantile("x", q, values, values + 5)
    if None not in want:
        assert (entry.low, entry.high) == (want[0] + 5 - want[1], want[1] + 5 - want[0])
    else:
        assert entry.low is None
        assert entry.high is None
    # With as many as are needed there are both, with one less there are not.
    needed = tails._count_needed(q)
    for many, both in ((needed, True), (needed - 1, False)):
        assert (None not in tails._bound_quantile(np.arange(many), q)) == both


def test_sessions_differ_by_their_means_within_types() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        total, kind = rng.integers(1, 100, 40), rng.integers(0, 2, 40)
        session = rng.integers(0, 1 + seed % 4, 40)
        found = comparability.session_spread(total, kind, session)
        middle = {k: total[kind == k].mean() for k in np.unique(kind)}
        rest = [value - middle[k] for value, k in zip(total, kind, strict=True)]
        means = [
            np.mean([r for r, s in zip(rest, session, strict=True) if s == of])
            for of in np.unique(session)
        ]
        assert found.sessions == len(means)
        assert found.deviation.tolist() == pytest.approx(means)
        share = np.std(means, ddof=1) / total.mean() if len(means) > 1 else 0
        assert found.share == pytest.approx(share)
        for floor in (0.0, 0.5):
            least = comparability.floor_share(floor, total, kind, session)
            assert least == pytest.approx(max(floor, GATE.sigmas * share))
            assert comparability.floor_share(floor, total, kind, None) == floor


@pytest.mark.parametrize("level", [0.05, 0.2, 0.5])
def test_sessions_and_blocks_are_exchanged_where_there_are_enough_ways(level: float) -> None:
    for ours in range(6):
        for theirs in range(6):
            sets = np.repeat(np.arange(ours), 3), np.repeat(np.arange(theirs), 2)
            found, why = comparability.permutable(*sets, level)
            if ours < 2 or theirs < 2:
                assert (found, why) == (None, None)
            elif math.comb(ours + theirs, ours) * level < 1:
                assert found is None
                assert why is not None
            else:
                assert found is not None
                assert why is None
            both = comparability.exchangeable(sets, level)
            enough = 2 ** min(ours, theirs) * level >= GATE.least_ways
            assert (both is not None) == enough
    assert comparability.permutable(None, np.arange(9), level) == (None, None)
    assert comparability.permutable(np.arange(9), None, level) == (None, None)
    assert comparability.exchangeable(None, level) is None


def make_set(spans: list[tuple[int, int, int, int]]) -> Any:
    """Return executions of session, thread, begin and end."""
    session, tid, begin, end = np.array(spans, np.int64).T
    executions = SimpleNamespace(tid=tid, begin=begin, end=end)
    return SimpleNamespace(
        session=session, executions=executions, environment=(), sources=(), kind="thread"
    )


@pytest.mark.parametrize("seed", range(30))
def test_threads_that_overlap_are_of_one_run(
    seed: int, monkeypatch: pytest.MonkeyPatch, override: Any
) -> None:
    monkeypatch.setattr(comparability, "_places", lambda *_: None)
    override("comparability.few_runs", 2)
    rng = np.random.default_rng(seed)
    sets, want = [], []
    for _ in range(2):
        spans = []
        for _ in range(14):
            begin = int(rng.integers(0, 150))
            spans.append(
                (
                    int(rng.integers(0, 2)),
                    int(rng.integers(0, 6)),
                    begin,
                    begin + int(rng.integers(1, 12)),
                )
            )
        sets.append(make_set(spans))
        lives: dict[tuple[int, int], tuple[int, int]] = {}
        for session, tid, begin, end in spans:
            first, last = lives.get((session, tid), (begin, end))
            lives[session, tid] = min(first, begin), max(last, end)
        runs = {key: {key} for key in lives}  # grown until no two overlap
        for one, (begin, end) in lives.items():
            for other, (first, last) in lives.items():
                if one[0] == other[0] and begin <= last and first <= end:
                    whole = runs[one] | runs[other]
                    for key in whole:
                        runs[key] = whole
        want.append([frozenset(runs[session, tid]) for session, tid, *_ in spans])
    found = comparability.find_runs(*sets)
    counts = [len({*each}) for each in want]
    assert (found is not None) == all(2 <= n < 14 for n in counts)
    for numbers, groups in zip(found or (), want, strict=False):
        assert {*numbers.tolist()} == {*range(len({*groups}))}
        assert len({*zip(numbers.tolist(), groups, strict=True)}) == len({*groups})


def test_requests_in_doubt_are_told_of_beyond_a_share() -> None:
    def told(total: int, doubtful: int, unsure: int) -> list[str]:
        of = SimpleNamespace(
            requests=total, doubtful=doubtful, unsure=unsure, shared={80: doubtful}
        )
        empty = SimpleNamespace(environment=[SimpleNamespace(requests=None)])
        some = SimpleNamespace(environment=[SimpleNamespace(requests=of)] * 2)
        for sets in ((some, empty), (empty, some)):
            found = [type(note).__name__ for note in comparability.doubtful_requests(*sets)]
        return found

    for total in (10, 100, 1000):
        for part in range(0, total, max(1, total // 50)):
            doubtful = part > COMPARABILITY.doubtful * total
            unsure = part > COMPARABILITY.unsure * (total + part)
            assert told(total, part, 0) == ["RequestsDoubtful"] * doubtful
            assert told(total, 0, part) == ["RequestsUnsure"] * unsure


def test_machines_are_told_apart_beyond_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparability, "summarize_machine", lambda of: of)

    def told(after: Any, before: Any = None) -> list[str]:
        usual = {
            "probes": {"a": 1.0, "b": 2.0, "c": 4.0},
            "pressure": {"cpu": 0.2},
            "others_cpu": 0.1,
        }
        sets = [
            of if of is None else SimpleNamespace(**{**usual, **of}) for of in (before or {}, after)
        ]
        found = comparability.machine_differences(*(SimpleNamespace(environment=s) for s in sets))
        return [type(each).__name__ for note in found for each in note.differences] if found else []

    apart = COMPARABILITY.probe_apart
    assert told({}) == []
    assert told(None) == []
    for factor, differs in ((1 + 1.01 * apart, True), (1 + 0.99 * apart, False)):
        for ratio in (factor, 1 / factor):
            probes = {"a": ratio, "b": 2 * ratio, "c": 4 * ratio}
            assert told({"probes": probes}) == ["ProbeDiffered"] * (3 * differs)
            few = {"a": ratio, "b": 2.0, "c": 4.0}
            alone = differs and COMPARABILITY.kinds_apart <= 1
            assert told({"probes": few}) == ["ProbeDiffered"] * alone
            assert told({"probes": {**probes, "a": 0.0}}) == ["ProbeDiffered"] * (
                2 * (differs and COMPARABILITY.kinds_apart <= 2)
            )
    for share, key, limit in (
        (0.2, "pressure", COMPARABILITY.pressure_apart),
        (0.1, "others_cpu", COMPARABILITY.others_apart),
    ):
        for more in (1.01 * limit, -1.01 * limit, 0.99 * limit):
            value = share + more
            after = {key: {"cpu": value} if key == "pressure" else value}
            assert told(after) == ["ShareDiffered"] * (abs(more) > limit)
    assert told({"pressure": {}, "others_cpu": None}) == []


@pytest.mark.parametrize("seed", range(20))
def test_sets_of_which_most_is_left_out(seed: int) -> None:
    rng = np.random.default_rng(seed)
    normal = rng.integers(0, 5, 40)
    sample = rng.choice(rng.integers(0, 7, 2), 20)
    used = {*sample.tolist()} & {*normal.tolist()}
    left = sum(of not in used for of in normal.tolist())
    found = comparability.partial_comparison_note(normal, sample)
    told = bool(used) and left > COMPARABILITY.most_unused * 40
    assert (found is not None) == told


PATTERNS = (
    *("WAIT_*", "*", "RUN", "total", "t*", "RUN@server", "*@server", "RUN@", "*@*", "RUN@?erver"),
    *("WAIT_DISK@[cs]*", "wait_*", "*@"),
)
SYMBOLS = (
    Symbol(State.RUN), Symbol(State.RUN, "server"), Symbol(State.WAIT_DISK, "client"),
    Symbol(State.WAIT_DISK), None,
)  # fmt: skip


def test_the_most_exact_pattern_says_how_a_state_counts() -> None:
    """One with a thread before one without, one without wildcards before one with, the longer."""
    rng = np.random.default_rng(1)
    seen = set()
    for _ in range(300):
        levels = [
            (str(rng.choice(PATTERNS)), str(rng.choice(["error", "warn", "off"])))
            for _ in range(int(rng.integers(0, 5)))
        ]
        for symbol in SYMBOLS:
            fitting = []
            for place, (pattern, level) in enumerate(levels):
                of = pattern.partition("@")
                if symbol is None:
                    fits = not of[1] and fnmatchcase("total", pattern)
                elif not of[1]:
                    fits = fnmatchcase(symbol.state.name, pattern)
                else:
                    role = symbol.role
                    fits = fnmatchcase(symbol.state.name, of[0]) and (
                        fnmatchcase(role, of[2]) if role else not of[2]
                    )
                wild = sum(letter in "*?[" for letter in pattern)
                if fits:
                    fitting.append(((bool(of[1]), not wild, len(pattern) - wild), place, level))
            want = max(fitting)[2] if fitting else "error"
            assert verdict.symbol_level(symbol, levels) == want, (symbol, levels)
            seen.add(want)
        found = verdict.symbol_levels([s for s in SYMBOLS if s is not None], levels)
        assert found == tuple(verdict.symbol_level(s, levels) for s in SYMBOLS)
    assert seen == {"error", "warn", "off"}


def test_losses_matter_beyond_a_share_or_where_they_touch_a_marked_execution() -> None:
    for torn in range(0, 101, 4):
        whole = np.zeros(100, np.bool_)
        some = np.arange(100) < torn
        marked = SimpleNamespace(anomalous=np.zeros(100, np.bool_))
        for lossy in ((some, whole), (whole, some)):
            found = verdict._doubts(marked, lossy, ((), ()), 0, ())
            assert len(found) == (torn > COMPARABILITY.lossy * 100)
        marked.anomalous[:1] = True
        assert len(verdict._doubts(marked, (whole, some), ((), ()), 0, ())) == (torn > 0)
        assert len(verdict._doubts(marked, (some, whole), ((), ()), 0, ())) == (
            torn > COMPARABILITY.lossy * 100
        )
    none = np.zeros(7, np.bool_), np.zeros(9, np.bool_)
    marked = SimpleNamespace(anomalous=none[1])
    for minimum, small in ((7, 0), (8, 1), (9, 1), (10, 2)):
        assert len(verdict._doubts(marked, none, ((), ()), minimum, ())) == small


@pytest.mark.parametrize("seed", range(20))
def test_the_error_of_the_mean_if_the_sample_varied_as_the_normal_set(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, m = seed % 7, 5
    table, strata = rng.integers(0, 100, (n, 3)), (rng.integers(0, 2, n), rng.integers(0, 2, m))
    found = coarse._usual_error(table, strata)
    if n < 2:
        assert found == 0
        return
    total, kinds = table[:, -1], strata[0]
    rest = [x - total[kinds == k].mean() for x, k in zip(total, kinds, strict=True)]
    variance = sum(x * x for x in rest) / max(n - len({*kinds.tolist()}), 1)
    assert found == pytest.approx(math.sqrt(variance * (1 / m + 1 / n)))


def test_types_are_labels_where_every_one_has_normal_executions() -> None:
    strata = np.array([3, 4, 3]), np.array([4, 3])
    assert [k.tolist() for k in coarse._kinds(strata, None)] == [[0, 0, 0], [0, 0]]
    both = ("b", "a", "b"), ("a", "b")
    assert [k.tolist() for k in coarse._kinds(strata, both)] == [[1, 0, 1], [0, 1]]
    new = ("b", "a", "b"), ("a", "c")
    assert [k.tolist() for k in coarse._kinds(strata, new)] == [[0, 0, 0], [0, 0]]
    fewer = ("b", "a", "b"), ("b", "b")
    assert [k.tolist() for k in coarse._kinds(strata, fewer)] == [[1, 0, 1], [1, 1]]
    kind = np.array([0, 2, 2, 1])
    assert coarse.name_types(kind, None) == ["type n0", "type n1", "type n2"]
    assert coarse.name_types(kind, (("", "", "", ""), ("",))) == ["type n0", "type n1", "type n2"]
    labels = ("a", "b", "c", "d"), ("a",)
    assert coarse.name_types(kind, labels) == ["a", "d", "type n2"]


@pytest.mark.parametrize("by_session", [True, False])
def test_the_slow_ones_are_some_and_never_half(by_session: bool) -> None:
    alpha = 0.05
    level = alpha * EFFECTS.whole * EFFECTS.slow
    for p in (level, level * 1.01):
        for slow in (0, 3, 9, 10, 11):
            families = SimpleNamespace(
                slow=SimpleNamespace(p_value=p, slow=slow, shown=None),
                whole=SimpleNamespace(by_session=by_session),
            )
            fires = p <= level and not by_session and slow < 10
            assert coarse._slow(families, 20, alpha) == (slow if fires else 0)
            assert coarse._slow_shown(families, 20, 5.0) is None
    for shown, floor in (((4, 100.0), 5.0), ((4, 10.0), 5.0)):
        families.slow.shown = shown
        found = coarse._slow_shown(families, 20, floor)
        if by_session:
            assert found is None
        else:
            assert (found.executions, found.by) == (4, max(shown[1], floor * 20 / 4))
