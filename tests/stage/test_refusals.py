"""A checkout that cannot be staged whole is refused, by a closed code and with the figure."""

import os
import subprocess
import threading
from pathlib import Path

import pytest

from broker.stage.bounds import StageBounds
from broker.stage.openat import read_file
from broker.stage.snapshot import stage_checkout
from protocol.errors import Fault, Refusal
from tests.stage.repositories import git, repository, write


def refusal(
    checkout: Path, *, ref: str | None = None, bounds: StageBounds | None = None
) -> Refusal:
    scratch = checkout.parent / "scratch"
    scratch.mkdir(exist_ok=True)
    with pytest.raises(Refusal) as caught:
        stage_checkout(checkout, scratch=scratch, ref=ref, bounds=bounds or StageBounds())
    return caught.value


def test_only_the_top_level_of_a_checkout_is_staged(tmp_path: Path) -> None:
    checkout = repository(tmp_path / "c", {"sub/a": b"a"})
    (tmp_path / "plain").mkdir()
    assert refusal(checkout / "sub").code == "not_a_checkout"
    assert refusal(tmp_path / "plain").code == "not_a_checkout"
    assert refusal(checkout / ".git").code == "not_a_checkout"
    assert refusal(tmp_path / "absent").code == "not_a_directory"
    assert refusal(checkout / "sub/a").code == "not_a_directory"


def test_a_checkout_that_names_another_working_tree_is_refused(tmp_path: Path) -> None:
    checkout = repository(tmp_path / "c", {"a": b"a"})
    (tmp_path / "home").mkdir()
    git(checkout, "config", "core.worktree", str(tmp_path / "home"))
    assert refusal(checkout).code == "stage_unsupported"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_checkout_of_another_user_is_refused_also_to_root(tmp_path: Path) -> None:
    checkout = repository(tmp_path / "c", {"a": b"a"})
    for path in (checkout, checkout / ".git"):
        os.chown(path, 12345, 12345)
    assert refusal(checkout).code == "checkout_not_owned"


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"extensions.partialClone": "origin"}, "checkout_partial"),
        ({"extensions.unheardOf": "1"}, "stage_unsupported"),
        ({"core.repositoryFormatVersion": "7"}, "stage_unsupported"),
    ],
)
def test_an_extension_that_is_not_understood_is_refused(
    tmp_path: Path, settings: dict[str, str], code: str
) -> None:
    checkout = repository(tmp_path / "c", {"a": b"a"})
    git(checkout, "config", "core.repositoryFormatVersion", "1")
    for name, value in settings.items():
        git(checkout, "config", name, value)
    assert refusal(checkout).code == code


