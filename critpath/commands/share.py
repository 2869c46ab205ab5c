"""``critpath share``: one page of a comparison that may be shown to others."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from critpath.commands.declared import flag, option
from critpath.commands.output import STDOUT, check_outputs, hint, write_output
from critpath.commands.reports import load_comparison
from critpath.commands.settings import Settings
from critpath.errors import UsageError

SETTINGS = ()
MOST_BYTES: Final = 300_000


OPTIONS: Final = (
    option("file", "FILE", "of compare --json (- for stdin)"),
    option("-o --output", "FILE", "the page to write, below 300 kB (default: shared.html; - for "
        "stdout)", default="shared.html"),
    flag("--force", "replace the page if it exists"),
    flag("--threads", "replace names of threads and programs, too"),
)  # fmt: skip


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Replace names, write the page and say what was replaced."""
    inputs = [] if arguments.file == STDOUT else [Path(arguments.file)]
    check_outputs([arguments.output], inputs, force=arguments.force)
    document = load_comparison(arguments.file)

    from critpath.report.document import redact  # noqa: PLC0415 - start-up time
    from critpath.report.html import render_html  # noqa: PLC0415 - start-up time

    shared = redact(document, threads=arguments.threads, users=_users())
    page = render_html(shared)
    for kept in (8, 4, 2, 1, 0):
        if len(page.encode()) < MOST_BYTES:
            break
        shared.aligned = shared.aligned[:kept]
        if shared.pictures is not None:
            shared.pictures.paths = shared.pictures.paths[: 8 * kept]
        page = render_html(shared)
    if len(page.encode()) >= MOST_BYTES:
        raise UsageError(
            f"the page has {len(page.encode()):,} bytes, and {MOST_BYTES:,} are the limit",
            "share the Markdown: critpath report FILE --markdown answer.md",
        )
    write_output(arguments.output, page)
    hint(shared.warnings[-1], quiet=settings["quiet"])
    if arguments.output != STDOUT:
        hint(f"{arguments.output}: {len(page.encode()) / 1000:.0f} kB", quiet=settings["quiet"])
    return 0


def _users() -> set[str]:
    """Return who is at work here, by the names that paths and commands may have of them."""
    import os  # noqa: PLC0415 - as above

    names = {os.environ.get(key, "") for key in ("USER", "LOGNAME", "SUDO_USER")}
    return {name for name in names if name}
