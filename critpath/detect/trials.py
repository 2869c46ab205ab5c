"""From the critical paths of a healthy program to what a gate on it would do."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, structs

from critpath import __version__
from critpath.cluster import find_types, labels_are_usable, rows_of
from critpath.detect.calibration import Trial, advise_floor, conclude, rate, smallest_shift
from critpath.detect.comparability import recording_differences
from critpath.detect.judging import Judgement, judge
from critpath.detect.repairs import note_repaired_switches
from critpath.detect.rules import RULES
from critpath.detect.verdict import is_alarm
from critpath.documents.base import change, plain
from critpath.documents.calibration import (
    CALIBRATION_FORMAT,
    CalibrationDocument,
    DetectableEntry,
    FalseAlarmsEntry,
    FloorEntry,
    LackEntry,
    RateEntry,
    ShiftKind,
    SplitKind,
)
from critpath.engines import run
from critpath.errors import InconclusiveError
from critpath.model import I64, CompareSettings, State, Symbol, VectorTable
from critpath.progress import Progress
from critpath.schema.notes import LossyExecutions, Remark, SplitsCut
from critpath.schema.parameters.ab import TRIALS
from critpath.stats.rows import make_seed
from critpath.text.calibration import describe_left
from critpath.text.notes import word_all
from critpath.text.recognized import identify_all
from critpath.units import plural
from critpath.vectors import ALPHABETS, fold_interrupts, like_alphabet, vector_table

if TYPE_CHECKING:
    from critpath.model import F64, PathSet

_PAYING = 100  # technical: splits that take longer than a process takes to start
_BEFORE_STATES = 3  # technical: the total, the rare one and the new state are tried first


class _Pool(Struct, frozen=True, eq=False):
    """All executions, in an order that does not depend on how they were given."""

    table: VectorTable
    label: list[str]
    session: I64
    sources: tuple[str, ...]
    settings: CompareSettings
    seed: int

    def select(self, rows: I64) -> _Pool:
        """Return some of the executions."""
        return structs.replace(
            self,
            table=rows_of(self.table, rows),
            label=[self.label[i] for i in rows.tolist()],
            session=self.session[rows],
        )


class _Part(Struct, frozen=True, eq=False):
    """Splits of one kind and size, and the floors that they are judged with."""

    kind: SplitKind
    splits: Sequence[Split]
    floor: float | None  # in force; None where `compare` finds it by itself
    recommended: float | None


class _Task(Struct, frozen=True, eq=False):
    """A split to be judged."""

    pool: _Pool
    split: Split
    part: _Part

    def __reduce__(self) -> tuple[object, ...]:
        """Go to another process with the split's own rows only."""
        split = self.split
        rows = np.concatenate([split.normal, split.sample])
        ours, theirs = np.split(np.arange(len(rows)), [len(split.normal)])
        part = structs.replace(self.part, splits=())
        return _Task, (self.pool.select(rows), Split(ours, theirs, split.unit), part)

    def __repr__(self) -> str:
        return f"{self.part.kind}:{self.split.unit}"


class _Outcome(Struct, frozen=True, eq=False):
    """What was decided of a split."""

    alarm: bool
    bare: bool  # significant, whatever the floor
    recommended: bool  # an alarm with the recommended floor, too
    marked: bool  # an execution is called an outlier
    enough: bool
    strata: tuple[I64, I64]  # execution types


