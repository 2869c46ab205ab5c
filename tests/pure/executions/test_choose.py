"""Which specification and which label are used where the user names none."""

from __future__ import annotations

from pathlib import Path

import pytest

from critpath.errors import UsageError
from critpath.executions.find import add_label, choose_specification
from critpath.executions.specification import parse_specification
from critpath.schema.notes import ExecutionChosen

NAMES = ["app:request_begin", "app:request_end", "sched_switch"]
TEXTS = [{"sched_switch": ("prev_comm",)}, {"app:request_begin": ("type", "path")}]
BETWEEN = "events:app:request_begin,app:request_end"


def test_the_user_comes_first_then_the_recording_then_the_only_pair():
    here = Path("r")
    assert choose_specification("thread", "process", here, NAMES) == ("thread", ())
    assert choose_specification(None, "process", here, NAMES) == ("process", ())
    chosen, notes = choose_specification(None, "", here, NAMES)
    assert chosen == BETWEEN
    assert notes == (ExecutionChosen(chosen, "the only pair of events"),)


def test_marks_are_looked_for_only_where_nobody_says_anything(record):
    made = record()
    made.switch(1, 0, (0, "swapper/0"), (7, "seven"))
    made.add(10, 0, "print", buf="critpath:begin job\n")
    made.add(20, 0, "print", buf="critpath:end job\n")
    here = Path("r")
    chosen, (note,) = choose_specification(None, "", here, NAMES, made.events)
    assert chosen == "marker"
    assert "marks" in note.why
    # A message of another program's, or a begin alone, is no reason.
    other = record().add(10, 0, "print", buf="critpath:begin job\n")
    assert choose_specification(None, "", here, NAMES, other.events)[0] == BETWEEN

    def never():
        raise AssertionError("read for nothing")

    assert choose_specification(None, "process", here, NAMES, never) == ("process", ())
    assert choose_specification("thread", "", here, NAMES, never) == ("thread", ())


@pytest.mark.parametrize("names", [["sched_switch"], [*NAMES, "db:query_begin", "db:query_end"]])
def test_none_or_several_pairs_are_left_to_the_user(names):
    with pytest.raises(UsageError) as caught:
        choose_specification(None, "", Path("r"), names)
    assert "--execution" in caught.value.do


@pytest.mark.parametrize(
    ("text", "label"),
    [
        (BETWEEN, "type"),
        (BETWEEN + ",key=type", "path"),
        (BETWEEN + ",label=path", "path"),
        (BETWEEN + ",label=-", ""),
        ("events:app:other_begin,app:other_end", ""),
        ("process", ""),
    ],
)
def test_the_first_text_field_of_the_begin_labels(text, label):
    specification, notes = add_label(parse_specification(text), TEXTS)
    assert specification.label == label
    said = label and ",label=" not in text
    assert bool(notes) == bool(said)
