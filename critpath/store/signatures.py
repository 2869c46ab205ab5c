"""Counts and signatures in one Parquet file: a row per document and term that occurs in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from msgspec import Struct

from critpath.extras import require
from critpath.files import atomic
from critpath.model.signatures import LONGEST_TERM, Counts
from critpath.store.reading import check_pages
from critpath.stores import open_file
from critpath.untrusted import load_json, refuse_damaged

if TYPE_CHECKING:
    from critpath.model.signatures import Signatures

_FORMAT: Final = "critpath/signatures/1"
_KEY: Final = b"critpath"
_MOST_NAMES: Final = 65_536
_MOST_DOCUMENTS: Final = 10_000_000
_DO: Final = "make it again: critpath signature RECORDING -o FILE.parquet"


class CountsFile(Struct, frozen=True):
    """A file of counts, with the weights that signatures make of them."""

    file: Path

    def save(self, counts: Counts, signatures: Signatures) -> None:
        """Write counts, with the weights that signatures make of them; equal input, equal bytes.

        The file's own description has what rows cannot: the vocabulary, and documents in which
        nothing occurred.
        """
        require(f"{self.file}, which is Parquet,", "parquet")
        import pyarrow as pa  # noqa: PLC0415 - slow to import
        import pyarrow.parquet as pq  # noqa: PLC0415 - as above

        weight = np.zeros(len(counts.count))
        of_counts = counts.document.astype(np.int64) << 32 | counts.term
        of_weights = signatures.document.astype(np.int64) << 32 | signatures.term
        weight[np.searchsorted(of_counts, of_weights)] = signatures.weight
        table = counts.to_arrow()
        quiet = signatures.quiet[counts.document]
        table = table.append_column("quiet", pa.array(quiet)).append_column(
            "weight", pa.array(weight)
        )
        description = {
            "format": _FORMAT,
            "vocabulary": counts.vocabulary,
            "scopes": counts.scopes,
            "documents": [
                counts.begin.tolist(),
                counts.end.tolist(),
                counts.scope.tolist(),
                counts.lossy.astype(np.int64).tolist(),
            ],
            "interval": counts.interval,
            "source": counts.source,
            "executions": counts.executions,
            "weights": signatures.weights,
        }
        table = table.replace_schema_metadata({_KEY: json.dumps(description).encode()})
        with atomic(self.file) as stream:
            pq.write_table(table, stream, compression="zstd")

    def is_one(self) -> bool:
        """Return whether the file is one that `save` wrote."""
        if not self.file.is_file() or self.file.suffix != ".parquet":
            return False
        require(f"{self.file}, which is Parquet,", "parquet")
        import pyarrow as pa  # noqa: PLC0415 - slow to import
        import pyarrow.parquet as pq  # noqa: PLC0415 - as above

        try:
            with open_file(self.file) as stream:
                metadata = pq.read_schema(stream).metadata or {}
        except (pa.ArrowException, OSError, ValueError):  # of names that are no UTF-8
            return False
        return _FORMAT.encode() in metadata.get(_KEY, b"")[:200]

    def load(self) -> Counts:
        """Return its counts; raises UnreadableError if it is malformed."""
        require(f"{self.file}, which is Parquet,", "parquet")
        import pyarrow.parquet as pq  # noqa: PLC0415 - slow to import

        with refuse_damaged(self.file, _DO, "no file of signatures"):
            with open_file(self.file) as stream, pq.ParquetFile(stream) as parquet:
                check_pages(stream, parquet.metadata)
                table = parquet.read(columns=["document", "term", "count"])
            description = load_json((table.schema.metadata or {}).get(_KEY, b""))
            return _make(table, description)


def _make(table: Any, description: Any) -> Counts:
    vocabulary = tuple(description["vocabulary"])
    if len(vocabulary) > _MOST_NAMES or list(vocabulary) != sorted({*vocabulary}):
        raise ValueError("its vocabulary is not sorted, or too large")
    if not all(isinstance(name, str) and 0 < len(name) <= LONGEST_TERM for name in vocabulary):
        raise ValueError("its vocabulary has what is no name")
    columns = [np.array(of, np.int64) for of in description["documents"]]
    begin, end, scope, lossy = columns
    if len(begin) > _MOST_DOCUMENTS or any(len(of) != len(begin) for of in columns):
        raise ValueError("its documents are too many, or incomplete")
    scopes = tuple(map(str, description["scopes"]))
    executions = tuple(map(str, description["executions"]))
    if len(begin) and not 0 <= scope.min() <= scope.max() < len(scopes):
        raise ValueError("a document's scope is none")
    if executions and len(executions) != len(begin):
        raise ValueError("its runs are incomplete")
    rank = {name: at for at, name in enumerate(vocabulary)}
    words = table["term"].cast("string").to_pylist()
    document = table["document"].to_numpy()
    count = table["count"].to_numpy()
    if len(document) and not 0 <= document.min() <= document.max() < len(begin):
        raise ValueError("a row's document is none")
    if (end <= begin).any() or (count <= 0).any():
        raise ValueError("a document without time, or a count that is none")
    return Counts(
        vocabulary=vocabulary,
        scopes=scopes,
        begin=begin,
        end=end,
        scope=scope.astype(np.int32),
        lossy=lossy != 0,
        document=document,
        term=np.array([rank[word] for word in words], np.int32),
        count=count,
        interval=int(description["interval"]),
        source=str(description["source"])[:40],
        executions=executions,
    )
