"""Numbers that `clocks` decides by."""

from __future__ import annotations

from typing import Final

from critpath.schema.parameters import COST, HOSTS, Derived, Group, Paper, Parameter


class Clocks(
    Group, name="clocks", guards="clocks that bend, step, or are hardly tied to each other"
):
    """What a clock can do, and which connection's two ends are one."""

    late = Parameter(
        200_000_000, "ns", "by which two connections' begins may be apart on two hosts", HOSTS
    )
    unknown_drift = Parameter(1e-3, "share", "of clocks that nothing is known of yet", HOSTS)
    surer_order = Parameter(
        4, "times", "as bad has the next best order of used-again ports to be", HOSTS
    )
    order_slack = Parameter(1000000.0, "ns", "and by so much more", HOSTS)
    turns = Parameter(
        (4, 32),
        "messages",
        "by which an end is known again behind translated addresses: at least, at most",
        HOSTS,
    )
    largest_drift = Parameter(5e-4, "share", "quartz is within some 1e-4; more is no clock", HOSTS)
    largest_bend = Parameter(
        1e-6 / 1e9,
        "1/ns",
        "by how much a clock's rate may change, 1 ppm in a second: twice what temperature "
        "does to quartz at worst",
        HOSTS,
    )
    near = Parameter(
        200_000_000_000,
        "ns",
        "what is farther away bounds nothing that bends",
        Derived("LARGEST_BEND times its square is beyond any bound"),
    )
    window = Parameter(
        10_000_000,
        "ns",
        "in which an ending event is looked for",
        Paper("PInfer (nearest neighbours)"),
    )
    most_turns = Parameter(100, "turns", "of the nearest neighbours' loop", COST)
    run = Parameter(6, "messages", "whose sizes in a row put two ends together", HOSTS)
    samples = Parameter(64, "runs", "that are looked for, and places where each is found", COST)
    tried = Parameter(100, "receives", "by which they are where runs do not tell", COST)
    agree = Parameter(0.8, "share", "of them have to agree on a shift", HOSTS)
    rival = Parameter(0.6, "share", "of its support that no other may have", HOSTS)
    longest = Parameter(
        1000, "sends", "among which the first receives are looked for by their rhythm", COST
    )
    least = Parameter(5, "receives", "that have to fit", HOSTS)
    surer = Parameter(5, "times", "less even every other shift has to be", HOSTS)
    most_by_turns = Parameter(
        300, "turns", "of an end; longer connections are known by their sizes", COST
    )
    least_turns = Parameter(
        6, "turns", "at both ends, where nothing else is known of the clocks", HOSTS
    )
    connections = Parameter(
        300, "connections", "of two hosts: what they tell of their clocks is enough", COST
    )


CLOCKS: Final = Clocks()
