"""What would be right if one thing more were known: ``python bound.py DIR [CASE]``.

DIR is one of `run.py`, CASE one whose requests ask twice (default: asyncio-sleep).  An oracle is
told by the handlers' logs which of a request's two each sub-request is, which no event of the
kernel tells.  The first ones are given out in the order in which requests were received, the second
ones by who is answered next.  What it has right beyond critpath was lost by not knowing that.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from judge import Handled, read_client, read_handlers

_TWO: Final = 2


def name_both(handled: dict[int, Handled]) -> tuple[int, int]:
    """Return of how many first and second sub-requests the oracle names the request."""
    whole = [(number, one) for number, one in handled.items() if len(one.asked) == _TWO]
    right = []
    for which, moment, of_request in ((0, "begin", "begin"), (1, "end", "end")):
        asked = sorted((getattr(one.asked[which], moment), number) for number, one in whole)
        known = sorted((getattr(one.as_request, of_request), number) for number, one in whole)
        pairs = zip(asked, known, strict=True)
        right.append(sum(mine == other for (_, mine), (_, other) in pairs))
    return right[0], right[1]


def main() -> None:
    """Print a row for each recording."""
    place = Path(sys.argv[1]) / (sys.argv[2] if len(sys.argv) > _TWO else "asyncio-sleep")
    for client in sorted(place.glob("*/client")):
        handled = read_handlers(client.with_name("handlers"), read_client(client))
        first, second = name_both(handled)
        many = len(handled)
        print(
            f"{client.parent.name:>8}: first {first / many:.3f}, second {second / many:.3f}, "
            f"both {(first + second) / many / _TWO:.3f} of {many} requests"
        )


if __name__ == "__main__":
    main()
