"""The JSON documents that critpath writes and reads back, as types.

A type is the schema: `docs/schema/` and the reference are made from these classes, and a saved
file is checked against them.  Every key has its meaning in its annotation.  Keys with a default
may be missing, as in the first files of a version; keys that are not here are passed over, as
later versions may add some.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, UnsetType

from critpath.documents.base import (
    Figure,
    Maybe,
    MaybePair,
    Number,
    Pair,
    Part,
    SetName,
    Settings,
    Span,
    doc,
)
from critpath.documents.calibration import (
    CALIBRATION_FORMAT,
    Calibrated,
    CalibrationDocument,
    DetectableEntry,
    FalseAlarmsEntry,
    FloorEntry,
    LackEntry,
    RateEntry,
    RecordingEntry,
    ShiftKind,
    SplitKind,
)
from critpath.documents.causes import (
    Because,
    CauseEntry,
    CauseFacts,
    CodePlace,
    FindingEntry,
    FindingPart,
    RivalShare,
    StateName,
)
from critpath.documents.clocks import (
    CLOCKS_FORMAT,
    ClocksDocument,
    HostEntry,
    HostWaitEntry,
)
from critpath.documents.executions import SETS, ExecutionEntry, column_of, marked_of, rows_of
from critpath.documents.exploration import AccountEntry, ExplorationDocument, RequestEntry
from critpath.documents.incidents import (
    INCIDENT_FORMAT,
    IncidentDocument,
)
from critpath.documents.known import (
    CHECK_FORMAT,
    KNOWN_FORMAT,
    CheckDocument,
    KnownDocument,
    KnownEntry,
)
from critpath.documents.look import LOOK_FORMAT, LookDocument
from critpath.documents.pictures import (
    Change,
    DrawnPath,
    FlameEntry,
    Group,
    KindEntry,
    MeanPath,
    MeanStretch,
    Pictures,
    ThreadEntry,
)
from critpath.documents.requests import REQUESTS_FORMAT, RequestsDocument
from critpath.documents.signatures import SIGNATURE_FORMAT, SignatureDocument
from critpath.documents.trend import TREND_FORMAT, TrendDocument
from critpath.schema.causes import Doing
from critpath.schema.notes import SignKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

COMPARISON_FORMAT: Final = "critpath/comparison/1"
PATH_FORMAT: Final = "critpath/path/1"
AB_FORMAT: Final = "critpath/ab/1"
EXPLORATION_FORMAT: Final = "critpath/exploration/1"


Verdict = Literal["ok", "anomaly", "by_machine", "inconclusive"]
SLOWER: Final = frozenset({"anomaly", "by_machine"})
Level = Literal["off", "warn", "error"]
# More often; not there before; longer than the pace of the others makes it; one kind of execution
# slower than that of the others makes it; a limit that held; waits behind new clients' requests.


class LossPlace(Part):
    """Where events were lost."""

    begin: Annotated[int, doc("begin of the time it may lie in, in ns of the trace's clock")]
    end: Annotated[int, doc("end of that time")]
    host: Annotated[int, doc("which of the traced hosts, counted from 0")]
    cpu: Annotated[int, doc("on which processor, -1 if that is not known")]
    events: Annotated[int, doc("events lost there")]
    packets: Annotated[int, doc("packets lost there")]
    reason: Annotated[str, doc("how it is known")]


class LossSummary(Part):
    """What the tracer lost of one set."""

    events: Annotated[int, doc("events that the tracer lost")]
    packets: Annotated[int, doc("packets that the tracer lost")]
    places: Annotated[list[LossPlace], doc("where, the first of them")]
    places_left_out: Annotated[int, doc("how many places are not listed")]


class Window(Part):
    """The time that the runs of a set span."""

    begin: Annotated[int, doc("begin of the first run, in ns of the trace's clock")]
    end: Annotated[int, doc("end of the last run")]


class MachineEntry(Part):
    """What the machine was like while the recordings of a set were made: medians over them."""

    probes: Annotated[dict[str, float], doc("median time of each kind of probe (ns)")]
    pressure: Annotated[
        dict[str, float], doc("share of the time in which something waited for it (PSI)")
    ]
    others_cpu: Annotated[
        float | None, doc("share of all cpus that neither the command nor the recorder had")
    ] = None
    recorder_cpu: Annotated[float | None, doc("share of all cpus that the recorder had")] = None
    steal: Annotated[
        float | None,
        doc("share of all cpus that the host gave others; null: not told"),
    ] = None


class SetEntry(Part):
    """One of the two sets: where it came from and what is missing."""

    sources: Annotated[list[str], doc("recordings, as they were named")]
    specification: Annotated[str, doc("what a run is, as --execution says it")]
    executions: Annotated[int, doc("complete runs")]
    events: Annotated[int, doc("events that were read")]
    window: Annotated[Window | None, doc("the time they span, null without runs")]
    hosts: Annotated[list[str], doc("names of the hosts")]
    kernels: Annotated[list[str], doc("kernel releases")]
    tracers: Annotated[list[str], doc("tracers and their versions")]
    loss: Annotated[LossSummary, doc("what the tracer lost")]
    lossy: Annotated[int, doc("runs that overlap a loss")]
    incomplete: Annotated[int, doc("runs without a begin or an end, not counted")]
    notes: Annotated[list[str], doc("how the runs were found")]
    warnings: Annotated[list[str], doc("what a reader of this set must know")]
    machines: Annotated[list[str], doc("what was recorded on, where a recorder says it")] = []
    processors: Annotated[list[str], doc("models of the processors")] = []
    cpus: Annotated[list[str], doc("how many processors")] = []
    profiles: Annotated[list[str], doc("which set of events was recorded")] = []
    commands: Annotated[list[str], doc("what was run; of a baseline the program's name alone")] = []
    epochs: Annotated[
        list[int], doc("per source, what to add to a time for ns since 1970; 0 if not known")
    ] = []
    recorded: Annotated[
        list[str], doc("per source, when its first run began (UTC); '' if not known")
    ] = []
    machine: Annotated[
        MachineEntry | None, doc("what the machine was like; null where nothing measured it")
    ] = None
    requests: Annotated[AccountEntry | None, doc("of requests found without marks")] = None
    clocks: Annotated[list[HostEntry], doc("of several hosts, how each one's clock is known")] = []
    note_ids: Annotated[list[str], doc("the id of each of `notes`")] = []
    warning_ids: Annotated[list[str], doc("the id of each of `warnings`")] = []
    load: Annotated[
        list[float], doc("cpus that threads had, in equal slots from begin to end of the recording")
    ] = []


class Sets(Part):
    """What was compared."""

    normal: Annotated[SetEntry, doc("what is known to be good")]
    sample: Annotated[SetEntry, doc("what was judged")]

    def __getitem__(self, which: str) -> SetEntry:
        return self.normal if which == "normal" else self.sample


class SymbolEntry(Part):
    """A symbol of the alphabet that paths are written in."""

    name: Annotated[str, doc("the state, after an @ the role, after a colon the place")]
    state: Annotated[StateName, doc("the state")]
    role: Annotated[str, doc("which other thread the time was spent on; '' for the subject's own")]
    place: Annotated[str, doc("the function, where the alphabet tells functions apart")] = ""
    letter: Annotated[str, doc("the letter that stands for it in every report")] = ""


class StateEntry(Part):
    """The test of one symbol, or of the total."""

    state: Annotated[str, doc("name of the symbol, or total")]
    role: Annotated[str, doc("as of the symbol")]
    normal_mean: Annotated[
        Figure, doc("mean time in it, before, in the mix of types of the sample (ns)")
    ]
    sample_mean: Annotated[Figure, doc("mean time in it of a run after (ns)")]
    normal_std: Annotated[Figure, doc("standard deviation in the normal set (ns)")]
    effect: Annotated[Figure, doc("sample mean less normal mean, the mix of types taken out (ns)")]
    effect_low: Annotated[Maybe, doc("lower end of the effect's 95 % interval (ns)")]
    effect_high: Annotated[Maybe, doc("upper end of it")]
    p_value: Annotated[
        Figure, doc("of the permutation test, adjusted for everything that is tested")
    ]
    average_threshold: Annotated[Maybe, doc("the paper's average rule: fires above this mean (ns)")]
    normal_above: Annotated[Maybe, doc("share of the runs before above the normal mean")]
    sample_above: Annotated[Maybe, doc("share of the runs after above the normal mean")]
    probability_threshold: Annotated[
        Maybe, doc("the paper's t2 in force, null for Fisher's exact test")
    ]
    cliffs_delta: Annotated[
        Maybe, doc("how much more often longer than shorter, within types, -1 to 1")
    ]
    median_ratio: Annotated[
        Maybe, doc("typical sample over normal duration, null where half are 0")
    ]
    flagged: Annotated[bool, doc("slower by the rule in force")]
    new_state: Annotated[bool, doc("not in the normal set, or never varying there")]
    average_fires: Annotated[bool, doc("the paper's average rule fires")]
    probability_fires: Annotated[bool, doc("the paper's probability rule fires")]
    level: Annotated[
        Level, doc("what the state counts for when it is flagged; error if not given")
    ] = "error"
    normal_count: Annotated[
        Maybe, doc("how often a run before is in it, on average; null for the total")
    ] = None
    sample_count: Annotated[Maybe, doc("how often a run after is")] = None


class LevelEntry(Part):
    """A level, and the states that have it."""

    pattern: Annotated[str, doc("of a state's name")]
    level: Annotated[Level, doc("what it says of these")]


class DurationTest(Part):
    """The test of whole runs, whatever the levels of their states."""

    normal_mean: Annotated[
        Figure, doc("mean duration before, in the mix of types of the sample (ns)")
    ]
    sample_mean: Annotated[Figure, doc("mean duration of a run after (ns)")]
    effect: Annotated[Figure, doc("sample mean less normal mean, the mix of types taken out (ns)")]
    effect_low: Annotated[Maybe, doc("lower end of the effect's 95 % interval (ns)")]
    effect_high: Annotated[Maybe, doc("upper end of it")]
    p_value: Annotated[Figure, doc("of a test of everything, whatever its level")]


class SignEntry(Part):
    """Something that a slow machine does not make: a sign that the program changed."""

    kind: Annotated[
        SignKind,
        doc("more often, not there before, longer than its like, of one kind, a limit, a queue"),
    ]
    name: Annotated[str, doc("name of the symbol or of the kind of run, '' for neither")]
    label: Annotated[str, doc("the kind of run that it is in, '' for all")]
    before: Annotated[Maybe, doc("count, share of the runs or time (ns), normally")]
    after: Annotated[Maybe, doc("the same of the sample")]
    effect: Annotated[Maybe, doc("what it comes to in the mean of all the runs after (ns)")]
    sentence: Annotated[str, doc("the same in words")]


class PercentileEntry(Part):
    """A quantile of both sets' durations."""

    label: Annotated[str, doc("of which runs, '' for all")]
    name: Annotated[str, doc("p50, p95, p99")]
    q: Annotated[Number, doc("the quantile, 0 to 1")]
    normal: Annotated[Maybe, doc("of the normal set (ns), null without runs")]
    sample: Annotated[Maybe, doc("of the sample (ns)")]
    low: Annotated[
        Maybe,
        doc("lower end of the difference's 99 % interval (ns), null where the sets are too small"),
    ]
    high: Annotated[Maybe, doc("upper end of it")]
    executions: Annotated[list[int], doc("of the normal set and of the sample")]
    needed: Annotated[int, doc("runs of each set that give both ends")]

    @property
    def effect(self) -> float:
        """The difference, 0 where there is none."""
        return (self.sample or 0.0) - (self.normal or 0.0)


