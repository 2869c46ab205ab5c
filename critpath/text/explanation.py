"""A cause in a sentence that people share, made of the facts that the document has of it.

Sentence = subject + verb + time after [instead of the time before] + what [; no request did so
before].  Names of a trace stand between backticks; they are not yet safe to show.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from critpath.model import RUNNING, State
from critpath.model.details import NO_DETAIL, SOFTIRQS, Detail, Kin, word_detail
from critpath.model.stacks import is_helper
from critpath.model.vectors import name_family, show_family
from critpath.records import dataclass
from critpath.schema.causes import KERNEL_TIMERS, CauseKind, evidence_of
from critpath.schema.kinds import WAITS
from critpath.schema.parameters.text import WORDS
from critpath.text.page import noun_of
from critpath.text.phrases import (
    PACKETS,
    PHRASES,
    doing,
    in_function,
    in_place,
    listed,
    location,
    name_kin,
    name_kind,
    quoted,
    rival_name,
    say_elsewhere,
    thread_name,
)
from critpath.text.recognized import has_warning, kind_of
from critpath.units import format_brief_pair, format_ns, format_sum

if TYPE_CHECKING:
    from critpath.documents import (
        Because,
        CauseEntry,
        CauseFacts,
        ComparisonDocument,
        FindingEntry,
        RivalShare,
    )

_ASLEEP: Final = WAITS - {State.WAIT_CPU, State.WAIT_QUOTA}
_MOST_IDS: Final = 4  # technical
_MOST_RIVALS: Final = 2  # technical
_DISK_NAME: Final = re.compile(r"[a-z]+\d*(?:[a-z]+\d+)*")
_NET_DEVICE: Final = re.compile(r"[a-z][\w.-]*")

# Of the table below: {verb} as the subject wants it, {fact} by its function (`_slot`).


class _Said(NamedTuple):
    """What is said of a kind of cause.

    Attributes
    ----------
    own : str
        What requests do themselves.
    no_longer : str
        What they no longer do: "They no longer ...".
    theirs : str
        What they do where another thread does it; "" for "wait for X, which was ...".
    which_was : str
        What that thread did; "" for the state's words.
    no_longer_theirs : str
    """

    own: str
    no_longer: str
    theirs: str = (
        "{wait} {time}{through} for {threads}, which {were} {did}{besides}{elsewhere}{tail}"
    )
    which_was: str = ""
    no_longer_theirs: str = "{wait} for {threads}"


def _waits(what: str, no_longer: str = "", which_was: str = "") -> _Said:
    """Return what is said of a wait, which may be longer or more often."""
    own = "{wait}{lasting} for " + what + "{in_call}{counted}{then_cpu}"
    return _Said(own, no_longer or "{wait} for " + what, which_was=which_was)


def _waits_for_cpu(why: str, which_was: str = "") -> _Said:
    return _Said("{wait} {time} for " + why, "{wait} for a CPU", which_was=which_was)


_NO_STEP: Final = "{run} one of the steps"
_UNSEEN: Final = "{wait} for something unseen"
_ON_A_CPU: Final = "waiting for {cpu_then} busy running {rival}"

SAID: Final[dict[str, _Said]] = {
    "own-code": _Said(
        "{run} {time} on the CPU {in_the_code}{tail}{brought}",
        _NO_STEP,
        which_was="running{for_so_long}{in_function}",
    ),
    "system-call": _Said("{run} {time} in {system_call}{tail}{brought}", _NO_STEP),
    "interrupt": _Said("{are} interrupted for {time} by {device}{tail}", "{get} interrupted"),
    "softirq": _Said("{are} interrupted for {time} by {softirq}{tail}", "{get} interrupted"),
    "held-back": _Said(
        "{are} held back for {time} while a CPU was idle, probably by a CPU quota{tail}",
        "{wait} for a CPU",
        which_was="held back while a CPU was idle, probably by a CPU quota",
    ),
    "late-start": _waits_for_cpu("{cpu_that_was} idle: it was late to start them{tail}"),
    "own-threads": _waits_for_cpu(
        "{cpu_that_was} busy running {own_threads}{elsewhere}{tail}",
        "waiting for {cpu_then} busy running {own_threads}",
    ),
    "busy-cpu": _waits_for_cpu(
        "{cpu_that_was} busy running {rival}{or_quota}{elsewhere}{tail}", _ON_A_CPU
    ),
    "cpu": _waits_for_cpu("{one_cpu}{tail}", "waiting for {one_cpu}{namesakes}"),
    "quota": _Said("{are} throttled for {time} by {quota}{tail}", "{get} throttled by a CPU quota"),
    "memory": _Said(
        "{free} memory for {time}, as too little was left{memory_limit}{tail}", "{free} memory"
    ),
    "queue": _Said(
        "{wait} {time} {behind}{held}{mostly_from}{meanwhile}{tail}",
        "{wait} behind other requests",
        "{wait} {time} {behind}{held}{mostly_from}{meanwhile_or_besides}{tail}",
        no_longer_theirs="{wait} behind other requests of {name}",
    ),
    "connection": _waits("{connection}", "{wait} for a connection", "waiting for {connection}"),
    "broker": _Said(
        "{wait} {time} in the queue of {broker}{tail}",
        "{wait} in a broker's queue",
        which_was="waiting in the queue of {broker}",
    ),
    "shared-loop": _Said(
        "{spend} {time} {on_a_loop}{held}{meanwhile}{tail}",
        "{share} a loop with other requests",
        "{spend} {time} {on_a_loop}{held}{meanwhile_or_besides}{tail}",
    ),
    "disk": _waits("{disk}{kept_busy}", "{wait} for the disk"),
    "network": _waits("{network}", "{wait} for the network", "waiting for {network}"),
    **{
        kind: _waits(packet, "{wait} for the network", f"waiting for {packet}")
        for kind, packet in (("packet-from-here", PACKETS[True]), ("packet", PACKETS[None]))
    },
    "packet-in-flight": _waits("a packet in flight"),
    "sleep": _Said("{sleep}{lasting}{in_call}{counted}{then_cpu}", "{sleep}"),
    "kernel-timer": _Said(
        "{wait} {time} for {timer}{tail}{then_cpu}", "{sleep}", which_was="waiting for {timer}"
    ),
    "thread": _waits("another thread"),
    "lock": _waits("a lock"),
    "input": _waits("input"),
    "pipe": _waits("a pipe"),
    "device": _waits("a device"),
    "deferred-work": _waits("deferred work of the kernel"),
    "other-cpu": _waits("another CPU"),
    "stopped": _Said("{are} stopped for {time}{tail}", "{get} stopped"),
    "unexplained": _Said("{wait} {time}; the recording does not tell for what", _UNSEEN),
    "not-observed": _Said("{take} {time} that the recording tells nothing of", _UNSEEN),
    "not-recorded": _Said("{take} {time} that were not recorded", _UNSEEN),
}
# The same steps more often, whatever they are.
_ROUNDS: Final = "{run} the same steps {often}: {time}"
_TRIPS: Final = "{wait}{through} for {whom} {often}: {time}{mostly}{tail}"
_LONGER_TRIPS: Final = "{wait} {time}{through} for {threads}{which_mostly}{tail}"
VERBS: Final = {
    **{verb: f"{verb}s" for verb in ("free", "get", "run", "share", "sleep", "spend", "take")},
    "wait": "waits",
    "are": "is",
    "their": "its",
}


@dataclass(frozen=True)
class _Telling:
    """One cause as the templates ask for it: words by the subject, facts by `_slot`."""

    document: ComparisonDocument
    cause: CauseEntry
    facts: CauseFacts
    kind: CauseKind
    subject: str
    several: bool
    noun: str
    after: str
    instead: str
    tail: str

    def __getitem__(self, name: str) -> str:
        slot = _SLOTS.get(name)
        return slot(self) if slot else self.word(name)

    def word(self, plural: str) -> str:
        """Return a verb or a pronoun as the subject wants it."""
        return plural if self.several else VERBS[plural]

    @cached_property
    def main(self) -> FindingEntry | None:
        """The finding that the sentence names first."""
        findings = self.document.findings
        return findings[self.cause.main] if 0 <= self.cause.main < len(findings) else None

    @cached_property
    def often(self) -> str:
        """How often, where waits may be new."""
        return _more_often(self.facts, self.noun, or_at_all=True)


def describe_cause(
    document: ComparisonDocument,
    cause: CauseEntry,
    *,
    they: bool = False,
    examined: Collection[int] | None = None,
) -> str:
    """Return what happened in a sentence without a full stop.

    Parameters
    ----------
    document : ComparisonDocument
    cause : CauseEntry
        One of its causes.
    they : bool
        Its requests were named just before: the subject is "They".
    examined : collection of int, optional
        As `find_examined` gives them, where that is known.
    """
    facts = cause.facts
    if facts is None:  # of an older file
        return cause.sentence
    if examined is None and not they:
        examined = find_examined(document)
    told = _tell(document, cause, facts, examined)
    if facts.time_after is None or not told.after:
        amount = format_ns(abs(cause.contribution or 0.0))
        way = "longer" if (cause.contribution or 0.0) >= 0 else "less"
        what = doing(State[facts.state], NO_DETAIL).replace(" cpu", " CPU")
        return f"{told.subject} {told.word('are')} {amount} {way} {what}"
    if not facts.time_after and facts.time_before:
        before = format_brief_pair(facts.time_before, 0.0)[0]
        said = SAID[told.kind.id]
        what = (said.no_longer_theirs if facts.role else said.no_longer).format_map(told)
        return f"{told.subject} no longer {what}: before, that took {before}"
    happened = _choose_template(told).format_map(told)
    itself = told.kind.doubt or told.kind.sure == "inferred"  # whose words say how sure that is
    if facts.certainty == "inferred" and facts.role and not itself:
        happened += "; that thread is inferred from time-outs that end with its work"
    if facts.route:
        happened += f", as packets take another route: {facts.route}"
    return f"{told.subject} {happened}{_in_the_code(facts, several=told.several)}"


def _choose_template(told: _Telling) -> str:
    """Return what a cause's sentence is after its subject."""
    facts, said = told.facts, SAID[told.kind.id]
    if facts.counted == "iterations" and not facts.role and _more_often(facts, told.noun):
        return _ROUNDS
    if not facts.role:
        return said.own
    once = (facts.count_before or 0.0) >= WORDS.half or not facts.through
    if facts.counted == "trips" and once and _more_often(facts, told.noun):
        return _LONGER_TRIPS if _is_longer_each(facts) else _TRIPS
    return said.theirs


