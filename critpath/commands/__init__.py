"""One file per verb of the command line, and the way in.

A verb is a module with ``OPTIONS``, ``SETTINGS`` and ``run`` (or ``ACTIONS``), and a line in
`VERBS`.  Verbs import what is slow to start only when they run; and before it is known
which verb runs, nothing is imported that Python has not imported itself.
"""

from __future__ import annotations

import gc
import os
import sys

from critpath import __version__
from critpath.doors import hand_on
from critpath.errors import EXIT_INTERNAL, EXIT_OK, CritpathError

TYPE_CHECKING = False  # that of `typing`, which takes as long to import as Python to start
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from types import ModuleType
    from typing import Final, NoReturn

    from critpath.commands.overview import VERBS
    from critpath.commands.query import Database
    from critpath.commands.reports import load_comparison
    from critpath.commands.settings import (
        RECORDING,
        SETTINGS,
        Settings,
        WrongValueError,
        effective,
    )
    from critpath.commands.sources import check_inputs, require_executions
else:
    __getattr__ = hand_on(__name__)

EXIT_INTERRUPTED: Final = 130  # 128 + SIGINT, as a shell has it
EXIT_PIPE: Final = 141  # 128 + SIGPIPE


def main(argv: Sequence[str] | None = None, *, alone: bool = False) -> int:
    """Run the command line; a process that does nothing else may be confined for it."""
    from critpath.commands.overview import before_command  # noqa: PLC0415 - no more root is needed

    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in before_command(arguments)
    _prepare_streams()
    try:
        code = _run(arguments, alone=alone)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _fail("interrupted", "a file that was not finished is not there", EXIT_INTERRUPTED)
    except BrokenPipeError:
        # Python would complain once more when it flushes stdout at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_PIPE
    except Exception as error:  # noqa: BLE001 - the last resort: whatever it is, two lines
        if debug:
            import traceback  # noqa: PLC0415 - start-up time

            traceback.print_exc()
        return _explain(error)
    return code


def entry() -> NoReturn:
    """Run the command line as the process that it is, and end it at once.

    What a process leaves behind is written and closed by then (files are finished or
    not there, see `critpath.store`); taking tables apart cell by cell before the kernel
    drops them would cost a tenth of a short command.
    """
    if "SUDO_UID" in os.environ:
        from critpath_record import Helper  # noqa: PLC0415 - before all that need not be root's

        Helper.part(sys.argv[1:])
    # A path is built from a few hundred thousand small objects that all stay.
    gc.set_threshold(100_000, 50, 50)
    code = main(alone=True)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            code = code or EXIT_PIPE
        except (OSError, ValueError):  # reported before, or closed
            code = code or EXIT_INTERNAL
    if steward := sys.modules.get("critpath.steward"):
        steward.finish()
    os._exit(code)


