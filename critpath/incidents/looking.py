"""One dump after the other: held against what is usual, told, kept."""

from __future__ import annotations

import contextlib
import errno
import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from critpath import __version__, flow
from critpath.documents import (
    SLOWER,
    CauseEntry,
    ComparisonDocument,
    IncidentDocument,
)
from critpath.documents.base import change
from critpath.documents.incidents import DumpEntry, LookingState, UsualEntry
from critpath.errors import CODE_BY_VERDICT, EXIT_INCONCLUSIVE, CritpathError, UnreadableError
from critpath.incidents import keeping
from critpath.incidents.choosing import find_chances, focus, split_at, thin
from critpath.incidents.dumps import USUAL, Dump, list_dumps, open_dump
from critpath.incidents.times import format_time, parse_time
from critpath.incidents.usual import DIRECTORY, Found, Usual, find_deployed, measure_load
from critpath.model import CompareSettings, PathSet
from critpath.model.containers import places_in
from critpath.model.paths import begin_dates
from critpath.model.requests import names_service, service_of
from critpath.report.document import comparison_document
from critpath.schema.parameters.shared import INCIDENTS
from critpath.text import incidents as words
from critpath.text.answer import describe_headline, first_cause
from critpath.units import NS_PER_S
from critpath.untrusted import find_trouble

_HOUR, _DAY = 3600, 24 * 3600
_USUAL: Final = f"-{USUAL}"  # how the names of such dumps end
_WINDOW: Final = NS_PER_S  # before it was noticed: what ended then is of it
_ROOM: Final = 16 << 20  # technical: bytes that an incident and what is usual may take
_ALARMS: Final = 100  # technical: that are kept in mind
_ENOUGH: Final = 30  # technical: executions of the time before that a dump is held against


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
        self._is_full = False  # the disk
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
            if is_over() or not self._has_room():
                return number
            gave_up = self._state.trying == name
            try:
                self.keep(seen=seen, trying=name)
                with contextlib.suppress(FileNotFoundError):  # it made way meanwhile
                    self._look_at(self._how.flight / name, gave_up=gave_up)
                seen = [*seen, name]
                self.keep(seen=seen, trying="")
            except (OSError, CritpathError) as error:
                # The dump is looked at again: when there is room, or from the next start on.
                self._state = change(self._state, trying="")
                with contextlib.suppress(OSError, CritpathError):
                    self.keep(seen=seen)
                trouble = find_trouble(error)
                if trouble is None or trouble.errno not in {errno.ENOSPC, errno.EDQUOT}:
                    raise
                self._say_full()
                return number
        return len(new)

    def _has_room(self) -> bool:
        """Tell whether the disk has room for an incident; say once that it has not."""
        if shutil.disk_usage(self._how.directory).free < _ROOM:
            self._say_full()
            return False
        self._is_full = False
        return True

    def _say_full(self) -> None:
        if not self._is_full:
            self._how.say(words.describe_full(str(self._how.directory)))
        self._is_full = True

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
            with _not_ours():
                paths = self._how.read(dump)
            self._look_at_programs(dump, paths)
            if dump.is_usual:
                self._look_at_usual(dump, paths)
            else:
                self._look_at_alarm(dump, paths)
        except CritpathError as error:
            if find_trouble(error):  # of our directory, and not what the dump is
                raise
            if dump.is_usual:
                self._how.say(words.describe_unread(dump.name, error.what))
            else:
                self._note(dump, None, UsualEntry(""), error.what)

    def _look_at_programs(self, dump: Dump, paths: PathSet) -> None:
        """Begin a new age where something was deployed."""
        state, names = self._state, set(paths.executions.comm)
        names |= {place for of in set(paths.executions.label) for place in places_in(of)}
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
        paths = thin(paths, find_chances(paths.executions, dump))
        known = self._find_usual(dump, paths)
        if dump.is_healthy:
            self._add(dump, paths)
            return
        begin, end = dump.begin_second, dump.at / NS_PER_S
        if any(begin < until and end > since for since, until in self._state.alarms):
            return  # of what an alarm is about, or next to it
        if known is None:
            self._add(dump, paths)
            return
        entry = self._describe(known)
        document = self._compare(_Held(thin(known.paths), paths, entry))
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

    def _find_usual(self, dump: Dump, paths: PathSet, until: float = math.inf) -> Found | None:
        second, load = dump.at // NS_PER_S, measure_load(paths)
        return self._usual.find(second, self._state.age, paths.specification, load, until)

    def _note_unusual(self, dump: Dump) -> None:
        """Leave out of what is usual what may be of an alarm: before it, and after."""
        if not dump.at:
            return
        second, since = dump.at // NS_PER_S, find_onset(dump)
        self._usual.forget(since, second, self._state.age)
        alarm = (int(since), second + round(INCIDENTS.around))
        if alarm not in self._state.alarms:  # by a look that failed later
            self.keep(alarms=[*self._state.alarms, alarm][-_ALARMS:])

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
        known = self._find_usual(dump, paths, find_onset(dump) if dump.at else math.inf)
        paths, *usual = focus(dump.trigger.kind, paths, *([known.paths] if known else []))
        sides = split_at(paths, dump.moment, dump.window or _WINDOW)
        before, after = (thin(side, find_chances(side.executions, dump)) for side in sides)
        if known is not None:
            held = _Held(thin(usual[0]), after, self._describe(known))
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
        given = self._how.settings
        few = replace(
            given,
            explain_limit=min(given.explain_limit, INCIDENTS.explained),
            group_limit=min(given.group_limit, INCIDENTS.group),
        )
        return comparison_document(flow.compare(held.normal, held.sample, few), entries=True)

    def _note(
        self,
        dump: Dump,
        document: ComparisonDocument | None,
        usual: UsualEntry,
        why: str = "",
    ) -> None:
        """Tell an incident, and keep it; or that one goes on."""
        one = describe_incident(dump, document, usual, why)
        if one.verdict in SLOWER:
            self._note_unusual(dump)
        going_on = self._find_going_on(one)
        if going_on is not None and dump.name in going_on.dumps:
            one = going_on  # what failed before failed when it had been written
        elif going_on is not None:
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
                    with _not_ours():
                        one.known = self._how.look_up(document, first, dump.path)
                page = self._how.render(document, words.describe_incident(one))
            keeping.save_incident(self._how.directory, one, document, page)
            keeping.remove_oldest(self._how.directory, self._how.quota, one.id)
        self._how.tell(one, words.describe_incident(one))

    def _find_going_on(self, one: IncidentDocument) -> IncidentDocument | None:
        """Return the incident that a new one is: of the same kind and cause, within an hour."""
        at = parse_time(one.when)
        for other in reversed(list(keeping.read_incidents(self._how.directory, _skip_damaged))):
            apart = at - parse_time(other.last)
            same = find_identity(other) == find_identity(one)
            if 0 <= apart < _HOUR and same and _may_be_of(other, one):
                return other
        return None