def _in_the_code(facts: CauseFacts, *, several: bool) -> str:
    """Say where in the code that is; "" without stacks."""
    said = []
    behind = who_had_code(facts)
    if facts.locations:
        first, *others = [(place.location, place.share) for place in facts.locations]
        where = location(first[0])
        if first[1] < WORDS.mostly and others:
            where = " and ".join(
                f"{location(name)} ({round(100 * share)} %)" for name, share in (first, others[0])
            )
        run = "in or up to " if State[facts.state] in RUNNING else ""
        who = quoted(peer_name(facts)) if facts.role else "they" if several else "it"
        were = "were" if several and not facts.role and not behind else "was"
        who = behind or who
        if is_helper(facts.comm):
            said.append(f"{who} worked for {where}")
        else:
            said.append(f"{who} ran {run}{where}" if run else f"{who} {were} in {where}")
    if facts.waits_at:
        who = "they wait" if several else "it waits"
        said.append(f"{who} in {location(facts.waits_at)}")
    if facts.waker_location:
        said.append(f"the wait was ended in {location(facts.waker_location)}")
    return "; in the code: " + ", ".join(said) if said else ""


def who_had_code(facts: CauseFacts) -> str:
    """Return what had the code of who waits behind others: not the one that waits."""
    if State[facts.state] not in {State.QUEUED, State.SHARED}:
        return ""
    return "the loop" if facts.loop else "the thread"


