"""What the project says of itself is true: documents, links, versions, recordings."""

from __future__ import annotations

import importlib.util
import itertools
import re
import shlex
import tarfile
import tomllib
from pathlib import Path

import pytest

import critpath_marks
from critpath import __version__
from critpath.commands import VERBS
from critpath.commands.parser import build_parser
from critpath.commands.settings import SETTINGS, effective
from critpath.errors import UsageError
from critpath.stores import SCHEMES

ROOT = Path(__file__).resolve().parents[2]
HOUSES = (ROOT / "critpath", ROOT / "critpath_record")
DOCUMENTS = sorted(
    path
    for path in (
        *(*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")),
        *(*ROOT.glob("fixtures/**/*.md"), ROOT / "marks" / "README.md"),
    )
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


# What shells and CI systems put before a command, and what ends its arguments.
_BEFORE = re.compile(r'^(?:\$ |- |run: |\||sudo |env "PATH=\$PATH" )+')
_AFTER = {"|", "||", "&&", ";", "&", ">", ">>", "<", ">|"}


def shell_lines(text: str) -> list[str]:
    """Return every line of a console, shell or YAML block that runs critpath."""
    blocks = re.findall(
        r"^ *```(?:console|sh|bash|shell|yaml|yml)\n(.*?)```", text, re.DOTALL | re.MULTILINE
    )
    lines = "\n".join(blocks).replace("\\\n", "").splitlines()
    bare = [_BEFORE.sub("", line.strip()) for line in lines]
    return [line for line in bare if line.startswith("critpath ")]


def arguments(line: str) -> list[str]:
    """Return what critpath gets of a line: no redirection, no further command, no comment."""
    line = re.sub(r"(?<=\s)\d>", ">", line)
    words = shlex.shlex(line, posix=True, punctuation_chars=";<>|&")
    words.whitespace_split = True
    return list(itertools.takewhile(lambda word: word not in _AFTER, words))[1:]


SHOWN = [(name(path), line) for path in DOCUMENTS for line in shell_lines(path.read_text("utf-8"))]


@pytest.fixture(scope="module")
def parser():
    return build_parser(VERBS)


@pytest.mark.parametrize(("document", "line"), SHOWN)
def test_commands_that_documents_show_are_understood(parser, document, line):
    del document
    parser.parse_args(arguments(line))


@pytest.mark.parametrize(
    ("block", "found"),
    [
        ("$ critpath doctor", ["doctor"]),
        ('$ sudo env "PATH=$PATH" critpath record -o a -- b', ["record", "-o", "a", "--", "b"]),
        ("critpath compare a b >/dev/null 2>&1; echo $?", ["compare", "a", "b"]),
        ("critpath compare a b  # exit code 1", ["compare", "a", "b"]),
        ("critpath compare a \\\n  b || true", ["compare", "a", "b"]),
        ("    - run: critpath compare a b", ["compare", "a", "b"]),
        ("echo critpath", None),
    ],
)
def test_a_command_is_found_in_what_documents_show(block, found):
    lines = shell_lines(f"```sh\n{block}\n```\n")
    assert [arguments(line) for line in lines] == ([found] if found else [])


def test_documents_show_commands_and_a_wrong_one_is_refused():
    assert {verb for _, line in SHOWN for verb in [line.split()[1]]} >= {"compare", "path"}
    with pytest.raises(UsageError):
        build_parser(VERBS).parse_args(["compare", "normal"])


def test_the_reference_of_commands_is_the_parsers(renew):
    assert (ROOT / "docs" / "commands.md").read_text(encoding="utf-8") == renew.commands(), (
        "run make docs"
    )


def test_the_reference_of_json_is_the_schemas(renew):
    shown = (ROOT / "docs" / "reference-json.md").read_text(encoding="utf-8")
    assert shown == renew.json_reference(), "run make docs"


def test_states_and_events_are_the_declared_ones(renew):
    shown = (ROOT / "docs" / "critical-path.md").read_text(encoding="utf-8")
    assert shown == renew.critical_path(), "run make docs"


def test_columns_of_segments_are_the_declared_ones(renew):
    shown = (ROOT / "docs" / "exports.md").read_text(encoding="utf-8")
    assert shown == renew.exports(), "run make docs"


def test_every_file_of_the_recorder_is_listed_with_why_it_is_loaded_as_root(renew):
    shown = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    assert shown == renew.security(), "run make docs"
    rows = re.findall(r"^\| `(critpath\S+)` \| (.*) \|$", shown, re.MULTILINE)
    assert len(rows) > 100
    built = {f"critpath/{name}" for name in renew.running_as_root.WRITTEN}
    missing = [file for file, _ in rows if not (ROOT / file).is_file() and file not in built]
    assert missing == [file for file, why in rows if not why] == []


def test_the_kinds_of_causes_are_the_catalogues(renew):
    shown = (ROOT / "docs" / "what-next.md").read_text(encoding="utf-8")
    assert shown == renew.what_next(), "run make docs"


def test_the_numbers_that_decide_are_the_declared_ones(renew):
    shown = (ROOT / "docs" / "how-it-decides.md").read_text(encoding="utf-8")
    assert shown == renew.how_it_decides(), "run make docs"


def rows_to_add() -> list[tuple[str, str]]:
    """Return what the table "to add" of the architecture says to change, by what is added."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = text.partition("## To add")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", section, re.MULTILINE)
    return [row for row in rows if "`" in row[1]]


@pytest.mark.parametrize(("added", "change"), rows_to_add(), ids=lambda text: text[:30])
def test_names_of_the_table_of_what_to_add_exist(added, change):
    del added
    places, names = [], []
    for name in re.findall(r"`([^`]+)`", change):
        if "/" in name or name.endswith(".py"):
            found = [ROOT / name, *(house / name for house in HOUSES)]
            found += [p for h in HOUSES for p in h.rglob(name)] if "/" not in name else []
            places += [path for path in found if path.exists()]
            assert any(path.exists() for path in found), name
        elif not name.startswith("make "):
            names += re.findall(r"\w+", name.removeprefix("self."))
    folders = [path for path in places if path.is_dir()] or [*HOUSES]
    files = [path for path in places if path.is_file()]
    code = {".py", ".pyx", ".pxi", ".build"}
    files += [p for f in folders for p in f.rglob("*") if p.suffix in code]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []


def test_the_tables_of_numbers_are_the_declared_ones(renew):
    shown = (ROOT / "docs" / "parameters.md").read_text(encoding="utf-8")
    assert shown == renew.parameters(), "run make docs"


def test_the_tables_of_the_evaluation_are_those_of_its_results(renew):
    pages = renew.evaluation()
    assert {path.name for path in (ROOT / "docs" / "evaluation").iterdir()} == {
        path.name for path in pages
    }
    for path, text in pages.items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run make docs"


def test_the_published_schemas_are_the_ones_that_critpath_checks_by(renew):
    published = {p.name: p.read_text("utf-8") for p in (ROOT / "docs" / "schema").iterdir()}
    assert published == renew.schemas(), "run make docs"


def test_variables_of_the_environment_that_are_read_are_documented():
    files = [p for house in (*HOUSES, ROOT / "marks") for p in house.rglob("*.py")]
    code = "\n".join(p.read_text(encoding="utf-8") for p in files)
    own = set(re.findall(r'"(CRITPATH_[A-Z_]+|GITHUB_[A-Z_]+)"', code))
    read = own | set(re.findall(r'environ(?:\.get\(|\[)"([A-Z_]+)"', code))
    documented = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    # Between critpath's own processes, and what tells them from others.
    inner = {"CRITPATH_DAEMON", "CRITPATH_SESSION", "PYTHONSAFEPATH"}
    assert sorted(name for name in read - inner if f"`{name}`" not in documented) == []


SETTINGS_FILES = [
    (name(path), block)
    for path in DOCUMENTS
    for block in re.findall(r"```toml\n(.*?)```", path.read_text("utf-8"), re.DOTALL)
    if "[tool.critpath" in block
]


@pytest.mark.parametrize(("document", "block"), SETTINGS_FILES)
def test_settings_files_that_documents_show_are_understood(document, block, tmp_path):
    del document
    file = tmp_path / "pyproject.toml"
    file.write_text(block, encoding="utf-8")
    inside = {key for key in tomllib.loads(block)["tool"]["critpath"] if key != "gate"}
    assert effective({}, file, tmp_path) is not None
    assert inside <= set(SETTINGS)


def test_documents_show_settings_files():
    assert {"docs/commands.md", "docs/tutorial.md"} <= {document for document, _ in SETTINGS_FILES}


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


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_pictures_are_there_light_and_dark(path):
    text = path.read_text(encoding="utf-8")
    pictures = re.findall(r'(?:src|srcset)="([^"]+)"', text)
    assert [p for p in pictures if not (path.parent / p).is_file()] == []
    light = [p for p in pictures if "-light-" in p]
    assert [p for p in light if p.replace("-light-", "-dark-") not in pictures] == []
    assert text.count("<img ") == len(re.findall(r'<img alt="[^"]{20,}"', text))


def test_places_that_documents_name_are_there():
    missing = []
    for path in DOCUMENTS:
        for place in re.findall(r"`((?:critpath|tests|docs|fixtures)/[\w./-]+)`", path.read_text()):
            if not (ROOT / place).exists():
                # Formats are named as files are: critpath/path/1.
                if re.fullmatch(r"critpath/([\w-]+/[\dN]|_cyutility.c)", place):  # a build's
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
    assert critpath_marks.__version__ == __version__
    place = ROOT / "packaging" / "critpath"
    assert f"version: '{__version__}'" in (place / "meson.build").read_text(encoding="utf-8")
    whole = tomllib.loads((place / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert whole["version"] == __version__
    assert whole["dependencies"] == [f"critpath-core[all]=={__version__}"]
    assert whole["requires-python"] == PROJECT["project"]["requires-python"]


def test_all_is_every_extra():
    extras = PROJECT["project"]["optional-dependencies"]
    [names] = re.findall(r"^critpath-core\[(.*)\]$", *extras["all"])
    assert sorted([*names.split(","), "all"]) == sorted(extras)


def test_news_are_one_line_each_and_named_by_what_they_are():
    kinds = "|".join(kind["directory"] for kind in PROJECT["tool"]["towncrier"]["type"])
    for path in sorted(set((ROOT / "news").iterdir()) - {ROOT / "news" / "README.md"}):
        assert re.fullmatch(rf"(\d+|\+[\w-]+)\.({kinds})(\.\d+)?\.md", path.name), path.name
        text = path.read_text(encoding="utf-8")
        assert text.endswith("\n"), path.name
        assert len(text.strip().splitlines()) == 1, path.name
        assert len(text) <= 400, path.name


def test_what_is_new_is_in_the_news_and_the_changelog_is_read_in_two_minutes():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert PROJECT["tool"]["towncrier"]["start_string"] in text
    newest = text.split("\n## ")[1].partition("<!-- what news/ has")[0]
    assert len(newest.split()) <= 700
    assert "Unreleased" not in text


def test_dependencies_are_imported_and_argued():
    argued = (ROOT / "docs/decisions/1-dependencies.md").read_text(encoding="utf-8")
    code = "\n".join(p.read_text(encoding="utf-8") for h in HOUSES for p in h.rglob("*.py"))
    modules = {"scikit-learn": "sklearn", "biopython": "Bio"}
    extras = PROJECT["project"]["optional-dependencies"]
    lines = [*PROJECT["project"]["dependencies"], *itertools.chain(*extras.values())]
    for line in lines:
        if line.startswith("critpath-core["):
            continue
        package = re.match(r"[\w-]+", line)[0]
        assert f"| {package} |" in argued
        if package in SCHEMES.values():  # fsspec imports it
            continue
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


def test_pictures_are_small_enough_for_a_repository_and_all_are_made_by_make_screenshots():
    pictures = sorted((ROOT / "docs" / "images").glob("*.png"))
    assert all(picture.read_bytes().startswith(b"\x89PNG") for picture in pictures)
    assert max(picture.stat().st_size for picture in pictures) < 200_000
    assert sum(picture.stat().st_size for picture in pictures) < 1_500_000
    script = (ROOT / "docs" / "screenshots.py").read_text(encoding="utf-8")
    views = {
        f"{page or 'report'}-{name}"
        for name, page in re.findall(r'View\("(\w+)".*?(?:page="(\w+)")?\),\n', script)
    }
    variants = {f"{theme}-{width}" for theme in ("light", "dark") for width in (1400, 700)}
    names = {f"{view}-{variant}.png" for view in views for variant in variants}
    assert {picture.name for picture in pictures} == names


# Pages that one looks things up in; every other page is to be read, and short.
REFERENCE = {
    *("commands", "reference-json", "file-formats", "critical-path", "promises"),
    "architecture",  # of the source: what is where
    "parameters",  # a table of numbers
    "requests",  # rules, held against a twin
}
MOST_WORDS = 1500


def prose_of(page: Path) -> str:
    """Return a page without what programs print or run, and what is made of declarations."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(
        r"<!-- (causes|numbers|parameters|root) -->.*?<!-- end of \1 -->", "", text, flags=re.DOTALL
    )
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def test_pages_are_short():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    assert {page.stem for page in pages} >= REFERENCE
    counted = {p.name: len(prose_of(p).split()) for p in pages if p.stem not in REFERENCE}
    assert {name: count for name, count in counted.items() if count > MOST_WORDS} == {}


def test_pages_of_the_evaluation_are_read_in_one_screen_and_name_a_command():
    for page in (ROOT / "docs" / "evaluation").glob("*.md"):
        if not page.stem.endswith("-tables"):
            prose = re.sub(r"^\|.*\n", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
            assert len(prose.split()) <= 450, page.name
            assert re.search(r"`(make|python) ", prose), page.name


def test_pages_speak_as_the_answer_does():
    """Before and after, requests, slowdown, µs: where people read, not look up."""
    read = [ROOT / "README.md"]
    read += [p for p in (ROOT / "docs").glob("*.md") if p.stem not in {*REFERENCE, "glossary"}]
    old = re.compile(r"slow-down|\b\d+ us\b|(normal|sample) executions?\b|sample set")
    for page in read:
        prose = re.sub(r"`[^`\n]*`", "", prose_of(page))
        assert not old.search(prose), (page.name, old.search(prose))


# What builds and publishes


def test_actions_are_pinned_by_commit():
    """A tag can be moved to other code; the version stands beside for readers."""
    files = [*(ROOT / ".github" / "workflows").glob("*.yml"), ROOT / "action.yml"]
    used = [line.strip() for file in files for line in file.read_text("utf-8").splitlines()]
    used = [line.removeprefix("- ") for line in used if re.match(r"(- )?uses:", line)]
    assert len(used) > 8
    pinned = re.compile(r"uses: [\w-]+/[\w/-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+")
    assert [line for line in used if not pinned.fullmatch(line)] == []


@pytest.mark.parametrize("group", ["build", "wheel", "sbom"])
def test_what_builds_is_locked_by_digest(group):
    """Each package that a group names has one version, and each file of it a digest."""
    text = (ROOT / ".ci" / "locks" / f"{group}.txt").read_text("utf-8")
    entries = re.split(r"\n(?=[a-z])", text)[1:]
    locked = {re.match(r"([\w.-]+)==([\w.]+)", entry)[1] for entry in entries}
    assert all("--hash=sha256:" in entry for entry in entries)
    named = PROJECT["dependency-groups"][group]
    words = [line for line in named if isinstance(line, str)]
    assert {re.match(r"[\w-]+", line)[0].lower().replace("_", "-") for line in words} <= locked
