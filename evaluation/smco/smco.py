"""The two monitors of SMCO, repeated: the paper's tables, of this machine.

Run on a quiet machine: ``python evaluation/smco/smco.py OUT [run|table] [--rounds N]
[--only NAME]``.  Costs of events are calibrated first, and are wrong on a busy one.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
APT = Path("/etc/apt")
PLUGIN_PACKAGE = "gcc-{}-plugin-dev"
MEGABYTE = 1_000_000
TARGETS = (0.0, 0.05, 0.1, 0.2, 0.4, 1.0, 1.4)
RANGES = ("global", "cascade", "fair")
NAPS = ("cascade", "fair")
# Student's t at 97.5 % by the number of runs.
STUDENT = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
# Blocks of 100 kB: of 900 kB, one call of one function costs 250 ms, as much as a target of 5 %
# allows in five seconds, and no gate can close within it.
BLOCKS = ("-1",)
FEW = 2_000_000  # events of a function below which its cost is not told from the noise
ACCURACY = 0.1  # target at which ranges are compared with the truth


def what_is_missing() -> str:
    """Return the package that has to be installed first, in one line, or nothing."""
    for program, package in (("g++", "g++"), ("gcc", "gcc"), ("make", "make")):
        if not shutil.which(program):
            return f"{package} is missing: apt-get install {package}"
    if not (plugin_headers() / "gcc-plugin.h").exists():
        version = said(["gcc", "-dumpversion"]).split(".", maxsplit=1)[0]
        package = PLUGIN_PACKAGE.format(version)
        return f"{package} is missing: apt-get install {package}"
    return ""


def said(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def plugin_headers() -> Path:
    return Path(said(["gcc", "-print-file-name=plugin"])) / "include"


def sh(command: Iterable[object], where: Path) -> None:
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=where, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words[:4])}: {done.stderr.strip()[-600:]}")


def build_plugin(out: Path) -> Path:
    plugin = out / "ranges.so"
    options = ("-O1", "-fPIC", "-shared", "-fno-rtti", "-fno-exceptions")
    sh(["g++", *options, f"-I{plugin_headers()}", "-o", plugin, HERE / "ranges/plugin.cc"], out)
    return plugin


def build_monitor(out: Path) -> list[Path]:
    made = []
    for source in (HERE / "ranges/monitor.c", HERE / "controllers.c"):
        made.append(out / f"{source.stem}.o")
        sh(["gcc", "-O2", "-Wall", "-Wextra", "-c", source, "-o", made[-1]], out)
    return made


def build_naps(out: Path) -> Path:
    library = out / "naps.so"
    sources = (HERE / "naps/naps.c", HERE / "controllers.c")
    sh(["gcc", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-o", library, *sources], out)
    return library


def with_plugin(plugin: Path, table: Path) -> list[str]:
    return [f"-fplugin={plugin}", f"-fplugin-arg-ranges-table={table}"]


def fetch_sources(out: Path) -> None:
    """Get the sources of bzip2 and grep from where this machine's packages come from."""
    parts, lists = out / "apt" / "parts", out / "apt" / "lists"
    for folder in (parts, lists / "partial"):
        folder.mkdir(parents=True, exist_ok=True)
    for path in (APT / "sources.list.d").glob("*.sources"):
        text = path.read_text(encoding="utf-8").replace("Types: deb\n", "Types: deb-src\n")
        (parts / path.name).write_text(text, encoding="utf-8")
    options = {
        "Dir::Etc::sourcelist": APT / "sources.list",
        "Dir::Etc::sourceparts": parts,
        "Dir::State::lists": lists,
    }
    chosen = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    sh(["apt-get", *chosen, "update"], out)
    sh(["apt-get", *chosen, "source", "bzip2", "grep"], out)


def build_bzip2(out: Path) -> None:
    source = next(out.glob("bzip2-*/"))
    names = [
        "blocksort",
        "huffman",
        "crctable",
        "randtable",
        "compress",
        "decompress",
        "bzlib",
        "bzip2",
    ]
    table = out / "bzip2.table"
    table.unlink(missing_ok=True)
    plain = ["gcc", "-O2", "-D_FILE_OFFSET_BITS=64"]
    for kind, more in (("plain", []), ("ranges", with_plugin(out / "ranges.so", table))):
        made = []
        for name in names:
            made.append(out / f"{name}.{kind}.o")
            sh([*plain, *more, "-c", source / f"{name}.c", "-o", made[-1]], out)
        linked = [out / "monitor.o", out / "controllers.o"] if more else []
        sh(["gcc", "-o", out / f"bzip2.{kind}", *made, *linked], out)


