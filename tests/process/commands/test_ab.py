"""The command critpath ab: what it runs, prints, writes and exits with."""

from __future__ import annotations

import json
import mmap
import re
import signal
import subprocess
import sys

import pytest

from critpath.errors import UsageError
from critpath_record.slots import Counter


@pytest.fixture
def ab(critpath):
    """Run it here; where it takes signals it is a process."""

    def call(*arguments):
        return critpath("ab", "--trace", "none", *arguments)

    return call


@pytest.fixture
def refused(critpath):
    """Run it here: nothing is measured where it is refused."""

    def call(*arguments):
        done = critpath("ab", "--trace", "none", *arguments)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 2
        return done.stderr

    return call


def counting(place):
    """Return a command that appends a line to a file."""
    return "sh", "-c", f"echo x >> {place}"


def test_a_clear_difference(ab, tmp_path):
    done = ab("--seed", "5", "--slot", "1", "-o", tmp_path / "kept", "--json", tmp_path / "ab.json",
              "--", "sleep", "0.005", "--", "sleep", "0.03")  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("SLOWER: B takes ")
    assert "seed 5" in done.stdout
    assert "up to 200 blocks" in done.stderr
    document = json.loads((tmp_path / "ab.json").read_text())
    assert document["verdict"] == "slower"
    assert document["stopped_by"] == "e"
    assert len(document["block_log"]) == document["blocks"]
    kept = (tmp_path / "kept" / "ab.json").read_bytes()
    assert kept == (tmp_path / "ab.json").read_bytes()
    again = ab("--again", tmp_path / "kept", "--json", tmp_path / "again.json")
    assert again.returncode == 1
    assert again.stdout == done.stdout
    assert (tmp_path / "again.json").read_bytes() == kept


def test_both_sides_run_as_often_and_nothing_more(ab, tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    done = ab(
        "--max-blocks", "3", "--slot", "2", "--json", "-", "--", *counting(a), "--", *counting(b)
    )
    assert done.returncode == 3, done.stderr
    document = json.loads(done.stdout)
    assert document["stopped_by"] == "max_blocks"
    assert document["executions"] == {"a": 12, "b": 12}
    # Two of the warm-up, and two slots of two executions in each block.
    assert len(a.read_text().split()) == len(b.read_text().split()) == 14


def test_what_commands_print_is_not_shown(ab):
    done = ab("--max-blocks", "1", "--slot", "1", "--", "echo", "said", "--", "echo", "said")
    assert "said" not in done.stdout + done.stderr
    assert "A/A run" in done.stdout
    shown = ab(
        "--max-blocks", "1", "--slot", "1", "--show-output", "--", "echo", "said", "--", "true"
    )
    assert "said" in shown.stdout


def test_a_command_that_fails_at_once(ab, tmp_path):
    done = ab("-o", tmp_path / "kept", "--", "true", "--", "false")
    assert done.returncode == 4
    assert "B fails before anything is measured: false" in done.stderr
    assert not (tmp_path / "kept").exists()
    assert list(tmp_path.iterdir()) == []


def test_a_command_that_fails_later(ab, tmp_path):
    place = tmp_path / "n"
    line = f"echo x >> {place}; test $(wc -l < {place}) -lt 4"
    done = ab("--slot", "1", "--", "true", "--", "sh", "-c", line)
    assert done.returncode == 4
    assert done.stdout.startswith("INVALID: B failed")


def test_a_timeout_is_a_failure_and_ends_the_whole_tree(ab, tmp_path):
    line = f"test -e {tmp_path}/hang && sleep 60 & wait; touch {tmp_path}/hang"
    done = ab("--timeout", "0.2s", "--slot", "1", "--", "true", "--", "sh", "-c", f"{line}; wait")
    assert done.returncode in {3, 4}


def test_prepare_runs_before_every_slot(ab, tmp_path):
    done = ab("--max-blocks", "2", "--slot", "3", "--prepare", f"echo x >> {tmp_path}/n",
              "--", "true", "--", "true")  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert len((tmp_path / "n").read_text().split()) == 4 + 8


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--", "true"), "two commands are needed"),
        (("--", "true", "--"), "a command is empty"),
        (("--until", "0", "--", "true", "--", "true"), "can never be shown"),
        (("--until", "10", "--", "true", "--", "true"), "did you mean"),
        (("--tail", "99", "--", "true", "--", "true"), "a percentile"),
        (("--time", "soon", "--", "true", "--", "true"), "a time such as"),
    ],
)
def test_usage(refused, arguments, says):
    assert says in refused(*arguments)


def test_a_time_that_cannot_suffice_is_refused_with_the_arithmetic(ab):
    done = ab("--time", "1s", "--slot", "1", "--", "sleep", "0.1", "--", "sleep", "0.1")
    assert done.returncode == 2
    assert "9 blocks of 4 slots" in done.stderr


def test_a_command_that_is_not_there(ab):
    done = ab("--", "true", "--", "no-such-command")
    assert done.returncode == 127
    assert "command not found" in done.stderr


