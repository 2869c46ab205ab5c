"""A short campaign of changed traces; ``make mutations`` runs a long one."""

from __future__ import annotations

import faulthandler
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[2] / "fuzz"
sys.path[:0] = [str(HERE), str(HERE.parent)]

import mutate  # noqa: E402 - found by the path above
import mutate_judge  # noqa: E402 - found by the path above
import mutate_kinds  # noqa: E402 - found by the path above
import mutate_seeds  # noqa: E402 - found by the path above

INPUTS = 30


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    return mutate.make_seeds(["sample-lock", "lossy"], tmp_path_factory.mktemp("seeds"))


@pytest.fixture(scope="module")
def subjects(seeds, tmp_path_factory):
    place = tmp_path_factory.mktemp("subjects")
    return {seed.name: mutate_judge.Subject(seed, place) for seed in seeds}


def test_no_crash_no_hang_no_silent_loss(tmp_path):
    # By itself: what is forked has the memory of who forks it.
    command = [sys.executable, str(HERE / "mutate.py"), "--seeds", "sample-lock", "lossy"]
    command += ["--campaign", "7", "--inputs", str(INPUTS), "--jobs", "1"]
    command += ["--state", str(tmp_path / "state"), "--json", str(tmp_path / "found")]

    def campaign() -> tuple[dict, str]:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads((tmp_path / "found").read_text()), done.stdout

    found, said = campaign()
    assert found["inputs"] == INPUTS
    wrong = {k: found[k] for k in ("crashes", "hangs", "silent")}
    assert not any(wrong.values()), (wrong, found["findings"], found["killed"])
    assert found["salvaged"]
    assert found["identical"]
    assert found["undetectable"]
    assert found["peak"] < mutate.MEMORY
    # What was done is not done again.
    again, _ = campaign()
    assert again == found
    assert said.splitlines()[-1].startswith(f"{INPUTS:,} inputs: ")


def changed(file, data, place="packet"):
    return mutate_kinds.Mutation("field", file, bytes(data), place)


def test_every_field_of_a_packet_is_guarded(subjects, seeds):
    """Of a packet in the middle every bit of sizes, times and numbers is changed in turn."""
    seed = seeds[0]
    file = "sample-lock/trace/kernel/kernel_0"
    packet = seed.places[file][1]
    outcomes = {}
    for number, (name, (at, width)) in enumerate(packet.fields.items()):
        for bit in range(number % 5, width, 5):
            data = bytearray(seed.files[file])
            data[(at + bit) // 8] ^= 1 << (at + bit) % 8
            outcome, said = subjects["sample-lock"].judge(changed(file, data))
            assert outcome in {"salvaged", "identical", "refused"}, (name, bit, outcome, said)
            outcomes.setdefault(name, set()).add(outcome)
    assert "salvaged" in outcomes["content_size"] & outcomes["timestamp_begin"]
    assert outcomes["packet_seq_num"] == {"identical"}


def test_content_that_ends_where_an_event_ends_is_noticed(subjects, seeds):
    """Nothing is cut in two: only what lies behind it tells that there were more events."""
    seed = seeds[0]
    file = "sample-lock/trace/kernel/kernel_0"
    packet = seed.places[file][1]
    for begin, _, _ in packet.events[5:-1:9]:
        data = bytearray(seed.files[file])
        mutate_seeds.put(data, packet.fields["content_size"], begin - packet.begin)
        outcome, said = subjects["sample-lock"].judge(changed(file, data))
        assert outcome == "salvaged", said


def test_the_judge_knows_what_cannot_be_known(subjects, seeds):
    """A name in an event is believed; the same flip with a loss beside it would be, too."""
    seed = seeds[0]
    file = "sample-lock/trace/kernel/kernel_0"
    rng = random.Random(5)  # noqa: S311 - repeatable
    said = {
        subjects["sample-lock"].judge(mutate_kinds.flip_payload(rng, seed, file)) for _ in range(40)
    }
    assert ("undetectable", "payload") in said
    assert {outcome for outcome, _ in said} <= {"undetectable", "identical", "salvaged"}


def test_a_hang_and_a_crash_are_seen(seeds, monkeypatch):
    """The watchdog itself: a process that dies or never ends is known by its input."""
    whole = mutate_judge.Subject.judge
    monkeypatch.setattr(mutate, "SECONDS", 0.3)
    # What is forked has what the whole of pytest has.
    monkeypatch.setattr(mutate, "MEMORY", 1 << 40)

    def judge(self, mutation):
        if mutation.kind == "field":
            faulthandler.disable()
            os.abort()
        if mutation.kind == "flips":
            while True:
                pass
        return whole(self, mutation)

    monkeypatch.setattr(mutate_judge.Subject, "judge", judge)
    found = mutate.campaign(seeds, 7, 8, 1, None, quiet=True)
    kinds = [mutate_kinds.mutation(seeds, 7, n)[1].kind for n in range(8)]
    assert found["crashes"] == kinds.count("field") > 0
    assert found["hangs"] == kinds.count("flips") > 0
    assert found["inputs"] == 8
