"""Where a request spends its time, before and after, as lines of characters to scale.

Glyphs tell what a thread does, colours who; a pipe and Markdown have the glyphs alone.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from critpath.documents import ComparisonDocument, Doing, KindEntry, MeanPath, ThreadEntry
from critpath.text.answer import first_figures, first_peer, mean_of, tells_of_few
from critpath.text.page import noun_of
from critpath.units import format_ns

Span = tuple[str, str]  # characters, and their style
Key = tuple[int, Doing, bool]

WIDTH: Final = 80
_CHANGED: Final = 0.04  # of the axis
_KEYS: Final = 6  # in the legend
_RUNNING: Final = "█▓▒"
_GLYPHS: Final[dict[Doing, str]] = {
    "cpu": "╱",
    "throttled": "╳",
    "timer": "─",
    "disk": "∙",
    "network": "┆",
    "interrupts": "▪",
    "waiting": "┄",
    "unknown": "?",
    "queued": "╌",
    "shared": "░",
}
_WORDS: Final[dict[Doing, str]] = {
    "running": "running",
    "cpu": "waits for CPU",
    "throttled": "throttled",
    "timer": "waits for timer",
    "disk": "waits for disk",
    "network": "waits for network",
    "interrupts": "interrupts",
    "waiting": "waits",
    "unknown": "not known",
    "queued": "queued",
    "shared": "shared loop",
}
# By a thread's colour on the page: the own one first, the last is that of all others.
_STYLES: Final = ("", "magenta", "cyan", "yellow", "bright_magenta", "green", "bright_black")
# Where a terminal or a pipe has no more than ASCII.
ASCII: Final = str.maketrans(
    {
        **dict(zip("█▓▒╱╳─∙┆▪┄╌░", "#=%/x-.:!~_,", strict=True)),
        **dict(zip("└┘µ–…▲▼✓", "''u-.^v+", strict=True)),
        "→": "->",
        "−": "-",
    }
)


class _Told(Struct, frozen=True):
    """What is told of the first cause: its thread, of how many it is a mean, and its figure.

    ``lost`` is None where it is of other requests than the bar; ``due`` is what it is due to.
    """

    peer: str
    mean: str
    lost: float | None
    due: str


class _Bar(Struct, frozen=True):
    """A mean path in characters: where every block begins and ends."""

    mean: MeanPath
    cells: dict[Key, tuple[int, int]]
    times: dict[Key, float]

    @property
    def width(self) -> int:
        """How many characters it has."""
        return max((end for _, end in self.cells.values()), default=0)


def draw_bars(
    document: ComparisonDocument, kind: KindEntry, *, width: int = WIDTH
) -> list[list[Span]]:
    """Return the lines: before, after, what was added, the others, and what glyphs mean.

    Nothing where the document has no mean paths of the kind.
    """
    found = {one.group: one for one in kind.means}
    before, after = found.get("before"), found.get("after")
    if document.pictures is None or before is None or after is None:
        return []
    slow, rest = found.get("slow"), found.get("rest")
    part = slow is not None and rest is not None and tells_of_few(document, kind)
    shown = [before, slow if part and slow else after, *([rest] if part and rest else [])]
    labels = [
        f"before, {_many(document, before)}",
        f"after, the {shown[1].executions:,} slow {'one' if shown[1].executions == 1 else 'ones'}"
        if part
        else f"after, {_many(document, after)}",
        *([f"after, the other {rest.executions:,}"] if part and rest else []),
    ]
    left = max(map(len, labels)) + 1
    longest = max(one.mean for one in shown) or 1
    room = max(width - left - 9, 10)
    bars = [_cells(one, longest, room) for one in shown]
    threads, ranks = document.pictures.threads, _ranks(bars)
    lines = []
    for i, (bar, label) in enumerate(zip(bars, labels, strict=True)):
        lines.append([(f"{label:<{left}}", ""), *_drawn(bar, threads, ranks), (_mean(bar), "bold")])
        if i == 1:
            mean = mean_of(document, bar.mean.executions)
            told = _Told(first_peer(document), mean, *first_figures(document, bar.mean.executions))
            lines += _bracket(bars[0], bar, threads, told, left, width)
    return [*lines, *_legend(bars, threads, left, width, longest)]


def _many(document: ComparisonDocument, one: MeanPath) -> str:
    return f"{one.executions:,} {noun_of(document, one.executions)}"


def _mean(bar: _Bar) -> str:
    return f" {format_ns(bar.mean.mean)}"


def _cells(mean: MeanPath, longest: float, room: int) -> _Bar:
    """Round where blocks end, not how long they are: so they add up to the bar."""
    cells: dict[Key, tuple[int, int]] = {}
    times: dict[Key, float] = {}
    at, begin = 0.0, 0
    for one in mean.stretches:
        key = one.thread, one.doing, one.lead
        at += one.time
        end = max(min(round(room * at / longest), room), begin)
        cells[key], times[key] = (begin, end), float(one.time)
        begin = end
    return _Bar(mean, cells, times)


def _glyph(key: Key, ranks: dict[int, int]) -> str:
    thread, doing, _ = key
    return _GLYPHS.get(doing) or _RUNNING[min(ranks.get(thread, 0), len(_RUNNING) - 1)]


def _ranks(bars: list[_Bar]) -> dict[int, int]:
    """Return the order of the threads that can be seen running: the own one is 0."""
    running = {
        key[0]
        for bar in bars
        for key, (begin, end) in bar.cells.items()
        if key[1] == "running" and end > begin
    }
    return {thread: i for i, thread in enumerate([0, *sorted(running - {0})])}


def _drawn(bar: _Bar, threads: list[ThreadEntry], ranks: dict[int, int]) -> list[Span]:
    return [
        (_glyph(key, ranks) * (end - begin), _STYLES[threads[key[0]].colour])
        for key, (begin, end) in bar.cells.items()
        if end > begin
    ]


def _bracket(
    before: _Bar,
    after: _Bar,
    threads: list[ThreadEntry],
    told: _Told,
    left: int,
    width: int,
) -> list[list[Span]]:
    """Return a line that spans what was added most, of the first cause's thread if it did any."""
    grown = {key: time - before.times.get(key, 0.0) for key, time in after.times.items()}
    whole = max(float(after.mean.mean), float(before.mean.mean))
    blamed = [
        key
        for key, more in grown.items()
        if threads[key[0]].name == told.peer and more > _CHANGED * whole
    ]
    key = max(blamed or grown, key=lambda one: grown[one], default=None)
    if key is None or grown[key] <= _CHANGED * whole:
        return []
    begin, end = after.cells[key]
    cells = max(round((end - begin) * grown[key] / after.times[key]), 2)
    begin = max(end - cells, 0)
    lost, did = grown[key], _WORDS[key[1]]
    if told.lost is not None and (key in blamed or not told.peer):
        # One figure: what the sentence above says, with all that it brought along.
        lost, did = told.lost, (told.due or did) if key[1] == "cpu" else did
    words = [format_ns(lost, sign=True), _who(threads[key[0]]), did]
    # Whose mean it is stays longest: without it the time contradicts the answer's.
    tail = [f"({told.mean})"] if told.mean else []
    labels = [" ".join([*words[:kept], *tail]) for kept in range(len(words), 0, -1)]
    inner = end - begin - 2
    for label in labels:
        if inner >= len(label) + 2:
            line = f"{' ' * begin}└ {label} {'─' * (inner - len(label) - 2)}┘"
        elif begin > len(label):
            line = f"{label:>{begin - 1}} └{'─' * max(inner, 0)}┘"
        else:
            line = f"{' ' * begin}└{'─' * max(inner, 0)}┘ {label}"
        if left + len(line) <= width:
            return [[(" " * left, ""), (line, "bold red")]]
    return []


