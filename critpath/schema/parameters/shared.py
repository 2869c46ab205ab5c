"""Numbers that several stages decide by."""

from __future__ import annotations

from typing import Final

from critpath.schema.parameters import (
    COST,
    CUSTOM,
    SERVERS,
    SIMULATED,
    Derived,
    Group,
    Paper,
    Parameter,
)


class Normal(Group, name="normal"):
    """Quantiles of the normal distribution, and what follows from it."""

    per_mad = Parameter(
        1.4826,
        "ratio",
        "a normal distribution's standard deviation over its median absolute deviation",
        Derived("the normal distribution, 1 / quantile(3/4)"),
    )
    q80 = Parameter(
        0.8416,
        "sd",
        "quantile of 80 %: the power that a smallest visible change is told for",
        Derived("the normal distribution"),
    )
    q90 = Parameter(
        1.2816,
        "standard errors",
        "quantile of 90 %: a mean has to be so far above nothing, or a shift that is "
        "certain but tiny in one type would count as what another, noisy one adds to the "
        "mean",
        Derived("the normal distribution at 90 %; that it is 90 was chosen on simulated sets"),
    )
    q975 = Parameter(
        1.96, "sd", "quantile of 97.5 %: an interval of 95 %", Derived("the normal distribution")
    )
    q95 = Parameter(
        1.645,
        "sd",
        "quantile of 95 %: a fitted index of a tail is raised by so many standard errors",
        Derived("the normal distribution"),
    )
    q99 = Parameter(
        2.326,
        "sd",
        "quantile of 99 %, by which tails are balanced",
        Derived("the normal distribution"),
    )
    q995 = Parameter(
        2.576, "sd", "quantile of 99.5 %: an interval of 99 %", Derived("the normal distribution")
    )
    q999 = Parameter(
        3.090,
        "sd",
        "quantile of 99.9 %, by which tails are balanced",
        Derived("the normal distribution"),
    )


NORMAL: Final = Normal()


class Permutations(Group, name="permutations", guards="time and memory of large sets"):
    """How many assignments a test looks at, and what changes places."""

    units = Parameter(
        1_000,
        "executions",
        "up to so many change places or are drawn one by one; more do so in groups",
        COST,
    )
    work = Parameter(200_000_000, "executions", "drawn in all, over the assignments", COST)
    least_drawn = Parameter(1_999, "assignments", "drawn all the same, where that is more", COST)
    least_groups = Parameter(100, "groups", "on either side of a stratum", SIMULATED)
    exact = Parameter(
        20_000, "assignments", "up to so many all are looked at, and p is exact", COST
    )


PERMUTATIONS: Final = Permutations()


class Spreads(Group, name="spreads", guards="against spreads of nothing where few runs are alike"):
    """How little runs are ever believed to differ."""

    least = Parameter(
        0.05,
        "share",
        "spread that is never believed to be less: of a typical total, or of a logarithm; "
        "where all are alike five per cent is no difference",
        CUSTOM,
    )


SPREADS: Final = Spreads()


class Kinds(Group, name="kinds"):
    """When a kind of run is spoken of by itself."""

    fewest = Parameter(
        5, "executions", "of a kind on either side, to be judged or told by itself", CUSTOM
    )


KINDS: Final = Kinds()


class Defaults(Group, name="defaults"):
    """What a setting is where nobody sets it."""

    alpha = Parameter(0.01, "p", "level of the gate, and of `ab` (--alpha)", CUSTOM)
    floor = Parameter(
        0.05,
        "share",
        "of the normal mean duration: smallest increase that counts (--floor)",
        CUSTOM,
    )
    least = Parameter(
        0.25,
        "share",
        "of the normal mean duration: a slowdown that must show before it is OK (--least)",
        CUSTOM,
    )
    permutations = Parameter(
        9999, "assignments", "of the gate, where not all can be looked at (--permutations)", COST
    )
    t1 = Parameter(
        1.5,
        "sd",
        "above the normal mean, the paper's average rule (--t1)",
        Paper("Janecek et al. 2022, Algorithm 1"),
    )
    outlier_k = Parameter(
        1.5,
        "sd",
        "above the mean, the paper's rule for single runs (--outlier-k)",
        Paper("Janecek et al. 2022, Algorithm 3"),
    )
    p_min = Parameter(
        0.05,
        "share",
        "of the normal rows, fewer of which make a state abnormal in the paper's rule",
        Paper("Janecek et al. 2022"),
    )
    outlier_level = Parameter(
        0.05,
        "share",
        "of false outliers among the runs called anomalous (--outlier-level)",
        CUSTOM,
    )
    group_limit = Parameter(
        50, "executions", "most normal ones that an anomalous one is aligned with", COST
    )
    explain_limit = Parameter(50, "executions", "most that are aligned and explained", COST)


DEFAULTS: Final = Defaults()


class Watching(Group, name="watching"):
    """How recordings that go on are answered for."""

    window = Parameter(10, "intervals", "that an answer rests on, at most", CUSTOM)
    failing = Parameter(
        5, "answers", "of the last `watching.window`, that end what watches for a label", CUSTOM
    )


WATCHING: Final = Watching()


class Incidents(Group, name="incidents"):
    """What is looked at of a flight recorder's dump, that its line comes within seconds."""

    explained = Parameter(27, "executions", "most that are aligned and explained", COST)
    group = Parameter(
        30, "executions", "most normal ones that an anomalous one is aligned with", COST
    )
    unsure = Parameter(
        0.1,
        "share",
        "of a service's requests that gaps leave in doubt: with more, these are looked at, too",
        SERVERS,
    )
    turn = Parameter(
        4.0,
        "deviations",
        "by which runs are slower from some moment on, for those before it to be left out of "
        "what is judged: of some hundred moments one has three by chance",
        CUSTOM,
    )
    around = Parameter(
        30,
        "s",
        "before what a condition looks over, and after an alarm: what was recorded then may be "
        "of what it is about, and is not held for usual; three blocks of noticing",
        CUSTOM,
    )


INCIDENTS: Final = Incidents()


class Even(Group, name="even"):
    """How places are spread evenly."""

    golden = Parameter(
        0.6180339887498949,
        "share",
        "the golden section: multiples of it lie evenly and fall in step with no period of "
        "a workload",
        Derived("(sqrt(5) - 1) / 2"),
    )


EVEN: Final = Even()
