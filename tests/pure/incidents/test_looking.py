"""From a dump to a line, over drawn executions and days of simulated time."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from critpath.documents import IncidentDocument
from critpath.documents.incidents import TriggerEntry
from critpath.errors import CritpathError, UnreadableError, UsageError
from critpath.incidents import keeping
from critpath.incidents.choosing import find_chances, focus, is_known, split_at, thin
from critpath.incidents.dumps import Dump, find_images
from critpath.incidents.looking import Looker, Looking
from critpath.incidents.times import format_time, parse_time
from critpath.incidents.usual import choose_alike, find_deployed
from critpath.model import CompareSettings, PathSet
from critpath.model.containers import ControlGroup
from critpath.model.gaps import make_gaps
from critpath.schema.environment import Environment, RequestCounts
from critpath.store import Baseline

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "end_to_end"))
from drawn_sets import draw

HOUR, DAY = 3600, 24 * 3600
BEGIN = parse_time("2026-11-30T00:00:00Z")


class Host:
    """A flight recorder that makes drawn dumps, and who looks at them."""

    def __init__(self, top: Path) -> None:
        self.flight, self.place = top / "flight", top / "incidents"
        self.flight.mkdir()
        self.now = BEGIN
        self.told: list[tuple[IncidentDocument, str]] = []
        self.said: list[str] = []
        self.paths: dict[str, PathSet] = {}
        self.rng = np.random.default_rng(1)
        self.known = ""
        self.looker = self.look_anew()

    def look_anew(self, quota: int = 1 << 30) -> Looker:
        return Looker(
            Looking(
                flight=self.flight,
                directory=self.place,
                settings=CompareSettings(),
                quota=quota,
                read=self.read,
                look_up=lambda *_: self.known,
                render=lambda _, line: f"<p>{line}",
                tell=lambda one, line: self.told.append((one, line)),
                say=self.said.append,
            )
        )

    def read(self, dump: Dump) -> PathSet:
        return self.paths[dump.name]

    def dump(
        self,
        when: str,
        *,
        value: str = "",
        asks: int = 2,
        before: int = 0,
        count: int = 60,
        began: int = 1,
    ) -> str:
        """Make a dump now: so many requests that ask as often, after some that ask twice."""
        rows = []
        for number in range(before + count):
            times = 2 if number < before else asks
            steps = [f"r{self.rng.normal(20_000, 1000):.0f}"]
            for _ in range(times):
                steps += [
                    f"h{self.rng.normal(50_000, 4000):.0f}",
                    f"r{self.rng.normal(6000, 500):.0f}",
                ]
            rows.append(" ".join(steps))
        word = when.partition(" ")[0]
        name = f"{format_time(self.now).replace('-', '').replace(':', '')}-{word}"
        paths = draw(rows)
        labels = ("GET /cart",) * len(rows)
        moment = int(paths.executions.end[before or -1])
        epoch = self.now * 10**9 - moment
        self.paths[name] = replace(
            paths,
            executions=replace(paths.executions, label=labels),
            sources=(str(self.flight / name),),
            environment=(Environment(recording=str(self.flight / name), clock_epoch=epoch),),
        )
        manifest = {
            "format": "critpath/recording/1",
            "state": "complete",
            "host": {"name": "shop", "programs": {"worker": f"8-1-1 {began}"}},
            "clock": {"epoch": epoch},
            "begin": 0,
            "end": int(paths.executions.end[-1]),
            "trigger": {"when": when, "value": value, "kind": "GET /cart", "at": moment},
        }
        (self.flight / name).mkdir()
        (self.flight / name / "critpath.json").write_text(json.dumps(manifest))
        return name

    def pass_time(self, seconds: int) -> None:
        self.now += seconds

    @property
    def lines(self) -> list[str]:
        return [line for _, line in self.told]

    def kept(self) -> list[str]:
        return sorted(p.name for p in (self.place / "usual").iterdir())


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_two_days(host: Host, critpath: Callable[..., Any]) -> None:
    """Healthy hours tell nothing; a fault is one incident; one that lasts a day becomes usual."""
    for _ in range(8):  # the first day
        host.dump("usual")
        host.looker.look()
        host.pass_time(3 * HOUR)
    assert (host.told, host.said) == ([], [])
    assert host.kept() == [f"20261130T{hour:02}Z-0.baseline.json" for hour in (0, 6, 12, 18)]
    # At four in the morning it asks 22 times instead of twice, for some minutes.
    host.pass_time(HOUR)
    for number in range(3):
        host.dump("latency GET /cart > 5ms", asks=22, before=40 * (number == 0))
        host.looker.look()
        host.pass_time(600)
    [one] = {id(one): one for one, _ in host.told[-1:]}.values()
    assert len(host.told) == 3
    assert (one.count, one.verdict, one.code, one.kind) == (3, "anomaly", 1, "GET /cart")
    assert (one.host, one.program, one.usual.of) == ("shop", "worker", "usual")
    assert one.usual.files == ["usual/20261130T00Z-0.baseline.json"]
    first = host.lines[0]
    assert first.startswith("2026-12-01T01:00:00Z shop worker GET /cart p")
    assert "helper" in first
    assert "they wait for helper 22 times instead of twice" in first
    assert "(3 times, last 2026-12-01T01:20:00Z)" in host.lines[-1]
    # Listed, shown, and gone on with from the next start.
    shown = critpath("incidents", host.place)
    assert (shown.returncode, shown.stdout) == (0, f"{one.id}\n  {host.lines[-1]}\n")
    assert critpath("incidents", host.place, "--since", "2026-12-01T01:21Z").stdout == ""
    assert json.loads(critpath("incidents", host.place, "--json").stdout)["count"] == 3
    shown = critpath("incidents", "show", one.id, host.place)
    assert shown.returncode == 1
    assert "SLOWER" in shown.stdout
    assert "22 times instead of twice" in shown.stdout
    assert (host.place / one.id / "page.html").read_text() == f"<p>{first}"
    host.looker = host.look_anew()
    assert host.looker.look() == 0
    assert len(host.told) == 3
    # From noon on it takes longer, and stays so: told once an hour at most, usual after a day.
    host.told.clear()
    host.now = BEGIN + 36 * HOUR
    for _ in range(9):
        host.dump("usual", asks=6)
        host.looker.look()
        host.pass_time(3 * HOUR)
    assert all(one.verdict == "anomaly" for one, _ in host.told)
    assert len(host.told) == 8
    assert host.said == [
        "what is different since 2026-12-01T12:00:00Z lasted a day: from now on it is usual"
    ]
    host.dump("usual", asks=6)
    host.looker.look()
    assert len(host.told) == 8
    assert host.kept()[-1] == "20261202T12Z-1.baseline.json"


def test_without_anything_usual_the_time_before_is_what_it_is_held_against(host: Host) -> None:
    host.dump("latency GET /cart > 5ms", asks=22, before=80)
    host.looker.look()
    [(one, line)] = host.told
    assert (one.verdict, one.usual.of, one.usual.executions) == ("anomaly", "dump", 80)
    assert line.endswith("it is held against the time before, as nothing usual is kept")
    assert len(host.said) == 1
    host.pass_time(2 * HOUR)
    host.dump("loss", asks=2, count=10)
    host.looker.look()
    assert len(host.said) == 1  # said once
    assert host.told[-1][0].verdict == "inconclusive"
    assert "nothing usual is kept" in host.lines[-1]


def test_a_deployment_begins_an_age(host: Host) -> None:
    for _ in range(2):
        host.dump("usual")
        host.pass_time(HOUR)
    host.dump("usual", asks=6, began=2)
    host.looker.look()
    [(one, line)] = host.told
    assert (one.verdict, one.usual.of, one.usual.deployed) == (
        "anomaly",
        "before-deploy",
        ["worker"],
    )
    assert line.endswith("this is since worker was deployed")
    assert host.kept() == ["20261130T00Z-0.baseline.json", "20261130T00Z-1.baseline.json"]
    host.pass_time(HOUR)
    host.dump("usual", asks=6, began=2)
    host.looker.look()
    assert len(host.told) == 1  # it is usual by now


def test_a_container_of_another_image_is_a_deployment() -> None:
    def read(*images: str, name: str = "web-1", **more: str) -> dict[str, str]:
        of = (
            ControlGroup(f"/{at}", name=name, image=image, **more)
            for at, image in enumerate(images)
        )
        return find_images(of)

    first = read("shop/web:1")
    assert [*first] == ["container web-1"]
    deployed, known = find_deployed({}, first, {"container web-1"})
    assert (deployed, known) == ([], first)
    assert find_deployed(known, first, {"container web-1"}) == ([], first)
    other = read("shop/web:2")
    assert find_deployed(known, other, {"container web-1"}) == (["container web-1"], other)
    assert find_deployed(known, other, {"container db"})[0] == []  # no request is of it
    # Replicas of a pod are one; what only keeps its namespaces, and what is not known, is none.
    pods = [read(*("a", "b")[:n], pod="web-7d9f8b6c5d-x2k4z", namespace="shop") for n in (1, 2)]
    assert [*pods[0]] == [*pods[1]] == ["pod shop/web-*"]
    assert pods[0] != pods[1]
    assert read("", "") == read("pause", name="POD", pod="p") == {}
    assert "\x1b" not in str(read("\x1b[31m shop 1 2", name="a b\x1b"))


def test_what_may_be_slower_is_not_usual(host: Host) -> None:
    """Some minutes of a fault at the end of an hour: whatever the verdict, they are not kept."""
    host.dump("usual")
    host.pass_time(HOUR)
    host.dump("usual", before=45, count=15, asks=8)
    host.pass_time(HOUR)
    host.dump("usual")
    host.looker.look()
    [file] = host.kept()
    kept = Baseline.load(host.place / "usual" / file)
    assert [session.recorded[0][11:13] for session in kept.sessions] == ["23", "01"]


def test_what_led_up_to_an_alarm_is_not_usual(host: Host) -> None:
    """Recordings of what is usual that end in an alarm's first seconds, or begin in its last."""
    for _ in range(3):
        host.dump("usual")
        host.pass_time(60)
    host.dump("usual", before=57, count=3, asks=4)  # too little of it to show
    host.pass_time(10)
    host.dump("latency GET /cart p99 > 1ms over 5s", asks=8)
    host.pass_time(20)
    host.dump("usual", before=57, count=3, asks=4)
    host.looker.look()
    [(one, _)] = host.told
    assert (one.verdict, len(one.usual.recorded)) == ("anomaly", 3)
    # As it is where the usual one is looked at first.
    host.pass_time(HOUR)
    host.dump("usual")
    host.looker.look()
    host.pass_time(60)
    host.dump("usual", before=57, count=3, asks=4)
    host.looker.look()
    host.pass_time(10)
    host.dump("latency GET /cart p99 > 1ms over 5s", asks=20)
    host.looker.look()
    assert [len(one.usual.recorded) for one, _ in host.told] == [3, 4]
    host.pass_time(HOUR)
    host.dump("usual")
    host.looker.look()
    [file] = host.kept()
    kept = Baseline.load(host.place / "usual" / file)
    assert [session.recorded[0][11:16] for session in kept.sessions] == [
        "23:59",
        "00:00",
        "00:01",
        "01:03",
        "02:04",
    ]


