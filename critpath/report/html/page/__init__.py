"""The script and the style of the page's viewer, hand-written, put together in order."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

# One inline module: every part may use what stands in the parts before it.
PARTS: Final = (
    "text.js",
    "data.js",
    "paint.js",
    "drawing.js",
    "view.js",
    "details.js",
    "article.js",
    "filters.js",
    "links.js",
)


def script() -> str:
    """Return the page's script, one ES module: less its comments and indentation.

    No text in it goes over several lines, so a line's beginning means nothing.
    """
    lines = (line.strip() for name in PARTS for line in _asset(name).splitlines())
    return "".join(f"{line}\n" for line in lines if line and not line.startswith("//"))


def style() -> str:
    """Return the style of what the script adds to the page."""
    return _asset("viewer.css")


def _asset(name: str) -> str:
    return files("critpath.report.html.page").joinpath(name).read_text(encoding="utf-8")
