"""What is derived from a store is kept for the user, and believed only as it was kept."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from critpath.signatures import drift, library
from critpath.signatures.library import keep_derived, load_derived

KEY = "0" * 40


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "critpath" / "known"


@pytest.fixture
def corpus(load: Callable[..., object]) -> drift.Corpus:
    return load("pure/signatures/test_drift.py").draw(1, 4, 3, spread=0.2)


def test_what_was_judged_once_is_not_judged_again(
    corpus: drift.Corpus, monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    monkeypatch.setattr(library, "_WORTH_KEEPING", 0)
    first = library.calibrate_once(corpus)
    assert len(list(place.iterdir())) == 1
    assert place.stat().st_mode & 0o077 == 0
    monkeypatch.setattr(library, "calibrate", lambda _: pytest.fail("judged again"))
    again = library.calibrate_once(corpus)
    some = corpus.vectors
    np.testing.assert_array_equal(first.to_labels(some), again.to_labels(some))
    np.testing.assert_array_equal(first.strangeness, again.strangeness)
    np.testing.assert_array_equal(first.nearest, again.nearest)
    assert first.twins == again.twins


def test_another_corpus_has_another_name(corpus: drift.Corpus) -> None:
    weight = corpus.weight.copy()
    weight[3] *= 1.001
    about = (corpus.terms, corpus.label, corpus.session, corpus.labels)
    assert drift.Corpus(corpus.start, corpus.term, weight, *about).digest != corpus.digest
    assert corpus.take(slice(None)).digest == corpus.digest


@pytest.mark.parametrize("harm", ["cut", "flipped", "link", "writable", "pipe", "of another"])
def test_what_is_not_as_it_was_kept_is_not_there(harm: str, place: Path) -> None:
    keep_derived(KEY, np.arange(9.0))
    file = place / KEY
    kept = load_derived(KEY)
    assert kept is not None
    assert kept.tolist() == list(range(9))
    content = file.read_bytes()
    if harm == "cut":
        file.write_bytes(content[:-8])
    elif harm == "flipped":
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif harm == "writable":
        file.chmod(0o666)
    elif harm == "of another":
        file.rename(place / ("1" * 40))
        assert load_derived("1" * 40) is None
    else:
        file.unlink()
        if harm == "link":
            (place / "elsewhere").write_bytes(content)
            file.symlink_to(place / "elsewhere")
        else:
            os.mkfifo(file)
    assert load_derived(KEY) is None


def test_figures_of_another_shape_are_refused(corpus: drift.Corpus) -> None:
    figures = drift.calibrate(corpus).pack()
    assert drift.Calibration.unpack(corpus, figures) is not None
    assert drift.Calibration.unpack(corpus, figures[:-1]) is None
    wrong = figures.copy()
    wrong[0] = 99
    assert drift.Calibration.unpack(corpus, wrong) is None


def test_without_a_place_everything_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    keep_derived(KEY, np.arange(9.0))
    assert load_derived(KEY) is None


def test_few_are_kept(place: Path) -> None:
    for number in range(20):
        keep_derived(f"{number:040}", np.arange(9.0))
    assert len(list(place.iterdir())) == 16
