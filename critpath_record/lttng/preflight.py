"""Checks what this machine lacks for recording through LTTng.

Looks at files only and asks the session daemon at most once, so that ``--recorder auto``
can afford it.
"""

from __future__ import annotations

import grp
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from critpath_marks.sessions import pid_namespace
from critpath_record.identity import CAP_SYS_MODULE, INITIAL_PID_NAMESPACE, has_capability
from critpath_record.lttng import program
from critpath_record.recorder import Requirement

if TYPE_CHECKING:
    from critpath_record.recorder import RecorderSettings

_GROUP: Final = "tracing"


def find_needs(settings: RecorderSettings | None = None) -> list[Requirement]:
    """Return everything that is missing here, each with its fix."""
    found = []
    if settings is not None and settings.labels_from:
        found.append(
            Requirement(
                "labels",
                "LTTng does not have the bytes of messages, from which requests are labelled",
                "record with --recorder ftrace, or without --labels-from",
            )
        )
    if not program.is_installed():
        found.append(
            Requirement(
                "lttng-tools",
                "LTTng is not installed: lttng or lttng-sessiond is not on PATH",
                f"{_install()} lttng-tools",
            )
        )
    loaded = Path("/sys/module/lttng_tracer").is_dir()
    if not loaded:
        found += _modules()
    daemon = program.is_installed() and _is_reachable()
    found += _rights(daemon=daemon, loaded=loaded)
    return found


def offered_way() -> str:
    """Return by which way requests of servers can be found in what LTTng records.

    Its modules have no events of sockets, and those of packets and system calls always.
    """
    return "calls+packets"


def _is_reachable() -> bool:
    try:
        return program.is_reachable()
    except program.LttngError:
        return False


def _rights(*, daemon: bool, loaded: bool) -> list[Requirement]:
    """Return what keeps this user from the tracer."""
    inside = pid_namespace() not in {0, INITIAL_PID_NAMESPACE}
    if os.geteuid() == 0:
        if not loaded and not daemon and not has_capability(CAP_SYS_MODULE):
            where = "this container" if inside else "this process"
            return [
                Requirement(
                    "load-modules",
                    f"root of {where} may not load kernel modules (no CAP_SYS_MODULE)",
                    "on the host: sudo modprobe lttng-tracer, or record there",
                )
            ]
        return []
    if daemon and _in_group():
        return []
    if not _in_group():
        return [
            Requirement(
                "tracing-group",
                f"not root, and not in the group {_GROUP}",
                f"sudo critpath record ..., or: sudo usermod -aG {_GROUP} $USER, and log in again",
            )
        ]
    return [
        Requirement(
            "lttng-sessiond",
            "root's session daemon is not running, and only root can start it",
            "sudo systemctl start lttng-sessiond, or: sudo lttng-sessiond --daemonize",
        )
    ]


def _modules() -> list[Requirement]:
    """Return why the kernel tracer's modules cannot be loaded, empty if they can."""
    release = os.uname().release
    if not Path("/proc/modules").exists():
        return [
            Requirement(
                "lttng-modules",
                f"the kernel {release} loads no modules, so LTTng's kernel tracer cannot run",
                "critpath record --recorder ftrace",
            )
        ]
    directory = Path("/lib/modules") / release
    if not _lists_tracer(directory):
        dkms = Path("/var/lib/dkms/lttng-modules").is_dir()
        return [
            Requirement(
                "lttng-modules",
                f"LTTng's kernel modules are not built for the running kernel {release}"
                + (", only for others" if dkms else ""),
                # With DKMS, only the headers can be missing.
                f"{_install()} linux-headers-{release} && sudo dkms autoinstall -k {release}"
                if dkms
                else f"{_install()} lttng-modules-dkms linux-headers-{release}",
            )
        ]
    if _lockdown():
        return [
            Requirement(
                "secure-boot",
                "the kernel takes signed modules only (Secure Boot), and LTTng's are not"
                " loaded yet",
                "sudo modprobe lttng-tracer; if that is refused, enrol the key they are signed"
                " with: sudo mokutil --import /var/lib/dkms/mok.pub",
                fatal=False,
            )
        ]
    return []


def _lists_tracer(directory: Path) -> bool:
    for name in ("modules.dep", "modules.builtin"):
        try:
            listed = (directory / name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        if "lttng-tracer.ko" in listed:
            return True
    return False


def _lockdown() -> bool:
    """Return whether the kernel only loads signed modules."""
    for place, wanted in (
        ("/sys/module/module/parameters/sig_enforce", "Y"),
        ("/sys/kernel/security/lockdown", "[integrity]"),
        ("/sys/kernel/security/lockdown", "[confidentiality]"),
    ):
        try:
            if wanted in Path(place).read_text(encoding="ascii"):
                return True
        except (OSError, ValueError):
            continue
    return False


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
