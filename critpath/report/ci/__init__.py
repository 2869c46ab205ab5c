"""What CI systems read: JUnit, Markdown, annotations."""

from critpath.doors import hand_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from critpath.report.ci.as_github import annotate
    from critpath.report.ci.as_junit import render_junit
    from critpath.report.ci.as_markdown import MOST_BYTES, render_markdown
else:
    __getattr__ = hand_on(__name__)
