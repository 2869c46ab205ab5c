"""The plane of count vectors: what kinds of executions there are, and who is apart."""

from __future__ import annotations

from typing import Any, Final

from critpath.report import verdict
from critpath.report.html_elements import text
from critpath.report.palette import ORANGE, SKY, VERMILLION
from critpath.units import format_share, plural

_WIDTH: Final = 520
_HEIGHT: Final = 320
_MARGIN: Final = 34
_MOST_POINTS: Final = 1500
_MOST_LABELS: Final = 12


def scatter_svg(document: dict[str, Any]) -> str:
    """Draw the first two principal components of the counts, a mark per execution.

    Parameters
    ----------
    document : dict
        A comparison.

    Returns
    -------
    str
        A ``<figure>``, or nothing where there are no counts.
    """
    plane = document["plane"]
    if plane is None or not plane["normal"] + plane["sample"]:
        return ""
    points = plane["normal"] + plane["sample"]
    x_of = _scale([p[0] for p in points], _MARGIN + 12, _WIDTH - 24)
    y_of = _scale([p[1] for p in points], _HEIGHT - _MARGIN, 14)
    anomalous = {row["position"]: row for row in verdict.anomalous(document)}
    parts = [_axes(plane["explained"])]
    parts += [
        f'<circle cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="4" fill="{SKY}" '
        'fill-opacity="0.6" stroke="currentColor" stroke-opacity="0.6"/>'
        for x, y in plane["normal"][:_MOST_POINTS]
    ]
    labels = []
    for position, (x, y) in enumerate(plane["sample"][:_MOST_POINTS]):
        at_x, at_y = x_of(x), y_of(y)
        if position in anomalous:
            parts.append(
                f'<path d="M{at_x:.1f} {at_y - 7:.1f}l7 7l-7 7l-7-7z" fill="{VERMILLION}" '
                'stroke="currentColor"/>'
            )
            labels.append((at_x, at_y, anomalous[position]["id"]))
        else:
            parts.append(
                f'<path d="M{at_x:.1f} {at_y - 5:.1f}l5 9h-10z" fill="{ORANGE}" '
                'fill-opacity="0.8"/>'
            )
    for at_x, at_y, name in labels[:_MOST_LABELS]:
        near = at_x > _WIDTH * 0.7
        parts.append(
            f'<text x="{at_x + (-10 if near else 10):.1f}" y="{at_y + 4:.1f}" font-size="11" '
            f'font-family="sans-serif" text-anchor="{"end" if near else "start"}" '
            f'fill="currentColor">{text(name[:24])}</text>'
        )
    beyond = sum(max(0, len(plane[which]) - _MOST_POINTS) for which in ("normal", "sample"))
    words = (
        "Executions by how often each state occurs (two principal components of the counts): "
        "circles normal, triangles sample, diamonds anomalous. "
    )
    words += verdict.left_out(beyond, "execution")
    beyond_labels = len(labels) - _MOST_LABELS
    if beyond_labels > 0:
        words += f"{plural(beyond_labels, 'anomalous execution')} without a label."
    return (
        f'<figure><svg class="scatter" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" '
        f'height="{_HEIGHT}" role="img" aria-label="{text(words)}">{"".join(parts)}</svg>'
        f"<figcaption>{text(words)}</figcaption></figure>"
    )


def _scale(values: list[float], low: float, high: float) -> Any:
    least, most = min(values), max(values)
    if most == least:
        return lambda _value: (low + high) / 2
    return lambda value: low + (value - least) / (most - least) * (high - low)


def _axes(explained: list[float]) -> str:
    floor = _HEIGHT - 20
    names = [
        f"{which} component, {format_share(e)} of the variance"
        for which, e in zip(("first", "second"), explained, strict=True)
    ]
    return (
        f'<path d="M24 8V{floor}H{_WIDTH - 8}" fill="none" stroke="currentColor" '
        'stroke-opacity="0.4"/>'
        f'<text x="{_WIDTH - 8}" y="{_HEIGHT - 5}" font-size="11" font-family="sans-serif" '
        f'text-anchor="end" fill="currentColor">{text(names[0])}</text>'
        f'<text transform="translate(14 {floor}) rotate(-90)" font-size="11" '
        f'font-family="sans-serif" fill="currentColor">{text(names[1])}</text>'
    )
