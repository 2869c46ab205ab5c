"""Take pictures of the main views of report, explorer and window: ``make screenshots`` runs this.

Light and dark, 1400 and 700 pixels wide, of two comparisons of the recordings in
fixtures/lttng-guest, of requests (fixtures/requests, and over hosts fixtures/hosts) and of slices
of one of the former.  The browser is Debian's chromium through its driver.
"""  # noqa: INP001 - a script beside the documents, no package

from __future__ import annotations

import base64
import io
import itertools
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

ROOT: Final = Path(__file__).resolve().parent.parent
FIXTURES: Final = ROOT / "fixtures" / "lttng-guest"
IMAGES: Final = ROOT / "docs" / "images"
BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
SHOP: Final = ROOT / "fixtures" / "requests" / "shop.paths"
HOSTS: Final = ROOT / "fixtures" / "hosts" / "select1-2-8.tar.xz"
AROUND: Final = "7"  # a request that waited for a CPU, a lock and the disk
EXECUTION: Final = "events:app:request_begin,app:request_end,key=id"
# Python has the filter from 3.11.4 on; Debian 12 ships 3.11.2.
DATA_ONLY: Final = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}

THEMES: Final = ("light", "dark")
WIDTHS: Final = (1400, 700)
HEIGHT: Final = 1000
# A report shows its own address in links to findings: the same one every time.
HOST: Final = "ci.example"
MARGIN: Final = 8
COLOURS: Final = 128


@dataclass(frozen=True)
class View:
    """What a picture shows.

    Parameters
    ----------
    name : str
        The file is ``PAGE-NAME-THEME-WIDTH.png``.
    sample : str
        The recording that is compared with ``normal``, or explored.
    show : tuple of str
        CSS selectors; the picture holds the first element that each matches, and all between.
    fragment : str
        What follows ``#`` in the address.
    most : int
        Greatest height in pixels; what is longer is cut below.
    page : str
        ``report``, ``explore`` or ``view``.
    """

    name: str
    sample: str
    show: tuple[str, ...]
    fragment: str = ""
    most: int = 1100
    page: str = "report"


# A step further: the carts alone, and which of these are slow.
CARTS: Final = ("service == 'nginx:28080'", "message == 'GET /cart'")


def _linked(given: Sequence[str]) -> str:
    """Return the link to a step: given these, the slowest tenth."""
    steps = [
        {"f": field, "o": "==", "v": value.strip("'")}
        for field, _, value in (one.partition(" == ") for one in given)
    ]
    slow = {"f": "latency", "o": ">=", "v": {"p": 90}}
    return quote(json.dumps({"g": steps, "w": slow, "y": "latency"}))


VIEWS: Final = (
    View("top", "sample-lock", (".top", ".first")),
    View("cause", "sample-lock", ("#cause-1",)),
    View("flame", "sample-lock", ("#flame", ".flame")),
    View("statistics", "sample-lock", ("#statistics",), "statistics", most=1000),
    View("ok", "normal-2", (".top", ".first")),
    View("answer", "shop", (".top", ".answer", "#view-1", "#view-4"), page="explore"),
    View("sketch", "shop", ("#view-5",), page="explore"),
    View("step", "shop", ("#view-6", ".answer", "#view-4"), _linked(CARTS), page="explore"),
    View("slices", "normal", ("#view-5",), page="explore"),
    View("hosts", "hosts", ("#view-5",), page="explore"),
    View("window", "sample-lock", (".top", "#rows", "#facts", ".leg2"), page="view"),
)


