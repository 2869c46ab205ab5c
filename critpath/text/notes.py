"""Warnings and notes: what to know about the sets, the types, the tests and the alignments.

A function is one sentence, named after its subject; its arguments are the facts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from critpath.model.recording import MOST_NAMED, Passed
from critpath.schema.parameters.text import ANSWERS
from critpath.text.phrases import listed, quoted
from critpath.units import format_ns, format_share, plural, safe_text

if TYPE_CHECKING:
    from critpath.documents import PercentileEntry, SignKind
    from critpath.model import Change, Detection, Loss, RequestAccount, Rival

# The sets and how they were recorded.

# Keys of the sets' environments that should be alike, and what each is called.
ENVIRONMENT: Final = {
    "kernel_release": "kernels",
    "tracer_name": "tracers",
    "recorded_on": "machines",
    "recorded_cpu": "processors",
    "recorded_cpus": "numbers of cpus",
    "recorded_profile": "profiles",
}
_SHOWN_TYPES: Final = 4  # technical
PRESSURE: Final = "cpu pressure"
OTHERS_CPU: Final = "cpu time of others"


_SIDES: Final = {"normal": "before", "sample": "after"}


def side(name: str) -> str:
    """Return what a set is called in a sentence."""
    return _SIDES.get(name, name)


def of_one_set(name: str, warning: str) -> str:
    """Attribute a warning to the set that it is about."""
    return f"{side(name)}: {warning}"


def different_environments(key: str, normal: Sequence[str], sample: Sequence[str]) -> str:
    """Two sets differ in a key of `ENVIRONMENT`."""
    values = f"{', '.join(normal) or 'unknown'} and {', '.join(sample) or 'unknown'}"
    return f"before and after come from different {ENVIRONMENT[key]}: {values}"


def different_programs(normal: Sequence[str], sample: Sequence[str]) -> str:
    """Two sets are of different programs."""
    return (
        f"before and after are of different programs: {', '.join(normal)} and {', '.join(sample)}"
    )


def unknown_arguments(programs: Sequence[str]) -> str:
    """Processes of programs that run what they are given are compared."""
    return (
        f"processes of {', '.join(map(quoted, programs))} are compared whatever they were given to "
        "run: that is not known of all of them"
    )


def different_recordings(key: str, values: Sequence[str]) -> str:
    """The recordings of one set differ in a key of `ENVIRONMENT`."""
    return f"the recordings come from different {ENVIRONMENT[key]}: {', '.join(values)}"


def empty_recording(source: str) -> str:
    """A recording of a set has no execution."""
    return f"{source} has no execution"


# By what requests are found, where a tracer has no events of sockets.
WAYS: Final = {
    "calls+packets": "system calls and packets",
    "calls": "system calls alone: each begins when who read it was woken, or read it",
}


def requests_found(
    total: int,
    services: int,
    account: RequestAccount,
    begin: Mapping[str, float],
    attribution: Mapping[str, float],
) -> str:
    """What became of everything that servers were asked; shares of how sure two things are."""
    rest = (
        (account.incomplete, "incomplete"),
        (account.unsolicited, "answers to nothing"),
        (account.skipped, "skipped"),
        (account.busy_periods, "of several at once"),
        (account.streams, "answered in pieces over time, which last as long as their stream"),
        (account.unattributed, "sub-requests of no request"),
        (account.unknown, "uses of sockets that are not known"),
        (account.datagrams, "over UDP, of which another may have been answered"),
        (account.unsure, "left out, below min_confidence"),
    )
    left = "".join(f"; {count:,} {what}" for count, what in rest if count)
    found = "".join(
        f"; {what} is " + ", ".join(f"{word} for {format_share(part)}" for word, part in of.items())
        for what, of in (("when they began", begin), ("what they asked", attribution))
        if of
    )
    if account.way != "sockets":
        found += f"; found by {WAYS[account.way]}"
    if account.rings:
        found += f"; what {plural(account.rings, 'call')} of io_uring_enter did is not seen"
    return f"requests: {total:,} of {plural(services, 'service')}{left}{found}"


def requests_without_client(count: int) -> str:
    """How many requests have no times at their clients."""
    of = plural(count, "request")
    return f"{of} left out: who asked was not recorded, or its clock is not known"


def slices_left_out(incomplete: int, lost: int) -> tuple[str, ...]:
    """What became of slices of threads that are no executions."""
    rest = (
        (incomplete, "cut by the end of the recording"),
        (lost, "left out, as events were lost meanwhile"),
    )
    return tuple(f"{plural(count, 'slice')} {what}" for count, what in rest if count)


def sockets_unnamed() -> str:
    """Requests were found by system calls, as the kernel did not tell sockets apart."""
    return "the kernel hid which socket is which: requests are found by system calls alone"


def requests_doubtful(name: str, doubtful: int, shared: Mapping[int, int], total: int) -> str:
    """Of too many requests of a set the begin or the end is in doubt; at which ports by sharing."""
    ports = ", ".join(f":{port}" for port in sorted(shared, key=lambda p: -shared[p])[:4])
    what = f"share a connection at once ({ports})" if shared else "share a connection at once"
    if doubtful > sum(shared.values()):
        what += ", were read late, or came over UDP"
    return (
        f"{format_share(doubtful / total)} of the requests of the {name} set {what}: "
        "how long each took is in doubt"
    )


def requests_unsure(name: str, unsure: int, total: int) -> str:
    """Too many requests of a set were left out because it is not sure what they asked."""
    return (
        f"{format_share(unsure / total)} of the requests of the {name} set are less sure than "
        "min_confidence asks for: those that are left may be of another kind"
    )


def epoch_unknown(recording: str) -> str:
    """The time of day at which spans began is not known."""
    return f"{recording} does not say the time of day: its spans begin in 1970"


def paths_doubtful(doubtful: int, total: int) -> str:
    """Of some requests it is not known well enough what they asked."""
    return (
        f"what {format_share(doubtful / total)} of the requests asked of others is doubtful: "
        "their paths are those of the threads that answered them"
    )


def same_executions(common: int, total: int) -> str:
    """Some executions of the sample (or all) are in the normal set as well."""
    if common == total:
        return "the recording after is one of those before: nothing can differ"
    count = f"{common:,} of {plural(total, 'execution')} after"
    return f"{count} are among those before, too: the same recording is on both sides"


def other_partner(name: str, partners: Sequence[str]) -> str:
    """A set was recorded in alternation with one that it is not compared with."""
    listed = ", ".join(map(repr, partners))
    return f"{side(name)}: recorded in alternation with {listed}: compare it with that"


def folded_symbols(count: int) -> str:
    """The alphabet is full: rare symbols share a code."""
    return f"{plural(count, 'rare kind')} of thread counted together as '*'"


def in_one_set(name: str, what: str) -> str:
    """Only one set was recorded with something, or none."""
    of = f"only what is {side(name)}" if name else "neither set"
    return f"{of} was recorded with {what}: they are left out of account"


def repaired_switches(inserted: int, total: int) -> str:
    """Context switches that the kernel did not write were inserted."""
    return (
        f"the kernel did not write {inserted:,} of {total:,} switches "
        f"({format_share(inserted / total)}): they were put in, and times just after a wake "
        "are estimates"
    )


def recording_in_memory(name: str, why: str) -> str:
    """A recording could not be read piece by piece, as --max-memory asks."""
    return f"{name} was in memory as a whole, whatever --max-memory: {why}"


def out_of_order(reason: object) -> str:
    """Why: the reader found events out of order."""
    return f"{reason}, and its events have to be sorted"


def execution_in_memory(segments: int, size: float) -> str:
    """A path is larger than --max-memory (bytes)."""
    return (
        f"an execution of {segments:,} segments was in memory as a whole, whatever --max-memory: "
        f"some {size / 1e6:,.0f} MB"
    )


def lossy_executions(lossy: int, total: int) -> str:
    """Executions of a set to calibrate with overlap a loss."""
    return f"{plural(lossy, 'execution')} of {total:,} overlap a loss of events"


def not_in_baseline(name: str, left_out: int, total: int) -> str:
    """A baseline does not keep every execution of a recording."""
    return f"{name}: {left_out:,} of {total:,} executions are not in the baseline (--executions)"


_TYPE: Final = re.compile(r"(?<![\w@`/#])(type )?n(\d{1,6})\b")


def with_type_names(text: str, names: Mapping[int, str]) -> str:
    """Call types in one of our sentences by their labels; ``names`` are those that have one.

    Of several types of one label each keeps its number.
    """
    shared = Counter(names.values())

    def named(found: re.Match[str]) -> str:
        label = names.get(int(found[2]), "")
        if not label:
            return found[0]
        number = f" (n{found[2]})" if shared[label] > 1 else ""
        return f"{found[1] or ''}{quoted(label)}{number}"

    return _TYPE.sub(named, text)


def partial_comparison(
    used: int, total: int, types: Sequence[int], unused: Sequence[tuple[int, int]]
) -> str:
    """Most normal executions are of types that no sample execution is of.

    ``unused`` are (type, executions), the largest first.
    """
    shown = [f"n{kind} ({size:,})" for kind, size in unused[:_SHOWN_TYPES]]
    beyond = len(unused) - len(shown)
    named = ", ".join(f"n{kind}" for kind in types[:_SHOWN_TYPES])
    named += ", ..." * (len(types) > _SHOWN_TYPES)
    return (
        f"compared with {used:,} of {plural(total, 'execution')} before "
        f"(type{'s' * (len(types) > 1)} {named}): no execution after is of the "
        f"type{'s' * (len(unused) > 1)} {', '.join(shown)}"
        + (f" and {beyond:,} more" if beyond else "")
    )


# As the next says it, whatever executions are called.
SOME_EXAMINED: Final = r"slow \w+ were examined, evenly spread"


def some_examined(examined: int, total: int) -> str:
    """Not every execution that stands out was aligned."""
    return (
        f"{examined} of {total} slow executions were examined, "
        "evenly spread over the time that they lost"
    )


# Types of executions, and their pairs.


def single_type(executions: int) -> str:
    """All executions have the same counts."""
    return f"all {executions} executions have the same counts: one type"


def no_dense_group() -> str:
    """The clustering found noise only."""
    return "no group of executions is denser than the rest: one type"


def noise_assigned(noise: int, total: int) -> str:
    """Noise joined the type of its nearest neighbour."""
    return (
        f"{plural(noise, 'execution')} of {total} in no dense group: "
        "each joined the type of its nearest neighbour"
    )


def noise_paired(noise: int, total: int) -> str:
    """Noise of the sample was paired with normal types execution by execution."""
    return (
        f"{plural(noise, 'execution')} of {total} after in no dense group: each paired on its own"
    )


def divided_clusters(count: int) -> str:
    """Sample clusters were divided."""
    return f"{plural(count, 'cluster')} after divided: its executions fit different types before"


def weak_pairs(clusters: int) -> str:
    """Sample clusters have a negative silhouette with every normal type."""
    return (
        f"{plural(clusters, 'cluster')} after with no clearly fitting type before: "
        "paired with the nearest"
    )


def novel_executions(executions: int) -> str:
    """Sample executions are farther from every normal type than its members are."""
    return (
        f"{plural(executions, 'execution')} after unlike every type before: "
        "compared with the nearest"
    )


# Single executions that stand out.


def low_support(executions: int, least: int) -> str:
    """Executions are compared with a small type."""
    return (
        f"{plural(executions, 'execution')} after compared with a type of fewer than {least} "
        "before: their spread is that of all types (low support)"
    )


def lone_references(executions: int) -> str:
    """Normal executions are the only one of their type."""
    return (
        f"{plural(executions, 'execution')} before alone in a type: "
        "left out of the reference scores"
    )


def few_references(scores: int) -> str:
    """Conformal p-values have a least value."""
    return f"{plural(scores, 'reference score')}: no p-value can be below {1 / (1 + scores):.2g}"


def split_conformal(references: int, executions: int) -> str:
    """The sets are too large for full conformal prediction."""
    return (
        f"{references:,} executions before and {executions:,} after: reference scores "
        "are computed once, without those after"
    )


def beyond_references(count: int, executions: int, references: int, needed: int) -> str:
    """Executions score higher than every normal one, and chance does so too often."""
    return (
        f"{plural(count, 'execution')} of {executions} after beyond all {references} before "
        f"and yet not marked: of healthy ones {executions / (references + 1):.2g} would be; "
        f"{needed:,} executions before tell even a single one from chance"
    )


def new_type(executions: int, anomalous: int) -> str:
    """Executions are of a type that the normal set does not have."""
    return (
        f"{plural(executions, 'execution')} after of a type that was not there before, "
        f"{anomalous} of them slow beside the nearest type"
    )


# The tests of states and of the total.


def few_permutations(permutations: int) -> str:
    """The sets are too large for all permutations asked for."""
    return f"{permutations:,} permutations drawn: the sets are large"


def sessions_permuted() -> str:
    """Sessions, not executions, were permuted."""
    return "whole sessions are permuted: no type is tested by itself"


def few_sessions(normal: int, sample: int) -> str:
    """Whole sessions cannot be permuted."""
    return (
        f"{normal} sessions before and {sample} after are too few to permute whole: "
        "executions are pooled, and the floor stands for differences between sessions"
    )


def raised_floor(floor: float, raised: float) -> str:
    """The sessions' means ask for a higher floor than the settings (shares)."""
    return (
        f"effect floor raised from {format_share(floor)} to {format_share(raised)}: "
        "three standard deviations of the means of the sessions before"
    )