class SlowShown(Part):
    """Few runs that would have shown by how slow they are."""

    executions: Annotated[int, doc("how many")]
    by: Annotated[Figure, doc("how much slower than usual (ns)")]


class WorkEntry(Part):
    """The duration without the time that strangers had the CPUs."""

    mean: Annotated[Figure, doc("before, in the mix of types of the sample (ns)")]
    effect: Annotated[Figure, doc("by how much it is longer (ns)")]
    low: Annotated[Maybe, doc("lower end of its 95 % interval (ns)")]
    high: Annotated[Maybe, doc("upper end of it")]
    detectable: Annotated[Maybe, doc("smallest change of it that would have shown (ns)")]
    decides: Annotated[
        bool, doc("whether it surely is longer, while the whole may as well not be")
    ] = False
    taken: Annotated[Figure, doc("by how much longer strangers had the CPUs (ns)")] = 0.0
    surely: Annotated[bool, doc("whether they surely had them for longer")] = False


class UsualEntry(Part):
    """What became of the usual run, without the time that strangers had the CPUs."""

    change: Annotated[Figure, doc("by how much it takes longer (share)")]
    low: Annotated[Figure, doc("lower end of its 95 % interval (share)")]
    high: Annotated[Figure, doc("upper end of it; of several kinds the highest (share)")]


