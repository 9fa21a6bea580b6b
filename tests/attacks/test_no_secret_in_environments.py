"""Neither the broker's own environment nor a checkout's file of values reaches a sandbox."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.attempts.checkouts import FILES, checkout
from tests.attempts.steps import answer, complete, do, tool
from tests.stage.repositories import write

pytestmark = pytest.mark.engine

CANARY = "CanaryOfTheEnvironment7x9Q"
RECIPES = (
    b'{"version":1,"recipes":[{"id":"env","command":'
    b'["sh","-c","env; cat /proc/self/environ; ls -a; cat .env"],"timeoutMs":20000}]}'
)


async def test_no_value_of_either_is_seen_inside(
    puppet: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = checkout(tmp_path / "repo", {**FILES, "airlock.recipes.json": RECIPES})
    write(repo, {".env": f"SECRET={CANARY}-file\n".encode()})
    for name in ("AIRLOCK_SECRET", "GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "PYTHONPATH", "LD_X"):
        monkeypatch.setenv(name, f"{CANARY}-{name}")
    steps = [
        do("probe"),
        tool("c", "run_recipe", recipeId="env"),
        answer("c"),
        complete(),
    ]

    played = await puppet(steps, repo=repo)

    result = played.answer("c")["result"]
    assert "PATH=" in result["stdout"]
    assert "value.txt" in result["stdout"]
    (probe,) = played.said("probe")
    assert "AIRLOCK_SECRET" not in json.loads(probe)["env"]
    for path in played.out.rglob("*"):
        if path.is_file():
            assert CANARY.encode() not in path.read_bytes(), path
