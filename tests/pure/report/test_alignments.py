"""Alignments and trees for other programs, read back by Biopython's own readers."""

from __future__ import annotations

from io import StringIO
from types import SimpleNamespace

import numpy as np
import pytest
from Bio import Align, AlignIO, Phylo
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from critpath.documents import AlignedEntry, AlignedRow, AlignedStatistics, LoopEntry
from critpath.errors import UnreadableError, UsageError
from critpath.model import LETTERS, Alignment, Loop, label_duration
from critpath.report.document.as_json import load_document, to_json, to_plain
from critpath.report.document.comparison import comparison_document
from critpath.report.exports.alignments import (
    alignment_of,
    row_names,
    to_biopython_alignment,
    write_alignments,
    write_trees,
)

FORMATS = ("fasta", "clustal", "stockholm")


def rows_of(aligned, document=None):
    letters = LETTERS if document is None else [s.letter for s in document.symbols]
    return ["".join("-" if s < 0 else letters[s] for s in row.symbols) for row in aligned.rows]


def entry(symbols, ids=None, **more):
    """Return an entry of a document's ``aligned`` with these symbol codes."""
    columns = len(symbols[0])
    ids = ids or [str(i) for i in range(len(symbols))]
    last = len(symbols) - 1
    unknown, no = [None] * columns, [False] * columns
    return AlignedEntry(
        execution=ids[-1],
        position=last,
        columns=columns,
        left_out=0,
        excess=None,
        unexplained=None,
        score=None,
        tree="(" + ",".join(str(i) for i in range(len(symbols))) + ");",
        rows=[
            AlignedRow(
                set="sample" if i == last else "normal",
                position=i,
                id=ids[i],
                symbols=list(row),
                durations=[0 if s < 0 else 1000 * (i + 1) for s in row],
            )
            for i, row in enumerate(symbols)
        ],
        statistics=AlignedStatistics(
            probability=[0.5] * columns,
            normal_symbol=[-1] * columns,
            contribution=[0] * columns,
            **dict.fromkeys(("normal_probability", "mean", "std"), unknown),
            **dict.fromkeys(("p_structure", "p_duration"), unknown),
            **dict.fromkeys(("abnormal_state", "abnormal_duration", "missing", "abnormal"), no),
        ),
        note="",
        segments=[],
        **more,
    )


def document_of(*entries, symbols=64):
    names = [SimpleNamespace(name=f"S{i}", letter=LETTERS[i]) for i in range(symbols)]
    return SimpleNamespace(symbols=names, executions=[], aligned=list(entries))


@pytest.mark.parametrize("as_", FORMATS)
@pytest.mark.parametrize("reader", [Align, AlignIO])
def test_readers_of_biopython_give_back_the_rows(factory, as_, reader):
    document = comparison_document(factory.comparison())
    aligned = document.aligned[0]
    read = reader.read(StringIO(write_alignments(document, [aligned], as_)), as_)
    shown = [str(row.seq) for row in read] if reader is AlignIO else list(read)
    names = [row.id for row in (read if reader is AlignIO else read.sequences)]
    assert shown == rows_of(aligned, document)
    assert names == row_names(aligned)
    assert names[0] == "n_1"
    assert names[-1] == f"s_{aligned.execution}"


@pytest.mark.parametrize("as_", FORMATS)
def test_all_64_letters_survive(as_):
    every = list(range(64))
    one = entry([[*every, -1], [-1, *every]])
    read = Align.read(StringIO(write_alignments(document_of(one), [one], as_)), as_)
    assert list(read) == rows_of(one)
    assert len(set(LETTERS)) == 64
    assert not set(LETTERS) & set("-.*~? \t>#")


@given(
    st.sampled_from(FORMATS),
    st.integers(1, 6).flatmap(
        lambda n: st.lists(
            st.lists(st.integers(-1, 63), min_size=n, max_size=n).filter(lambda c: max(c) >= 0),
            min_size=1,
            max_size=120,
        )
    ),
)
def test_any_alignment_survives(as_, columns):
    one = entry(np.array(columns).T.tolist())
    text = write_alignments(document_of(one), [one], as_)
    assert list(Align.read(StringIO(text), as_)) == rows_of(one)


def test_an_empty_path_is_a_row_of_gaps():
    one = entry([[-1, -1], [3, 4]])
    for as_ in FORMATS:
        read = Align.read(StringIO(write_alignments(document_of(one), [one], as_)), as_)
        assert list(read) == ["--", "DE"]


