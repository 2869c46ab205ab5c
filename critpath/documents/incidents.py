"""An incident: what became slower in a dump; and what `critpath incidents` remembers."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import ValidationError, convert, field

from critpath.documents.base import Maybe, MaybePair, Part, Span, doc
from critpath.documents.causes import CauseFacts

INCIDENT_FORMAT: Final = "critpath/incident/1"

HeldAgainst = Literal["usual", "before-deploy", "dump", ""]


class TriggerEntry(Part):
    """Why a dump was made."""

    when: Annotated[str, doc("the condition, command or usual")]
    value: Annotated[str, doc("what was seen, or the reason given")] = ""
    kind: Annotated[str, doc("kind of run, signal or resource")] = ""


class DumpEntry(Part):
    """A dump of a flight recorder."""

    path: Annotated[str, doc("where it was; it may be removed by now")]
    bytes: Annotated[int, doc("of its files")]


class UsualEntry(Part):
    """What a dump was held against."""

    of: Annotated[
        HeldAgainst,
        doc("what was kept; that of before a deployment; what the dump has of before; '': nothing"),
    ]
    files: Annotated[list[str], doc("baselines, below the directory of incidents")] = []
    recorded: Annotated[list[str], doc("when its recordings began (UTC)")] = []
    executions: Annotated[int, doc("how many")] = 0
    deployed: Annotated[list[str], doc("programs that are others than then")] = []


class IncidentDocument(Part, kw_only=True):
    """What critpath incidents writes of a dump: facts, and the sentence that people read."""

    format: Annotated[Literal["critpath/incident/1"], doc("name and version of this format")]
    version: Annotated[str, doc("version of critpath that wrote it")]
    id: Annotated[str, doc("its directory: the name of its first dump")]
    when: Annotated[str, doc("when it was noticed (UTC)")]
    last: Annotated[str, doc("when it was noticed last (UTC)")]
    count: Annotated[int, doc("how often it was noticed, each within an hour of the one before")]
    host: Annotated[str, doc("where; '' if not known")]
    container: Annotated[str, doc("of the runs; '' for none or several")] = ""
    program: Annotated[str, doc("whose runs became slower; '' for several")] = ""
    kind: Annotated[str, doc("which kind of runs; '' for no single one")] = ""
    trigger: Annotated[TriggerEntry, doc("why the first dump was made")]
    verdict: Annotated[Literal["ok", "anomaly", "by_machine", "inconclusive"], doc("the answer")]
    code: Annotated[int, doc("exit code of critpath compare that goes with it")]
    executions: Annotated[Span, doc("of this kind, usually and in the dump")] = field(
        default_factory=lambda: [0, 0]
    )
    p50: Annotated[MaybePair, doc("median before and after (ns)")] = field(
        default_factory=lambda: [None, None]
    )
    p95: Annotated[MaybePair, doc("95th percentile (ns), null with fewer than 20 of a side")] = (
        field(default_factory=lambda: [None, None])
    )
    p99: Annotated[MaybePair, doc("99th percentile (ns), null with fewer than 100 of a side")] = (
        field(default_factory=lambda: [None, None])
    )
    cause: Annotated[CauseFacts | None, doc("the first cause; null for none")] = None
    probability: Annotated[Maybe, doc("how likely it is what made them slower; null: unknown")] = (
        None
    )
    sentence: Annotated[str, doc("the answer in a sentence")]
    usual: Annotated[UsualEntry, doc("what it was held against")]
    known: Annotated[str, doc("what a store of signatures calls it; '' if not known")] = ""
    dump: Annotated[DumpEntry, doc("the first dump")]
    dumps: Annotated[list[str], doc("names of all its dumps")] = []
    page: Annotated[str, doc("the report beside this file; '' for none")] = ""


class LookingState(Part, kw_only=True, forbid_unknown_fields=True):
    """What critpath incidents keeps in mind from one dump to the next, in its state.json."""

    seen: list[str] = []  # dumps that were looked at and are still there
    trying: str = ""  # the dump that is looked at now
    age: int = 0  # how many deployments there were
    programs: dict[
        str, str
    ] = {}  # by names of threads: file, when the last began, how often all anew
    deployed: list[str] = []  # of these, which were others last
    unlike: str = ""  # since when dumps of what is usual are unlike it (UTC)
    alarms: list[tuple[int, int]] = []  # the last times of what is not usual (s since 1970)
    told: bool = False  # that there is nothing to hold dumps against was said
    lost: int = 0  # messages that could not be delivered

    @classmethod
    def read(cls, plain: object) -> LookingState | None:
        """Return what a file says, None for what is damaged."""
        try:
            return convert(plain, cls)
        except ValidationError:
            return None
