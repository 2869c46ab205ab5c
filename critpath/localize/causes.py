"""Group the findings of several executions by what they have in common."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from critpath.localize.findings import detail_family
from critpath.localize.phrases import describe, describe_before
from critpath.model import RUNNING, Cause, Finding, Symbol
from critpath.units import format_ns, plural


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
    findings: Sequence[Finding], executions: Sequence[Explained], total: int
) -> tuple[Cause, ...]:
    """Group findings that have sign, symbol and detail (numbers taken out) in common.

    Each execution counts once in a cause: its findings there are summed.

    Parameters
    ----------
    findings : sequence of Finding
        Of all anomalous executions.
    executions : sequence of Explained
        Every anomalous execution, with findings or not.
    total : int
        Executions in the sample set, for "4 of 11".

    Returns
    -------
    tuple of Cause
        By summed contribution, the largest slow-down first.
    """
    known = {e.execution: e for e in executions}
    groups: defaultdict[tuple[bool, Symbol, str], list[int]] = defaultdict(list)
    for place, finding in enumerate(findings):
        # What a thread does while it runs is not another cause for each system call.
        detail = "" if finding.symbol.state in RUNNING else detail_family(finding.detail)
        groups[finding.contribution > 0, finding.symbol, detail].append(place)

    def summed(places: list[int]) -> float:
        return sum(findings[p].contribution for p in places)

    ordered = sorted(groups.items(), key=lambda item: (-summed(item[1]), item[0]))
    return tuple(
        _cause(places, [findings[p] for p in places], known, total) for _, places in ordered
    )


def _cause(
    places: list[int], findings: list[Finding], known: dict[int, Explained], total: int
) -> Cause:
    members = sorted({f.execution for f in findings})
    size = len(members)
    each = sum(f.contribution for f in findings) / size
    excess = sum(known[e].excess for e in members)
    what = describe(
        findings[0].symbol.state,
        _heaviest([(f.detail, abs(f.contribution)) for f in findings]),
        _thread(findings),
    )
    less = "" if each > 0 else "less: "
    sentence = (
        f"{size} of {plural(total, 'execution')}, {format_ns(each, sign=True)} each:"
        f" {less}{what}{_before(findings)} ({_difference(findings, size, known)})"
    )
    return Cause(
        sentence=sentence,
        findings=tuple(places),
        executions=tuple(members),
        contribution=each,
        share=each * size / excess if excess > 0 else float("nan"),
    )


def _heaviest(pairs: list[tuple[str, float]]) -> str:
    """Return the text with the largest summed weight, the least of equals."""
    tally: defaultdict[str, float] = defaultdict(float)
    for text, weight in pairs:
        tally[text] += weight
    return max(sorted(tally), key=tally.__getitem__)


def _thread(findings: list[Finding]) -> str:
    """Return the other thread's name, its role where no name is known, "" for the own."""
    role = findings[0].symbol.role
    if not role:
        return ""
    return _heaviest([(f.comm or role, abs(f.contribution)) for f in findings])


def _before(findings: list[Finding]) -> str:
    """Say what came before if at least half of the findings agree on it."""
    name, count = max(sorted(Counter(f.before for f in findings).items()), key=lambda x: x[1])
    return describe_before(name) if 2 * count >= len(findings) else ""


def _difference(findings: list[Finding], size: int, known: dict[int, Explained]) -> str:
    """Say what is normal there and what is now: means over the executions."""
    observed = sum(f.observed for f in findings) / size
    expected = sum(f.expected for f in findings) / size
    now = f"now {format_ns(observed)}" if observed > 0 else "now not at all"
    # A finding's probability is a count of normal executions over their number; the
    # largest finding of each execution speaks for it.
    main: dict[int, Finding] = {}
    for f in sorted(findings, key=lambda f: abs(f.contribution)):
        main[f.execution] = f
    counts = {(round(f.probability * known[e].normals), known[e].normals) for e, f in main.items()}
    if all(have == 0 for have, _ in counts):
        return f"never in {_normals({of for _, of in counts})}; {now}"
    if len(counts) == 1:
        ((have, of),) = counts
        where = f"in {have} of {of}"
    else:
        have, of = sum(h for h, _ in counts), sum(n for _, n in counts)
        where = f"in {100 * have / of:.0f} %"
    return f"normally {format_ns(expected)} here, {where}; {now}"


def _normals(sizes: set[int]) -> str:
    if len(sizes) == 1:
        (size,) = sizes
        return plural(size, "normal execution")
    return f"{min(sizes)} to {max(sizes)} normal executions"
