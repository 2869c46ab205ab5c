"""The site that ``make site`` builds: docs/*.md as they stand, through Sphinx and MyST.

Sphinx reads the whole checkout, so that README.md and the documents link to each other as
they do on a forge.  Nothing is added to the sources: what Sphinx wants to know besides (the
order of the pages) stands here.
"""  # noqa: INP001 - Sphinx reads this file, nothing imports it

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# ------------------------------------------------------------------------ for Sphinx

project = PROJECT["name"]
version = release = PROJECT["version"]
copyright = ""  # noqa: A001 - Sphinx's name for it; LICENSE has the text

root_doc = "README"
include_patterns = [
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "marks/README.md"),
    "news/README.md",
    *("docs/**/*.md", "docs/*.md"),
    *("fixtures/**/*.md", "lttng-sessions/README.md"),
]
exclude_patterns = [".venv", "build", ".git", ".*_cache", "**/node_modules"]
extensions = ["myst_parser"]
# Anchors are made from titles, as forges make them.
myst_heading_anchors = 4
smartquotes = False
nitpicky = True

html_theme = "furo"
html_title = f"critpath {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_last_updated_fmt = None  # the same sources give the same pages
pygments_style = "friendly"
pygments_dark_style = "monokai"

# What a reader needs first stands first.
PAGES: Final = {
    "Begin": (
        "docs/tutorial",
        "docs/reading-the-report",
        "docs/what-next",
        "docs/exploring",
        "docs/conditions",
        "docs/recording",
        "docs/recording-trouble",
        "docs/marks",
        "docs/finding-requests",
        "docs/slices",
        "docs/recipes",
        "docs/hosts",
        "docs/tutorial-known",
        "docs/labels",
        "docs/tasks",
        "docs/tls",
        "docs/brokers",
        "docs/code-locations",
        "docs/overhead",
        "docs/functions",
        "docs/counts",
        "docs/signatures",
        "docs/always-on",
        "docs/live-requests",
        "docs/metrics",
        "docs/containers/README",
        "docs/kernels",
        "docs/ab",
        "docs/ci",
        "docs/noise",
        "docs/beside-other-tools",
        "docs/exports",
        "docs/large-traces",
        "docs/object-stores",
        "docs/compatibility",
    ),
    "Reference": (
        *(
            "docs/commands",
            "docs/reference-json",
            "docs/python",
            "marks/README",
            "docs/file-formats",
        ),
        *("docs/critical-path", "docs/requests", "docs/tokens", "docs/glossary"),
    ),
    "Inside": (
        *(
            "docs/how-it-decides",
            "docs/parameters",
            "docs/architecture",
            "docs/security",
            "docs/promises",
        ),
        "docs/decisions/README",
        *("CONTRIBUTING", "SECURITY"),
    ),
    "Evidence": (
        "docs/evaluation",
        "docs/fuzzing",
        "CHANGELOG",
        "news/README",
    ),
}


def setup(app: Any) -> None:
    """Register what happens beside the reading and writing."""
    app.connect("source-read", add_contents)
    app.connect("build-finished", finish)


def add_contents(app: Any, docname: str, source: list[str]) -> None:
    """Give the first page, and pages with pages below, a table of contents for the sidebar.

    A page that no line here names stands under the directory it is in, or under "More":
    a new document is on the site without being entered.
    """
    if docname == root_doc:
        known = {page for pages in PAGES.values() for page in pages}
        below = {*_decisions(app), *_evaluation(app)}
        rest = sorted(app.env.found_docs - known - {root_doc} - below)
        parts = {**PAGES, "More": tuple(rest)}
        source[0] += "".join(
            _toctree(caption, [f"/{page}" for page in pages if page in app.env.found_docs])
            for caption, pages in parts.items()
        )
    elif docname == "docs/decisions/README":
        source[0] += _toctree("", [f"/{page}" for page in _decisions(app)])
    elif docname == "docs/evaluation":
        linked = re.findall(r"\(evaluation/([\w-]+)\.md\)", source[0])
        ordered = sorted(_evaluation(app), key=lambda page: _place(page, linked))
        source[0] += _toctree("", [f"/{page}" for page in ordered])


def _decisions(app: Any) -> list[str]:
    below = [name for name in app.env.found_docs if name.startswith("docs/decisions/")]
    numbered = [name for name in below if not name.endswith("README")]
    return sorted(numbered, key=lambda name: int(name.rsplit("/", 1)[1].split("-")[0]))


def _evaluation(app: Any) -> list[str]:
    return sorted(name for name in app.env.found_docs if name.startswith("docs/evaluation/"))


def _place(page: str, linked: list[str]) -> tuple[int, str]:
    """Return where a page stands: as the overview links it, its tables right behind it."""
    name = page.rsplit("/", 1)[1].removesuffix("-tables")
    return linked.index(name) if name in linked else len(linked), page


def _toctree(caption: str, pages: list[str]) -> str:
    if not pages:
        return ""
    options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
    return "\n\n```{toctree}\n" + "\n".join([*options, "", *pages]) + "\n```\n"


def finish(app: Any, exception: Exception | None) -> None:
    """Add the pictures that HTML elements name, and the page that a server looks for."""
    if exception is None:
        place = Path(app.outdir)
        shutil.copytree(ROOT / "docs/images", place / "docs/images", dirs_exist_ok=True)
        (place / "index.html").write_text(
            '<!DOCTYPE html>\n<html lang="en"><meta charset="utf-8"><title>critpath</title>\n'
            f'<meta http-equiv="refresh" content="0; url={root_doc}.html">\n'
            f'<a href="{root_doc}.html">critpath</a></html>\n',
            encoding="utf-8",
        )
