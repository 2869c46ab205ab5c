"""One file per verb of the command line."""


def main() -> int:
    """Run the command line (the verbs land later in this series)."""
    raise SystemExit("not yet")
