"""Cards and the flame graph in a browser: the keyboard chooses an example, and zooms."""

from __future__ import annotations


def test_the_keyboard_chooses_another_request_of_a_cause(show, real):
    place, _ = real
    page = show(place)
    shown = (
        "return [...document.querySelectorAll('#cause-1 .panels > div')]"
        ".map((one) => one.getClientRects().length > 0)"
    )
    assert page.run(shown).index(True) == 0
    page.one("#c1e0").send_keys("\ue014")  # arrow right
    assert page.run(shown).index(True) == 1
    assert page.run(shown).count(True) == 1


def test_enter_zooms_into_a_box_and_escape_goes_back(show, real):
    place, _ = real
    page = show(place)
    width = "return document.querySelector('.flame .k').getBoundingClientRect().width"
    whole = page.run("return document.querySelector('.flame').getBoundingClientRect().width")
    before = page.run(width)
    assert before < 0.9 * whole
    box = page.one(".flame .k")
    box.send_keys("\ue007")  # Enter
    page.until(f"{width} > {0.98 * whole}")
    assert page.text("#box") == box.get_attribute("title")
    box.send_keys("\ue00c")  # Escape
    page.until(f"{width} < {before + 1}")
