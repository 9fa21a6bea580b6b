"""What an agent's inference body may ask of a provider: a pure rewriting, or a refusal by code.

Everything that would make the provider act, fetch or remember by itself is taken out or
refused (protocol.md 3.6). Fields, tool types and content parts are closed lists for each
dialect: what is not known is not forwarded. Never sends anything and sees no credential.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from broker.attempts.media_rules import check_conversation
from protocol.codes import WireCode
from protocol.messages import Api

Stripped = Literal["hosted_tool", "hosted_field", "unknown_field", "header"]
"""What kind of thing was taken out of a request; never its own name, which the agent wrote."""

#: Forwarded as they are or rewritten below. Left out on purpose: ``service_tier`` (a price),
#: ``metadata`` of the OpenAI dialects (only kept with a stored answer), audio output.
_FIELDS: Final[Mapping[Api, frozenset[str]]] = {
    "openai.chat": frozenset(
        {
            "frequency_penalty",
            "function_call",
            "functions",
            "logit_bias",
            "logprobs",
            "max_completion_tokens",
            "max_tokens",
            "messages",
            "model",
            "n",
            "parallel_tool_calls",
            "prediction",
            "presence_penalty",
            "prompt_cache_key",
            "reasoning_effort",
            "response_format",
            "safety_identifier",
            "seed",
            "stop",
            "store",
            "stream",
            "stream_options",
            "temperature",
            "tool_choice",
            "tools",
            "top_logprobs",
            "top_p",
            "user",
            "verbosity",
        }
    ),
    "openai.responses": frozenset(
        {
            "include",
            "input",
            "instructions",
            "max_output_tokens",
            "max_tool_calls",
            "model",
            "parallel_tool_calls",
            "prompt_cache_key",
            "reasoning",
            "safety_identifier",
            "store",
            "stream",
            "stream_options",
            "temperature",
            "text",
            "tool_choice",
            "tools",
            "top_logprobs",
            "top_p",
            "truncation",
            "user",
        }
    ),
    "anthropic.messages": frozenset(
        {
            "cache_control",
            "context_management",
            "max_tokens",
            "messages",
            "metadata",
            "model",
            "output_config",
            "output_format",
            "stop_sequences",
            "stream",
            "system",
            "temperature",
            "thinking",
            "tool_choice",
            "tools",
            "top_k",
            "top_p",
        }
    ),
}

#: Fields that switch something on at the provider; ``onHostedTool`` decides about them.
_HOSTED_FIELDS: Final[Mapping[Api, frozenset[str]]] = {
    "openai.chat": frozenset({"web_search_options"}),
    "openai.responses": frozenset(),
    "anthropic.messages": frozenset({"container", "mcp_servers"}),
}

#: Fields that name or make state at the provider. ``store`` counts only when it is true.
_STATE_FIELDS: Final = frozenset({"background", "conversation", "previous_response_id", "prompt"})

#: Tools that the agent runs itself. A tool of the messages dialect without a type is one.
_CLIENT_TOOLS: Final[Mapping[Api, frozenset[str]]] = {
    "openai.chat": frozenset({"function", "custom"}),
    "openai.responses": frozenset(
        {"apply_patch", "custom", "function", "local_shell", "namespace"}
    ),
    "anthropic.messages": frozenset(
        {
            "bash_20241022",
            "bash_20250124",
            "custom",
            "memory_20250818",
            "text_editor_20241022",
            "text_editor_20250124",
            "text_editor_20250429",
            "text_editor_20250728",
        }
    ),
}

_MAX_TOKEN_FIELDS: Final[Mapping[Api, tuple[str, ...]]] = {
    "openai.chat": ("max_completion_tokens", "max_tokens"),
    "openai.responses": ("max_output_tokens",),
    "anthropic.messages": ("max_tokens",),
}

_HEADERS: Final[Mapping[Api, frozenset[str]]] = {
    "openai.chat": frozenset(),
    "openai.responses": frozenset(),
    "anthropic.messages": frozenset({"anthropic-beta", "anthropic-version"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRules:
    """What one attempt is offered."""

    apis: frozenset[Api]
    models: Mapping[str, int]  #: alias to the most output tokens of one answer
    streaming: bool
    on_hosted_tool: Literal["strip", "deny"]
    user: str  #: what stands for the agent's user at the provider; scoped to the attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """A body that may be sent, and how many things of each kind were taken out of it."""

    body: dict[str, Any]
    headers: dict[str, str]
    max_output_tokens: int
    stripped: tuple[tuple[Stripped, int], ...]


@dataclass(frozen=True, slots=True)
class RequestDenied:
    """The request is answered with ``code`` and goes nowhere."""

    code: WireCode


def apply_rules(
    rules: RequestRules,
    *,
    api: Api,
    model: str,
    stream: bool,
    body: Mapping[str, Any],
    headers: Mapping[str, str],
) -> Rewritten | RequestDenied:
    """``body`` as it may be sent to a provider. The argument is left as it was."""
    denied = _check_offer(rules, api=api, model=model, stream=stream, body=body)
    denied = denied or _check_state(body) or check_conversation(api, body)
    if denied is not None:
        return RequestDenied(denied)
    count: dict[Stripped, int] = {}
    kept = {name: value for name, value in body.items() if name in _FIELDS[api]}
    for name in body.keys() - kept.keys():
        kind: Stripped = "hosted_field" if name in _HOSTED_FIELDS[api] else "unknown_field"
        count[kind] = count.get(kind, 0) + 1
    if not _keep_client_tools(api, kept, count):
        return RequestDenied("invalid_message")
    if rules.on_hosted_tool == "deny" and count.keys() & {"hosted_tool", "hosted_field"}:
        return RequestDenied("hosted_tool_denied")
    limit = clamp_output(api, kept, rules.models[model])
    if limit is None:
        return RequestDenied("invalid_message")
    _set_fixed(api, kept, stream=stream, user=rules.user)
    allowed = {name: text for name, text in headers.items() if name.lower() in _HEADERS[api]}
    if len(headers) > len(allowed):
        count["header"] = len(headers) - len(allowed)
    return Rewritten(
        body=kept,
        headers=allowed,
        max_output_tokens=limit,
        stripped=tuple(sorted(count.items())),
    )


def clamp_output(api: Api, body: dict[str, Any], most: int) -> int | None:
    """Cap every field that bounds the answer, or set one; ``None`` when one is not a count."""
    limits: dict[str, int] = {}
    for name in _MAX_TOKEN_FIELDS[api]:
        value = body.get(name)
        if value is None:
            continue
        if type(value) is not int or value < 1:
            return None
        limits[name] = min(value, most)
    if not limits:
        limits[_MAX_TOKEN_FIELDS[api][0]] = most
    body.update(limits)
    return min(limits.values())


def _check_offer(
    rules: RequestRules, *, api: Api, model: str, stream: bool, body: Mapping[str, Any]
) -> WireCode | None:
    if api not in rules.apis:
        return "unsupported_api"
    if model not in rules.models:
        return "unknown_model"
    if body.get("model") != model:
        return "invalid_message"
    if stream and not rules.streaming:
        return "unsupported_feature"
    return None


def _check_state(body: Mapping[str, Any]) -> WireCode | None:
    """Nothing may be kept at a provider, and nothing that is kept there may be named."""
    if any(body.get(name) not in (None, False) for name in (*_STATE_FIELDS, "store")):
        return "unsupported_feature"
    return None


def _keep_client_tools(api: Api, body: dict[str, Any], count: dict[Stripped, int]) -> bool:
    """Leave only the tools that the agent runs; false when the list is not a list of objects."""
    tools = body.get("tools")
    if tools is None:
        body.pop("tools", None)
        return True
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        return False
    kept = list(_client_tools(api, tools))
    dropped = _count_tools(tools) - _count_tools(kept)
    if dropped:
        count["hosted_tool"] = count.get("hosted_tool", 0) + dropped
        if not _choice_is_served(body.get("tool_choice"), kept):
            body.pop("tool_choice", None)
    if kept:
        body["tools"] = kept
    else:
        del body["tools"]
        body.pop("tool_choice", None)
    return True


def _client_tools(api: Api, tools: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for tool in tools:
        kind = tool.get("type", "custom" if api == "anthropic.messages" else None)
        if not isinstance(kind, str) or kind not in _CLIENT_TOOLS[api]:
            continue
        if kind != "namespace":
            yield tool
            continue
        members = tool.get("tools")
        if isinstance(members, list) and all(isinstance(member, dict) for member in members):
            kept = list(_client_tools(api, members))
            if kept:
                yield {**tool, "tools": kept}


def _count_tools(tools: list[dict[str, Any]]) -> int:
    """Tools, those of a namespace one by one; a namespace without a list of them is one."""
    total = 0
    for tool in tools:
        members = tool.get("tools") if tool.get("type") == "namespace" else None
        total += max(1, len(members)) if isinstance(members, list) else 1
    return total


def _choice_is_served(choice: object, tools: list[dict[str, Any]]) -> bool:
    """Whether a tool choice still names something after tools were taken out."""
    if not isinstance(choice, dict):
        return True
    named = choice.get("name")
    if named is None:
        named = (
            choice.get("function", {}).get("name")
            if isinstance(choice.get("function"), dict)
            else None
        )
    if named is None:
        return choice.get("type") in ("auto", "any", "none")
    return any(
        named == (tool.get("name") or tool.get("function", {}).get("name")) for tool in tools
    )


def _set_fixed(api: Api, body: dict[str, Any], *, stream: bool, user: str) -> None:
    """The values that are not the agent's to choose."""
    body["stream"] = stream
    if api == "openai.responses":
        body["store"] = False  # the provider's own default is to keep the answer
    elif "n" in body:
        body["n"] = 1
    for name in ("user", "safety_identifier"):
        if name in body:
            body[name] = user
    if "metadata" in body:
        body["metadata"] = {"user_id": user}
