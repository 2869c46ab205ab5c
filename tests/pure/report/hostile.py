"""Names that try to act on whatever shows them, and documents that have them everywhere."""

from __future__ import annotations

from functools import cache

from hypothesis import example, given
from hypothesis import strategies as st

from critpath.report.document.comparison import comparison_document

NAMES = (
    "</ScRiPt><img src=x onerror=alert(1)>",
    "<!--<script>",
    "-->",
    "]]><x/>",
    "&lt;b&gt;&#60;&amp",
    "\x1b[2J\x1b]0;owned\x07",
    "\x9b31m",
    "abc\u202egnp.exe",
    "a\u2028b\u2029c",
    "two\nlines\rhere",
    "\n::error::x",
    "::error::x",
    " \u00a0::add-mask::x",
    "%0A::error::x",
    "x%0D%0A::set-output name=a::b",
    "##[error]x",
    "a ##[add-mask]b",
    "title=x,file=/etc/passwd",
    "@octocat",
    "x@evil.example",
    "#1 GH-2 o/r#3",
    "http://evil.example www.evil.example",
    "[x](http://evil.example)",
    "![x](http://evil.example/x.png)",
    "<http://evil.example>",
    "`",
    "``` `` `",
    "`x` `y",
    "\\`\\|\\",
    "a|b\\|c\\\\|d",
    "| --- |",
    "# h",
    "- [x] y",
    "1. x",
    "1) x",
    "---",
    "===",
    "> [!NOTE]",
    "$x^2$",
    ":skull:",
    "**b** __c__ ~~d~~ *e* _f_",
    "[^1]: x",
    "deadbeefcafe",
    "</details></summary>",
    "    indented",
    "\t",
    "{}%s${x}",
    "\u200b\ufeff",
    "\ud800lone",
    "\ufffe\uffff",
    "\x7f\x00",
)


def document_with(factory, name):
    """Return a comparison in which every text that a trace controls is one name."""
    names = factory.Names.all(name)
    sizes = {"normals": 4, "samples": 3, "anomalous": 1, "columns": 7}
    texts = {"warnings": (name,), "reasons": (name, f"{name} {name}"), "settings": {name: name}}
    return comparison_document(factory.comparison(names=names, **sizes, **texts))


@cache
def usual_document(factory):
    """Return the comparison of a harmless name, to compare with what a hostile one makes."""
    return document_with(factory, "w")


def hostile(test):
    """Run a property test with every name above and with any text."""
    for name in NAMES:
        test = example(name=name)(test)
    # Blanks alone would be whole reasons and warnings here, which our own words never are.
    anything = st.text(min_size=1, max_size=24).filter(str.strip) | st.sampled_from(NAMES)
    return given(name=anything)(test)
