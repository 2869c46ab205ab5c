"""Calibration: rates of false alarms, the floor that recordings ask for, the least change."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from critpath.detect.comparability import floor_share, session_spread
from critpath.detect.families import reach_floor, score_unusualness
from critpath.detect.rules import RULES
from critpath.documents import (
    Calibrated,
    DetectableEntry,
    FalseAlarmsEntry,
    FloorEntry,
    RateEntry,
    RecordingEntry,
    SplitKind,
)
from critpath.documents.base import number
from critpath.model import F64, I64, Bool, CompareSettings, VectorTable
from critpath.schema.parameters.detect import CALIBRATION, EFFECTS, GATE
from critpath.stats.means import effects, standard_errors
from critpath.stats.permutations import (
    Family,
    Strata,
    assign,
    balance,
    count_assigned,
    count_reaching,
    family_of,
    make_ready,
    share_reaching,
    take_largest,
)
from critpath.stats.rows import center_by, make_seed
from critpath.stats.tails import beta_quantile, chi_square_quantile
from critpath.text import calibration as text


def conclude(
    settings: CompareSettings,
    alarms: Sequence[FalseAlarmsEntry],
    detectable: Sequence[DetectableEntry],
    floor: FloorEntry,
    mean: float,
) -> tuple[Calibrated, list[str]]:
    """Return the verdict of a calibration and its reasons.

    Parameters
    ----------
    settings : CompareSettings
    alarms : sequence of FalseAlarmsEntry
        At least one.
    detectable : sequence of DetectableEntry
    floor : FloorEntry
    mean : float
        Mean duration (ns).

    Returns
    -------
    verdict : str
        ``alarming`` if the lower bound of a rate of false alarms is above the level, or a
        rate of recordings against each other is above 10 %.
    reasons : list of str
    """
    rule = RULES[settings.rule]
    too_many = [a for a in alarms if a.alarms.low > settings.alpha]
    across = _at_usual_size(alarms, "sessions")
    doubtful = [a for a in across if a.alarms.share > settings.alpha]
    found = (_at_usual_size(alarms, "shuffled") or across)[0]
    raised = floor.in_force if rule.floor and floor.in_force > settings.floor else None
    # What speaks against the gate comes first.
    reasons = [
        *(text.too_many_alarms(a, settings, floor, has_floor=rule.floor) for a in too_many),
        *(text.across_recordings(a, settings.alpha) for a in doubtful),
        text.alarm_rate(found, raised, _outcome(settings, detectable, found.sample, mean)),
        *(text.across_recordings(a, settings.alpha) for a in across if a not in doubtful),
        text.advised_floor(settings, floor),
    ]
    if (floor.recommended or floor.in_force) > CALIBRATION.blunt_floor and floor.spread is not None:
        reasons.append(text.blunt_floor())
    # Few recordings prove no rate; but with such a one they are not calibrated.
    alarming = too_many or any(a.alarms.share > CALIBRATION.most_alarms for a in doubtful)
    return ("alarming" if alarming else "calibrated"), reasons


def _at_usual_size(alarms: Sequence[FalseAlarmsEntry], kind: SplitKind) -> list[FalseAlarmsEntry]:
    """Return the rate of a kind at 30 executions, or at the largest size there is."""
    mine = [a for a in alarms if a.kind == kind]
    if not mine:
        return []
    sizes = [a.sample for a in mine]
    return [
        mine[sizes.index(CALIBRATION.usual_size if CALIBRATION.usual_size in sizes else max(sizes))]
    ]


def _outcome(
    settings: CompareSettings, detectable: Sequence[DetectableEntry], size: int, mean: float
) -> str:
    """Return the end of the answer: what slowdown shows at a size."""
    if not RULES[settings.rule].permutation_test:
        return text.by_rule(settings.rule)
    shown = [d for d in detectable if d.kind == "total" and d.sample == size]
    return text.smallest_change(shown[0].shift, mean) if shown else ""


def rate(count: int, of: int, units: int | None = None) -> RateEntry:
    """Return a share with its 95 % interval.

    Parameters
    ----------
    count, of : int
    units : int, optional
        How many of them are independent; all by default.

    Notes
    -----
    Clopper and Pearson 1934.  With fewer independent units than observations, the
    same share of as many units, as Korn and Graubard (1998) do with survey data: here
    every unit counts once however often it was drawn from, so the interval errs on
    the wide side.
    """
    n = float(min(of, units or of))
    x = count / of * n
    tail = (1 - CALIBRATION.confidence) / 2
    low = beta_quantile(tail, x, n - x + 1) if x > 0 else 0.0
    high = beta_quantile(1 - tail, x + 1, n - x) if x < n else 1.0
    return RateEntry(count, of, count / of, low, high)


def advise_floor(
    total: I64, stratum: I64, session: I64, sources: Sequence[str], asked: float
) -> FloorEntry:
    """Recommend an effect floor.

    Parameters
    ----------
    total, stratum, session : int64 [n]
        Duration (ns), type and recording of every execution.
    sources : sequence of str
        Name of every recording, by its number in ``session``.
    asked : float
        The floor that the settings ask for.

    Notes
    -----
    ``max(5 %, 3 sd of the session means / mean)``, the rule that `detect` applies by
    itself where NORMAL has several sessions.  The bound of the standard deviation is
    ``sd * sqrt((S - 1) / chi-square quantile)``, for means that are normally
    distributed.  The means of equal recordings would differ as well: their standard
    deviation is then that of the executions over the root of their number.
    """
    names, counts = np.unique(session, return_counts=True)
    found = session_spread(total, stratum, session)
    mean = float(total.mean())
    spread = high = expected = None
    if len(names) > 1 and mean > 0:
        freedom = len(names) - 1
        spread = found.share
        high = spread * math.sqrt(
            freedom / chi_square_quantile(1 - CALIBRATION.confidence, freedom)
        )
        expected = _spread_by_chance(total, stratum, session) / mean
    enough = spread is not None and len(names) >= CALIBRATION.least_sessions
    means = (mean + found.deviation).tolist()
    recordings = zip(names.tolist(), counts.tolist(), means, strict=True)
    return FloorEntry(
        recordings=[RecordingEntry(sources[name], many, of) for name, many, of in recordings],
        spread=number(spread),
        spread_high=number(high),
        expected=number(expected),
        recommended=number(max(CALIBRATION.least_floor, GATE.sigmas * spread))
        if spread is not None and enough
        else None,
        in_force=float(floor_share(asked, total, stratum, session)),
    )


def _spread_by_chance(total: I64, stratum: I64, session: I64) -> float:
    """Return the standard deviation that session means have by chance alone (ns)."""
    residual = center_by(total, stratum)
    squares, freedom, shares = 0.0, 0, []
    for s in np.unique(session):
        mine = residual[session == s]
        squares += float(((mine - mine.mean()) ** 2).sum())
        freedom += len(mine) - 1
        shares.append(1 / len(mine))
    return math.sqrt(squares / max(freedom, 1) * float(np.mean(shares)))


# The smallest slowdown that shows, found by slowing samples down.


_FAR = 16  # technical: steps at once, until the answer is passed


class _Asked:
    """Trials that are asked no more than needed: what shows goes on to show when larger."""

    def __init__(self, trials: Sequence[Trial], patterns: Sequence[F64], allowed: int) -> None:
        self._trials = list(zip(trials, patterns, strict=True))
        self._misses = [0.0] * len(trials)  # the largest shift that did not show
        self._shown = [math.inf] * len(trials)  # the smallest that did
        self._allowed = allowed

    def shows(self, size: float) -> bool:
        misses = sum(size <= miss for miss in self._misses)
        for k, (trial, pattern) in enumerate(self._trials):
            if misses > self._allowed:
                return False
            if self._misses[k] < size < self._shown[k]:
                if trial.alarms(np.rint(pattern * size).astype(np.int64)):
                    self._shown[k] = size
                else:
                    self._misses[k] = size
                    misses += 1
        return misses <= self._allowed


def smallest_shift(
    trials: Sequence[Trial], patterns: Sequence[F64], mean: float, *, guess: float = 0.0
) -> tuple[float | None, bool]:
    """Find the smallest shift that four trials in five call an anomaly.

    Parameters
    ----------
    trials : sequence of Trial
        Splits of healthy executions, of one size.
    patterns : sequence of float64 [sample executions, symbols]
        For each trial, what one nanosecond of the shift adds.
    mean : float
        Mean duration (ns).
    guess : float
        Where to look first (ns); the answer hardly depends on it.

    Returns
    -------
    shift : float or None
        Nanoseconds, 4 % at most above the smallest; None if even 64 mean durations do
        not show.
    by_floor : bool
        The floor decides: what is large enough for it is significant as well.
    """
    allowed = len(trials) - math.ceil(CALIBRATION.power * len(trials))
    gaps = [t.lacking(p) for t, p in zip(trials, patterns, strict=True)]
    anywhere, over_all = (sorted(each)[-allowed - 1] for each in zip(*gaps, strict=True))
    if anywhere >= CALIBRATION.largest_shift * mean:
        return None, False
    # Rounding to whole nanoseconds must not fall below the floor.
    least = max(math.ceil(anywhere * (1 + 1e-6)) + 1.0, CALIBRATION.first_shift * mean)
    most = max(0, math.ceil(math.log(CALIBRATION.largest_shift * mean / least, CALIBRATION.step)))
    asked = _Asked(trials, patterns, allowed)

    def size(step: int) -> float:
        return float(least * CALIBRATION.step**step)

    if not asked.shows(size(most)):
        return None, False
    # `low` does not show (below the least, nothing does), `high` does.
    low, high = -1, most
    step = (
        min(max(0, round(math.log(guess / least, CALIBRATION.step))), most - 1)
        if guess > least
        else 0
    )
    far = 1
    while high - low > 1:
        if asked.shows(size(step)):
            high = step
            step = max(high - far, (low + high) // 2)
        else:
            low = step
            step = min(low + far, (low + high) // 2)
        step = min(max(step, low + 1), high - 1) if high - low > 1 else step
        far = min(2 * far, _FAR)
    return size(high), over_all > 0 and size(high) <= CALIBRATION.at_floor * over_all


# The gate on one split of healthy executions, for one shift after the other.


class _Sums(Struct, frozen=True):
    """Standardised sums of some columns, the largest of their three scores.

    Attributes
    ----------
    observed : float64 [blocks, columns]
    assigned : float64 [blocks, assignments, columns]
    """

    observed: F64
    assigned: F64


class Trial:
    """A normal and a sample set that differ by chance, and what a shift makes of them.

    Parameters
    ----------
    normal, sample : VectorTable
        Over the same symbols.
    judged : (VectorTable, VectorTable)
        The sets as single executions are judged on.
    fold : int64 [symbols, symbols]
        Where a nanosecond of every symbol stands in the judged sets.
    strata : (int64 [n], int64 [m])
        Execution types.
    alpha : float
    floor : float
        Share of the normal mean duration.
    permutations : int
    """

    def __init__(
        self,
        normal: VectorTable,
        sample: VectorTable,
        *,
        judged: tuple[VectorTable, VectorTable],
        fold: I64,
        strata: tuple[I64, I64],
        alpha: float,
        floor: float,
        permutations: int,
    ) -> None:
        self._judged, self._fold = judged, fold
        self._strata = strata
        self._alpha = alpha
        self._x = np.column_stack([normal.durations, normal.total])
        self._y = np.column_stack([sample.durations, sample.total])
        random_seed = make_seed(self._y, self._x)
        found = effects(self._x, self._y, *strata, random_seed, replicates=0)
        self._effect = found.sample_mean - found.normal_mean
        self._least = floor * float(found.normal_mean[-1])
        self._known = np.isin(np.arange(len(found.stratum_mean)), strata[0])
        types = np.unique(strata[1])
        self._types = [(s, np.flatnonzero(strata[1] == s)) for s in types if self._known[s]]
        self._type_effect = found.stratum_effect
        self._type_least = floor * found.stratum_mean[:, -1:]
        self._draw(random_seed, permutations)
        self._states = self._sums(np.concatenate([self._y, self._x])[:, :-1])

    @property
    def sample(self) -> I64:
        """Durations of the sample as it is (ns) [executions, symbols]."""
        return self._y[:, :-1]

    def lacking(self, pattern: F64) -> tuple[float, float]:
        """Return how much of a pattern it takes to reach the floor.

        Parameters
        ----------
        pattern : float64 [sample executions, symbols]
            Shift per unit (ns), nowhere negative.

        Returns
        -------
        anywhere, over_all : float
            In something that is tested; and over all types together.
        """
        added, by_type = self._add_up(pattern)
        least = np.concatenate([[self._least - self._effect], self._type_least - self._type_effect])
        tested = [0, *(s + 1 for s in self._singles)]
        least, added = least[tested], np.concatenate([[added], by_type])[tested]
        gaps = np.divide(least, added, out=np.full(added.shape, np.inf), where=added > 0)
        return max(0.0, float(gaps.min())), max(0.0, float(gaps[0].min()))

    def alarms(self, shift: I64) -> bool:
        """Tell whether the gate calls the sample anomalous once it is that much slower.

        Parameters
        ----------
        shift : int64 [sample executions, symbols]
            Nanoseconds more.

        Notes
        -----
        The rule of `critpath.detect.coarse` with the tests of
        `critpath.detect.families`, for the whole and the symbols that the shift
        changes; the others are as they were without it.
        """
        added, by_type = self._add_up(shift)
        effect = np.concatenate([[self._effect + added], self._type_effect + by_type])
        least = np.concatenate([[[self._least]], self._type_least])
        more = np.column_stack([shift, shift.sum(axis=1)])
        error = np.vstack(standard_errors(self._x, self._y + more, *self._strata))
        enough = reach_floor(effect, error, least)
        changed = np.flatnonzero(shift.any(axis=0))
        # Only what is tested can be significant: everything, and the larger types.
        enough = enough[[0, *(s + 1 for s in self._singles)]]
        if not enough[:, [*changed, -1]].any():
            return False
        level = self._alpha * EFFECTS.whole * (1 - EFFECTS.slow)
        alone = self._alpha * (1 - EFFECTS.whole)
        state = None
        if len(changed) == 1:  # it takes less time than the whole, and mostly decides
            state = self._test_changed(shift, changed, enough[:, changed])
            if state <= alone:
                return True
            if state > self._alpha and not enough[:, -1].any():
                return False
        whole = self._p_values(self._sum_whole(shift)).min(axis=1)
        if ((whole <= level) & enough[:, -1]).any():
            return True
        if state is None:
            state = self._test_changed(shift, changed, enough[:, changed])
        return state <= (self._alpha if whole.min() <= level else alone)

    def _test_changed(self, shift: I64, changed: I64, enough: Bool) -> float:
        """Return the least p of what a shift changes enough; inf where it does so nowhere."""
        if not enough.any():
            return math.inf
        states = self._p_values(self._sum_changed(shift, changed))[:, changed]
        return float(states[enough].min())

    def _add_up(self, shift: I64 | F64) -> tuple[F64, F64]:
        """Return what a shift adds to the mean of every column, over all and per type."""
        more = np.column_stack([shift, shift.sum(axis=1)]).astype(np.float64)
        by_type = np.zeros((len(self._known), more.shape[1]))
        for s, rows in self._types:
            by_type[s] = np.add.reduce(more[rows], axis=0) / len(rows)
        return more.mean(axis=0), by_type

    def _draw(self, random_seed: int, permutations: int) -> None:
        """Draw the assignments, and note what is tested: everything, and each large type."""
        self._pooled, self._seed = Strata.of(*self._strata), random_seed
        family = self._family(np.concatenate([self._y, self._x]))
        self._singles, self._plan = family.singles, family.plan
        self._many = count_assigned(self._plan, permutations)
        rng = np.random.default_rng(random_seed)
        sizes = [len(units) for units in family.units]
        self._pilot, self._assigned = (
            [
                [make_ready(of, size) for of, size in zip(picked, sizes, strict=True)]
                for picked in assign(self._plan, rng, permutations)
            ]
            for _ in range(2)
        )

    def _family(self, values: I64) -> Family:
        # Both families are tested at half the level, see `critpath.detect.families`.
        level = self._alpha * EFFECTS.whole * (1 - EFFECTS.slow)
        return family_of(values, self._pooled, None, level, np.random.default_rng(self._seed))

    def _sums(self, values: I64) -> _Sums:
        """Standardise the sums of some columns as the gate does."""
        family = self._family(values)
        pilot = map(family.sums, self._pilot)
        divisors = balance(pilot, self._many, family.divisors)[:, None]
        given = take_largest(family.sums(family.plan.as_given()) / divisors)
        drawn = [take_largest(family.sums(picked) / divisors) for picked in self._assigned]
        return _Sums(given[:, 0], np.concatenate(drawn, axis=1))

    def _p_values(self, sums: _Sums) -> F64:
        """Return the adjusted p [blocks, columns]: single step, over all of them."""
        largest = np.sort(sums.assigned.max(axis=0).max(axis=1))
        return share_reaching(self._plan, count_reaching(largest, sums.observed), len(largest))

    def _sum_whole(self, shift: I64) -> _Sums:
        """Sum up the total and the unusualness of the executions."""
        normal, sample = self._judged
        slower = VectorTable(
            sample.symbols, sample.counts, sample.durations + shift @ self._fold, sample.structure
        )
        scores = score_unusualness(normal, slower, *self._strata)
        y = np.column_stack([self._y[:, -1] + shift.sum(axis=1), scores[1]])
        x = np.column_stack([self._x[:, -1], scores[0]])
        return self._sums(np.concatenate([y, x]))

    def _sum_changed(self, shift: I64, changed: I64) -> _Sums:
        """Sum up every state, those that a shift changes anew."""
        values = np.concatenate([self._y[:, changed] + shift[:, changed], self._x[:, changed]])
        anew = self._sums(values)
        observed, assigned = self._states.observed.copy(), self._states.assigned.copy()
        observed[:, changed], assigned[:, :, changed] = anew.observed, anew.assigned
        return _Sums(observed, assigned)
