"""The pictures of the documentation can be taken again; the site loads nothing but itself."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
COLOURS = 8  # an empty picture has fewer


@pytest.fixture(scope="module")
def screenshots():
    place = importlib.util.spec_from_file_location("screenshots", ROOT / "docs/screenshots.py")
    module = importlib.util.module_from_spec(place)
    sys.modules["screenshots"] = module  # its dataclass looks there
    place.loader.exec_module(module)
    return module


@pytest.mark.deep
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_view_is_in_the_report_and_a_picture_of_it_has_something_to_see(
    browser, screenshots, tmp_path, theme
):
    del browser  # skips without one
    image = pytest.importorskip("PIL.Image", reason="Pillow is missing: pip install --group docs")
    screenshots.take(tmp_path, themes=(theme,), widths=(700,))
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {f"{view.page}-{view.name}-{theme}-700.png" for view in screenshots.VIEWS}
    for path in tmp_path.iterdir():
        with image.open(path) as picture:
            assert picture.width > 600
            assert len(picture.getcolors()) > COLOURS
            corner = picture.convert("L").getpixel((0, 0))
        assert (corner > 128) == ("-light-" in path.name)


def test_a_view_that_the_report_has_no_more_is_an_error(
    driver, screenshots, real, tmp_path, monkeypatch
):
    gone = screenshots.View("gone", "sample-lock", ("#no-such-section",))
    (tmp_path / "report-sample-lock.html").symlink_to(real[0])
    with screenshots.served(tmp_path) as port:
        monkeypatch.setattr(screenshots, "HOST", f"127.0.0.1:{port}")
        assert screenshots.picture(driver, screenshots.VIEWS[0]).startswith(b"\x89PNG")
        with pytest.raises(LookupError, match="no-such-section"):
            screenshots.picture(driver, gone)


@pytest.mark.deep
def test_pages_of_the_site_load_nothing_from_elsewhere(driver, screenshots, tmp_path):
    for name in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(name, reason="pip install --group docs")
    subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-c", ROOT / "docs/site", ROOT, tmp_path],
        check=True,
    )
    with screenshots.served(tmp_path) as port:
        site = f"http://127.0.0.1:{port}/"
        for page in ("README", "docs/reading-the-report", "search"):
            driver.get(f"{site}{page}.html")
            loaded = driver.execute_script(
                "return performance.getEntriesByType('resource').map((e) => e.name)"
            )
            assert any(name.endswith(".css") for name in {n.partition("?")[0] for n in loaded})
            assert [name for name in loaded if not name.startswith((site, "data:"))] == []
            broken = driver.execute_script(
                "return [...document.images].filter((i) => i.complete && !i.naturalWidth).length"
            )
            assert broken == 0