def test_what_somebody_calls_healthy_is_usual_and_what_somebody_asks_for_is_theirs(
    host: Host,
) -> None:
    host.dump("command", value="healthy", asks=6)
    host.pass_time(60)
    host.dump("command", value="to see", asks=22)
    host.looker.look()
    assert host.told == []
    assert len(host.kept()) == 1


def test_a_dump_that_ends_who_looks_at_it_is_given_up(host: Host) -> None:
    name = host.dump("loss")
    paths = host.paths.pop(name)
    with pytest.raises(KeyError):
        host.looker.look()
    host.paths[name] = paths
    host.looker = host.look_anew()
    host.looker.look()
    assert "could not be explained" in host.lines[0]


def test_a_full_disk_lets_dumps_wait(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left half-written, nothing is given up, and it is said once."""
    host.dump("usual")
    host.looker.look()
    host.pass_time(HOUR)
    name = host.dump("latency p99 > 250ms over 30s", asks=22)
    saved = keeping.save_incident

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(keeping, "save_incident", fail)
    assert host.looker.look() == host.looker.look() == 0
    assert keeping.list_incidents(host.place) == []
    said = [line for line in host.said if "full" in line]
    monkeypatch.setattr(keeping, "save_incident", saved)
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 0}))
    assert host.looker.look() == 0
    monkeypatch.undo()
    assert host.looker.look() == 1
    assert keeping.list_incidents(host.place) == [name]
    assert len(said) in {1, 2}
    assert host.told[-1][0].verdict == "anomaly"


def test_a_clock_that_is_set_back_makes_no_incident_go_on(host: Host) -> None:
    """Nor is a dump passed over: names of dumps are what is kept in mind."""
    host.dump("usual")
    host.looker.look()
    host.dump("latency p99 > 250ms over 30s", asks=22)
    host.looker.look()
    host.pass_time(-HOUR)
    host.dump("latency p99 > 250ms over 30s", asks=22)
    host.looker.look()
    assert [one.count for one, _ in host.told] == [1, 1]


def test_seen_before(host: Host) -> None:
    host.known = "n-plus-one"
    host.dump("usual")
    host.pass_time(HOUR)
    host.dump("latency GET /cart > 5ms", asks=22)
    host.looker.look()
    assert host.lines[0].endswith("seen before: n-plus-one")


def test_the_oldest_make_way_but_what_is_kept(host: Host) -> None:
    made = []
    for _ in range(4):
        made.append(host.dump("loss", count=5))
        host.looker.look()
        host.pass_time(2 * HOUR)
        (host.place / made[0] / "keep").touch()
    host.looker = host.look_anew(quota=1)
    made.append(host.dump("loss", count=5))
    host.looker.look()
    assert keeping.list_incidents(host.place) == [made[0], made[-1]]


def test_what_is_not_answered_is_no_no(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fails: an incident may be one to be kept, and there may be a state."""
    made = []
    for _ in range(2):
        made.append(host.dump("loss", count=5))
        host.looker.look()
        host.pass_time(2 * HOUR)
    real = Path.lstat

    def refuse(path: Path) -> os.stat_result:
        if path.name in {"keep", "state.json"}:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(path)

    monkeypatch.setattr(Path, "lstat", refuse)
    keeping.remove_oldest(host.place, 0, made[-1])
    with pytest.raises(OSError, match="Input/output error"):
        host.look_anew()
    monkeypatch.undo()
    assert keeping.list_incidents(host.place) == made
    assert host.look_anew().state.seen == made


def test_an_incident_that_may_not_be_made_is_none_without_its_comparison(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.dump("usual")
    host.looker.look()
    host.pass_time(HOUR)
    name = host.dump("latency p99 > 250ms over 30s", asks=22)

    real = Path.chmod

    def refuse(path: Path, mode: int) -> None:
        monkeypatch.setattr(Path, "chmod", real)  # once
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path), mode)

    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.raises(CritpathError, match="Operation not permitted"):
        host.looker.look()
    monkeypatch.undo()
    assert keeping.list_incidents(host.place) == []
    host.looker = host.look_anew()
    assert host.looker.look() == 1
    assert keeping.load_comparison(host.place / name) is not None


