"""What the project says of itself is true: documents, links, versions, recordings."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import tarfile
import tomllib
from pathlib import Path

import pytest

from critpath import __version__
from critpath.commands import VERBS
from critpath.commands.parser import build_parser
from critpath.errors import UsageError

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted(
    path
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("fixtures/**/*.md"))
    if path.is_file()
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
RECORDINGS = ROOT / "fixtures" / "lttng-guest"


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.fixture(scope="module")
def renew():
    place = importlib.util.spec_from_file_location("renew", ROOT / "docs" / "renew.py")
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


def shell_lines(text: str) -> list[str]:
    """Return every line of a console or shell block that runs critpath."""
    blocks = re.findall(r"```(?:console|sh)\n(.*?)```", text, re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", "").splitlines()
    return [line.removeprefix("$ ") for line in lines if re.match(r"(\$ )?critpath ", line)]


SHOWN = [(name(path), line) for path in DOCUMENTS for line in shell_lines(path.read_text("utf-8"))]


@pytest.mark.parametrize(("document", "line"), SHOWN)
def test_commands_that_documents_show_are_understood(document, line):
    del document
    build_parser(VERBS).parse_args(shlex.split(line)[1:])


def test_documents_show_commands_and_a_wrong_one_is_refused():
    assert {verb for _, line in SHOWN for verb in [line.split()[1]]} >= {"compare", "path"}
    with pytest.raises(UsageError):
        build_parser(VERBS).parse_args(["compare", "normal"])


def test_the_transcript_in_the_readme_is_what_critpath_says(renew):
    shown = (ROOT / "README.md").read_text(encoding="utf-8")
    assert shown == renew.readme(), "run make docs"


def test_the_reference_of_commands_is_the_parsers(renew):
    assert (ROOT / "docs" / "commands.md").read_text(encoding="utf-8") == renew.commands(), (
        "run make docs"
    )


def test_the_examples_of_exports_print_what_is_shown():
    place = importlib.util.spec_from_file_location("examples", ROOT / "docs" / "examples.py")
    examples = importlib.util.module_from_spec(place)
    place.loader.exec_module(examples)
    assert examples.PAGE.read_text(encoding="utf-8") == examples.page(), "run make docs"


def anchors(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        place = (path.parent / file).resolve() if file else path
        assert place.exists(), target
        if anchor:
            assert anchor in anchors(place.read_text(encoding="utf-8")), target


def test_places_that_documents_name_are_there():
    missing = []
    for path in DOCUMENTS:
        for place in re.findall(r"`((?:critpath|tests|docs|fixtures)/[\w./-]+)`", path.read_text()):
            if not (ROOT / place).exists() and not place.startswith("critpath/record"):
                # Formats are named as files are: critpath/path/1.
                if re.fullmatch(r"critpath/\w+/[\dN]", place):
                    continue
                missing.append(f"{name(path)}: {place}")
    assert missing == []


def test_every_document_is_reached_from_the_readme():
    reached, pending = set(), [ROOT / "README.md"]
    while pending:
        path = pending.pop()
        if path in reached or path.suffix != ".md":
            continue
        reached.add(path)
        targets = re.findall(r"\]\(([^)\s#]+)", path.read_text(encoding="utf-8"))
        pending += [(path.parent / t).resolve() for t in targets if not t.startswith("https://")]
    assert set(DOCUMENTS) - reached == set()


def test_sections_that_the_code_refers_to_exist():
    titles = anchors((ROOT / "docs" / "critical-path.md").read_text(encoding="utf-8"))
    assert {"states", "rules", "path"} <= titles


def test_the_changelog_has_this_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{__version__}]" in text
    assert PROJECT["project"]["version"] == __version__
    assert f"version: '{__version__}'" in (ROOT / "meson.build").read_text(encoding="utf-8")


def tracked() -> list[Path]:
    done = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip("no git checkout")
    return [ROOT / line for line in done.stdout.splitlines()]


def test_no_file_names_a_place_of_one_machine():
    places = re.compile(r"/(?:home|Users|root|work|opt)/\w")
    found = []
    for path in tracked():
        if path.suffix in {".xz", ".png"} or not path.is_file():
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if places.search(line):
                found.append(f"{name(path)}:{number}: {line.strip()[:80]}")
    assert found == []


def test_dependencies_are_imported_and_argued():
    argued = (ROOT / "docs/decisions/1-dependencies.md").read_text(encoding="utf-8")
    code = "\n".join(p.read_text(encoding="utf-8") for p in (ROOT / "critpath").rglob("*.py"))
    modules = {"scikit-learn": "sklearn", "biopython": "Bio"}
    for line in PROJECT["project"]["dependencies"]:
        package = re.match(r"[\w-]+", line)[0]
        assert f"| {package} |" in argued
        assert re.search(
            rf"^\s*(?:import|from) {modules.get(package, package)}\b", code, re.MULTILINE
        )


def test_every_recording_is_described_and_whole():
    text = (RECORDINGS / "README.md").read_text(encoding="utf-8")
    archives = sorted(RECORDINGS.glob("*.tar.xz"))
    described = set(re.findall(r"^\| `([\w-]+\.tar\.xz)` \|", text, re.MULTILINE))
    assert described == {archive.name for archive in archives}
    for archive in archives:
        top = archive.name.removesuffix(".tar.xz")
        with tarfile.open(archive) as tar:
            names = set(tar.getnames())
        assert {f"{top}/truth.csv", f"{top}/trace/kernel/metadata"} <= names
        assert all(n == top or n.startswith(f"{top}/") for n in names)


def test_the_picture_is_small_enough_for_a_readme():
    for picture in (ROOT / "docs" / "images").glob("*.png"):
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert picture.stat().st_size < 300_000
