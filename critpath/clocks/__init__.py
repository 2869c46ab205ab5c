"""The clocks of several hosts on one line, with a bound on how wrong that may be."""
