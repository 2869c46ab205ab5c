"""Numbers that `cluster` decides by."""

from __future__ import annotations

from typing import Final

from critpath.schema.parameters import (
    COST,
    CUSTOM,
    FIXTURES,
    SERVICES,
    SIMULATED,
    Derived,
    Group,
    Paper,
    Parameter,
)


class Types(Group, name="types", guards="against types by chance, and too many of them"):
    """How types of runs are found."""

    no_structure = Parameter(
        0.25,
        "silhouette",
        "mean below which a partition has no structure worth naming; silhouettes cannot "
        "score one cluster, so the choice of a number needs a value to beat",
        Paper("Kaufman and Rousseeuw 1990: no substantial structure"),
    )
    most_cuts = Parameter(60, "cuts", "of the reachability plot that are tried", COST)
    most_clusters = Parameter(20, "types", "that a partition may have", COST)
    least_labelled = Parameter(
        5, "executions", "normal ones of a label, fewer of which make no type of their own", CUSTOM
    )
    subtype = Parameter(
        0.4,
        "share",
        "of a label's runs that are a type of their own: chance valleys of the "
        "reachability plot otherwise split fifteen of one kind into 5 and 10",
        SIMULATED,
    )
    xi = Parameter(
        0.05,
        "share",
        "by which reachability has to fall or rise, for the edge of a type",
        Paper("Ankerst et al. 1999, as scikit-learn has it"),
    )
    least_share = Parameter(0.05, "share", "of the runs that a type has at least", SIMULATED)
    anscombe = Parameter(
        0.375,
        "counts",
        "added before the root, which gives counts a variance near one",
        Paper("Anscombe 1948"),
    )


TYPES: Final = Types()


class Pairing(Group, name="pairing", guards="runs of kinds that the other set has not"):
    """Which types of two sets are one."""

    novel = Parameter(
        0.99,
        "quantile",
        "of the normal distances, beyond which a run is of no known type",
        CUSTOM,
    )
    wide = Parameter(1.5, "times", "the limit of a type: as near is plausible, too", SIMULATED)


PAIRING: Final = Pairing()


class Outliers(Group, name="outliers", guards="against healthy runs that are marked"):
    """Which single runs stand out."""

    group_floor = Parameter(
        2.0,
        "times",
        "the floor that a whole type must be slower by: its shift may be the session's",
        SIMULATED,
    )
    group_level = Parameter(
        0.5,
        "share",
        "of the level that is for whole types, where labels do not tell them",
        SIMULATED,
    )
    own = Parameter(
        4.0,
        "sd",
        "robust ones that a run must be above the others of its own recording",
        SERVICES,
    )
    own_spread = Parameter(
        0.1, "log", "spread of these, that is never believed to be less", SERVICES
    )
    few_over = Parameter(
        0.7,
        "log",
        "twice the time: where there are too few others of the recording to tell",
        SERVICES,
    )
    low_support = Parameter(
        5, "executions", "below which a type's own variance says nothing", CUSTOM
    )
    prior = Parameter(5.0, "observations", "that the pooled variance is worth", SIMULATED)
    offset = Parameter(
        0.02, "share", "of the overall mean total, added before logarithms are taken", SIMULATED
    )


OUTLIERS: Final = Outliers()


class Mixture(Group, name="mixture", guards="who is called slow, and how many"):
    """Which runs have a change: see `critpath.stats.mixtures`."""

    every = Parameter(
        0.3,
        "share",
        "prior probability that all of a kind have the change: most changes of a program do",
        SIMULATED,
    )
    none = Parameter(0.9, "share", "prior probability that one kind of several has none", FIXTURES)
    nearly = Parameter(
        0.15, "share", "as sure, in logarithms, has a second kind to be of having it", FIXTURES
    )
    few_kinds = Parameter(3, "kinds", "by which the machine's pace is measured", CUSTOM)
    sure_count = Parameter(
        0.8, "p", "of a number to be exactly right, so that it is told without an interval", CUSTOM
    )
    rarity = Parameter(
        0.5, "executions", "of those before that are unlike all others, where none is", CUSTOM
    )
    shares = Parameter(24, "shares", "of those with the change that are tried", COST)
    least_rise = Parameter(0.05, "log", "least change that is tried", CUSTOM)
    step = Parameter(1.3, "ratio", "between changes that are tried", COST)
    rises = Parameter(21, "changes", "that are tried: up to what was never there before", COST)
    uneven = Parameter(
        (0.1, 0.3, 0.6), "share", "of the change by which it differs between those", SIMULATED
    )
    paces = Parameter(
        (-2.5, -1.25, 0.0, 1.25, 2.5), "sd", "of the machine's pace that are tried", COST
    )
    between = Parameter(
        0.6, "sd", "of the pace that each one tried stands for", Derived("half of what is between")
    )
    pace = Parameter(
        0.03, "log", "standard deviation of the machine's pace between two sets", SERVICES
    )
    pace_in_turns = Parameter(0.01, "log", "the same of sets recorded in turns", SERVICES)
    blur = Parameter(0.03, "log", "least width of a kernel: no two runs are more alike", SIMULATED)
    widths = Parameter(
        (0.1, 0.16, 0.25, 0.4, 0.63, 1.0),
        "sd",
        "widths of kernels that are tried, each by the values that it leaves out",
        SIMULATED,
    )
    tails = Parameter(0.1, "share", "of a kernel that is wider", SIMULATED)
    wide = Parameter(3.0, "times", "as wide is that part", SIMULATED)
    least_density = Parameter(
        1e-3, "density", "of a value that is like no other: one decides no width", SIMULATED
    )
    upwards = Parameter(
        0.8, "share", "of rare values that are longer than usual, not shorter", SIMULATED
    )
    coarse = Parameter(
        100.0,
        "values",
        "that the likelihood may count as at most: no change is exactly of the form",
        SIMULATED,
    )
    sure = Parameter(
        2.0, "errors", "by which a state has to be longer, to tell who has the change", SIMULATED
    )
    good_part = Parameter(
        0.1, "share", "of all such states' rise that one of them has at the least", SIMULATED
    )
    states = Parameter(4, "states", "that rose most, of which each may show it best", COST)
    least_gain = Parameter(
        3.0,
        "log",
        "by which the work has to be likelier with a change, or the whole time is asked",
        CUSTOM,
    )
    interval = Parameter(
        (0.025, 0.975), "quantiles", "between which the number lies that have the change", CUSTOM
    )


MIXTURE: Final = Mixture()
