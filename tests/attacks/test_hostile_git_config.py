"""Every setting by which a checkout can name a program to git: none of them runs one.

Each trap is shown to be live: stock git does run the program. Before that, the checkout is
staged (working tree, commit), compared, patched, judged for landing and landed on, and in
the last test given to a whole attempt of the fixture agent and to ``airlock apply``.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from broker.evidence.verification import VerifiedLedger, verify_ledger
from broker.stage.diff import make_patch
from broker.stage.landing import check_landing, land
from broker.stage.snapshot import stage_checkout
from protocol.errors import Refusal
from tests.cli.conftest import RUNNER
from tests.engine_presence import require
from tests.stage.patches import patched
from tests.stage.repositories import ENVIRONMENT, git, repository, write

ROOT = Path(__file__).parents[2]
FILES = {"a.txt": b"one\n", "data.evil": b"data\n", "sub/b.txt": b"b\n"}
PATCH = b"--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-mine\n+theirs\n"


@dataclass(frozen=True)
class Place:
    """A checkout with a trap, and what stands around it."""

    repo: Path
    program: Path
    marker: Path

    @property
    def around(self) -> Path:
        return self.repo.parent

    def configure(self, text: str, file: str = ".git/config") -> None:
        """Adds settings; ``{program}`` and ``{around}`` are replaced."""
        path = self.repo / file
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as config:
            config.write(text.format(program=self.program, around=self.around) + "\n")

    def run_git(self, *arguments: str) -> None:
        """Stock git as a person would start it here; whether it succeeds does not matter."""
        subprocess.run(
            ["git", *arguments],
            cwd=self.repo, env=ENVIRONMENT | {"HOME": str(self.around)},
            input=b"protocol=https\nhost=a.invalid\n\n", capture_output=True, check=False,
            timeout=60,
        )  # fmt: skip


def place(folder: Path) -> Place:
    marker, program = folder / "marker", folder / "program"
    program.write_text(f"#!/bin/sh\ntouch {marker}\n")
    program.chmod(0o755)
    repo = repository(folder / "repo", FILES)
    return Place(repo=repo, program=program, marker=marker)


def hook(name: str) -> Callable[[Place], None]:
    def spring(place: Place) -> None:
        (place.repo / ".git/hooks").mkdir(exist_ok=True)
        (place.repo / ".git/hooks" / name).symlink_to(place.program)

    return spring


def hooks_path(place: Place) -> None:
    (place.around / "hooks").mkdir()
    for name in ("pre-commit", "post-checkout", "post-index-change", "reference-transaction"):
        (place.around / "hooks" / name).symlink_to(place.program)
    place.configure("[core]\n hooksPath = {around}/hooks")


def setting(text: str, *, attributes: str = "", at: str = ".gitattributes") -> Any:
    def spring(place: Place) -> None:
        place.configure(text)
        if attributes:
            place.configure(attributes, at)

    return spring


def included(place: Place) -> None:
    place.configure("[core]\n fsmonitor = {program}", "../included")
    place.configure("[include]\n path = {around}/included")


def included_if(place: Place) -> None:
    place.configure("[core]\n fsmonitor = {program}", "../included")
    place.configure('[includeIf "gitdir:{around}/"]\n path = {around}/included')


def included_from_the_tree(place: Place) -> None:
    place.configure("[core]\n fsmonitor = {program}", "settings/git")
    place.configure("[include]\n path = ../settings/git")


def worktree_settings(place: Place) -> None:
    place.configure("[core]\n repositoryformatversion = 1\n[extensions]\n worktreeConfig = true")
    place.configure("[core]\n fsmonitor = {program}", ".git/config.worktree")


def attributes_file(place: Place) -> None:
    place.configure("* filter=evil", "../attributes")
    place.configure(
        '[core]\n attributesFile = {around}/attributes\n[filter "evil"]\n clean = {program}'
    )


def promisor(place: Place) -> None:
    """A blob is missing, and to fetch it means to run a program."""
    place.configure(
        '[core]\n repositoryformatversion = 1\n[extensions]\n partialClone = evil\n'
        '[remote "evil"]\n url = ext::{program}\n promisor = true\n'
        '[protocol "ext"]\n allow = always'
    )  # fmt: skip
    missing = git(place.repo, "rev-parse", "HEAD:sub/b.txt").strip()
    (place.repo / ".git/objects" / missing[:2] / missing[2:]).unlink()


def submodule(place: Place) -> None:
    """A submodule that is not at its commit, and to bring it there means to run a program."""
    repository(place.repo / "module", {"m.txt": b"m\n"})
    git(place.repo, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},module")
    place.configure('[submodule "m"]\n path = module\n url = ./module', ".gitmodules")
    place.configure('[submodule "m"]\n url = ./module\n update = !{program}')


_EVIL = "* filter=evil diff=evil merge=evil"
#: What sets the trap, and what stock git does to spring it.
TRAPS: dict[str, tuple[Callable[[Place], None], tuple[str, ...]]] = {
    "fsmonitor": (setting("[core]\n fsmonitor = {program}"), ("status",)),
    "fsmonitor of an included file": (included, ("status",)),
    "fsmonitor of a conditional file": (included_if, ("status",)),
    "fsmonitor of a tracked file": (included_from_the_tree, ("status",)),
    "fsmonitor of the worktree": (worktree_settings, ("status",)),
    "hooks path": (hooks_path, ("commit", "--allow-empty", "-m", "x")),
    "pre-commit": (hook("pre-commit"), ("commit", "--allow-empty", "-m", "x")),
    "post-checkout": (hook("post-checkout"), ("checkout", "-q", "HEAD")),
    "post-index-change": (hook("post-index-change"), ("add", "a.txt")),
    "reference-transaction": (hook("reference-transaction"), ("update-ref", "refs/x", "HEAD")),
    "clean": (setting('[filter "evil"]\n clean = {program}', attributes=_EVIL), ("add", "-A")),
    "smudge": (
        setting('[filter "evil"]\n smudge = {program}', attributes=_EVIL),
        ("checkout-index", "-f", "-a"),
    ),
    "process": (setting('[filter "evil"]\n process = {program}', attributes=_EVIL), ("add", "-A")),
    "clean by local attributes": (
        setting('[filter "evil"]\n clean = {program}', attributes=_EVIL, at=".git/info/attributes"),
        ("add", "-A"),
    ),
    "clean by an attributes file": (attributes_file, ("add", "-A")),
    "external diff": (setting("[diff]\n external = {program}"), ("diff",)),
    "diff command": (setting('[diff "evil"]\n command = {program}', attributes=_EVIL), ("diff",)),
    "textconv": (setting('[diff "evil"]\n textconv = {program}', attributes=_EVIL), ("diff",)),
    "editor": (setting("[core]\n editor = {program}"), ("commit", "--allow-empty")),
    "credential helper": (setting("[credential]\n helper = {program}"), ("credential", "fill")),
    "ssh": (setting("[core]\n sshCommand = {program}"), ("ls-remote", "ssh://a.invalid/x")),
    "proxy": (setting("[core]\n gitProxy = {program}"), ("ls-remote", "git://a.invalid/x")),
    "alias": (setting("[alias]\n evil = !{program}"), ("evil",)),
    "remote": (
        setting(
            '[remote "evil"]\n url = ext::{program}\n[protocol "ext"]\n allow = always\n'
            '[branch "main"]\n remote = evil\n merge = refs/heads/main'
        ),
        ("fetch", "evil"),
    ),
    "promisor": (promisor, ("cat-file", "-p", "HEAD:sub/b.txt")),
    "submodule": (submodule, ("submodule", "update", "--no-fetch")),
    "trailer": (
        setting('[trailer "t"]\n key = T\n ifmissing = add\n cmd = {program}'),
        ("interpret-trailers", "--trailer", "t=x"),
    ),
    "signing": (setting("[gpg]\n program = {program}"), ("commit", "-S", "--allow-empty", "-mx")),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_stock_git_runs_it_and_we_do_not(tmp_path: Path, trap: str) -> None:
    there = place(tmp_path)
    set_trap, spring = TRAPS[trap]
    set_trap(there)
    # Two local changes: what git would clean, diff and refresh.
    write(there.repo, {"a.txt": b"mine\n", "new.evil": b"new\n"})
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    if trap == "promisor":
        with pytest.raises(Refusal) as refused:
            stage_checkout(there.repo, scratch=scratch)
        assert refused.value.code == "checkout_partial"
    else:
        _use(there, scratch)

    assert not there.marker.exists()
    there.run_git(*spring)
    assert there.marker.exists(), "the trap is not one"


def _use(there: Place, scratch: Path) -> None:
    for ref in ("HEAD", "main", git_head(there.repo)):
        of_commit = stage_checkout(there.repo, scratch=scratch, ref=ref)
        assert of_commit.tree.read("a.txt") == b"one\n"
        of_commit.tree.store.close()
    staged = stage_checkout(there.repo, scratch=scratch)
    try:
        assert staged.tree.read("a.txt") == b"mine\n"
        assert staged.tree.read("new.evil") == b"new\n"
        assert b"+mine" in make_patch(staged.base_tree, staged.tree)
        after = patched(staged.tree, PATCH)
        assert b"+theirs" in make_patch(staged.tree, after)
        assert check_landing(there.repo, staged.tree, after) == ("a.txt",)
        assert land(there.repo, staged.tree, after) == ("a.txt",)
    finally:
        staged.tree.store.close()
    assert (there.repo / "a.txt").read_bytes() == b"theirs\n"


def git_head(repo: Path) -> str:
    """The commit of HEAD, read without git, which would spring some of the traps."""
    return (repo / ".git/refs/heads/main").read_text().strip()


#: Those that a checkout can have all at once and still be one that is staged.
TOGETHER = [
    # The first one needs git to be set, which would spring others.
    "submodule",
    *(name for name in TRAPS if name not in ("promisor", "fsmonitor of the worktree", "submodule")),
]


@pytest.mark.engine
def test_a_whole_attempt_and_its_landing_run_none_of_them(tmp_path: Path, state: Path) -> None:
    require("bubblewrap")
    files = {
        path.relative_to(ROOT / "containers/demo").as_posix(): path.read_bytes()
        for path in (ROOT / "containers/demo").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    there = place(tmp_path)
    shutil.rmtree(there.repo)
    repository(there.repo, files)
    for name in TOGETHER:
        with suppress(FileExistsError):
            TRAPS[name][0](there)
    out = tmp_path / "out"

    def airlock(*arguments: str | Path) -> Any:
        done = subprocess.run(
            [sys.executable, "-c", RUNNER, str(state), *map(str, arguments)],
            env={"PATH": os.environ["PATH"], "HOME": str(state), "LANG": "C.UTF-8"},
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert not there.marker.exists(), arguments
        return json.loads(done.stdout)

    airlock("stage", there.repo, "--json")
    airlock("stage", there.repo, "--ref", "HEAD", "--json")
    document = airlock(
        "run", "--repo", there.repo, "--task", "The tests fail: no_cent_is_lost. Repair it.",
        "--agent", "fixture", "--inference",
        f"scripted:{ROOT / 'containers/demo-inference.jsonl'}", "--out", out, "--json",
    )  # fmt: skip
    assert document["outcome"] == "succeeded"
    assert [run["status"] for run in document["recipes"]] == ["failed", "passed"]
    assert document["candidate"]["verified"] is True
    airlock("stage", there.repo, "--patch", out / "agent.diff", "--json")
    airlock("apply", out, "--dry-run", "--json")
    airlock("apply", out, "--json")
    assert isinstance(verify_ledger(out / "ledger"), VerifiedLedger)
    assert b"divmod" in (there.repo / "tally/split.py").read_bytes()
    assert not there.marker.exists()
    there.run_git("status")
    assert there.marker.exists()
