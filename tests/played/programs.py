"""In the place of `subprocess`: notes which programs a module would run, and answers for them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from typing import Any

import pytest

CompletedProcess = subprocess.CompletedProcess
Answer = Callable[..., "subprocess.CompletedProcess[Any]"]


class PlayedPrograms:
    """What of `subprocess` critpath's modules use; `ran` has every command and its options."""

    DEVNULL, PIPE, STDOUT = subprocess.DEVNULL, subprocess.PIPE, subprocess.STDOUT
    SubprocessError = subprocess.SubprocessError
    TimeoutExpired = subprocess.TimeoutExpired
    CompletedProcess = subprocess.CompletedProcess

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.ran: list[tuple[list[str], dict[str, Any]]] = []

    def run(self, command: Sequence[Any], **options: Any) -> subprocess.CompletedProcess[Any]:
        words = [str(word) for word in command]
        self.ran.append((words, options))
        return self.answer(words, **options)


def play_programs(
    monkeypatch: pytest.MonkeyPatch, module: Any, answer: Answer | int = 0
) -> PlayedPrograms:
    """Let no module start a program: answer, or return a code, in the place of each."""

    def end(words: Sequence[str], **_: Any) -> subprocess.CompletedProcess[Any]:
        return subprocess.CompletedProcess(words, int(answer), b"", b"")  # type: ignore[call-overload]

    played = PlayedPrograms(answer if callable(answer) else end)
    monkeypatch.setattr(module, "subprocess", played)
    return played
