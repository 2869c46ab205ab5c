"""What an exploration is made of: facts of executions, conditions on them, findings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np

from critpath.model.table import I32, I64, Bool, Column, Lists, Table, freeze_columns
from critpath.schema.parameters.explore import CONDITIONS

FactKind = Literal["text", "number", "time"]
Outcome = Literal["found", "nothing", "few"]

# technical: chance is judged from so many executions on, with so many of them selected; a
# condition that holds for fewer, or for all but fewer, is too rare.
FEWEST: Final = 40
FEWEST_SELECTED: Final = 10  # technical
FEWEST_WITH: Final = 10  # technical

LATENCY: Final = "latency"  # the family of facts that are parts of an execution's duration


@dataclass(frozen=True, eq=False)
class Fact:
    """One column that conditions may speak of.

    Attributes
    ----------
    name : str
        As conditions have it: ``latency``, ``cpu@gunicorn``, ``count.WAIT_CPU``.
    kind : str
        ``text``, ``number`` or ``time`` (nanoseconds).
    values : int32 or float64 array
        Codes into ``words`` of a text, else numbers; a value for each execution, or for each of
        ``rows``.
    words : tuple of str
        What the codes of a text mean.
    valid : bool array or None
        Where there is a value; None for everywhere.
    rows : int64 array or None
        The execution of every value, where one may have several or none.
    each : bool
        Candidates are its values; else they are quantiles and what is above.
    known : bool
        Known at an execution's begin (or at that of its sub-request); else it happened on the way.
    family : str
        Facts of one family are parts of each other.
    subject : str
        The name that its words are about: of ``cpu@gunicorn`` it is ``gunicorn``.
    asked : bool
        Whether conditions on it are looked at without anybody's asking for them.
    """

    name: str
    kind: FactKind
    values: Any
    words: tuple[str, ...] = ()
    valid: Bool | None = None
    rows: I64 | None = None
    each: bool = False
    known: bool = True
    family: str = ""
    subject: str = ""
    asked: bool = True

    def __post_init__(self) -> None:
        dtype = np.int32 if self.kind == "text" else np.float64
        values = np.ascontiguousarray(self.values, dtype)
        values.setflags(write=False)
        object.__setattr__(self, "values", values)


@dataclass(frozen=True, eq=False)
class FactTable(Table):
    """All facts of some executions.

    Attributes
    ----------
    noun : str
        ``request``, ``slice`` or ``execution``.
    id : tuple of str
    begin, end : int64 [n]
    recording : int32 [n]
        Index into ``sources``.
    label : int32 [n]
        Index into ``labels``: the service of requests, the label of others.
    parent : int64 [n]
        The execution whose sub-request it is, -1 for none.
    facts : mapping of str to Fact
        By name.
    """

    noun: str
    id: tuple[str, ...]
    begin: I64
    end: I64
    recording: I32
    sources: tuple[str, ...]
    label: I32
    labels: tuple[str, ...]
    parent: I64
    facts: Mapping[str, Fact]

    def __post_init__(self) -> None:
        freeze_columns(self, len(self.id))

    def __len__(self) -> int:
        return len(self.id)

    def table_columns(self) -> Mapping[str, Column]:
        """Return a row per execution; ``position`` numbers them, ``parent`` is such a number."""
        result = {
            "position": Column(np.arange(len(self))),
            "execution": Column(self.id),
            "label": Column(self.label, self.labels),
            "begin_ns": Column(self.begin),
            "end_ns": Column(self.end),
            "parent": Column(self.parent, valid=self.parent >= 0),
        }
        for name, fact in self.facts.items():
            if name in result:
                continue
            words = fact.words or (("",) if fact.kind == "text" else ())
            if fact.rows is None:
                result[name] = Column(fact.values, words, fact.valid)
            else:
                result[name] = Lists(fact.values, words, rows=fact.rows, length=len(self))
        return result


@dataclass(frozen=True)
class Test:
    """``FIELD OP VALUE``; a quantile stands as ``("p", 90.0)``, a list as a tuple."""

    field: str
    operator: str
    value: Any


@dataclass(frozen=True)
class Junction:
    """``and``, ``or``, ``not`` or ``any`` over conditions."""

    kind: Literal["and", "or", "not", "any"]
    parts: tuple[Test | Junction, ...]


Condition = Test | Junction


@dataclass(frozen=True)
class Share:
    """How many of some executions are selected, with Wilson's interval."""

    count: int
    of: int
    low: float
    high: float

    @property
    def share(self) -> float:
        """Return the count as a share."""
        return self.count / self.of if self.of else math.nan


