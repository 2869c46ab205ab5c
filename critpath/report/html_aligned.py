"""The section of the HTML report that draws each anomalous execution."""

from __future__ import annotations

from typing import Any, Final

from critpath.report import verdict
from critpath.report.columns import GAP, consensus
from critpath.report.html_elements import paragraph, table, text
from critpath.report.palette import KINDS, LOOKS, letter_of, words_of
from critpath.report.svg_alignment import alignment_svg, caption
from critpath.report.svg_patterns import swatch
from critpath.units import format_ns, plural, safe_text

MOST_DRAWN: Final = 30
_MOST_FINDINGS: Final = 20
_MOST_SEGMENTS: Final = 60

# Cells (a symbol and a duration) that go into the page for its script.
MOST_CELLS: Final = 400_000


def drawings(document: dict[str, Any]) -> str:
    """Return an article per anomalous execution, the largest excess first."""
    aligned = verdict.by_excess(document["aligned"])
    shown = drawn(document)
    if not aligned:
        return paragraph("No execution is anomalous, or none could be aligned with its group.")
    rows = {r["position"]: r for r in document["executions"] if r["set"] == "sample"}
    parts = [_legend(document, shown)]
    parts += [_article(document, one, rows.get(one["position"])) for one in shown]
    said = verdict.left_out(len(aligned) - len(shown), "drawing")
    still = len(shown) - len(interactive(document))
    if still > 0:
        said += f" {plural(still, 'drawing')} cannot be zoomed: their data is left out for size."
    return "".join(parts) + (paragraph(said, kind="said") if said else "")


def drawn(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the alignments that have an article, the largest excess first."""
    return verdict.by_excess(document["aligned"])[:MOST_DRAWN]


def interactive(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the alignments whose data goes into the page, up to `MOST_CELLS` cells."""
    chosen, cells = [], 0
    for one in drawn(document):
        cells += one["columns"] * len(one["rows"])
        if cells > MOST_CELLS:
            break
        chosen.append(one)
    return chosen


def page_data(document: dict[str, Any]) -> dict[str, Any]:
    """Return what the page's script needs, every text of it inert."""
    return {
        "symbols": [
            {
                "name": safe_text(symbol["name"]),
                "words": safe_text(words_of(symbol)),
                "letter": letter_of(symbol),
                "colour": LOOKS[symbol["state"]].colour,
                "ink": LOOKS[symbol["state"]].ink,
                "pattern": LOOKS[symbol["state"]].pattern,
                "other": bool(symbol["role"]),
            }
            for symbol in document["symbols"]
        ],
        "aligned": [_aligned_data(document, one) for one in interactive(document)],
    }


def _aligned_data(document: dict[str, Any], one: dict[str, Any]) -> dict[str, Any]:
    statistics = one["statistics"]
    return {
        "position": one["position"],
        "columns": one["columns"],
        "left_out": one["left_out"],
        "rows": [
            {"id": safe_text(r["id"]), "symbols": r["symbols"], "durations": r["durations"]}
            for r in one["rows"]
        ],
        "consensus": consensus(one),
        "probability": statistics["probability"],
        "mean": statistics["mean"],
        "segments": [
            {
                "column": s["column"],
                "begin": s["begin"],
                "thread": safe_text(f"{s['comm']} {s['tid']}"),
                "detail": safe_text(s["detail"]),
            }
            for s in one["segments"]
        ],
        "findings": [
            {
                "rank": f["rank"],
                "columns": f["columns"],
                "words": safe_text(f"{f['state']} {KINDS.get(f['kind'], f['kind'])}"),
                "contribution": f["contribution"],
            }
            for f in verdict.findings_of(document, one["position"])
        ],
    }


def _legend(document: dict[str, Any], aligned: list[dict[str, Any]]) -> str:
    used = {code for one in aligned for row in one["rows"] for code in row["symbols"]}
    used |= {code for one in aligned for code in one["statistics"]["normal_symbol"]}
    entries = "".join(
        f"<li>{swatch(symbol)} <code>{text(symbol['name'])}</code> {text(words_of(symbol))}</li>"
        for symbol in (document["symbols"][code] for code in sorted(used - {GAP}))
    )
    gap = "<li>a line through a row: nothing here (a gap)</li>"
    return f'<ul class="legend" aria-label="Legend">{entries}{gap}</ul>'


def _article(document: dict[str, Any], one: dict[str, Any], row: dict[str, Any] | None) -> str:
    position = one["position"]
    label = f", {row['label']}" if row and row["label"] else ""
    facts = [f"{verdict.duration(one['excess'], sign=True)} against its normal group"]
    if row:
        facts.insert(0, f"{row['comm']} {row['tid']}, {format_ns(row['end'] - row['begin'])}")
        facts.append(f"p {verdict.probability(row['p_value'])}")
        if row["lossy"]:
            facts.append("touches a loss")
    facts.append(f"{verdict.duration(one['unexplained'], sign=True)} of it unexplained")
    if one["note"]:
        facts.append(one["note"])
    left_out = caption(document, one)
    return (
        f'<article id="x{position}" aria-labelledby="x{position}-title">'
        f'<h3 id="x{position}-title">Execution {text(one["execution"] + label)}</h3>'
        f'<p class="facts">{text("; ".join(facts))}</p>'
        f'<figure data-position="{position}">'
        f'<div class="still">{alignment_svg(document, one)}</div>'
        f"<figcaption>{text(left_out)}</figcaption></figure>"
        f"{_findings(document, one)}{_segments(one)}</article>"
    )


def _findings(document: dict[str, Any], one: dict[str, Any]) -> str:
    findings = verdict.findings_of(document, one["position"])
    if not findings:
        return paragraph("No difference stands out.")
    rows = [
        [
            str(f["rank"]),
            f"<code>{text(f['state'])}</code> {text(f['detail'])}",
            text(verdict.kind_of(one, f)),
            text(f"{f['comm']} {f['tid']}"),
            text(f"{f['begin'] / 1e9:.6f} s"),
            text(verdict.duration(f["observed"])),
            text(verdict.duration(f["expected"])),
            text(verdict.duration(f["contribution"], sign=True)),
            text(verdict.share(f["share"])),
            text(verdict.share(f["probability"])),
        ]
        for f in findings[:_MOST_FINDINGS]
    ]
    headers = [">#", "state", "how", "thread", ">trace time", ">here", ">normal", ">difference"]
    headers += [">share", ">normals with it"]
    words = f"What differs in execution {one['execution']}"
    said = verdict.left_out(len(findings) - _MOST_FINDINGS, "finding")
    return table(words, headers, rows) + (paragraph(said, kind="said") if said else "")


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