class WeatherRival(Part):
    """A stranger who had CPUs for longer than before."""

    name: Annotated[str, doc("its name, or what the names of several have in common")]
    share: Annotated[Figure, doc("of how much longer strangers had them")]
    place: Annotated[
        str, doc("the container, pod or service that it is in; '' if not known, or several")
    ] = ""


class WeatherEntry(Part):
    """What strangers did to the runs that became slower, where that explains most of it."""

    explains: Annotated[Figure, doc("share of the slowdown of these kinds that it explains")]
    effect: Annotated[Figure, doc("what it comes to in the mean of all the runs after (ns)")]
    kinds: Annotated[list[str], doc("kinds of run that it hit; [] for all")]
    rivals: Annotated[list[WeatherRival], doc("who had CPUs for longer, the largest share first")]
    cpus: Annotated[list[int], doc("where nearly all of it was; [] for no single CPU")]
    before: Annotated[Figure, doc("how long these kinds waited for strangers normally (ns)")]
    after: Annotated[Figure, doc("the same of the sample (ns)")]


class DetectionEntry(Part):
    """The tests as a whole."""

    rule: Annotated[str, doc("which rule decides: gate or paper")]
    flagged: Annotated[bool, doc("whether it found the sample slower")]
    alpha: Annotated[Figure, doc("level of the tests")]
    floor: Annotated[Figure, doc("increases of the total below this are not judged (ns)")]
    detectable: Annotated[Maybe, doc("smallest change of the mean that would have shown (ns)")]
    permutations: Annotated[int, doc("of each test")]
    enough: Annotated[bool, doc("whether there are runs enough to decide")]
    needed: Annotated[int, doc("how many the smaller set needs")]
    paper_false_alarms: Annotated[
        Maybe, doc("share of random splits of these runs in which the paper's rules fire")
    ]
    notes: Annotated[list[str], doc("what else there is to say of the tests")]
    minimum: Annotated[int, doc("how many runs each set is to have, 0 for any")] = 0
    levels: Annotated[list[LevelEntry], doc("levels of states, as set")] = []
    whole: Annotated[
        DurationTest | None,
        doc("duration with the states that levels leave out of the total; null where none is"),
    ] = None
    apart: Annotated[
        bool,
        doc("the sets were recorded at different times: an anomaly needs a sign or a spread"),
    ] = False
    signs: Annotated[
        list[SignEntry], doc("signs that the program changed, and not the machine")
    ] = []
    slow: Annotated[
        int, doc("the runs after that are slower than their number can be by chance")
    ] = 0
    slow_shown: Annotated[
        SlowShown | None, doc("few runs that would have shown; null for none")
    ] = None
    percentiles: Annotated[
        list[PercentileEntry], doc("of all runs, then of every kind that has a label")
    ] = []
    gate: Annotated[PercentileEntry | None, doc("the percentile that decides, null for none")] = (
        None
    )
    note_ids: Annotated[list[str], doc("the id of each of `notes`")] = []
    would_do: Annotated[
        int,
        doc("runs of each set that would show the least slowdown asked for; 0: these do"),
    ] = 0
    faster: Annotated[
        bool | None,
        doc("whether exchanged sets would be slower; null in files of earlier versions"),
    ] = None
    work: Annotated[WorkEntry | None, doc("null where nothing tells who had the CPUs")] = None
    weather: Annotated[
        WeatherEntry | None,
        doc("who made the sample slower by having the CPUs; null where that is not most of it"),
    ] = None
    usual: Annotated[
        UsualEntry | None,
        doc("null where too few runs tell, or several runs are far from the usual"),
    ] = None
    came: Annotated[
        WeatherEntry | None,
        doc("who came and has a CPU in some kinds, which are not surely slower; null if none did"),
    ] = None


