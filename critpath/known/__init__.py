"""The team's store of signatures that have a label: what was seen before."""