def test_tracks_of_stockholm(factory):
    document = comparison_document(factory.comparison())
    aligned = document.aligned[0]
    text = write_alignments(document, document.aligned, "stockholm")
    read, second = Align.parse(StringIO(text), "stockholm")
    assert list(second) == rows_of(document.aligned[1], document)
    tracks, statistics = read.column_annotations, aligned.statistics
    assert {len(track) for track in tracks.values()} == {aligned.columns}
    for character, p in zip(tracks["probability"], statistics.probability, strict=True):
        tenth = 10 if character == "*" else int(character)
        assert abs(tenth / 10 - p) <= 0.05 + 1e-9
    last = aligned.rows[-1]
    for character, symbol, duration in zip(
        tracks["duration"], last.symbols, last.durations, strict=True
    ):
        assert character == ("." if symbol < 0 else label_duration(duration))
    for character, mean in zip(tracks["normal_duration"], statistics.mean, strict=True):
        assert character == ("." if mean is None else label_duration(mean))
    for character, symbol in zip(tracks["normal_symbol"], statistics.normal_symbol, strict=True):
        assert character == ("-" if symbol < 0 else document.symbols[symbol].letter)
    paper = {"s": "abnormal_state", "d": "abnormal_duration", "m": "missing"}
    assert set(tracks["paper"]) == {"s", "d", "m", "."} - {
        letter for letter, name in paper.items() if not any(getattr(statistics, name))
    }
    for column, letter in enumerate(tracks["paper"]):
        assert any(getattr(statistics, name)[column] for name in paper.values()) == (letter != ".")
        assert letter == "." or getattr(statistics, paper[letter])[column]
    assert "R=RUN C=WAIT_CPU" in read.annotations["comment"]
    assert read.annotations["identifier"] == "s_1"
    record = read.sequences[0]
    assert record.annotations["set"] == "normal"
    assert record.annotations["tid"] == "1201"
    assert record.description.startswith("normal run 1, worker [1201], ")
    row = aligned.rows[0]
    present = [d for s, d in zip(row.symbols, row.durations, strict=True) if s >= 0]
    assert record.letter_annotations["duration"] == "".join(map(label_duration, present))


def test_the_verdict_on_columns_is_a_track_where_there_is_one():
    one = entry([[1, 2, 3], [1, -1, 3]])
    read = Align.read(StringIO(write_alignments(document_of(one), [one], "stockholm")), "stockholm")
    assert read.column_annotations["abnormal"] == "..."
    one.statistics.abnormal = [False, True, False]
    read = Align.read(StringIO(write_alignments(document_of(one), [one], "stockholm")), "stockholm")
    assert read.column_annotations["abnormal"] == ".*."
    assert "abnormal, * where" in read.annotations["comment"]


def test_loops_are_a_track_and_a_count_per_row():
    loop = {"first": 1, "last": 5, "period": 2, "iterations": [2, 1, 0]}
    loop = LoopEntry(**loop)
    one = entry([[9, 1, 2, 1, 2, 8], [9, 1, 2, -1, -1, 8], [9, -1, -1, -1, -1, 8]], loops=[loop])
    text = write_alignments(document_of(one), [one], "stockholm")
    read = Align.read(StringIO(text), "stockholm")
    assert read.column_annotations["iteration"] == ".1122."
    assert [r.annotations["iterations"] for r in read.sequences] == ["2", "1", "0"]
    assert "iteration, which one of a loop" in read.annotations["comment"]


def test_loops_are_saved_with_a_comparison_and_checked(factory):
    comparison = factory.comparison()
    one = comparison.aligned[0]
    n = len(one.alignment.rows)
    loops = (Loop(2, 6, 2, np.arange(n, dtype=np.int32)),)
    fields = {k: getattr(one.alignment, k) for k in ("rows", "sequences", "durations", "tree")}
    looped = Alignment(**fields, loops=loops)
    aligned = (replace(one, alignment=looped), *comparison.aligned[1:])
    document = comparison_document(replace(comparison, aligned=aligned))
    document = load_document(to_json(document))
    (back,) = alignment_of(document.aligned[0]).loops
    assert (back.first, back.last, back.period) == (2, 6, 2)
    assert back.iterations.tolist() == list(range(n))
    for change in (
        {"last": 10**6},
        {"first": 6},
        {"period": 0},
        {"iterations": [1]},
        {"first": -1},
    ):
        damaged = load_document(to_json(document))
        for name, value in change.items():
            setattr(damaged.aligned[0].loops[0], name, value)
        with pytest.raises(UnreadableError, match="loops"):
            load_document(to_json(damaged))
    # Files of before loops were saved are read as ever.
    old = to_plain(document)
    del old["aligned"][0]["loops"]
    assert alignment_of(load_document(to_json(old)).aligned[0]).loops == ()


