"""Group the findings of several executions by what they have in common."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from critpath.localize.candidates import ENOUGH_NORMALS, ORDINARY
from critpath.localize.grouping import group_findings
from critpath.localize.phrases import UNSEEN
from critpath.localize.sentences import Member, main_member, sentence
from critpath.localize.surroundings import Surroundings
from critpath.model import Cause, Finding
from critpath.units import plural

MINOR = 0.05  # of the whole excess: less is said in one line
UNSEEN_COUNTS = 0.5  # what was not observed comes after what was, if that is half as much


@dataclass(frozen=True)
class Explained:
    """An anomalous execution whose findings are grouped.

    Attributes
    ----------
    execution : int
        Position in the sample set.
    excess : float
        Nanoseconds over its normal group's mean.
    normals : int
        Size of the group it was aligned with.
    """

    execution: int
    excess: float
    normals: int


def group_causes(
    findings: Sequence[Finding],
    executions: Sequence[Explained],
    total: int,
    *,
    kind: str = "",
    around: Sequence[Surroundings] = (),
    quota: bool = False,
    flagged: Collection[str] = (),
) -> tuple[Cause, ...]:
    """Make a cause of every group of findings.

    Each execution counts once in a cause: its findings there are summed.

    Parameters
    ----------
    findings : sequence of Finding
        Of all anomalous executions.
    executions : sequence of Explained
        Every anomalous execution, with findings or not.
    total : int
        Executions in the sample set, for "4 of 11".
    kind : str
        What these executions are, where they are not all: "examined".
    around : sequence of Surroundings
        Of every finding, for "in system call read, after `helper` woke it".
    quota : bool
        A CPU quota held somebody back while the sample was recorded, and nobody before:
        who had the cpu then is perhaps not to blame.
    flagged : collection of str
        Symbols on which the verdict rests where no execution stands out alone: what is
        slower in them comes first.

    Returns
    -------
    tuple of Cause
        By summed contribution times the square root of how many executions bear it out,
        the largest slow-down first: one execution that the disk held up for 300 ms is no
        more the cause than twelve of eleven milliseconds each.  In this order what was
        not observed counts half, and what normal executions do as well a quarter, where
        enough of them were aligned to tell.
    """
    normals = {e.execution: e.normals for e in executions}
    excess = sum(e.excess for e in executions if e.excess > 0)
    of_all = plural(total, f"{kind} execution".strip())
    groups = [
        [
            Member(
                place,
                findings[place],
                around[place] if around else Surroundings(),
                findings[larger].symbol,
                moved=place != larger,
            )
            for place, larger in group
        ]
        for group in group_findings(findings)
    ]

    enough = {e.execution for e in executions if e.normals >= ENOUGH_NORMALS}

    def ordinary(finding: Finding) -> float:
        return ORDINARY if finding.execution in enough and not finding.abnormal else 1.0

    def weight(members: list[Member]) -> float:
        borne_out = len({m.finding.execution for m in members})
        seen = UNSEEN_COUNTS if main_member(members).counts_as.state in UNSEEN else 1.0
        # fsum: the same whatever the order of the executions.
        net = math.fsum(m.finding.contribution * ordinary(m.finding) for m in members)
        if not any(m.moved for m in members):
            # Of what may have moved, half: it may also be what made room for the other.
            net -= math.fsum(m.finding.offset * ordinary(m.finding) for m in members) / 2
        return net * math.sqrt(borne_out) * (seen if net > 0 else 1.0)

    def rank(members: list[Member]) -> tuple[bool, float]:
        weighs = weight(members)
        told = weighs > 0 and any(m.finding.symbol.name in flagged for m in members)
        return not told, -weighs

    groups.sort(key=rank)
    return tuple(
        _cause(members, normals, of_all, excess, first=not number, quota=quota)
        for number, members in enumerate(groups)
    )


def in_order_of_causes(
    findings: Sequence[Finding], causes: Sequence[Cause]
) -> tuple[tuple[Finding, ...], tuple[Cause, ...]]:
    """Put the findings of the first cause first, so that a list of them reads like the answer.

    Returns
    -------
    findings : tuple of Finding
        Within a cause by contribution.
    causes : tuple of Cause
        The same, referring to the findings' new places.
    """
    order = [
        place
        for cause in causes
        for place in sorted(cause.findings, key=lambda p: (-abs(findings[p].contribution), p))
    ]
    place_of = {old: new for new, old in enumerate(order)}
    return tuple(findings[old] for old in order), tuple(
        replace(
            cause,
            findings=tuple(sorted(place_of[p] for p in cause.findings)),
            main=place_of[cause.main],
        )
        for cause in causes
    )


def _cause(
    members: list[Member],
    normals: dict[int, int],
    of_all: str,
    excess: float,
    *,
    first: bool,
    quota: bool,
) -> Cause:
    executions = sorted({m.finding.execution for m in members})
    whole = math.fsum(m.finding.contribution for m in members)
    each = whole / len(executions)
    return Cause(
        sentence=sentence(members, normals, of_all, each=each, quota=quota),
        findings=tuple(m.place for m in members),
        executions=tuple(executions),
        contribution=each,
        share=whole / excess if excess > 0 else float("nan"),
        main=main_member(members).place,
        minor=not first and abs(whole) < MINOR * excess,
    )
