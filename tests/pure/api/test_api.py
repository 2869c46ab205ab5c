"""The Python API: what `critpath` offers, what it takes, what the answer gives."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
import types
from pathlib import Path

import pytest

import critpath as cp
from critpath import api
from critpath.documents import CalibrationDocument

REQUESTS = "events:app:request_begin,app:request_end,key=id"


@pytest.fixture(scope="module")
def sets(extracted):
    return tuple(cp.load(extracted(name)) for name in ("normal", "sample-lock"))


@pytest.fixture(scope="module")
def answer(sets):
    return cp.compare(*sets)


def test_all_is_what_there_is_and_every_name_leads_somewhere():
    assert sorted(set(dir(cp)) - {"__version__"}) == sorted(cp.__all__)
    assert all(getattr(cp, name) for name in cp.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        cp.nothing  # noqa: B018 - that it raises
    # A package or module of a name of the API takes its place once it is imported: it is called.
    package = Path(cp.__file__).parent
    taken = [n for n in cp.__all__ if (package / n).exists() or (package / f"{n}.py").exists()]
    assert taken == ["ab", "explore", "requests"]
    for name in taken:
        found = getattr(cp, name)
        assert found is importlib.import_module(f"critpath.{name}")
        assert inspect.signature(found) == inspect.signature(getattr(api, name))


def test_sources_are_str_path_or_lists_of_them(guest, sets):
    place = guest("sample-lock")
    for sources in (str(place), [place], (str(place),), iter([place])):
        assert cp.extract(sources, execution=REQUESTS).executions.id == sets[1].executions.id
    assert cp.compare(str(guest("normal")), place, execution=REQUESTS).verdict == "anomaly"


def test_the_answer_is_short_where_it_is_shown(answer, sets):
    assert type(answer) is cp.Comparison
    lines = repr(answer).splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("SLOWER: `cpu` requests ")
    assert lines[1].startswith("(11 requests after, 105 before, 3 causes, 10 findings, 0 of ")
    assert repr(sets[0]).startswith("PathSet: 105 runs of 1 recording\n(events:app:")
    for shown in (*sets, answer.causes, answer.findings, answer.states, answer.executions):
        assert len(repr(shown)) < 6000
    assert len(repr(answer.sample.executions)) < 100
    assert len(repr(answer.analysis.sample_vectors)) < 100


def test_records_are_sequences_and_tables(answer):
    causes = answer.causes
    assert len(causes) == len(list(causes)) == 3
    facts = causes[0].facts
    assert (facts.state, facts.peer, facts.executions, facts.of) == ("RUN", "holder", 4, 11)
    assert causes[0].executions == ["0", "4", "8", "10"]
    assert [cause.minor for cause in causes[:2]] == [False, False]
    frame = causes.to_pandas()
    assert frame["executions"].tolist() == [4, 1, 2]
    assert frame["contribution"][0] == causes[0].contribution
    due = [name for name in frame.columns if name.startswith("facts_because_")]
    assert frame[due].sum(axis=1).tolist() == [round(cause.contribution) for cause in causes]
    executions = answer.executions
    assert [sum(e.set == name for e in executions) for name in ("normal", "sample")] == [105, 11]
    arrow = executions.to_arrow()
    assert arrow["duration_ns"].to_pylist() == [e.end - e.begin for e in executions]
    assert arrow["score"].null_count == 105
    # Whole numbers stay whole where some are missing.
    assert str(answer.findings.to_pandas()["tid"].dtype).lower() == "int64"
    assert answer.states[-1].state == "total"
    assert answer.states[-1].flagged


def test_what_is_saved_is_loaded(answer, sets, tmp_path):
    answer.save(tmp_path / "answer.json")
    loaded = cp.load_comparison(str(tmp_path / "answer.json"))
    assert type(loaded) is cp.Comparison
    for how in ("to_html", "to_json", "to_markdown", "_repr_html_", "__repr__", "to_dict"):
        assert getattr(loaded, how)() == getattr(answer, how)(), how
    assert loaded.settings == answer.settings
    assert list(loaded.findings) == list(answer.findings)
    with pytest.raises(cp.UsageError, match="has no paths"):
        loaded.normal  # noqa: B018 - that it raises
    sets[1].save(str(tmp_path / "sample.parquet"))
    again = cp.load(tmp_path / "sample.parquet")
    assert again.to_arrow().to_pylist() == sets[1].to_arrow().to_pylist()
    assert cp.compare(sets[0], again).to_json() == answer.to_json()


def test_reports_are_returned_or_written(answer, tmp_path):
    assert answer.to_html(tmp_path / "report.html") is None
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == answer.to_html()
    answer.to_markdown(str(tmp_path / "report.md"))
    assert (tmp_path / "report.md").read_text(encoding="utf-8") == answer.to_markdown()
    assert answer.to_markdown().startswith("**▲ Slower: `cpu` requests ")
    assert json.loads(answer.to_json())["format"] == "critpath/comparison/1"
    assert json.loads(answer.to_json()) == json.loads(json.dumps(answer.to_dict()))


def test_a_calibration_is_short(sets):
    calibration = cp.calibrate(sets[0], splits=2, sizes=(5,))
    assert isinstance(calibration, CalibrationDocument)
    assert repr(calibration).startswith("CALIBRATED: ")
    assert len(repr(calibration)) < 500


WRONG = {
    "a number": (lambda _: cp.extract(3), "3 (int) is no source"),
    "a list of numbers": (lambda _: cp.extract([3]), "3 (int) is no path"),
    "bytes": (lambda _: cp.extract(b"x"), "is no source"),
    "nothing": (lambda _: cp.extract([]), "the list of sources is empty"),
    "an empty name": (lambda _: cp.extract(""), "is no path"),
    "what was extracted": (lambda s: cp.extract(s[0]), "was extracted before"),
    "an unknown reader": (lambda _: cp.extract("x", reader="y"), "is not auto or native"),
    "an execution of a set": (lambda s: cp.compare(*s, execution="thread"), "was read before"),
    "an unknown setting": (lambda s: cp.compare(*s, alhpa=1), "alhpa is no setting"),
    "a level out of range": (lambda s: cp.compare(*s, alpha=5), "alpha=5 is not a level"),
    "a dict of settings": (lambda s: cp.compare(*s, {"alpha": 1}), "is no CompareSettings"),
    "a wrong rule": (lambda s: cp.compare(*s, cp.CompareSettings(rule="x")), "rule='x' is not"),
    "a level that is no table": (lambda s: cp.compare(*s, level=3), "level=3 is no level"),
    "None as a set": (lambda s: cp.compare(s[0], None), "None (NoneType) is no source"),
    "no count": (lambda s: cp.calibrate(s[0], splits="x"), "are no counts"),
    "None to load": (lambda _: cp.load(None), "is no path"),
    "a place that is not there": (lambda s: s[0].save("/nowhere/x"), "cannot write /nowhere/x"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_said_in_two_lines(sets, what):
    act, said = WRONG[what]
    with pytest.raises(cp.UsageError, match=re.escape(said)) as caught:
        act(sets)
    assert caught.value.do


def test_what_cannot_be_read_is_said(tmp_path, guest):
    for load in (cp.extract, cp.load, cp.load_comparison):
        with pytest.raises(cp.UnreadableError, match="nowhere"):
            load(tmp_path / "nowhere")
    with pytest.raises(cp.UnreadableError, match="holds no saved paths"):
        cp.load(guest("normal"))
    (tmp_path / "paths.json").write_text("{}")
    with pytest.raises(cp.UnreadableError, match="format"):
        cp.load_comparison(tmp_path / "paths.json")


def test_without_pandas_the_error_says_what_to_install(answer, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        answer.causes.to_pandas()


def test_nothing_of_the_api_is_a_module():
    modules = {n for n in cp.__all__ if isinstance(getattr(cp, n), types.ModuleType)}
    assert modules == {"ab", "explore", "requests"}  # which can be called


# ------------------------------------------------------------------------------ more to ask


def test_exploring_says_what_the_command_says(sets, tmp_path):
    found = cp.explore(*sets, given=["label == 'cpu'"], what="latency >= 8ms")
    assert found.to_dict()["format"] == "critpath/exploration/1"
    assert repr(found).splitlines() == list(found.sentences)
    assert "5 of 20 `cpu` requests" in found.sentences[0]
    found.to_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>")
    assert len(found.conditions) == found.conditions.to_arrow().num_rows
    for wrong in ({"given": "label == 'cpu'"}, {"depth": 3}, {"what": "nothing =="}):
        with pytest.raises(cp.UsageError):
            cp.explore(*sets, **wrong)


def test_requests_by_service_and_as_tables(unpack):
    place = unpack(Path(__file__).parents[3] / "fixtures/requests/memcached.tar.xz") / "memcached"
    found = cp.requests(place)
    [service] = found.services
    assert (service.requests, found.services.to_arrow()["requests"].to_pylist()) == (320, [320])
    assert found.tables["requests"].num_rows == 320
    assert "memcached:" in repr(found).splitlines()[-1]
    json.loads(found.to_json())


def test_requests_need_sockets(guest):
    with pytest.raises(cp.UnreadableError, match="no events of sockets"):
        cp.requests(guest("normal"))


def test_a_query_has_an_arrow_table(guest):
    pytest.importorskip("duckdb")
    table = cp.query(
        guest("sample-lock"), "select label, count(*) n from facts group by 1", execution=REQUESTS
    )
    assert sum(table["n"].to_pylist()) == 11
    for wrong in ("", "select nothing from nowhere"):
        with pytest.raises(cp.UsageError):
            cp.query(guest("sample-lock"), wrong, execution=REQUESTS)


def test_what_no_command_is_is_refused():
    for command in ("sleep 1", []):
        with pytest.raises(cp.UsageError, match="is no command"):
            cp.ab(command, ["true"])


def test_causes_are_a_line_each(answer):
    head, *lines = repr(answer.causes).splitlines()[1:]
    assert head.split() == ["contribution", "share", "executions", "sentence"]
    assert len(lines) == len(answer.causes)
    assert all(cause.sentence in line for cause, line in zip(answer.causes, lines, strict=True))
    assert len(repr(answer.executions).splitlines()) == 13
