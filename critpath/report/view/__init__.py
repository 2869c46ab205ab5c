"""A window of a recording as one page that needs no network."""

from critpath.doors import hand_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from critpath.report.view.page import render_window
else:
    __getattr__ = hand_on(__name__)
