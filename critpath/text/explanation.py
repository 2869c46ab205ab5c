"""A cause in a sentence that people share, made of the facts that the document has of it.

Sentence = subject + verb + time after [instead of the time before] + what [; no request did so
before].  Names of a trace stand between backticks; they are not yet safe to show.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from critpath.model import State
from critpath.model.details import IDLE, SOFTIRQS
from critpath.model.stacks import is_helper
from critpath.model.vectors import name_family
from critpath.schema.parameters.text import WORDS
from critpath.text.page import noun_of
from critpath.text.phrases import (
    PACKETS,
    doing,
    in_function,
    location,
    quoted,
    say_elsewhere,
    thread_name,
)
from critpath.text.recognized import has_warning
from critpath.units import format_brief_pair, format_ns, format_sum

if TYPE_CHECKING:
    from critpath.documents import CauseEntry, CauseFacts, ComparisonDocument, FindingEntry

_MOST_IDS: Final = 4  # technical
_RUNNING: Final = frozenset({"RUN", "RUN_USER", "RUN_SYSCALL"})
_DISK_NAME: Final = re.compile(r"[a-z]+\d*(?:[a-z]+\d+)*")
_NET_DEVICE: Final = re.compile(r"[a-z][\w.-]*")
_HELD_BACK: Final = frozenset({"WAIT_CPU", "WAIT_QUOTA"})  # whose sentences say how sure they are

# What another thread was doing meanwhile: "which was ...".
_PEER: Final[dict[str, str]] = {
    **dict.fromkeys(_RUNNING, "running"),
    "IRQ": "interrupted by a device",
    "SOFTIRQ": "interrupted by deferred work",
    "WAIT_CPU": "waiting for a CPU",
    "WAIT_QUOTA": "throttled by a CPU quota",
    "RECLAIM": "freeing memory",
    "QUEUED": "working for other requests",
    "SHARED": "working for several requests by turns",
    "WAIT_DISK": "waiting for the disk",
    "WAIT_NET": "waiting for a packet",
    "NET_TRANSIT": "waiting for a packet in flight",
    "WAIT_TIMER": "sleeping",
    "WAIT_TASK": "waiting for another thread",
    "WAIT_DEVICE": "waiting for a device",
    "WAIT_SOFTIRQ": "waiting for deferred work",
    "WAIT_IPI": "waiting for another CPU",
    "WAIT_FUTEX": "waiting for a lock",
    "WAIT_POLL": "waiting for input",
    "WAIT_PIPE": "waiting for a pipe",
    "WAIT_STOPPED": "stopped",
    "WAIT_UNEXPLAINED": "blocked: the recording does not tell by what",
    "UNKNOWN": "not observed",
    "NOT_RECORDED": "not recorded",
}
# What a request waits for itself: "wait ... for ...".
_OWN: Final[dict[str, str]] = {
    "WAIT_NET": "the network",
    "NET_TRANSIT": "a packet in flight",
    "WAIT_TASK": "another thread",
    "WAIT_DEVICE": "a device",
    "WAIT_SOFTIRQ": "deferred work of the kernel",
    "WAIT_IPI": "another CPU",
    "WAIT_FUTEX": "a lock",
    "WAIT_POLL": "input",
    "WAIT_PIPE": "a pipe",
}


@dataclass(frozen=True)
class _Words:
    """The words of one cause's sentence."""

    subject: str
    several: bool
    noun: str
    after: str
    instead: str
    tail: str

    def verb(self, verb: str) -> str:
        """Return a verb as the subject wants it."""
        if self.several:
            return verb
        return {"are": "is"}.get(verb) or f"{verb}s"

    @property
    def time(self) -> str:
        """Both times: ``3.9 ms instead of 1.0 ms``."""
        return f"{self.after}{self.instead}"

    @property
    def their(self) -> str:
        """Whose code it is."""
        return "their" if self.several else "its"


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
    words = _words(document, cause, facts, examined)
    if facts.time_after is None or not words.after:
        amount = format_ns(abs(cause.contribution or 0.0))
        way = "longer" if (cause.contribution or 0.0) >= 0 else "less"
        what = doing(_state(facts), "").replace(" cpu", " CPU")
        return f"{words.subject} {words.verb('are')} {amount} {way} {what}"
    if not facts.time_after and facts.time_before:
        return f"{words.subject} no longer {_no_longer(facts, words)}"
    if facts.role:
        said = _waits_for_thread(document, cause, facts, words)
    elif facts.state in _RUNNING or facts.counted == "iterations":
        said = _runs(facts, words)
    else:
        said = _waits(document, cause, facts, words)
    if facts.certainty == "inferred" and facts.role and facts.state not in _HELD_BACK:
        said += "; that thread is inferred from time-outs that end with its work"
    if facts.route:
        said += f", as packets take another route: {facts.route}"
    return f"{words.subject} {said}{_in_the_code(facts, words)}"


