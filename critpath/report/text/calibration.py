"""A calibration as text for a terminal or a pipe."""

from __future__ import annotations

from typing import Final

from rich.console import Console
from rich.text import Text

from critpath.documents import CalibrationDocument, DetectableEntry, LackEntry, RateEntry
from critpath.report.text.table import new_table, print_line, shown
from critpath.text import verdict
from critpath.text.phrases import word_symbol
from critpath.units import format_ns, format_share, plural, round_up

_COLOURS: Final = {"calibrated": "bold green", "alarming": "bold red"}
_KINDS: Final = {"shuffled": "shuffled", "sessions": "recordings"}
_MOST_STATES = 12
_MOST_RECORDINGS = 12
_LEAST_STATE = 0.005  # of the mean duration: what is less is as good as a new state
_WIDE = 100


def render_calibration(document: CalibrationDocument, console: Console) -> None:
    """Print a calibration; the first line is the answer in one sentence.

    Parameters
    ----------
    document : CalibrationDocument
        From `critpath.detect.calibrate`.
    console : rich.console.Console
    """
    first, *further = document.reasons
    verdict = document.verdict
    print_line(console, f"{verdict.upper()}: {first}", style=_COLOURS[verdict])
    for reason in further:
        print_line(console, reason)
    for warning in document.warnings:
        print_line(console, f"warning: {warning}", style="yellow")
    _print_alarms(document, console)
    _print_floor(document, console)
    if document.detectable:
        _print_detectable(document, console)


def _print_alarms(document: CalibrationDocument, console: Console) -> None:
    splits = sorted({row.alarms.of for row in document.false_alarms})
    many = f"{splits[0]}" if len(splits) == 1 else f"{splits[0]} to {splits[-1]}"
    _heading(
        console,
        f"False alarms: {many} comparisons of healthy runs with healthy ones, of each kind",
    )
    recommended = document.floor.recommended
    headers = ["split", ">sets", ">alarms (95 %)", ">no floor"]
    headers += [f">floor {format_share(recommended)}"] if recommended is not None else []
    table = new_table(console, *headers, ">marked")
    for row in document.false_alarms:
        cells = [
            Text(_KINDS[row.kind]),
            Text(f"{row.sample} to {row.normal}"),
            Text(_interval(row.alarms)),
            _rate(row.without_floor),
        ]
        cells += [_rate(row.recommended)] if recommended is not None else []
        table.add_row(*cells, _rate(row.marked))
    console.print(table)
    for lack in document.missing:
        print_line(console, f"{_KINDS[lack.kind]} {lack.sample}: {_needs(lack)}")
    kinds = {row.kind for row in document.false_alarms}
    notes = []
    if "shuffled" in kinds:
        notes.append(
            "shuffled: runs of all recordings mixed, which is what the test's level is "
            "about; the interval is of the rate among all splits of these runs"
        )
    if "sessions" in kinds:
        notes.append(
            "recordings: the set after from one, the set before from the others, as in CI; what is "
            "drawn from one recording is not independent: the interval counts each once"
        )
    floor = format_share(document.floor.in_force)
    notes.append(
        "no floor: a p-value reaches the level; alarms: and the floor is reached (with all "
        f"recordings as NORMAL {floor}); marked: a run is called an outlier; sets: "
        "runs after and before"
    )
    for note in notes:
        print_line(console, note, style="dim")


def _interval(rate: RateEntry) -> str:
    low, high = (format_share(end).removesuffix(" %") for end in (rate.low, rate.high))
    return f"{format_share(rate.share)} ({low} to {high})"


def _needs(lack: LackEntry) -> str:
    parts = [plural(lack.recordings, "recording")] if lack.recordings else []
    if lack.executions:
        where = " in one recording" if lack.kind == "sessions" and not parts else ""
        parts.append(f"{plural(lack.executions, 'run')} more{where}")
    elif parts:
        parts[0] += " more"
    return f"needs {' and '.join(parts)}"


