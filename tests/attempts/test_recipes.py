"""Recipes in their own sandbox: the registered command, on the decided tree, and nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from broker.engines.image_host import host_root_digest
from protocol import records
from tests.attempts.checkouts import FILES, change, survey
from tests.attempts.puppetry import Played
from tests.attempts.steps import Step, answer, complete, tool
from tests.stage.repositories import repository

pytestmark = pytest.mark.engine

#: What a recipe can find out about where it runs, as one JSON line.
LOOK = b"""
import json, os, socket, sys
found = {
    "argv": sys.argv[1:],
    "stdin": sys.stdin.read(),
    "files": sorted(os.path.join(d, f)[2:] for d, _, fs in os.walk(".") for f in fs),
    "value": open("value.txt").read(),
    "uid": os.getuid(),
    "cwd": os.getcwd(),
    "interfaces": [line.split(":")[0].strip() for line in open("/proc/net/dev") if ":" in line],
    "mounts": open("/proc/self/mountinfo").read(),
    "env": sorted(os.environ),
}
try:
    socket.create_connection(("192.0.2.1", 80), 0.5)
    found["network"] = True
except OSError:
    found["network"] = False
open("value.txt", "w").write("mine")
open("left.txt", "w").write("left")
print(json.dumps(found))
"""


def catalog(*recipes: dict[str, Any]) -> bytes:
    return json.dumps({"version": 1, "recipes": list(recipes)}).encode()


def with_recipes(folder: Path, *recipes: dict[str, Any], **files: bytes) -> Path:
    return repository(
        folder, {**FILES, "look.py": LOOK, "airlock.recipes.json": catalog(*recipes), **files}
    )


def run(*names: str) -> list[Step]:
    steps: list[Step] = []
    for number, name in enumerate(names):
        steps += [tool(f"c{number}", "run_recipe", recipeId=name), answer(f"c{number}")]
    return [*steps, complete()]


async def test_a_recipe_sees_the_decided_tree_and_nothing_of_the_host(
    puppet: Any, tmp_path: Path
) -> None:
    argv = ["$(id)", "`id`", "a b", "; rm -rf /", "*", "", "\\", "--"]
    argv = [word for word in argv if word]
    repo = with_recipes(tmp_path / "repo", {"id": "look", "command": ["python3", "look.py", *argv]})
    before = survey(repo)

    steps = [
        tool("p", "apply_patch", patch=change("value.txt", "1", "2")),
        *run("look", "look")[:-1],
        complete(),
    ]
    played: Played = await puppet(steps, repo=repo)

    assert survey(repo) == before
    runs = [played.answer(name)["result"] for name in ("c0", "c1")]
    assert [each["status"] for each in runs] == ["passed", "passed"]
    tree = played.answer("p")["result"]["sourceDigest"]
    assert {each["sourceDigest"] for each in runs} == {tree}
    for each in runs:  # the second run does not see what the first one did
        found = json.loads(each["stdout"])
        assert found["argv"] == argv
        assert found["stdin"] == ""
        assert found["value"] == "2\n"
        assert found["files"] == sorted([*FILES, "look.py", "airlock.recipes.json"])
        assert found["uid"] != 0
        assert found["cwd"] == "/work"
        assert found["interfaces"] == ["lo"]
        assert found["network"] is False
        assert str(repo) not in found["mounts"]
        own = {"HOME", "LANG", "PATH", "PYTHONDONTWRITEBYTECODE", "TMPDIR"}
        assert own <= set(found["env"]) <= own | {"LC_CTYPE", "PWD"}
    assert played.document["candidate"]["treeDigest"] == tree
    assert played.document["recipes"][0]["sourceDigest"] == tree


async def test_each_way_that_a_recipe_can_end(puppet: Any, tmp_path: Path) -> None:
    repo = with_recipes(
        tmp_path / "repo",
        {"id": "passes", "command": ["true"]},
        {"id": "fails", "command": ["sh", "-c", "echo out; echo err >&2; exit 7"]},
        {"id": "dies", "command": ["sh", "-c", "kill -9 $$"]},
        {"id": "sleeps", "command": ["sleep", "60"], "timeoutMs": 400},
        {"id": "resists", "command": ["sh", "-c", "trap '' TERM; sleep 60"], "timeoutMs": 400},
        {"id": "prints", "command": ["sh", "-c", "yes"]},
        {"id": "absent", "command": ["no-such-program-anywhere"]},
    )

    played: Played = await puppet(
        run("passes", "fails", "dies", "sleeps", "resists", "prints", "absent"), repo=repo
    )

    assert played.result.outcome == "succeeded"
    results = [played.answer(f"c{number}").get("result", {}) for number in range(6)]
    assert [each["status"] for each in results] == [
        "passed",
        "failed",
        "failed",
        "timed_out",
        "timed_out",
        "output_limited",
    ]
    assert [each.get("exitCode") for each in results[:2]] == [0, 7]
    assert (results[1]["stdout"], results[1]["stderr"]) == ("out\n", "err\n")
    assert all(each.get("exitCode") is None for each in results[3:])
    assert 400 <= results[3]["durationMs"] < 5000
    # A command that did not start is an error, not a failed recipe.
    absent = played.answer("c6")
    assert absent["ok"] is False
    assert absent["error"]["code"] == "engine_unavailable"
    assert [each.status for each in played.of(records.EffectFinished)] == ["done"] * 6 + ["failed"]
    assert len(played.of(records.RecipeFinished)) == 6


async def test_the_bound_on_output_is_exact(puppet: Any, tmp_path: Path) -> None:
    """Both streams together, to the byte, whatever the bytes are."""
    write = "import os,sys; os.write(1, bytes([int(sys.argv[1])]) * int(sys.argv[2]))"

    def recipe(name: str, byte: int, size: int, limit: int) -> dict[str, Any]:
        return {
            "id": name,
            "image": "host@" + digest,
            "command": ["python3", "-c", write, str(byte), str(size)],
            "timeoutMs": 20000,
            "maxOutputBytes": limit,
        }

    digest = await trio.to_thread.run_sync(host_root_digest)
    repo = repository(tmp_path / "repo", dict(FILES))
    host = json.dumps(
        {
            "recipeAuthorization": "registered_recipe",
            "recipes": [
                recipe("exact", 65, 1000, 1000),
                recipe("over", 65, 1001, 1000),
                recipe("nuls", 0, 2 * 2**20, 4 * 2**20),
                recipe("bytes", 255, 2000, 4000),
            ],
        }
    ).encode()

    played: Played = await puppet(
        run("exact", "over", "nuls", "bytes"), repo=repo, host_catalog=host
    )

    exact, over, nuls, other = (played.answer(f"c{number}") for number in range(4))
    assert exact["result"]["status"] == "passed"
    assert exact["result"]["stdout"] == "A" * 1000
    assert over["result"]["status"] == "output_limited"
    assert over["result"]["stdout"] == "A" * 1000
    # An answer always fits its frame; the artifact has all of it.
    assert nuls["result"]["status"] == "passed"
    assert nuls["truncated"] == [{"field": "stdout", "totalBytes": 2 * 2**20}]
    assert set(nuls["result"]["stdout"]) == {"\0"}
    sizes = {path.stat().st_size for path in (played.out / "artifacts/recipe_stdout").iterdir()}
    assert sizes == {1000, 2 * 2**20, 2000}
    assert other["result"]["stdout"] == "\ufffd" * 2000


async def test_a_denied_recipe_does_not_run(puppet: Any, tmp_path: Path) -> None:
    repo = with_recipes(tmp_path / "repo", {"id": "passes", "command": ["true"]})

    played: Played = await puppet(run("passes"), repo=repo, approve="ask")

    denied = played.answer("c0")
    assert denied["error"]["code"] == "approval_denied"
    assert played.document["recipes"] == []
    assert played.document["decisions"]["requireApproval"] == 1
    assert played.of(records.EffectStarted) == []
    assert [each.reason for each in played.of(records.ApprovalDenied)] == ["approval_denied"]


async def test_the_catalog_comes_from_the_trusted_base_and_a_patch_cannot_change_it(
    puppet: Any, tmp_path: Path
) -> None:
    """Neither a change in the working tree nor one by the agent is a recipe."""
    repo = with_recipes(tmp_path / "repo", {"id": "passes", "command": ["true"]})
    (repo / "airlock.recipes.json").write_bytes(catalog({"id": "evil", "command": ["true"]}))
    patch = (
        "diff --git a/airlock.recipes.json b/airlock.recipes.json\n"
        "--- a/airlock.recipes.json\n+++ b/airlock.recipes.json\n@@ -1 +1 @@\n"
        '-{"version": 1, "recipes": [{"id": "evil", "command": ["true"]}]}\n'
        "\\ No newline at end of file\n"
        '+{"version": 1, "recipes": [{"id": "worse", "command": ["true"]}]}\n'
    )

    played: Played = await puppet(
        [tool("p", "apply_patch", patch=patch), *run("evil", "worse", "passes")], repo=repo
    )

    assert played.answer("p")["ok"]
    assert played.answer("c0")["error"]["code"] == "recipe_unknown"
    assert played.answer("c1")["error"]["code"] == "recipe_unknown"
    assert played.answer("c2")["result"]["status"] == "passed"
    assert played.document["recipeCatalog"] == "repository"
