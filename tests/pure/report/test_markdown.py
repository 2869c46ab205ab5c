"""Markdown: what it shows, that it fits, and that nothing of a trace acts in it."""

from __future__ import annotations

import html
import importlib.util
import re
from copy import copy
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from msgspec import structs

from critpath.report.ci.as_markdown import MOST_BYTES, code, inert, render_markdown, table
from critpath.report.document.comparison import comparison_document
from critpath.report.text.answer import cause_line
from critpath.text.answer import describe_headline
from critpath.units import safe_text

spec = importlib.util.spec_from_file_location("hostile", Path(__file__).with_name("hostile.py"))
names = importlib.util.module_from_spec(spec)
spec.loader.exec_module(names)

READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
# Outside of code: words, figures and our own sentences' punctuation.
PLAIN = re.compile(r"[\w\s.,:;%()+\-='/µ→▲▼✓?·⚠–]*", re.ASCII)


def inlines(tokens):
    return [child for token in tokens for child in token.children or []]


def no_link_to_be(text):
    """Assert that GitHub finds no mention, reference or address in a text that is not code."""
    assert PLAIN.fullmatch(text), text
    assert not re.search(r"www\.|://|\b[0-9a-f]{7,40}\b|\bGH-\d", text, re.IGNORECASE), text


@cache
def usual_tokens(factory):
    return READER.parse(render_markdown(names.usual_document(factory)))


@names.hostile
def test_any_name_stays_what_it_is(factory, name):
    tokens = READER.parse(render_markdown(names.document_with(factory, name)))
    usual = usual_tokens(factory)
    assert [t.type for t in tokens] == [t.type for t in usual]
    assert [t.content for t in tokens if t.type == "html_block"] == [
        t.content for t in usual if t.type == "html_block"
    ]
    for child in inlines(tokens):
        assert child.type in {"text", "code_inline", "softbreak", "strong_open", "strong_close"}
        if child.type == "text":
            no_link_to_be(child.content)


@names.hostile
def test_a_code_span_holds_exactly_the_text(name):
    for place in ("{}", "- {}", "a {} b", "### {}"):
        children = inlines(READER.parse(place.format(code(name))))
        (span,) = [c for c in children if c.type == "code_inline"]
        assert span.content == safe_text(name.replace("\n", " "))
        assert {c.type for c in children} <= {"text", "code_inline"}


@names.hostile
def test_a_table_keeps_its_cells(name):
    text = table(("a", ">b"), [(name, "1"), ("x", name)])
    tokens = READER.parse(text)
    cells = [t for t in tokens if t.type == "td_open"]
    assert len(cells) == 4
    shown = [t.content for t in tokens if t.type == "inline"]
    assert shown[3] == "1"
    assert shown[4] == "x"


@given(st.text())
def test_all_visible_characters_are_shown(text):
    shown = "".join(child.content for child in inlines(READER.parse(inert(text, most=10_000))))
    expected = safe_text(text.replace("\n", " "))

    def letters(value):
        return re.sub(r"[\s`]", "", value)

    assert letters(shown) == letters(expected)


def test_sentences_read_as_they_are_written():
    sentence = "4 of 11, +6.56 ms each: waiting for `holder` (tid 331), which ran (67 %)"
    assert inert(sentence) == sentence
    assert inert("a `b c` d") == "a `b c` d"
    assert inert("RUN@x is (y@z), new.") == "`RUN@x` is (`y@z`), new."
    assert inert("x" * 700).endswith("...")
    for plain in ("no slowdown, explain_limit", "field 'type' (2026-11-21T04:35:30Z)", "95 %, n0"):
        assert inert(plain) == plain
    # States are code, whichever letters they have.
    assert inert("RUN is up, WAIT_CPU too.") == "`RUN` is up, `WAIT_CPU` too."
    for linked in ("GH-1", "TICKET-12", "a_deadbeef", "_a_", "a-", "user@host"):
        assert inert(linked) == f"`{linked}`"


def test_names_of_the_trace_and_states_are_code_and_our_words_are_not(factory):
    names = factory.Names(comm="pytest", helper="holder", role="holder", detail="hrtimer")
    document = comparison_document(factory.comparison(names=names))
    document.settings |= {"level": [["SOFTIRQ@my job", "warn"], ["RUN", "off"]], "msa": "add"}
    document.settings["explain_limit"] = 50
    text = render_markdown(document)
    assert "| `mixed` | 20 → 6 |" in text
    assert "| `RUN@holder` |" in text
    assert "explain_limit 50" in text
    assert "level `SOFTIRQ@my job=warn`, `RUN=off`, msa add" in text
    document.settings["level"] = []
    assert "level none" in render_markdown(document)


def test_it_has_what_a_reader_needs_first(factory):
    document = comparison_document(factory.comparison())
    text = render_markdown(document)
    lines = [line for line in text.splitlines() if line]
    assert lines[0] == f"**▲ Slower: {describe_headline(document).sentence}.**"
    order = ["```text", "| kind |", "1. ", "States and their tests</summary>", "How it was decided"]
    places = [text.index(mark) for mark in order]
    assert places == sorted(places)
    assert text.count("<details>") == text.count("</details>")
    assert len(text.splitlines()) < 60
    page = html.unescape(READER.render(text))
    for cause in document.causes:
        assert cause_line(document, cause).replace("`", "") in re.sub("</?code>", "", page)


@pytest.mark.parametrize("verdict", ["ok", "inconclusive"])
def test_the_other_verdicts(factory, verdict):
    document = comparison_document(factory.comparison(verdict=verdict, anomalous=0, samples=5))
    text = render_markdown(document)
    assert text.startswith({"ok": "**✓ OK: ", "inconclusive": "**? Inconclusive: "}[verdict])
    assert "```" not in text


@pytest.fixture(scope="module")
def a_large_document(factory):
    long_names = factory.Names(comm="\N{SNOWMAN}" * 200, role="\N{SNOWMAN}" * 400, detail="d" * 900)
    document = comparison_document(
        factory.comparison(samples=60, anomalous=50, columns=60, names=long_names)
    )
    document.causes = [copy(document.causes[0]) for _ in range(300)]
    document.states = [structs.replace(document.states[3], state=f"S{i}") for i in range(400)]
    document.warnings = ["\N{SNOWMAN}" * 5000] * 100
    return document


@pytest.mark.parametrize("most", [MOST_BYTES, 30_000, 9_000, 4_000, 1_000, 10, -5])
def test_it_fits_and_counts_what_is_left_out(a_large_document, most):
    text = render_markdown(a_large_document, most=most)
    assert len(text.encode()) <= max(most, 0)
    if most > 4_000:
        assert "left out; the JSON has them all." in text
        assert text.count("<details>") == text.count("</details>")
    if most <= 10:
        assert text == ""


def test_a_comment_and_a_summary_have_room_for_it():
    assert min(65_536, 1_048_576) > MOST_BYTES
