"""Staging a checkout: what is in the tree, what is not and why; stock git judges."""

import dataclasses
import os
import socket
import stat
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.stage.content_cache import ContentCache, Known
from broker.stage.snapshot import StageBounds, Staged, stage_checkout
from broker.stage.tree import MODE_EXECUTABLE, MODE_FILE
from protocol.errors import Fault, Refusal
from tests.stage.repositories import git, judged_digest, repository, write

FILES = {"README.md": b"one\n", "src/a.py": b"a = 1\n", "src/deep/b.py": b"b = 2\n", "empty": b""}


def stage(
    checkout: Path,
    *,
    ref: str | None = None,
    cache: Path | None = None,
    bounds: StageBounds | None = None,
) -> Staged:
    """Staged without a cache, with a new one, and with what that one then knows."""
    scratch = checkout.parent / "scratch"
    scratch.mkdir(exist_ok=True)
    bounds = bounds or StageBounds()
    plain = stage_checkout(checkout, scratch=scratch, ref=ref, bounds=bounds)
    folder = cache or checkout.parent / f"cache-of-{checkout.name}"
    for _ in range(2):
        again = stage_checkout(checkout, scratch=scratch, ref=ref, bounds=bounds, cache=folder)
        for field in dataclasses.fields(Staged):
            assert getattr(again, field.name) == getattr(plain, field.name), field.name
        assert list(again.tree.paths) == list(plain.tree.paths)
        again.tree.store.close()
    return plain


def contents(staged: Staged) -> dict[str, bytes]:
    return {path: staged.tree.read(path) for path in staged.tree.paths}


def reasons(staged: Staged) -> dict[str, str]:
    return {item.path: item.reason for item in staged.excluded}


def every_fact(folder: Path) -> list[tuple[object, ...]]:
    facts: list[tuple[object, ...]] = []
    for place, _, files in os.walk(folder):
        for path in (place, *(os.path.join(place, name) for name in files)):
            found = os.lstat(path)
            regular = stat.S_ISREG(found.st_mode)
            data = Path(path).read_bytes() if regular else b""
            facts.append(
                (path, data, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_mode)
            )
    return sorted(facts, key=lambda fact: str(fact[0]))


def test_a_clean_checkout_is_its_commit(tmp_path: Path) -> None:
    checkout = repository(tmp_path / "c", FILES)
    staged = stage(checkout)
    assert contents(staged) == FILES
    assert staged.excluded == ()
    assert staged.base_tree == staged.tree
    assert staged.base_commit == git(checkout, "rev-parse", "HEAD").strip()
    assert (staged.tracked, staged.untracked) == (len(FILES), 0)
    judged = judged_digest(
        {path: (MODE_FILE, data) for path, data in FILES.items()}, tmp_path / "j"
    )
    assert staged.tree.digest == judged


def test_nothing_in_the_checkout_changes_not_even_the_index(tmp_path: Path) -> None:
    checkout = repository(tmp_path / "c", {**FILES, ".gitignore": b"*.o\n", "x.o": b"tracked"})
    # Touched and not refreshed: a reader that refreshes the index would write it now.
    os.utime(checkout / "README.md", ns=(1, 1))
    write(checkout, {"src/a.py": b"changed\n", "new": b"n", "y.o": b"ignored"})
    before = every_fact(checkout)
    stage(checkout, cache=tmp_path / "cache")
    stage(checkout, cache=tmp_path / "cache")
    stage(checkout, ref="HEAD")
    assert every_fact(checkout) == before


def test_local_changes_are_staged_and_the_base_is_the_commit(tmp_path: Path) -> None:
    checkout = repository(tmp_path / "c", FILES)
    write(checkout, {"src/a.py": b"changed\n", "new/file": b"new", "added": b"added"})
    git(checkout, "add", "added")
    (checkout / "empty").unlink()
    (checkout / "src/deep/b.py").chmod(0o755)
    staged = stage(checkout)
    assert contents(staged) == {
        "README.md": b"one\n",
        "src/a.py": b"changed\n",
        "src/deep/b.py": b"b = 2\n",
        "new/file": b"new",
        "added": b"added",
    }
    assert reasons(staged) == {"empty": "deleted_in_checkout"}
    assert (staged.tracked, staged.untracked) == (4, 1)
    assert {path: staged.base_tree.read(path) for path in staged.base_tree.paths} == FILES
    assert staged.tree.get("src/deep/b.py").mode == MODE_EXECUTABLE  # type: ignore[union-attr]
    assert staged.base_tree.get("src/deep/b.py").mode == MODE_FILE  # type: ignore[union-attr]
    assert stage(checkout, ref="HEAD").tree == staged.base_tree