class ClusterEntry(Part):
    """A group of like runs."""

    cluster: Annotated[int, doc("its number")]
    size: Annotated[int, doc("runs in it")]
    weak: Annotated[int, doc("of these, how many were noise and joined to it")]
    mean_duration: Annotated[Maybe, doc("their mean duration (ns)")]


class ClusteringEntry(Part):
    """How the runs of one set were grouped."""

    method: Annotated[str, doc("how runs were grouped")]
    notes: Annotated[list[str], doc("what there is to say of it")]
    clusters: Annotated[list[ClusterEntry], doc("the groups, which are types of runs")]
    ordering: Annotated[list[int], doc("runs in the order of OPTICS")]
    reachability: Annotated[
        list[Maybe], doc("reachability of each, in that order; null for infinite")
    ]
    note_ids: Annotated[list[str], doc("the id of each of `notes`")] = []


class PairEntry(Part):
    """A cluster of the sample and the normal one it is compared with."""

    sample: Annotated[int, doc("number of the sample's cluster")]
    normal: Annotated[int, doc("number of the normal cluster it is compared with")]
    score: Annotated[Maybe, doc("how alike they are, null where unknown")]
    weak: Annotated[bool, doc("the pair is doubtful")]
    novel: Annotated[bool, doc("the sample's cluster has no like")]


class Clusters(Part):
    """Types of runs, and which are compared with which."""

    normal: Annotated[ClusteringEntry, doc("of the normal set")]
    sample: Annotated[ClusteringEntry, doc("of the sample")]
    pairs: Annotated[list[PairEntry], doc("which are compared with which")]
    notes: Annotated[list[str], doc("what there is to say of the pairs")]
    note_ids: Annotated[list[str], doc("the id of each of `notes`")] = []

    def __getitem__(self, which: str) -> ClusteringEntry:
        return self.normal if which == "normal" else self.sample


class AlignedRow(Part):
    """One run in an alignment."""

    set: Annotated[SetName, doc("which set the run is of")]
    position: Annotated[int, doc("its place there")]
    id: Annotated[str, doc("its id")]
    symbols: Annotated[list[int], doc("per column a place in the list of symbols, -1 for a gap")]
    durations: Annotated[list[int], doc("per column nanoseconds, 0 for a gap")]


