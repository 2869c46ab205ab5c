"""Numbers that `explore` decides by."""

from __future__ import annotations

from typing import Final

from critpath.schema.parameters import COST, CUSTOM, Derived, Group, Parameter


class Conditions(Group, name="conditions"):
    """What selected runs have in common."""

    most = Parameter(400, "conditions", "that are combined, by how many runs have them", COST)
    cuts = Parameter(
        (0.25, 0.5, 0.75, 0.9), "quantiles", "at which a number becomes a condition", CUSTOM
    )
    alike = Parameter(0.95, "Jaccard's index", "from which on two conditions are one", CUSTOM)
    z = Parameter(
        1.959963984540054, "sd", "of an interval of 95 %", Derived("the normal distribution")
    )
    level = Parameter(0.05, "p", "below which a condition is told", CUSTOM)
    shifts = Parameter(999, "shifts", "that a workload's order is turned by", COST)
    best = Parameter(20, "conditions", "of which any two are looked at, with depth 2", COST)
    fewest_clustered = Parameter(
        20, "executions", "of a label that types are looked for in", CUSTOM
    )
    subtype = Parameter(
        0.05,
        "share",
        "of a label's runs that are a type of their own, to be asked about",
        CUSTOM,
    )
    telling = Parameter(
        0.5,
        "share",
        "of a type's runs that more than of the others have to meet a condition, to name it",
        CUSTOM,
    )
    symbols = Parameter(
        12, "states", "of which conditions are looked at unasked: where most time goes", COST
    )
    roles = Parameter(
        12, "threads", "of one name that paths go through, of which conditions are looked at", COST
    )
    calls = Parameter(
        20, "system calls", "that most runs make, of which conditions are looked at", COST
    )
    asked = Parameter(50, "services", "of which conditions are looked at", COST)


CONDITIONS: Final = Conditions()
