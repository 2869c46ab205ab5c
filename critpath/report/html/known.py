"""What a store of signatures can tell apart, as one HTML file: `critpath known check --html`."""

from __future__ import annotations

from typing import Final

from critpath.documents.known import CheckDocument, CheckedLabel
from critpath.report.html.as_html import place_by_rules
from critpath.report.html.elements import (
    figure,
    items,
    paragraph,
    place,
    prose,
    said,
    section,
    table,
    terms,
    text,
)
from critpath.report.html.page import assemble_page, read_asset, script_of
from critpath.text import known as words

MOST: Final = 60  # labels that a picture shows
_ROW: Final = 24  # px of a label in the tree
_DEEPEST: Final = 60  # percent of a shade: the figure on it stays readable
_COLOURS: Final = 6
_TICKS: Final = 10
_TERMS: Final = (
    ("judged", "Intervals of a label that has another session, by which they are judged."),
    ("right", "Of these, nearest to their own label: the distance is in units of drift."),
    ("unknown", "Of these, so far from everything that they are called like nothing known."),
    ("quiet", "Too little happened in the interval to say what it is; it is not judged."),
    (
        "stranger",
        "A label that the store does not have: each, with its twins, is left out in turn.",
    ),
)


def render_check(document: CheckDocument) -> str:
    """Return the page; the same document gives the same bytes."""
    advice = {one.label: words.advise_label(one, document) for one in document.labels}
    body, rules = place_by_rules(
        f"{_top(document)}<main>{_answer(document, advice)}{_labels(document, advice)}"
        f"{_confusion(document)}{_tree(document)}"
        f'<div class="folds">{_notes(document)}</div></main>'
        f"<footer>critpath {text(document.version)}, {text(document.format)}; entries "
        f"{text(document.digest)}. The page is one file and needs no network; all but copying and "
        "light or dark works without scripts.</footer>"
    )
    style = "".join(read_asset("critpath.report.html", f"{name}.css") for name in ("page", "known"))
    return assemble_page(
        f"critpath known: {document.store}",
        style + rules,
        body,
        script_of(read_asset("critpath.report.html", name) for name in ("base.js", "page.js")),
        {"markdown": _markdown(document), "rows": []},
    )


def _markdown(document: CheckDocument) -> str:
    """Return what is copied: the terminal's lines."""
    head, *rest = words.describe_check(document)
    return "\n".join([f"**{head}**", "", *(f"- {line}" for line in rest)]) + "\n"


def _top(document: CheckDocument) -> str:
    return (
        f'<header class="top"><b>critpath</b><span class="sets"><code>{text(document.store)}'
        '</code></span><span class="room"></span>'
        '<button class="btn" id="copy" type="button">Copy summary</button>'
        '<button class="btn" id="theme" type="button">Light / dark</button></header>'
    )


def _answer(document: CheckDocument, advice: dict[str, list[str]]) -> str:
    headline, why = words.head_check(document)
    weak = sum(map(bool, advice.values()))
    chip, kind = ("✓ OK", "ok")
    if weak:
        chip, kind = f"? {weak} OF {len(advice)} LABELS TO IMPROVE", "inconclusive"
    small = f"{words.count_checked(document)}."
    if any(one.judged for one in document.labels):
        small += (
            f" Each session judged by the others: {words.describe_shares(document)}. Level "
            f"{document.level:g}{'' if document.calibrated else ', not calibrated'}."
        )
    return (
        f'<section class="answer" aria-label="The answer"><p class="chip {kind}">{text(chip)}</p>'
        f'<h1>{prose(headline)}</h1><p class="why">{prose(why)}</p>'
        f'<p class="small">{prose(small)}</p></section>'
    )


def _weakest_first(document: CheckDocument) -> list[CheckedLabel]:
    def strength(one: CheckedLabel) -> tuple[float, float, str]:
        if not one.judged:
            return 0.0, 0.0, one.label
        return one.right / one.judged, -one.unknown / one.judged, one.label

    return sorted(document.labels, key=strength)


def _labels(document: CheckDocument, advice: dict[str, list[str]]) -> str:
    rows = []
    for one in _weakest_first(document):
        share = one.right / one.judged if one.judged else 0
        bar = f'<span class="share"><i class="part" {place(0, 100 * share)}></i></span>'
        rows.append(
            [
                f"<code>{text(one.label)}</code>",
                f"{bar}{_percent(one.right, one.judged)}" if one.judged else "not judged",
                _percent(one.unknown, one.judged),
                text(f"{one.judged:,} of {one.documents:,}"),
                text(f"{one.sessions:,}"),
                "<br>".join(map(prose, advice[one.label])) or '<span class="dim">nothing</span>',
            ]
        )
    heads = ["label", "right", ">unknown", ">intervals judged", ">sessions", "what to do"]
    shown = table("Each session judged by the others", heads, rows, kind="weak", heads=True)
    return section("labels", "Labels, the weakest first", shown)


def _percent(count: int, of: int) -> str:
    return f"{100 * count / of:.1f}\N{NO-BREAK SPACE}%" if of else "–"