class AlignedStatistics(Part):
    """What was computed of every column of an alignment."""

    probability: Annotated[
        list[Maybe], doc("share of normal rows with the anomalous row's symbol, or gap")
    ]
    normal_probability: Annotated[
        list[Maybe], doc("share of normal rows with the most common symbol")
    ]
    mean: Annotated[
        list[Maybe],
        doc("mean duration of the normal rows that have the anomalous row's symbol (ns)"),
    ]
    std: Annotated[list[Maybe], doc("its standard deviation (ns)")]
    p_structure: Annotated[
        list[Maybe], doc("how many normal rows have as odd a state here, as a share")
    ]
    p_duration: Annotated[list[Maybe], doc("how many have as odd a duration, as a share")]
    normal_symbol: Annotated[list[int], doc("most common symbol of the normal rows, -1 for a gap")]
    contribution: Annotated[
        list[int], doc("number of normal rows times the column's part of the excess (ns)")
    ]
    abnormal_state: Annotated[list[bool], doc("the paper's rule on the state")]
    abnormal_duration: Annotated[list[bool], doc("the paper's rule on the duration")]
    missing: Annotated[list[bool], doc("a state that most normal rows have is not there")]
    abnormal: Annotated[list[bool], doc("the verdict on the column")]


class AlignedSegment(Part):
    """A segment of an anomalous run's path."""

    column: Annotated[int, doc("its column of the alignment")]
    begin: Annotated[int, doc("when it began, in ns of the trace's clock")]
    end: Annotated[int, doc("when it ended")]
    tid: Annotated[int, doc("the thread the time was spent on")]
    comm: Annotated[str, doc("name of the thread")]
    state: Annotated[StateName, doc("what it did")]
    detail: Annotated[str, doc("qualifier of the state")]
    cpu: Annotated[int, doc("on which processor, -1 if that is not known")] = -1
    host: Annotated[int, doc("on which of the traced hosts, counted from 0")] = 0
    elsewhere_idle: Annotated[
        int,
        doc("of a wait for a processor, how long another was idle meanwhile (ns); -1: not known"),
    ] = 0


class LoopEntry(Part):
    """A block of columns in which rows repeat one unit."""

    first: Annotated[int, doc("first column of the block")]
    last: Annotated[int, doc("one past its last column")]
    period: Annotated[int, doc("columns of one iteration")]
    iterations: Annotated[list[int], doc("how often each row runs it")]


class AlignedEntry(Part):
    """An anomalous run, aligned with its normal group."""

    execution: Annotated[str, doc("id of the anomalous run, the last of the rows")]
    position: Annotated[int, doc("its place in the sample set")]
    columns: Annotated[int, doc("columns of the alignment")]
    left_out: Annotated[int, doc("members of its normal group that were not aligned")]
    excess: Annotated[Maybe, doc("its duration less the mean of the normal rows (ns)")]
    unexplained: Annotated[Maybe, doc("what the findings leave of the excess (ns)")]
    score: Annotated[Maybe, doc("of the alignment")]
    tree: Annotated[str, doc("guide tree, Newick")]
    rows: Annotated[
        list[AlignedRow],
        Meta(min_length=1, description="the runs before, then the anomalous one"),
    ]
    statistics: Annotated[AlignedStatistics, doc("of every column")]
    note: Annotated[str, doc("what keeps the verdict on columns from being given or sharp")]
    segments: Annotated[list[AlignedSegment], doc("the anomalous run's path, in order")]
    loops: Annotated[list[LoopEntry], doc("blocks of columns in which rows repeat one unit")] = []


class Plane(Part):
    """Count vectors on their two widest directions."""

    normal: Annotated[list[Pair], doc("x and y of every run before")]
    sample: Annotated[list[Pair], doc("x and y of every run after")]
    explained: Annotated[Pair, doc("shares of the variance along x and y")]

    def __getitem__(self, which: str) -> list[Pair]:
        return self.normal if which == "normal" else self.sample


class OutliersEntry(Part):
    """Runs one by one."""

    anomalous: Annotated[int, doc("the runs after that stand out")]
    paper: Annotated[int, doc("those that stand out by the paper's rule")]
    notes: Annotated[list[str], doc("what there is to say of them")]
    note_ids: Annotated[list[str], doc("the id of each of `notes`")] = []
    affected: Annotated[
        int | None, doc("the runs after that have the change, null where nothing is slower")
    ] = None
    affected_low: Annotated[int | None, doc("least of its 95 % interval")] = None
    affected_high: Annotated[int | None, doc("most of it")] = None


