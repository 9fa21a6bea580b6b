"""The agent's side of the protocol in one file: copy it next to your agent and import it.

Needs Python 3.9 or later and nothing else, and must never write a byte to the real
standard output that is not part of a frame::

    import adapter

    with adapter.connect(name="my-agent", version="1") as agent:
        text = agent.read_file("src/main.py")["text"]
        answer = agent.infer("anthropic.messages", "main", make_body(agent.task, text))
        agent.apply_patch(find_patch(answer))
        outcome = agent.run_recipe("test")
        agent.complete("succeeded" if outcome["status"] == "passed" else "failed")

``connect`` moves the pipe to private descriptors, so that ``print`` goes to standard
error and a child process reads nothing. A thread reads all the time, so that a slow or
talkative agent cannot block the broker; calls may come from any thread. When the broker
goes away, the process ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

VERSION = 1
FEATURES = ("inference_streaming", "tool_progress", "agent_state", "request_cancel")

EXIT_BROKER_GONE = 69
EXIT_BAD_FRAME = 65

#: Until ``task.start`` says what is right: the protocol's default.
MAX_LINE_BYTES = 8 * 1024 * 1024
READ_BYTES = 64 * 1024


class ToolError(Exception):
    """A request was answered with an error.

    ``code`` is one of the protocol's; ``reason`` may say more; ``pointer`` is what was bad.
    """

    def __init__(self, error: dict[str, Any], decision: dict[str, Any] | None = None) -> None:
        self.code: str = error["code"]
        self.details: dict[str, Any] = error.get("details") or {}
        self.reason: str | None = self.details.get("reason")
        self.pointer: str | None = self.details.get("pointer")
        self.retryable: bool = error.get("retryable", False)
        self.retry_after_ms: int | None = error.get("retryAfterMs")
        self.decision = decision
        super().__init__(": ".join(filter(None, (self.code, self.reason, error.get("message")))))


def connect(
    *, name: str = "agent", version: str = "0", features: Iterable[str] = FEATURES
) -> Agent:
    """Take over the pipe, read ``task.start``, say who we are. Call it first, and once."""
    agent = Agent(*_claim_pipe())
    agent._begin(name, version, features)
    return agent


class Agent:
    """One attempt as the agent has it. Results are the protocol's objects as plain dicts."""

    def __init__(self, source: int, sink: int) -> None:
        self.start: dict[str, Any] = {}  #: The whole ``task.start``.
        self.cancelled = threading.Event()  #: Set when the broker asks to stop.
        self.cancel_reason: str | None = None
        self._sink = sink
        self._lines = _Lines(source)
        self._write_lock = threading.Lock()
        self._answers: dict[str, queue.SimpleQueue[dict[str, Any]]] = {}
        self._answers_lock = threading.Lock()
        self._counter = 0
        self._free = threading.BoundedSemaphore(1)
        self._completed = False
        self._ended = threading.Event()

    @property
    def task(self) -> dict[str, Any]:
        """``instruction``, and perhaps ``title`` and ``context``."""
        return dict(self.start["task"])

    @property
    def tools(self) -> dict[str, dict[str, Any]]:
        """The tools that are offered, by name."""
        return {tool["name"]: tool for tool in self.start["tools"]}

    @property
    def recipes(self) -> dict[str, dict[str, Any]]:
        """The recipes that are registered, by id."""
        return {recipe["id"]: recipe for recipe in self.start["recipes"]}

    @property
    def limits(self) -> dict[str, Any]:
        """The bounds of the attempt."""
        return dict(self.start["limits"])

    @property
    def inference(self) -> dict[str, Any]:
        """The dialects, the models and the budget."""
        return dict(self.start["inference"])

    def read_file(self, path: str, **options: Any) -> dict[str, Any]:
        """``text`` of a file, or ``base64`` with ``encoding="base64"``, and its totals."""
        return self.call("read_file", {"path": path, **options})

    def list_files(self, prefix: str = "", **options: Any) -> dict[str, Any]:
        """A page of ``files``; pass its ``cursor`` on for the next one."""
        return self.call("list_files", {"prefix": prefix, **options})

    def search(self, query: str, **options: Any) -> dict[str, Any]:
        """The ``matches`` of a text, or of a pattern with ``regex=True``."""
        return self.call("search_files", {"query": query, **options})

    def apply_patch(self, patch: str, **options: Any) -> dict[str, Any]:
        """What a patch ``changed``, and the ``sourceDigest`` after it."""
        return self.call("apply_patch", {"patch": patch, **options})

    def edit_file(self, path: str, digest: str, edits: list[dict[str, Any]]) -> dict[str, Any]:
        """Exchange exact texts (``{"old", "new"}``) in the file with the ``digest`` of a read."""
        return self.call("edit_file", {"path": path, "digest": digest, "edits": edits})

    def write_file(self, path: str, content: str, **options: Any) -> dict[str, Any]:
        """Write a whole file; one that is there needs the ``digest`` that a read gave."""
        return self.call("write_file", {"path": path, "content": content, **options})

    def delete_file(self, path: str, digest: str) -> dict[str, Any]:
        """Delete the file with the ``digest`` that a read gave."""
        return self.call("delete_file", {"path": path, "digest": digest})

    def run_recipe(self, recipe_id: str, **options: Any) -> dict[str, Any]:
        """How a recipe ended: ``status``, ``exitCode``, ``stdout``, ``stderr``."""
        return self.call("run_recipe", {"recipeId": recipe_id, **options})

    def call(
        self,
        tool: str,
        tool_input: dict[str, Any],
        *,
        tool_call_id: str | None = None,
        intent: str | None = None,
        on_progress: Callable[[dict[str, Any]], None] | None = None,
    ) -> dict[str, Any]:
        """The result of any tool that is offered. Raises ``ToolError``."""
        request = {"type": "tool.request", "tool": tool, "input": tool_input}
        request.update(_given(toolCallId=tool_call_id, intent=intent))
        frames = self._request(request, self.limits["maxFrameBytes"])
        return _last_of(frames, "result", on_progress)

    def infer(self, api: str, model: str, body: dict[str, Any], **options: Any) -> dict[str, Any]:
        """The provider's answer to ``body``. Raises ``ToolError``."""
        return _last_of(self._inference(api, model, body, stream=False, **options), "response")

    def infer_stream(
        self, api: str, model: str, body: dict[str, Any], **options: Any
    ) -> Iterator[dict[str, Any]]:
        """The provider's events in order: ``{"event"?: name, "data": object or text}``."""
        for frame in self._inference(api, model, body, stream=True, **options):
            yield from frame.get("events", ())

    def event(self, kind: str, data: Any, *, request_id: str | None = None) -> None:
        """Something to show or to keep; it is not answered."""
        frame = {"type": "event", "kind": kind, "data": data, **_given(requestId=request_id)}
        self._send(frame, self.limits["maxFrameBytes"])

    def complete(
        self,
        status: str = "succeeded",
        *,
        summary: str | None = None,
        error: dict[str, str] | None = None,
        result: dict[str, Any] | None = None,
    ) -> None:
        """The last word. Returns when the broker has closed the pipe, so that none is lost."""
        given = _given(status=status, summary=summary, error=error, result=result)
        self._send({"type": "attempt.complete", **given}, MAX_LINE_BYTES, last=True)
        self._ended.wait()

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        """Complete, if the agent has not. An exception is the agent's own and goes on."""
        if not self._completed:
            if self.cancelled.is_set():
                self.complete("cancelled")
                return kind is not None and issubclass(kind, ToolError)
            if kind is None:
                self.complete()
            else:
                error = {"code": "agent_raised", "message": kind.__name__[:200]}
                self.complete("failed", error=error)
        return False

    def _begin(self, name: str, version: str, features: Iterable[str]) -> None:
        line = self._lines.next()
        if line is None:
            _leave(EXIT_BROKER_GONE)
        self.start = start = _parse(line)
        if start.get("type") != "task.start":
            _leave(EXIT_BAD_FRAME)
        self._lines.limit = self.limits["maxResponseFrameBytes"]
        self._free = threading.BoundedSemaphore(self.limits["maxInFlight"])
        if start["protocolVersion"] != VERSION:
            self._refuse_version()
        threading.Thread(target=self._read, name="adapter", daemon=True).start()
        ready = {
            "protocolVersion": VERSION,
            "agent": {"name": name, "version": version},
            "sdk": {"name": "airlock-adapter", "version": str(VERSION)},
            "features": [feature for feature in features if feature in start["features"]],
        }
        self.event("agent.ready", ready)

    def _refuse_version(self) -> NoReturn:
        error = {"code": "unsupported_protocol_version", "message": "Only version 1 is spoken."}
        refusal = {"type": "attempt.complete", "status": "failed", "error": error}
        self._send(refusal, MAX_LINE_BYTES, last=True)
        while self._lines.next() is not None:
            pass
        raise SystemExit(EXIT_BAD_FRAME)

    def _inference(
        self,
        api: str,
        model: str,
        body: dict[str, Any],
        *,
        stream: bool,
        headers: dict[str, str] | None = None,
        purpose: str | None = None,
        timeout_ms: int | None = None,
    ) -> Iterator[dict[str, Any]]:
        request = {"type": "inference.request", "api": api, "model": model, "stream": stream}
        request.update(_given(headers=headers, purpose=purpose, timeoutMs=timeout_ms), body=body)
        return self._request(request, self.limits["maxInferenceFrameBytes"])

    def _request(self, request: dict[str, Any], limit: int) -> Iterator[dict[str, Any]]:
        """The answers to a request, in order. Waits while too many are open."""
        with self._free:
            answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
            with self._answers_lock:
                self._counter += 1
                request_id = f"r{self._counter}"
                self._answers[request_id] = answers
            try:
                self._send({**request, "requestId": request_id}, limit)
            except BaseException:
                del self._answers[request_id]
                raise
            try:
                while True:
                    frame = answers.get()
                    if frame.get("error"):
                        raise ToolError(frame["error"], frame.get("decision"))
                    yield frame
                    if frame["final"]:
                        return
            finally:
                # Left in the middle of a stream: its place is free when it has ended.
                while request_id in self._answers:
                    answers.get()

    def _send(self, message: dict[str, Any], limit: int, *, last: bool = False) -> None:
        text = json.dumps(
            {"v": VERSION, **message}, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        )
        frame = text.encode() + b"\n"
        if len(frame) > limit:
            raise ToolError({"code": "too_large", "message": "The message is over its limit."})
        with self._write_lock:
            if self._completed:
                raise RuntimeError("the attempt is complete")
            self._completed = last
            try:
                _write_all(self._sink, frame)
            except BrokenPipeError:
                _leave(EXIT_BROKER_GONE)

    def _read(self) -> None:
        """The reader's thread: hand out answers until the broker closes the pipe."""
        code = EXIT_BAD_FRAME
        try:
            while (line := self._lines.next()) is not None:
                self._dispatch(_parse(line))
            code = EXIT_BROKER_GONE
        finally:
            # However it ended, no answer will come any more.
            if not self._completed:
                _leave(code)
            self._ended.set()

    def _dispatch(self, frame: dict[str, Any]) -> None:
        kind = frame["type"]
        if kind == "attempt.cancel":
            self.cancel_reason = frame["reason"]
            self.cancelled.set()
        elif kind in ("tool.response", "inference.response"):
            with self._answers_lock:
                request_id = frame["requestId"]
                answers = self._answers.get(request_id)
                if frame["final"]:
                    self._answers.pop(request_id, None)
            if answers is not None:
                answers.put(frame)
            elif not self._completed:
                raise ValueError("an answer to no request")
        else:
            raise ValueError("a frame that the broker does not send")


