"""Where time goes as collapsed stacks, which flamegraph.pl, inferno and speedscope read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from critpath.errors import UsageError
from critpath.model import ChainTimes
from critpath.model.vectors import InCode
from critpath.report.exports.exported import Exported
from critpath.report.palette import LOOKS
from critpath.units import safe_text


def write_collapsed(sets: Sequence[Exported]) -> Iterator[bytes]:
    """Return the stacks of one set, or of two beside each other."""
    from critpath import vectors  # noqa: PLC0415 - numpy and the stages

    if len(sets) > 2:
        raise UsageError(
            f"collapsed stacks are of one set, or of two beside each other, not of {len(sets)}",
            "name one or two",
        )
    return collapsed_stacks(vectors.chain_times(sets[0].paths, sets[-1].paths), two=len(sets) == 2)


def collapsed_stacks(times: ChainTimes, *, two: bool) -> Iterator[bytes]:
    """Yield a line per stack: threads that are waited for, functions, state; and its time.

    Parameters
    ----------
    times : ChainTimes
    two : bool
        Both sets are written, as mean nanoseconds of an execution, in the two columns that
        ``difffolded.pl`` has; else all nanoseconds of the first.
    """
    normal, sample = (table.sum(axis=0).tolist() for table in (times.normal, times.sample))
    sizes = max(len(times.normal), 1), max(len(times.sample), 1)
    lines = []
    for (chain, state), before, after in zip(times.leaves, normal, sample, strict=True):
        names = [
            name.function if isinstance(name, InCode) else f"waits for {name}"
            for name in times.chains[chain]
        ]
        stack = ";".join(_clean(name) for name in ["all", *names, LOOKS[state.name].words])
        figures = (before // sizes[0], after // sizes[1]) if two else (before,)
        if any(figures):
            lines.append(f"{stack} {' '.join(map(str, figures))}\n")
    yield from (line.encode("utf-8", "replace") for line in sorted(lines))


def _clean(name: str) -> str:
    """Return a name that neither ends a stack nor a line; speedscope takes blanks."""
    return safe_text(name).replace(";", ",")
