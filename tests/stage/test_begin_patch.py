"""The ``*** Begin Patch`` dialect: what it means, what is refused, and how soon."""

import random
import re
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.stage.begin_patch import parse_any_patch, parse_begin_patch
from broker.stage.confinement import confine
from broker.stage.patch_plan import AGENT_BOUNDS, PatchRefusal, targets
from broker.stage.patching import apply_plan
from broker.stage.store import BlobStore
from broker.stage.tree import MODE_EXECUTABLE, StagedTree
from tests.stage.patches import (
    Exact,
    Files,
    exact,
    files_of,
    git_applies,
    git_diff,
    scratch_store,
    tree_of,
)

PROGRAM = b"""\
class A:
    def f(self):
        pass

    def g(self):
        return 1


class B:
    def f(self):
        pass
"""
FILES: Files = {
    "a.py": PROGRAM,
    "d/open": b"one\ntwo",
    "run": (b"#!/bin/sh\nexit\n", MODE_EXECUTABLE),
    "empty": b"",
    "dos": b"a\r\nb\r\n",
}


@pytest.fixture(scope="module")
def store() -> Iterator[BlobStore]:
    with scratch_store() as store:
        yield store


@pytest.fixture(scope="module")
def tree(store: BlobStore) -> StagedTree:
    return tree_of(store, FILES)


def wrapped(body: bytes) -> bytes:
    return b"*** Begin Patch\n" + body + b"*** End Patch\n"


def update(path: str, *hunks: bytes) -> bytes:
    return wrapped(b"*** Update File: " + path.encode() + b"\n" + b"".join(hunks))


def applied(tree: StagedTree, patch: bytes) -> Exact:
    plan = parse_any_patch(patch)
    confine(plan, tree)
    return files_of(apply_plan(plan, tree))


def refused(tree: StagedTree, patch: bytes) -> PatchRefusal:
    before = tree.digest
    with pytest.raises(PatchRefusal) as caught:
        applied(tree, patch)
    assert tree.digest == before
    return caught.value


def outcome(tree: StagedTree, patch: bytes) -> Exact | str:
    try:
        return applied(tree, patch)
    except PatchRefusal as refusal:
        return refusal.code


def changed(**files: bytes | None) -> Exact:
    names = {"a": "a.py", "open": "d/open"}
    result = dict(exact(FILES))
    for name, data in files.items():
        path = names.get(name, name)
        mode = result.get(path, (b"", 0o100644))[1]
        if data is None:
            del result[path]
        else:
            result[path] = (data, mode)
    return result


# Against stock git ------------------------------------------------------------------------

LINES = [b"a", b"b", b"c", b"", b" a", b"-a", b"+", b"@@", b"*** End Patch", b"d\r", b"\xff", b"e"]


def translated(section: bytes) -> bytes:
    """One section of a text patch of stock git in this dialect, without its lines."""
    head, *hunks = re.split(rb"(?m)^(?=@@ -)", section)
    names = re.match(rb"diff --git a/(\S+) b/(\S+)\n", head)
    assert names is not None
    old, new = names.groups()
    bodies = [
        re.sub(rb"(?m)^\\ No newline at end of file\n", b"", hunk.split(b"\n", 1)[1])
        for hunk in hunks
    ]
    if b"\nnew file" in head:
        return b"*** Add File: " + new + b"\n" + b"".join(bodies)
    if b"\ndeleted file" in head:
        return b"*** Delete File: " + old + b"\n"
    move = b"*** Move to: " + new + b"\n" if b"\nrename to" in head else b""
    return b"*** Update File: " + old + b"\n" + move + b"".join(b"@@\n" + body for body in bodies)


def from_git(before: Files, after: Files) -> bytes:
    patch = git_diff(before, after, "-M40%", "-U2")
    return wrapped(b"".join(map(translated, re.split(rb"(?m)^(?=diff --git )", patch)[1:])))


