"""One split of healthy executions, asked again and again whether a shift would show.

`critpath.detect.gate` draws its assignments anew for every comparison, which is most of
its time.  A shift changes the durations and nothing else, so here they are drawn once
per split; and a shift in one state leaves what the other states contribute as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from critpath.detect.changes import large
from critpath.detect.effects import effects, standard_errors
from critpath.detect.families import WHOLE
from critpath.detect.gate import SLACK, Family, balance, family_of, seed
from critpath.detect.unusual import unusual
from critpath.model import F64, I64, VectorTable


@dataclass(frozen=True)
class _Sums:
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
        random_seed = seed(self._y, self._x)
        found = effects(self._x, self._y, *strata, random_seed, replicates=1)
        self._effect = found.sample_mean - found.normal_mean
        self._least = floor * float(found.normal_mean[-1])
        self._known = np.isin(np.arange(len(found.stratum_mean)), strata[0])
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
        added, by_type = self._added(pattern)
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
        added, by_type = self._added(shift)
        effect = np.concatenate([[self._effect + added], self._type_effect + by_type])
        least = np.concatenate([[[self._least]], self._type_least])
        more = np.column_stack([shift, shift.sum(axis=1)])
        error = np.vstack(standard_errors(self._x, self._y + more, *self._strata))
        enough = large(effect, error, least)
        changed = np.flatnonzero(shift.any(axis=0))
        # Only what is tested can be significant: everything, and the larger types.
        enough = enough[[0, *(s + 1 for s in self._singles)]]
        if not enough[:, [*changed, -1]].any():
            return False
        whole = self._p_values(self._whole(shift)).min(axis=1)
        if ((whole <= self._alpha * WHOLE) & enough[:, -1]).any():
            return True
        if not enough[:, changed].any():
            return False
        rejected = whole.min() <= self._alpha * WHOLE
        level = self._alpha if rejected else self._alpha * (1 - WHOLE)
        states = self._p_values(self._with(shift, changed))
        return bool(((states <= level) & enough[:, :-1])[:, changed].any())

    def _added(self, shift: I64 | F64) -> tuple[F64, F64]:
        """Return what a shift adds to the mean of every column, over all and per type."""
        more = np.column_stack([shift, shift.sum(axis=1)]).astype(np.float64)
        by_type = np.zeros((len(self._known), more.shape[1]))
        for s in np.unique(self._strata[1]):
            if self._known[s]:
                by_type[s] = more[self._strata[1] == s].mean(axis=0)
        return more.mean(axis=0), by_type

    def _draw(self, random_seed: int, permutations: int) -> None:
        """Draw the assignments, and note what is tested: everything, and each large type."""
        stratum = np.concatenate([self._strata[1], self._strata[0]])
        inside = np.arange(len(stratum)) < len(self._y)
        self._members = [np.flatnonzero(stratum == s) for s in range(int(stratum.max()) + 1)]
        self._chosen = [int(inside[rows].sum()) for rows in self._members]
        family = self._family(np.concatenate([self._y, self._x]))
        self._singles, plan = family.singles, family.plan
        rng = np.random.default_rng(random_seed)
        self._exact = plan.exact
        self._pilot, self._assigned = (
            list(plan.every() if plan.exact else plan.drawn(rng, permutations)) for _ in range(2)
        )

    def _family(self, values: I64) -> Family:
        # Both families are tested at half the level, see `critpath.detect.families`.
        return family_of(values, self._members, self._chosen, None, self._alpha * WHOLE)

    def _sums(self, values: I64) -> _Sums:
        """Standardise the sums of some columns as the gate does."""
        family = self._family(values)
        columns = values.shape[1]
        divisors = balance((family.sums(picked) for picked in self._pilot), family.divisors)
        given = family.sums(family.plan.as_given())
        drawn = [family.sums(picked) for picked in self._assigned]
        observed, assigned = [], []
        for block, divisor in enumerate(divisors):
            mine = given[block][0] / divisor
            sums = np.concatenate([batch[block] for batch in drawn]) / divisor
            observed.append(mine.reshape(3, columns).max(axis=0))
            assigned.append(sums.reshape(len(sums), 3, columns).max(axis=1))
        return _Sums(np.array(observed), np.array(assigned))

    def _p_values(self, sums: _Sums) -> F64:
        """Return the adjusted p [blocks, columns]: single step, over all of them."""
        largest = np.sort(sums.assigned.max(axis=(0, 2)))
        reached = len(largest) - np.searchsorted(largest, sums.observed - SLACK)
        extra = 0 if self._exact else 1
        return np.asarray((extra + reached) / (extra + len(largest)), dtype=np.float64)

    def _whole(self, shift: I64) -> _Sums:
        """Sum up the total and the unusualness of the executions."""
        normal, sample = self._judged
        slower = VectorTable(
            sample.symbols, sample.counts, sample.durations + shift @ self._fold, sample.structure
        )
        scores = unusual(normal, slower, *self._strata)
        y = np.column_stack([self._y[:, -1] + shift.sum(axis=1), scores[1]])
        x = np.column_stack([self._x[:, -1], scores[0]])
        return self._sums(np.concatenate([y, x]))

    def _with(self, shift: I64, changed: I64) -> _Sums:
        """Sum up every state, those that a shift changes anew."""
        values = np.concatenate([self._y[:, changed] + shift[:, changed], self._x[:, changed]])
        anew = self._sums(values)
        observed, assigned = self._states.observed.copy(), self._states.assigned.copy()
        observed[:, changed], assigned[:, :, changed] = anew.observed, anew.assigned
        return _Sums(observed, assigned)
