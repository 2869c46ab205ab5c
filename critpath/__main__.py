"""``python -m critpath``."""

import sys

# ``python -m`` looks for modules in the current directory first: there, for root, may be
# anybody's.  What was imported to come this far was: ``critpath``, or ``python -P -m critpath``.
if not sys.flags.safe_path and sys.path and __spec__ is not None:
    sys.path = [
        place
        for number, place in enumerate(sys.path)
        if number or (__spec__.origin or "").startswith(place + "/critpath/")
    ]

from critpath.commands import entry

if __name__ == "__main__":
    entry()
