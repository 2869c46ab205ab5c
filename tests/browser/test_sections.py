"""From a cause to its finding: an anchor without the script, the finding with it."""

from __future__ import annotations

from critpath.text import verdict


def test_a_causes_link_leads_to_its_finding(show, real):
    place, document = real
    cause = verdict.main_causes(document, 40)[0]
    position = cause.positions[-1]
    rank = min(
        document.findings[i].rank
        for i in cause.findings
        if document.findings[i].position == position
    )
    page = show(place)
    click = "document.querySelector(`#causes a[href='#${arguments[0]}']`).click()"
    page.run(click, f"x{position}f{rank}")
    page.settle()
    row = f"#x{position} tr:has(#x{position}f{rank})"
    assert page.text(f"{row} td") == str(rank)
    box = page.run("const b = document.querySelector(arguments[0]).getBoundingClientRect();"
                   "return [b.top, b.bottom, innerHeight]", row)  # fmt: skip
    assert 0 <= box[0] < box[1] <= box[2]


def test_every_anchor_of_the_page_is_there(show, real):
    place, _ = real
    page = show(place)
    missing = (
        "return [...document.querySelectorAll('main a[href^=\"#\"], nav a')]"
        ".filter((a) => !document.getElementById(a.hash.slice(1))).length"
    )
    assert page.run(missing) == 0
