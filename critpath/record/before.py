"""What is done and found out before a recording begins."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator

from critpath.errors import CritpathError
from critpath.record._spawn import become_subreaper
from critpath.record.leftovers import remove_leftovers
from critpath.record.recorder import Leftover
from critpath.record.request import Tell
from critpath.units import plural


def container_namespace(name: str) -> int:
    """Return the pid namespace of a container, 0 for no name."""
    if not name:
        return 0
    # Imported here, as it is rarely needed.
    containers = importlib.import_module("critpath.record.containers")
    return int(containers.resolve_container(name))


def sweep(tell: Tell) -> None:
    """Remove what dead recorders left, so that it costs this recording nothing."""
    gone: list[str] = []

    def told(leftover: Leftover, error: CritpathError | None) -> None:
        if error is None:
            gone.append(f"{leftover.kind} {leftover.name}")
        else:
            tell.say(f"warning: {error.what} ({error.do})")

    remove_leftovers(told)
    if gone:
        shown = ", ".join(gone[:3]) + (", ..." if len(gone) > 3 else "")
        tell.say(f"removed {plural(len(gone), 'leftover')} of a killed recorder: {shown}")


@contextlib.contextmanager
def subreaper() -> Iterator[None]:
    """Adopt what the command leaves behind, so that it is seen."""
    before = become_subreaper(True)
    try:
        yield
    finally:
        become_subreaper(before)
