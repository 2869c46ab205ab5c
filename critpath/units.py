"""Times and counts as people read them, and text from a trace made safe to show."""

from __future__ import annotations

import math
import os.path
import re
import unicodedata
from collections.abc import Collection, Sequence

NS_PER_S = 1_000_000_000

_SCALES = ((NS_PER_S, "s"), (1_000_000, "ms"), (1_000, "µs"))

# Categories that can move a terminal's cursor, reorder text or hide it: controls,
# formats (bidi, zero-width), surrogates, private use, line and paragraph separators.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})

TRACE_ID = "{trace_id}"  # where a trace's id goes in the address of a tracing UI

_COMMAND = re.compile(r"^(\s*)::", re.MULTILINE)
_MARK = re.compile(r"##(?=\[|vso\[|teamcity\[)", re.IGNORECASE)


def format_ns(ns: float, *, sign: bool = False) -> str:
    """Render a duration in the largest unit that keeps at least one whole digit.

    Parameters
    ----------
    ns : float
        Duration in nanoseconds.
    sign : bool
        Show ``+`` in front of positive durations.

    Returns
    -------
    str
        For example ``30.1 ms``; three significant digits, whole nanoseconds.
    """
    value = abs(ns)
    prefix = "-" if ns < 0 else "+" if sign else ""
    for scale, unit in _SCALES:
        # 999.95 µs would round to "1000 µs": hand it to the next larger unit.
        if value >= scale * 0.9995:
            scaled = value / scale
            digits = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
            return f"{prefix}{scaled:.{digits}f} {unit}"
    whole = f"{value:.0f}"
    return f"{prefix if whole != '0' else ''}{whole} ns"  # nothing has no sign


# Of a pair, the smaller has a unit of its own below this share of the larger.
_OWN_UNIT = 0.05


def format_pair(one: float, other: float) -> tuple[tuple[str, str], tuple[str, str]]:
    """Render two durations, figure and unit each, in one unit unless one is far smaller.

    For example ``("2.36", "ms"), ("11.8", "ms")``: three digits, as far as they are whole.
    """
    return _in_unit(one, other, 3), _in_unit(other, one, 3)


def format_brief_pair(one: float, other: float) -> tuple[str, str]:
    """Render two durations as a sentence has them: two digits below 10 of the unit."""
    return " ".join(_in_unit(one, other, 2)), " ".join(_in_unit(other, one, 2))


def _in_unit(ns: float, beside: float, digits: int) -> tuple[str, str]:
    largest = max(abs(ns), abs(beside))
    if abs(ns) < _OWN_UNIT * largest:
        largest = abs(ns)
    scale, unit = next(((n, u) for n, u in _SCALES if largest >= n * 0.9995), (1, "ns"))
    value = ns / scale
    if unit == "ns":
        return f"{value:.0f}", unit
    decimals = digits - 1 if abs(value) < 9.995 else max(1, digits - 2) if abs(value) < 99.95 else 0
    if digits < 3 and abs(value) < 0.995:
        decimals = digits
    return f"{value:.{decimals}f}", unit


def format_sum(*parts: float) -> list[str]:
    """Render durations and before them what they add up to, so that the figures add up, too.

    All have the unit and the decimals of the sum; a last one that rounds to nothing is left out.
    """
    size = abs(math.fsum(parts))
    scale, unit = next(((n, u) for n, u in _SCALES if size >= n * 0.9995), (1, "ns"))
    decimals = 0 if scale == 1 or size / scale >= 99.95 else 1 if size / scale >= 9.995 else 2
    last = scale / 10**decimals
    rounded = [round(part / last) for part in parts]
    shown = [sum(rounded), *(rounded if rounded[-1] else rounded[:-1])]
    return [f"{abs(one) / 10**decimals:.{decimals}f} {unit}" for one in shown]


def format_span(seconds: float) -> str:
    """Render seconds as one says of what is still to come: whole ones, or minutes."""
    if seconds < 60:
        return f"{max(seconds, 1):.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min" + (f" {rest} s" if minutes < 10 and rest else "")


def format_share(share: float) -> str:
    """Render a share between 0 and 1 as a percentage."""
    return f"{100 * share:.1f} %" if abs(share) < 0.1 else f"{100 * share:.0f} %"


def round_up(share: float) -> float:
    """Round a share up to a whole percentage."""
    return math.ceil(share * 100 - 1e-9) / 100


