"""Every note, warning and reason, declared once: its id, its level and its facts.

Judging makes these records; `critpath.text.notes` makes sentences of them, last.  An id is the
class's name in small letters, ``SomeExamined`` being ``some-examined``: it stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ClassVar, Final, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import asdict, replace

# What a reader should make of a note:
# doubt     no verdict can be given, or it cannot be trusted
# reason    why the verdict is what it is
# left-out  somebody who counts executions would miss some
# warning   to be known before the answer is believed
# note      how something was done, or what else differs
# usual     how critpath usually works
Level = Literal["doubt", "reason", "left-out", "warning", "note", "usual"]


def _id_of(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


class Fact(Struct, frozen=True):
    """Several facts that belong together."""


class Note(Struct, frozen=True, tag_field="id", tag=_id_of):
    """A note, a warning or a reason; its fields are its facts."""

    level: ClassVar[Level] = "note"

    @property
    def id(self) -> str:
        """What it is called in JSON, whatever the sentence is."""
        return str(type(self).__struct_config__.tag)


# What recorders and readers of traces say is a sentence from the beginning.
Remark = Note | str


def rename(remark: Remark, named: Callable[[str], str]) -> Remark:
    """Return a note with every text in it renamed."""
    if isinstance(remark, str):
        return named(remark)
    texts = {name: of for name, of in asdict(remark).items() if isinstance(of, str)}
    return replace(remark, **{name: named(text) for name, text in texts.items()})


UNNAMED: Final = "other"  # what sentences are called that are of no kind declared here


class Shift(Fact, frozen=True):
    """A state, or the total, is slower by so much (ns), in a type or, of kind -1, in all."""

    name: str
    effect: float
    kind: int = -1
    label: str = ""
    p_value: float | None = None


class Flagged(Fact, frozen=True):
    """What a rule flags: how many states, and whether the total."""

    rule: str
    states: int
    total: bool


class Faster(Fact, frozen=True):
    """By how much the total is faster (ns), the ends of the 95 % interval, the mean before.

    ``whole`` says that the total is that of all states.
    """

    effect: float
    low: float
    high: float
    mean: float
    whole: bool


class Shown(Fact, frozen=True):
    """The least change of the mean (ns) that would have shown, and of so many runs.

    ``whole`` says that the mean is that of all states.
    """

    effect: float
    mean: float
    whole: bool
    slow: tuple[int, float] | None = None


class ProbeDiffered(Fact, frozen=True, tag="probe"):
    """A probe took longer, or less long, in the sample: by what factor."""

    kind: str
    ratio: float


class ShareDiffered(Fact, frozen=True, tag="share"):
    """A share of the machine was another in the sample."""

    what: Literal["pressure", "others"]
    before: float
    after: float


# What a slow machine does not make.
SignKind = Literal["count", "new", "share", "kind", "quota", "clients", "blocked"]


_BRIDGED: Final = "bridged_"  # as recorders call what is a port of a bridge


class Passed(NamedTuple):
    """Devices of one kind that packets pass, in one set: ``names`` are empty where not known."""

    kind: str
    devices: int
    packets: float  # of an execution
    names: tuple[str, ...] = ()

    @property
    def on_bridge(self) -> bool:
        """Ports of a bridge: packets go on to other ports."""
        return self.kind.startswith(_BRIDGED)

    @property
    def plain_kind(self) -> str:
        """The kind, on a bridge or not."""
        return self.kind.removeprefix(_BRIDGED)


# What a recording, and its extraction, say of themselves.


class Saved(Note, frozen=True):
    """What a file was saved with: the id, and the sentence as it was worded then."""

    level = "warning"
    name: str
    text: str

    @property
    def id(self) -> str:
        """The id of what is said."""
        return self.name


class ExecutionChosen(Note, frozen=True):
    """What a run is was chosen, as nobody said it."""

    level = "usual"
    chosen: str
    why: str


class LabelledByField(Note, frozen=True):
    """A field of an event says of which kind runs are."""

    level = "usual"
    field: str
    event: str


class WithoutEvents(Note, frozen=True):
    """Runs are of threads that no event of the scheduler names."""

    level = "warning"
    executions: int


class IncompleteExecutions(Note, frozen=True):
    """Runs were left out, as their begin or end was not recorded."""

    level = "warning"
    executions: int


class RepairedSwitches(Note, frozen=True):
    """Context switches that the kernel did not write were put in: of how many in all."""

    level = "warning"
    inserted: int
    total: int


# Kinds of events without which a path has holes.
Unrecorded = Literal["wakes", "states", "interrupts", "exits"]


class NotRecorded(Note, frozen=True):
    """Events, or a field of them, were not recorded; by what tool they can be next time."""

    level = "warning"
    missing: tuple[Unrecorded, ...]
    tool: str


class RecordingInMemory(Note, frozen=True):
    """A recording could not be read piece by piece, and why."""

    level = "usual"
    recording: str
    why: str


class StoreTriedAgain(Note, frozen=True):
    """An object store was asked again, as it had not answered well: which URL, why, how often."""

    url: str
    why: str
    times: int


class ExecutionInMemory(Note, frozen=True):
    """A run was larger than --max-memory (bytes)."""

    level = "usual"
    segments: int
    size: float


class LossyExecutions(Note, frozen=True):
    """Runs, of all, overlap a loss of events."""

    level = "warning"
    lossy: int
    total: int


class NotInBaseline(Note, frozen=True):
    """A baseline does not keep every run of a recording: so many of all are left out."""

    level = "warning"
    recording: str
    left_out: int
    total: int


class ExecutionsWhole(Note, frozen=True):
    """Runs, of all of a recording with gaps, were recorded whole; the gaps' time in ns."""

    level = "warning"
    whole: int
    total: int
    gaps: int
    gaps_ns: int


