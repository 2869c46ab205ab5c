"""What the fixture does: record, compare with a baseline, fail with the reason."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

import pytest

from critpath.commands import (
    RECORDING,
    SETTINGS,
    Settings,
    WrongValueError,
    effective,
)
from critpath.errors import EXIT_INTERNAL, CritpathError, UsageError
from critpath.units import safe_text

if TYPE_CHECKING:
    from critpath.documents import ComparisonDocument
    from critpath.model import Analysis, PathSet

Command = str | Sequence[str | os.PathLike[str]]
Place = str | os.PathLike[str]
_EXECUTIONS: Final = 300
_SESSIONS: Final = 5
_CAUSES: Final = 6
_STDERR: Final = 20  # lines of the recorder's that a failure shows


@dataclass
class Gate:
    """The value of the fixture ``critpath_gate``.

    Attributes
    ----------
    directory : Path
        Where baselines are, and where the search for a settings file begins: that of
        the test's file.
    place : Path
        For recordings and reports: the test's ``tmp_path``.
    accept, update, require : bool
        The options ``--critpath-accept``, ``--critpath-update``, ``--critpath-require``.
    inconclusive : str
        ``fail``, ``skip`` or ``xfail``.
    note : callable
        Told what became of baselines.
    """

    directory: Path
    place: Path
    accept: bool
    update: bool
    require: bool
    inconclusive: str
    note: Callable[[str], None]
    _count: int = 0

    def __call__(
        self,
        command: Command,
        *,
        baseline: Place,
        runs: int = 30,
        warmup: int = 1,
        timeout: float = 0,
        **settings: Any,
    ) -> dict[str, Any] | None:
        """Record runs of a command and compare them with a baseline.

        Parameters
        ----------
        command : sequence of str, or str
            A text is split as a shell does.
        baseline : str or Path
            Relative to the directory of the test's file.
        runs, warmup : int
            Runs that are recorded, and runs before that are not.
        timeout : float
            Seconds, 0 for none.
        **settings
            As in the settings file, with ``_`` for ``-``; ``level`` is a mapping.

        Returns
        -------
        dict or None
            The comparison's document; None if there was no baseline before.
        """
        file = self.directory / baseline
        with self._errors_fail():
            chosen = self._settings(settings)
            if not file.exists() and not (self.update or self.accept):
                pytest.fail(
                    f"critpath: there is no baseline {file}\n"
                    "  pytest --critpath-update makes it; commit it then",
                    pytrace=False,
                )
            self._check_machine(chosen)
            recording = self._record(command, chosen, runs, warmup, timeout)
            parts = _extract([recording], chosen)
            comparison = self._held_against(file, parts, chosen)
            kept = file if self.update and not self.accept else None
            result = None if comparison is None else self._judge(comparison, kept)
        shutil.rmtree(recording)
        return result

    def compare(self, normal: Place, sample: Place, **settings: Any) -> dict[str, Any]:
        """Compare recordings that exist, as ``critpath compare`` does.

        Parameters
        ----------
        normal, sample : str or Path
            Recordings, directories of them, traces, saved paths or baselines.
        **settings
            As in a call.
        """
        from critpath import flow  # noqa: PLC0415 - numpy and the stages

        with self._errors_fail():
            chosen = self._settings(settings)
            sets = [_join_parts(_extract([Path(place)], chosen)) for place in (normal, sample)]
            comparison = flow.compare(sets[0], sets[1], chosen.for_comparing())
            return self._judge(comparison)

    @contextmanager
    def _errors_fail(self) -> Iterator[None]:
        """Show an error of critpath's without the way through its code."""
        text = ""
        try:
            yield
        except CritpathError as error:
            text = f"critpath: {safe_text(error.what)}\n  {safe_text(error.do)}"
        if text:
            pytest.fail(text, pytrace=False)

    def _settings(self, given: Mapping[str, Any]) -> Settings:
        values: dict[str, Any] = {}
        for key, value in given.items():
            name = key.replace("_", "-")
            if name not in SETTINGS:
                raise UsageError(
                    f"critpath_gate has no setting {key}", f"the settings are {', '.join(SETTINGS)}"
                )
            try:
                values[name] = SETTINGS[name].accept(value)
            except WrongValueError as error:
                raise UsageError(f"{key}={value!r} is not {error}", "correct it") from None
        return effective(values, None, self.directory)

    def _check_machine(self, settings: Settings) -> None:
        """Skip, or fail, where this machine may not record."""
        refused = settings.why_not_record(self.place)
        if not refused:
            return
        why = safe_text(f"this machine may not record: {refused}")
        if self.require:
            pytest.fail(f"critpath: {why}\n  critpath doctor says how to mend it", pytrace=False)
        pytest.skip(why)

    def _record(
        self, command: Command, settings: Settings, runs: int, warmup: int, timeout: float
    ) -> Path:
        words = (
            shlex.split(command) if isinstance(command, str) else [os.fspath(w) for w in command]
        )
        self._count += 1
        recording = self.place / f"critpath-{self._count}"
        options = [f"--{name}={settings[name]}" for name in RECORDING]
        if settings["execution"]:
            options.append(f"--execution={settings['execution']}")
        if timeout:
            options.append(f"--timeout={timeout}")
        code, stderr = record_in_child(
            [f"-n{runs}", f"--warmup={warmup}", "-o", str(recording), *options, "--", *words]
        )
        if code:
            # 125 is critpath's own, unless the command ended with it.
            failed = code == EXIT_INTERNAL and not recording.exists()
            what = "recording failed" if failed else f"the command exited with {code}"
            shown = "\n".join(safe_text(line) for line in stderr.splitlines()[-_STDERR:])
            pytest.fail(f"critpath: {what}: {shlex.join(words)}\n{shown}", pytrace=False)
        return recording

    def _held_against(
        self, file: Path, parts: Sequence[PathSet], settings: Settings
    ) -> Analysis | None:
        """Compare with the baseline, and change it if that was asked for."""
        from critpath import __version__, flow  # noqa: PLC0415 - numpy and the stages
        from critpath.store import Baseline, make_sessions  # noqa: PLC0415 - numpy

        if not file.exists():
            sessions = make_sessions(parts, _EXECUTIONS)
            made = Baseline(sessions, settings["interrupts"], __version__)
            made.save(file)
            self.note(f"{file}: made of {made.describe()}")
            return None
        if not (self.update or self.accept):
            normal = _join_parts(_extract([file], settings))
            return flow.compare(normal, _join_parts(parts), settings.for_comparing())
        outcome = flow.update(
            Baseline.load(file),
            file,
            parts,
            settings.for_comparing(),
            version=__version__,
            executions=_EXECUTIONS,
            sessions=_SESSIONS,
            accept=self.accept,
        )
        if outcome.baseline is None:
            return outcome.comparison
        outcome.baseline.save(file)
        anew = outcome.comparison.verdict != "ok"
        how = "begun anew with" if anew else "has now"
        self.note(f"{file}: {how} {outcome.baseline.describe()}")
        return None if anew else outcome.comparison

    def _judge(self, comparison: Analysis, kept: Path | None = None) -> dict[str, Any]:
        """Return the document, or fail; `kept` is a baseline that was not updated."""
        from critpath.report.document import (  # noqa: PLC0415 - as above
            comparison_document,
            to_plain,
        )

        document = comparison_document(comparison)
        if comparison.verdict == "ok":
            return cast("dict[str, Any]", to_plain(document))
        lines = list(self._describe_failure(document))
        if kept is not None:
            lines.append(
                f"{kept} stays as it is; if this is how the program is to be from now on: "
                "pytest --critpath-accept"
            )
        text = "\n".join(safe_text(line) for line in lines)
        if not document.fails_build() and self.inconclusive != "fail":
            _leave(self.inconclusive, text)
        pytest.fail(text, pytrace=False)

    def _describe_failure(self, document: ComparisonDocument) -> Iterator[str]:
        """Yield the lines of a failure, and write the report that the last one names."""
        from critpath.files import write_text  # noqa: PLC0415 - numpy
        from critpath.report.html import render_html  # noqa: PLC0415 - start-up time
        from critpath.text import verdict  # noqa: PLC0415 - start-up time
        from critpath.text.answer import listed_causes, serious_warnings  # noqa: PLC0415 - as above
        from critpath.text.explanation import (  # noqa: PLC0415 - as above
            describe_cause,
            describe_effect,
            describe_other_causes,
        )

        headline = verdict.headline(document)
        warnings = serious_warnings(document)
        yield f"critpath: {headline}"
        for reason in verdict.further_reasons(document):
            # Some are said once more by a headline or a warning.
            if not any(reason[1:] in said for said in (headline, *warnings)):
                yield reason
        causes = listed_causes(document, _CAUSES)
        for number, cause in causes:
            yield f"{number}. {describe_cause(document, cause)}: {describe_effect(cause)}"
        named = [cause for _, cause in causes]
        rest = describe_other_causes(document, [c for c in document.causes if c not in named])
        if rest:
            yield rest
        yield from (f"warning: {text}" for text in warnings)
        self._count += 1
        report = self.place / f"critpath-{self._count}.html"
        write_text(report, render_html(document))
        yield f"report: {report}"


