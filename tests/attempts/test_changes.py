"""edit_file, write_file, delete_file and the dialects of apply_patch, through a whole gate."""

from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from broker.attempts.gate import EVALUATE
from broker.policy.decision import Decision
from broker.stage.store import blob_digest
from protocol import records
from tests.attempts.bench import Bench, conversing
from tests.attempts.checkouts import FILES, change
from tests.attempts.ledger_rules import assert_effects_follow_their_decisions
from tests.attempts.steps import Step, complete, read, tool

OTHER = "sha256:" + "0" * 64


def digest(data: bytes) -> str:
    return "sha256:" + blob_digest(data).hex()


def edit(name: str, path: str, *edits: dict[str, Any], of: bytes | None = None) -> Step:
    data = FILES[path] if of is None else of
    return tool(name, "edit_file", path=path, digest=digest(data), edits=list(edits))


async def asked(folder: Path, *steps: Step) -> tuple[Bench, dict[str, Any]]:
    """The final answers of ``steps``, one after the other, by request id."""
    async with conversing(folder / "a") as (bench, agent):
        for step in steps:
            agent.send(step)
            await agent.answer(step["frame"]["requestId"])
        agent.send(complete())
    assert_effects_follow_their_decisions(bench.ledger)
    return bench, {name: final[0] for name, final in agent.finals().items()}


async def test_every_form_changes_the_tree(tmp_path: Path) -> None:
    bench, finals = await asked(
        tmp_path,
        edit("e", "lines.txt", {"old": "line 3\n", "new": "LINE 3\r\n"}, {"old": "20", "new": "é"}),
        tool("w", "write_file", path="new/run", content="#!/bin/sh\n", executable=True),
        tool("v", "write_file", path="value.txt", content="2\n", digest=digest(b"1\n")),
        tool("b", "write_file", path="new/bin", encoding="base64",
             content=b64encode(b"\0\xff").decode()),
        tool("d", "delete_file", path="image.bin", digest=digest(FILES["image.bin"])),
        tool("p", "apply_patch", patch="*** Begin Patch\n*** Update File: README.md\n"
             "-# A small thing\n+# A thing\n*** End Patch"),
    )  # fmt: skip
    tree = bench.world.gate.tree
    lines = FILES["lines.txt"].replace(b"line 3\n", b"LINE 3\r\n").replace(b"20", "é".encode())
    assert {path: tree.read(path) for path in tree.paths if not path.startswith("air")} == {
        "README.md": b"# A thing\n", "value.txt": b"2\n", "lines.txt": lines,
        "tools/check": FILES["tools/check"], "new/run": b"#!/bin/sh\n", "new/bin": b"\0\xff",
    }  # fmt: skip
    made = tree.get("new/run")
    assert made is not None
    assert made.mode == 0o100755
    assert finals["e"]["result"]["changed"] == [
        {"path": "lines.txt", "change": "modified", "digest": digest(lines)}
    ]
    assert finals["d"]["result"]["changed"] == [{"path": "image.bin", "change": "deleted"}]
    assert finals["p"]["result"]["sourceDigest"] == tree.digest
    decided = [record for record in bench.ledger if isinstance(record, records.Decision)]
    assert [record.tool for record in decided] == [
        "edit_file", "write_file", "write_file", "write_file", "delete_file", "apply_patch",
    ]  # fmt: skip
    assert len({record.action_digest for record in decided}) == len(decided)
    assert len({record.tool_digest for record in decided}) == 1


async def test_an_edit_uses_the_digest_that_a_read_gave(tmp_path: Path) -> None:
    async with conversing(tmp_path / "a") as (bench, agent):
        agent.send(read("r", "value.txt"))
        given = (await agent.answer("r"))["result"]["digest"]
        edits = [{"old": "1", "new": "5"}]
        agent.send(tool("e", "edit_file", path="value.txt", digest=given, edits=edits))
        changed = (await agent.answer("e"))["result"]["changed"][0]["digest"]
        edits = [{"old": "5", "new": "6"}]
        agent.send(tool("f", "edit_file", path="value.txt", digest=changed, edits=edits))
        await agent.answer("f")
        agent.send(complete())
    assert bench.world.gate.tree.read("value.txt") == b"6\n"


async def test_pipelined_edits_of_one_reading_are_stale_after_the_first(tmp_path: Path) -> None:
    async with conversing(tmp_path / "a") as (bench, agent):
        agent.send(
            *(
                edit(f"e{number}", "lines.txt", {"old": f"line {number}\n", "new": f"{number}\n"})
                for number in range(4, 9)
            ),
            read("r", "lines.txt"),
        )
        await agent.answer("r")
        agent.send(complete())
    finals = {name: final[0] for name, final in agent.finals().items()}
    assert finals["e4"]["ok"]
    for number in range(5, 9):
        error = finals[f"e{number}"]["error"]
        assert (error["code"], error["details"]["reason"]) == ("source_changed", "edit_stale")
        assert not {"expected", "found"} & error["details"].keys()
    after = FILES["lines.txt"].replace(b"line 4\n", b"4\n")
    assert finals["r"]["result"]["text"] == after.decode()
    assert bench.world.gate.tree.read("lines.txt") == after


