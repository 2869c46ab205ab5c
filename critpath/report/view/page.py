"""A window of a recording as one HTML file that needs no network and trusts no name in it.

Threads and processors over time are drawn by the script, on a canvas; the tables below them say
the same to whoever sees no picture: the path's segments, who had each CPU, what threads did.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

import numpy as np

from critpath import __version__
from critpath.model import PathSet, State, Timelines
from critpath.model.details import IDLE
from critpath.report.html.elements import prose, table, text, time_of
from critpath.report.html.page import assemble_page, read_asset, script_of
from critpath.report.palette import LOOKS
from critpath.report.view.drawn import (
    DrawnWindow,
    describe_left_out,
    draw_window,
    kind_of,
    losses_in,
    window_data,
)
from critpath.text.page import noun_of_kind
from critpath.units import plural, safe_text

_SEGMENTS: Final = 500  # rows of the path's table
_OCCUPANTS: Final = 8  # of each CPU
_THREADS: Final = 100
_NAMED: Final = 3  # parts of the path in the headline
_PATTERNS: Final = {
    "diagonal": '<path d="M0 6L6 0M-1 1L1 -1M5 7L7 5" stroke="{ink}" stroke-width="1.4"/>',
    "dots": '<circle cx="3" cy="3" r="1.3" fill="{ink}"/>',
    "bars": '<path d="M2 0V6" stroke="{ink}" stroke-width="1.8"/>',
}


def render_window(
    timelines: Timelines,
    *,
    span: tuple[int, int],
    hosts: tuple[str, ...],
    path: PathSet | None,
    recording: str,
    command: str,
) -> tuple[str, str]:
    """Render what threads and processors of a window did as a self-contained page.

    Parameters
    ----------
    timelines : Timelines
        Of the window.
    span : tuple of int
        Its begin and end (ns).
    hosts : tuple of str
        Whom `Workers.host` counts.
    path : PathSet or None
        One execution, whose critical path is lit.
    recording, command : str
        As the user named it; what shows the window again.

    Returns
    -------
    page, left_out : str
        HTML, the same for the same window; and what it has no room for, "" for nothing.
    """
    window = draw_window(timelines, *span, path)
    name = PurePath(recording).name or recording
    left = describe_left_out(window)
    body = (
        f"{_top(name, window)}<main>{_answer(window, path, left)}{_tools(window)}{_chart(window)}"
        f'<div class="folds">{_path_table(window)}{_cpu_table(window, hosts)}'
        f"{_thread_table(window, hosts)}</div>"
        f'<h2>The same on the command line</h2><div class="cmd"><pre id="cmd">{text(command)}</pre>'
        f'<button class="btn" id="copy2" type="button">Copy</button></div></main>{_foot()}'
    )
    data = {**window_data(window, hosts), "command": command}
    style = "".join(
        read_asset(f"critpath.report.{place}", f"{sheet}.css")
        for place, sheet in (("html", "page"), ("explore", "explore"), ("view", "view"))
    )
    script = script_of(
        [
            read_asset("critpath.report.html", "base.js"),
            read_asset("critpath.report.view", "view.js"),
        ]
    )
    return assemble_page(f"critpath view: {safe_text(name)}", style, body, script, data), left


def _top(name: str, window: DrawnWindow) -> str:
    return (
        f'<header class="top"><b>critpath</b><code class="sets">{text(name)}</code>'
        f'<span class="date">{text(time_of(window.end - window.begin))} from '
        f"{window.begin:,} ns on the trace's clock</span>"
        '<span class="room"></span>'
        '<button class="btn" id="copy" type="button">Copy command</button>'
        '<button class="btn" id="theme" type="button">Light / dark</button></header>'
    )


def _answer(window: DrawnWindow, path: PathSet | None, left: str) -> str:
    if path is None:
        threads = len(window.threads) + window.left_out[0]
        cpus = plural(len(window.timelines.processors), "CPU")
        shown = f"{plural(threads, 'thread')} on {cpus} in {time_of(window.end - window.begin)}"
        why = "; ".join(_busiest(window, processor) for processor in _processors(window)[:4])
        hint = (
            "No critical path is lit: <code>--around ID</code> or <code>--tid N</code> "
            "says whose it should be."
        )
    else:
        took = int(path.executions.end[0] - path.executions.begin[0])
        noun = noun_of_kind(path.specification).capitalize()
        shown = f"{noun} `{_code(safe_text(path.executions.id[0]))}` takes {time_of(took)}"
        why, hint = _parts(window), ""
    lost = losses_in(window)
    warned = [left] if left else []
    if lost:
        events = sum(loss.events for loss in lost)
        count = f"{events:,} events" if events else "Events"
        warned.append(f"{count} were lost within the window: what they tell is not drawn.")
    return (
        f'<section class="answer" aria-label="The answer"><h1>{prose(shown)}</h1>'
        f'<p class="why">{prose(why)}</p>'
        f"{''.join(f'<p class=warn>⚠ {text(one)}</p>' for one in warned)}"
        f"{f'<p class=small>{hint}</p>' if hint else ''}</section>"
    )


def _parts(window: DrawnWindow) -> str:
    """Say what most of the path's time is spent on."""
    sums: dict[tuple[int, str, str], int] = defaultdict(int)
    path = window.path
    for begin, end, state, detail, name in zip(
        *(path.begin.tolist(), path.end.tolist(), path.state.tolist(), path.detail, path.name),
        strict=True,
    ):
        sums[state, detail * (state == State.WAIT_CPU), name] += end - begin
    most = sorted(sums.items(), key=lambda one: -one[1])
    shown = [
        f"`{_code(name) or 'unknown'}` {time_of(ns)} {LOOKS[State(state).name].words}"
        f"{_which(state, detail)}"
        for (state, detail, name), ns in most[:_NAMED]
    ]
    rest = sum(ns for _, ns in most[_NAMED:])
    return "; ".join([*shown, *([f"{time_of(rest)} other"] if rest else [])])