class _Lines:
    """The lines of a descriptor, each looked through once."""

    def __init__(self, source: int) -> None:
        self.limit = MAX_LINE_BYTES
        self._source = source
        self._held = bytearray()
        self._seen = 0

    def next(self) -> bytes | None:
        """The next line that is not blank, without its end; None at the end of the stream."""
        line = b""
        while not line.strip():
            while (end := self._held.find(b"\n", self._seen)) < 0:
                self._seen = len(self._held)
                if self._seen >= self.limit:
                    _leave(EXIT_BAD_FRAME)
                data = os.read(self._source, READ_BYTES)
                if not data:
                    return None
                self._held += data
            line = bytes(self._held[:end])
            del self._held[: end + 1]
            self._seen = 0
        return line


def _claim_pipe() -> tuple[int, int]:
    """The real ends of the pipe, private; 0 reads nothing and 1 is standard error."""
    source, sink = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    try:
        os.dup2(2, 1)
    except OSError:
        os.dup2(null, 1)
    os.close(null)
    # What was printed before now goes where everything that is printed goes.
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stdout.flush()
    return source, sink


def _parse(line: bytes) -> dict[str, Any]:
    frame = json.loads(line)
    if not isinstance(frame, dict) or frame.get("v") != VERSION:
        raise ValueError("not a frame of this version")
    return frame


def _write_all(sink: int, frame: bytes) -> None:
    view = memoryview(frame)
    while view:
        try:
            view = view[os.write(sink, view) :]
        except BlockingIOError:
            select.select([], [sink], [])


def _last_of(
    frames: Iterator[dict[str, Any]],
    member: str,
    on_progress: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """``member`` of the final frame."""
    for frame in frames:
        if not frame["final"] and on_progress is not None:
            on_progress(frame)
    return dict(frame[member])


def _given(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _leave(code: int) -> NoReturn:
    """End the process from any thread, at once."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stderr.flush()
    os._exit(code)