def is_ambiguous(before: dict[str, bytes], patch: bytes) -> bool:
    """Whether the old lines of a hunk stand at several places; by the simplest search."""
    for section in re.split(rb"(?m)^\*\*\* Update File: ", patch)[1:]:
        name, text = section.split(b"\n", 1)
        lines = before[name.decode()].removesuffix(b"\n").split(b"\n")
        for hunk in re.split(rb"(?m)^@@\n", re.split(rb"(?m)^\*\*\* (?!Move)", text)[0])[1:]:
            body = hunk.removesuffix(b"\n").split(b"\n")
            old = [line[1:] for line in body if not line.startswith(b"+")]
            places = range(len(lines) - len(old) + 1)
            if sum(lines[at : at + len(old)] == old for at in places) != 1:
                return True
    return False


def text(choices: random.Random, size: int) -> bytes:
    return b"".join(line + b"\n" for line in choices.choices(LINES, k=size))


def edited(data: bytes, choices: random.Random) -> bytes:
    lines = data.split(b"\n")[:-1]
    for _ in range(choices.randint(1, 4)):
        at = choices.randrange(len(lines) + 1)
        lines[at : at + choices.randint(0, 2)] = choices.choices(LINES, k=choices.randint(0, 2))
    return b"".join(line + b"\n" for line in lines)


def check_against_git(store: BlobStore, before: dict[str, bytes], after: dict[str, bytes]) -> None:
    patch = git_diff(before, after, "-M40%", "-U2")
    sections = re.split(rb"(?m)^(?=diff --git )", patch)[1:]
    tree = tree_of(store, before)
    for section in sections:
        ours = wrapped(translated(section))
        made = outcome(tree, ours)
        if made == "patch_conflict":
            assert is_ambiguous(before, ours), ours
            continue
        old, new = parse_any_patch(ours).files[0].old_path, parse_any_patch(ours).files[0].new_path
        expected = {path: file for path, file in exact(before).items() if path != old}
        if new is not None:
            expected[new] = (after[new], 0o100644)
        assert made == expected, ours


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(choices=st.randoms(use_true_random=True))
def test_a_patch_of_git_means_the_same_or_its_context_is_ambiguous(
    store: BlobStore, choices: random.Random
) -> None:
    before, after = {"gone": b"1\n"}, {"new": text(choices, 3), "empty": b""}
    for number in range(30):
        name = f"{number}/x"
        before[name] = text(choices, choices.randint(0, 30))
        after[name] = edited(before[name], choices)
        opened = before[name][:-1], after[name][:-1]
        if choices.random() < 0.4 and all(data and data[-1:] != b"\n" for data in opened):
            before[name], after[name] = opened
    check_against_git(store, before, after)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(choices=st.randoms(use_true_random=True))
def test_a_moved_file_of_git_means_the_same(store: BlobStore, choices: random.Random) -> None:
    before = {f"old/{number}": text(choices, 14) + b"%d\n" % number for number in range(10)}
    after = {name.replace("old", "new"): edited(data, choices) for name, data in before.items()}
    check_against_git(store, before, after)


def test_most_patches_of_git_are_not_ambiguous(store: BlobStore) -> None:
    choices = random.Random(3)
    for _ in range(15):
        lines = [b"%d %d\n" % (number, choices.randrange(9)) for number in range(60)]
        other = list(lines)
        for _ in range(5):
            other[choices.randrange(60)] = b"new %d\n" % choices.randrange(99)
        before, after = {"x": b"".join(lines)}, {"x": b"".join(other)}
        assert outcome(tree_of(store, before), from_git(before, after)) == exact(after)


# Placing ----------------------------------------------------------------------------------

PASS = b"     def f(self):\n-        pass\n+        return 2\n"
IN_A = PROGRAM.replace(b"pass", b"return 2", 1)
IN_B = PROGRAM[::-1].replace(b"ssap", b"2 nruter", 1)[::-1]


