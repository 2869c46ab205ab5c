"""Every error that a user can cause or meet, with the exit code it ends in.

An error is two lines: *what* happened and what to *do* about it.  Commands print
both on stderr; nothing else in critpath prints an error.
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_ANOMALY = 1
EXIT_USAGE = 2
EXIT_INCONCLUSIVE = 3
EXIT_UNREADABLE = 4
EXIT_INTERNAL = 125
CODE_BY_VERDICT = {
    "ok": EXIT_OK,
    "anomaly": EXIT_ANOMALY,
    "by_machine": EXIT_INCONCLUSIVE,
    "inconclusive": EXIT_INCONCLUSIVE,
}


# Directories of this machine that stand for places elsewhere, and what these are called.
STAND_FOR: dict[str, str] = {}


def name_places(text: str) -> str:
    """Return a text in which places elsewhere are called as the user calls them."""
    for here, there in STAND_FOR.items():
        text = text.replace(here, there)
    return text


class CritpathError(Exception):
    """A failure that the user can understand and act on.

    Parameters
    ----------
    what : str
        One line: what went wrong, with the name of the thing it went wrong with.
    do : str
        One line: what the user can do next.
    """

    exit_code = EXIT_INTERNAL

    def __init__(self, what: str, do: str) -> None:
        what, do = name_places(what), name_places(do)
        super().__init__(what)
        self.what = what
        self.do = do


class UsageError(CritpathError):
    """The command line, a setting or a specification is wrong (exit 2)."""

    exit_code = EXIT_USAGE


class UnspecifiedError(UsageError):
    """Nothing says what an execution of a recording is, or several things `suggested` do."""

    suggested: tuple[str, ...] = ()


class UnreadableError(CritpathError):
    """An input cannot be read, or is not what it should be (exit 4)."""

    exit_code = EXIT_UNREADABLE


class TooMuchTimeError(UnreadableError):
    """Executions take so much time together that it cannot be added up."""

    def __init__(self) -> None:
        super().__init__(
            "the runs take 73 years or more together, which cannot be added up",
            "compare fewer runs or recordings at a time",
        )


class MetadataError(UnreadableError):
    """A trace's metadata is malformed; the place is part of the message.

    Parameters
    ----------
    message : str
        What is wrong at that place.
    file : str
        The metadata file.
    line : int
        Line in the metadata text, counted from 1.
    """

    def __init__(self, message: str, file: str, line: int) -> None:
        super().__init__(
            f"{file}:{line}: {message}",
            "check that the recording was stopped and copied whole, or record it again",
        )
        self.message = message
        self.file = file
        self.line = line


class InconclusiveError(CritpathError):
    """The input is readable but cannot support an answer (exit 3)."""

    exit_code = EXIT_INCONCLUSIVE


# Where sudo looks for programs on most systems: not where a virtual environment has its own.
_SUDO_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def with_sudo(line: str) -> str:
    """Return how ``critpath LINE`` is typed to be root's, also from a virtual environment.

    sudo has a PATH of its own, in which such a ``critpath`` is not found.
    """
    import shutil  # noqa: PLC0415 - for a message only
    import sys  # noqa: PLC0415 - as above

    if shutil.which("critpath", path=_SUDO_PATH):
        return f"sudo critpath {line}"
    if shutil.which("critpath"):
        return f'sudo env "PATH=$PATH" critpath {line}'
    return f"sudo {sys.executable} -P -m critpath {line}"
