"""Faults that other tools had in staging a checkout, each tried on ours.

Each test is named for what went wrong elsewhere, or for the rule that prevents it.
"""

import os
import stat
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

from broker.stage.bounds import StageBounds
from broker.stage.diff import make_patch
from broker.stage.landing import land
from broker.stage.snapshot import Staged, stage_checkout
from broker.stage.tree import MODE_FILE, Entry, StagedTree
from protocol.errors import Fault, Refusal
from protocol.ids import RepoPath
from tests.stage.patches import patched
from tests.stage.repositories import git, repository, write


def stage(checkout: Path, *, ref: str | None = None) -> Staged:
    scratch = checkout.parent / "scratch"
    scratch.mkdir(exist_ok=True)
    return stage_checkout(checkout, scratch=scratch, ref=ref)


def refused(checkout: Path) -> str:
    with pytest.raises(Refusal) as caught:
        stage(checkout)
    return caught.value.code


def reasons(staged: Staged) -> dict[str, str]:
    return {item.path: item.reason for item in staged.excluded}


def contents(tree: StagedTree) -> dict[str, bytes]:
    return {path: tree.read(path) for path in tree.paths}


def put(tree: StagedTree, path: str, data: bytes, mode: int = MODE_FILE) -> StagedTree:
    return tree.replace({RepoPath(path): Entry(mode, tree.store.put(data))})


def test_a_folder_in_an_unrelated_repository_is_not_taken_for_it(tmp_path: Path) -> None:
    outer = repository(tmp_path / "outer", {".gitignore": b"ignored/\n", "o": b"o"})
    for name in ("ignored", "untracked"):
        write(outer, {f"{name}/x": b"x"})
        assert refused(outer / name) == "not_a_checkout"
    inner = repository(outer / "untracked/inner", {"i": b"i"})
    assert contents(stage(inner).tree) == {"i": b"i"}
    # A broken repository does not fall back on the one around it either.
    (inner / ".git/HEAD").unlink()
    with pytest.raises((Refusal, Fault)):
        stage(inner)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a device")
