"""Recording profiles: LTTng session files, which both recorders read.

The files of ``lttng-sessions/`` are what ``lttng load`` accepts and ``lttng save`` writes;
users may bring their own.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

import critpath
from critpath.errors import CritpathError, UsageError

SUFFIX: Final = ".lttng"
MINIMAL: Final = "minimal"
_LARGEST: Final = 1 << 20  # bytes of a session file; LTTng's own are a few thousand
# A processing instruction: what follows is for tracers that lack one of the events it names.
WITHOUT: Final = "critpath-without"


@dataclass(frozen=True)
class ProfileEvents:
    """What a profile records of the kernel."""

    # LTTng's names, in the file's order; ``*`` stands for any text.
    tracepoints: tuple[str, ...]
    syscalls: tuple[str, ...] = ()
    contexts: tuple[str, ...] = ()  # as LTTng names them when it adds them: ``pid``, ``procname``
    # Tracepoints of which a tracer may lack one: then it records ``substitutes`` too.
    replaced: tuple[str, ...] = ()
    substitutes: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())  # tracepoints and system calls

    def for_tracer(self, available: Collection[str]) -> ProfileEvents:
        """Return what a tracer with these events records, by LTTng's names."""
        if all(name in available for name in self.replaced):
            return ProfileEvents(self.tracepoints, self.syscalls, self.contexts)
        tracepoints, syscalls = self.substitutes
        # What another tracer has instead is no lack.
        tracepoints = tuple(t for t in tracepoints if t in available or "*" in t)
        lacking = {name for name in self.replaced if name not in available}
        return ProfileEvents(
            (*(name for name in self.tracepoints if name not in lacking), *tracepoints),
            (*self.syscalls, *syscalls),
            self.contexts,
        )


def profile_directory() -> Path:
    """Return where the profiles are installed."""
    return Path(critpath.__file__).with_name("lttng-sessions")


def profile_names() -> tuple[str, ...]:
    """Return the names of the profiles, sorted."""
    place = profile_directory()
    found = [p.name for p in place.iterdir()] if place.is_dir() else []
    return tuple(sorted(name.removesuffix(SUFFIX) for name in found if name.endswith(SUFFIX)))


def is_users_profile(name: str) -> bool:
    """Return whether this is a user's own session file, by its path."""
    return os.sep in name or name.endswith(SUFFIX)


def profile_label(name: str) -> str:
    """Return what a recording calls its profile: of a user's own the file, not where it was."""
    return Path(name).name


def profile_path(name: str) -> Path:
    """Return a profile's session file, or a user's own; raises UsageError if there is none."""
    if is_users_profile(name) and Path(name).is_file():
        return Path(name)
    known = profile_names()
    if name not in known:
        raise UsageError(
            f"there is no profile {name!r}",
            f"choose one of {', '.join(known)}, or the path of a session file"
            if known
            else "install critpath again",
        )
    # An installed package is files on disk: LTTng needs them there in any case.
    return Path(str(profile_directory() / f"{name}{SUFFIX}"))


def profile_events(name: str) -> ProfileEvents:
    """Read which events a profile enables in the kernel."""
    root = parse_profile(name)
    tracepoints: list[str] = []
    syscalls: list[str] = []
    contexts: list[str] = []
    replaced: tuple[str, ...] = ()
    substitutes: tuple[list[str], list[str]] = [], []
    for domain in root.iter("domain"):
        if _text(domain, "type") != "KERNEL":
            continue
        rules = {"TRACEPOINT": tracepoints, "SYSCALL": syscalls}
        for element in domain.iter():
            if without := read_instruction(element, WITHOUT):
                replaced = tuple(without)
                rules = dict(zip(rules, substitutes, strict=True))
            elif element.tag == "event":
                into = rules.get(_text(element, "type"))
                if into is not None and _text(element, "enabled", "true") == "true":
                    # LTTng leaves the name out where a rule stands for all.
                    into.append(_text(element, "name", "*"))
        contexts += [_text(context, "type").lower() for context in domain.iter("context")]
    if not tracepoints:
        raise refuse_profile(name, "enables no tracepoint of the kernel")
    tracepoints, syscalls, contexts = (
        list(dict.fromkeys(x)) for x in (tracepoints, syscalls, contexts)
    )
    return ProfileEvents(
        tuple(tracepoints),
        tuple(syscalls),
        tuple(contexts),
        replaced,
        (tuple(substitutes[0]), tuple(substitutes[1])),
    )


def parse_profile(name: str) -> ET.Element:
    """Return the root of a profile's session file, with its processing instructions."""
    path = profile_path(name)
    # expat refuses entities that grow; a user's file is read with the rights of the tracer.
    parser = ET.XMLParser(target=ET.TreeBuilder(insert_pis=True))  # noqa: S314 - as said
    try:
        with path.open("rb") as stream:
            text = stream.read(_LARGEST + 1)
        if len(text) > _LARGEST:
            raise refuse_profile(name, f"is larger than {_LARGEST >> 10} KiB")
        return ET.fromstring(text, parser)  # noqa: S314 - as said
    except OSError as error:
        raise refuse_profile(name, f"cannot be read: {error.strerror}") from None
    except (ET.ParseError, ValueError) as error:
        raise refuse_profile(name, f"is no session file: {error}") from None


def refuse_profile(name: str, why: str) -> CritpathError:
    """Return the error of a profile that cannot be used: the user's, or the installation's."""
    if is_users_profile(name):
        return UsageError(f"the profile {name} {why}", "name a file that `lttng save` wrote")
    return CritpathError(f"the profile {profile_path(name)} {why}", "install critpath again")


def read_instruction(element: ET.Element, name: str) -> list[str]:
    """Return the words of a processing instruction of this name, nothing for what is none."""
    if not callable(element.tag):
        return []
    words = (element.text or "").split()
    return words[1:] if words[:1] == [name] else []


def _text(element: ET.Element, name: str, default: str = "") -> str:
    """Return the text of a child element."""
    return (element.findtext(name) or default).strip()


# With any of these, whose an address is tells of a packet's or a connection's direction.
_NETWORK: Final = ("sk_data_ready", "inet_sock_set_state", "net_if_receive_skb", "net_dev_queue")


def records_network(name: str) -> bool:
    """Return whether a profile records sockets or packets."""
    return any(fnmatchcase(n, r) for n in _NETWORK for r in profile_events(name).tracepoints)
