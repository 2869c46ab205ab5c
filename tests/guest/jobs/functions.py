"""In the guest: count kernel functions, exactly; what it costs; two sessions of small workloads.

The host looks at what /out has (`tests/guest/functions`).
"""

import json
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

OUT = Path("/out")
# Functions of the paths that programs take through a kernel, as the paper's signatures have them.
FUNCTIONS = (
    *("vfs_read", "vfs_write", "vfs_open", "vfs_statx", "vfs_fsync_range", "do_sys_openat2"),
    *(
        "path_openat",
        "link_path_walk",
        "walk_component",
        "filp_close",
        "iterate_dir",
        "do_filp_open",
    ),
    *("pipe_read", "pipe_write", "kernel_clone", "copy_process", "do_exit", "begin_new_exec"),
    *("do_wait", "schedule", "try_to_wake_up", "handle_mm_fault", "do_mmap", "mmap_region"),
    *("unmap_region", "filemap_read", "generic_perform_write", "ext4_file_write_iter"),
    *("ext4_sync_file", "ext4_lookup", "jbd2_complete_transaction", "submit_bio", "wake_up_q"),
    *("futex_wait", "hrtimer_nanosleep", "copy_page_range", "wp_page_copy", "do_anonymous_page"),
)
LOADS = {
    "find": "find /usr -name '*.py' >/dev/null",
    "sha256": "sha256sum /tmp/data >/dev/null",
    "xz": "head -c 300000 /tmp/data | xz -1 >/dev/null",
    "forks": "/bin/true; /bin/true; /bin/true",
    "pipe-4k": "dd if=/dev/zero bs=4k count=3000 2>/dev/null | cat >/dev/null",
    "pipe-64k": "dd if=/dev/zero bs=64k count=1000 2>/dev/null | cat >/dev/null",
    "copy": "cp -r /usr/lib/python3/dist-packages /tmp/copy 2>/dev/null; "
    "cp /tmp/data /tmp/copy2; rm -rf /tmp/copy /tmp/copy2",
    "fsync": "dd if=/dev/zero of=/tmp/sync bs=4k count=20 oflag=dsync 2>/dev/null",
    "idle": "sleep 0.5",
}


def record(output, *words, functions=FUNCTIONS, events="all", options=()):
    return subprocess.run(
        [
            *(
                "critpath",
                "record",
                "--recorder",
                "counts",
                "--events",
                events,
                "--interval",
                "0.5",
            ),
            *(("--functions", ",".join(functions)) if functions else ()),
            *("--no-probe", "--force", "-o", output, *options, "--", *words),
        ],
        check=False,
        capture_output=True,
        text=True,
    )


def main():
    known = []
    for name in FUNCTIONS:
        text = Path("/proc/kallsyms").read_text()
        if f" {name}\n" in text:
            known.append(name)
    (OUT / "functions.json").write_text(json.dumps(known))
    exact = "import os\nfor i in range(300):\n p = os.fork()\n"
    exact += " if not p: os._exit(0)\n os.waitpid(p, 0)\n"
    exact += "r, w = os.pipe()\nfor i in range(2000): os.write(w, b'x'); os.read(r, 1)\n"
    begin = time.time()
    done = record(
        str(OUT / "exact"),
        sys.executable,
        "-S",
        "-E",
        "-c",
        exact,
        functions=known,
        events="minimal",
    )
    print("exact:", done.returncode, done.stderr[-600:], f"{time.time() - begin:.1f} s")
    if done.returncode:
        return
    costs = {}
    for _ in range(5):
        for way, options in (
            ("none", None),
            ("minimal", ((), "minimal")),
            ("minimal and functions", (known, "minimal")),
            ("all", ((), "all")),
        ):
            for operation in ("syscall", "open", "ping-pong"):
                words = ("./signatures", operation, "60")
                if options is None:
                    text = subprocess.run(words, capture_output=True, check=True, text=True).stdout
                else:
                    text = ""
                    with open("/tmp/said", "w") as stream:
                        subprocess.run(
                            [
                                *("critpath", "record", "--recorder", "counts", "--no-probe"),
                                *("--events", options[1], "--force", "-o", "/tmp/cost"),
                                *(("--functions", ",".join(options[0])) if options[0] else ()),
                                *("--", *words),
                            ],
                            stdout=stream,
                            stderr=subprocess.DEVNULL,
                            check=True,
                        )
                    text = Path("/tmp/said").read_text()
                costs.setdefault(f"{operation}, {way}", []).append(float(text))
        (OUT / "costs.json").write_text(json.dumps(costs))
    with open("/tmp/data", "wb") as stream:
        block = random.Random(1).randbytes(1 << 19) + bytes(1 << 19)
        stream.write(block * 4)
    for session in range(2):
        order = list(LOADS)
        random.Random(session).shuffle(order)
        for name in order:
            loop = f"while :; do {LOADS[name]}; done"
            place = OUT / f"session{session}" / name
            place.parent.mkdir(exist_ok=True)
            done = record(str(place), "sh", "-c", loop, functions=known, options=("--timeout", "9"))
            print(
                session,
                name,
                done.returncode,
                done.stderr[-200:] if done.returncode not in (0, 124) else "",
                flush=True,
            )
    shutil.rmtree("/tmp/cost", ignore_errors=True)


main()
