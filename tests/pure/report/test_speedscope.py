"""speedscope profiles hold to the rules of the format."""

from __future__ import annotations

import json
from dataclasses import replace

import jsonschema
import numpy as np
from detailing import texts_of
from hypothesis import given
from hypothesis import strategies as st

from critpath.model import ChainTimes, State
from critpath.model.stacks import Frame
from critpath.report.document.comparison import comparison_document
from critpath.report.exports.as_collapsed import collapsed_stacks, write_collapsed
from critpath.report.exports.as_perfetto import perfetto_trace
from critpath.report.exports.as_speedscope import speedscope_profiles
from critpath.report.exports.exported import Exported, read_aligned_executions
from critpath.report.palette import LOOKS

COUNT = {"type": "integer", "minimum": 0}
# The rules of the format for what we use of it, in words of our own.
SCHEMA = {
    "type": "object",
    "required": ["$schema", "shared", "profiles"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"const": "https://www.speedscope.app/file-format-schema.json"},
        "name": {"type": "string"},
        "exporter": {"type": "string"},
        "activeProfileIndex": COUNT,
        "shared": {
            "type": "object",
            "required": ["frames"],
            "additionalProperties": False,
            "properties": {
                "frames": {
                    "type": "array",
                    "uniqueItems": True,
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "additionalProperties": False,
                        "properties": {"name": {"type": "string", "minLength": 1}},
                    },
                }
            },
        },
        "profiles": {
            "type": "array",
            "items": {
                "type": "object",
                "required": [
                    *("type", "name", "unit", "startValue", "endValue", "samples", "weights")
                ],
                "additionalProperties": False,
                "properties": {
                    "type": {"const": "sampled"},
                    "name": {"type": "string", "minLength": 1},
                    "unit": {"const": "nanoseconds"},
                    "startValue": {"const": 0},
                    "endValue": COUNT,
                    "samples": {
                        "type": "array",
                        "items": {"type": "array", "minItems": 2, "maxItems": 3, "items": COUNT},
                    },
                    "weights": {"type": "array", "items": COUNT},
                },
            },
        },
    },
}


def read(sets):
    text = b"".join(speedscope_profiles(sets))
    assert text.isascii()
    found = json.loads(text)
    jsonschema.validate(found, SCHEMA)
    for profile in found["profiles"]:
        assert len(profile["samples"]) == len(profile["weights"])
        assert sum(profile["weights"]) == profile["endValue"]
        assert all(i < len(found["shared"]["frames"]) for s in profile["samples"] for i in s)
    return found


def check(found, sets):
    frames = [frame["name"] for frame in found["shared"]["frames"]]
    profiles = iter(found["profiles"])
    for one in sets:
        paths = one.paths.paths
        for i in range(len(paths)):
            profile = next(profiles)
            rows = range(paths.start[i], paths.start[i + 1])
            assert profile["weights"] == [paths.end[r] - paths.begin[r] for r in rows]
            for r, stack in zip(rows, profile["samples"], strict=True):
                thread, state, *detail = (frames[f] for f in stack)
                assert thread.endswith(f" {paths.tid[r]}")
                assert state == LOOKS[State(int(paths.state[r])).name].words
                said = texts_of(paths)[r]
                assert detail == ([said] if said else [])
    assert next(profiles, None) is None


def test_a_profile_per_execution(factory):
    comparison = factory.comparison()
    for sets in (
        [Exported("normal", comparison.normal)],
        [Exported("normal", comparison.normal), Exported("sample", comparison.sample)],
        [read_aligned_executions(comparison_document(comparison), "c.json", ())],
        [Exported("none", factory.comparison(samples=0, anomalous=0).sample)],
    ):
        found = read(sets)
        check(found, sets)
        assert found["name"] == " and ".join(one.name for one in sets)


@given(st.integers(0, 5), st.integers(3, 30), st.integers(0, 2**31))
def test_any_set(factory, executions, columns, seed):
    made = factory.comparison(samples=executions, anomalous=0, columns=columns, seed=seed)
    sets = [Exported("s", made.sample)]
    check(read(sets), sets)


def test_functions_stand_below_the_state_and_in_perfetto(factory):
    paths = factory.comparison(anomalous=0, samples=1).sample
    stack = np.full(len(paths.paths.begin), -1, np.int32)
    stack[0] = 0
    stacks = ((Frame("in\x1b", "/srv/app/a.c", 7, "app"), Frame("main", "", 0, "app")),)
    changed = replace(paths, paths=replace(paths.paths, stack=stack, stacks=stacks))
    sets = [Exported("s", changed)]
    found = json.loads(b"".join(speedscope_profiles(sets)))
    names = [frame["name"] for frame in found["shared"]["frames"]]
    shown = [names[n] for n in found["profiles"][0]["samples"][0]]
    assert shown[-2] == "main (app)"
    assert shown[-1].endswith("(app/a.c:7)")
    assert "\x1b" not in shown[-1]
    assert f"{shown[-2]} > {shown[-1]}".encode() in b"".join(perfetto_trace(sets))


def test_collapsed_stacks_add_up_to_the_time(factory):
    comparison = factory.comparison(anomalous=1, samples=2)
    normal, sample = comparison.normal, comparison.sample
    one = [Exported("sample", sample)]
    lines = b"".join(write_collapsed(one)).decode().splitlines()
    whole = int((sample.paths.end - sample.paths.begin).sum())
    assert sum(int(line.rpartition(" ")[2]) for line in lines) == whole
    assert {tuple(line.split(";")[:2]) for line in lines} == {("mixed", "worker")}
    sets = [Exported("normal", normal), *one]
    both = b"".join(write_collapsed(sets)).decode().splitlines()
    figures = [tuple(map(int, line.split(" ")[-2:])) for line in both]
    assert abs(sum(after for _, after in figures) - whole / len(sample)) <= len(both)


def test_a_name_ends_no_stack_and_no_line():
    name = "\tf;g\nh (a b.c)"
    one = np.array([[5]])
    times = ChainTimes(((), ("w;x\n 7",), ("w;x\n 7", name)), ((2, State.RUN),), one, one)
    heads = [("a;b", "main")]
    [line] = b"".join(collapsed_stacks(times, (heads, heads), two=False)).decode().splitlines()
    assert line.count(";") == 4
    assert line.endswith(" 5")