def test_a_partial_clone_is_staged_only_where_nothing_is_missing(tmp_path: Path) -> None:
    origin = repository(tmp_path / "origin", {"a": b"a"})
    write(origin, {"a": b"second"})
    git(origin, "commit", "-q", "-a", "-m", "second")
    git(origin, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--filter=blob:none", f"file://{origin}", "c")
    assert refusal(tmp_path / "c", ref="HEAD~1").code == "checkout_partial"
    staged = stage_checkout(tmp_path / "c", scratch=tmp_path / "scratch")
    assert staged.tree.read("a") == b"second"


def test_a_repository_of_another_object_format_is_refused(tmp_path: Path) -> None:
    checkout = repository(tmp_path / "c", {"a": b"a"}, options=("--object-format=sha256",))
    assert refusal(checkout).code == "stage_unsupported"


def test_a_head_that_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    checkout = repository(tmp_path / "c", {"a": b"a"})
    (checkout / ".git/HEAD").write_bytes(b"junk")
    (tmp_path / "scratch").mkdir()
    with pytest.raises(Fault) as caught:
        stage_checkout(checkout, scratch=tmp_path / "scratch")
    assert caught.value.code == "checkout_unreadable"


def test_a_full_disk_while_staging_is_a_fault_and_leaves_nothing(tmp_path: Path) -> None:
    checkout = repository(tmp_path / "c", {"a": b"a"})
    write(checkout, {"large": os.urandom(1024 * 1024)})
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(small)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        with pytest.raises(Fault) as caught:
            stage_checkout(checkout, scratch=small)
        assert caught.value.code == "store_unwritable"
        assert list(small.iterdir()) == []
        assert os.statvfs(small).f_bfree == os.statvfs(small).f_blocks
    finally:
        subprocess.run(["umount", small], check=True)


def test_a_split_index_is_refused(tmp_path: Path) -> None:
    checkout = repository(tmp_path / "c", {"a": b"a"})
    git(checkout, "update-index", "--split-index")
    assert refusal(checkout).code == "stage_unsupported"


def test_missing_objects_are_refused(tmp_path: Path) -> None:
    checkout = repository(tmp_path / "c", {"a": b"a", "b": b"b"})
    oid = git(checkout, "rev-parse", "HEAD:a").strip()
    (checkout / ".git/objects" / oid[:2] / oid[2:]).unlink()
    assert refusal(checkout, ref="HEAD").code == "checkout_partial"
    tree = git(checkout, "rev-parse", "HEAD^{tree}").strip()
    (checkout / ".git/objects" / tree[:2] / tree[2:]).unlink()
    assert refusal(checkout).code == "checkout_partial"


@pytest.mark.parametrize(
    ("bounds", "code", "figure"),
    [
        (StageBounds(files=2), "stage_too_many_files", 2),
        (StageBounds(file_bytes=9), "stage_file_too_large", 9),
        (StageBounds(total_bytes=11), "stage_too_large", 11),
        (StageBounds(path_bytes=8), "stage_path_too_long", 8),
        (StageBounds(depth=2), "stage_too_deep", 2),
    ],
)
@pytest.mark.parametrize("tracked", [True, False])
def test_a_checkout_over_a_bound_is_refused_with_the_figure(
    tmp_path: Path, bounds: StageBounds, code: str, figure: int, tracked: bool
) -> None:
    files = {"d/e/f": b"0123456789", "ééééé": b"1", "c": b"1"}
    checkout = repository(tmp_path / "c", files if tracked else {".gitignore": b""})
    (checkout / ".gitignore").unlink(missing_ok=True)
    git(checkout, "rm", "-q", "-r", "--cached", "--ignore-unmatch", ".gitignore")
    write(checkout, files)
    found = refusal(checkout, bounds=bounds)
    assert (found.code, found.figure) == (code, figure)
    git(checkout, "status")
    cache = tmp_path / "cache"
    stage_checkout(checkout, scratch=tmp_path / "scratch", cache=cache)
    with pytest.raises(Refusal) as caught:
        stage_checkout(checkout, scratch=tmp_path / "scratch", cache=cache, bounds=bounds)
    assert (caught.value.code, caught.value.figure) == (code, figure)
    if tracked:
        found = refusal(checkout, bounds=bounds, ref="HEAD")
        assert (found.code, found.figure) == (code, figure)


def test_a_checkout_at_its_bounds_is_staged(tmp_path: Path) -> None:
    checkout = repository(tmp_path / "c", {"d/e/f": b"0123456789", "ééééé": b"1", "c": b"1"})
    (tmp_path / "scratch").mkdir()
    bounds = StageBounds(files=3, file_bytes=10, total_bytes=12, path_bytes=10, depth=3)
    staged = stage_checkout(checkout, scratch=tmp_path / "scratch", bounds=bounds)
    assert staged.tree.files == 3


def test_excluded_files_do_not_count_against_the_bounds(tmp_path: Path) -> None:
    checkout = repository(tmp_path / "c", {"a": b"a", "s.tfstate": b"x" * 100})
    write(checkout, {".git/info/exclude": b"*.o\n", "x.o": b"x" * 100})
    (tmp_path / "scratch").mkdir()
    bounds = StageBounds(files=1, file_bytes=1, total_bytes=1)
    staged = stage_checkout(checkout, scratch=tmp_path / "scratch", bounds=bounds)
    assert staged.tree.paths == ("a",)


def test_a_tree_that_unfolds_without_end_is_refused_at_the_bound(tmp_path: Path) -> None:
    checkout = repository(tmp_path / "c", {})
    blob = git(checkout, "hash-object", "-w", "--stdin", data=b"x").strip()
    lines = "".join(f"100644 blob {blob}\tf{at}\n" for at in range(10))
    tree = git(checkout, "mktree", data=lines.encode()).strip()
    for _ in range(20):
        lines = "".join(f"040000 tree {tree}\td{at}\n" for at in range(10))
        tree = git(checkout, "mktree", data=lines.encode()).strip()
    commit = git(checkout, "commit-tree", "-m", "bomb", tree).strip()
    assert refusal(checkout, ref=commit).code == "stage_too_many_files"
    git(checkout, "update-ref", "HEAD", commit)
    assert refusal(checkout).code == "stage_too_many_files"


def test_names_that_git_itself_would_not_write_are_not_staged(tmp_path: Path) -> None:
    checkout = repository(tmp_path / "c", {"a": b"a"})
    blob = git(checkout, "rev-parse", "HEAD:a").strip()
    raw = b"".join(
        b"100644 " + name + b"\0" + bytes.fromhex(blob) for name in (b"..", b".git", b"ok", b"x/y")
    )
    tree = git(
        checkout, "hash-object", "-t", "tree", "-w", "--literally", "--stdin", data=raw
    ).strip()
    commit = git(checkout, "commit-tree", "-m", "evil", tree).strip()
    (tmp_path / "scratch").mkdir()
    staged = stage_checkout(checkout, scratch=tmp_path / "scratch", ref=commit)
    assert set(staged.tree.paths) <= {"ok", "x/y"}
    assert {item.path: item.reason for item in staged.excluded} == {
        "..": "name_unsafe", ".git": "git_metadata"
    }  # fmt: skip


def test_a_file_that_keeps_changing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 16_000_000)
    stop = threading.Event()

    def change() -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            with open(path, "r+b") as file:
                file.write(b"%08d" % turn)

    changer = threading.Thread(target=change)
    changer.start()
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        codes = set()
        for _ in range(50):
            try:
                read_file(folder, "file", StageBounds())
            except Refusal as caught:
                codes.add(caught.code)
        assert codes <= {"checkout_changed"}
        assert codes, "no read met a change"
    finally:
        stop.set()
        changer.join()
        os.close(folder)


def test_a_file_swapped_for_something_else_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "folder").mkdir()
    folder = os.open(tmp_path, os.O_RDONLY)
    for name in ("fifo", "link", "folder", "absent"):
        with pytest.raises(Refusal) as caught:
            read_file(folder, name, StageBounds())
        assert caught.value.code == "checkout_changed"
    os.close(folder)