@pytest.mark.parametrize(
    ("step", "code", "reason", "more"),
    [
        (edit("x", "lines.txt", {"old": "line 3x", "new": ""}), "patch_conflict", "edit_not_found",
         {"file": 0, "hunk": 0, "expected": "line 3x", "foundLine": 1}),
        (edit("x", "lines.txt", {"old": "line 2\n", "new": ""}, {"old": "line 1", "new": ""}),
         "patch_conflict", "edit_ambiguous", {"hunk": 1, "foundLine": 10, "found": "line 10\n"}),
        (edit("x", "value.txt", {"old": "1", "new": "2"}, of=b"0"), "source_changed", "edit_stale",
         {}),
        (tool("x", "write_file", path="value.txt", content="3"), "source_changed", "edit_stale",
         {}),
        (tool("x", "delete_file", path="value.txt", digest=OTHER), "source_changed", "edit_stale",
         {}),
        (tool("x", "delete_file", path="none", digest=OTHER), "patch_conflict", "patch_conflict",
         {}),
        (tool("x", "write_file", path=".env", content="A=1"), "patch_path_denied",
         "patch_path_secret", {}),
        (tool("x", "delete_file", path=".env", digest=OTHER), "patch_path_denied",
         "patch_path_secret", {}),
        (tool("x", "write_file", path=".git/hooks/x", content=""), "patch_path_denied",
         "patch_path_protected", {}),
        (tool("x", "write_file", path="../x", content=""), "patch_path_denied",
         "patch_path_not_canonical", {}),
        (tool("x", "write_file", path="x", content="a" * 262_145), "patch_too_large",
         "payload_too_large", {}),
        (tool("x", "write_file", path="x", content="?", encoding="base64"), "invalid_input",
         "argument_schema_invalid", {"pointer": ""}),
        (tool("x", "edit_file", path="value.txt", digest=OTHER, edits=[]), "invalid_input",
         "argument_schema_invalid", {"pointer": "/edits"}),
        (tool("x", "apply_patch", patch="*** Begin Patch\n*** Update File: lines.txt\n-line 99\n"
              "+x\n*** End Patch"), "patch_conflict", "patch_conflict",
         {"expected": "line 99\n", "foundLine": 1}),
    ],
)  # fmt: skip
async def test_a_refused_change_changes_nothing_and_says_what_to_do(
    tmp_path: Path, step: Step, code: str, reason: str, more: dict[str, Any]
) -> None:
    bench, finals = await asked(tmp_path, step)
    error = finals["x"]["error"]
    assert (error["code"], error["details"]["reason"]) == (code, reason)
    assert more.items() <= error["details"].items()
    assert {path: bench.world.gate.tree.read(path) for path in FILES} == FILES


async def test_a_file_that_is_not_staged_tells_nothing(tmp_path: Path) -> None:
    """Filtered or missing: there is no file, whatever digest is named."""
    given = {"path": "not-staged.json", "digest": OTHER}
    _, finals = await asked(
        tmp_path,
        tool("d", "delete_file", **given),
        tool("w", "write_file", content="n", **given),
        tool("e", "edit_file", edits=[{"old": "a", "new": ""}], **given),
    )
    for final in finals.values():
        assert final["error"]["code"] == "patch_conflict"
        assert final["error"]["details"].keys() == {"reason", "decisionId", "file"}


async def test_lines_of_a_file_are_told_to_who_may_read_it_only(tmp_path: Path) -> None:
    step = edit("x", "lines.txt", {"old": "line 3x", "new": ""})

    def no_reads(policy_input: Any, **facts: Any) -> Decision:
        assert policy_input.tool.name != "workspace.read"
        return EVALUATE(policy_input, **facts)

    async with conversing(tmp_path / "a", evaluate=no_reads) as (bench, agent):
        agent.send(step)
        error = (await agent.answer("x"))["error"]
        agent.send(complete())
    assert (error["code"], error["details"]["reason"]) == ("patch_conflict", "edit_not_found")
    assert error["details"]["expected"] == "line 3x"
    assert not {"found", "foundLine"} & error["details"].keys()
    assert bench.world.gate.tree.read("lines.txt") == FILES["lines.txt"]


async def test_a_miss_is_one_recorded_deny(tmp_path: Path) -> None:
    step = edit("x", "lines.txt", {"old": "line 3x", "new": ""})
    bench, _ = await asked(tmp_path, step)
    decided = [record for record in bench.ledger if isinstance(record, records.Decision)]
    assert [(each.outcome, each.reason) for each in decided] == [("deny", "patch_does_not_apply")]
    assert (bench.counters.allow, bench.counters.deny) == (0, 1)


async def test_git_s_form_is_still_one(tmp_path: Path) -> None:
    bench, finals = await asked(
        tmp_path, tool("p", "apply_patch", patch=change("value.txt", "1", "2"))
    )
    assert finals["p"]["ok"]
    assert bench.world.gate.tree.read("value.txt") == b"2\n"