def too_small_sets(normal: int, sample: int, alpha: float) -> str:
    """No permutation test can reach the level."""
    return (
        f"{plural(normal, 'execution')} before and {sample} after: "
        f"no difference, however large, could reach the level {alpha:g}"
    )


def faster_sample(ns: float) -> str:
    """The sample is faster by more than the floor (ns)."""
    return f"faster by {format_ns(ns)} in total; only slowdowns alarm"


def other_mix(p_value: float) -> str:
    """The shares of the types differ."""
    return f"another mix of types after (p = {p_value:.2g}): a finding of its own, no slowdown"


def orphans(executions: int) -> str:
    """Sample executions have no normal ones of their type."""
    return (
        f"{plural(executions, 'execution')} after of a type that has none before: "
        "compared with the mean of all, not part of the test"
    )


def slower_type(kind: int, name: str, effect: float, p_value: float) -> str:
    """One type alone is slower in a state (ns)."""
    return (
        f"type n{kind} by itself: {name} {format_ns(effect, sign=True)} "
        f"(adjusted p = {p_value:.2g})"
    )


def average_rule_skipped() -> str:
    """The paper's average rule needs a standard deviation."""
    return "one execution before has no standard deviation: average rule skipped"


def mute_ratio(t2: float, names: Sequence[str], columns: int) -> str:
    """The paper's probability rule cannot fire for some columns."""
    shown = ", ".join(names) or f"{columns} columns"
    return (
        f"t2 = {t2:g} can never fire for {shown}: more than 1 / t2 of the executions "
        "before are above their own mean"
    )


