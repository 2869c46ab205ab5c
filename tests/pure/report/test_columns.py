"""Which columns of an alignment belong to a finding."""

from __future__ import annotations

import pytest
from msgspec import structs

from critpath.report.columns import flagged_columns, own_columns, stretches
from critpath.report.document.comparison import comparison_document


@pytest.fixture
def document(factory):
    found = comparison_document(factory.comparison(columns=20, anomalous=1))
    one = found.aligned[0]
    run, other = 0, 1
    here = [run, other, run, -1, -1, other, run, other]
    usual = [run, run, -1, run, other, -1, run, -1]
    one.columns = len(here)
    for row in one.rows:
        row.symbols, row.durations = here, [1000] * len(here)
    no = [False] * len(here)
    one.statistics = structs.replace(
        one.statistics,
        **dict.fromkeys(("probability", "mean"), [None] * len(here)),
        normal_symbol=usual,
        abnormal_state=no,
        missing=no,
    )
    mine = [f for f in found.findings if f.position == one.position][:2]
    mine = [
        structs.replace(
            mine[i],
            state=found.symbols[symbol].state,
            role=found.symbols[symbol].role,
            columns=[i, i + 7],
            rank=i + 1,
        )
        for i, symbol in enumerate((run, other))
    ]
    found.findings = mine
    return found


def test_a_finding_has_the_columns_of_its_symbol_or_of_what_is_missing(document):
    one, (first, second) = document.aligned[0], document.findings
    # Where the row has the symbol, and where it has nothing and the others have it.
    assert own_columns(document, one, first) == [0, 2, 3, 6]
    assert own_columns(document, one, second) == [1, 4, 5, 7]
    assert flagged_columns(document, one) == {0: 1, 2: 1, 3: 1, 6: 1, 1: 2, 4: 2, 5: 2, 7: 2}


def test_there_is_a_column_where_only_the_normal_rows_have_it(document):
    one, (first, _) = document.aligned[0], document.findings
    assert own_columns(document, one, structs.replace(first, columns=[1, 2])) == [1]
    assert own_columns(document, one, structs.replace(first, columns=[5, 6])) == [5]
    assert own_columns(document, one, structs.replace(first, columns=[50, 60])) == []


def test_stretches_are_neighbours():
    assert stretches([]) == []
    assert stretches([0, 1, 2, 5, 7, 8]) == [(0, 3), (5, 6), (7, 9)]
