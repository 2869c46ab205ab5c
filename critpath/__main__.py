"""``python -m critpath``."""

import sys

from critpath.commands import main

if __name__ == "__main__":
    sys.exit(main())
