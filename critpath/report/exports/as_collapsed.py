"""Where time goes as collapsed stacks, which flamegraph.pl, inferno and speedscope read."""

from __future__ import annotations

from collections.abc import Iterator

from critpath.model import ChainTimes
from critpath.model.vectors import InCode
from critpath.report.palette import LOOKS
from critpath.units import safe_text


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
