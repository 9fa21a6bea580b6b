"""The single-file SDK as a real process, held to the protocol by the broker's own side."""

import ast
import contextlib
import json
import os
import shutil
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import msgspec
import pytest

import protocol.adapter as adapter_module
from protocol.connection import CLOSED, NEED_DATA, BrokerConnection, Rejected
from protocol.events import AgentLog, AgentReady
from protocol.limits import Limits
from protocol.messages import (
    AttemptCancel,
    AttemptComplete,
    Event,
    InferenceRequest,
    InferenceResponse,
    ProviderEvent,
    ToolRequest,
    ToolResponse,
    wire_error,
)
from tests.protocol.frames import (
    DECISION,
    USAGE,
    task_start,
    tool_failure,
    tool_progress,
)

SOURCE = Path(adapter_module.__file__)
PATIENCE = 20.0


class Host:
    """An agent's process and the broker's connection to it. Reading never waits for writing."""

    def __init__(self, folder: Path, body: str, limits: Limits | None = None, **start: Any) -> None:
        shutil.copy(SOURCE, folder / "adapter.py")
        (folder / "agent.py").write_text("import adapter\n" + textwrap.dedent(body))
        self.process = subprocess.Popen(
            [sys.executable, "-B", str(folder / "agent.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": os.defpath},
        )
        self.connection = BrokerConnection(limits or Limits())
        self.chunks: Queue[bytes] = Queue()
        self.reading = threading.Event()
        self.reading.set()
        self.errors = bytearray()
        self._threads = [
            threading.Thread(target=self._pump, daemon=True),
            threading.Thread(target=self._drain, daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        self.write(self.connection.send(task_start(limits, **start)))

    def _pump(self) -> None:
        assert self.process.stdout is not None
        with contextlib.suppress(ValueError, OSError):  # A test closes it under the reader.
            while self.reading.wait() and (data := os.read(self.process.stdout.fileno(), 65536)):
                self.chunks.put(data)
            self.chunks.put(b"")

    def _drain(self) -> None:
        assert self.process.stderr is not None
        while data := os.read(self.process.stderr.fileno(), 65536):
            self.errors += data

    def write(self, frame: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(frame)
        self.process.stdin.flush()

    def next(self) -> Any:
        """The next message, or ``CLOSED``."""
        while (event := self.connection.next_event()) is NEED_DATA:
            self.connection.receive_data(self.chunks.get(timeout=PATIENCE))
        return event

    def next_request(self) -> Any:
        while isinstance(event := self.next(), Event):
            pass
        return event

    def answer(self, request: ToolRequest, result: dict[str, Any], index: int = 0) -> None:
        self.write(
            self.connection.send(
                ToolResponse(
                    request_id=request.request_id,
                    index=index,
                    final=True,
                    ok=True,
                    decision=DECISION,
                    result=result,
                )
            )
        )

    def end(self) -> int:
        """Close the agent's standard input; its exit code, all output read."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = self.process.wait(timeout=PATIENCE)
        for thread in self._threads:
            thread.join(PATIENCE)
        return code


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Any]:
    hosts: list[Host] = []

    def start(body: str, limits: Limits | None = None, **changes: Any) -> Host:
        hosts.append(Host(tmp_path, body, limits, **changes))
        return hosts[-1]

    yield start
    for made in hosts:
        made.process.kill()
        made.process.wait()
        for pipe in (made.process.stdin, made.process.stdout, made.process.stderr):
            assert pipe is not None
            pipe.close() if pipe is not made.process.stdin else None


TEN_LINES = """
with adapter.connect(name="ten", version="1") as agent:
    text = agent.read_file("sum.py")["text"]
    answer = agent.infer("openai.chat", "main", {"model": "main", "messages": [agent.task, text]})
    agent.apply_patch(answer["patch"])
    outcome = agent.run_recipe("test")
    agent.complete("succeeded" if outcome["status"] == "passed" else "failed")
"""


def test_ten_lines_are_an_agent(host: Any) -> None:
    agent = host(TEN_LINES)

    ready = agent.next()
    assert isinstance(ready.data, AgentReady)
    assert (ready.data.agent.name, agent.connection.features) == (
        "ten",
        {"inference_streaming", "tool_progress", "agent_state", "request_cancel"},
    )
    read = agent.next()
    assert (read.tool, read.input) == ("read_file", {"path": "sum.py"})
    agent.answer(read, {"text": "a - b"})
    inference = agent.next()
    assert isinstance(inference, InferenceRequest)
    assert inference.body["messages"] == [{"instruction": "Repair the sum."}, "a - b"]
    agent.write(
        agent.connection.send(
            InferenceResponse(
                request_id=inference.request_id,
                index=0,
                final=True,
                ok=True,
                response={"patch": "the patch"},
                usage=USAGE,
                model="main",
                finish_reason="stop",
            )
        )
    )
    patch = agent.next()
    assert (patch.tool, patch.input) == ("apply_patch", {"patch": "the patch"})
    agent.answer(patch, {"changed": [], "sourceDigest": ""})
    recipe = agent.next()
    agent.write(agent.connection.send(tool_progress(recipe.request_id)))
    agent.answer(recipe, {"status": "passed"}, index=1)

    assert agent.next() == AttemptComplete(status="succeeded")
    with pytest.raises(subprocess.TimeoutExpired):
        agent.process.wait(timeout=0.3)  # It stays until we have closed the pipe.
    assert agent.end() == 0
    assert agent.next() is CLOSED
    assert agent.errors == b""


CHANGES = """
with adapter.connect(name="changes") as agent:
    digest = agent.read_file("a")["digest"]
    agent.edit_file("a", digest, [{"old": "x", "new": "y"}])
    agent.write_file("b", "text", executable=True)
    agent.delete_file("a", digest)
"""


def test_files_are_changed_with_the_digest_of_a_read(host: Any) -> None:
    agent = host(CHANGES)
    agent.next()
    agent.answer(agent.next(), {"digest": "d"})
    wanted = [
        ("edit_file", {"path": "a", "digest": "d", "edits": [{"old": "x", "new": "y"}]}),
        ("write_file", {"path": "b", "content": "text", "executable": True}),
        ("delete_file", {"path": "a", "digest": "d"}),
    ]
    for expected in wanted:
        request = agent.next()
        assert (request.tool, request.input) == expected
        agent.answer(request, {"changed": [], "sourceDigest": ""})
    assert agent.next() == AttemptComplete(status="succeeded")
    assert agent.end() == 0


def test_what_is_printed_cannot_break_a_frame(host: Any) -> None:
    agent = host(
        """
        import os, subprocess, sys
        print("before", flush=False)
        with adapter.connect() as agent:
            print("hello")
            os.write(1, b"raw\\n")
            sys.stdout.write("x" * 100000 + "\\n")
            child = "import sys; print('child read', repr(sys.stdin.read()))"
            subprocess.run([sys.executable, "-c", child], check=True)
            agent.event("agent.log", {"level": "info", "text": repr(sys.stdin.read())})
        """
    )

    assert isinstance(agent.next().data, AgentReady)
    assert agent.next().data == AgentLog(level="info", text="''")
    assert agent.next() == AttemptComplete(status="succeeded")
    assert agent.end() == 0
    assert agent.next() is CLOSED
    for text in (b"before", b"hello", b"raw", b"x" * 100000, b"child read ''"):
        assert text in agent.errors


def test_a_child_does_not_hold_the_pipe(host: Any) -> None:
    agent = host(
        """
        import subprocess, sys
        with adapter.connect() as agent:
            look = "import os; print(sorted(os.listdir('/proc/self/fd'), key=int))"
            seen = subprocess.run([sys.executable, "-c", look], stdout=subprocess.PIPE, text=True)
            agent.event("x.test.fds", seen.stdout)
        """
    )
    agent.next()

    # 0, 1, 2 and the folder that is being listed.
    assert agent.next().data.strip() == "['0', '1', '2', '3']"
    agent.next()
    assert agent.end() == 0


def test_a_large_answer_and_a_flood_of_events_do_not_block_each_other(host: Any) -> None:
    agent = host(
        """
        import threading
        with adapter.connect() as agent:
            def flood():
                for number in range(2000):
                    agent.event("x.test.flood", {"number": number, "text": "x" * 2000})
            thread = threading.Thread(target=flood)
            thread.start()
            size = len(agent.read_file("large")["text"])
            thread.join()
            agent.complete(summary=str(size))
        """
    )
    request = agent.next_request()

    # The worst broker: it reads nothing while it writes all of that.
    agent.reading.clear()
    agent.answer(request, {"text": "y" * (5 * 1024 * 1024)})
    agent.reading.set()

    complete = agent.next_request()
    assert complete == AttemptComplete(status="succeeded", summary=str(5 * 1024 * 1024))
    assert agent.connection.events == 2001
    assert agent.end() == 0


def test_calls_from_many_threads_keep_their_answers_apart(host: Any) -> None:
    agent = host(
        """
        from concurrent.futures import ThreadPoolExecutor
        with adapter.connect() as agent:
            with ThreadPoolExecutor(12) as pool:
                paths = [f"f{number}" for number in range(60)]
                texts = list(pool.map(lambda path: agent.read_file(path)["text"], paths))
            agent.complete(summary="same" if texts == paths else repr(texts))
        """,
        limits=Limits(max_in_flight=4),
    )
    waiting: list[ToolRequest] = []
    while True:
        event = agent.next()
        if isinstance(event, AttemptComplete):
            break
        assert not isinstance(event, Rejected)
        if isinstance(event, ToolRequest):
            waiting.append(event)
        if len(waiting) == 4 or agent.connection.requests == 60:
            # The latest first: the order of answers is free.
            while waiting:
                request = waiting.pop()
                agent.answer(request, {"text": request.input["path"]})

    assert event.summary == "same"
    assert agent.end() == 0


def test_an_error_is_a_tool_error(host: Any) -> None:
    agent = host(
        """
        with adapter.connect() as agent:
            try:
                agent.read_file("secret")
            except adapter.ToolError as error:
                seen = [error.code, error.reason, error.pointer, error.retryable]
                agent.event("x.test.error", seen)
            agent.run_recipe("unknown")
        """
    )
    request = agent.next_request()
    error = wire_error("not_found", details={"reason": "selector_not_registered"})
    agent.write(agent.connection.fail(request.request_id, error))
    assert agent.next().data == ["not_found", "selector_not_registered", None, False]
    request = agent.next_request()
    agent.write(agent.connection.send(tool_failure(request.request_id)))

    complete = agent.next_request()

    assert (complete.status, complete.error.code) == ("failed", "agent_raised")
    assert complete.error.message == "ToolError"
    assert agent.end() == 1
    assert b"ToolError: not_found" in agent.errors


def test_streams_come_in_order_and_can_be_left(host: Any) -> None:
    agent = host(
        """
        with adapter.connect() as agent:
            body = {"model": "main"}
            seen = [event["data"] for event in agent.infer_stream("openai.chat", "main", body)]
            for event in agent.infer_stream("openai.chat", "main", body, purpose="side"):
                break
            agent.complete(summary=" ".join(seen))
        """,
        limits=Limits(max_in_flight=1),
    )
    for purpose in (None, "side"):
        request = agent.next_request()
        assert (request.stream, request.purpose) == (True, purpose)
        for index in range(4):
            piece = InferenceResponse(
                request_id=request.request_id,
                index=index,
                final=False,
                ok=True,
                events=(ProviderEvent(data=f"a{index}"), ProviderEvent(data=f"b{index}")),
            )
            agent.write(agent.connection.send(piece))
        last = InferenceResponse(
            request_id=request.request_id,
            index=4,
            final=True,
            ok=True,
            usage=USAGE,
            model="main",
            finish_reason="stop",
            events=(ProviderEvent(data="end"),),
        )
        agent.write(agent.connection.send(last))

    complete = agent.next_request()
    assert complete.summary == "a0 b0 a1 b1 a2 b2 a3 b3 end"
    assert agent.end() == 0


def test_a_cancel_is_noticed_while_a_call_waits(host: Any) -> None:
    agent = host(
        """
        with adapter.connect() as agent:
            agent.run_recipe("slow")
        """
    )
    request = agent.next_request()
    agent.write(agent.connection.send(AttemptCancel(reason="user", grace_ms=1000)))
    agent.write(agent.connection.fail(request.request_id, wire_error("cancelled")))

    assert agent.next_request() == AttemptComplete(status="cancelled")
    assert agent.end() == 0


def test_a_cancel_is_noticed_by_an_agent_that_only_computes(host: Any) -> None:
    agent = host(
        """
        with adapter.connect() as agent:
            agent.cancelled.wait()
            agent.complete("cancelled", summary=agent.cancel_reason)
        """
    )
    agent.next()
    agent.write(agent.connection.send(AttemptCancel(reason="deadline", grace_ms=1000)))

    assert agent.next() == AttemptComplete(status="cancelled", summary="deadline")
    assert agent.end() == 0


@pytest.mark.parametrize("doing", ["agent.read_file('a')", "__import__('time').sleep(60)"])
def test_an_agent_ends_when_the_broker_is_gone(host: Any, doing: str) -> None:
    agent = host(f"with adapter.connect() as agent:\n    {doing}\n")
    agent.next()

    assert agent.end() == adapter_module.EXIT_BROKER_GONE


def test_an_agent_ends_when_nobody_reads_it(host: Any) -> None:
    agent = host(
        """
        agent = adapter.connect()
        agent.cancelled.wait()
        while True:
            agent.event("x.test.flood", "x" * 1000)
        """
    )
    agent.next()
    agent.process.stdout.close()
    agent.write(agent.connection.send(AttemptCancel(reason="user", grace_ms=1)))

    assert agent.process.wait(timeout=PATIENCE) == adapter_module.EXIT_BROKER_GONE


@pytest.mark.parametrize(
    "line", [b"noise\n", b"[]\n", b'{"v":2,"type":"attempt.cancel"}\n', b'{"v":1,"type":"event"}\n',
             b'{"v":1,"type":"tool.response","requestId":"r9","final":true}\n', b"x" * 2**24]
)  # fmt: skip
def test_a_broken_broker_is_a_reason_to_leave(host: Any, line: bytes) -> None:
    agent = host("with adapter.connect() as agent:\n    agent.read_file('a')\n")
    agent.next_request()

    with contextlib.suppress(BrokenPipeError):
        agent.write(line)

    assert agent.process.wait(timeout=PATIENCE) == adapter_module.EXIT_BAD_FRAME


def test_a_version_that_is_not_spoken_is_said_so(tmp_path: Path) -> None:
    shutil.copy(SOURCE, tmp_path / "adapter.py")
    (tmp_path / "agent.py").write_text("import adapter\nadapter.connect()\n")
    start = msgspec.to_builtins(task_start())
    start["protocolVersion"] = 2
    done = subprocess.run(
        [sys.executable, str(tmp_path / "agent.py")],
        input=json.dumps(start).encode() + b"\n",
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )

    assert done.returncode == adapter_module.EXIT_BAD_FRAME
    complete = json.loads(done.stdout)
    assert complete["error"]["code"] == "unsupported_protocol_version"


def test_what_does_not_fit_is_not_sent(host: Any) -> None:
    agent = host(
        """
        with adapter.connect() as agent:
            for bad in ("x" * 3000, float("nan"), "\\ud800"):
                try:
                    agent.call("read_file", {"path": bad})
                except (adapter.ToolError, ValueError) as error:
                    agent.event("x.test.refused", type(error).__name__)
            agent.complete(summary="still here")
        """,
        limits=Limits(max_frame_bytes=2000, max_in_flight=1),
    )
    agent.next()

    refused = [agent.next().data for _ in range(3)]

    assert refused == ["ToolError", "ValueError", "UnicodeEncodeError"]
    assert agent.next().summary == "still here"
    assert agent.end() == 0


def test_it_is_one_file_of_the_standard_library_for_python_3_9() -> None:
    tree = ast.parse(SOURCE.read_text(), feature_version=(3, 9))

    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported <= sys.stdlib_module_names
    assert not any(isinstance(node, ast.Match) for node in ast.walk(tree))
    # Annotations such as ``str | None`` are not evaluated.
    assert "annotations" in {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "__future__"
        for alias in node.names
    }
