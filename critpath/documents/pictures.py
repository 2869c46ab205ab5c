"""What the page of a comparison draws: who, kinds of runs, mean paths and single ones."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import field

from critpath.documents.base import Maybe, MaybePair, Number, Part, SetName, Span, doc
from critpath.schema.causes import Doing

Group = Literal["before", "after", "slow", "rest"]
Change = Literal["slower", "faster", "same", "few"]


class ThreadEntry(Part):
    """Who paths go through, as pictures show it: a thread, or several of one family."""

    name: Annotated[str, doc("its name, with * for the numbers of several; '' if they differ")]
    own: Annotated[bool, doc("the runs' own thread")]
    colour: Annotated[int, doc("0 for the own thread, then 1 to 6 by time on the paths")]
    host: Annotated[str, doc("of several hosts, the one that it is on")] = ""


class MeanStretch(Part):
    """What one thread did, in the mean over a group's runs."""

    thread: Annotated[int, doc("place in the list of threads")]
    doing: Annotated[Doing, doc("what it did")]
    lead: Annotated[bool, doc("the own thread's first stretch of running")]
    time: Annotated[Number, doc("mean time (ns)")]
    visits: Annotated[Number, doc("mean number of stretches")]


class MeanPath(Part):
    """The mean critical path of a group: its stretches add up to the mean duration."""

    group: Annotated[Group, doc("all before, all after; of these, the slow ones and the rest")]
    executions: Annotated[int, doc("how many")]
    mean: Annotated[Number, doc("their mean duration, before as their kind's (ns)")]
    stretches: Annotated[list[MeanStretch], doc("in the same order for all groups of a kind")]


class KindEntry(Part):
    """A kind of runs (a label), before and after: normal first, then sample."""

    label: Annotated[str, doc("its name, '' where runs have none")]
    change: Annotated[Change, doc("what became of it; few: too few on one side to judge")]
    executions: Annotated[Span, doc("how many")]
    slow: Annotated[int, doc("the runs after that stand out")]
    mean: Annotated[MaybePair, doc("mean duration, before in the mix of types of after (ns)")]
    slowest: Annotated[MaybePair, doc("longest duration (ns)")]
    p50: Annotated[MaybePair, doc("median (ns)")]
    p95: Annotated[MaybePair, doc("95th percentile (ns), null with fewer than 20 on a side")]
    p99: Annotated[MaybePair, doc("99th percentile (ns), null with fewer than 100 on a side")]
    usual: Annotated[MaybePair, doc("median of all before, and of the slow ones or all after (ns)")]
    means: Annotated[list[MeanPath], doc("mean paths, [] where there are too few")] = []
    affected: Annotated[
        int | None, doc("the runs after that have the change, null where nothing is slower")
    ] = None
    affected_low: Annotated[int | None, doc("least of its 95 % interval")] = None
    affected_high: Annotated[int | None, doc("most of it")] = None
    slow_mean: Annotated[
        Maybe, doc("mean of the slow ones (ns); null for none, and in files of earlier versions")
    ] = None
    medians: Annotated[list[int], doc("positions of the runs of median duration, -1 for none")] = (
        field(default_factory=lambda: [-1, -1])
    )


class DrawnPath(Part):
    """A critical path as it is drawn: interrupts below 1 % of what they cut are folded."""

    set: Annotated[SetName, doc("which set the run is of")]
    position: Annotated[int, doc("its place there")]
    steps: Annotated[
        list[list[int]],
        doc("begin after the run's (ns), length (ns), place in threads, place in doings"),
    ]
    hairs: Annotated[list[int], doc("when interrupts began that were folded (ns)")] = []
    beneath: Annotated[
        list[int],
        doc("of each step what its thread did meanwhile, -1 where that is the step; [] for none"),
    ] = []
    crossings: Annotated[
        list[list[int]],
        doc("between hosts: when (ns), from, to (threads), how unsure (ns; -1: not known)"),
    ] = []
    inferred: Annotated[
        list[list[int]],
        doc("changes of thread that are inferred: when (ns), and how sure (per mille)"),
    ] = []


FlameKind = Literal["all", "label", "thread", "frame", "state", "rest"]


class FlameEntry(Part):
    """A node of the flame graph: time of all runs, before and after."""

    parent: Annotated[int, doc("place of the node above in this list, -1 for the first")]
    kind: Annotated[
        FlameKind,
        doc(
            "everything, a kind, what is waited for, in which function, what a thread does, what "
            "is too small"
        ),
    ]
    name: Annotated[str, doc("label, thread's role, function or state; '' for none of them")]
    thread: Annotated[int, doc("place in the list of threads of who spends the time; -1: several")]
    before: Annotated[Number, doc("mean time of all runs (ns), in the sample's mix of kinds")]
    after: Annotated[Number, doc("mean time of all the runs after (ns)")]
    change: Annotated[
        Literal["", "more", "less"], doc("a test over all nodes supports that it grew or shrank")
    ] = ""
    p_value: Annotated[
        Maybe, doc("of the change, adjusted for all nodes; null where none was tested")
    ] = None
    executions: Annotated[list[int], doc("of both sets; [] as of the node above")] = []


class FlameNode(FlameEntry):
    """A node before threads have places in a list, with the runs of each."""

    role: str = ""  # of the thread that spends the time, "" for the execution's own


class Pictures(Part):
    """What the page draws, computed from all critical paths."""

    threads: Annotated[list[ThreadEntry], doc("who, by time on the paths")]
    doings: Annotated[list[Doing], doc("what a thread can do")]
    kinds: Annotated[list[KindEntry], doc("kinds, what lost most time first")]
    paths: Annotated[list[DrawnPath], doc("of medians, examined and slow runs")]
    flame: Annotated[
        list[FlameEntry],
        doc("where all time goes, each node behind the one above it; children add up to it"),
    ] = []
