"""``critpath top``: requests and executions by label over a sliding window."""

from __future__ import annotations

import argparse
import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from critpath.commands.declared import flag, option
from critpath.commands.output import make_console
from critpath.commands.settings import READING, Settings, number
from critpath.commands.sources import require_executions
from critpath.commands.walking import REQUESTS, Shares, Walker
from critpath.errors import UsageError
from critpath.metrics.shares import ANSWER, Times, find_parts, read_times, refine
from critpath.text.phrases import word_state
from critpath.units import NS_PER_S, format_ns, format_share, plural, safe_text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from critpath.model import PathSet

SETTINGS: Final = READING
FORMAT: Final = "critpath/top/1"

_SECONDS: Final = number(0, 86_400, "a number of seconds above 0")
_MOST: Final = 200_000  # executions in a window
_SHOWN: Final = 3  # states of a label
_LEAST: Final = 0.0005  # a share that is shown
_ROWS: Final = 40
# Columns of a terminal: between two of a table, and that a label has at least.
_BETWEEN, _LEAST_WIDE = 3, 12
_GOES: Final = "where their time goes"
_P99: Final = 0.99


OPTIONS: Final = (
    option("directory", "DIR", "of a flight recorder (default: the one that runs), or a recording, "
        "which is replayed", Path, nargs="?"),
    option("--window", "S", "seconds that rates and percentiles are of (10)", _SECONDS, 10.0),
    option("--duration", "S", "end after so many seconds (default: at Ctrl-C, or at the "
        "recording's end)", _SECONDS, 0.0),
    flag("--by-container", "requests by the container or pod that serves them, not by kind"),
    flag("--json", "an object per second, each in a line"),
)  # fmt: skip


