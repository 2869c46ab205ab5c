"""The exploration as one page that needs no network."""

from critpath.doors import hand_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from critpath.report.explore.page import render_page
else:
    __getattr__ = hand_on(__name__)
