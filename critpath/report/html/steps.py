"""Step by step: an execution's multiple alignment with its normal group, a column each."""

from __future__ import annotations

import math
from typing import Final

from msgspec import Struct, field

from critpath.documents import AlignedEntry, ComparisonDocument, Doing, Pictures
from critpath.report.document.pictures import doing_of, find_thread
from critpath.report.html.elements import WORDS, text, time_of, who

_HAIR: Final = 0.01  # of what they cut: shorter interrupts are folded
_MOST: Final = 36  # columns that are drawn
_ABREAST: Final = 16  # of them: what fits on paper
_PLAIN: Final = 0.01  # of the path: what differs by less may be left out of many columns


class Column(Struct, eq=False):
    """Neighbouring columns of an alignment in which one thread did one thing.

    ``before`` is a normal execution's mean time, absent counts as 0; ``share`` of them are there.
    """

    thread: int
    doing: Doing
    before: float
    after: int
    present: set[int] = field(default_factory=set)
    here: bool = False
    hairs: int = 0
    abnormal: bool = False

    @property
    def change(self) -> float:
        """By how much longer this execution is in it (ns)."""
        return self.after - self.before


def columns_of(aligned: AlignedEntry, looks: list[tuple[int, Doing]]) -> tuple[list[Column], int]:
    """Return what an alignment is drawn as, and how many normal executions are in it.

    Parameters
    ----------
    aligned : AlignedEntry
    looks : list
        Of every symbol the thread and what it does.

    Returns
    -------
    columns : list of Column
        The sums of ``before`` and of ``after`` are mean and this duration, exactly.
    """
    *normals, mine = aligned.rows
    usual = aligned.statistics.normal_symbol
    many = max(len(normals), 1)
    found: list[Column] = []
    for at in range(aligned.columns):
        here = mine.symbols[at]
        # A normal execution may be elsewhere than most: each time counts where it was spent.
        spent: dict[int, int] = {}
        there: dict[int, set[int]] = {}
        for number, row in enumerate(normals):
            code = row.symbols[at]
            if code >= 0:
                spent[code] = spent.get(code, 0) + row.durations[at]
                there.setdefault(code, set()).add(number)
        codes = [here] if here >= 0 else []
        codes += [usual[at]] if usual[at] in spent and usual[at] not in codes else []
        codes += sorted(set(spent) - set(codes))
        for code in codes:
            thread, doing = looks[code]
            found.append(
                Column(
                    thread,
                    doing,
                    spent.get(code, 0) / many,
                    mine.durations[at] if code == here else 0,
                    there.get(code, set()),
                    here=code == here,
                    abnormal=aligned.statistics.abnormal[at],
                )
            )
    return _folded(_joined(found)), len(normals)


def _joined(columns: list[Column]) -> list[Column]:
    """Join neighbours in which one thread does one thing."""
    result: list[Column] = []
    for one in columns:
        last = result[-1] if result else None
        if last and (last.thread, last.doing) == (one.thread, one.doing):
            last.before += one.before
            last.after += one.after
            last.present |= one.present
            last.here |= one.here
            last.hairs += one.hairs
            last.abnormal |= one.abnormal
        else:
            result.append(one)
    return result


def _folded(columns: list[Column]) -> list[Column]:
    """Fold interrupts shorter than 1 % of the stretch of running that they cut, on both sides."""
    result: list[Column] = []
    for stretch in _stretches(columns):
        ran = [c for c in stretch if c.doing == "running"]
        before, after = (sum(getattr(c, side) for c in ran) for side in ("before", "after"))
        for one in stretch:
            last = result[-1] if result and ran else None
            short = one.before <= _HAIR * before and one.after <= _HAIR * after
            if one.doing == "interrupts" and ran and short:
                inside = last if last in ran else ran[0]
                inside.before += one.before
                inside.after += one.after
                inside.hairs += 1
            else:
                result.append(one)
    return _joined(result)


