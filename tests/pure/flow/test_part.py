"""What a comparison says of sets that are only partly alike."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from critpath import flow
from critpath.detect.repairs import note_repaired_switches
from critpath.graph.critical_path import take_executions
from critpath.model import CompareSettings
from critpath.schema.environment import Environment, read_environment
from critpath.text.notes import Words, word, word_all
from critpath.text.recognized import identify


@pytest.fixture(scope="module")
def normal(paths_of):
    return paths_of("normal")


def of_types(paths, labels):
    return take_executions(
        paths, np.array([i for i, x in enumerate(paths.executions.label) if x in labels])
    )


def stretched(paths, factor):
    """Return executions whose every segment takes a multiple of its time."""
    of, first = paths.paths, np.repeat(paths.executions.begin, np.diff(paths.paths.start))
    executions = paths.executions
    return replace(
        paths,
        executions=replace(
            executions,
            end=executions.begin + ((executions.end - executions.begin) * factor).astype(np.int64),
        ),
        paths=replace(
            of,
            begin=first + ((of.begin - first) * factor).astype(np.int64),
            end=first + ((of.end - first) * factor).astype(np.int64),
        ),
    )


def test_a_sample_of_one_type_of_seven(normal, quick):
    kinds = sorted(set(normal.executions.label))
    few = stretched(of_types(normal, kinds[:1]), 2.0)
    found = flow.compare(normal, few, quick)
    part = found.warnings[0]
    words = Words(types=found.name_types())
    assert word(part, words).startswith("compared with 15 of 105 runs before (type `cpu`")
    assert found.verdict == "anomaly"
    assert part in found.reasons
    most = of_types(normal, kinds[:-1])
    assert "partial-comparison" not in map(identify, flow.compare(normal, most, quick).warnings)


def test_a_faster_sample_is_said_to_be(normal, quick):
    found = flow.compare(normal, stretched(normal, 0.5), quick)
    assert found.verdict == "ok"
    assert word(found.reasons[0]).startswith("faster: the total is -6.")
    assert "(-50 %), 95 % interval -" in word(found.reasons[0])
    assert "no state is slower at alpha 0.01" in word(found.reasons[0])
    equal = flow.compare(normal, stretched(normal, 1.0), quick)
    assert word(equal.reasons[0]).startswith("no state differs")


def test_where_the_total_alone_decides_no_state_is_named(normal, paths_of):
    sample = paths_of("sample-lock")
    levels = (("*", "off"), ("total", "error"))
    found = flow.compare(normal, sample, CompareSettings(level=levels))
    assert found.verdict == "anomaly"
    assert word(found.reasons[0]).startswith("total is +8.03 ms a run of cpu (p = ")
    words = Words(types=found.name_types())
    notes = [note for note in word_all(found.detection.remarks, words) if "by itself" in note]
    assert [note.partition(" +")[0] for note in notes] == ["type `cpu` by itself: total"]


def counted(paths, *counts):
    marks = [Environment(switches_put_in=put, switches_written=of) for put, of in counts]
    return replace(paths, environment=(*paths.environment, *marks))


def test_missing_switches_are_one_sentence(normal, quick):
    assert note_repaired_switches(normal) is normal
    few = note_repaired_switches(counted(normal, (10, 990), (20, 980)))
    assert few.warnings == normal.warnings
    assert word(few.executions.notes[-1]).startswith(
        "the kernel did not write 30 of 2,000 switches (1.5 %): they were put in, and "
    )
    many = note_repaired_switches(counted(normal, (100, 900), (20, 980)))
    assert word(many.warnings[-1]).startswith(
        "the kernel did not write 120 of 2,000 switches (6.0 %)"
    )
    assert many.executions.notes == normal.executions.notes
    found = flow.compare(counted(normal, (100, 900)), normal, quick)
    assert sum("did not write" in w for w in word_all(found.warnings)) == 1
    wrong = {"switches_put_in": "many", "switches_written": -5}
    odd = replace(normal, environment=(read_environment(wrong),))
    assert note_repaired_switches(odd) is odd
