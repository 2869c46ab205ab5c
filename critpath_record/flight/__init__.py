"""The flight recorder: it keeps the newest events, and saves them when something goes wrong."""