def describe_share(share: float | None) -> str:
    """Return how much of the slowdown a cause explains, "" where it is no part of it."""
    if share is None or share <= 0:
        return ""
    if share > WORDS.more_than_all:
        return "more than the slowdown"
    if share >= WORDS.all:
        return "all of the slowdown"
    return f"{max(round(100 * share), 1)} % of the slowdown"


def find_effect(cause: CauseEntry) -> float:
    """Return what a cause comes to (ns): what its two times differ by, if they are all of it."""
    moved, facts = cause.contribution or 0.0, cause.facts
    if facts and facts.time_after is not None and facts.time_before is not None:
        difference = facts.time_after - facts.time_before
        if abs(difference - moved) <= WORDS.agrees * abs(moved):
            return difference  # the same two figures as in the sentence
    return moved


def find_share(cause: CauseEntry) -> float:
    """Return which part of the slowdown what a cause comes to is."""
    moved = cause.contribution or 0.0
    return (cause.share or 0.0) * (find_effect(cause) / moved if moved else 1.0)


def describe_effect(cause: CauseEntry) -> str:
    """Return what a cause comes to: ``+9.38 ms each, 99 % of the slowdown``."""
    moved, in_all = find_effect(cause), _describe_whole(cause)
    each = " each" if len(cause.positions) > 1 else ""
    share = describe_share(find_share(cause))
    return f"{format_ns(moved, sign=True)}{each}{in_all}" + (f", {share}" if share else "")


def _describe_whole(cause: CauseEntry) -> str:
    """Say how what a cause comes to differs from what its two times do."""
    moved, facts = find_effect(cause), cause.facts
    if facts is None or facts.time_after is None or facts.time_before is None:
        return ""
    difference = facts.time_after - facts.time_before
    if moved == difference or (moved > 0) != (difference > 0):
        return ""
    return " with what it brings along" if abs(moved) > abs(difference) else " net"


def describe_cost(cause: CauseEntry) -> str:
    """Return ``, +10.9 ms with what it brings along`` of what is done more often and costs more.

    A headline's sentence has no effect beside it, and trips alone are the least of what they cost.
    """
    facts, whole = cause.facts, _describe_whole(cause)
    if facts is None or facts.counted not in {"trips", "iterations"} or "brings" not in whole:
        return ""
    if not _more_often(facts, "") or _is_longer_each(facts) or find_effect(cause) <= 0:
        return ""
    return f", {format_ns(find_effect(cause), sign=True)}{whole}"


def explained(document: ComparisonDocument, causes: Collection[CauseEntry]) -> str:
    """Return what causes explain of all slow requests' time; "" where nothing was examined."""
    excess = [one.excess for one in document.aligned if one.excess is not None]
    whole = float(sum(excess))
    if not excess or whole <= 0:
        return ""
    sums = [find_effect(c) * len(c.positions) for c in causes]
    more, less = sum(x for x in sums if x > 0), -sum(x for x in sums if x < 0)
    rest = whole - more + less
    if rest < 0:  # what no cause is about went faster
        less, rest = less - rest, 0.0
    slow = f"slow {noun_of(document, len(excess))}"
    slow = f"{len(excess):,} {slow}" if len(excess) > 1 else slow
    one = len(causes) == 1
    if round(100 * less / whole):  # 106 % of something would be read twice
        by = "this cause" if one else "these causes"
        lost, won, back, *left = format_sum(more, -less, rest)
        unseen = f"; {left[0]} is unexplained" if left else ""
        said = f"{won} by {by}, less {back} that faster steps won back{unseen}"
        return f"The {slow} lost {lost} in all: {said}."
    share = min(round(100 * more / whole), 100)
    these = "This cause explains" if one else "These causes explain"
    unseen = f"; {100 - share} % is unexplained" if share < 100 else ""
    return f"The {slow} lost {format_ns(whole)} in all. {these} {share} % of it{unseen}."


