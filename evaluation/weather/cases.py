"""Faults of the kinds that public reports told, three programs of each, and what is true of them.

A truth is of the first sentence: it is right if all patterns of one alternative of `right` are
found in it and none of `never`; partly so with `partly`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

TIMES: Final = r"\btimes\b|\btwice\b|\btrips\b|more often|\bnow ask"
SLEPT: Final = r"sleep|timer"
RAN: Final = r"\bruns?\b|\brunning\b|\bcomput"
# Of a fault of the program: a neighbour had the cpu, as it has on both sides.
BLAMED: Final = (
    r"busy running (?!`?(worker|prefork|consumer|waiter|kinds))|others? had|"
    r"stress-ng|indexer|jackd|batchd"
)
# The hogs of `services.sh`, and the file that tells each to run.
HOGS: Final = {"jackd": "/dev/shm/critpath-hog", "batchd": "/dev/shm/critpath-batch"}
Patterns = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Case:
    """A program with and without a fault."""

    name: str
    kind: str
    before: str
    after: str
    what: str  # what the first sentence must say, in words
    right: Patterns
    partly: Patterns = ()
    never: str = BLAMED
    runs: int = 4
    execution: str = "marker"
    options: tuple[str, ...] = ()  # of record
    whose: str = "program"  # or neighbour: whose fault it is
    small: str = ""  # a command with a smaller change
    changed: str = "all"  # or the label of the requests that have the change, or "3 of 8"
    environment: dict[str, str] = field(default_factory=dict)


# Programs that have a smaller change, too.
_SMALLER: Final = {
    *("cachecli", "sorter", "mapper", "pool", "py-compute", "py-fork"),
    *("py-relay", "py-threads", "js-fetch", "js-parse", "js-pool", "pl-fork", "pl-chain"),
}


def _c(
    name: str, kind: str, what: str, right: Patterns, partly: Patterns = (), **more: object
) -> Case:
    given: dict[str, object] = {"runs": 14, "execution": "process"} | more
    given["small"] = f"BIN/{name} c" if name in _SMALLER else ""
    return Case(name, kind, f"BIN/{name} a", f"BIN/{name} b", what, right, partly, **given)  # type: ignore[arg-type]


def _s(
    tool: str,
    name: str,
    kind: str,
    what: str,
    right: Patterns,
    partly: Patterns = (),
    **more: object,
) -> Case:
    line = {"py": "PYTHON HERE/kinds.py", "js": "node HERE/kinds.js", "pl": "perl HERE/kinds.pl"}
    before, after, small = (f"{line[tool]} {name} {side}" for side in "abc")
    more["small"] = small if f"{tool}-{name}" in _SMALLER else ""
    return Case(f"{tool}-{name}", kind, before, after, what, right, partly, **more)  # type: ignore[arg-type]


def _under(hog: str, case: Case, command: str) -> Case:
    return Case(
        f"{case.name}-{hog}",
        case.kind,
        f"BIN/underhog a {command} a",
        f"BIN/underhog b {command} a",
        case.what,
        case.right,
        case.partly,
        never=r"everything took|no cause",
        runs=case.runs,
        execution=case.execution,
        whose="neighbour",
        changed=case.changed,
        environment={"HOG_FLAG": HOGS[hog]},
    )


_ASK = "PYTHON HERE/kinds.py ask"
_BASH = (
    "bash -c 'printf -v x %%*s %d000000 x;"
    ' for i in 1 2 3 4 5 6; do echo "critpath:begin step $i" >&$CRITPATH_MARKER_FD;'
    " (:); for k in {1..2000}; do :; done;"
    ' echo "critpath:end step $i" >&$CRITPATH_MARKER_FD; done\''
)

CASES: Final = (
    # Another count of trips to a peer.
    _c(
        "cachecli",
        "nplus1",
        "asks memcached 20 times a page instead of once",
        (("memcached|mc-worker", TIMES),),
        (("memcached|mc-worker",),),
    ),
    _s(
        "js",
        "fetch",
        "nplus1",
        "asks nginx 12 times instead of once",
        (("nginx", TIMES),),
        (("nginx",),),
        runs=3,
    ),
    Case(
        "gunicorn-n",
        "nplus1",
        f"{_ASK} /shop?n=1 8231 10 page",
        f"{_ASK} /shop?n=15 8231 10 page",
        "gunicorn asks redis-server 15 times instead of once",
        (("redis", TIMES),),
        (("redis",), ("gunicorn", TIMES), ("gunicorn", RAN)),
        runs=3,
        small=f"{_ASK} /shop?n=3 8231 10 page",
    ),
    # The same behind one tier or two.
    *(
        Case(
            f"tiers-{tier}",
            "nplus1",
            f"PYTHON HERE/kinds.py line '{tier} 1' {port}",
            f"PYTHON HERE/kinds.py line '{tier} 15' {port}",
            f"{tier} asks {ends[0]} 15 times instead of once",
            (("|".join(ends), TIMES),),
            (("|".join(ends),), (tier, TIMES), (tier, RAN)),
            runs=3,
            small=f"PYTHON HERE/kinds.py line '{tier} 4' {port}",
        )
        for tier, port, ends in (
            ("portal", 8261, ("users", "table")),
            ("api", 8265, ("cache",)),
            ("shop", 8268, ("store",)),
        )
    ),
    # All of one's own threads or children woken for a job of one.
    _c(
        "epollherd",
        "herd",
        "80 threads `worker` are woken for a job instead of one",
        (("worker", r"waiting for a CPU|busy running|" + TIMES),),
        (("worker",), (RAN,)),
    ),
    _c(
        "forkherd",
        "herd",
        "50 children `prefork` are woken for a job instead of one",
        (("prefork", r"waiting for a CPU|busy running|" + TIMES),),
        (("prefork",), (RAN,)),
        runs=3,
        execution="marker",
    ),
    _s(
        "py",
        "herd",
        "herd",
        "40 threads `consumer` are woken for a job instead of one",
        (("consumer", r"waiting for a CPU|busy running|lock|" + TIMES),),
        (("consumer",), (RAN,)),
    ),
    # Longer computation; recorded beside a neighbour as well.
    _c("sorter", "computation", "it computes three times as long itself", ((RAN,),)),
    _s("py", "compute", "computation", "it computes four times as long itself", ((RAN,),), runs=3),
    _s("js", "parse", "computation", "it computes four times as long itself", ((RAN,),), runs=3),
    Case(
        "gunicorn-c",
        "computation",
        f"{_ASK} /shop?c=1 8231 10 page",
        f"{_ASK} /shop?c=6 8231 10 page",
        "gunicorn computes 6 times as long",
        (("gunicorn", RAN),),
        (("gunicorn",),),
        runs=3,
        small=f"{_ASK} /shop?c=1.4 8231 10 page",
    ),
    Case(
        "redis-eval",
        "computation",
        *(
            f"redis-cli -p 6398 eval 'local x=0 for i=1,{n} do x=x+i end return x' 0"
            for n in (100000, 1500000)
        ),
        "redis-server computes 15 times as long",
        (("redis-server", RAN),),
        (("redis-server",),),
        runs=14,
        execution="process",
    ),
    # A fork with much memory: running, its own and its child's.
    _s(
        "py",
        "fork",
        "fork",
        "runs longer itself (fork copies page tables), and so does its child",
        ((RAN,),),
        (("fork",), ("python",)),
    ),
    _s(
        "pl",
        "fork",
        "fork",
        "runs longer itself (fork copies page tables), and so does its child",
        ((RAN,),),
        (("perl",),),
    ),
    Case(
        "bash-fork",
        "fork",
        _BASH % 4,
        _BASH % 150,
        "runs longer itself (fork copies page tables), and so does its child",
        ((RAN,),),
        (("bash",),),
        small=_BASH % 20,
    ),
    # A chain whose end sleeps.
    _s(
        "py",
        "relay",
        "chain",
        "waits through front-desk and stock for ledger, which sleeps",
        (("ledger", SLEPT),),
        (("ledger",), ("stock",), ("front-desk",), (SLEPT,)),
    ),
    _s(
        "py",
        "lock",
        "chain",
        "waits through psql and postgres for billing, which sleeps",
        (("billing", SLEPT),),
        (("billing",), ("postgres",), (SLEPT,)),
        runs=14,
        execution="process",
    ),
    Case(
        "shop-job",
        "chain",
        f"{_ASK} /shop?job=2 8230 8 page",
        f"{_ASK} /shop?job=20 8230 8 page",
        "waits through nginx, gunicorn and redis-server for mailer, which sleeps",
        (("mailer", SLEPT),),
        (("mailer",), ("gunicorn",), ("redis",), ("nginx",), (SLEPT,)),
        runs=3,
        small=f"{_ASK} /shop?job=4 8230 8 page",
    ),
    _s(
        "pl",
        "chain",
        "chain",
        "waits through sh for its child sleep, which sleeps",
        ((r"(thread|for|child|another) `?sleep`?\b", SLEPT),),
        ((SLEPT,), (r"\bsh\b",)),
        runs=3,
    ),
    # A neighbour's thread on the one cpu that may be used.
    _under(
        "jackd",
        Case(
            "pinned",
            "hog",
            "",
            "",
            "waits for cpu 1, which jackd had",
            (("jackd",),),
            ((r"for a CPU",),),
            runs=14,
            execution="process",
        ),
        "BIN/pinned",
    ),
    _under(
        "jackd",
        Case(
            "py-pinned",
            "hog",
            "",
            "",
            "waits for cpu 1, which jackd had",
            (("jackd",),),
            ((r"for a CPU",),),
            runs=4,
        ),
        "PYTHON HERE/kinds.py pinned",
    ),
    _under(
        "batchd",
        Case(
            "pl-pinned",
            "hog",
            "",
            "",
            "waits for cpu 1, which batchd had",
            (("batchd",),),
            ((r"for a CPU",),),
            runs=4,
        ),
        "taskset -c 1 perl HERE/kinds.pl work",
    ),
    # The same for one kind of requests alone.
    _under(
        "jackd",
        Case(
            "twokinds",
            "hog-kind",
            "",
            "",
            "orders wait for cpu 1, which jackd had",
            (("jackd", "orders"),),
            (("jackd",), ("orders",)),
            runs=5,
            changed="orders",
        ),
        "BIN/twokinds",
    ),
    _under(
        "jackd",
        Case(
            "py-lanes",
            "hog-kind",
            "",
            "",
            "writes wait for cpu 1, which jackd had",
            (("jackd", "write"),),
            (("jackd",), ("write",)),
            runs=5,
            changed="write",
        ),
        "PYTHON HERE/kinds.py lanes",
    ),
    _under(
        "jackd",
        Case(
            "py-mixed",
            "hog-kind",
            "",
            "",
            "static waits for cpu 1, which jackd had",
            (("jackd", "static"),),
            (("jackd",), ("static",)),
            runs=4,
            changed="static",
        ),
        "PYTHON HERE/kinds.py mixed",
    ),
    # Page faults: the kernel's work for them.
    _c(
        "mapper",
        "faults",
        "runs longer, in the kernel (page faults)",
        ((RAN, "kernel|fault"),),
        ((RAN,),),
    ),
    _s(
        "py",
        "faults",
        "faults",
        "runs longer, in the kernel (page faults)",
        ((RAN, "kernel|fault"),),
        ((RAN,),),
        runs=3,
    ),
    _s(
        "js",
        "buffers",
        "faults",
        "runs longer, in the kernel (page faults)",
        ((RAN, "kernel|fault"),),
        ((RAN,),),
        runs=3,
    ),
    # Threads whose names hold a number.
    _c(
        "pool",
        "names",
        "waits for threads wkr-*, which run three times as long",
        ((r"wkr-(\*|#|N\b)", RAN),),
        ((r"wkr-",),),
    ),
    _s(
        "py",
        "threads",
        "names",
        "waits for threads pool-*-thr-*, which run three times as long",
        ((r"pool-(\*|#|7)-thr-(\*|#|N\b)", RAN),),
        ((r"pool-",),),
        runs=3,
    ),
    _s(
        "js",
        "pool",
        "names",
        "waits for another thread of it, which runs four times as long",
        ((r"another (thread|`?node)|libuv|its (own )?thread|one of its", RAN),),
        (("node",), (RAN,)),
        runs=3,
    ),
)


def _d(name: str, line: str) -> Case:
    """A program with a dial: `small` is its command line with the percent left open."""
    return Case(
        f"dial-{name}",
        "dial",
        line.replace("DIAL", "100"),
        "",
        "has more of the same to do",
        ((RAN,),),
        runs=4,
        small=line,
    )


# Requests with somewhat more of the same work: how little is found (`smallest.py`).
DIALS: Final = (
    _d("json", "PYTHON HERE/dials.py json DIAL"),
    _d("sqlite", "PYTHON HERE/dials.py sqlite DIAL"),
    _d("sort", "PYTHON HERE/dials.py sort DIAL"),
    _d("shop", "PYTHON HERE/dials.py shop DIAL"),
    _d("node", "node HERE/dials.js DIAL"),
    _d("perl", "perl HERE/dials.pl DIAL"),
)

# Some of the requests have much more of it: is their number right?
FEW: Final = tuple(
    replace(
        case,
        name=case.name.replace("dial", "few"),
        kind="few",
        after=case.small.replace("DIAL", f"{percent} {few}"),
        small=case.small.replace("DIAL", f"150 {few}"),
        changed=f"{few} of 8",
    )
    for case, percent, few in zip(
        DIALS, (200, 300, 250, 220, 180, 400), (3, 2, 5, 3, 6, 1), strict=True
    )
)
