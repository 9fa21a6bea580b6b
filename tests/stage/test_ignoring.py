"""Git's ignore rules: stock git is the judge, over generated patterns and paths."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.stage.ignoring import IgnoreRules
from tests.stage.repositories import git

PARTS = ["a", "b", "ab", "a.c", "foo", "-", "x y", "é", "[", "A"]
ATOMS = [
    "a",
    "b",
    "*",
    "**",
    "?",
    "/",
    "[ab]",
    "[!a]",
    "[^b]",
    "[a-c]",
    "[",
    "]",
    "\\",
    "\\*",
    "!",
    "#",
    " ",
    "\\ ",
    ".c",
    "foo",
    "[[:alpha:]]",
    "[[:digit:]-]",
    "[]a]",
    "[a-]",
    "[\\]]",
    "é",
    "**/",
    "/**",
    "[[:x:]]",
    "[b-",
    "-",
    "A",
]


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("judge")
    git(folder, "init", "-q")
    return folder


def ignored_by_git(folder: Path, rules: bytes, paths: list[str]) -> set[str]:
    (folder / ".gitignore").write_bytes(rules)
    fed = b"".join(path.encode() + b"\0" for path in paths)
    found = subprocess.run(
        ["git", "check-ignore", "--no-index", "-z", "-v", "-n", "--stdin"],
        cwd=folder,
        input=fed,
        capture_output=True,
        check=False,
        env=git.environment,
    )
    assert found.returncode in (0, 1), found.stderr
    fields = found.stdout.split(b"\0")[:-1]
    return {
        fields[at + 3].decode()
        for at in range(0, len(fields), 4)
        if fields[at + 2] and not fields[at + 2].startswith(b"!")
    }


def ignored_by_us(rules: bytes, path: str) -> bool:
    """As the walk asks: each folder on the way, then the file."""
    parsed = IgnoreRules.parse(rules)
    parts = path.split("/")
    for depth in range(1, len(parts) + 1):
        is_folder = depth < len(parts)
        if parsed.verdict("/".join(parts[:depth]).encode(), is_folder=is_folder):
            return True
    return False


PATTERN = st.lists(st.sampled_from(ATOMS), min_size=1, max_size=5).map("".join)
PATH = st.lists(st.sampled_from(PARTS), min_size=1, max_size=4).map("/".join)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    patterns=st.lists(PATTERN, min_size=1, max_size=4),
    paths=st.lists(PATH, min_size=4, max_size=12, unique=True),
)
def test_the_rules_agree_with_stock_git(judge: Path, patterns: list[str], paths: list[str]) -> None:
    rules = "\n".join(patterns).encode()
    expected = ignored_by_git(judge, rules, paths)
    assert {path for path in paths if ignored_by_us(rules, path)} == expected


@pytest.mark.parametrize(
    "rules",
    [
        b"\xef\xbb\xbfa\r\nb\r\n",
        b"a  \n",
        b"a\\ \n",
        b"#a\n\\#b\n",
        b"/a\n",
        b"a/\n",
        b"a/b\n",
        b"**/b\n",
        b"a/**\n",
        b"a/**/b\n",
        b"*\n!foo\n",
        b"foo**/b\n",
        b"a\\",
        b"/\n",
        b"!\n",
        b"\r\n",
        b"a/*\n!a/b\n",
        b"a**b\n",
        b"[[:alpha:]\n",
        b"a//\n",
    ],
)
def test_the_known_oddities_agree_with_stock_git(judge: Path, rules: bytes) -> None:
    paths = [
        "a",
        "b",
        "a/b",
        "a/x/b",
        "ab",
        "a ",
        "#b",
        "foo",
        "foo/b",
        "foox/y/b",
        "x/foo",
        "a/b/c",
    ]
    assert {path for path in paths if ignored_by_us(rules, path)} == ignored_by_git(
        judge, rules, paths
    )


def test_many_stars_cost_no_more_than_their_length() -> None:
    rules = IgnoreRules.parse(b"a*" * 200 + b"b\n")
    assert rules.verdict(b"a" * 1000, is_folder=False) is None
