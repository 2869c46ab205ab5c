"""The section of the HTML report that says how the verdict came about."""

from __future__ import annotations

import json

from critpath.documents import ComparisonDocument
from critpath.report.html.elements import items, table, text
from critpath.text import verdict
from critpath.units import plural


def method(document: ComparisonDocument) -> str:
    """Return how the verdict came about: the rule, its figures, every setting."""
    detection, outliers = document.detection, document.outliers
    facts = [
        (
            f"Rule in force: {detection.rule}, level {verdict.figure(detection.alpha)}, "
            f"effect floor {verdict.duration(detection.floor)}, "
            f"{plural(detection.permutations, 'permutation')}."
        ),
        verdict.difference(document) or "",
        verdict.sensitivity(document) or "",
        verdict.by_the_paper(document),
        (
            f"{plural(outliers.anomalous, 'execution')} anomalous; the paper's rule marks "
            f"{outliers.paper:,}."
        ),
        *detection.notes,
        *outliers.notes,
    ]
    rows = [
        [f"<code>{text(name)}</code>", f"<code>{text(json.dumps(value, sort_keys=True))}</code>"]
        for name, value in sorted(document.settings.items())
    ]
    listed = items([fact for fact in facts if fact], kind="notes")
    if not rows:
        return listed
    settings = table("Settings in force", ["setting", "value"], rows, heads=True)
    return f"{listed}<details><summary>Settings in force</summary>{settings}</details>"
