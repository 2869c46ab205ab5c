"""Real reports, made by the command, and a browser to open them in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from critpath.documents import ComparisonDocument
from critpath.flow import compare
from critpath.report.document.comparison import comparison_document
from critpath.report.html.as_html import answer_of, render_html


@pytest.fixture(scope="session")
def browser(load: Callable[[str], ModuleType]) -> ModuleType:
    """Return ``chromium.py``; skips where there is no browser or no driver of it."""
    module = load("process/browser/chromium.py")
    if module.missing():
        pytest.skip(module.missing())
    return module


@pytest.fixture(scope="session")
def driver(browser: ModuleType) -> Iterator[Any]:
    with browser.chromium() as driver:
        yield driver


class Page:
    """A report that is open in the browser."""

    def __init__(self, driver: Any, browser: ModuleType) -> None:
        self.driver = driver
        self.browser = browser
        self.open: Path | None = None  # what is open, and was only looked at

    def load(self, place: Path, anchor: str = "") -> None:
        """Open a file anew."""
        self.open = None
        self.driver.get("about:blank")  # only the anchor changing would be no load
        self.driver.get(place.as_uri() + anchor)

    def resize(self, width: int, height: int) -> None:
        self.browser.resize(self.driver, width, height)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def until(self, condition: str, *arguments: Any) -> Any:
        return self.browser.until(self.driver, condition, *arguments)

    def one(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def all(self, selector: str) -> list[Any]:
        return list(self.driver.find_elements("css selector", selector))

    def text(self, selector: str) -> str:
        return str(self.run("return document.querySelector(arguments[0]).textContent", selector))

    def settle(self) -> None:
        """Wait until what was asked to be drawn is drawn."""
        self.driver.execute_async_script(
            "const done = arguments[0];"
            "requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0)));"
        )

    def complaints(self) -> list[Any]:
        """Return what the console said, what the policy stopped, what popped up."""
        seen = self.run("return [...(window.violations ?? []), ...(window.alerts ?? [])]") or []
        return [*self.driver.get_log("browser"), *seen]


@pytest.fixture(scope="session")
def tab(driver: Any, browser: ModuleType) -> Page:
    """Return the page that all tests have."""
    return Page(driver, browser)


@pytest.fixture
def show(tab: Page) -> Iterator[Callable[..., Page]]:
    """Return a function that opens a file; fails where the page complained meanwhile."""
    tab.driver.get_log("browser")

    def opened(place: Path, anchor: str = "", *, size: tuple[int, int] = (1400, 1000)) -> Page:
        tab.resize(*size)
        tab.load(place, anchor)
        return tab

    yield opened
    assert tab.complaints() == []
    tab.driver.get("about:blank")


@pytest.fixture
def look(tab: Page) -> Iterator[Callable[..., Page]]:
    """Return a function that shows a file to a test that changes nothing of the page.

    Where the test before looked at the same one, it is not opened again.
    """

    def shown(place: Path, *, size: tuple[int, int] = (1400, 1000)) -> Page:
        tab.resize(*size)
        if tab.open != place:
            tab.driver.get_log("browser")
            tab.load(place)
            tab.open = place
        return tab

    yield shown
    assert tab.complaints() == []


@pytest.fixture(scope="session")
def compared(
    answer: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[Path, ComparisonDocument]]:
    """Return a function that compares a guest's recording with ``normal``, by the command."""
    home = tmp_path_factory.mktemp("compared")

    @cache
    def compare_with(sample: str) -> tuple[Path, ComparisonDocument]:
        found = answer(sample)
        (home / f"{sample}.html").write_text(found.html, encoding="utf-8")
        return home / f"{sample}.html", found.document

    return compare_with


@pytest.fixture(scope="session")
def real(
    compared: Callable[[str], tuple[Path, ComparisonDocument]],
) -> tuple[Path, ComparisonDocument]:
    """Return the page and the document of a guest's comparison, made by the command."""
    return compared("sample-lock")


@pytest.fixture(scope="session")
def example(
    compared: Callable[[str], tuple[Path, ComparisonDocument]],
    load: Callable[[str], ModuleType],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], Path]:
    """Return a function from an answer to a page that gives it."""
    guests = {"slower": "sample-lock", "ok": "normal-2", "inconclusive": "lossy"}

    def example_of(answer: str) -> Path:
        if answer in guests:
            place, document = compared(guests[answer])
        else:
            draw = load("pure/end_to_end/drawn_sets.py").draw
            sets = (
                draw([f"r{3000 + 7 * i} {'r20 T900 ' * waits}r50" for i in range(20)])
                for waits in (6, 1)
            )
            document = comparison_document(compare(*sets))
            place = tmp_path_factory.mktemp("example") / f"{answer}.html"
            place.write_text(render_html(document), encoding="utf-8")
        assert answer_of(document) == answer
        return place

    return example_of
