"""``critpath report --redact``: a page for others has the answer and none of the names."""

from __future__ import annotations

import base64
import html
import json
import re
import string
import tempfile
from functools import cache
from pathlib import Path
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from critpath.commands import main
from critpath.documents import CauseFacts, CodePlace, ComparisonDocument, RequestEntry
from critpath.errors import CritpathError
from critpath.report.document import redact
from critpath.report.document.comparison import comparison_document
from critpath.text.explanation import describe_cause
from tests.pure.report import factory, hostile

LIMIT = 300_000


def base64_of(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def hex_of(text: str) -> str:
    return text.encode().hex()


URL = "https://jaeger.example/trace/{trace_id}"


def share(tmp_path: Path, document: ComparisonDocument, *options: str) -> bytes:
    """Share a document as a user does, and return the page."""
    file, page = tmp_path / "answer.json", tmp_path / "page.html"
    file.write_bytes(msgspec.json.encode(document))
    assert main(["report", "--redact", str(file), "--html", str(page), "--quiet", *options]) == 0
    return page.read_bytes()


def forms(secret: str) -> set[bytes]:
    """Return how a text may stand in a page."""
    texts = {secret, html.escape(secret), html.escape(secret, quote=False)}
    texts |= {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    return {text.encode("utf-8", "surrogatepass") for text in texts}


def with_names(host: str, user: str, command: str, place: str) -> ComparisonDocument:
    """Return a comparison whose texts have these names, in words and beside letters."""
    document = factory_document(host)
    home = f"/home/{user}/{place}"
    for side in ("normal", "sample"):
        one = document.sets[side]
        one.sources = [f"{home}/{side}"] * len(one.sources)
        one.commands, one.machines = [command], [host]
        one.warnings = [f"{home}/{side}: 3 events lost on {host}", f"ran {command!s} as {user}"]
        one.notes = [f"{host}_backup had {home}/other, too"]
    document.warnings = [f"{home}/normal/trace: read twice; {command}", f"~{user} on {host}."]
    document.reasons = [*document.reasons, f"{command} was run by {user}@{host}"]
    for row in document.executions:
        row.id = f"{host}-{row.position}"
    return document


def factory_document(host: str) -> ComparisonDocument:
    names = factory.Names(host=host.replace("{", "{{").replace("}", "}}"))
    return comparison_document(
        factory.comparison(names=names, normals=6, samples=4, anomalous=1, columns=6)
    )


# What a page has that was told no secret: a name that is a part of that cannot be looked for.
INNOCENT = with_names("hostname.example", "somebody", "program --option", "directory")

LETTERS = string.ascii_lowercase + string.digits + "-_."
word = st.text(LETTERS, min_size=4, max_size=14).filter(lambda text: text.strip("-_.") == text)
odd = st.text(min_size=4, max_size=16).filter(lambda text: "/" not in text and text.strip() == text)
# A document is UTF-8: half of a surrogate pair is not in one.
odd |= st.sampled_from(
    [n for n in hostile.NAMES if len(n) >= 4 and "/" not in n and "\ud800" not in n]
)


@cache
def innocent_page() -> str:
    with tempfile.TemporaryDirectory() as place:
        return share(Path(place), INNOCENT).decode()


def find_names(tmp_path: Path, host: str, user: str, command: str, place: str) -> list[bytes]:
    """Return what of the names is in the page, in any form."""
    secrets = {host, user, command, f"/home/{user}/{place}"}
    names = {*secrets, *(line for secret in secrets for line in secret.splitlines())}
    looked_for = {form for name in names if len(name) >= 4 for form in forms(name)}
    looked_for = {form for form in looked_for if form not in innocent_page().encode()}
    page = share(tmp_path, with_names(host, user, command, place))
    assert len(page) < LIMIT
    return [form for form in looked_for if form in page]


@pytest.mark.parametrize(
    ("host", "user", "command", "place"),
    [
        ("web1.corp.example", "jo.e", "/srv/x/run --key=s3cr3t", "a b/c"),
        ("build-7", "o'neill", 'sh -c "echo $HOME; rm <x>"', "naïve/é"),
        ("a&b<c>", "joe secret", "\x1b[31mred\x07 --x", "recs"),
    ],
)
def test_no_name_is_anywhere_in_the_page(tmp_path, host, user, command, place):
    assert find_names(tmp_path, host, user, command, place) == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(host=word | odd, user=word | odd, command=word | odd, place=word)
def test_no_drawn_name_is_anywhere_in_the_page(tmp_path, host, user, command, place):
    assert find_names(tmp_path, host, user, command, place) == []


def test_short_names_of_hosts_are_replaced_where_hosts_stand(tmp_path):
    document = with_names("db", "alice", "serve", "recs")
    document.reasons = ["waits for `postgres@db:5432`", "to db:6379 at 2001:db8::5:80, a::b of ab"]
    page = share(tmp_path, document).decode()
    assert "postgres@host-1:5432" in page
    assert "to host-1:6379 at address-" in page
    assert "db:" not in page
    assert "2001:" not in page


def test_threads_are_replaced_where_asked(tmp_path):
    document = INNOCENT
    kept = share(tmp_path, document).decode()
    replaced = share(tmp_path, document, "--redact-threads").decode()
    assert "worker" in kept
    assert "kworker/0" in kept
    assert "worker" not in replaced
    assert "thread-1" in replaced


def test_what_was_replaced_is_said_and_what_was_kept(tmp_path, capsys):
    file, page = tmp_path / "answer.json", tmp_path / "page.html"
    file.write_bytes(msgspec.json.encode(INNOCENT))
    assert main(["report", "--redact", str(file), "--html", str(page)]) == 0
    said = capsys.readouterr().err
    for what in ("2 recordings", "1 host", "1 command", "names of threads and kinds"):
        assert what in said
    # Whoever reads the page can see it as well.
    assert "names were replaced for sharing" in page.read_text(encoding="utf-8")


def test_kinds_of_request_that_look_like_paths_are_kept(tmp_path):
    document = with_names("web1", "alice", "serve /srv/secret.conf", "recs")
    for row in document.executions:
        row.label = "GET /api/users"
    assert document.pictures is not None
    for kind in document.pictures.kinds:
        kind.label = "GET /api/users"
    document.warnings.append("`GET /api/users` waits for /srv/secret.conf")
    page = share(tmp_path, document).decode()
    assert "GET /api/users" in page
    assert "secret.conf" not in page


def test_what_requests_are_called_by_their_bytes_is_replaced(tmp_path):
    document = with_names("web1", "alice", "serve", "recs")
    label, trace = "nginx:8080 GET /users/anna → gunicorn:9082", "ab" * 16
    entry = RequestEntry("nginx:8080", "", 1, 0, 0, 1, 1, 1, "certain", "likely", [])
    for row in document.executions:
        row.label = label
        row.request = msgspec.structs.replace(entry, message="GET /users/anna", trace_id=trace)
    assert document.pictures is not None
    for kind in document.pictures.kinds:
        kind.label = label
    page = share(tmp_path, document).decode()
    assert "anna" not in page
    assert trace not in page
    assert "nginx:8080 message-1 → gunicorn:9082" in page


def test_places_in_the_code_are_replaced(tmp_path):
    document = with_names("web1", "alice", "serve", "recs")
    at, waits = "pay_anna (app/bank.py:42)", "ask_bank (app/pool.py:7)"
    document.causes[0].facts = CauseFacts(
        *("WAIT_TASK", "holder", "holder", [7], "holder", "", "", "extra", "trips", 1, 2, 1e6, 2e6),
        *(1.0, 1, 1, "observed"),
        location=at,
        locations=[CodePlace(location=at, share=1.0)],
        waits_at=waits,
    )
    document.causes[0].sentence = describe_cause(document, document.causes[0])
    assert "pay_anna" in document.causes[0].sentence
    page = share(tmp_path, document).decode()
    assert not {"anna", "bank", "pool.py"} & set(re.findall(r"anna|bank|pool\.py", page))
    assert "function-1" in page


def test_words_of_a_mark_are_no_message(tmp_path):
    document = with_names("web1", "alice", "serve", "recs")
    for row in document.executions:
        row.label = "job:42 slow"
    document.warnings.append("This became slower.")
    assert "This became slower." in share(tmp_path, document).decode()


def test_a_real_comparison_opens_at_its_answer(answer, tmp_path):
    """As a colleague gets it: one file, nothing from elsewhere, the answer first."""
    file, page = tmp_path / "answer.json", tmp_path / "page.html"
    file.write_bytes(answer("sample-lock").json)
    sets = [
        one for which in answer("sample-lock").plain["sets"].values() for one in which["sources"]
    ]
    assert main(["report", "--redact", str(file), "--html", str(page), "--quiet"]) == 0
    text = page.read_text(encoding="utf-8")
    assert page.stat().st_size < LIMIT
    assert str(tmp_path) not in text
    assert not any(one in text for one in sets)
    body = text[text.index("<body") :]
    assert body.index("SLOWER") < body.index("<h2")
    assert "holder" in body
    assert 'src="http' not in text
    assert "@import" not in text


def test_a_page_that_would_be_too_large_shows_fewer_examples(tmp_path, monkeypatch):
    whole = len(share(tmp_path, INNOCENT))
    monkeypatch.setattr("critpath.commands.report.MOST_BYTES", whole - 1)
    page = share(tmp_path, INNOCENT)
    assert len(page) < whole
    assert b"SLOWER" in page
    monkeypatch.setattr("critpath.commands.report.MOST_BYTES", 1000)
    (tmp_path / "page.html").unlink()
    file = tmp_path / "answer.json"
    assert main(["report", "--redact", str(file), "--html", str(tmp_path / "page.html")]) == 2
    assert not (tmp_path / "page.html").exists()


# Bad input: one line what, one line what to do, and nothing written.


def refused(capsys, *arguments: str) -> tuple[int, list[str]]:
    code = main(["report", "--redact", *arguments])
    return code, capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (None, 4),
        (b"", 4),
        (b"{", 4),
        (b"[]", 4),
        (b'{"format": "critpath/path/1"}', 4),
        (b'{"format": "critpath/comparison/1"}', 4),
        (b"\x89PNG\r\n", 4),
    ],
)
def test_what_is_no_comparison_is_refused(content, code, tmp_path, capsys):
    file, page = tmp_path / "answer.json", tmp_path / "page.html"
    if content is not None:
        file.write_bytes(content)
    found, lines = refused(capsys, str(file), "--html", str(page))
    assert found == code
    assert len(lines) == 2
    assert not page.exists()


