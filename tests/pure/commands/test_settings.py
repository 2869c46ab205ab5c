"""Where settings come from, who wins, and what is refused."""

from __future__ import annotations

import dataclasses
import os
import tomllib

import pytest

from critpath.commands.settings import COMPARING, SETTINGS, WrongValueError, effective
from critpath.errors import UsageError
from critpath.model import CompareSettings


def shown(done) -> dict[str, tuple[str, str]]:
    """Parse --show-config: name -> (value, origin)."""
    assert done.code == 0, done.err
    lines = [line for line in done.out.splitlines() if " = " in line]
    pairs = (line.split(" = ", 1) for line in lines)
    return {name: tuple(part.strip() for part in rest.rsplit("  # ", 1)) for name, rest in pairs}


def test_defaults(run):
    done = run("--show-config")
    found = shown(done)
    assert found["alpha"] == ("0.01", "default")
    assert found["t2"] == ('"auto"', "default")
    assert "# execution is not set" in done.out
    assert len(done.out.splitlines()) == len(SETTINGS)
    assert set(tomllib.loads(done.out)) == {*SETTINGS, "gate"} - {"execution", "level"}
    assert tomllib.loads(done.out)["gate"] == {"states": {}, "on": []}


def test_the_command_line_wins_over_the_file(run, tmp_path):
    (tmp_path / "critpath.toml").write_text("alpha = 0.02\nfloor = '10%'\noutlier_k = 2\n")
    found = shown(run("compare", "--show-config", "--alpha", "0.03"))
    assert found["alpha"] == ("0.03", "command line")
    assert found["floor"] == ("0.1", str(tmp_path / "critpath.toml"))
    assert found["outlier-k"] == ("2.0", str(tmp_path / "critpath.toml"))
    assert found["t1"] == ("1.5", "default")


def test_flags_in_both_directions(run, tmp_path):
    (tmp_path / "critpath.toml").write_text("interrupts = false\nquiet = true\n")
    found = shown(run("path", "--show-config", "--interrupts", "--no-quiet"))
    assert found["interrupts"] == ("true", "command line")
    assert found["quiet"] == ("false", "command line")


def test_the_nearest_file_upward(run, tmp_path, monkeypatch):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[tool.critpath]\nalpha = 0.02\n")
    monkeypatch.chdir(inner)
    assert shown(run("--show-config"))["alpha"] == ("0.02", str(tmp_path / "pyproject.toml"))
    # A pyproject.toml that does not mention critpath is not ours.
    (tmp_path / "a" / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert shown(run("--show-config"))["alpha"][0] == "0.02"
    (tmp_path / "a" / "critpath.toml").write_text("t1 = 2\n")
    found = shown(run("--show-config"))
    assert (found["t1"][0], found["alpha"][0]) == ("2.0", "0.01")


def test_config_names_the_only_file(run, tmp_path):
    (tmp_path / "critpath.toml").write_text("alpha = 0.02\n")
    (tmp_path / "other.toml").write_text("t1 = 3\n")
    found = shown(run("--config", "other.toml", "--show-config"))
    assert (found["t1"][0], found["alpha"][0]) == ("3.0", "0.01")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("critpath.toml", "alhpa = 1", ("unknown setting alhpa", "alpha")),
        ("critpath.toml", "alpha = 'high'", ('alpha = "high" is not a level', "")),
        ("critpath.toml", "alpha = true", ("is not a level", "")),
        ("critpath.toml", "alpha = nan", ("is not a level", "")),
        ("critpath.toml", "interrupts = 1", ("is not true or false", "")),
        ("critpath.toml", "permutations = 1.5", ("is not a whole number", "")),
        ("critpath.toml", "rule = 'gat'", ("is not gate or paper", "")),
        ("critpath.toml", "t2 = -1", ("is not auto or a number above 0", "")),
        ("critpath.toml", "t1 = 1979-05-27", ("is not a number", "")),
        ("critpath.toml", "outlier-k = 1\noutlier_k = 2", ("set twice", "")),
        ("critpath.toml", "alpha = 0.1\n[gate]\nalpha = 0.2", ("twice, as alpha", "gate.alpha")),
        ("critpath.toml", "gate = 1", ("gate is no table", "")),
        ("critpath.toml", "[gate]\nalhpa = 1", ("unknown setting gate.alhpa", "alpha")),
        ("critpath.toml", "[gate]\nrule = 'paper'", ("rule is no setting of the gate", "above")),
        ("critpath.toml", "level = 'RUN=off'", ("unknown setting level", "gate.states")),
        ("critpath.toml", "[gate]\nstates = 1", ("gate.states = 1 is not a table", "")),
        ("critpath.toml", "[gate.states]\nWAIT_CPU = 'loud'", ("off, warn or error", "")),
        ("critpath.toml", "[gate.states]\nWAIT_CUP = 'off'", ("no state 'WAIT_CUP'", "WAIT_CPU?")),
        ("critpath.toml", "[gate.states]\n'total@x' = 'off'", ("no state 'total'", "")),
        ("critpath.toml", "alpha =", ("not valid TOML", "")),
        pytest.param("critpath.toml", f"alpha = {'9' * 5000}", ("not valid TOML", ""), id="digits"),
        ("pyproject.toml", "[tool]\ncritpath = 3", ("is no table", "")),
        ("pyproject.toml", "[tool.critpath]\ncolour = 3", ("unknown setting colour", "")),
    ],
)
def test_wrong_files_are_named(run, tmp_path, name, content, says):
    (tmp_path / name).write_text(content)
    done = run("path", "normal")
    assert done.code == 2
    assert str(tmp_path / name) in done.err
    assert all(part in done.err for part in says)
    assert len(done.err.splitlines()) == 2


