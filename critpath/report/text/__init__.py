"""What a terminal shows."""

from critpath.doors import hand_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from critpath.report.text.ab import render_ab
    from critpath.report.text.answer import cause_line
    from critpath.report.text.as_text import render_comparison
    from critpath.report.text.calibration import render_calibration
    from critpath.report.text.exploration import render_exploration
    from critpath.report.text.look import render_look
    from critpath.report.text.path import render_code, render_path, render_summary, render_tiers
    from critpath.report.text.table import new_table, print_line, shown
else:
    __getattr__ = hand_on(__name__)