def test_what_cannot_be_is_refused_and_nothing_written(tmp_path, capsys):
    file = tmp_path / "answer.json"
    file.write_bytes(before := msgspec.json.encode(INNOCENT))
    for place in (file, tmp_path / "no" / "page.html"):
        code, lines = refused(capsys, str(file), "--html", str(place))
        assert (code, len(lines)) == (2, 2)
    assert file.read_bytes() == before


def test_other_outputs_are_without_names_too(tmp_path, capsys):
    file = tmp_path / "answer.json"
    file.write_bytes(msgspec.json.encode(with_names("web1.corp", "joe", "/srv/run", "recs")))
    for output in ("--markdown", "--json", "--junit", "--html"):
        assert main(["report", "--redact", str(file), output, "-", "--trace-url", URL]) == 0
        said = capsys.readouterr().out
        assert not [word for word in ("web1.corp", "/" + "home/joe", "jaeger") if word in said]
    assert main(["report", "--redact", str(file), "-v"]) == 0
    assert "web1.corp" not in capsys.readouterr().out


def test_only_a_comparison_is_redacted(tmp_path, capsys):
    file = tmp_path / "doctor.json"
    file.write_text(json.dumps({"format": "critpath/calibration/1"}))
    code, lines = refused(capsys, str(file))
    assert code
    assert len(lines) == 2


