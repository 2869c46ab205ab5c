"""``critpath export``: which alignments go where, and what is refused."""

from __future__ import annotations

import importlib.util
import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from Bio import Align, Phylo

from critpath.commands import main
from critpath.commands.export import FORMATS
from critpath.report.document.as_json import to_json
from critpath.report.document.comparison import comparison_document


@pytest.fixture(scope="module")
def factory():
    path = Path(__file__).resolve().parents[1] / "report" / "factory.py"
    spec = importlib.util.spec_from_file_location("critpath_export_factory", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def saved(factory):
    """Return a comparison as JSON; the factory's trees have two leaves, so these have all."""
    document = comparison_document(factory.comparison())
    for one in document.aligned:
        one.tree = "(" + ",".join(f"{i}:1" for i in range(len(one.rows))) + ");"
    return to_json(document)


@pytest.fixture
def export(tmp_path, monkeypatch, capsys, saved):
    monkeypatch.chdir(tmp_path)
    Path("c.json").write_text(saved, encoding="utf-8")

    def call(*arguments):
        code = main(["export", *map(str, arguments)])
        captured = capsys.readouterr()
        return SimpleNamespace(code=code, out=captured.out, err=captured.err)

    return call


def refused(done, says, code=2):
    assert done.code == code
    assert done.out == ""
    assert says in done.err
    assert len(done.err.splitlines()) == 2
    return done.err


def test_one_alignment_by_the_name_of_the_file(export):
    for name, as_ in (("a.fasta", "fasta"), ("b.ALN", "clustal"), ("c.sto", "stockholm")):
        done = export("c.json", "-o", name, "--id", "2")
        assert (done.code, done.out) == (0, "")
        assert done.err == f"1 alignment written to {name}\n"
        text = io.StringIO(Path(name).read_text(encoding="utf-8"))  # of a name, Bio leaves it open
        assert Align.read(text, as_).sequences[-1].id == "s_2"


def test_stockholm_and_newick_hold_all(export):
    assert export("c.json", "-o", "all.stk").err == "2 alignments written to all.stk\n"
    text = io.StringIO(Path("all.stk").read_text(encoding="utf-8"))
    assert [a.sequences[-1].id for a in Align.parse(text, "stockholm")] == ["s_1", "s_2"]
    assert export("c.json", "-o", "all.nwk").err == "2 guide trees written to all.nwk\n"
    trees = list(Phylo.parse(io.StringIO(Path("all.nwk").read_text("utf-8")), "newick"))
    assert [t.get_terminals()[-1].name for t in trees] == ["s_1", "s_2"]
    some = export("c.json", "--format", "newick", "--id", "2", "--id", "1")
    assert some.out == Path("all.nwk").read_text(encoding="utf-8")


def test_stdout_and_stdin(export, monkeypatch, saved):
    done = export("c.json", "--format", "stockholm", "--quiet")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("# STOCKHOLM 1.0\n")
    piped = SimpleNamespace(buffer=io.BytesIO(saved.encode()))
    monkeypatch.setattr(sys, "stdin", piped)
    assert export("-", "--format", "stockholm").out == done.out


def test_several_do_not_go_into_a_file_for_one(export, tmp_path):
    for as_ in ("fasta", "clustal"):
        err = refused(export("c.json", "--format", as_, "-o", "x"), "has 2")
        assert "--id (1, 2)" in err
    assert not (tmp_path / "x").exists()


def test_what_is_not_said_or_not_there_is_refused(export, factory):
    refused(export("c.json"), "which format")
    refused(export("c.json", "-o", "a.txt"), "a.txt does not say which format")
    refused(export("c.json", "--format", "perfeto"), "invalid choice")
    refused(export("c.json", "-o", "a.sto", "--id", "3"), "no alignment of run 3")
    refused(export("c.json", "-o", "a.pftrace", "--id", "3"), "has no run 3")
    refused(export("c.json", "c.json", "-o", "a.sto"), "of one saved comparison")
    # Executions of a comparison are there already: this was the option to choose some.
    err = refused(export("c.json", "-o", "a.sto", "--execution", "thread"), "already")
    assert "--id ID" in err
    err = refused(export("c.json", "-o", "a.parquet"), "says segments or vectors")
    assert "--format segments|vectors" in err
    for name in ("graphml", "networkx"):
        err = refused(export("c.json", "--format", name), "only a trace has")
        assert "critpath path TRACE" in err
    refused(export("absent.json", "-o", "a.sto"), "absent.json does not exist", 4)
    refused(export("c.json", "-o", "no/a.sto"), "no is not a directory")
    Path("c.sto").write_text("mine", encoding="utf-8")
    refused(export("c.json", "-o", "c.sto"), "exists already")
    assert Path("c.sto").read_text(encoding="utf-8") == "mine"
    assert export("c.json", "-o", "c.sto", "--force").code == 0
    refused(export("c.json", "-o", "c.json", "--format", "newick", "--force"), "input and output")
    ok = comparison_document(factory.comparison(verdict="ok", anomalous=0))
    Path("ok.json").write_text(to_json(ok), encoding="utf-8")
    refused(export("ok.json", "-o", "a.sto"), "no alignment: no run of it was found")


def test_what_is_no_comparison_is_refused(export, tmp_path):
    for content in (b"\xff", b"{}", b'{"format": "critpath/comparison/1"}'):
        (tmp_path / "x.json").write_bytes(content)
        refused(export("x.json", "-o", "a.sto"), "", 4)
    assert not (tmp_path / "a.sto").exists()


def test_formats_do_not_share_endings():
    """But for Parquet, of which there are two: that one has to be said."""
    endings = [ending for format_ in FORMATS.values() for ending in format_.endings]
    assert len(set(endings)) == len(endings) - 1
    assert endings.count(".parquet") == 2


def test_what_a_comparison_explains_goes_to_viewers(export, tmp_path):
    done = export("c.json", "-o", "c.speedscope.json")
    assert done.code == 0
    assert "c.json holds 2 paths, of what it explains, not those of 24 others" in done.err
    assert done.err.endswith("2 paths written to c.speedscope.json\n")
    profiles = json.loads((tmp_path / "c.speedscope.json").read_text())["profiles"]
    assert [p["name"] for p in profiles] == ["1 (mixed), worker 1201", "2 (mixed), worker 1201"]
    assert export("c.json", "-o", "one.PFTRACE", "--id", "2", "--quiet").err == ""
    assert (tmp_path / "one.PFTRACE").stat().st_size > 1000


def test_bytes_go_into_a_pipe_but_not_to_a_terminal(export, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", Terminal())
        for name in ("perfetto", "segments", "vectors"):
            err = refused(export("c.json", "--format", name), "stdout is a terminal")
            assert "-o FILE, or pipe it" in err
    piped = SimpleNamespace(buffer=io.BytesIO(), flush=lambda: None, isatty=lambda: False)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", piped)
        assert main(["export", "c.json", "--format", "segments", "--quiet"]) == 0
    assert piped.buffer.getvalue()[:4] == piped.buffer.getvalue()[-4:] == b"PAR1"


def test_numbers_that_no_trace_has_are_refused(export, saved, tmp_path):
    document = json.loads(saved)
    document["aligned"][0]["segments"][0]["begin"] = 2**70
    (tmp_path / "x.json").write_text(json.dumps(document), encoding="utf-8")
    refused(export("x.json", "-o", "a.pftrace"), "", 4)
    assert not (tmp_path / "a.pftrace").exists()