def test_the_window_is_as_long_as_it_takes() -> None:
    paths = draw(["r100"] * 300)
    end = paths.executions.end
    before, after = split_at(paths, int(end[290]), 10**10)
    assert (len(before), len(after)) == (0, 300)  # it is longer than all of them
    slow = draw(["r900000"] * 100)  # 0.9 s each
    before, after = split_at(slow, int(slow.executions.end[97]), 10**9)
    assert 30 <= len(after) <= 60
    assert len(before) + len(after) == 100
    # Of each kind so many, but of rare ones.
    labels = tuple("rare" if n == 9 else "ab"[n % 4 == 0] for n in range(100))
    mixed = replace(slow, executions=replace(slow.executions, label=labels))
    _, after = split_at(mixed, int(slow.executions.end[97]), 10**9)
    assert after.executions.label.count("b") >= 20
    before, after = split_at(slow.take(np.arange(0)), 5, 10**9)
    assert len(before) == len(after) == 0


def test_what_had_not_begun_yet_is_not_judged() -> None:
    """A condition that looks over ten seconds holds when some of them are slow."""
    rng = np.random.default_rng(2)

    def draw_all(slow: int) -> PathSet:
        each = [f"r{t:.0f}" for t in rng.lognormal(12, 0.5, 200) * 1000]
        each[slow:] = [f"r{t:.0f}" for t in rng.lognormal(13, 0.5, 200 - slow) * 1000]
        paths = draw(each)
        labels = tuple("ab"[n % 2] for n in range(200))
        return replace(paths, executions=replace(paths.executions, label=labels))

    for slow in (100, 120):
        paths = draw_all(slow)
        before, after = split_at(paths, int(paths.executions.end[130]), 10**15)
        assert abs(len(before) - slow) <= 4
        assert len(after) == 200 - len(before)
    # Nothing changed, or only after it was noticed: all that the condition looked over.
    for slow in (200, 160):
        paths = draw_all(slow)
        assert len(split_at(paths, int(paths.executions.end[130]), 10**15)[0]) == 0


