"""One file per verb of the command line."""


def main() -> int:
    """Placeholder until the verbs land in this commit series."""
    raise SystemExit("not yet")
