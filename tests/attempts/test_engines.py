"""The same attempt under each engine: the same answers, the same candidate."""

from pathlib import Path
from typing import Any

import pytest

from broker.engines.selection import EngineUnavailable, open_engine, verify_engine
from protocol import records
from tests.attempts.checkouts import FILES, RECIPES, change, creation
from tests.attempts.puppetry import Played
from tests.attempts.steps import answer, complete, read, tool
from tests.engine_presence import require
from tests.stage.repositories import judged_digest

pytestmark = pytest.mark.engine

STEPS = [
    read("r1", "value.txt"),
    tool("c1", "run_recipe", recipeId="check"),
    answer("c1"),
    tool("p1", "apply_patch", patch=change("value.txt", "1", "2")),
    tool("p2", "apply_patch", patch=creation("new.txt", "new")),
    read("r2", "value.txt"),
    tool("c2", "run_recipe", recipeId="check"),
    answer("c2"),
    complete(summary="done"),
]


@pytest.mark.parametrize("name", ["bubblewrap", "podman"])
async def test_an_attempt_gives_the_same_under_every_engine(
    puppet: Any, tmp_path: Path, name: str
) -> None:
    require(name)
    try:
        engine = await open_engine(name, state=puppet.keywords["state"])  # type: ignore[arg-type]
        await verify_engine(engine)
    except EngineUnavailable as unavailable:
        if name == "bubblewrap":
            raise
        pytest.skip(f"{name} is not usable here: {unavailable.reasons}")

    played: Played = await puppet(STEPS, engine=name)

    assert played.result.outcome == "succeeded"
    assert played.result.exit_code == 0
    assert played.answer("r1")["result"]["text"] == "1\n"
    assert played.answer("r2")["result"]["text"] == "2\n"
    assert [(each["status"], each["exitCode"]) for each in played.document["recipes"]] == [
        ("failed", 1),
        ("passed", 0),
    ]
    assert played.answer("c2")["result"]["stdout"] == "2\n"
    assert played.document["engine"]["name"] == name
    (started,) = played.of(records.AttemptStarted)
    assert started.engine == name
    files = {**FILES, "airlock.recipes.json": RECIPES, "value.txt": b"2\n", "new.txt": b"new\n"}
    judged = judged_digest(
        {path: (0o100644, data) for path, data in files.items()}, tmp_path / "judged"
    )
    assert played.document["candidate"] == {"treeDigest": judged, "verified": True}
