"""Plain twin of `critpath.requests.turns.add_partial`: what gaps cut, an endpoint at a time."""

from __future__ import annotations

from critpath.model.requests import Act

MOVES = {Act.ARRIVAL, Act.RECEIVE, Act.SEND}


def cut(rows, stretches, whole):
    """Return (begin, received, end, thread) of what one endpoint that serves leaves cut.

    Rows are ``(time, act, thread)`` in order; stretches ``(begin, end)``, None where there is no
    gap; whole turns ``(begin, end)``.
    """
    found = []
    for begin, end in stretches:
        low, high = begin if begin is not None else -1, end if end is not None else 1 << 62
        mine = [row for row in rows if low <= row[0] < high]
        turns = [turn for turn in whole if low <= turn[0] < high]
        before = min([t for t, _ in turns] + [t for t, act, _ in mine if act == Act.OPEN] + [high])
        over = max([t for _, t in turns] + [t for t, act, _ in mine if act == Act.CLOSE] + [-1])
        answers = [row for row in mine if row[1] == Act.SEND and row[0] < before]
        if answers and begin is not None:
            last = answers[-1]
            found.append((begin, begin, last[0], last[2]))
            over = max(over, last[0])
        asked = [r for r in mine if r[0] > over and r[1] in {Act.ARRIVAL, Act.RECEIVE}]
        if asked and end is not None:
            first = asked[0]
            reads = [row for row in asked if row[1] == Act.RECEIVE]
            moves = [row for row in mine if row[1] in MOVES]
            opened = [t for t, act, _ in mine if act == Act.OPEN]
            late = begin is not None and first == moves[0] and first[1] == Act.RECEIVE
            late = late and not (opened and min(opened) <= first[0])
            found.append(
                (
                    begin if late else first[0],
                    reads[0][0] if reads else end,
                    end,
                    reads[0][2] if reads else 0,
                )
            )
    return sorted(found)
