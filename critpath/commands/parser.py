"""The command line's grammar: argparse, with errors of two lines."""

from __future__ import annotations

import argparse
import copy
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, NoReturn

from critpath import __version__
from critpath.commands.declared import Options, SubVerb, VerbOption
from critpath.commands.overview import (
    CONFIG,
    DEBUG,
    DESCRIPTION,
    HABITS,
    OPTIONS_OF_OTHERS,
    SHOW_CONFIG,
    help_text,
    terminal_width,
)
from critpath.commands.settings import SETTINGS, Setting, Settings, WrongValueError
from critpath.errors import UsageError
from critpath.records import dataclass


class Parser(argparse.ArgumentParser):
    """argparse whose errors are `UsageError`, and that leaves a command's arguments alone."""

    everyday = ""  # title of the options that --help shows; --help-all has the others, too

    def parse_known_args(  # type: ignore[override]  # the overloads are of typing only
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse what stands before the command of a verb that takes one.

        argparse's own REMAINDER treats ``--`` differently from version to version.
        """
        found, rest = self._parse_known(args, namespace)
        if rest and not isinstance(self, _AllVerbs):  # which knows neither the verb nor its options
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return found, rest

    def _parse_known(
        self, args: Sequence[str] | None, namespace: argparse.Namespace | None
    ) -> tuple[argparse.Namespace, list[str]]:
        action = next((a for a in self._actions if a.nargs == argparse.REMAINDER), None)
        if action is None or args is None:
            return self._take_later(*super().parse_known_args(args, namespace))
        begin = self._command_begin(args)
        found, rest = super().parse_known_args(list(args[:begin]), namespace)
        command = list(args[begin:])
        setattr(found, action.dest, command[1:] if command[:1] == ["--"] else command)
        return found, rest

    def _take_later(
        self, found: argparse.Namespace, rest: list[str]
    ) -> tuple[argparse.Namespace, list[str]]:
        """Give a verb that takes several words also those that stand behind an option."""
        several = [a for a in self._actions if not a.option_strings and a.nargs in {"+", "*"}]
        if len(several) == 1 and getattr(found, several[0].dest, None):
            words = [text for text in rest if text == "-" or not text.startswith("-")]
            typed = several[0].type if callable(several[0].type) else str
            getattr(found, several[0].dest).extend(map(typed, words))
            rest = [text for text in rest if text not in words]
        return found, rest

    def _command_begin(self, args: Sequence[str]) -> int:
        """Return where ``--`` or the first argument that is no option stands."""
        index = 0
        while index < len(args):
            text = args[index]
            if text == "--" or not text.startswith("-") or text == "-":
                return index
            index += 1 + self._values_after(text)
        return len(args)

    def _values_after(self, text: str) -> int:
        """Return how many arguments after an option are its values."""
        known = self._option_string_actions
        if text not in known and not text.startswith("--"):
            # -n5, or flags in one: -an 5
            for place, letter in enumerate(text[1:], 2):
                action = known.get(f"-{letter}")
                if action is None or action.nargs != 0:
                    takes = action is not None and place == len(text)
                    return 1 if takes else 0
            return 0
        found = known.get(text)  # None with --option=value, or an unknown one
        if found is None:
            return 0
        return 1 if found.nargs is None else found.nargs if isinstance(found.nargs, int) else 0

    def format_help(self) -> str:
        """Return what is needed every day, in one screen, where a verb says what that is."""
        if not self.everyday:
            return super().format_help()
        formatter = _Screen(self.prog)
        operands = [a for a in self._actions if not a.option_strings]
        shown = " ".join(str(a.metavar) for a in operands)
        formatter.add_usage(f"%(prog)s [OPTION...] {shown}", [], [])
        formatter.add_text(self.description)
        formatter.add_arguments(_shorten(operands))
        for group in self._action_groups[2:]:
            if group.title == self.everyday:
                formatter.start_section(self.everyday)
                formatter.add_arguments(_shorten(group._group_actions))  # noqa: SLF001 - as below
                formatter.end_section()
        formatter.start_section(f"{self.prog} --help-all says more of these, and of")
        for group in self._action_groups[2:]:
            if group.title != self.everyday:
                names = ", ".join(map(_long_name, group._group_actions))  # noqa: SLF001 - as below
                formatter.add_argument(argparse.Action([str(group.title)], "", 0, help=names))
        formatter.end_section()
        return formatter.format_help()

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing usage and leaving."""
        choice = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        do = f"see {self.prog} --help"
        unknown = re.match(r"unrecognized arguments: (-[^\s=]+)", message)
        if unknown:
            do = f"{self._option_meant(unknown[1])}{do}"
        if choice:
            import difflib  # noqa: PLC0415 - start-up time, and rarely needed

            known = re.findall(r"[\w-]+", choice[2])
            near = difflib.get_close_matches(choice[1], known, n=1)
            if "record" in known:  # the verbs
                message = f"there is no command {choice[1]}"
                near = [HABITS[choice[1]]] if choice[1] in HABITS else near
            do = "".join(f"did you mean {name}? " for name in near) + do
        raise UsageError(message.replace("\n", " "), do)

    def _option_meant(self, name: str) -> str:
        """Return what somebody who gives an unknown option may look for, before where to look."""
        import difflib  # noqa: PLC0415 - start-up time, and rarely needed

        if name in OPTIONS_OF_OTHERS:
            return f"{OPTIONS_OF_OTHERS[name]}; "
        known = [option for option in self._option_string_actions if option.startswith("--")]
        near = difflib.get_close_matches(name, known, n=1)
        return "".join(f"did you mean {option}? " for option in near)


class _AllVerbs(Parser):
    """What stands before a verb."""

    def format_help(self) -> str:
        """Return the verbs, by what they are for."""
        return help_text(terminal_width())


class _Screen(argparse.HelpFormatter):
    """Help whose names of options are not broken at a hyphen."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        import textwrap  # noqa: PLC0415 - start-up time

        return textwrap.wrap(text, width, break_on_hyphens=False)


class _ShowAll(argparse.Action):
    """Print all options, also those that are rarely needed."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print, and leave."""
        if isinstance(parser, Parser):
            parser.everyday = ""
        parser.print_help()
        parser.exit()


_SHORT: Final = 105  # letters of an option's help in one screen


def _shorten(actions: Iterable[argparse.Action]) -> list[argparse.Action]:
    """Return options with the first part of their help, which says what they are for."""
    shorter = [copy.copy(action) for action in actions]
    for action in shorter:
        action.help = (action.help or "").partition("; ")[0]
        if len(action.help) > _SHORT:
            action.help = f"{action.help[:_SHORT].rpartition(' ')[0]} ..."
    return shorter


def build_parser(
    verbs: Mapping[str, str],
    *,
    arguments: Sequence[str] | None = None,
    show_config: bool = False,
) -> Parser:
    """Build the grammar."""
    parser = _AllVerbs(prog="critpath", description=DESCRIPTION, allow_abbrev=False)
    version = f"critpath {__version__}"
    parser.add_argument("-V", "--version", action="version", version=version)
    add_global(parser)
    choices = parser.add_subparsers(
        dest="verb", metavar="COMMAND", required=not show_config, parser_class=Parser
    )
    for name, summary in verbs.items():
        child = choices.add_parser(
            name, help=summary, description=sentence(summary), allow_abbrev=False
        )
        if arguments is not None and name not in arguments:
            continue
        verb = Verb.of(name)
        child.description = verb.description or child.description
        if verb.actions:
            deeper = child.add_subparsers(
                dest="action", metavar="ACTION", required=True, parser_class=Parser
            )
            for action, of in verb.actions.items():
                inner = deeper.add_parser(action, help=of.what, allow_abbrev=False)
                add_options(inner, of.options)
                add_settings(inner, (SETTINGS[s] for s in of.settings))
                add_global(inner)
        add_options(child, verb.options)
        add_settings(child, (SETTINGS[s] for s in verb.settings))
        _group_options(child, verb.groups or _usual_groups(verb))
        add_global(child)
        if show_config:
            _relax(child)
    return parser


@dataclass(frozen=True)
class Verb:
    """What a module of this directory declares."""

    run: Callable[[argparse.Namespace, Settings], int]
    options: Options
    settings: tuple[str, ...]
    actions: Mapping[str, SubVerb]
    groups: Mapping[str, Sequence[str]]
    description: str

    @classmethod
    def of(cls, name: str) -> Verb:
        """Import a verb, and return what it declares."""
        module = import_module(f"critpath.commands.{name}")
        actions: Mapping[str, SubVerb] = getattr(module, "ACTIONS", {})

        def run(arguments: argparse.Namespace, settings: Settings) -> int:
            code: int = (actions[arguments.action] if actions else module).run(arguments, settings)
            return code

        return cls(
            run,
            getattr(module, "OPTIONS", ()),
            getattr(module, "SETTINGS", ()),
            actions,
            getattr(module, "GROUPS", {}),
            getattr(module, "DESCRIPTION", ""),
        )


_MANY: Final = 8  # settings that a verb heeds: with more its help has two parts


def _usual_groups(verb: Verb) -> Mapping[str, Sequence[str]]:
    """Return the parts of the help of a verb that heeds many settings: its own options first."""
    if len(verb.settings) < _MANY:
        return {}
    own = [name.removeprefix("--") for each in verb.options for name in _names_of(each)]
    return {"everyday": (*own, "execution", "jobs"), "method": ()}


def _names_of(declared: VerbOption | tuple[VerbOption, ...]) -> Iterable[str]:
    options = declared if isinstance(declared, tuple) else (declared,)
    return (name for one in options for name in one.names)


def _group_options(parser: Parser, groups: Mapping[str, Sequence[str]]) -> None:
    """Sort a verb's options into groups of its help; the last has what the others do not name."""
    if not groups:
        return
    titles = list(groups)
    parser.everyday = titles[0]
    parser.add_argument(
        "--help-all", action=_ShowAll, nargs=0, dest="help", help="show all options"
    )
    place = {name: title for title, names in groups.items() for name in names}
    known = parser._optionals._group_actions  # noqa: SLF001 - argparse sorts none by itself
    rest = [action for action in known if action.dest != "help"]
    for title in titles:
        group = parser.add_argument_group(title)
        for action in rest:
            if place.get(_long_name(action).removeprefix("--"), titles[-1]) == title:
                group._group_actions.append(action)  # noqa: SLF001 - as above
                known.remove(action)


def _long_name(action: argparse.Action) -> str:
    """Return an option's long name; of what can be switched off, that which switches it on."""
    last = next(name for name in action.option_strings[::-1] if name.startswith("--"))
    return action.option_strings[0] if last.startswith("--no-") else last


def _relax(parser: argparse.ArgumentParser) -> None:
    """Require nothing."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to relax them
        action.required = False
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            for child in action.choices.values():
                _relax(child)
        elif not action.option_strings and action.nargs != argparse.REMAINDER:
            action.nargs = "*" if action.nargs == "+" else "?"


def given_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that the command line gives, by name."""
    found = vars(arguments)
    names = {name: "setting_" + name for name in SETTINGS}
    return {name: found[place] for name, place in names.items() if place in found}


def check_text(parse: Callable[[Any], Any]) -> Callable[[str], Any]:
    """Make argparse say what a value should be."""

    def convert(text: str) -> Any:
        try:
            return parse(text)
        except WrongValueError as error:
            raise argparse.ArgumentTypeError(f"'{text}' is not {error}") from None

    return convert


def add_options(parser: argparse._ActionsContainer, options: Iterable[Any]) -> None:
    """Add what is declared, of alternatives one."""
    for each in options:
        if isinstance(each, tuple):
            add_options(parser.add_mutually_exclusive_group(), each)
            continue
        parse = each.given.get("type")
        typed = {} if parse is None or isinstance(parse, type) else {"type": check_text(parse)}
        parser.add_argument(*each.names, **{**each.given, **typed})


def sentence(summary: str) -> str:
    """Return a summary as a sentence."""
    return summary[0].upper() + summary[1:] + "."


def add_global(parser: argparse.ArgumentParser) -> None:
    """Add the options that every command has."""
    # Suppressed defaults: the same option before and after the verb is one option.
    group = parser.add_argument_group("everywhere")
    group.add_argument("--config", metavar="FILE", default=argparse.SUPPRESS, help=CONFIG)
    group.add_argument(
        "--show-config",
        action="store_true",
        default=argparse.SUPPRESS,
        help=SHOW_CONFIG,
    )
    group.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=DEBUG)
    add_settings(group, [SETTINGS["quiet"]])


def add_settings(parser: argparse._ActionsContainer, settings: Iterable[Setting]) -> None:
    """Add options for settings; what is not given leaves no trace in the namespace."""
    for setting in settings:
        shown = setting.help.replace("%", "%%")
        if setting.default not in {None, (), ""} and not setting.flag:
            shown += f" (default: {setting.default})"
        if setting.flag:
            parser.add_argument(
                f"--{setting.name}",
                dest="setting_" + setting.name,
                action=argparse.BooleanOptionalAction,
                default=argparse.SUPPRESS,
                help=shown,
            )
        elif setting.options:
            for value, text in setting.options.items():
                parser.add_argument(
                    f"--{setting.name}-{value}",
                    dest="setting_" + setting.name,
                    action="store_const",
                    const=value,
                    default=argparse.SUPPRESS,
                    help=text.replace("%", "%%"),
                )
        else:
            parser.add_argument(
                f"--{setting.name}",
                dest="setting_" + setting.name,
                action="append" if setting.listed else "store",
                type=check_text(setting.parse),
                default=argparse.SUPPRESS,
                metavar=setting.metavar,
                help=shown,
            )