@pytest.mark.parametrize(
    ("hunk", "made"),
    [
        pytest.param(PASS, None, id="two places"),
        pytest.param(b"@@\n" + PASS, None, id="bare header, two places"),
        pytest.param(b"@@ class A:\n" + PASS, IN_A, id="first block"),
        pytest.param(b"@@ class B:\n" + PASS, IN_B, id="second block"),
        pytest.param(b"@@   class B:  \n" + PASS, IN_B, id="blanks around an anchor"),
        pytest.param(b"@@ class A:\n@@ def f(self):\n-        pass\n+        return 2\n", IN_A,
                     id="block in a block"),
        pytest.param(b"@@ class B:\n@@     def f(self):\n" + PASS, IN_B, id="anchor repeated"),
        pytest.param(b"@@ def f(self):\n-        pass\n+        return 2\n", None,
                     id="anchor at two places"),
        pytest.param(b"@@ class C:\n" + PASS, None, id="no such anchor"),
        pytest.param(b"@@ class\n" + PASS, None, id="part of a line is no anchor"),
        pytest.param(b"@@ class B:\n@@ class A:\n" + PASS, None, id="anchors out of order"),
        pytest.param(b"@@ class B:\n     def g(self):\n-        return 1\n", None,
                     id="before its anchor"),
        pytest.param(b"@@ def f(self):\n     def g(self):\n-        return 1\n+        return 3\n",
                     PROGRAM.replace(b"1", b"3"), id="behind the block, at one place"),
        pytest.param(PASS + b"*** End of File\n", IN_B, id="the end of the file"),
        pytest.param(b"@@ class A:\n" + PASS + b"*** End of File\n", IN_B,
                     id="the end is behind the anchor"),
        pytest.param(b"@@ class B:\n     def g(self):\n+x\n*** End of File\n", None,
                     id="not the end"),
        pytest.param(b"+x\n", None, id="added nowhere"),
        pytest.param(b"@@ class B:\n+x\n", None, id="added after an anchor only"),
        pytest.param(b"+x\n*** End of File\n", PROGRAM + b"x\n", id="added at the end"),
    ],
)  # fmt: skip
def test_a_hunk_stands_at_its_one_place(tree: StagedTree, hunk: bytes, made: bytes | None) -> None:
    expected = "patch_conflict" if made is None else changed(a=made)
    assert outcome(tree, update("a.py", hunk)) == expected


def test_hunks_are_in_order_and_apart(tree: StagedTree) -> None:
    first = b"@@\n     def g(self):\n-        return 1\n+        return 2\n"
    second = b"@@ class B:\n     def f(self):\n-        pass\n+        return 3\n"
    both = IN_B.replace(b"return 1", b"return 9").replace(b"return 2", b"return 3")
    expected = changed(a=both.replace(b"return 9", b"return 2"))
    assert outcome(tree, update("a.py", first, second)) == expected
    assert refused(tree, update("a.py", second, first)).hunk == 1
    again = b"@@\n     def g(self):\n         return 1\n+\n"
    assert refused(tree, update("a.py", first, again)).hunk == 1


def test_a_second_hunk_may_name_the_block_of_the_first(tree: StagedTree) -> None:
    one = b"@@ class A:\n" + PASS
    two = b"@@ class A:\n     def g(self):\n-        return 1\n+        return 5\n"
    expected = changed(a=IN_A.replace(b"return 1", b"return 5"))
    assert outcome(tree, update("a.py", one, two)) == expected


def test_an_ambiguous_hunk_is_told_the_other_place(tree: StagedTree) -> None:
    refusal = refused(tree, update("a.py", PASS))
    old = b"    def f(self):\n        pass\n"
    assert (refusal.file, refusal.hunk) == (0, 0)
    assert (refusal.expected, refusal.found, refusal.found_line) == (old, old, 10)


def test_a_hunk_that_stands_nowhere_is_told_what_is_nearest(tree: StagedTree) -> None:
    refusal = refused(tree, update("a.py", b"     def g(self):\n-        return 2\n"))
    assert refusal.expected == b"    def g(self):\n        return 2\n"
    assert (refusal.found, refusal.found_line) == (b"    def g(self):\n        return 1\n", 5)


