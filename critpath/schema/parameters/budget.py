"""Numbers that `budget` decides by."""

from __future__ import annotations

from typing import Final

from critpath.schema.parameters import OVERHEAD, Group, Parameter


class Account(Group, name="account"):
    """What may be spent on recording, and how that is counted."""

    idle = Parameter(
        0.05,
        "share",
        "of a stretch: a cpu that was busy for less is not judged by its share",
        OVERHEAD,
    )
    held = Parameter(1.1, "times", "a budget that was counted: it held, up to this", OVERHEAD)
    part = Parameter(
        4, "parts", "one of so many of a horizon's budget may be spent at once", OVERHEAD
    )


ACCOUNT: Final = Account()


class Control(Group, name="control"):
    """When recording opens and closes."""

    kappa = Parameter(
        1.2,
        "times",
        "what an event of a program costs more than one of a probe, until measured",
        OVERHEAD,
    )
    open = Parameter(0.05, "s", "between two polls while open", OVERHEAD)
    shortest = Parameter(
        0.001,
        "s",
        "between two polls, at least: while closed never so short that looking costs what "
        "is to be saved",
        OVERHEAD,
    )
    closed = Parameter(
        (0.02, 0.25), "s", "between two polls while closed: at least, at most", OVERHEAD
    )
    residual = Parameter(
        4,
        "parts",
        "a closed gate may cost one of so many of the budget, else it is turned off",
        OVERHEAD,
    )
    paid = Parameter(
        0.5, "share", "of the budget, for what was spent before the first poll", OVERHEAD
    )
    paid_always = Parameter(
        0.05, "share", "the same, of an always-on recorder, which has the time", OVERHEAD
    )
    least = Parameter(
        1 / 16, "share", "of the most credit, which is spent until the next poll", OVERHEAD
    )
    few = Parameter(0.25, "share", "of the credit, below which nothing is decided", OVERHEAD)
    old = Parameter(0.005, "s", "that rates of busy time and cost are averaged over", OVERHEAD)
    usual = Parameter(
        0.05, "s", "of busy time that what usually happens is averaged over", OVERHEAD
    )
    least_work = Parameter(0.2, "share", "of busy time that is not spent on recording", OVERHEAD)
    adjust = Parameter(0.4, "s", "between two trims, at least", OVERHEAD)
    gain = Parameter(
        0.5, "share", "of the error, divided among those who use all they get: it halves", OVERHEAD
    )
    filled = Parameter(
        0.95, "share", "of the most credit, beyond which waiting would lose some", OVERHEAD
    )
    spare = Parameter(
        0.5, "share", "of the most credit, that stacks leave for what paths are made of", OVERHEAD
    )
    refilled = Parameter(0.7, "share", "the same, where opening takes a part of it", OVERHEAD)
    lasting = Parameter(
        (0.6, 0.8),
        "share",
        "of the budget, for what is recorded all the time: to begin with it, to go on with it",
        OVERHEAD,
    )
    own = Parameter(
        1.0,
        "times",
        "the budget, of a cpu, for an always-on recorder's threads where nobody else wants the "
        "cpus: below .3 % of a cpu an idle machine earns less at 1 % than they take, and nothing "
        "of threads is recorded",
        OVERHEAD,
    )
    half_life = Parameter(
        2.0, "s", "of open time, of what a layer's demand is averaged over", OVERHEAD
    )


CONTROL: Final = Control()


class Measured(Group, name="measured"):
    """What an event costs, as it was measured before."""

    fresh = Parameter(
        3600.0, "s", "for which it is taken as it is: within hours it doubles or halves", OVERHEAD
    )
    kept = Parameter(30 * 86_400.0, "s", "for which it is better than the table's", OVERHEAD)
    loads = Parameter(
        (0.25, 1.0),
        "runnable threads",
        "of a cpu, that part machines which are measured apart: idle, busy, full",
        OVERHEAD,
    )


MEASURED: Final = Measured()


class Dumps(Group, name="dumps"):
    """What a flight recorder's dumps may take from others; the rest runs at idle priority."""

    share = Parameter(0.005, "share", "of a cpu, over the time", OVERHEAD)
    most = Parameter(10.0, "s", "of cpu time that are saved for it", OVERHEAD)
    idle = Parameter(2.0, "s", "for which a dump runs at idle priority at least", OVERHEAD)


DUMPS: Final = Dumps()


class Natural(Group, name="natural"):
    """What recording costs, by a coin."""

    fewest = Parameter(30, "pairs", "of each side, below which nothing is compared", OVERHEAD)
    stretch = Parameter(0.02, "s", "before and after an opening that are compared", OVERHEAD)
    recent = Parameter(
        300, "pairs", "of which the correction is made: what an event costs changes", OVERHEAD
    )
    slices = Parameter(50, "slices", "of time that a stretch has to have", OVERHEAD)
    doubt = Parameter(0.3, "log", "standard deviation of what is assumed", OVERHEAD)
    bounds = Parameter(
        (0.5, 4.0),
        "times",
        "what is assumed, that the correction may be: at least, at most",
        OVERHEAD,
    )


NATURAL: Final = Natural()


class Programs(Group, name="programs"):
    """Which runs a program admits."""

    active = Parameter(10.0, "s", "after a run began for which others are expected", OVERHEAD)
    switch = Parameter(
        100e-6, "s", "of cpu time to open and close, with what the recorder does for it", OVERHEAD
    )
    begin = Parameter(1.8e-6, "s", "of a coin, and of what a program counts", OVERHEAD)
    longest_stay = Parameter(0.005, "s", "to stay open for nobody", OVERHEAD)
    longest = Parameter(
        10.0, "s", "a run may last, until it is known how long its kind does", OVERHEAD
    )
    half = Parameter(0.5, "s", "of open time of which a rate is the mean", OVERHEAD)
    guess = Parameter(
        0.1, "share", "that recording all would cost, until one was recorded", OVERHEAD
    )
    fixed = Parameter(
        0.012, "s", "of cpu time that it takes to begin, to look and to end, at least", OVERHEAD
    )
    dearest = Parameter(
        0.5, "share", "that recording a run takes more, at most: beyond this the first is", OVERHEAD
    )
    doubt = Parameter(
        1.5,
        "times",
        "what a run is expected to cost, which has to be there for the first",
        OVERHEAD,
    )
    per_switch = Parameter(
        3.0, "events", "of a switch of threads: itself, a wake, an interrupt now and then", OVERHEAD
    )
    most_saved = Parameter(4.0, "times", "the share, however little was spent until now", OVERHEAD)
    kept = Parameter(
        0.999,
        "share",
        "of what is known that stays with every run: how many and how busy",
        OVERHEAD,
    )
    weight = Parameter(0.2, "share", "of what the last one cost, in the mean", OVERHEAD)
    fewest = Parameter(
        5, "executions", "below which nothing is known of how long a kind lasts", OVERHEAD
    )
    given_up = Parameter(
        20, "times", "the median of its kind: one that lasts longer is given up", OVERHEAD
    )


PROGRAMS: Final = Programs()