def _tell(
    document: ComparisonDocument,
    cause: CauseEntry,
    facts: CauseFacts,
    examined: Collection[int] | None,
) -> _Telling:
    noun = noun_of(document, 1)
    before, after = facts.time_before, facts.time_after
    shown = ("", "") if after is None else format_brief_pair(before or 0.0, after)
    new = not before
    counted = facts.counted in {"trips", "waits"} and (facts.count_before or 0.0) >= WORDS.never
    never = new and before is not None and not counted
    moved_more = (cause.contribution or 0.0) > 0
    subject, several = "They", True
    if examined is not None:
        subject, several = _subject(document, cause, examined)
    return _Telling(
        document=document,
        cause=cause,
        facts=facts,
        kind=kind_of(document, cause, facts),
        subject=subject,
        several=several,
        noun=noun,
        after=shown[1],
        instead="" if new or before is None else f" instead of {shown[0]}",
        tail=f"; no {noun} did so before" if never and moved_more else "",
    )


def _subject(
    document: ComparisonDocument, cause: CauseEntry, partly: Collection[int]
) -> tuple[str, bool]:
    """Return ``4 of 5 `cpu` requests``, and whether they are several."""
    wanted = {*partly, *cause.positions}
    labels: dict[int, str] = dict(document.rows("sample", "position", "label", of=wanted))
    mine = {labels.get(position, "") for position in cause.positions}
    label = mine.pop() if len(mine) == 1 else None
    among = [labels.get(p, "") for p in partly] if partly else document.column("sample", "label")
    of = len(among) if label is None else sum(each == label for each in among)
    size = len(cause.positions)
    what = name_kind(label or "", noun_of(document, of))
    if size == of and not partly:
        return (f"All {of:,} {what}", True) if of > 1 else (f"The {what}", False)
    examined_ones = " examined" if partly else ""
    return f"{size:,} of {max(of, size):,} {what}{examined_ones}", size != 1


def find_examined(document: ComparisonDocument) -> Collection[int]:
    """Return the requests that were examined for all that are slow; nothing where all were."""
    some = has_warning(document, "some-examined")
    return {one.position for one in document.aligned} if some else ()


def peer_name(facts: CauseFacts) -> str:
    """Return the other thread's name; of several of one family, with * for their numbers."""
    return show_family(facts.comm or facts.role)


def _more_often(facts: CauseFacts, noun: str, *, or_at_all: bool = False) -> str:
    """Return ``22 times instead of 1.9 a request, on average``, "" where it is not more often."""
    before, after = facts.count_before, facts.count_after
    if before is None or after is None:
        return ""
    if before < WORDS.never and not (or_at_all and after >= WORDS.more_often):
        return ""
    if after < WORDS.more_often * before or after - before < WORDS.once_more:
        return ""
    once = "never" if before < WORDS.never else _times(before, short=True)
    said = f"{_times(after)} instead of {once}"
    # Nobody does something 0.58 times.
    if all(abs(count - round(count)) < WORDS.never for count in (before, after)):
        return said
    if once == "never":
        return f"{_times(after)} a {noun}, on average, instead of never"
    return f"{said} a {noun}, on average"


def _times(count: float, *, short: bool = False) -> str:
    # technical: how a number is rounded
    shown = f"{count:.2g}" if count < 99.5 else f"{count:,.0f}"
    words = {"1": "once", "2": "twice"}
    return words.get(shown) or (shown if short else f"{shown} times")


# The facts of the table's templates.

_Slot = Callable[["_Telling"], str]
_SLOTS: Final[dict[str, _Slot]] = {}


def _slot(say: _Slot) -> _Slot:
    """Have a function say the fact that is called as it is."""
    _SLOTS[say.__name__.removeprefix("_say_")] = say
    return say


@_slot
def _say_time(told: _Telling) -> str:
    """Say both times: ``3.9 ms instead of 1.0 ms``."""
    return f"{told.after}{told.instead}"


@_slot
def _say_tail(told: _Telling) -> str:
    """Say that nobody did so before, if so."""
    return told.tail


@_slot
def _say_lasting(told: _Telling) -> str:
    """Say how long, where it is not said how often."""
    return "" if told.often else f" {told['time']}"


@_slot
def _say_counted(told: _Telling) -> str:
    """Say how often, and how long together."""
    if not told.often:
        return told.tail
    return f" {told.often}: {told['time']}{'' if 'never' in told.often else told.tail}"


@_slot
def _say_often(told: _Telling) -> str:
    """Say how often, of what was there before."""
    return _more_often(told.facts, told.noun)


@_slot
def _say_in_call(told: _Telling) -> str:
    """Say in which system call."""
    return f" in {quoted(told.facts.call)}" if told.facts.call else ""