class ComparisonDocument(Part):
    """What critpath compare --json writes."""

    format: Annotated[Literal["critpath/comparison/1"], doc("name and version of this format")]
    version: Annotated[str, doc("version of critpath that wrote it")]
    verdict: Annotated[Verdict, doc("the answer")]
    reasons: Annotated[list[str], doc("why, in sentences")]
    warnings: Annotated[list[str], doc("what a reader must know, in sentences")]
    settings: Annotated[Settings, doc("the settings in force")]
    sets: Annotated[Sets, doc("what was compared")]
    symbols: Annotated[list[SymbolEntry], doc("the alphabet of the paths")]
    states: Annotated[list[StateEntry], doc("a test per symbol, and last the total")]
    detection: Annotated[DetectionEntry, doc("the tests as a whole")]
    clusters: Annotated[Clusters, doc("types of runs")]
    plane: Annotated[Plane | None, doc("count vectors on their two widest directions")]
    outliers: Annotated[OutliersEntry, doc("runs one by one")]
    executions: Annotated[list[ExecutionEntry], doc("of both sets, the normal ones first")]
    findings: Annotated[list[FindingEntry], doc("differences of anomalous runs")]
    causes: Annotated[list[CauseEntry], doc("findings that have something in common")]
    aligned: Annotated[list[AlignedEntry], doc("anomalous runs with their groups")]
    pictures: Annotated[
        Pictures | None, doc("what the page draws; files before version 0.3 have none")
    ] = None
    waits: Annotated[
        list[HostWaitEntry], doc("of several hosts, who waited for whom, the longest first")
    ] = []
    known: Annotated[
        KnownEntry | None, doc("whether a store knows something like this; null: not asked")
    ] = None
    reason_ids: Annotated[
        list[str], doc("the id of each of `reasons`: what it says, whatever its words")
    ] = []
    warning_ids: Annotated[
        list[str], doc("the id of each of `warnings`: what it says, whatever its words")
    ] = []
    because: Annotated[
        Because | None,
        doc("what the mean of all differs by, and due to what; null in files of earlier versions"),
    ] = None

    def fails_build(self) -> bool:
        """Tell whether a gate has to be red; by the settings also for what strangers did."""
        on_machine = bool(self.settings.get("fail_on_machine"))
        return self.verdict == "anomaly" or (self.verdict == "by_machine" and on_machine)

    def rows(
        self, which: SetName, *names: str, of: Collection[int] | None = None
    ) -> Iterator[tuple[Any, ...]]:
        """Yield some keys of runs of a set: of some positions, or of all."""
        return rows_of(self.executions, which, names, of)

    def column(self, which: SetName, name: str) -> NDArray[Any]:
        """Return a column of all runs of a set: of texts and of what may be None, the objects."""
        return column_of(self.executions, which, name)

    def marked(self) -> list[ExecutionEntry]:
        """Return the runs that stand out."""
        return marked_of(self.executions)


class PathSubject(Part):
    """The thread whose time a path explains."""

    tid: Annotated[int, doc("the thread")]
    comm: Annotated[str, doc("its name")]


class FrameEntry(Part):
    """A function of a stack."""

    function: Annotated[str, doc("its name")]
    file: Annotated[str, doc("its source, '' if not known")]
    line: Annotated[int, doc("where it was; of Python where it is defined; 0 if not known")]
    module: Annotated[str, doc("the program or library it is of")]


class PathSegment(Part):
    """A segment of a critical path."""

    begin: Annotated[int, doc("when it began, in ns of the trace's clock")]
    end: Annotated[int, doc("when it ended: where the next begins")]
    tid: Annotated[int, doc("the thread the time was spent on, which need not be the subject")]
    comm: Annotated[str, doc("name of the thread")]
    state: Annotated[StateName, doc("what it did")]
    detail: Annotated[str, doc("qualifier of the state")]
    beneath: Annotated[str, doc("QUEUED, SHARED: what the thread did meanwhile, '' elsewhere")] = ""
    uncertainty_ns: Annotated[
        int | None, doc("between two hosts, by how much their clocks may be wrong; null: not known")
    ] = 0
    confidence: Annotated[Number, doc("how probable it is that this was for the run")] = 1.0
    others: Annotated[bool, doc("whether it was for others' requests on a loop")] = False
    stack: Annotated[
        list[FrameEntry] | UnsetType,
        doc("where in the code its thread was, innermost first; missing if not known"),
    ] = UNSET
    waker_stack: Annotated[
        list[FrameEntry] | UnsetType, doc("of a wait, where the thread was that ended it")
    ] = UNSET


class PathLoss(Part):
    """What is missing of a path's window."""

    events: Annotated[int, doc("events that the tracer lost within the window")]
    packets: Annotated[int, doc("packets that it lost")]


class PathDocument(Part, kw_only=True):
    """What critpath path --format json writes, one object a line."""

    format: Annotated[Literal["critpath/path/1"], doc("name and version of this format")]
    subject: Annotated[PathSubject, doc("whose time the path explains")]
    execution: Annotated[str, doc("id of the run")] = ""
    label: Annotated[str, doc("what kind it is, as the trace says; '' if not")] = ""
    begin: Annotated[int, doc("begin of the window, in ns of the trace's clock")]
    end: Annotated[int, doc("its end")]
    segments: Annotated[list[PathSegment], doc("in order of time, tiling the window")]
    totals: Annotated[dict[str, int], doc("ns per state, of those that occur")]
    unexplained: Annotated[int, doc("ns in WAIT_UNEXPLAINED and UNKNOWN")]
    uncertainty_ns: Annotated[
        int | None,
        doc("by how much times between its hosts may be wrong; 0 of one; null: a clock not known"),
    ] = 0
    confidence: Annotated[
        Number, doc("how probable it is of the least sure segment that it is of this run")
    ] = 1.0
    loss: Annotated[PathLoss, doc("what is missing")]