def _print_floor(document: CalibrationDocument, console: Console) -> None:
    floor = document.floor
    recordings = floor.recordings
    _heading(console, "What recordings differ by")
    table = new_table(console, "recording", ">runs", ">mean", ">difference", folding="recording")
    mean = document.mean
    for row in recordings[:_MOST_RECORDINGS]:
        difference = (row.mean - mean) / mean if mean else 0.0
        sign = "+" if difference > 0 else ""
        table.add_row(
            shown(row.source, console),
            Text(f"{row.executions:,}"),
            shown(format_ns(row.mean), console),
            Text(f"{sign}{format_share(difference)}" if len(recordings) > 1 else "-"),
        )
    console.print(table)
    if len(recordings) > _MOST_RECORDINGS:
        left = plural(len(recordings) - _MOST_RECORDINGS, "recording")
        print_line(console, f"{left} left out; the JSON has them all.", style="dim")
    if floor.spread is not None:
        print_line(
            console,
            f"standard deviation {format_share(floor.spread)}, with 95 % confidence below "
            f"{verdict.share(floor.spread_high)}; {verdict.share(floor.expected)} would come "
            "from the runs' own spread",
        )
    if floor.recommended is not None:
        print_line(
            console,
            "the larger of 5 % and three standard deviations, in pyproject.toml (compare does "
            "the same by itself where NORMAL is three recordings):",
        )
        print_line(console, "  [tool.critpath.gate]")
        print_line(console, f"  floor = {_as_setting(round_up(floor.recommended))}")


def _as_setting(floor: float) -> str:
    """Return a floor as a settings file takes it, which a bare 1.2 is not."""
    return f"{floor:.2f}" if floor < 1 else f'"{100 * floor:.0f}%"'


def _print_detectable(document: CalibrationDocument, console: Console) -> None:
    rows = document.detectable
    sizes = sorted({row.sample for row in rows})
    found: dict[tuple[str, str, int], DetectableEntry]
    found = {(row.kind, row.state, row.sample): row for row in rows}
    _heading(
        console,
        f"Smallest slowdown that shows four times in five, at {_listed(sizes)} runs "
        f"(floor {format_share(document.floor.in_force)})",
    )
    wide = console.width >= _WIDE
    headers = ["longer", ">mean", *(f">at {size}" for size in sizes)]
    table = new_table(console, *headers, *([">of its own"] * wide), folding="longer")
    states = [row for row in rows if row.kind == "state" and row.sample == sizes[0]]
    states.sort(key=lambda row: (-row.mean, row.state))
    named = [("total", "", "every run"), ("rare", "", "one in five")]
    least = _LEAST_STATE * document.mean
    large = [row for row in states[:_MOST_STATES] if row.mean >= least]
    named += [("state", row.state, word_symbol(row.state)) for row in large]
    named += [("new", "", "a new state")]
    for kind, state, name in named:
        # Of the smallest size there is one: the names are its.
        cells = [found.get((kind, state, size)) for size in sizes]
        own = cells[-1].of_own if cells[-1] else None
        mean = found[kind, state, sizes[0]].mean
        table.add_row(
            shown(name, console),
            shown(format_ns(mean) if kind in {"total", "state"} else "", console),
            *(_shift(cell, console) for cell in cells),
            *([Text(_times(own) if kind == "state" else "")] * wide),
        )
    console.print(table)
    if len(states) > len(large):
        left = states[len(large) :]
        print_line(
            console,
            f"{plural(len(left), 'state')} of {format_ns(left[0].mean)} or less left out; "
            "the JSON has them all.",
            style="dim",
        )
    print_line(
        console,
        "time more per run that is slower, and as a share of the mean duration; "
        + (f"of its own: at {sizes[-1]}, as a share of the state's own mean; " if wide else "")
        + "every run: all states by the same share; one in five: a fifth of the "
        "runs, each by so much; a new state: one that no run before has; less "
        "than the floor shows where a type of runs with a smaller mean is slower by itself",
        style="dim",
    )
    if len(rows) < len({(row.kind, row.state) for row in rows}) * len(sizes):
        print_line(console, "-: not looked for in the time that --time leaves", style="dim")
    if any(row.shift is not None and not row.by_floor for row in rows):
        print_line(
            console,
            "* decided by chance, not by the floor: more runs show less",
            style="dim",
        )


def _shift(cell: DetectableEntry | None, console: Console) -> Text:
    if cell is None:
        return Text("-")
    if cell.shift is None:
        return Text("none")
    mark = "" if cell.by_floor else "*"
    more = format_ns(cell.shift, sign=True)
    return shown(f"{more} {verdict.share(cell.of_total)}{mark}", console)


def _times(own: float | None) -> str:
    if own is None:
        return "-"
    return f"{100 * own:.0f} %" if own < 10 else f"{own:,.0f} x"


def _listed(sizes: list[int]) -> str:
    *most, last = map(str, sizes)
    return f"{', '.join(most)} and {last}" if most else last


def _rate(rate: RateEntry | None) -> Text:
    return Text("-" if rate is None else format_share(rate.share))


def _heading(console: Console, text: str) -> None:
    console.print()
    print_line(console, text, style="bold")