class ExecutionsChosen(Note, frozen=True):
    """Runs were chosen by chance; others were cut, or lay whole in the time of others."""

    level = "warning"
    chosen: int
    cut: int
    bystanders: int


class ChancesEvened(Note, frozen=True):
    """Runs of a kind were drawn again, as their chance had changed from low to high."""

    level = "warning"
    kind: str
    low: float
    high: float
    kept: int
    total: int


class RecordedTook(Note, frozen=True):
    """How much longer recorded runs took than others; the 95 % interval."""

    level = "warning"
    more: float
    low: float
    high: float


class RequestsFound(Note, frozen=True):
    """Requests were found, and all is sure of them; shares by how sure two things are."""

    level = "usual"
    total: int
    services: int
    begin: tuple[tuple[str, float], ...]
    attribution: tuple[tuple[str, float], ...]


class RequestsFoundInPart(Note, frozen=True):
    """Requests were found, not all of them surely; what became of others, how they were found."""

    level = "warning"
    total: int
    services: int
    begin: tuple[tuple[str, float], ...]
    attribution: tuple[tuple[str, float], ...]
    others: tuple[tuple[str, int], ...]
    way: str
    rings: int


class RequestsLeftOut(Note, frozen=True):
    """By service, what gaps leave out: see `critpath.requests.left_out.count_left_out`."""

    level = "left-out"
    services: tuple[tuple[str, tuple[tuple[str, int], ...]], ...]


class PoolHeld(Note, frozen=True):
    """Connections of a pool were all held, and requests waited for one.

    Attributes
    ----------
    service, target : str
        Whose they are, and whom they lead to.
    size : int
        How many were open at a time at most.
    held : float
        Share of the time in which all were held.
    waits : int
    mean_ns : float
    """

    level = "usual"
    service: str
    target: str
    size: int
    held: float
    waits: int
    mean_ns: float


