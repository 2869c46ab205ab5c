"""What a gate may fail for: the levels of states, and the decision without the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

import numpy as np

from critpath.detect.verdict import told
from critpath.model import Change, Detection, State, StateTest, Symbol, VectorTable
from critpath.units import format_ns, plural

ERROR, WARN = "error", "warn"
TOTAL = "total"
_LISTED = 6

Levels = Sequence[tuple[str, str]]


def level_of(symbol: Symbol | None, levels: Levels) -> str:
    """Return the level of a symbol, or of the total.

    Parameters
    ----------
    symbol : Symbol or None
        None for the total.
    levels : sequence of (str, str)
        Patterns and levels.  A pattern without ``@`` is a state in every thread, one
        with ``@`` is matched against the symbol's name, and ``STATE@`` is the state in
        the execution's own thread.

    Returns
    -------
    str
        That of the most specific pattern: with ``@`` before without, without wildcards
        before with, more letters before fewer, the later before the earlier; ``error``
        if none fits.
    """
    fitting = [
        (_specific(pattern), place, level)
        for place, (pattern, level) in enumerate(levels)
        if _fits(pattern, symbol)
    ]
    return max(fitting)[2] if fitting else ERROR


def levels_of(symbols: Sequence[Symbol], levels: Levels) -> tuple[str, ...]:
    """Return the level of every symbol, and last that of the total."""
    return tuple(level_of(symbol, levels) for symbol in (*symbols, None))


def _fits(pattern: str, symbol: Symbol | None) -> bool:
    if symbol is None:
        return "@" not in pattern and fnmatchcase(TOTAL, pattern)
    if "@" not in pattern:
        return fnmatchcase(symbol.state.name, pattern)
    # Of the thread itself a name has no @.
    return fnmatchcase(symbol.name if symbol.role else f"{symbol.name}@", pattern) and (
        bool(symbol.role) or pattern.endswith("@")
    )


def _specific(pattern: str) -> tuple[bool, bool, int]:
    wild = sum(pattern.count(letter) for letter in "*?[")
    return "@" in pattern, not wild, len(pattern) - wild


def only(table: VectorTable, levels: Sequence[str]) -> VectorTable:
    """Return a table with the columns whose level is ``error``."""
    kept = np.flatnonzero([level == ERROR for level in levels[: len(table.symbols)]])
    return VectorTable(
        tuple(table.symbols[i] for i in kept),
        table.counts[:, kept],
        table.durations[:, kept],
        table.structure[:, kept],
    )


def deciding(table: VectorTable, levels: Sequence[str]) -> VectorTable:
    """Return the table that a decision rests on.

    Parameters
    ----------
    table : VectorTable
    levels : sequence of str
        Of every symbol, the total last.

    Returns
    -------
    VectorTable
        The columns whose level is ``error``.  Where only the total's is: one column with
        the time of all, so that the total of everything is what is tested.  Where not
        even that: no column.
    """
    if ERROR in levels[:-1] or levels[-1] != ERROR:
        return only(table, levels)
    sums = (
        np.asarray(c.sum(axis=1, keepdims=True), np.int64)
        for c in (table.counts, table.durations, table.structure)
    )
    return VectorTable((Symbol(State.RUN),), *sums)


def with_levels(
    full: Detection, decided: Detection | None, levels: Sequence[str]
) -> tuple[Detection, tuple[str, ...]]:
    """Put together what decides and what is only shown.

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
    warnings : tuple of str
        What the full test flags at level ``warn``.
    """
    base = decided or replace(full, slower=(), slight=())
    alone = ERROR not in levels[:-1]
    mine = {test.name: test for test in base.states}
    states = tuple(
        replace(test, level=level)
        if level != ERROR
        else mine[test.name]
        if decided is not None
        else replace(test, flagged=False)
        for test, level in zip(full.states, levels, strict=True)
    )
    deciding = {test.name for test in states if test.level == ERROR}
    notes = (*base.notes, *_left_out(full, levels))
    detection = replace(
        base,
        states=states,
        # A shift of the total shows nothing where the total decides nothing.
        detectable=base.detectable if states[-1].level == ERROR else None,
        flagged=any(test.flagged for test in states if test.level == ERROR),
        slower=tuple(c for c in base.slower if c.name in deciding),
        slight=tuple(c for c in base.slight if c.name in deciding),
        notes=notes,
        whole=None if alone or levels[-1] != ERROR else full.states[-1],
    )
    return detection, tuple(
        f"{_size(test, full.slower)}: level warn"
        for test in states
        if test.level == WARN and test.flagged
    )


def _size(test: StateTest, slower: Sequence[Change]) -> str:
    largest = next((change for change in slower if change.name == test.name), None)
    if largest is not None:
        return told(largest)
    # Flagged by the paper's rules, which give no p.
    return f"{test.name} is {format_ns(test.effect, sign=True)} an execution"


def _left_out(full: Detection, levels: Sequence[str]) -> tuple[str, ...]:
    """Say what does not decide, and what the total is with it."""
    states = zip(full.states[:-1], levels, strict=False)
    names = [f"{test.name} ({level})" for test, level in states if level != ERROR]
    if not names:
        return ()
    listed = ", ".join(names[:_LISTED])
    if len(names) > _LISTED:
        listed += f" and {plural(len(names) - _LISTED, 'more state')}"
    if levels[-1] == ERROR and ERROR not in levels[:-1]:
        return (f"only the total decides, of the time of all states: {listed}",)
    total = full.states[-1]
    effect = f"{format_ns(total.effect, sign=True)} (p = {total.p_value:.2g})"
    return (f"left out of the decision: {listed}; with them the total is {effect}",)