def _which(state: int, detail: str) -> str:
    if state != State.WAIT_CPU or not detail:
        return ""
    return " that was idle" if detail == IDLE else f" that `{_code(detail)}` had"


def _code(name: str) -> str:
    """Return a name that stays between backticks."""
    return name.replace("`", "'")


def _processors(window: DrawnWindow) -> list[int]:
    places = window.timelines.processors
    return sorted(range(len(places)), key=lambda one: places[one])


def _cpu_name(window: DrawnWindow, processor: int, hosts: Sequence[str] = ()) -> str:
    host, cpu = window.timelines.processors[processor]
    return f"cpu {cpu}" + (f" of {safe_text(hosts[host])}" if len(hosts) > 1 else "")


def _busiest(window: DrawnWindow, processor: int) -> str:
    whole = max(window.end - window.begin, 1)
    had = [
        f"{'idle' if name == 'idle' else f'`{_code(name)}`'} {100 * ns / whole:.0f} %"
        for worker, ns in window.occupants(processor)[:2]
        if (name := window.name_of(worker))
    ]
    return f"{_cpu_name(window, processor)}: {', '.join(had) or 'not seen'}"


def _tools(window: DrawnWindow) -> str:
    buttons = (
        ("out", "−", "Zoom out"),
        ("in", "+", "Zoom in"),
        ("whole", "Whole window", ""),
        *((("critical", "Critical path", ""),) if len(window.path) else ()),
    )
    shown = "".join(
        f'<button class="btn" id="{name}" type="button"'
        f"{f' aria-label={chr(34)}{label}{chr(34)}' if label else ''}>{text(face)}</button>"
        for name, face, label in buttons
    )
    return (
        '<div class="tools needjs"><input type="search" id="search" '
        'placeholder="Search a thread" aria-label="Search a thread">'
        f'<span id="count" class="dim" role="status"></span><span class="room"></span>{shown}</div>'
    )


def _chart(window: DrawnWindow) -> str:
    steps = (
        ", <kbd>n</kbd> <kbd>p</kbd> along the critical path, <kbd>l</kbd> its longest parts"
        if len(window.path)
        else ""
    )
    return (
        '<div id="rows" class="rows needjs" tabindex="0" role="application" '
        'aria-roledescription="timeline" aria-label="Threads and CPUs over time" '
        'aria-describedby="keys"><div class="stack" aria-hidden="true">'
        '<canvas id="canvas"></canvas><canvas id="over"></canvas></div><div id="room"></div></div>'
        '<p id="facts" class="facts needjs" role="status" aria-live="polite"></p>'
        f"{_legend(window)}"
        '<p id="keys" class="small needjs"><kbd>←</kbd> <kbd>→</kbd> move, <kbd>+</kbd> '
        "<kbd>−</kbd> zoom, <kbd>Home</kbd> the whole window, <kbd>↑</kbd> <kbd>↓</kbd> row, "
        "<kbd>,</kbd> <kbd>.</kbd> interval before and after, <kbd>Enter</kbd> zoom to it, "
        f"<kbd>s</kbd> sums of what is in view{steps}. Drag to move, with <kbd>Shift</kbd> to sum "
        "up a stretch of time; the wheel zooms with <kbd>Ctrl</kbd> and moves with "
        "<kbd>Shift</kbd>; a double click zooms to what is there.</p>"
        '<noscript><p class="small">The picture is drawn by the page\'s script; the tables below '
        "are there without it.</p></noscript>"
    )


