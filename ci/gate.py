"""What action.yml and ci/gitlab.yml do: base and head in turns, a comment, the trend, a verdict.

Nothing but Python's library: it runs before and beside critpath, which it calls as a command.

gate.py run      checks base out, builds both, runs critpath ab, keeps answer.json and comment.md
gate.py comment  writes the pull request's comment, or the one that is there anew
gate.py trend    adds the answer to those of the commits before: trend.html
gate.py verdict  ends with the answer's exit code
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final, NoReturn

TEMP: Final = Path(os.environ.get("RUNNER_TEMP") or os.environ.get("CI_PROJECT_DIR") or ".")
ANSWER: Final = TEMP / "critpath-answer"
TREND: Final = TEMP / "critpath-trend"
_PLACE: Final = "{}"  # in the command: a checkout
_NONE: Final = re.compile("0*")  # what GitHub calls no commit
_WIDTH: Final = 41  # characters of the picture
_MOST: Final = 300  # characters of a name in it
_UNDECIDED: Final = 3
_CANNOT_RUN: Final = 4


def main() -> None:
    """Do one step."""
    steps = {"run": run, "comment": comment, "trend": trend, "verdict": verdict}
    steps[sys.argv[1]]()


# Base and head


def run() -> None:
    """Run both in turns, and keep the answer; its exit code is the last step's."""
    ANSWER.mkdir(parents=True, exist_ok=True)
    base, head = _find_base(), _git("rev-parse", "HEAD").strip()
    # Names of one length, beside each other: a path's length alone can change a time.
    places = {"base": TEMP / "critpath-b", "head": TEMP / "critpath-h"}
    for name, revision in (("base", base), ("head", head)):
        _git("worktree", "add", "--force", "--detach", str(places[name]), revision)
        if build := os.environ.get("CRITPATH_BUILD"):
            done = subprocess.run(["sh", "-ec", build], cwd=places[name], check=False)
            if done.returncode:
                _give_up(f"the build of {name} ({revision[:10]}) failed", "try it by hand there")
    command = shlex.split(os.environ["CRITPATH_RUN"])
    if not any(_PLACE in word for word in command):
        _give_up("run: has no {} in it: nothing of it would be of a checkout", "{}/checkout --once")
    a, b = ([word.replace(_PLACE, str(place)) for word in command] for place in places.values())
    file = ANSWER / "answer.json"
    words = [
        *_critpath("ab"),
        *("--until", os.environ.get("CRITPATH_UNTIL") or "5%"),
        *("--time", os.environ.get("CRITPATH_TIME") or "10m"),
        *shlex.split(os.environ.get("CRITPATH_OPTIONS", "")),
        *("--json", str(file), "--", *a, "--", *b),
    ]
    # What a program is called, or a kind of execution, is no command for the runner.
    word = secrets.token_hex(8)
    print(f"::stop-commands::{word}" if _on_github() else "", flush=True)
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, flush=True)
    print(f"::{word}::" if _on_github() else "", flush=True)
    (ANSWER / "code").write_text(str(done.returncode))
    if not file.is_file():
        sys.exit(done.returncode or _CANNOT_RUN)
    document = json.loads(file.read_text())
    (ANSWER / "about.json").write_text(json.dumps({"base": base, "head": head}))
    text = describe(document, base, head)
    (ANSWER / "comment.md").write_text(text)
    _append("GITHUB_STEP_SUMMARY", text)
    sentence = " ".join(document["sentences"][0].split())
    _append("GITHUB_OUTPUT", f"verdict={document['verdict']}\nsentence={sentence}\n")


def _critpath(verb: str) -> list[str]:
    """Return how critpath is called: as root where that is free, so that an alarm has its cause."""
    program = shutil.which("critpath") or "critpath"
    if os.getuid() == 0:
        return [program, verb]
    if (
        shutil.which("sudo")
        and not subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False).returncode
    ):
        return ["sudo", "-n", "env", f"PATH={os.environ['PATH']}", program, verb]
    return [program, verb, "--trace", "none"]


