"""What an exploration is made of: facts of executions, conditions on them, findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np

from critpath.documents.exploration import ConditionEntry, QuestionEntry
from critpath.model.table import I32, I64, Bool, Column, Lists, Table, freeze_columns
from critpath.schema.parameters.explore import CONDITIONS

FactKind = Literal["text", "number", "time"]

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
        Where there is a value; None for everywhere.  A condition on it is compared within these:
        what gunicorn did says nothing of executions that never met gunicorn.
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
    deed : bool
        Executions do it, so that it can name what distinguishes a type.
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
    deed: bool = False
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
        What one is called: ``request``, ``slice``, ``run``, ``process``, ...
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
    telling : mapping of int to Test
        Of a type, the field ``cluster``: what tells it from the others of its label.
    """

    noun: str
    id: Sequence[str]
    begin: I64
    end: I64
    recording: I32
    sources: tuple[str, ...]
    label: I32
    labels: tuple[str, ...]
    parent: I64
    facts: Mapping[str, Fact]
    telling: Mapping[int, Test] = field(default_factory=dict)

    def __post_init__(self) -> None:
        freeze_columns(self, len(self.id))

    def __len__(self) -> int:
        return len(self.id)

    def meanings_of_facts(self) -> dict[str, str]:
        """Return what the columns are that a name alone does not say, with their unit."""
        numbers = {
            "position": "its number, which ids need not be",
            "label": "a name that the specification gives",
            "begin_ns": "when it begins",
            "end_ns": "when it ends",
            "parent": "the position of what it was asked for",
        }
        units = {"time": "a time, in ns", "number": "a number"}
        return numbers | {
            name: units[fact.kind]
            for name, fact in self.facts.items()
            if fact.kind in units and name not in numbers
        }

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


class Ranked(ConditionEntry, kw_only=True):
    """A condition of the document's, as what it is of.

    Attributes
    ----------
    tests : tuple of Test
        One, or two that hold together.
    """

    tests: tuple[Test, ...]

    @property
    def sure(self) -> bool:
        """Whether chance was judged, and does not make so large a difference."""
        return self.p is not None and self.p < CONDITIONS.level


class Question(QuestionEntry, kw_only=True):
    """A question of the document's, and what a page draws of it.

    Attributes
    ----------
    ranked, parts : tuple of Ranked
        What becomes ``conditions`` and ``part``.
    within, chosen : bool [n]
        Who is in C1, and who of them in C2.
    steps, asked : Condition
        ``given`` and ``what``, regular expressions replaced by the texts that they fit.
    """

    ranked: tuple[Ranked, ...]
    parts: tuple[Ranked, ...]
    within: Bool
    chosen: Bool
    steps: tuple[Condition, ...] = ()
    asked: Condition | None = None

    @property
    def found(self) -> tuple[Ranked, ...]:
        """Return the findings: those known at the begin first."""
        holds = [one for one in self.ranked if one.sure]
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
