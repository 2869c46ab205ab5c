"""The verdict of a comparison: which states decide it, and whether it can be given."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Final

import numpy as np
from msgspec import Struct

from critpath.detect.rules import RULES, shift_of
from critpath.documents import DurationTest, StateEntry, WeatherEntry, WorkEntry
from critpath.documents.base import as_float, change, narrow
from critpath.model import (
    INTERFERENCE,
    Bool,
    Change,
    Detection,
    Loss,
    Outliers,
    Rival,
    State,
    Symbol,
    VectorTable,
)
from critpath.model.comparison import is_surely_faster
from critpath.schema import notes
from critpath.schema.kinds import MACHINE_STATES
from critpath.schema.notes import Note
from critpath.schema.parameters.detect import COMPARABILITY, MACHINE, VERDICT
from critpath.schema.parameters.shared import DEFAULTS, NORMAL

_SIGNS: Final = 3  # technical: that are told

ERROR: Final = "error"
WARN: Final = "warn"
TOTAL: Final = "total"

Levels = Sequence[tuple[str, str]]


class Apart(Struct, frozen=True):
    """What is known of sets that were recorded at different times.

    Attributes
    ----------
    slower : float
        How much longer the sample's recordings take: a factor less 1.
    beyond : float
        What recordings of the program differ by at the most; inf where that is not known.
    recordings : (int, int)
        Of the normal and of the sample set.
    rival : Rival or None
        Who had the cpu when executions waited longer for one.
    """

    slower: float
    beyond: float
    recordings: tuple[int, int]
    rival: Rival | None = None


def is_alarm(detection: Detection, apart: Apart | None) -> bool:
    """Tell whether what the rule flags is the program's.

    Sets that were recorded together share the machine, but for strangers that come with one of
    them.  Of others the machine may have made the difference, unless there is a sign that it did
    not.
    """
    slower = detection.flagged if detection.gate is None else _quantile_slower(detection)
    if apart is None or not RULES[detection.rule].permutation_test:
        return slower and detection.weather is None
    # Recordings that strangers made slower may differ by more than others do.
    beyond = apart.slower > apart.beyond and detection.weather is None
    return slower and (bool(detection.signs) or beyond)


def _quantile_slower(detection: Detection) -> bool:
    gate = detection.gate
    if gate is None or gate.low is None or not gate.normal:
        return False
    return gate.low > 0 and gate.effect >= detection.floor_share * gate.normal


def decide(
    detection: Detection,
    outliers: Outliers,
    lossy: tuple[Bool, Bool],
    losses: tuple[Sequence[Loss], Sequence[Loss]],
    *,
    apart: Apart | None = None,
    minimum: int = 0,
    least: float = DEFAULTS.least,
    differences: Sequence[Note] = (),
    note: Note | None = None,
) -> tuple[str, tuple[Note, ...]]:
    """Return the verdict and its notes.

    Parameters
    ----------
    detection : Detection
        Decides between ``ok`` and ``anomaly``.
    outliers : Outliers
        Named in the reasons; alone they make no anomaly, since one execution in a
        few is an outlier of any healthy set.
    lossy : (bool array, bool array)
        Executions of the normal and of the sample set whose window overlaps a loss.
    losses : (losses of the normal set, of the sample set)
    apart : Apart or None
        The sets were recorded at different times: an anomaly needs a sign that the machine
        did not make it.
    minimum : int
        Fewest executions of either set that a verdict may rest on.
    least : float
        A slowdown of this share of the mean has to show before the answer is ``ok``.
    differences : sequence of Note
        Differences between the sets' environments that no verdict may rest on.
    note : Note, optional
        Qualifies an anomaly.

    Returns
    -------
    verdict : str
        ``ok``, ``anomaly``, ``by_machine`` or ``inconclusive``.
    reasons : tuple of Note
        The decisive one first.
    """
    doubts = _doubts(outliers, lossy, losses, minimum, differences)
    doubts = doubts or _find_lacks(detection)
    if doubts:
        return "inconclusive", tuple(doubts)
    if not any(s.level == ERROR for s in detection.states):
        return "ok", (notes.NothingDecides(),)
    rule = RULES[detection.rule]
    marked, total = int(outliers.anomalous.sum()), len(outliers.anomalous)
    alone = [notes.OutliersAlone(marked, total)] if marked else []
    slower, gate = detection.flagged, detection.gate
    said: Note = rule.slower(detection) if slower else rule.not_slower(detection)
    if gate is not None:
        slower = _quantile_slower(detection)
        said = notes.Quantile(gate.name, gate.effect, gate.low, gate.high)
    below = apart is not None and not is_alarm(detection, apart) and _stays_below(detection)
    if not slower or below:
        said = rule.not_slower(detection) if below else said
        if detection.weather is not None:
            return "by_machine", (_by_strangers(detection.weather), *alone)
        if gate is None and rule.floor and is_unconfirmed(detection):
            whole = detection.states[-1]
            ends = as_float(whole.effect_low), as_float(whole.effect_high)
            return "inconclusive", (notes.Unconfirmed(whole.effect, *ends, detection.alpha), *alone)
        if detection.came is not None:
            return "inconclusive", (_came(detection.came), *alone)
        unseen = find_unseen(detection, (len(lossy[0]), len(lossy[1])), least)
        return ("inconclusive", (unseen, *alone)) if unseen else ("ok", (said, *alone))
    if detection.weather is not None and not is_alarm(detection, apart):
        return "by_machine", (_by_strangers(detection.weather), said)
    if apart is not None and not is_alarm(detection, apart):
        return "inconclusive", (*_as_machine(detection, apart), said)
    found: list[Note] = [said]
    if apart is not None and rule.permutation_test:
        found += [
            notes.ProgramSign(
                *(sign.kind, sign.name, sign.label),
                *(float(figure or 0) for figure in (sign.before, sign.after, sign.effect)),
            )
            for sign in detection.signs[:_SIGNS]
        ]
        if apart.slower > apart.beyond:
            found.append(notes.BeyondRecordings(apart.slower, apart.beyond, apart.recordings))
    found.append(notes.OutlyingExecutions(marked, total))
    return "anomaly", (*found, *([note] if note else []))


def _by_strangers(weather: WeatherEntry) -> Note:
    rivals = tuple((one.name, one.share) for one in weather.rivals)
    sides = weather.before, weather.after
    return notes.StrangersHadCpus(rivals, tuple(weather.cpus), *sides, weather.explains)


def _came(by: WeatherEntry) -> Note:
    cpu = by.cpus[0] if by.cpus else -1
    return notes.StrangerCame(by.rivals[0].name, cpu, tuple(by.kinds), by.before, by.after)


def _find_lacks(detection: Detection) -> list[Note]:
    """Return what the sets lack for a verdict, nothing where they have it."""
    if not any(s.level == ERROR for s in detection.states):
        return []
    if not detection.enough and RULES[detection.rule].permutation_test:
        if not detection.needed:
            return [notes.NothingInCommon()]
        return [notes.TooFewExecutions(detection.alpha, detection.needed)]
    gate = detection.gate
    if gate is not None and None in {gate.low, gate.high}:
        return [notes.UnboundedQuantile(gate.name, tuple(gate.executions), gate.needed)]
    return []


def may_be_faster(detection: Detection, *, apart: bool) -> bool:
    """Tell whether the mean fell by more than the floor, and not as another hour makes it."""
    total = detection.states[-1]
    return not detection.flagged and is_surely_faster(
        as_float(total.effect_high),
        -total.effect,
        total.normal_mean,
        (
            (-one.effect, one.normal_mean)
            for symbol, one in detection.by_symbol
            if one.level == ERROR and symbol.state in MACHINE_STATES
        ),
        floor=detection.floor,
        apart=apart,
    )


def _stays_below(detection: Detection) -> bool:
    """Tell whether no time as a whole, of all or of a kind, grew by as much as counts."""
    whole = detection.states[-1]
    grown = any(one.name == whole.state for one in detection.slower)
    return detection.gate is None and whole.effect < detection.floor and not grown


def find_unseen(detection: Detection, sizes: tuple[int, int], least: float) -> Note | None:
    """Return what a verdict of OK lacks: that a slowdown of a share of the mean would have shown.

    The interval of the effect has to lie below it, too: of the whole duration, or of it without
    the time that strangers had the cpus.  Nor may the test be sure of something that is not below
    what counts at all.  None where nothing lacks, or nothing tells what would have shown.
    """
    total = detection.states[-1]
    rule = RULES[detection.rule]
    if detection.gate is not None:
        return _find_unseen_percentile(detection, least)
    if not rule.floor or total.level != ERROR or not total.normal_mean or detection.faster:
        return None
    least = max(least, detection.floor_share)
    whole = WorkEntry(
        *(total.normal_mean, total.effect, total.effect_low, total.effect_high),
        detection.detectable,
    )
    slight = as_float(whole.high) <= detection.floor or 0 < whole.effect < detection.floor
    sure = as_float(total.p_value) <= detection.alpha and not slight
    if detection.detectable is None or not math.isfinite(as_float(whole.high)):
        return None
    sides = [whole]
    seems = max(whole.effect / whole.mean, (total.median_ratio or 1.0) - 1)
    work = detection.work
    # What strangers took is no work of the program; where it surely rose, or the usual one is
    # longer by as much, it may be a neighbour's doing.
    hidden = (total.median_ratio or 1.0) - 1 >= least
    hidden |= seems >= least and (work is None or work.surely)
    if work and work.mean and not hidden:
        sides.append(work)
    factors = [_lack_of(side, least, detection.floor_share) for side in sides]
    if min(factors) <= 1 and not sure:
        return None
    usual = detection.usual
    if usual is not None and not sure:
        if usual.high < least and not hidden:
            return None
        width = (1 + NORMAL.q80 / NORMAL.q975) * math.log1p(usual.high - usual.change)
        factors.append(max(width / math.log1p(least), 1.0))
    would_do = min(sizes) * VERDICT.more * max(min(factors), 1.0) ** 2
    return notes.TooNoisy(
        *(as_float(whole.detectable), whole.mean, least, _round_up(would_do)),
        total.p_value if sure else None,
    )


def _lack_of(side: WorkEntry, least: float, floor: float) -> float:
    """Return by what factor an error is too large to tell a slowdown of a share of the mean.

    At most 1 if it is small enough: what would have shown, and the interval, are below the share.
    """
    limit = least * side.mean
    low, high = as_float(side.low), as_float(side.high)
    shown = math.inf if side.detectable is None else as_float(side.detectable)
    if shown <= limit and high < limit:
        return 1.0
    error = (high - low) / (2 * NORMAL.q975)
    # Four times in five the interval of equal sets has to lie below it.
    factor = (NORMAL.q975 + NORMAL.q80) * error / limit
    if math.isfinite(shown):
        factor = max(factor, shown / limit)
        if least > floor:
            factor = max(factor, NORMAL.q80 * error / (limit - floor * side.mean))
    return max(factor, 1.0 + 1e-9)


def _find_unseen_percentile(detection: Detection, least: float) -> Note | None:
    gate = detection.gate
    if gate is None or gate.high is None or not gate.normal:
        return None
    limit = max(least, detection.floor_share) * gate.normal
    if gate.high < limit:
        return None
    factor = max((gate.high - max(as_float(gate.effect), 0.0)) / limit, 1.0)
    would_do = _round_up(min(gate.executions) * VERDICT.more * factor**2)
    return notes.TooNoisy(gate.high, gate.normal, limit / gate.normal, would_do, None)


def _round_up(count: float) -> int:
    """Return a count with two digits, no less than it is."""
    unit = int(10 ** max(math.floor(math.log10(max(count, 1.0))) - 1, 0))
    return math.ceil(count / unit) * unit


def is_only_waiting(detection: Detection, known: float = 0.0) -> bool:
    """Tell whether nothing became slower but waits for a cpu, and the work did not.

    Beside what a stranger is ``known`` to have made (ns), what is small may have become slower.
    """
    rest = [s for symbol, s in detection.by_symbol if symbol.state != State.WAIT_CPU and s.flagged]
    if known > 0:
        return math.fsum(s.effect for s in rest) < MACHINE.explains * known
    work = detection.work
    if work is None or detection.signs or rest:
        return False
    longer = work.effect >= detection.floor_share * work.mean
    return not (longer and as_float(work.low) > 0)


def is_unconfirmed(detection: Detection) -> bool:
    """Tell whether the figures of a verdict of OK would speak against it."""
    total = detection.states[-1]
    if total.level != ERROR:
        return False
    if total.effect <= 0:
        return False
    shown = detection.detectable is not None and total.effect >= detection.detectable
    return shown or as_float(total.effect_low) > detection.floor


def _as_machine(detection: Detection, apart: Apart) -> Iterator[Note]:
    """Yield why a slowdown is not known to be the program's, the answer first."""
    mean = detection.states[-1].normal_mean
    waits = [s for symbol, s in detection.by_symbol if symbol.state in INTERFERENCE]
    waited, whole = sum(max(s.effect, 0.0) for s in waits), detection.states[-1].effect
    rival = apart.rival
    by_others = whole > 0 and waited >= VERDICT.mostly * whole
    if by_others and rival is not None and rival.after - rival.before >= VERDICT.mostly * waited:
        yield notes.RivalHadCpu(
            rival.name, rival.before, rival.after, whole / mean if mean else 0.0
        )
    elif mean and whole > 0:
        yield notes.SlowerAsMachine(whole / mean, waiting=by_others)
    else:
        yield notes.StatesAsMachine()
    if math.isfinite(apart.beyond):
        yield notes.WithinRecordings(apart.slower, apart.beyond, apart.recordings)


