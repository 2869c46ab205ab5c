"""The team's store of signatures that have a label: what was seen before."""

from critpath.doors import hand_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from critpath.known.entries import (
        Store,
        add_entry,
        check_label,
        is_store,
        open_store,
    )
else:
    __getattr__ = hand_on(__name__)