def _leave(how: str, text: str) -> NoReturn:
    if how == "skip":
        pytest.skip(text)
    pytest.xfail(text)


def _extract(sources: Sequence[Path], settings: Settings) -> list[PathSet]:
    from critpath import flow, read  # noqa: PLC0415 - numpy and the stages
    from critpath.commands import check_inputs, require_executions  # noqa: PLC0415 - start-up time

    check_inputs(sources)
    with read.decide_hosts(settings["hosts"]):
        parts = flow.extract_each(sources, **settings.for_reading())
    for part in parts:
        require_executions(part, part.sources)
    return parts


def _join_parts(parts: Sequence[PathSet]) -> PathSet:
    from critpath.model import joining  # noqa: PLC0415 - numpy and the stages

    return joining.join_sets(parts)


def record_in_child(arguments: Sequence[str]) -> tuple[int, str]:
    """Run ``critpath record`` and return its exit code, and what was written to stderr.

    It handles signals and adopts orphans of its command: not in a program that has children and
    signal handlers of its own, as a test runner has.
    """
    # -P: a directory called critpath where the tests run is not this package.
    command = [sys.executable, "-P", "-m", "critpath", "record", *arguments]
    done = subprocess.run(  # noqa: S603 - our own command
        command, stderr=subprocess.PIPE, check=False, text=True, errors="replace"
    )
    return done.returncode, done.stderr