def test_config_that_is_not_there_or_has_no_section(run, tmp_path):
    assert "cannot read no.toml" in run("path", "normal", "--config", "no.toml").err
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    done = run("path", "normal", "--config", "pyproject.toml")
    assert (done.code, "no [tool.critpath]" in done.err) == (2, True)


def test_every_default_is_a_value_that_may_be_given(tmp_path):
    for setting in SETTINGS.values():
        if setting.default is not None and not setting.listed:
            assert setting.parse(setting.default) == setting.default
    assert effective({}, None, tmp_path).values == {n: s.default for n, s in SETTINGS.items()}


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("alpha", ["0.5", "1%", 0.001], ["0", "0.51", "inf", "", None, "1e999"]),
        ("floor", ["0", "0%", 0, "150%", "1000%"], ["-0.1", "1001%", "1", 1, 10, "10", "x"]),
        ("t2", ["auto", "2"], ["0", "autos"]),
        ("permutations", ["99", 1000], ["98", "1e3", "-5", "9" * 5000, "\u0661\u0660\u0660\u0660"]),
    ],
)
def test_ranges(name, good, bad):
    for value in good:
        SETTINGS[name].parse(value)
    for value in bad:
        with pytest.raises(WrongValueError):
            SETTINGS[name].parse(value)


def test_a_floor_that_may_be_meant_as_a_percentage_is_asked_about(tmp_path):
    file = tmp_path / "critpath.toml"
    file.write_text("[gate]\nfloor = 10\n")
    with pytest.raises(UsageError) as caught:
        effective({}, None, tmp_path)
    assert 'gate.floor = 10 is not a share below 1 or a percentage: did you mean "10%"?' in str(
        caught.value.what
    )


def test_a_shown_floor_can_be_read_back(tmp_path):
    file = tmp_path / "critpath.toml"
    file.write_text('floor = "150%"\n')
    shown = next(x for x in effective({}, None, tmp_path).lines() if x.startswith("floor"))
    file.write_text(shown)
    assert effective({}, None, tmp_path)["floor"] == 1.5


@pytest.mark.parametrize("name", ["gates", "Gate"])
def test_a_misspelt_table_of_the_gate(tmp_path, name):
    (tmp_path / "critpath.toml").write_text(f"[{name}]\nalpha = 0.01\n")
    with pytest.raises(UsageError) as caught:
        effective({}, None, tmp_path)
    assert caught.value.do == "did you mean gate?"


