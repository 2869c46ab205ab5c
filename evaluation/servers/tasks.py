"""What CPU time it costs to ask runtimes which task runs: ``python tasks.py [PYTHON ...]``.

A step of a task that does nothing, on each Python and on Node.js: as it is, with what answers in it
while nobody asks, and under ``critpath record --tasks``.  Needs root and tracefs.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import critpath_marks

AGENTS: Final = Path(critpath_marks.__file__).parent
STEPS: Final = 100_000
PYTHON: Final = """
import asyncio, sys, time
async def work(n):
    for _ in range(n): await asyncio.sleep(0)
async def main(n):
    await asyncio.gather(*(work(n // 20) for _ in range(20)))
def once(n):
    begin = time.process_time()
    asyncio.run(main(n))
    return time.process_time() - begin
print(round(min(once(int(sys.argv[1])) for _ in range(5)) / int(sys.argv[1]) * 1e9))
"""
NODE: Final = """
const http = require("http"), n = Number(process.argv[2]);
async function work(steps) {
    for (let i = 0; i < steps; i++) await new Promise((go) => setImmediate(go));
}
async function once() {
    const begin = process.cpuUsage(), server = new http.Server(), all = [];
    server.on("request", () => all.push(work(n / 20)));
    for (let i = 0; i < 20; i++) server.emit("request");
    await Promise.all(all);
    const used = process.cpuUsage(begin);
    return (used.user + used.system) * 1000 / n;
}
(async () => {
    let best = Infinity;
    for (let i = 0; i < 5; i++) best = Math.min(best, await once());
    console.log(Math.round(best));
})();
"""


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("pythons", nargs="*", default=[sys.executable])
    parser.add_argument("--steps", type=int, default=STEPS)
    given = parser.parse_args()
    critpath = Path(sys.executable).with_name("critpath")
    print("| runtime | ns a step | with what answers | asked | asking costs |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as place:
        programs = [(one, "steps.py", PYTHON) for one in given.pythons]
        programs += [(node, "steps.js", NODE) for node in [shutil.which("node")] if node]
        for program, name, text in programs:
            file = Path(place) / name
            file.write_text(text)
            command = [program, str(file), str(given.steps)]
            agents = {
                "PYTHONPATH": f"{AGENTS}/started",
                "NODE_OPTIONS": f"--require {AGENTS}/tasks.js",
            }
            record = [critpath, "record", "--quiet", "--force", "--no-probe", "--tasks"]
            plain, there, asked = (
                int(subprocess.check_output(words, env=os.environ | more, text=True).split()[-1])
                for words, more in (
                    (command, {}),
                    (command, agents),
                    ([*record, "-o", f"{place}/recorded", "--", *command], {}),
                )
            )
            version = subprocess.check_output([program, "--version"], text=True).split()[-1]
            print(f"| {Path(program).name} {version} | {plain} | {there} | {asked} "
                  f"| {asked - plain} |")  # fmt: skip


if __name__ == "__main__":
    main()
