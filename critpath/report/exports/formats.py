"""The formats of other programs, one row each: what it is made of, and which function writes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any, Final

from msgspec import Struct, field

from critpath.extras import require

# What a format can be made of.
ALIGNMENTS, PATHS, WINDOW = "alignments", "paths", "window"


class Format(Struct, frozen=True):
    """How one format is written.

    Attributes
    ----------
    of : str
        ``alignments`` (of a saved comparison), ``paths`` or ``window``.
    writer : str
        A module of this room and its function, which takes what `of` says and returns the file
        piece by piece, or as one text.  It is imported when it is asked for.
    endings : tuple of str
        File names that ask for it.
    several : bool
        A file may hold more than one alignment or path.
    binary : bool
        Nothing for a terminal.
    more : mapping
        What the function is told besides.
    extra : str
        Which extra it needs; "" for none.
    """

    of: str
    writer: str
    endings: tuple[str, ...]
    several: bool = True
    binary: bool = False
    more: Mapping[str, str] = field(default_factory=dict)
    extra: str = ""

    def check(self, name: str) -> None:
        """Raise UsageError where what it needs is not installed; it is called so."""
        if self.extra:
            require(f"the format {name}", self.extra)

    def render(self, *given: Any, **asked: Any) -> Iterable[bytes]:
        """Return the file piece by piece, of what the format is made of."""
        module, _, function = self.writer.partition(".")
        write = getattr(import_module(f"{__package__}.{module}"), function)
        pieces: Iterable[bytes] | str = write(*given, **asked, **self.more)
        return [pieces.encode("utf-8", "replace")] if isinstance(pieces, str) else pieces


_ALIGNED: Final = "alignments.write_alignments"
FORMATS: Final[dict[str, Format]] = {
    "perfetto": Format(
        PATHS, "as_perfetto.perfetto_trace", (".pftrace", ".perfetto-trace"), binary=True
    ),
    "speedscope": Format(PATHS, "as_speedscope.speedscope_profiles", (".speedscope.json",)),
    "collapsed": Format(PATHS, "as_collapsed.write_collapsed", (".collapsed", ".folded")),
    "segments": Format(
        PATHS, "as_parquet.segments_parquet", (".parquet",), binary=True, extra="parquet"
    ),
    "vectors": Format(
        PATHS, "as_parquet.write_vectors", (".parquet",), binary=True, extra="parquet"
    ),
    "graphml": Format(
        WINDOW, "as_graphml.write_window", (".graphml",), several=False, extra="graph"
    ),
    "fasta": Format(
        *(ALIGNMENTS, _ALIGNED, (".fasta", ".fa", ".afa")),
        several=False,
        more={"as_": "fasta"},
        extra="alignments",
    ),
    "clustal": Format(
        *(ALIGNMENTS, _ALIGNED, (".aln", ".clustal")),
        several=False,
        more={"as_": "clustal"},
        extra="alignments",
    ),
    "stockholm": Format(
        *(ALIGNMENTS, _ALIGNED, (".sto", ".stk", ".stockholm")),
        more={"as_": "stockholm"},
        extra="alignments",
    ),
    "newick": Format(
        ALIGNMENTS, "alignments.write_newick", (".nwk", ".newick", ".tree"), extra="alignments"
    ),
}