class LoopBlocked(Note, frozen=True):
    """A loop slept while requests waited for it.

    Attributes
    ----------
    service : str
        Whose loop it is.
    target : str
        Whom it called meanwhile; "" for no call.
    share : float
        Of the time between its first and its last request.
    waits : int
        How often something was there that it took only then.
    mean_ns : float
        How long that was there before, on average.
    """

    level = "usual"
    service: str
    target: str
    share: float
    waits: int
    mean_ns: float


class MessagesPassed(Note, frozen=True):
    """Messages went through a broker, and what was done for them are requests.

    Attributes
    ----------
    service, broker : str
        Of who took them, and whose queue it is.
    producers : tuple of (str, int)
        Services whose requests put them there, the most frequent first; "" where none is known.
    messages : int
    waited_ns, longest_ns : float
        Between being put there and being received: on average, and 99 % of them at most.
    before : float
        How many were there before each, on average.
    """

    level = "usual"
    service: str
    broker: str
    producers: tuple[tuple[str, int], ...]
    messages: int
    waited_ns: float
    longest_ns: float
    before: float


class RequestsWithoutClient(Note, frozen=True):
    """Requests were left out, as they have no times at their clients."""

    level = "warning"
    requests: int


class SocketsUnnamed(Note, frozen=True):
    """The kernel did not tell sockets apart: requests were found by system calls."""

    level = "warning"


class PathsDoubtful(Note, frozen=True):
    """Of requests, of all, it is not known well enough what they asked."""

    level = "warning"
    doubtful: int
    total: int


# The sets, and how they were recorded.

# Keys of the sets' environments that should be alike, and what each is called.
ENVIRONMENT: Final = {
    "kernel_release": "kernels",
    "tracer_name": "tracers",
    "recorded_on": "machines",
    "recorded_cpu": "processors",
    "recorded_cpus": "numbers of cpus",
    "recorded_profile": "profiles",
}


class OfSet(Note, frozen=True):
    """What is said of one set alone."""

    name: str
    said: Remark


class NamesReplaced(Note, frozen=True):
    """Names were replaced for a page that others see: how many of a kind; those of threads, too."""

    level = "warning"
    counts: tuple[tuple[str, int], ...]
    threads: bool


class DifferentEnvironments(Note, frozen=True):
    """Two sets differ in a key of `ENVIRONMENT`."""

    level = "warning"
    key: str
    normal: tuple[str, ...]
    sample: tuple[str, ...]


class DifferentPrograms(Note, frozen=True):
    """Two sets are of different programs."""

    level = "warning"
    normal: tuple[str, ...]
    sample: tuple[str, ...]


class UnknownArguments(Note, frozen=True):
    """Processes of programs that run what they are given are compared."""

    level = "warning"
    programs: tuple[str, ...]


class DifferentRecordings(Note, frozen=True):
    """The recordings of one set differ in a key of `ENVIRONMENT`."""

    level = "warning"
    key: str
    values: tuple[str, ...]


class EmptyRecording(Note, frozen=True):
    """A recording of a set has no run."""

    level = "warning"
    source: str


class SameExecutions(Note, frozen=True):
    """Some runs of the sample (or all) are in the normal set as well."""

    level = "warning"
    common: int
    total: int


class OtherPartner(Note, frozen=True):
    """A set was recorded in alternation with one that it is not compared with."""

    level = "warning"
    name: str
    partners: tuple[str, ...]


class FoldedSymbols(Note, frozen=True):
    """The alphabet is full: rare symbols share a code."""

    level = "warning"
    count: int


class InOneSet(Note, frozen=True):
    """Only one set was recorded with something, or none."""

    level = "warning"
    name: str
    what: str


class PartialComparison(Note, frozen=True):
    """Most runs before are of types that no run after is of.

    ``unused`` are (type, runs), the largest first.
    """

    level = "warning"
    used: int
    total: int
    types: tuple[int, ...]
    unused: tuple[tuple[int, int], ...]


class MachineDiffered(Note, frozen=True):
    """The machine was not the same while the two sets were recorded."""

    level = "warning"
    differences: tuple[ProbeDiffered | ShareDiffered, ...]


