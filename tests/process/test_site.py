"""The site: built strictly, every place in it exists, nothing comes from elsewhere."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.deep,
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("sphinx", "myst_parser", "furo")),
        reason="Sphinx, MyST-Parser or Furo is missing: pip install --group docs",
    ),
]

# What a browser fetches by itself, and what only a reader follows.
LOADED = {
    "script": ("src",),
    "link": ("href",),
    "img": ("src", "srcset"),
    "source": ("src", "srcset"),
    "iframe": ("src",),
    "video": ("src", "poster"),
    "audio": ("src",),
    "object": ("data",),
    "embed": ("src",),
    "use": ("href",),
    "image": ("href",),
}


class Page(HTMLParser):
    """What a page loads, where it links to, and the anchors it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads, self.links, self.anchors, self.styles = [], [], set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}
        self.styles.append(values.get("style") or "")
        for name in LOADED.get(tag, ()):
            if values.get(name):
                parts = values[name].split(",") if name == "srcset" else [values[name]]
                self.loads += [part.split()[0] for part in parts]
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])


def build(sources: Path, place: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(sys.executable, "-m", "sphinx", "--quiet", "--nitpicky", "--fail-on-warning"),
            *("--keep-going", "-c", str(sources / "docs/site"), str(sources), str(place)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    place = tmp_path_factory.mktemp("site")
    done = build(ROOT, place)
    assert done.returncode == 0, done.stderr
    return place


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


def test_every_document_is_a_page(pages, site):
    documents = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md"]
    for path in documents:
        assert (site / path.relative_to(ROOT)).with_suffix(".html") in pages


def test_no_page_loads_anything_from_elsewhere(pages, site):
    outside = [
        f"{path.relative_to(site)}: {target}"
        for path, page in pages.items()
        for target in page.loads
        if urlsplit(target).scheme not in {"", "data"} or target.startswith("//")
    ]
    assert outside == []
    for path in site.rglob("*.css"):
        text = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert re.findall(r"""(?:url\(|@import)\s*["']?\s*(?:https?:)?//""", text) == [], path
    assert not any("url(" in style for page in pages.values() for style in page.styles)


def test_every_link_anchor_and_picture_within_the_site_exists(pages, site):
    missing = []
    for path, page in pages.items():
        for target in (*page.links, *page.loads):
            parts = urlsplit(target)
            if parts.scheme or target.startswith("//"):
                continue
            place = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            at = f"{path.relative_to(site)}: {target}"
            if not place.is_file():
                missing.append(at)
            elif parts.fragment and place.suffix == ".html":
                fragment = unquote(parts.fragment)
                if fragment and fragment not in pages[place].anchors:
                    missing.append(at)
    assert missing == []


def test_a_link_that_leads_nowhere_fails_the_build(tmp_path):
    sources = tmp_path / "sources"
    for name in ("docs/site/conf.py", "pyproject.toml"):
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        (sources / name).write_bytes((ROOT / name).read_bytes())
    for name in ("docs/site/static", "docs/images"):
        (sources / name).mkdir()
    (sources / "docs/there.md").write_text("# There\n\n## A title of two words\n")
    (sources / "docs/site/static/site.css").write_text("")
    (sources / "README.md").write_text(
        "# x\n\n[there](docs/there.md#a-title-of-two-words)\n"
        "\n[no page](docs/nowhere.md)\n\n[no anchor](docs/there.md#missing)\n"
    )
    done = build(sources, tmp_path / "wrong")
    assert done.returncode == 1
    said = [line for line in done.stderr.splitlines() if "WARNING" in line]
    assert len(said) == 2, done.stderr  # and nothing of the link that is right
    assert "nowhere" in said[0]
    assert "missing" in said[1]