def _prepare_streams() -> None:
    """Make sure that stdout and stderr are there and can take any text."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the caller
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - no import; stays open
        elif hasattr(stream, "reconfigure"):
            # A terminal that cannot show a character must not end the program.
            stream.reconfigure(errors="replace")


def _explain(error: Exception) -> int:
    """Print an error in two lines and return its exit code."""
    if isinstance(error, CritpathError):
        return _fail(error.what, error.do, error.exit_code)
    if isinstance(error, OSError):
        place = f" ({error.filename})" if error.filename else ""
        return _fail(
            f"the system refused: {error.strerror or error}{place}",
            "make room or give access there; --debug shows where it happened",
            EXIT_INTERNAL,
        )
    if isinstance(error, ModuleNotFoundError):
        from critpath.extras import explain_missing  # noqa: PLC0415 - start-up time

        if f"{error.name}".startswith("critpath"):
            return _fail(
                f"this installation of critpath is not whole: it has no {error.name}",
                "in a checkout run make build, which a new module needs; else install it again",
                EXIT_INTERNAL,
            )
        if lacks := explain_missing(error):
            return _fail(lacks.what, lacks.do, lacks.exit_code)
    return _fail(
        f"internal error: {type(error).__name__}: {error}",
        "this is a fault of critpath: run it again with --debug and report what it prints",
        EXIT_INTERNAL,
    )


def _run(arguments: list[str], *, alone: bool) -> int:
    from critpath.commands import overview  # noqa: PLC0415 - as above

    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:2], "--help"]
    arguments, said = overview.unfold(arguments)
    if said and "--quiet" not in arguments:
        print(said, file=sys.stderr)
    if arguments in (["--help"], ["-h"]):
        sys.stdout.write(overview.help_text(overview.terminal_width()))
        return EXIT_OK
    if arguments in (["--version"], ["-V"]):
        print(f"critpath {__version__}")
        return EXIT_OK

    from pathlib import Path  # noqa: PLC0415 - start-up time, as what follows

    from critpath.commands.output import say_what_was_opened  # noqa: PLC0415
    from critpath.commands.parser import Verb, build_parser, given_settings  # noqa: PLC0415
    from critpath.commands.settings import effective  # noqa: PLC0415

    show_config = "--show-config" in overview.before_command(arguments)
    try:
        parser = build_parser(overview.VERBS, arguments=arguments, show_config=show_config)
        parsed = parser.parse_args(arguments)
    except SystemExit as leaving:  # --help and --version have printed
        return int(leaving.code or EXIT_OK)
    parsed.typed = arguments
    config = getattr(parsed, "config", None)
    if config is not None and "://" in config:
        from critpath.commands.sources import open_given  # noqa: PLC0415 - start-up time

        config = open_given(parsed.verb, config)
    settings = effective(
        given_settings(parsed), None if config is None else Path(config), Path.cwd()
    )
    if stores := _find_loaded("critpath.stores"):
        stores.close()  # where a file of settings was
    if getattr(parsed, "show_config", False):
        from critpath.units import safe_text  # noqa: PLC0415 - start-up time

        print("\n".join(safe_text(line) for line in settings.lines()))
        return EXIT_OK
    if parsed.verb not in {"record", "ab", "bisect"}:  # their commands inherit what is set here
        # Threads of the linear algebra library cost 50 ms of CPU at its import and gain
        # nothing on matrices as thin as ours.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    verb = Verb.of(parsed.verb)
    if settings.left_out and parsed.verb in {"record", "ab", "bisect", "demo"}:
        _warn(settings.left_out, "--config FILE takes them, or the options themselves")
    try:
        if alone and parsed.verb in overview.READERS and not _asks_the_machine(parsed):
            from critpath.commands.confining import confine  # noqa: PLC0415 - start-up time

            confine(parsed, settings)
        if any("://" in word for word in arguments):
            from critpath.commands.sources import open_places  # noqa: PLC0415 - start-up time

            open_places(parsed)
        if settings["hosts"] == "auto" or parsed.verb == "record":
            code = verb.run(parsed, settings)
        else:
            from critpath.read import decide_hosts  # noqa: PLC0415 - start-up time

            with decide_hosts(settings["hosts"]):
                code = verb.run(parsed, settings)
        say_what_was_opened(quiet=settings["quiet"])
    finally:
        if opened := _find_loaded("critpath.convert.opened"):
            opened.OPENED.close()
        if stores := _find_loaded("critpath.stores"):
            stores.close()
    return code


def _find_loaded(name: str) -> ModuleType | None:
    """Return a module if it is loaded; one that another thread still imports has opened nothing."""
    module = sys.modules.get(name)
    importing = getattr(getattr(module, "__spec__", None), "_initializing", False)
    return None if importing else module


def _fail(what: str, do: str, code: int) -> int:
    _warn(what, do)
    return code


def _asks_the_machine(arguments: argparse.Namespace) -> bool:
    """Tell whether a command of `READERS` reads no recording, or what this machine does beside."""
    if arguments.verb == "doctor":
        return bool(not arguments.directories or arguments.clean or arguments.deep)
    if arguments.verb == "top":
        from critpath_record import STATE  # noqa: PLC0415 - start-up time

        place = arguments.directory
        return place is None or os.path.lexists(place / STATE)
    # `known watch` counts what this machine does.
    return getattr(arguments, "action", "") == "watch"


def _warn(what: str, do: str) -> None:
    from critpath.units import log_text, safe_text  # noqa: PLC0415 - start-up time

    what, do = (log_text(safe_text(text)) for text in (what, do))
    print(f"critpath: {what}\n  {do}", file=sys.stderr)
