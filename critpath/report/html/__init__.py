"""The report as one HTML file."""

from critpath.doors import hand_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from critpath.report.html.as_html import render_html
    from critpath.report.html.known import render_check
    from critpath.report.html.trend import render_trend_page
else:
    __getattr__ = hand_on(__name__)
