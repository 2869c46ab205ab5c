"""Critical paths in lanes: a thread each, in true time; and as strips, small multiples of them."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Final

from msgspec import Struct

from critpath.documents import DrawnPath, Pictures
from critpath.report.html.elements import WORDS, axis, box, place, text, time_of, who
from critpath.text.requests import describe_crossing, describe_inferred

Step = list[int]  # begin, length (ns), place in threads, place in doings
Hot = Collection[tuple[int, int]]  # threads and doings that are outlined

_LANES: Final = 6  # the own thread and five others
_MOST_LANES: Final = 11  # with a lane for each host's name
_MOST_HOSTS: Final = 5
LEAST_BAND: Final = 0.7  # % of the scale: a band that is narrower is not drawn
SEEN: Final = 0.16  # % of the scale: narrower steps join what is before them
_STRIP: Final = 1.0  # the same of a strip
_LABEL: Final = 5.5  # % of the scale that a label takes
_WIDE: Final = 12.0  # the same on a narrow page
_TITLED: Final = 0.8
_OUTLINED: Final = 2.0  # narrower steps are underlined
_MOST_HAIRS: Final = 60
_LONGER: Final = 2.2  # times the typical one: what is longer has a scale of its own


class Scale(Struct, frozen=True):
    """How many ns the width is, and how many times as many a path takes that is too long."""

    length: float
    times: int = 1

    @property
    def width(self) -> float:
        """Nanoseconds of this path's width."""
        return self.length * self.times


def length_of(path: DrawnPath) -> int:
    """Return how long a path is (ns): its steps tile it."""
    return sum(step[1] for step in path.steps)


def common_scale(typical: DrawnPath, others: Sequence[DrawnPath]) -> float:
    """Return the longest that is at most 2.2 times the typical one (ns)."""
    most = _LONGER * length_of(typical)
    fit = (length_of(one) for one in (typical, *others))
    return float(max((ns for ns in fit if ns <= most), default=1) or 1)


def scale_of(path: DrawnPath, common: float) -> Scale:
    """Return the scale that a path fits on."""
    return Scale(common, max(1, math.ceil(length_of(path) / common - 1e-9)))


def lanes_of(pictures: Pictures, paths: Sequence[DrawnPath], scale: float = 0.0) -> dict[int, int]:
    """Return the lane of every thread: the own one on top, others by their time.

    Of several hosts each has a lane for its name, and below it its threads: that of the own
    thread first, others by their time; whoever is only interrupted by what comes from another
    host is not seen on that scale.
    """
    time: dict[int, int] = {}
    seen: set[int] = set()
    for path in paths:
        for step in path.steps:
            time[step[2]] = time.get(step[2], 0) + step[1]
            if step[1] >= SEEN / 100 * scale:
                seen.add(step[2])
    others = sorted((t for t in time if t), key=lambda t: (-time[t], t))
    if not any(one.host for one in pictures.threads):
        return {thread: min(lane, _LANES - 1) for lane, thread in enumerate([0, *others])}
    grouped: dict[str, list[int]] = {}
    others = [thread for thread in others if thread in seen]
    for thread in [0, *others]:
        grouped.setdefault(pictures.threads[thread].host, []).append(thread)
    hosts = min(len(grouped), _MOST_HOSTS)
    shown = {0, *others[: _MOST_LANES - hosts - 2 * (len(grouped) > _MOST_HOSTS)]}
    lanes: dict[int, int] = {}
    free = 0
    for number, threads in enumerate(grouped.values()):
        # Hosts behind the last have one lane together.
        free += 1 if number < _MOST_HOSTS else 2 * (number == _MOST_HOSTS)
        for thread in threads:
            # What has no lane of its own is in the last of its host's.
            new = number < _MOST_HOSTS and (thread in shown or thread == threads[0])
            lanes[thread] = free if new else max(free - 1, 0)
            free += new
    return {thread: min(lane, _MOST_LANES + _MOST_HOSTS - 1) for thread, lane in lanes.items()}


def join_small(steps: Sequence[Step], least: float) -> list[Step]:
    """Return steps of which none is shorter than some ns; they tile the same time.

    A short one joins what is before it; at the beginning, what is behind it.
    """
    result: list[Step] = []
    for begin, length, thread, doing in steps:
        if result and (length < least or [thread, doing] == result[-1][2:]):
            result[-1][1] += length
        elif len(result) == 1 and result[0][1] < least:
            result[0] = [result[0][0], result[0][1] + length, thread, doing]
        else:
            result.append([begin, length, thread, doing])
    return result


