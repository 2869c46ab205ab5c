"""``critpath export`` of a comparison that was really made."""

from __future__ import annotations

import json
from io import StringIO

import duckdb
import networkx as nx
import pandas as pd
import polars as pl
from Bio import Align, Phylo
from perfetto.protos.perfetto.trace import perfetto_trace_pb2


def test_alignments_and_trees_of_a_comparison(critpath, answer, tmp_path):
    saved = tmp_path / "c.json"
    saved.write_bytes(answer("sample-lock").json)
    document = answer("sample-lock").plain
    aligned, letters = document["aligned"], [s["letter"] for s in document["symbols"]]
    assert len(aligned) > 1
    text = critpath("export", saved, "--format", "stockholm").stdout
    for one, read in zip(aligned, Align.parse(StringIO(text), "stockholm"), strict=True):
        for row, shown in zip(one["rows"], read, strict=True):
            assert shown == "".join("-" if s < 0 else letters[s] for s in row["symbols"])
        assert read.sequences[-1].annotations["id"] == one["execution"]
        assert {len(track) for track in read.column_annotations.values()} == {one["columns"]}
    trees = StringIO(critpath("export", saved, "--format", "newick").stdout)
    for one, tree in zip(aligned, Phylo.parse(trees, "newick"), strict=True):
        leaves = [leaf.name for leaf in tree.get_terminals()]
        assert len(set(leaves)) == len(leaves) == len(one["rows"])
        assert f"s_{one['execution']}" in leaves


SPECIFICATION = ("--execution", "events:app:request_begin,app:request_end,key=id", "--quiet")


def test_every_format_of_a_recording_holds_the_same_paths(critpath, guest, tmp_path):
    """The same executions, segments and nanoseconds, whatever the program that reads them."""
    source = guest("sample-lock")
    shown = critpath("path", source, *SPECIFICATION, "--format", "json")
    paths = [json.loads(line) for line in shown.stdout.splitlines()]
    segments = [len(path["segments"]) for path in paths]
    time = [path["end"] - path["begin"] for path in paths]
    assert len(paths) == 11

    for verb in ("path", "export"):
        out = tmp_path / verb
        out.mkdir()
        for name in ("t.pftrace", "t.speedscope.json"):
            assert critpath(verb, source, *SPECIFICATION, "-o", out / name).returncode == 0
        for name in ("segments", "vectors"):
            file = out / f"{name}.parquet"
            done = critpath(verb, source, *SPECIFICATION, "--format", name, "-o", file)
            assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        trace = perfetto_trace_pb2.Trace()
        trace.ParseFromString((out / "t.pftrace").read_bytes())
        events = [packet for packet in trace.packet if packet.HasField("track_event")]
        assert len(events) == 2 * (2 * sum(segments) + len(paths))
        assert min(e.timestamp for e in events) == min(path["begin"] for path in paths)
        profiles = json.loads((out / "t.speedscope.json").read_text())["profiles"]
        assert [len(profile["samples"]) for profile in profiles] == segments
        assert [profile["endValue"] for profile in profiles] == time
        rows = duckdb.execute(
            "SELECT count(*), sum(duration_ns)::BIGINT, count(wakes) > 0 "
            "FROM read_parquet(?) GROUP BY position ORDER BY position",
            [str(out / "segments.parquet")],
        ).fetchall()
        assert [(count, ns) for count, ns, _ in rows] == list(zip(segments, time, strict=True))
        assert any(wakes for _, _, wakes in rows)
        vectors = pl.read_parquet(out / "vectors.parquet")
        counts = [name for name in vectors.columns if name.startswith("count_")]
        assert vectors.select(pl.sum_horizontal(counts)).to_series().to_list() == segments
        assert vectors["segments"].to_list() == segments
        assert vectors["duration_ns"].to_list() == time
    # Both verbs, the same bytes: but for what the set is called, and that is the same here.
    for file in sorted((tmp_path / "path").iterdir()):
        assert file.read_bytes() == (tmp_path / "export" / file.name).read_bytes()


