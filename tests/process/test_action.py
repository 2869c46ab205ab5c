"""The steps of action.yml as a runner runs them: events, a fake of the API, nothing but git and sh.

What they need of the machine is in one directory of links, which is all of PATH; the environment
is what a runner gives.  What pip installs is tests/process/test_packages.py's: here critpath is a
link, too.
"""

from __future__ import annotations

import http.server
import json
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import ClassVar

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("git", "sh", "sleep", "cat", "env", "true", "mkdir")
PULL = {
    "action": "synchronize",
    "number": 7,
    "pull_request": {"number": 7, "head": {"repo": {"full_name": "team/shop"}}},
    "repository": {"full_name": "team/shop", "default_branch": "main"},
}


class Api(http.server.BaseHTTPRequestHandler):
    """Keeps comments of pull request 7; a token "read" may not write."""

    comments: ClassVar[list[dict]] = []
    asked: ClassVar[list[tuple[str, str]]] = []

    def _answer(self):
        self.asked.append((self.command, self.path))
        length = int(self.headers.get("Content-Length") or 0)
        content = json.loads(self.rfile.read(length)) if length else {}
        writing = self.command != "GET"
        code, found = 200, None
        if self.headers["Authorization"] == "Bearer read" and writing:
            code, found = 403, {"message": "Resource not accessible by integration"}
        elif self.command == "GET":
            page = int(re.search(r"[?&]page=(\d+)", self.path)[1])
            found = self.comments[100 * (page - 1) : 100 * page]
        elif self.command == "POST":
            code, found = 201, {"id": 1000 + len(self.comments), **content}
            self.comments.append(found)
        else:
            found = next(c for c in self.comments if self.path.endswith(f"/comments/{c['id']}"))
            found.update(content)
        body = json.dumps(found).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PATCH = _answer  # noqa: N815 - as the library calls them

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def api():
    Api.comments, Api.asked = [], []
    # Others have written before, more than a page of them.
    Api.comments += [{"id": n, "body": f"comment {n}"} for n in range(130)]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def runner(tmp_path, api):
    """Return a function that runs the action's steps on a checkout, and what it left."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in TOOLS:
        (tools / name).symlink_to(shutil.which(name))
    (tools / "python3").symlink_to(sys.executable)
    script = tools / "critpath"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m critpath "$@"\n')
    script.chmod(0o755)
    home = {"HOME": str(tmp_path), "PATH": str(tools), "LC_ALL": "C.UTF-8"}
    names = {f"GIT_{a}_{b}": "x@y" for a in ("AUTHOR", "COMMITTER") for b in ("NAME", "EMAIL")}

    def git(*arguments, place=tmp_path / "repository"):
        return subprocess.run(
            ["git", "-C", place, *arguments], env={**home, **names}, capture_output=True, text=True,
            check=True,
        ).stdout.strip()  # fmt: skip

    place = tmp_path / "repository"
    place.mkdir()
    git("init", "--quiet", "--initial-branch", "main")
    commits = []
    for seconds in ("0.001", "0.001", "0.3"):
        (place / "source").write_text(f"sleep {seconds}\n")
        git("add", "source")
        git("commit", "--quiet", "--allow-empty", "-m", f"takes {seconds}")
        commits.append(git("rev-parse", "HEAD"))

    def run(event, kind, *, head=2, may="write", attempt=1, **inputs):
        checkout = tmp_path / f"checkout{attempt}"
        # As actions/checkout does: one commit, without its parents.
        checkout.mkdir()
        git("init", "--quiet", place=checkout)
        git("remote", "add", "origin", f"file://{place}", place=checkout)
        git("fetch", "--quiet", "--depth=1", "origin", commits[head], place=checkout)
        git("checkout", "--quiet", "FETCH_HEAD", place=checkout)
        temp = tmp_path / f"temp{attempt}"
        temp.mkdir()
        (temp / "event.json").write_text(json.dumps(event))
        action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
        given = {k: v.get("default", "") for k, v in action["inputs"].items()} | {
            "run": "sh {}/work", "build": "cat source > work", "until": "50%", "token": may,
            "options": "--slot 1 --trace none", **inputs,
        }  # fmt: skip
        known = {f"inputs.{k}": str(v) for k, v in given.items()}
        known |= {"runner.temp": str(temp), "github.event_name": kind}

        def filled(text):
            return re.sub(r"\$\{\{ *([\w.-]+) *\}\}", lambda m: known[m[1]], text)

        environment = {
            **home, "GITHUB_ACTIONS": "true", "GITHUB_ACTION_PATH": str(ROOT), "CI": "true",
            "GITHUB_EVENT_PATH": str(temp / "event.json"), "GITHUB_EVENT_NAME": kind,
            "GITHUB_REPOSITORY": "team/shop", "GITHUB_API_URL": api, "RUNNER_TEMP": str(temp),
            "GITHUB_OUTPUT": str(temp / "output"), "GITHUB_STEP_SUMMARY": str(temp / "summary"),
            "GITHUB_PATH": str(temp / "path"),
        }  # fmt: skip
        said, code = "", 0
        for step in action["runs"]["steps"]:
            condition = step.get("if", "true == true")
            left, right = condition.split(" == ")
            if known.get(left, left) != right.strip("'") or "uses" in step:
                continue
            if step["id"] == "setup":
                continue
            # Nothing that a user writes is part of a script.
            assert "${{" not in step["run"]
            more = {k: filled(v) for k, v in step.get("env", {}).items()}
            done = subprocess.run(
                ["sh", "-e", "-c", step["run"]], cwd=checkout, env={**environment, **more},
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            said += done.stdout + done.stderr
            code = done.returncode
            if code:
                break
        return code, said, temp

    run.commits, run.git, run.place = commits, git, tmp_path
    return run


def pull(base):
    return {**PULL, "pull_request": {**PULL["pull_request"], "base": {"sha": base, "ref": "main"}}}


def test_a_pull_request_that_is_slower_fails_with_one_comment(runner):
    for attempt in (1, 2):
        code, said, temp = runner(pull(runner.commits[0]), "pull_request", attempt=attempt)
        assert code == 1, said
        assert "verdict=slower\nsentence=SLOWER: B takes " in (temp / "output").read_text()
        [ours] = [c for c in Api.comments if "critpath" in c["body"]]
        assert ours["body"].startswith("<!-- critpath: performance -->\n**SLOWER: B takes ")
        assert f"{runner.commits[0][:10]} (A) and {runner.commits[2][:10]} (B)" in ours["body"]
        assert "●" in ours["body"]
        assert (temp / "summary").read_text() == ours["body"].split("\n", 1)[1]
    assert [method for method, _ in Api.asked if method != "GET"] == ["POST", "PATCH"]
    # Another gate has a comment of its own.
    runner(pull(runner.commits[0]), "pull_request", attempt=3, name="startup")
    assert len([c for c in Api.comments if "critpath" in c["body"]]) == 2


def test_of_a_fork_the_token_may_not_write(runner):
    event = pull(runner.commits[0])
    event["pull_request"]["head"]["repo"]["full_name"] = "stranger/shop"
    code, said, temp = runner(event, "pull_request", may="read")
    assert code == 1
    assert "::notice::critpath: no comment: the token may not write" in said
    assert "SLOWER" in (temp / "summary").read_text()
    assert len(Api.comments) == 130


def test_a_push_adds_to_the_trend_and_comments_on_nothing(runner):
    code, said, temp = runner({"before": runner.commits[0]}, "push", head=1)
    names = sorted(path.name for path in (temp / "critpath-trend").iterdir())
    assert code == json.loads((temp / "critpath-answer" / "answer.json").read_text())["exit"], said
    wanted = rf"\d{{8}}T\d{{6}}Z-{runner.commits[0][:10]}\.\.{runner.commits[1][:10]}\.json"
    assert re.fullmatch(wanted, names[0])
    assert names[1:] == ["trend.html"]
    assert not Api.asked


@pytest.mark.parametrize(
    ("before", "base"), [("0" * 40, ""), ("", "main"), ("1" * 40, ""), ("", "--upload-pack=x")]
)
def test_a_base_that_is_not_there(runner, before, base):
    # Of a first push the default branch, whose newest commit this is: beside itself.
    event = {"before": before, "repository": PULL["repository"]}
    code, said, temp = runner(event, "push", base=base, options="--slot 1 --max-blocks 1")
    if before == "1" * 40 or base.startswith("-"):
        assert code == 4
        assert re.search(r"::error::critpath: (the base 1+ is not in the repository any more|"
                         r"base: --upload-pack=x is no revision)\n  give ", said)  # fmt: skip
        assert not (temp / "critpath-answer" / "answer.json").exists()
    else:  # undecided after a block: a warning
        assert code == 0, said
        assert "::warning::critpath: undecided" in said


def test_what_a_user_writes_is_no_command_of_the_steps_shell(runner):
    evil = runner.place / "evil"
    text = f"sh {{}}/work $(touch {evil}) ; touch {evil}"
    code, said, _ = runner(
        pull(runner.commits[0]), "pull_request", run=text, options="--slot 1 --max-blocks 1"
    )
    assert code == 0, said
    assert not evil.exists()


def test_what_a_program_prints_is_no_mark_up_and_calls_nobody():
    namespace: dict = {"__name__": "gate"}
    exec(compile((ROOT / "ci" / "gate.py").read_text(), "gate.py", "exec"), namespace)  # noqa: S102
    row = {"ratio": 1.2, "interval": [1.1, 1.4]}
    document = {
        "sentences": ["SLOWER: `x`", "@all: slower\n## <img src=x>"], "floor": 0.05, "of": "time",
        "time": row, "running": {"ratio": None, "interval": [None, None]},
        "labels": {"```\n@all <b>": row},
    }  # fmt: skip
    found = namespace["describe"](document, "a" * 40, "b" * 40)
    assert found.count("```") == 2
    assert "@all" not in found
    assert "<" not in found
    assert "\n##" not in found
    [time, *_] = [line for line in found.splitlines() if line.startswith("time")]
    assert re.fullmatch(r"time +┊ ╎? *├─+●─+┤ +\+20\.0 %", time.replace("╎", " ")), time
