"""Which parts a conversation may hold: all inline, nothing that a provider would fetch or look up.

Walks the messages of the three dialects by their own form; what an agent wrote as tool
input or tool text is free and is not looked into. Pure.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from protocol.codes import WireCode
from protocol.messages import Api

_INLINE: Final = "data:"

_CHAT_TEXT: Final = frozenset({"text", "refusal"})
_RESPONSE_TEXT: Final = frozenset(
    {"input_text", "output_text", "reasoning_text", "refusal", "summary_text", "text"}
)
#: Items of the responses dialect without content of their own, or with text only.
_RESPONSE_PLAIN: Final = frozenset(
    {
        "apply_patch_call",
        "apply_patch_call_output",
        "compaction",
        "custom_tool_call",
        "function_call",
        "local_shell_call",
        "local_shell_call_output",
        "reasoning",
    }
)
_MESSAGES_PLAIN: Final = frozenset({"redacted_thinking", "text", "thinking", "tool_use"})
#: Blocks that hold other blocks in ``content``, which may also be one text.
_MESSAGES_NESTED: Final = frozenset({"search_result", "tool_result"})


def check_conversation(api: Api, body: Mapping[str, Any]) -> WireCode | None:
    """Why ``body`` may not be sent, or ``None``."""
    codes = {
        "openai.chat": _check_chat,
        "openai.responses": _check_responses,
        "anthropic.messages": _check_messages,
    }[api](body)
    return next(codes, None)


def _check_chat(body: Mapping[str, Any]) -> Iterator[WireCode]:
    for message in _required_list(body.get("messages")):
        if not isinstance(message, dict):
            yield "invalid_message"
            continue
        if message.get("audio") is not None:
            yield "unsupported_feature"  # the id of an answer that the provider keeps
        for part in _parts(message.get("content")):
            match part:
                case {"type": str(kind)} if kind in _CHAT_TEXT:
                    pass
                case {"type": "image_url", "image_url": {"url": str(url)} | str(url)}:
                    yield from _require_inline(url)
                case {"type": "input_audio", "input_audio": {"data": str()}}:
                    pass
                case {"type": "file", "file": {"file_data": str(data)} as file}:
                    yield from _require_inline(data, file.get("file_id"))
                case {"type": "image_url" | "input_audio" | "file"}:
                    yield "remote_media_denied"
                case _:
                    yield "unsupported_feature"


def _check_responses(body: Mapping[str, Any]) -> Iterator[WireCode]:
    items = body.get("input")
    for item in [] if isinstance(items, str) else _required_list(items):
        match item:
            case {"type": str(kind)} if kind in _RESPONSE_PLAIN:
                pass
            case {"type": "function_call_output" | "custom_tool_call_output"}:
                yield from _check_response_parts(item.get("output"))
            case {"role": str()} if item.get("type", "message") == "message":
                yield from _check_response_parts(item.get("content"))
            case {"type": str()}:
                yield "unsupported_feature"  # what a provider ran, or keeps, or nobody knows
            case _:
                yield "invalid_message"


def _check_response_parts(content: object) -> Iterator[WireCode]:
    for part in _parts(content):
        match part:
            case {"type": str(kind)} if kind in _RESPONSE_TEXT:
                pass
            case {"type": "input_image", "image_url": str(url)}:
                yield from _require_inline(url, part.get("file_id"))
            case {"type": "input_file", "file_data": str(data)}:
                yield from _require_inline(data, part.get("file_id"), part.get("file_url"))
            case {"type": "input_audio", "input_audio": {"data": str()}}:
                pass
            case {"type": "input_image" | "input_file" | "input_audio"}:
                yield "remote_media_denied"
            case _:
                yield "unsupported_feature"


def _check_messages(body: Mapping[str, Any]) -> Iterator[WireCode]:
    yield from _check_blocks(body.get("system"))
    for message in _required_list(body.get("messages")):
        if isinstance(message, dict):
            yield from _check_blocks(message.get("content"))
        else:
            yield "invalid_message"


def _check_blocks(content: object) -> Iterator[WireCode]:
    for block in _parts(content):
        match block:
            case {"type": str(kind)} if kind in _MESSAGES_PLAIN:
                pass
            case {"type": str(kind)} if kind in _MESSAGES_NESTED:
                yield from _check_blocks(block.get("content"))
            case {"type": "image" | "document", "source": {"type": "base64" | "text"}}:
                pass
            case {"type": "document", "source": {"type": "content", "content": inner}}:
                yield from _check_blocks(inner)
            case {"type": "image" | "document" | "container_upload"}:
                yield "remote_media_denied"
            case _:
                yield "unsupported_feature"


def _required_list(value: object) -> Iterator[Any]:
    """The items of a list that must be there; anything else is one item that no rule takes."""
    yield from value if isinstance(value, list) else [None]


def _parts(content: object) -> Iterator[Any]:
    """The parts of a content field; absent and plain text have none."""
    if content is None or isinstance(content, str):
        return
    yield from _required_list(content)


def _require_inline(data: str, *names: object) -> Iterator[WireCode]:
    """``data`` must carry its bytes, and nothing beside it may name bytes elsewhere."""
    if not data.startswith(_INLINE) or any(name is not None for name in names):
        yield "remote_media_denied"