def test_of_whom_an_alarm_is_about() -> None:
    """Of those that ask it, too: a client waits for these."""
    paths = draw(["r100"] * 4)
    labels = ("nginx:80 → web:81", "nginx:80 → feed:82", "feed:82 → db:5432, web:81", "db:5432")
    paths = replace(paths, executions=replace(paths.executions, label=labels))
    assert focus("web:81", paths)[0].executions.label == (labels[0], labels[2])
    assert focus("db:5432", paths)[0].executions.label == labels[2:]
    assert len(focus("web", paths)[0]) == len(focus("", paths)[0]) == 4


def test_those_of_whom_it_is_in_doubt_whom_they_ask_are_held_against_all_they_may_be() -> None:
    paths = draw(["r100"] * 3)
    usual, sample = (
        replace(paths, executions=replace(paths.executions, label=labels))
        for labels in (
            ("nginx:80 → web:81", "nginx:80 → feed:82", "cron:unix"),
            ("nginx:80 → web:81, feed:82", "nginx:80 → web:81, feed:82", "cron:unix"),
        )
    )
    mine, theirs = focus("feed:82", sample, usual)
    assert len(mine) == 2
    assert theirs.executions.label == usual.executions.label[:2]
    same, alike = focus("feed:82", usual, usual)
    assert same.executions.label == alike.executions.label == usual.executions.label[1:2]