def _confusion(document: CheckDocument) -> str:
    """Return which label is taken for which: all of them, or the weakest where they are many."""
    chosen = {one.label for one in _weakest_first(document)[:MOST] if one.judged}
    judged = [one for one in document.labels if one.label in chosen]
    if not judged:
        return ""
    columns = sorted({name for one in judged for name in one.nearest} | chosen)
    rows = [
        [f"<code>{text(one.label)}</code>", *(_cell(one, name) for name in columns)]
        for one in judged
    ]
    grid = "".join(f'<tr><th scope="row">{row[0]}</th>{"".join(row[1:])}</tr>' for row in rows)
    head = "".join(f'<th scope="col"><code>{text(name)}</code></th>' for name in columns)
    rest = len([one for one in document.labels if one.judged]) - len(judged)
    name = "Percent of a label's intervals (rows) by the label that they are nearest to (columns)"
    shown = (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{name}">'
        f'<table class="confusion"><caption>{name}</caption><thead><tr><td></td>{head}</tr>'
        f"</thead><tbody>{grid}</tbody></table></div>"
    )
    also = f"The {rest:,} labels that are right most often are left out." if rest > 0 else ""
    return section("confusion", "What is taken for what", shown + said(also))


def _cell(one: CheckedLabel, name: str) -> str:
    count = one.nearest.get(name, 0)
    if not count:
        return '<td class="none">·</td>'
    share = count / one.judged
    kind = "own" if name == one.label else "other"
    # Of errors a single one is seen, too.
    depth = _DEEPEST * (share if kind == "own" else 0.2 + 0.8 * share)
    shown = f"{100 * share:.0f}" if share >= 0.005 else "<1"
    return f'<td class="{kind}" style="--a:{depth:.0f}%">{text(shown)}</td>'


def _tree(document: CheckDocument) -> str:
    if not document.tree:
        return ""
    names = [one.label for one in document.labels]
    leaves = [[at] for at in range(len(names))]
    for join in document.tree:
        leaves.append(leaves[join.one] + leaves[join.other])
    order = leaves[-1]
    groups = paragraph(
        "Alike: " + "; ".join(", ".join(group) for group in document.groups) + ".", kind="sub"
    )
    if len(order) > MOST:
        return section("tree", "Which labels are alike", groups)
    drawing = _draw_tree(document, order)
    caption = "Where two branches meet is how similar their labels are (mean cosine)"
    rows = []
    called = [f"<code>{text(name)}</code>" for name in names]
    for join in document.tree:
        one, other = called[join.one], called[join.other]
        rows.append([one, other, text(f"{join.similarity:.3f}")])
        called.append(f"{one} {other}")
    joins = table("Joined, the most alike first", ["these", "and these", ">similarity"], rows)
    return section(
        "tree",
        "Which labels are alike",
        f"{groups}{figure(drawing, caption)}"
        f"<details><summary>The same in figures</summary>{joins}</details>",
    )


def _draw_tree(document: CheckDocument, order: list[int]) -> str:
    names = [one.label for one in document.labels]
    group = {name: at for at, names in enumerate(document.groups) for name in names}
    lowest = min(join.similarity for join in document.tree)
    low = max(0.0, lowest - 0.04 * (1 - lowest))
    # Of every branch how far across and down it begins, and its group; -1 where it has several.
    ends = [(0.0, 0.0, group.get(name, -1)) for name in names]
    for row, leaf in enumerate(order):
        ends[leaf] = (0.0, _ROW * (row + 0.5), ends[leaf][2])
    paths = []
    for join in document.tree:
        x = 1000 * (1 - join.similarity) / max(1e-9, 1 - low)
        both = ends[join.one], ends[join.other]
        for begin, y, own in both:
            paths.append(f'<path class="{_colour(own)}" d="M{begin:.1f} {y:.1f}H{x:.1f}"/>')
        (_, y0, one), (_, y1, other) = both
        mine = one if one == other else -1
        paths.append(f'<path class="{_colour(mine)}" d="M{x:.1f} {y0:.1f}V{y1:.1f}"/>')
        ends.append((x, (y0 + y1) / 2, mine))
    height = _ROW * len(order)
    listed = "".join(
        f'<li class="{_colour(ends[leaf][2])}"><code>{text(names[leaf])}</code></li>'
        for leaf in order
    )
    return (
        f'<div class="tree"><ol>{listed}</ol><svg role="img" aria-label="The tree of labels, drawn"'
        f' height="{height}" viewBox="0 0 1000 {height}" preserveAspectRatio="none">'
        f"{''.join(paths)}</svg>{_axis(low)}</div>"
    )


def _colour(group: int) -> str:
    return f"w{group % _COLOURS + 1}" if group >= 0 else "w0"


def _axis(low: float) -> str:
    """Return the scale below the tree, from 1 to the lowest similarity."""
    step = next(
        n for n in (0.001, 0.01, 0.02, 0.05, 0.1, 0.2) if (1 - low) / n <= _TICKS or n == 0.2
    )
    ticks = [step * i for i in range(int((1 - low) / step) + 1)]
    shown = "".join(
        f'<span class="t" {place(100 * tick / (1 - low))}>{1 - tick:g}</span>' for tick in ticks
    )
    return f'<div class="axis" aria-hidden="true">{shown}</div>'


def _notes(document: CheckDocument) -> str:
    """Return the folds: what could not be used, and what the words mean."""
    lines = items(document.notes)
    left_out = (
        f'<details class="fold" open><summary>Left out</summary>{lines}</details>' if lines else ""
    )
    return (
        f'{left_out}<details class="fold"><summary>What the words mean</summary>'
        f"{terms(_TERMS)}</details>"
    )
