"""The document: the design's names, what it says, and that it always says it the same."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from critpath.documents import (
    SETS,
    LoopEntry,
    LossPlace,
    Plane,
)
from critpath.documents.base import fill
from critpath.model import (
    Loop,
    Loss,
    State,
    Symbol,
    VectorTable,
)
from critpath.report.document.as_json import to_json, to_plain
from critpath.report.document.comparison import _segment_of, comparison_document, project_counts
from critpath.report.html.as_html import render_html
from critpath.report.text.as_text import render_comparison

HERE = Path(__file__).resolve().parent


def test_names_of_the_design_are_there(factory):
    document = comparison_document(factory.comparison())
    assert document.format == "critpath/comparison/1"
    assert document.verdict == "anomaly"
    assert document.reasons == ["WAIT_TIMER is new in the sample set (p 0.0012)"]
    execution = [
        "id",
        "set",
        "begin",
        "end",
        "tid",
        "comm",
        "label",
        "cluster",
        "pair",
        "anomalous",
        "excess",
    ]
    assert all(set(execution) <= set(row.__struct_fields__) for row in document.executions)
    finding = ["execution", "rank", "kind", "state", "detail", "tid", "comm", "begin", "end"]
    finding += ["observed", "expected", "contribution", "share", "role", "probability", "columns"]
    assert document.findings
    assert all(set(finding) <= set(row.__struct_fields__) for row in document.findings)
    state = ["state", "normal_mean", "sample_mean", "p_value", "effect", "flagged"]
    assert all(set(state) <= set(row.__struct_fields__) for row in document.states)
    names = [row.state for row in document.states]
    assert "RUN" in names
    assert "RUN@kworker/#:#" in names
    assert names[-1] == "total"


def test_executions_of_both_sets_with_what_was_decided(factory):
    comparison = factory.comparison(normals=20, samples=6, anomalous=2)
    rows = comparison_document(comparison).executions
    assert [row.set for row in rows] == ["normal"] * 20 + ["sample"] * 6
    assert [row.anomalous for row in rows] == [False] * 20 + [True] * 2 + [False] * 4
    sample = rows[20]
    assert (sample.id, sample.tid, sample.comm, sample.label) == (
        "1",
        1201,
        "worker",
        "mixed",
    )
    assert sample.excess == int(comparison.outliers.excess[0])
    assert sample.pair == sample.cluster  # as the factory pairs them
    assert sample.symbol == "WAIT_TIMER"
    normal = rows[0]
    same = [r for r in rows[:20] if r.cluster == normal.cluster]
    mean = sum(r.end - r.begin for r in same) / len(same)
    assert normal.excess == pytest.approx(normal.end - normal.begin - mean, abs=1)


def test_aligned_rows_reproduce_the_paths(factory):
    comparison = factory.comparison()
    document = comparison_document(comparison)
    paths = comparison.sample.paths
    for one in document.aligned:
        anomaly = one.rows[-1]
        assert anomaly.set == "sample"
        assert len(one.rows) == 18
        first, last = paths.start[one.position], paths.start[one.position + 1]
        assert [s.begin for s in one.segments] == paths.begin[first:last].tolist()
        assert [s.end for s in one.segments] == paths.end[first:last].tolist()
        for segment in one.segments:
            symbol = document.symbols[anomaly.symbols[segment.column]]
            assert symbol.state == segment.state
            assert segment.comm == ("kworker/0:1" if symbol.role else "worker")
            assert anomaly.durations[segment.column] == segment.end - segment.begin
        contribution = sum(one.statistics.contribution) / (len(one.rows) - 1)
        assert contribution == pytest.approx(one.excess)


def test_joined_items_belong_to_the_segment_with_most_of_their_time():
    begin, end = np.array([0, 10, 12, 100]), np.array([10, 12, 100, 130])
    assert _segment_of(np.array([10, 2, 88, 30]), begin, end).tolist() == [0, 1, 2, 3]
    assert _segment_of(np.array([12, 118]), begin, end).tolist() == [0, 2]


def test_what_is_not_finite_is_null(factory):
    comparison = factory.comparison(
        samples=0, anomalous=0, verdict="inconclusive", settings={"k": math.inf, "n": math.nan}
    )
    document = comparison_document(comparison)
    assert document.settings == {"k": None, "n": None}
    assert document.states[-1].p_value is None
    assert document.clusters.normal.reachability[0] is None
    json.loads(to_json(document), parse_constant=pytest.fail)


def test_numpy_scalars_become_plain(factory):
    settings = {
        "seed": np.int64(7),
        "on": np.bool_(True),
        "rate": np.float32(0.5),
        "paths": (Path("a"),),
        "many": {3, 1, 2},
    }
    document = comparison_document(factory.comparison(settings=settings))
    expected = {"seed": 7, "on": True, "rate": 0.5, "paths": ["a"], "many": [1, 2, 3]}
    assert document.settings == expected
    json.dumps(to_plain(document), allow_nan=False)


def test_losses_are_summed_and_placed(factory):
    losses = tuple(Loss(i, i + 5, 0, i % 2, 10, 1, "discarded") for i in range(250))
    loss = comparison_document(factory.comparison(losses=losses)).sets.sample.loss
    assert (loss.events, loss.packets) == (2500, 250)
    assert len(loss.places) + loss.places_left_out == 250
    assert loss.places[3].reason == "discarded"


def test_sets_say_where_they_come_from(factory):
    normal = comparison_document(factory.comparison()).sets.normal
    assert normal.hosts == ["guest"]
    assert normal.kernels == ["6.1.0"]
    assert normal.tracers == ["lttng-modules 2.13.9"]
    assert normal.executions == 20
    assert normal.window.begin < normal.window.end


@pytest.mark.parametrize(
    ("normals", "samples", "anomalous", "columns"),
    [(0, 0, 0, 3), (20, 0, 0, 9), (0, 5, 0, 9), (1, 1, 0, 1), (2, 30, 7, 4), (40, 3, 3, 90)],
)
def test_any_numbers_of_executions(factory, normals, samples, anomalous, columns):
    verdict = "anomaly" if anomalous else "inconclusive"
    comparison = factory.comparison(
        verdict=verdict, normals=normals, samples=samples, anomalous=anomalous, columns=columns
    )
    document = comparison_document(comparison)
    assert len(document.executions) == normals + samples
    assert len(document.aligned) == anomalous
    assert render_html(document).endswith("</html>\n")


@pytest.mark.parametrize(
    ("normals", "samples", "anomalous"), [(0, 0, 0), (20, 0, 0), (0, 5, 0), (2, 30, 7)]
)
def test_without_entries_the_text_and_the_executions_are_the_same(
    factory, normals, samples, anomalous
):
    verdict = "anomaly" if anomalous else "inconclusive"
    comparison = factory.comparison(
        verdict=verdict, normals=normals, samples=samples, anomalous=anomalous
    )
    whole, bare = (comparison_document(comparison, entries=each) for each in (True, False))
    assert bare.marked() == whole.marked()
    names = ("position", "label", "excess", "score", "symbol")
    for which in SETS:
        assert [*bare.rows(which, *names)] == [*whole.rows(which, *names)]
        some = [at for (at,) in whole.rows(which, "position")][1:4]
        assert [*bare.rows(which, *names, of=some)] == [*whole.rows(which, *names, of=some)]
        for name in (*names, "begin", "anomalous", "label"):
            column = bare.column(which, name).tolist()
            assert column == whole.column(which, name).tolist()
            assert column == [value for (value,) in whole.rows(which, name)]
    texts = []
    for document in (whole, bare):
        console = Console(file=io.StringIO(), width=100)
        render_comparison(document, console, verbose=True)
        texts.append(console.file.getvalue())
    assert texts[0] == texts[1]
    # What asks for entries gets them.
    assert [*bare.executions] == whole.executions
    assert bare.marked() == whole.marked()


def test_stages_that_did_not_run_leave_nulls(factory):
    comparison = factory.comparison(
        verdict="inconclusive",
        anomalous=0,
        normal_clusters=factory.clustering(0),
        sample_clusters=factory.clustering(0),
        outliers=factory.comparison(samples=0, anomalous=0).outliers,
    )
    rows = comparison_document(comparison).executions
    assert {row.cluster for row in rows} == {None}
    assert {row.excess for row in rows} == {None}
    assert not any(row.anomalous for row in rows)


def test_plane_keeps_the_distances_of_counts_that_have_two_dimensions():
    rng = np.random.default_rng(3)
    counts = np.zeros((30, 4), np.int64)
    counts[:, 1], counts[:, 3] = rng.poisson(20, 30), rng.poisson(9, 30)
    symbols = tuple(Symbol(State(i)) for i in range(4))
    normal, sample = (VectorTable(symbols, c, c) for c in (counts[:22], counts[22:]))
    plane = project_counts(normal, sample)
    assert plane is not None
    points = np.array(plane.normal + plane.sample)
    assert (len(plane.normal), len(plane.sample)) == (22, 8)
    stabilised = 2 * np.sqrt(counts + 0.375)
    for table in (points, stabilised):
        assert table.shape[0] == 30

    def distances(table: np.ndarray) -> np.ndarray:
        return np.linalg.norm(table[:, None] - table[None], axis=2)

    assert np.allclose(distances(points), distances(stabilised), atol=1e-3)
    assert sum(plane.explained) == pytest.approx(1, abs=1e-3)


def test_plane_of_equal_counts_is_one_point():
    table = VectorTable((Symbol(State.RUN),), np.full((3, 1), 5), np.full((3, 1), 5))
    plane = project_counts(table, table)
    assert plane == Plane(normal=[[0, 0]] * 3, sample=[[0, 0]] * 3, explained=[0, 0])


def test_a_set_is_written_in_an_order_of_its_own(factory):
    """Whatever this process's is: the same document, the same bytes."""
    document = comparison_document(factory.comparison(settings={"s": {"b", "a", "c"}}))
    assert '"s": ["a", "b", "c"]' in to_json(document)


# What a document fills from a type of the model, and the keys that are made for it.
FILLED = {
    LoopEntry: (Loop, set()),
    LossPlace: (Loss, set()),
}


@pytest.mark.parametrize("kind", FILLED)
def test_a_fact_has_the_name_that_it_has_in_the_document(kind):
    """A key with a default that nothing fills would be missing and nobody would be told."""
    source, made = FILLED[kind]
    assert set(kind.__struct_fields__) - set(source.__dataclass_fields__) == made


def test_what_is_filled_is_what_json_has():
    place = fill(LossPlace, Loss(np.int64(3), 9, 2, 1, 4, 5, "x"))
    assert [type(getattr(place, name)) for name in place.__struct_fields__] == [*[int] * 6, str]