def make_dump(begin: int, end: int, *gaps: tuple[int, int]) -> Dump:
    rows = [(a, a, b, b, 0, 0, 0) for a, b in gaps]
    trigger = TriggerEntry("usual")
    return Dump(Path("flight"), trigger, 0, end, "", {}, begin, end, make_gaps(rows))


def test_what_gaps_cut_oftener_speaks_for_more() -> None:
    """In windows of 10 of 100 ms, one that takes 9 is whole ten times less often than one of 1."""
    ms = 10**6
    gaps = (((100 * n + 10) * ms, 100 * (n + 1) * ms) for n in range(100))
    dump = make_dump(0, 10_000 * ms, *gaps)
    rng = np.random.default_rng(3)
    begin = rng.integers(0, 10_000 * ms, 20_000)
    took = np.where(rng.random(20_000) < 0.5, 1, 9) * ms
    inside = (begin + took) % (100 * ms) <= 10 * ms
    whole = inside & (begin % (100 * ms) < 10 * ms)
    paths = draw([f"r{ns // 1000}" for ns in took[whole].tolist()])
    moved = replace(paths.executions, begin=begin[whole], end=(begin + took)[whole])
    paths = replace(paths, executions=moved)
    long = took[whole] == 9 * ms
    assert long.mean() < 0.2
    chances = find_chances(paths.executions, dump)
    assert chances[~long].mean() == pytest.approx(9 * chances[long].mean(), rel=0.02)
    kept = thin(paths, chances).executions
    assert (kept.duration > 5 * ms).mean() == pytest.approx(0.5, abs=0.1)
    assert (thin(paths).executions.duration > 5 * ms).mean() < 0.2