def _legend(window: DrawnWindow) -> str:
    """Return what colours and textures mean, of those states that occur."""
    lines = window.timelines
    states = sorted(
        {*np.unique(lines.state).tolist(), *np.unique(window.path.state).tolist()}
        | {*np.unique(lines.stolen_state).tolist()},
        key=lambda state: (-kind_of(State(state)), state),
    )
    marks, entries = [], []
    for state in states:
        look = LOOKS[State(state).name]
        height = (6, 10, 12)[kind_of(State(state))]
        fill = look.colour
        if look.pattern in _PATTERNS:
            ink = _PATTERNS[look.pattern].format(ink=look.ink)
            marks.append(
                f'<pattern id="s{state}" width="6" height="6" patternUnits="userSpaceOnUse">'
                f'<rect width="6" height="6" fill="{look.colour}"/>{ink}</pattern>'
            )
            fill = f"url(#s{state})"
        entries.append(
            f'<span><svg width="22" height="12" aria-hidden="true"><rect y="{12 - height}" '
            f'width="22" height="{height}" fill="{fill}"/></svg>{text(look.words)}</span>'
        )
    lit = (
        '<span><svg width="22" height="12" aria-hidden="true"><rect class="lit" y="9" width="22" '
        'height="3"/></svg>on the critical path</span>'
        if len(window.path)
        else ""
    )
    return (
        f'<svg class="svgdefs" aria-hidden="true"><defs>{"".join(marks)}</defs></svg>'
        f'<div class="leg2 needjs">{lit}{"".join(entries)}</div>'
    )


def _fold(name: str, title: str, remark: str, content: str) -> str:
    return (
        f'<details class="fold" id="{name}"><summary>{text(title)} <span>{text(remark)}</span>'
        f"</summary>{content}</details>"
    )


def _path_table(window: DrawnWindow) -> str:
    path = window.path
    if not len(path):
        return ""
    shown = [
        (
            time_of(begin - window.begin),
            time_of(end - begin),
            f"<code>{text(name)}</code>",
            text(LOOKS[State(state).name].words),
            text(detail),
            str(cpu) if cpu >= 0 else "",
        )
        for begin, end, name, state, detail, cpu in zip(
            *(path.begin[:_SEGMENTS].tolist(), path.end[:_SEGMENTS].tolist(), path.name),
            *(path.state.tolist(), path.detail, path.cpu.tolist()),
            strict=False,
        )
    ]
    more = "" if len(path) <= _SEGMENTS else f", the first {_SEGMENTS} of them"
    heads = (">From", ">Lasts", "Thread", "State", "Detail", ">CPU")
    caption = "The critical path in order of time; from the begin of the window"
    listed = table(caption, heads, shown)
    return _fold("path", "The critical path as a table", f"{len(path):,} segments{more}", listed)


def _cpu_table(window: DrawnWindow, hosts: Sequence[str]) -> str:
    """Return who had each CPU; the times of one are together the window, or what was seen."""
    whole = max(window.end - window.begin, 1)
    rows = []
    for processor in _processors(window):
        name = _cpu_name(window, processor, hosts)
        had = window.occupants(processor)
        shown = [(window.name_of(worker), ns) for worker, ns in had[:_OCCUPANTS]]
        if rest := had[_OCCUPANTS:]:
            shown.append((plural(len(rest), "other"), sum(ns for _, ns in rest)))
        if unseen := whole - sum(ns for _, ns in had):
            shown.append(("not recorded", unseen))
        rows += [
            (text(name), f"<code>{text(who)}</code>", time_of(ns), f"{100 * ns / whole:.1f}\u00a0%")
            for who, ns in shown
        ]
    listed = table("Who had each CPU, the longest first", ("CPU", "Who", ">Time", ">Share"), rows)
    return _fold("cpus", "Who had the CPUs", "", listed)


def _thread_table(window: DrawnWindow, hosts: Sequence[str]) -> str:
    lines, rows = window.timelines, []
    for worker, on_cpu in zip(
        window.threads[:_THREADS].tolist(), window.on_cpu[:_THREADS].tolist(), strict=True
    ):
        of = slice(int(lines.start[worker]), int(lines.start[worker + 1]))
        spent = window.clip(lines.begin[of], lines.end[of])
        sums = np.bincount(lines.state[of], spent, len(State)).astype(np.int64)
        could = int(sum(sums[s] for s in State if kind_of(s) == 1))
        waits = [s for s in State if kind_of(s) == 0 and sums[s]]
        longest = max(waits, key=lambda s: int(sums[s]), default=None)
        named = f" @{safe_text(hosts[int(lines.workers.host[worker])])}" if len(hosts) > 1 else ""
        rows.append(
            (
                f"<code>{text(window.name_of(worker) + named)}</code>",
                time_of(on_cpu),
                time_of(could),
                text(f"{LOOKS[longest.name].words}, {time_of(int(sums[longest]))}")
                if longest is not None
                else "",
            )
        )
    caption = "What threads did: those on the path first, then by their time on a CPU"
    heads = ("Thread", ">On a CPU", ">Waiting for one", "Above all otherwise")
    threads = len(window.threads)
    more = "" if threads <= _THREADS else f", the first {_THREADS} of them"
    listed = table(caption, heads, rows)
    return _fold("threads", "The threads", f"{plural(threads, 'thread')}{more}", listed)


def _foot() -> str:
    return (
        '<footer><span class="needjs">Keys: <kbd>/</kbd> search, <kbd>x</kbd> all threads, '
        "<kbd>c</kbd> copy, <kbd>t</kbd> light or dark.</span> "
        f"critpath {text(__version__)}. The page is one file and needs no network.</footer>"
    )
