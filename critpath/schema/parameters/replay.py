"""Numbers that `replay` decides by."""

from __future__ import annotations

from typing import Final

from critpath.schema.parameters import FIXTURES, HOSTS, LOCATIONS, SERVICES, Group, Parameter


class Waiting(
    Group,
    name="waiting",
    guards="against polls, late starts and other clocks that are taken for reasons",
):
    """What a wait was for, as the replay and the walk tell it."""

    held_back = Parameter(
        2_000_000,
        "ns",
        "that a processor idled while a thread could run: it was held back, whatever ran "
        "besides; one that idles takes who can run within microseconds, a virtual one in "
        "less than this",
        SERVICES,
    )
    held_back_share = Parameter(
        0.1,
        "share",
        "of its wait that a processor idled, for a thread to have been held back",
        SERVICES,
    )
    late = Parameter(
        300_000, "ns", "so much after a quota's period its end may be counted", FIXTURES
    )
    at_once = Parameter(200_000, "ns", "less between two reasons is no part of its own", SERVICES)
    mostly = Parameter(
        0.5, "share", "of a wait for a disk that others' requests were in it", SERVICES
    )
    least_timeouts = Parameter(
        5, "time-outs", "throughout which somebody worked, before that says anything", SERVICES
    )
    alike = Parameter(1.1, "times", "time-outs that differ by less are one kind of wait", SERVICES)
    least_held = Parameter(
        0.5, "share", "of a kind's time-outs, throughout which somebody worked", SERVICES
    )
    least_tries = Parameter(
        0.5, "share", "of a kind's sleeps, after which the thread goes on to wait", SERVICES
    )
    most_against = Parameter(0.1, "share", "of them, at which who ended the wait slept", SERVICES)
    passed = Parameter(
        0.10, "share", "of the packets of the busiest device, that one has which is passed", HOSTS
    )
    not_passed = Parameter(0.01, "share", "the same, less of which is not passed", HOSTS)
    apart = Parameter(50_000, "ns", "that two tracers' times of one switch may be apart", LOCATIONS)
    surely_apart = Parameter(5000, "ns", "within which they are one in any case", LOCATIONS)
    times_usual = Parameter(10, "times", "as far as is usual, they may be apart", LOCATIONS)


WAITING: Final = Waiting()
