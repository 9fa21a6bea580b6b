"""Where a patch may reach: each reason by name, in one order, and nothing else told."""

from collections.abc import Iterator

import pytest

from broker.stage.tree import StagedTree
from tests.stage.patches import code, scratch_store, tree_of
from tests.stage.test_patch_binary import change, part

FILES = {
    "src/a.py": b"a\n",
    "src/deep/b.py": b"b\n",
    "café.py": b"c\n",
    "dist/kept.js": b"d\n",
    "README": b"r\n",
    "bin": b"\0",
}


@pytest.fixture(scope="module")
def tree() -> Iterator[StagedTree]:
    with scratch_store() as store:
        yield tree_of(store, FILES)


def create(path: str, mode: str = "100644") -> bytes:
    name = path.encode()
    return b"diff --git a/%b b/%b\nnew file mode %b\n" % (name, name, mode.encode())


def edit(path: str, old: str = "a", new: str = "b") -> bytes:
    text = f"--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-{old}\n+{new}\n"
    return text.encode()


def move(verb: str, old: str, new: str) -> bytes:
    return f"diff --git a/{old} b/{new}\n{verb} from {old}\n{verb} to {new}\n".encode()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("../x", "patch_path_not_canonical"),
        ("src/../../x", "patch_path_not_canonical"),
        ("./x", "patch_path_not_canonical"),
        ("src//x", "patch_path_not_canonical"),
        ("src/", "patch_path_not_canonical"),
        ("/etc/cron.d/x", "patch_path_not_canonical"),
        (".", "patch_path_not_canonical"),
        ("C:\\x", "patch_path_not_canonical"),
        ("x\\y", "patch_path_not_canonical"),
        ("n" * 256, "patch_path_not_canonical"),
        ("d/" * 512 + "x", "patch_path_not_canonical"),
        ("x\u202ey", "patch_path_not_canonical"),
        ("x\u200by", "patch_path_not_canonical"),
        ("x\u2028y", "patch_path_not_canonical"),
        ("x\x7fy", "patch_path_not_canonical"),
        ("e\u0301.py", "patch_path_not_canonical"),
        ("cafe\u0301.py", "patch_path_collision"),
        (".git/hooks/pre-commit", "patch_path_protected"),
        (".GIT/x", "patch_path_protected"),
        ("sub/.git/config", "patch_path_protected"),
        ("GIT~1/x", "patch_path_protected"),
        (".git /x", "patch_path_protected"),
        (".git./x", "patch_path_protected"),
        (".git::$INDEX_ALLOCATION/x", "patch_path_protected"),
        (".git", "patch_path_protected"),
        (".odla/x", "patch_path_protected"),
        (".odlarc", "patch_path_protected"),
        (".airlock/lock", "patch_path_protected"),
        (".env", "patch_path_secret"),
        ("deploy/.ENV.production", "patch_path_secret"),
        (".aws/credentials", "patch_path_secret"),
        (".docker/config.json", "patch_path_secret"),
        ("node_modules/x/index.js", "patch_path_secret"),
        ("__pycache__/x.py", "patch_path_secret"),
        ("src/cache.pyc", "patch_path_secret"),
        (".odla-references/lib/x.py", "patch_path_reference"),
        (".Odla-References/lib/x.py", "patch_path_reference"),
        ("SRC/c.py", "patch_path_collision"),
        ("src/A.py", "patch_path_collision"),
        ("src/DEEP/b.py", "patch_path_collision"),
        ("readme", "patch_path_collision"),
        ("CAFÉ.py", "patch_path_collision"),
        ("src", "patch_path_collision"),
        ("README/x", "patch_path_collision"),
        ("src/c.py", None),
        ("new/folder/x", None),
        ("ä/ö.py", None),
        (".env.example", None),
        ("odla.recipes.json", None),
        (".gitignore", None),
        ("dist/added.js", None),
    ],
)
def test_a_path_is_confined(tree: StagedTree, path: str, expected: str | None) -> None:
    assert code(tree, create(path)) == expected
    if "src" not in path or expected != "patch_path_collision":
        assert code(tree, move("copy", "README", path)) == expected
        assert code(tree, move("rename", "README", path)) in (expected, None)


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        pytest.param(edit("src/a.py").replace(b"b/src", b"/etc"), "patch_path_not_canonical",
                     id="absolute new side"),
        pytest.param(edit("src/a.py").replace(b"+++ b/src/a.py", b"+++ b/src/a.py\t../../x"),
                     "patch_path_not_canonical", id="tab and time stamp trick"),
        pytest.param(edit("src/a.py").replace(b"a/src", b"src").replace(b"b/src", b"src"),
                     "patch_path_not_canonical", id="no prefixes"),
        pytest.param(edit("src/a.py").replace(b"b/src/a.py", b'"b/src/a.py"'),
                     "patch_path_not_canonical", id="needless quotes"),
        pytest.param(b"--- /dev/null\n+++ /etc/cron.d/x\n@@ -0,0 +1 @@\n+x\n",
                     "patch_path_not_canonical", id="absolute creation"),
        pytest.param(move("rename", "src/a.py", ".git/config"), "patch_path_protected",
                     id="rename into .git"),
        pytest.param(move("copy", ".env", "x"), "patch_path_secret", id="copy of a secret"),
        pytest.param(edit("SRC/a.py"), "patch_path_collision", id="other case of a file"),
        pytest.param(create("x", "120000"), "patch_mode_forbidden", id="symlink"),
        pytest.param(create("x", "160000"), "patch_mode_forbidden", id="submodule"),
        pytest.param(create("x", "100664"), "patch_mode_forbidden", id="group writable"),
        pytest.param(b"diff --git a/src/a.py b/src/a.py\nold mode 100644\nnew mode 104755\n",
                     "patch_mode_forbidden", id="setuid"),
        pytest.param(b"diff --git a/src/a.py b/src/a.py\nold mode 120000\nnew mode 100644\n",
                     "patch_mode_forbidden", id="symlink to file"),
        pytest.param(create("x") + create("x"), "patch_target_duplicate", id="one path twice"),
        pytest.param(edit("src/a.py") + edit("src/a.py"), "patch_target_duplicate",
                     id="two edits of a file"),
        pytest.param(move("rename", "README", "bin") + move("rename", "bin", "README"),
                     "patch_target_duplicate", id="swap by renames"),
        pytest.param(create("New") + create("new"), "patch_path_collision", id="two new names"),
        pytest.param(create("New/x") + create("new/y"), "patch_path_collision",
                     id="two new folders"),
        pytest.param(create("n") + create("n/x"), "patch_path_collision", id="file and folder"),
        pytest.param(create("n/x") + create("n"), "patch_path_collision", id="folder and file"),
        pytest.param(move("rename", "README", "readme"), None, id="other case of itself"),
        pytest.param(move("rename", "src/deep/b.py", "src/Deep/b.py"), None,
                     id="other case of an emptied folder"),
        pytest.param(move("rename", "README", "README/x"), None, id="file becomes folder"),
        pytest.param(move("copy", "README", "readme"), "patch_path_collision",
                     id="copy beside itself"),
        pytest.param(b'--- /dev/null\n+++ "b/src/\\303\\244.py"\n@@ -0,0 +1 @@\n+x\n',
                     None, id="git's own quoting"),
    ],
)  # fmt: skip
def test_what_a_patch_may_not_do(tree: StagedTree, patch: bytes, expected: str | None) -> None:
    assert code(tree, patch) == expected


