"""Requests of servers as executions: which there are, and which are asked for."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from critpath.errors import UnreadableError, UsageError
from critpath.executions import ListAskedError, ListedRow, select_within_runs
from critpath.model import (
    F64,
    I32,
    I64,
    U8,
    Bool,
    Certainty,
    Events,
    Executions,
    ReplayedRecording,
    RequestFacts,
)
from critpath.model.gaps import hide_layers
from critpath.model.requests import (
    Passed,
    RequestAccount,
    Sketches,
    Slices,
    Subrequests,
)
from critpath.model.texts import Texts
from critpath.model.vectors import find_distinct
from critpath.processes import MANY, give_back
from critpath.read import SOURCE_PORT
from critpath.records import dataclass
from critpath.requests.blocking import Blocked
from critpath.requests.connections import Waits, find_pool_waits
from critpath.requests.endpoints import UNIX
from critpath.requests.held import Held, note_blocked
from critpath.requests.jobs import find_queue_waits, join_messages
from critpath.requests.left_out import count_left_out
from critpath.requests.links import (
    attribute,
    find_confidence,
    find_links,
    find_missing,
    judge_attribution,
)
from critpath.requests.owners import thread_keys
from critpath.requests.paths import Composition, find_calls
from critpath.requests.transitions import Way, collect_ways
from critpath.requests.turns import COUNTED, MULTIPLEXED, FoundTurns, Processes, find_turns
from critpath.schema.environment import Environment, RequestCounts
from critpath.schema.notes import (
    Note,
    PathsDoubtful,
    RequestsFound,
    RequestsFoundInPart,
    RequestsLeftOut,
    RequestsWithoutClient,
)
from critpath.schema.parameters.requests import FINDING
from critpath.schema.ways import PACKETS, way_of_requests
from critpath.stores import open_place
from critpath.units import safe_text
from critpath.untrusted import fit_pattern

if TYPE_CHECKING:
    from critpath.executions import Specification
    from critpath.read import Recording

    Learn = Callable[[Path], Mapping[Way, int]]

_SHOWN: Final = 8  # technical: services that an error names
_PORTS: Final = 4  # technical: whose connections are shared, to be named


def require_sockets(recording: Recording) -> str:
    """Return what tells of sockets; refuse a recording without events that requests are found in.

    Returns
    -------
    str
        See `critpath.schema.ways`.
    """
    way = way_of_requests(_list_usable(recording), *PACKETS)
    if way:
        return way
    raise UnreadableError(
        f"{recording}: recorded with {recording.manifest.profile}, which has no sockets"
        if recording.manifest.profile
        else f"{recording}: it has no events of sockets",
        "record again with --profile requests",
    )


def find_other_way(replayed: ReplayedRecording, recording: Recording) -> str:
    """Return the way by system calls, where the kernel hid which socket is which; else ""."""
    if replayed.sockets is None or not replayed.sockets.unnamed:
        return ""
    return way_of_requests(_list_usable(recording), *PACKETS, sockets=False)


def _list_usable(recording: Recording) -> set[str]:
    """Return the events of a recording, but packets of which it does not say whose they are."""
    names = {
        name
        for of in recording.descriptions
        for name in of.events
        if name != PACKETS[0] or SOURCE_PORT in of.events[name]
    }
    # perf's names have their group in front, and are otherwise ftrace's.
    return {name.partition(":")[2] or name for name in names}


def find_requests(
    replayed: ReplayedRecording,
    specification: Specification,
    recording: Recording,
    learn: Learn | None = None,
) -> tuple[Executions, Events, Composition]:
    """Find the requests that a specification asks for.

    `learn` returns what those of another recording asked, where that is asked for.

    Returns
    -------
    executions : Executions
    events : Events
        With the account of all requests in its environment.
    pieces : Composition
        What the path of each is joined from.
    """
    replayed = leave_out_layers(replayed)
    events = replayed.events
    found, executions, kept = _choose_executions(replayed, specification, recording, learn)
    waits = _find_waits(found, replayed, found.join_messages())
    notes = (*(note for of in waits for note in of.notes), *note_blocked(found.held))
    executions = replace(executions, notes=(*executions.notes, *notes))
    calls = None
    if specification.requests.client:
        executions, kept, calls = _see_from_clients(
            found, executions, kept, replayed, specification
        )
    pieces = Composition(
        *(found.activity, found.endpoints, found.requests, found.subrequests, found.slices),
        *(kept,),
        doubtful=specification.requests.doubtful,
        hosts=events.hosts,
        calls=calls,
        waits=waits,
        held=found.held,
        doubted=found.attribution == Certainty.DOUBTFUL,
    )
    if pieces.left:
        said = PathsDoubtful(pieces.left, len(kept))
        executions = replace(executions, notes=(*executions.notes, said))
    doubtful = int((found.requests.boundary[kept] == Certainty.DOUBTFUL).sum())
    at_once = kept[found.requests.why[kept] == MULTIPLEXED]
    ports = found.endpoints.local_port[found.requests.endpoint[at_once]].tolist()
    account = {f.name: getattr(found.account, f.name) for f in fields(RequestCounts)}
    account["left_out"] = _name_left_out(found, kept) or None
    account |= {"requests": len(kept), "doubtful": doubtful}
    account["shared"] = dict(Counter(ports).most_common(_PORTS))
    counted = RequestCounts(**account)
    environment = (*events.environment, Environment(requests=counted))
    return executions, replace(events, environment=environment), pieces


def leave_out_layers(replayed: ReplayedRecording) -> ReplayedRecording:
    """Take for a gap, too, when only what tells of requests was not recorded."""
    events = replayed.events
    return replace(replayed, events=replace(events, gaps=hide_layers(events.gaps)))


def find_sketches(
    replayed: ReplayedRecording,
    specification: Specification,
    recording: Recording,
    learn: Learn | None = None,
) -> Sketches:
    """Return all that is known of the requests of a recording, whichever are asked for."""
    replayed = leave_out_layers(replayed)
    found, executions, kept = _choose_executions(replayed, specification, recording, learn)
    passed = found.join_messages()
    waits = _find_waits(found, replayed, passed)
    names = _name_connections(found)
    table = found.requests
    chosen = np.zeros(len(table), np.bool_)
    chosen[kept] = True
    turns = zip(table.endpoint.tolist(), table.turn.tolist(), strict=True)
    return Sketches(
        recording=str(recording),
        endpoints=found.endpoints,
        requests=table,
        subrequests=found.subrequests,
        slices=found.slices,
        links=find_links(found.activity, found.endpoints, table, found.subrequests, found.slices),
        attribution=found.attribution,
        id=tuple(f"{names[of]}#{turn}" for of, turn in turns),
        chosen=chosen,
        notes=(
            *executions.notes,
            *(note for of in waits for note in of.notes),
            *note_blocked(found.held),
        ),
        doubtful=specification.requests.doubtful,
        hosts=replayed.events.hosts,
        clocks=replayed.events.clocks,
        epoch=replayed.events.clock.epoch,
        alone=found.account.unattributed,
        cut=found.cut,
        left_out=found.left_out,
        passed=passed,
    )


def _find_waits(
    found: FoundRequests, replayed: ReplayedRecording, passed: Passed
) -> tuple[Waits, ...]:
    """Return when requests waited for connections, and when their messages lay in queues."""
    pools = find_pool_waits(
        *(found.activity, replayed.workers, found.endpoints),
        *(found.requests, found.subrequests, found.slices),
    )
    return pools, find_queue_waits(found.requests, passed)


def _choose_executions(
    replayed: ReplayedRecording,
    specification: Specification,
    recording: Recording,
    learn: Learn | None,
) -> tuple[FoundRequests, Executions, I64]:
    """Return all requests, those that are asked for as executions, and the row of each."""
    found = _find_turns(replayed, specification, recording, learn)
    if len(found.requests) > MANY:
        give_back()  # what finding who worked for whom took
    strings, service = found.requests.strings, found.requests.service

    def name_all(codes: I32) -> list[str]:
        return [strings[code] for code in codes.tolist()]

    if specification.requests.listing:
        raise ListAskedError(
            f"the services of this recording: {_name_services(name_all(service))}",
            "choose with requests:port=N; critpath path TRACE --execution 'requests:?' has figures",
            list_services(found),
            "requests",
        )
    chosen = np.flatnonzero(_choose(found, replayed.events, specification))
    if not len(chosen) and len(service):
        asked = specification.requests
        named = asked.host or asked.ports or asked.comm or asked.path or asked.pid
        missing = "service among" if named else "request of"
        if called := asked.label or asked.pattern:
            missing = "label among"
        known = name_all(found.requests.label if called else service)
        raise UsageError(
            f"{safe_text(specification.text)}: no such {missing} {_name_services(known)}",
            "name one of them, or see all of them with --execution 'requests:?'"
            if not called
            else "name one of them, or a part with label=~REGEX",
        )
    chosen = chosen[~found.cut[chosen]]
    found = replace(found, account=_count_chosen(found, chosen))
    if least := specification.requests.sure:
        sure = (
            find_confidence(len(found.requests), found.subrequests, found.missing)[chosen] >= least
        )
        if not sure.any() and len(sure):
            raise UsageError(
                f"{safe_text(specification.text)}: no request of {len(sure):,} is that sure",
                "lower min_confidence, or leave it out: critpath requests says how sure they are",
            )
        found = replace(found, account=replace(found.account, unsure=int((~sure).sum())))
        chosen = chosen[sure]
    executions, chosen = _make_executions(found, chosen)
    if left := _name_left_out(found, chosen):
        said = RequestsLeftOut(tuple((name, tuple(of.items())) for name, of in left.items()))
        executions = replace(executions, notes=(*executions.notes, said))
    manifest = recording.manifest
    if not manifest.runs and not manifest.interleaved:
        return found, executions, chosen
    within = select_within_runs(executions, manifest.runs, interleaved=bool(manifest.interleaved))
    if within is not executions:
        rows = dict(zip(executions.id, chosen.tolist(), strict=True))
        chosen = np.array([rows[name] for name in within.id], np.int64)
    return found, within, chosen


@dataclass(frozen=True, eq=False)
class FoundRequests(FoundTurns):
    """Turns, with who worked for whom (`critpath.requests.links.attribute`)."""

    subrequests: Subrequests
    unattributed: I64
    slices: Slices
    attribution: U8
    missing: F64
    left_out: Mapping[str, Mapping[str, int]]
    blocked: Blocked

    @cached_property
    def held(self) -> Held:
        """Whom threads worked for in each slice, and what blocked them."""
        return Held(self.endpoints, self.requests, self.subrequests, self.slices, self.blocked)

    def join_messages(self) -> Passed:
        """Return what went through brokers."""
        return join_messages(
            self.messages, self.endpoints, self.requests, self.subrequests, self.slices
        )


def _find_turns(
    replayed: ReplayedRecording,
    specification: Specification,
    recording: Recording,
    learn: Learn | None = None,
) -> FoundRequests:
    events = replayed.events
    if replayed.sockets is None:
        raise TypeError("replayed without the events of sockets")
    hidden = replayed.sockets.hidden
    if replayed.sockets.unnamed:
        raise UnreadableError(
            f"{recording}: every socket has the same address, so which is which is not known"
            if replayed.sockets.alike
            else f"{recording}: the kernel hid which socket is which",
            "record again as root (kernel.kptr_restrict)",
        )
    found = find_turns(
        replayed.sockets,
        replayed.workers,
        events.strings.__getitem__,
        begin=events.begin,
        end=events.end,
        losses=events.losses,
        gaps=events.gaps,
        skip=specification.requests.skip,
        hosts=events.hosts,
        far=None if replayed.messages is None else replayed.messages.pairs(),
        aligned=[place for place, clock in enumerate(events.clocks) if clock.aligned],
        places=replayed.places,
    )
    guessed = found.guessed
    if len(found.requests) and guessed.all() and not specification.requests.first:
        raise UnreadableError(
            f"{recording}: {len(found.requests):,} turns, but no socket listens or accepts",
            "were the servers elsewhere? requests:peer=any,role=first takes who receives first",
        )
    elsewhere = specification.requests.learn
    made = attribute(
        *(found.activity, replayed.workers, found.endpoints, found.requests),
        specification.requests.assign,
        learn_ways(open_place(elsewhere), learn) if elsewhere and learn else None,
        found.parts,
    )
    missing = find_missing(replayed.workers, found.endpoints, made.requests, made.subrequests)
    return FoundRequests(
        activity=found.activity,
        endpoints=found.endpoints,
        requests=made.requests,
        account=replace(
            found.account,
            unattributed=len(made.unattributed),
            untold=len(made.subrequests.find_untold()),
            unknown=found.account.unknown + hidden,
        ),
        counts=found.counts,
        service=found.service,
        processes=found.processes,
        # Of those beside a gap it is in doubt what they asked.
        cut=found.cut if specification.requests.doubtful else found.cut | made.beside,
        goes_on=found.goes_on,
        parts=found.parts,
        connection=found.connection,
        messages=found.messages,
        subrequests=made.subrequests,
        unattributed=made.unattributed,
        slices=made.slices,
        attribution=judge_attribution(len(made.requests), made.subrequests, missing),
        missing=missing,
        blocked=made.blocked,
        left_out={}
        if found.parts is None
        else count_left_out(
            *(made.requests, found.cut, found.goes_on, made.beside, found.parts),
            (events.begin, events.end),
        ),
    )


def list_ways(
    replayed: ReplayedRecording, specification: Specification, recording: Recording
) -> Mapping[Way, int]:
    """Return what the requests of a recording asked, and how often."""
    found = _find_turns(leave_out_layers(replayed), specification, recording)
    return collect_ways(found.activity, found.endpoints, found.requests, found.subrequests)


def learn_ways(recording: Path, learn: Learn) -> Mapping[Way, int]:
    """Return what the requests of a recording asked, and how often.

    Raises
    ------
    UsageError
        If it is none, or nothing is known of its requests.
    """
    if not recording.is_dir():
        raise UsageError(
            f"no recording to learn from: {safe_text(str(recording))}",
            "name the directory that `critpath record --profile requests` wrote",
        )
    ways = _learn_once(learn, recording, recording.stat().st_mtime_ns)
    if not any(way.asks for way in ways):
        raise UsageError(
            f"nothing to learn from {safe_text(str(recording))}: it is not sure of any request "
            "what it asked",
            "record the same servers with one request after the other",
        )
    return ways


@lru_cache(maxsize=1)
def _learn_once(learn: Learn, recording: Path, _: int) -> Mapping[Way, int]:
    """Learn them once for all recordings that ask for it, as long as it is not written anew."""
    return learn(recording)


def _name_services(services: Sequence[str]) -> str:
    known = [name for name, _ in Counter(services).most_common()]
    more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    return safe_text(", ".join(known[:_SHOWN])) + more or "(none)"


def _find_host(specification: Specification, hosts: Sequence[str]) -> int:
    """Return which host is asked for."""
    name = specification.requests.host
    if name in hosts:
        return hosts.index(name)
    raise UsageError(
        f"{safe_text(specification.text)}: no host is called {safe_text(name)}",
        f"choose one of {safe_text(', '.join(hosts))}",
    )


def _has_label(specification: Specification, texts: Sequence[str]) -> Bool:
    """Return which labels are asked for."""
    asked = specification.requests
    keep = np.array([asked.label in {"", text} for text in texts], np.bool_)
    if asked.pattern:
        keep &= np.array(fit_pattern(asked.pattern, texts), np.bool_)
    return keep


def _choose(found: FoundRequests, events: Events, specification: Specification) -> Bool:
    """Return which requests are asked for."""
    asked, where = specification.requests, specification.where
    requests, endpoints = found.requests, found.endpoints
    of = requests.endpoint
    keep = (requests.end_ns > requests.begin_ns) & (requests.tid > 0)
    if not asked.client:
        keep &= requests.end_ns - requests.begin_ns >= asked.least
    if asked.ports:
        keep &= np.isin(endpoints.local_port[of], sorted(asked.ports))
    if asked.path:
        paths = endpoints.path[of].tolist()
        keep &= np.fromiter((endpoints.strings[c] == asked.path for c in paths), np.bool_)
    if asked.peer != "any":
        keep &= (endpoints.peer[of] < 0) == (asked.peer == "external")
    if asked.top:
        parent = requests.parent.copy()
        parent[found.subrequests.find_asked()] = 0  # some request's, it is not said which
        keep &= find_topmost(requests.service, parent)
    keep &= _has_label(specification, requests.strings)[requests.label]
    host = endpoints.host[of]
    if asked.host:
        keep &= host == _find_host(specification, events.hosts)
    threads: list[tuple[int, int]] = []
    if asked.comm or asked.pid:
        threads = list(zip(host.tolist(), requests.tid.tolist(), strict=True))
    if asked.comm:
        keep &= np.fromiter((asked.comm in found.processes.names(*t) for t in threads), np.bool_)
    if asked.pid:
        keep &= np.fromiter((found.processes.pid(*t) == asked.pid for t in threads), np.bool_)
    if where:
        rows = np.maximum(np.searchsorted(events.timestamp, requests.begin_ns) - 1, 0)
        keep &= where.match(events, host.astype(np.int64), requests.tid.astype(np.int64), rows)[0]
    result: Bool = keep
    return result


def find_topmost(service: I32, parent: I32) -> Bool:
    """Return which requests no other asked for, of services of which that is usual.

    Of a service that requests ask, one of nobody's is of a request that is not known.
    """
    alone = np.asarray(parent < 0, np.bool_)
    _, place = np.unique(service, return_inverse=True)
    share = np.bincount(place, alone) / np.maximum(np.bincount(place), 1)
    return alone & (share[place] > FINDING.topmost)


def _count_chosen(found: FoundRequests, rows: I64) -> RequestAccount:
    """Return the account of the services that these requests are of, without the others."""
    if not len(rows):
        return found.account
    requests, endpoints, subrequests = found.requests, found.endpoints, found.subrequests
    mine = np.isin(found.service, np.unique(found.service[requests.endpoint[rows]]))
    # Connections without a request have no service: those to the same port are of the same.
    port = (endpoints.host.astype(np.int64) << 16) | endpoints.local_port
    known = mine & (endpoints.local_port > 0)
    mine |= (found.service < 0) & np.isin(port, np.unique(port[known]))

    def processes(of: I32, tids: I32) -> tuple[list[tuple[int, int]], list[int]]:
        threads, counts = np.unique(thread_keys(endpoints.host[of], tids), return_counts=True)
        by = [(key >> 32, key & 0xFFFFFFFF) for key in threads.tolist()]
        return [(host, found.processes.pid(host, tid)) for host, tid in by], counts.tolist()

    serving = set(processes(requests.endpoint[rows], requests.tid[rows])[0])

    def count_serving(rows: I64) -> int:
        asking = zip(*processes(subrequests.endpoint[rows], subrequests.tid[rows]), strict=True)
        return sum(many for process, many in asking if process in serving)

    return replace(
        found.account,
        **dict(zip(COUNTED, found.counts[mine].sum(axis=0).tolist(), strict=True)),
        unattributed=count_serving(found.unattributed),
        untold=count_serving(subrequests.find_untold()),
    )


def _name_left_out(found: FoundRequests, rows: I64) -> Mapping[str, Mapping[str, int]]:
    """Return what a gap leaves out of the services of some requests; of all where there is none."""
    strings = found.requests.strings
    mine = {strings[code] for code in np.unique(found.requests.service[rows]).tolist()}
    return {name: of for name, of in found.left_out.items() if name in mine or not len(rows)}


def _make_executions(found: FoundRequests, rows: I64) -> tuple[Executions, I64]:
    """Return requests as executions, in order of time, and the row of each."""
    requests, endpoints = found.requests, found.endpoints
    rows = rows[np.lexsort((requests.tid[rows], requests.end_ns[rows], requests.begin_ns[rows]))]
    of = requests.endpoint[rows]
    names = _name_connections(found)
    turns = zip(of.tolist(), requests.turn[rows].tolist(), strict=True)
    host, tid = endpoints.host[of].astype(np.int64), requests.tid[rows].astype(np.int64)
    account = note_requests(
        *(len(rows), len(np.unique(requests.service[rows])), found.account),
        *(_share_sure(requests.boundary[rows]), _share_sure(found.attribution[rows])),
    )
    executions = Executions(
        id=Texts.of([f"{names[e]}#{n}" for e, n in turns]),
        begin=requests.begin_ns[rows],
        end=requests.end_ns[rows],
        tid=tid,
        host=host,
        comm=_name_threads(found.processes, host, tid),
        label=Texts.spell(requests.label[rows], requests.strings),
        incomplete=found.account.incomplete,
        notes=(account,),
        requests=_tell_facts(found, rows, names),
    )
    return executions, rows


def _see_from_clients(
    found: FoundRequests,
    executions: Executions,
    rows: I64,
    replayed: ReplayedRecording,
    specification: Specification,
) -> tuple[Executions, I64, tuple[I64, I64]]:
    """Return requests as who asked saw them: executions, rows, calls and their begins."""
    calls, begin = (
        of[rows] for of in find_calls(found.activity, found.requests, found.subrequests)
    )
    asked, clocks = found.subrequests, replayed.events.clocks
    host = found.endpoints.host[asked.endpoint[calls]].astype(np.int64)
    seen = calls >= 0
    if clocks:
        aligned = np.array([clock.aligned for clock in clocks], np.bool_)
        seen &= (host == executions.host) | (aligned[host] & aligned[executions.host])
    lost = int((~seen).sum())
    end = asked.end_ns[calls]
    seen &= end - begin >= specification.requests.least
    if not seen.any() and len(seen):
        raise UsageError(
            f"{safe_text(specification.text)}: who asked was not recorded, or its clock is not"
            " known"
            if lost == len(seen)
            else f"{safe_text(specification.text)}: no request takes its client that long",
            "leave side=client out: requests then begin and end where they are served"
            if lost == len(seen)
            else "ask for a smaller min=",
        )
    kept = np.flatnonzero(seen)
    kept = kept[np.lexsort((asked.tid[calls[kept]], end[kept], begin[kept]))]
    tid = asked.tid[calls[kept]].astype(np.int64)
    chosen = executions.take(kept)
    if (facts := chosen.requests) is not None:
        # What was on its way is none of a sub-request's: with those, own time is all of it.
        facts = replace(facts, true_ns=end[kept] - begin[kept] - facts.asked_ns)
    chosen = replace(
        chosen,
        begin=begin[kept],
        end=end[kept],
        tid=tid,
        requests=facts,
        host=host[kept],
        comm=_name_threads(found.processes, host[kept], tid),
        incomplete=executions.incomplete,
        notes=(*executions.notes, *([RequestsWithoutClient(lost)] if lost else [])),
    )
    return chosen, rows[kept], (calls[kept], begin[kept])


def _name_threads(processes: Processes, host: I64, tid: I64) -> Texts:
    """Return what each thread is called."""
    _, first, each = np.unique((host << 32) + tid, return_index=True, return_inverse=True)
    threads = zip(host[first].tolist(), tid[first].tolist(), strict=True)
    return Texts.spell(each.reshape(-1), [processes.thread(*thread) for thread in threads])


# What became of others than the requests that were found.
_OTHERS: Final = (
    *("incomplete", "unsolicited", "skipped", "busy_periods", "streams", "unattributed"),
    *("untold", "unknown", "datagrams", "unsure"),
)


def note_requests(
    total: int,
    services: int,
    account: RequestAccount,
    begin: Mapping[str, float],
    attribution: Mapping[str, float],
) -> Note:
    """Note what became of everything that servers were asked, and how sure two things are."""
    facts = total, services, tuple(begin.items()), tuple(attribution.items())
    others = [(name, getattr(account, name)) for name in _OTHERS]
    others = [(name, count) for name, count in others if count]
    sure = {*begin} == {"certain"} and {*attribution} <= {"certain", "likely"}
    # Every recording cuts requests at its ends, which a note of their own counts.
    if (
        sure
        and {name for name, _ in others} <= {"incomplete"}
        and not account.rings
        and account.way == "sockets"
    ):
        return RequestsFound(*facts)
    return RequestsFoundInPart(*facts, tuple(others), account.way, account.rings)


def _share_sure(codes: U8) -> dict[str, float]:
    """Return which share of requests each certainty has; nothing of none."""
    sure = np.bincount(codes, minlength=len(Certainty)).tolist()
    return {c.name.lower(): sure[c] / len(codes) for c in Certainty if sure[c]}


def _tell_facts(found: FoundRequests, rows: I64, names: Mapping[int, str]) -> RequestFacts:
    """Return what of requests goes with them as executions."""
    table, below = found.requests, found.subrequests
    counted = (below.request >= 0) & (below.child >= 0) & (below.connects == 0)
    services, many = table.service[below.child[counted]], len(table.strings)
    pairs, counts = np.unique(
        below.request[counted].astype(np.int64) * many + services, return_counts=True
    )
    asks: dict[int, tuple[tuple[str, int], ...]] = {}
    columns = ((pairs // many).tolist(), (pairs % many).tolist(), counts.tolist())
    for request, code, count in zip(*columns, strict=True):
        asks[request] = (*asks.get(request, ()), (table.strings[code], count))
    # Made once for all that ask the same; most ask nothing.
    kinds: dict[tuple[tuple[str, int], ...], int] = {(): 0}
    asked = np.zeros(len(rows), np.int64)
    some = np.zeros(len(table), np.bool_)
    some[pairs // many] = True
    for at in np.flatnonzero(some[rows]).tolist():
        asked[at] = kinds.setdefault(asks[int(rows[at])], len(kinds))
    parent = [""] * len(rows)
    inner = np.flatnonzero(table.parent[rows] >= 0)
    inner = inner[~found.cut[table.parent[rows[inner]]]]  # of what a gap cuts it is not sure whose
    above = table.parent[rows[inner]]
    of_parents = (inner.tolist(), table.endpoint[above].tolist(), table.turn[above].tolist())
    for at, of, turn in zip(*of_parents, strict=True):
        parent[at] = f"{names[of]}#{turn}"
    words = [certainty.name.lower() for certainty in Certainty]
    return RequestFacts(
        service=Texts.spell(table.service[rows], table.strings),
        parent=Texts.of(parent),
        asks=Texts.spell(asked, [json.dumps(dict(one), sort_keys=True) for one in kinds]),
        boundary=Texts.spell(table.boundary[rows], words),
        attribution=Texts.spell(found.attribution[rows], words),
        message=Texts.spell(table.message[rows], table.strings),
        trace_id=Texts.spell(table.trace_id[rows], table.strings),
        client=_name_clients(found, rows),
        true_ns=table.true_ns[rows],
        asked_ns=table.asked_ns[rows],
        queued_ns=table.queued_ns[rows],
        bytes_in=table.bytes_in[rows],
        bytes_out=table.bytes_out[rows],
        threads=table.threads[rows].astype(np.int64),
    )


def _name_clients(found: FoundRequests, rows: I64) -> Texts:
    """Return who asked: a process where it was recorded, else an address; "" not known."""
    of, below = found.endpoints, found.subrequests
    asked = np.flatnonzero((below.child >= 0) & (below.tid > 0))
    thread = np.full(len(found.requests), -1, np.int64)
    thread[below.child[asked]] = (of.host[below.endpoint[asked]].astype(np.int64) << 32) + (
        below.tid[asked]
    )
    address = of.remote_address[found.requests.endpoint[rows]]
    each, number = find_distinct(np.column_stack([thread[rows], address]))
    names = [
        (key >= 0 and found.processes.name(key >> 32, key & 0xFFFFFFFF)) or of.strings[code]
        for key, code in each.tolist()
    ]
    return Texts.spell(number, names)


def _name_connections(found: FoundTurns) -> dict[int, str]:
    """Return ``ADDRESS:PORT>PORT`` of each endpoint that has requests; unlike each other.

    Streams are called as their connection: their numbers differ.
    """
    of = found.endpoints
    names: dict[int, str] = {}
    seen: Counter[str] = Counter()
    connection = found.connection
    used = np.unique(found.requests.endpoint)
    for at in np.unique(connection[used]).tolist():
        address = of.strings[of.remote_address[at]]
        if address:
            shown = f"[{address}]" if ":" in address else address
            name = f"{shown}:{of.remote_port[at]}>{of.local_port[at]}"
        elif of.family[at] == UNIX:
            name = f"{of.strings[of.path[at]] or 'unix'}>{at}"
        else:
            name = f"?>{of.local_port[at] or 'udp'}"
        seen[name] += 1
        names[at] = name if seen[name] == 1 else f"{name}~{seen[name]}"
    whose = connection[used].tolist()
    return {at: names[one] for at, one in zip(used.tolist(), whose, strict=True)}


def list_services(found: FoundTurns) -> list[ListedRow]:
    """Return the services of a recording, those with most requests first."""
    requests = found.requests
    lasting = requests.end_ns - requests.begin_ns
    rows = []
    for code in np.unique(requests.service).tolist():
        mine = (requests.service == code) & ~found.cut
        if not mine.any():
            continue
        endpoints = np.unique(requests.endpoint[mine])
        sure = Counter(requests.boundary[mine].tolist()).most_common(1)[0][0]
        rows.append(
            ListedRow(
                requests.strings[code],
                int(mine.sum()),
                int(found.counts[endpoints, 0].sum()),
                int(np.quantile(lasting[mine], 0.5)),
                int(np.quantile(lasting[mine], 0.99)),  # technical: the column p99
                len(np.unique(requests.tid[mine])),
                Certainty(sure).name.lower(),
            )
        )
    return sorted(rows, key=lambda row: -row.count)
