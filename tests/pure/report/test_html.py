"""The page: self-contained, locked down, readable without script, honest about size."""

from __future__ import annotations

import base64
import hashlib
import json
import re

import pytest

from critpath.report.document.as_json import load_document, to_json, to_plain
from critpath.report.document.comparison import comparison_document
from critpath.report.html.as_html import place_by_rules, render_html


def scripts_off(page):
    """Return what a reader without scripts gets."""
    return re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)


def places(page):
    """Return where boxes stand, by the class that says so."""
    return dict(re.findall(r"^\.(p[0-9a-f]+)\{([^}]*)\}$", page, re.MULTILINE))


def test_policy_allows_exactly_our_script_and_style(factory):
    page = render_html(comparison_document(factory.comparison()))
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    rules = dict(rule.strip().split(" ", 1) for rule in policy[1].split(";"))
    assert rules["default-src"] == "'none'"
    for directive, pattern in (
        ("script-src", r'<script type="module">(.*?)</script>'),
        ("style-src", r"<style>(.*?)</style>"),
    ):
        source = re.findall(pattern, page, re.DOTALL)
        assert len(source) == 1
        digest = base64.b64encode(hashlib.sha256(source[0].encode()).digest()).decode()
        assert rules[directive] == f"'sha256-{digest}'"
    # The policy must be read before anything it could forbid.
    assert page.index("Content-Security-Policy") < min(page.index("<style"), page.index("<script"))


def test_nothing_comes_from_a_network_and_no_markup_carries_code_or_style(factory):
    page = render_html(comparison_document(factory.comparison()))
    assert not re.search(r"https?://|//[a-z]+\.", page)
    body = scripts_off(page)
    assert not re.search(r"<[^>]*\s(?:style|on[a-z]+|src|srcset)=", body)
    assert set(re.findall(r'href="(.)', body)) <= {"#"}
    for forbidden in ("innerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("):
        assert forbidden not in page


def test_places_become_rules_one_for_each():
    body = (
        '<i class="a" style="left:1.00%"></i><i class="" style="left:1.00%"></i><b class="c"></b>'
    )
    placed, rules = place_by_rules(body)
    assert placed == '<i class="a p0"></i><i class=" p0"></i><b class="c"></b>'
    assert rules == ".p0{left:1.00%}\n"


def test_the_essentials_are_there_without_script(factory):
    document = comparison_document(factory.comparison())
    body = scripts_off(render_html(document))
    for state in document.states:
        assert f"<code>{state.state}</code>" in body
    slow = [row for row in document.executions if row.set == "sample" and row.anomalous]
    assert slow
    for row in slow[:10]:
        assert f"<code>{row.id}</code>" in body
    assert "recordings/normal" in body
    assert "lttng-modules 2.13.9" in body
    for key, value in document.settings.items():
        assert f"<code>{key}</code>" in body, value


def test_every_target_of_a_link_exists_once(factory):
    page = render_html(comparison_document(factory.comparison(samples=44, anomalous=40, columns=9)))
    anchors = re.findall(r'\sid="([^"]+)"', page)
    assert len(anchors) == len(set(anchors))


@pytest.mark.parametrize(
    ("verdict", "chip"),
    [("anomaly", "▲ SLOWER"), ("ok", "✓ OK"), ("inconclusive", "? INCONCLUSIVE")],
)
def test_the_first_thing_is_the_answer(factory, verdict, chip):
    marked = 2 if verdict == "anomaly" else 0
    page = render_html(comparison_document(factory.comparison(verdict=verdict, anomalous=marked)))
    body = scripts_off(page)
    assert body.index(chip) < body.index("<h1>") < body.index('id="durations"')
    folded = '<details class="fold" id="slowest">' in body
    assert folded == (verdict != "anomaly")
    # What is missing is told where that is the question.
    assert ('id="recordings" open' in body) == (verdict == "inconclusive")


def test_bars_are_to_scale_and_add_up_to_the_means(factory):
    document = comparison_document(factory.comparison(samples=12, anomalous=12))
    page = render_html(document)
    where = places(page)
    kind = document.pictures.kinds[0]
    means = {one.group: one for one in kind.means}
    assert sum(s.time for s in means["after"].stretches) == pytest.approx(
        means["after"].mean, rel=1e-6
    )
    bars = re.findall(r'<div class="bar" role="img".*?</div>', page, re.DOTALL)
    assert len(bars) == 2
    longest = max(one.mean for one in means.values())
    for bar, name in zip(bars, ("before", "after"), strict=True):
        widths = []
        for kinds in re.findall(r'<span class="s ([^"]*)"', bar):
            found = where[kinds.split()[-1]]
            widths.append(float(re.search(r"width:([\d.]+)%", found)[1]))
        # What is too narrow to be seen leaves its place empty.
        assert sum(widths) == pytest.approx(100 * means[name].mean / longest, abs=1.0)


def test_a_part_of_a_kind_is_shown_beside_the_rest(factory):
    page = render_html(comparison_document(factory.comparison(samples=12, anomalous=3)))
    assert "the 3 slow ones" in page
    assert "the other 9" in page
    page = render_html(comparison_document(factory.comparison(samples=12, anomalous=11)))
    assert "slow ones" not in page


def test_every_request_is_a_dot_or_in_a_bar(factory):
    document = comparison_document(factory.comparison(normals=30, samples=20))
    page = render_html(document)
    assert len(re.findall(r'<i class="d before', page)) == 30
    assert len(re.findall(r'<i class="d after', page)) == 20
    many = render_html(comparison_document(factory.comparison(normals=150, samples=120)))
    assert '<i class="d ' not in many
    where = places(many)
    for kind in ("before", "after"):
        bars = re.findall(rf'<i class="h {kind} (p[0-9a-f]+)"', many)
        assert len({where[name].split(";")[0] for name in bars}) == len(bars)


def test_the_search_has_every_request_with_its_causes(factory):
    document = comparison_document(factory.comparison())
    data = json.loads(re.search(r'id="data" type="application/json">(.*?)</script>',
                                render_html(document))[1])  # fmt: skip
    ids = {row.id for row in document.executions if row.set == "sample"}
    assert {row[0] for row in data["rows"]} == ids
    assert data["of"] == len(ids)
    longer = [row[5] for row in data["rows"]]
    assert longer == sorted(longer, reverse=True)
    assert any(row[6] for row in data["rows"])


def test_documents_from_before_pictures_have_a_page_with_kinds(factory):
    document = comparison_document(factory.comparison())
    plain = json.loads(to_json(to_plain(document)))
    del plain["pictures"]
    page = render_html(load_document(json.dumps(plain)))
    assert 'id="kinds"' in page
    assert 'id="time"' not in page


def test_the_page_stays_small(factory):
    usual = comparison_document(factory.comparison(normals=180, samples=180, anomalous=12))
    assert len(render_html(usual).encode()) < 150_000
    large = comparison_document(
        factory.comparison(normals=300, samples=300, anomalous=200, columns=60)
    )
    assert len(render_html(large).encode()) < 400_000
