"""Whether a provider's answer is whole: a cut answer must never look like a finished one.

Judges by the end marks of each dialect and, where a tool is called, by whether its
arguments are complete JSON. Pure; changes nothing in what it sees.
"""

import json
from collections.abc import Iterator
from typing import Any, Final, final

from protocol.messages import Api, ProviderEvent

_RESPONSE_ENDS: Final = frozenset({"completed", "incomplete"})
#: Reasons with which a provider says itself that the answer was cut.
_CUT: Final = frozenset({"length", "max_tokens", "content_filter", "incomplete"})


def is_whole_response(api: Api, response: dict[str, Any]) -> bool:
    """Whether a body that is not streamed ends as its dialect says."""
    match api, response:
        case "openai.chat", {"choices": [_, *_] as choices}:
            return all(_is_whole_choice(choice) for choice in choices)
        case "openai.responses", {"status": str(status), "output": list(items)}:
            return status in _RESPONSE_ENDS and (
                status in _CUT or all(_is_json(text) for text in _arguments(items))
            )
        case "anthropic.messages", {"stop_reason": str(), "content": list()}:
            return True  # tool input is an object here, so it cannot be half of one
        case _:
            return False


@final
class StreamCheck:
    """Follows one stream; ``is_whole`` is true only after its last event and nothing later."""

    def __init__(self, api: Api) -> None:
        self._api: Final = api
        self._arguments: dict[object, list[str]] = {}
        self._finish: str | None = None
        self._ended = False
        self._late = False

    @property
    def is_whole(self) -> bool:
        """Whether the stream came to its end with every tool call complete."""
        if not self._ended or self._late or self._finish is None:
            return False
        return self._finish in _CUT or all(
            _is_json("".join(parts)) for parts in self._arguments.values()
        )

    def see(self, event: ProviderEvent) -> None:
        """Take notice of the next event."""
        self._late = self._late or self._ended
        match self._api, event.data:
            case "openai.chat", "[DONE]":
                self._ended = True
            case "openai.chat", {"choices": list(choices)}:
                for choice in choices:
                    self._see_choice(choice)
            case "openai.responses", {"type": str(kind), "response": {"output": list(items)}}:
                status = kind.removeprefix("response.")
                if status in _RESPONSE_ENDS:
                    self._ended, self._finish = True, status
                    self._arguments = {n: [text] for n, text in enumerate(_arguments(items))}
            case "anthropic.messages", {"type": "message_stop"}:
                self._ended = True
            case "anthropic.messages", {
                "type": "message_delta",
                "delta": {"stop_reason": str(stop)},
            }:
                self._finish = stop
            case "anthropic.messages", {
                "type": "content_block_delta",
                "index": index,
                "delta": {"partial_json": str(text)},
            }:
                self._arguments.setdefault(str(index), []).append(text)
            case _:
                pass

    def _see_choice(self, choice: object) -> None:
        match choice:
            case {"finish_reason": str(reason)}:
                self._finish = reason
            case {"delta": {"tool_calls": list(calls)}}:
                for call in calls:
                    match call:
                        case {"index": index, "function": {"arguments": str(text)}}:
                            self._arguments.setdefault(str(index), []).append(text)


def _is_whole_choice(choice: object) -> bool:
    match choice:
        case {"finish_reason": str(reason), "message": {} as message}:
            calls = message.get("tool_calls") or []
            texts = [
                text
                for call in calls
                if isinstance(call, dict)
                for text in [call.get("function", {}).get("arguments", "")]
            ]
            return reason in _CUT or all(_is_json(text) for text in texts)
        case _:
            return False


def _arguments(items: list[Any]) -> Iterator[str]:
    for item in items:
        match item:
            case {"type": "function_call", "arguments": str(text)}:
                yield text


def _is_json(text: object) -> bool:
    """Whether ``text`` is complete JSON; no arguments at all are written as no text."""
    if not isinstance(text, str):
        return False
    try:
        json.loads(text or "{}")
    except (ValueError, RecursionError):
        return False
    return True