def test_again_of_something_else(critpath, refused, tmp_path):
    (tmp_path / "x.json").write_text("{}")
    assert critpath("ab", "--again", tmp_path / "x.json").returncode == 4
    assert critpath("ab", "--again", tmp_path / "none").returncode == 4
    refused("--again", tmp_path / "x.json", "--", "true", "--", "true")


def test_ctrl_c_gives_the_verdict_so_far(tmp_path):
    command = [sys.executable, "-m", "critpath", "ab", "--trace", "none", "--max-blocks", "100000",
               "--time", "1h", "--json", str(tmp_path / "ab.json"), "-v",
               "--", "sleep", "0.03", "--", "sleep", "0.031"]  # fmt: skip
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        for line in run.stderr:
            if line.startswith("block 2,"):
                run.send_signal(2)
                break
        out, _ = run.communicate()
    assert run.returncode == 3
    assert out.startswith("UNDECIDED: after ")
    assert json.loads((tmp_path / "ab.json").read_text())["stopped_by"] == "user"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_from_outside_is_no_verdict_and_leaves_everything_whole(tmp_path, number):
    command = [sys.executable, "-m", "critpath", "ab", "--trace", "none", "--max-blocks", "100000",
               "--time", "1h", "--json", str(tmp_path / "ab.json"), "-o", str(tmp_path / "kept"),
               "-v", "--", "sleep", "0.03", "--", "sleep", "0.031"]  # fmt: skip
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        for line in run.stderr:
            if line.startswith("block 2,"):
                run.send_signal(number)
                break
        out, _ = run.communicate()
    # As of any program that the signal ends: no gate takes it for an answer.
    assert run.returncode == 128 + signal.SIGTERM
    assert "ended by a signal from outside, such as a job's time limit" in out
    assert "Ctrl-C" not in out
    document = json.loads((tmp_path / "ab.json").read_text())
    assert document["stopped_by"] == "signal"
    assert json.loads((tmp_path / "kept" / "ab.json").read_text()) == document
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ab.json", "kept"]


def test_what_no_processor_counts_is_refused(ab, refused):
    done = ab("--of", "instructions", "--max-blocks", "1", "--", "true", "--", "true")
    if done.returncode == 2:
        assert re.fullmatch(
            r"critpath: (this machine counts no instructions: a virtual machine often has no "
            r"counters\n  give --of run \(time on a cpu\), which every machine has|"
            r"instructions may not be counted here: .*\n  sysctl kernel\.perf_event_paranoid=2, or "
            r"--of run)\n",
            done.stderr,
        )
    else:  # a machine that counts
        assert done.returncode in {0, 3}
    refused("--of", "cycles", "--failures-are-slow", "--", "true", "--", "true")


def test_a_counter_counts_what_is_run_and_nothing_of_ours():
    try:
        counter = Counter("page faults", (1, 2))  # of those that the kernel itself counts
    except UsageError as error:
        pytest.skip(f"perf events: {error.what}")
    touch = "import sys; b = b'x' * (int(sys.argv[1]) << 20)"
    found = []
    for megabytes in (1, 33):
        counter.take()
        assert len(b"x" * (64 << 20 | len(found)))
        script = f'"{sys.executable}" -S -c "{touch}" {megabytes}; true'
        subprocess.run(["sh", "-c", script], check=True)
        found.append(counter.take())
    counter.close()
    pages = (32 << 20) // mmap.PAGESIZE
    assert found[0] > 0
    assert found[1] - found[0] >= min(16, pages)  # huge pages make few of many
    assert found[1] - found[0] < 1.1 * pages


def test_executions_are_labelled_by_what_they_print(ab, tmp_path):
    # Every second execution of each command is of the other kind, and B's "slow" ones sleep.
    script = tmp_path / "work.sh"
    script.write_text(
        "n=$(wc -c < $1); printf x >> $1\n"
        "if [ $((n % 2)) = 0 ]; then echo kind=quick; else echo kind=slow; sleep $2; fi\n"
    )
    for name in "ab":
        (tmp_path / name).write_text("")
    done = ab("--slot", "2", "--label", "kind=(.*)", "--max-blocks", "40", "--json", "-", "--",
              "sh", script, tmp_path / "a", "0.002", "--",
              "sh", script, tmp_path / "b", "0.1")  # fmt: skip
    document = json.loads(done.stdout)
    assert done.returncode == 1, done.stderr
    assert set(document["labels"]) == {"quick", "slow"}
    assert document["labels"]["slow"]["verdict"] == "slower"
    assert "slow" in document["by_evidence"]  # of alike ones up to 1 in 20 is, too: by chance


def test_a_label_that_nothing_prints_is_refused(ab, refused):
    done = ab("--label", "kind=(.*)", "--", "echo", "x", "--", "echo", "y")
    assert done.returncode == 2
    assert "is found in nothing that the commands print" in done.stderr
    refused("--label", "(", "--", "true", "--", "true")
    refused("--label", "x", "--show-output", "--", "echo", "x", "--", "echo", "x")


def test_recorded_blocks_are_of_single_unlabelled_executions(refused):
    for option, value in (("--label", "x"), ("--slot", "2")):
        words = ("--trace", "all", option, value, "--", "true", "--", "true")
        assert f"leave out {option}" in refused(*words)
