"""Checks what this machine lacks for recording through LTTng.

Looks at files only and asks the session daemon at most once, so that ``--recorder auto``
can afford it.
"""

from __future__ import annotations

import contextlib
import grp
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from critpath.errors import with_sudo
from critpath_marks.sessions import pid_namespace
from critpath_record.identity import (
    CAP_SYS_MODULE,
    INITIAL_PID_NAMESPACE,
    has_capability,
)
from critpath_record.lttng import program
from critpath_record.proc import read_text
from critpath_record.recorder import Requirement

if TYPE_CHECKING:
    from critpath_record.recorder import RecorderSettings

_GROUP: Final = "tracing"
_SIGNED_ONLY: Final = (
    ("/sys/module/module/parameters/sig_enforce", "Y"),
    ("/sys/kernel/security/lockdown", "[integrity]"),
    ("/sys/kernel/security/lockdown", "[confidentiality]"),
)


def find_needs(settings: RecorderSettings | None = None) -> list[Requirement]:
    """Return everything that is missing here, each with its fix."""
    return list(_find_needs(settings))


def _find_needs(settings: RecorderSettings | None) -> Iterator[Requirement]:
    if settings is not None and settings.labels_from:
        yield Requirement(
            "labels",
            "LTTng does not have the bytes of messages, from which requests are labelled",
            "record with --recorder ftrace, or without --labels-from",
        )
    if settings is not None and settings.tasks:
        yield Requirement(
            "tasks",
            "LTTng's sessions do not take which task a runtime runs",
            "record with --recorder ftrace, or without --tasks",
        )
    installed, daemon = program.is_installed(), False
    if not installed:
        yield Requirement(
            "lttng-tools",
            "LTTng is not installed: lttng or lttng-sessiond is not on PATH",
            f"{_install()} lttng-tools",
        )
    loaded = Path("/sys/module/lttng_tracer").is_dir()
    if not loaded:
        yield from _modules()
    with contextlib.suppress(program.LttngError):
        daemon = installed and program.is_reachable()
    yield from _rights(daemon=daemon, loaded=loaded)


def offered_way() -> str:
    """Return by which way requests of servers can be found in what LTTng records.

    Its modules have no events of sockets, and those of packets and system calls always.
    """
    return "calls+packets"


def _rights(*, daemon: bool, loaded: bool) -> Iterator[Requirement]:
    """Yield what keeps this user from the tracer."""
    if os.geteuid() == 0:
        if not loaded and not daemon and not has_capability(CAP_SYS_MODULE):
            inside = pid_namespace() not in {0, INITIAL_PID_NAMESPACE}
            where = "this container" if inside else "this process"
            yield Requirement(
                "load-modules",
                f"root of {where} may not load kernel modules (no CAP_SYS_MODULE)",
                "on the host: sudo modprobe lttng-tracer, or record there",
            )
    elif not _in_group():
        yield Requirement(
            "tracing-group",
            f"not root, and not in the group {_GROUP}",
            f"{with_sudo('record ...')}, or: sudo usermod -aG {_GROUP} $USER, and log in again",
        )
    elif not daemon:
        yield Requirement(
            "lttng-sessiond",
            "root's session daemon is not running, and only root can start it",
            "sudo systemctl start lttng-sessiond, or: sudo lttng-sessiond --daemonize",
        )


def _modules() -> Iterator[Requirement]:
    """Yield why the kernel tracer's modules cannot be loaded."""
    release = os.uname().release
    directory = Path("/lib/modules") / release
    if not Path("/proc/modules").exists():
        yield Requirement(
            "lttng-modules",
            f"the kernel {release} loads no modules, so LTTng's kernel tracer cannot run",
            "critpath record --recorder ftrace",
        )
    elif not any(
        "lttng-tracer.ko" in read_text(directory / name)
        for name in ("modules.dep", "modules.builtin")
    ):
        dkms = Path("/var/lib/dkms/lttng-modules").is_dir()
        yield Requirement(
            "lttng-modules",
            f"LTTng's kernel modules are not built for the running kernel {release}"
            + (", only for others" if dkms else ""),
            # With DKMS, only the headers can be missing.
            f"{_install()} linux-headers-{release} && sudo dkms autoinstall -k {release}"
            if dkms
            else f"{_install()} lttng-modules-dkms linux-headers-{release}",
        )
    elif any(wanted in read_text(place) for place, wanted in _SIGNED_ONLY):
        yield Requirement(
            "secure-boot",
            "the kernel takes signed modules only (Secure Boot), and LTTng's are not loaded yet",
            "sudo modprobe lttng-tracer; if that is refused, enrol the key they are signed"
            " with: sudo mokutil --import /var/lib/dkms/mok.pub",
            fatal=False,
        )


def _in_group() -> bool:
    try:
        return grp.getgrnam(_GROUP).gr_gid in {*os.getgroups(), os.getegid()}
    except KeyError:
        return False


def _install() -> str:
    """Return the command that installs a package on this distribution."""
    for manager in ("apt", "dnf", "zypper"):
        if Path(f"/usr/bin/{manager}").exists():
            return f"sudo {manager} install"
    return "install"
