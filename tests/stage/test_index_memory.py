"""Staging again by what is remembered of an index gives what staging afresh gives, or fails."""

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.stage.cache_files import read_sealed, write_sealed
from broker.stage.index_memory import MAX_BYTES
from broker.stage.snapshot import Staged, stage_checkout
from protocol.errors import Fault
from tests.stage.repositories import git, repository, write
from tests.stage.test_staging import contents

FILES = {
    "README": b"read me\n",
    "src/a.py": b"a = 1\n",
    "src/b.py": b"b = 2\n",
    "src/deep/c.py": b"c = 3\n",
    "lib/d.py": b"d = 4\n",
    "key.pem": b"-----BEGIN PUBLIC KEY-----\nabc\n-----END PUBLIC KEY-----\n",
    ".npmrc": b"save-exact=true\n",
}
FORM = b"airlock index 1"


def stage(checkout: Path, *, cache: Path | None = None) -> Staged:
    scratch = checkout.parent / "scratch"
    scratch.mkdir(exist_ok=True)
    return stage_checkout(checkout, scratch=scratch, cache=cache)


def aged(checkout: Path) -> Path:
    """The checkout with files older than its index, so that nothing is racy."""
    for path in checkout.rglob("*"):
        if path.is_file() and ".git" not in path.parts:
            os.utime(path, (1_700_000_000, 1_700_000_000))
    git(checkout, "update-index", "--refresh")
    return checkout


def memory_file(cache: Path) -> Path:
    (found,) = cache.glob("*.index")
    return found


def facts(staged: Staged) -> tuple[object, ...]:
    return (
        staged.tree.digest,
        staged.base_tree.digest,
        contents(staged),
        tuple(staged.base_tree.items()),
        staged.excluded,
        staged.tracked,
        staged.untracked,
        staged.converted,
        staged.pointers,
    )


def both(checkout: Path, cache: Path) -> None:
    """Staging with the cache, twice, is staging without it."""
    afresh = facts(stage(checkout))
    assert facts(stage(checkout, cache=cache)) == afresh
    assert facts(stage(checkout, cache=cache)) == afresh