# Levels of states.

_LISTED_STATES: Final = 6  # technical


def states_left_out(states: Sequence[tuple[str, str]], total: tuple[float, float] | None) -> str:
    """States do not decide; with them the total (effect in ns, p) is another.

    ``states`` are (name, level); ``total`` is None where the total alone decides.
    """
    listed = ", ".join(f"{name} ({level})" for name, level in states[:_LISTED_STATES])
    if len(states) > _LISTED_STATES:
        listed += f" and {plural(len(states) - _LISTED_STATES, 'more state')}"
    if total is None:
        return f"only the total decides, of the time of all states: {listed}"
    effect = f"{format_ns(total[0], sign=True)} (p = {total[1]:.2g})"
    return f"left out of the decision: {listed}; with them the total is {effect}"


def level_warning(change: str) -> str:
    """A state of level warn is slower; ``change`` is how, in words."""
    return f"{change}: level warn"


# Alignments.


def aligned_by_profiles(paths: int, longest: int) -> str:
    """The posteriors would cost too much."""
    return (
        f"{paths} distinct paths of up to {longest:,} segments are too many for an"
        " alignment by posteriors: aligned by profiles"
    )


def not_refined(paths: int, columns: int) -> str:
    """A pass of refinement would cost too much."""
    return (
        f"refinement of the alignment left out: {paths} distinct paths in"
        f" {columns:,} columns would take too long"
    )