@_slot
def _say_system_call(told: _Telling) -> str:
    """Name the system call that ran."""
    return f"system call {quoted(told.facts.call)}" if told.facts.call else "system calls"


@_slot
def _say_in_the_code(told: _Telling) -> str:
    """Say where it ran: in a function of Python that was recorded, or in its own code."""
    return told["in_function"].removeprefix(" ") or _whose_code(told)


def _whose_code(told: _Telling) -> str:
    """Say whether the program's code ran or the kernel's for it, as far as that is known."""
    facts, own = told.facts, f"in {told['their']} own code"
    match find_whose_code(facts):
        case "page faults":
            times = f"{facts.faults_after:,.0f} a {told.noun} instead of {facts.faults_before:,.0f}"
            return f"in the kernel for page faults, {times}"
        case "kernel":
            return f"in the kernel for {'them' if told.several else 'it'}"
        case "own":
            return own
    return f"{own} or the kernel's for it"


def find_whose_code(facts: CauseFacts) -> Literal["page faults", "kernel", "own", ""]:
    """Return whose code ran in time on the CPU, "" where that is not known.

    Where system calls are recorded, they are told apart from what else runs; of runs the kernel's
    part is counted.
    """
    counted = (facts.kernel_before, facts.kernel_after, facts.faults_before, facts.faults_after)
    grown = (facts.time_after or 0.0) - (facts.time_before or 0.0)
    if None not in counted and grown:
        before, after, faults, faults_now = (number or 0.0 for number in counted)
        share = (after - before) / grown
        if share >= WORDS.mostly:
            for_faults = 0 < after - before <= (faults_now - faults) * WORDS.fault
            return "page faults" if for_faults else "kernel"
        if share <= 1 - WORDS.mostly and (facts.time_after or 0.0) >= WORDS.ticks:
            return "own"
    return "own" if facts.state == State.RUN_USER.name or facts.locations else ""


@_slot
def _say_in_function(told: _Telling) -> str:
    """Say in which function of Python that was recorded."""
    facts = told.facts
    if not facts.location or facts.locations:
        return ""
    return f" {in_function(facts.location, facts.caller)}"


@_slot
def _say_device(told: _Telling) -> str:
    """Name what interrupted."""
    return quoted(told.facts.device) if told.facts.device else "the machine"


@_slot
def _say_connection(told: _Telling) -> str:
    """Say what was waited for: ``one of 4 connections to postgres:5432``."""
    facts = told.facts
    held = Detail(
        device=facts.device,
        connections=facts.connections,
        request=facts.request,
        held=round(facts.held or 0),
    )
    return word_detail(held) or "a connection that other requests hold"


@_slot
def _say_broker(told: _Telling) -> str:
    """Name whose queue messages lie in: ``redis-server:6379``."""
    return quoted(told.facts.device) if told.facts.device else "a broker"


@_slot
def _say_softirq(told: _Telling) -> str:
    """Name the deferred work that interrupted."""
    return f"softirq {told['device']}" if told.facts.device else told["device"]


@_slot
def _say_quota(told: _Telling) -> str:
    """Say whose quota held: ``the CPU quota of control group `/web` (4 ms in each 10 ms)``."""
    if not told.facts.control_group:
        return f"{told['their']} CPU quota"
    return f"the CPU quota of {_group(told.facts)}"


@_slot
def _say_memory_limit(told: _Telling) -> str:
    """Say under whose limit memory was short."""
    return f" under the memory limit of {_group(told.facts)}" if told.facts.control_group else ""


def _group(facts: CauseFacts) -> str:
    limit = f" ({facts.limit})" if facts.limit else ""
    return f"control group {quoted(facts.control_group)}{limit}"


@_slot
def _say_disk(told: _Telling) -> str:
    """Name the disk."""
    named = bool(told.facts.device and _DISK_NAME.fullmatch(told.facts.device))
    return f"the disk {quoted(told.facts.device)}" if named else "the disk"


@_slot
def _say_kept_busy(told: _Telling) -> str:
    """Say whose requests kept the disk busy, or under whose limit it was."""
    facts = told.facts
    if facts.control_group:
        return f", under the limit of {_group(facts)}"
    part = f" in {100 * facts.peer_share:.0f} % of that time" if facts.peer_share else ""
    return f", which {told['rival']} kept busy{part}" if facts.peer else ""


@_slot
def _say_network(told: _Telling) -> str:
    """Name the device that packets come through."""
    facts = told.facts
    named = _NET_DEVICE.fullmatch(facts.device) and facts.device not in SOFTIRQS
    if facts.local is None or not named:  # of an older file, the former
        return "the network"
    return f"the network device {quoted(facts.device)}"


@_slot
def _say_brought(told: _Telling) -> str:
    """Say that waits for a CPU are because of the work, where they grew with it."""
    return "; waits for a CPU grew with it" if told.facts.brought else ""


@_slot
def _say_for_so_long(told: _Telling) -> str:
    """Say how long another thread ran, where most of the time is not that."""
    facts = told.facts
    if facts.work_after is None or not (facts.brought or told["besides"]):
        return ""
    before, after = format_brief_pair(facts.work_before or 0.0, facts.work_after)
    return f" for {after} instead of {before}" if facts.work_before else f" for {after}"


