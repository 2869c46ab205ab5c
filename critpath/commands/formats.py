"""The formats of other programs that ``export`` and ``path`` write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from critpath.commands.output import STDOUT
from critpath.errors import UsageError
from critpath.units import plural

if TYPE_CHECKING:
    from critpath.documents import AlignedEntry, ComparisonDocument
    from critpath.model import PathSet
    from critpath.report.exports import Exported

# What a format can be made of.
ALIGNMENTS, PATHS, WINDOW = "alignments", "paths", "window"


@dataclass(frozen=True)
class Format:
    """How one format is written.

    Attributes
    ----------
    of : str
        ``alignments`` (of a saved comparison), ``paths`` or ``window``.
    render : callable
        Takes what `of` says, returns the file piece by piece.
    endings : tuple of str
        File names that ask for it.
    several : bool
        A file may hold more than one alignment or path.
    binary : bool
        Nothing for a terminal.
    """

    of: str
    render: Callable[..., Iterable[bytes]]
    endings: tuple[str, ...]
    several: bool = True
    binary: bool = False


def _alignments(
    document: ComparisonDocument, aligned: Sequence[AlignedEntry], as_: str
) -> Iterable[bytes]:
    from critpath.report.exports import write_alignments  # noqa: PLC0415 - start-up time

    yield write_alignments(document, aligned, as_).encode("utf-8", "replace")


def _trees(_: ComparisonDocument, aligned: Sequence[AlignedEntry]) -> Iterable[bytes]:
    from critpath.report.exports import write_trees  # noqa: PLC0415 - start-up time

    yield write_trees(aligned).encode("utf-8", "replace")


def _perfetto(sets: Sequence[Exported]) -> Iterable[bytes]:
    from critpath.report.exports import perfetto_trace  # noqa: PLC0415 - start-up time

    return perfetto_trace(sets)


def _speedscope(sets: Sequence[Exported]) -> Iterable[bytes]:
    from critpath.report.exports import speedscope_profiles  # noqa: PLC0415 - start-up time

    return speedscope_profiles(sets)


def _write_collapsed(sets: Sequence[Exported]) -> Iterable[bytes]:
    from critpath import vectors  # noqa: PLC0415 - numpy and the stages
    from critpath.report.exports import collapsed_stacks  # noqa: PLC0415 - start-up time

    if len(sets) > 2:
        raise UsageError(
            f"collapsed stacks are of one set, or of two beside each other, not of {len(sets)}",
            "name one or two",
        )
    return collapsed_stacks(vectors.chain_times(sets[0].paths, sets[-1].paths), two=len(sets) == 2)


def _segments(sets: Sequence[Exported]) -> Iterable[bytes]:
    from critpath.report.exports import segments_parquet  # noqa: PLC0415 - start-up time

    return segments_parquet(sets)


def _vectors(sets: Sequence[Exported]) -> Iterable[bytes]:
    from critpath import vectors  # noqa: PLC0415 - numpy and the stages
    from critpath.report.exports import vectors_parquet  # noqa: PLC0415 - start-up time

    return vectors_parquet(sets, vectors.tables_of([one.paths for one in sets]))


def _graphml(
    source: Path, settings: Any, *, tell: Callable[[str], None], **of: Any
) -> Iterable[bytes]:
    from critpath.graph import window  # noqa: PLC0415 - numpy and the stages
    from critpath.report.exports import graphml  # noqa: PLC0415 - start-up time

    if settings["max-memory"]:
        tell("graphml has the whole recording in memory: --max-memory is not heeded")
    graph, timelines = window(source, reader=settings["reader"], **of)
    vertices, threads = graph.graph.get("left_out", (0, 0))
    if vertices:
        tell(
            f"{plural(vertices, 'vertex')} of {plural(threads, 'thread')} beside the path "
            f"left out, {len(graph):,} written; --all-threads has all"
        )
    return graphml(graph, timelines)


FORMATS: Final[dict[str, Format]] = {
    "perfetto": Format(PATHS, _perfetto, (".pftrace", ".perfetto-trace"), binary=True),
    "speedscope": Format(PATHS, _speedscope, (".speedscope.json",)),
    "collapsed": Format(PATHS, _write_collapsed, (".collapsed", ".folded")),
    "segments": Format(PATHS, _segments, (".parquet",), binary=True),
    "vectors": Format(PATHS, _vectors, (".parquet",), binary=True),
    "graphml": Format(WINDOW, _graphml, (".graphml",), several=False),
    "fasta": Format(
        ALIGNMENTS, partial(_alignments, as_="fasta"), (".fasta", ".fa", ".afa"), several=False
    ),
    "clustal": Format(
        ALIGNMENTS, partial(_alignments, as_="clustal"), (".aln", ".clustal"), several=False
    ),
    "stockholm": Format(
        ALIGNMENTS, partial(_alignments, as_="stockholm"), (".sto", ".stk", ".stockholm")
    ),
    "newick": Format(ALIGNMENTS, _trees, (".nwk", ".newick", ".tree")),
}
# Who asks for networkx wants the graph; GraphML is how networkx writes and reads one.
_ALSO: Final = {"networkx": "graphml"}


def format_name(text: str) -> str:
    """Return the name of a format, by any of its names."""
    return _ALSO.get(text, text)


def format_by_ending(place: str, among: Iterable[str]) -> str:
    """Return the format that a file's name asks for."""
    among = list(among)
    name = Path(place).name.lower()
    found = [known for known in among if known in FORMATS and name.endswith(FORMATS[known].endings)]
    if len(found) == 1 and place != STDOUT:
        return found[0]
    if len(found) > 1:
        raise UsageError(
            f"the name {place} says {' or '.join(found)}", f"add --format {'|'.join(found)}"
        )
    raise UsageError(
        "which format to write is not said"
        if place == STDOUT
        else f"the name {place} does not say which format to write",
        f"add --format {'|'.join(among)}",
    )


def export_paths(paths: PathSet, name: str) -> Exported:
    """Return critical paths as what the formats of paths take."""
    from critpath.report.exports import Exported  # noqa: PLC0415 - start-up time

    return Exported(name, paths)
