"""Numbers that `detect` decides by."""

from __future__ import annotations

from typing import Final

from critpath.schema.parameters import (
    COST,
    CUSTOM,
    HOSTS,
    SERVERS,
    SERVICES,
    SIGHT,
    SIMULATED,
    WEATHER,
    Derived,
    Group,
    Paper,
    Parameter,
)


class Calibration(Group, name="calibration"):
    """How calibrate reads what healthy recordings said of each other."""

    least_floor = Parameter(
        0.05, "share", "least floor that is advised, of the mean duration", CUSTOM
    )
    least_sessions = Parameter(
        3,
        "sessions",
        "fewest by whose spread a floor can be set: two means have a distance, no spread",
        Derived("a spread needs a degree of freedom more than a distance"),
    )
    confidence = Parameter(0.95, "share", "confidence of the interval of a rate of alarms", CUSTOM)
    most_alarms = Parameter(
        0.1,
        "share",
        "of comparisons of healthy recordings that may alarm before the gate is called "
        "blunt or loud",
        SERVICES,
    )
    usual_size = Parameter(
        30,
        "executions",
        "size of the sets that the first reason is about, if the recordings allow it",
        CUSTOM,
    )
    blunt_floor = Parameter(
        0.2,
        "share",
        "floor above which a gate would miss what most people would call a slowdown",
        CUSTOM,
    )
    power = Parameter(
        0.8, "share", "of trials that have to show a slowdown for it to count as seen", CUSTOM
    )
    largest_shift = Parameter(
        64.0, "times", "the mean duration: a slowdown that does not show then never will", CUSTOM
    )
    step = Parameter(
        2 ** (1 / 16),
        "ratio",
        "between two slowdowns that are tried, so how exact the smallest is: 4 %",
        COST,
    )
    first_shift = Parameter(
        1e-3,
        "share",
        "of the mean duration: first slowdown tried, where no floor says where to begin",
        COST,
    )
    at_floor = Parameter(
        1.1,
        "times",
        "the least that the floor asks for: a smallest shift up to there is decided by the floor",
        CUSTOM,
    )


CALIBRATION: Final = Calibration()


class Coarse(
    Group, name="coarse", guards="the share of false alarms that is told of the paper's rules"
):
    """How the paper's rules, and the mix of types, are tried by chance."""

    least_splits = Parameter(
        20,
        "splits",
        "fewest random splits that say how often the paper's rules fire by chance",
        COST,
    )
    splits = Parameter(
        200, "splits", "random splits that say how often the paper's rules fire by chance", COST
    )
    most_paired = Parameter(
        500, "executions", "of a type and side, for the ratio of all pairs", COST
    )
    mix_permutations = Parameter(
        9_999, "assignments", "drawn to test whether the mix of types changed", COST
    )


COARSE: Final = Coarse()


class Comparability(
    Group, name="comparability", guards="against sets of which no verdict can be given"
):
    """When two sets cannot be compared, or are not alike."""

    most_unused = Parameter(
        0.5,
        "share",
        "of the normal set that may be of types the sample has not, before that is said",
        SERVICES,
    )
    turns = Parameter(
        0.5,
        "changes",
        "from one set to the other per run of the smaller, to count as interleaved: "
        "two by chance, one in blocks of four is a half",
        Derived("blocks of four runs change sides every other one"),
    )
    same_route = Parameter(
        0.9,
        "share",
        "of a run's packets that take the route they took before, for a route to have stayed",
        HOSTS,
    )
    more_devices = Parameter(
        1.25, "times", "devices of a kind that a packet passes, to be another route", HOSTS
    )
    few_runs = Parameter(3, "runs", "with fewer nothing is known of how runs differ", CUSTOM)
    probe_apart = Parameter(
        0.05,
        "share",
        "two probes' times may differ before the machine was another",
        Paper("specification of `critpath ab`, section 9"),
    )
    kinds_apart = Parameter(
        2,
        "kinds",
        "of probes that have to be so far apart",
        Paper("specification of `critpath ab`, section 9"),
    )
    pressure_apart = Parameter(
        0.03,
        "share",
        "of the time under pressure that may differ",
        Paper("specification of `critpath ab`, section 9"),
    )
    others_apart = Parameter(
        0.20,
        "share",
        "of the cpus that others had may differ",
        Paper("specification of `critpath ab`, section 9"),
    )
    doubtful = Parameter(
        0.05, "share", "of a set's requests in doubt, beyond which there is no verdict", SERVERS
    )
    unsure = Parameter(
        0.2,
        "share",
        "of a set's requests that ``min_confidence`` may leave out, beyond which there is "
        "no verdict",
        SERVERS,
    )
    lossy = Parameter(
        0.05,
        "share",
        "of a set's runs lost or put in, beyond which it cannot speak for the others",
        CUSTOM,
    )
    another_hour = Parameter(
        0.33,
        "share",
        "of the mean: the machine alone may make runs of another hour so much faster",
        SERVICES,
    )