def _find_base() -> str:
    """Return the commit that head is held against, which is fetched if it is not there."""
    asked = os.environ.get("CRITPATH_BASE", "")
    event = _event()
    pull = event.get("pull_request") or {}
    found = asked or pull.get("base", {}).get("sha", "") or event.get("before", "")
    found = found or os.environ.get("CI_MERGE_REQUEST_DIFF_BASE_SHA", "")
    found = found or os.environ.get("CI_COMMIT_BEFORE_SHA", "")
    if _NONE.fullmatch(found):  # the first push of a branch
        default = event.get("repository", {}).get("default_branch")
        found = default or os.environ.get("CI_DEFAULT_BRANCH") or "main"
    if found.startswith("-"):
        _give_up(f"base: {found} is no revision", "give a commit, a tag or a branch")
    where = "refs/critpath/base"
    refspec = f"+{found}:{where}"
    for name in (found, f"origin/{found}", where):
        if name == where:
            _git("fetch", "--quiet", "--depth=1", "origin", refspec, check=False)
        if commit := _git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", check=False):
            return commit.strip()
    return _give_up(
        f"the base {found} is not in the repository any more",
        "give another one: base: v1.4, or run the job again after a rebase",
    )


# The comment


def describe(document: dict[str, Any], base: str, head: str) -> str:
    """Return the sentence and the picture, as Markdown."""
    first, *others = document["sentences"]
    rows = [("time", document["time"]), ("on a cpu", document["running"])]
    if document.get("counted"):
        rows.append((document["of"], document["counted"]))
    rows += [(name or "the others", found) for name, found in document["labels"].items()]
    lines = draw(rows, document["floor"])
    more = "\n".join(f"- {_plain(one)}" for one in others)
    return (
        f"**{_plain(first)}**\n\n```text\n{chr(10).join(lines)}\n```\n\n{more}\n\n"
        f"{base[:10]} (A) and {head[:10]} (B), in turns on one machine: "
        "`critpath ab`\n"
    )


def draw(rows: list[tuple[str, dict[str, Any]]], floor: float) -> list[str]:
    """Return a line for each: where B's time over A's lies, and where it may not."""
    ends = [end for _, row in rows for end in (row["ratio"], *row["interval"]) if end]
    reach = max(2 * floor, *(abs(end - 1) for end in ends)) if ends else 2 * floor
    reach = min(reach, 20 * floor)
    width = max(len(name[:_MOST]) for name, _ in rows)

    def at(ratio: float) -> int:
        inside = min(max((ratio - 1) / reach, -1.0), 1.0)
        return round((inside + 1) / 2 * (_WIDTH - 1))

    scale = [" "] * _WIDTH
    shown = f"{-100 * reach:+.0f} %", "0", f"{100 * reach:+.0f} %"
    for text, place in zip(shown, (0, at(1.0), _WIDTH - len(shown[2])), strict=True):
        scale[place : place + len(text)] = text
    lines = [f"{'':{width}} {''.join(scale)}"]
    for name, row in rows:
        cells = [" "] * _WIDTH
        cells[at(1.0)] = "┊"
        cells[at(1 + floor)] = "╎"
        low, high = row["interval"]
        if low and high:
            for place in range(at(low), at(high) + 1):
                cells[place] = "─"
            cells[at(low)], cells[at(high)] = "├", "┤"
        if row["ratio"]:
            cells[at(row["ratio"])] = "●"
        said = f"{100 * (row['ratio'] - 1):+.1f} %" if row["ratio"] else "not known"
        lines.append(f"{_plain(name[:_MOST]):{width}} {''.join(cells)} {said}")
    return [*lines, f"{'':{width}} {'┊ as fast as A   ╎ the most that is let pass':{_WIDTH}}"]


def _plain(text: str) -> str:
    """Take its meaning from text that a program has printed: no mark-up, and nobody is called."""
    one_line = " ".join(text.split())
    for mark, harmless in (("`", "'"), ("<", "(less)"), ("@", "@\N{ZERO WIDTH SPACE}")):
        one_line = one_line.replace(mark, harmless)
    return one_line


