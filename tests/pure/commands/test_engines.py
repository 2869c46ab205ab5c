"""``--engine`` and ``--jobs``: what is refused before any work."""

from __future__ import annotations


def test_what_it_refuses_before_any_work(critpath, tmp_path, guest):
    recording = guest("normal")
    dask = ("--engine", "dask:tcp://127.0.0.1:9")
    for options, says in (
        (("-o", "x", "--engine", "spark:tcp://a:1"), "--engine spark:tcp://a:1 is not known"),
        (("-o", "x", "--engine", "dask:a"), "a is no address"),
        (("-o", "x", "--engine", "dask:a:1"), "did you mean dask:tcp://a:1?"),
        (("-o", "x.parquet", *dask), "-o names one file"),
        (("-o", "x", "--jobs", "2", *dask), "--jobs is of this machine"),
        (("-o", "x", "--jobs", "0"), "--jobs"),
    ):
        done = critpath("export", "--format", "paths", recording, *options, cwd=tmp_path)
        assert (done.returncode, says in done.stderr) == (2, True), done.stderr
        assert list(tmp_path.iterdir()) == []
