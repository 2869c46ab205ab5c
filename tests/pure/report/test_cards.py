"""What the pictures of causes and of all time draw: they tile, add up, and fold as they say."""

from __future__ import annotations

import importlib.util
import math
import re
from pathlib import Path
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from critpath.documents import DrawnPath, FlameEntry
from critpath.report.document.comparison import comparison_document
from critpath.report.html.as_html import render_html
from critpath.report.html.flame import lay_out
from critpath.report.html.lanes import common_scale, join_small, lanes_of, length_of, scale_of
from critpath.report.html.steps import Column, _folded, columns_of, looks_of

spec = importlib.util.spec_from_file_location("hostile", Path(__file__).with_name("hostile.py"))
names = importlib.util.module_from_spec(spec)
spec.loader.exec_module(names)

LENGTHS = st.lists(
    st.tuples(st.integers(1, 1000), st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=40
)


def path_of(parts):
    steps, at = [], 0
    for length, thread, doing in parts:
        steps.append([at, length, thread, doing])
        at += length
    return DrawnPath(set="sample", position=0, steps=steps)


@given(LENGTHS, st.floats(0, 500))
def test_joined_steps_tile_the_path_exactly(parts, least):
    path = path_of(parts)
    joined = join_small(path.steps, least)
    at = 0
    for begin, length, _, _ in joined:
        assert begin == at
        at += length
    assert at == length_of(path)
    assert all(length >= least for _, length, *_ in joined) or len(joined) == 1
    assert path.steps == path_of(parts).steps  # the data stays


@given(st.lists(LENGTHS, min_size=1, max_size=5))
def test_every_path_fits_on_its_scale(paths):
    paths = [path_of(parts) for parts in paths]
    common = common_scale(paths[0], paths)
    for path in paths:
        scale = scale_of(path, common)
        assert length_of(path) <= scale.width * (1 + 1e-9)
        assert scale.times == 1 or length_of(path) > common


def test_columns_add_up_to_the_mean_and_to_this_execution(factory):
    document = comparison_document(factory.comparison())
    looks = looks_of(document, document.pictures)
    for aligned in document.aligned:
        columns, many = columns_of(aligned, looks)
        *normals, mine = aligned.rows
        assert many == len(normals)
        assert sum(one.after for one in columns) == sum(mine.durations)
        usual = sum(sum(row.durations) for row in normals) / many
        assert math.isclose(sum(one.before for one in columns), usual)


@given(st.floats(0, 3), st.floats(0, 3))
def test_interrupts_below_one_per_cent_of_the_stretch_are_folded(before, after):
    columns = [
        Column(0, "running", 100.0, 60),
        Column(0, "interrupts", before, after),
        Column(0, "running", 100.0, 140),
        Column(1, "running", 5.0, 5),
    ]
    folded = _folded(columns)
    short = before <= 2 and after <= 2
    assert [one.doing for one in folded].count("interrupts") == (not short)
    assert math.isclose(sum(one.before for one in folded), 205 + before)


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=1, max_size=8))
def test_boxes_fill_the_one_above_them(leaves):
    sums = [float(sum(side)) for side in zip(*leaves, strict=True)]
    entries = [FlameEntry(-1, "all", "", 0, *sums)]
    entries += [FlameEntry(0, "state", "RUN", 0, float(b), float(a)) for b, a in leaves]
    root, *below = lay_out(entries)
    at = 0.0
    for box, (before, after) in zip(below, leaves, strict=True):
        assert (box.left, box.width) == (at, max(before, after))
        at += box.width
    assert root.width == at


def with_flame(document, name):
    document.pictures.flame = [
        FlameEntry(-1, "all", "", 0, 4e6, 6e6, "more", 0.001, [20, 20]),
        FlameEntry(0, "label", name, 0, 4e6, 6e6, "more", 0.001, [20, 20]),
        FlameEntry(1, "thread", name, -1, 3e6, 5e6, "more", 0.001),
        FlameEntry(2, "state", name, -1, 3e6, 5e6, "more", 0.001),
        FlameEntry(1, "rest", "", 0, 1e6, 1e6),
    ]
    return document


def elements(page):
    page = re.sub(r"(?s)<style>.*?</style>|<script.*?</script>", "", page)
    return [re.sub(r'"[^"]*"', '""', tag) for tag in re.findall(r"<[^>]*>", page)]


def test_no_name_adds_an_element_to_cards_or_flame_graph(factory):
    plain = elements(render_html(with_flame(names.document_with(factory, "name"), "name")))

    @names.hostile
    def check(name):
        page = render_html(with_flame(names.document_with(factory, name), name))
        tags = elements(page)
        assert {
            tag for tag in tags if tag.startswith(("<button", "<input", "<label", "<u", "<i"))
        } <= {tag for tag in plain if tag.startswith(("<button", "<input", "<label", "<u", "<i"))}
        assert "<img" not in page
        assert tags.count("</fieldset>") == plain.count("</fieldset>")

    check()


def test_a_card_per_cause_and_one_example_is_chosen(factory):
    document = comparison_document(factory.comparison())
    page = render_html(document)
    assert 'id="cause-1"' in page
    for group in set(re.findall(r'name="(c\d+)"', page)):
        inputs = re.findall(rf'<input type="radio" name="{group}"[^>]*>', page)
        assert sum(" checked" in one for one in inputs) == 1
    ids = re.findall(r'<input type="radio"[^>]* id="([^"]*)"', page)
    labels = re.findall(r'<label for="([^"]*)"', page)
    assert set(labels) <= set(ids)


def test_a_page_without_a_slowdown_has_no_cards(factory):
    document = structs.replace(comparison_document(factory.comparison()), verdict="ok")
    assert 'id="causes"' not in render_html(document)


def test_threads_of_many_hosts_are_below_their_own_hosts_names():
    threads = [
        {"name": f"db{n}@h{n}", "own": not n, "colour": 1, "host": f"h{n}"} for n in range(7)
    ]
    pictures = SimpleNamespace(threads=[SimpleNamespace(**one) for one in threads])
    path = SimpleNamespace(steps=[[n * 1_000, 1_000, n, 0] for n in range(7)])
    lanes = lanes_of(pictures, [path], 7_000)
    # A name and a lane for each of five hosts; behind them a name and a lane for the others.
    assert [lanes[n] for n in range(7)] == [1, 3, 5, 7, 9, 11, 11]
