"""What the folds of the page say: the two recordings, how it was decided."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import pytest
from msgspec import structs

from critpath.report.document.comparison import comparison_document
from critpath.report.html.as_html import render_html
from critpath.schema.environment import Environment

MS = 1e6


def table(page, caption):
    """Return the rows of a table as plain texts, without its header."""
    whole = re.search(rf"<caption>{re.escape(caption)}.*?</table>", page, re.DOTALL)[0]
    rows = re.findall(r"<tr.*?</tr>", whole, re.DOTALL)[1:]
    cells = [re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL) for row in rows]
    return [[html.unescape(re.sub(r"<[^>]*>", "", cell)).strip() for cell in row] for row in cells]


@pytest.fixture
def document(factory):
    return comparison_document(factory.comparison())


def compared(page):
    return {row[0]: row[1:] for row in table(page, "What was compared")}


def recorded(factory, *, cpus, machine="build-7"):
    """Build a comparison of sets with what critpath's own recordings say of them."""
    found = factory.comparison()
    parts = {}
    for which in ("normal", "sample"):
        one = getattr(found, which)
        own = Environment(
            recorded_on=machine,
            recorded_cpu="EPYC 7302",
            recorded_profile="full",
            recorded_cpus=cpus[which] or None,
        )
        epoch = Environment(recording=one.sources[0], clock_epoch=1_795_235_000 * 10**9)
        parts[which] = replace(one, environment=(*one.environment, own, epoch))
    return comparison_document(structs.replace(found, **parts))


def test_sets_say_where_and_when_and_what_differs(factory):
    page = render_html(recorded(factory, cpus={"normal": 8, "sample": 4}))
    rows = compared(page)
    assert rows["number of CPUs"] == ["8", "4"]
    assert rows["recorded on"] == ["build-7", "same"]
    assert rows["CPU"] == ["EPYC 7302", "same"]
    assert rows["profile"] == ["full", "same"]
    assert rows["kernel"] == ["6.1.0", "same"]
    assert rows["recorded"][0] == "2026-11-21 04:23:25 UTC"
    line = re.search(r"<summary>Recordings <span>(.*?)</span>", page)[1]
    assert "another number of CPUs" in line or "number of CPUs" in line


def test_what_only_one_set_says_is_not_called_the_same(factory):
    page = render_html(recorded(factory, cpus={"normal": 8, "sample": None}))
    assert compared(page)["number of CPUs"] == ["8", "not known"]


def test_foreign_recordings_do_not_ask_what_they_cannot_know(document):
    rows = compared(render_html(document))
    assert "number of CPUs" not in rows
    assert rows["host"] == ["guest", "same"]
    assert rows["recorded"] == ["not known", "not known"]


def test_loss_opens_the_fold_it_is_told_in(factory, document):
    lost = (factory.Loss(0, 9, 0, 1, 1200, 3, "discarded"),)
    page = render_html(comparison_document(factory.comparison(losses=lost)))
    rows = compared(page)
    assert rows["events lost"] == ["0", "1,200"]
    assert rows["packets lost"] == ["0", "3"]
    assert '<details class="fold" id="recordings" open>' in page
    assert '<details class="fold" id="recordings">' in render_html(document)


def states(page):
    return {row[0]: row for row in table(page, "Time on the critical path by state")}


def test_states_are_in_order_after_the_total(document):
    rows = table(render_html(document), "Time on the critical path by state")
    assert rows[0][0] == "total"
    assert rows[1][0] == "WAIT_TIMER"
    assert rows[1][1] == "waiting for a timer"
    assert rows[1][7] == "yes, new"


def test_levels_are_shown_where_some_state_has_another(document):
    assert "level" not in re.findall(r'<th scope="col"[^>]*>([^<]*)', render_html(document))
    for state in document.states:
        state.level = "warn" if state.state == "WAIT_DISK" else "error"
    page = render_html(document)
    assert "level" in re.findall(r'<th scope="col"[^>]*>([^<]*)', page)
    levels = {name: row[8] for name, row in states(page).items()}
    assert levels["WAIT_DISK"] == "warn"
    assert levels["RUN"] == "error"


def test_what_is_too_small_to_be_flagged_says_so(document):
    run = next(s for s in document.states if s.state == "RUN")
    run.p_value, run.effect, run.flagged = 0.001, 0.3 * MS, False
    rows = states(render_html(document))
    assert rows["RUN"][7] == "below the floor"
    assert rows["WAIT_DISK"][7] == ""


def test_what_differs_in_examined_requests_is_listed_the_largest_first(document):
    rows = table(render_html(document), "Step by step")
    assert len(rows) == len(document.findings)
    sizes = [abs(f.contribution) for f in document.findings]
    assert rows[0][0] in {
        f.execution for f in document.findings if abs(f.contribution) == max(sizes)
    }


def test_without_types_there_is_no_table_and_no_complaint(document):
    assert table(render_html(document), "Types")
    for which in ("normal", "sample"):
        found = document.clusters[which]
        found.clusters, found.ordering, found.reachability = [], [], []
    document.clusters.pairs = []
    document.plane = None
    assert "A set had nothing to group." in render_html(document)


def test_the_papers_rules_have_a_line_where_they_decide_with_the_papers_name(document):
    assert "paper&#x27;s rule" not in render_html(document)
    document.detection.rule = "paper"
    page = render_html(document)
    said = re.search(r"By the paper&#x27;s rules \([^<]*", page)[0]
    assert "Janecek, Ezzati-Jivan and Hamou-Lhadj, ICPC 2022" in said
    assert "WAIT_TIMER (average and probability)" in said
    for state in document.states:
        state.average_fires = state.probability_fires = False
    assert "By the paper&#x27;s rules (" not in render_html(document)