def _in_the_code(facts: CauseFacts, words: _Words) -> str:
    """Say where in the code that is; "" without stacks."""
    said = []
    if facts.locations:
        first, *others = [(place.location, place.share) for place in facts.locations]
        where = location(first[0])
        if first[1] < WORDS.mostly and others:
            where = " and ".join(
                f"{location(name)} ({round(100 * share)} %)" for name, share in (first, others[0])
            )
        run = "in or up to " if facts.state in _RUNNING else ""
        who = quoted(peer_name(facts)) if facts.role else "they" if words.several else "it"
        were = "were" if words.several and not facts.role else "was"
        if is_helper(facts.comm):
            said.append(f"{who} worked for {where}")
        else:
            said.append(f"{who} ran {run}{where}" if run else f"{who} {were} in {where}")
    if facts.waits_at:
        who = "they wait" if words.several else "it waits"
        said.append(f"{who} in {location(facts.waits_at)}")
    if facts.waker_location:
        said.append(f"the wait was ended in {location(facts.waker_location)}")
    return "; in the code: " + ", ".join(said) if said else ""


def describe_share(share: float | None) -> str:
    """Return how much of the slowdown a cause explains, "" where it is no part of it."""
    if share is None or share <= 0:
        return ""
    if share > WORDS.more_than_all:
        return "more than the slowdown"
    if share >= WORDS.all:
        return "all of the slowdown"
    return f"{max(round(100 * share), 1)} % of the slowdown"


def describe_effect(cause: CauseEntry) -> str:
    """Return what a cause comes to: ``+9.38 ms each, 99 % of the slowdown``."""
    moved = cause.contribution or 0.0
    facts = cause.facts
    in_all = ""
    if facts and facts.time_after is not None and facts.time_before is not None:
        difference = facts.time_after - facts.time_before
        if abs(difference - moved) <= WORDS.agrees * abs(moved):
            moved = difference  # the same two figures as in the sentence
        elif (moved > 0) == (difference > 0) and abs(moved) > abs(difference):
            in_all = " with what it brings along"
        elif (moved > 0) == (difference > 0):
            in_all = " net"
    each = " each" if len(cause.positions) > 1 else ""
    share = describe_share(cause.share)
    return f"{format_ns(moved, sign=True)}{each}{in_all}" + (f", {share}" if share else "")


def explained(document: ComparisonDocument, causes: Collection[CauseEntry]) -> str:
    """Return what causes explain of all slow requests' time; "" where nothing was examined."""
    excess = [one.excess for one in document.aligned if one.excess is not None]
    whole = float(sum(excess))
    if not excess or whole <= 0:
        return ""
    sums = [(c.contribution or 0.0) * len(c.positions) for c in causes]
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


