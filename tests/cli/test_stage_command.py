"""``airlock stage``: what would be staged, why the rest is not, what a patch would do."""

import hashlib
import json
from pathlib import Path

import pytest

from tests.cli.conftest import Airlock
from tests.stage.repositories import git, judged_digest, repository, write

FILES = {"README.md": b"one\ntwo\n", "src/a.py": b"print(1)\n"}
PATCH = b"""diff --git a/README.md b/README.md
--- a/README.md
+++ b/README.md
@@ -1,2 +1,2 @@
 one
-two
+three
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = repository(tmp_path / "checkout", FILES)
    write(folder, {".env": b"TOKEN=1\n", "new.txt": b"new\n"})
    (folder / "link").symlink_to("/etc/passwd")
    return folder


def survey(folder: Path) -> str:
    hasher = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        found = path.lstat()
        hasher.update(f"{path}{found.st_mode}{found.st_mtime_ns}{found.st_ino}".encode())
        if path.is_file() and not path.is_symlink():
            hasher.update(path.read_bytes())
    return hasher.hexdigest()


def test_it_names_the_tree_that_git_names_and_why_the_rest_is_not_there(
    airlock: Airlock, checkout: Path, tmp_path: Path
) -> None:
    before = survey(checkout)

    done = airlock("stage", checkout, "--json")

    staged = {path: (0o100644, data) for path, data in FILES.items()}
    staged["new.txt"] = (0o100644, b"new\n")
    assert done.code == 0
    assert done.document["treeDigest"] == judged_digest(staged, tmp_path / "judge")
    assert done.document["files"] == 3
    assert done.document["bytes"] == sum(len(data) for _, data in staged.values())
    assert done.document["excluded"] == [
        {"path": ".env", "reason": "environment_file"},
        {"path": "link", "reason": "symlink"},
    ]
    assert survey(checkout) == before


def test_it_says_the_same_to_a_person(airlock: Airlock, checkout: Path) -> None:
    done = airlock("stage", checkout)

    assert done.code == 0
    assert "environment_file  .env" in done.out
    assert "symlink: 1" in done.out


def test_a_patch_is_judged_and_nothing_is_changed(
    airlock: Airlock, checkout: Path, tmp_path: Path
) -> None:
    (tmp_path / "p.diff").write_bytes(PATCH)
    before = survey(checkout)

    done = airlock("stage", checkout, "--patch", tmp_path / "p.diff", "--json")

    staged = {path: (0o100644, data) for path, data in FILES.items()}
    staged |= {"new.txt": (0o100644, b"new\n"), "README.md": (0o100644, b"one\nthree\n")}
    assert done.code == 0
    assert done.document["candidate"] == {
        "treeDigest": judged_digest(staged, tmp_path / "judge"),
        "changed": [{"path": "README.md", "change": "modified"}],
    }
    assert survey(checkout) == before


@pytest.mark.parametrize(
    ("patch", "refusal"),
    [
        (PATCH.replace(b" one", b" uno"), {"code": "patch_conflict", "file": 0, "hunk": 0}),
        (b"prose only\n", {"code": "patch_malformed", "file": 0, "hunk": None}),
        (
            PATCH.replace(b"README.md", b".env"),
            {"code": "patch_path_secret", "file": 0, "hunk": None},
        ),
    ],
)
def test_a_refused_patch_has_code_place_and_exit_65(
    airlock: Airlock, checkout: Path, tmp_path: Path, patch: bytes, refusal: dict[str, object]
) -> None:
    (tmp_path / "p.diff").write_bytes(patch)

    done = airlock("stage", checkout, "--patch", tmp_path / "p.diff", "--json")

    assert done.code == 65
    assert done.document["refusal"] == refusal
    assert "candidate" not in done.document


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("stage",), 64, "usage"),
        (("stage", "{here}/absent"), 65, "not_a_directory"),
        (("stage", "{here}"), 65, "not_a_checkout"),
        (("stage", "{here}/checkout", "--ref", "nope"), 65, "ref_not_found"),
        (("stage", "{here}/checkout", "--patch", "{here}/absent"), 65, "file_not_found"),
        (("stage", "{here}/checkout", "--nope"), 64, "usage"),
        (("nope",), 64, "usage"),
        ((), 64, "usage"),
    ],
)
def test_bad_input_has_a_closed_code(
    airlock: Airlock,
    checkout: Path,
    tmp_path: Path,
    arguments: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    done = airlock(*(argument.format(here=tmp_path) for argument in arguments))

    assert done.code == code
    assert f"[{said}]" in done.err
    assert done.out == ""
    assert "Traceback" not in done.err


def test_a_name_cannot_steer_the_terminal(airlock: Airlock, tmp_path: Path) -> None:
    folder = repository(tmp_path / "odd", FILES)
    write(folder, {"\x1b[31mred": b"x\n"})

    for arguments in (("stage", folder), ("stage", folder, "--json"), ("stage", "\x1b[31m")):
        done = airlock(*arguments)
        assert "\x1b" not in done.out
        assert "\x1b" not in done.err


def test_a_ref_is_staged_without_the_working_tree(airlock: Airlock, checkout: Path) -> None:
    commit = git(checkout, "rev-parse", "HEAD").strip()

    done = airlock("stage", checkout, "--ref", commit, "--json")

    assert done.document["files"] == 2
    assert done.document["base"]["commit"] == commit
    assert json.dumps(done.document).count(".env") == 0
