"""Finds the command's program as a shell would, before anything is recorded."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from critpath.errors import CritpathError

EXIT_NOT_EXECUTABLE: Final = 126
EXIT_NOT_FOUND: Final = 127

_DEFAULT_PATH: Final = b"/usr/local/bin:/usr/bin:/bin"


class CommandError(CritpathError):
    """The command cannot be executed (126), or is not there (127)."""

    def __init__(self, what: str, do: str, exit_code: int) -> None:
        super().__init__(what, do)
        self.exit_code = exit_code


@dataclass(frozen=True)
class Program:
    """A command that can be executed.

    Attributes
    ----------
    path : bytes
    argv : tuple of bytes
    """

    path: bytes
    argv: tuple[bytes, ...]

    @property
    def name(self) -> str:
        """As the user gave it."""
        return os.fsdecode(self.argv[0])


def find_program(command: Sequence[str], environment: Mapping[bytes, bytes]) -> Program:
    """Find a command's program along PATH.

    Parameters
    ----------
    command : sequence of str
        Its name and arguments; bytes that are no text come as surrogates.
    environment : mapping of bytes
        Where PATH is.

    Raises
    ------
    CommandError
    """
    argv = tuple(os.fsencode(part) for part in command)
    name = argv[0]
    if not name:
        raise _not_found("''")
    if b"/" in name:
        places = [name]
    else:
        path = environment.get(b"PATH", _DEFAULT_PATH)
        # An empty element is the current directory.
        places = [os.path.join(part or b".", name) for part in path.split(b":")]  # noqa: PTH118 - bytes
    refused = 0
    for place in places:
        error = _refusal(place)
        if not error:
            return Program(place, argv)
        if error not in {errno.ENOENT, errno.ENOTDIR}:
            refused = refused or error
    if refused:
        raise refusal(command[0], refused)
    raise _not_found(command[0])


def refusal(name: str, error: int) -> CommandError:
    """Return the error for what the kernel said to an exec."""
    if error == errno.ENOENT:
        return _not_found(name)
    return CommandError(
        f"{name}: cannot be executed: {os.strerror(error)}",
        "check that it is a program, and executable for the user that it runs as",
        EXIT_NOT_EXECUTABLE,
    )


def _not_found(name: str) -> CommandError:
    return CommandError(
        f"{name}: command not found",
        "check its name and PATH; a line for the shell is recorded as: sh -c 'LINE'",
        EXIT_NOT_FOUND,
    )


def _refusal(place: bytes) -> int:
    """Return why a file cannot be executed, 0 if it can."""
    try:
        found = os.stat(place)  # noqa: PTH116 - bytes
    except OSError as error:
        return error.errno or errno.EACCES
    if stat.S_ISDIR(found.st_mode):
        return errno.EISDIR
    if not stat.S_ISREG(found.st_mode) or not os.access(place, os.X_OK):
        return errno.EACCES
    return 0