@dataclass(frozen=True)
class Ranked:
    """A condition, and how much more (or less) of those with it are selected.

    Attributes
    ----------
    tests : tuple of Test
        One, or two that hold together.
    having, without : Share
        Of those with it and of those without it.
    difference : (float, float, float)
        Of the shares, with Newcombe's interval.
    ratio : (float, float, float)
        Of the shares (a half is added to each count), with its interval on a log scale.
    z : float
        The standardised difference.
    p : float
        Over all conditions together; NaN where chance was not judged.
    known : bool
    also : tuple of (Test tuple, bool)
        Conditions that hold for the same executions; or, if True, for all the others.
    """

    tests: tuple[Test, ...]
    having: Share
    without: Share
    difference: tuple[float, float, float]
    ratio: tuple[float, float, float]
    z: float
    p: float
    known: bool
    also: tuple[tuple[tuple[Test, ...], bool], ...] = ()


@dataclass(frozen=True)
class Question:
    """What the executions of a selection (C2) within others (C1) have in common.

    Attributes
    ----------
    given : tuple of (str, int)
        Steps to C1: each condition and how many executions are left.
    what : str
        C2 as it was asked.
    bound : float
        The least duration (ns) if C2 is such a bound, else NaN.
    label : str
        Of all executions in C1, "" if they have several.
    executions, selected : int
    outcome : str
        ``found``, ``nothing`` or ``few``.
    ranked : tuple of Ranked
        By the standardised difference, the largest first; of those that hold for the same
        executions one.
    part : tuple of Ranked
        Parts of what was selected by: not judged.
    looked, rare, left_out : int
        Conditions that were judged, were too rare, and were too many.
    shifts : int
        Circular shifts, 0 where chance was not judged.
    exact : bool
        These are all that there are.
    within, chosen : bool [n]
        Who is in C1, and who of them in C2.
    steps, asked : Condition
        ``given`` and ``what``, regular expressions replaced by the texts that they fit.
    """

    given: tuple[tuple[str, int], ...]
    what: str
    bound: float
    label: str
    executions: int
    selected: int
    outcome: Outcome
    ranked: tuple[Ranked, ...]
    part: tuple[Ranked, ...]
    looked: int
    rare: int
    left_out: int
    shifts: int
    exact: bool
    within: Bool = field(default_factory=lambda: np.zeros(0, np.bool_), compare=False)
    chosen: Bool = field(default_factory=lambda: np.zeros(0, np.bool_), compare=False)
    steps: tuple[Condition, ...] = ()
    asked: Condition | None = None

    @property
    def found(self) -> tuple[Ranked, ...]:
        """Return the findings: those known at the begin first."""
        holds = [one for one in self.ranked if one.p < CONDITIONS.level]
        return tuple(sorted(holds, key=lambda one: not one.known))

    @property
    def best(self) -> Ranked | None:
        """Return the finding that a headline tells: more often rather than less."""
        more = [one for one in self.found if one.z > 0]
        return next(iter(more or self.found), None)


@dataclass(frozen=True, eq=False)
class Exploration:
    """All questions that were asked of some executions."""

    facts: FactTable
    questions: tuple[Question, ...]
    notes: tuple[str, ...] = ()
    tables: Mapping[str, Table] = field(default_factory=dict)
