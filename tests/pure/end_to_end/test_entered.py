"""How many of our modules one comparison enters: what somebody has to open who follows it."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import critpath as package

HOME = str(Path(package.__file__).parent)
# 156 by itself, three of them for files of other tools; fewer after other tests.  115 is wanted.
MOST = 157


def test_a_comparison_enters_few_modules(critpath, guest):
    entered = set()

    def watch(frame, event, _):
        # Bodies of classes and modules run when they are imported: that is no visit.
        if event == "call" and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            entered.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        done = critpath("compare", guest("normal"), guest("sample-lock"))
    finally:
        sys.setprofile(before)
    assert done.returncode == 1, done.stderr
    assert len([file for file in entered if file.startswith(HOME)]) <= MOST
