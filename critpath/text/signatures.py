"""What was counted, in a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from critpath.units import format_ns, plural, safe_text

if TYPE_CHECKING:
    from critpath.model import Counts, Signatures


def documents_counted(counts: Counts, signed: Signatures, terms: int) -> str:
    """Say what the documents are, how many terms occur in them, and how many are not judged."""
    middle = sorted(counts.hits.tolist())[len(counts) // 2] if len(counts) else 0
    lossy, quiet = int(counts.lossy.sum()), int(signed.quiet.sum())
    return (
        plural(len(counts), "run" if counts.executions else "interval")
        + (f" of {format_ns(counts.interval)}" if counts.interval else "")
        + f" in {safe_text(counts.scopes[0])}, {plural(terms, 'term')} of "
        f"{len(counts.vocabulary):,}, {middle:,} hits each"
        + (f"; {lossy} with losses" if lossy else "")
        + (f"; {quiet} quiet: too little happened to say what they are" if quiet else "")
    )
