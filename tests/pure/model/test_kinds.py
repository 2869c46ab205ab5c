"""One table of kinds and states: who has to know each of them, and what is missing where."""

from __future__ import annotations

import importlib.util
import pickle
import re
import sys
from pathlib import Path
from typing import Final

import pytest

from critpath.model.details import read_detail

sys.path.insert(0, str(Path(__file__).parents[2] / "oracle"))
sys.path.insert(0, str(Path(__file__).parents[1] / "timeline"))
from replay import NOT_REPLAYED
from wild import FIELDS as DRAWN

from critpath.executions.prefilter import Action
from critpath.model import Kind, State
from critpath.read.event_names import CALL_EVENTS, KERNEL_EVENTS, SOCKET_EVENTS
from critpath.read.packets import Damage, PacketBit, PacketColumn
from critpath.read.program import Code, Role
from critpath.text import phrases
from critpath_record.ftrace.ctf_events import Step

ROOT: Final = Path(__file__).resolve().parents[3]
PACKAGE: Final = ROOT / "critpath"
NATIVE: Final = sorted(p for p in PACKAGE.rglob("*") if p.suffix in {".pyx", ".pxi"})
REPLAY: Final = "\n".join(
    path.read_text(encoding="utf-8") for path in NATIVE if path.parent.name == "timeline"
)
PACKETS: Final = {Kind.CURRENT, Kind.NET_SEND}  # they change no thread; their twins are others
ORACLES: Final = ROOT / "tests" / "oracle"
DOCS: Final = (ROOT / "docs" / "critical-path.md").read_text(encoding="utf-8")


def read(*paths: Path) -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


def build_script():
    place = ROOT / "tools" / "cython_enums.py"
    spec = importlib.util.spec_from_file_location("cython_enums", place)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


@pytest.mark.parametrize(
    "of",
    [Kind, State, Code, Role, PacketColumn, PacketBit, Damage, Action, Step],
    ids=lambda of: of.__name__,
)
def test_the_build_writes_the_numbers_that_python_has(of):
    house, _, rest = of.__module__.partition(".")
    beside = "" if house == PACKAGE.name else f"../{house}/"
    place = f"{beside}{rest.replace('.', '/')}.py"
    script = build_script()
    members = script.read_members(read(PACKAGE / place), of.__name__)
    assert members == {name: int(value) for name, value in vars(of).items() if name.isupper()}
    written = script.cython_enum("X", members)
    assert all(f"    X_{name} = {value}\n" in written for name, value in members.items())
    assert f"    X_COUNT = {len(members)}\n" in written
    assert f"{place}:{of.__name__}" in read(PACKAGE / "meson.build")


def test_what_is_no_number_is_refused():
    script = build_script()
    with pytest.raises(TypeError, match="line 2"):
        script.read_members("class Odd:\n    ONE = 1 << 3\n", "Odd")


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind != Kind.OTHER])
def test_every_kind_of_event_is_known_everywhere(kind):
    missing = []
    named = (*KERNEL_EVENTS, *SOCKET_EVENTS, *CALL_EVENTS)
    if kind not in {request.kind for request in named}:
        missing.append("critpath/read/event_names.py: the names that tracers give it")
    makers = (
        *(PACKAGE / "timeline" / name for name in ("resources.py", "functions.py")),
        *(PACKAGE / "requests" / name for name in ("activity.py", "calls.py")),
    )
    made = read(*(p for p in NATIVE if p.parent.name in {"timeline", "requests"}), *makers)
    if not re.search(rf"\b(KIND_|Kind\.){kind.name}\b", made):
        missing.append("critpath/timeline/_FAMILY.pxi: its handler, in `follow_FAMILY`")
    twins = read(ORACLES / "replay.py", ORACLES / "missing_switches.py")
    if f"Kind.{kind.name}" not in twins and kind not in NOT_REPLAYED:
        missing.append("tests/oracle/replay.py: what its twin makes of it, or NOT_REPLAYED")
    if re.search(rf"\bKIND_{kind.name}\b", REPLAY):
        if kind in NOT_REPLAYED - PACKETS:
            missing.append("tests/oracle/replay.py: the replay knows it, so it is no NOT_REPLAYED")
        if kind not in DRAWN:
            missing.append("tests/pure/timeline/wild.py: drawn for the replay and for its twin")
    if not kind.meaning:
        missing.append("critpath/schema/kinds.py: what it tells, in words")
    if f"`{kind.name}`" not in DOCS:
        missing.append("docs/critical-path.md: run make docs")
    request = next((request for request in named if request.kind == kind), None)
    if kind.qualifier is not None and request is not None:
        first = [spellings[0] for spellings in request.fields]
        if kind.qualifier.field not in first:
            missing.append(f"critpath/read/event_names.py: the field {kind.qualifier.field}")
    assert not missing, "\n".join(["", *missing])


def test_the_loop_of_the_replay_knows_no_kind_by_name():
    loop = read(PACKAGE / "timeline" / "_replay.pyx")
    assert set(re.findall(r"\bKIND_\w+", loop)) == {"KIND_COUNT"}


@pytest.mark.parametrize("state", State)
def test_every_state_is_known_everywhere(state):
    missing = []
    phrase = phrases.doing(state, read_detail(state, "DETAIL"))
    if state != State.UNKNOWN and "DETAIL" not in phrase:
        missing.append("critpath/text/phrases.py: a phrase with {} where a detail stands")
    if not state.meaning:
        missing.append("critpath/schema/kinds.py: what the thread does, in words")
    if f"`{state.name}`" not in DOCS:
        missing.append("docs/critical-path.md: run make docs")
    places = ("timeline/contexts.py", "graph/resources.py", "requests/paths.py")
    places += ("requests/connections.py", "requests/jobs.py")
    makers = read(*NATIVE, *(PACKAGE / place for place in places))
    if not re.search(rf"\b(STATE_|State\.){state.name}\b", makers):
        missing.append("critpath/timeline/: what comes to that state")
    assert not missing, "\n".join(["", *missing])


def test_kinds_and_states_pass_between_processes():
    for member in (*Kind, *State):
        assert pickle.loads(pickle.dumps(member)) is member  # noqa: S301 - made here


def test_a_qualifier_is_a_text_or_a_number_in_words():
    assert Kind.IRQ_ENTRY.qualifier.types == {"str"}
    at = type(Kind.IRQ_ENTRY.qualifier)("state", "at {:g} MHz", 1e-3)
    assert (at.types, at.text(800_000), at.text(2_400_500)) == (
        {"int", "uint"},
        "at 800 MHz",
        "at 2400.5 MHz",
    )