class DifferentRoutes(Note, frozen=True):
    """Packets of the two sets pass other devices: kinds, their number, packets a run."""

    level = "warning"
    routes: tuple[tuple[Passed, ...], ...]
    deferred: tuple[float, ...]
    devices: tuple[float, ...]


class SomeExamined(Note, frozen=True):
    """Not every run that stands out was aligned."""

    level = "usual"
    examined: int
    total: int


# Which requests of two sets are compared.


class JoinedKinds(Note, frozen=True):
    """Requests of services ask others than before."""

    level = "warning"
    services: tuple[str, ...]


class NewServices(Note, frozen=True):
    """Requests after, of all, are of services that hardly any before were of (mean in ns)."""

    level = "left-out"
    services: tuple[str, ...]
    requests: tuple[int, int]
    mean: float


class RareKinds(Note, frozen=True):
    """Requests after are of a kind that hardly any before were of."""

    level = "warning"
    requests: int


class NewClients(Note, frozen=True):
    """New clients, of a kind, asked for something else: requests, of all, and their mean (ns)."""

    level = "left-out"
    what: str
    clients: tuple[str, ...]
    requests: tuple[int, int]
    mean: float


class GoneClients(Note, frozen=True):
    """Requests before are of clients, of a kind, that did not ask any more."""

    level = "left-out"
    what: str
    requests: int
    total: int


# Types of executions, and their pairs.


class SingleType(Note, frozen=True):
    """All runs have the same counts."""

    executions: int


class NoDenseGroup(Note, frozen=True):
    """The clustering found noise only."""


class NoiseAssigned(Note, frozen=True):
    """Noise joined the type of its nearest neighbour."""

    noise: int
    total: int


class NoisePaired(Note, frozen=True):
    """Noise of the sample was paired with normal types run by run."""

    noise: int
    total: int


class DividedClusters(Note, frozen=True):
    """Sample clusters were divided."""

    count: int


class WeakPairs(Note, frozen=True):
    """Sample clusters have a negative silhouette with every normal type."""

    clusters: int


class NovelExecutions(Note, frozen=True):
    """Sample runs are farther from every normal type than its members are."""

    executions: int


# Single executions that stand out.


class LowSupport(Note, frozen=True):
    """Runs are compared with a small type."""

    executions: int
    least: int


class LoneReferences(Note, frozen=True):
    """Runs before are each the only one of its type."""

    executions: int


class FewReferences(Note, frozen=True):
    """Conformal p-values have a least value."""

    scores: int


class SplitConformal(Note, frozen=True):
    """The sets are too large for full conformal prediction."""

    references: int
    executions: int


class BeyondReferences(Note, frozen=True):
    """Runs score higher than every normal one, and chance does so too often."""

    count: int
    executions: int
    references: int
    needed: int


class NewType(Note, frozen=True):
    """Runs are of a type that the normal set does not have."""

    executions: int
    anomalous: int


# The tests of states and of the total.


class FewPermutations(Note, frozen=True):
    """The sets are too large for all permutations asked for."""

    permutations: int


class SessionsPermuted(Note, frozen=True):
    """Sessions, not runs, were permuted."""


class FewSessions(Note, frozen=True):
    """Whole sessions cannot be permuted."""

    normal: int
    sample: int


class RaisedFloor(Note, frozen=True):
    """The sessions' means ask for a higher floor than the settings (shares)."""

    floor: float
    raised: float


class TooSmallSets(Note, frozen=True):
    """No permutation test can reach the level."""

    normal: int
    sample: int
    alpha: float


class FasterSample(Note, frozen=True):
    """The sample is faster by more than the floor (ns)."""

    ns: float


class OtherMix(Note, frozen=True):
    """The shares of the types differ."""

    p_value: float


class Orphans(Note, frozen=True):
    """Sample runs have no normal ones of their type."""

    executions: int


class SlowerType(Note, frozen=True):
    """One type alone is slower in a state."""

    change: Shift


