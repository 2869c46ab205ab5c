"""What others wrote: files, JSON that a small file would make a large one of, patterns.

Whoever decodes such a file does it within `refuse_damaged`: whatever its bytes make a library or a
check of ours raise then ends in exit code 4, with the file's name.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, Final

from critpath.errors import CritpathError, UnreadableError, UsageError, name_places
from critpath.extras import require
from critpath.units import safe_text, shorten

# Bytes that a document may take in memory, beside what is there already.
ROOM: Final = 320 << 20
LARGEST: Final = ROOM // 2  # bytes of one that is read at all
# What CPython takes at most for a container with its first item, and for any other item with
# its place: a dict of one key, an empty text.
_CONTAINER: Final = 240
_ITEM: Final = 64
_SHOWN: Final = 200  # technical: letters of what a library says of a file

# What decoding raises: of Python, and of these modules, whose errors have no base in common.
_DAMAGE: Final = (
    *(ValueError, TypeError, LookupError, ArithmeticError, RecursionError, EOFError),
    NotImplementedError,
)
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})
# What the system cannot do now; anything else is what the file is.
_TROUBLES: Final = _FULL - {errno.EFBIG} | {
    *(errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EACCES, errno.EPERM),
    *(errno.EBUSY, errno.ENOLCK, errno.ESTALE, errno.ETIMEDOUT),
}
_DECODERS: Final = frozenset({"pyarrow", "msgspec", "struct", "zlib", "_csv"})


@contextmanager
def refuse_damaged(file: str | Path, do: str, what: str = "damaged") -> Iterator[None]:
    """Refuse a file if reading or decoding it fails; an error of ours gets the file's name.

    Parameters
    ----------
    file : str or Path
        As the user knows it.
    do : str
        What the user can do about it.
    what : str
        What is wrong if a library cannot decode it.

    Raises
    ------
    UnreadableError
    """
    try:
        yield
    except UnreadableError as error:
        if name_places(f"{file}") in error.what:
            raise
        raise UnreadableError(f"{file}: {error.what}", error.do) from error
    except CritpathError:
        raise
    except OSError as error:
        if error.errno in _FULL:  # of what is written meanwhile
            raise
        raise UnreadableError(f"{file}: {error.strerror or error}", do) from error
    except Exception as error:
        known = isinstance(error, _DAMAGE)
        if not known and type(error).__module__.partition(".")[0] not in _DECODERS:
            raise
        first = safe_text(f"{error}".partition("\n")[0])
        why = f" ({shorten(first, _SHOWN)})" if first else ""
        raise UnreadableError(f"{file}: {what}{why}", do) from error


def find_trouble(error: BaseException | None) -> OSError | None:
    """Return the system's trouble that an error comes of: it says nothing of what a file is."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _TROUBLES:
            return error
        error = error.__cause__
    return None


def is_there(path: Path) -> bool:
    """Tell whether anything has a name; OSError without an answer, which `lexists` takes for no."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def read_regular(
    name: str | Path,
    most: int,
    *,
    dir_fd: int | None = None,
    owners: Collection[int] | None = None,
    shared: bool = True,
) -> bytes:
    """Read a regular file, whole: never through a link, waiting for nobody, without others' end.

    Parameters
    ----------
    name : str or Path
        Only its last part must be no link.
    most : int
        Bytes that it may have.
    dir_fd : int, optional
        The directory that a relative name is in.
    owners : collection of int, optional
        Users of whom one has to own it.
    shared : bool
        Whether others than its owner may be able to write it.

    Raises
    ------
    OSError
        If it is anything else, with `strerror` to be shown; a name with a null character too.
    """
    with open_regular(name, dir_fd=dir_fd) as stream:
        about = os.fstat(stream.fileno())
        if owners is not None and about.st_uid not in owners:
            raise OSError(errno.EPERM, "another user's", str(name))
        if not shared and about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise OSError(errno.EPERM, "others may write it", str(name))
        content = stream.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"larger than {most:,} bytes", str(name))
    return content


def open_regular(name: str | Path, *, dir_fd: int | None = None) -> BufferedReader:
    """Open a regular file; raises OSError as `read_regular` does."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=dir_fd)
    except ValueError:
        raise OSError(errno.EINVAL, "no name of a file", str(name)) from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            error.strerror = "a link"
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no regular file", str(name))
    return os.fdopen(descriptor, "rb")