@dataclass(frozen=True)
class Ended:
    """An execution that ended: label, begin and end (ns), and where its time went, if known."""

    label: str
    begin: int
    end: int
    shares: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Screen:
    """What is shown at one moment.

    Attributes
    ----------
    at : int
        Until when the window goes (ns of the trace's clock).
    span : float
        Of the window (s): less than asked for in the first of a recording.
    ended : sequence of Ended
        In the window.
    requests : sequence of mapping
        Rows of requests that a recorder counted itself, see `label_rows`.
    shares : mapping
        By label, what those walked tell, where `ended` do not say.
    source : str
        What `shares` are of.
    said : mapping
        What the recorder says of itself.
    """

    at: int
    span: float
    ended: Sequence[Ended]
    requests: Sequence[Mapping[str, Any]] = ()
    shares: Shares = field(default_factory=dict)
    source: str = ""
    said: Mapping[str, Any] = field(default_factory=dict)


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Show until the end, and return the exit code."""
    frames = _replay(arguments, settings) if _is_recording(arguments) else None
    live = frames is None
    if frames is None:
        frames = _follow_live(arguments, settings)
    try:
        _show(frames, arguments, redraw=live and not arguments.json)
    except KeyboardInterrupt:
        if not live:
            raise
    return 0


def _is_recording(arguments: argparse.Namespace) -> bool:
    from critpath_record import STATE  # noqa: PLC0415 - start-up time

    return arguments.directory is not None and not (arguments.directory / STATE).is_file()


def _show(frames: Iterator[Screen], arguments: argparse.Namespace, *, redraw: bool) -> None:
    if arguments.json:
        for frame in frames:
            print(json.dumps(frame_document(frame)), flush=True)
        return
    console = make_console()
    if redraw and console.is_terminal:
        from rich.live import Live  # noqa: PLC0415 - start-up time

        with Live(console=console, auto_refresh=False, screen=False) as shown:
            for frame in frames:
                shown.update(draw(frame, console), refresh=True)
        return
    due, last = 0, None
    for frame in frames:  # where lines stay, one block a window is enough
        last = frame
        if frame.span >= arguments.window and frame.at >= due:
            due, last = frame.at + round(arguments.window * NS_PER_S), None
            console.print(draw(frame, console))
    if last is not None:
        console.print(draw(last, console))


# Rows


def label_rows(frame: Screen) -> list[dict[str, Any]]:
    """Return a row for each label, most time first: its rate, percentiles, and states' shares.

    Of requests that were not answered ``resets`` has how many ended by a reset, ``cut`` how many
    touched a time that was not recorded.
    """
    by_label: dict[str, list[Ended]] = {}
    for one in frame.ended:
        by_label.setdefault(one.label, []).append(one)
    rows = []
    for label, of in by_label.items():
        times = sorted(one.end - one.begin for one in of)
        known = {(state, ""): share for state, share in _mean_shares(of).items()}
        shares = known or frame.shares.get(label, {})
        rows.append(
            {
                "label": label,
                "count": len(times),
                "rate": len(times) / frame.span,
                "p50_ns": percentile(times, 0.5),
                "p99_ns": percentile(times, _P99),
                "time_ns": sum(times),
                **name_parts(shares),
            }
        )
    for row in frame.requests:
        walked = frame.shares.get(row["label"], {})
        goes = refine(find_parts(row.get("times", {})), walked)
        rows.append({name: of for name, of in row.items() if name != "times"} | name_parts(goes))
    return sorted(rows, key=lambda row: (-row["time_ns"], row["label"]))


def name_parts(parts: Mapping[tuple[str, str], float]) -> dict[str, dict[str, float]]:
    """Return parts by state, and of `ANSWER` by who was asked."""
    shares: dict[str, float] = {}
    for (state, _), part in parts.items():
        shares[state] = shares.get(state, 0.0) + part
    asked = {peer: part for (state, peer), part in parts.items() if state == ANSWER}
    return {"shares": shares, "asked": asked}


def percentile(times: Sequence[int], part: float) -> int:
    """Return the smallest of sorted times that so large a part does not exceed."""
    return times[min(len(times) - 1, max(0, -int(-part * len(times) // 1) - 1))]


def _mean_shares(of: Sequence[Ended]) -> dict[str, float]:
    """Return the part of each state in the time of some executions, empty where it is not known."""
    known = [one for one in of if one.shares]
    whole = sum(one.end - one.begin for one in known)
    sums: dict[str, float] = {}
    for one in known:
        for state, share in one.shares.items():
            sums[state] = sums.get(state, 0.0) + share * (one.end - one.begin)
    return {state: time / whole for state, time in sums.items()} if whole else {}


def frame_document(frame: Screen) -> dict[str, Any]:
    """Return the object of a second."""
    return {
        "format": FORMAT,
        "at_ns": frame.at,
        "window_s": frame.span,
        "labels": label_rows(frame),
        "shares_of": frame.source,
        "recorder": dict(frame.said),
    }


def draw(frame: Screen, console: Console) -> RenderableType:
    """Return the table of a moment: a line per label."""
    from rich.console import Group  # noqa: PLC0415 - start-up time

    from critpath.report.text import new_table, shown  # noqa: PLC0415 - start-up time

    rows = label_rows(frame)
    with_resets = any("resets" in row for row in rows)
    heads = ("label", ">per s", ">p50", ">p99", *((">resets",) if with_resets else ()))
    cells = [
        (
            row["label"] or "(none)",
            f"{row['rate']:,.1f}",
            *(format_ns(row[name]) if row["count"] else "-" for name in ("p50_ns", "p99_ns")),
            *((f"{row['resets']:,}" if row.get("resets") else "-",) if with_resets else ()),
        )
        for row in rows[:_ROWS]
    ]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    numbers = sum(widths[1:]) + _BETWEEN * len(widths)
    longest = max(min(widths[0], console.width - numbers - len(_GOES)), _LEAST_WIDE)
    room = max(console.width - numbers - min(widths[0], longest), len(_GOES))
    table = new_table(console, *heads, _GOES)
    for row, (label, *of_row) in zip(rows, cells, strict=False):
        of = {state: part for state, part in row["shares"].items() if state != ANSWER}
        goes = _name_shares({**of, **row["asked"]}, room)
        texts = (_cut(label, longest), *of_row, goes)
        table.add_row(*(shown(text, console) for text in texts))
    kinds = ("request",) * with_resets + ("run",) * (len(frame.ended) > 0 or not with_resets)
    counts = (sum(row["count"] for row in frame.requests), len(frame.ended))
    many = [plural(counts[kind == "run"], kind) for kind in kinds]
    total = f"{', '.join(many)} in {frame.span:g} s"
    if len(rows) > _ROWS:
        total += f", {len(rows) - _ROWS} more labels"
    said = "; ".join((total, *_say_rest(frame)))
    lines = said.split("; ", 1) if len(said) > console.width else [said]
    lines += _source(frame)
    return Group(*(shown(line, console) for line in lines), table)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _name_shares(shares: Mapping[str, float], room: int) -> str:
    """Return the states that take most of the time, as many as there is room for."""
    states = sorted(shares.items(), key=lambda pair: -pair[1])[:_SHOWN]
    names = [
        f"{word_state(state)} {format_share(share)}" for state, share in states if share >= _LEAST
    ]
    while len(names) > 1 and len(", ".join(names)) > room:
        del names[-1]
    return _cut(", ".join(names), room) if names else _cut("not known yet", room)


def _say_rest(frame: Screen) -> Iterator[str]:
    if "overhead" in frame.said:
        yield f"overhead {format_share(frame.said['overhead'])}"
        yield f"recorded {format_share(frame.said['covers'])} of the time"
    if frame.said.get("missed"):
        yield f"{frame.said['missed']:,} came too fast to be shown"


def _source(frame: Screen) -> Iterator[str]:
    """Yield what "where their time goes" is of."""
    if frame.source:
        yield f"own time goes as in {safe_text(frame.source)}"
    elif frame.said.get("dump"):
        yield f"where own time goes is read from {safe_text(Path(str(frame.said['dump'])).name)}"
    elif "overhead" in frame.said:
        yield "where own time goes is known after a dump"


# A flight recorder that runs


class Requests:
    """Counts of requests by a flight recorder; a window is the difference of two of them."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._told: deque[tuple[int, dict[str, tuple[list[int], dict[int, int], Times]]]] = deque()
        self._base, self._first = 2.0, 1.0  # of sketches: a bucket's growth, and the first's begin

    def add(self, answers: Sequence[Mapping[str, Any]]) -> None:
        """Take what was answered together."""
        now = int(answers[-1]["now"])
        found: dict[str, tuple[list[int], dict[int, int], Times]] = {}
        for answer in answers:
            self._base, self._first = answer["sketch"]["base"], answer["sketch"]["first"]
            for name, *counts, pairs in answer["requests"]:
                times = read_times(counts[1], answer["time"][name])
                found[name] = counts, dict(zip(pairs[::2], pairs[1::2], strict=True)), times
        self._told.append((now, found))
        while len(self._told) > 2 and self._told[1][0] <= now - self._window:
            self._told.popleft()

    def list_rows(self, name_of: Callable[[str], str]) -> tuple[float, list[dict[str, Any]]]:
        """Return for how long counts are (s), and a row for each name that anything is called."""
        (begin, before), (end, after) = self._told[0], self._told[-1]
        span = max((end - begin) / NS_PER_S, 1e-9)
        rows: dict[str, list[Any]] = {}
        for name, (counts, sketch, times) in after.items():
            was, gone, spent = before.get(name, ([0] * len(counts), {}, {}))
            row = rows.setdefault(name_of(name), [[0] * len(counts), {}, {}])
            for key, ns in times.items():
                row[2][key] = row[2].get(key, 0.0) + max(ns - spent.get(key, 0.0), 0.0)
            row[0] = [a + b - c for a, b, c in zip(row[0], counts, was, strict=True)]
            for at, many in sketch.items():
                row[1][at] = row[1].get(at, 0) + (many - gone.get(at, 0)) % (1 << 32)
        return span, [
            {
                "label": name,
                "count": count,
                "rate": count / span,
                "p50_ns": self._percentile(sketch, 0.5),
                "p99_ns": self._percentile(sketch, _P99),
                "time_ns": took,
                "cut": cut,
                "resets": resets,
                "times": times,
            }
            for name, [[count, took, cut, resets], sketch, times] in rows.items()
            if count or resets or cut
        ]

    def _percentile(self, sketch: Mapping[int, int], part: float) -> int:
        """Return the middle of the bucket that a percentile is in."""
        left = part * sum(sketch.values())
        first, base = float(self._first), float(self._base)
        for at in sorted(sketch):
            left -= sketch[at]
            if left <= 0 and sketch[at]:
                return int(first * base ** (at + 0.5))
        return 0


