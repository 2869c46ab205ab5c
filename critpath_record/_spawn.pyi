from collections.abc import Collection, Sequence

class SpawnError(OSError):
    step: str

def spawn(
    path: bytes,
    argv: list[bytes],
    env: list[bytes],
    *,
    cwd: bytes | None = None,
    user: tuple[int, int, Sequence[int]] | None = None,
    mask: Collection[int] = (),
    ignored: Collection[int] = (),
    keep: Sequence[int] = (),
    death_signal: int = 0,
    nice: int | None = None,
    scheduler: tuple[int, int] | None = None,
    streams: tuple[int, int, int] = (-1, -1, -1),
    group: int = -1,
) -> tuple[int, int, int]: ...
def collect(pid: int) -> tuple[int, int] | None: ...
def become_subreaper(on: bool) -> bool: ...
