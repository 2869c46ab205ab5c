"""Short names: they fit a label and still tell executions apart."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.documents import PathSubject
from critpath.report.document.comparison import comparison_document
from critpath.report.document.redaction import _Names
from critpath.report.html.as_html import render_html
from critpath.report.html.elements import family_of, short_names
from critpath.text.phrases import thread_name
from critpath.text.sentences import thread_of

NAMES = st.one_of(
    st.builds("{}@{}".format, st.integers(0, 40), st.integers(0, 10**15)),
    st.from_regex(r"\A[0-9]{1,2}(@[0-9…]{0,3})?\Z"),
    st.text(max_size=8),
)


@given(st.lists(NAMES, max_size=30, unique=True))
def test_no_two_executions_of_a_set_have_one_name(names):
    short = short_names(names)
    shown = [short.get(name, name) for name in names]
    assert len(set(shown)) == len(names)
    for name, label in short.items():
        tid, _, begin = name.partition("@")
        assert label == tid or begin.endswith(label.removeprefix(f"{tid}@…"))


def test_a_thread_that_occurs_once_is_its_number_others_as_much_as_needed():
    names = ["7@38420289508189", "8@38420289508189", "8@38420289999189", "8@38420280001189"]
    assert short_names([*names, "request-9", "9"]) == {
        "7@38420289508189": "7",
        "8@38420289508189": "8@…8189",
        "8@38420289999189": "8@…9189",
        "8@38420280001189": "8@…1189",
    }
    # What is called so already keeps its name.
    assert short_names(["9", "9@123456"]) == {"9@123456": "9@…456"}


def test_threads_are_grouped_as_the_roles_of_states_are():
    comms = ["worker-12", "kworker/u4:1", "jbd2/vda-8", "x264", "pool3-thread-1"]
    assert [family_of(PathSubject(comm=comm, tid=1)) for comm in comms] == [
        *("worker-#", "kworker/u#:#", "jbd2/vda-#", "x#", "pool3-thread-#")
    ]
    assert thread_of(PathSubject(comm="worker-1", tid=12)) == "worker-1 12"
    assert thread_of(PathSubject(comm="a\u202eb", tid=-1)) == "a\u202eb"


def test_short_names_in_tables_full_ones_to_point_at(factory):
    document = comparison_document(factory.comparison(columns=20))
    factory.unnamed(document)
    page = render_html(document)
    shown = re.findall(r'<span title="(15894@3842\d+)">(15894@…\d+)</span>', page)
    assert shown
    for full, label in shown:
        assert full in {row.id for row in document.executions}
        assert full.endswith(label.rpartition("…")[2])


@pytest.mark.parametrize(
    ("name", "whose"),
    [
        *((f"critpath-{what}", " of the recorder") for what in ("drain0", "beat12", "record")),
        *((f"critpath-{what}", " of the recorder") for what in ("hands", "limits", "probe")),
        *((name, " of the recorder") for name in ("lttng-consumerd", "lttng-runas")),
        *((name, "") for name in ("critpath", "python", "lttngx", "my-critpath-record")),
    ],
)
def test_threads_that_record_are_called_the_recorders(name, whose):
    assert thread_name(name, 7) == f"`{name}`{whose} (tid 7)"


def test_functions_and_their_files_have_stand_ins_in_details_and_sentences():
    detail = "encode (json/encoder.py:42), under render (shop.py:7)"
    sentence = "running in `encode` (json/encoder.py:42), under `render` (shop.py:7)"
    names = _Names()
    names.add_functions(f"{detail} {sentence}", ())
    assert names.replace(detail) == "function-1, under function-2"
    assert names.replace(sentence) == "running in function-1, under function-2"
