"""Headline and second line, case by case; and what no answer may have in it."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from critpath.documents import (
    KindEntry,
    MachineEntry,
    PercentileEntry,
    Pictures,
    WeatherEntry,
    WeatherRival,
    Window,
)
from critpath.model import RequestAccount
from critpath.report.ci.as_github import annotate
from critpath.report.ci.as_junit import render_junit
from critpath.report.ci.as_markdown import render_markdown
from critpath.report.document.as_json import load_document
from critpath.report.document.comparison import comparison_document
from critpath.report.text.answer import SCREEN, answer_lines
from critpath.requests.find import note_requests
from critpath.schema.notes import SomeExamined
from critpath.text import notes
from critpath.text.answer import (
    describe_chance,
    describe_headline,
    describe_why,
    listed_causes,
    serious_warnings,
)
from critpath.text.explanation import describe_cause
from critpath.text.page import noun_of, recordings_line
from critpath.text.recognized import find_level

MS = 1_000_000.0
GOLDEN = sorted((Path(__file__).parents[1] / "report" / "golden").glob("*.json"))


def kind(label, before, after, *, slow=0, of=(30, 30), change="slower", usual=None, sure=()):
    return KindEntry(
        label=label,
        change=change,
        executions=list(of),
        slow=slow,
        mean=[before * MS, after * MS],
        slowest=[before * 2 * MS, after * 2 * MS],
        p50=[before * MS, after * MS],
        p95=[None, None],
        p99=[None, None],
        usual=[one * MS for one in usual or (before, after)],
        affected=slow if sure else None,
        affected_low=sure[0] if sure else None,
        affected_high=sure[1] if sure else None,
    )


@pytest.fixture
def document(factory):
    """Return a function that gives a document with these kinds."""

    def make(*kinds, verdict="anomaly", **changes):
        found = comparison_document(factory.comparison(verdict=verdict, **changes))
        found.pictures = Pictures(threads=[], doings=[], kinds=list(kinds), paths=[])
        return found

    return make


SLOWER = {
    "some of a kind": (
        [kind("lock", 2.4, 6.2, slow=12, usual=(2.36, 11.8))],
        "12 of 30 `lock` requests take 11.8 ms instead of 2.36 ms",
    ),
    "some of a kind, surely": (
        [kind("lock", 2.4, 6.2, slow=12, usual=(2.36, 11.8), sure=(12, 12))],
        "12 of 30 `lock` requests take 11.8 ms instead of 2.36 ms",
    ),
    "some of a kind, about": (
        [kind("lock", 2.4, 6.2, slow=12, usual=(2.36, 11.8), sure=(10, 14))],
        "10 to 14 of 30 `lock` requests take 11.8 ms instead of 2.36 ms",
    ),
    "one or few of a kind": (
        [kind("lock", 2.4, 2.7, slow=1, usual=(2.36, 11.8), sure=(1, 3))],
        "1 to 3 of 30 `lock` requests take 11.8 ms instead of 2.36 ms",
    ),
    "one of a kind": (
        [kind("lock", 2.4, 2.7, slow=1, usual=(2.36, 11.8))],
        "1 of 30 `lock` requests takes 11.8 ms instead of 2.36 ms",
    ),
    "twice as long": (
        [kind("cpu", 5.57, 13.6, slow=30)],
        "`cpu` requests take 2.4 times as long: 5.57 ms → 13.6 ms",
    ),
    "many times as long": (
        [kind("cpu", 0.1, 13.6, slow=30)],
        "`cpu` requests take 136 times as long: 100 µs → 13.6 ms",
    ),
    "per cent": (
        [kind("cpu", 10.0, 11.2, slow=30)],
        "`cpu` requests are 12 % slower: 10.0 ms → 11.2 ms",
    ),
    "without labels": (
        [kind("", 10.0, 11.2, slow=30)],
        "Requests are 12 % slower: 10.0 ms → 11.2 ms",
    ),
    "several kinds": (
        [kind("a", 10, 30, slow=30), kind("b", 10, 12, slow=30)],
        "`a` requests take 3.0 times as long: 10.0 ms → 30.0 ms",
    ),
    "a step only": (
        [kind("a", 10, 9, slow=30)],
        "A step of `a` requests takes longer, the whole does not",
    ),
}


@pytest.mark.parametrize("case", SLOWER)
def test_slower(document, case):
    kinds, expected = SLOWER[case]
    found = describe_headline(document(*kinds))
    assert (found.sign, found.word, found.sentence) == ("▲", "SLOWER", expected)


def test_all_kinds_by_about_as_much_are_one_headline(document):
    found = document(*(kind(name, 10, 12, slow=30) for name in "abc"))
    total = next(s for s in found.states if s.state == "total")
    total.normal_mean, total.effect = 10 * MS, 2 * MS
    assert describe_headline(found).sentence == (
        "All 3 kinds of requests are 20 % slower: 10.0 ms → 12.0 ms"
    )


def test_the_tail(document):
    found = document(kind("a", 10, 10, change="same"))
    gate = PercentileEntry(
        label="a",
        name="p99",
        q=0.99,
        normal=8 * MS,
        sample=27 * MS,
        low=MS,
        high=40 * MS,
        executions=[500, 500],
        needed=400,
    )
    found.detection.gate = gate
    assert describe_headline(found).sentence == (
        "The slowest 1 % of `a` requests take 27.0 ms or more instead of 8.00 ms"
    )


def test_faster(document):
    found = document(kind("customer", 5.96, 2.01, change="faster"), verdict="ok", anomalous=0)
    total = next(s for s in found.states if s.state == "total")
    total.effect_high, found.detection.floor = -2 * MS, MS
    told = describe_headline(found)
    assert f"{told.sign} {told.word}  {told.sentence}" == (
        "▼ FASTER  `customer` requests are 66 % faster: 5.96 ms → 2.01 ms"
    )


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("after", [8.1, 6.0])
def test_faster_by_no_more_than_another_hour_makes_it(document, after, apart):
    found = document(kind("a", 10, after, change="faster"), verdict="ok", anomalous=0)
    total = next(s for s in found.states if s.state == "total")
    total.normal_mean, total.effect = 10 * MS, (after - 10) * MS
    total.effect_high, found.detection.floor, found.detection.apart = -1.2 * MS, MS, apart
    found.detection.detectable = 0.53 * MS
    by_machine = apart and after == 8.1
    assert describe_headline(found).word == ("OK" if by_machine else "FASTER")
    assert by_machine == (
        "The mean is 19 % lower, as the machine alone may make it." in describe_why(found)
    )
    # What is tested is a slowdown.
    assert by_machine == ("p = " in answer_lines(found, width=400)[-1])


def test_ok_says_what_would_have_been_detected(document):
    found = document(kind("a", 10, 10, change="same"), kind("b", 1, 1, change="same"),
                     verdict="ok", anomalous=0)  # fmt: skip
    total = next(s for s in found.states if s.state == "total")
    total.normal_mean, total.effect, total.p_value = 10 * MS, 0.1 * MS, 0.4
    found.detection.detectable = 0.53 * MS
    assert describe_headline(found).sentence == "No slowdown found in any kind of request"
    assert describe_why(found) == (
        "A slowdown of 530 µs (5.3 %) or more, on average over all kinds, would have been detected."
    )
    total.effect = 0.6 * MS
    assert describe_why(found) == (
        "The mean moved by +600 µs. Differences as large are common by chance here (p = 0.4)."
    )


def test_within_the_limit(document):
    found = document(kind("a", 10, 10.3, change="same"), verdict="ok", anomalous=0)
    total = next(s for s in found.states if s.state == "total")
    total.normal_mean, total.effect, total.p_value = 10 * MS, 0.3 * MS, 0.001
    found.detection.floor, found.detection.alpha = 0.5 * MS, 0.01
    found.settings["floor"] = 0.05
    assert describe_headline(found).sentence == (
        "Requests are 3.0 % slower, within your limit of 5.0 %"
    )
    assert describe_why(found) == "+300 µs a request; the limit is 500 µs."
    # The recordings before ask for a higher one: so many of their standard deviations.
    found.detection.floor, total.effect = 3.1 * MS, 2.5 * MS
    assert describe_headline(found).sentence == (
        "Requests are 25 % slower, within the 31 % that recordings before may differ by"
    )


def inconclusive(document, **changes):
    return document(
        kind("a", 10, 12, change="same"), verdict="inconclusive", anomalous=0, **changes
    )


def test_too_few(document):
    found = inconclusive(document, samples=4)
    found.detection.enough, found.detection.needed = False, 12
    assert describe_headline(found).sentence == (
        "Not enough requests to decide: 4, and 12 are needed"
    )
    assert describe_why(found) == "Record at least 12 of each: `critpath record -n 12 ...`"


def test_lost_events(document):
    found = inconclusive(document)
    one = found.sets.sample
    one.lossy, one.events, one.loss.events = one.executions, 9_000, 1_000
    assert describe_headline(found).sentence == "The after recording lost 10 % of its events"
    assert "--buffer-size" in describe_why(found)


def test_lost_packets(document):
    """How many events were in them nobody knows; the requests themselves are there."""
    found = inconclusive(document)
    one = found.sets.sample
    one.lossy, one.loss.packets = one.executions, 2
    assert describe_headline(found).sentence == (
        "The after recording lost packets in 100 % of its requests"
    )


def test_different_machines(document):
    found = inconclusive(document)
    found.settings["strict_environment"] = True
    found.detection.enough = True
    found.sets.sample.hosts = ["other"]
    assert describe_headline(found).sentence == (
        "The recordings are from different machines: `guest` and `other`"
    )
    assert "--interleave" in describe_why(found)


def test_nothing_in_common(document):
    found = inconclusive(document)
    found.pictures.kinds = [
        kind("a", 1, 1, of=(9, 0), change="few"),
        kind("b", 1, 1, of=(0, 9), change="few"),
    ]
    found.detection.enough, found.detection.needed = False, 0
    assert describe_headline(found).sentence == "The recordings have no kind of request in common"
    assert describe_why(found).startswith("Before has `a`, after has `b`. ")


def test_a_busier_machine(document):
    found = inconclusive(document)
    found.detection.enough = found.detection.apart = found.detection.flagged = True
    for side, share in ((found.sets.normal, 0.31), (found.sets.sample, 0.78)):
        side.machine = MachineEntry(probes={}, pressure={}, others_cpu=share)
    found.reasons = ["`cc1` had the cpu: `critpath ab` or `--interleave` can tell"]
    assert describe_headline(found).sentence == (
        "The machine was busier: other programs used 78 % of the CPUs, before 31 %"
    )
    assert describe_why(found).startswith("`cc1` had the cpu. Record in turns: ")
    found.sets.normal.machine = None
    total = next(s for s in found.states if s.state == "total")
    total.normal_mean, total.effect = 10 * MS, 1.2 * MS
    assert describe_headline(found).sentence == (
        "Requests are 12 % slower, and the machine alone may have made them so"
    )


@pytest.mark.parametrize(
    ("rivals", "cpus", "whose"),
    [
        ([("hog", 0.95)], [1], "CPU 1, which `hog` had"),
        ([("hog", 0.6), ("cc1", 0.4)], [], "a CPU, which `hog` had (60 % of it)"),
        ([("cpx", 0.28), ("cc1", 0.2)], [], "CPUs that others had (`cpx` 28 %, `cc1` 20 %)"),
        (
            [("hog", 0.6, "pod batch/loader"), ("cc1", 0.4)],
            *([], "a CPU, which `hog` (pod batch/loader) had (60 % of it)"),
        ),
    ],
)
def test_strangers_are_told_who_they_were_and_where_and_whom_they_hit(
    document, rivals, cpus, whose
):
    found = document(kind("a", 10, 15, slow=5), kind("b", 9, 9, change="same"))
    found.verdict, found.detection.apart = "by_machine", True
    found.detection.weather = WeatherEntry(
        *(0.9, 4.5 * MS, ["a"], [WeatherRival(*one) for one in rivals], cpus, 0.2 * MS, 4.9 * MS)
    )
    headline = describe_headline(found)
    assert headline.title == "SLOWER, BY THE MACHINE"
    assert headline.sentence == "`a` requests are 50 % slower: 10.0 ms → 15.0 ms"
    why = f"They wait 4.90 ms instead of 200 µs for {whose}: 90 % of the slowdown."
    assert describe_why(found) == why
    assert answer_lines(found)[0].startswith("▲ SLOWER, BY THE MACHINE  a requests")
    assert render_markdown(found).startswith("**▲ Slower, by the machine: ")
    # A gate is red for it by a setting alone.
    for red, tag, level in ((False, "skipped", "warning"), (True, "failure", "error")):
        found.settings["fail_on_machine"] = red
        assert f"<{tag} " in render_junit(found)
        assert annotate(found)[0].level == level
        assert annotate(found)[0].title == "critpath: ▲ SLOWER, BY THE MACHINE"


def test_an_answer_that_is_not_decided_shows_what_differs(document):
    found = document(kind("a", 10, 15, change="same"), verdict="anomaly")
    assert listed_causes(found, 3)
    decided = answer_lines(found)
    found.verdict, found.detection.flagged = "inconclusive", True
    found.detection.enough = found.detection.apart = True
    causes = [line for line in answer_lines(found) if "(not decided)" in line]
    assert causes
    assert not any("(not decided)" in line for line in decided)
    assert "(not decided)" in render_markdown(found)
    found.detection.flagged = False
    assert listed_causes(found, 3) == []


def test_requests_that_vary_too_much_are_told_how_many_would_do(document):
    found = inconclusive(document)
    found.detection.enough, found.detection.flagged = True, False
    found.detection.would_do, found.settings["least"] = 390, 0.25
    found.sets.normal.executions = found.sets.sample.executions = 40
    total = next(s for s in found.states if s.state == "total")
    total.normal_mean, total.p_value = 10 * MS, 0.4
    found.detection.detectable = 7.7 * MS
    assert describe_headline(found).sentence == (
        "These requests vary too much to see a slowdown of 25 %"
    )
    assert describe_why(found) == (
        "A slowdown of 7.70 ms (77 %) or more would have been detected. "
        "Record more: about 390 requests of each would do."
    )
    total.p_value = 0.0002
    assert describe_headline(found).sentence == (
        "Something differs, and whether requests became 25 % slower is not known"
    )
    found.detection.would_do, total.p_value = 390_000, 0.4
    assert "keep others from its CPUs (`taskset`), or run `critpath ab`" in describe_why(found)


@pytest.mark.parametrize(
    ("p", "words"),
    [
        (0.3, "Differences as large are common by chance here (p = 0.3)."),
        (0.0014, ("Chance alone would show a difference as large in about 1 of 700 comparisons "
                 "(p = 0.0014).")),
        (0.0001, ("Chance alone would show a difference as large in fewer than 1 of 10,000 "
                 "comparisons (p = 0.0001).")),
    ],
)  # fmt: skip
def test_chance_is_in_words(p, words):
    assert describe_chance(p) == words


def say_requests(*facts):
    """Return the account of requests in a sentence, which has the level of its record."""
    note = note_requests(*facts)
    said = notes.word(note)
    assert find_level(said) == note.level
    return said


def test_normal_operation_is_no_warning(document):
    found = document(kind("a", 1, 2, slow=30))
    found.warnings = [
        "executions are labelled by field 'type' of app:request_begin",
        f"before: {say_requests(2_320, 4, RequestAccount(), {'certain': 1.0}, {})}",
        say_requests(9, 1, RequestAccount(), {"certain": 1.0}, {"certain": 0.8, "likely": 0.2}),
        say_requests(9, 1, RequestAccount(), {"certain": 1.0}, {"likely": 1.0}),
        notes.word(SomeExamined(50, 296)),
        "a loss",
    ]
    assert serious_warnings(found) == ["A loss"]
    found.warnings = [
        say_requests(2_320, 4, RequestAccount(incomplete=1), {"certain": 0.9, "doubtful": 0.1}, {}),
        say_requests(9, 1, RequestAccount(), {"certain": 1.0}, {"likely": 0.9, "doubtful": 0.1}),
    ]
    assert len(serious_warnings(found)) == 2


# What no answer has in it, whatever it is about.


def outputs(found):
    yield "\n".join(answer_lines(found))
    yield render_markdown(found)
    yield render_junit(found)
    yield "\n".join(map(str, annotate(found)))


@pytest.mark.parametrize("place", GOLDEN, ids=lambda place: place.stem)
def test_no_output_has_what_answers_must_not_have(place):
    found = load_document(place.read_text(encoding="utf-8"))
    for text in outputs(found):
        assert not re.search(r"\([^()]*\([^()]*\)", text.partition("How it was decided")[0]), text
        assert not re.search(r"\d us\b", text), text
        assert not re.search(r"execution of type n\d", text), text
        assert "paper" not in text.partition("<details>")[0]


def sentences_of(found):
    """Yield every sentence of ours in a document."""
    yield from (cause.sentence for cause in found.causes if cause.facts)
    yield from (*found.reasons, *found.warnings, *found.detection.notes, *found.outliers.notes)
    for one in (found.clusters, found.clusters.normal, found.clusters.sample):
        yield from one.notes
    for one in (found.sets.normal, found.sets.sample):
        yield from (*one.notes, *one.warnings)
    yield from (aligned.note for aligned in found.aligned)


OLD_WORDS = re.compile(
    r"\b(normal|sample) (set|execution|type|cluster)s?\b|\bexecutions?\b(?! given)|->|\d us\b|"
    r"\banomal|\bexcess\b|slowdown|\([^()]*\("
)


@pytest.mark.parametrize("place", GOLDEN, ids=lambda place: place.stem)
def test_the_document_speaks_as_the_answer_does(place):
    found = load_document(place.read_text(encoding="utf-8"))
    made_up = [] if place.stem == "sample-lock" else found.reasons  # by the factory
    for text in {*sentences_of(found)} - {*made_up}:
        assert not OLD_WORDS.search(re.sub("`[^`]*`|--[a-z]+", "", text)), text
    for cause in found.causes:
        assert cause.sentence == describe_cause(found, cause)


@pytest.mark.parametrize("place", GOLDEN, ids=lambda place: place.stem)
def test_every_output_says_the_same(place):
    """The headline and the causes: in each output the same words and figures."""
    found = load_document(place.read_text(encoding="utf-8"))
    headline = describe_headline(found).sentence.replace("`", "")
    first = listed_causes(found, 1)
    for text in outputs(found):
        shown = re.sub(r"\s+", " ", text.replace("`", "").replace("\\", ""))
        shown = html.unescape(shown).replace("%25", "%")
        assert headline in shown or headline[:40] in shown
        for _, cause in first:
            told = describe_cause(found, cause).replace("`", "")
            told_as_they = describe_cause(found, cause, they=True).replace("`", "")
            assert told in shown or told_as_they in shown


@pytest.mark.parametrize("place", GOLDEN, ids=lambda place: place.stem)
def test_the_headline_and_the_table_have_the_same_figures(place):
    found = load_document(place.read_text(encoding="utf-8"))
    headline = describe_headline(found)
    if headline.before is None or headline.label is None or found.pictures is None:
        return
    [kind_told] = [one for one in found.pictures.kinds if one.label == headline.label]
    pairs = [kind_told.mean, kind_told.usual, [found.states[-1].normal_mean]]
    assert any(abs(headline.before - (pair[0] or 0)) <= 1 for pair in pairs)


@pytest.mark.parametrize(
    ("commands", "specification", "expected"),
    [
        ([], "process", "3 processes after, a process of 40; see --execution and recs/executions"),
        (["x"], "process", "3 runs after, a run of 40; see --execution and recs/executions"),
        ([], "thread", "3 threads after, a thread of 40; see --execution and recs/executions"),
        (
            [],
            "marker",
            "3 requests after, a request of 40; see --execution and recs/executions",
        ),
    ],
)
def test_executions_are_called_what_they_are(document, commands, specification, expected):
    found = document()
    found.sets.sample.specification, found.sets.sample.commands = specification, commands
    said = "3 executions after, an execution of 40; see --execution and recs/executions"
    words = notes.Words(noun_of(found, 1), noun_of(found))
    assert notes.word(said, words) == expected


@pytest.mark.parametrize("place", GOLDEN, ids=lambda place: place.stem)
def test_the_answer_is_a_screen(place):
    found = load_document(place.read_text(encoding="utf-8"))
    lines = answer_lines(found)
    assert len(lines) <= SCREEN
    assert max(map(len, lines)) <= 80
    assert lines[0].split()[1] in {"SLOWER", "FASTER", "OK", "INCONCLUSIVE"}
    assert len(render_markdown(found).splitlines()) < 60


@pytest.mark.parametrize("place", GOLDEN, ids=lambda place: place.stem)
def test_each_figure_of_the_second_line_is_the_first_causes(place):
    """A sentence and the facts beside it come from the same figures."""
    found = load_document(place.read_text(encoding="utf-8"))
    why = describe_why(found)
    cause = next((c for c in found.causes if c.facts), None)
    if found.verdict != "anomaly" or cause is None or cause.facts.time_after is None:
        return
    shown = re.findall(r"(?<![\w-])([\d.]+) (ns|µs|ms|s)\b", why)
    scales = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}
    times = [cause.facts.time_before or 0.0, cause.facts.time_after]
    for number, unit in shown:
        ns = float(number) * scales[unit]
        assert any(abs(ns - time) <= 0.06 * max(time, 1) for time in times)


@pytest.mark.parametrize(
    ("begin", "written", "shown"),
    [
        (1.5, "2026-11-23T10:00:01+0000", "recorded in turns"),  # each file has its own date
        (0.2, "2026-11-23T10:00:00+0000", "recorded in turns"),
        (30, "2026-11-23T10:00:30+0000", "recorded 30 s apart"),
        (600, "2026-11-23T10:10:00+0000", "recorded 10 minutes apart"),
    ],
)
def test_sets_that_overlap_were_recorded_in_turns(document, begin, written, shown):
    found = document(kind("", 10, 11))
    epoch = 1_795_428_000_000_000_000
    for one, first, date in (
        (found.sets.normal, 0, "2026-11-23T10:00:00+0000"),
        (found.sets.sample, begin, written),
    ):
        one.window = Window(begin=int(first * 1e9), end=int((first + 20) * 1e9))
        one.epochs, one.recorded = [epoch], [date]
    assert shown in recordings_line(found)
