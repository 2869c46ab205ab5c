"""Numbers that `cluster` decides by."""

from __future__ import annotations

from typing import Final

from critpath.schema.parameters import COST, CUSTOM, SERVICES, SIMULATED, Group, Paper, Parameter


class Types(Group, name="types", guards="against types by chance, and too many of them"):
    """How types of executions are found."""

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
        "of a label's executions that are a type of their own: chance valleys of the "
        "reachability plot otherwise split fifteen of one kind into 5 and 10",
        SIMULATED,
    )
    xi = Parameter(
        0.05,
        "share",
        "by which reachability has to fall or rise, for the edge of a type",
        Paper("Ankerst et al. 1999, as scikit-learn has it"),
    )
    least_share = Parameter(0.05, "share", "of the executions that a type has at least", SIMULATED)
    anscombe = Parameter(
        0.375,
        "counts",
        "added before the root, which gives counts a variance near one",
        Paper("Anscombe 1948"),
    )


TYPES: Final = Types()


class Pairing(Group, name="pairing", guards="executions of kinds that the other set has not"):
    """Which types of two sets are one."""

    novel = Parameter(
        0.99,
        "quantile",
        "of the normal distances, beyond which an execution is of no known type",
        CUSTOM,
    )
    not_much = Parameter(
        1.25, "times", "the distance of the nearest type: as near is plausible, too", SIMULATED
    )
    wide = Parameter(1.5, "times", "the limit of a type: as near is plausible, too", SIMULATED)


PAIRING: Final = Pairing()


class Outliers(Group, name="outliers", guards="against healthy executions that are marked"):
    """Which single executions stand out."""

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
        "robust ones that an execution must be above the others of its own recording",
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