def untestable_columns(normals: int) -> str:
    """Too few normal rows for the leave-one-out comparison."""
    return f"{plural(normals, 'execution')} before: too few to tell what is unusual"


def blunt_columns(normals: int, least: int) -> str:
    """Too few normal rows for a single column to be significant."""
    return f"{normals} executions before: with fewer than {least} no single column stands out"


# Why a verdict is what it is: the reasons of a comparison.


def lost_events(losses: Sequence[Loss]) -> str:
    """Sum up losses, "" for none."""
    events = sum(loss.events for loss in losses)
    packets = sum(loss.packets for loss in losses)
    parts = [plural(events, "event")] if events else []
    parts += [plural(packets, "packet")] if packets else []
    if losses and not parts:
        parts = [plural(len(losses), "range") + " of the trace"]
    return " and ".join(parts)


def lossy_set(name: str, losses: Sequence[Loss], affected: int, total: int) -> str:
    """A set lost too much for a verdict."""
    return (
        f"the recording {side(name)} lost {lost_events(losses)}: "
        f"{affected} of {plural(total, 'execution')} overlap a loss"
    )


_DEVICES: Final = {
    "loopback": "loopback",
    "physical": "network card",
    "bridged_veth": "veth on a bridge",
    "bridged_physical": "network card on a bridge",
    "unknown": "devices of unknown kind",
}


