"""Warnings, notes and reasons in words: the sentences of the records of `critpath.schema.notes`.

A function is one sentence, named after its record, of which it has the facts; what executions and
their types are called is told when it is worded.  What recorders and readers of traces say is a
sentence already.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, field

from critpath.model.recording import MOST_NAMED
from critpath.schema import notes as n
from critpath.schema.notes import Passed
from critpath.schema.parameters.text import ANSWERS
from critpath.schema.ways import RECORD_NEXT
from critpath.text.phrases import listed, quoted
from critpath.units import format_ns, format_pair, format_share, plural, safe_text

_EXECUTION: Final = re.compile(r"(?<![\w/.`=-])(an )?execution(s?)(?![\w/.`=-])")


class Words(Struct, frozen=True):
    """What executions are called, and those of their types that have a label."""

    one: str = "run"
    many: str = "runs"
    types: Mapping[int, str] = field(default_factory=dict)

    @property
    def an_execution(self) -> str:
        """One of them, with its article."""
        return f"{'an' if self.one[0] in 'aeiou' else 'a'} {self.one}"

    def count(self, number: int) -> str:
        """Return how many there are."""
        return f"{number:,} {self.one if number == 1 else self.many}"

    def call(self, text: str) -> str:
        """Call executions what they are in a sentence that is made already."""

        def named(found: re.Match[str]) -> str:
            if found[1]:
                return self.an_execution
            return self.many if found[2] else self.one

        return _EXECUTION.sub(named, text)

    def type(self, kind: int) -> str:
        """Return what a type is called; of several types of one label each keeps its number."""
        label = self.types.get(kind, "")
        if not label:
            return f"n{kind}"
        shared = Counter(self.types.values())[label] > 1
        return f"{quoted(label)} (n{kind})" if shared else quoted(label)


AS_IT_IS: Final = Words()
# For what is saved: whoever reads it knows what executions are, and `Words.call` calls them that.
KEPT: Final = Words("execution", "executions")


def word(note: n.Note | str, words: Words = AS_IT_IS) -> str:
    """Return the sentence of a note; notes of recordings are sentences already."""
    if isinstance(note, str):
        return words.call(note)
    return _SENTENCES[type(note)](note, words)


def word_all(notes: Iterable[n.Note | str], words: Words = AS_IT_IS) -> list[str]:
    """Return the sentences of notes."""
    return [word(note, words) for note in notes]


# The sets and how they were recorded.

_SHOWN_TYPES: Final = 4  # technical
_SHARES: Final = {"pressure": "cpu pressure", "others": "cpu time of others"}


_SIDES: Final = {"normal": "before", "sample": "after"}


def side(name: str) -> str:
    """Return what a set is called in a sentence."""
    return _SIDES.get(name, name)


def _saved(note: n.Saved, words: Words) -> str:
    return words.call(note.text)


def _of_set(note: n.OfSet, words: Words) -> str:
    return f"{side(note.name)}: {word(note.said, words)}"


def _different_environments(note: n.DifferentEnvironments, _: Words) -> str:
    values = f"{', '.join(note.normal) or 'unknown'} and {', '.join(note.sample) or 'unknown'}"
    return f"before and after come from different {n.ENVIRONMENT[note.key]}: {values}"


def _different_programs(note: n.DifferentPrograms, _: Words) -> str:
    before, after = (", ".join(names) for names in (note.normal, note.sample))
    return f"before and after are of different programs: {before} and {after}"


def _unknown_arguments(note: n.UnknownArguments, _: Words) -> str:
    return (
        f"processes of {', '.join(map(quoted, note.programs))} are compared whatever they were "
        "given to run: that is not known of all of them"
    )


def _different_recordings(note: n.DifferentRecordings, _: Words) -> str:
    return f"the recordings come from different {n.ENVIRONMENT[note.key]}: {', '.join(note.values)}"


def _empty_recording(note: n.EmptyRecording, words: Words) -> str:
    return f"{note.source} has no {words.one}"


# By what requests are found, where a tracer has no events of sockets.
WAYS: Final = {
    "lengths+packets": "what sockets sent and received, and packets for when it arrived",
    "lengths": "what sockets sent and received alone: each begins when who read it was woken, or "
    "read it",
    "calls+packets": "system calls and packets",
    "calls": "system calls alone: each begins when who read it was woken, or read it",
}


_OTHERS: Final = {
    "incomplete": "incomplete",
    "unsolicited": "answers to nothing",
    "skipped": "skipped",
    "busy_periods": "of several at once",
    "streams": "answered in pieces over time, which last as long as their stream",
    "unattributed": "sub-requests of no request",
    "untold": "sub-requests of one of several requests, it is not known of which",
    "unknown": "uses of sockets that are not known",
    "datagrams": "over UDP, of which another may have been answered",
    "unsure": "left out, below min_confidence",
}


def _requests_found(note: n.RequestsFound, _: Words) -> str:
    return f"{_count_requests(note)}{_say_sureness(note)}"


def _requests_found_in_part(note: n.RequestsFoundInPart, _: Words) -> str:
    left = "".join(f"; {count:,} {_OTHERS[name]}" for name, count in note.others)
    way = f"; found by {WAYS[note.way]}" if note.way in WAYS else ""
    if note.rings:
        way += f"; what {plural(note.rings, 'call')} of io_uring_enter did is not seen"
    return f"{_count_requests(note)}{left}{_say_sureness(note)}{way}"


def _count_requests(note: n.RequestsFound | n.RequestsFoundInPart) -> str:
    return f"requests: {note.total:,} of {plural(note.services, 'service')}"


def _say_sureness(note: n.RequestsFound | n.RequestsFoundInPart) -> str:
    return "".join(
        f"; {what} is " + ", ".join(f"{word} for {format_share(part)}" for word, part in of)
        for what, of in (("when they began", note.begin), ("what they asked", note.attribution))
        if of
    )


def _requests_left_out(note: n.RequestsLeftOut, _: Words) -> str:
    every = sorted(((name, dict(of)) for name, of in note.services), key=lambda one: -_missing(one))
    shown = [_say_left_out(name, of) for name, of in every[:_SHOWN_TYPES]]
    beyond = sum(_missing(one) for one in every[_SHOWN_TYPES:])
    more = f", and {beyond:,} of {plural(len(every) - _SHOWN_TYPES, 'more service')}" * (beyond > 0)
    return (
        f"left out, as gaps cut them or hide what else was asked: {', '.join(shown)}{more}: "
        "long ones more often than short ones"
    )


def _missing(one: tuple[str, Mapping[str, int]]) -> int:
    return one[1]["requests"] + one[1]["unsure"]


def _say_left_out(name: str, of: Mapping[str, int]) -> str:
    """How many requests of a service are left out, how long they last, how many are seen whole."""
    said = []
    if of["requests"] > 1:
        said.append(
            f"{of['requests']:,} cut, half of them last {format_ns(of['middle_ns'])} or more, "
            f"one {format_ns(of['longest_ns'])}"
        )
    elif of["requests"]:
        said.append(f"1 cut, it lasts {format_ns(of['longest_ns'])} or more")
    if of["whole"]:
        seen = of["whole"] / max(of["estimated"], of["whole"])
        said.append(f"of those that begin between gaps {format_share(seen)} also end there")
    return f"{_missing((name, of)):,} of {safe_text(name)} ({'; '.join(said)})"


def _requests_without_client(note: n.RequestsWithoutClient, _: Words) -> str:
    of = plural(note.requests, "request")
    return f"{of} left out: who asked was not recorded, or its clock is not known"


def slices_left_out(
    cut: Mapping[str, tuple[int, int]], lost: int, *, gaps: bool = False
) -> tuple[str, ...]:
    """What became of slices of threads that are no executions: by kind, how many, how long."""
    by = (
        "gaps or the end of the recording, long ones more often"
        if gaps
        else "the end of the recording"
    )
    every = sorted(cut.items(), key=lambda one: (-one[1][0], one[0]))
    kinds = [
        f"{count:,} of {quoted(name)} ({'' if count == 1 else 'the longest '}"
        f"{format_ns(longest)} or more)"
        for name, (count, longest) in every[:_SHOWN_TYPES]
    ]
    more = [f"{sum(count for _, (count, _) in every[_SHOWN_TYPES:]):,} of others"]
    which = ", ".join(kinds + more * (len(every) > _SHOWN_TYPES))
    total = sum(count for count, _ in cut.values())
    rest = ((total, f"cut by {by}: {which}"), (lost, "left out, as events were lost meanwhile"))
    return tuple(f"{plural(count, 'slice')} {what}" for count, what in rest if count)


def _sockets_unnamed(_note: n.SocketsUnnamed, _: Words) -> str:
    return "the kernel hid which socket is which: requests are found by system calls alone"


def _requests_doubtful(note: n.RequestsDoubtful, _: Words) -> str:
    ports = ", ".join(f":{port}" for port, _ in sorted(note.shared, key=lambda of: -of[1])[:4])
    what = f"share a connection at once ({ports})" if note.shared else "share a connection at once"
    if note.doubtful > sum(count for _, count in note.shared):
        what += ", were read late, or came over UDP"
    share = format_share(note.doubtful / note.total)
    return f"{share} of the requests {side(note.name)} {what}: how long each took is in doubt"


def _requests_unsure(note: n.RequestsUnsure, _: Words) -> str:
    return (
        f"{format_share(note.unsure / note.total)} of the requests {side(note.name)} are less "
        "sure than min_confidence asks for: those that are left may be of another kind"
    )


def epoch_unknown(recording: str) -> str:
    """The time of day at which spans began is not known."""
    return f"{recording} does not say the time of day: its spans begin in 1970"


def _pool_held(note: n.PoolHeld, _: Words) -> str:
    return (
        f"{note.service} had at most {plural(note.size, 'connection')} to {note.target} open, all "
        f"held {format_share(note.held)} of the time: {plural(note.waits, 'request')} waited for "
        f"one, {format_ns(note.mean_ns)} on average"
    )


def _loop_blocked(note: n.LoopBlocked, _: Words) -> str:
    by = f"in calls to {note.target}" if note.target else "by sleeps of its own"
    return (
        f"the loop of {note.service} was blocked {format_share(note.share)} of the time {by}: "
        f"{plural(note.waits, 'message')} waited for it, {format_ns(note.mean_ns)} on average"
    )


def _messages_passed(note: n.MessagesPassed, _: Words) -> str:
    whose = [name or "nobody that is known" for name, _ in note.producers]
    return (
        f"{plural(note.messages, 'message')} of {' and '.join(whose)} went through the queue of "
        f"{note.broker} to {note.service.partition(' (')[0]}: each waited "
        f"{format_ns(note.waited_ns)} on average, 99 % at most {format_ns(note.longest_ns)}, "
        f"{note.before:.1f} were before it"
    )


def _paths_doubtful(note: n.PathsDoubtful, _: Words) -> str:
    return (
        f"what {format_share(note.doubtful / note.total)} of the requests asked of others is "
        "doubtful: their paths are those of the threads that answered them"
    )


def _same_executions(note: n.SameExecutions, words: Words) -> str:
    if note.common == note.total:
        return "the recording after is one of those before: nothing can differ"
    count = f"{note.common:,} of {words.count(note.total)} after"
    return f"{count} are among those before, too: the same recording is on both sides"


def _other_partner(note: n.OtherPartner, _: Words) -> str:
    listed = ", ".join(map(repr, note.partners))
    return f"{side(note.name)}: recorded in alternation with {listed}: compare it with that"


def _folded_symbols(note: n.FoldedSymbols, _: Words) -> str:
    return f"{plural(note.count, 'rare kind')} of thread counted together as '*'"


def _in_one_set(note: n.InOneSet, _: Words) -> str:
    of = f"only what is {side(note.name)}" if note.name else "neither set"
    return f"{of} was recorded with {note.what}: they are left out of account"


def _repaired_switches(note: n.RepairedSwitches, _: Words) -> str:
    return (
        f"the kernel did not write {note.inserted:,} of {note.total:,} switches "
        f"({format_share(note.inserted / note.total)}): they were put in, and times just after a "
        "wake are estimates"
    )


_UNRECORDED: Final[Mapping[n.Unrecorded, str]] = {
    "wakes": "wakes (what ended a wait is not known)",
    "states": "with switches the state of who left (who waited is not told from who had to leave)",
    "interrupts": "interrupts (what they woke seems to be woken by the thread that they stopped)",
    "exits": "exits (a thread ends with its last switch)",
}


def _events_in_one_set(note: n.EventsInOneSet, _: Words) -> str:
    return (
        f"{listed(note.missing)} were not recorded {side(note.name)}, but in the other set: what "
        "was waited for cannot be compared"
    )


def _not_recorded(note: n.NotRecorded, _: Words) -> str:
    missing = listed([_UNRECORDED[one] for one in note.missing])
    return f"not recorded: {missing}; next time: {RECORD_NEXT.get(note.tool, RECORD_NEXT[''])}"


def _recording_in_memory(note: n.RecordingInMemory, _: Words) -> str:
    return f"{note.recording} was in memory as a whole, whatever --max-memory: {note.why}"


def _store_tried_again(note: n.StoreTriedAgain, _: Words) -> str:
    return (
        f"{note.url}: the store gave {note.why}, and was asked again ({plural(note.times, 'time')})"
    )


def out_of_order(reason: object) -> str:
    """Why: the reader found events out of order."""
    return f"{reason}, and its events have to be sorted"


def _execution_in_memory(note: n.ExecutionInMemory, words: Words) -> str:
    return (
        f"{words.an_execution} of {note.segments:,} segments was in memory as a whole, whatever "
        f"--max-memory: some {note.size / 1e6:,.0f} MB"
    )


def _lossy_executions(note: n.LossyExecutions, words: Words) -> str:
    return f"{words.count(note.lossy)} of {note.total:,} overlap a loss of events"


def _not_in_baseline(note: n.NotInBaseline, words: Words) -> str:
    return (
        f"{note.recording}: {note.left_out:,} of {note.total:,} {words.many} are not in the "
        "baseline (--executions)"
    )


def _execution_chosen(note: n.ExecutionChosen, _: Words) -> str:
    return f"no --execution given: used {note.chosen}, {note.why}"


def _labelled_by_field(note: n.LabelledByField, words: Words) -> str:
    return (
        f"{words.many} are labelled by field '{note.field}' of {note.event} "
        "(label=FIELD names another, label=- none)"
    )


def _without_events(note: n.WithoutEvents, words: Words) -> str:
    return f"{words.count(note.executions)} of threads without a scheduling event: UNKNOWN"


def _incomplete_executions(note: n.IncompleteExecutions, words: Words) -> str:
    return f"{words.count(note.executions)} incomplete, left out"


# Recordings with gaps: which executions are whole, and which of them count.


def _executions_whole(note: n.ExecutionsWhole, words: Words) -> str:
    return (
        f"{note.whole:,} of {words.count(note.total)} recorded whole; "
        f"{plural(note.gaps, 'gap')}, {format_ns(note.gaps_ns)} in all: "
        "not recorded, and never crossed by a path"
    )


def _executions_chosen(note: n.ExecutionsChosen, words: Words) -> str:
    lost = f"; {note.cut:,} more {'was' if note.cut == 1 else 'were'} chosen and cut"
    beside = f"; {words.count(note.bystanders)} left out that lay whole in the time of others"
    return (
        f"{words.count(note.chosen)} chosen by chance{lost if note.cut else ''}"
        + f"{beside}, as these are short ones" * bool(note.bystanders)
    )


def _chances_evened(note: n.ChancesEvened, words: Words) -> str:
    return (
        f"{safe_text(note.kind)}: the chance to be recorded changed from {format_share(note.low)} "
        f"to {format_share(note.high)}; {note.kept:,} of {note.total:,} {words.many} were drawn "
        "again, so that each counts for as many"
    )


def _recorded_took(note: n.RecordedTook, _: Words) -> str:
    return recorded_took(note.more, note.low, note.high)


def recorded_took(more: float, low: float, high: float) -> str:
    """How much longer recorded executions took than others; from low to high with 95 %."""
    interval = f"({100 * low:+.1f} to {100 * high:+.1f} %)"
    if low <= 0 <= high:
        return f"recorded ones took as long as the others {interval}"
    what = "longer" if more > 0 else "less"
    return f"recorded ones took {100 * abs(more):.1f} % {what} than the others {interval}"


def _partial_comparison(note: n.PartialComparison, words: Words) -> str:
    shown = [f"{words.type(kind)} ({size:,})" for kind, size in note.unused[:_SHOWN_TYPES]]
    beyond = len(note.unused) - len(shown)
    named = ", ".join(words.type(kind) for kind in note.types[:_SHOWN_TYPES])
    named += ", ..." * (len(note.types) > _SHOWN_TYPES)
    return (
        f"compared with {note.used:,} of {words.count(note.total)} before "
        f"(type{'s' * (len(note.types) > 1)} {named}): no {words.one} after is of the "
        f"type{'s' * (len(note.unused) > 1)} {', '.join(shown)}"
        + (f" and {beyond:,} more" if beyond else "")
    )


def _some_examined(note: n.SomeExamined, words: Words) -> str:
    return (
        f"{note.examined} of {note.total} slow {words.many} were examined, "
        "evenly spread over the time that they lost"
    )


# Which requests of two sets are compared.


def _joined_kinds(note: n.JoinedKinds, _: Words) -> str:
    return (
        f"many requests of {', '.join(map(quoted, note.services))} ask other services than before: "
        "they are compared as one kind, whomever they ask"
    )


def _new_services(note: n.NewServices, _: Words) -> str:
    be = "is" if note.requests[0] == 1 else "are"
    named = ", ".join(map(quoted, note.services[:3]))
    beyond = len(note.services) - 3
    named += f" and {plural(beyond, 'more service')}" if beyond > 0 else ""
    return (
        f"{note.requests[0]:,} of {note.requests[1]:,} requests after {be} of {named}, "
        f"which had fewer than 5 before (mean {format_ns(note.mean)}): left out"
    )


def _rare_kinds(note: n.RareKinds, _: Words) -> str:
    ask = "asks" if note.requests == 1 else "ask"
    return (
        f"{plural(note.requests, 'request')} after {ask} services that fewer than 5 before asked: "
        "compared with the usual requests of their own service"
    )


def _new_clients(note: n.NewClients, _: Words) -> str:
    clients = note.clients
    one = len(clients) == 1 and note.what == "client" and bool(clients[0])
    who = f" (`{clients[0]}`)" if one else ""
    return (
        f"{note.requests[0]:,} of {note.requests[1]:,} requests after are of "
        f"{plural(len(clients), note.what)}{who} that did not ask before, of another kind "
        f"(mean {format_ns(note.mean)}): left out, only what they did to the others' requests "
        "counts"
    )


def _gone_clients(note: n.GoneClients, _: Words) -> str:
    return (
        f"{note.requests:,} of {note.total:,} requests before are of {note.what}s not there after: "
        "left out"
    )


# Types of executions, and their pairs.


def _single_type(note: n.SingleType, words: Words) -> str:
    return f"all {note.executions} {words.many} have the same counts: one type"


def _no_dense_group(_note: n.NoDenseGroup, words: Words) -> str:
    return f"no group of {words.many} is denser than the rest: one type"


def _noise_assigned(note: n.NoiseAssigned, words: Words) -> str:
    return (
        f"{words.count(note.noise)} of {note.total} in no dense group: "
        "each joined the type of its nearest neighbour"
    )


def _noise_paired(note: n.NoisePaired, words: Words) -> str:
    return (
        f"{words.count(note.noise)} of {note.total} after in no dense group: each paired on its own"
    )


def _divided_clusters(note: n.DividedClusters, words: Words) -> str:
    return (
        f"{plural(note.count, 'cluster')} after divided: "
        f"its {words.many} fit different types before"
    )


def _weak_pairs(note: n.WeakPairs, _: Words) -> str:
    return (
        f"{plural(note.clusters, 'cluster')} after with no clearly fitting type before: "
        "paired with the nearest"
    )


def _novel_executions(note: n.NovelExecutions, words: Words) -> str:
    return (
        f"{words.count(note.executions)} after unlike every type before: compared with the nearest"
    )


# Single executions that stand out.


def _low_support(note: n.LowSupport, words: Words) -> str:
    return (
        f"{words.count(note.executions)} after compared with a type of fewer than {note.least} "
        "before: their spread is that of all types (low support)"
    )


def _lone_references(note: n.LoneReferences, words: Words) -> str:
    return (
        f"{words.count(note.executions)} before alone in a type: left out of the reference scores"
    )


def _few_references(note: n.FewReferences, _: Words) -> str:
    return (
        f"{plural(note.scores, 'reference score')}: "
        f"no p-value can be below {1 / (1 + note.scores):.2g}"
    )


def _split_conformal(note: n.SplitConformal, words: Words) -> str:
    return (
        f"{note.references:,} {words.many} before and {note.executions:,} after: reference scores "
        "are computed once, without those after"
    )


def _beyond_references(note: n.BeyondReferences, words: Words) -> str:
    healthy = note.executions / (note.references + 1)
    return (
        f"{words.count(note.count)} of {note.executions} after beyond all {note.references} before "
        f"and yet not marked: of healthy ones {healthy:.2g} would be; "
        f"{note.needed:,} {words.many} before tell even a single one from chance"
    )


def _new_type(note: n.NewType, words: Words) -> str:
    return (
        f"{words.count(note.executions)} after of a type that was not there before, "
        f"{note.anomalous} of them slow beside the nearest type"
    )


# The tests of states and of the total.


def _few_permutations(note: n.FewPermutations, _: Words) -> str:
    return f"{note.permutations:,} permutations drawn: the sets are large"


def _sessions_permuted(_note: n.SessionsPermuted, _words: Words) -> str:
    return "whole sessions are permuted: no type is tested by itself"


def _few_sessions(note: n.FewSessions, words: Words) -> str:
    return (
        f"{note.normal} sessions before and {note.sample} after are too few to permute whole: "
        f"{words.many} are pooled, and the floor stands for differences between sessions"
    )


def _raised_floor(note: n.RaisedFloor, _: Words) -> str:
    return (
        f"effect floor raised from {format_share(note.floor)} to {format_share(note.raised)}: "
        "three standard deviations of the means of the sessions before"
    )


def _too_small_sets(note: n.TooSmallSets, words: Words) -> str:
    return (
        f"{words.count(note.normal)} before and {note.sample} after: "
        f"no difference, however large, could reach the level {note.alpha:g}"
    )


def _faster_sample(note: n.FasterSample, _: Words) -> str:
    return f"faster by {format_ns(note.ns)} in total; only slowdowns alarm"


def _other_mix(note: n.OtherMix, _: Words) -> str:
    return f"another mix of types after (p = {note.p_value:.2g}): a finding of its own, no slowdown"


def _orphans(note: n.Orphans, words: Words) -> str:
    return (
        f"{words.count(note.executions)} after of a type that has none before: "
        "compared with the mean of all, not part of the test"
    )


def _slower_type(note: n.SlowerType, words: Words) -> str:
    change = note.change
    return (
        f"type {words.type(change.kind)} by itself: {change.name} "
        f"{format_ns(change.effect, sign=True)} (adjusted p = {change.p_value:.2g})"
    )


def _average_rule_skipped(_note: n.AverageRuleSkipped, words: Words) -> str:
    return f"one {words.one} before has no standard deviation: average rule skipped"


def _mute_ratio(note: n.MuteRatio, words: Words) -> str:
    shown = ", ".join(note.names) or f"{note.columns} columns"
    return (
        f"t2 = {note.t2:g} can never fire for {shown}: more than 1 / t2 of the {words.many} "
        "before are above their own mean"
    )


# Levels of states.

_LISTED_STATES: Final = 6  # technical


def _states_left_out(note: n.StatesLeftOut, _: Words) -> str:
    listed = ", ".join(f"{name} ({level})" for name, level in note.states[:_LISTED_STATES])
    if len(note.states) > _LISTED_STATES:
        listed += f" and {plural(len(note.states) - _LISTED_STATES, 'more state')}"
    if note.total is None:
        return f"only the total decides, of the time of all states: {listed}"
    effect = f"{format_ns(note.total[0], sign=True)} (p = {note.total[1]:.2g})"
    return f"left out of the decision: {listed}; with them the total is {effect}"


def _level_warning(note: n.LevelWarning, words: Words) -> str:
    return f"{_change(note.change, words)}: level warn"


# Alignments.


def _aligned_by_profiles(note: n.AlignedByProfiles, _: Words) -> str:
    return (
        f"{note.paths} distinct paths of up to {note.longest:,} segments are too many for an"
        " alignment by posteriors: aligned by profiles"
    )


def _too_unlike(note: n.TooUnlike, _: Words) -> str:
    return (
        f"{note.paths} distinct paths of up to {note.longest:,} segments"
        " have too little in common, or too few states, for an alignment by posteriors:"
        " aligned by profiles"
    )


def _not_refined(note: n.NotRefined, _: Words) -> str:
    return (
        f"refinement of the alignment left out: {note.paths} distinct paths in"
        f" {note.columns:,} columns would take too long"
    )


def _untestable_columns(note: n.UntestableColumns, words: Words) -> str:
    return f"{words.count(note.normals)} before: too few to tell what is unusual"


def _blunt_columns(note: n.BluntColumns, words: Words) -> str:
    return (
        f"{note.normals} {words.many} before: "
        f"with fewer than {note.least} no single column stands out"
    )


# Why a verdict is what it is: the reasons of a comparison.


def _sufficient_recording(note: n.SufficientRecording, words: Words) -> str:
    budget = note.overhead
    under = "" if budget <= 0 else f", or under {format_share(budget)} of overhead"
    return (
        f"{note.executions:,} of {words.count(note.seen)} {side(note.name)} were recorded: "
        f"{format_ns(int(note.seconds * 1e9))}{under} would have had {note.wanted:,}"
    )


def _lossy_set(note: n.LossySet, words: Words) -> str:
    parts = [plural(note.events, "event")] if note.events else []
    parts += [plural(note.packets, "packet")] if note.packets else []
    if note.ranges and not parts:
        parts = [plural(note.ranges, "range") + " of the trace"]
    return (
        f"the recording {side(note.name)} lost {' and '.join(parts)}: "
        f"{note.affected} of {words.count(note.total)} overlap a loss"
    )


_DEVICES: Final = {
    "loopback": "loopback",
    "physical": "network card",
    "bridged_veth": "veth on a bridge",
    "bridged_physical": "network card on a bridge",
    "unknown": "devices of unknown kind",
}


def _different_routes(note: n.DifferentRoutes, words: Words) -> str:
    before, after = (
        ", ".join(
            f"{_DEVICES.get(passed.kind, passed.kind.replace('bridged_', 'bridged '))} "
            f"({_names(passed) or plural(passed.devices, 'device')}, "
            f"{passed.packets:,.0f} packets {words.an_execution})"
            for passed in route
            if passed.kind != "bridge" or passed.packets
        )
        or "no device"
        for route in note.routes
    )
    took = (
        f"; softirq takes {format_ns(note.deferred[1])} instead of {format_ns(note.deferred[0])} "
        f"of {words.an_execution}'s critical path"
        if any(note.deferred)
        else ""
    )
    each = (
        f"; each passes {note.devices[1]:.1f} instead of {note.devices[0]:.1f} devices"
        if note.devices and f"{note.devices[0]:.1f}" != f"{note.devices[1]:.1f}"
        else ""
    )
    return f"network packets take another route: before {before}; after {after}{each}{took}"


def _names(passed: Passed) -> str:
    return ", ".join(map(safe_text, passed.names))


def name_route(routes: Sequence[Sequence[Passed]]) -> str:
    """Name the devices that packets pass after, instead of those before."""
    before, after = (
        listed([_name_devices(kind, mine) for kind, mine in _by_kind(route).items()]) or "no device"
        for route in routes
    )
    return f"{after} instead of {before}"


def _by_kind(route: Sequence[Passed]) -> dict[str, list[Passed]]:
    """Return what packets pass, bridges first; of a kind all, on a bridge or not."""
    found: dict[str, list[Passed]] = {}
    for passed in sorted(route, key=lambda of: of.kind != "bridge"):
        found.setdefault(passed.plain_kind, []).append(passed)
    return found


def _name_devices(kind: str, passed: Sequence[Passed]) -> str:
    """Return devices of one kind: their names if these are few, else how many they are."""
    names = sorted({name for of in passed for name in of.names})
    many = sum(of.devices for of in passed)
    what = {"physical": "network card", "unknown": "device"}.get(kind, kind)
    if names == ["lo"]:
        return "lo"
    if names and len(names) == many <= MOST_NAMED:
        return f"{what} {listed(list(map(safe_text, names)))}"
    if kind == "loopback":
        return "loopback"
    if kind == "bridge" and not many:
        return "a bridge"
    whole = kind in {"physical", "unknown", "bridge"}
    return plural(many, what if whole else f"{what} device")


def _machine_differed(note: n.MachineDiffered, _: Words) -> str:
    return "the machine was not the same: " + ", ".join(map(_differed, note.differences))


def _differed(one: n.ProbeDiffered | n.ShareDiffered) -> str:
    if isinstance(one, n.ShareDiffered):
        return f"{_SHARES[one.what]} {100 * one.before:.0f} % → {100 * one.after:.0f} %"
    change = f"{100 * abs(one.ratio - 1):.0f} % {'slower' if one.ratio > 1 else 'faster'}"
    return f"{_PROBED.get(one.kind, one.kind)} {change}"


# What was timed again and again while it was recorded.
_PROBED: Final = {
    "l1": "its smallest cache was",
    "l2": "its second cache was",
    "memory": "memory was",
    "syscall": "system calls were",
    "wake": "a sleeping thread woke",
}


def _missing_runs(note: n.MissingRuns, _: Words) -> str:
    return (
        f"{note.missing:,} of {plural(note.total, 'run')} {side(note.name)} are not in the trace: "
        "the others cannot speak for them"
    )


def _small_set(note: n.SmallSet, words: Words) -> str:
    return (
        f"{words.count(note.executions)} {side(note.name)}, and {note.minimum:,} are wanted "
        "(minimum-executions)"
    )


def _nothing_decides(_note: n.NothingDecides, _words: Words) -> str:
    return "no state decides: every one is at level warn or off"


def _nothing_in_common(_note: n.NothingInCommon, words: Words) -> str:
    return f"no type of {words.one} is there both before and after: nothing to compare"


def _too_few_executions(note: n.TooFewExecutions, words: Words) -> str:
    return f"too few {words.many} to decide at alpha {note.alpha:g}: each side needs {note.needed}"


def _splits_cut(note: n.SplitsCut, _words: Words) -> str:
    """The time of a calibration was over."""
    return (
        f"the time was over after {note.judged:,} of {note.asked:,} divisions into sets of "
        f"{note.size:,}: the rates are less sure (calibrate --time goes on for longer)"
    )


def _hidden_by_levels(_note: n.HiddenByLevels, _words: Words) -> str:
    return (
        "the levels of states let this pass a gate, but a baseline takes in only what is slower "
        "in no state at all"
    )


def _outlying_executions(note: n.OutlyingExecutions, words: Words) -> str:
    return f"{_of_sample(note.count, note.total, words)} stand out"


def _outliers_alone(note: n.OutliersAlone, words: Words) -> str:
    share = format_share(note.count / note.total)
    return (
        f"{_of_sample(note.count, note.total, words)} ({share}) are outliers on their own, "
        "which the sets as a whole do not bear out"
    )


def _of_sample(count: int, total: int, words: Words) -> str:
    return f"{count} of {words.count(total)} after"


# Sets of different times: what the machine may have made, and what it cannot have made.

_ASK: Final = "`critpath ab` or `--interleave` can tell"


def _strangers_had_cpus(note: n.StrangersHadCpus, words: Words) -> str:
    names = ", ".join(f"`{name}` {format_share(share)}" for name, share in note.rivals)
    more = format_ns(note.after - note.before, sign=True)
    where = f" on CPU {note.cpus[0]}" if note.cpus else ""
    return (
        f"others had the cpu{where} for {more} longer {words.an_execution}"
        f"{f' ({names})' if names else ''}: {format_share(min(note.explains, 1.0))} of the slowdown"
    )


def _stranger_came(note: n.StrangerCame, words: Words) -> str:
    one, other = (" ".join(part) for part in format_pair(note.before, note.after))
    cpu = f"cpu {note.cpu}" if note.cpu >= 0 else "cpus"
    who = ", ".join(f"`{kind}`" for kind in note.kinds)
    return (
        f"{f'{who} ' if who else ''}{words.many} wait {other} instead of {one} for {cpu} that "
        f"`{note.rival}` had, and others had it for about as much less: {_ASK}"
    )


def _slower_as_machine(note: n.SlowerAsMachine, words: Words) -> str:
    who = words.many
    what = f"waiting for a cpu made {who} take" if note.waiting else f"{who} took"
    how = "busier" if note.waiting else "slower"
    longer = f"{format_share(note.share)} longer on average"
    return f"{what} {longer}, as a {how} machine would make it: {_ASK}"


def _states_as_machine(_note: n.StatesAsMachine, _words: Words) -> str:
    return f"single states took longer, as another machine would make them: {_ASK}"


def _rival_had_cpu(note: n.RivalHadCpu, words: Words) -> str:
    more = format_ns(note.after - note.before, sign=True)
    there = ", not there before," if note.before < ANSWERS.hardly * note.after else ""
    name = "no thread that was seen" if note.name == "idle" else f"`{note.name}`{there}"
    return (
        f"{name} had the cpu ({more} {words.an_execution}), and {words.many} took "
        f"{format_share(note.share)} longer on average, as a busier machine would make it: {_ASK}"
    )


def _beyond_recordings(note: n.BeyondRecordings, _: Words) -> str:
    return (
        f"{format_share(note.slower)} longer is more than recordings of this program differ by, "
        f"{format_share(note.beyond)} at the most ({_recordings(note.recordings)})"
    )


def _within_recordings(note: n.WithinRecordings, _: Words) -> str:
    return (
        f"{format_share(note.slower)} is not beyond what recordings of this program differ by, "
        f"up to {format_share(note.beyond)} ({_recordings(note.recordings)})"
    )


def _recordings(recordings: tuple[int, int]) -> str:
    return f"{recordings[0]} before, {recordings[1]} after"


def _program_sign(note: n.ProgramSign, words: Words) -> str:
    return sign(note.kind, note.name, note.label, (note.before, note.after), note.effect, words)


def sign(
    kind: n.SignKind,
    name: str,
    label: str,
    sides: tuple[float, float],
    effect: float,
    words: Words = AS_IT_IS,
) -> str:
    """Something that a slow machine does not make; ``sides``: before and after."""
    where, (before, after) = f" of {label}" if label else "", sides
    said = {
        "count": f"{name} {_times(before)} → {_times(after)} times {words.an_execution}{where}",
        "new": f"{name} in {format_share(after)} of the {words.many}{where}, "
        f"{format_share(before)} before",
        "share": f"{name}{where} {_ratio(*sides)} as long, which the pace of the rest does not "
        "make",
        "kind": f"{name} {_ratio(*sides)} as long, other kinds of {words.one} are not",
        "clients": f"waits behind other requests are {_ratio(*sides)} as long beside those of new "
        "clients",
        "blocked": f"waits for loops that slept are {_ratio(*sides)} as long",
        "quota": f"{name or 'a limit'} held threads back that no other thread kept from the cpu",
    }
    return f"not the machine's doing: {said[kind]} ({format_ns(effect, sign=True)})"


def _times(count: float) -> str:
    return f"{count:.3g}" if count < 100 else f"{count:,.0f}"


def _ratio(before: float, after: float) -> str:
    ratio = after / before if before > 0 else 0.0
    return f"{ratio:.2g} times" if 0 < ratio < 1000 else "many times"


# A verdict that its own figures would speak against.


def _unconfirmed(note: n.Unconfirmed, _: Words) -> str:
    ends = " to ".join(format_ns(x, sign=True) for x in (note.low, note.high))
    return (
        f"the mean is {format_ns(note.effect, sign=True)} (95 % interval {ends}), and no test "
        f"confirms it at alpha {note.alpha:g}: record more runs"
    )


def _too_noisy(note: n.TooNoisy, words: Words) -> str:
    least = format_share(note.least)
    if note.p_value is not None:
        said = f"something differs (p = {note.p_value:.2g}), and how much slower the mean may be"
        said += f" is not known: by less than {least}, or by more"
    else:
        shown = f"{format_ns(note.shown)} ({format_share(note.shown / note.mean)})"
        said = f"a slowdown of {least} would not have been seen, only one of {shown} or more"
    return f"{said}: about {words.count(note.would_do)} of each would do"


# Percentiles.


def _quantile(note: n.Quantile, _: Words) -> str:
    ends = " to ".join("?" if x is None else format_ns(x, sign=True) for x in (note.low, note.high))
    return f"{note.name} is {format_ns(note.effect, sign=True)} (99 % interval {ends})"


def _unbounded_quantile(note: n.UnboundedQuantile, words: Words) -> str:
    few = " and ".join(f"{count:,}" for count in note.executions)
    return (
        f"{note.name} of {few} {words.many} cannot be bounded: each set needs "
        f"{words.count(note.needed)}"
    )


# What a rule flags, or why it flags nothing.


def _flagged_by_rule(note: n.FlaggedByRule, words: Words) -> str:
    return f"{_effect(note.name, note.effect, words)}; {_flagged(note.flagged)}"


def _not_flagged_by_rule(note: n.NotFlaggedByRule, _: Words) -> str:
    return f"the {note.rule} rule fires for no state"


def _flagged_by_gate(note: n.FlaggedByGate, words: Words) -> str:
    few = f"; {words.count(note.slow)} slower than any before by far" if note.slow else ""
    return f"{_change(note.largest, words)}{few}; {_flagged(note.flagged)}"


def _not_flagged_by_gate(note: n.NotFlaggedByGate, words: Words) -> str:
    faster = _faster(note.faster, words) if note.faster else ""
    shown = _detectable(note.shown, words) if note.shown else ""
    if note.slight:
        nearest = f"{_slight(note.slight, note.floor, words)}{shown}"
        return f"{faster}; {nearest}" if faster else nearest
    at = f"at alpha {note.alpha:g}{shown}"
    if note.decides == "total":
        total = "the total, which alone decides, is not slower"
        return f"{faster}; {total} {at}" if faster else f"{total} {at}"
    which = "no state that decides" if note.decides == "some" else "no state"
    return f"{faster}; {which} is slower {at}" if faster else f"{which} differs {at}"


def _change(change: n.Shift, words: Words) -> str:
    """Return what is slower, by how much, in which type, and its p if there is one."""
    size = _effect(change.name, change.effect, words)
    if change.p_value is None:
        return size
    of = f" of {change.label or f'type {words.type(change.kind)}'}" if change.kind >= 0 else ""
    return f"{size}{of} (p = {change.p_value:.2g})"


def _effect(name: str, effect: float, words: Words) -> str:
    """Return by how much a state, or the total, is slower (ns)."""
    return f"{name} is {format_ns(effect, sign=True)} {words.an_execution}"


def _flagged(flagged: n.Flagged) -> str:
    named = [plural(flagged.states, "state")] if flagged.states else []
    named += ["the total"] if flagged.total else []
    return f"flagged by the {flagged.rule} rule: {' and '.join(named)}"


def _slight(change: n.Shift, floor: float, words: Words) -> str:
    if change.effect < floor:
        why = f"below the floor of {format_ns(floor)}"
    elif change.name.startswith("WAIT_CPU"):
        why = "but other threads wait for a CPU less, or the mean is too uncertain to count"
    else:
        why = "by a mean too uncertain to count"
    return f"no state is slower enough: {_change(change, words)}, {why}"


def _detectable(shown: n.Shown, words: Words) -> str:
    share = f" ({format_share(shown.effect / shown.mean)})" if shown.mean else ""
    where = "mean" if shown.whole else "total of what decides"
    rare = ""
    if shown.slow is not None:
        count, least = shown.slow
        rare = f", or of {format_ns(least, sign=True)} in {words.count(count)}"
    size = format_ns(shown.effect, sign=True)
    return f"; a change of {size}{share} in the {where}{rare} would have shown"


def _faster(total: n.Faster, words: Words) -> str:
    share = f" ({format_share(total.effect / total.mean)})" if total.mean else ""
    of = "" if total.whole else " of what decides"
    ends = " to ".join(format_ns(x, sign=True) for x in (total.low, total.high))
    return (
        f"faster: the total{of} is {format_ns(total.effect, sign=True)} {words.an_execution}"
        f"{share}, 95 % interval {ends}"
    )


def _names_replaced(note: n.NamesReplaced, _: Words) -> str:
    said = [plural(number, kind) for kind, number in note.counts]
    what = ", ".join(said) or "nothing, as there was nothing of the kind"
    kept = "" if note.threads else "; names of threads and kinds of request are kept"
    return f"names were replaced for sharing: {what}{kept}"


_SENTENCES: Final[Mapping[type[n.Note], Callable[[Any, Words], str]]] = {
    n.OfSet: _of_set,
    n.NamesReplaced: _names_replaced,
    n.DifferentEnvironments: _different_environments,
    n.DifferentPrograms: _different_programs,
    n.UnknownArguments: _unknown_arguments,
    n.DifferentRecordings: _different_recordings,
    n.EmptyRecording: _empty_recording,
    n.RequestsDoubtful: _requests_doubtful,
    n.RequestsUnsure: _requests_unsure,
    n.SameExecutions: _same_executions,
    n.OtherPartner: _other_partner,
    n.FoldedSymbols: _folded_symbols,
    n.InOneSet: _in_one_set,
    n.PartialComparison: _partial_comparison,
    n.SomeExamined: _some_examined,
    n.JoinedKinds: _joined_kinds,
    n.NewServices: _new_services,
    n.RareKinds: _rare_kinds,
    n.NewClients: _new_clients,
    n.GoneClients: _gone_clients,
    n.SufficientRecording: _sufficient_recording,
    n.SingleType: _single_type,
    n.NoDenseGroup: _no_dense_group,
    n.NoiseAssigned: _noise_assigned,
    n.NoisePaired: _noise_paired,
    n.DividedClusters: _divided_clusters,
    n.WeakPairs: _weak_pairs,
    n.NovelExecutions: _novel_executions,
    n.LowSupport: _low_support,
    n.LoneReferences: _lone_references,
    n.FewReferences: _few_references,
    n.SplitConformal: _split_conformal,
    n.BeyondReferences: _beyond_references,
    n.NewType: _new_type,
    n.FewPermutations: _few_permutations,
    n.SessionsPermuted: _sessions_permuted,
    n.FewSessions: _few_sessions,
    n.RaisedFloor: _raised_floor,
    n.TooSmallSets: _too_small_sets,
    n.Saved: _saved,
    n.ExecutionChosen: _execution_chosen,
    n.LabelledByField: _labelled_by_field,
    n.WithoutEvents: _without_events,
    n.IncompleteExecutions: _incomplete_executions,
    n.RepairedSwitches: _repaired_switches,
    n.NotRecorded: _not_recorded,
    n.EventsInOneSet: _events_in_one_set,
    n.RecordingInMemory: _recording_in_memory,
    n.StoreTriedAgain: _store_tried_again,
    n.ExecutionInMemory: _execution_in_memory,
    n.LossyExecutions: _lossy_executions,
    n.NotInBaseline: _not_in_baseline,
    n.ExecutionsWhole: _executions_whole,
    n.ExecutionsChosen: _executions_chosen,
    n.ChancesEvened: _chances_evened,
    n.RecordedTook: _recorded_took,
    n.RequestsFound: _requests_found,
    n.RequestsFoundInPart: _requests_found_in_part,
    n.RequestsLeftOut: _requests_left_out,
    n.RequestsWithoutClient: _requests_without_client,
    n.SocketsUnnamed: _sockets_unnamed,
    n.PathsDoubtful: _paths_doubtful,
    n.PoolHeld: _pool_held,
    n.LoopBlocked: _loop_blocked,
    n.MessagesPassed: _messages_passed,
    n.FasterSample: _faster_sample,
    n.OtherMix: _other_mix,
    n.Orphans: _orphans,
    n.SlowerType: _slower_type,
    n.AverageRuleSkipped: _average_rule_skipped,
    n.MuteRatio: _mute_ratio,
    n.StatesLeftOut: _states_left_out,
    n.LevelWarning: _level_warning,
    n.AlignedByProfiles: _aligned_by_profiles,
    n.TooUnlike: _too_unlike,
    n.NotRefined: _not_refined,
    n.UntestableColumns: _untestable_columns,
    n.BluntColumns: _blunt_columns,
    n.LossySet: _lossy_set,
    n.DifferentRoutes: _different_routes,
    n.MachineDiffered: _machine_differed,
    n.MissingRuns: _missing_runs,
    n.SmallSet: _small_set,
    n.NothingDecides: _nothing_decides,
    n.NothingInCommon: _nothing_in_common,
    n.TooFewExecutions: _too_few_executions,
    n.HiddenByLevels: _hidden_by_levels,
    n.SplitsCut: _splits_cut,
    n.OutlyingExecutions: _outlying_executions,
    n.OutliersAlone: _outliers_alone,
    n.StrangersHadCpus: _strangers_had_cpus,
    n.StrangerCame: _stranger_came,
    n.SlowerAsMachine: _slower_as_machine,
    n.StatesAsMachine: _states_as_machine,
    n.RivalHadCpu: _rival_had_cpu,
    n.BeyondRecordings: _beyond_recordings,
    n.WithinRecordings: _within_recordings,
    n.ProgramSign: _program_sign,
    n.Unconfirmed: _unconfirmed,
    n.TooNoisy: _too_noisy,
    n.Quantile: _quantile,
    n.UnboundedQuantile: _unbounded_quantile,
    n.FlaggedByRule: _flagged_by_rule,
    n.NotFlaggedByRule: _not_flagged_by_rule,
    n.FlaggedByGate: _flagged_by_gate,
    n.NotFlaggedByGate: _not_flagged_by_gate,
}
