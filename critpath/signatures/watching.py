"""What a running machine does, looked up in a store interval by interval."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from critpath.read import parse_counts
from critpath.schema.parameters.shared import WATCHING
from critpath.schema.parameters.signatures import LOOKUP
from critpath.signatures.library import Library, make_library
from critpath.signatures.lookup import search_states
from critpath.signatures.terms import normalised
from critpath.signatures.weights import find_quiet

if TYPE_CHECKING:
    from critpath.documents.known import KnownEntry
    from critpath.known import Store


class Watch:
    """Answers for the last few intervals; it keeps these, and the store.

    Parameters
    ----------
    store : Store
    header : mapping
        First line of what is counted.
    level : float
    fail_on : str
        A label, or "".

    Attributes
    ----------
    seen : Counter
        Answers so far: by label, "" for those like nothing known, None where none was given.
    lossy : int
        Intervals in which something was lost.
    """

    def __init__(
        self, store: Store, header: Mapping[str, Any], *, level: float, fail_on: str = ""
    ) -> None:
        self._store = store
        self._header = dict(header)
        self._level = level
        self._fail_on = fail_on
        self._lines: deque[dict[str, Any]] = deque(maxlen=WATCHING.window)
        self._failed: deque[bool] = deque(maxlen=WATCHING.window)
        self._library: Library | None = None
        self._last: object = ()
        self.seen: Counter[str | None] = Counter()
        self.lossy = 0

    @property
    def scope(self) -> str:
        """Whose doing is looked up: the group's, where one is counted."""
        return str(self._header["scopes"][-1])

    @property
    def must_fail(self) -> bool:
        """Tell whether the label was seen often enough to end."""
        return sum(self._failed) >= WATCHING.failing

    def add(self, line: Mapping[str, Any]) -> tuple[KnownEntry, bool]:
        """Return the answer with one more interval, and whether it is another than before."""
        self._lines.append(dict(line))
        counts = normalised(parse_counts(self._header, self._lines)).of_scope(self.scope)
        self.lossy += int(counts.lossy[-1])
        judged = np.flatnonzero(~counts.lossy & ~find_quiet(counts))[-LOOKUP.least_documents :]
        # Too few of them: all are asked about, so that the answer says why there is none.
        asked = counts.take(judged) if len(judged) == LOOKUP.least_documents else counts
        if self._library is None:
            states = [entry for entry in self._store.entries if entry.kind == "state"]
            self._library = make_library(states, asked) if len(judged) else None
        answer = search_states(self._store, asked, level=self._level, library=self._library)
        first = answer.matches[0] if answer.matches else None
        name: str | None = None
        if answer.answer == "known" and first is not None:
            name = first.label
        elif answer.answer == "unknown":
            name = ""
        self.seen[name] += 1
        known = first is not None and answer.answer == "known"
        self._failed.append(bool(known and first and self._fail_on in first.labels))
        now = (answer.answer, frozenset(first.labels) if known and first else None)
        changed, self._last = now != self._last, now
        return answer, changed
