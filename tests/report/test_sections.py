"""What the sections of the page say: sums, differences between the sets, types."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import pytest
from msgspec import structs

from critpath.report.document.comparison import comparison_document
from critpath.report.html import marks
from critpath.report.html.as_html import render_html

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


def figures(row):
    return [float(re.match(r"[+-]?[\d.,]+", cell)[0].replace(",", "")) for cell in row[1:]]


def test_what_the_causes_add_up_to_is_the_whole_excess(document):
    # Two of them are slower, one is faster, and the rest is unexplained.
    document.causes.append(
        structs.replace(document.causes[1], contribution=-1.7 * MS, share=-0.06, minor=False)
    )
    rows = table(render_html(document), "How the causes add up")
    assert [row[0] for row in rows] == [
        "listed",
        "went the other way",
        "unexplained",
        "whole excess in 2 executions examined",
    ]
    *parts, whole = [figures(row) for row in rows]
    for column in (0, 1):
        assert round(sum(part[column] for part in parts), 2) == whole[column]
    assert whole[1] == 100
    excess = sum(one.excess for one in document.aligned)
    assert whole[0] == pytest.approx(excess / MS, abs=0.01)


def test_a_cause_that_took_less_time_has_no_share(document):
    document.causes[1].contribution, document.causes[1].share = -2 * MS, -0.1
    causes = re.findall(r"<li><p>.*?</li>", render_html(document))
    assert "of the whole excess" in causes[0]
    assert "took less time: no part of the excess" in causes[1]
    assert 'class="share"' not in causes[1]


def test_causes_link_to_the_row_of_their_finding(document):
    page = render_html(document)
    causes = page[page.index('<section id="causes"') : page.index('<section id="sets"')]
    assert re.findall(r'href="#(\w+)"', causes) == ["x0f1", "x1f1", "x0f2", "x1f2"]
    assert page.count('id="x0f2"') == 1


def recorded(factory, *, cpus, machine="build-7"):
    """Build a comparison of sets with what critpath's own recordings say of them."""
    found = factory.comparison()
    parts = {}
    for which in ("normal", "sample"):
        one = getattr(found, which)
        own = {"recorded_on": machine, "recorded_cpu": "EPYC 7302", "recorded_profile": "full"}
        own |= {"recorded_cpus": cpus[which]} if cpus[which] else {}
        epoch = {"recording": one.sources[0], "clock_epoch": 1_795_235_000 * 10**9}
        parts[which] = replace(one, environment=(*one.environment, own, epoch))
    return comparison_document(replace(found, **parts))


def test_sets_say_where_and_when_and_what_differs(factory):
    page = render_html(recorded(factory, cpus={"normal": 8, "sample": 4}))
    rows = {row[0]: row[1:] for row in table(page, "Where and how each set")}
    assert rows["number of cpus"] == ["8", "4", "differs"]
    assert rows["recorded on"] == ["build-7", "build-7", "same"]
    assert rows["processor"] == ["EPYC 7302", "EPYC 7302", "same"]
    assert rows["recording profile"] == ["full", "full", "same"]
    assert rows["kernel"] == ["6.1.0", "6.1.0", "same"]
    assert rows["recorded"][0] == "2026-11-21 04:23:25 UTC"
    assert page.count("<mark>differs</mark>") == 1


def test_what_only_one_set_says_is_not_called_a_difference(factory):
    page = render_html(recorded(factory, cpus={"normal": 8, "sample": None}))
    rows = {row[0]: row[1:] for row in table(page, "Where and how each set")}
    assert rows["number of cpus"] == ["8", "not known", "not known"]


def test_foreign_recordings_do_not_ask_what_they_cannot_know(document):
    rows = {row[0]: row[1:] for row in table(render_html(document), "Where and how each set")}
    assert "number of cpus" not in rows
    assert rows["host"] == ["guest", "guest", "same"]
    assert rows["recorded"][:2] == ["not known", "not known"]


def test_loss_is_marked_by_a_word_and_said_in_the_header(factory):
    lost = (factory.Loss(0, 9, 0, 1, 1200, 3, "discarded"),)
    page = render_html(comparison_document(factory.comparison(losses=lost)))
    rows = {row[0]: row[1:] for row in table(page, "Where and how each set")}
    assert rows["events lost"] == ["0", "1,200", "loss"]
    assert rows["packets lost"] == ["0", "3", "loss"]
    header = page[page.index("<header") : page.index("</header>")]
    assert "sample set: 1,200 events and 3 packets were lost." in header


def test_states_are_in_order_and_the_total_is_none_of_them(document):
    page = render_html(document)
    rows = table(page, "Time in each state")
    assert rows[0][0] == "WAIT_TIMER"
    assert rows[0][1] == "waiting for a timer"
    assert rows[0][5] == "yes, new"
    assert rows[-1][0] == "total"
    assert re.search(r"<tfoot><tr class=\"strong\"><th scope=\"row\"><code>total</code>", page)
    assert "level 0.01: 1 state and the total, of 7 states and the total." in page