@pytest.mark.parametrize(
    ("count", "unsure", "known"), [(40, 0, True), (9, 0, False), (40, 9, False)]
)
def test_a_loop_that_a_gap_leaves_in_doubt_is_not_known(
    count: int, unsure: int, known: bool
) -> None:
    paths = draw(["r100"] * count)
    left = {"nginx:80": {"whole": 50, "unsure": unsure}, "cron:unix": {"whole": 1, "unsure": 1}}
    labels = ("nginx:80 → feed:82",) * count
    paths = replace(
        paths,
        executions=replace(paths.executions, label=labels),
        environment=(
            Environment(requests=RequestCounts(requests=count, doubtful=0, left_out=left)),
        ),
    )
    assert is_known(paths, "feed:82") is known


def test_what_is_in_doubt_or_takes_long_to_align_is_not_looked_at() -> None:
    paths = draw(["r100", " ".join(["r1", "h1"] * 3000), "r100"])
    assert len(thin(paths)) == 2


def test_of_what_is_usual_those_at_about_the_same_load_are_taken() -> None:
    assert choose_alike([100.0, 1.0, 50.0, 90.0, 2.0, 110.0, 95.0, 105.0], 100.0) == [
        *(0, 2, 3, 5, 6, 7)
    ]
    assert choose_alike([5.0, 0.0], 0.0) == [0, 1]


def test_of_each_kind_some_are_looked_at_evenly_spread() -> None:
    paths = draw(["r100"] * 5000)
    labels = tuple("rare" if n % 1000 == 7 else "often" for n in range(5000))
    paths = replace(paths, executions=replace(paths.executions, label=labels))
    few = thin(paths)
    assert Counter(few.executions.label) == {"rare": 5, "often": 200}
    apart = np.diff(
        [e for e, n in zip(few.executions.begin, few.executions.label, strict=True) if n == "often"]
    )
    assert apart.max() <= 2 * apart.min()


@pytest.mark.parametrize(
    ("when", "window"),
    [
        ("latency GET /a/1s > 250ms", 0),
        ("latency GET /a p99 > 250ms over 30s", 30 * 10**9),
        ("pressure cpu some 150ms/1s", 10**9),
        ("rate web < 1 over 1.5min", 90 * 10**9),
        ("loss", 0),
    ],
)
def test_a_condition_says_over_which_time_it_looks(when: str, window: int) -> None:
    assert Dump(Path("x"), TriggerEntry(when), 0, 0, "", {}).window == window


# What is in the directory is others'