def test_the_alignment_of_a_document_is_the_one_it_was_made_from(factory):
    comparison = factory.comparison()
    document = load_document(to_json(comparison_document(comparison)))
    for one, aligned in zip(comparison.aligned, document.aligned, strict=True):
        back = alignment_of(aligned)
        assert back.rows.tolist() == one.alignment.rows.tolist()
        assert back.symbols.tolist() == one.alignment.symbols.tolist()
        assert back.column_durations.tolist() == one.alignment.column_durations.tolist()


def test_names_are_unique_short_and_plain():
    ids = ["a b", "a_b", "x" * 50, "x" * 50 + "y", "(;:'", "12345@1234567890123456789", "a_b_1"]
    ids += ["a_b", "\u202e", ""]
    one = entry([[1]] * len(ids), ids=ids)
    names = row_names(one)
    assert len(set(names)) == len(names)
    assert max(map(len, names)) <= 30
    assert names[0] == "n_a_b"
    assert names[5] == "n_12345@1234567890123456789"
    assert all(set(name) <= set(LETTERS + "_.+-") for name in names)
    for as_ in FORMATS:
        read = Align.read(StringIO(write_alignments(document_of(one), [one], as_)), as_)
        assert [r.id for r in read.sequences] == names
    tree = Phylo.read(StringIO(write_trees([one])), "newick")
    assert [leaf.name for leaf in tree.get_terminals()] == names


def test_text_of_a_trace_cannot_add_lines(factory):
    names = factory.Names(comm="evil\n#=GC x\r//", label="\x1b[31m\n//", role="a b\n//\n")
    document = comparison_document(factory.comparison(names=names))
    for as_ in FORMATS:
        text = write_alignments(document, document.aligned[:1], as_)
        assert list(Align.read(StringIO(text), as_)) == rows_of(document.aligned[0], document)
        assert "\x1b" not in text
        assert sum(line == "//" for line in text.splitlines()) == (as_ == "stockholm")


def test_trees_have_the_rows_names_and_lengths():
    one = entry([[1], [2], [3]], ids=["p", "q", "r"])
    one.tree = "((0:0.000012345,2:1):0.25,1:2);"
    tree = Phylo.read(StringIO(write_trees([one])), "newick")
    depths = {leaf.name: round(d, 9) for leaf, d in tree.depths().items() if leaf.name}
    assert depths == {"n_p": 0.250012345, "s_r": 1.25, "n_q": 2}
    assert len(list(Phylo.parse(StringIO(write_trees([one, one])), "newick"))) == 2


@pytest.mark.parametrize(
    "tree",
    ["", "((0,1;", "(0,9);", "(0,x);", "(0,-1);", "(" * 5000, "(" * 5000 + "0" + ")" * 5000 + ";"],
)
def test_a_damaged_tree_is_an_error_of_two_lines(tree):
    one = entry([[1], [2]])
    one.tree = tree
    with pytest.raises(UnreadableError, match="tree of run 1 is damaged"):
        write_trees([one])


def test_what_cannot_be_written_is_said():
    one = entry([[], []])
    with pytest.raises(UsageError, match="no columns"):
        write_alignments(document_of(one), [one], "clustal")
    one = entry([[64]])
    with pytest.raises(UnreadableError, match="more than 64 symbols"):
        to_biopython_alignment(document_of(one), one)


def test_an_alignment_of_its_own_in_biopython():
    sequences = (np.array([0, 1, 2], np.uint8), np.array([0, 2], np.uint8))
    durations = (np.array([0, 1, 1000], np.int64), np.array([10**6, 2**62], np.int64))
    rows = np.array([[0, 1, 2], [0, -1, 1]], np.int32)
    alignment = Alignment(rows, sequences, durations, tree="(0:1,1:1);")
    whole = alignment.to_biopython()
    assert list(whole) == ["ABC", "A-C"]
    assert [record.id for record in whole.sequences] == ["0", "1"]
    assert [r.letter_annotations["duration"] for r in whole.sequences] == ["01A", "Kz"]
    assert whole.substitutions["C", "C"] == 1  # it counts as Biopython's own do
    assert [r.id for r in alignment.to_biopython(["a", "b"]).sequences] == ["a", "b"]
    assert whole.shape == (2, 3)
    with pytest.raises(ValueError, match="1 names for 2 rows"):
        alignment.to_biopython(["a"])
    large = Alignment(rows[:1], (np.array([0, 64, 1], np.uint8),), durations[:1])
    with pytest.raises(ValueError, match="symbol 64"):
        large.to_biopython()
    assert Alignment(np.empty((0, 0), np.int32), (), ()).to_biopython().sequences == []


def test_doublings():
    assert [label_duration(d) for d in (0, 1, 2, 3, 4, 511, 512, 10**6, 10**9)] == list(
        "0122 39AKU".replace(" ", "")
    )
    assert label_duration(1.9) == "1"
    assert label_duration(2**63) == "z"