def _words(
    document: ComparisonDocument,
    cause: CauseEntry,
    facts: CauseFacts,
    examined: Collection[int] | None,
) -> _Words:
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
    return _Words(
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
    wanted = {*partly, *cause.positions} if partly else None
    labels: dict[int, str] = dict(document.rows("sample", "position", "label", of=wanted))
    mine = {labels.get(position, "") for position in cause.positions}
    among = partly or {*labels}
    label = mine.pop() if len(mine) == 1 else None
    of = sum(label is None or labels.get(p, "") == label for p in among)
    size = len(cause.positions)
    kind = f"{quoted(label)} " if label else ""
    what = f"{kind}{noun_of(document, of)}"
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
    return facts.comm.replace("#", "*") or facts.role.replace("#", "*")


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


def _threads(facts: CauseFacts) -> str:
    name = peer_name(facts)
    return f"threads {quoted(name)}" if "*" in name else f"thread {thread_name(name)}"


def _waits_for_thread(
    document: ComparisonDocument, cause: CauseEntry, facts: CauseFacts, words: _Words
) -> str:
    were = "were" if "*" in peer_name(facts) else "was"
    often = _more_often(facts, words.noun) if facts.counted in {"trips", "waits"} else ""
    wait = words.verb("wait")
    elsewhere = _elsewhere(facts)
    did = _peer_did(document, cause, facts, elsewhere)
    if often and facts.counted == "trips":
        most = _did_mostly(document, cause)
        if _is_longer_each(facts):
            doing_so = f", which {were} {most}" if most else ""
            return f"{wait} {words.time} for {_threads(facts)}{doing_so}{words.tail}"
        mostly = f", mostly {most}" if most and most != _PEER["RUN"] else ""
        return f"{wait} for {quoted(peer_name(facts))} {often}: {words.time}{mostly}{words.tail}"
    if facts.counted == "waits" and (often := _more_often(facts, words.noun, or_at_all=True)):
        did += f" {often}"
    after_it = _brought_along(document, cause, facts)
    if facts.state == "QUEUED":
        who = f"of {quoted(peer_name(facts))}{_mostly_from(facts)}"
        others = _meanwhile(facts) or after_it
        return f"{wait} {words.time} behind other requests {who}{others}{words.tail}"
    if facts.state == "SHARED":
        loop = f"the loop of {quoted(peer_name(facts))}, shared with other requests"
        others = _meanwhile(facts) or after_it
        return f"{words.verb('spend')} {words.time} on {loop}{others}{words.tail}"
    waited = f"{wait} {words.time} for {_threads(facts)}, which {were} {did}"
    return f"{waited}{after_it}{elsewhere}{words.tail}"


def _peer_did(
    document: ComparisonDocument, cause: CauseEntry, facts: CauseFacts, elsewhere: str
) -> str:
    """Say what the thread did that is waited for."""
    did = _PEER.get(facts.state, "waiting itself")
    if facts.state == "WAIT_TIMER":
        did = _timed_by(_main(document, cause))
    if facts.location and not facts.locations:  # a function of Python that was recorded
        did = f"running {in_function(facts.location, facts.caller)}"
    if facts.state == "WAIT_NET":
        did = f"waiting for {_network(facts)}"
    if facts.state == "WAIT_CPU" and facts.certainty == "inferred":
        did = "held back while a CPU was idle, probably by a CPU quota"
    if facts.state == "WAIT_CPU" and facts.peer and facts.peer != facts.comm:
        did = f"waiting for a CPU that was busy running {quoted(facts.peer.replace('#', '*'))}"
    if elsewhere and facts.state == "WAIT_CPU" and facts.peer == facts.comm:
        did = f"waiting for a CPU that other threads called {quoted(peer_name(facts))} had"
    return did


def _meanwhile(facts: CauseFacts) -> str:
    """Say what the thread did for most of what is longer behind others' requests."""
    if facts.meanwhile not in _PEER or facts.meanwhile_after is None:
        return ""
    before, after = format_brief_pair(facts.meanwhile_before or 0.0, facts.meanwhile_after)
    instead = f" instead of {before}" if facts.meanwhile_before else ""
    return f", the thread {_PEER[facts.meanwhile]} for {after}{instead}"


def _elsewhere(facts: CauseFacts) -> str:
    """Say that another CPU was idle meanwhile; "" where that is no part of it."""
    if facts.state != "WAIT_CPU" or facts.certainty != "observed":
        return ""
    return say_elsewhere(facts.elsewhere_idle, facts.cpu, facts.host).replace(" cpu", " CPU")


def _mostly_from(facts: CauseFacts) -> str:
    """Name who sent most of what was served meanwhile."""
    if facts.peer in {"", facts.comm}:
        return ""
    return f", mostly from {quoted(facts.peer.replace('#', '*'))}"


def _brought_along(document: ComparisonDocument, cause: CauseEntry, facts: CauseFacts) -> str:
    """Return what most of a cause's time is, where that is another state than what it is about."""
    spent: defaultdict[str, float] = defaultdict(float)
    for index in cause.findings:
        finding = document.findings[index]
        spent[finding.state] += finding.contribution or 0.0
    state = max(spent, key=spent.__getitem__, default=facts.state)
    if state == facts.state or state not in _PEER or 2 * spent[state] <= sum(spent.values()):
        return ""
    return f" and, for most of the time, {_PEER[state]}"


def _timed_by(finding: FindingEntry | None) -> str:
    """Say what a thread did that a timer woke: it slept, unless the timer is the kernel's own."""
    timer = doing(State.WAIT_TIMER, finding.detail if finding else "").split(" (")[0]
    return _PEER["WAIT_TIMER"] if timer.startswith("waiting for a timer") else timer


def _did_mostly(document: ComparisonDocument, cause: CauseEntry) -> str:
    """Say what another thread did for most of what trips to it are longer, "" if it is mixed."""
    found: defaultdict[str, list[tuple[float, FindingEntry]]] = defaultdict(list)
    for index in cause.findings:
        finding = document.findings[index]
        state = "RUN" if finding.state in _RUNNING else finding.state
        found[state].append((finding.contribution or 0.0, finding))
    times = {state: sum(time for time, _ in of) for state, of in found.items()}
    most = max(times, key=times.__getitem__, default="")
    if most not in {"RUN", "WAIT_TIMER"} or 2 * times[most] <= sum(times.values()):
        return ""
    if most == "WAIT_TIMER":
        return _timed_by(max(found[most], key=lambda each: each[0])[1])
    return _PEER[most]


def _is_longer_each(facts: CauseFacts) -> bool:
    """Tell whether trips became longer by more than they became more, which is not twice as many.

    Twice as many may be another one, which takes longer.
    """
    before, after = facts.time_before or 0.0, facts.time_after or 0.0
    counts = facts.count_before or 0.0, facts.count_after or 0.0
    if min(before, *counts) <= 0 or counts[1] >= 2 * counts[0]:
        return False
    return after / before > (counts[1] / counts[0]) ** 2


def _cpu_after_it(document: ComparisonDocument, cause: CauseEntry, facts: CauseFacts) -> str:
    """Say how long they waited for a CPU after what they wait for more often, if it is longer."""
    if not _more_often(facts, "", or_at_all=True):
        return ""
    mine = [document.findings[index] for index in cause.findings]
    waited = sum(f.contribution or 0.0 for f in mine if f.state == "WAIT_CPU" and not f.role)
    waited /= max(len(cause.positions), 1)
    itself = (facts.time_after or 0.0) - (facts.time_before or 0.0)
    # Both together are no more than what stands beside the sentence.
    waited = min(waited, (cause.contribution or 0.0) - itself)
    return f", and then {format_ns(waited)} more for a CPU" if waited > itself else ""


def _runs(facts: CauseFacts, words: _Words) -> str:
    run, where = words.verb("run"), f"on the CPU in {words.their} own code"
    if facts.location and not facts.locations:
        where = f"on the CPU {in_function(facts.location, facts.caller)}"
    if facts.state == "RUN_SYSCALL":
        where = f"in system call {quoted(facts.call)}" if facts.call else "in system calls"
    if facts.counted == "iterations" and (often := _more_often(facts, words.noun)):
        return f"{run} the same steps {often}: {words.time}"
    return f"{run} {words.time} {where}{words.tail}"


def _waits(
    document: ComparisonDocument, cause: CauseEntry, facts: CauseFacts, words: _Words
) -> str:
    """Say what a request did itself but running."""
    state, wait = facts.state, words.verb("wait")
    main = _main(document, cause)
    detail = main.detail if main is not None and main.state == state else ""
    if state == "WAIT_CPU":
        return _waits_for_cpu(document, facts, words, detail)
    if state in {"IRQ", "SOFTIRQ"}:
        softirq = "softirq " if state == "SOFTIRQ" else ""
        by = f"{softirq}{quoted(facts.device)}" if facts.device else "the machine"
        return f"{words.verb('are')} interrupted for {words.time} by {by}{words.tail}"
    plain = {
        "WAIT_QUOTA": f"{words.verb('are')} throttled for {words.time} by {_quota(facts, words)}"
        f"{words.tail}",
        "RECLAIM": f"{words.verb('free')} memory for {words.time}, as too little was left"
        f"{_memory(facts)}{words.tail}",
        "QUEUED": f"{wait} {words.time} behind other requests{_mostly_from(facts)}"
        f"{_meanwhile(facts)}{words.tail}",
        "SHARED": f"{words.verb('spend')} {words.time} on a loop shared with other requests"
        f"{_meanwhile(facts)}{words.tail}",
        "WAIT_STOPPED": f"{words.verb('are')} stopped for {words.time}{words.tail}",
        "WAIT_UNEXPLAINED": f"{wait} {words.time}; the recording does not tell for what",
        "UNKNOWN": f"{words.verb('take')} {words.time} that the recording tells nothing of",
        "NOT_RECORDED": f"{words.verb('take')} {words.time} that were not recorded",
    }
    return plain.get(state) or (
        _waits_for_what(facts, words, detail) + _cpu_after_it(document, cause, facts)
    )


def _quota(facts: CauseFacts, words: _Words) -> str:
    """Return whose quota held: ``the CPU quota of control group `/web` (4 ms in each 10 ms)``."""
    if not facts.control_group:
        return f"{words.their} CPU quota"
    return f"the CPU quota of {_group(facts)}"


def _memory(facts: CauseFacts) -> str:
    """Return under whose limit memory was short, after a blank."""
    return f" under the memory limit of {_group(facts)}" if facts.control_group else ""


def _group(facts: CauseFacts) -> str:
    limit = f" ({facts.limit})" if facts.limit else ""
    return f"control group {quoted(facts.control_group)}{limit}"


def _waits_for_what(facts: CauseFacts, words: _Words, detail: str) -> str:
    state, wait = facts.state, words.verb("wait")
    call = f" in {quoted(facts.call)}" if facts.call else ""
    often = _more_often(facts, words.noun, or_at_all=True)
    said = doing(_state(facts), detail).removeprefix("waiting for ").split(" (")[0]
    if state == "WAIT_TIMER" and said != "a timer":
        return f"{wait} {words.time} for {said}{words.tail}"
    if state == "WAIT_TIMER":
        return _timed(words.verb("sleep"), "", often, call, words)
    if state == "WAIT_DISK":
        named = bool(facts.device and _DISK_NAME.fullmatch(facts.device))
        disk = f"the disk {quoted(facts.device)}" if named else "the disk"
        part = f" in {100 * facts.peer_share:.0f} % of that time" if facts.peer_share else ""
        peer = quoted(facts.peer.replace("#", "*"))
        busy = f", which {peer} kept busy{part}" if facts.peer else ""
        if facts.control_group:
            busy = f", under the limit of {_group(facts)}"
        return _timed(wait, f" for {disk}{busy}", often, call, words)
    what = _network(facts) if state == "WAIT_NET" else _OWN.get(state, said)
    return _timed(wait, f" for {what}", often, call, words)


def _network(facts: CauseFacts) -> str:
    """Return what is waited for that a packet ends: what may be this host is no network."""
    if facts.local is None and facts.certainty != "unknown":  # of an older file
        return _OWN["WAIT_NET"]
    if facts.local in PACKETS:
        return PACKETS[facts.local]
    named = _NET_DEVICE.fullmatch(facts.device) and facts.device not in SOFTIRQS
    return f"the network device {quoted(facts.device)}" if named else _OWN["WAIT_NET"]


def _timed(verb: str, what: str, often: str, call: str, words: _Words) -> str:
    if often:
        tail = "" if "never" in often else words.tail
        return f"{verb}{what}{call} {often}: {words.time}{tail}"
    return f"{verb} {words.time}{what}{call}{words.tail}"


def _waits_for_cpu(
    document: ComparisonDocument, facts: CauseFacts, words: _Words, detail: str
) -> str:
    wait = f"{words.verb('wait')} {words.time} for a CPU"
    if facts.certainty == "inferred" and not facts.peer:
        return (
            f"{words.verb('are')} held back for {words.time} while a CPU was idle, probably by a "
            f"CPU quota{words.tail}"
        )
    peer = facts.peer.replace("#", "*")
    if not peer:
        late = " that was idle: it was late to start them" if detail == IDLE else ""
        return f"{wait}{late}{words.tail}"
    own = {*map(name_family, {comm for (comm,) in document.rows("sample", "comm")})}
    if name_family(facts.peer) in own:
        busy = f"busy running {words.their} own program's threads"
        return f"{wait} that was {busy}{_elsewhere(facts)}{words.tail}"
    quota = ", or held back by a CPU quota" if facts.certainty == "inferred" else ""
    return f"{wait} that was busy running {quoted(peer)}{quota}{_elsewhere(facts)}{words.tail}"


def _no_longer(facts: CauseFacts, words: _Words) -> str:
    """Say what is not there any more."""
    if facts.role and facts.state == "QUEUED":
        what = f"wait behind other requests of {quoted(peer_name(facts))}"
    elif facts.role:
        what = f"wait for {_threads(facts)}"
    elif facts.state in _RUNNING:
        what = "run one of the steps"
    elif facts.state == "WAIT_TIMER":
        what = "sleep"
    elif facts.state in {"IRQ", "SOFTIRQ"}:
        what = "get interrupted"
    elif facts.state == "QUEUED":
        what = "wait behind other requests"
    elif facts.state == "SHARED":
        what = "share a loop with other requests"
    else:
        what = "wait for " + {"WAIT_CPU": "a CPU", "WAIT_DISK": "the disk", **_OWN}.get(
            facts.state, "something unseen"
        )
    what = what if words.several else re.sub(r"^(\w+)", r"\1s", what)
    before = format_brief_pair(facts.time_before or 0.0, 0.0)[0]
    return f"{what}: before, that took {before}"


def _main(document: ComparisonDocument, cause: CauseEntry) -> FindingEntry | None:
    return document.findings[cause.main] if 0 <= cause.main < len(document.findings) else None


def _state(facts: CauseFacts) -> State:
    return State[facts.state]


def describe_facts(cause: CauseEntry) -> list[str]:
    """Return what a cause's sentence leaves out, a line each."""
    facts = cause.facts
    if facts is None:
        return []
    said = []
    if facts.comm and facts.tids:
        ids = ", ".join(map(str, facts.tids[:_MOST_IDS]))
        more = f" and {len(facts.tids) - _MOST_IDS} more" if len(facts.tids) > _MOST_IDS else ""
        said.append(f"thread {quoted(facts.comm.replace('#', '*'))}, id {ids}{more}")
    said.append(f"state {facts.state}" + (f", {quoted(facts.device)}" if facts.device else ""))
    if facts.call:
        said.append(f"in system call {quoted(facts.call)}")
    if facts.count_before is not None and facts.count_after is not None:
        said.append(f"{facts.counted}: {facts.count_before:.3g} → {facts.count_after:.3g}")
    said.append(facts.certainty)
    return ["; ".join(said)]


def describe_other_causes(document: ComparisonDocument, causes: Collection[CauseEntry]) -> str:
    """Return what a list leaves out: how many differences, in how many requests, how much."""
    if not causes:
        return ""
    positions = {position for cause in causes for position in cause.positions}
    whole = sum((cause.contribution or 0.0) * len(cause.positions) for cause in causes)
    of = f"{len(positions):,} {noun_of(document, len(positions))}"
    several = "s" if len(causes) > 1 else ""
    time = format_ns(whole, sign=True).replace("-", "\u2212")
    return f"and {len(causes):,} more difference{several} in {of}, {time} in all"
