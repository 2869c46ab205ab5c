"""``critpath explore``: what the executions of a selection have in common."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from critpath.commands.declared import flag, option
from critpath.commands.output import (
    STDOUT,
    Progress,
    check_outputs,
    hint,
    make_console,
    warn,
    write_output,
    write_together,
)
from critpath.commands.reports import is_saved, load_comparison
from critpath.commands.settings import LINKING, READING, RUNNING, Settings, whole
from critpath.commands.sources import check_inputs, messages_of, require_executions, words_of
from critpath.errors import UsageError
from critpath.units import plural

if TYPE_CHECKING:
    from critpath.model import PathSet
    from critpath.model.exploration import Exploration

SETTINGS = (*READING, *RUNNING, *LINKING)
_DEEPEST: Final = 2


OPTIONS: Final = (
    option("trace", "TRACE", "recordings, directories of them, CTF traces, saved paths; of two "
        "the first is the set before and the second that after; or one file of compare --json",
        Path, nargs="+"),
    option("--given", "CONDITION", 'look only at these runs, such as "service == '
        "'nginx:80'\"; may be repeated, one step after the other", default=[], action="append"),
    option("--what", "CONDITION", "what those that it selects have in common (default: latency >= "
        "p90, the slowest tenth of each label)"),
    option("--depth", "N", "2: also any two of the best conditions together (1)",
        whole(1, _DEEPEST), 1),
    flag("-a --all", "list every condition, also those that differ by chance or are parts of the "
        "latency"),
    option("--json", "FILE", "write the answers (- for stdout)"),
    option("-o --output", "FILE", "write a page to explore further (- for stdout)"),
)  # fmt: skip


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Answer, write what was asked for and return 0: exploring is no gate."""
    check_inputs(arguments.trace)
    check_outputs([arguments.json, arguments.output], arguments.trace)
    paths, exploration = _explore(arguments, settings)
    said = [*messages_of(paths), *exploration.notes]
    warn(said, quiet=settings["quiet"], words=words_of(paths))

    from critpath.report.document import (  # noqa: PLC0415 - start-up time
        exploration_document,
        to_json,
    )

    document = exploration_document(exploration, paths.specification)
    texts = {}
    if arguments.json is not None:
        texts[arguments.json] = to_json(document)
    if arguments.output is not None:
        from critpath.report.explore import render_page  # noqa: PLC0415 - start-up time

        with Progress(quiet=settings["quiet"]) as progress:
            progress("drawing the page")
            texts[arguments.output] = render_page(
                exploration,
                paths,
                command=[str(one) for one in arguments.trace],
                trace_url=settings["trace-url"],
            )
    write_together({place: text for place, text in texts.items() if place != STDOUT})
    if STDOUT in texts:
        write_output(STDOUT, texts[STDOUT])
        return 0

    from critpath.report.text import render_exploration  # noqa: PLC0415 - start-up time

    render_exploration(document, make_console(), every=arguments.all)
    if arguments.output is None:
        hint("next: -o page.html lets you ask on", quiet=settings["quiet"])
    else:
        what = plural(len(exploration.facts), exploration.facts.noun)
        hint(f"{arguments.output}: {what} to explore", quiet=settings["quiet"])
    return 0


def _explore(arguments: argparse.Namespace, settings: Settings) -> tuple[PathSet, Exploration]:
    from critpath import flow  # noqa: PLC0415 - numpy and the stages
    from critpath.explore import explore, facts_of  # noqa: PLC0415 - as above
    from critpath.model import joining  # noqa: PLC0415 - as above
    from critpath.text.page import noun_of_paths  # noqa: PLC0415 - as above

    if saved := [str(one) for one in arguments.trace if is_saved(str(one))]:
        return _explore_saved(saved, arguments, settings)
    with Progress(quiet=settings["quiet"]) as progress:
        # Of two sources each is a set, however many recordings it has.
        two = len(arguments.trace) == 2
        sets = flow.extract_groups(
            [[one] for one in arguments.trace] if two else [arguments.trace],
            **settings.for_reading(),
            jobs=settings["jobs"],
            progress=progress,
        )
        paths = joining.join_sets(sets)
        require_executions(paths, arguments.trace)
        progress(f"looking at {plural(len(paths), noun_of_paths(paths, 1))}")
        known = facts_of(paths, normal=len(sets[0].sources) if two else None)
        return paths, explore(
            paths, given=arguments.given, what=arguments.what, depth=arguments.depth, facts=known
        )


def _explore_saved(
    saved: list[str], arguments: argparse.Namespace, settings: Settings
) -> tuple[PathSet, Exploration]:
    """Ask about the executions of a comparison, of whose paths it has but a few."""
    import numpy as np  # noqa: PLC0415 - start-up time

    from critpath.explore import SAMPLE, explore, facts_of  # noqa: PLC0415 - numpy and the stages
    from critpath.report.exports import read_all_executions  # noqa: PLC0415 - start-up time
    from critpath.text.exploring import without_paths  # noqa: PLC0415 - as above

    if len(arguments.trace) > 1:
        raise UsageError(
            f"{saved[0]} is a comparison, which has both sets", "name it alone, or recordings"
        )
    paths, normal, clusters = read_all_executions(load_comparison(saved[0]), saved[0])
    asked = settings["execution"] if settings.origins["execution"] == "command line" else None
    if asked not in {None, paths.specification}:  # which the page's own command names
        raise UsageError(
            "a saved comparison has its runs already", "choose some of them with --given"
        )
    require_executions(paths, arguments.trace)
    known = facts_of(paths, normal=normal, clusters=np.array(clusters, np.int64))
    given = arguments.given or ([SAMPLE] if arguments.what is None else [])
    found = explore(paths, given=given, what=arguments.what, depth=arguments.depth, facts=known)
    return paths, replace(found, notes=(*found.notes, without_paths()))