def _follow_live(arguments: argparse.Namespace, settings: Settings) -> Iterator[Screen]:
    from critpath_record import RunningFlight  # noqa: PLC0415 - start-up time

    flight = RunningFlight.find(arguments.directory)
    only = settings["execution"]
    what = (only,) if only else (REQUESTS, "marker")
    if not {*what} <= {REQUESTS, "marker", "process"}:
        raise UsageError(
            f"top of a running flight recorder by {safe_text(only)}",
            "--execution requests, marker, or process; critpath top DUMP takes any",
        )
    name_of = _name_container if arguments.by_container else str
    walker = Walker(settings, what, name_of)
    held: deque[Ended] = deque(maxlen=_MOST)
    requests = Requests(round(arguments.window * NS_PER_S))
    begun = due = time.monotonic()
    seen, seen_once = 0, False
    while True:
        answers: list[dict[str, Any]] = []
        number = 0
        while not answers or answers[-1]["more"] or number:
            asked = {"top": seen, "from": number, "walks": walker.take_cost()}
            answers.append(flight.ask(asked, 10))
            seen, number = int(answers[-1]["seen"]), int(answers[-1]["next"])
            held += [Ended(*one[1:]) for one in answers[-1]["ended"] if one[0] in what]
        answer = answers[-1]
        now = int(answer["now"])
        oldest = now - round(arguments.window * NS_PER_S)
        while held and held[0].end < oldest:
            held.popleft()
        walker.look(str(answer["dump"]))
        said = {name: answer[name] for name in ("overhead", "covers", "missed", "dump")}
        requests.add(answers)
        if not seen_once:
            seen_once = True  # of requests there is nothing to tell before a second look
            time.sleep(1.0)
            continue
        rows = requests.list_rows(name_of)[1] if REQUESTS in what else []
        yield Screen(*(now, arguments.window, [*held], rows, walker.shares, walker.source, said))
        if arguments.duration and time.monotonic() - begun >= arguments.duration:
            return
        due += 1.0
        time.sleep(max(0.0, due - time.monotonic()))