def _doubts(
    outliers: Outliers,
    lossy: tuple[Bool, Bool],
    losses: tuple[Sequence[Loss], Sequence[Loss]],
    minimum: int,
    differences: Sequence[Note],
) -> list[Note]:
    """Return why no verdict can be given, nothing where one can."""
    names = ("normal", "sample")
    doubts: list[Note] = []
    for name, torn, lost in zip(names, lossy, losses, strict=True):
        affected = int(torn.sum())
        matters = affected > COMPARABILITY.lossy * len(torn)
        if name == "sample":
            matters = matters or bool(np.any(torn & outliers.anomalous))
        if matters:
            events = sum(loss.events for loss in lost), sum(loss.packets for loss in lost)
            doubts.append(notes.LossySet(name, *events, len(lost), affected, len(torn)))
    doubts += differences
    doubts += [
        notes.SmallSet(name, len(torn), minimum)
        for name, torn in zip(names, lossy, strict=True)
        if len(torn) < minimum
    ]
    return doubts


# Levels: a state decides (error), is only warned of (warn), or neither (off).


def symbol_level(symbol: Symbol | None, levels: Levels) -> str:
    """Return the level of a symbol, or of the total."""
    fitting = [
        (_specificity(pattern), place, level)
        for place, (pattern, level) in enumerate(levels)
        if _fits(pattern, symbol)
    ]
    return max(fitting)[2] if fitting else ERROR