@contextlib.contextmanager
def _not_ours() -> Iterator[None]:
    """Let an error be of what is looked at, whatever trouble of the system it comes of."""
    try:
        yield
    except CritpathError as error:
        raise CritpathError(error.what, error.do) from None


def _skip_damaged(_: str, error: UnreadableError) -> None:
    """Leave out an incident whose dump is damaged; one that cannot be read now comes later."""
    if find_trouble(error):
        raise error


def find_onset(dump: Dump) -> float:
    """Return from when on (s since 1970) a dump may have what it is an alarm of."""
    window = dump.window or _WINDOW
    first = dump.begin_second if dump.is_usual else (dump.at - window) / NS_PER_S
    return first - INCIDENTS.around


def may_be_slower(document: ComparisonDocument, least: float) -> bool:
    """Tell whether a dump is slower than usual, or may be by as much as has to show."""
    total = document.states[-1]
    if document.verdict != "inconclusive":
        return document.verdict in SLOWER
    return document.detection.flagged or (total.effect or 0.0) >= least * (total.normal_mean or 0.0)


def find_identity(one: IncidentDocument) -> tuple[str, ...]:
    """Return what tells one incident from another: whom it is about, answer and first cause."""
    facts = one.cause
    of: tuple[str, ...] = ()
    if facts:
        of = facts.cause_id, facts.state, facts.role, facts.peer, facts.device
        of += ("longer" if facts.kind == "longer" else "more often",)
    return (one.host, one.program, one.kind, one.verdict, *of)


def _may_be_of(other: IncidentDocument, one: IncidentDocument) -> bool:
    """Tell whether two alarms may be about the same; what is usual is about whom it names."""
    kinds = {other.trigger.kind, one.trigger.kind}
    return len(kinds) == 1 or ("" in kinds and names_service(one.kind, max(kinds)))


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
    mine = document.column("sample", "label") == kind
    names = Counter(document.column("sample", "comm")[mine].tolist())
    most = max(sorted(names), key=names.__getitem__, default="")
    return most if 2 * names[most] > names.total() else ""
