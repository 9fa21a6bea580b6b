"""One model answer written in each of the three inference dialects, whole or as a stream. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, assert_never

import msgspec

from protocol.messages import Api, ProviderEvent, Usage

FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "other"]
"""Why a model stopped."""

#: Characters of one delta: small enough that a short answer is still a stream.
_DELTA_CHARS: Final = 512

_CHAT_FINISH: Final[dict[FinishReason, str]] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
    "other": "stop",
}
_MESSAGES_FINISH: Final[dict[FinishReason, str]] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
    "other": "end_turn",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelToolCall:
    """A tool call of a model: the id that its result must name, the tool, its arguments."""

    call_id: str
    name: str
    arguments: dict[str, Any]
    namespace: str | None

    @property
    def text(self) -> str:
        """The arguments as the JSON text that two of the dialects carry."""
        return msgspec.json.encode(self.arguments).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswer:
    """What a model said, in no dialect."""

    answer_id: str
    model: str
    text: str
    tool_calls: tuple[ModelToolCall, ...]
    finish: FinishReason
    usage: Usage


def render_response(api: Api, answer: ModelAnswer) -> dict[str, Any]:
    """``answer`` as the body of a response that is not streamed."""
    match api:
        case "openai.chat":
            message = {"role": "assistant", **_chat_content(answer)}
            choice = {"index": 0, "message": message, "finish_reason": _CHAT_FINISH[answer.finish]}
            return {
                **_chat_head(answer, "chat.completion"),
                "choices": [choice],
                "usage": _chat_usage(answer.usage),
            }
        case "openai.responses":
            return _response_object(answer, done=True)
        case "anthropic.messages":
            return {
                **_message_head(answer),
                "content": _message_blocks(answer),
                "stop_reason": _MESSAGES_FINISH[answer.finish],
                "usage": _message_usage(answer.usage),
            }
        case other:
            assert_never(other)


def render_events(api: Api, answer: ModelAnswer, *, include_usage: bool) -> Iterator[ProviderEvent]:
    """``answer`` as the events of a stream, in order and complete.

    ``include_usage`` is what a chat request asked for; the other dialects always say it.
    """
    match api:
        case "openai.chat":
            yield from _chat_events(answer, include_usage=include_usage)
        case "openai.responses":
            for number, (name, fields) in enumerate(_response_events(answer)):
                yield ProviderEvent(
                    event=name, data={"type": name, "sequence_number": number, **fields}
                )
        case "anthropic.messages":
            for name, fields in _message_events(answer):
                yield ProviderEvent(event=name, data={"type": name, **fields})
        case other:
            assert_never(other)


def _deltas(text: str) -> Iterator[str]:
    for start in range(0, len(text), _DELTA_CHARS):
        yield text[start : start + _DELTA_CHARS]


# openai.chat


def _chat_head(answer: ModelAnswer, kind: str) -> dict[str, Any]:
    return {"id": answer.answer_id, "object": kind, "created": 0, "model": answer.model}


def _chat_content(answer: ModelAnswer) -> dict[str, Any]:
    calls = [
        {
            "id": call.call_id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.text},
        }
        for call in answer.tool_calls
    ]
    content: dict[str, Any] = {"content": answer.text or None}
    return {**content, "tool_calls": calls} if calls else content


def _chat_usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_input_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def _chat_events(answer: ModelAnswer, *, include_usage: bool) -> Iterator[ProviderEvent]:
    head = _chat_head(answer, "chat.completion.chunk")

    def chunk(delta: dict[str, Any], finish: str | None = None) -> ProviderEvent:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return ProviderEvent(data={**head, "choices": [choice]})

    yield chunk({"role": "assistant", "content": ""})
    for text in _deltas(answer.text):
        yield chunk({"content": text})
    for index, call in enumerate(answer.tool_calls):
        first = {"index": index, "id": call.call_id, "type": "function"}
        yield chunk({"tool_calls": [{**first, "function": {"name": call.name, "arguments": ""}}]})
        for text in _deltas(call.text):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": text}}]})
    yield chunk({}, _CHAT_FINISH[answer.finish])
    if include_usage:
        yield ProviderEvent(data={**head, "choices": [], "usage": _chat_usage(answer.usage)})
    yield ProviderEvent(data="[DONE]")


# openai.responses


def _response_object(answer: ModelAnswer, *, done: bool) -> dict[str, Any]:
    cut = answer.finish in ("length", "content_filter")
    reason = "max_output_tokens" if answer.finish == "length" else "content_filter"
    return {
        "id": answer.answer_id,
        "object": "response",
        "created_at": 0,
        "status": "in_progress" if not done else "incomplete" if cut else "completed",
        "error": None,
        "incomplete_details": {"reason": reason} if done and cut else None,
        "model": answer.model,
        "output": list(_response_items(answer)) if done else [],
        "parallel_tool_calls": True,
        "usage": _response_usage(answer.usage) if done else None,
    }


def _response_items(answer: ModelAnswer) -> Iterator[dict[str, Any]]:
    if answer.text or not answer.tool_calls:
        yield {
            "type": "message",
            "id": f"msg_{answer.answer_id}",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": answer.text, "annotations": []}],
        }
    for call in answer.tool_calls:
        namespace = {} if call.namespace is None else {"namespace": call.namespace}
        yield {
            "type": "function_call",
            "id": f"fc_{call.call_id}",
            "call_id": call.call_id,
            "name": call.name,
            "arguments": call.text,
            "status": "completed",
            **namespace,
        }


def _response_usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_input_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


def _response_events(answer: ModelAnswer) -> Iterator[tuple[str, dict[str, Any]]]:
    opening = _response_object(answer, done=False)
    yield "response.created", {"response": opening}
    yield "response.in_progress", {"response": opening}
    for index, item in enumerate(_response_items(answer)):
        at = {"output_index": index}
        empty: dict[str, Any] = {"content": []} if item["type"] == "message" else {"arguments": ""}
        yield (
            "response.output_item.added",
            {**at, "item": {**item, **empty, "status": "in_progress"}},
        )
        at["item_id"] = item["id"]
        if item["type"] == "message":
            yield from _response_text_events(at, item["content"][0])
        else:
            for text in _deltas(item["arguments"]):
                yield "response.function_call_arguments.delta", {**at, "delta": text}
            yield "response.function_call_arguments.done", {**at, "arguments": item["arguments"]}
        yield "response.output_item.done", {"output_index": index, "item": item}
    closing = _response_object(answer, done=True)
    yield f"response.{closing['status']}", {"response": closing}


def _response_text_events(
    at: dict[str, Any], part: dict[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    at = {**at, "content_index": 0}
    yield "response.content_part.added", {**at, "part": {**part, "text": ""}}
    for text in _deltas(part["text"]):
        yield "response.output_text.delta", {**at, "delta": text}
    yield "response.output_text.done", {**at, "text": part["text"]}
    yield "response.content_part.done", {**at, "part": part}


# anthropic.messages


def _message_head(answer: ModelAnswer) -> dict[str, Any]:
    return {
        "id": answer.answer_id,
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "stop_sequence": None,
    }


def _message_blocks(answer: ModelAnswer) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": answer.text}] if answer.text else []
    for call in answer.tool_calls:
        block = {"type": "tool_use", "id": call.call_id, "name": call.name, "input": call.arguments}
        blocks.append(block)
    return blocks


def _message_usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_input_tokens": usage.cached_input_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
    }


def _message_events(answer: ModelAnswer) -> Iterator[tuple[str, dict[str, Any]]]:
    opening_usage = {**_message_usage(answer.usage), "output_tokens": 0}
    opening = {**_message_head(answer), "content": [], "stop_reason": None, "usage": opening_usage}
    yield "message_start", {"message": opening}
    for index, block in enumerate(_message_blocks(answer)):
        at = {"index": index}
        if block["type"] == "text":
            yield "content_block_start", {**at, "content_block": {"type": "text", "text": ""}}
            for text in _deltas(block["text"]):
                yield "content_block_delta", {**at, "delta": {"type": "text_delta", "text": text}}
        else:
            yield "content_block_start", {**at, "content_block": {**block, "input": {}}}
            for text in _deltas(msgspec.json.encode(block["input"]).decode()):
                delta = {"type": "input_json_delta", "partial_json": text}
                yield "content_block_delta", {**at, "delta": delta}
        yield "content_block_stop", at
    stop = {"stop_reason": _MESSAGES_FINISH[answer.finish], "stop_sequence": None}
    yield "message_delta", {"delta": stop, "usage": _message_usage(answer.usage)}
    yield "message_stop", {}
