"""The document of an exploration (``critpath explore --json``), and what others have for one."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from critpath.documents.base import Maybe, Number, Pair, Part, doc
from critpath.documents.requests import LeftOut


class ShareEntry(Part):
    """How many of some runs are selected."""

    count: Annotated[int, doc("selected ones")]
    of: Annotated[int, doc("all of them")]
    share: Annotated[Number, doc("count / of")]
    interval: Annotated[Pair, doc("its 95 % interval (Wilson)")]


class AlsoEntry(Part):
    """A condition that the same runs meet, or exactly the others."""

    condition: Annotated[str, doc("as --given takes it")]
    others: Annotated[bool, doc("it holds for the others, not for these")]


class ConditionEntry(Part):
    """A condition, and how much more of the runs that meet it are selected."""

    condition: Annotated[str, doc("as --given takes it")]
    words: Annotated[str, doc("as people say it")]
    known: Annotated[bool, doc("known when a run begins; else it happened on the way")]
    having: Annotated[ShareEntry, doc("of the runs that meet it")]
    without: Annotated[ShareEntry, doc("of the runs that do not")]
    difference: Annotated[Number, doc("of the two shares")]
    difference_interval: Annotated[Pair, doc("its 95 % interval (Newcombe)")]
    ratio: Annotated[Number, doc("of the two shares, a half added to each count")]
    ratio_interval: Annotated[Pair, doc("its 95 % interval (log-normal)")]
    z: Annotated[Number, doc("standardised difference, which ranks conditions")]
    p: Annotated[
        Maybe, doc("chance of so large a difference in any of the conditions; null: not judged")
    ]
    also: Annotated[list[AlsoEntry], doc("conditions that say the same")]
    also_words: Annotated[str, doc("these in words, '' for none")]


class StepEntry(Part):
    """A step to the runs that are looked at."""

    condition: Annotated[str, doc("as --given took it")]
    executions: Annotated[int, doc("how many are left")]


class QuestionEntry(Part):
    """What the selected runs (C2) among others (C1) have in common."""

    given: Annotated[list[StepEntry], doc("steps to C1")]
    what: Annotated[str, doc("C2, as --what takes it")]
    bound: Annotated[Maybe, doc("least duration (ns) if C2 is one, else null")]
    label: Annotated[str, doc("label or service of all of them, '' if they have several")]
    executions: Annotated[int, doc("in C1")]
    selected: Annotated[int, doc("of these in C2")]
    answer: Annotated[
        Literal["found", "nothing", "few"],
        doc("something in common, nothing that chance would not show, too few to judge"),
    ]
    sentences: Annotated[
        list[str],
        Meta(min_length=2, max_length=2, description="the answer in words: headline, figures"),
    ]
    small_print: Annotated[
        list[str],
        Meta(
            min_length=2,
            max_length=2,
            description="what the list leaves out, and how chance was judged",
        ),
    ]
    conditions: Annotated[
        list[ConditionEntry], doc("all that were looked at, by their standardised difference")
    ]
    part: Annotated[list[ConditionEntry], doc("parts of what was selected by: not judged")]
    looked: Annotated[int, doc("conditions that chance was judged over")]
    rare: Annotated[int, doc("conditions that fewer than 10 meet, or do not meet")]
    left_out: Annotated[int, doc("conditions that were more than are looked at")]
    shifts: Annotated[int, doc("circular shifts that chance was judged by, with none at all")]
    exact: Annotated[bool, doc("these are all that there are")]


class ClusterShare(Part):
    """Runs of one label and type, and for how long they wait in one piece (times in ns)."""

    label: Annotated[str, doc("label or service; '' for none")]
    cluster: Annotated[int, doc("its type, as the field cluster has it; 0 for none of its own")]
    words: Annotated[str, doc("what tells it from the label's others; '' where nothing does")]
    executions: Annotated[int, doc("how many")]
    latency: Annotated[Maybe, doc("the median")]
    idle_mean: Annotated[Maybe, doc("mean of the field idle.mean")]
    idle_variance: Annotated[Maybe, doc("mean of the field idle.variance (ns squared)")]
    cpu: Annotated[Maybe, doc("mean of the time that they wait for a cpu")]
    cpu_variance: Annotated[Maybe, doc("its variance (ns squared)")]


class ExplorationDocument(Part, kw_only=True):
    """What critpath explore --json writes."""

    format: Annotated[Literal["critpath/exploration/1"], doc("name and version of this format")]
    version: Annotated[str, doc("version of critpath that wrote it")]
    sources: Annotated[list[str], doc("recordings, as they were named")]
    specification: Annotated[str, doc("what a run is, as --execution says it")]
    noun: Annotated[Literal["execution", "request", "slice"], doc("what the runs are")]
    executions: Annotated[int, doc("executions")]
    labels: Annotated[dict[str, int], doc("runs of each label or service")]
    fields: Annotated[list[str], doc("what conditions can speak of")]
    questions: Annotated[list[QuestionEntry], doc("the answers")]
    notes: Annotated[list[str], doc("what a reader must know")]
    clusters: Annotated[
        list[ClusterShare],
        doc("labels and types; first those that wait most for a cpu, all together"),
    ] = []


# What a comparison keeps of requests, so that they can be explored.


class AccountEntry(Part):
    """What became of all that the servers of a set were asked."""

    requests: Annotated[int, doc("that are judged by themselves")]
    doubtful: Annotated[int, doc("of these, whose begin or end is in doubt")]
    incomplete: Annotated[int, doc("without an answer, or cut by the recording's ends")] = 0
    unsolicited: Annotated[int, doc("answers to nothing")] = 0
    skipped: Annotated[int, doc("left out by skip=")] = 0
    busy_periods: Annotated[int, doc("times in which several were under way at once")] = 0
    unattributed: Annotated[int, doc("sub-requests of which nobody knows for whom")] = 0
    streams: Annotated[int, doc("answered in pieces, as long as their stream lasts")] = 0
    left_out: Annotated[
        dict[str, LeftOut],
        doc("by service, what times leave out that were not recorded; of several recordings, sums"),
    ] = {}


class AskEntry(Part):
    """Of whom a request asked something."""

    service: Annotated[str, doc("who was asked")]
    times: Annotated[int, doc("how often")]


class RequestEntry(Part):
    """What is known of a run that is a request of a server (times in ns)."""

    service: Annotated[str, doc("whose request it is")]
    parent: Annotated[str, doc("id of the request whose sub-request it is; '' for none")]
    true: Annotated[int, doc("its own time, without that of its sub-requests")]
    asked: Annotated[int, doc("for how long some sub-request was under way")]
    queued: Annotated[int, doc("from its arrival until it was received")]
    bytes_in: Annotated[int, doc("what was asked")]
    bytes_out: Annotated[int, doc("what was answered")]
    threads: Annotated[int, doc("how many worked for it")]
    boundary: Annotated[str, doc("how sure begin and end are")]
    attribution: Annotated[str, doc("how sure it is what it asked")]
    asks: Annotated[list[AskEntry], doc("the services that it asked")]
    message: Annotated[str, doc("what its first bytes call it; '' if that was not recorded")] = ""
    trace_id: Annotated[str, doc("of its traceparent, 32 hex digits; '' for none")] = ""
    client: Annotated[str, doc("the process that asked, or its address; '' not known")] = ""