def take(
    place: Path = IMAGES, themes: Sequence[str] = THEMES, widths: Sequence[int] = WIDTHS
) -> None:
    """Take every picture, and remove those of views that are no more."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None or shutil.which("chromedriver") is None:
        sys.stderr.write("no chromium with its driver here: the pictures stay as they are\n")
        return
    place.mkdir(exist_ok=True)
    made = set()
    with tempfile.TemporaryDirectory(prefix="critpath-pictures-") as scratch:
        for kind, sample in sorted({(view.page, view.sample) for view in VIEWS}):
            page(kind, sample, Path(scratch))
        with served(Path(scratch)) as port:
            for theme, width in itertools.product(themes, widths):
                with driver(browser, theme, width, port) as chromium:
                    for view in VIEWS:
                        file = place / f"{view.page}-{view.name}-{theme}-{width}.png"
                        file.write_bytes(small(picture(chromium, view)))
                        made.add(file)
    known = {page for kind in {view.page for view in VIEWS} for page in place.glob(f"{kind}-*.png")}
    for old in known - made:
        old.unlink()
    total = sum(file.stat().st_size for file in made)
    sys.stderr.write(f"{len(made)} pictures, {total / 1000:.0f} kB in all\n")


def page(kind: str, sample: str, place: Path) -> None:
    """Compare two recordings and write the report, or explore one and write that page."""
    if sample == "shop":
        shutil.copytree(SHOP, place / sample, dirs_exist_ok=True)
    if sample == "hosts":
        split_hosts(place)
    for name in () if sample in {"shop", "hosts"} else ("normal", sample):
        with tarfile.open(FIXTURES / f"{name}.tar.xz") as tar:
            tar.extractall(place, **DATA_ONLY)  # noqa: S202 - archives of our own
    target = place / f"{kind}-{sample}.html"
    words = {
        "report": ("compare", "normal", sample, "--execution", EXECUTION, "--html", target),
        "explore": ("explore", sample, "-o", target),
        "view": ("view", sample, "--around", AROUND, "--execution", EXECUTION, "-o", target),
    }[kind]
    asked = {"normal": "slices:wake", "hosts": "requests:port=8080"}.get(sample)
    asked = ("--execution", asked) if kind == "explore" and asked else ()
    done = subprocess.run(  # noqa: S603 - our own command
        [*(sys.executable, "-m", "critpath"), *map(str, words), *asked, "--quiet"],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in {0, 1}:
        raise RuntimeError(done.stderr)


def split_hosts(place: Path) -> None:
    """Write what each host of a recording would have recorded by a clock of its own."""
    sys.path.insert(0, str(ROOT / "tests" / "hosts"))
    from record import write_split  # noqa: PLC0415 - only for this picture

    from critpath.model.recording import HOSTS_FORMAT  # noqa: PLC0415 - as above

    with tarfile.open(HOSTS) as tar:
        tar.extractall(place, **DATA_ONLY)  # noqa: S202 - an archive of our own
    recorded = place / HOSTS.name.removesuffix(".tar.xz")
    write_split(recorded, 1)
    recorded = (recorded / "hosts").rename(place / "hosts")
    hosts = [{"name": one.name, "recording": one.name} for one in sorted(recorded.iterdir())]
    listed = {"format": HOSTS_FORMAT, "hosts": hosts}
    (recorded / "hosts.json").write_text(json.dumps(listed), encoding="utf-8")


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and says nothing of it."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def served(place: Path) -> Iterator[int]:
    """Serve a directory on this machine, on the port that is given."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(place))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@contextmanager
def driver(browser: str, theme: str, width: int, port: int) -> Iterator[Any]:
    """Give a browser with this theme and width, to which `HOST` is this machine."""
    from selenium import webdriver  # noqa: PLC0415 - the texts are made without it
    from selenium.webdriver.chrome.service import Service  # noqa: PLC0415

    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for option in (
        *("headless=new", "hide-scrollbars", "force-device-scale-factor=1"),
        *("disable-gpu", "disable-dev-shm-usage", "disable-background-networking"),
    ):
        options.add_argument(f"--{option}")
    options.add_argument(f"--host-resolver-rules=MAP {HOST} 127.0.0.1:{port}")
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # chromium has none for root, as in a container
    chromium = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
    try:
        command = chromium.execute_cdp_cmd
        features = [
            {"name": "prefers-color-scheme", "value": theme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        command("Emulation.setEmulatedMedia", {"features": features})
        command(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False},
        )
        yield chromium
    finally:
        chromium.quit()


_PAINTED: Final = "const done = arguments[0]; requestAnimationFrame(() => setTimeout(done, 400));"
_PLACE: Final = """
const found = arguments[0].map((s) => document.querySelector(s));
if (found.includes(null)) return null;
const boxes = found.map((e) => e.getBoundingClientRect());
const left = Math.min(...boxes.map((b) => b.left)), top = Math.min(...boxes.map((b) => b.top));
return [left, top + window.scrollY,
  Math.max(...boxes.map((b) => b.right)) - left, Math.max(...boxes.map((b) => b.bottom)) - top];
"""


def picture(chromium: Any, view: View) -> bytes:
    """Open the report as `view` says and return the picture.

    Raises
    ------
    LookupError
        If the report has no such element: the view has to follow the page.
    """
    chromium.get("about:blank")  # a new fragment alone would not load the page again
    fragment = f"#{view.fragment}" if view.fragment else ""
    chromium.get(f"http://{HOST}/{view.page}-{view.sample}.html{fragment}")
    chromium.execute_async_script(_PAINTED)
    where = chromium.execute_script(_PLACE, list(view.show))
    if where is None:
        raise LookupError(f"view {view.name}: {' or '.join(view.show)} is not in the page")
    left, top, width, height = where
    clip = {
        "x": max(0, left - MARGIN),
        "y": max(0, top - MARGIN),
        "width": width + 2 * MARGIN,
        "height": min(height + 2 * MARGIN, view.most),
        "scale": 1,
    }
    taken = chromium.execute_cdp_cmd(
        "Page.captureScreenshot", {"format": "png", "clip": clip, "captureBeyondViewport": True}
    )
    return base64.b64decode(taken["data"])


def small(png: bytes) -> bytes:
    """Return a picture with a palette: a third of the bytes, and no difference to be seen."""
    from PIL import Image  # noqa: PLC0415 - the texts are made without it

    image = Image.open(io.BytesIO(png)).convert("RGB")
    # Of these methods the one that keeps what is rare: a mark's colour is a few pixels.
    flat = image.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    made = io.BytesIO()
    flat.save(made, "PNG", optimize=True)
    return made.getvalue()


if __name__ == "__main__":
    take()