HIDDEN = "/data/acme payroll/q3"


@pytest.mark.parametrize(
    "text",
    [
        "PATH=/usr/bin:/srv/anna/acme/bin: not there",
        "cc -I/srv/anna/acme/include -L/data/acme/lib x.c",
        "reads file:///srv/anna/acme/a.ods",
        "opens file:/srv/anna/acme/a.ods",
        "/srv/anna/Acme Documents/acme/salary.ods: 3 events lost",
        "nas:/export/acme/a is slow",
        "https://intranet.acme.example/acme?q=1 answered",
        r"C:\\Users\\anna\\acme\\a.ods is there",
        "~anna/acme/a",
        "=/srv/acme/a;",
    ],
)
def test_no_path_stays_however_it_stands(tmp_path, text):
    document = with_names("web1.example", "anna", "serve", "recs")
    for row in document.executions:
        row.label = f"convert {text}"
    document.reasons, document.warnings = [text], [text]
    for one in (document.sets["normal"], document.sets["sample"]):
        one.notes = [text]
    page = share(tmp_path, document)
    assert b"anna" not in page
    assert b"acme" not in page.lower()


@pytest.mark.parametrize("encode", [quote, quote_plus, html.escape, repr, base64_of, hex_of])
def test_no_name_stays_however_it_is_written(tmp_path, encode):
    command = "./run.sh --key=S3cr3t/ToKen+1 '/data/acme payroll/q3' <x>"
    document = with_names("web1.corp.example", "anna", command, "recs")
    for name in ("web1.corp.example", "S3cr3t/ToKen+1", HIDDEN):
        document.reasons = [f"said {encode(name)} of it", f"said {name}"]
        document.warnings = [f"x{encode('abc' + name + 'def')}"]
        page = share(tmp_path, document).decode()
        forms_of = {name, encode(name)}
        if encode is base64_of:
            forms_of |= {encode("x" * before + name + "yyy")[4:-8] for before in range(3)}
        assert not [form for form in forms_of if form in page]


@pytest.mark.parametrize("encode", [str, quote, base64_of, hex_of])
def test_a_page_that_would_have_a_name_is_not_written(encode):
    document = with_names("web1.corp.example", "anna", "serve", "recs")
    with pytest.raises(CritpathError, match="would still have"):
        redact(document, render=lambda _: f"<p>x{encode('web1.corp.example')}y")
    redact(document, render=lambda _: "<p>host-1")