def test_a_change_within_the_same_tick_as_the_index_is_seen(tmp_path: Path) -> None:
    checkout = repository(tmp_path / "c", {"a": b"one"})
    for text in (b"two", b"six"):
        found = (checkout / "a").stat()
        git(checkout, "add", "a")
        (checkout / "a").write_bytes(text)
        os.utime(checkout / "a", ns=(found.st_atime_ns, found.st_mtime_ns))
        assert contents(stage(checkout))["a"] == text


def test_the_digest_does_not_depend_on_stat_or_cache(tmp_path: Path) -> None:
    checkout = repository(tmp_path / "c", FILES)
    first = stage(checkout, cache=tmp_path / "cache")
    os.utime(checkout / "README.md", ns=(1, 1))
    second = stage(checkout, cache=tmp_path / "cache")
    git(checkout, "status")
    third = stage(checkout, cache=tmp_path / "cache")
    for path in (tmp_path / "cache").iterdir():
        path.write_bytes(b"junk" * 100)
    fourth = stage(checkout, cache=tmp_path / "cache")
    assert first.tree == second.tree == third.tree == fourth.tree
    assert contents(third) == FILES


def test_what_one_repository_taught_the_cache_is_not_used_for_another(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    one = stage(repository(tmp_path / "one", FILES), cache=cache)
    poisoned = list(cache.iterdir())
    other = stage(repository(tmp_path / "other", FILES), cache=cache)
    assert len(list(cache.iterdir())) == 2 * len(poisoned)
    assert one.tree == other.tree
    for file in poisoned:
        file.chmod(0o666)
    assert stage(tmp_path / "one", cache=cache).tree == one.tree


def test_a_wrong_digest_in_the_cache_is_a_fault_and_never_wrong_bytes(tmp_path: Path) -> None:
    checkout = repository(tmp_path / "c", {"a": b"content"})
    git(checkout, "status")
    (tmp_path / "scratch").mkdir()
    cache = ContentCache.load(tmp_path / "cache", checkout / ".git/objects")
    oid = bytes.fromhex(git(checkout, "rev-parse", "HEAD:a").strip())
    cache.add(oid, Known(b"\1" * 32, len(b"content"), 0))
    cache.save()
    staged = stage_checkout(checkout, scratch=tmp_path / "scratch", cache=tmp_path / "cache")
    with pytest.raises(Fault):
        staged.tree.read("a")
    with pytest.raises(Fault):
        staged.tree.materialize(tmp_path / "out")


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_what_is_staged_is_what_git_would_add(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    place = tmp_path_factory.mktemp("r")
    names = st.lists(st.sampled_from(["a", "b", "c.x", "d y", "é"]), min_size=1, max_size=3).map(
        "/".join
    )
    files = data.draw(st.dictionaries(names, st.binary(max_size=20), min_size=1, max_size=8))
    folders = {path[:at] for path in files for at in range(len(path)) if path[at] == "/"}
    files = {path: text for path, text in files.items() if path not in folders}
    checkout = repository(place / "c", files)
    for path in data.draw(st.lists(st.sampled_from(sorted(files)), unique=True)):
        (checkout / path).unlink()
    later = data.draw(st.dictionaries(st.sampled_from(sorted(files)), st.binary(max_size=20)))
    write(checkout, later)
    write(
        checkout,
        data.draw(
            st.dictionaries(
                st.sampled_from(["n", "b.x", "new/c.x", "new/é"]), st.binary(max_size=9)
            )
        ),
    )
    rules = data.draw(st.sampled_from([b"", b"*.x\n", b"new/\n", b"*\n!n\n", b"b*\n"]))
    write(checkout, {".gitignore": rules})
    staged = stage(checkout)
    listed = git(checkout, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split(
        "\0"
    )
    expected = {
        path: (checkout / path).read_bytes()
        for path in listed
        if path and (checkout / path).exists()
    }
    assert contents(staged) == expected
    modes = {path: (MODE_FILE, text) for path, text in expected.items()}
    assert staged.tree.digest == judged_digest(modes, place / "judge")
    assert {path: staged.base_tree.read(path) for path in staged.base_tree.paths} == files


def test_tracked_files_are_staged_whatever_the_ignore_rules_say(tmp_path: Path) -> None:
    files = {"logs/a.log": b"a", "dist/x": b"x", "b.o": b"b", "build/y": b"y"}
    checkout = repository(tmp_path / "c", files)
    write(
        checkout, {".gitignore": b"logs/\n/b.o\n", "logs/new": b"n", "dist/new": b"n", "c.o": b"c"}
    )
    write(checkout, {".git/info/exclude": b"*.o\n"})
    staged = stage(checkout)
    assert contents(staged) == {**files, ".gitignore": b"logs/\n/b.o\n"}
    assert reasons(staged) == {"logs/new": "ignored", "dist/new": "build_output", "c.o": "ignored"}


def test_the_ignore_file_that_the_configuration_names_is_honoured(tmp_path: Path) -> None:
    checkout = repository(tmp_path / "c", {"a": b"a"})
    write(tmp_path, {"rules": b"*.local\n"})
    write(checkout, {"x.local": b"x", "y": b"y"})
    (tmp_path / "link").symlink_to("rules")
    git(checkout, "config", "core.excludesFile", str(tmp_path / "link"))
    assert contents(stage(checkout)) == {"a": b"a", "y": b"y"}
    os.mkfifo(tmp_path / "fifo")
    git(checkout, "config", "core.excludesFile", str(tmp_path / "fifo"))
    assert contents(stage(checkout)) == {"a": b"a", "y": b"y", "x.local": b"x"}


def test_secrets_are_in_neither_tree(tmp_path: Path) -> None:
    key = b"-----BEGIN PRIVATE KEY-----\nMIIE\n"
    checkout = repository(
        tmp_path / "c",
        {
            "a": b"a",
            ".env": b"S=1",
            "sub/.env.local": b"S",
            ".env.example": b"S=",
            "key": key,
            "later": b"ok",
            "was": key,
            ".aws/credentials": b"x",
            "node_modules/m/x": b"1",
            "node_modules/m/y": b"2",
        },
    )
    write(
        checkout, {"later": key, "was": b"clean now", "untracked.key": b"k", "sub/id_rsa/x": b"k"}
    )
    staged = stage(checkout)
    assert contents(staged) == {"a": b"a", ".env.example": b"S="}
    assert staged.base_tree == staged.tree
    assert reasons(staged) == {
        ".env": "environment_file",
        "sub/.env.local": "environment_file",
        "key": "private_key",
        "later": "private_key",
        "was": "private_key",
        ".aws": "cloud_credentials",
        "node_modules": "dependencies",
        "untracked.key": "private_key",
        "sub/id_rsa": "private_key",
    }
    assert contents(stage(checkout, ref="HEAD")) == {
        "a": b"a",
        ".env.example": b"S=",
        "later": b"ok",
    }


def test_links_are_never_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    write(outside, {"secret": b"secret", "dir/a": b"outside"})
    checkout = repository(tmp_path / "c", {"a": b"a", "dir/a": b"inside", "f": b"f"})
    (checkout / "tracked").symlink_to(outside / "secret")
    git(checkout, "add", "-A")
    git(checkout, "commit", "-q", "-m", "link")
    (checkout / "dir/a").unlink()
    (checkout / "dir").rmdir()
    (checkout / "dir").symlink_to(outside / "dir")
    (checkout / "f").unlink()
    (checkout / "f").symlink_to(outside / "secret")
    for name, target in {"new": outside, "loop": "loop", "dangling": "nowhere", "up": ".."}.items():
        (checkout / name).symlink_to(target)
    os.link(outside / "secret", checkout / "hard")
    staged = stage(checkout)
    assert contents(staged) == {"a": b"a", "hard": b"secret"}
    names = ("tracked", "dir", "f", "new", "loop", "dangling", "up")
    assert reasons(staged) == dict.fromkeys(names, "symlink")
    assert staged.base_tree.paths == ("a",)


def test_special_files_are_listed_and_never_waited_for(tmp_path: Path) -> None:
    checkout = repository(tmp_path / "c", {"a": b"a", "b": b"b"})
    os.mkfifo(checkout / "fifo")
    (checkout / "b").unlink()
    os.mkfifo(checkout / "b")
    os.mkfifo(checkout / ".gitignore")
    os.mkfifo(checkout / ".gitattributes")
    (checkout / "link").symlink_to("fifo")
    place = os.getcwd()
    os.chdir(checkout)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
    os.chdir(place)
    staged = stage(checkout)
    assert contents(staged) == {"a": b"a"}
    assert reasons(staged) == {
        "fifo": "special_file",
        "b": "special_file",
        "socket": "special_file",
        "link": "symlink",
        ".gitignore": "special_file",
        ".gitattributes": "special_file",
    }


def test_submodules_and_nested_repositories_are_listed_and_never_deleted(tmp_path: Path) -> None:
    other = repository(tmp_path / "other", {"x": b"x"})
    checkout = repository(tmp_path / "c", {"a": b"a"})
    git(checkout, "submodule", "add", "-q", str(other), "initialised")
    git(checkout, "submodule", "add", "-q", str(other), "absent")
    git(checkout, "commit", "-q", "-m", "modules")
    git(checkout, "submodule", "deinit", "-q", "-f", "absent")
    write(checkout / "initialised", {"dirty": b"d"})
    repository(checkout / "nested", {"n": b"n"})
    write(checkout, {"a": b"changed"})
    staged = stage(checkout)
    assert set(contents(staged)) == {"a", ".gitmodules"}
    assert reasons(staged) == {
        "initialised": "submodule",
        "absent": "submodule",
        "nested": "nested_repository",
    }
    assert [item.path for item in staged.base_tree.differences(staged.tree)] == ["a"]
    assert contents(stage(checkout / "initialised")) == {"x": b"x", "dirty": b"d"}


def test_names_are_staged_as_written_or_listed(tmp_path: Path) -> None:
    good = ["-x", "a b ", "quote\"'", "é", "日本", "😀", "x:y", "$(a)", "e\u0301x", "~"]
    checkout = repository(tmp_path / "c", {name: name.encode() for name in good})
    bad = [
        b"tab\t",
        b"new\nline",
        b"back\\slash",
        b"\xff\xfe",
        b"bidi\xe2\x80\xae",
        b"zero\xe2\x80\x8b",
    ]
    for tracked in (True, False):
        for name in bad:
            path = os.fsencode(checkout) + (b"/t-" if tracked else b"/u-") + name
            Path(os.fsdecode(path)).write_bytes(b"x")
        if tracked:
            git(checkout, "add", "-A")
    folder = os.fsencode(checkout) + b"/\xff"
    os.mkdir(folder)
    Path(os.fsdecode(folder + b"/inner")).write_bytes(b"x")
    staged = stage(checkout)
    assert contents(staged) == {name: name.encode() for name in good}
    assert len(staged.excluded) == 2 * len(bad) + 1
    assert {item.reason for item in staged.excluded} == {"name_unsafe", "name_not_utf8"}
    assert all(item.path.isprintable() for item in staged.excluded)
    assert reasons(staged)["\\xff"] == "name_not_utf8"
    assert reasons(staged)["t-new\\x0aline"] == "name_unsafe"


def test_twins_by_case_or_form_are_all_left_out(tmp_path: Path) -> None:
    checkout = repository(tmp_path / "c", {"a": b"a", "Read": b"1", "d/x": b"x", "é": b"1"})
    write(checkout, {"read": b"2", "D/y": b"y", "e\u0301": b"2"})
    staged = stage(checkout)
    assert contents(staged) == {"a": b"a"}
    assert staged.base_tree == staged.tree
    names = ("Read", "read", "d", "D", "é", "e\u0301")
    assert reasons(staged) == dict.fromkeys(names, "name_collision")


def test_a_rename_of_case_only_is_no_collision(tmp_path: Path) -> None:
    checkout = repository(tmp_path / "c", {"read": b"1"})
    git(checkout, "mv", "read", "Read")
    staged = stage(checkout)
    assert staged.tree.paths == ("Read",)
    assert staged.base_tree.paths == ("read",)


def test_unmerged_paths_are_in_neither_tree(tmp_path: Path) -> None:
    checkout = repository(tmp_path / "c", {"a": b"base\n", "b": b"b"})
    git(checkout, "checkout", "-q", "-b", "other")
    write(checkout, {"a": b"theirs\n"})
    git(checkout, "commit", "-q", "-a", "-m", "theirs")
    git(checkout, "checkout", "-q", "main")
    write(checkout, {"a": b"ours\n"})
    git(checkout, "commit", "-q", "-a", "-m", "ours")
    with pytest.raises(AssertionError):
        git(checkout, "merge", "-q", "other")
    staged = stage(checkout)
    assert contents(staged) == {"b": b"b"}
    assert reasons(staged) == {"a": "unmerged"}
    assert staged.base_tree == staged.tree


def test_an_unborn_branch_has_no_base(tmp_path: Path) -> None:
    checkout = repository(tmp_path / "c", {})
    write(checkout, {"a": b"a", "b": b"b"})
    git(checkout, "add", "a")
    staged = stage(checkout)
    assert contents(staged) == {"a": b"a", "b": b"b"}
    assert staged.base_commit is None
    assert staged.base_tree.files == 0
    with pytest.raises(Refusal, match="ref"):
        stage(checkout, ref="HEAD")


def test_a_name_that_is_only_intended_is_read_from_the_working_tree(tmp_path: Path) -> None:
    checkout = repository(tmp_path / "c", {"a": b"a"})
    write(checkout, {"later": b"later", "gone": b"gone"})
    git(checkout, "add", "-N", "later", "gone")
    (checkout / "gone").unlink()
    staged = stage(checkout)
    assert contents(staged) == {"a": b"a", "later": b"later"}
    assert (staged.tracked, staged.untracked) == (2, 0)
    assert reasons(staged) == {"gone": "deleted_in_checkout"}


def test_what_a_sparse_checkout_leaves_out_comes_from_the_index(tmp_path: Path) -> None:
    checkout = repository(tmp_path / "c", {"in/a": b"a", "out/b": b"b", "out/deep/c": b"c"})
    git(checkout, "sparse-checkout", "set", "--no-cone", "/in/")
    assert not (checkout / "out").exists()
    staged = stage(checkout)
    assert contents(staged) == {"in/a": b"a", "out/b": b"b", "out/deep/c": b"c"}
    assert staged.excluded == ()
    assert staged.base_tree == staged.tree


def test_every_shape_of_a_checkout_is_staged(tmp_path: Path) -> None:
    main = repository(tmp_path / "main", FILES)
    git(main, "worktree", "add", "-q", "--detach", str(tmp_path / "linked"))
    git(tmp_path, "clone", "-q", "--bare", str(main), "bare.git")
    git(tmp_path / "bare.git", "worktree", "add", "-q", "--detach", str(tmp_path / "of-bare"))
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{main}", "shallow")
    git(tmp_path, "clone", "-q", "--shared", str(main), "shared")
    git(
        tmp_path,
        "clone",
        "-q",
        f"--separate-git-dir={tmp_path}/elsewhere.git",
        str(main),
        "separate",
    )
    git(tmp_path, "clone", "-q", str(main), "packed")
    git(tmp_path / "packed", "repack", "-q", "-a", "-d")
    expected = stage(main)
    for name in ("linked", "of-bare", "shallow", "shared", "separate", "packed"):
        staged = stage(tmp_path / name)
        assert contents(staged) == FILES, name
        assert staged.tree == staged.base_tree == expected.tree, name
        assert staged.base_commit == expected.base_commit, name
        assert staged.excluded == (), name
    assert contents(stage(tmp_path / "bare.git", ref="main")) == FILES
    with pytest.raises(Refusal) as caught:
        stage(tmp_path / "bare.git")
    assert caught.value.code == "not_a_checkout"


def test_an_exact_commit_is_staged_whatever_the_working_tree_holds(tmp_path: Path) -> None:
    checkout = repository(tmp_path / "c", {"a": b"one", "run": b"r"})
    (checkout / "run").chmod(0o755)
    git(checkout, "commit", "-q", "-a", "-m", "mode")
    first = git(checkout, "rev-parse", "HEAD").strip()
    write(checkout, {"a": b"two", "b": b"b"})
    git(checkout, "add", "-A")
    git(checkout, "commit", "-q", "-m", "two")
    write(checkout, {"a": b"three"})
    git(checkout, "tag", "-a", "-m", "t", "v1", first)
    for ref in (first, "HEAD~1", "v1"):
        staged = stage(checkout, ref=ref)
        assert contents(staged) == {"a": b"one", "run": b"r"}
        assert staged.base_commit == first
        assert staged.tree.get("run").mode == MODE_EXECUTABLE  # type: ignore[union-attr]
        assert staged.base_tree == staged.tree
    for ref in ("absent", "HEAD:a", "", ":/", "0" * 40, "HEAD^{tree}"):
        with pytest.raises(Refusal) as caught:
            stage(checkout, ref=ref)
        assert caught.value.code == "ref_not_found"


def test_the_executable_bit_is_that_of_the_index_where_git_says_so(tmp_path: Path) -> None:
    checkout = repository(tmp_path / "c", {"a": b"a", "b": b"b"})
    git(checkout, "config", "core.fileMode", "false")
    (checkout / "a").chmod(0o755)
    git(checkout, "update-index", "--chmod=+x", "b")
    staged = stage(checkout)
    assert staged.tree.get("a").mode == MODE_FILE  # type: ignore[union-attr]
    assert staged.tree.get("b").mode == MODE_EXECUTABLE  # type: ignore[union-attr]


def test_line_ends_that_git_converts_are_no_change_and_are_reported(tmp_path: Path) -> None:
    checkout = repository(tmp_path / "c", {"a": b"one\ntwo\n", "b": b"x\n", "bin": b"1\n"})
    write(checkout, {".gitattributes": b"bin -text\n"})
    git(checkout, "add", ".gitattributes")
    git(checkout, "config", "core.autocrlf", "true")
    (checkout / "a").unlink()
    git(checkout, "checkout", "-q", "a")
    assert (checkout / "a").read_bytes() == b"one\r\ntwo\r\n"
    write(checkout, {"b": b"y\r\n", "bin": b"1\r\n"})
    expected = {
        "a": b"one\ntwo\n",
        "b": b"y\r\n",
        "bin": b"1\r\n",
        ".gitattributes": b"bin -text\n",
    }
    for touched in (False, True):
        if touched:
            os.utime(checkout / "a", ns=(1, 1))
        staged = stage(checkout)
        assert contents(staged) == expected
        assert staged.converted == ("a",)


def test_no_filter_that_the_repository_names_is_run(tmp_path: Path) -> None:
    checkout = repository(
        tmp_path / "c", {"a": b"a", ".gitattributes": b"* filter=evil diff=evil\n"}
    )
    mark = tmp_path / "ran"
    for name in (
        "filter.evil.clean",
        "filter.evil.smudge",
        "filter.evil.process",
        "diff.evil.textconv",
        "core.fsmonitor",
        "core.sshCommand",
        "diff.external",
    ):
        git(checkout, "config", name, f"touch {mark}")
    write(checkout, {"a": b"changed"})
    assert contents(stage(checkout))["a"] == b"changed"
    assert not mark.exists()


def test_lfs_pointers_stay_pointers_with_their_content_present_or_not(tmp_path: Path) -> None:
    data = b"large content"
    oid = sha256(data).hexdigest().encode()
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:%b\nsize %d\n" % (
        oid,
        len(data),
    )
    checkout = repository(tmp_path / "c", {"big.bin": pointer, "a": b"a"})
    assert stage(checkout).pointers == ("big.bin",)
    write(checkout, {"big.bin": data})
    staged = stage(checkout)
    assert contents(staged) == {"big.bin": pointer, "a": b"a"}
    assert staged.converted == staged.pointers == ("big.bin",)
    write(checkout, {"big.bin": b"other content"})
    assert contents(stage(checkout))["big.bin"] == b"other content"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_an_unreadable_file_or_folder_is_listed(tmp_path: Path) -> None:
    checkout = repository(tmp_path / "c", {"a": b"a", "shut/b": b"b", "c": b"c"})
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_mode & 0o777 == 0o700:
            path.chmod(0o755)
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch").chmod(0o777)
    (checkout / "shut").chmod(0)
    (checkout / "c").chmod(0)
    for place, folders, files in os.walk(checkout):
        for name in folders + files:
            os.lchown(os.path.join(place, name), 65534, 65534)
    os.chown(checkout, 65534, 65534)
    read, written = os.pipe()
    child = os.fork()
    if child == 0:
        os.setresuid(65534, 65534, 65534)
        try:
            os.write(written, repr(sorted(reasons(stage(checkout)).items())).encode())
        except BaseException as error:
            os.write(written, repr((error, error.__cause__)).encode())
        finally:
            os._exit(0)
    os.close(written)
    with open(read, "rb") as pipe:
        told = pipe.read().decode()
    os.waitpid(child, 0)
    assert told == repr([("c", "unreadable"), ("shut", "unreadable")])
