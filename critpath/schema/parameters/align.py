"""Numbers that `align` decides by."""

from __future__ import annotations

from typing import Final

from critpath.schema.parameters import COST, CUSTOM, FAMILIES, SIGHT, Group, Paper, Parameter


class Posteriors(Group, name="posteriors", guards="alignments, by families that were drawn"):
    """How likely two segments are one, and what is aligned by it."""

    least = Parameter(0.02, "share", "smaller posteriors are left out", FAMILIES)
    margin = Parameter(
        32,
        "diagonals",
        "half the least width of the band, beside what the lengths demand",
        FAMILIES,
    )
    between = Parameter(12, "paths", "that two are made consistent by", FAMILIES)
    rounds = Parameter(1, "rounds", "of making consistent", FAMILIES)
    passes = Parameter(1, "passes", "in which every row is aligned anew", FAMILIES)
    near = Parameter(
        0.1,
        "share",
        "of a pair of rows' letters in doubt, with which the pair counts half",
        FAMILIES,
    )
    open = Parameter(0.045, "chance", "that a short gap, of a few states, follows a pair", FAMILIES)
    extend = Parameter(0.5, "chance", "that a short gap goes on", FAMILIES)
    edge = Parameter(0.04, "weight", "of a short gap at either end", FAMILIES)
    long_open = Parameter(
        0.015, "chance", "that a long gap, of iterations or phases, follows a pair", FAMILIES
    )
    long_extend = Parameter(0.85, "chance", "that a long gap goes on", FAMILIES)
    long_edge = Parameter(0.005, "weight", "of a long gap at either end", FAMILIES)


POSTERIORS: Final = Posteriors()


class Profiles(Group, name="profiles", guards="paths that are too long for posteriors"):
    """Alignment by profiles, as in the paper, where there is too much for posteriors."""

    pi = Parameter(0.6, "share", "of letters expected not to be redrawn", FAMILIES)
    gap_open = Parameter(-3.5, "score", "of a gap that opens", FAMILIES)
    gap_extend = Parameter(-0.25, "score", "of a gap that goes on", FAMILIES)
    centre = Parameter(0.3, "score", "taken off every pair", FAMILIES)
    log_floor = Parameter(
        -2.5, "log", "least logarithm in a profile score", Paper("MUSCLE 3 (Edgar 2004)")
    )
    least_background = Parameter(0.001, "share", "of a letter in the background, at least", CUSTOM)
    average = Parameter(
        0.1,
        "share",
        "of the average, the rest is of the nearest neighbour, when two clusters are joined",
        Paper("MUSCLE 3 (Edgar 2004)"),
    )
    saturated = Parameter(
        10.0,
        "distance",
        "of rows that have too little in common for Kimura's formula",
        Paper("MUSCLE 3 (Edgar 2004)"),
    )
    kimura = Parameter(
        (0.75, 0.93),
        "share",
        "of letters that differ: up to the first Kimura's formula holds, from the second on"
        " distances are saturated",
        Paper("Kimura 1983, MUSCLE 3 (Edgar 2004)"),
    )
    least_weight = Parameter(0.001, "share", "of the mean weight that every row has", CUSTOM)
    least_k = Parameter(2, "letters", "of the shortest words that rows are compared by", FAMILIES)
    most_k = Parameter(6, "letters", "of the longest words that rows are compared by", FAMILIES)
    whole_columns = Parameter(2000, "columns", "wider alignments are refined block by block", COST)
    block_columns = Parameter(300, "columns", "of such a block at least", COST)
    window = Parameter(
        7, "columns", "with at most one of so many around not alike, blocks may be cut", FAMILIES
    )
    band_from = Parameter(500, "columns", "of the shorter profile from which a band is tried", COST)
    least_occupancy = Parameter(
        0.5,
        "share",
        "of the rows that a column needs, or it counts as a gap when anchors are sought",
        FAMILIES,
    )
    word = Parameter(12, "columns", "of a word that is an anchor", FAMILIES)
    least_distance = Parameter(
        32, "columns", "between anchors: closer ones only add bookkeeping", COST
    )
    most_shift = Parameter(
        0.1,
        "share",
        "of the length that a word may shift the diagonal by: more is elsewhere by chance",
        FAMILIES,
    )
    least_saving = Parameter(
        0.3, "share", "of all cells that a band must leave out, to be worth its bookkeeping", COST
    )


PROFILES: Final = Profiles()


class Loops(Group, name="loops", guards="repetitions, which paths of these recordings hardly have"):
    """Which repetitions are a loop."""

    most_period = Parameter(16, "states", "of an iteration", FAMILIES)
    least_iterations = Parameter(
        12, "iterations", "of a run that is a loop, with `loops.least_states`", FAMILIES
    )
    least_states = Parameter(
        24, "states", "of a run that is a loop, with `loops.least_iterations`", FAMILIES
    )
    least_known = Parameter(
        2, "iterations", "of a unit that is a loop elsewhere, in any row", FAMILIES
    )
    break_ = Parameter(
        4,
        "iterations",
        "within which a loop that is broken goes on, so that its parts would be taken for "
        "each other",
        FAMILIES,
    )
    long = Parameter(
        1_000, "iterations", "of a loop that is taken out although it is broken", FAMILIES
    )
    named = Parameter(
        4, "iterations", "of what is called a loop; fewer are states like others", SIGHT
    )
    named_states = Parameter(8, "states", "of what is called a loop", SIGHT)


LOOPS: Final = Loops()
