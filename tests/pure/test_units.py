"""Durations, shares and counts as people read them; text that cannot act on a terminal."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.units import (
    format_ns,
    format_share,
    plural,
    round_up,
    safe_text,
    shorten_names,
    split_common,
)


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (1, "1 ns"),
        (999, "999 ns"),
        (1000, "1.00 µs"),
        (9_994, "9.99 µs"),
        (9_996, "10.0 µs"),
        (99_949, "99.9 µs"),
        (99_950, "100 µs"),
        (999_499, "999 µs"),
        (999_600, "1.00 ms"),
        (30_100_000, "30.1 ms"),
        (406_492_244, "406 ms"),
        (999_600_000, "1.00 s"),
        (3_600_000_000_000, "3600 s"),
        (-30_100_000, "-30.1 ms"),
    ],
)
def test_a_duration_has_three_digits(ns, text):
    assert format_ns(ns) == text


def test_signs_are_shown_where_asked_for():
    assert format_ns(5, sign=True) == "+5 ns"
    assert format_ns(0, sign=True) == "0 ns"
    assert format_ns(-5, sign=True) == "-5 ns"


@given(st.integers(-(10**13), 10**13))
def test_a_duration_reads_back_to_within_half_a_percent(ns):
    number, unit = re.fullmatch(r"(-?[\d.]+) (ns|µs|ms|s)", format_ns(ns)).groups()
    scale = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}[unit]
    assert float(number) * scale == pytest.approx(ns, rel=0.0051, abs=0.5)
    assert float(number) in {0.0, -0.0} or unit == "s" or abs(float(number)) < 1000


@pytest.mark.parametrize(
    ("share", "text"), [(0, "0.0 %"), (0.053, "5.3 %"), (0.5, "50 %"), (1, "100 %")]
)
def test_a_share_is_a_percentage(share, text):
    assert format_share(share) == text


def test_counts_agree_with_their_noun():
    assert [plural(n, "event") for n in (0, 1, 5010)] == ["0 events", "1 event", "5,010 events"]
    assert [plural(n, "process") for n in (1, 2)] == ["1 process", "2 processes"]
    assert [plural(n, "vertex") for n in (1, 2)] == ["1 vertex", "2 vertices"]


@pytest.mark.parametrize("text", ["worker-1", "naïve", "日本語", "a b", "→"])
def test_plain_text_stays(text):
    assert safe_text(text) == text


@pytest.mark.parametrize(
    "bad", ["\x1b", "\n", "\r", "\x00", "\x9b", "\u202e", "\u200b", "\u2028", "\ud800", "\ue000"]
)
def test_what_acts_on_a_terminal_is_replaced(bad):
    assert safe_text(f"a{bad}b") == "a\ufffdb"


@given(st.text(st.characters()))
def test_no_text_keeps_a_control_and_none_changes_its_length(text):
    safe = safe_text(text)
    assert len(safe) == len(text)
    unsafe = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    assert not [c for c in safe if unicodedata.category(c) in unsafe]
    assert safe_text(safe) == safe


@pytest.mark.parametrize(
    ("share", "rounded"), [(0.05, 0.05), (0.0601, 0.07), (0.069, 0.07), (0.07, 0.07), (0.0, 0.0)]
)
def test_a_floor_is_rounded_up(share, rounded):
    assert round_up(share) == rounded


def test_names_that_begin_alike_show_what_differs():
    api = "GET /api/v1/customers/:id/"
    assert shorten_names([f"{api}orders", f"{api}invoices", "POST /"], 24) == [
        "GET /api/v1/custo…orders",
        "GET /api/v1/cus…invoices",
        "POST /",
    ]
    assert shorten_names(["a" * 30, "b" * 30], 10) == ["aaaaaaaaa…", "bbbbbbbbb…"]
    assert shorten_names(["a" * 30], 10) == ["aaaaaaaaa…"]
    assert shorten_names(["x" * 30 + "1", "x" * 30 + "2"], 10) == ["xxxxxxxx…1", "xxxxxxxx…2"]
    assert shorten_names([f"{api}{'m' * 40}", f"{api}{'n' * 40}"], 10) == [
        "…mmmmmmmm…",
        "…nnnnnnnn…",
    ]


def test_names_that_would_be_cut_to_the_same_are_cut_where_they_differ():
    shown = shorten_names([f"s:80 GET /products/:id/{end}" for end in ("reviews", "orders")], 24)
    assert shown == ["s:80 GET /produc…reviews", "s:80 GET /product…orders"]
    other = [*(f"s:80 GET /products/:id/{end}" for end in ("reviews", "orders")), "x" * 30]
    assert len(set(shorten_names(other, 24))) == 3


def test_words_that_all_names_begin_with_stand_once():
    assert split_common(["s:80 GET /cart", "s:80 GET /category"]) == (
        "s:80 GET",
        ["/cart", "/category"],
    )
    assert split_common(["GET /", "GET"]) == ("", ["GET /", "GET"])
    assert split_common(["cart", "category"]) == ("", ["cart", "category"])
    assert split_common(["one two"]) == ("", ["one two"])
    assert split_common([]) == ("", [])


@given(st.lists(st.text(max_size=40)), st.integers(3, 30))
def test_no_name_is_longer_than_there_is_room_for(names, most):
    cut = shorten_names(names, most)
    assert all(len(one) <= most for one in cut)
    assert [a for a, b in zip(names, cut, strict=True) if len(a) <= most and a != b] == []