def test_levels_are_shown_where_some_state_has_another(document):
    assert "level" not in re.findall(r'<th scope="col"[^>]*>([^<]*)', render_html(document))
    for state in document.states:
        state.level = "warn" if state.state == "WAIT_DISK" else "error"
    page = render_html(document)
    heads = re.findall(r'<th scope="col"[^>]*>([^<]*)', page)
    assert "level" in heads
    levels = {row[0]: row[6] for row in table(page, "Time in each state")}
    assert levels["WAIT_DISK"] == "warn"
    assert levels["RUN"] == "error"


def test_what_is_too_small_to_be_flagged_says_so(document):
    run = next(s for s in document.states if s.state == "RUN")
    run.p_value, run.effect, run.flagged = 0.001, 0.3 * MS, False
    rows = {row[0]: row[5] for row in table(render_html(document), "Time in each state")}
    assert rows["RUN"] == "below the floor"
    assert rows["WAIT_DISK"] == ""


def test_an_inconclusive_page_says_why_there_is_no_cause(factory):
    found = comparison_document(factory.comparison(verdict="inconclusive"))
    found.causes = found.findings = found.aligned = []
    said = "2 executions stand out, but nothing can be concluded: none was examined."
    assert said in render_html(found)


def test_a_type_has_the_look_of_its_pair(factory):
    document = comparison_document(factory.comparison())
    looks = marks.looks(document)
    for pair in document.clusters.pairs:
        assert looks["sample"][pair.sample] == looks["normal"][pair.normal]
    # Two sample types of one normal type are told apart.
    for pair in document.clusters.pairs:
        pair.normal = 0
    looks = marks.looks(document)
    found = list(looks["sample"].values())
    assert len({(mark.shape, mark.colour) for mark in found}) == len(found)
    assert found[1] not in looks["normal"].values()


def test_fifty_six_types_look_different():
    found = [marks.mark_of(number) for number in range(56)]
    assert len({(mark.shape, mark.colour) for mark in found}) == 56
    assert marks.DIAMOND not in {mark.shape for mark in found}


def test_executions_on_top_of_each_other_are_counted(factory):
    document = comparison_document(factory.comparison(normals=30, samples=6, anomalous=3))
    document.plane.sample = [[1.0, 1.0]] * 6
    document.plane.normal = [[0.0, 0.0]] * 30
    page = render_html(document)
    both = re.findall(r'<svg class="scatter".*?</svg>', page)[2]
    assert "\N{MULTIPLICATION SIGN}30" in both
    assert len(re.findall(r"<polygon", both)) == 3
    names = {row.id for row in document.executions if row.anomalous}
    shown = re.search(r'font-weight="bold">([^<]*)<', both)[1]
    assert set(shown.split(", ")) == names


def test_reachability_has_a_place_for_every_execution(document):
    found = document.clusters.normal
    found.reachability = [None, *[0.5] * 10, *[0.0] * 9]
    found.ordering = list(range(20))
    page = render_html(document)
    plot = re.search(r'<svg class="reachability".*?</svg>', page)[0]
    bars = sum(path.count("M") for path in re.findall(r'<path d="([^"]*z)" fill="#', plot))
    assert bars == 19
    assert plot.count("stroke-dasharray") == 1
    assert "Undefined for 1 of 20 (dashed)" in plot
    assert "9 at 0: enough others have the same counts." in plot


def test_without_clusters_there_is_no_plot_and_no_complaint(document):
    for which in ("normal", "sample"):
        found = document.clusters[which]
        found.clusters, found.ordering, found.reachability = [], [], []
    document.clusters.pairs = []
    document.plane = None
    page = render_html(document)
    assert "No pair of types: a set had nothing to cluster." in page
    assert "<svg class=" + '"reachability"' not in page


def test_the_papers_rules_have_a_line_of_their_own_with_the_papers_name(document):
    page = render_html(document)
    said = re.search(r"By the paper&#x27;s rules[^<]*", page)[0]
    assert "Janecek, Ezzati-Jivan and Hamou-Lhadj, ICPC 2022" in said
    assert "WAIT_TIMER (average and probability)" in said
    for state in document.states:
        state.average_fires = state.probability_fires = False
    assert "By the paper&#x27;s rules" not in render_html(document)


def test_the_header_says_with_how_many_normal_executions_was_compared(document):
    assert "Compared with" not in render_html(document)
    found = document.clusters
    found.pairs = [pair for pair in found.pairs if pair.normal == 1]
    size = next(c.size for c in found.normal.clusters if c.cluster == 1)
    page = render_html(document)
    header = page[page.index("<header") : page.index("</header>")]
    whole = document.sets.normal.executions
    assert f"Compared with {size} of {whole} normal executions" in header
    assert "smallest change that would have shown" in header
