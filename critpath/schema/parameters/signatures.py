"""Numbers that `signatures` decides by."""

from __future__ import annotations

from typing import Final

from critpath.schema.parameters import COST, CUSTOM, SIGHT, SIGNATURES, Group, Parameter


class Drift(Group, name="drift"):
    """How strange a document is to a label."""

    smallest = Parameter(
        0.001, "variance", "of a direction in which nothing was seen to wander", SIGNATURES
    )
    nearest = Parameter(3, "documents", "that speak for a label", SIGNATURES)
    level = Parameter(0.01, "p", "below which a document is of no label", CUSTOM)
    few_level = Parameter(
        0.05, "p", "the same, where there are fewer than `drift.few` to compare with", CUSTOM
    )
    few = Parameter(200, "documents", "fewer to compare with cannot have a p so small", CUSTOM)
    enough_sessions = Parameter(
        3,
        "sessions",
        "of most labels, below which an answer near the level is inconclusive",
        SIGNATURES,
    )
    twins = Parameter(0.05, "share", "of documents that are nearest to another label", SIGNATURES)
    most_pairs = Parameter(64, "directions", "in which a label wanders, that are kept", COST)
    least_difference = Parameter(
        0.001,
        "share",
        "of the mean square that the smallest variance of a difference is",
        SIGNATURES,
    )
    penalties = Parameter(
        (0.1, 1.0, 10.0, 100.0), "penalties", "of a support vector machine, that are tried", CUSTOM
    )
    starts = Parameter(10, "starts", "of K-means", COST)


DRIFT: Final = Drift()


class Quiet(Group, name="quiet"):
    """When a document is quiet."""

    scatter = Parameter(
        0.01,
        "1 - cos",
        "where multinomial counts scatter more a document says too little",
        SIGNATURES,
    )
    rate = Parameter(
        100.0,
        "hits/s",
        "below which a document is of the background; `known check` finds it for a store",
        SIGNATURES,
    )


QUIET: Final = Quiet()


class Lookup(Group, name="lookup"):
    """What a store says of what it is asked."""

    comparable = Parameter(
        0.8, "share", "of hits that are of terms that both could count", SIGNATURES
    )
    least_documents = Parameter(5, "documents", "fewer are no answer", CUSTOM)
    agree = Parameter(
        0.8,
        "share",
        "of the documents that have to be of one label, for it to be the answer",
        CUSTOM,
    )
    near = Parameter(2.0, "times", "the level: too near to it with few sessions", SIGNATURES)
    like = Parameter(
        0.35, "similarity", "below which, not calibrated, nothing is like another", SIGNATURES
    )
    shortest = Parameter(0.9, "share", "of an interval: what is shorter is a piece of one", CUSTOM)
    right = Parameter(
        0.95,
        "share",
        "of documents that are found again: less is too often wrong, as with twins",
        SIGHT,
    )


LOOKUP: Final = Lookup()