def plural(count: int, noun: str) -> str:
    """Render a count with its noun, for example ``1 request``, ``4 processes``."""
    return f"{count:,} {noun if count == 1 else in_plural(noun)}"


def in_plural(noun: str) -> str:
    """Return a noun in the plural: ``requests``, ``processes``, ``indices``."""
    if noun.endswith("ex"):
        return f"{noun.removesuffix('ex')}ices"
    return f"{noun}es" if noun.endswith("s") else f"{noun}s"


def shorten(text: str, most: int = 160) -> str:
    """Cut what an error repeats of its input, and say how long it was."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text):,} characters)"


def utf8(text: str) -> str:
    """Return text as UTF-8 holds it, which files and Arrow have; a trace's may be none."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def split_common(names: Sequence[str]) -> tuple[str, list[str]]:
    """Return the words that all names begin with, and what is left of each.

    ``python3:80 GET /cart`` beside ``python3:80 GET /category``: ``/cart`` and ``/category``.
    """
    same = os.path.commonprefix(list(names)) if len(set(names)) > 1 else ""  # noqa: RUF071 - of texts
    first = same.rfind(" ") + 1
    if any(len(name) == first for name in names):  # one would have no name
        first = 0
    return names[0][:first].rstrip() if first else "", [name[first:] for name in names]


def shorten_names(names: Sequence[str], most: int) -> list[str]:
    """Cut names to so many characters where they do not differ, and else where they end.

    ``GET /api/v1/customers/:id/orders`` beside ``.../invoices`` are ``…orders``, ``…invoices``.
    """

    def cut(name: str, first: int) -> str:
        if len(name) <= most:
            return name
        rest = name[first:]
        if not first:
            return f"{name[: most - 1]}…"
        if len(rest) >= most:
            return f"…{rest[: most - 2]}…"
        return f"{name[: most - 1 - len(rest)]}…{rest}"

    long = {name for name in names if len(name) > most}
    shown = {name: cut(name, _where_they_differ(long, most // 2)) for name in names}
    alike: dict[str, set[str]] = {}
    for name, short in shown.items():
        alike.setdefault(short, set()).add(name)
    for group in alike.values():
        if len(group) > 1:
            shown |= {name: cut(name, _where_they_differ(group)) for name in group}
    return [shown[name] for name in names]


def _where_they_differ(names: Collection[str], least: int = 0) -> int:
    """Return where the first word begins in which names differ; 0 where less than so many agree."""
    same = os.path.commonprefix(sorted(names)) if len(names) > 1 else ""  # noqa: RUF071 - of texts
    if len(same) <= least:
        return 0
    # Whole words stay: what is left out ends where one does.
    return max((i + 1 for i, letter in enumerate(same) if not letter.isalnum()), default=len(same))


def safe_text(text: str) -> str:
    """Replace every character that could act on a terminal or hide text.

    Thread names, event names and paths come from the traced system and are under
    the control of those who ran a program there; every one of them passes here
    before it reaches a terminal.

    Parameters
    ----------
    text : str
        Text from a trace, a manifest or a file name.

    Returns
    -------
    str
        The same text with controls, bidi and zero-width characters, separators,
        surrogates and unassigned characters replaced by U+FFFD.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join("\ufffd" if unicodedata.category(c) in _UNSAFE else c for c in text)


def log_text(text: str) -> str:
    """Take its meaning from what the log readers of CI systems act on.

    GitHub's runner takes a line that begins with ``::`` for a command, and ``##[``
    anywhere in a line; Azure's takes ``##vso[`` and TeamCity's ``##teamcity[``.  A space
    keeps the text readable.

    Parameters
    ----------
    text : str
        Lines as they are to be printed.

    Returns
    -------
    str
        The same lines, with a space put into those marks.
    """
    text = _COMMAND.sub(r"\1: :", text)
    return _MARK.sub("# #", text)


def trace_address(template: str, trace_id: str) -> str:
    """Return where a tracing UI shows a trace; "" without a template or a trace's id."""
    if not template or re.fullmatch("[0-9a-f]{32}", trace_id) is None:
        return ""
    return template.replace(TRACE_ID, trace_id)


def escape_name(text: str) -> str:
    """Shield what `--execution` takes for its own in a name."""
    return re.sub(r"([\\,\[\]])", r"\\\1", text)