class Sides(Part):
    """A whole number of each command."""

    a: Annotated[int, doc("of A, what is known to be good")]
    b: Annotated[int, doc("of B, what is judged")]


class AbBlock(Part):
    """Four slots: each command twice, in an order that a coin has chosen."""

    order: Annotated[Literal["ABBA", "BAAB"], doc("which command each slot ran")]
    times: Annotated[list[list[int]], doc("per slot, time of every run, exec to exit (ns)")]
    run: Annotated[list[list[int]], doc("per slot, time on a cpu of every run (ns)")]
    failed: Annotated[list[int], doc("per slot, runs that failed; [] if none did")] = []
    waited: Annotated[
        list[list[int]],
        doc("per slot, how long the command waited for a cpu (ns); [] where that is not known"),
    ] = []
    counted: Annotated[
        list[list[int]], doc("per slot, instructions or cycles, where these decide")
    ] = []
    labels: Annotated[
        list[list[str]], doc("per slot, the kind of every run; [] where none is known")
    ] = []
    probes: Annotated[
        dict[str, list[int]], doc("by name, time of a fixed piece of work after each slot (ns)")
    ] = {}
    machine: Annotated[
        dict[str, Number],
        doc(
            "seconds: the time itself, capacity of all cpus, busy, own, steal, tasks waiting (psi)"
        ),
    ] = {}


class AbTail(Part):
    """A quantile of all runs, and who exceeds it."""

    q: Annotated[Number, doc("the quantile")]
    threshold_ms: Annotated[Number, doc("its value at the end, of A and B together (ms)")]
    above_a: Annotated[Number, doc("share of A's runs above it")]
    above_b: Annotated[Number, doc("share of B's runs above it")]
    e: Annotated[Number, doc("evidence that B exceeds it more often")]


class AbEvidence(Part):
    """Evidence, as what a stake of 1 has become; at most 1e12 is written."""

    slower: Annotated[Number, doc("against: B is slower by at most half the floor")]
    not_slower: Annotated[Number, doc("against: B is slower by the floor or more")]
    faster: Annotated[Number, doc("against: B takes A's time or more")]
    alarm: Annotated[Number, doc("mean of slower and the tails; the greatest so far decides")]
    few_slow: Annotated[
        Number, doc("against: 20 points more of B's runs are slow ones; 20 is needed")
    ]


class AbResult(Part):
    """What the blocks say of one kind of time, or of one kind of run."""

    verdict: Annotated[
        Literal["slower", "slower_in_part", "faster", "not_slower", "undecided", "too_few"],
        doc("what is shown"),
    ]
    blocks: Annotated[int, doc("blocks that it rests on")]
    executions: Annotated[Sides, doc("runs in them")]
    typical: Annotated[Sides, doc("median time of a run (ns)")]
    ratio: Annotated[Maybe, doc("typical time of B over that of A: the median of the blocks'")]
    interval: Annotated[
        MaybePair, doc("what the ratio is at least and at most: at any look 1 - alpha")
    ]
    e: Annotated[AbEvidence, doc("evidence at the end")]
    extra_slow: Annotated[Number, doc("at most so much larger is B's share of slow runs (95 %)")]
    tail: Annotated[list[AbTail], doc("quantiles that are watched")]


class AbCarryOver(Part):
    """How much slower a run is right after B than right after A."""

    estimate: Annotated[Maybe, doc("as a share; null with too few blocks")]
    interval: Annotated[MaybePair, doc("99 % interval of it")]


class AbMachine(Part):
    """What the machine did meanwhile."""

    others_share: Annotated[Maybe, doc("share of all cpus that others had")]
    psi: Annotated[Maybe, doc("share of the time in which some task waited for a cpu")]
    steal: Annotated[Maybe, doc("share of all cpus that the host took; null: it does not tell")]
    speed_p90_p10: Annotated[Maybe, doc("slowest tenth of the probes over the fastest tenth")]
    probe_r2: Annotated[
        dict[str, Maybe], doc("share of the variance of run and wait that the probes explain")
    ]
    by_side: Annotated[
        dict[str, dict[str, Number]],
        doc("per probe: median after A and after B (ns), evidence e that they differ"),
    ]


class AbCause(Part):
    """What further blocks, recorded after the verdict, say of why."""

    verdict: Annotated[Verdict, doc("of critpath compare; it changes nothing here")]
    sentences: Annotated[list[str], doc("its reasons and causes")]


