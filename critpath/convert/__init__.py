"""A file that another tool recorded -> a recording: a CTF trace with a manifest."""

from critpath.doors import hand_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from critpath.convert.foreign import (
        COLLECTED,
        KINDS,
        Converted,
        convert_foreign,
        identify_foreign,
    )
    from critpath.convert.opened import OPENED, directory_of
else:
    __getattr__ = hand_on(__name__)