#: One failing section for each step, in the order of the steps.
STEPS = [
    ("patch_path_not_canonical", create("../x")),
    ("patch_path_protected", create(".git/x")),
    ("patch_path_secret", create(".env")),
    ("patch_path_reference", create(".odla-references/x")),
    ("patch_mode_forbidden", create("m", "120000")),
    ("patch_binary_too_large", change(None, b"", part(b"", size=1 << 40)).replace(b"/x", b"/b")),
    ("patch_target_duplicate", create("twice") + create("twice")),
    ("patch_path_collision", create("readme")),
]


@pytest.mark.parametrize("first", range(len(STEPS)))
def test_the_first_step_that_fails_is_the_reason_whatever_the_order_of_files(
    tree: StagedTree, first: int
) -> None:
    failing = [patch for _, patch in STEPS[first:]]

    assert code(tree, b"".join(failing)) == STEPS[first][0]
    assert code(tree, b"".join(reversed(failing))) == STEPS[first][0]


def test_grammar_and_counts_come_first(tree: StagedTree) -> None:
    everything = b"".join(patch for _, patch in STEPS)
    many = b"".join(create(f"f{index}") for index in range(64))

    assert code(tree, everything + b"prose\n") == "patch_malformed"
    assert code(tree, everything + many) == "patch_too_many_files"
    assert code(tree, everything + bytes(300_000)) == "payload_too_large"


def test_what_a_filtered_path_holds_is_never_told() -> None:
    with scratch_store() as store:
        tree = tree_of(store, {"a": b"a\n"})
        for patch in (
            create(".env"),
            edit(".env"),
            b"diff --git a/.env b/.env\ndeleted file mode 100644\n",
            move("rename", ".env", "b"),
        ):
            assert code(tree, patch) == "patch_path_secret"


def test_new_content_that_is_never_staged_is_refused() -> None:
    key = "-----BEGIN RSA PRIVATE KEY-----\n" + "A" * 64 + "\n"
    with scratch_store() as store:
        tree = tree_of(store, {"a": b"a\n", "x.txt": b"secret"})
        assert code(tree, _adding("k.txt", key)) == "patch_path_secret"
        assert code(tree, _adding("ok.txt", "fine\n")) is None
        assert code(tree, move("rename", "x.txt", "x.pem")) == "patch_path_secret"


def _adding(path: str, text: str) -> bytes:
    lines = text.splitlines()
    head = f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1,{len(lines)} @@\n"
    return (head + "".join(f"+{line}\n" for line in lines)).encode()