def _who(thread: ThreadEntry) -> str:
    return thread.name or ("own thread" if thread.own else "another")


def _legend(
    bars: list[_Bar], threads: list[ThreadEntry], left: int, width: int, longest: float
) -> list[list[Span]]:
    """Return what the glyphs mean that can be seen, the largest first."""
    ranks = _ranks(bars)
    most: dict[tuple[int, Doing], float] = {}
    for bar in bars:
        for (thread, doing, _), (begin, end) in bar.cells.items():
            if end > begin:
                key = thread, doing
                most[key] = max(most.get(key, 0.0), (end - begin) * longest)
    chosen = sorted(most, key=lambda key: -most[key])[:_KEYS]
    lines: list[list[Span]] = []
    at = 0
    for thread, doing in sorted(chosen, key=lambda key: (key[0], -most[key])):
        one = threads[thread]
        words = f" {_who(one)} {_WORDS[doing]}"
        if not lines or at + len(words) + 4 > width:
            lines.append([(" " * left, "")])
            at = left
        elif len(lines[-1]) > 1:
            lines[-1].append(("   ", ""))
            at += 3
        lines[-1] += [(_glyph((thread, doing, False), ranks), _STYLES[one.colour]), (words, "dim")]
        at += len(words) + 1
    return lines[:2]