def draw_lanes(
    pictures: Pictures,
    path: DrawnPath,
    lanes: dict[int, int],
    scale: Scale,
    hot: Hot,
    spoken: str,
) -> str:
    """Return a path in lanes; ``spoken`` is what it shows, in words."""
    width = scale.width
    names: dict[int, str] = {}
    heads: dict[int, str] = {}
    for thread, lane in lanes.items():
        one = pictures.threads[thread]
        name = who(one).removesuffix(f"@{one.host}" if one.host else "")
        names[lane] = name if lane not in names else "other threads"
        if one.host and one.host not in heads.values():
            heads[lane - 1] = "other hosts" if lane - 1 in heads else one.host
    steps = join_small(path.steps, SEEN / 100 * width)
    beneath = {step[0]: under for step, under in zip(path.steps, path.beneath, strict=False)}
    drawn: list[str] = []
    before, last = -1, Step()
    for begin, length, thread, doing in steps:
        lane = lanes.get(thread, lanes[0])
        left, wide = 100 * begin / width, 100 * length / width
        if last and before != lane:
            drawn += _move(pictures, path, (last, [begin, length, thread, doing]), lanes, width)
        before, last = lane, [begin, length, thread, doing]
        name = pictures.doings[doing]
        one = pictures.threads[thread]
        about = (" hot" if wide >= _OUTLINED else " warm") if (thread, doing) in hot else ""
        kind = f"l{lane}{about}{' slim' if _LABEL <= wide < _WIDE else ''}"
        words = f"{who(one)} {WORDS[name]} {time_of(length)}" if wide >= _TITLED else ""
        under = beneath.get(begin, -1) if name in {"queued", "shared"} else -1
        if words and under >= 0:
            words += f", meanwhile {WORDS[pictures.doings[under]]}"
        label = time_of(length) if wide >= _LABEL else ""
        drawn.append(box(one, name, (left, wide), label=label, title=words, kind=kind))
    drawn += _hairs(path, steps, lanes, width)
    end = time_of(length_of(path))
    drawn.append(f'<em class="e" {place(100 * length_of(path) / width)}>{text(end)}</em>')
    labels = "".join(f'<span class="l{lane}">{text(name)}</span>' for lane, name in names.items())
    labels += "".join(
        f'<span class="l{lane} host">{text(name)}</span>' for lane, name in heads.items()
    )
    return (
        f'<div class="lanes n{max(names) + 1}"><div class="names" aria-hidden="true">{labels}</div>'
        f'<div class="track" role="img" aria-label="{text(spoken)}">{"".join(drawn)}</div></div>'
    )


def _move(
    pictures: Pictures,
    path: DrawnPath,
    steps: tuple[Step, Step],
    lanes: dict[int, int],
    width: float,
) -> list[str]:
    """Return the line along which a path goes from lane to lane, and how sure that is.

    Between hosts it has a head, and a band as wide as the time may be wrong; it is dashed where it
    is inferred who worked for whom.
    """
    (earlier, _, source, _), (begin, _, target, _) = steps
    before, lane = (lanes.get(thread, lanes[0]) for thread in (source, target))
    top, height, left = min(before, lane), abs(before - lane), 100 * begin / width
    # On the way there may be steps that are too short to be drawn.
    sure = [one[1] for one in path.inferred if len(one) > 1 and earlier < one[0] <= begin]
    bounds = [one[3] for one in path.crossings if len(one) > 3 and earlier < one[0] <= begin]
    one, other = pictures.threads[source], pictures.threads[target]
    kind, titles, drawn = "", [], []
    if bounds and one.host != other.host:
        bound = None if min(bounds) < 0 else max(bounds)
        kind = (" down" if lane > before else " up") + (" unsure" if bound is None else "")
        titles.append(describe_crossing(who(one), who(other), bound))
        wide = 200 * (bound or 0) / width
        if wide >= LEAST_BAND:
            low, high = max(left - wide / 2, 0.0), min(left + wide / 2, 100.0)
            drawn.append(f'<i class="sure l{top} h{height}" {place(low, high - low)}></i>')
    if sure:
        kind += " dashed"
        titles.append(describe_inferred(min(sure) / 1000))
    about = f' title="{text("; ".join(titles))}"' if titles else ""
    return [*drawn, f'<u class="l{top} h{height}{kind}" {place(left)}{about}></u>']


def _hairs(
    path: DrawnPath, steps: Sequence[Step], lanes: dict[int, int], width: float
) -> list[str]:
    """Return short interrupts as hairlines in what they cut."""
    result = []
    at = 0
    for begin in path.hairs[:_MOST_HAIRS]:
        while at + 1 < len(steps) and steps[at + 1][0] <= begin:
            at += 1
        if steps:
            lane = lanes.get(steps[at][2], 0)
            result.append(f'<q class="l{lane}" {place(100 * begin / width)}></q>')
    return result


def draw_axis(scale: Scale) -> str:
    """Return the scale of lanes."""
    return f'<div class="lanes axes"><div></div><div class="track">{axis(scale.width)}</div></div>'


def draw_strip(pictures: Pictures, path: DrawnPath, scale: Scale, hot: Hot) -> str:
    """Return a path on one line."""
    width = scale.width
    boxes = [
        box(
            pictures.threads[thread],
            pictures.doings[doing],
            (100 * begin / width, 100 * length / width),
            kind="hot" if (thread, doing) in hot else "",
        )
        for begin, length, thread, doing in join_small(path.steps, _STRIP / 100 * width)
    ]
    return f'<span class="strip">{"".join(boxes)}</span>'
