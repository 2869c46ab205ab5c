"""Whatever a traced program calls itself, no sink acts on it."""

from __future__ import annotations

import io
import json
import re
import unicodedata
from functools import cache
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

from critpath.report.document.as_json import load_document, to_json
from critpath.report.document.comparison import comparison_document
from critpath.report.document.path import path_document
from critpath.report.html.as_html import render_html
from critpath.report.text.as_text import render_comparison
from critpath.report.text.path import render_path

HOSTILE = (
    "</ScRiPt><img src=x onerror=alert(1)>",
    "<!--<script>",
    "\" onmouseover='alert(1)' x=\"",
    "&lt;b&gt;&#60;",
    "\x1b[2J\x1b]0;owned\x07",
    "\x9b31m",
    "abc\u202egnp.exe",
    "a\u2028b\u2029c",
    "two\nlines\rhere",
    "[red]x[/red]",
    "[/]",
    "[link=http://evil.example]x[/link]",
    ":skull:",
    "\ud800lone",
    "\x7f\x00",
    "{}%s${x}",
    "\u200b\ufeff",
)


class Elements(HTMLParser):
    """Every element and attribute of a page, and what its scripts hold."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, tuple[str, ...]]] = []
        self.open: list[str] = []
        self.scripts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, tuple(name for name, _ in attrs)))
        if tag not in {"meta", "path", "rect", "circle", "input"}:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, tuple(name for name, _ in attrs)))

    def handle_endtag(self, tag):
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)


def document_with(factory, name):
    names = factory.Names.all(name)
    comparison = factory.comparison(
        names=names,
        normals=4,
        samples=3,
        anomalous=1,
        columns=7,
        warnings=(name,),
        settings={name: name},
    )
    return comparison, comparison_document(comparison)


anything = st.text(min_size=1, max_size=24) | st.sampled_from(HOSTILE)


def hostile(test):
    for name in HOSTILE:
        test = example(name=name)(test)
    return given(name=anything)(test)


def without_labels(page):
    """Leave out what blocks and brackets say: only of names that have room there."""
    page = re.sub(r'<span class="label[^>]*>[^<]*</span>', "", page)
    return re.sub(r"(?<=>)<b>[^<]*</b>(?=</span>)", "", page)


@cache
def usual_elements(factory):
    return Elements(without_labels(render_html(document_with(factory, "w")[1])))


@hostile
def test_html_has_the_same_elements_whatever_the_name(factory, name):
    _, document = document_with(factory, name)
    page = render_html(document)
    usual = usual_elements(factory)
    parsed = Elements(without_labels(page))
    assert not parsed.open
    assert set(parsed.elements) == set(usual.elements)
    # Names stand in backticks and are code; with one of their own, more or less of it.
    assert [tag for tag, _ in parsed.elements if tag != "code"] == [
        tag for tag, _ in usual.elements if tag != "code"
    ]
    # Nothing that acts or hides: not in the text, and not in the script's data either.
    assert not {c for c in page if unicodedata.category(c) in {"Cf", "Cs", "Zl", "Zp"}}
    assert not {c for c in page if unicodedata.category(c) == "Cc"} - {"\n"}
    *data, script = parsed.scripts
    assert script == usual.scripts[-1]
    said = str([json.loads(one) for one in data])
    assert not {c for c in said if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}}


@hostile
def test_terminal_text_is_inert(factory, name):
    comparison, document = document_with(factory, name)
    path = path_document(comparison.sample.paths, 0, tid=1, comm=name, losses=())
    raw = io.StringIO()
    console = Console(file=raw, width=400, force_terminal=True, color_system="truecolor")
    render_comparison(document, console, verbose=True)
    render_path(path, console)
    text = re.sub(r"\x1b\[[0-9;]*m", "", raw.getvalue())
    unsafe = {c for c in text if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}}
    assert unsafe <= {"\n"}


@pytest.mark.parametrize("name", ["[red]x[/red]", "[/]", ":skull:", "[bold]", "[link=x]y[/link]"])
def test_markup_in_a_name_is_shown_as_it_is(factory, name):
    comparison, document = document_with(factory, name)
    raw = io.StringIO()
    render_comparison(document, Console(file=raw, width=400), verbose=True)
    render_path(
        path_document(comparison.sample.paths, 0, tid=1, comm=name, losses=()),
        Console(file=raw, width=400),
    )
    lines = raw.getvalue().splitlines()
    assert any(f" for thread `{name}`, which" in line for line in lines)
    assert any(line.startswith(f"{name} 1: ") for line in lines)
    assert any(f"RUN@{name}" in line for line in lines)


@hostile
def test_json_is_ascii_and_keeps_the_name(factory, name):
    # Of half a pair of UTF-16, which no file in UTF-8 can have, the letter for it is read.
    _, document = document_with(factory, re.sub("[\ud800-\udfff]", "\ufffd", name))
    text = to_json(document_with(factory, name)[1])
    assert set(text) <= {chr(c) for c in range(32, 127)} | {"\n"}
    again = load_document(text)
    assert again == document
    assert again.executions[-1].comm == document.executions[-1].comm
