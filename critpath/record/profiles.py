"""Recording profiles: LTTng session files, which both recorders read.

The files of ``lttng-sessions/`` are what ``lttng load`` accepts and ``lttng save`` writes.
"""

from __future__ import annotations

import importlib.resources
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

from critpath.errors import CritpathError, UsageError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

SUFFIX: Final = ".lttng"


@dataclass(frozen=True)
class ProfileEvents:
    """What a profile records of the kernel.

    Attributes
    ----------
    tracepoints, syscalls : tuple of str
        LTTng's names, in the file's order; ``*`` stands for any text.
    contexts : tuple of str
        As LTTng names them when it adds them: ``pid``, ``procname``.
    """

    tracepoints: tuple[str, ...]
    syscalls: tuple[str, ...] = ()
    contexts: tuple[str, ...] = ()


def profile_directory() -> Traversable:
    """Return where the profiles are installed."""
    installed = importlib.resources.files("critpath") / "lttng-sessions"
    # An editable install may know the directory by its files only.
    beside = Path(__file__).resolve().parents[2] / "lttng-sessions"
    return beside if not installed.is_dir() and beside.is_dir() else installed


def profile_names() -> tuple[str, ...]:
    """Return the names of the profiles, sorted."""
    place = profile_directory()
    found = [p.name for p in place.iterdir()] if place.is_dir() else []
    return tuple(sorted(name.removesuffix(SUFFIX) for name in found if name.endswith(SUFFIX)))


def profile_path(name: str) -> Path:
    """Return a profile's session file; raises UsageError if there is no such profile."""
    known = profile_names()
    if name not in known:
        raise UsageError(
            f"there is no profile {name!r}",
            f"choose one of {', '.join(known)}" if known else "install critpath again",
        )
    # An installed package is files on disk: LTTng needs them there in any case.
    return Path(str(profile_directory() / f"{name}{SUFFIX}"))


def profile_events(name: str) -> ProfileEvents:
    """Read which events a profile enables in the kernel."""
    path = profile_path(name)
    try:
        root = _parse(path)
    except (OSError, ET.ParseError) as error:
        raise CritpathError(
            f"the profile {path} cannot be read: {error}", "install critpath again"
        ) from None
    tracepoints: list[str] = []
    syscalls: list[str] = []
    contexts: list[str] = []
    for domain in root.iter("domain"):
        if _text(domain, "type") != "KERNEL":
            continue
        for event in domain.iter("event"):
            into = {"TRACEPOINT": tracepoints, "SYSCALL": syscalls}.get(_text(event, "type"))
            if into is not None and _text(event, "enabled", "true") == "true":
                # LTTng leaves the name out where a rule stands for all.
                into.append(_text(event, "name", "*"))
        contexts += [_text(context, "type").lower() for context in domain.iter("context")]
    if not tracepoints:
        raise CritpathError(
            f"the profile {path} enables no tracepoint of the kernel", "install critpath again"
        )
    return ProfileEvents(*(tuple(dict.fromkeys(x)) for x in (tracepoints, syscalls, contexts)))


def _parse(path: Path) -> ET.Element:
    return ET.parse(path).getroot()  # noqa: S314 - the installation's own files, as code is


def _text(element: ET.Element, name: str, default: str = "") -> str:
    """Return the text of a child element."""
    return (element.findtext(name) or default).strip()
