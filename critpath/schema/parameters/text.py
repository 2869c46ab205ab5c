"""Numbers that `text` decides by."""

from __future__ import annotations

from typing import Final

from critpath.schema.parameters import CUSTOM, SIGHT, Derived, Group, Parameter


class Answers(Group, name="answers", guards="what is told of an answer"):
    """From when on an answer says something."""

    most_of_kind = Parameter(
        0.8, "share", "of a kind's requests that are slow, so that it is told by its mean", SIGHT
    )
    clearer = Parameter(
        0.8,
        "times",
        "as small is what would have shown without strangers' time, for that to be told",
        SIGHT,
    )
    times = Parameter(
        1.95, "times", "as long: from here on it is said so, instead of per cent", SIGHT
    )
    alike = Parameter(1.25, "times", "between the kinds that slowed down by about as much", SIGHT)
    mostly = Parameter(0.5, "share", "of what a kind lost, to be most of it", SIGHT)
    many_more = Parameter(
        10.0,
        "times",
        "as many runs as were recorded, beyond which nobody is told to record more",
        SIGHT,
    )
    raised = Parameter(
        1.01,
        "times",
        "the limit that was set: rounding is less",
        Derived("a per cent is what is shown of it"),
    )
    least_chance = Parameter(
        1.5e-4, "p", "what 10,000 permutations can tell", Derived("1 / 10,000, rounded up")
    )
    busier = Parameter(0.05, "share", "of all cpus that others had more, to be said", SIGHT)
    same = Parameter(
        0.9, "share", "of the headline's requests that a cause has, to be of the same", SIGHT
    )
    common = Parameter(
        0.05, "p", "from which on differences as large are called common by chance", CUSTOM
    )
    hardly = Parameter(0.05, "share", "below which a change is hardly one", SIGHT)
    seen = Parameter(0.01, "share", "of the cpus that is worth a word", SIGHT)
    often = Parameter(0.1, "p", "above this it is told as a share of comparisons", SIGHT)


ANSWERS: Final = Answers()


class Words(Group, name="words", guards="what is told of a cause"):
    """From when on a cause's sentence says something."""

    more_often = Parameter(1.5, "times", "as many: it is said that it is done more often", SIGHT)
    ticks = Parameter(
        20_000_000,
        "ns",
        "of a run, so that the kernel's part of it is known: it is sampled by ticks",
        Derived("two ticks of 100 Hz; of a run without any the kernel's part is said to be 0"),
    )
    fault = Parameter(
        5_000,
        "ns",
        "that a page fault takes at most, where the kernel's time is for page faults",
        Derived("measured as 0.25 to 1.6 us, and as three times that in a guest"),
    )
    mostly = Parameter(
        0.6, "share", "of the time in one place of the code: no other is named", SIGHT
    )
    once_more = Parameter(0.95, "counts", 'more a run, to be said "once more"', SIGHT)
    all = Parameter(0.95, "share", "that is called all", SIGHT)
    more_than_all = Parameter(1.10, "share", "that is called more than all", SIGHT)
    agrees = Parameter(
        0.1,
        "share",
        "of a contribution that the difference of the two times may be off, to be told by them",
        SIGHT,
    )
    crumb = Parameter(0.01, "share", "of what a difference is due to, that is not told", SIGHT)
    never = Parameter(0.005, "times", "a request: it is not done", SIGHT)
    half = Parameter(
        0.5, "share", "of waits for a cpu, from when on it is said that another was idle", SIGHT
    )
    nearly_all = Parameter(
        0.8, "share", "of waits for a cpu, from when on it is said without a share", SIGHT
    )
    sure = Parameter(0.9995, "probability", "what is less probable is called inferred", CUSTOM)


WORDS: Final = Words()