class AverageRuleSkipped(Note, frozen=True):
    """The paper's average rule needs a standard deviation."""


class MuteRatio(Note, frozen=True):
    """The paper's probability rule cannot fire for some columns."""

    t2: float
    names: tuple[str, ...]
    columns: int


class StatesLeftOut(Note, frozen=True):
    """States do not decide; with them the total (effect in ns, p) is another.

    ``states`` are (name, level); ``total`` is None where the total alone decides.
    """

    states: tuple[tuple[str, str], ...]
    total: tuple[float, float] | None


class LevelWarning(Note, frozen=True):
    """A state of level warn is slower."""

    level = "warning"
    change: Shift


# Alignments.


class AlignedByProfiles(Note, frozen=True):
    """The posteriors would cost too much."""

    level = "warning"
    paths: int
    longest: int


class TooUnlike(Note, frozen=True):
    """Paths have too little in common for posteriors."""

    level = "warning"
    paths: int
    longest: int


class NotRefined(Note, frozen=True):
    """A pass of refinement would cost too much."""

    level = "warning"
    paths: int
    columns: int


class UntestableColumns(Note, frozen=True):
    """Too few normal rows for the leave-one-out comparison."""

    normals: int


class BluntColumns(Note, frozen=True):
    """Too few normal rows for a single column to be significant."""

    normals: int
    least: int


# Why a verdict cannot be given.


class SufficientRecording(Note, frozen=True):
    """How long (s), or under which budget, enough runs would have been recorded."""

    level = "doubt"
    name: str
    executions: int
    seen: int
    wanted: int
    seconds: float
    overhead: float


class LossySet(Note, frozen=True):
    """A set lost too much for a verdict."""

    level = "doubt"
    name: str
    events: int
    packets: int
    ranges: int
    affected: int
    total: int


class MissingRuns(Note, frozen=True):
    """A set's traces lack runs that its recorder counted."""

    level = "doubt"
    name: str
    missing: int
    total: int


class RequestsDoubtful(Note, frozen=True):
    """Of too many requests of a set the begin or the end is in doubt; at which ports by sharing."""

    level = "doubt"
    name: str
    doubtful: int
    shared: tuple[tuple[int, int], ...]
    total: int


class RequestsUnsure(Note, frozen=True):
    """Too many requests of a set were left out because it is not sure what they asked."""

    level = "doubt"
    name: str
    unsure: int
    total: int


class EventsInOneSet(Note, frozen=True):
    """A set lacks events that tell what was waited for, and the other has them."""

    level = "doubt"
    name: str
    missing: tuple[Unrecorded, ...]


class SmallSet(Note, frozen=True):
    """A set has fewer runs than the settings ask for."""

    level = "doubt"
    name: str
    executions: int
    minimum: int


class NothingInCommon(Note, frozen=True):
    """The sets share no type of run."""

    level = "doubt"


class TooFewExecutions(Note, frozen=True):
    """The permutation test cannot reach its level."""

    level = "doubt"
    alpha: float
    needed: int


class UnboundedQuantile(Note, frozen=True):
    """The sets are too small for an interval of a percentile."""

    level = "doubt"
    name: str
    executions: tuple[int, ...]
    needed: int


class Unconfirmed(Note, frozen=True):
    """A difference is too large to be called none, and no test confirms it."""

    level = "doubt"
    effect: float
    low: float
    high: float
    alpha: float


class TooNoisy(Note, frozen=True):
    """A slowdown of the least share that has to show would not: what would (ns), and how many do.

    ``p_value`` where something differs all the same, though not surely the duration.
    """

    level = "doubt"
    shown: float
    mean: float
    least: float
    would_do: int
    p_value: float | None


class RivalHadCpu(Note, frozen=True):
    """Somebody else had the cpu, before and after (ns), and all took longer (share of the mean)."""

    level = "doubt"
    name: str
    before: float
    after: float
    share: float


