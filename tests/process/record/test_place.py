"""Where a user may write, and as whom critpath's own verbs are run after a recording."""

from __future__ import annotations

import os
from contextlib import suppress

import pytest

from critpath.errors import CritpathError, UsageError
from critpath_record.output import OutputDirectory
from critpath_record.user import User

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="changes users, which needs root")

NOBODY = User(65534, 65534, (65534,), {b"HOME": b"/"})
SESSION = "critpath-1-2-3-00000000"


def test_under_sudo_a_users_link_leads_to_no_place_of_roots(tmp_path):
    kept, theirs = tmp_path / "kept", tmp_path / "theirs"
    kept.mkdir(mode=0o755)
    theirs.mkdir()
    os.chown(theirs, NOBODY.uid, NOBODY.gid)
    (tmp_path / "link").symlink_to(kept)
    (tmp_path / "own").symlink_to(theirs)
    for place in (tmp_path, *tmp_path.parents[:2]):  # so that they come there
        place.chmod(place.stat().st_mode | 0o011)

    def check(name):
        return OutputDirectory.check(tmp_path / name, SESSION, force=False, user=NOBODY)

    with pytest.raises(UsageError, match="may not write"):
        check("link/rec")
    check("own/rec").close()


def test_what_follows_a_recording_is_done_as_its_user(tmp_path):
    theirs, ours = tmp_path / "theirs", tmp_path / "ours.html"
    theirs.mkdir()
    os.chown(theirs, NOBODY.uid, NOBODY.gid)
    ours.write_text("root's")
    (theirs / "page.html").symlink_to(ours)
    with suppress(CritpathError):  # of an installation of root's own
        assert NOBODY.run_critpath(["explore", "/none", "-o", str(theirs / "page.html")])
    assert ours.read_text() == "root's"
