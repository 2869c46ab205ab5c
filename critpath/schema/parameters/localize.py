"""Numbers that `localize` decides by."""

from __future__ import annotations

from typing import Final

from critpath.schema.parameters import (
    CUSTOM,
    FIXTURES,
    SERVICES,
    SIGHT,
    SIMULATED,
    STUDIES,
    WEATHER,
    Derived,
    Group,
    Parameter,
)


class Causes(Group, name="causes", guards="the order of causes where the machine is busy"):
    """In what order causes stand, and what is one cause."""

    minor = Parameter(
        0.05, "share", "of the whole excess: a summary counts smaller causes only", SIGHT
    )
    unseen = Parameter(
        0.5, "share", "of what was not observed, that what was must be, to come before it", STUDIES
    )
    weather = Parameter(
        0.1, "share", "of its time that a wait for a cpu explains that anybody had", SERVICES
    )
    newcomer = Parameter(
        0.3,
        "share",
        "of its time that a wait explains for a cpu that somebody had who was not there before",
        SERVICES,
    )
    shared = Parameter(
        0.3,
        "share",
        "of itself that a cause ranks as where the runs before share what it is",
        SERVICES,
    )
    more_often = Parameter(
        5.0,
        "times",
        "as much a wait tells that happens more often: no machine makes a program wait more often",
        SERVICES,
    )
    good_part = Parameter(
        0.1, "share", "of a wait for a cpu that a new thread had it, to be a good part", SERVICES
    )
    half = Parameter(
        0.5, "share", "of what such a wait is longer by, to be a good part, too", SERVICES
    )
    unsure = Parameter(
        0.1,
        "share",
        "of itself that a cause ranks as at least, though it is not apart from the runs before",
        SERVICES,
    )
    brought = Parameter(
        0.4,
        "share",
        "of a symbol's growth: as much is due to what was done more often, to be brought "
        "along by it",
        SERVICES,
    )
    as_much = Parameter(
        0.9,
        "share",
        "of two that brought about as much, the one that holds the other is named",
        SERVICES,
    )
    alike = Parameter(
        0.2,
        "share",
        "normal numbers of iterations that differ by so much, or by one, are of one loop",
        STUDIES,
    )


CAUSES: Final = Causes()


class Columns(Group, name="columns", guards="against columns that stand out by chance"):
    """Whether a column of the alignment is out of the ordinary."""

    missing = Parameter(
        0.5,
        "share",
        "of the normal rows with a state in a column, for a row without it to miss it",
        STUDIES,
    )
    level = Parameter(0.05, "p", "level of a column", CUSTOM)
    least_normals = Parameter(
        3,
        "rows",
        "every row is judged by the others: by two at least",
        Derived("a spread needs two"),
    )
    sharp_normals = Parameter(
        20, "rows", "with fewer no single column can stand out", Derived("1 / columns.level")
    )
    smoothing = Parameter(
        1.0,
        "counts",
        "pseudo-count of a column's states, spread like the states in all columns",
        SIMULATED,
    )
    prior = Parameter(
        5.0, "observations", "that a state's own spread is worth in a column", SIMULATED
    )
    support = Parameter(
        3,
        "rows",
        "others with the state that a column needs to have a median of its own",
        SIMULATED,
    )
    blur = Parameter(
        1000.0, "ns", "added before the logarithm: below a microsecond nothing is measured", STUDIES
    )


COLUMNS: Final = Columns()


class Counts(Group, name="counts", guards="against counts that differ by chance"):
    """What is done more often."""

    longer = Parameter(3, "times", "as long as the others may one of several trips be", SERVICES)
    enough = Parameter(4, "trips", "for a mean without the longest", SERVICES)
    sure = Parameter(2.0, "standard errors", "by which such a mean is lowered", SERVICES)
    many = Parameter(0.3, "share", "of the runs that a newcomer is met by", SERVICES)
    few = Parameter(0.1, "share", "of as many, that may have met it before", SERVICES)
    ratio = Parameter(1.25, "times", "as many: a smaller rise changes little", FIXTURES)
    spread = Parameter(2.0, "sd", "of the normal counts, that a rise is beyond", FIXTURES)
    rare = Parameter(0.05, "share", "of the runs before that may count as many", FIXTURES)
    mostly = Parameter(
        0.5,
        "share",
        "of what a thread waited longer, that one of its states must be, to be what it did "
        "meanwhile",
        SERVICES,
    )


COUNTS: Final = Counts()


class Difference(Group, name="difference", guards="against neighbours named for one's own work"):
    """How a difference is taken apart into work and waits for a CPU."""

    slice = Parameter(
        3_000_000,
        "ns",
        "of running are seldom cut: how often the machine cuts longer ones is not told by these",
        Derived("a slice of Linux's scheduler, 0.75 ms times one and the binary logarithm of 8"),
    )
    consequence = Parameter(
        0.5,
        "share",
        "of how much waits for a cpu grew, that work must bring, to have brought them along",
        Derived("most of it"),
    )


DIFFERENCE: Final = Difference()


