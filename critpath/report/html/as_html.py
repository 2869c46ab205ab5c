"""A comparison as one HTML file that needs no network and trusts no name in it.

Everything essential is plain HTML and static SVG; the script only adds zooming.
The content security policy names the hashes of our own script and style, so that
nothing else could run even where escaping had failed.
"""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import Final

from critpath.documents import ComparisonDocument
from critpath.report.html import page
from critpath.report.html.aligned import drawings
from critpath.report.html.causes import causes
from critpath.report.html.clusters import clusters, compared_with
from critpath.report.html.elements import items, paragraph, prose, said, section, text
from critpath.report.html.executions import executions
from critpath.report.html.method import method
from critpath.report.html.page_data import data_elements
from critpath.report.html.sets import sets
from critpath.report.html.states import states
from critpath.report.html.svg_patterns import definitions
from critpath.text import verdict
from critpath.units import plural

_SIGNS: Final = {"ok": "✓", "anomaly": "▲", "inconclusive": "?"}


def render_html(document: ComparisonDocument) -> str:
    """Render a comparison as a self-contained page.

    Parameters
    ----------
    document : dict
        From `comparison_document` or `load_document`.

    Returns
    -------
    str
        HTML; the same document gives the same bytes.
    """
    style, script = _asset("report.css") + page.style(), page.script()
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    headline = verdict.headline(document)
    made_by = f"critpath {document.version}, {document.format}"
    sections = _sections(document)
    body = _header(document, headline, [(anchor, title) for anchor, title, _ in sections])
    body += f"<main>{''.join(section(*one) for one in sections)}</main>"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>critpath: {text(headline)}</title>\n<style>{style}</style></head>\n"
        f"<body>{definitions()}{body}<footer>{paragraph(made_by)}</footer>\n"
        f"{data_elements(document)}"
        f'<script type="module">{script}</script></body></html>\n'
    )


def _sections(document: ComparisonDocument) -> list[tuple[str, str, str]]:
    found = document.causes or document.aligned or document.outliers.anomalous
    title = "Anomalous executions against their normal group"
    return [
        *([("causes", "Causes", causes(document))] if found else []),
        ("sets", "The two sets", sets(document)),
        ("states", "States", states(document)),
        *([("aligned", title, drawings(document))] if document.aligned else []),
        ("clusters", "Types of executions", clusters(document)),
        ("executions", "Executions", executions(document)),
        ("method", "How this was decided", method(document)),
    ]


def _header(document: ComparisonDocument, headline: str, sections: list[tuple[str, str]]) -> str:
    word, _, sentence = headline.partition(": ")
    sets = document.sets
    figures = [
        (f"{sets.normal.executions:,}", "normal executions"),
        (f"{sets.sample.executions:,}", "sample executions"),
        (f"{document.outliers.anomalous:,}", "of them anomalous"),
    ]
    total = next((s for s in document.states if s.state == "total"), None)
    test = document.detection.whole or total  # the figure is of the duration
    if test and test.effect is not None:
        figures.append((verdict.duration(test.effect, sign=True), "mean change"))
        figures.append((verdict.probability(test.p_value), "p: how often chance alone does that"))
    if document.detection.detectable is not None:
        detectable = verdict.duration(document.detection.detectable, sign=True)
        figures.append((detectable, "smallest change that would have shown"))
    shown = "".join(f"<div><dt>{text(k)}</dt><dd>{text(v)}</dd></div>" for v, k in figures)
    links = "".join(f'<li><a href="#{anchor}">{text(title)}</a></li>' for anchor, title in sections)
    warnings = items((f"Warning: {w}" for w in _losses(document)), kind="warnings")
    if document.warnings:
        count = plural(len(document.warnings), "warning")
        warnings += f'<p><a href="#sets">{count} about the two sets</a></p>'
    told = verdict.further_reasons(document)
    sensitivity = verdict.sensitivity(document)
    # The first reason of a good verdict says so already.
    if sensitivity and document.verdict != "anomaly" and "would have shown" not in sentence:
        told.append(sensitivity)
    reasons = "".join(f"<p>{prose(reason)}</p>" for reason in told)
    return (
        f'<header class="{document.verdict}">'
        f'<h1><span class="verdict"><span aria-hidden="true">{_SIGNS[document.verdict]}</span> '
        f"{text(word)}</span> {prose(sentence)}</h1>{reasons}"
        f'<dl class="figures">{shown}</dl>{said(compared_with(document))}{warnings}'
        f'<nav aria-label="Sections"><ul>{links}</ul></nav></header>'
    )


def _losses(document: ComparisonDocument) -> list[str]:
    lost = []
    for which in ("normal", "sample"):
        loss = document.sets[which].loss
        if loss.events or loss.packets:
            lost.append(
                f"{which} set: {loss.events:,} events and {loss.packets:,} packets were lost."
            )
    return lost


def _asset(name: str) -> str:
    return files("critpath.report.html").joinpath(name).read_text(encoding="utf-8")


def _digest(source: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode("ascii")
