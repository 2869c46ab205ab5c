"""Where time goes as collapsed stacks, which flamegraph.pl, inferno and speedscope read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from critpath.errors import UsageError
from critpath.model import ChainTimes, Executions
from critpath.model.vectors import InCode, role_name
from critpath.report.exports.exported import UNSEEN, Exported
from critpath.report.palette import LOOKS
from critpath.units import safe_text

Head = tuple[str, str]  # a kind and its own thread
_NO_KIND: Final = "all"


def write_collapsed(sets: Sequence[Exported]) -> Iterator[bytes]:
    """Return the stacks of one set, or of two beside each other."""
    from critpath import vectors  # noqa: PLC0415 - numpy and the stages

    if len(sets) > 2:
        raise UsageError(
            f"collapsed stacks are of one set, or of two beside each other, not of {len(sets)}",
            "name one or two",
        )
    times = vectors.chain_times(sets[0].paths, sets[-1].paths)
    heads = tuple(_heads(one.paths.executions) for one in (sets[0], sets[-1]))
    return collapsed_stacks(times, heads, two=len(sets) == 2)


def _heads(executions: Executions) -> list[Head]:
    """Return the first frames of each execution: its kind, and its own thread by its role."""
    pairs = zip(executions.label, executions.comm, strict=True)
    return [(label or _NO_KIND, role_name(comm) or UNSEEN) for label, comm in pairs]


def collapsed_stacks(
    times: ChainTimes, heads: tuple[Sequence[Head], ...], *, two: bool
) -> Iterator[bytes]:
    """Yield a line per stack: kind, own thread, threads that are waited for, functions, state.

    Parameters
    ----------
    times : ChainTimes
    heads : two sequences of (str, str)
        The kind and own thread of each execution of both sets.
    two : bool
        Both sets are written, as mean nanoseconds of an execution of the kind, in the two columns
        that ``difffolded.pl`` has; else all nanoseconds of the first.
    """
    sums: dict[str, list[int]] = {}
    for which, (table, of) in enumerate(zip((times.normal, times.sample), heads, strict=True)):
        sizes = Counter(kind for kind, _ in of)
        for head in dict.fromkeys(of):
            rows = [row for row, one in enumerate(of) if one == head]
            found = table[rows].sum(axis=0).tolist()
            for (chain, state), time in zip(times.leaves, found, strict=True):
                names = [
                    name.function if isinstance(name, InCode) else f"waits for {name}"
                    for name in times.chains[chain]
                ]
                stack = ";".join(map(_clean, [*head, *names, LOOKS[state.name].words]))
                figures = sums.setdefault(stack, [0, 0])
                figures[which] += time // sizes[head[0]] if two else time
    for stack, figures in sorted(sums.items()):
        shown = figures if two else figures[:1]
        if any(shown):
            yield f"{stack} {' '.join(map(str, shown))}\n".encode("utf-8", "replace")


def _clean(name: str) -> str:
    """Return a name that neither ends a stack nor a line; speedscope takes blanks."""
    return safe_text(name).replace(";", ",")
