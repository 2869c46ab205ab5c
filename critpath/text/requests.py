"""What is said of services: what they ask, who asks them, and how surely that is known."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from critpath.schema.parameters.text import WORDS
from critpath.units import format_ns, format_share, plural

if TYPE_CHECKING:
    from critpath.documents.requests import RequestsDocument, ServiceEntry

_SHOWN: Final = 3  # technical
# Of a path that goes from thread to thread: also the explorer's script says so.
CROSSINGS: Final[dict[str, str]] = {
    "crossing.exact": "{one} to {other}",
    "crossing.bound": "{one} to {other}, ±{bound}",
    "crossing.unknown": "{one} to {other}; when is not known: one of their clocks is not aligned",
    "inferred": "inferred, {sure} sure",
}
_OUTSIDE: Final = "outside"
# Rules by which work belongs to a request, as people say them.
_RULES: Final = {
    "own": "same thread",
    "answer": "answer",
    "give_back": "given back",
    "resume": "resumed",
    "alone": "alone",
    "order": "order",
    "hand_over": "handed over",
    "assigned": "assigned",
    "traced": "same trace",
}


def calls_text(of: ServiceEntry) -> str:
    """Return what a service asks for each request on average."""
    shown = [f"{times:.3g} x {name}" for name, times in [*of.calls.items()][:_SHOWN]]
    more = len(of.calls) - _SHOWN
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "") or "none"


def callers_text(of: ServiceEntry) -> str:
    """Return who asks a service, the most frequent first."""
    shown = [name or _OUTSIDE for name, count in of.callers.items() if count]
    more = len(shown) - _SHOWN
    return ", ".join(shown[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def sure_text(of: ServiceEntry) -> str:
    """Return how probable it is that it is known whose a service's calls are."""
    return "-" if of.sure is None else f"{100 * of.sure:.1f} %"


def how_text(of: ServiceEntry) -> str:
    """Return by which rules that is known; shares where there are several."""
    names = [(_RULES.get(rule, rule), share) for rule, share in of.how.items()]
    if len(names) < 2:
        return "".join(name for name, _ in names)
    return ", ".join(f"{name} {format_share(share)}" for name, share in names)


def left_out_text(of: ServiceEntry) -> tuple[str, ...]:
    """Return how many requests gaps leave out, and what those take that they do not, weighed."""
    if of.left_out is None:
        return "0", ""
    left = of.left_out
    took = f"{format_ns(left.p50_ns)}, {format_ns(left.p99_ns)}" if left.whole else ""
    return f"{left.requests + left.unsure:,}", took


def untold_text(of: ServiceEntry) -> str:
    """Return of how many of its calls it is only known that they are one of some requests'."""
    if of.untold is None:
        return ""
    fewest, most = of.untold.fewest, of.untold.most
    many = f"{most:,}" if fewest == most else f"{fewest:,} to {most:,}"
    return (
        f"{of.service}: {plural(of.untold.calls, 'call')} of one of {many} requests each, "
        "it is not known of which"
    )


def left_text(found: RequestsDocument) -> str:
    """Return what belongs to no request that was found."""
    return (
        f"{plural(found.alone, 'call')} for no request (own work of a service), "
        f"{plural(found.several_at_once, 'connection')} with several requests at once, "
        f"{plural(found.not_recorded, 'call')} to hosts that were not recorded"
    )


def crossing_sure(bound: int | None) -> str:
    """Return how surely it is known when what went from host to host left and was there."""
    if bound is None:
        return "times between hosts are not known: the clock of one of them is not aligned"
    return f"times between hosts are accurate to ±{format_ns(bound)}"


def path_sure(bound: int | None, probability: float) -> list[str]:
    """Return how surely a path's times and parts are known, a line each; none where all is sure."""
    said = [] if bound == 0 else [crossing_sure(bound)]
    if probability < WORDS.sure:
        said.append(f"parts of it are inferred, the least sure with {sure_share(probability)}")
    return said


def sure_share(probability: float) -> str:
    """Return a probability; what is not sure is never 100 %."""
    # technical: how a number is rounded
    return f"{min(math.floor(1000 * probability) / 10, 99.9):.3g} %"


def describe_crossing(who: str, whom: str, bound: int | None) -> str:
    """Return that a path goes from host to host, and how surely it is known when."""
    name = "unknown" if bound is None else "bound" if bound else "exact"
    return CROSSINGS[f"crossing.{name}"].format(one=who, other=whom, bound=format_ns(bound or 0))


def describe_inferred(probability: float) -> str:
    """Return that it is inferred who worked for whom, and how sure that is."""
    return CROSSINGS["inferred"].format(sure=sure_share(probability))