def test_placeholders_and_devices_of_another_sandbox_are_no_obstacle(tmp_path: Path) -> None:
    checkout = repository(tmp_path / "c", {"a": b"a", "sub/b": b"b"})
    write(checkout, {".gitconfig": b"", ".mcp.json": b"", "empty": b""})
    try:
        os.mknod(checkout / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        os.mknod(checkout / "sub/full", stat.S_IFCHR | 0o666, os.makedev(1, 7))
        os.mknod(checkout / "disk", stat.S_IFBLK | 0o600, os.makedev(7, 99))
    except OSError:
        pytest.skip("no device can be made here")
    (checkout / "to-device").symlink_to("/dev/zero")
    staged = stage(checkout)
    assert contents(staged.tree) == {
        "a": b"a", "sub/b": b"b", ".gitconfig": b"", ".mcp.json": b"", "empty": b"",
    }  # fmt: skip
    assert reasons(staged) == {
        "null": "special_file", "sub/full": "special_file", "disk": "special_file",
        "to-device": "symlink",
    }  # fmt: skip


def test_a_file_that_is_linked_to_one_outside_is_never_written_through(tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_bytes(b"outside\n")
    checkout = repository(tmp_path / "c", {"a": b"a\n"})
    os.link(outside, checkout / "linked.txt")
    staged = stage(checkout)
    patch = b"--- a/linked.txt\n+++ b/linked.txt\n@@ -1 +1 @@\n-outside\n+changed\n"
    after = patched(staged.tree, patch)

    copied = tmp_path / "copy"
    copied.mkdir()
    staged.tree.materialize(copied)
    assert (copied / "linked.txt").stat().st_nlink == 1
    (copied / "linked.txt").write_bytes(b"the recipe was here\n")
    land(checkout, staged.tree, after)

    assert outside.read_bytes() == b"outside\n"
    assert (checkout / "linked.txt").read_bytes() == b"changed\n"


def test_a_patch_beside_submodules_holds_no_trace_of_them(tmp_path: Path) -> None:
    inner = repository(tmp_path / "inner", {"i": b"i"})
    other = repository(tmp_path / "other", {"x": b"x"})
    git(other, "submodule", "add", "-q", str(inner), "deeper")
    git(other, "commit", "-q", "-m", "deeper")
    checkout = repository(tmp_path / "c", {"a": b"a\n"})
    for name in ("nested", "absent", "dirty"):
        git(checkout, "submodule", "add", "-q", str(other), name)
    git(checkout, "commit", "-q", "-m", "modules")
    git(checkout, "submodule", "update", "-q", "--init", "--recursive", "nested")
    git(checkout, "submodule", "deinit", "-q", "-f", "absent")
    write(checkout, {"dirty/x": b"changed", "dirty/new": b"new"})
    links = git(checkout, "ls-files", "-s", "nested", "absent", "dirty")
    staged = stage(checkout)
    assert reasons(staged) == dict.fromkeys(("nested", "absent", "dirty"), "submodule")

    patch = make_patch(staged.base_tree, put(staged.tree, "a", b"b\n"))

    assert patch.count(b"diff --git") == 1
    git(checkout, "apply", "--index", "-", data=patch)
    assert git(checkout, "ls-files", "-s", "nested", "absent", "dirty") == links
    assert git(checkout, "diff", "--cached", "--name-only").split() == ["a"]


def test_links_of_every_kind_do_not_change_the_digest(tmp_path: Path) -> None:
    plain = stage(repository(tmp_path / "plain/c", {"a": b"a", "d/b": b"b"}))
    checkout = repository(tmp_path / "linked/c", {"a": b"a", "d/b": b"b"})
    for name, target in {"dir": "d", "none": "nowhere", "loop": "loop", "abs": "/etc"}.items():
        (checkout / name).symlink_to(target)
    git(checkout, "add", "-A")
    git(checkout, "commit", "-q", "-m", "links")
    for ref in (None, "HEAD"):
        staged = stage(checkout, ref=ref)
        assert staged.tree.digest == staged.base_tree.digest == plain.tree.digest
        assert set(reasons(staged).values()) == {"symlink"}


LARGE = b"large content"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:%b\nsize %d\n" % (
    sha256(LARGE).hexdigest().encode(), len(LARGE),
)  # fmt: skip


@pytest.mark.parametrize("content", [POINTER, LARGE])
def test_a_large_file_is_in_no_patch_that_does_not_name_it(tmp_path: Path, content: bytes) -> None:
    """Its pointer is what is staged, whether its content is checked out or not."""
    checkout = repository(tmp_path / "c", {"big.bin": POINTER, "a": b"a\n"})
    write(checkout, {"big.bin": content})
    staged = stage(checkout)
    after = put(staged.tree, "a", b"b\n")
    other = put(staged.tree, "big.bin", b"new\n")

    assert staged.pointers == ("big.bin",)
    assert staged.tree.read("big.bin") == POINTER
    assert make_patch(staged.base_tree, staged.tree) == b""
    assert make_patch(staged.base_tree, after).count(b"diff --git") == 1
    land(checkout, staged.tree, after)
    assert (checkout / "big.bin").read_bytes() == content
    if content == LARGE:
        # A patch of the pointer is not for a checkout that has the content.
        with pytest.raises(Refusal) as caught:
            land(checkout, staged.tree, other)
        assert caught.value.code == "checkout_changed"
        assert (checkout / "big.bin").read_bytes() == LARGE


@pytest.mark.parametrize(
    "setting", ["core.autocrlf=true", "core.autocrlf=input", "core.eol=crlf", "core.safecrlf=true"]
)
@pytest.mark.parametrize("attributes", [b"", b"* text=auto\n", b"*.txt text eol=crlf\n"])
def test_line_ends_of_a_host_change_neither_digest_nor_patch(
    tmp_path: Path, setting: str, attributes: bytes
) -> None:
    origin = repository(
        tmp_path / "origin", {"a.txt": b"one\ntwo\nthree\n", "b.txt": b"b\n", "c": b"c\r\nd\n"}
    )
    write(origin, {".gitattributes": attributes})
    git(origin, "add", "-A")
    git(origin, "commit", "-q", "--allow-empty", "-m", "attributes")
    # The same repository as two hosts check it out.
    git(tmp_path, "clone", "-q", "-c", setting, str(origin), "host")
    git(tmp_path, "clone", "-q", "-c", "core.autocrlf=false", str(origin), "other")
    staged, other = stage(tmp_path / "host"), stage(tmp_path / "other")
    change = b"--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"

    assert staged.tree.digest == staged.base_tree.digest == other.base_tree.digest
    assert make_patch(staged.base_tree, staged.tree) == b""
    after = patched(staged.tree, change)
    patch = make_patch(staged.tree, after)
    assert patch == make_patch(other.base_tree, patched(other.base_tree, change))
    assert patch.count(b"diff --git") == 1
    assert b"\r" not in patch
    # A file whose line ends git made is not the staged one: it is refused, never mixed.
    file = tmp_path / "host/a.txt"
    seen = file.read_bytes()
    if b"\r" in seen:
        with pytest.raises(Refusal) as caught:
            land(tmp_path / "host", staged.tree, after)
        assert caught.value.code == "checkout_changed"
        assert file.read_bytes() == seen
    else:
        land(tmp_path / "host", staged.tree, after)
        assert file.read_bytes() == b"one\n2\nthree\n"


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("worktreeConfig", "true", None),
        ("preciousObjects", "true", None),
        ("noop", "true", None),
        ("relativeWorktrees", "true", None),
        ("refStorage", "reftable", "stage_unsupported"),
        ("partialClone", "origin", "checkout_partial"),
        ("compatObjectFormat", "sha256", "stage_unsupported"),
    ],
)
def test_each_extension_is_staged_or_refused_before_anything_starts(
    tmp_path: Path, name: str, value: str, code: str | None
) -> None:
    checkout = repository(tmp_path / "c", {"a": b"a"})
    git(checkout, "config", "core.repositoryFormatVersion", "1")
    git(checkout, "config", f"extensions.{name}", value)
    if code is not None:
        assert refused(checkout) == code
    else:
        assert contents(stage(checkout).tree) == {"a": b"a"}