# A recording


def _replay(arguments: argparse.Namespace, settings: Settings) -> Iterator[Screen]:
    """Yield a frame per second of a recording, from its first execution to its last."""
    found = _read_ended(arguments.directory, settings, settings["execution"])
    if arguments.by_container:
        found = [replace(one, label=_name_container(one.label)) for one in found]
    found.sort(key=lambda one: one.end)
    window = round(arguments.window * NS_PER_S)
    first = min(one.begin for one in found)
    last = found[-1].end
    if arguments.duration:
        last = min(last, first + round(arguments.duration * NS_PER_S))
    at, low, high = first, 0, 0
    while at < last:
        at += NS_PER_S
        while high < len(found) and found[high].end <= at:
            high += 1
        while low < high and found[low].end <= at - window:
            low += 1
        yield Screen(at, min(arguments.window, (at - first) / NS_PER_S), found[low:high])


def _name_container(label: str) -> str:
    """Return the container or pod that serves a kind of request."""
    from critpath.model.containers import places_in  # noqa: PLC0415 - numpy
    from critpath.model.requests import service_of  # noqa: PLC0415 - as above

    return next(iter(places_in(service_of(label))), "(in no container)")


def _read_ended(recording: Path, settings: Settings, what: str | None) -> list[Ended]:
    from critpath import flow  # noqa: PLC0415 - numpy and the stages

    paths = flow.extract(
        [recording],
        specification=what,
        reader=settings["reader"],
        interrupts=settings["interrupts"],
        max_memory=settings["max-memory"],
    )
    require_executions(paths, [recording])
    return ended_of(paths)


def ended_of(paths: PathSet) -> list[Ended]:
    """Return the executions of a set, with where their time went."""
    import numpy as np  # noqa: PLC0415 - start-up time

    from critpath.model import STATES  # noqa: PLC0415 - as above

    of, executions = paths.paths, paths.executions
    times = np.zeros((len(executions), len(STATES)))
    np.add.at(times, (of.path, of.state), of.end - of.begin)
    took = np.maximum(times.sum(axis=1, keepdims=True), 1)
    rows = zip(
        *(executions.label, executions.begin.tolist(), executions.end.tolist()),
        (times / took).tolist(),
        executions.comm,
        strict=True,
    )
    return [
        Ended(label or comm, begin, end, {STATES[i]: s for i, s in enumerate(shares) if s > 0})
        for label, begin, end, shares, comm in rows
    ]