def different_routes(
    routes: Sequence[Sequence[Passed]], deferred: Sequence[float], devices: Sequence[float]
) -> str:
    """Packets of the two sets pass other devices: kinds, their number, packets an execution."""
    before, after = (
        ", ".join(
            f"{_DEVICES.get(passed.kind, passed.kind.replace('bridged_', 'bridged '))} "
            f"({_names(passed) or plural(passed.devices, 'device')}, "
            f"{passed.packets:,.0f} packets an execution)"
            for passed in route
            if passed.kind != "bridge" or passed.packets
        )
        or "no device"
        for route in routes
    )
    took = (
        f"; softirq takes {format_ns(deferred[1])} instead of {format_ns(deferred[0])} of an "
        "execution's critical path"
        if any(deferred)
        else ""
    )
    each = (
        f"; each passes {devices[1]:.1f} instead of {devices[0]:.1f} devices"
        if devices and f"{devices[0]:.1f}" != f"{devices[1]:.1f}"
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
        found.setdefault(passed.kind.removeprefix("bridged_"), []).append(passed)
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


def machine_differed(differences: Sequence[str]) -> str:
    """The machine was not the same while the two sets were recorded."""
    return "the machine was not the same: " + ", ".join(differences)


def probe_differed(kind: str, ratio: float) -> str:
    """A probe took longer, or less long, in the sample."""
    change = f"{100 * abs(ratio - 1):.0f} % {'slower' if ratio > 1 else 'faster'}"
    return f"probe {kind} {change}"


def share_differed(what: str, before: float, after: float) -> str:
    """A share of the machine was another in the sample."""
    return f"{what} {100 * before:.0f} % → {100 * after:.0f} %"


def missing_runs(name: str, missing: int, total: int) -> str:
    """A set's traces lack runs that its recorder counted."""
    return (
        f"{missing:,} of {plural(total, 'run')} {side(name)} are not in the trace: "
        "the others cannot speak for them"
    )


def small_set(name: str, executions: int, minimum: int) -> str:
    """A set has fewer executions than the settings ask for."""
    return (
        f"{plural(executions, 'execution')} {side(name)}, and {minimum:,} are wanted "
        "(minimum-executions)"
    )


def nothing_decides() -> str:
    """No state has the level error."""
    return "no state decides: every one is at level warn or off"


def nothing_in_common() -> str:
    """The sets share no type of execution."""
    return "no type of execution is there both before and after: nothing to compare"


def too_few_executions(alpha: float, needed: int) -> str:
    """The permutation test cannot reach its level."""
    return f"too few executions to decide at alpha {alpha:g}: each side needs {needed}"


def hidden_by_levels() -> str:
    """A baseline refuses what the levels of states let pass."""
    return (
        "the levels of states let this pass a gate, but a baseline takes in only what is slower "
        "in no state at all"
    )


def outlying_executions(count: int, total: int) -> str:
    """Executions of an anomaly stand out."""
    return f"{_of_sample(count, total)} stand out"


def outliers_alone(count: int, total: int) -> str:
    """Executions stand out, and the sets do not differ."""
    return (
        f"{_of_sample(count, total)} ({format_share(count / total)}) are outliers on their own, "
        "which the sets as a whole do not bear out"
    )


def _of_sample(count: int, total: int) -> str:
    return f"{count} of {plural(total, 'execution')} after"


# Sets of different times: what the machine may have made, and what it cannot have made.

_ASK: Final = "`critpath ab` or `--interleave` can tell"


def slower_as_machine(share: float, *, waiting: bool) -> str:
    """A slow-down is such as a slower machine makes (share of the mean)."""
    what = "waiting for a cpu made everything take" if waiting else "everything took"
    how = "busier" if waiting else "slower"
    return f"{what} {format_share(share)} longer, as a {how} machine would make it: {_ASK}"


def states_as_machine() -> str:
    """States are longer, the whole is not, and a machine can make that."""
    return f"single states took longer, as another machine would make them: {_ASK}"


def rival_had_cpu(rival: Rival, share: float) -> str:
    """A slow-down is that somebody else had the cpu (share of the mean)."""
    more = format_ns(rival.after - rival.before, sign=True)
    there = ", not there before," if rival.before < ANSWERS.hardly * rival.after else ""
    name = "no thread that was seen" if rival.name == "idle" else f"`{rival.name}`{there}"
    return (
        f"{name} had the cpu ({more} an execution), and everything took {format_share(share)} "
        f"longer, as a busier machine would make it: {_ASK}"
    )


def beyond_recordings(slower: float, beyond: float, recordings: tuple[int, int]) -> str:
    """Recordings of one program do not differ by so much."""
    return (
        f"{format_share(slower)} longer is more than recordings of this program differ by, "
        f"{format_share(beyond)} at the most ({_recordings(recordings)})"
    )


def within_recordings(slower: float, beyond: float, recordings: tuple[int, int]) -> str:
    """Recordings of one program can differ by so much."""
    return (
        f"{format_share(slower)} is not beyond what recordings of this program differ by, "
        f"up to {format_share(beyond)} ({_recordings(recordings)})"
    )


def _recordings(recordings: tuple[int, int]) -> str:
    return f"{recordings[0]} before, {recordings[1]} after"


def sign(kind: SignKind, name: str, label: str, sides: tuple[float, float], effect: float) -> str:
    """Something that a slow machine does not make; ``sides``: before and after."""
    where, (before, after) = f" of {label}" if label else "", sides
    said = {
        "count": f"{name} {_times(before)} → {_times(after)} times an execution{where}",
        "new": f"{name} in {format_share(after)} of the executions{where}, "
        f"{format_share(before)} before",
        "share": f"{name}{where} {_ratio(*sides)} as long, which the pace of the rest does not "
        "make",
        "kind": f"{name} {_ratio(*sides)} as long, other kinds of execution are not",
        "clients": f"waits behind other requests are {_ratio(*sides)} as long beside those of new "
        "clients",
        "quota": f"{name or 'a limit'} held threads back that no other thread kept from the cpu",
    }
    return f"not the machine's doing: {said[kind]} ({format_ns(effect, sign=True)})"


def _times(count: float) -> str:
    return f"{count:.3g}" if count < 100 else f"{count:,.0f}"


def _ratio(before: float, after: float) -> str:
    ratio = after / before if before > 0 else 0.0
    return f"{ratio:.2g} times" if 0 < ratio < 1000 else "many times"


# A verdict that its own figures would speak against.


def unconfirmed(detection: Detection) -> str:
    """A difference is too large to be called none, and no test confirms it."""
    total = detection.states[-1]
    ends = " to ".join(format_ns(x, sign=True) for x in (total.effect_low, total.effect_high))
    return (
        f"the mean is {format_ns(total.effect, sign=True)} (95 % interval {ends}), and no test "
        f"confirms it at alpha {detection.alpha:g}: record more runs"
    )


# Percentiles.


def quantile(found: PercentileEntry) -> str:
    """A percentile decides: how the sets differ in it."""
    ends = " to ".join(
        "?" if x is None else format_ns(x, sign=True) for x in (found.low, found.high)
    )
    return f"{found.name} is {format_ns(found.effect, sign=True)} (99 % interval {ends})"


def unbounded_quantile(found: PercentileEntry) -> str:
    """The sets are too small for an interval of a percentile."""
    few = " and ".join(f"{n:,}" for n in found.executions)
    return (
        f"{found.name} of {few} executions cannot be bounded: each set needs "
        f"{plural(found.needed, 'execution')}"
    )


# What a rule flags, or why it flags nothing.


def flagged_by_rule(detection: Detection) -> str:
    """Any rule fires: the largest difference, and how many states it flags."""
    states = [s for s in detection.states if s.flagged and s.level == "error"]
    worst = max(states, key=lambda s: s.effect)
    return f"{format_effect(worst.name, worst.effect)}; {_flagged(detection)}"


def not_flagged_by_rule(detection: Detection) -> str:
    """Any rule fires for nothing."""
    return f"the {detection.rule} rule fires for no state"


def flagged_by_gate(detection: Detection) -> str:
    """The gate fires: the largest change, its type and its p."""
    few = ""
    if detection.slow:
        few = f"; {plural(detection.slow, 'execution')} slower than any before by far"
    return f"{format_change(detection.slower[0])}{few}; {_flagged(detection)}"


def not_flagged_by_gate(detection: Detection) -> str:
    """The gate fires for nothing: what is nearest, and what would have shown."""
    faster, shown = _faster(detection), _detectable(detection)
    if detection.slight:
        nearest = f"{_slight(detection.slight[0])}{shown}"
        return f"{faster}; {nearest}" if faster else nearest
    at = f"at alpha {detection.alpha:g}{shown}"
    if all(s.level != "error" for s in detection.states[:-1]):
        total = "the total, which alone decides, is not slower"
        return f"{faster}; {total} {at}" if faster else f"{total} {at}"
    some = any(s.level != "error" for s in detection.states)
    which = "no state that decides" if some else "no state"
    return f"{faster}; {which} is slower {at}" if faster else f"{which} differs {at}"


def format_change(change: Change) -> str:
    """Return what is slower, by how much, in which type, and its p."""
    of = f" of {change.label or f'type n{change.kind}'}" if change.kind >= 0 else ""
    return f"{format_effect(change.name, change.effect)}{of} (p = {change.p_value:.2g})"


def format_effect(name: str, effect: float) -> str:
    """Return by how much a state, or the total, is slower (ns)."""
    return f"{name} is {format_ns(effect, sign=True)} an execution"


def _flagged(detection: Detection) -> str:
    states = [s for s in detection.states if s.flagged and s.level == "error"]
    counted = sum(s.name != "total" for s in states)  # the total is no state
    named = [plural(counted, "state")] if counted else []
    named += ["the total"] if counted < len(states) else []
    return f"flagged by the {detection.rule} rule: {' and '.join(named)}"


def _slight(change: Change) -> str:
    if change.effect < change.floor:
        why = f"below the floor of {format_ns(change.floor)}"
    elif change.name.startswith("WAIT_CPU"):
        why = "but other threads wait for a CPU less, or the mean is too uncertain to count"
    else:
        why = "by a mean too uncertain to count"
    return f"no state is slower enough: {format_change(change)}, {why}"


def _detectable(detection: Detection) -> str:
    if detection.detectable is None:
        return ""
    mean = detection.states[-1].normal_mean
    share = f" ({format_share(detection.detectable / mean)})" if mean else ""
    size = format_ns(detection.detectable, sign=True)
    where = "mean" if detection.whole is None else "total of what decides"
    rare = ""
    if detection.slow_shown is not None and detection.whole is None:
        count, least = detection.slow_shown
        rare = f", or of {format_ns(least, sign=True)} in {plural(count, 'execution')}"
    return f"; a change of {size}{share} in the {where}{rare} would have shown"


def _faster(detection: Detection) -> str:
    """Return by how much the sample is faster, "" where that is below the floor or in doubt."""
    total = detection.states[-1]
    if total.level != "error" or not total.effect_high < -detection.floor:  # False for NaN, too
        return ""
    mean = total.normal_mean
    share = f" ({format_share(total.effect / mean)})" if mean else ""
    of = "" if detection.whole is None else " of what decides"
    ends = " to ".join(format_ns(x, sign=True) for x in (total.effect_low, total.effect_high))
    return (
        f"faster: the total{of} is {format_ns(total.effect, sign=True)} an execution"
        f"{share}, 95 % interval {ends}"
    )


def redacted(counts: Mapping[str, int], *, threads: bool) -> str:
    """Names were replaced for a page that others see."""
    said = [plural(number, kind) for kind, number in counts.items()]
    what = ", ".join(said) or "nothing, as there was nothing of the kind"
    kept = "" if threads else "; names of threads and kinds of request are kept"
    return f"names were replaced for sharing: {what}{kept}"