def test_extract_files_and_directories_are_sources_too(critpath, guest, extracted, tmp_path):
    normal, saved = guest("normal"), extracted("sample-lock")
    out = tmp_path / "v.parquet"
    done = critpath("export", normal, saved, *SPECIFICATION, "--format", "vectors", "-o", out)
    assert done.returncode == 0
    found = pd.read_parquet(out)
    assert found.groupby("set").size().to_dict() == {str(normal): 105, str(saved): 11}
    assert found["cluster"].isna().all()
    # One alphabet: what only one of the sets has is 0 in the other.
    assert found.filter(like="count_").notna().all(axis=None)
    (about,) = duckdb.execute(
        "SELECT decode(value) FROM parquet_kv_metadata(?) WHERE decode(key) = 'critpath'",
        [str(out)],
    ).fetchall()
    symbols = {s["column"]: s for s in json.loads(about[0])["symbols"]}
    assert symbols["RUN_at_holder"] == {"column": "RUN_at_holder", "state": "RUN", "role": "holder"}
    assert {f"count_{name}" for name in symbols} == set(found.filter(like="count_").columns)


def test_a_window_as_a_graph(critpath, guest, tmp_path):
    source, file = guest("sample-lock"), tmp_path / "w.graphml"
    done = critpath("path", source, *SPECIFICATION, "--id", "8", "-o", file)
    assert (done.returncode, done.stderr) == (0, "")
    graph = nx.read_graphml(file, force_multigraph=True)
    assert any(data["critical"] for _, _, data in graph.edges(data=True))
    again = critpath("path", source, *SPECIFICATION, "--id", "8", "--format", "networkx")
    assert again.stdout == file.read_text(encoding="utf-8")
    every = ("--id", "8", "--format", "graphml", "--all-threads")
    whole_file = critpath("path", source, *SPECIFICATION, *every)
    assert whole_file.stderr == ""
    all_threads = nx.parse_graphml(whole_file.stdout, force_multigraph=True)
    assert set(graph) < set(all_threads)
    threads = {data["worker"] for _, data in graph.nodes(data=True)}
    others = {data["worker"] for _, data in all_threads.nodes(data=True)} - threads
    left_out = len(all_threads) - len(graph)
    loud = [option for option in SPECIFICATION if option != "--quiet"]
    said = critpath("path", source, *loud, "--id", "8", "-o", file, "--force").stderr
    assert said.endswith(
        f"{left_out} vertices of {len(others)} threads beside the path left out, "
        f"{len(graph)} written; --all-threads has all\n"
    )
    window = ("--from", str(graph.graph["begin"]), "--to", str(graph.graph["end"]), "--quiet")
    whole = nx.parse_graphml(
        critpath("path", source, *window, "--format", "graphml").stdout, force_multigraph=True
    )
    # The same window; with a path to mark, intervals are cut where it leaves and arrives.
    assert set(whole) <= set(all_threads)
    saved = tmp_path / "saved.parquet"
    assert (
        critpath("export", "--format", "paths", source, *SPECIFICATION, "-o", saved).returncode == 0
    )
    for arguments, says in (
        ((source, *SPECIFICATION, "--format", "graphml"), "graph of one window"),
        ((source, *SPECIFICATION, "--id", "99"), "has no run 99"),
        ((saved, "--quiet", "--id", "8", "--format", "graphml"), "holds paths alone"),
        ((source, "--quiet", "--from", "1", "--to", "2", "--format", "graphml"), "nothing was"),
        ((source, *SPECIFICATION, "--id", "8", "-o", file), "exists already"),
        ((source, *SPECIFICATION, "--all-threads"), "--all-threads is for the graph"),
        ((source, *SPECIFICATION, "-o", tmp_path / "x.parquet"), "says segments or vectors"),
    ):
        refused = critpath("path", *arguments)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert says in refused.stderr
        assert len(refused.stderr.splitlines()) == 2
    # An extract file has the paths themselves, as text, too.
    out = tmp_path / "8.txt"
    words = ("path", saved, "--quiet", "--id", "8", "--segments")
    assert critpath(*words, "-o", out).returncode == 0
    assert out.read_text() == critpath(*words).stdout
    assert out.read_text().startswith("worker-1 333, 8 ")
