"""Numbers by which a flight recorder notices that requests are slower than usual."""

from __future__ import annotations

from typing import Final

from critpath.schema.parameters import SIMULATED_STREAMS, Group, Parameter


class Noticing(Group, name="noticing"):
    """When requests of a kind are slower than is usual for them."""

    block = Parameter(10.0, "s", "of a block: what is counted together", SIMULATED_STREAMS)
    quantiles = Parameter(
        (0.9, 0.99),
        "share",
        "of what is usual, above which requests are counted",
        SIMULATED_STREAMS,
    )
    resets = Parameter(
        0.001,
        "share",
        "of requests that end by a reset, before anything is known",
        SIMULATED_STREAMS,
    )
    usual = Parameter(360, "blocks", "of which what is usual is learned", SIMULATED_STREAMS)
    fewest = Parameter(
        (120, 300),
        "blocks, requests",
        "from so many on it is known what is usual",
        SIMULATED_STREAMS,
    )
    prior = Parameter(
        2.0,
        "requests",
        "above a quantile that are taken for seen before any was",
        SIMULATED_STREAMS,
    )
    alternatives = Parameter(
        (2.0, 4.0, 16.0), "times", "the odds of what is usual, that bets are on", SIMULATED_STREAMS
    )
    spread = Parameter(
        (0.005, 20),
        "share, blocks",
        "how much blocks differ, besides by chance, until it is known; of so much weight",
        SIMULATED_STREAMS,
    )
    longest = Parameter(
        12, "blocks", "that at most are taken for one, as what is slow lasts", SIMULATED_STREAMS
    )
    restart = Parameter(360, "blocks", "after which evidence begins anew", SIMULATED_STREAMS)
    sustained = Parameter(
        3, "blocks", "that are above what is usual, one after another", SIMULATED_STREAMS
    )
    least = Parameter(0.25, "share", "by which a percentile has to be longer", SIMULATED_STREAMS)
    levels = Parameter(
        (3, 6), "blocks", "of which percentiles are held against what is usual", SIMULATED_STREAMS
    )
    prior_level = Parameter(
        (0.12, 20),
        "log, blocks",
        "how far percentiles of blocks are from usual, until it is known; of so much weight",
        SIMULATED_STREAMS,
    )
    cut = Parameter(
        3.0, "deviations", "beyond which a percentile counts as so far only", SIMULATED_STREAMS
    )
    beyond = Parameter(
        0.1,
        "log",
        "by which a percentile is longer than it came to by itself in the last day",
        SIMULATED_STREAMS,
    )
    a_day = Parameter(1.0, "alarms", "of all kinds in a day by chance, at most", SIMULATED_STREAMS)
    chance = Parameter(
        (4.0, 5),
        "nats, times",
        "of evidence that comes and goes by itself, until it is known; of so much weight",
        SIMULATED_STREAMS,
    )
    record = Parameter(
        1.5, "times", "the most that evidence came to by itself in the last day", SIMULATED_STREAMS
    )
    calm = Parameter(12, "blocks", "that are as usual end an alarm", SIMULATED_STREAMS)
    adopted = Parameter(8640, "blocks", "after which what lasts is usual", SIMULATED_STREAMS)
    together = Parameter(
        (3, 0.6), "kinds, share", "that are above at once: the machine's", SIMULATED_STREAMS
    )


NOTICING: Final = Noticing()
