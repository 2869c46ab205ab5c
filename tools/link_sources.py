"""Turns what pip has installed into links to where Meson had it from.

    python tools/link_sources.py BUILD

An edited source is in use at the next start, and so is a native module as soon as it is built;
nothing is looked for at a start, and Python keeps its bytecode as of any installation.
"""

import json
import sys
import sysconfig
from pathlib import Path


def link_sources(build: Path) -> None:
    """Link each file of Meson's plan."""
    plan = json.loads((build / "meson-info" / "intro-install_plan.json").read_text())
    for files in plan.values():
        for source, entry in files.items():
            scheme, _, rest = entry["destination"].partition("/")
            places = {"{py_platlib}": "platlib", "{py_purelib}": "purelib"}
            if scheme not in places:
                continue
            installed = Path(sysconfig.get_path(places[scheme]), rest)
            installed.unlink()
            installed.symlink_to(source)


if __name__ == "__main__":
    link_sources(Path(sys.argv[1]).resolve())