def symbol_levels(symbols: Sequence[Symbol], levels: Levels) -> tuple[str, ...]:
    """Return the level of every symbol, and last that of the total."""
    return tuple(symbol_level(symbol, levels) for symbol in (*symbols, None))


def _fits(pattern: str, symbol: Symbol | None) -> bool:
    if symbol is None:
        return "@" not in pattern and fnmatchcase(TOTAL, pattern)
    if "@" not in pattern:
        return fnmatchcase(symbol.state.name, pattern)
    # On the execution's own thread a name has no @.
    return fnmatchcase(symbol.thread if symbol.role else f"{symbol.thread}@", pattern) and (
        bool(symbol.role) or pattern.endswith("@")
    )


def _specificity(pattern: str) -> tuple[bool, bool, int]:
    wild = sum(pattern.count(letter) for letter in "*?[")
    return "@" in pattern, not wild, len(pattern) - wild


def select_deciding(table: VectorTable, levels: Sequence[str]) -> VectorTable:
    """Return the columns of level ``error``.

    Where only the total has it: one column with the time of all, so that the total of
    everything is tested.  Where nothing has it: no column.
    """
    if ERROR not in levels[:-1] and levels[-1] == ERROR:
        sums = (
            np.asarray(c.sum(axis=1, keepdims=True), np.int64)
            for c in (table.counts, table.durations, table.structure)
        )
        return VectorTable((Symbol(State.RUN),), *sums)
    kept = np.flatnonzero([level == ERROR for level in levels[: len(table.symbols)]])
    return VectorTable(
        tuple(table.symbols[i] for i in kept),
        table.counts[:, kept],
        table.durations[:, kept],
        table.structure[:, kept],
    )


