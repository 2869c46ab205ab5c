"""Documents that commands saved, read back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

from critpath.commands.output import STDOUT, check_inputs
from critpath.errors import UnreadableError
from critpath.untrusted import LARGEST

if TYPE_CHECKING:
    from critpath.documents import ComparisonDocument, Document


def load_saved(file: str) -> Document:
    """Read the document in a file, or on stdin for ``-``.

    Raises
    ------
    UnreadableError
        If it is not there, or not a document of critpath's.
    """
    from critpath.report.document.as_json import load_document  # noqa: PLC0415 - start-up time

    if file != STDOUT:
        check_inputs([Path(file)])
    try:
        if file == STDOUT:
            content = sys.stdin.buffer.read(LARGEST + 1)
        else:
            with Path(file).open("rb") as stream:
                content = stream.read(LARGEST + 1)
        content.decode("utf-8")
    except UnicodeDecodeError:
        raise UnreadableError(
            f"{file} is neither JSON nor an extract file",
            "give a file of critpath compare --json or critpath extract",
        ) from None
    except OSError as error:
        raise UnreadableError(
            f"cannot read {file}: {error.strerror}", "give a readable file"
        ) from None
    return load_document(content)


def load_comparison(file: str) -> ComparisonDocument:
    """Read a saved comparison.

    Raises
    ------
    UnreadableError
        If it is not there, or not a comparison.
    """
    document = load_saved(file)
    if not document.format.startswith("critpath/comparison/"):
        raise UnreadableError(
            f"{file} holds no comparison", "give a file of critpath compare --json"
        )
    return cast("ComparisonDocument", document)