@_slot
def _say_timer(told: _Telling) -> str:
    """Say what a timer of the kernel was for."""
    return _name_timer(told.main.detail if told.main else "")


def _name_timer(function: str) -> str:
    return (
        doing(State.WAIT_TIMER, Detail(function=function))
        .removeprefix("waiting for ")
        .split(" (")[0]
    )


@_slot
def _say_rival(told: _Telling) -> str:
    """Name who else had what was waited for; of a CPU, with the share of what waits grew."""
    # Of another thread that waited, it is what it is to that one.
    several = told.several if not told.facts.role else told["were"] == "were"
    their = "their" if several else "its"
    rivals = told.facts.rivals
    if not rivals:
        return rival_name(told.facts.peer, told.facts.kin, their, told.facts.place)
    first = rivals[0]
    name = rival_name(first.name, first.kin, their, first.place)
    if first.share >= WORDS.all:
        return name
    if told.facts.peer:
        return f"{name} ({_percent(first)})"
    return f"several others ({_list_rivals(rivals)})"


def _list_rivals(rivals: Sequence[RivalShare]) -> str:
    return ", ".join(
        f"{quoted(show_family(one.name))}{in_place(one.place)} {_percent(one)}"
        for one in rivals[:_MOST_RIVALS]
    )


def _percent(one: RivalShare) -> str:
    return f"{100 * one.share:.0f} %"


@_slot
def _say_own_threads(told: _Telling) -> str:
    """Name the program's thread that had the CPU, or say that it is one."""
    facts, own = told.facts, f"{told['their']} own program's threads"
    if facts.rivals and not facts.peer:
        return f"{own} ({_list_rivals(facts.rivals)})"
    return told["rival"] if facts.kin else own


@_slot
def _say_or_quota(told: _Telling) -> str:
    """Say that a quota may have held it back instead."""
    return ", or held back by a CPU quota" if told.facts.certainty == "inferred" else ""


@_slot
def _say_one_cpu(told: _Telling) -> str:
    """Say which CPU it was, where it was one."""
    facts = told.facts
    if facts.cpu is None:
        return "a CPU"
    return f"CPU {facts.cpu}{f' of {facts.host}' if facts.host else ''}"


@_slot
def _say_cpu_that_was(told: _Telling) -> str:
    """Say that with what it did."""
    return told["one_cpu"] + (" that was" if told.facts.cpu is None else ", which was")


@_slot
def _say_cpu_then(told: _Telling) -> str:
    """Say the same within a sentence about who was waited for."""
    return told["one_cpu"] + (" that was" if told.facts.cpu is None else ",")


@_slot
def _say_elsewhere(told: _Telling) -> str:
    """Say that another CPU was idle meanwhile."""
    facts = told.facts
    if told.kind.evidence != "rival" or facts.certainty != "observed":
        return ""
    return say_elsewhere(facts.elsewhere_idle)


@_slot
def _say_namesakes(told: _Telling) -> str:
    """Say that threads of the same name had the CPU, while another was idle."""
    if not told["elsewhere"] or told.facts.peer != told.facts.comm:
        return ""
    return f" that other threads called {told['name']} had"


@_slot
def _say_then_cpu(told: _Telling) -> str:
    """Say how long they waited for a CPU after what they wait for more often, if it is longer."""
    facts, cause = told.facts, told.cause
    if not told.often:
        return ""
    mine = [told.document.findings[index] for index in cause.findings]
    waited = sum(
        f.contribution or 0.0 for f in mine if not f.role and evidence_of(State[f.state]) == "rival"
    )
    waited /= max(len(cause.positions), 1)
    itself = (facts.time_after or 0.0) - (facts.time_before or 0.0)
    # Both together are no more than what stands beside the sentence.
    waited = min(waited, (cause.contribution or 0.0) - itself)
    return f", and then {format_ns(waited)} more for a CPU" if waited > itself else ""


# Of another thread.


@_slot
def _say_name(told: _Telling) -> str:
    """Name the thread that is waited for."""
    return _name_kin(told) or quoted(peer_name(told.facts)) + _say_where(told)


def _say_where(told: _Telling) -> str:
    """Say where a thread that is waited for is, if that is not where the execution is."""
    facts = told.facts
    third = evidence_of(State[facts.state]) == "rival"  # it is about who had the cpu
    return "" if third or not facts.role else in_place(facts.place)


def _name_kin(told: _Telling) -> str:
    """Name a thread that is a child, or else would be taken for who waits; "" for others."""
    facts, name = told.facts, peer_name(told.facts)
    if evidence_of(State[facts.state]) == "rival" or not facts.role:  # it is about a third one
        return ""
    if facts.kin == Kin.THREAD:
        mine = {*told.document.column("sample", "comm").tolist()}
        same = name_family(facts.comm) in map(name_family, mine)
        return f"another thread of {told['their']} own called {quoted(name)}" if same else ""
    several = "*" in name and facts.kin != Kin.CHILD
    return "" if several else name_kin(name, facts.kin, told["their"])


@_slot
def _say_whom(told: _Telling) -> str:
    """Name the thread, or say that it is several."""
    return told["threads"] if "*" in peer_name(told.facts) else told["name"]