class AbPlan(Part, kw_only=True):
    """What was asked for."""

    commands: Annotated[list[list[str]], doc("A and B, with their arguments")]
    floor: Annotated[Number, doc("slower by so much must not pass, as a share")]
    alpha: Annotated[Number, doc("chance of a wrong alarm, and of a wrong pass")]
    seed: Annotated[int, doc("of the order of the slots; the analysis has none")]
    statistic: Annotated[Literal["geo", "mean", "min"], doc("what a block's times come to")]
    of: Annotated[
        Literal["time", "run", "both", "instructions", "cycles"],
        doc("what decides: time, time on a cpu (run), both, or what a processor counts"),
    ]
    tails: Annotated[list[Number], doc("quantiles that are watched")]
    asked_tails: Annotated[list[Number], doc("those that were asked for")]
    slot: Annotated[int, doc("runs of a slot")]
    max_blocks: Annotated[int, doc("blocks after which it ends")]
    failures_are_slow: Annotated[bool, doc("a failed run counts as the slowest so far")]
    traced: Annotated[
        bool, doc("every block was recorded: the verdict is of the program with tracing")
    ] = False
    skip_first: Annotated[bool, doc("the first run of each slot does not count")] = False
    computes: Annotated[
        bool,
        doc("with `of` time: both compute by the warm-up, so time on a cpu may decide as well"),
    ] = False


class AbDocument(AbPlan, kw_only=True):
    """What critpath ab --json writes."""

    format: Annotated[Literal["critpath/ab/1"], doc("name and version of this format")]
    version: Annotated[str, doc("version of critpath that wrote it")]
    verdict: Annotated[
        Literal["slower", "slower_in_part", "not_slower", "faster", "undecided", "invalid"],
        doc("the answer"),
    ]
    exit: Annotated[int, doc("exit code that goes with it")]
    sentences: Annotated[
        list[str], Meta(min_length=1, description="the answer in words, and what else is to know")
    ]
    blocks: Annotated[int, doc("blocks that count")]
    dropped: Annotated[int, doc("blocks that do not, as a run failed")]
    executions: Annotated[Sides, doc("runs in the blocks that count")]
    failures: Annotated[Sides, doc("runs that failed")]
    discarded: Annotated[AbBlock | None, doc("warm-up runs, which do not count")]
    ratio: Annotated[Maybe, doc("as of the time that decides")]
    interval: Annotated[MaybePair, doc("as of the time that decides")]
    e: Annotated[AbEvidence, doc("as of the time that decides")]
    tail: Annotated[list[AbTail], doc("as of the time that decides")]
    time: Annotated[AbResult, doc("of the time from exec to exit")]
    running: Annotated[AbResult, doc("of the time on a cpu")]
    counted: Annotated[
        AbResult | None, doc("of instructions or cycles, where these decide (typical: how many)")
    ] = None
    decided_by: Annotated[
        Literal["time", "run", "instructions", "cycles"], doc("what the verdict rests on")
    ] = "time"
    labels: Annotated[dict[str, AbResult], doc("by kind of run, of the time that decides")]
    by_evidence: Annotated[
        list[str], doc("kinds that e-BH rejects at alpha, the strongest evidence first")
    ]
    carry_over: Annotated[AbCarryOver, doc("what a run leaves for the next")]
    machine: Annotated[AbMachine, doc("what the machine did meanwhile")]
    spent_s: Annotated[Number, doc("seconds that the blocks took")]
    stopped_by: Annotated[
        Literal["e", "max_blocks", "time", "user", "signal", "invalid"],
        doc("why it ended: user is Ctrl-C, signal SIGTERM and its like"),
    ]
    cause: Annotated[AbCause | None, doc("what blocks recorded afterwards say of why")]
    block_log: Annotated[list[AbBlock], doc("every block; all of the above follows from it")]


OnThread = ExecutionEntry | FindingEntry | AlignedSegment | PathSegment | PathSubject
_Judged = ComparisonDocument | CalibrationDocument | AbDocument
Document = (
    _Judged
    | PathDocument
    | ExplorationDocument
    | ClocksDocument
    | RequestsDocument
    | SignatureDocument
    | KnownDocument
    | CheckDocument
    | IncidentDocument
    | TrendDocument
    | LookDocument
)
TYPES: Final[dict[str, type[Document]]] = {
    COMPARISON_FORMAT: ComparisonDocument,
    PATH_FORMAT: PathDocument,
    CALIBRATION_FORMAT: CalibrationDocument,
    AB_FORMAT: AbDocument,
    EXPLORATION_FORMAT: ExplorationDocument,
    CLOCKS_FORMAT: ClocksDocument,
    REQUESTS_FORMAT: RequestsDocument,
    SIGNATURE_FORMAT: SignatureDocument,
    KNOWN_FORMAT: KnownDocument,
    CHECK_FORMAT: CheckDocument,
    INCIDENT_FORMAT: IncidentDocument,
    TREND_FORMAT: TrendDocument,
    LOOK_FORMAT: LookDocument,
}
