"""Which recorder is used, and why not the other one."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import cast

from critpath.errors import CritpathError
from critpath.record import recorder as recorders
from critpath.record.identity import ALIEN_CLOCK, NO_PROC, alien_clock, no_proc
from critpath.record.recorder import Obstacle, Recorder, RecorderSettings


@dataclass(frozen=True)
class Choice:
    """A recorder that can record here.

    Attributes
    ----------
    name : str
        Of `critpath.record.recorder.RECORDERS`.
    why : str
        Why no earlier one, "" if it was asked for or is the first.
    """

    name: str
    why: str = ""

    def open(self, settings: RecorderSettings) -> Recorder:
        """Make the recorder; nothing is traced yet."""
        module = importlib.import_module(recorders.RECORDERS[self.name])
        return cast("Recorder", module.open_recorder(settings))


def choose_recorder(name: str, settings: RecorderSettings) -> Choice:
    """Return the recorder that was asked for, or for ``auto`` the first that can record.

    Raises
    ------
    CritpathError
        If there is none, with the way out.
    """
    if no_proc():
        raise CritpathError(*NO_PROC)
    if alien_clock():
        raise CritpathError(*ALIEN_CLOCK)
    names = list(recorders.RECORDERS) if name == "auto" else [name]
    refused: dict[str, Obstacle] = {}
    for candidate in names:
        module = importlib.import_module(recorders.RECORDERS[candidate])
        found: list[Obstacle] = module.obstacles(settings)
        fatal = [obstacle for obstacle in found if obstacle.fatal]
        if not fatal:
            return Choice(candidate, "; ".join(f"{n}: {o.what}" for n, o in refused.items()))
        refused[candidate] = fatal[0]
    if len(refused) == 1:
        [(only, obstacle)] = refused.items()
        raise CritpathError(
            f"the {only} recorder cannot record here: {obstacle.what}",
            f"{obstacle.do} (critpath doctor shows all that is missing)",
        )
    why = "; ".join(f"{n}: {o.what}" for n, o in refused.items())
    raise CritpathError(
        f"nothing can record here: {why}", "critpath doctor says how to mend each of these"
    )
