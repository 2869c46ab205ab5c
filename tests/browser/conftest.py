"""Real reports, made by the command, and a browser to open them in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from critpath.documents import ComparisonDocument
from critpath.report.document.as_json import load_document

SPECIFICATION = "events:app:request_begin,app:request_end,key=id"


@pytest.fixture(scope="session")
def browser(load: Callable[[str], ModuleType]) -> ModuleType:
    """Return ``chromium.py``; skips where there is no browser or no driver of it."""
    module = load("browser/chromium.py")
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


@pytest.fixture
def show(driver: Any, browser: ModuleType) -> Iterator[Callable[..., Page]]:
    """Return a function that opens a file; fails where the page complained meanwhile."""
    page = Page(driver, browser)
    driver.get_log("browser")

    def opened(place: Path, anchor: str = "", *, size: tuple[int, int] = (1400, 1000)) -> Page:
        driver.get("about:blank")  # only the anchor changing would be no load
        browser.resize(driver, *size)
        driver.get(place.as_uri() + anchor)
        return page

    yield opened
    assert page.complaints() == []
    driver.get("about:blank")


@pytest.fixture(scope="session")
def real(
    critpath: Callable[..., Any],
    guest: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, ComparisonDocument]:
    """Return the page and the document of a guest's comparison, made by the command."""
    home = tmp_path_factory.mktemp("real")
    run = critpath(
        *("compare", guest("normal"), guest("sample-lock"), "--execution", SPECIFICATION),
        *("--html", "report.html", "--json", "report.json"),
        cwd=home,
    )
    assert run.returncode == 1, run.stderr
    document = load_document((home / "report.json").read_text(encoding="utf-8"))
    return home / "report.html", document