@pytest.mark.parametrize(
    ("path", "hunk", "made"),
    [
        pytest.param("open", b" one\n-two\n+2\n", b"one\n2", id="open end stays open"),
        pytest.param("open", b" one\n-two\n+2\n*** End of File\n", b"one\n2", id="stated end"),
        pytest.param("open", b"-one\n+1\n", b"1\ntwo", id="open end is not touched"),
        pytest.param("open", b"-one\n+1\n two\n", b"1\ntwo", id="open end as context"),
        pytest.param("open", b" two\n+three\n", b"one\ntwo\nthree", id="added after an open end"),
        pytest.param("open", b"-one\n-two\n", b"", id="all of it"),
        pytest.param("open", b"-two\n", b"one\n", id="last line"),
        pytest.param("open", b"+x\n*** End of File\n", None, id="added to an open line"),
        pytest.param("empty", b"+x\n", b"x\n", id="empty file"),
        pytest.param("empty", b"+x\n*** End of File\n", b"x\n", id="end of an empty file"),
        pytest.param("empty", b"-x\n", None, id="nothing to take from"),
        pytest.param("empty", b" \n+x\n", None, id="an empty line is not an empty file"),
        pytest.param("dos", b"-a\r\n+c\r\n", b"c\r\nb\r\n", id="carriage returns"),
        pytest.param("dos", b"-a\n+c\n", None, id="line ends are not adapted"),
        pytest.param("run", b" #!/bin/sh\n-exit\n+exit 1\n", b"#!/bin/sh\nexit 1\n", id="mode"),
    ],
)  # fmt: skip
def test_bytes_are_kept(tree: StagedTree, path: str, hunk: bytes, made: bytes | None) -> None:
    expected = "patch_conflict" if made is None else changed(**{path: made})
    name = {"open": "d/open"}.get(path, path)
    assert outcome(tree, update(name, hunk)) == expected


@pytest.mark.parametrize(
    "line",
    [b"$&", b"\\1", b"%s", b"{}", b"\x1b[31m", b"--- a/x", b"+++ b/x", b"@@ -1 +1 @@", b"\\",
     b"diff --git a/x b/x", b"*** End Patch", b"*** Add File: y", b"\xff\xfe", b"\x0c", b"+", b"-"],
)  # fmt: skip
def test_content_is_opaque(store: BlobStore, line: bytes) -> None:
    tree = tree_of(store, {"x": b"a\n" + line + b"\nb\n"})
    patch = wrapped(
        b"*** Update File: x\n a\n-" + line + b"\n+" + line * 2 + b"\n b\n"
        b"*** Add File: n\n+" + line + b"\n+\n"
    )
    made = {"x": b"a\n" + line * 2 + b"\nb\n", "n": line + b"\n\n"}
    assert outcome(tree, patch) == exact(made)


# Habits -----------------------------------------------------------------------------------

GOOD = update("a.py", b"@@ class A:\n" + PASS)


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param(GOOD[:-1], id="no line feed at the end"),
        pytest.param(b"\n\n" + GOOD + b"\n", id="empty lines around"),
        pytest.param(GOOD.replace(b"Patch\n", b"Patch\n\n", 1), id="empty line behind the first"),
        pytest.param(GOOD.replace(b"class A:", b"   class A:\t"), id="blanks of an anchor"),
        pytest.param(update("a.py", b"@@\n" + PROGRAM.split(b"\n")[0].join([b" ", b"\n"]) + PASS),
                     id="bare header"),
        pytest.param(update("a.py", b" class A:\n" + PASS), id="no header"),
        pytest.param(update("a.py", b" class A:\n" + PASS + b"\n"), id="empty line as context"),
    ],
)  # fmt: skip
def test_a_habit_that_can_mean_one_thing_is_taken(tree: StagedTree, patch: bytes) -> None:
    assert outcome(tree, patch) == changed(a=IN_A)