@_slot
def _say_through(told: _Telling) -> str:
    """Name who waits for one another on the way to another thread."""
    facts = told.facts
    names = [quoted(show_family(name)) for name in facts.through]
    before, after = facts.through_before or 0.0, facts.through_after or 0.0
    least = max(WORDS.more_often * before, before + WORDS.half)
    if names and before >= WORDS.half and after >= least:
        # They wait for one another: what each waits for, the next one waits for, too.
        names[-1] = f"{after:.2g} threads {names[-1]} one after the other, not {before:.2g}"
    return f", through {listed(names)}," if names else ""


@_slot
def _say_threads(told: _Telling) -> str:
    """Name the thread, or threads, as such."""
    name = peer_name(told.facts)
    if kin := _name_kin(told):
        return kin
    called = f"threads {quoted(name)}" if "*" in name else f"thread {thread_name(name)}"
    return called + _say_where(told)


@_slot
def _say_were(told: _Telling) -> str:
    return "were" if "*" in peer_name(told.facts) else "was"


@_slot
def _say_did(told: _Telling) -> str:
    """Say what the thread did, and how often."""
    said = SAID[told.kind.id].which_was.format_map(told)
    did = said or PHRASES[State[told.facts.state]].which_was
    return f"{did} {told.often}" if told.facts.counted == "waits" and told.often else did


@_slot
def _say_besides(told: _Telling) -> str:
    """Say what most of the time is, where that is another state than what the cause is about."""
    if told.facts.brought:
        return told["brought"]
    spent: defaultdict[str, float] = defaultdict(float)
    for index in told.cause.findings:
        finding = told.document.findings[index]
        spent[finding.state] += finding.contribution or 0.0
    state = max(spent, key=spent.__getitem__, default=told.facts.state)
    if state == told.facts.state or 2 * spent[state] <= sum(spent.values()):
        return ""
    return f" and, for most of the time, {PHRASES[State[state]].which_was}"


@_slot
def _say_mostly_from(told: _Telling) -> str:
    """Name who sent most of what was served meanwhile."""
    known = told.facts.request
    return (
        ""
        if known or told.facts.peer in {"", told.facts.comm}
        else f", mostly from {told['rival']}"
    )


@_slot
def _say_behind(told: _Telling) -> str:
    """Say for what they wait: a loop, or a thread that worked for others first."""
    if told.facts.loop:
        return f"for the loop of {quoted(told.facts.loop)}"
    return "behind other requests" + (f" of {told['name']}" if told.facts.role else "")


@_slot
def _say_on_a_loop(told: _Telling) -> str:
    """Say which loop they share."""
    of = quoted(told.facts.loop) if told.facts.loop else told["name"] if told.facts.role else ""
    shared = "shared with other requests"
    return f"on the loop of {of}, {shared}" if of else f"on a loop {shared}"


@_slot
def _say_held(told: _Telling) -> str:
    """Say what held a loop: ``, which worked for `GET /login` (1 of 8 requests under way)``."""
    facts = told.facts
    if not facts.loop:
        return f", mostly {quoted(facts.request)}" if facts.request else ""
    whom = quoted(facts.request) if facts.request else ""
    asleep = facts.meanwhile in State.__members__ and State[facts.meanwhile] in _ASLEEP
    if facts.asks:
        done = f"was blocked in a call to {quoted(facts.asks)}" + (f" for {whom}" if whom else "")
    elif asleep:
        done = "was blocked" + (f" for {whom}" if whom else "")
    elif whom or told.kind.id == "queue":
        done = f"worked for {whom or 'other requests'}"
    else:
        return f" ({facts.under_way:.0f} under way)" if (facts.under_way or 0.0) >= 2 else ""
    one = "1 of " if whom else ""
    many = (
        f" ({one}{facts.under_way:.0f} requests under way)" if (facts.under_way or 0) >= 2 else ""
    )
    joined = "; it" if told.kind.id == "shared-loop" else ", which"
    return f"{joined} {done}{many}"


@_slot
def _say_meanwhile(told: _Telling) -> str:
    """Say what the thread did for most of what is longer behind others' requests."""
    facts = told.facts
    if facts.meanwhile not in State.__members__ or facts.meanwhile_after is None:
        return ""
    before, after = format_brief_pair(facts.meanwhile_before or 0.0, facts.meanwhile_after)
    instead = f" instead of {before}" if facts.meanwhile_before else ""
    return f", the thread {PHRASES[State[facts.meanwhile]].which_was} for {after}{instead}"


@_slot
def _say_meanwhile_or_besides(told: _Telling) -> str:
    return told["meanwhile"] or told["besides"]


@_slot
def _say_mostly(told: _Telling) -> str:
    """Say what trips were mostly, if not running."""
    most = _did_mostly(told)
    if most in {"", PHRASES[State.RUN].which_was}:
        return ""
    return f", {'' if ' and ' in most else 'mostly '}{most}"


@_slot
def _say_which_mostly(told: _Telling) -> str:
    most = _did_mostly(told)
    return f", which {told['were']} {most}" if most else ""


