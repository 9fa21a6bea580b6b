"""Inference without a model: answers from a script file, the same ones every time.

Reads the file once and completely before the first answer. Never reaches a network.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, final

import msgspec

from broker.attempts.dialects import ModelAnswer, ModelToolCall, render_events, render_response
from broker.attempts.inference import Emit, Failed, Finished, InferenceCall
from protocol.codes import RETRYABLE
from protocol.errors import Refusal
from protocol.messages import Api, ProviderEvent, Usage

#: A script is written by hand or recorded from one attempt; it is held in memory.
MAX_SCRIPT_BYTES: Final = 8 * 1024 * 1024
MAX_SCRIPT_RULES: Final = 10_000

#: What English text and code come to on average. Only stands in for a script's own figure.
_BYTES_PER_TOKEN: Final = 4
_RETRY_AFTER_MS: Final = 1000

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
_Positive = Annotated[int, msgspec.Meta(ge=1, le=2**53 - 1)]
_Code = Literal[
    "budget_exhausted",
    "content_refused",
    "context_too_large",
    "rate_limited",
    "upstream_error",
    "upstream_overloaded",
    "upstream_timeout",
]


class _Closed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A part of a rule. A field that is not known is refused, not ignored."""


class _Match(_Closed, frozen=True):
    """Which requests a rule answers: all that it says must hold."""

    api: Api | None = None
    model: str | None = None
    purpose: Literal["main", "side"] | None = None
    contains: str | None = None  #: in a text of the last message that the agent sent
    turn: _Positive | None = None  #: the number of the request in its attempt, from 1


class _ToolCall(_Closed, frozen=True):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    input: dict[str, Any]
    namespace: str | None = None


class _Usage(_Closed, frozen=True):
    input_tokens: _Count
    output_tokens: _Count
    cached_input_tokens: _Count = 0
    cache_write_tokens: _Count = 0
    reasoning_tokens: _Count = 0


class _Answer(_Closed, frozen=True):
    """Text, tool calls or both; or an error; or a provider's own body, word for word."""

    text: str = ""
    tool_calls: tuple[_ToolCall, ...] = ()
    finish: Literal["stop", "length", "content_filter"] | None = None
    usage: _Usage | None = None
    error: _Code | None = None
    raw: dict[str, Any] | None = None


class _Rule(_Closed, frozen=True):
    """One line of a script."""

    match: _Match
    answer: _Answer
    times: _Positive | None = None  #: how often in one attempt; absent is always


@final
class ScriptedSource:
    """Answers each request by the first rule that matches it, counted for each attempt."""

    def __init__(self, rules: Sequence[_Rule]) -> None:
        self._rules: Final = tuple(rules)
        self._turns: dict[str, int] = {}
        self._uses: dict[tuple[str, int], int] = {}

    @classmethod
    def load(cls, path: Path) -> "ScriptedSource":
        """The script at ``path``: a JSON object on each line; blank lines are skipped.

        Raises ``Refusal``: ``file_not_found``, ``file_too_large`` (the bound in bytes), or
        ``inference_malformed`` with the number of the line, from 1.
        """
        try:
            with path.open("rb") as stream:
                data = stream.read(MAX_SCRIPT_BYTES + 1)
        except OSError as error:
            raise Refusal("file_not_found") from error
        if len(data) > MAX_SCRIPT_BYTES:
            raise Refusal("file_too_large", figure=MAX_SCRIPT_BYTES)
        return cls(parse_script(data))

    async def answer(self, call: InferenceCall, emit: Emit) -> Finished | Failed:
        """The scripted answer; without a matching rule it is ``upstream_error``."""
        rule = self._take(call)
        if rule is None:
            return Failed("upstream_error")
        scripted = rule.answer
        if scripted.error is not None:
            retry = _RETRY_AFTER_MS if scripted.error in RETRYABLE else None
            return Failed(scripted.error, retry_after_ms=retry)
        usage = _usage(call, scripted)
        answer = _model_answer(call, scripted, usage=usage, turn=self._turns[call.attempt_id])
        if scripted.raw is not None:
            return _answer_raw(call, scripted.raw, answer, emit)
        if not call.stream:
            return Finished(
                usage=usage, finish=answer.finish, response=render_response(call.api, answer)
            )
        wanted = call.body.get("stream_options")
        include_usage = isinstance(wanted, dict) and wanted.get("include_usage") is True
        emit(tuple(render_events(call.api, answer, include_usage=include_usage)))
        return Finished(usage=usage, finish=answer.finish, response=None)

    def _take(self, call: InferenceCall) -> _Rule | None:
        """Count the request and the rule that answers it."""
        turn = self._turns[call.attempt_id] = self._turns.get(call.attempt_id, 0) + 1
        said = last_message_text(call.api, call.body)
        for index, rule in enumerate(self._rules):
            key = (call.attempt_id, index)
            used = self._uses.get(key, 0)
            if (rule.times is None or used < rule.times) and _matches(rule.match, call, turn, said):
                self._uses[key] = used + 1
                return rule
        return None


