"""The steps of action.yml and ci/gitlab.yml as runners run them: a fake of the API, git and sh.

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
import zipfile
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
        token = self.headers["Authorization"] or self.headers["PRIVATE-TOKEN"]
        if token.removeprefix("Bearer ") == "read" and writing:
            code, found = 403, {"message": "Resource not accessible by integration"}
        elif self.command == "GET":
            page = int(re.search(r"[?&]page=(\d+)", self.path)[1])
            found = self.comments[100 * (page - 1) : 100 * page]
        elif self.command == "POST":
            code, found = 201, {"id": 1000 + len(self.comments), **content}
            self.comments.append(found)
        else:
            found = next(c for c in self.comments if self.path.endswith(f"s/{c['id']}"))
            found.update(content)
        body = json.dumps(found).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PATCH = do_PUT = _answer  # noqa: N815 - as the library calls them

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

    def check_out(head, attempt):
        checkout = tmp_path / f"checkout{attempt}"
        # As actions/checkout does: one commit, without its parents.
        checkout.mkdir()
        git("init", "--quiet", place=checkout)
        git("remote", "add", "origin", f"file://{place}", place=checkout)
        git("fetch", "--quiet", "--depth=1", "origin", commits[head], place=checkout)
        git("checkout", "--quiet", "FETCH_HEAD", place=checkout)
        return checkout

    def run(event, kind, *, head=2, may="write", attempt=1, **inputs):
        checkout = check_out(head, attempt)
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
    run.check_out, run.home, run.critpath = check_out, home, script
    return run


@pytest.fixture
def gitlab(runner, api):
    """Return a function that runs the job of a .gitlab-ci.yml which includes ci/gitlab.yml."""
    critpath = runner.place / "critpath"  # the copy that a template is included from
    (critpath / "ci").mkdir(parents=True)
    runner.git("init", "--quiet", "--initial-branch", "v0", place=critpath)
    shutil.copy(ROOT / "ci" / "gate.py", critpath / "ci")
    runner.git("add", "ci", place=critpath)
    runner.git("commit", "--quiet", "-m", "as it is", place=critpath)
    template = yaml.safe_load((ROOT / "ci" / "gitlab.yml").read_text(encoding="utf-8"))[".critpath"]

    def run(*, head=2, attempt=1, **variables):
        checkout = runner.check_out(head, attempt)
        # What pip installs is a link here.
        lines = [line for line in template["script"] if "venv" not in line and "/pip" not in line]
        assert len(lines) == len(template["script"]) - 2
        (checkout / ".critpath" / "bin").mkdir(parents=True)
        (checkout / ".critpath" / "bin" / "critpath").symlink_to(runner.critpath)
        environment = {
            **runner.home, **template["variables"], "GITLAB_CI": "true", "CI": "true",
            "CI_PROJECT_DIR": str(checkout), "CI_JOB_NAME": "performance", "CI_PROJECT_ID": "12",
            "CI_API_V4_URL": f"{api}/api/v4", "CI_DEFAULT_BRANCH": "main",
            "CI_COMMIT_BEFORE_SHA": "0" * 40,
            "CRITPATH_REPOSITORY": f"file://{critpath}", "CRITPATH_RUN": "sh {}/work",
            "CRITPATH_BUILD": "cat source > work", "CRITPATH_UNTIL": "50%",
            "CRITPATH_OPTIONS": "--slot 1 --trace none", **variables,
        }  # fmt: skip
        done = subprocess.run(
            ["sh", "-e", "-c", "\n".join(lines)], cwd=checkout, env=environment,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        kept = [
            path for one in template["artifacts"]["paths"] for path in checkout.glob(f"{one}/*")
        ]
        return done.returncode, done.stdout + done.stderr, {path.name: path for path in kept}

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


def test_what_is_installed_is_found_by_the_steps_after(tmp_path):
    wheel = tmp_path / "critpath_core-0-py3-none-any.whl"
    about = "critpath_core-0.dist-info"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("critpath.py", "def entry(): print('installed')")
        file.writestr(
            f"{about}/METADATA", "Metadata-Version: 2.1\nName: critpath-core\nVersion: 0\n"
        )
        file.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        file.writestr(f"{about}/entry_points.txt", "[console_scripts]\ncritpath = critpath:entry\n")
        file.writestr(f"{about}/RECORD", "")
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    [setup] = [step for step in action["runs"]["steps"] if step.get("id") == "setup"]
    # A wheel that a user names, and what is installed where none is named: what is here.
    for install, here in ((str(wheel), "/nowhere"), ("", str(wheel))):
        done = subprocess.run(
            ["sh", "-e", "-c", setup["run"]], cwd=tmp_path, capture_output=True, text=True,
            check=False, env={
                "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
                "RUNNER_TEMP": str(tmp_path),
                "GITHUB_PATH": str(tmp_path / "path"), "GITHUB_ACTION_PATH": here,
                "INSTALL": install, "PIP_NO_INDEX": "1", "HOME": str(tmp_path),
            },
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        [place] = {*(tmp_path / "path").read_text().split()}
        said = subprocess.run([f"{place}/critpath"], capture_output=True, text=True, check=True)
        assert said.stdout == "installed\n"


def test_a_merge_request_on_gitlab_fails_with_one_note(gitlab, runner):
    request = {"CI_MERGE_REQUEST_IID": "7", "CI_MERGE_REQUEST_DIFF_BASE_SHA": runner.commits[0]}
    token = {"CRITPATH_TOKEN": "write"}
    for attempt in (1, 2):
        code, said, kept = gitlab(attempt=attempt, **token, **request)
        assert code == 1, said
        assert set(kept) == {"answer.json", "comment.md", "about.json", "code"}
        [ours] = [c for c in Api.comments if "critpath" in c["body"]]
        assert ours["body"].startswith("<!-- critpath: performance -->\n**SLOWER: B takes ")
        assert f"{runner.commits[0][:10]} (A) and {runner.commits[2][:10]} (B)" in ours["body"]
    place = "/api/v4/projects/12/merge_requests/7/notes"
    assert [x for x in Api.asked if x[0] != "GET"] == [("POST", place), ("PUT", f"{place}/1130")]
    code, said, _ = gitlab(attempt=3, **request)  # no token: the job's log says it
    assert code == 1
    assert "no comment: set CRITPATH_TOKEN" in said
    assert "SLOWER: B takes " in said


def test_a_push_on_gitlab_adds_to_the_trend(gitlab, runner):
    before = {"CI_COMMIT_BEFORE_SHA": runner.commits[0]}
    code, said, kept = gitlab(head=1, **before)
    assert code == json.loads(kept["answer.json"].read_text())["exit"], said
    [answer] = [name for name in kept if name.endswith(f"..{runner.commits[1][:10]}.json")]
    assert answer.split("-")[1].startswith(runner.commits[0][:10])
    assert "trend.html" in kept
    assert not Api.asked
    # The first push of a branch is held against the default branch, whose newest commit this is.
    code, said, _ = gitlab(attempt=2, CRITPATH_OPTIONS="--slot 1 --trace none --max-blocks 1")
    assert code == 0, said


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
