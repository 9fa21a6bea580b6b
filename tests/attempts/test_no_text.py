"""P3: nothing that a peer wrote is in a record, a code, an error text or a closed document."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from broker.evidence.export import export
from protocol.codes import WIRE_TEXT
from tests.attempts.checkouts import checkout, creation
from tests.attempts.puppetry import Played
from tests.attempts.steps import answer, complete, do, event, infer, read, send, tool

pytestmark = pytest.mark.engine

CANARY = "CaNaRy7x9QzK42Wv"
FORMS = (
    CANARY.encode(),
    CANARY.lower().encode(),
    CANARY.encode().hex().encode(),
    *(b64encode(b"." * shift + CANARY.encode())[4:-4] for shift in range(3)),
    json.dumps([*CANARY]).encode(),
)


def assert_absent(data: bytes) -> None:
    for form in FORMS:
        assert form not in data, form


def steps() -> list[dict[str, Any]]:
    """A canary in every place where an agent may write something."""
    name = f"{CANARY}.txt"
    return [
        event("agent.log", level="info", text=CANARY),
        event(f"x.{CANARY}.{CANARY}", any=CANARY),
        event(f"agent.{CANARY}", any=CANARY),
        read(f"r-{CANARY}", name),
        read("r2", f"missing/{CANARY}"),
        tool("t1", CANARY.lower(), any=CANARY),
        tool("t2", "read_file", **{CANARY: CANARY}),
        tool("l1", "list_files", prefix=CANARY, cursor=CANARY),
        tool("s1", "search_files", query=f"({CANARY}", regex=True),
        tool("s2", "search_files", query=CANARY),
        tool("p1", "apply_patch", patch=creation(f"new/{CANARY}.txt", CANARY)),
        tool("p2", "apply_patch", patch=f"garbage {CANARY}"),
        tool("p3", "apply_patch", patch=creation(f".git/{CANARY}", CANARY)),
        tool("p4", "apply_patch", patch=creation(name, CANARY)),
        tool("c1", "run_recipe", recipeId=CANARY),
        tool("c2", "run_recipe", recipeId="check"),
        infer("i1", text=CANARY, model=CANARY),
        infer("i2", text=CANARY),
        send(
            type="tool.request",
            requestId="m1",
            tool="read_file",
            input={"path": name},
            intent=CANARY,
            toolCallId=CANARY,
            meta={f"a.b/{CANARY}": CANARY},
        ),
        answer("c2"),
        answer("i2"),
        answer("m1"),
        do("stderr", text=CANARY + "\n"),
        complete("failed", summary=CANARY, error={"code": CANARY, "message": CANARY}),
    ]


async def test_no_text_of_a_peer_is_in_a_record_or_a_code(puppet: Any, tmp_path: Path) -> None:
    repo = checkout(
        tmp_path / "repo",
        {
            f"{CANARY}.txt": CANARY.encode(),
            "value.txt": CANARY.encode(),
            "tools/check": b"cat value.txt; cat value.txt >&2; exit 1\n",
        },
    )
    script = tmp_path / "script.jsonl"
    script.write_text(json.dumps({"match": {}, "answer": {"text": CANARY}}) + "\n")

    played: Played = await puppet(steps(), repo=repo, inference=f"scripted:{script}")

    assert played.result.outcome == "failed"
    # It did get through to where it belongs.
    assert CANARY in played.answer("c2")["result"]["stdout"]
    assert CANARY in (played.out / "patch.diff").read_text()
    assert CANARY in (played.out / "events.jsonl").read_text()
    for line in export(played.out / "ledger"):
        assert_absent(line)
    for path in (played.out / "ledger").iterdir():
        assert_absent(path.read_bytes())
    assert_absent((played.out / "attempt.json").read_bytes())
    for path in played.out.rglob("*"):
        assert_absent(path.name.encode())
    broker = [
        line
        for line in (played.out / "events.jsonl").read_bytes().splitlines()
        if json.loads(line)["origin"] == "broker"
    ]
    assert_absent(b"".join(broker))
    errors = [frame["error"] for frame in played.seen if "error" in frame]
    assert len(errors) >= 9
    for error in errors:
        assert error["message"] == WIRE_TEXT[error["code"]]
        assert_absent(json.dumps(error.get("details", {})).encode())
