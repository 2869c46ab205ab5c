"""Numbers that `ab` decides by."""

from __future__ import annotations

from typing import Final

from critpath.schema.parameters import (
    COST,
    CUSTOM,
    HOSTS,
    OVERHEAD,
    SERVICES,
    SIGHT,
    SIMULATED,
    Derived,
    Group,
    Parameter,
)


class Evidence(Group, name="evidence"):
    """What blocks of random order show."""

    level = Parameter(0.01, "p", "of what is told beside the verdict", CUSTOM)
    speed = Parameter(
        1.2, "times", "spread of the probes that a machine without steal cannot explain", HOSTS
    )
    spread = Parameter(
        (0.1, 0.9), "quantiles", "of the probes, whose ratio is their spread", CUSTOM
    )
    clip = Parameter(4.0, "sd", "that a difference is cut at", SIMULATED)
    share = Parameter(
        0.2,
        "share",
        "of slow runs more, a larger of which must be excluded before a pass",
        CUSTOM,
    )
    share_alpha = Parameter(0.05, "p", "that it is excluded at", CUSTOM)
    tail_from = Parameter(20, "blocks", "that a tail's first threshold is taken from", SIMULATED)
    tail_every = Parameter(10, "blocks", "after which it is taken anew", COST)
    share_every = Parameter(4, "blocks", "after which the share is looked at", COST)
    slow = Parameter(0.9, "quantile", "above which a run counts as slow", CUSTOM)
    least_blocks = Parameter(
        9, "blocks", "with fewer the wealth cannot reach 100", Derived("2 to the number of blocks")
    )
    last_bet = Parameter(0.85, "share", "of the wealth that the boldest bet risks", SIMULATED)
    one_sided = Parameter(5, "failures", "of one side only that make a run invalid", CUSTOM)
    dropped = Parameter(0.05, "share", "of blocks that may drop out", CUSTOM)
    drift = Parameter(
        0.1,
        "share",
        "by which a machine may become slower or faster during a run, before it is said",
        CUSTOM,
    )
    coarse = Parameter(
        0.5, "share", "of the floor that the interval must be within, to end a run", SIMULATED
    )
    often = Parameter(30, "blocks", "until equal commands are told to be", CUSTOM)
    cause_blocks = Parameter(12, "blocks", "that are recorded for the causes", COST)
    bets = Parameter(
        (0.15, 0.3, 0.6, 1.2), "share", "of the wealth that bets on the mean risk", SIMULATED
    )
    tail_bets = Parameter(
        (0.1, 0.25, 0.5, 1.0), "share", "of the wealth that bets on a percentile risk", SIMULATED
    )
    share_bets = Parameter(
        (0.2, 0.4, 0.7),
        "share",
        "of the wealth that bets on the share of slow runs risk, besides the boldest",
        SIMULATED,
    )


EVIDENCE: Final = Evidence()


class Trends(Group, name="trends"):
    """Where a series of commits changes."""

    level = Parameter(0.01, "p", "up to which a change is one", CUSTOM)
    least = Parameter(2, "commits", "between two changes: of one there is no spread", SIGHT)
    permutations = Parameter(499, "permutations", "of a test", COST)
    enough = Parameter(
        10,
        "commits",
        "with fewer hardly a change can reach the level",
        Derived("choices of one half of them, above 1 / level with both signs"),
    )


TRENDS: Final = Trends()


class Alike(Group, name="alike"):
    """Whether two sets were asked for the same."""

    ask_others = Parameter(
        0.25, "share", "of a service's requests: so many more are of one kind than before", SERVICES
    )
    nearly_none = Parameter(
        0.1, "share", "of them on one side: the kind is new there, or went", SERVICES
    )
    too_few = Parameter(20, "requests", "of a service, to tell", SERVICES)
    stayed = Parameter(
        0.5,
        "share",
        "of the requests before: enough that those of the same clients tell of all",
        SERVICES,
    )
    came = Parameter(
        0.1, "share", "of the requests after: so many of new clients weigh on the mean", SERVICES
    )
    another_kind = Parameter(
        2.0,
        "times",
        "the bytes or the time of the others, or a part of them: clients of another kind",
        SERVICES,
    )


ALIKE: Final = Alike()


class Trials(Group, name="trials"):
    """How a calibration slows healthy recordings down."""

    sizes = Parameter(
        (10, 30, 100), "executions", "of a set, that a gate is calibrated for", CUSTOM
    )
    trials = Parameter(40, "splits", "that a slowdown is tried on", COST)
    rare = Parameter(0.2, "share", "of the runs that a rare slowdown hits", CUSTOM)
    negligible = Parameter(
        0.25,
        "share",
        "of the smallest new state that shows: a state that never lasts as long is as good as new",
        Derived("its own time is lost in the shift, which puts all slow runs above all others"),
    )
    reach = Parameter(
        6,
        "times",
        "1 / alpha, less one: with so many permutations the level is exact, more make "
        "p-values finer",
        COST,
    )
    permutations = Parameter(299, "permutations", "of each test", COST)
    largest_normal = Parameter(100, "executions", "of a normal set", COST)
    least_normal = Parameter(30, "executions", "of a normal set", CUSTOM)
    least_splits = Parameter(
        20, "splits", "of each size that are judged, even when the time is over", CUSTOM
    )
    least_draws = Parameter(10, "executions", "of one recording, however many there are", CUSTOM)


TRIALS: Final = Trials()


class Windows(Group, name="windows"):
    """Which runs of a recording with gaps can be told of."""

    nearly_all = Parameter(0.99, "share", "of a kind that end in the tail of a window", OVERHEAD)
    fewest = Parameter(10, "executions", "of a kind that have to be left", OVERHEAD)
    alike = Parameter(2.0, "times", "another chance, up to which both count the same", OVERHEAD)


WINDOWS: Final = Windows()


class Foresight(Group, name="foresight"):
    """What a recording in turns says it will show."""

    blocks = Parameter(5, "blocks", "from so many on it is known how runs differ", SIMULATED)
    wanted = Parameter(0.25, "share", "of a run's time: a slowdown that should show", CUSTOM)
    busy = Parameter(
        1.0,
        "threads",
        "for each CPU, that ran or waited for one in the last minute: with more, who records once "
        "is told beforehand to record in turns",
        Derived("with more threads than CPUs some wait"),
    )


FORESIGHT: Final = Foresight()


class Places(Group, name="places"):
    """Which of a report's places are told apart."""

    least = Parameter(
        0.0005, "share", "of all time: what takes less counts as what is above it", COST
    )
    least_wait = Parameter(0.001, "share", "of the longest wait: shorter ones are not told", SIGHT)


PLACES: Final = Places()
