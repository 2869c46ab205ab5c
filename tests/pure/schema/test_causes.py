"""The catalogue of causes holds together, and everything that shows a cause knows each kind."""

from __future__ import annotations

import re
from pathlib import Path
from string import Formatter
from typing import get_args

import pytest

from critpath.documents import CauseFacts
from critpath.report.html.elements import WORDS
from critpath.report.palette import LOOKS
from critpath.schema.causes import (
    BY_ID,
    CATALOGUE,
    MORE_OFTEN,
    OF_STATE,
    Doing,
    Signs,
    evidence_of,
    find_kind,
)
from critpath.schema.kinds import UNSEEN, State
from critpath.text import explanation
from critpath.text.explanation import SAID, VERBS
from critpath.text.phrases import PHRASES

NEXT = (Path(__file__).parents[3] / "docs" / "what-next.md").read_text(encoding="utf-8")
SLOTS = vars(explanation)["_SLOTS"]
EXPLAINED = Path(explanation.__file__).read_text(encoding="utf-8")
HEADINGS = set(re.findall(r"^## (.*)$", NEXT, re.MULTILINE))


def test_ids_are_words_of_their_own():
    assert len(BY_ID) == len(CATALOGUE)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", kind) for kind in BY_ID)


@pytest.mark.parametrize("kind", CATALOGUE, ids=lambda kind: kind.id)
def test_every_kind_is_known_everywhere(kind):
    missing = []
    if kind.id not in SAID:
        missing.append("critpath/text/explanation.py: what is said of it")
    if {kind.next, kind.their_next or kind.next} - HEADINGS:
        missing.append(f"docs/what-next.md: {kind.next}, {kind.their_next}")
    if f"| `{kind.id}` |" not in NEXT:
        missing.append("docs/what-next.md: run make docs")
    if kind.doing not in WORDS or kind.doing not in get_args(Doing):
        missing.append("critpath/report/html/elements.py: what its texture is called")
    if set(kind.needs) - set(CauseFacts.__struct_fields__):
        missing.append("critpath/documents/causes.py: the facts that it needs")
    missing += [
        f"critpath/text/explanation.py: a function of a slot that says {need}"
        for need in kind.needs
        if f"facts.{need}" not in EXPLAINED
    ]
    for template in SAID[kind.id]:
        for _, name, _, _ in Formatter().parse(template):
            if name and name not in {*SLOTS, *VERBS}:
                missing.append(f"critpath/text/explanation.py: a function of the slot {name}")
    if kind.doubt and kind.doubt not in Signs._fields:
        missing.append("critpath/schema/causes.py: the sign that makes it doubtful")
    assert not missing, "\n".join(["", *missing])


@pytest.mark.parametrize("state", State)
def test_every_state_is_of_a_kind(state):
    kinds = OF_STATE[state]
    assert find_kind(state, Signs()) in kinds
    # Of a cause that is not grouped yet only the state is known.
    assert {kind.evidence for kind in kinds} == {evidence_of(state)}
    assert (evidence_of(state) == "unseen") == (state in UNSEEN)
    assert len({kind.most for kind in kinds}) == 1
    assert state in PHRASES
    assert state.name in LOOKS


def test_nothing_is_said_of_what_is_no_kind():
    assert set(SAID) == set(BY_ID)
    assert MORE_OFTEN in HEADINGS


@pytest.mark.parametrize(
    ("state", "signs", "kind"),
    [
        (State.WAIT_CPU, Signs(), "cpu"),
        (State.WAIT_CPU, Signs(rival=True), "busy-cpu"),
        (State.WAIT_CPU, Signs(rival=True, quota=True), "busy-cpu"),
        (State.WAIT_CPU, Signs(rival=True, ours=True), "own-threads"),
        (State.WAIT_CPU, Signs(idle=True), "held-back"),
        (State.WAIT_CPU, Signs(idle=True, late=True, quota=True), "late-start"),
        (State.WAIT_CPU, Signs(quota=True), "held-back"),
        (State.WAIT_NET, Signs(local=False), "network"),
        (State.WAIT_NET, Signs(local=True), "packet-from-here"),
        (State.WAIT_NET, Signs(), "packet"),
        (State.WAIT_TIMER, Signs(timer="hrtimer"), "sleep"),
        (State.WAIT_TIMER, Signs(timer="tcp_delack_timer"), "kernel-timer"),
        (State.RUN_USER, Signs(), "own-code"),
    ],
)
def test_signs_tell_kinds_of_a_state_apart(state, signs, kind):
    assert find_kind(state, signs).id == kind
