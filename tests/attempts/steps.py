"""The steps of the puppet agent, and frames for it, as values that a test can list."""

from typing import Any

Step = dict[str, Any]


def send(**frame: Any) -> Step:
    """Sends one frame; ``type`` is a keyword like every other member."""
    return {"do": "send", "frame": frame}


def event(kind: str, **data: Any) -> Step:
    return send(type="event", kind=kind, data=data)


def tool(request_id: str, name: str, **given: Any) -> Step:
    return send(type="tool.request", requestId=request_id, tool=name, input=given)


def read(request_id: str, path: str) -> Step:
    return tool(request_id, "read_file", path=path)


def infer(request_id: str, *, text: str = "hello", model: str = "scripted") -> Step:
    body = {"model": model, "max_tokens": 64, "messages": [{"role": "user", "content": text}]}
    return send(
        type="inference.request",
        requestId=request_id,
        api="anthropic.messages",
        model=model,
        stream=False,
        body=body,
    )


def answer(request_id: str) -> Step:
    return {"do": "answer", "id": request_id}


def complete(status: str = "succeeded", **claim: Any) -> Step:
    return send(type="attempt.complete", status=status, **claim)


def raw(data: bytes) -> Step:
    return {"do": "raw", "hex": data.hex()}


def pattern(data: bytes, times: int) -> Step:
    return {"do": "pattern", "hex": data.hex(), "times": times}


def do(name: str, **given: Any) -> Step:
    return {"do": name, **given}
