"""Starts a process from a program that has threads."""

from collections.abc import Collection, Sequence

class SpawnError(OSError):
    """The child could not become the program.

    Attributes
    ----------
    step : str
        At what it failed: ``exec``, ``chdir``, ``user``, ``descriptors``, ``priority``.
    """

    step: str

def spawn(
    path: bytes,
    argv: list[bytes],
    env: list[bytes],
    *,
    cwd: bytes | None = None,
    user: tuple[int, int, Sequence[int]] | None = None,
    mask: Collection[int] = (),
    ignored: Collection[int] = (),
    keep: Sequence[int] = (),
    death_signal: int = 0,
    nice: int | None = None,
    scheduler: tuple[int, int] | None = None,
) -> tuple[int, int]:
    """Start a program as a child of the calling thread.

    Parameters
    ----------
    path : bytes
        The program; a file that is no format of the kernel's is run by ``/bin/sh``.
    argv, env : list of bytes
        Its arguments with the name in front; its environment, ``NAME=value``.
    cwd : bytes, optional
    user : (uid, gid, groups), optional
        Whom it runs as.
    mask, ignored : collection of int
        Signals that it has blocked and ignored; all others are as by default.
    keep : sequence of int
        Descriptors beyond 2 that it inherits, and no others.
    death_signal : int
        Sent to it when the calling thread dies; 0 for none.
    nice, scheduler : int, (policy, priority), optional
        Set in the child; else inherited.

    Returns
    -------
    pid : int
    begin : int
        Just before the fork (ns, CLOCK_MONOTONIC).

    Raises
    ------
    SpawnError
        If the child failed before or at exec; it is collected then.
    OSError
        If there can be no process.
    """

def collect(pid: int) -> tuple[int, int] | None:
    """Collect a child if it has exited.

    Returns
    -------
    (status, end) or None
        The status as `os.waitpid` gives it, and the time just after the wait (ns,
        CLOCK_MONOTONIC); None while the child runs.

    Raises
    ------
    ChildProcessError
        If there is no such child.
    """
