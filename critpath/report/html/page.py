"""A page as one file: a policy that names the hashes of its own script and style, and data."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable
from importlib.resources import files
from typing import Any, Final

import numpy as np

from critpath.report.html.elements import text

_ALLOWED: Final = re.compile(r"script-src ('[^';]+'); style-src ('[^';]+');")


def assemble_page(
    title: str,
    style: str,
    body: str,
    script: str,
    data: dict[str, Any],
    *,
    kind: str = "",
    framed: str = "",
) -> str:
    """Return a whole page.

    Parameters
    ----------
    title : str
        Plain text.
    style, script : str
        Ours: nothing else may run or be loaded.
    body : str
        HTML.
    data : dict
        What the script reads.
    kind : str
        The body's class.
    framed : str
        Another page of ours, which the body has in a frame: its policy is this one's.
    """
    scripts, styles = [f"'{_digest(script)}'"], [f"'{_digest(style)}'"]
    if allowed := _ALLOWED.search(framed):
        scripts.append(allowed[1])
        styles.append(allowed[2])
    policy = (
        f"default-src 'none'; script-src {' '.join(scripts)}; style-src {' '.join(styles)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    named = f' class="{kind}"' if kind else ""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{text(title)}</title>\n<style>{style}</style></head>\n"
        f"<body{named}>{body}\n"
        f'<script id="data" type="application/json">{_json(data)}</script>'
        f'<script type="module">{script}</script></body></html>\n'
    )


def script_of(sources: Iterable[str]) -> str:
    """Return scripts as one ES module: less their comments and indentation.

    No text in them goes over several lines, so a line's beginning means nothing.
    """
    lines = (line.strip() for source in sources for line in source.splitlines())
    return "".join(f"{line}\n" for line in lines if line and not line.startswith("//"))


def read_asset(package: str, name: str) -> str:
    """Return a style or a script of ours."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


def numbers(values: Any) -> list[str]:
    """Return a column: its type and its bytes."""
    array = np.asarray(values, np.float64)
    kind = "f8"
    if len(array) and (array == np.floor(array)).all() and array.min() >= 0:
        most = array.max()
        kind = next((k for k, size in (("u1", 8), ("u2", 16), ("u4", 32)) if most < 2**size), "f8")
    data = array.astype(f"<{kind}").tobytes()
    return [kind, base64.b64encode(data).decode("ascii")]


def _json(data: dict[str, Any]) -> str:
    """Return data for the script: no text in it can end its element."""
    shown = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return shown.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _digest(source: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode("ascii")
