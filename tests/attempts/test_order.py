"""protocol.md 3.5: effects on the tree happen in admission order, and nothing is mixed up."""

import random
from pathlib import Path

import pytest
import trio.testing

from protocol import records
from tests.attempts.bench import as_line, conversing
from tests.attempts.checkouts import FILES, change, creation
from tests.attempts.steps import complete, read, tool


def patch(request_id: str, before: int, after: int) -> dict[str, object]:
    return tool(request_id, "apply_patch", patch=change("value.txt", str(before), str(after)))


async def test_a_read_admitted_after_a_patch_sees_it(tmp_path: Path) -> None:
    async with conversing(tmp_path / "a") as (_, agent):
        agent.send(read("r1", "value.txt"), patch("p1", 1, 2), read("r2", "value.txt"))
        await agent.answer("r2")
        agent.send(complete())

    finals = agent.finals()
    assert finals["r1"][0]["result"]["text"] == "1\n"
    assert finals["p1"][0]["ok"]
    assert finals["r2"][0]["result"]["text"] == "2\n"


async def test_a_listing_and_a_search_admitted_after_a_patch_see_it(tmp_path: Path) -> None:
    async with conversing(tmp_path / "a") as (_, agent):
        agent.send(
            tool("p1", "apply_patch", patch=creation("new/file.txt", "needle")),
            tool("l1", "list_files", prefix="new/"),
            tool("s1", "search_files", query="needle"),
        )
        await agent.answer("s1")
        agent.send(complete())

    finals = agent.finals()
    assert [each["path"] for each in finals["l1"][0]["result"]["files"]] == ["new/file.txt"]
    assert [each["path"] for each in finals["s1"][0]["result"]["matches"]] == ["new/file.txt"]


async def test_pipelined_patches_apply_in_order_each_on_the_one_before(tmp_path: Path) -> None:
    async with conversing(tmp_path / "a") as (bench, agent):
        agent.send(*(patch(f"p{number}", number, number + 1) for number in range(1, 13)))
        await agent.answer("p12")
        agent.send(complete())

    assert all(final[0]["ok"] for final in agent.finals().values())
    assert bench.world.gate.tree.read("value.txt") == b"13\n"
    ends = [each for each in bench.ledger if isinstance(each, records.EffectFinished)]
    assert [each.after_digest for each in ends[:-1]] == [each.before_digest for each in ends[1:]]


async def test_a_recipe_runs_on_the_tree_at_its_admission(tmp_path: Path) -> None:
    """A patch that was admitted later is applied while the recipe still runs."""
    async with conversing(tmp_path / "a", hold=True) as (bench, agent):
        agent.send(patch("p1", 1, 2), tool("c1", "run_recipe", recipeId="check"), patch("p2", 2, 3))
        await agent.answer("p2")
        assert "c1" not in agent.finals()
        assert bench.engine.hold is not None
        bench.engine.hold.set()
        final = await agent.answer("c1")
        agent.send(complete())

    source = agent.finals()["p1"][0]["result"]["sourceDigest"]
    assert final["result"]["stdout"] == "2\n"
    assert final["result"]["sourceDigest"] == source
    assert bench.engine.runs == [{**FILES, "value.txt": b"2\n"}]


async def test_a_patch_that_fails_holds_nothing_up(tmp_path: Path) -> None:
    async with conversing(tmp_path / "a") as (_, agent):
        agent.send(
            patch("p1", 7, 8),
            tool("p2", "apply_patch", patch="no patch"),
            tool("p3", "apply_patch", input="wrong"),
            patch("p4", 1, 2),
            read("r1", "value.txt"),
        )
        await agent.answer("r1")
        agent.send(complete())

    finals = agent.finals()
    assert [finals[name][0]["ok"] for name in ("p1", "p2", "p3", "p4")] == [
        False,
        False,
        False,
        True,
    ]
    assert finals["p1"][0]["error"]["code"] == "patch_conflict"
    assert finals["p2"][0]["error"]["code"] == "patch_malformed"
    assert finals["p3"][0]["error"]["code"] == "invalid_input"
    assert finals["r1"][0]["result"]["text"] == "2\n"


async def test_a_stale_base_digest_is_source_changed_and_no_effect(tmp_path: Path) -> None:
    async with conversing(tmp_path / "a") as (bench, agent):
        base = bench.world.gate.tree.digest
        agent.send(
            tool("p1", "apply_patch", patch=change("value.txt", "1", "2"), baseDigest=base),
            tool("p2", "apply_patch", patch=change("value.txt", "2", "3"), baseDigest=base),
            tool("c1", "run_recipe", recipeId="check", expectedSourceDigest=base),
        )
        await agent.answer("c1")
        agent.send(complete())

    finals = agent.finals()
    assert finals["p1"][0]["ok"]
    for name in ("p2", "c1"):
        assert finals[name][0]["error"]["code"] == "source_changed"
    assert bench.engine.runs == []
    assert bench.world.gate.tree.read("value.txt") == b"2\n"


@pytest.mark.parametrize("seed", range(12))
async def test_any_sequence_is_as_if_one_after_the_other(tmp_path: Path, seed: int) -> None:
    """Against the simplest model: one number, and what it was when each request came."""
    chance = random.Random(seed)
    value, expected = 1, {}
    data = b""
    for number in range(14):
        name = f"q{number}"
        kind = chance.choice(("read", "read", "patch", "patch", "recipe", "bad patch"))
        if kind == "patch":
            step = patch(name, value, value + 1)
            value += 1
            expected[name] = None
        elif kind == "bad patch":
            step = patch(name, value + 5, value)
            expected[name] = None
        elif kind == "read":
            step = read(name, "value.txt")
            expected[name] = f"{value}\n"
        else:
            step = tool(name, "run_recipe", recipeId="check")
            expected[name] = f"{value}\n"
        data += as_line(step)

    async with conversing(tmp_path / "a") as (bench, agent):
        while data:
            size = chance.randrange(1, len(data) + 1) if chance.random() < 0.5 else len(data)
            agent.write(data[:size])
            data = data[size:]
            if chance.random() < 0.5:
                await trio.testing.wait_all_tasks_blocked()
        for name in expected:
            await agent.answer(name)
        agent.send(complete())

    finals = agent.finals()
    for name, text in expected.items():
        assert len(finals[name]) == 1
        if text is not None:
            result = finals[name][0]["result"]
            assert result.get("text", result.get("stdout")) == text
    assert bench.world.gate.tree.read("value.txt") == f"{value}\n".encode()
