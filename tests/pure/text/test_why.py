"""What ``compare --why`` says: grounds, what would have turned them, and the numbers used."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from critpath.model import Ground, Weight
from critpath.schema.parameters import list_parameters
from critpath.text import why


@pytest.fixture(scope="module")
def told(critpath, extracted):
    """Return what is said of a sample."""

    def say(sample: str, *options: str) -> str:
        words = [str(extracted("normal")), str(extracted(sample)), "--why", *options]
        text = critpath("compare", *words).stdout
        return " ".join(text[text.index("\nWhy ") :].split())

    return say


def test_a_slower_sample_rests_on_tests_and_signs(told):
    text = told("sample-lock")
    assert text.startswith("Why SLOWER yes ")
    assert "certain (p = 0.0" in text
    assert "a sign that the program changed" in text
    assert "at a level below" in text
    assert "Why the causes are in this order 1. 4 of 5 `cpu` requests wait" in text
    assert "first as long as it weighs more than" in text
    assert "first if it weighed" in text
    assert "defaults.alpha = 0.01 p" in text
    assert "causes.unseen = 0.5 share" in text


def test_a_healthy_sample_says_what_is_missing(told):
    text = told("normal-2")
    assert text.startswith("Why OK no total: not certain (p = ")
    assert "not large enough" in text
    assert "order" not in text.partition("Numbers used")[0]


def test_a_percentile_that_no_set_is_large_enough_for_says_so(told):
    text = told("sample-lock", "--gate", "p99")
    assert text.startswith("Why INCONCLUSIVE no 11 requests on the smaller side, at least ")


def test_where_no_number_decides_the_reasons_are_said(told):
    text = told("sample-quota", "--rule", "paper")
    assert text.startswith("Why SLOWER ")
    assert "certain" not in text.partition("Why the causes")[0]


@pytest.mark.parametrize(
    ("ground", "fact", "turn"),
    [
        (
            Ground("lost", "sample", "", 0.02, 0.05, "share", "", least=False, otherwise="ok"),
            "2.0 % of the runs after overlap a loss, at most 5.0 % may",
            "if fewer than 2.0 % might it would be OK",
        ),
        (
            Ground("signs", "", "", 0, 1, "", "", least=True, otherwise="anomaly"),
            "a sign that the program changed, and not the machine: none",
            "with one it would be SLOWER",
        ),
        (
            Ground("recordings", "", "", 0.1, 0.2, "share", "", least=True, otherwise="anomaly"),
            "10 % slower; recordings of the program differ by 20 %",
            "if they differed by less than 10 % it would be SLOWER",
        ),
    ],
)
def test_a_ground_says_what_would_have_turned_it(monkeypatch, ground, fact, turn):
    monkeypatch.setattr(why, "noun_of", lambda _document, count=2: "run" if count == 1 else "runs")
    assert why.describe_ground(ground, SimpleNamespace()) == (fact, turn)


def test_a_weight_is_its_time_by_who_bears_it_out():
    weight = Weight(whole=10e6, told=8e6, moved=2e6, executions=4, seen=0.5, trust=0.5)
    assert weight.value == 6e6 * 2 * 0.25
    # What became faster is neither doubted nor unseen.
    assert Weight(-10e6, -8e6, 0.0, 4, 0.5, 0.5).value == -16e6


def test_numbers_say_what_changes_with_them(monkeypatch):
    known = {
        "machine.pace": {"read": 9, "0.5": {"verdict": ["a"]}, "2": {"cause": ["b", "c"]}},
        "machine.disk": {"read": 1, "0.5": {"words": 1}, "2": {}},
    }
    monkeypatch.setattr(why, "read_sensitivities", lambda: {"parameters": known})
    numbers = list_parameters()
    flips = "of 9 recorded answers change, halved, 1 verdict; doubled, 2 first causes"
    assert why.describe_flips(numbers["machine.pace"]) == flips
    assert why.describe_flips(numbers["machine.disk"]) == (
        "none of 1 recorded answer changes either way, guards against a slow machine that is taken "
        "for a slow program"
    )
    assert why.describe_flips(numbers["machine.kind"]) == "no recorded answer reads it"
