"""The fixture agent on a real pipe, against the protocol's own connection and stock git."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trio

from broker.attempts.budget import BudgetCounter, InferenceBudget
from broker.attempts.inference import InferenceCall, prepare_call
from broker.attempts.relay import serve_call
from broker.attempts.request_rules import RequestRules
from broker.attempts.scripted import ScriptedSource, parse_script
from protocol.codes import WireCode
from protocol.connection import CLOSED, NEED_DATA, BrokerConnection
from protocol.limits import Limits
from protocol.messages import (
    Api,
    AttemptCancel,
    AttemptComplete,
    Budget,
    Event,
    InferenceOffer,
    InferenceRequest,
    InferenceResponse,
    ModelOffer,
    RecipeOffer,
    Repository,
    Task,
    TaskStart,
    ToolRequest,
    ToolResponse,
    WireDecision,
    wire_error,
)

ROOT = Path(__file__).parents[2]
CONTAINERS = ROOT / "containers"
DIGEST = "sha256:" + "0" * 64
ALLOWED = WireDecision(outcome="allowed", action_digest=DIGEST, policy_digest=DIGEST)
APIS: tuple[Api, ...] = ("openai.chat", "openai.responses", "anthropic.messages")
INTERPRETERS = sorted({"/usr/bin/python3", sys.executable})
PAGE = 1000


@dataclass
class Attempt:
    """One attempt with a plain folder as its stage. Every denial is by ``deny``."""

    folder: Path
    apis: tuple[Api, ...] = APIS
    script: bytes = b""
    task: str = "Find out why no_cent_is_lost fails in tally, and repair it."
    deny: Callable[[ToolRequest | InferenceRequest], WireCode | None] = lambda request: None
    cancel_after: int | None = None  #: answers until the broker cancels
    requests: list[ToolRequest | InferenceRequest] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    claim: AttemptComplete | None = None

    def run(self, python: str = "/usr/bin/python3") -> int:
        """The exit status of the agent, after the protocol was kept to the end."""
        with subprocess.Popen(
            [python, "-I", "-S", "-B", str(CONTAINERS / "fixture")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env={},
        ) as process:
            assert process.stdin
            assert process.stdout
            assert process.stderr
            connection = BrokerConnection(Limits())
            process.stdin.write(connection.send(self._start()))
            process.stdin.flush()
            while (item := connection.next_event()) is not CLOSED:
                if item is NEED_DATA:
                    connection.receive_data(os.read(process.stdout.fileno(), 65536))
                    continue
                match item:
                    case Event():
                        self.events.append(item)
                    case ToolRequest() | InferenceRequest():
                        self.requests.append(item)
                        for answer in self._answers(item):
                            process.stdin.write(connection.send(answer))
                        process.stdin.flush()
                    case AttemptComplete():
                        self.claim = item
                        process.stdin.close()
                    case _:
                        raise AssertionError(item)
            noise = process.stderr.read()
            assert noise == b"", noise.decode()
            return process.wait(timeout=10)

    @property
    def tools(self) -> list[str]:
        return [r.tool if isinstance(r, ToolRequest) else "infer" for r in self.requests]

    def _answers(
        self, request: ToolRequest | InferenceRequest
    ) -> list[ToolResponse | InferenceResponse | AttemptCancel]:
        form = ToolResponse if isinstance(request, ToolRequest) else InferenceResponse
        code = self.deny(request)
        if self.cancel_after is not None and len(self.requests) > self.cancel_after:
            code = "cancelled"
        if code is not None:
            error = form(
                request_id=request.request_id, index=0, final=True, ok=False, error=wire_error(code)
            )
            first = code == "cancelled" and len(self.requests) - 1 == self.cancel_after
            cancel = AttemptCancel(reason="user", grace_ms=1000)
            return [cancel, error] if first else [error]
        if isinstance(request, InferenceRequest):
            return list(self._infer(request))
        result = getattr(self, "_" + request.tool)(request.input)
        if result is None:
            return [self._not_ok(request, "not_found")]
        return [
            ToolResponse(
                request_id=request.request_id,
                index=0,
                final=True,
                ok=True,
                decision=ALLOWED,
                result=result,
            )
        ]

    def _not_ok(self, request: ToolRequest, code: WireCode) -> ToolResponse:
        return ToolResponse(
            request_id=request.request_id, index=0, final=True, ok=False, error=wire_error(code)
        )

    def _infer(self, request: InferenceRequest) -> list[InferenceResponse]:
        frames: list[InferenceResponse] = []
        budget = BudgetCounter(InferenceBudget(requests=9, input_tokens=None, output_tokens=None))
        call = prepare_call(
            request,
            attempt_id="a1",
            rules=RequestRules(
                apis=frozenset(self.apis),
                models={"main": 8192},
                streaming=True,
                on_hosted_tool="deny",
                user="u1",
            ),
            budget=budget,
            timeout_seconds=5,
        )
        assert isinstance(call, InferenceCall), call
        assert call.stripped == ()

        async def serve() -> None:
            await serve_call(
                call,
                source=self._source,
                budget=budget,
                send=frames.append,
                max_response_bytes=8 * 1024 * 1024,
            )

        trio.run(serve)
        return frames

    def _paths(self) -> list[str]:
        return sorted(
            str(path.relative_to(self.folder))
            for path in self.folder.rglob("*")
            if path.is_file() and ".git" not in path.parts
        )

    def _list_files(self, given: dict[str, Any]) -> dict[str, Any]:
        paths = self._paths()
        start = int(given.get("cursor", "0"))
        rest = {"cursor": str(start + PAGE)} if start + PAGE < len(paths) else {}
        page = [{"path": path, "bytes": 0} for path in paths[start : start + PAGE]]
        return {"files": page, "total": len(paths), **rest}

    def _read_file(self, given: dict[str, Any]) -> dict[str, Any] | None:
        try:
            text = (self.folder / given["path"]).read_text()
        except (OSError, UnicodeDecodeError):
            return None
        lines = text.splitlines(keepends=True)[: given["maxLines"]]
        return {"text": "".join(lines), "digest": DIGEST, "totalBytes": len(text)}

    def _search_files(self, given: dict[str, Any]) -> dict[str, Any]:
        return {"matches": [], "complete": True, "filesSearched": 0}

    def _apply_patch(self, given: dict[str, Any]) -> dict[str, Any] | None:
        applied = subprocess.run(
            ["git", "apply", "-"], input=given["patch"].encode(), cwd=self.folder, check=False
        )
        return {"changed": [], "sourceDigest": DIGEST} if applied.returncode == 0 else None

    def _run_recipe(self, given: dict[str, Any]) -> dict[str, Any]:
        catalog = json.loads((self.folder / "airlock.recipes.json").read_text())
        (recipe,) = [r for r in catalog["recipes"] if r["id"] == given["recipeId"]]
        with tempfile.TemporaryDirectory() as scratch:
            shutil.copytree(self.folder, scratch, dirs_exist_ok=True)
            done = subprocess.run(
                recipe["command"], cwd=scratch, capture_output=True, check=False, env={}
            )
        return {
            "status": "passed" if done.returncode == 0 else "failed",
            "exitCode": done.returncode,
            "durationMs": 1,
            "stdout": done.stdout.decode(),
            "stderr": done.stderr.decode(),
            "sourceDigest": DIGEST,
        }

    def _start(self) -> TaskStart:
        self._source = ScriptedSource(parse_script(self.script))
        recipes: tuple[RecipeOffer, ...] = ()
        if (self.folder / "airlock.recipes.json").exists():
            offer = RecipeOffer(
                id="test", timeout_ms=1000, max_output_bytes=1000, recipe_digest=DIGEST
            )
            recipes = (offer,)
        return TaskStart(
            protocol_version=1,
            schema_digest=DIGEST,
            attempt_id="a1",
            task=Task(instruction=self.task),
            repository=Repository(name="demo", base_commit="0" * 40, source_digest=DIGEST),
            tools=(),
            recipes=recipes,
            inference=InferenceOffer(
                apis=self.apis,
                models=(ModelOffer(alias="main", role="main"),),
                streaming=True,
                hosted_tools=(),
                budget=Budget(),
            ),
            limits=Limits(),
            features=(),
            deadline_ms=60_000,
            resume=None,
        )


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    folder = tmp_path / "demo"
    shutil.copytree(CONTAINERS / "demo", folder)
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    return folder


SCRIPT = (CONTAINERS / "demo-inference.jsonl").read_bytes()


def scripted(*answers: dict[str, Any]) -> bytes:
    lines = ({"match": {}, "times": 1, "answer": answer} for answer in answers)
    return "\n".join(map(json.dumps, lines)).encode()


def new_file(name: str) -> dict[str, Any]:
    """An answer that adds a file of no use."""
    patch = (
        f"diff --git a/{name} b/{name}\nnew file mode 100644\n"
        f"--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+x\n"
    )
    return {"text": f"```diff\n{patch}```\n"}


@pytest.mark.parametrize("python", INTERPRETERS)
def test_the_copied_sdk_is_the_protocols_own(python: str) -> None:
    original = (ROOT / "protocol" / "adapter.py").read_bytes()

    assert (CONTAINERS / "fixture" / "adapter.py").read_bytes() == original
    subprocess.run([python, "-I", "-S", "-B", "-c", original], check=True, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("api", APIS)
def test_it_repairs_the_demo_in_every_dialect(demo: Path, api: Api) -> None:
    attempt = Attempt(demo, apis=(api,), script=SCRIPT)

    assert attempt.run() == 0
    assert attempt.claim is not None
    assert attempt.claim.status == "succeeded"
    order = [tool for tool in attempt.tools if tool != "read_file"]
    assert order == [
        "list_files",
        "search_files",
        "run_recipe",
        "infer",
        "apply_patch",
        "run_recipe",
    ]
    assert "tally/split.py" in {
        request.input["path"]
        for request in attempt.requests
        if isinstance(request, ToolRequest) and request.tool == "read_file"
    }
    changed = subprocess.run(
        ["diff", "-rq", "-x", ".git", str(CONTAINERS / "demo"), str(demo)],
        capture_output=True,
        check=False,
    )
    assert changed.stdout.count(b"\n") == 1
    assert b"tally/split.py" in changed.stdout


@pytest.mark.parametrize("api", APIS)
def test_a_patch_in_a_tool_call_is_taken_too(demo: Path, api: Api) -> None:
    fenced = json.loads(SCRIPT.splitlines()[0])["answer"]["text"]
    found = re.search(r"```diff\n(.*)```", fenced, re.DOTALL)
    assert found is not None
    call = {"name": "apply_patch", "input": {"patch": found[1]}}
    attempt = Attempt(demo, apis=(api,), script=scripted({"toolCalls": [call]}))

    assert attempt.run() == 0
    assert attempt.claim is not None
    assert attempt.claim.status == "succeeded"


def test_without_an_answer_it_reads_searches_and_says_that_the_recipe_fails(demo: Path) -> None:
    attempt = Attempt(demo)

    assert attempt.run() == 0
    assert attempt.claim is not None
    assert attempt.claim.status == "failed"
    assert "apply_patch" not in attempt.tools


@pytest.mark.parametrize("task", ["", "x", "Look at src/f0777.txt.", "Z" * 200_000])
def test_a_large_foreign_repository_is_read_and_completed(tmp_path: Path, task: str) -> None:
    source = tmp_path / "src"
    source.mkdir()
    for number in range(2500):
        (source / f"f{number:04}.txt").write_text(f"{number}\n" * 3)
    (source / "binary.txt").write_bytes(b"\xff\xfe")
    attempt = Attempt(tmp_path, task=task)

    assert attempt.run() == 0
    assert attempt.claim is not None
    assert attempt.claim.status == "succeeded"
    assert attempt.claim.summary is not None
    assert attempt.claim.summary.startswith("2501 files listed")
    assert attempt.tools.count("list_files") == 3
    assert 1 <= attempt.tools.count("read_file") <= 12
    if "f0777" in task:
        reads = [
            r.input["path"]
            for r in attempt.requests
            if isinstance(r, ToolRequest) and r.tool == "read_file"
        ]
        assert reads[0] == "src/f0777.txt"


def test_an_empty_repository_is_completed(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path, apis=())

    assert attempt.run() == 0
    assert attempt.claim is not None
    assert attempt.claim.status == "succeeded"
    assert "infer" not in attempt.tools


@pytest.mark.parametrize(
    "tool", ["list_files", "read_file", "search_files", "run_recipe", "infer", "apply_patch"]
)
def test_a_denial_is_an_answer(demo: Path, tool: str) -> None:
    def deny(request: ToolRequest | InferenceRequest) -> WireCode | None:
        name = request.tool if isinstance(request, ToolRequest) else "infer"
        return "policy_denied" if name == tool else None

    attempt = Attempt(demo, script=SCRIPT, deny=deny)

    assert attempt.run() == 0
    assert attempt.claim is not None
    assert attempt.claim.status in ("succeeded", "failed")
    assert attempt.tools.count(tool) <= 12
    if tool == "apply_patch":
        assert attempt.claim.status == "failed"


def test_a_patch_that_does_not_help_is_tried_again_with_the_new_output(demo: Path) -> None:
    repair = json.loads(SCRIPT.splitlines()[0])["answer"]
    attempt = Attempt(demo, script=scripted(new_file("n"), repair))

    assert attempt.run() == 0
    assert attempt.claim is not None
    assert attempt.claim.status == "succeeded"
    assert attempt.tools.count("infer") == 2


def test_it_never_asks_for_ever(demo: Path) -> None:
    attempt = Attempt(demo, script=scripted(*(new_file(f"n{n}") for n in range(9))))

    assert attempt.run() == 0
    assert attempt.claim is not None
    assert attempt.claim.status == "failed"
    assert attempt.tools.count("infer") == 3


@pytest.mark.parametrize("after", [0, 1, 3, 8, 10, 11])
def test_a_cancel_ends_it_cleanly_wherever_it_comes(demo: Path, after: int) -> None:
    attempt = Attempt(demo, script=SCRIPT, cancel_after=after)

    assert attempt.run() == 0
    assert attempt.claim is not None
    assert attempt.claim.status == "cancelled"
    assert len(attempt.requests) == after + 1


def test_it_ends_when_the_broker_is_gone() -> None:
    done = subprocess.run(
        ["/usr/bin/python3", "-I", "-S", "-B", str(CONTAINERS / "fixture")],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=10,
    )

    assert done.returncode != 0
    assert done.stdout == b""
