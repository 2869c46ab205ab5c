"""Files of a later critpath, and of none that ever was, are refused with a way out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from critpath.commands import main
from critpath.store.baseline import digest_document

REQUESTS = "events:app:request_begin,app:request_end,key=id"


@pytest.fixture(scope="module")
def written(guest, extracted, answer, tmp_path_factory) -> Path:
    """Every format that critpath reads, as this critpath writes it."""
    home = tmp_path_factory.mktemp("formats")
    lock, normal = guest("sample-lock"), guest("normal")
    reading = ("--execution", REQUESTS, "--quiet")
    for argv in (
        ("export", "--format", "paths", extracted("sample-lock"), "-o", f"{home}/dataset/"),
        ("baseline", "save", extracted("normal"), "-o", home / "baseline.json"),
        ("path", lock, *reading, "--id", "8", "--format", "json", "-o", home / "path.json"),
    ):
        assert main([str(word) for word in argv]) in {0, 1}
    shutil.copy(extracted("normal"), home / "paths.parquet")
    (home / "comparison.json").write_bytes(answer("sample-lock").json)
    shutil.copytree(normal, home / "recording")
    (home / "recording" / "critpath.json").write_text('{"format": "critpath/recording/1"}')
    return home


def in_json(file: Path, format_: str) -> None:
    text = file.read_text(encoding="utf-8")
    name = json.loads(text)["format"]
    file.write_text(text.replace(f'"{name}"', f'"{name.rpartition("/")[0]}/{format_}"'))


def in_parquet(file: Path, format_: str) -> None:
    table = pq.read_table(file)
    about = json.loads(table.schema.metadata[b"critpath"])
    about["format"] = f"critpath/paths/{format_}"
    pq.write_table(table.replace_schema_metadata({"critpath": json.dumps(about)}), file)


# What is changed, how, and the command that reads it.
READ: dict[str, tuple[str, Callable[[Path, str], None], tuple[str, ...]]] = {
    "paths": ("paths.parquet", in_parquet, ("report", "paths.parquet")),
    "dataset": ("dataset/_critpath.json", in_json, ("compare", "paths.parquet", "dataset")),
    "baseline": ("baseline.json", in_json, ("compare", "baseline.json", "dataset")),
    "comparison": ("comparison.json", in_json, ("report", "comparison.json")),
    "path": ("path.json", in_json, ("report", "path.json")),
    "recording": (
        "recording/critpath.json",
        in_json,
        ("path", "recording", "--execution", REQUESTS),
    ),
}


@pytest.fixture
def place(written, tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(shutil.copytree(written, tmp_path / "here"))
    return tmp_path / "here"


@pytest.mark.parametrize("what", READ)
@pytest.mark.usefixtures("place")
def test_what_this_critpath_wrote_is_read(capsys, what):
    assert main([*READ[what][2], "--quiet"]) in {0, 1}
    assert capsys.readouterr().out


@pytest.mark.parametrize("version", ["0", "9", "x"])
@pytest.mark.parametrize("what", READ)
def test_another_version_is_refused_with_a_way_out(place, capsys, what, version):
    file, change, command = READ[what]
    change(place / file, version)
    before = {p: p.stat().st_mtime_ns for p in place.rglob("*")}
    assert main(list(command)) == 4
    said = capsys.readouterr()
    assert said.out == ""
    problem, way_out = said.err.splitlines()
    assert f"critpath/{what}/{version}" in problem
    newest = 2 if what in {"recording", "paths", "baseline"} else 1
    assert f"critpath/{what}/{newest}" in problem  # which it reads
    assert "critpath" in way_out
    assert {p: p.stat().st_mtime_ns for p in place.rglob("*")} == before


def test_keys_that_a_later_critpath_adds_are_passed_over(place, capsys):
    """Fields may be added without a new version: an older reader leaves them alone."""
    for name in ("baseline.json", "comparison.json", "recording/critpath.json"):
        document = json.loads((place / name).read_text(encoding="utf-8"))
        later = {**document, "later": [1, {"a": None}]}
        if "digest" in document:
            later["digest"] = digest_document(later)
        (place / name).write_text(json.dumps(later))
    table = pq.read_table(place / "paths.parquet")
    about = {**json.loads(table.schema.metadata[b"critpath"]), "later": [1]}
    metadata: dict[str | bytes, str | bytes] = {"critpath": json.dumps(about)}
    pq.write_table(pa.Table.replace_schema_metadata(table, metadata), place / "paths.parquet")
    for command in (
        ("report", "paths.parquet"),
        ("report", "comparison.json"),
        ("baseline", "show", "baseline.json"),
    ):
        assert main([*command, "--quiet"]) == 0, capsys.readouterr().err
    assert main(["path", "recording", "--execution", REQUESTS, "--quiet"]) == 0