EDITS = st.lists(
    st.tuples(
        st.sampled_from(["write", "touch", "delete", "run", "folder", "link", "add", "commit"]),
        st.sampled_from([*FILES, "new", "src/new", "SRC/a.py", "src/deep/.env"]),
    ),
    max_size=6,
)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(edits=EDITS)
def test_any_edits_between_two_stagings_are_seen(
    tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("m")
    checkout = aged(repository(folder / "c", FILES))
    both(checkout, folder / "cache")
    for edit, path in edits:
        _edit(checkout, edit, checkout / path)
        both(checkout, folder / "cache")


def _edit(checkout: Path, edit: str, path: Path) -> None:
    match edit:
        case "add":
            git(checkout, "add", "-A")
        case "commit":
            git(checkout, "commit", "-q", "--allow-empty", "-m", "edit")
        case "write" if not path.is_dir() and not path.is_symlink():
            if not path.parent.is_file():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(b"other\n")
        case "touch" if path.is_file():
            os.utime(path, (1_700_000_001, 1_700_000_001))
        case "delete" if path.is_file():
            path.unlink()
        case "run" if path.is_file() and not path.is_symlink():
            path.chmod(0o755)
        case "folder" if path.is_file():
            path.unlink()
            path.mkdir()
            (path / "inside").write_bytes(b"inside\n")
        case "link" if path.is_file():
            path.unlink()
            path.symlink_to("README")
        case _:
            pass


def test_a_clean_checkout_is_staged_again_from_memory_alone(tmp_path: Path) -> None:
    cache, checkout = tmp_path / "cache", aged(repository(tmp_path / "c", FILES))
    first = stage(checkout, cache=cache)
    for file in cache.glob("*.blobs"):
        file.unlink()
    assert facts(stage(checkout, cache=cache)) == facts(first)
    before = memory_file(cache).stat().st_mtime_ns
    stage(checkout, cache=cache)
    assert memory_file(cache).stat().st_mtime_ns == before


def test_a_change_that_the_stat_hides_is_seen_while_the_index_is_as_young(tmp_path: Path) -> None:
    cache, checkout = tmp_path / "cache", repository(tmp_path / "c", FILES)
    stage(checkout, cache=cache)
    index = (checkout / ".git/index").stat()
    # As if all of it had happened within one tick of the clock.
    for text in (b"a = 7\n", b"a = 8\n"):
        (checkout / "src/a.py").write_bytes(text)
        os.utime(checkout / "src/a.py", ns=(index.st_mtime_ns, index.st_mtime_ns))
        assert contents(stage(checkout, cache=cache))["src/a.py"] == text


def test_a_bad_memory_is_none(tmp_path: Path) -> None:
    cache, checkout = tmp_path / "cache", aged(repository(tmp_path / "c", FILES))
    wanted = facts(stage(checkout, cache=cache))
    good = memory_file(cache).read_bytes()
    for bad in (b"", b"junk", good[:-1], good[: len(good) // 2], good + b"\0"):
        memory_file(cache).write_bytes(bad)
        assert facts(stage(checkout, cache=cache)) == wanted


def test_a_sealed_memory_of_another_shape_is_none(tmp_path: Path) -> None:
    cache, checkout = tmp_path / "cache", aged(repository(tmp_path / "c", FILES))
    wanted = facts(stage(checkout, cache=cache))
    path = memory_file(cache)
    body = read_sealed(path, FORM, MAX_BYTES)
    assert body is not None
    for cut in (1, 20, 40, len(body) // 2, len(body) - 1):
        write_sealed(path, FORM, body[:cut], most=9)
        assert facts(stage(checkout, cache=cache)) == wanted
    key, hidden, folders = msgspec.msgpack.decode(body)
    for changed in (
        [folders[-1], *folders[:-1]],
        [[*folder[:2], folder[2][:-1], *folder[3:]] for folder in folders],
        [[*folder[:3], folder[3] + b"x", *folder[4:]] for folder in folders],
    ):
        write_sealed(path, FORM, msgspec.msgpack.encode([key, hidden, changed]), most=9)
        assert facts(stage(checkout, cache=cache)) == wanted


def test_a_memory_that_lies_about_content_is_a_fault_and_never_wrong_bytes(tmp_path: Path) -> None:
    cache, checkout = tmp_path / "cache", aged(repository(tmp_path / "c", FILES))
    stage(checkout, cache=cache)
    path = memory_file(cache)
    body = read_sealed(path, FORM, MAX_BYTES)
    assert body is not None
    key, hidden, folders = msgspec.msgpack.decode(body)
    (source,) = (folder for folder in folders if folder[0] == "src")
    source[3] = source[3][:25] + bytes([source[3][25] ^ 1]) + source[3][26:]
    write_sealed(path, FORM, msgspec.msgpack.encode([key, hidden, folders]), most=9)
    staged = stage(checkout, cache=cache)
    with pytest.raises(Fault):
        staged.tree.read("src/a.py")
    with pytest.raises(Fault):
        staged.tree.materialize(tmp_path / "out")


def test_the_memory_of_one_checkout_is_not_used_for_another(tmp_path: Path) -> None:
    cache, checkout = tmp_path / "cache", aged(repository(tmp_path / "c", FILES))
    stage(checkout, cache=cache)
    git(checkout, "worktree", "add", "-q", "--detach", str(tmp_path / "w"))
    write(tmp_path / "w", {"src/a.py": b"in the other\n"})
    both(tmp_path / "w", cache)
    both(checkout, cache)
    assert len(list(cache.glob("*.index"))) == 2


def test_another_commit_or_another_bound_is_no_memory(tmp_path: Path) -> None:
    cache, checkout = tmp_path / "cache", aged(repository(tmp_path / "c", FILES))
    stage(checkout, cache=cache)
    git(checkout, "commit", "-q", "--allow-empty", "-m", "same tree")
    both(checkout, cache)
    write(checkout, {"src/a.py": b"next\n"})
    git(checkout, "add", "-A")
    both(checkout, cache)
    git(checkout, "commit", "-q", "-m", "next")
    both(checkout, cache)
    git(checkout, "reset", "-q", "--soft", "HEAD~1")
    both(checkout, cache)
    git(checkout, "config", "core.fileMode", "false")
    (checkout / "README").chmod(0o755)
    both(checkout, cache)
