"""A checkout may name programs to git in many places; an attempt on it runs none of them."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.attempts.checkouts import FILES, change, checkout, survey
from tests.attempts.steps import answer, complete, tool
from tests.stage.repositories import git, write

pytestmark = pytest.mark.engine

CONFIG = """
[core]
    fsmonitor = {program}
    hooksPath = {hooks}
    sshCommand = {program}
    gitProxy = {program}
    pager = {program}
    editor = {program}
    attributesFile = {attributes}
[filter "evil"]
    clean = {program}
    smudge = {program}
    process = {program}
    required = true
[diff]
    external = {program}
[diff "evil"]
    command = {program}
    textconv = {program}
[merge "evil"]
    driver = {program}
[gpg]
    program = {program}
[credential]
    helper = {program}
[include]
    path = {included}
[uploadpack]
    packObjectsHook = {program}
[submodule "evil"]
    update = !{program}
"""


def hostile(folder: Path, marker: Path) -> Path:
    """A checkout that runs ``program`` wherever git lets a checkout say so."""
    repo = checkout(folder, {**FILES, "data.evil": b"data\n", ".gitattributes": b"*.evil -diff\n"})
    program = folder.parent / "program"
    program.write_text(f"#!/bin/sh\ntouch {marker}\ncat\n")
    program.chmod(0o755)
    hooks = folder.parent / "hooks"
    hooks.mkdir()
    for name in ("post-checkout", "pre-commit", "post-index-change", "reference-transaction"):
        (hooks / name).symlink_to(program)
        (repo / ".git/hooks" / name).parent.mkdir(exist_ok=True)
        (repo / ".git/hooks" / name).symlink_to(program)
    attributes = folder.parent / "attributes"
    attributes.write_text("* filter=evil diff=evil merge=evil\n")
    included = folder.parent / "included"
    included.write_text(f"[core]\n    fsmonitor = {program}\n")
    with (repo / ".git/config").open("a") as config:
        config.write(
            CONFIG.format(program=program, hooks=hooks, attributes=attributes, included=included)
        )
    write(repo, {".gitattributes": b"* filter=evil diff=evil merge=evil\n", "lines.txt": b"mine\n"})
    return repo


async def test_no_program_that_a_checkout_names_is_run(puppet: Any, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    repo = hostile(tmp_path / "repo", marker)
    before = survey(tmp_path)
    steps = [
        tool("p", "apply_patch", patch=change("value.txt", "1", "2")),
        tool("c", "run_recipe", recipeId="check"),
        answer("c"),
        complete(),
    ]

    played = await puppet(steps, repo=repo)

    assert not marker.exists()
    assert played.result.outcome == "succeeded"
    assert played.answer("p")["ok"]
    assert played.answer("c")["result"]["status"] == "passed"
    after = survey(tmp_path)
    assert {path: seen for path, seen in after.items() if path in before and path != "."} == {
        path: seen for path, seen in before.items() if path != "."
    }
    # The trap works: stock git does run it.
    subprocess.run(["git", "status"], cwd=repo, capture_output=True, check=False)
    assert marker.exists()


async def test_links_and_special_files_of_a_checkout_lead_nowhere(
    puppet: Any, tmp_path: Path
) -> None:
    repo = checkout(tmp_path / "repo")
    secret = tmp_path / "secret.txt"
    secret.write_text("canary-of-the-host")
    (repo / "link.txt").symlink_to(secret)
    (repo / "folder").symlink_to(tmp_path)
    (repo / "loop").symlink_to("loop")
    os.mkfifo(repo / "fifo")
    os.link(secret, repo / "hard.pem")
    git(repo, "add", "link.txt", "folder", "loop")
    steps = [
        tool("l", "list_files"),
        *(
            tool(f"r{number}", "read_file", path=path)
            for number, path in enumerate(
                ("link.txt", "folder/secret.txt", "loop", "fifo", "hard.pem", "folder")
            )
        ),
        tool("s", "search_files", query="canary"),
        answer("s"),
        complete(),
    ]

    played = await puppet(steps, repo=repo)

    listed = {each["path"] for each in played.answer("l")["result"]["files"]}
    assert listed == {*FILES, "airlock.recipes.json"}
    for number in range(6):
        assert played.answer(f"r{number}")["error"]["code"] == "not_found"
    assert played.answer("s")["result"]["matches"] == []
    assert "canary" not in json.dumps(played.seen)