def calibrate(
    normal: PathSet,
    settings: CompareSettings | None = None,
    *,
    splits: int = 200,
    sizes: Sequence[int] | None = None,
    progress: Progress | None = None,
    left: Callable[[], float] = lambda: math.inf,
    jobs: int = 1,
) -> CalibrationDocument:
    """Hold the executions of a healthy program against each other.

    Parameters
    ----------
    normal : PathSet
        Of one or more recordings, one session each.
    settings : CompareSettings, optional
        What `compare` is going to be called with.
    splits : int
        Random splits of every size; a third as many across recordings, where the
        recordings and not the splits are what is independent.
    sizes : sequence of int
        Executions in the sample.
    progress : callable, optional
        Is shown what is being done.
    left : callable, optional
        Returns how many seconds may still be spent: where they are over, fewer splits are judged,
        which the rates and a warning say.
    jobs : int
        Processes that judge.

    Returns
    -------
    CalibrationDocument
        Durations in ns, rates and floors as shares of 1.

    Raises
    ------
    InconclusiveError
        If the executions are too few for the smallest size.

    Notes
    -----
    Everything that differs in a split of healthy executions differs by chance: every
    alarm is a false one.  The detectable slowdown is found by adding time to the
    sample of such splits, and asking the gate again.
    """
    sizes = TRIALS.sizes if sizes is None else sizes

    settings = settings or CompareSettings()
    tell = progress or (lambda _: None)
    smallest = min(sizes)
    needed = smallest + least_normal(smallest)
    if len(normal) < needed:
        raise InconclusiveError(
            f"{plural(len(normal), 'run')}: a comparison of {smallest} with "
            f"{least_normal(smallest)} needs {needed - len(normal)} more",
            "record more: three recordings of 100 runs, at different times, are a good start",
        )
    fewer = max(TRIALS.permutations, round(TRIALS.reach / settings.alpha) - 1)
    lean = replace(settings, permutations=min(settings.permutations, fewer))
    pool = _pool(normal, lean)
    tell("measuring what recordings differ by")
    floor = _floor(pool)
    parts: list[_Part] = []
    for size in sizes:
        divided = shuffled_splits(len(normal), size, splits, pool.seed)
        across = session_splits(pool.session, size, splits // 3, pool.seed)
        # What is in force where the normal set is all of these recordings; `compare` finds it
        # by itself where it sees the sessions.
        kinds: list[tuple[SplitKind, list[Split], float | None]] = [
            ("shuffled", divided, floor.in_force),
            ("sessions", across, None),
        ]
        parts += [
            _Part(kind, some, in_force, floor.recommended) for kind, some, in_force in kinds if some
        ]
    jobs = max(1, min(jobs, sum(len(part.splits) for part in parts) // _PAYING))
    outcomes = _judge_all(pool, parts, jobs, tell, left)
    alarms = [_false_alarms(settings, part, of) for part, of in zip(parts, outcomes, strict=True)]
    looked = [
        _Search(pool, part.splits, found[: TRIALS.trials], floor.in_force)
        for part, found in zip(parts, outcomes, strict=True)
        if part.kind == "shuffled" and RULES[settings.rule].permutation_test
    ]
    smallest_shifts = _search_all(looked, jobs, tell, left)
    lacking = [lack for size in sizes for lack in missing(pool.session, size)]
    mean = float(pool.table.total.mean())
    verdict, reasons = conclude(settings, alarms, smallest_shifts, floor, mean)
    noted = _note_warnings(normal)
    cut = [
        (len(of), len(part.splits), len(part.splits[0].sample))
        for part, of in zip(parts, outcomes, strict=True)
        if len(of) < len(part.splits)
    ]
    if cut:
        noted.append(SplitsCut(*min(cut)))
    return CalibrationDocument(
        format=CALIBRATION_FORMAT,
        version=__version__,
        verdict=verdict,
        reasons=reasons,
        warnings=word_all(noted),
        warning_ids=identify_all(noted),
        executions=len(normal),
        mean=mean,
        alpha=settings.alpha,
        splits=splits,
        permutations=lean.permutations,
        false_alarms=alarms,
        missing=lacking,
        detectable=smallest_shifts,
        floor=floor,
        settings=plain(asdict(settings)),
    )


def _pool(normal: PathSet, settings: CompareSettings) -> _Pool:

    kind, _ = like_alphabet(settings.alphabet, (normal,))
    alphabet = ALPHABETS[kind]((normal,))
    table = vector_table(normal, alphabet.symbols, alphabet.codes[0])
    # Sessions are numbered by what is in them, not by the order of the arguments.
    sums = [(int((normal.session == s).sum()), int(table.total[normal.session == s].sum()), s)
            for s in range(len(normal.sources))]  # fmt: skip
    ranked = [s for count, _, s in sorted(sums) if count]
    number = np.zeros(len(normal.sources), np.int64)
    number[ranked] = np.arange(len(ranked))
    session = number[normal.session]
    order = np.lexsort((*table.structure.T, *table.durations.T, session))
    return _Pool(
        rows_of(table, order),
        [normal.executions.label[i] for i in order],
        session[order],
        tuple(normal.sources[s] for s in ranked),
        settings,
        make_seed(table.durations.astype(np.int64)),
    )


def _floor(pool: _Pool) -> FloorEntry:

    labels = pool.label if labels_are_usable(pool.label, pool.label) else ()
    method = pool.settings.cluster_method
    types = find_types(pool.table, pool.table, labels, labels, method=method)[0]
    return advise_floor(
        pool.table.total, types.labels, pool.session, pool.sources, pool.settings.floor
    )


def _judge_all(
    pool: _Pool,
    parts: Sequence[_Part],
    jobs: int,
    tell: Progress,
    left: Callable[[], float],
) -> list[list[_Outcome]]:
    """Judge the splits of all parts in turns, until a third of the time is left."""
    turns = [
        (place, _Task(pool, part.splits[number], part))
        for number in range(max(len(part.splits) for part in parts))
        for place, part in enumerate(parts)
        if number < len(part.splits)
    ]
    outcomes: list[list[_Outcome]] = [[] for _ in parts]
    kept = left() / 3 if math.isfinite(left()) else 0.0
    tasks = [task for _, task in turns]
    with closing(run(_judge, tasks, jobs=jobs)) as results:
        for done, ((place, _), found) in enumerate(zip(turns, results, strict=True), 1):
            outcomes[place].append(found)
            tell(f"healthy against healthy: {done} of {len(turns)}{describe_left(left())}")
            enough = all(
                len(of) >= min(TRIALS.least_splits, len(part.splits))
                for part, of in zip(parts, outcomes, strict=True)
            )
            if enough and left() <= kept:
                break
    return outcomes


def _judge(task: _Task) -> _Outcome:
    """Judge a split as `compare` would."""
    pool, part = task.pool, task.part
    split = task.split
    across = part.kind == "sessions"
    both = pool.select(split.normal), pool.select(split.sample)

    def judge_with(floor: float | None) -> Judgement:
        return judge(
            both[0].table,
            both[1].table,
            pool.settings if floor is None else replace(pool.settings, floor=floor),
            labels=(both[0].label, both[1].label),
            sessions=(both[0].session, both[1].session) if across else (None, None),
            apart=across and pool.settings.sessions,
            screening=False,
            explained=False,
        )

    judgement = judge_with(part.floor)
    detection = judgement.detection
    deciding = [state for state in detection.states if state.level == "error"]
    alarm = is_alarm(detection, judgement.apart)
    recommended = part.recommended
    # With a higher floor only what alarmed can alarm.
    if recommended is not None and (alarm or recommended < (part.floor or pool.settings.floor)):
        again = judge_with(recommended)
        known = is_alarm(again.detection, again.apart)
    else:
        known = False
    clusters, pairs = judgement.sample_clusters, judgement.pairs
    return _Outcome(
        alarm=alarm,
        bare=any(state.p_value <= detection.alpha for state in deciding),
        recommended=known,
        marked=bool(judgement.outliers.anomalous.any()),
        enough=detection.enough,
        strata=(judgement.normal_clusters.labels, pairs.pair[clusters.labels]),
    )


def _false_alarms(
    settings: CompareSettings, part: _Part, outcomes: Sequence[_Outcome]
) -> FalseAlarmsEntry:
    """Return the rates of what was decided of the splits."""
    rule = RULES[settings.rule]
    splits = part.splits[: len(outcomes)]
    units = len({split.unit for split in splits})

    def of(count: int) -> RateEntry:
        return rate(count, len(splits), units)

    recommended = sum(one.recommended for one in outcomes)
    return FalseAlarmsEntry(
        kind=part.kind,
        sample=len(splits[0].sample),
        normal=max(len(split.normal) for split in splits),
        units=units,
        alarms=of(sum(one.alarm for one in outcomes)),
        without_floor=of(sum(one.bare for one in outcomes)) if rule.permutation_test else None,
        recommended=of(recommended) if rule.floor and part.recommended is not None else None,
        marked=of(sum(one.marked for one in outcomes)),
    )


class _Search(Struct, frozen=True, eq=False):
    """What the smallest slowdown of one size is looked for in."""

    pool: _Pool
    splits: Sequence[Split]
    judged: Sequence[_Outcome]
    floor: float
    seconds: float = math.inf  # that this may take


def _search_all(
    looked: Sequence[_Search], jobs: int, tell: Progress, left: Callable[[], float]
) -> list[DetectableEntry]:
    """Find the smallest slowdowns of all sizes."""
    jobs = max(min(jobs, len(looked)), 1)
    rounds = -(-len(looked) // jobs)
    tasks = [structs.replace(of, seconds=left() / max(rounds, 1)) for of in looked]
    result: list[DetectableEntry] = []
    tell(f"looking for the smallest change that shows{describe_left(left())}")
    with closing(run(_detectable, tasks, jobs=jobs)) as results:
        for done, found in enumerate(results, 1):
            result += found
            tell(f"smallest change shown: {done} of {plural(len(tasks), 'size')}"
                 f"{describe_left(left())}")  # fmt: skip
    return result


def _detectable(of: _Search) -> list[DetectableEntry]:
    """Find the smallest slowdown of the total and of every state, of one size."""
    until = time.monotonic() + of.seconds
    pool, splits, judged = of.pool, of.splits, of.judged
    trials = [_trial(pool, s, j.strata, of.floor) for s, j in zip(splits, judged, strict=False)]
    if not any(outcome.enough for outcome in judged):
        trials = []  # no slowdown could show; where some could not, they count as misses
    names = [symbol.name for symbol in pool.table.symbols]
    means = pool.table.durations.mean(axis=0)
    total = float(means.sum())
    rng = np.random.default_rng([pool.seed, len(splits[0].sample), 2])
    asked: list[tuple[ShiftKind, str, float]] = [("total", "", total), ("rare", "", total)]
    asked += [("new", "", 0.0)]
    asked += [("state", name, float(mean)) for name, mean in zip(names, means, strict=True)]
    size = len(splits[0].sample)
    longest = pool.table.durations.max(axis=0)
    new = 0.0
    result: list[DetectableEntry] = []
    whole = float(pool.table.total.mean())
    for number, (kind, name, mean) in enumerate(asked):
        if number >= _BEFORE_STATES and time.monotonic() >= until:
            break
        column = number - _BEFORE_STATES
        if kind == "state" and longest[column] < TRIALS.negligible * new:
            as_new = result[_BEFORE_STATES - 1]
            own = _share(as_new.shift, mean)
            result.append(change(as_new, kind=kind, state=name, mean=mean, of_own=own, trials=0))
            continue
        patterns = [_pattern(kind, column, t.sample, means, rng) for t in trials]
        shift, by_floor = (
            smallest_shift(trials, patterns, total, guess=new) if trials else (None, False)
        )
        if kind == "new":
            new = shift or 0.0
        result.append(
            DetectableEntry(
                sample=size,
                normal=len(splits[0].normal),
                kind=kind,
                state=name,
                mean=mean,
                shift=shift,
                of_total=_share(shift, whole),
                of_own=_share(shift, mean),
                by_floor=by_floor,
                trials=len(trials),
            )
        )
    return result


def _share(shift: float | None, mean: float) -> float | None:
    """Return a shift as a share, None where there is none or nothing that it is of."""
    return None if shift is None or not mean else shift / mean


def _pattern(kind: str, column: int, sample: I64, means: F64, rng: np.random.Generator) -> F64:
    """Return what a nanosecond of a slowdown adds to every execution and symbol."""
    pattern = np.zeros(sample.shape)
    total = max(float(means.sum()), 1.0)
    if kind == "total":
        pattern[:] = sample / total
    elif kind == "rare":
        hit = rng.permutation(len(sample))[: max(1, round(TRIALS.rare * len(sample)))]
        pattern[hit, :-1] = means / total
    else:
        pattern[:, column] = 1.0
    return pattern


def _trial(pool: _Pool, split: Split, strata: tuple[I64, I64], floor: float) -> Trial:
    """Make a split ready to be slowed down; its types are those that were found."""
    sets = [_with_new(rows_of(pool.table, rows)) for rows in (split.normal, split.sample)]
    symbols = sets[0].symbols
    each = np.eye(len(symbols), dtype=np.int64)
    fold = fold_interrupts(VectorTable(symbols, np.zeros_like(each), each)).durations
    return Trial(
        *sets,
        judged=(fold_interrupts(sets[0]), fold_interrupts(sets[1])),
        fold=fold,
        strata=strata,
        alpha=pool.settings.alpha,
        floor=floor,
        permutations=pool.settings.permutations,
    )


def _with_new(table: VectorTable) -> VectorTable:
    """Return a table with one more state, the last, in which no time is spent."""
    nothing = np.zeros((len(table), 1), np.int64)
    symbols = (*table.symbols, Symbol(State.UNKNOWN, "new"))
    columns = (table.counts, table.durations, table.structure)
    return VectorTable(symbols, *(np.hstack([column, nothing]) for column in columns))


def _note_warnings(normal: PathSet) -> list[Remark]:

    repaired = note_repaired_switches(normal)
    result = list(dict.fromkeys((*repaired.warnings, *normal.executions.notes)))
    result += recording_differences(normal)
    lossy = int(normal.lossy.sum())
    if lossy:
        result.append(LossyExecutions(lossy, len(normal)))
    return result


# How healthy executions are divided into a normal and a sample set, to see what happens.


class Split(Struct, frozen=True, eq=False):
    """Rows of a table: a normal and a sample set.

    Attributes
    ----------
    normal, sample : int64
    unit : int
        What splits have in common that are not independent: the sample's session, or
        the split's own number.
    """

    normal: I64
    sample: I64
    unit: int


def least_normal(sample: int) -> int:
    """Return the fewest normal executions that a sample of this size is held against."""
    return min(sample, TRIALS.least_normal)


def shuffled_splits(total: int, sample: int, count: int, random_seed: int) -> list[Split]:
    """Divide the executions of all recordings at random."""
    if total < sample + least_normal(sample):
        return []
    rng = np.random.default_rng([random_seed, sample, 0])
    result = []
    for number in range(count):
        order = rng.permutation(total)
        normal = order[sample : sample + TRIALS.largest_normal]
        result.append(Split(np.sort(normal), np.sort(order[:sample]), number))
    return result


def session_splits(session: I64, sample: int, count: int, random_seed: int) -> list[Split]:
    """Draw the sample from one recording, and the normal set from the others."""
    rng = np.random.default_rng([random_seed, sample, 1])
    fitting = _fitting(session, sample)
    draws = max(TRIALS.least_draws, count // max(len(fitting), 1))
    result: list[list[Split]] = []
    for s in fitting:
        mine, others = np.flatnonzero(session == s), np.flatnonzero(session != s)
        result.append([])
        for _ in range(draws):
            normal = rng.permutation(others)[: TRIALS.largest_normal]
            drawn = rng.permutation(mine)[:sample]
            result[-1].append(Split(np.sort(normal), np.sort(drawn), s))
    # The recordings in turns: who has no time for all has judged as many of each.
    return list(chain.from_iterable(zip(*result, strict=True)))


def _fitting(session: I64, sample: int) -> list[int]:
    """Return the recordings with enough executions, whose others have enough as well."""
    counts = np.bincount(session)
    rest = len(session) - counts
    return np.flatnonzero((counts >= sample) & (rest >= least_normal(sample))).tolist()


def missing(session: I64, sample: int) -> list[LackEntry]:
    """Say what the recordings lack for a size."""
    result = []
    lacking = sample + least_normal(sample) - len(session)
    if lacking > 0:
        result.append(LackEntry("shuffled", sample, lacking, 0))
    if not _fitting(session, sample):
        counts = np.bincount(session)
        recordings = max(0, 2 - len(counts))
        largest = int(counts.max(initial=0))
        # The sample's recording first; then what it is held against.
        lack = max(0, sample - largest)
        lack = lack or max(0, least_normal(sample) - (len(session) - largest))
        result.append(LackEntry("sessions", sample, lack, recordings))
    return result
