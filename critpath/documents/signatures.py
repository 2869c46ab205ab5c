"""What ``critpath signature --json`` writes, as types."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from critpath.documents.base import Part, doc

SIGNATURE_FORMAT: Final = "critpath/signature/1"


class SignedDocument(Part):
    """An interval or a run, and what the kernel did meanwhile."""

    begin: Annotated[int, doc("ns of the recording's clock")]
    end: Annotated[int, doc("ns of the recording's clock")]
    hits: Annotated[int, doc("events counted, of all terms together")]
    lossy: Annotated[bool, doc("something was lost meanwhile: the counts are too small")]
    quiet: Annotated[bool, doc("too little happened to say what it is")]
    execution: Annotated[str | None, doc("id of the run; null for an interval")]
    counts: Annotated[dict[str, int], doc("how often what happened, by term")]
    weights: Annotated[dict[str, float], doc("the vector, by term")]


class SignedSource(Part):
    """A recording, by interval or run."""

    source: Annotated[str, doc("as it was named")]
    scope: Annotated[str, doc("whose doing was counted: machine, command or a control group")]
    how: Annotated[str, doc("how it was counted: bpf, perf, free or trace")]
    interval: Annotated[int, doc("nominal length of a document in ns, 0 for runs")]
    vocabulary: Annotated[list[str], doc("terms that could have been counted")]
    documents: Annotated[list[SignedDocument], doc("in order of time")]


class SignatureDocument(Part):
    """What critpath signature --json writes."""

    format: Annotated[Literal["critpath/signature/1"], doc("name and version of this format")]
    version: Annotated[str, doc("version of critpath that wrote it")]
    weights: Annotated[str, doc("what counts became: hellinger, tf, tfidf, tfidf-smooth or rate")]
    sources: Annotated[list[SignedSource], doc("in the order in which they were named")]
    notes: Annotated[list[str], doc("what was odd about them, in sentences")]