@pytest.mark.parametrize(
    ("patch", "code", "line"),
    [
        pytest.param(b"```\n" + GOOD + b"```\n", "patch_malformed", 1, id="code fence"),
        pytest.param(b"Here it is:\n" + GOOD, "patch_malformed", 1, id="prose before"),
        pytest.param(GOOD + b"Done.\n", "patch_malformed", 8, id="prose behind"),
        pytest.param(GOOD + GOOD, "patch_malformed", 8, id="two patches"),
        pytest.param(b"apply_patch <<'EOF'\n" + GOOD + b"EOF\n", "patch_malformed", 1,
                     id="here-document"),
        pytest.param(GOOD.replace(b"\n", b"\r\n"), "patch_malformed", 1, id="carriage returns"),
        pytest.param(GOOD.replace(b"A:\n", b"A:\r\n"), None, None, id="one after an anchor"),
        pytest.param(GOOD.removesuffix(b"*** End Patch\n"), "patch_malformed", 6, id="cut short"),
        pytest.param(GOOD.removesuffix(b"Patch\n"), "patch_malformed", 7, id="end cut short"),
        pytest.param(b" " + GOOD, "patch_malformed", 1, id="blank before"),
        pytest.param(b"*** Begin Patch \n" + GOOD[16:], "patch_malformed", 1, id="blank behind"),
        pytest.param(b"*** begin patch\n" + GOOD[16:], "patch_malformed", 1, id="small letters"),
        pytest.param(wrapped(b""), "patch_malformed", 2, id="nothing"),
        pytest.param(wrapped(b"*** Frob File: x\n"), "patch_malformed", 2, id="unknown section"),
        pytest.param(wrapped(b"*** Add File:x\n+a\n"), "patch_malformed", 2, id="no blank"),
        pytest.param(wrapped(b"*** Add File: x\na\n"), "patch_malformed", 3, id="untagged line"),
        pytest.param(wrapped(b"*** Add File: x\n+a\n\n+b\n"), "patch_malformed", 4,
                     id="empty line in a new file"),
        pytest.param(wrapped(b"*** Add File: x\n+a\n\n*** Delete File: run\n"), "patch_malformed",
                     4, id="empty line after a new file"),
        pytest.param(wrapped(b"*** Add File: x\n@@\n+a\n"), "patch_malformed", 3, id="@@ in added"),
        pytest.param(wrapped(b"*** Delete File: run\n-exit\n"), "patch_malformed", 3,
                     id="content of a deleted file"),
        pytest.param(wrapped(b"*** Move to: x\n"), "patch_malformed", 2, id="move alone"),
        pytest.param(update("a.py", b"*** Move to: n\n*** Move to: m\n"), "patch_malformed", 4,
                     id="two moves"),
        pytest.param(update("a.py", PASS, b"*** Move to: n\n"), "patch_malformed", 6,
                     id="move behind hunks"),
        pytest.param(update("a.py", b"@@ -1,2 +1,2 @@\n" + PASS), "patch_malformed", 3,
                     id="line numbers"),
        pytest.param(update("a.py", b"@@class A:\n" + PASS), "patch_malformed", 3, id="@@ alone"),
        pytest.param(update("a.py", b"@@ class A:\n"), "patch_malformed", 4, id="hunk of nothing"),
        pytest.param(update("a.py", b"@@\n*** End of File\n"), "patch_malformed", 4, id="only end"),
        pytest.param(update("a.py", b"*** End of File\n"), "patch_no_change", 2, id="end first"),
        pytest.param(update("a.py", PASS + b"*** End of File\n+x\n"), "patch_malformed", 7,
                     id="lines behind the end"),
        pytest.param(update("a.py", PASS + b"def g():\n"), "patch_malformed", 6, id="no tag"),
        pytest.param(update("a.py", b"\\ No newline at end of file\n"), "patch_no_change", 2,
                     id="foreign mark"),
        pytest.param(update("a.py", b" class A:\n"), "patch_no_change", 3, id="only context"),
        pytest.param(update("a.py", b"\n", b"@@\n" + PASS), "patch_no_change", 3,
                     id="empty line before a header"),
        pytest.param(update("a.py"), "patch_no_change", 2, id="no hunk"),
        pytest.param(update("a.py", b"-a\n+\0\n"), "patch_malformed", 4, id="NUL"),
        pytest.param(update("a.py", b"--- a/a.py\n+++ b/a.py\n"), "patch_conflict", None,
                     id="headers of git are content"),
        pytest.param(b"--- a/x\n+++ b/x\n" + GOOD, "patch_malformed", 3, id="git's form first"),
        pytest.param(b"", "patch_malformed", 1, id="no bytes"),
    ],
)  # fmt: skip
def test_a_habit_that_hides_something_is_refused(
    tree: StagedTree, patch: bytes, code: str | None, line: int | None
) -> None:
    if code is None:
        assert outcome(tree, patch) == changed(a=IN_A)
        return
    refusal = refused(tree, patch)
    assert (refusal.code, refusal.line) == (code, line)


