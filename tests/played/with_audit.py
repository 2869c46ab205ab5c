"""critpath that notes what it does: ``python with_audit.py LOG record ...``.

LOG gets a JSON list a line: every module that is imported, or at the end is loaded, file that
is opened to be written, program that is run, change of a name, owner or mode, socket and foreign
library.
"""

from __future__ import annotations

import json
import os
import sys

# Before it is noted: an editable install looks for changes in its sources then.
import critpath  # noqa: F401 - as just said

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_NOTED = ("os.", "shutil.", "subprocess.", "socket.", "ctypes.", "tempfile.", "open", "import")
_QUIET = {"os.listdir", "os.scandir", "os.walk", "os.fwalk"}

log = os.open(sys.argv.pop(1), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def note(event, arguments):
    if not event.startswith(_NOTED) or event in _QUIET:
        return
    if event == "open":
        path, _, flags = arguments
        if isinstance(path, int) or not isinstance(flags, int) or not flags & _WRITING:
            return
    shown = arguments[:1] if event in {"import", "open"} else arguments[:2]
    os.write(log, (json.dumps([event, *map(str, shown)]) + "\n").encode())


own, leave = os.getpid(), os._exit


def note_modules(code):
    if os.getpid() == own:
        for name in sorted(sys.modules):
            os.write(log, (json.dumps(["loaded", name]) + "\n").encode())
    leave(code)


os._exit = note_modules
sys.addaudithook(note)

from critpath.commands import entry  # noqa: E402 - it is to be seen what this imports

entry()
