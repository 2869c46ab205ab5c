"""What the page carries for its script: every execution, and of the rows as many as fit."""

from __future__ import annotations

import json
import re

from critpath.report.document.comparison import comparison_document
from critpath.report.html import aligned as html_aligned
from critpath.report.html import page_data
from critpath.report.html.as_html import render_html
from critpath.text import verdict


def data_of(page, name="data"):
    return json.loads(re.search(rf'id="{name}">(.*?)</script>', page)[1])


def test_what_is_too_much_is_left_out_and_said(factory, monkeypatch):
    document = comparison_document(factory.comparison(samples=8, anomalous=6, columns=30))
    columns = document.aligned[0].columns
    monkeypatch.setattr(html_aligned, "MOST_DRAWN", 4)
    monkeypatch.setattr(page_data, "MOST_CELLS", columns * 6 * 3)
    page = render_html(document)
    assert page.count('<svg class="aligned"') == 4
    assert "2 drawings left out" in page
    # Those without a drawing wait where only the script sees them.
    assert len(re.findall(r'<template id="t\d+"><article id="x\d+"', page)) == 2
    assert len(data_of(page)["executions"]) == 6
    for one in document.aligned:
        shipped = data_of(page, f"d{one.position}")
        assert shipped["normals"] == len(one.rows) - 1 == 17
        assert len(shipped["rows"]) == 3


def test_small_alignments_leave_their_share_to_larger_ones(factory, monkeypatch):
    document = comparison_document(factory.comparison(samples=3, anomalous=2, columns=40))
    first, second = verdict.by_excess(document.aligned)
    first.rows = first.rows[-3:]
    monkeypatch.setattr(page_data, "MOST_CELLS", first.columns * 10)
    assert page_data.count_shipped_rows(document) == [2, 8]
    monkeypatch.setattr(page_data, "MOST_CELLS", 10**6)
    assert page_data.count_shipped_rows(document) == [2, len(second.rows) - 1]