@pytest.mark.parametrize("opening", [b"--- a/x\n", b"diff --git a/x b/x\n", b"\n--- a/x\n"])
def test_git_s_form_is_read_by_its_own_grammar(store: BlobStore, opening: bytes) -> None:
    head = b"--- a/x\n" if opening.startswith(b"diff") else b""
    patch = opening + head + b"+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"
    assert outcome(tree_of(store, {"x": b"a\n"}), patch) == exact({"x": b"b\n"})
    assert git_applies({"x": b"a\n"}, patch) == exact({"x": b"b\n"})


# Operations and names ---------------------------------------------------------------------


def test_all_operations_in_one_patch(tree: StagedTree) -> None:
    patch = wrapped(
        b"*** Add File: n/new\n+1\n+\n*** Add File: n/empty\n*** Delete File: a.py\n\n"
        b"*** Update File: run\n*** Move to: bin/run\n@@\n #!/bin/sh\n-exit\n+exit 1\n"
        b"*** Update File: dos\n*** Move to: d/dos\n"
    )
    expected = changed(a=None, run=None, dos=None) | {
        "n/new": (b"1\n\n", 0o100644),
        "n/empty": (b"", 0o100644),
        "bin/run": (b"#!/bin/sh\nexit 1\n", 0o100755),
        "d/dos": (b"a\r\nb\r\n", 0o100644),
    }
    assert outcome(tree, patch) == expected
    assert [(target.path, target.kind) for target in targets(parse_any_patch(patch))] == [
        ("n/new", "create"), ("n/empty", "create"), ("a.py", "delete"), ("run", "delete"),
        ("bin/run", "create"), ("dos", "delete"), ("d/dos", "create"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "code", "file"),
    [
        (b"*** Add File: n\n+1\n*** Add File: a.py\n+1\n", "patch_conflict", 1),
        (b"*** Update File: run\n*** Move to: a.py\n", "patch_conflict", 0),
        (b"*** Update File: run\n*** Move to: run\n", "patch_target_duplicate", 0),
        (b"*** Update File: none\n-a\n", "patch_conflict", 0),
        (b"*** Delete File: none\n", "patch_conflict", 0),
        (b"*** Delete File: d\n", "patch_path_collision", 0),
        (b"*** Add File: d\n", "patch_path_collision", 0),
        (b"*** Add File: A.py\n", "patch_path_collision", 0),
        (b"*** Add File: a.py/x\n", "patch_path_collision", 0),
        (b"*** Add File: n\n*** Add File: N\n", "patch_path_collision", 1),
        (b"*** Update File: run\n-exit\n*** Update File: run\n-#!/bin/sh\n",
         "patch_target_duplicate", 1),
        (b"*** Delete File: run\n*** Add File: run\n+x\n", "patch_target_duplicate", 1),
        (b"*** Add File: .git/hooks/post-checkout\n+x\n", "patch_path_protected", 0),
        (b"*** Add File: d/.GIT/config\n+x\n", "patch_path_protected", 0),
        (b"*** Update File: run\n*** Move to: .git/hooks/run\n", "patch_path_protected", 0),
        (b"*** Add File: .airlock/x\n", "patch_path_protected", 0),
        (b"*** Update File: .env\n-A=1\n", "patch_path_secret", 0),
        (b"*** Delete File: .env\n", "patch_path_secret", 0),
        (b"*** Update File: run\n*** Move to: .env\n", "patch_path_secret", 0),
        (b"*** Delete File: .odla-references/lib/x\n", "patch_path_reference", 0),
        (b"*** Add File: ../x\n", "patch_path_not_canonical", 0),
        (b"*** Add File: /etc/x\n", "patch_path_not_canonical", 0),
        (b"*** Add File: ./x\n", "patch_path_not_canonical", 0),
        (b"*** Add File: a//x\n", "patch_path_not_canonical", 0),
        (b"*** Add File: \n", "patch_path_not_canonical", 0),
        (b"*** Add File:  x\n", "patch_path_not_canonical", 0),
        (b"*** Add File: x \n", "patch_path_not_canonical", 0),
        (b"*** Add File: x\r\n", "patch_path_not_canonical", 0),
        (b"*** Add File: x:\n", "patch_path_not_canonical", 0),
        (b"*** Add File: `x`\n", "patch_path_not_canonical", 0),
        (b"*** Add File: **x**\n", "patch_path_not_canonical", 0),
        (b'*** Add File: "x"\n', "patch_path_not_canonical", 0),
        (b"*** Add File: C:\\x\n", "patch_path_not_canonical", 0),
        (b"*** Add File: \xff\n", "patch_path_not_canonical", 0),
        (b"*** Add File: a\xe2\x80\xaeb\n", "patch_path_not_canonical", 0),
        (b"*** Add File: k.pem\n+-----BEGIN PRIVATE KEY-----\n+A\n", "patch_path_secret", None),
        (b"".join(b"*** Add File: n%d\n" % number for number in range(65)),
         "patch_too_many_files", 64),
        (b"*** Update File: a.py\n" + b"@@\n-a\n" * 1_001, "patch_too_many_hunks", 0),
        (b"*** Add File: n\n" + b"+" * 262_144 + b"\n", "payload_too_large", None),
    ],
)  # fmt: skip
def test_operations_and_names_are_held_to_the_rules_of_every_patch(
    tree: StagedTree, body: bytes, code: str, file: int | None
) -> None:
    refusal = refused(tree, wrapped(body))
    assert (refusal.code, refusal.file) == (code, file)