def digest_regular(name: str | Path) -> str:
    """Return the SHA-256 of a regular file; raises OSError as `read_regular` does."""
    import hashlib  # noqa: PLC0415 - start-up time

    with open_regular(name) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_object(
    name: str | Path, most: int, *, strict: bool = False, **how: Any
) -> Mapping[str, Any]:
    """Return the JSON object in a file that `read_regular` reads; empty where there is none.

    If `strict`, OSError where it cannot be read now: there may be one.
    """
    try:
        # Surrogates stay: where files are, whose names may be no UTF-8, is written there.
        found = load_json(read_regular(name, most, **how), surrogates=True)
    except (OSError, ValueError, RecursionError) as error:
        if strict and find_trouble(error):
            raise
        return {}
    return found if isinstance(found, dict) else {}


class TooLargeError(ValueError):
    """A document would take too much memory."""


def load_json(content: bytes, *, room: int = ROOM, surrogates: bool = False, **options: Any) -> Any:
    """Read a JSON document, unless it is larger than what there is room for.

    Parameters
    ----------
    content : bytes
        In UTF-8.
    room : int
        Bytes of memory that it may take.  What it takes at most is known before it is read:
        no item without a comma or a bracket before it.
    surrogates : bool
        Whether lone surrogates, for which JSON has escapes and UTF-8 has no letters, stay as
        they are: where they are written as JSON again.
    **options : callable
        As `json.loads` takes them.

    Raises
    ------
    TooLargeError
        If it might take more.
    ValueError
        If it is no JSON, no UTF-8 or a number of more digits than Python reads.
    RecursionError
        If it is nested deeper than Python goes.
    """
    if len(content) > LARGEST:
        raise TooLargeError(f"is larger than {LARGEST:,} bytes")
    containers = content.count(b"{") + content.count(b"[")
    # Bytes beyond ASCII make every letter of a text take up to four.
    letters = len(content) * (2 if content.isascii() else 8)
    needed = letters + containers * _CONTAINER + content.count(b",") * _ITEM
    if needed > room:
        raise TooLargeError(f"would take {needed:,} bytes of memory, more than {room:,}")
    text = content.decode("utf-8")
    if not surrogates and (b"\\ud" in content or b"\\uD" in content):
        text = _ESCAPES.sub(lambda found: "\\ufffd" if found[1] else found[0], text)
    return json.loads(text, **options)


# A pair of surrogates; a lone one; any other escape, of which the second letter is none's first.
_ESCAPES: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)


LONGEST_PATTERN: Final = 200  # characters of a regular expression


def check_pattern(pattern: str) -> None:
    """Refuse what is no regular expression, or too long a one."""
    if len(pattern) > LONGEST_PATTERN:
        raise UsageError(
            f"a regular expression of {len(pattern):,} characters: at most {LONGEST_PATTERN}",
            "use a shorter one",
        )
    fit_pattern(pattern, ("",))


def fit_pattern(pattern: str, texts: Sequence[str]) -> list[bool]:
    """Tell in which texts a regular expression is found; the time is linear, whatever it is."""
    require("a regular expression", "parquet")
    import pyarrow as pa  # noqa: PLC0415 - slow to import
    import pyarrow.compute as pc  # noqa: PLC0415 - as above

    encoded = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
    try:
        found = pc.match_substring_regex(pa.array(encoded, pa.string()), pattern)
    except (pa.ArrowInvalid, UnicodeEncodeError) as error:
        why = safe_text(str(error).partition("\n")[0].rpartition(": ")[2])
        raise UsageError(
            f"{shorten(safe_text(pattern))} is no regular expression: {shorten(why, 80)}",
            "backreferences and look-around do not exist here",
        ) from None
    return [bool(one) for one in found.to_pylist()]