@pytest.mark.parametrize("tracked", [False, True])
def test_a_very_deep_or_long_path_is_refused_by_its_bound(tmp_path: Path, tracked: bool) -> None:
    checkout = repository(tmp_path / "c", {"a": b"a"})
    bounds = StageBounds()
    for parts, code in ((["d"] * 300, "stage_too_deep"), (["n" * 200] * 20, "stage_path_too_long")):
        path = "/".join(parts) + "/file"
        assert len(path) > bounds.path_bytes or len(parts) > bounds.depth
        if tracked:
            blob = git(checkout, "rev-parse", "HEAD:a").strip()
            git(checkout, "update-index", "--add", "--cacheinfo", f"100644,{blob},{path}")
        else:
            place = os.open(checkout, os.O_RDONLY)
            for part in parts:
                os.mkdir(part, dir_fd=place)
                deeper = os.open(part, os.O_RDONLY, dir_fd=place)
                os.close(place)
                place = deeper
            os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=place))
            os.close(place)
        assert refused(checkout) == code
        if tracked:
            git(checkout, "update-index", "--force-remove", path)
        else:
            subprocess.run(["rm", "-rf", str(checkout / parts[0])], check=True)
    assert contents(stage(checkout).tree) == {"a": b"a"}


def test_a_hard_link_to_a_secret_is_judged_by_its_content(tmp_path: Path) -> None:
    """What has no shape of a credential cannot be known under another name."""
    checkout = repository(tmp_path / "c", {"a": b"a"})
    key = b"-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIB\n"
    write(checkout, {"id_rsa": key, ".env": b"COLOR=red\n"})
    os.link(checkout / "id_rsa", checkout / "notes.txt")
    os.link(checkout / ".env", checkout / "plain.txt")
    (checkout / "innocent").symlink_to(".env")
    staged = stage(checkout)

    assert contents(staged.tree) == {"a": b"a", "plain.txt": b"COLOR=red\n"}
    assert reasons(staged) == {
        "id_rsa": "private_key", "notes.txt": "private_key", ".env": "environment_file",
        "innocent": "symlink",
    }  # fmt: skip


def test_a_diff_that_cannot_be_made_is_a_fault_and_never_no_change(tmp_path: Path) -> None:
    checkout = repository(tmp_path / "c", {"a": b"a\n", "b": b"b\n"})
    staged = stage(checkout)
    after = staged.tree.replace({RepoPath("a"): None})
    oid = git(checkout, "rev-parse", "HEAD:a").strip()
    (checkout / ".git/objects" / oid[:2] / oid[2:]).unlink()

    with pytest.raises(Fault):
        make_patch(staged.tree, after)
    with pytest.raises(Fault):
        make_patch(after, staged.tree)
    assert make_patch(staged.tree, staged.tree) == b""


def test_a_git_folder_under_another_name_in_the_checkout_is_refused(tmp_path: Path) -> None:
    """Its tokens would be read, and a patch of its hooks would run on the host."""
    checkout, beside = tmp_path / "c", tmp_path / "beside"
    for folder, store in ((checkout, checkout / "store"), (beside, tmp_path / "store")):
        folder.mkdir()
        git(folder, "init", "-q", "-b", "main", f"--separate-git-dir={store}")
        write(folder, {"a": b"a\n"})
        git(folder, "add", "a")
        git(folder, "commit", "-q", "-m", "base")

    assert refused(checkout) == "stage_unsupported"
    (checkout / ".git").unlink()
    (checkout / ".git").symlink_to("store")
    assert refused(checkout) == "stage_unsupported"
    assert contents(stage(beside).tree) == {"a": b"a\n"}
