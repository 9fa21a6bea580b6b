"""Names in headers: one pass, git's own spelling or none."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.stage.patch_paths import (
    Name,
    bare_name,
    header_agrees,
    quote_name,
    side_name,
    twin_name,
)
from tests.stage.repositories import ENVIRONMENT, git

NAMES = st.binary(min_size=1, max_size=12).map(
    lambda raw: raw.replace(b"\0", b"\\t").replace(b"/", b"\n")
)


@settings(max_examples=300, deadline=None)
@given(name=NAMES)
def test_quoting_is_undone_exactly(name: bytes) -> None:
    quoted = quote_name(b"b/" + name)
    read = side_name(quoted, b"b/")

    assert read is not None
    assert read.path.encode(errors="surrogateescape") == name


def test_stock_git_quotes_every_byte_as_we_do(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    names = [bytes((65, value)) for value in range(1, 256) if value != 0x2F]
    for name in names:
        Path(tmp_path, name.decode(errors="surrogateescape")).touch()
    listed = subprocess.run(
        ["git", "ls-files", "-o"], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, check=True
    ).stdout

    assert sorted(listed.splitlines()) == sorted(quote_name(name) for name in names)


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        pytest.param(b"b/x", Name("x", True), id="plain"),
        pytest.param(b"b/x y\t", Name("x y", True), id="git's tab after a space"),
        pytest.param(b'"b/\\303\\244 y"\t', Name("ä y", True), id="git's tab after quotes"),
        pytest.param(b'"b/\\303\\244"', Name("ä", True), id="quoted as git does"),
        pytest.param('b/ä'.encode(), Name("ä", True), id="not quoted"),
        pytest.param('"b/ä\\"x"'.encode(), Name('ä"x', True), id="quotePath off"),
        pytest.param(b"b/dev/null", Name("dev/null", True), id="not the absent side"),
        pytest.param(b"b/a\\tb", Name("a\\tb", False), id="backslash and t is no tab"),
        pytest.param(b'"b/x"', Name("x", False), id="needless quotes"),
        pytest.param(b'"b/\\170\\303\\244"', Name("xä", False), id="needless escape"),
        pytest.param(b'"b/\\56\\56/\\303\\244"', Name('"b/\\56\\56/\\303\\244"', False),
                     id="short octal"),
        pytest.param(b'"b/\\056\\056/\\303\\244"', Name("../ä", False), id="hidden dots"),
        pytest.param(b"b/x\t2026-01-01", Name("x\t2026-01-01", False), id="time stamp"),
        pytest.param(b"b/x\t../../y", Name("x\t../../y", False), id="tab trick"),
        pytest.param(b"b/x\r", Name("x\r", False), id="CR"),
        pytest.param(b"x", Name("x", False), id="no prefix"),
        pytest.param(b"a/x", Name("a/x", False), id="the other prefix"),
        pytest.param(b"/etc/cron.d/x", Name("/etc/cron.d/x", False), id="absolute"),
        pytest.param(b'b/x"y', Name('x"y', False), id="quote that git would quote"),
        pytest.param(b'"b/\\377"', Name("\udcff", False), id="not UTF-8"),
        pytest.param(b'"b/x', Name('"b/x', False), id="not closed"),
    ],
)  # fmt: skip
def test_a_name_is_taken_as_written_or_is_not_plain(field: bytes, expected: Name) -> None:
    assert side_name(field, b"b/") == expected


def test_the_absent_side_has_no_name() -> None:
    assert side_name(b"/dev/null", b"a/") is None
    assert bare_name(b"/dev/null").path == "/dev/null"


@settings(max_examples=200, deadline=None)
@given(
    old=st.text(st.sampled_from('ab/ \tä"'), min_size=1, max_size=6),
    new=st.text(st.sampled_from('ab/ \tä"'), min_size=1, max_size=6),
)
def test_both_names_of_a_git_header_must_be_those_of_the_section(old: str, new: str) -> None:
    field = b"%b %b" % (quote_name(f"a/{old}".encode()), quote_name(f"b/{new}".encode()))

    assert header_agrees(field, old, new)
    assert (twin_name(field) == Name(old, True)) == (old == new)
    assert not header_agrees(field, old + "x", new)
