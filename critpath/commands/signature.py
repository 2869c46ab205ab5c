"""``critpath signature``: how often what happened, document by document."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from critpath.commands.declared import JSON, flag, option
from critpath.commands.output import (
    STDOUT,
    Progress,
    check_outputs,
    hint,
    make_console,
    warn,
    write_output,
)
from critpath.commands.settings import SIGNING, Settings
from critpath.commands.sources import check_inputs
from critpath.errors import UsageError
from critpath.extras import require
from critpath.units import NS_PER_S, plural, safe_text

if TYPE_CHECKING:
    from critpath.documents.signatures import SignatureDocument, SignedSource
    from critpath.model import Counts, Signatures

SETTINGS = ("execution", "reader", *SIGNING)
_SHOWN: Final = 8  # terms of a source


OPTIONS: Final = (
    option("sources", "SOURCE", "recordings with counts or traces, or files that -o saved", Path,
        nargs="+"),
    option("--by", None, "what a document is: an interval of time, or a run",
        default="interval", choices=("interval", "execution")),
    JSON,
    option("-o --output", "FILE", "save one source's as Parquet", Path),
    flag("--force", "replace files that exist"),
)  # fmt: skip


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Show what was counted, and return 0."""
    output = arguments.output
    if output is not None and (output.suffix != ".parquet" or len(arguments.sources) > 1):
        raise UsageError(
            f"-o {output}: one source's signatures are saved, as Parquet",
            "name one source, and a file that ends in .parquet",
        )
    check_inputs(arguments.sources)
    outputs = [arguments.json, str(output) if output else None]
    check_outputs(outputs, arguments.sources, force=arguments.force)
    if output is not None:
        require("-o, which is Parquet,", "parquet")

    from critpath.flow import count_documents  # noqa: PLC0415 - start-up time
    from critpath.report.document import to_json  # noqa: PLC0415 - start-up time
    from critpath.signatures import SignSettings, sign  # noqa: PLC0415 - start-up time
    from critpath.store import CountsFile  # noqa: PLC0415 - start-up time

    given = settings.origins["interval"] != "default"
    chosen = SignSettings(
        by=arguments.by,
        interval=round(settings["interval"] * NS_PER_S) if given else 0,
        scope=settings["scope"],
        specification=settings["execution"],
        reader=settings["reader"],
    )
    with Progress(quiet=settings["quiet"]) as progress:
        read = [count_documents(source, chosen, progress) for source in arguments.sources]
    counts = [found for found, _ in read]
    notes = list(dict.fromkeys(note for _, said in read for note in said))
    signed = sign(counts, settings["weights"])
    warn(notes, quiet=settings["quiet"])
    names = [str(source) for source in arguments.sources]
    if arguments.json:
        document = _document(names, counts, signed, notes)
        write_output(arguments.json, to_json(document) + "\n")
    if output is not None:
        CountsFile(output).save(counts[0], signed[0])
        hint(f"saved {plural(len(counts[0]), 'document')} in {output}", quiet=settings["quiet"])
    if arguments.json != STDOUT:
        for name, each, of in zip(names, counts, signed, strict=True):
            _show(name, each, of)
    return 0


def _document(
    names: list[str], counts: list[Counts], signed: list[Signatures], notes: list[str]
) -> SignatureDocument:
    from critpath import __version__  # noqa: PLC0415 - as above
    from critpath.documents.signatures import (  # noqa: PLC0415 - as above
        SIGNATURE_FORMAT,
        SignatureDocument,
    )

    return SignatureDocument(
        format=SIGNATURE_FORMAT,
        version=__version__,
        weights=signed[0].weights,
        sources=[_source(*of) for of in zip(names, counts, signed, strict=True)],
        notes=notes,
    )


def _source(name: str, counts: Counts, signed: Signatures) -> SignedSource:
    from critpath.documents.signatures import (  # noqa: PLC0415 - as above
        SignedDocument,
        SignedSource,
    )

    def by_term(table: Counts | Signatures, start: int, end: int, values: list[float]) -> dict:  # type: ignore[type-arg]
        terms = table.term[start:end].tolist()
        return dict(zip((table.vocabulary[t] for t in terms), values, strict=True))

    documents = []
    for at in range(len(counts)):
        first, last = counts.start[at : at + 2].tolist()
        begin, end = signed.start[at : at + 2].tolist()
        documents.append(
            SignedDocument(
                begin=int(counts.begin[at]),
                end=int(counts.end[at]),
                hits=int(counts.hits[at]),
                lossy=bool(counts.lossy[at]),
                quiet=bool(signed.quiet[at]),
                execution=counts.executions[at] if counts.executions else None,
                counts=by_term(counts, first, last, counts.count[first:last].tolist()),
                weights=by_term(signed, begin, end, signed.weight[begin:end].tolist()),
            )
        )
    return SignedSource(
        source=name,
        scope=counts.scopes[0],
        how=counts.source,
        interval=counts.interval,
        vocabulary=list(counts.vocabulary),
        documents=documents,
    )


def _show(name: str, counts: Counts, signed: Signatures) -> None:
    import numpy as np  # noqa: PLC0415 - start-up time
    from rich.table import Table  # noqa: PLC0415 - as above

    from critpath.text.signatures import documents_counted  # noqa: PLC0415 - as above

    kept = ~signed.lossy & ~signed.quiet
    rows = kept[signed.document]
    total = np.bincount(signed.term[rows], signed.weight[rows], minlength=len(signed.vocabulary))
    mean = total / max(1, int(kept.sum()))
    console = make_console()
    what = documents_counted(counts, signed, int((total > 0).sum()))
    console.print(f"{safe_text(name)}: {what}")
    table = Table(box=None, pad_edge=False, header_style="")
    table.add_column("term")
    table.add_column(f"mean weight ({signed.weights})", justify="right")
    for code in np.argsort(-np.abs(mean), kind="stable")[:_SHOWN].tolist():
        if mean[code]:
            table.add_row(safe_text(signed.vocabulary[code]), f"{mean[code]:.3f}")
    console.print(table)
