"""``critpath completion``: what makes a shell complete critpath's commands and options."""

from __future__ import annotations

import argparse
import sys
from importlib.resources import files
from pathlib import Path
from typing import Final

from critpath.commands.declared import option
from critpath.commands.settings import Settings
from critpath.errors import CritpathError

SETTINGS = ()
# Made from the declarations by docs/shells.py; the names are what each shell looks for.
_FILES: Final = {
    "bash": "bash-completion/completions/critpath",
    "zsh": "zsh/site-functions/_critpath",
    "fish": "fish/vendor_completions.d/critpath.fish",
}
DESCRIPTION: Final = (
    'Print what completes critpath\'s commands and options: eval "$(critpath completion bash)" '
    "in ~/.bashrc; critpath completion zsh > DIR/_critpath for a DIR of $fpath; "
    "critpath completion fish > ~/.config/fish/completions/critpath.fish."
)

OPTIONS: Final = (option("shell", None, "which shell", choices=tuple(_FILES)),)


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print, and return 0."""
    del settings
    made = Path(_FILES[arguments.shell])
    # In a checkout they stand beside the package.
    beside = Path(__file__).resolve().parents[2] / "share" / made
    for place in (Path(str(files("critpath") / "share" / made.name)), beside):
        if place.is_file():
            sys.stdout.write(place.read_text(encoding="utf-8"))
            return 0
    raise CritpathError("this installation has no completions", "install critpath again")