def test_the_pipeline_has_the_same_defaults(tmp_path):
    usual = CompareSettings()  # numbers that judge are asked for when one is made
    fields = {f.name: getattr(usual, f.name) for f in dataclasses.fields(usual)}
    values = effective({}, None, tmp_path).values
    names = {*COMPARING, "interrupts"} - {"gate"}
    mine = {name.replace("-", "_"): values[name] for name in names}
    assert (values["gate"], fields["percentile"], fields["sessions"]) == ((), None, True)
    assert mine == {name: fields[name] for name in mine}


GATE = """
t1 = 2
[gate]
alpha = 0.02
floor = "10%"
minimum_executions = 20
[gate.states]
WAIT_CPU = "warn"
"RUN@kworker/*" = "off"
"""


def test_the_gate_has_a_table_of_its_own(run, tmp_path):
    (tmp_path / "critpath.toml").write_text(GATE)
    here = str(tmp_path / "critpath.toml")
    found = shown(run("--show-config"))
    assert found["alpha"] == ("0.02", here)
    assert found["floor"] == ("0.1", here)
    assert found["minimum-executions"] == ("20", here)
    states = '{ "WAIT_CPU" = "warn", "RUN@kworker/*" = "off" }'
    assert found["gate.states"] == (states, here)
    done = run("compare", "--show-config", "--level", "WAIT_CPU=error", "--level", "total=off")
    states = '{ "RUN@kworker/*" = "off", "WAIT_CPU" = "error", "total" = "off" }'
    assert shown(done)["gate.states"] == (states, f"{here}, command line")
    assert shown(run("compare", "--show-config", "--alpha", "0.3"))["alpha"][0] == "0.3"
    (tmp_path / "critpath.toml").unlink()
    text = GATE.replace("[gate", "[tool.critpath.gate").replace("t1 =", "[tool.critpath]\nt1 =")
    (tmp_path / "pyproject.toml").write_text(text)
    assert shown(run("--show-config"))["gate.states"][1] == str(tmp_path / "pyproject.toml")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("WAIT_CUP=warn", "did you mean WAIT_CPU?"),
        ("WAIT_CPU", "a level of off, warn or error"),
        ("WAIT_CPU=loud", "a level of off, warn or error"),
        ("=off", "a level of off"),
        ("zzz=off", "the states are UNKNOWN, RUN"),
    ],
)
def test_wrong_levels_on_the_command_line(run, given, says):
    done = run("compare", "normal", "sample", "--level", given)
    assert (done.code, says in done.err) == (2, True), done.err


def test_levels_reach_the_comparison(run, fake):
    run("compare", "normal", "sample", "--level", "RUN@a=b=off", "--minimum-executions", "7")
    [(arguments, _)] = fake.called("compare")
    assert arguments[2].level == (("RUN@a=b", "off"),)
    assert arguments[2].minimum_executions == 7


@pytest.mark.skipif(os.geteuid() != 0, reason="root's own files, and others'")
def test_a_file_of_others_widens_nothing_that_root_does(run, tmp_path):
    """Whoever may write where root stands does not say what root records, or for how much."""
    text = "overhead = '50%'\nmemory = '4G'\nprofile = 'full'\ninterval = 0.1\nalpha = 0.02\n"
    file = tmp_path / "critpath.toml"
    file.write_text(text)
    own = effective({}, None, tmp_path)
    assert (own["overhead"], own["alpha"], own.left_out) == ("50%", 0.02, "")
    for change in (lambda: file.chmod(0o666), lambda: os.chown(file, 65534, 65534)):
        file.chmod(0o644)
        change()
        found = effective({}, None, tmp_path)
        for name in ("overhead", "memory", "profile", "interval"):
            assert found[name] == SETTINGS[name].default
            assert "not taken" in found.origins[name]
        assert found["alpha"] == 0.02
        assert "overhead, memory, profile, interval: not taken" in found.left_out
        # What is named on the command line is meant.
        assert effective({}, file, tmp_path)["overhead"] == "50%"
    assert 'overhead = ""' in run("record", "--show-config").out.replace("  ", " ")
