"""What interpreters are given to run: one name of their arguments, and never anything else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath_record.scripts import name_script, read_script

SECRET = "hunter2"  # noqa: S105 - no password


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("python3 a.py --password=hunter2", "a.py"),
        ("python3.11 -u -Im pkg.web --port 80", "-m pkg.web"),
        ("python3 -mhttp.server 80", "-m http.server"),
        ("python3 -W ignore -Xdev -OO /srv/a.py x", "a.py"),
        ("python3 -X dev /srv/a.py", "a.py"),
        ("python3 -c hunter2", ""),
        ("python3 -uc hunter2 a.py", ""),
        ("python3 - hunter2", ""),
        ("python3", ""),
        ("python3 --unknown hunter2", ""),
        ("sh -e /srv/run.sh hunter2", "run.sh"),
        ("bash -eo pipefail +x run.sh", "run.sh"),
        ("bash --norc --rcfile hunter2 run.sh", "run.sh"),
        ("bash -lc hunter2", ""),
        ("dash -s hunter2", ""),
        ("perl -w -I lib -Mstrict job.pl", "job.pl"),
        ("perl -le hunter2", ""),
        ("perl -de hunter2", ""),
        ("perl -0777 -ne hunter2", ""),
        ("perl -i.bak -p job.pl", "job.pl"),
        ("ruby -W0 -rjson app.rb", "app.rb"),
        ("ruby -W0e hunter2", ""),
        ("ruby -I lib -r json -S rake", "rake"),
        ("node --max-old-space-size=99 --require x.js server.js", "server.js"),
        ("node --unknown hunter2", ""),
        ("node -e hunter2", ""),
        ("java -Xmx1g -Dpassword=hunter2 -cp a.jar:b.jar com.acme.Main hunter2", "com.acme.Main"),
        ("java -jar lib/app.jar hunter2", "-jar app.jar"),
        ("java -p mods -m web/com.acme.Main", "-m com.acme.Main"),
        ("java --unknown hunter2", ""),
        ("php /srv/a.php", ""),
        ("mysql -phunter2", ""),
    ],
)
def test_scripts_modules_and_classes_are_named(line, name):
    program, *arguments = line.split()
    assert name_script(program, arguments) == name


ODD = ("a b.py", "print('x')", "a.py\n", "x" * 81, "\x1b[2J", "", "$(id)")


@pytest.mark.parametrize("odd", ODD)
def test_what_is_no_name_of_a_file_is_not_kept(odd):
    assert name_script("python3", [odd]) == ""


_OPTIONS = st.sampled_from(
    ["-u", "-e", "-c", "-le", "-x", "-W", "-m", "-jar", "--", "-", "+x", "a.py"]
)


@given(
    st.sampled_from(["python3", "perl", "ruby", "node", "java", "sh", "bash"]),
    st.lists(_OPTIONS | st.text(max_size=9), max_size=6),
)
def test_what_follows_the_script_and_code_is_never_kept(program, words):
    name = name_script(program, words)
    if name:
        assert name_script(program, [*words, SECRET]) == name
        assert name.rpartition(" ")[2] in "\0".join(words)


CODE = (
    *("python3 -c", "python3 -Ibc"),
    *("perl -e", "perl -E", "perl -lne", "perl -0777pe", "perl -we"),
    *("ruby -e", "ruby -lne", "ruby -0e"),
    *("node -e", "node -p", "node -pe", "node --eval"),
    *("sh -c",),
    *("bash -lc", "bash -xec"),
    *("zsh -ic",),
)


@given(
    st.sampled_from(CODE),
    st.text(max_size=9),
)
def test_code_is_never_kept(line, code):
    program, option = line.split()
    assert not name_script(program, [option, code, SECRET])


@pytest.fixture
def process(tmp_path):
    """Return a maker of a process in a /proc of its own."""

    def make(program, cmdline):
        (tmp_path / "7").mkdir()
        (tmp_path / "7/exe").symlink_to(program)
        (tmp_path / "7/cmdline").write_bytes(cmdline)
        return read_script(7, tmp_path)

    return make


@pytest.mark.parametrize(
    ("program", "cmdline", "name"),
    [
        ("/usr/bin/python3.11", b"python3\0/srv/a.py\0hunter2\0", "a.py"),
        ("/usr/bin/python3.11", b"sshd: hunter2\0\0\0", ""),  # a title of its own making
        ("/usr/bin/python3.11", b"", ""),
        ("/usr/bin/python3.11", b"python3\0cut", ""),
        ("/usr/bin/python3.11", b"python3\0\xff\xfe.py\0", ""),
        ("/usr/bin/python3.11", b"python3\0" + b"-u\0" * 100_000 + b"a.py\0", ""),
        ("/usr/bin/mysql", b"python3\0a.py\0", None),
    ],
    ids=["script", "title", "none", "cut off", "bytes", "long", "other program"],
)
def test_hostile_arguments(process, program, cmdline, name):
    assert process(program, cmdline) == name


def test_a_process_that_is_gone(tmp_path):
    assert read_script(7, tmp_path) is None