class StrangersHadCpus(Note, frozen=True):
    """Strangers had the cpus: who (share), where, for how long before and after (ns), its share."""

    level = "reason"
    rivals: tuple[tuple[str, float], ...]
    cpus: tuple[int, ...]
    before: float
    after: float
    explains: float


class StrangerCame(Note, frozen=True):
    """A stranger came that has a cpu (-1: no single one) of runs (ns before and after)."""

    level = "doubt"
    rival: str
    cpu: int
    kinds: tuple[str, ...]
    before: float
    after: float


class SlowerAsMachine(Note, frozen=True):
    """A slowdown is such as a slower machine makes (share of the mean)."""

    level = "doubt"
    share: float
    waiting: bool


class StatesAsMachine(Note, frozen=True):
    """States are longer, the whole is not, and a machine can make that."""

    level = "doubt"


class WithinRecordings(Note, frozen=True):
    """Recordings of one program can differ by so much."""

    level = "doubt"
    slower: float
    beyond: float
    recordings: tuple[int, int]


# Why a verdict is what it is.


class NothingDecides(Note, frozen=True):
    """No state has the level error."""

    level = "reason"


class HiddenByLevels(Note, frozen=True):
    """A baseline refuses what the levels of states let pass."""

    level = "warning"


class SplitsCut(Note, frozen=True):
    """A calibration judged fewer divisions than it was asked for, as its time was over."""

    judged: int
    asked: int
    size: int
    level = "warning"


class OutlyingExecutions(Note, frozen=True):
    """Runs of an anomaly stand out."""

    level = "reason"
    count: int
    total: int


class OutliersAlone(Note, frozen=True):
    """Runs stand out, and the sets do not differ."""

    level = "reason"
    count: int
    total: int


class BeyondRecordings(Note, frozen=True):
    """Recordings of one program do not differ by so much."""

    level = "reason"
    slower: float
    beyond: float
    recordings: tuple[int, int]


class ProgramSign(Note, frozen=True):
    """Something that a slow machine does not make; it tells that the program changed."""

    level = "reason"
    kind: SignKind
    name: str
    label: str
    before: float
    after: float
    effect: float


class Quantile(Note, frozen=True):
    """A percentile decides: how the sets differ in it."""

    level = "reason"
    name: str
    effect: float
    low: float | None
    high: float | None


class FlaggedByRule(Note, frozen=True):
    """Any rule fires: the largest difference, and how many states it flags."""

    level = "reason"
    name: str
    effect: float
    flagged: Flagged


class NotFlaggedByRule(Note, frozen=True):
    """Any rule fires for nothing."""

    level = "reason"
    rule: str


class FlaggedByGate(Note, frozen=True):
    """The gate fires: the largest change, how many runs are slower than any before."""

    level = "reason"
    largest: Shift
    slow: int
    flagged: Flagged


class NotFlaggedByGate(Note, frozen=True):
    """The gate fires for nothing: what is nearest, and what would have shown.

    ``decides`` says which states do: the total alone, some, or all.
    """

    level = "reason"
    alpha: float
    faster: Faster | None
    slight: Shift | None
    floor: float
    shown: Shown | None
    decides: Literal["total", "some", "all"]


NOTES: Final[dict[str, type[Note]]] = {
    str(kind.__struct_config__.tag): kind for kind in Note.__subclasses__()
}
# Of sentences that are made while a recording is made, or its trace is read.
SAID: Final = {
    "recorder-note": "The recorder notes something.",
    "tracefs-mounted": "The recorder mounted tracefs.",
    "clock-aligned": "A host's clock is aligned with another's, so surely.",
    "one-clock": "Two hosts have one kernel's clock.",
    "hosts-as-one": "Recordings of hosts are taken as one.",
    "claim-held": "Messages allow what operating systems say of their clocks.",
}
LEVELS: Final[dict[str, Level]] = {
    **dict.fromkeys(SAID, "usual"),
    **{name: kind.level for name, kind in NOTES.items()},
}
