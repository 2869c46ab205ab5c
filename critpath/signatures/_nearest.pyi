from typing import Any

def lanes() -> int: ...
def add_nearest(
    start: Any,
    term: Any,
    weight: Any,
    lengths: Any,
    label: Any,
    queries: Any,
    ours: Any,
    least: Any,
    mean: Any,
) -> None: ...