COMPARABILITY: Final = Comparability()


class Effects(Group, name="effects", guards="the level over both families of tests"):
    """The size of what differs, and how the level is shared."""

    replicates = Parameter(999, "draws", "of the runs, for the intervals of differences", COST)
    few = Parameter(
        5, "executions", "that cannot stand for their own spread when drawn from again", SIMULATED
    )
    whole = Parameter(
        0.5,
        "share",
        "of the level for the family of the whole, the total and the unusualness; the "
        "states have the rest, and all of it once the whole fires",
        SIMULATED,
    )
    slow = Parameter(
        0.1,
        "share",
        "of the family of the whole for the test of few slow runs, which is of their "
        "size and not of their ranks",
        SERVICES,
    )
    regardless = Parameter(
        0.1,
        "share",
        "of the family of the whole for the total regardless of types found by clustering: "
        "types too small to test must not hide a change that everything shows",
        SERVICES,
    )
    bursts = Parameter(
        10.0,
        "times",
        "as sure has to be what bursts of others have a part in: between runs these are few"
        " and far from normal",
        SERVICES,
    )
    few_far = Parameter(
        0.1,
        "share",
        "of a set's rows more than of the other's that may be so far from the usual one, for "
        "what is usual to speak for all",
        WEATHER,
    )
    offset = Parameter(
        0.02, "share", "of the type's median total, added before logarithms are taken", SIMULATED
    )
    far = Parameter(
        2.5, "sd", "from the middle of a side: what is farther spoils no run's mean", SIMULATED
    )
    interval = Parameter(
        (0.025, 0.975), "quantiles", "between which the interval of an effect lies", CUSTOM
    )


EFFECTS: Final = Effects()


class Flame(Group, name="flame", guards="what is marked in a flame graph"):
    """Which nodes of a flame graph are marked."""

    least_change = Parameter(
        0.004, "share", "of the whole: smaller changes of a node are not marked", SIGHT
    )
    least_tested = Parameter(0.002, "share", "of all time: smaller nodes are not tested", COST)
    least_drawn = Parameter(0.001, "share", "of the whole: smaller nodes are drawn as one", SIGHT)
    most_tested = Parameter(64, "nodes", "that are tested", COST)
    level = Parameter(0.05, "p", "level of the marks in a flame graph, over its nodes", CUSTOM)


FLAME: Final = Flame()


class Gate(
    Group,
    name="gate",
    guards="the level of the test where sets are small, uneven or of several sessions",
):
    """The permutation test that decides."""

    tail = Parameter(
        0.9,
        "quantile",
        "of the values, above which they are the tail whose balance is held between assignments",
        SIMULATED,
    )
    pilot = Parameter(999, "assignments", "at the least, by which the balance is found", SIMULATED)
    most_ways = Parameter(20_000, "ways", "of exchanging runs that are looked at one by one", COST)
    sparse = Parameter(
        16, "picks", "one in so many: adding them up is faster than a matrix product", COST
    )
    sigmas = Parameter(
        3.0, "sd", "of session means that an effect must exceed", Paper("Shewhart's three sigma")
    )
    least_ways = Parameter(
        16,
        "assignments",
        "of blocks that must be possible at the level, or runs change places instead",
        CUSTOM,
    )
    few_blocks = Parameter(
        5, "blocks", "from so many on their differences tell what they vary by", SERVICES
    )
    few_runs = Parameter(
        6, "runs", "of a side; of fewer no order is rare enough: Student's t is asked", SIMULATED
    )
    alike = Parameter(
        9.0, "ratio", "of the sides' variances, up to which they count as one", SIMULATED
    )
    balanced = Parameter(
        (0.99, 0.999), "quantiles", "by which the tails of statistics are made alike", SIMULATED
    )


GATE: Final = Gate()