def parse_script(data: bytes) -> tuple[_Rule, ...]:
    """The rules of a script, or ``Refusal("inference_malformed")`` with the line's number."""
    rules: list[_Rule] = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            rule = msgspec.json.decode(line, type=_Rule)
            json.loads(line, object_pairs_hook=_refuse_duplicates)
        except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
            raise Refusal("inference_malformed", figure=number) from None
        if len(rules) >= MAX_SCRIPT_RULES or _is_contradictory(rule.answer):
            raise Refusal("inference_malformed", figure=number)
        rules.append(rule)
    return tuple(rules)


def last_message_text(api: Api, body: Mapping[str, Any]) -> str:
    """Every text in the last message of the conversation, joined by line feeds."""
    conversation = body.get("input" if api == "openai.responses" else "messages")
    if isinstance(conversation, list):
        return "\n".join(_texts(conversation[-1])) if conversation else ""
    return conversation if isinstance(conversation, str) else ""


def _texts(value: object) -> list[str]:
    match value:
        case str():
            return [value]
        case list():
            return [text for item in value for text in _texts(item)]
        case dict():
            return [text for item in value.values() for text in _texts(item)]
        case _:
            return []


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def _is_contradictory(answer: _Answer) -> bool:
    """An answer is an error, or a raw body, or text and tool calls; never two of them."""
    said = bool(answer.text or answer.tool_calls)
    return sum((said, answer.error is not None, answer.raw is not None)) > 1


def _matches(match: _Match, call: InferenceCall, turn: int, said: str) -> bool:
    return (
        (match.api is None or match.api == call.api)
        and (match.model is None or match.model == call.model)
        and (match.purpose is None or match.purpose == call.purpose)
        and (match.turn is None or match.turn == turn)
        and (match.contains is None or match.contains in said)
    )


def _usage(call: InferenceCall, answer: _Answer) -> Usage:
    if answer.usage is not None:
        return Usage(**msgspec.structs.asdict(answer.usage))
    said = answer.text + "".join(str(call.input) for call in answer.tool_calls)
    return Usage(
        input_tokens=len(msgspec.json.encode(call.body)) // _BYTES_PER_TOKEN + 1,
        output_tokens=len(said.encode()) // _BYTES_PER_TOKEN + 1,
        cached_input_tokens=0,
        cache_write_tokens=0,
        reasoning_tokens=0,
    )


def _model_answer(call: InferenceCall, answer: _Answer, *, usage: Usage, turn: int) -> ModelAnswer:
    calls = tuple(
        ModelToolCall(
            call_id=f"call_{turn}_{index}",
            name=tool.name,
            arguments=tool.input,
            namespace=tool.namespace,
        )
        for index, tool in enumerate(answer.tool_calls)
    )
    return ModelAnswer(
        answer_id=f"scripted_{turn}",
        model=call.model,
        text=answer.text,
        tool_calls=calls,
        finish=answer.finish or ("tool_calls" if calls else "stop"),
        usage=usage,
    )


def _answer_raw(
    call: InferenceCall, raw: dict[str, Any], answer: ModelAnswer, emit: Emit
) -> Finished | Failed:
    """A body word for word; for a stream it is ``{"events": [{"event"?, "data"}, ...]}``."""
    if not call.stream:
        return Finished(usage=answer.usage, finish=answer.finish, response=raw)
    try:
        events = msgspec.convert(raw.get("events"), tuple[ProviderEvent, ...])
    except msgspec.ValidationError:
        return Failed("upstream_error")
    emit(events)
    return Finished(usage=answer.usage, finish=answer.finish, response=None)