def build_grep(out: Path) -> None:
    """grep and its regular expressions with the plug-in, the rest of its library too."""
    source = next(out.glob("grep-*/")).resolve()
    for name in ("aclocal.m4", "configure", "config.hin"):
        (source / name).touch()  # patched: not to be made anew
    for path in source.rglob("Makefile.in"):
        path.touch()
    table = out / "grep.table"
    table.unlink(missing_ok=True)
    for kind, more in (("plain", []), ("ranges", with_plugin(out / "ranges.so", table))):
        build = out / f"grep-{kind}"
        shutil.rmtree(build, ignore_errors=True)
        build.mkdir()
        sh([source / "configure", "--disable-nls", "--disable-perl-regexp"], build)
        flags = "CFLAGS=" + " ".join(["-O2", *more])
        linked = [f"LIBS={out / 'monitor.o'} {out / 'controllers.o'}"] if more else []
        sh(["make", "-C", "lib", flags], build)
        sh(["make", "-C", "src", "grep", flags, *linked], build)
        shutil.copy(build / "src/grep", out / f"grep.{kind}")


def mixed_data(size: int, seed: int) -> bytes:
    """A third each of text, of what is compressed already, and of chance."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    third = size // 3
    text = bytearray()
    paths = sorted(Path(os.__file__).parent.rglob("*.py"))
    chance.shuffle(paths)
    for path in paths:
        text += path.read_bytes()
        if len(text) > 3 * third:
            break
    while len(text) < 2 * third:
        text += text
    packed = zlib.compress(bytes(text[third:]))
    while len(packed) < third:
        packed += packed
    return bytes(text[:third]) + packed[:third] + chance.randbytes(third)


def forget_pages(tree: Path) -> list[str]:
    """The files below a tree, none of which is in memory afterwards."""
    names = []
    for path in sorted(tree.rglob("*")):
        if path.is_file() and not path.is_symlink():
            file = os.open(path, os.O_RDONLY)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)
            names.append(str(path))
    return names


def measure(command: list[object], out: Path, env: dict[str, str]) -> dict[str, object]:
    """Run once; cpu time of all of it, and what the monitor said."""
    result = out / f"result-{os.getpid()}.jsonl"
    result.unlink(missing_ok=True)
    sink = os.open(os.devnull, os.O_WRONLY)
    words = [str(word) for word in command]
    environment = {**os.environ, "SMCO_RESULT": str(result), **env}
    pid = os.posix_spawn(
        words[0], words, environment, file_actions=[(os.POSIX_SPAWN_DUP2, sink, 1)]
    )
    _, status, usage = os.wait4(pid, 0)
    os.close(sink)
    code = os.waitstatus_to_exitcode(status)
    if code not in {0, 1}:  # 1: grep that found nothing
        sys.exit(f"{words[0]}: exit code {code}")
    lines = result.read_text().splitlines() if result.exists() else []
    heard = [json.loads(line) for line in lines]
    last: dict[str, object] = heard[-1] if heard else {}
    allocations = [line for line in heard if "allocation" in line]
    return {**last, "allocations": allocations, "cpu": usage.ru_utime + usage.ru_stime}


class Load:
    """A program with and without the plug-in, and what it is given to do."""

    megabytes = 50  # of what bzip2 compresses

    def __init__(self, out: Path, name: str) -> None:
        self.out, self.name = out, name
        self.costs = out / f"{name}.costs"

    def commands(self, kind: str, *, small: bool) -> Iterator[list[object]]:
        binary = self.out / f"{self.name}.{kind}"
        if self.name == "bzip2":
            size = 4 if small else self.megabytes
            data = self.out / f"{size}.data"
            if not data.exists():
                data.write_bytes(mixed_data(size * MEGABYTE, size))
            packed = data.with_suffix(".bz2")
            if not packed.exists():
                with packed.open("wb") as file:
                    plain = self.out / "bzip2.plain"
                    subprocess.run([plain, *BLOCKS, "-c", data], stdout=file, check=True)
            yield [binary, *BLOCKS, "-c", data]
            yield [binary, "-dc", packed]
        else:
            tree = Path(sys.prefix if small else "/usr/share")
            if not small:
                forget_pages(tree)
            yield [binary, "-rn", "[a-z]*unlikely[0-9]_to_be_found", tree]

    def run(self, kind: str, *, small: bool = False, **settings: object) -> dict[str, object]:
        env = {f"SMCO_{name.upper()}": str(value) for name, value in settings.items()}
        if settings.get("preload"):
            env |= {"LD_PRELOAD": str(self.out / "naps.so")}
        if kind == "ranges":
            env |= {"SMCO_TABLE": str(self.out / f"{self.name}.table")}
            env |= {"SMCO_COSTS": str(self.costs)}
        parts = [measure(command, self.out, env) for command in self.commands(kind, small=small)]
        return {"cpu": sum(part["cpu"] for part in parts), "parts": parts}  # type: ignore[misc]


def total(run: dict, name: str) -> float:
    return sum(part.get(name, 0) for part in run["parts"])


def events_of(run: dict) -> list[int]:
    return [
        sum(numbers)
        for numbers in zip(*([f[2] for f in p["functions"]] for p in run["parts"]), strict=True)
    ]


def calibrate_ranges(load: Load) -> None:
    """What a call and an event of each function cost, by runs on other, less data.

    One function is monitored at a time; those with few events get what all have in the mean.
    """
    load.costs.write_text("")
    plain, closed = [], []
    for _ in range(5):
        plain.append(load.run("plain", small=True)["cpu"])
        closed.append(load.run("ranges", small=True, controller="none", hertz=0))
    whole = [load.run("ranges", small=True, controller="all", hertz=0) for _ in range(3)]
    # The least of some: neighbours only add to what a run costs.
    without, base = min(plain), min(run["cpu"] for run in closed)
    calls = total(closed[0], "calls")
    call = min(max((base - without) / max(calls, 1), 0.3e-9), 20e-9)
    events = events_of(whole[0])
    mean = (min(run["cpu"] for run in whole) - base) / max(sum(events), 1)
    lines = [f"call 0 {call * 1e9:.4f}", "poll 0 5000"]
    for function, count in enumerate(events):
        ns = mean
        if count > FEW:
            alone = [
                load.run("ranges", small=True, controller="only", only=function, hertz=0)["cpu"]
                for _ in range(3)
            ]
            ns = min(max((min(alone) - base) / count, mean / 4), 20 * mean)
        lines.append(f"event {function} {ns * 1e9:.4f}")
    load.costs.write_text("\n".join(lines) + "\n")
    print(
        f"{load.name}: {len(events)} functions, an event {mean * 1e9:.2f} ns, "
        f"a call {call * 1e9:.2f} ns, base {base / without - 1:+.1%}",
        flush=True,
    )


def calibrate_naps(load: Load) -> float:
    """How much more a trap costs inside the program than in the loop that measures one."""
    ratios = []
    for _ in range(5):
        plain = load.run("plain", small=True)["cpu"]
        run = load.run("plain", small=True, preload=1, controller="fair", target=0.3, kappa=1)
        ratios.append((run["cpu"] - plain) / total(run, "spent"))
    return statistics.median(ratios)


def prepare(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    if (out / "grep.ranges").exists():
        return
    build_plugin(out)
    build_monitor(out)
    build_naps(out)
    if not list(out.glob("bzip2-*/")):
        fetch_sources(out)
    build_bzip2(out)
    build_grep(out)


def save(out: Path, **row: object) -> None:
    with (out / "runs.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"load": os.getloadavg()[0], **row}) + "\n")


def ranges_found(run: dict) -> dict[str, tuple[int, int, int]]:
    """Updates, lowest and highest of each variable, over the runs that a run consists of."""
    found: dict[str, tuple[int, int, int]] = {}
    for part in run["parts"]:
        for name, (count, low, high) in part.get("ranges", {}).items():
            before = found.get(name, (0, low, high))
            found[name] = (before[0] + count, min(before[1], low), max(before[2], high))
    return found


def measure_ranges(out: Path, name: str, targets: Iterable[float], hertz: int = 100) -> None:
    load = Load(out, name)
    if not load.costs.exists():
        calibrate_ranges(load)
    for target in targets:
        # Before and after each: the machine changes.
        before = load.run("plain")["cpu"]
        for controller in RANGES:
            run = load.run("ranges", controller=controller, target=target, hertz=hertz)
            after = load.run("plain")["cpu"]
            plain, before = (before + after) / 2, after
            row = {"cpu": run["cpu"], "plain": plain, "events": total(run, "events")}
            row |= {"spent": total(run, "spent"), "base": total(run, "base")}
            row |= {"levels": run["parts"][0]["levels"], "hertz": hertz}
            row |= {"ranges": ranges_found(run)} if target == ACCURACY else {}
            save(out, monitor="ranges", of=name, controller=controller, target=target, **row)
            print(name, controller, target, hertz, f"{run['cpu'] / plain - 1:.4f}", flush=True)


def measure_all(out: Path, name: str) -> None:
    """Everything recorded: the truth, and the most that monitoring can cost."""
    load = Load(out, name)
    plain = load.run("plain")["cpu"]
    run = load.run("ranges", controller="all", hertz=0)
    row = {"cpu": run["cpu"], "plain": plain, "events": total(run, "events")}
    save(
        out, monitor="ranges", of=name, controller="all", target=-1, ranges=ranges_found(run), **row
    )
    print(name, "all", f"{run['cpu'] / plain - 1:.4f}", flush=True)


def measure_naps(out: Path, targets: Iterable[float]) -> None:
    load = Load(out, "bzip2")
    kept = out / "naps.kappa"
    if not kept.exists():
        kept.write_text(str(calibrate_naps(load)))
        print("naps: kappa", kept.read_text(), flush=True)
    kappa = float(kept.read_text())
    for target in targets:
        before = load.run("plain")["cpu"]
        for controller in NAPS:
            settings = {"controller": controller, "target": target, "kappa": kappa, "nap": 0.2}
            run = load.run("plain", preload=1, **settings)
            after = load.run("plain")["cpu"]
            plain, before = (before + after) / 2, after
            row = {"cpu": run["cpu"], "plain": plain, "events": total(run, "events")}
            row |= {"spent": total(run, "spent"), "levels": run["parts"][0]["levels"]}
            row |= {"naps": sum(a["naps"] for p in run["parts"] for a in p["allocations"])}
            save(out, monitor="naps", of="bzip2", controller=controller, target=target, **row)
            print("naps", controller, target, f"{run['cpu'] / plain - 1:.4f}", flush=True)


def measure_untouched(out: Path, targets: Iterable[float]) -> None:
    """200 allocations of which 20 are never touched: how many of them are found, and others."""
    program = out / "untouched"
    sh(["gcc", "-O2", HERE / "naps/untouched.c", "-o", program], out)
    for target in targets:
        for controller in NAPS:
            env = {"SMCO_CONTROLLER": controller, "SMCO_TARGET": str(target), "SMCO_NAP": "1"}
            run = measure([program, "4"], out, {**env, "LD_PRELOAD": str(out / "naps.so")})
            naps = {a["allocation"] for a in run["allocations"] if a["naps"]}  # type: ignore[attr-defined]
            truth = set(range(0, 200, 10))
            row = {"found": len(naps & truth), "false": len(naps - truth)}
            save(out, monitor="untouched", controller=controller, target=target, **row)
            print("untouched", controller, target, row, flush=True)


def interval(values: list[float]) -> tuple[float, float]:
    """Mean and half of the 95 % interval."""
    if len(values) < 2:
        return values[0], float("nan")
    spread = statistics.stdev(values) / len(values) ** 0.5
    return statistics.fmean(values), STUDENT.get(len(values), 2.0) * spread


def shown(values: list[float]) -> str:
    if not values:
        return "-"
    mean, half = interval(values)
    return f"{mean:.1f}" if math.isnan(half) else f"{mean:.1f} ± {half:.1f}"


def overhead(row: dict) -> float:
    return 100 * (row["cpu"] / row["plain"] - 1)


def counted(row: dict) -> float:
    """What the controller charged, in % of the rest; without load it is what is observed."""
    return 100 * row["spent"] / (row["cpu"] - row["spent"])


def show_overhead(rows: list[dict], monitor: str, of: str, controllers: Iterable[str]) -> None:
    chosen = [r for r in rows if r["monitor"] == monitor and r["of"] == of]
    chosen = [r for r in chosen if r.get("hertz", 100) == 100]
    cells = defaultdict(list)
    for row in chosen:
        cells[row["target"], row["controller"]].append(row)
    everything = [r for r in chosen if r["controller"] == "all"]
    print(f"\n{monitor}, {of}: overhead observed %, counted %, million events (runs)")
    if everything:
        print(
            f"all: {shown([overhead(r) for r in everything])} ({everything[0]['events'] / 1e6:.1f})"
        )
    print(
        "| target % | " + " | ".join(controllers) + " |\n|---:|" + "---:|" * len(list(controllers))
    )
    for target in sorted({t for t, _ in cells if t >= 0}):
        said_of = []
        for controller in controllers:
            at = cells[target, controller]
            millions = statistics.fmean(r["events"] for r in at) / 1e6 if at else 0
            values = (shown([of(r) for r in at]) for of in (overhead, counted))
            said_of.append(f"{', '.join(values)}, {millions:.3g} ({len(at)})")
        print(f"| {100 * target:.0f} | " + " | ".join(said_of) + " |")


def accuracy(rows: list[dict]) -> None:
    truth = next(r for r in rows if r["controller"] == "all" and r["of"] == "bzip2")["ranges"]
    print(f"\nranges, bzip2, target {100 * ACCURACY:.0f} %: found / true range, %")
    print("| updates | variables | " + " | ".join(RANGES) + " |\n|---|---:|---:|---:|---:|")
    classes = defaultdict(list)
    for name, (count, _, _) in truth.items():
        classes[len(str(count)) - 1].append(name)
    for power, names in sorted(classes.items()):
        cells = []
        for controller in RANGES:
            runs = [
                row["ranges"]
                for row in rows
                if (row["controller"], row["of"], row.get("hertz")) == (controller, "bzip2", 100)
                and "ranges" in row
            ]
            means = [
                100 * statistics.fmean(found_part(run.get(n), truth[n]) for n in names)
                for run in runs
            ]
            cells.append(shown(means))
        print(f"| 10^{power}-10^{power + 1} | {len(names)} | " + " | ".join(cells) + " |")


def found_part(found: list[int] | None, true: list[int]) -> float:
    if not found:
        return 0.0
    width = true[2] - true[1]
    return (found[2] - found[1]) / width if width else 1.0


def show_settling(rows: list[dict]) -> None:
    """After how many adjustments the level first stays within a quarter of its last mean."""
    print("\nadjustments until the share observed is within 25 % of the target, target 20 %")
    for row in rows:
        if row["target"] == 0.2 and row["controller"] in NAPS and row.get("hertz", 100) == 100:
            share = 0.2 / 1.2
            inside = [
                i for i, level in enumerate(row["levels"]) if abs(level[2] / share - 1) < 0.25
            ]
            first = inside[0] + 1 if inside else "never"
            print(
                f"{row['monitor']} {row['of']} {row['controller']}: {first} of {len(row['levels'])}"
            )


def show(out: Path) -> None:
    lines = (out / "runs.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    for name in ("bzip2", "grep"):
        show_overhead([r for r in rows if r["monitor"] != "untouched"], "ranges", name, RANGES)
    show_overhead([r for r in rows if r["monitor"] != "untouched"], "naps", "bzip2", NAPS)
    print("\n200 allocations, 20 never touched: found, false")
    for row in (r for r in rows if r["monitor"] == "untouched"):
        print(f"{row['controller']} {100 * row['target']:.0f} %: {row['found']}, {row['false']}")
    accuracy([r for r in rows if r["monitor"] == "ranges"])
    slow = [r for r in rows if r.get("hertz") == 10]
    for row in slow:
        print(
            f"polls at 10 Hz, {row['controller']}, target {100 * row['target']:.0f} %: "
            f"{overhead(row):.1f} %"
        )
    show_settling([r for r in rows if r["monitor"] != "untouched"])
    loads = [r["load"] for r in rows]
    print(
        f"\nload of the machine {min(loads):.1f} to {max(loads):.1f}, "
        f"median {statistics.median(loads):.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("what", nargs="?", default="all", choices=("all", "run", "table"))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument(
        "--only", choices=("bzip2", "grep", "naps", "untouched", "accuracy", "clock")
    )
    parser.add_argument("--megabytes", type=int, default=Load.megabytes)
    options = parser.parse_args()
    Load.megabytes = options.megabytes
    missing = what_is_missing()
    if missing:
        sys.exit(missing)
    out = options.out.resolve()
    if options.what != "table":
        prepare(out)
        for turn in range(options.rounds):
            for name, start in STEPS.items():
                if options.only in {None, name}:
                    start(out, turn)
    if options.what != "run":
        show(out)


def step_of_load(name: str):
    def start(out: Path, turn: int) -> None:
        measure_ranges(out, name, TARGETS)
        if turn == 0:
            measure_all(out, name)

    return start


def compare_with_truth(out, turn):
    measure_ranges(out, "bzip2", [ACCURACY])
    if turn == 0:
        measure_all(out, "bzip2")


STEPS = {
    "bzip2": step_of_load("bzip2"),
    "grep": step_of_load("grep"),
    "naps": lambda out, _: measure_naps(out, TARGETS),
    "untouched": lambda out, _: measure_untouched(out, (0.02, 0.05, 0.1, 0.2, 0.4)),
    "accuracy": compare_with_truth,
    "clock": lambda out, _: measure_ranges(out, "bzip2", [0.1, 0.4], hertz=10),
}

if __name__ == "__main__":
    main()
