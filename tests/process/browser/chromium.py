"""Debian's chromium, driven by its own driver: nothing is ever downloaded."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")

_PAGE = """
window.violations = [];
window.alerts = [];
document.addEventListener("securitypolicyviolation", (e) => {
  window.violations.push(e.violatedDirective + " " + e.blockedURI + " " + e.sample);
});
for (const name of ["alert", "confirm", "prompt"]) {
  window[name] = (text) => window.alerts.push(String(text));
}
"""


def missing() -> str:
    """Return what a test in the browser lacks here, "" where nothing is missing."""
    if importlib.util.find_spec("selenium") is None:
        return "selenium is not installed"
    if BROWSER is None:
        return "no chromium here"
    if DRIVER is None:
        return "no chromedriver here (Debian: chromium-driver)"
    return ""


@contextmanager
def chromium(*, width: int = 1400, height: int = 1000, ratio: float = 1) -> Iterator[Any]:
    """Start a browser without a window; its driver notes violations and alerts."""
    from selenium import webdriver  # noqa: PLC0415 - skipped where it is missing
    from selenium.webdriver.chrome.service import Service  # noqa: PLC0415 - as above

    options = webdriver.ChromeOptions()
    options.binary_location = str(BROWSER)
    for argument in (
        *("headless=new", "disable-gpu", "disable-background-networking", "no-first-run"),
        *("disable-component-update", "disable-sync", "disable-default-apps", "disable-extensions"),
        *(["no-sandbox"] if os.geteuid() == 0 else []),
        *("disable-dev-shm-usage", f"window-size={width},{height}"),
    ):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    try:
        resize(driver, width, height, ratio)
        driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _PAGE})
        # Without a window nothing else gives the page the focus for certain.
        driver.execute_cdp_cmd("Emulation.setFocusEmulationEnabled", {"enabled": True})
        driver.set_script_timeout(120)
        yield driver
    finally:
        driver.quit()


def resize(driver: Any, width: int, height: int, ratio: float = 1) -> None:
    """Give the page a size in CSS pixels."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": ratio, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def until(driver: Any, condition: str, *arguments: Any) -> Any:
    """Wait for a script to return something true and return it; at most 30 s."""
    from selenium.webdriver.support.wait import WebDriverWait  # noqa: PLC0415 - as above

    waiting = WebDriverWait(driver, 30, poll_frequency=0.02)
    return waiting.until(lambda _: driver.execute_script(condition, *arguments), condition)