def test_a_delete_is_told_nothing_of_the_file(tree: StagedTree) -> None:
    refusal = refused(tree, wrapped(b"*** Delete File: none\n"))
    assert (refusal.expected, refusal.found) == (None, None)


# Fuzz and time ----------------------------------------------------------------------------

PIECES = [
    b"*** Begin Patch\n", b"*** End Patch\n", b"*** End Patch", b"*** Add File: n\n", b"\n", b" \n",
    b"*** Update File: a.py\n", b"*** Update File: d/open\n", b"*** Delete File: run\n", b"@@\n",
    b"*** Move to: m\n", b"*** End of File\n", b"@@ class A:\n", b"@@ def f(self):\n", b"+x\n",
    b"     def f(self):\n", b"-        pass\n", b" class B:\n", b" two\n", b"-one\n", b"+\n",
    b"-\n", b"*** Update File: empty\n", b"@@ -1 +1 @@\n", b"+yyyyyyyy\n", b"\0",
    b"\xff\n",
]  # fmt: skip


@settings(max_examples=1_500, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    patch=st.one_of(
        st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join),
        st.lists(st.sampled_from(PIECES), max_size=10).map(b"".join).map(wrapped),
        st.lists(st.sampled_from(PIECES[8:]), max_size=8)
        .map(b"".join)
        .map(lambda body: update("a.py", body)),
        st.binary(max_size=200).map(lambda noise: b"*** Begin Patch\n" + noise),
    )
)
def test_any_bytes_change_the_tree_as_planned_or_are_refused(
    tree: StagedTree, patch: bytes
) -> None:
    before = files_of(tree)
    with suppress(PatchRefusal):
        plan = parse_any_patch(patch)
        confine(plan, tree)
        after = files_of(apply_plan(plan, tree))
        touched = {target.path for target in targets(plan)}
        assert {path for path in before | after if before.get(path) != after.get(path)} == touched
    assert files_of(tree) == before


