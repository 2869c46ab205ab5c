"""The answer, and the settings that could change it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec import field as msgspec_field

from critpath.records import dataclass
from critpath.schema.parameters.detect import COMPARABILITY
from critpath.schema.parameters.shared import DEFAULTS

if TYPE_CHECKING:
    from critpath.documents import Because, HostWaitEntry
    from critpath.documents.pictures import FlameNode
    from critpath.model.findings import Aligned, Cause, Finding
    from critpath.model.grounds import Ground
    from critpath.model.judgement import Clustering, ClusterPairs, Detection, Outliers
    from critpath.model.paths import PathSet
    from critpath.model.vectors import VectorTable
    from critpath.schema.notes import Note, Remark


def is_surely_faster(
    high: float,
    fall: float,
    mean: float,
    machine: Iterable[tuple[float, float]],
    *,
    floor: float,
    apart: bool,
) -> bool:
    """Tell whether a mean fell by more than the floor, and not as another hour alone makes it.

    ``high`` is the upper end of the effect's interval, ``fall`` by how much the mean of before
    fell (ns); ``machine``: the same two of every state of `MACHINE_STATES`, what is left without
    them must have fallen as well; ``apart``: the sets were recorded at different times.
    """
    if not high < -floor:
        return False
    others = [*machine]
    own = fall - sum(one for one, _ in others), mean - sum(of for _, of in others)
    return not apart or (
        fall >= COMPARABILITY.another_hour * mean
        and own[0] >= max(COMPARABILITY.another_hour * own[1], floor)
    )


class ExtractSettings(Struct, frozen=True):
    """How recordings become paths: plain values, which go to other processes as they are.

    Attributes
    ----------
    specification : str or None
        What an execution is (``--execution``); None for what a recording says of itself.
    reader : str
        ``auto``, ``native`` or ``babeltrace2``.
    interrupts : bool
        Take interrupt work out of running time.
    max_memory : int
        Bytes that one recording may take (``--max-memory``); 0 for no limit.
    ahead : bool
        Decode in a thread of its own: where other recordings are not read at the same time.
    partial : bool
        Of a recording with gaps, take the executions that are not whole, and no other.
    bystanders : bool
        Of one whose executions were chosen, take the others that are whole, too.
    only : frozenset of (int, int, int)
        Begin, end and thread of those that are wanted; all where there are none.
    """

    specification: str | None = None
    reader: str = "auto"
    interrupts: bool = True
    max_memory: int = 0
    ahead: bool = False
    partial: bool = False
    bystanders: bool = False
    only: frozenset[tuple[int, int, int]] = frozenset()


@dataclass(frozen=True)
class CompareSettings:
    """Everything that can change the outcome of a comparison.

    Attributes
    ----------
    rule : str
        ``gate`` or ``paper``: who decides the verdict.
    alpha : float
        Family-wise level of the gate.
    floor : float
        Least effect of interest, as a share of the normal mean.
    least : float
        A slowdown so large has to show before an answer is ``ok``, as a share of the normal mean.
    minimum_executions : int
        Fewest executions of either set that a verdict may rest on.
    percentile : float or None
        The quantile of the durations that decides, instead of the tests; None for these.
    sessions : bool
        Sets of different times need a sign that the machine did not make a slowdown.
    session_spread : float or None
        What recordings of the program are known to differ by: a standard deviation, as a
        share of the mean; None for what the recordings themselves tell.
    strict_environment : bool
        Sets of other kernels, machines, processors, tracers or programs are inconclusive.
    fail_on_machine : bool
        What strangers made slower fails a build as what the program did does.
    level : tuple of (str, str)
        Patterns of states, and their levels ``off``, ``warn`` or ``error``; see
        `critpath.detect.verdict.symbol_level`.
    t1 : float
        Average rule: standard deviations.
    t2 : float or None
        Probability rule: ratio of shares; None for Fisher's exact test.
    y_reference : str
        Mean that sample executions are held against: ``a1`` (the paper's text) or
        ``a2`` (its pseudo-code).
    permutations : int
    cluster_method : str
    alphabet : str
        What paths are written in: ``thread``, ``state`` or ``functions``; see
        `critpath.vectors.table.ALPHABETS`.
    outlier_k : float
        The paper's rule for single executions: standard deviations.
    outlier_level : float
        False discovery rate of the marked executions.
    group_limit : int
        Most normal executions that an anomalous one is aligned with.
    explain_limit : int
        Most anomalous executions that are aligned and explained: fewer are where more would
        change no cause; see `critpath.localize.explaining`.
    msa : str
        ``add`` aligns a normal group once and adds each anomalous execution to it;
        ``joint`` aligns each together with its group, as the paper does.
    aligner : str
        ``posteriors`` (pair-HMM, consistency) or ``muscle`` (the paper's, with
        log-expectation profiles).
    interrupts : bool
        The paths tell interrupt work apart; decided when they were extracted, kept
        here because a report says everything that could change its outcome.
    """

    rule: str = "gate"
    alpha: float = field(default_factory=lambda: DEFAULTS.alpha)
    floor: float = field(default_factory=lambda: DEFAULTS.floor)
    least: float = field(default_factory=lambda: DEFAULTS.least)
    minimum_executions: int = 0
    percentile: float | None = None
    sessions: bool = True
    session_spread: float | None = None
    strict_environment: bool = False
    fail_on_machine: bool = False
    level: tuple[tuple[str, str], ...] = ()
    t1: float = field(default_factory=lambda: DEFAULTS.t1)
    t2: float | None = None
    y_reference: str = "a1"
    permutations: int = field(default_factory=lambda: DEFAULTS.permutations)
    cluster_method: str = "optics"
    alphabet: str = "thread"
    outlier_k: float = field(default_factory=lambda: DEFAULTS.outlier_k)
    outlier_level: float = field(default_factory=lambda: DEFAULTS.outlier_level)
    group_limit: int = field(default_factory=lambda: DEFAULTS.group_limit)
    explain_limit: int = field(default_factory=lambda: DEFAULTS.explain_limit)
    msa: str = "add"
    aligner: str = "posteriors"
    interrupts: bool = True


class Analysis(Struct, frozen=True, eq=False):
    """The answer: every stage's outcome for one normal and one sample set.

    Attributes
    ----------
    verdict : str
        ``ok``, ``anomaly``, ``by_machine`` or ``inconclusive``.
    reasons : tuple of Note
        Why this verdict, the decisive one first.
    warnings : tuple of Note, or str
        What a reader must know about the input (loss, differing kernels...).
    settings : mapping
        Everything that could change the outcome, as used.
    apart : bool
        The sets were recorded at different times, and that counts.
    flame : tuple of FlameNode
        Where the time of all executions goes; each node stands behind the one above it.
    waits : tuple of HostWaitEntry
        Of several hosts, who waited for whom.
    grounds : tuple of Ground
        What the verdict rests on.
    because : Because or None
        What the mean of all differs by.
    """

    verdict: str
    reasons: tuple[Note, ...]
    warnings: tuple[Remark, ...]
    normal: PathSet
    sample: PathSet
    normal_vectors: VectorTable
    sample_vectors: VectorTable
    detection: Detection
    normal_clusters: Clustering
    sample_clusters: Clustering
    pairs: ClusterPairs
    outliers: Outliers
    aligned: tuple[Aligned, ...]
    findings: tuple[Finding, ...]
    causes: tuple[Cause, ...]
    settings: Mapping[str, Any] = msgspec_field(default_factory=dict)
    apart: bool = False
    flame: tuple[FlameNode, ...] = ()
    waits: tuple[HostWaitEntry, ...] = ()
    grounds: tuple[Ground, ...] = ()
    because: Because | None = None

    @property
    def knows_affected(self) -> bool:
        """Whether the executions that are marked are those that have the change."""
        return self.verdict == "anomaly" and bool(self.outliers.affected)

    def name_types(self) -> dict[int, str]:
        """Return what types of executions are called: the label that all of one have."""
        labels: dict[int, set[str]] = {}
        types = self.normal_clusters.labels.tolist()
        # Where that stage did not run there are no types.
        for kind, label in zip(types, self.normal.executions.label, strict=False):
            labels.setdefault(kind, set()).add(label)
        return {kind: next(iter(of)) for kind, of in labels.items() if len(of) == 1}
