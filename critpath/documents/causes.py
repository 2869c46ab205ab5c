"""What differs in runs that take longer, and what they have in common: findings, causes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from critpath.documents.base import Figure, Maybe, MaybePair, Number, Part, Span, doc
from critpath.schema.causes import Sureness
from critpath.schema.kinds import State

if TYPE_CHECKING:
    StateName = str
else:
    StateName = Literal[tuple(State.__members__)]

Counted = Literal["trips", "waits", "iterations", "segments"]


class FindingPart(Part):
    """What one kind of difference contributes to a finding."""

    kind: Annotated[str, doc("as of the finding")]
    contribution: Annotated[Figure, doc("nanoseconds, of either sign")]


class FindingEntry(Part):
    """One difference of an anomalous run from its normal group."""

    execution: Annotated[str, doc("id of the run after")]
    position: Annotated[int, doc("its place in the sample set")]
    rank: Annotated[int, doc("order among the run's findings, from 1")]
    columns: Annotated[Span, doc("first column of the alignment and one past the last")]
    kind: Annotated[str, doc("new-state, extra, longer, missing, shorter or loop-count")]
    state: Annotated[StateName, doc("the state that differs")]
    role: Annotated[str, doc("as of the symbol")]
    detail: Annotated[str, doc("qualifier, such as which device, or who had the processor")]
    comm: Annotated[str, doc("name of the thread the time was spent on")]
    before: Annotated[str, doc("what the path was doing just before")]
    tid: Annotated[int, doc("that thread")]
    begin: Annotated[int, doc("where it begins, in ns of the sample trace's clock")]
    end: Annotated[int, doc("where it ends")]
    observed: Annotated[Figure, doc("time in this run (ns)")]
    expected: Annotated[Figure, doc("mean time in the normal group (ns)")]
    contribution: Annotated[
        Figure, doc("the difference (ns); with the unexplained rest it adds up to the excess")
    ]
    share: Annotated[Maybe, doc("of the run's excess, null if that is not positive")]
    probability: Annotated[Figure, doc("share of the normal group that has this state here")]
    parts: Annotated[list[FindingPart], doc("the contribution by kind, the largest first")]
    abnormal: Annotated[bool, doc("odder than what the runs before do among themselves")]
    p: Annotated[Maybe, doc("the least p-value of its columns")]
    offset: Annotated[Figure, doc("time that only moved from or to another state (ns)")]
    iterations: Annotated[Maybe, doc("how often this run ran the loop it is about, null for none")]
    normal_iterations: Annotated[
        MaybePair, doc("mean and standard deviation of that in the normal group")
    ]
    place: Annotated[str, doc("as of the symbol")] = ""


class CodePlace(Part):
    """A place in the code that a thread was in."""

    location: Annotated[str, doc("function (file:line)")]
    share: Annotated[Number, doc("of the time in known places")]


class Because(Part):
    """What a difference is due to (ns): the parts add up to it."""

    visits: Annotated[int, doc("what is done more often, with the waits for a CPU of it")] = 0
    length: Annotated[int, doc("what takes longer each time, with the waits for a CPU of it")] = 0
    crowding: Annotated[int, doc("CPUs that threads of the program itself had more of")] = 0
    machine: Annotated[int, doc("CPUs that strangers, and interrupts, had more of")] = 0
    nobody: Annotated[int, doc("idle CPUs: a quota held it back, or it began late")] = 0


class RivalShare(Part):
    """Who had the CPU that was waited for."""

    name: Annotated[str, doc("the family of its names")]
    share: Annotated[
        Number, doc("of what these waits grew beyond what longer work makes them, or fell")
    ]
    before: Annotated[Number, doc("of these waits before")]
    after: Annotated[Number, doc("of these waits after")]
    ours: Annotated[bool, doc("it is of the program itself")] = False
    kin: Annotated[str, doc("what it is to who waited, as in paths; '' if not known")] = ""
    place: Annotated[
        str, doc("the container, pod or service that it is in, if another; '' if not known")
    ] = ""


class CauseFacts(Part):
    """What a cause's sentence says, each fact by itself."""

    state: Annotated[StateName, doc("the state that the time was spent in")]
    role: Annotated[str, doc("the thread that it was spent on, as of the symbol; '' for its own")]
    comm: Annotated[str, doc("name of that thread, or its role where there are several")]
    tids: Annotated[list[int], doc("ids of these threads, as far as they are known")]
    peer: Annotated[
        str,
        doc("the other thread to blame: it was waited for, or had the processor; '' for none"),
    ]
    device: Annotated[str, doc("the disk, interrupt or softirq that was waited for; '' for none")]
    call: Annotated[str, doc("the system call it was in, '' if not known or not the same")]
    kind: Annotated[str, doc("as of the finding that the sentence names first")]
    counted: Annotated[
        Counted,
        doc("what is counted: trips to the thread, waits, rounds of a loop, segments"),
    ]
    count_before: Annotated[Maybe, doc("how often a run before does that")]
    count_after: Annotated[Maybe, doc("how often one of these runs does")]
    time_before: Annotated[Maybe, doc("time in it of a run before (ns)")]
    time_after: Annotated[Maybe, doc("time in it of one of these runs (ns)")]
    share: Annotated[Maybe, doc("of the excess of all runs that were examined")]
    executions: Annotated[int, doc("how many it concerns")]
    of: Annotated[int, doc("of how many")]
    certainty: Annotated[
        Sureness,
        doc("inferred: from an idle processor, a quota or time-outs; unknown: no event says why"),
    ]
    local: Annotated[
        bool | None,
        doc("of a wait for a packet, whether it came from this host; null where nothing tells"),
    ] = None
    peer_share: Annotated[
        Maybe, doc("in what share of a wait for a disk the peer's requests kept it busy")
    ] = None
    elsewhere_idle: Annotated[
        Maybe, doc("in what share of a wait for a processor another one was idle")
    ] = None
    cpu: Annotated[
        int | None,
        doc("the processor that nearly all these waits were for; null if several"),
    ] = None
    control_group: Annotated[
        str, doc("the control group whose limit held the thread; '' for none")
    ] = ""
    limit: Annotated[str, doc("that limit, such as '4.00 ms in each 10.0 ms'")] = ""
    meanwhile: Annotated[
        str,
        doc("of a wait behind others' requests, what the thread did meanwhile; '' for several"),
    ] = ""
    meanwhile_before: Annotated[Maybe, doc("time in that of a run before (ns)")] = None
    meanwhile_after: Annotated[Maybe, doc("time in that of one of these runs (ns)")] = None
    loop: Annotated[
        str, doc("of such a wait, the service whose loop worked for others; '' where it is none")
    ] = ""
    request: Annotated[
        str, doc("what the requests are called that it worked for, mostly; '' if not known")
    ] = ""
    asks: Annotated[
        str, doc("whom the loop was blocked in a call to, mostly; '' if it was in none")
    ] = ""
    under_way: Annotated[
        Maybe, doc("how many requests it had not answered then, on average; null if not known")
    ] = None
    connections: Annotated[
        int, doc("of a wait for a connection, how many lead to that device; 0 where it is none")
    ] = 0
    held: Annotated[
        Maybe, doc("for which share of that time (%) requests called so held them, on average")
    ] = None
    through_before: Annotated[
        Maybe, doc("through how many threads of the last of `through` a run before waits")
    ] = None
    through_after: Annotated[
        Maybe, doc("through how many of them, one after the other, one of these waits")
    ] = None
    host: Annotated[str, doc("of several hosts, the one that has that processor")] = ""
    location: Annotated[
        str, doc("where in the code the thread was: function (file:line); '' if not known")
    ] = ""
    caller: Annotated[
        str, doc("the function of the project that called that; '' where it is one itself")
    ] = ""
    locations: Annotated[
        list[CodePlace],
        doc("of stacks, all such places, the one with most time first"),
    ] = []
    waits_at: Annotated[
        str, doc("of another thread, where in its own code the run waits for it")
    ] = ""
    waker_location: Annotated[str, doc("of a wait, where the thread was that ended it")] = ""
    route: Annotated[
        str, doc("of the network's work, what packets pass instead of what before; '' if the same")
    ] = ""
    kin: Annotated[
        str,
        doc("what who had the processor, or that thread, is to who waited, as in paths"),
    ] = ""
    place: Annotated[
        str, doc("where who had the processor, or that thread, is; '' where the run is")
    ] = ""
    kernel_before: Annotated[
        Maybe, doc("of runs, what the kernel ran for a normal one (ns); null where not counted")
    ] = None
    kernel_after: Annotated[Maybe, doc("what it ran for one of the sample (ns)")] = None
    faults_before: Annotated[
        Maybe, doc("of runs, page faults of a normal one; null where not counted")
    ] = None
    faults_after: Annotated[Maybe, doc("page faults of a run of the sample")] = None
    because: Annotated[
        Because | None, doc("what the contribution is due to; null in files of earlier versions")
    ] = None
    brought: Annotated[
        bool, doc("its waits for a CPU grew as its work did: who had the CPU is no cause")
    ] = False
    work_before: Annotated[Maybe, doc("time that the thread runs, of a run before (ns)")] = None
    work_after: Annotated[Maybe, doc("time that it runs, of one of these runs (ns)")] = None
    rivals: Annotated[
        list[RivalShare],
        doc("of a wait for a CPU, who had more of it than before; the largest share first"),
    ] = []
    through: Annotated[
        list[str], doc("threads that wait for one another on the way to this one, in order")
    ] = []
    cause_id: Annotated[
        str, doc("its kind, as docs/what-next.md lists them; '' in files of earlier versions")
    ] = ""


class CauseEntry(Part):
    """Findings that have something in common, and the sentence about them."""

    sentence: Annotated[str, doc("what happened, to how many, how long it takes, and before")]
    findings: Annotated[list[int], doc("places in the list of findings")]
    executions: Annotated[list[str], doc("ids of the runs")]
    positions: Annotated[list[int], doc("their places in the sample set")]
    contribution: Annotated[Figure, doc("mean per run that it concerns (ns)")]
    share: Annotated[
        Maybe,
        doc("of what all runs that were examined lost; those of all add up to 1 at most"),
    ]
    main: Annotated[int, doc("the finding that the sentence names first")]
    minor: Annotated[bool, doc("less than 5 % of that excess: summaries count these together")]
    facts: Annotated[
        CauseFacts | None, doc("what the sentence says, for programs; null in older files")
    ] = None
    probability: Annotated[
        Maybe,
        doc("how likely it is what made them slower; null for what takes less, and in old files"),
    ] = None
