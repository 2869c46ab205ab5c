"""What sentences without an id tell: of recorders, of recordings, of files of earlier versions.

Who reads these has no record of them, only words; here alone they are looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from critpath.model import State
from critpath.model.details import IDLE
from critpath.model.vectors import name_family
from critpath.schema.causes import BY_ID, CauseKind, Signs, find_kind
from critpath.schema.notes import LEVELS, UNNAMED, Level, Note, OfSet, Remark

if TYPE_CHECKING:
    from critpath.documents import CauseEntry, CauseFacts, ComparisonDocument

# Compiled as looked for: most remarks have an id.
_KNOWN: Final = {
    "some-examined": r"slow \w+ were examined, evenly spread",
    "labelled-by-field": r"are labelled by field",
    "execution-in-memory": r"^an \w+ of .* was in memory as a whole",
    "recording-in-memory": r"was in memory as a whole",
    "recorder-note": r"^note: ",
    "execution-chosen": r"no --execution given: used ",
    "tracefs-mounted": r"tracefs was not mounted",
    "clock-aligned": r"clocks: [^;]+ aligned with [^;]+, within [^;]+$",
    "one-clock": r"clocks: [^;]+ one kernel's: one clock$",
    "hosts-as-one": r"^recordings of the hosts ",
    "claim-held": r"the operating systems say [^;]+; the messages allow that$",
    "requests-found": (
        r"requests: [\d,]+ of [\d,]+ services?; when they began is certain for 100 %"
        r"(; what they asked is (certain|likely) for [^;,]*(, likely for [^;,]*)?)?$"
    ),
    "gone-clients": r"^[\d,]+ of [\d,]+ requests before (is|are) of ",
    "new-clients": r"^[\d,]+ of [\d,]+ requests after are of .* did not ask before",
    "new-services": r"^[\d,]+ of [\d,]+ requests after (is|are) of ",
}


def recognize(sentence: str) -> str:
    """Return the id of what a sentence says, `UNNAMED` for what nobody asks for."""
    return next((name for name, of in _KNOWN.items() if re.search(of, sentence)), UNNAMED)


def identify(remark: Remark) -> str:
    """Return the id of a note."""
    said = remark.said if isinstance(remark, OfSet) else remark
    return said.id if isinstance(said, Note) else recognize(said)


def identify_all(remarks: Iterable[Remark]) -> list[str]:
    """Return the ids of notes."""
    return [identify(remark) for remark in remarks]


def find_level(remark: Remark) -> Level:
    """Return what a reader should make of a note."""
    return LEVELS.get(identify(remark), "warning")


def has_warning(document: ComparisonDocument, name: str) -> bool:
    """Tell whether a document warns of something, by its id."""
    return name in _warning_ids(document)


def warnings_with_levels(document: ComparisonDocument) -> list[tuple[str, Level]]:
    """Return the warnings of a document, which may be one of an earlier version."""
    levels = [LEVELS.get(name, "warning") for name in _warning_ids(document)]
    return list(zip(document.warnings, levels, strict=True))


def _warning_ids(document: ComparisonDocument) -> list[str]:
    ids = document.warning_ids
    if len(ids) == len(document.warnings):
        return ids
    return [recognize(warning) for warning in document.warnings]


def kind_of(document: ComparisonDocument, cause: CauseEntry, facts: CauseFacts) -> CauseKind:
    """Return the kind of a cause, which may be of an earlier version, or of a later one."""
    return BY_ID.get(facts.cause_id) or find_kind(
        State[facts.state], _read_signs(document, cause, facts)
    )


def _read_signs(document: ComparisonDocument, cause: CauseEntry, facts: CauseFacts) -> Signs:
    findings = document.findings
    main = findings[cause.main] if 0 <= cause.main < len(findings) else None
    detail = main.detail if main and main.state == facts.state else ""
    inferred = facts.certainty == "inferred"
    ours = False
    if not facts.role and facts.peer:
        own = {*map(name_family, {*document.column("sample", "comm").tolist()})}
        ours = name_family(facts.peer) in own
    return Signs(
        rival=bool(facts.peer) and not (facts.role and facts.peer == facts.comm),
        ours=ours,
        idle=detail == IDLE and not inferred,
        late=True,
        quota=inferred,
        local=False if facts.local is None and facts.certainty != "unknown" else facts.local,
        timer=detail,
    )