def comment() -> None:
    """Write the comment of this gate, or change the one that is there."""
    file = ANSWER / "comment.md"
    number = (_event().get("pull_request") or {}).get("number")
    gitlab = os.environ.get("CI_MERGE_REQUEST_IID")
    token = os.environ.get("CRITPATH_TOKEN", "")
    if not file.is_file() or not (number or gitlab):
        return
    mark = f"<!-- critpath: {os.environ.get('CRITPATH_NAME') or 'performance'} -->"
    text = f"{mark}\n{file.read_text()}"
    try:
        if gitlab:
            _comment_on_gitlab(gitlab, mark, text, token)
        else:
            api = os.environ.get("GITHUB_API_URL", "https://api.github.com")
            place = f"{api}/repos/{os.environ['GITHUB_REPOSITORY']}/issues"
            accept = "application/vnd.github+json"
            headers = {"Authorization": f"Bearer {token}", "Accept": accept}
            found = _find_comment(f"{place}/{number}/comments", mark, headers)
            if found:
                _ask("PATCH", f"{place}/comments/{found}", headers, {"body": text})
            else:
                _ask("POST", f"{place}/{number}/comments", headers, {"body": text})
    except urllib.error.HTTPError as error:
        # Of a fork the token may read only: the summary of the job has it all.
        why = "the token may not write" if error.code in {401, 403, 404} else f"HTTP {error.code}"
        _notice(f"no comment: {why}; the answer is in the job's summary")
    except OSError as error:
        _notice(f"no comment: {error}; the answer is in the job's summary")


def _comment_on_gitlab(number: str, mark: str, text: str, token: str) -> None:
    if not token:
        _notice("no comment: set CRITPATH_TOKEN to a token that may write with the API")
        return
    api, project = os.environ["CI_API_V4_URL"], os.environ["CI_PROJECT_ID"]
    place = f"{api}/projects/{project}/merge_requests/{number}/notes"
    headers = {"PRIVATE-TOKEN": token}
    found = _find_comment(place, mark, headers)
    where = f"{place}/{found}" if found else place
    _ask("PUT" if found else "POST", where, headers, {"body": text})


def _find_comment(place: str, mark: str, headers: dict[str, str]) -> int | None:
    """Return the id of the comment that begins with our mark."""
    for page in range(1, 101):
        found = _ask("GET", f"{place}?per_page=100&page={page}", headers)
        for one in found:
            if str(one.get("body", "")).startswith(mark):
                return int(one["id"])
        if len(found) < 100:
            return None
    return None


def _ask(method: str, url: str, headers: dict[str, str], content: Any = None) -> Any:
    body = None if content is None else json.dumps(content).encode()
    kind = {"Content-Type": "application/json", "User-Agent": "critpath"}
    request = urllib.request.Request(url, body, {**headers, **kind}, method=method)  # noqa: S310
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - the system's own
        return json.loads(answer.read() or b"null")


# The trend, and the end


def trend() -> None:
    """Keep the answer with those of the commits before, and draw them."""
    file = ANSWER / "answer.json"
    if not file.is_file():
        return
    TREND.mkdir(parents=True, exist_ok=True)
    about = json.loads((ANSWER / "about.json").read_text())
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    name = f"{now}-{about['base'][:10]}..{about['head'][:10]}.json"
    shutil.copyfile(file, TREND / name)
    program = shutil.which("critpath") or "critpath"
    page = TREND / "trend.html"
    subprocess.run([program, "trend", str(TREND), "--html", str(page), "--force"], check=False)


def verdict() -> None:
    """End as the answer does."""
    code = int((ANSWER / "code").read_text())
    if code == _UNDECIDED and os.environ.get("CRITPATH_UNDECIDED", "pass") == "pass":
        if _on_github():
            print("::warning::critpath: undecided")
        code = 0
    sys.exit(code)


# What systems have


def _on_github() -> bool:
    return "GITHUB_ACTIONS" in os.environ


def _event() -> dict[str, Any]:
    place = os.environ.get("GITHUB_EVENT_PATH")
    found: dict[str, Any] = json.loads(Path(place).read_text()) if place else {}
    return found


def _append(name: str, text: str) -> None:
    if place := os.environ.get(name):
        with Path(place).open("a") as file:
            file.write(text)


def _git(*arguments: str, check: bool = True) -> str:
    """Return what git prints, "" for nothing and where it fails."""
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    if done.returncode and check:
        lines = done.stderr.strip().splitlines()
        _give_up(
            f"git {arguments[0]}: {lines[-1] if lines else done.returncode}", "do what git says"
        )
    return "" if done.returncode else done.stdout


def _notice(text: str) -> None:
    print(f"::notice::critpath: {text}" if _on_github() else f"critpath: {text}")


def _give_up(what: str, do: str) -> NoReturn:
    print(f"::error::critpath: {what}" if _on_github() else f"critpath: {what}")
    print(f"  {do}")
    sys.exit(_CANNOT_RUN)


if __name__ == "__main__":
    main()