class Machine(
    Group, name="machine", guards="against a slow machine that is taken for a slow program"
):
    """What a slow machine makes of a program, and what it cannot."""

    pace = Parameter(
        2.0,
        "times",
        "as long may a state last on a slow machine: the shares of cpu and caches that "
        "neighbours have were measured as up to 1.6",
        SERVICES,
    )
    apart = Parameter(
        1.5,
        "times",
        "the running time of all other threads, that of one has to grow to be a sign",
        SERVICES,
    )
    disk = Parameter(3.0, "times", "as long may waits for a disk be that others use", SERVICES)
    sleep = Parameter(1.25, "times", "as long may a sleep be", SERVICES)
    other = Parameter(2.0, "times", "as long may any other wait be", SERVICES)
    steady = Parameter(
        1.25,
        "times",
        "as long may all but waits behind other requests be, where these are a sign",
        SERVICES,
    )
    queue = Parameter(
        0.5,
        "share",
        "of the mean duration that a wait behind other requests must be, to be a sign",
        SERVICES,
    )
    more_often = Parameter(1.5, "times", "as many has a count to be, to be a sign", SERVICES)
    least_rise = Parameter(
        0.9,
        "counts",
        "a run by which it has to rise as well: less is a wait that was met or not",
        SERVICES,
    )
    kind = Parameter(
        1.4,
        "times",
        "one kind of request has to be slower than the pace of the others makes it",
        SERVICES,
    )
    level = Parameter(0.005, "p", "level of one sign", SERVICES)
    wake = Parameter(
        5_000,
        "ns",
        "that waking one more thread may cost the waker, where a call wakes many",
        WEATHER,
    )
    new = Parameter(
        0.05,
        "share",
        "of the runs before or of their time that may have what counts as new",
        SERVICES,
    )
    group = Parameter(4, "executions", "of a type in either set, for signs within it", SERVICES)
    faster = Parameter(
        0.75,
        "times",
        "the usual time or less: what is in runs that take so little made none slower",
        SERVICES,
    )
    explains = Parameter(
        0.1,
        "share",
        "of the time that was added, for a sign to decide: what is small beside it did not make it",
        SERVICES,
    )
    newcomer = Parameter(
        0.05,
        "p",
        "chance of a stranger being met in more of the runs after than of those before",
        SERVICES,
    )


MACHINE: Final = Machine()


class Tails(Group, name="tails", guards="few slow runs, and tails that are heavier than they look"):
    """Few slow runs, and percentiles."""

    least_slow = Parameter(
        3,
        "executions",
        "slow ones that count: a stall of the machine hits one, or two that are neighbours",
        SERVICES,
    )
    fitted = Parameter(
        0.1, "share", "of the normal values that the form of the tail is fitted to", SIMULATED
    )
    least_fitted = Parameter(10, "values", "fewest that a tail is fitted to", SIMULATED)
    lightest = Parameter(
        0.1,
        "index",
        "a tail is never believed to be lighter than a Pareto tail of index 10",
        SERVICES,
    )
    farthest = Parameter(
        4.0,
        "times",
        "what the largest of a tail's logarithms may have over that of their number",
        SERVICES,
    )
    ranks = Parameter(
        0.03,
        "p",
        "of so many runs above all before, to be slow whatever the tail's form",
        SERVICES,
    )
    believed = Parameter(1e-6, "p", "no p that rests on the form of a tail is less", CUSTOM)
    counts = Parameter(20, "numbers", "of slow runs that are tried", COST)
    least_normal = Parameter(
        5, "executions", "normal ones of a type, for its median to be one", CUSTOM
    )
    quantiles = Parameter((0.5, 0.95, 0.99), "quantiles", "that are told of both sets", CUSTOM)
    confidence = Parameter(
        0.99,
        "share",
        "of the interval of the difference of a percentile: half of the rest for either set",
        CUSTOM,
    )


TAILS: Final = Tails()


class Verdict(Group, name="verdict"):
    """What settles an answer."""

    mostly = Parameter(
        0.5,
        "share",
        "of what was added that a state at `warn` or others' time must have made, to be "
        "called most of it",
        CUSTOM,
    )
    more = Parameter(
        1.5,
        "times",
        "as many runs are advised as their spread asks for, which few of them may tell low",
        SIMULATED,
    )
    one_cpu = Parameter(
        0.9, "share", "of strangers' time that was on one CPU, for that to be named", CUSTOM
    )


VERDICT: Final = Verdict()


class Intruders(Group, name="intruders"):
    """A stranger who came with the sample, and has a cpu of nearly every run."""

    least = Parameter(
        0.1, "share", "of a kind's usual duration that it waits for a stranger who came", WEATHER
    )
    often = Parameter(0.75, "share", "of a kind's runs that have to wait for it", WEATHER)
    most = Parameter(
        16, "strangers", "that are asked, each on each cpu: those waited for longest", CUSTOM
    )


INTRUDERS: Final = Intruders()
