"""``python -m critpath``."""

from critpath.commands import entry

if __name__ == "__main__":
    entry()
