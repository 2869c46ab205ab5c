"""The page of `critpath known check --html`: what it says, of hostile labels too."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from msgspec import structs

from critpath.documents.known import CHECK_FORMAT, CheckDocument, CheckedLabel, JoinEntry
from critpath.report.html.known import MOST, render_check

ENTRY = "pg/2026-05-03T14-02-11Z-9f3c01.json"
HOSTILE = "</ScRiPt><img src=x onerror=alert(1)>\" style='x' `\x1b[2J\u202e"


def label(name: str, sessions: int, unknown: int = 0, **nearest: int) -> CheckedLabel:
    judged = sum(nearest.values())
    of = {other.replace("_", "-"): count for other, count in nearest.items()}
    return CheckedLabel(
        label=name,
        sessions=sessions,
        documents=20 * sessions,
        quiet=0,
        judged=judged,
        right=of.get(name, 0),
        unknown=unknown,
        nearest=of,
    )


@pytest.fixture
def document() -> CheckDocument:
    return CheckDocument(
        format=CHECK_FORMAT,
        version="0.2.0",
        store="team.known",
        digest="9f3c0112ab",
        labels=[
            label("find", 3, find=60),
            label("gcc", 3, 9, gcc=60),
            label("nginx", 1),
            label("pg", 3, pg=57, nginx=3),
            label("pipe-4k", 3, pipe_4k=41, pipe_64k=19),
            label("pipe-64k", 3, pipe_64k=50, pipe_4k=10),
            structs.replace(label("xz", 3), quiet=60),
        ],
        strangers=400,
        recognised=300,
        level=0.01,
        calibrated=True,
        twins=[["pipe-4k", "pipe-64k"]],
        doubtful=[ENTRY],
        notes=["xz/1: too little happened in it to say what it is"],
        tree=[
            JoinEntry(one=4, other=5, similarity=0.985),
            JoinEntry(one=2, other=3, similarity=0.91),
            JoinEntry(one=0, other=1, similarity=0.5),
            JoinEntry(one=7, other=8, similarity=0.4),
            JoinEntry(one=9, other=10, similarity=0.25),
        ],
        groups=[["find"], ["gcc"], ["nginx", "pg"], ["pipe-4k", "pipe-64k"]],
    )


class Page(HTMLParser):
    """Tables as texts, attributes by element, and what is open."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tables: list[list[list[str]]] = []
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.open: list[str] = []
        self.cell = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        if tag not in {"meta", "br"} and not tag.startswith("path"):
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in {"td", "th"}:
            self.tables[-1][-1].append("")
        self.cell = tag in {"td", "th"} or (self.cell and tag != "caption")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self.cell = self.cell and tag not in {"td", "th"}

    def handle_data(self, data: str) -> None:
        if self.cell:
            self.tables[-1][-1][-1] += data


def plain(page: str) -> str:
    """Return the page's text without its style and script."""
    body = page[page.index("<body") : page.index("<script")]
    return re.sub(r"<[^>]*>", "", body).replace("\N{NO-BREAK SPACE}", " ")


def test_the_weakest_come_first_and_what_to_do_about_them(document: CheckDocument) -> None:
    page = render_check(document)
    _, *rows = Page(page).tables[0]
    assert [row[0] for row in rows] == ["nginx", "xz", "pipe-4k", "pipe-64k", "pg", "gcc", "find"]
    todo = {row[0]: row[-1] for row in rows}
    assert todo["nginx"].startswith("Record it again on another day")
    assert "--events broad" in todo["xz"]
    assert "critpath known relabel team.known pipe-4k pipe-64k" in todo["pipe-4k"]
    assert f"{ENTRY} is nearer to another label" in todo["pg"]
    assert "like nothing known" in todo["gcc"]
    assert todo["find"] == "nothing"
    assert "6 OF 7 LABELS TO IMPROVE" in page


def test_it_says_how_often_the_store_is_right(document: CheckDocument) -> None:
    text = plain(render_check(document))
    assert "89.3 % of the intervals are nearest to their own label" in text
    assert "1 session is nearer to another label than to its own." in text
    assert "3.0 % called unknown; strangers recognised 75 %" in text
    good = structs.replace(
        document, labels=[document.labels[0]], twins=[], doubtful=[], tree=[], notes=[]
    )
    text = plain(render_check(good))
    assert "✓ OK" in text
    assert "100.0 % of the intervals" in text
    none = structs.replace(good, labels=[label("nginx", 1)])
    assert "Nothing can be judged yet" in plain(render_check(none))


def test_who_is_taken_for_whom_is_a_table_of_shares(document: CheckDocument) -> None:
    head, *rows = Page(render_check(document)).tables[1]
    assert head[1:] == ["find", "gcc", "nginx", "pg", "pipe-4k", "pipe-64k"]
    shares = {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in rows}
    assert list(shares) == ["find", "gcc", "pg", "pipe-4k", "pipe-64k"]  # what could be judged
    assert shares["pipe-4k"] == {**dict.fromkeys(head[1:], "·"), "pipe-4k": "68", "pipe-64k": "32"}
    assert shares["pg"]["nginx"] == "5"


def test_the_tree_is_drawn_and_in_figures(document: CheckDocument) -> None:
    page = render_check(document)
    leaves = re.findall(r"<li class=\"(w\d)[^>]*><code>([^<]*)", page)
    assert [name for _, name in leaves] == ["find", "gcc", "pipe-4k", "pipe-64k", "nginx", "pg"]
    colours = {name: colour for colour, name in leaves}
    assert colours["pipe-4k"] == colours["pipe-64k"] != colours["pg"] == colours["nginx"]
    assert page.count("<path") == 3 * len(document.tree)
    _, *rows = Page(page).tables[2]
    assert rows[0] == ["pipe-4k", "pipe-64k", "0.985"]
    assert rows[-1][-1] == "0.250"
    assert "Alike: find; gcc; nginx, pg; pipe-4k, pipe-64k." in plain(page)


def test_many_labels_are_listed_and_not_drawn(document: CheckDocument) -> None:
    names = [f"l{number:03}" for number in range(MOST + 20)]
    many = structs.replace(
        document,
        labels=[
            label(name, 3, **{name: 60 - (at < 3), "l000": int(at < 3)} if at else {name: 60})
            for at, name in enumerate(names)
        ],
        tree=[
            JoinEntry(one=len(names) + at - 1 if at else 0, other=at + 1, similarity=0.9)
            for at in range(len(names) - 1)
        ],
        groups=[names],
        twins=[],
        doubtful=[],
    )
    page = render_check(many)
    assert "<svg" not in page
    assert len(Page(page).tables[1]) == 1 + MOST
    assert "The 20 labels that are right most often are left out." in page


def test_a_hostile_document_adds_no_element(document: CheckDocument) -> None:
    before = Page(render_check(document))
    first = document.labels[0]
    hostile = structs.replace(
        document,
        store=HOSTILE,
        labels=[
            structs.replace(first, label=HOSTILE, nearest={HOSTILE: 60}),
            *document.labels[1:],
        ],
        groups=[[HOSTILE], *document.groups[1:]],
        notes=[HOSTILE],
        digest=HOSTILE,
        version=HOSTILE,
    )
    page = render_check(hostile)
    after = Page(page)
    assert not before.open
    assert not after.open
    # Names between backticks are code: fewer or more of these is all that changes.
    without = [[tag for tag in one.tags if tag[0] != "code"] for one in (before, after)]
    assert sorted(without[0]) == sorted(without[1])
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert "default-src 'none'" in page
    assert not any("style" in names for _, names in after.tags)
