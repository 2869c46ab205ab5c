"""Twins of `critpath.timeline._functions`: spans by a list, the longest by every nanosecond."""

from __future__ import annotations

from collections import Counter

ENTRY, EXIT, LAST = 0, 1, 2


def nest(rows, end):
    """Return spans (begin, end, code, parent) and changes (time, span) of one thread."""
    spans, stack, changes = [], [], []
    for time, code, what in rows:
        if what == ENTRY:
            spans.append([time, end, code, stack[-1] if stack else -1])
            stack.append(len(spans) - 1)
        elif what == LAST:
            while stack:
                spans[stack.pop()][1] = time
        elif any(spans[one][2] == code for one in stack):
            while True:
                one = stack.pop()
                spans[one][1] = time
                if spans[one][2] == code:
                    break
        else:
            continue
        changes.append((time, stack[-1] if stack else -1))
    return [tuple(span) for span in spans], changes


def longest(changes, kind, begin, end):
    """Return of which kinds the innermost span is longest; nothing where it is mostly unknown."""
    tally = Counter()
    for moment in range(begin, end):
        inner = -1
        for time, span in changes:
            if time > moment:
                break
            inner = span
        if inner >= 0:
            tally[kind[inner]] += 1
    if 2 * tally.total() < end - begin:
        return {-1}
    most = max(tally.values(), default=0)
    return {one for one, time in tally.items() if time == most} or {-1}