BIG = AGENT_BOUNDS.text_bytes - 64


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"*** Update File: a\n" + b"-\n+\n" * (BIG // 4 - 8), id="in turn"),
        pytest.param(b"*** Update File: a\n+x\n" + b"\n" * (BIG - 32), id="empty lines"),
        pytest.param(b"*** Update File: a\n" + b" \n" * (BIG // 2 - 32) + b"+\n", id="context"),
        pytest.param(b"*** Update File: a\n" + b"@@\n-a\n" * (BIG // 6 - 8), id="hunks"),
        pytest.param(b"*** Update File: a\n" + b"@@ a\n" * (BIG // 5 - 8) + b"-a\n", id="anchors"),
        pytest.param(b"*** Update File: a\n@@" + b" " * (BIG - 64) + b"\n-a\n", id="blanks"),
        pytest.param(b"*** Update File: a\n@@ -" + b"1" * (BIG - 64) + b"\n-a\n", id="digits"),
        pytest.param(b"*** Add File: a\n" + b"+\n" * (BIG // 2 - 32), id="added"),
        pytest.param(b"*** Add File: " + b"`" * (BIG - 64) + b"\n", id="marks"),
        pytest.param(b"*** Add File: n\n" * (BIG // 16 - 8), id="files"),
        pytest.param(b"*** Delete File: n\n" + b"\n" * (BIG - 64), id="empty lines behind"),
        pytest.param(b"\n" * BIG, id="empty lines before"),
    ],
)
def test_256_kib_are_parsed_in_50_ms(body: bytes) -> None:
    patch = wrapped(body)
    assert len(patch) <= AGENT_BOUNDS.text_bytes
    took = []
    for _ in range(3):
        start = time.thread_time()
        with suppress(PatchRefusal):
            parse_begin_patch(patch)
        took.append(time.thread_time() - start)
    assert min(took) < 0.05


@pytest.mark.parametrize(
    ("data", "hunk", "times"),
    [
        pytest.param(b"a\n" * (8 << 20), b"@@ a\n a\n-b\n", 900, id="anchors everywhere"),
        pytest.param(b"a b\n" * (4 << 20), b"@@ a\n a b\n+c\n", 900, id="almost anchors"),
        pytest.param((b" " * 199 + b"a\n") * 80_000, b"@@ a\n-b\n", 900, id="deep blocks"),
        pytest.param(b"a\n" + b" a\n" * 200 + b"  b\n" * (4 << 20), b"@@ a\n@@ a\n-b\n", 900,
                     id="long blocks"),
        pytest.param(b" " * (16 << 20) + b"a\n" + b" " * (15 << 20), b"@@ a\n-b\n", 900,
                     id="blanks"),
        pytest.param(b"x\n" * (8 << 20), b" x\n" * 60 + b"-y\n", 900, id="almost everywhere"),
        pytest.param(b"a\n" + b"\t\n" * (8 << 20), b"@@ a\n-c\n", 900, id="blank lines"),
    ],
)  # fmt: skip
def test_hunks_are_refused_soon_in_a_large_file(
    store: BlobStore, data: bytes, hunk: bytes, times: int
) -> None:
    big = tree_of(store, {"x": data})
    patch = update("x", b"@@\n".join([b"", *[hunk] * times]).replace(b"@@\n@@", b"@@"))
    start = time.thread_time()
    assert refused(big, patch).code == "patch_conflict"
    assert time.thread_time() - start < 3.0
