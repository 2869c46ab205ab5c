"""A session asks its sources in one loop: in which order, and what an error leaves of it."""

from __future__ import annotations

import importlib
import inspect
from types import SimpleNamespace

import pytest

from critpath.errors import CritpathError
from critpath_record import session as module
from critpath_record.recorder import RECORDERS
from critpath_record.source import Source, Taken
from critpath_record.stacks.sources import SOURCES

TRACER = "tracer"


class Noted(Source):
    """Notes what it is asked."""

    def __init__(self, name, asked, *, follows=False, spent=None, fails=""):
        self.known, self.asked, self.spent, self.fails = name, asked, spent, fails
        self.follows = follows

    def _note(self, what):
        self.asked.append(f"{what} {self.known}")
        if what == self.fails:
            raise CritpathError(f"cannot {what}", "try again")

    def prepare(self):
        self._note("prepare")

    def open(self):
        self._note("open")
        return 7 if self.known == TRACER else 0

    def cost(self):
        return self.spent

    def charge_beside(self, part, spent):
        del part
        self.asked.append(f"charge {spent()}")

    def close(self):
        self._note("close")
        return 9 if self.known == TRACER else 0

    def drain(self, report):
        del report
        self._note(f"drain {self.span}")
        return Taken(facts={"of": self.known}, warnings=(self.known,), beside=(self.known,))

    def abort(self):
        self._note("abort")


@pytest.fixture
def session(monkeypatch):
    """Return a function that makes a session of sources, in their order."""

    def make(*sources, budget=None):
        made = object.__new__(module._Session)
        made.request = SimpleNamespace(budget=budget)
        made.tracer = next((one for one in sources if one.known == TRACER), sources[0])
        made.sources, made.manifests, made.notes, made.said = [], [], [], []
        made.reporter = lambda _: None
        monkeypatch.setattr(module._Session, "_make_sources", lambda _: iter(sources))
        monkeypatch.setattr(module._Session, "_warn", lambda self, what: self.said.append(what))
        return made

    return make


def test_the_order_of_all_sources(session):
    asked = []
    names = (("functions", False), ("files", True), (TRACER, False), ("stacks", True))
    of = session(*(Noted(name, asked, follows=last) for name, last in names))
    assert of._open_sources() == 7
    assert asked == [f"{what} {name}" for name, _ in names for what in ("prepare", "open")]
    asked.clear()
    assert of._close_sources() == 9
    assert asked == [f"close {name}" for name in (TRACER, "functions", "files", "stacks")]
    asked.clear()
    of.manifests, of.end = [SimpleNamespace(begin=7)], 9
    taken = of._drain_sources()
    # A trace comes first: what explains it has its clock.
    assert [line.split()[-1] for line in asked] == [TRACER, "functions", "files", "stacks"]
    assert all("(7, 9)" in line for line in asked)
    assert taken.beside == (TRACER, "functions", "files", "stacks")
    assert of.notes == ["functions", "files", "stacks"]  # the trace's own stand in its result
    assert of.sources == []


def test_what_others_cost_is_charged_to_the_tracers_budget(session):
    asked = []
    of = session(Noted("functions", asked, spent=0.5), Noted(TRACER, asked), budget=object())
    of._open_sources()
    assert [line for line in asked if "charge" in line] == ["charge 0.5"]


def test_what_has_begun_is_ended_at_an_error_whatever_that_says(session):
    asked = []
    of = session(
        Noted("functions", asked, fails="abort"),
        Noted(TRACER, asked),
        Noted("x", asked, fails="open"),
    )
    with pytest.raises(CritpathError, match="cannot open"):
        of._open_sources()
    asked.clear()
    of._abort_sources()
    assert asked == ["abort x", "abort tracer", "abort functions"]
    assert of.said == ["cannot abort (try again)"]


OFFERED = [*RECORDERS.values(), *dict.fromkeys(SOURCES.values())]


@pytest.mark.parametrize(
    "name", [*OFFERED, "critpath_record.functions", "critpath_record.ftrace.received"]
)
def test_a_source_has_the_names_of_the_protocol_and_no_other_life(name):
    of = importlib.import_module(name)
    found = [
        one
        for _, one in inspect.getmembers(of, inspect.isclass)
        if issubclass(one, Source) and one is not Source and one.__module__ == name
    ]
    assert found, "one class at least"
    for one in found:
        assert not {"start", "stop", "finish", "read"} & {*vars(one)}
    if name in OFFERED:
        assert callable(of.find_needs)