class Enough(Group, name="enough", guards="how many runs have to be explained"):
    """How many runs are explained."""

    first = Parameter(18, "executions", "of the first batch", SIMULATED)
    growth = Parameter(1.5, "times", "as many, after each further batch", SIMULATED)
    large = Parameter(0.1, "share", "of the excess: causes as large have to be known", SIMULATED)
    sure = Parameter(
        0.2, "share", "of the mean excess, to within which they have to be known", SIMULATED
    )


ENOUGH: Final = Enough()


class EvidenceWeights(Group, name="certainty", guards="how likely a cause is said to be"):
    """What evidence for a cause is worth, fitted by evaluation/weather/fit.py: none is negative.

    What it adds up to is one of three levels: finer ones, of 30 known causes each, did not hold for
    programs that they were not fitted to.
    """

    share = Parameter(1.0, "logits", "a bit of the share of the excess that it explains", WEATHER)
    borne_out = Parameter(2.79, "logits", "if all that were examined bear it out", WEATHER)
    absent = Parameter(0.93, "logits", "if the runs before do not have it", WEATHER)
    work = Parameter(
        2.22, "logits", "if it is work, or who had the cpu is not there normally", WEATHER
    )
    decisive = Parameter(0.7, "logits", "if the verdict rests on its state", WEATHER)
    possible = Parameter(2.41, "logits", "of evidence, for a cause that is possible", WEATHER)
    likely = Parameter(6.7, "logits", "of evidence, for a cause that is likely", WEATHER)
    unlikely_right = Parameter(
        0.01, "share", "of causes with less evidence that are right", WEATHER
    )
    possible_right = Parameter(0.12, "share", "of possible causes that are right", WEATHER)
    likely_right = Parameter(0.95, "share", "of likely causes that are right", WEATHER)


EVIDENCE: Final = EvidenceWeights()


class Facts(Group, name="facts", guards="what is told of a cause"):
    """What is told of a cause."""

    nearly_all = Parameter(0.8, "share", "of the time in one part: it is named alone", SIGHT)
    half = Parameter(0.5, "share", "of the time in one part: it is named above all", SIGHT)


FACTS: Final = Facts()


class Findings(Group, name="findings", guards="against crumbs that are told as findings"):
    """What of a run's excess is a finding."""

    least_turns = Parameter(
        2, "turns", "of a loop in the median normal row, to be judged by their number", STUDIES
    )
    spread = Parameter(
        2.0, "sd", "beyond which a number of iterations is out of the ordinary", CUSTOM
    )
    explained = Parameter(
        0.9, "share", "of the excess: once so much is explained no more is looked for", STUDIES
    )
    most = Parameter(10, "findings", "of a run", SIGHT)
    least = Parameter(0.01, "share", "of the excess: smaller differences stay in the rest", STUDIES)
    discount = Parameter(
        0.75, "share", "of itself that own running time ranks as, where it is noise", STUDIES
    )
    moved = Parameter(
        0.5, "share", "of what only moved from one symbol to another, that is left out", SERVICES
    )
    ordinary = Parameter(
        0.25, "share", "of itself that ranks what the runs before do as well", SERVICES
    )
    near = Parameter(2, "columns", "what lies no further apart is one place", STUDIES)
    enough = Parameter(
        0.95, "share", "of the net: no more stretches are added once they hold so much", STUDIES
    )
    noise = Parameter(
        0.1,
        "share",
        "of the net: a stretch with less is noise, unless the group never has the symbol",
        STUDIES,
    )
    crumb = Parameter(
        0.02,
        "share",
        "of the net, instead of the noise where the group never has the symbol",
        STUDIES,
    )
    trusted = Parameter(
        (0.5, 1.5),
        "share",
        "of the net that a place must hold, from and to, to stand for the symbol",
        STUDIES,
    )
    least_normals = Parameter(5, "rows", "fewer do not tell how much a total fluctuates", CUSTOM)
    as_far = Parameter(
        0.2, "share", "of the normal rows that may have a total as far out", SERVICES
    )


FINDINGS: Final = Findings()


class Segments(Group, name="segments", guards="slowdowns of all that only some stand out by"):
    """What others of a kind tell of those that stand out."""

    alike = Parameter(
        1 / 3,
        "share",
        "least shift of the others, of that of those that stand out, to have the same fault",
        SERVICES,
    )
    few = Parameter(3, "executions", "others that are needed to tell", SERVICES)
    few_of_kind = Parameter(
        0.8, "share", "of a kind that has the change, for these to stand out by themselves", SIGHT
    )
    explained = Parameter(
        0.5,
        "share",
        "of the decisive excess that those which stand out must have, to be explained "
        "without the others",
        SERVICES,
    )
    explained_states = Parameter(
        0.8, "share", "the same, where single states alone became surely longer", SERVICES
    )


SEGMENTS: Final = Segments()


class Waits(Group, name="waits", guards="against late starts that are taken for throttling"):
    """What is not the program's."""

    late = Parameter(
        2_000_000,
        "ns",
        "a single wait for a cpu below this is no throttling: an idle cpu takes as long to "
        "start a thread, more so a virtual one; a quota's period is 100 ms unless set "
        "otherwise",
        SERVICES,
    )


WAITS: Final = Waits()