def test_directories_of_others_are_refused(tmp_path: Path) -> None:
    place = tmp_path / "d"
    place.mkdir(mode=0o755)
    with pytest.raises(UsageError, match="others may enter"):
        keeping.prepare_directory(place)
    place.chmod(0o700)
    (place / "mine").touch()
    with pytest.raises(UsageError, match="no incident: mine"):
        keeping.prepare_directory(place)
    (tmp_path / "link").symlink_to(place)
    with pytest.raises(UsageError):
        keeping.prepare_directory(tmp_path / "link")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[" * 100_000,
        b'{"format": "critpath/incident/1"}',
        b'{"format": "critpath/comparison/1"}',
        b" " * (2 << 20),
        b"\xff",
    ],
)
def test_damaged_incidents_are_passed_over(
    host: Host, critpath: Callable[..., Any], content: bytes
) -> None:
    name = host.dump("loss", count=5)
    host.looker.look()
    bad = host.place / "20991231T000000Z-bad"
    bad.mkdir()
    (bad / "incident.json").write_bytes(content)
    (host.place / "20991231T000001Z-link").symlink_to(host.place / name)
    (host.place / "20991231T000002Z-link").mkdir()
    (host.place / "20991231T000002Z-link" / "incident.json").symlink_to("/etc/passwd")
    assert [one.id for one in keeping.read_incidents(host.place)] == [name]
    listed = critpath("incidents", host.place)
    assert listed.returncode == 0
    assert f"{bad.name} cannot be read" in listed.stderr
    assert critpath("incidents", "show", bad.name, host.place).returncode == 4
    with pytest.raises(UnreadableError):
        keeping.load_incident(host.place / "20991231T000002Z-link")
    (host.place / "state.json").write_bytes(content)
    host.said.clear()
    assert host.look_anew().state.seen == [name]
    assert ["state.json is damaged" in line for line in host.said] == [True]


def test_hostile_names_stay_text(host: Host, critpath: Callable[..., Any]) -> None:
    name = host.dump("loss", count=5)
    host.looker.look()
    file = host.place / name / "incident.json"
    plain = json.loads(file.read_text())
    plain["program"] = "\x1b[31m::error::\n"
    file.write_text(json.dumps(plain))
    shown = critpath("incidents", host.place).stdout
    assert "\x1b" not in shown
    assert len(shown.splitlines()) == 2


@pytest.mark.parametrize(
    "words",
    [
        ("a", "b"),
        ("show",),
        ("nowhere", "--webhook", "http://x"),
        ("-o", "x"),
        ("nowhere", "-o", "x", "--since", "1h"),
        (".", "-o", "x", "--webhook", "file:///etc/passwd"),
        (".", "-o", "x", "--webhook", "otlp:file:///etc/passwd"),
        (".", "--since", "yesterday"),
    ],
)
def test_what_does_not_go_together_is_refused(
    critpath: Callable[..., Any], words: tuple[str, ...], tmp_path: Path
) -> None:
    done = critpath("incidents", *words, cwd=tmp_path)
    assert done.returncode == 2, done.stderr


def test_what_was_found_in_another_way_is_not_what_is_usual(host: Host) -> None:
    """Marked executions are not held against requests: 60 dumps of these say nothing of them."""
    usual = host.dump("usual")
    host.paths[usual] = replace(host.paths[usual], specification="requests")
    host.looker.look()
    host.pass_time(60)
    host.dump("latency GET /cart > 5ms", asks=22, before=40)
    host.looker.look()
    [(one, _)] = host.told
    assert (one.verdict, one.usual.of, one.usual.executions) == ("anomaly", "dump", 40)


@pytest.mark.parametrize(
    ("when", "marks"),
    [
        ("latency cart > 50ms", True),
        ("latency nginx:80 p99 > 50ms over 30s", False),
        ("usual", False),
        ("slower than usual", False),
    ],
)
def test_marks_are_looked_at_where_a_condition_is_about_them(when: str, marks: bool) -> None:
    assert Dump(Path("x"), TriggerEntry(when), 0, 0, "", {}).is_of_marks == marks