def apply_levels(
    full: Detection, decided: Detection | None, levels: Sequence[str]
) -> tuple[Detection, tuple[Note, ...]]:
    """Combine the test of the deciding states with the figures of all others.

    Parameters
    ----------
    full : Detection
        Over all states.
    decided : Detection or None
        Over the states at level ``error`` alone; None if there is none.
    levels : sequence of str
        Of every state of ``full``, the total last.

    Returns
    -------
    detection : Detection
        ``decided``, with the other states as the full test found them: they have its
        figures and its flags, but do not count in ``flagged``, ``slower`` and
        ``slight``.
    warnings : tuple of Note
        What the full test flags at level ``warn``.
    """
    base = decided or change(full, slower=(), slight=())
    alone = ERROR not in levels[:-1]
    tested = {test.state: test for test in base.states}
    states = [
        change(test, level=level)
        if level != ERROR
        else tested[test.state]
        if decided is not None
        else change(test, flagged=False)
        for test, level in zip(full.states, levels, strict=True)
    ]
    deciding = {test.state for test in states if test.level == ERROR}
    # The one column that stands for all states says what the total says.
    repeated = {
        notes.SlowerType(shift_of(c))
        for c in base.slower
        if alone and decided and c.kind >= 0 and c.name == base.states[0].state
    }
    detection = change(
        base,
        states=states,
        symbols=full.symbols,
        # A shift of the total shows nothing where the total decides nothing.
        detectable=base.detectable if states[-1].level == ERROR else None,
        flagged=any(test.flagged for test in states if test.level == ERROR),
        slower=tuple(c for c in base.slower if c.name in deciding),
        slight=tuple(c for c in base.slight if c.name in deciding),
        remarks=(*(n for n in base.remarks if n not in repeated), *_left_out(full, levels)),
        whole=None if alone or levels[-1] != ERROR else narrow(DurationTest, full.states[-1]),
    )
    return detection, tuple(
        notes.LevelWarning(_size(test, full.slower))
        for test in states
        if test.level == WARN and test.flagged
    )


def _size(test: StateEntry, slower: Sequence[Change]) -> notes.Shift:
    """Return how much slower a state is, with its p where the rule in force has one."""
    largest = next((one for one in slower if one.name == test.state), None)
    if largest is not None:
        return shift_of(largest)
    return notes.Shift(test.state, test.effect)


def _left_out(full: Detection, levels: Sequence[str]) -> tuple[Note, ...]:
    """Note which states do not decide, and what the total is with them."""
    states = tuple(
        (test.state, level)
        for test, level in zip(full.states[:-1], levels, strict=False)
        if level != ERROR
    )
    if not states:
        return ()
    total = full.states[-1]
    alone = levels[-1] == ERROR and ERROR not in levels[:-1]
    return (notes.StatesLeftOut(states, None if alone else (total.effect, total.p_value)),)
