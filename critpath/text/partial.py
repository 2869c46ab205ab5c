"""Notes on recordings with gaps: which executions are whole, and which of them count."""

from __future__ import annotations

from critpath.units import format_ns, format_share, plural, safe_text


def executions_whole(whole: int, total: int, gaps: int, gaps_ns: int) -> str:
    """How many executions of a recording with gaps were recorded whole."""
    return (
        f"{whole:,} of {plural(total, 'execution')} recorded whole; "
        f"{plural(gaps, 'gap')}, {format_ns(gaps_ns)} in all: "
        "not recorded, and never crossed by a path"
    )


def executions_chosen(chosen: int, cut: int, bystanders: int) -> str:
    """How many executions were chosen by chance, and what becomes of the others."""
    lost = f"; {cut:,} more {'was' if cut == 1 else 'were'} chosen and cut" if cut else ""
    beside = f"; {plural(bystanders, 'execution')} left out that lay whole in the time of others"
    left = f"{beside}, as these are short ones" if bystanders else ""
    return f"{plural(chosen, 'execution')} chosen by chance{lost}{left}"


def chances_evened(kind: str, low: float, high: float, kept: int, total: int) -> str:
    """Say that executions of a kind were drawn again, as their chances had changed."""
    return (
        f"{safe_text(kind)}: the chance to be recorded changed from {format_share(low)} to "
        f"{format_share(high)}; {kept:,} of {total:,} executions were drawn again, so that each "
        "counts for as many"
    )


def recorded_took(more: float, low: float, high: float) -> str:
    """How much longer recorded executions took than others; from low to high with 95 %."""
    interval = f"({100 * low:+.1f} to {100 * high:+.1f} %)"
    if low <= 0 <= high:
        return f"recorded ones took as long as the others {interval}"
    what = "longer" if more > 0 else "less"
    return f"recorded ones took {100 * abs(more):.1f} % {what} than the others {interval}"
