"""Sets of hosts: found, refused, read as one with every clock where it belongs."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "hosts"))

from record import draw_clocks, write_split

from critpath.clocks.align import align_traces, read_clocks
from critpath.commands import main
from critpath.errors import UnreadableError
from critpath.model.clocks import ClockLine, HostClock
from critpath.model.recording import HOSTS_FORMAT
from critpath.progress import Stage
from critpath.read import hosts as sets
from critpath.read.event_names import KERNEL_EVENTS
from critpath.read.hosts import find_hosts
from critpath.read.recording import Recording
from critpath.read.streaming import EventStream
from critpath.read.traces import find_recordings, find_traces, read_events
from critpath.timeline.opening import RecordingOpener
from critpath.timeline.streaming import read_timelines

ARCHIVES = Path(__file__).parents[3] / "fixtures/hosts"


@pytest.fixture(scope="module")
def split(unpack):
    """A recording split into one per host, with known clocks and without a list of hosts."""
    place = unpack(ARCHIVES / "select1-2-8.tar.xz") / "select1-2-8"
    write_split(place, 5)
    return place / "hosts"


def listed(place, names):
    hosts = [{"name": name, "recording": name} for name in names]
    (place / "hosts.json").write_text(json.dumps({"format": HOSTS_FORMAT, "hosts": hosts}))
    return place


@pytest.fixture(scope="module")
def hosts(split, tmp_path_factory):
    place = tmp_path_factory.mktemp("set") / "sample"
    shutil.copytree(split, place)
    return listed(place, sorted(p.name for p in split.iterdir() if p.is_dir()))


def test_a_set_is_one_recording(hosts):
    assert find_recordings(hosts) == (hosts,)
    assert find_recordings(hosts.parent) == (hosts,)
    assert {of.name for of in find_hosts(hosts)} == {t.host for t in find_traces(hosts)}


def test_the_truth_is_within_the_bounds(hosts, split):
    begin = json.loads((split.parent / "recording/critpath.json").read_text())["begin"]
    clocks = draw_clocks(5)
    found = read_clocks([hosts], "client")
    truth = np.linspace(begin, begin + 10**9, 101).astype(np.int64)
    aligned = [of for of in found.alignment.hosts if of.aligned and of.host != "client"]
    assert len(aligned) >= 3
    for of in aligned:
        own = np.asarray(clocks[of.host].show(truth, begin)).astype(np.int64)
        wrong = truth - own - of.offsets(own)
        low, high = of.bounds(own)
        assert ((low - 1 <= wrong) & (wrong <= high + 1)).all()
        assert of.steps == ()


def test_hosts_stream_as_they_are_read_at_once(hosts):
    traces = find_traces(hosts)
    recording = Recording(hosts, traces=traces, manifests={})
    alignment, _ = align_traces(recording, Stage(None, ""))
    whole = EventStream(traces, KERNEL_EVENTS, alignment=alignment).read()
    assert (np.diff(whole.timestamp) >= 0).all()
    assert list(whole.hosts) == [of.host for of in alignment.hosts]
    host_of = np.array([c.host for c in whole.classes])[whole.event_class]
    for place, clock in enumerate(alignment.hosts):
        alone = read_events(hosts / clock.host, KERNEL_EVENTS)
        assert np.array_equal(whole.timestamp[host_of == place], clock.move(alone.timestamp))
        edges = [loss for loss in whole.losses if loss.host == place]
        assert len(edges) == len(alone.losses)
    assert whole.begin <= whole.timestamp[0]
    assert whole.end >= whole.timestamp[-1]


def test_times_never_go_back_at_a_step():
    lines = (ClockLine(0, 100, 50, 0.0), ClockLine(100, 200, 10, 0.0), ClockLine(200, 300, 90, 0.0))
    clock = HostClock("b", "messages", lines)
    moved = clock.move(np.arange(0, 300))
    assert (np.diff(moved) >= 0).all()
    assert moved[99] == 149
    assert moved[100] == 150
    assert moved[250] == 340


def test_what_is_asked_of_a_set_is_answered(hosts, capsys):
    assert main(["path", str(hosts), "--execution", "requests"]) == 0
    shown = capsys.readouterr()
    assert "web aligned with app" in shown.err
    assert "uvicorn@app:8000" in shown.out
    events, timelines = read_timelines(hosts)
    assert len(events.hosts) == 6
    assert len({*timelines.workers.host.tolist()}) == 6


@pytest.fixture
def lossy(hosts, tmp_path):
    """A set of two hosts, of which one was not recorded at all for a while."""
    place = tmp_path / "set"
    place.mkdir()
    for name in ("app", "web"):
        shutil.copytree(hosts / name, place / name)
    manifest = json.loads((place / "app/critpath.json").read_text())
    gap = {"begin": manifest["begin"], "end": manifest["end"], "cpu": -1, "what": "stopped"}
    (place / "app/critpath.json").write_text(json.dumps({**manifest, "gaps": [gap]}))
    return listed(place, ["app", "web"])


@pytest.mark.parametrize("whole", ["", "a test asks for it"])
def test_the_gaps_of_a_host_are_known_however_it_is_read(lossy, whole):
    opener = RecordingOpener(Recording(lossy), KERNEL_EVENTS, "auto")
    opener.whole = whole
    events = opener.tell_clocks(opener.read())
    [host] = events.gaps.host.tolist()
    assert events.hosts[host] == "app"
    assert events.gaps.end - events.gaps.begin > 0
    assert len([x for x in events.warnings if "aligned with" in x]) == 1


def test_every_host_is_verified(lossy, capsys):
    assert main(["doctor", str(lossy)]) == 0
    app, _, web = capsys.readouterr().out.partition(f"{lossy / 'web'}: ")
    assert "stopped" in app
    assert web
    assert "stopped" not in web


def write(place, name, *, machine, peers, addresses, begin=0, end=10):
    place = place / name
    place.mkdir(parents=True)
    manifest = {
        "format": "critpath/recording/1",
        "state": "complete",
        "begin": begin,
        "end": end,
        "host": {"name": name, "machine_id": machine, "addresses": addresses, "peers": peers},
        "clock": {"epoch": 10**18},
    }
    (place / "critpath.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("case", "change"),
    [
        ("together", {}),
        ("one machine", {"machine": "1"}),
        ("another time", {"begin": 20, "end": 30}),
        ("not connected", {"addresses": ["10.0.0.9"]}),
        ("a bridge of one address everywhere", {"peers": ["172.17.0.1"], "addresses": ["fe80::2"]}),
    ],
)
def test_recordings_of_machines_that_talked_are_a_set(tmp_path, case, change):
    everywhere = ["127.0.0.1", "172.17.0.1"]
    peers = ["10.0.0.2", "172.17.0.1", "fe80::2"]
    write(tmp_path, "web", machine="1", addresses=[*everywhere, "10.0.0.1"], peers=peers)
    app = {"machine": "2", "addresses": ["10.0.0.2"], "peers": ["10.9.9.9"], **change}
    write(tmp_path, "app", **{**app, "addresses": [*everywhere, *app["addresses"]]})
    names = [of.name for of in find_hosts(tmp_path)]
    assert names == (["app", "web"] if case == "together" else [])


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"name": "web", "recording": "../web"}, "not beside it"),
        ({"name": "web", "recording": "/etc"}, "not beside it"),
        pytest.param({"name": "web", "recording": "x" * 100_000}, "not beside it", id="long"),
        ({"name": "web", "recording": ".."}, "not beside it"),
        ({"name": "web", "recording": "link"}, "no directory"),
        ({"name": "web", "recording": "gone\x1b[31m"}, "no directory"),
        ({"name": "web"}, "no recording"),
        ({"name": 3, "recording": "web"}, "no name"),
        ("web", "no name"),
    ],
)
def test_a_list_that_names_what_is_not_beside_it_is_refused(tmp_path, entry, said):
    (tmp_path / "link").symlink_to("/etc")
    hosts = {"format": HOSTS_FORMAT, "hosts": [entry]}
    (tmp_path / "hosts.json").write_text(json.dumps(hosts))
    with pytest.raises(UnreadableError) as caught:
        find_hosts(tmp_path)
    assert said in caught.value.what
    assert "\x1b" not in caught.value.what


@pytest.mark.parametrize(
    "text", ['{"hosts": 3}', "not JSON", pytest.param("[" * 10**5, id="deep"), '"\\ud800"', ""]
)
def test_another_programs_list_is_none(tmp_path, text):
    (tmp_path / "hosts.json").write_text(text)
    assert find_hosts(tmp_path) == ()


def test_a_list_beyond_all_limits_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(sets, "_LARGEST", 10)
    (tmp_path / "hosts.json").write_text('{"format": "critpath/hosts/1"}')
    with pytest.raises(UnreadableError, match="larger than"):
        find_hosts(tmp_path)


@pytest.mark.parametrize(
    "probes",
    [
        3,
        [[1, 2]],
        [[1, 2, "3"]],
        [[True, 2, 3]],
        [[5, 2, 3]],
        [[1, 2, 1 << 62]],
        [[1, -2, 3]],
        None,
    ],
)
def test_hostile_probes_are_none(tmp_path, probes):
    (tmp_path / "web").mkdir()
    hosts = [{"name": "web", "recording": "web", "probes": probes}]
    (tmp_path / "hosts.json").write_text(json.dumps({"format": HOSTS_FORMAT, "hosts": hosts}))
    [host] = find_hosts(tmp_path)
    assert host.probes == ()


def test_a_recording_is_of_one_host(tmp_path):
    (tmp_path / "web").mkdir()
    hosts = [{"name": name, "recording": "web"} for name in ("web", "app")]
    (tmp_path / "hosts.json").write_text(json.dumps({"format": HOSTS_FORMAT, "hosts": hosts}))
    with pytest.raises(UnreadableError) as caught:
        find_hosts(tmp_path)
    assert "names web twice" in caught.value.what


def test_a_directory_is_asked_once_whether_it_is_a_set(hosts, tmp_path, monkeypatch):
    for name in ("a", "b", "c"):
        shutil.copytree(hosts / "app", tmp_path / name)
    asked = []
    monkeypatch.setattr(sets, "find_hosts", lambda above: asked.append(above) or ())
    assert len(find_recordings(tmp_path)) == 3
    assert asked == [tmp_path]


def test_the_user_says_that_recordings_are_of_hosts(hosts, tmp_path, capsys):
    """Of one machine twice, by its manifests: only the user can know."""
    for run in ("run-1", "run-2"):
        for name in ("app", "web"):
            place = tmp_path / "normal" / run / name
            shutil.copytree(hosts / name, place)
            manifest = json.loads((place / "critpath.json").read_text())
            manifest["host"] = {"name": "box", "machine_id": "1"}
            (place / "critpath.json").write_text(json.dumps(manifest))
    source = tmp_path / "normal"
    assert len(find_recordings(source)) == 4
    with sets.decide_hosts("together"):
        assert find_recordings(source) == (source / "run-1", source / "run-2")
        assert [of.name for of in find_hosts(source / "run-1")] == ["app", "web"]
        assert find_hosts(source) == ()
        assert find_hosts(source / "run-1" / "app") == ()
    saved = tmp_path / "paths.parquet"
    extract = [
        "export",
        "--format",
        "paths",
        str(source),
        "--execution",
        "requests",
        "-o",
        str(saved),
        "--jobs",
        "1",
    ]
    assert main([*extract, "--hosts-together"]) == 0
    said = capsys.readouterr().err
    assert said.count("of the hosts app, web are taken as one, as --hosts-together says") == 1
    assert main(["query", str(saved), "select count(distinct host) from segments"]) == 0
    assert "2" in capsys.readouterr().out
    assert main(["clocks", "--hosts-together", str(source / "run-1")]) == 0
    assert "app" in capsys.readouterr().out


def test_names_of_hosts_that_differ_are_their_own(hosts, tmp_path):
    for name in ("app", "web"):
        shutil.copytree(hosts / name, tmp_path / f"{name}-recorded")
    with sets.decide_hosts("together"):
        assert [of.name for of in find_hosts(tmp_path)] == ["app", "web"]


def test_traces_without_manifests_are_hosts_if_the_user_says_so(hosts, tmp_path):
    for name in ("app", "web"):
        shutil.copytree(hosts / name / "trace", tmp_path / name)  # as LTTng's are
    assert len(find_recordings(tmp_path)) == 2
    with sets.decide_hosts("together"):
        assert find_recordings(tmp_path) == (tmp_path,)
        assert {trace.host for trace in find_traces(tmp_path)} == {"app", "web"}


def test_the_user_says_that_recordings_are_repetitions(hosts, tmp_path, capsys):
    place = tmp_path / "set"
    for name in ("app", "web"):
        shutil.copytree(hosts / name, place / name)
    listed(place, ["app", "web"])
    assert find_recordings(place) == (place,)
    assert main(["doctor", "--hosts-apart", str(place)]) in {0, 3}
    saved = tmp_path / "apart.parquet"
    how = ["--execution", "requests", "--hosts-apart"]
    assert main(["export", "--format", "paths", str(place), *how, "-o", str(saved)]) == 0
    said = capsys.readouterr().err
    assert said.count("app, web are taken for repetitions, not for hosts, as --hosts-apart") == 1
    # In settings, too, where the command line wins.
    (tmp_path / "critpath.toml").write_text('hosts = "apart"\n')
    config = ["--config", str(tmp_path / "critpath.toml")]
    assert main(["doctor", *config, str(place)]) in {0, 3}
    assert main(["clocks", *config, "--hosts-auto", str(place)]) == 0
    assert main(["clocks", *config, str(place)]) == 0  # the recordings of two hosts


def test_a_set_that_was_found_is_said(tmp_path):
    write(tmp_path, "web", machine="1", addresses=["10.0.0.1"], peers=["10.0.0.2"])
    write(tmp_path, "app", machine="2", addresses=["10.0.0.2"], peers=[])
    assert "app, web are taken as one, as their machines talked" in sets.note_hosts(tmp_path)
    assert sets.note_hosts(tmp_path / "web") == ""
    with sets.decide_hosts("apart"):
        assert find_hosts(tmp_path) == ()
        assert "for repetitions" in sets.note_apart(tmp_path / "web")


@pytest.mark.parametrize(
    "clock",
    [
        {"error_ns": 10**30},
        {"samples": [[1, (1 << 62) - 1], [(1 << 62) - 1, 5]]},
        {"samples": [[0, 1 << 60], [1 << 60, 0], [1 << 60, 1 << 61]]},
    ],
)
def test_a_hostile_clock_ends_nothing(hosts, tmp_path, capsys, clock):
    place = tmp_path / "set"
    place.mkdir()
    sane = {"synchronised": "ntp", "error_ns": 10**6, "samples": [[0, 0], [1 << 60, 1 << 60]]}
    for name, said in (("app", {**sane, **clock}), ("web", sane)):
        shutil.copytree(hosts / name, place / name)
        manifest = json.loads((place / name / "critpath.json").read_text())
        manifest["clock"].update(said)
        (place / name / "critpath.json").write_text(json.dumps(manifest))
    listed(place, ["app", "web"])
    assert main(["clocks", str(place)]) == 0
    assert "app" in capsys.readouterr().out


def test_one_kernel_needs_no_messages(hosts, tmp_path, capsys):
    place = tmp_path / "pods"
    place.mkdir()
    for name in ("outer", "postgres"):
        shutil.copytree(hosts / name, place / name)
        manifest = json.loads((place / name / "critpath.json").read_text())
        manifest["host"]["boot_id"] = "one"
        (place / name / "critpath.json").write_text(json.dumps(manifest))
    listed(place, ["outer", "postgres"])
    assert main(["clocks", str(place)]) == 0
    assert "the same kernel" in capsys.readouterr().out


def test_no_host_is_told_apart_by_its_name_alone(hosts, tmp_path):
    """Two recordings of hosts of one name: the set calls them what it wants."""
    place = tmp_path / "set"
    place.mkdir()
    for name in ("app", "web"):
        shutil.copytree(hosts / "app", place / name)
    listed(place, ["app", "web"])
    assert {t.host for t in find_traces(place)} == {"app", "web"}
    alignment, _ = align_traces(Recording(place), Stage(None, ""))
    assert replace(alignment).reference == "app"
