"""The page and the document, byte for byte; ``pytest --update`` accepts what changed.

The page's script, style and aligned drawings are not in the golden files: they have
tests of their own, in a browser.  Figures are compared to six digits, so that another
build of numpy, which may sum in another order, finds the same.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from critpath import flow
from critpath.report.document.as_json import load_document, to_json, to_plain
from critpath.report.document.comparison import comparison_document
from critpath.report.html.as_html import render_html

GOLDEN = Path(__file__).with_name("golden")
SPECIFICATION = "events:app:request_begin,app:request_end,key=id"


def to_six_digits(value):
    if isinstance(value, float):
        return float(f"{value:.6g}") + 0.0
    if isinstance(value, list):
        return [to_six_digits(item) for item in value]
    if isinstance(value, dict):
        return {key: to_six_digits(item) for key, item in value.items()}
    return value


def without_assets(page):
    """Return a page with a line per element, less what has golden tests nowhere."""
    for name, pattern in (
        ("style", r"(?<=<style>).*?(?=</style>)"),
        ("scripts", r"<script.*</script>"),
        ("hash", r"(?<=sha256-)[A-Za-z0-9+/=]+"),
        ("patterns", r"(?<=<defs>).*?(?=</defs>)"),
        (
            "aligned",
            r'(?<=<section id="aligned" aria-labelledby="aligned-title">).*?(?=</section>)',
        ),
    ):
        page = re.sub(pattern, f"[{name}]", page, flags=re.DOTALL)
    return re.sub(
        r"(?=<(?:section|h\d|p|table|tr|li|dt|figure|svg|figcaption|nav|footer)\b)", "\n", page
    )


@pytest.fixture(scope="module")
def found(factory, guest, tmp_path_factory):
    """Return a function from a golden file's name to the document."""

    def real(sample):
        # By relative names: where this checkout is must not matter.
        place = tmp_path_factory.mktemp("recordings")
        sets = []
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(place)
            for name in ("normal", sample):
                Path(name).symlink_to(guest(name))
                sets.append(flow.extract([Path(name)], specification=SPECIFICATION))
            return flow.compare(*sets)

    made = {
        "factory": factory.comparison,
        "ok": lambda: factory.comparison(verdict="ok", anomalous=0),
        "inconclusive": lambda: factory.comparison(verdict="inconclusive", anomalous=0, samples=0),
        "sample-lock": lambda: real("sample-lock"),
    }
    return lambda name: to_six_digits(to_plain(comparison_document(made[name]())))


@pytest.mark.parametrize("name", ["factory", "ok", "inconclusive", "sample-lock"])
def test_the_document_is_as_it_was(found, golden, name):
    golden(GOLDEN / f"{name}.json", to_json(found(name)))


@pytest.mark.parametrize("name", ["factory", "ok", "inconclusive", "sample-lock"])
def test_the_page_is_as_it_was(golden, name):
    # From the golden document: a figure on the edge of rounding cannot change it.
    document = load_document((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    golden(GOLDEN / f"{name}.html", without_assets(render_html(document)))


def test_golden_files_are_of_this_format():
    for file in GOLDEN.glob("*.json"):
        assert json.loads(file.read_text(encoding="utf-8"))["format"] == "critpath/comparison/1"
