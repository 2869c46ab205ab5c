"""Moments as text, as documents have them: ``2026-11-21T04:35:27Z``."""

from __future__ import annotations

from datetime import UTC, datetime


def format_time(second: int) -> str:
    """Return a second since 1970 as text."""
    return f"{datetime.fromtimestamp(second, UTC).replace(tzinfo=None).isoformat()}Z"


def parse_time(text: str) -> int:
    """Return the second since 1970 that a text says; 0 if it says none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return 0
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp())