def _stretches(columns: list[Column]) -> list[list[Column]]:
    """Return neighbours in which one thread does nothing but run and is interrupted."""
    result: list[list[Column]] = []
    for one in columns:
        quiet = one.doing in {"running", "interrupts"}
        last = result[-1][-1] if result else None
        same = last and last.thread == one.thread and last.doing in {"running", "interrupts"}
        if quiet and same:
            result[-1].append(one)
        else:
            result.append([one])
    return result


def choose_columns(columns: list[Column]) -> list[Column | list[Column]]:
    """Return the columns to draw; of too many, stretches that differ little are one."""
    if len(columns) <= _MOST:
        return list(columns)
    whole = sum(one.after for one in columns) or 1
    ranked = sorted(range(len(columns)), key=lambda i: (-abs(columns[i].change), i))
    keep = {i for i in ranked[: _MOST // 2] if abs(columns[i].change) > _PLAIN / 10 * whole}
    result: list[Column | list[Column]] = []
    for i, one in enumerate(columns):
        if i in keep:
            result.append(one)
        elif result and isinstance(result[-1], list):
            result[-1].append(one)
        else:
            result.append([one])
    return [one[0] if isinstance(one, list) and len(one) == 1 else one for one in result]


def render_steps(
    document: ComparisonDocument,
    pictures: Pictures,
    aligned: AlignedEntry,
    hot: set[tuple[int, Doing]],
    noun: str,
    spoken: str,
) -> str:
    """Return the aligned columns as a table: usually, and this execution.

    As alignments are printed: so many columns below each other as fit on a page.
    """
    looks = looks_of(document, pictures)
    columns, many = columns_of(aligned, looks)
    heads = [f"mean of {many:,} before", "of these have it", f"this {noun}"]
    rows: list[list[str]] = [[], [], []]
    for one in choose_columns(columns):
        if isinstance(one, list):
            before, after = (sum(getattr(c, side) for c in one) for side in ("before", "after"))
            if round(before) or after:
                plain = f'<span class="dots" title="{len(one)} steps that differ little">⋯</span>'
                rows[0].append(f"<td>{plain}<small>{_time(before)}</small></td>")
                rows[1].append(f'<td class="gap">{len(one)} steps</td>')
                rows[2].append(f"<td>{plain}<small>{_time(after)}</small></td>")
            continue
        look = pictures.threads[one.thread]
        title = text(f"{who(look)} {WORDS[one.doing]}")
        marked = " hot" if (one.thread, one.doing) in hot and one.here else ""
        seen = f'<span class="s w{look.colour} {one.doing}" title="{title}"></span>'
        mine = f'<span class="s w{look.colour} {one.doing}{marked}" title="{title}"></span>'
        gap = '<td class="gap">·</td>'
        share = len(one.present)
        rows[0].append(f"<td>{seen}<small>{_time(one.before)}</small></td>" if share else gap)
        rows[1].append(f"<td>{f'{100 * share / max(many, 1):.0f} %' if share else '–'}</td>")
        rows[2].append(f"<td>{mine}<small>{_time(one.after)}</small></td>" if one.here else gap)
    abreast = math.ceil(len(rows[0]) / max(math.ceil(len(rows[0]) / _ABREAST), 1)) or 1
    blocks = []
    for at in range(0, len(rows[0]), abreast):
        lines = "".join(
            f'<tr><th scope="row">{text(head)}</th>{"".join(cells[at : at + abreast])}</tr>'
            for head, cells in zip(heads, rows, strict=True)
        )
        blocks.append(f"<tbody>{lines}</tbody>")
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(spoken)}">'
        f'<table class="cols">{"".join(blocks)}</table></div>'
    )


def _time(ns: float) -> str:
    return text(time_of(round(ns))) if round(ns) else ""


def looks_of(document: ComparisonDocument, pictures: Pictures) -> list[tuple[int, Doing]]:
    """Return of every symbol which thread of the pictures it is, and what that does."""
    return [
        (find_thread(pictures, symbol.role), doing_of(symbol.state)) for symbol in document.symbols
    ]
