"""Baselines: normal executions in a text file that is kept with a program's source.

One line per execution, times relative to the first one's begin, texts once in tables;
nothing that `compare` uses is lost.
"""
