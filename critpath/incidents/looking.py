"""One dump after the other: held against what is usual, told, kept."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from critpath import __version__, flow
from critpath.documents import (
    SLOWER,
    CauseEntry,
    ComparisonDocument,
    IncidentDocument,
)
from critpath.documents.base import change
from critpath.documents.incidents import DumpEntry, LookingState, UsualEntry
from critpath.errors import CODE_BY_VERDICT, EXIT_INCONCLUSIVE, CritpathError
from critpath.incidents import keeping
from critpath.incidents.dumps import USUAL, Dump, list_dumps, open_dump
from critpath.incidents.times import format_time, parse_time
from critpath.incidents.usual import DIRECTORY, OF_A_KIND, Found, Usual, find_deployed
from critpath.model import CompareSettings, PathSet
from critpath.model.containers import places_in
from critpath.model.paths import begin_dates
from critpath.model.requests import names_service, service_of
from critpath.report.document import comparison_document
from critpath.text import incidents as words
from critpath.text.answer import describe_headline, first_cause
from critpath.units import NS_PER_S

_HOUR, _DAY = 3600, 24 * 3600
_USUAL: Final = f"-{USUAL}"  # how the names of such dumps end
_WINDOW: Final = NS_PER_S  # before it was noticed: what ended then is of it
_ENOUGH: Final = 30  # technical: of a kind and a side; a window is doubled until it has them
_RARE: Final = 0.05  # technical: of executions; a kind of fewer has no say in that


@dataclass(frozen=True)
class Looking:
    """How dumps are looked at, and who is told.

    Attributes
    ----------
    flight, directory : Path
        Where dumps are found, and where incidents are kept.
    settings : CompareSettings
    quota : int
        Bytes of all incidents.
    read : callable
        Returns the critical paths of a dump.
    look_up : callable
        Returns what a store of signatures calls a comparison with its two sources; "" for
        nothing.
    render : callable
        Returns a comparison's page, with the incident's line.
    tell : callable
        Is told an incident, and its line.
    say : callable
        Is told what else there is to know.
    """

    flight: Path
    directory: Path
    settings: CompareSettings
    quota: int
    read: Callable[[Dump], PathSet]
    look_up: Callable[[ComparisonDocument, Path, Path], str]
    render: Callable[[ComparisonDocument, str], str]
    tell: Callable[[IncidentDocument, str], None]
    say: Callable[[str], None]


@dataclass(frozen=True)
class _Held:
    """Both sets of a comparison, and what the normal one is."""

    normal: PathSet
    sample: PathSet
    entry: UsualEntry


class Looker:
    """Looks at dumps, from construction on; what it knows is in its directory."""

    def __init__(self, how: Looking) -> None:
        self._how = how
        keeping.prepare_directory(how.directory)
        self._usual = Usual(
            how.directory / DIRECTORY,
            interrupts=how.settings.interrupts,
            version=__version__,
        )
        self._state = keeping.load_state(how.directory) or self._recover_state()

    def _recover_state(self) -> LookingState:
        """Return what incidents and usual files tell of what was kept in mind."""
        self._how.say(words.describe_lost_state(keeping.STATE))
        incidents = keeping.read_incidents(self._how.directory)
        seen = [name for one in incidents for name in one.dumps]
        return LookingState(seen=seen, age=self._usual.newest_age())

    @property
    def state(self) -> LookingState:
        """What is kept in mind."""
        return self._state

    def keep(self, **values: object) -> None:
        """Keep other values in mind."""
        self._state = change(self._state, **values)
        keeping.save_state(self._how.directory, self._state)

    def look(self, is_over: Callable[[], bool] = lambda: False) -> int:
        """Look at every dump that was not looked at yet, one at a time; return how many.

        Those that are left when it is over are looked at when this begins anew.

        First at alarms, if there is something to hold them against: what is usual can wait.
        """
        there = list_dumps(self._how.flight)
        seen = [name for name in self._state.seen if name in there]
        new = [name for name in there if name not in seen]
        if not self._usual.is_empty:
            new.sort(key=lambda name: name.endswith(_USUAL))
        for number, name in enumerate(new):
            if is_over():
                return number
            gave_up = self._state.trying == name
            self.keep(seen=seen, trying=name)
            with contextlib.suppress(FileNotFoundError):  # it made way meanwhile
                self._look_at(self._how.flight / name, gave_up=gave_up)
            seen = [*seen, name]
            self.keep(seen=seen, trying="")
        return len(new)

    def _look_at(self, path: Path, *, gave_up: bool) -> None:
        try:
            dump = open_dump(path)
        except CritpathError as error:
            self._how.say(error.what)
            return
        if dump.was_asked:
            return
        if gave_up:
            self._note(dump, None, UsualEntry(""), words.describe_given_up())
            return
        try:
            paths = self._how.read(dump)
            self._look_at_programs(dump, paths)
            if dump.is_usual:
                self._look_at_usual(dump, paths)
            else:
                self._look_at_alarm(dump, paths)
        except CritpathError as error:
            if dump.is_usual:
                self._how.say(words.describe_unread(dump.name, error.what))
            else:
                self._note(dump, None, UsualEntry(""), error.what)

    def _look_at_programs(self, dump: Dump, paths: PathSet) -> None:
        """Begin a new age where something was deployed."""
        state, names = self._state, set(paths.executions.comm)
        deployed, programs = find_deployed(state.programs, dump.programs, names)
        age = state.age + bool(deployed)
        named = deployed or state.deployed
        self.keep(
            programs=programs, age=age, deployed=named, unlike="" if deployed else state.unlike
        )
        if deployed:
            self._how.say(words.describe_deployed(deployed, dump.when))

    # What is usual

    def _look_at_usual(self, dump: Dump, paths: PathSet) -> None:
        second = dump.at // NS_PER_S
        known = self._usual.find(second, self._state.age, paths.specification)
        if known is None or dump.is_healthy:
            self._add(dump, paths)
            return
        entry = self._describe(known)
        document = self._compare(_Held(known.paths, paths, entry))
        if known.age != self._state.age:  # what was deployed is usual, slower or not
            if document.verdict == "anomaly":
                self._note(dump, document, entry)
            self._add(dump, paths)
            return
        if not may_be_slower(document, self._how.settings.least):
            self._add(dump, paths)
            return
        since = parse_time(self._state.unlike) or second
        if second - since >= _DAY:
            # A change that lasts is what is usual from then on.
            self.keep(age=self._state.age + 1)
            self._how.say(words.describe_new_usual(self._state.unlike))
            self._add(dump, paths)
            return
        self.keep(unlike=format_time(since))
        if document.verdict == "anomaly":
            self._note(dump, document, entry)

    def _add(self, dump: Dump, paths: PathSet) -> None:
        self._usual.add(paths, dump.at // NS_PER_S, self._state.age)
        self.keep(unlike="", told=False)

    def _describe(self, known: Found) -> UsualEntry:
        return UsualEntry(
            "usual" if known.age == self._state.age else "before-deploy",
            [f"{DIRECTORY}/{name}" for name in known.files],
            list(known.recorded),
            len(known.paths),
            [] if known.age == self._state.age else self._state.deployed,
        )

    # What is not

    def _look_at_alarm(self, dump: Dump, paths: PathSet) -> None:
        paths = focus(paths, dump.trigger.kind)
        before, after = split_at(paths, dump.moment, dump.window or _WINDOW)
        known = self._usual.find(dump.at // NS_PER_S, self._state.age, paths.specification)
        if known is not None:
            usual = focus(known.paths, dump.trigger.kind)
            held = _Held(usual, after, self._describe(known))
        else:
            if not self._state.told:
                self.keep(told=True)
                self._how.say(words.describe_no_usual())
            entry = UsualEntry("dump", [], begin_dates(before), len(before))
            if len(before) < _ENOUGH:
                self._note(dump, None, UsualEntry(""), words.describe_nothing_usual())
                return
            held = _Held(before, after, entry)
        self._note(dump, self._compare(held), held.entry)

    def _compare(self, held: _Held) -> ComparisonDocument:
        analysis = flow.compare(held.normal, thin(held.sample), self._how.settings)
        return comparison_document(analysis, entries=True)

    def _note(
        self,
        dump: Dump,
        document: ComparisonDocument | None,
        usual: UsualEntry,
        why: str = "",
    ) -> None:
        """Tell an incident, and keep it; or that one goes on."""
        one = describe_incident(dump, document, usual, why)
        going_on = self._find_going_on(one)
        if going_on is not None:
            one = change(
                going_on,
                count=going_on.count + 1,
                last=one.when,
                dumps=[*going_on.dumps, dump.name],
            )
            keeping.change_incident(self._how.directory, one)
        else:
            page = ""
            if document is not None:
                if document.verdict in SLOWER:
                    first = self._how.directory / (usual.files[0] if usual.files else dump.name)
                    one.known = self._how.look_up(document, first, dump.path)
                page = self._how.render(document, words.describe_incident(one))
            keeping.save_incident(self._how.directory, one, document, page)
            keeping.remove_oldest(self._how.directory, self._how.quota, one.id)
        self._how.tell(one, words.describe_incident(one))

    def _find_going_on(self, one: IncidentDocument) -> IncidentDocument | None:
        """Return the incident that a new one is: of the same kind and cause, within an hour."""
        at = parse_time(one.when)
        for other in reversed(list(keeping.read_incidents(self._how.directory))):
            apart = at - parse_time(other.last)
            kinds = {other.trigger.kind, one.trigger.kind} - {""}  # whom alarms are about
            same = find_identity(other) == find_identity(one) and len(kinds) < 2
            if 0 <= apart < _HOUR and same:
                return other
        return None


def may_be_slower(document: ComparisonDocument, least: float) -> bool:
    """Tell whether a dump is slower than usual, or may be by as much as has to show."""
    total = document.states[-1]
    if document.verdict != "inconclusive":
        return document.verdict in SLOWER
    return document.detection.flagged or (total.effect or 0.0) >= least * (total.normal_mean or 0.0)


def find_identity(one: IncidentDocument) -> tuple[str, ...]:
    """Return what tells one incident from another: kind, answer and first cause."""
    facts = one.cause
    of = (facts.cause_id, facts.state, facts.role, facts.peer, facts.device) if facts else ()
    return (one.host, one.program, one.kind, one.verdict, *of)


def thin(paths: PathSet) -> PathSet:
    """Return at most so many executions of each kind as there are of what is usual."""
    labels = np.array(paths.executions.label, dtype=object)
    chosen = []
    for label in set(paths.executions.label):
        rows = np.flatnonzero(labels == label)
        kept = min(len(rows), OF_A_KIND)  # of as many stretches the middle
        chosen.append(rows[(2 * np.arange(kept) + 1) * len(rows) // (2 * kept)])
    return paths.take(np.sort(np.concatenate(chosen))) if chosen else paths


def focus(paths: PathSet, kind: str) -> PathSet:
    """Return the executions of a kind, and those that ask it; all if there are none."""
    called = {label: names_service(label, kind) for label in set(paths.executions.label)}
    rows = np.flatnonzero([called[label] for label in paths.executions.label])
    return paths.take(rows) if len(rows) else paths


def split_at(paths: PathSet, moment: int, window: int) -> tuple[PathSet, PathSet]:
    """Return the executions of a dump before something was noticed there, and those of it.

    Of it are those that ended in a time before (ns), and after; in a longer one if it takes that
    to have enough of each kind that is no rare one.
    """
    end = paths.executions.end
    first = int(end.min()) if len(end) else moment
    counts = Counter(paths.executions.label)
    labels = np.array(paths.executions.label, dtype=object)
    asked = [labels == label for label, n in counts.items() if n >= _RARE * counts.total()]
    while True:
        after = end >= moment - window
        fewest = min((np.count_nonzero(after & of) for of in asked), default=sum(after))
        if fewest >= _ENOUGH or moment - window <= first:
            break
        window *= 2
    rows = np.arange(len(end), dtype=np.int64)
    return paths.take(rows[~after]), paths.take(rows[after])


def describe_incident(
    dump: Dump, document: ComparisonDocument | None, usual: UsualEntry, why: str
) -> IncidentDocument:
    """Return the facts of an incident."""
    headline = describe_headline(document) if document else None
    label = headline.label or "" if headline else ""
    kind = label or (dump.trigger.kind if dump.trigger.when.startswith("latency") else "")
    one = IncidentDocument(
        format="critpath/incident/1",
        version=__version__,
        id=dump.name,
        when=dump.when,
        last=dump.when,
        count=1,
        host=dump.host,
        kind=kind,
        trigger=dump.trigger,
        verdict=document.verdict if document else "inconclusive",
        code=CODE_BY_VERDICT[document.verdict] if document else EXIT_INCONCLUSIVE,
        sentence=words.describe_answer(document) if document else why,
        usual=usual,
        dump=DumpEntry(str(dump.path), dump.measure()),
        dumps=[dump.name],
        page=keeping.PAGE if document else "",
    )
    if document is None or headline is None:
        return one
    pictured = document.pictures.kinds if document.pictures else []
    for found in (k for k in pictured if k.label == label or len(pictured) == 1):
        one.kind = found.label or one.kind
        one.executions = list(found.executions)
        one.p50, one.p95, one.p99 = list(found.p50), list(found.p95), list(found.p99)
    one.program = _find_program(document, one.kind)
    one.container = next(iter(places_in(service_of(one.kind))), "")
    cause: CauseEntry | None = first_cause(document, headline.word)
    if cause is not None:
        one.cause, one.probability = cause.facts, cause.probability
    return one


def _find_program(document: ComparisonDocument, kind: str) -> str:
    """Return the name of the thread that most executions of a kind are of; "" for several."""
    rows = document.rows("sample", "comm", "label")
    names = [comm for comm, label in rows if label == kind]
    most = max(sorted(set(names)), key=names.count, default="")
    return most if 2 * names.count(most) > len(names) else ""
