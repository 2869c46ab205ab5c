"""Notes are declared once, and each has a sentence."""

import inspect
import re
from typing import get_args

import msgspec
import pytest

from critpath.schema import notes as declared
from critpath.schema.notes import LEVELS, NOTES, Level, OfSet, Shift, SlowerType, SomeExamined
from critpath.text import notes
from critpath.text.recognized import find_level, identify, recognize

SENTENCES = notes._SENTENCES
REQUESTS = notes.Words("request", "requests", {0: "checkout"})


def test_every_note_has_a_sentence_of_its_own():
    assert {*SENTENCES} == {*NOTES.values()}
    for kind, sentence in SENTENCES.items():
        first, *_ = inspect.signature(sentence).parameters.values()
        assert first.annotation == f"n.{kind.__name__}", sentence


@pytest.mark.parametrize("name", NOTES)
def test_an_id_is_small_and_has_a_level(name):
    assert re.fullmatch("[a-z]+(-[a-z]+)*", name)
    assert LEVELS[name] in get_args(Level)
    assert NOTES[name].__doc__ != declared.Note.__doc__


def test_a_note_is_read_as_it_was_written():
    note = SlowerType(Shift("RUN", 1e6, 0, "", 0.1))
    assert note.id == "slower-type"
    assert msgspec.json.decode(msgspec.json.encode(note), type=SlowerType) == note


def test_what_executions_and_types_are_called_is_told_last():
    some = SomeExamined(2, 6)
    assert notes.word(some).startswith("2 of 6 slow runs were examined")
    assert notes.word(some, REQUESTS).startswith("2 of 6 slow requests were examined")
    slower = SlowerType(Shift("RUN", 1e6, 0, "", 0.1))
    assert notes.word(slower, REQUESTS).startswith("type `checkout` by itself: RUN")
    assert notes.word("an execution: executions; --execution", REQUESTS) == (
        "a request: requests; --execution"
    )


def test_what_is_said_of_one_set_has_the_id_of_what_is_said():
    usual = "no --execution given: used marker, as critpath's marks are there"
    assert identify(OfSet("normal", SomeExamined(2, 6))) == "some-examined"
    assert identify(OfSet("normal", usual)) == recognize(usual) == "execution-chosen"
    assert notes.word(OfSet("sample", "a loss")) == "after: a loss"
    assert find_level(OfSet("normal", usual)) == "usual"
    assert (identify("a loss"), find_level("a loss")) == ("other", "warning")


def test_sentences_of_earlier_versions_are_recognized():
    for note in (
        SomeExamined(2, 6),
        declared.GoneClients("client", 3, 9),
        declared.NewClients("connection", ("a",), (1, 9), 5e6),
        declared.NewServices(("a", "b"), (1, 9), 5e6),
    ):
        assert recognize(notes.word(note, REQUESTS)) == note.id