def _did_mostly(told: _Telling) -> str:
    """Say what another thread did for most of what trips to it are longer, "" if it is mixed."""
    found: defaultdict[State, list[tuple[float, FindingEntry]]] = defaultdict(list)
    for index in told.cause.findings:
        finding = told.document.findings[index]
        state = State[finding.state]
        found[State.RUN if state in RUNNING else state].append(
            (finding.contribution or 0.0, finding)
        )
    times = {state: sum(time for time, _ in of) for state, of in found.items()}
    # What waits for a CPU delayed is what it did: these are not what the trips are for.
    work = {state: time for state, time in times.items() if evidence_of(state) == "growth"}
    most = max(work, key=work.__getitem__, default=None)
    if most is None or 2 * work[most] <= sum(work.values()) or work[most] <= 0:
        return ""
    if 2 * work[most] <= sum(times.values()):
        about = most.name == told.facts.state and most != State.RUN
        delayed = about and times.get(State.WAIT_CPU, 0.0) > 0
        return f"{PHRASES[most].which_was} and waiting for a CPU" if delayed else ""
    timer = max(found[most], key=lambda each: each[0])[1].detail
    if most == State.WAIT_TIMER and timer in KERNEL_TIMERS:
        return f"waiting for {_name_timer(timer)}"
    return PHRASES[most].which_was


def _is_longer_each(facts: CauseFacts) -> bool:
    """Tell whether trips became longer by more than they became more, which is not twice as many.

    Twice as many may be another one, which takes longer.
    """
    before, after = facts.time_before or 0.0, facts.time_after or 0.0
    counts = facts.count_before or 0.0, facts.count_after or 0.0
    if min(before, *counts) <= 0 or counts[1] >= 2 * counts[0]:
        return False
    return after / before > (counts[1] / counts[0]) ** 2


# What a difference is due to.

_DUE_TO: Final = {
    "length": "longer work",
    "visits": "more visits",
    "crowding": "its own threads on the CPUs",
    "machine": "others on the CPUs",
    "nobody": "CPUs that nobody had",
}


def describe_origins(cause: CauseEntry) -> str:
    """Return what a cause is due to, in parts of what is said that it comes to."""
    moved = cause.contribution or 0.0
    scale = find_effect(cause) / moved if moved else 1.0
    return describe_because(cause.facts.because if cause.facts else None, scale)


def describe_because(because: Because | None, scale: float = 1.0) -> str:
    """Return what a difference is due to, the largest part first; "" where it is not known."""
    if because is None:
        return ""
    parts = {said: scale * getattr(because, name) for name, said in _DUE_TO.items()}
    whole = sum(map(abs, parts.values()))
    ranked = sorted(parts.items(), key=lambda part: -abs(part[1]))
    told = [(said, ns) for said, ns in ranked if abs(ns) >= WORDS.crumb * whole and ns]
    return ", ".join(f"{said} {format_ns(float(ns), sign=ns < 0)}" for said, ns in told)


def due_to(because: Because | None) -> str:
    """Return what most of a difference is due to, "" where that is nothing alone."""
    if because is None:
        return ""
    parts = {name: getattr(because, name) for name in _DUE_TO}
    most = max(parts, key=lambda name: abs(parts[name]))
    return _DUE_TO[most] if abs(parts[most]) > WORDS.half * sum(map(abs, parts.values())) else ""


def describe_facts(cause: CauseEntry) -> list[str]:
    """Return what a cause's sentence leaves out, a line each."""
    facts = cause.facts
    if facts is None:
        return []
    said = []
    if facts.comm and facts.tids:
        ids = ", ".join(map(str, facts.tids[:_MOST_IDS]))
        more = f" and {len(facts.tids) - _MOST_IDS} more" if len(facts.tids) > _MOST_IDS else ""
        said.append(f"thread {quoted(show_family(facts.comm))}, id {ids}{more}")
    said.append(f"state {facts.state}" + (f", {quoted(facts.device)}" if facts.device else ""))
    if facts.call:
        said.append(f"in system call {quoted(facts.call)}")
    if facts.count_before is not None and facts.count_after is not None:
        said.append(f"{facts.counted}: {facts.count_before:.3g} → {facts.count_after:.3g}")
    said.append(facts.certainty)
    said.append(describe_probability(cause))
    due = describe_origins(cause)
    return ["; ".join(filter(None, said)), *([f"because of {due}"] if due else [])]


def describe_probability(cause: CauseEntry) -> str:
    """Say how likely a cause is the one; no evidence makes it more than 99 %."""
    if cause.probability is None:
        return ""
    return f"{min(max(round(100 * cause.probability), 1), 99)} % certain"


def describe_other_causes(document: ComparisonDocument, causes: Collection[CauseEntry]) -> str:
    """Return what a list leaves out: how many differences, in how many requests, how much."""
    if not causes:
        return ""
    positions = {position for cause in causes for position in cause.positions}
    whole = sum(find_effect(cause) * len(cause.positions) for cause in causes)
    of = f"{len(positions):,} {noun_of(document, len(positions))}"
    several = "s" if len(causes) > 1 else ""
    return (
        f"and {len(causes):,} more difference{several} in {of}, "
        f"{format_ns(whole, sign=True)} in all"
    )
