"""The section of the HTML report that draws each anomalous execution."""

from __future__ import annotations

from typing import Any, Final

from critpath.report import verdict
from critpath.report.columns import GAP
from critpath.report.html_elements import paragraph, table, text
from critpath.report.palette import words_of
from critpath.report.svg_alignment import alignment_svg, caption
from critpath.report.svg_patterns import swatch
from critpath.units import format_ns

MOST_DRAWN: Final = 30
_MOST_FINDINGS: Final = 20
_MOST_SEGMENTS: Final = 60

def drawings(document: dict[str, Any]) -> str:
    """Return an article per anomalous execution, the largest excess first."""
    aligned = verdict.by_excess(document["aligned"])
    shown = drawn(document)
    if not aligned:
        return paragraph("No execution is anomalous, or none could be aligned with its group.")
    rows = {r["position"]: r for r in document["executions"] if r["set"] == "sample"}
    parts = [_legend(document, aligned)]
    parts += [_article(document, one, rows.get(one["position"])) for one in shown]
    said = verdict.left_out(len(aligned) - len(shown), "drawing")
    if said:
        said += " Where scripts run, the list of executions above draws them too."
    return "".join(parts) + (paragraph(said, kind="said") if said else "")


def drawn(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the alignments that have an article, the largest excess first."""
    return verdict.by_excess(document["aligned"])[:MOST_DRAWN]


def _legend(document: dict[str, Any], aligned: list[dict[str, Any]]) -> str:
    used = {code for one in aligned for row in one["rows"] for code in row["symbols"]}
    used |= {code for one in aligned for code in one["statistics"]["normal_symbol"]}
    entries = "".join(
        f"<li>{swatch(symbol)} <code>{text(symbol['name'])}</code> {text(words_of(symbol))}</li>"
        for symbol in (document["symbols"][code] for code in sorted(used - {GAP}))
    )
    gap = "<li>a line through a row: nothing here (a gap)</li>"
    return f'<ul class="legend" aria-label="Legend">{entries}{gap}</ul>'


def title(one: dict[str, Any], row: dict[str, Any] | None) -> str:
    """Return the heading of an aligned execution as plain text, not yet safe to show."""
    label = f", {row['label']}" if row and row["label"] else ""
    return f"Execution {one['execution']}{label}"


def facts(one: dict[str, Any], row: dict[str, Any] | None) -> str:
    """Return the line below the heading as plain text, not yet safe to show."""
    told = [f"{verdict.duration(one['excess'], sign=True)} against its normal group"]
    if row:
        told.insert(0, f"{row['comm']} {row['tid']}, {format_ns(row['end'] - row['begin'])}")
        told.append(f"p {verdict.probability(row['p_value'])}")
        if row["lossy"]:
            told.append("touches a loss")
    told.append(f"{verdict.duration(one['unexplained'], sign=True)} of it unexplained")
    if one["note"]:
        told.append(one["note"])
    return "; ".join(told)


def _article(document: dict[str, Any], one: dict[str, Any], row: dict[str, Any] | None) -> str:
    position = one["position"]
    return (
        f'<article id="x{position}" aria-labelledby="x{position}-title">'
        f'<h3 id="x{position}-title">{text(title(one, row))}</h3>'
        f'<p class="facts">{text(facts(one, row))}</p>'
        f'<figure data-position="{position}">'
        f'<div class="still">{alignment_svg(document, one)}</div>'
        f"<figcaption>{text(caption(document, one))}</figcaption></figure>"
        f"{_findings(document, one)}{_segments(one)}</article>"
    )


def finding_headers() -> list[str]:
    """Return the headers of `finding_rows`, as `html_elements.table` takes them."""
    headers = [">#", "state", "how", "thread", ">trace time", ">here", ">normal", ">difference"]
    return [*headers, ">share", ">normals with it"]


def finding_rows(one: dict[str, Any], findings: list[dict[str, Any]]) -> list[list[str]]:
    """Return an execution's findings as rows of plain text, not yet safe to show."""
    return [
        [
            str(f["rank"]),
            f"{f['state']} {f['detail']}".strip(),
            verdict.kind_of(one, f),
            f"{f['comm']} {f['tid']}",
            f"{f['begin'] / 1e9:.6f} s",
            verdict.duration(f["observed"]),
            verdict.duration(f["expected"]),
            verdict.duration(f["contribution"], sign=True),
            verdict.share(f["share"]),
            verdict.share(f["probability"]),
        ]
        for f in findings[:_MOST_FINDINGS]
    ]


def _findings(document: dict[str, Any], one: dict[str, Any]) -> str:
    findings = verdict.findings_of(document, one["position"])
    if not findings:
        return paragraph("No difference stands out.")
    rows = [
        [text(cell) for cell in row] for row in finding_rows(one, findings)
    ]
    for row, finding in zip(rows, findings, strict=False):
        row[1] = f"<code>{text(finding['state'])}</code> {text(finding['detail'])}"
    words = f"What differs in execution {one['execution']}"
    said = verdict.left_out(len(findings) - _MOST_FINDINGS, "finding")
    shown = table(words, finding_headers(), rows, kind="findings")
    return shown + (paragraph(said, kind="said") if said else "")


def _segments(one: dict[str, Any]) -> str:
    longest = sorted(one["segments"], key=lambda s: (s["begin"] - s["end"], s["begin"]))
    kept = sorted(longest[:_MOST_SEGMENTS], key=lambda s: (s["begin"], s["column"]))
    if not kept:
        return ""
    origin = min(s["begin"] for s in one["segments"])
    rows = [
        [
            text(format_ns(s["begin"] - origin, sign=True)),
            text(format_ns(s["end"] - s["begin"])),
            f"<code>{text(s['state'])}</code>",
            text(s["detail"]),
            text(f"{s['comm']} {s['tid']}"),
            str(s["column"] + 1),
        ]
        for s in kept
    ]
    headers = [">at", ">for", "state", "detail", "thread", ">column"]
    said = verdict.left_out(len(longest) - len(kept), "shorter segment")
    words = f"Segments of execution {one['execution']}"
    return (
        f"<details><summary>{text(words)}</summary>{table(words, headers, rows)}"
        f"{paragraph(said, kind='said') if said else ''}</details>"
    )
