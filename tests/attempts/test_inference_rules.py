"""What leaves for a provider is what the rules of the protocol allow, in every dialect."""

import copy
import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.attempts.request_rules import (
    Api,
    RequestDenied,
    RequestRules,
    Rewritten,
    apply_rules,
)

APIS: tuple[Api, ...] = get_args(Api)
TEXT = "https://example.org/a.png is only text here"
FUNCTION = {"name": "read", "parameters": {"type": "object"}}

BODIES: dict[Api, dict[str, Any]] = {
    "openai.chat": {
        "model": "main",
        "messages": [{"role": "system", "content": TEXT}, {"role": "user", "content": TEXT}],
        "tools": [{"type": "function", "function": FUNCTION}],
        "max_tokens": 100,
    },
    "openai.responses": {
        "model": "main",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": TEXT}]}],
        "tools": [{"type": "function", **FUNCTION}],
        "max_output_tokens": 100,
    },
    "anthropic.messages": {
        "model": "main",
        "messages": [{"role": "user", "content": [{"type": "text", "text": TEXT}]}],
        "tools": [{"name": "read", "input_schema": {"type": "object"}}],
        "max_tokens": 100,
    },
}
HOSTED: list[tuple[Api, dict[str, Any]]] = [
    ("openai.chat", {"web_search_options": {}}),
    ("openai.chat", {"tools": [{"type": "web_search"}]}),
    *[
        ("openai.responses", {"tools": [{"type": kind}]})
        for kind in (
            "web_search",
            "web_search_preview",
            "web_search_2025_08_26",
            "file_search",
            "code_interpreter",
            "computer_use_preview",
            "image_generation",
            "mcp",
            "something_new",
        )
    ],
    ("openai.responses", {"tools": [{"type": "namespace", "tools": [{"type": "mcp"}]}]}),
    ("openai.responses", {"tools": [{}]}),
    *[
        ("anthropic.messages", {"tools": [{"type": kind, "name": "x"}]})
        for kind in (
            "web_search_20250305",
            "web_fetch_20250910",
            "code_execution_20250825",
            "mcp_toolset",
            "something_new",
        )
    ],
    ("anthropic.messages", {"mcp_servers": [{"url": "https://example.org"}]}),
    ("anthropic.messages", {"container": "c1"}),
]


def rules(**changes: Any) -> RequestRules:
    values: dict[str, Any] = {
        "apis": frozenset(APIS),
        "models": {"main": 1000},
        "streaming": True,
        "on_hosted_tool": "strip",
        "user": "attempt-1",
    }
    return RequestRules(**{**values, **changes})


def apply(
    api: Api,
    body: dict[str, Any],
    *,
    model: str = "main",
    stream: bool = False,
    headers: dict[str, str] | None = None,
    **changes: Any,
) -> Rewritten | RequestDenied:
    return apply_rules(
        rules(**changes), api=api, model=model, stream=stream, body=body, headers=headers or {}
    )


def rewritten(api: Api, body: dict[str, Any], **options: Any) -> Rewritten:
    result = apply(api, body, **options)
    assert isinstance(result, Rewritten), result
    return result


def body_of(api: Api, **changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(BODIES[api]), **changes}


def with_part(api: Api, part: dict[str, Any]) -> dict[str, Any]:
    if api == "openai.responses":
        return body_of(api, input=[{"role": "user", "content": [part]}])
    return body_of(api, messages=[{"role": "user", "content": [part]}])


@pytest.mark.parametrize("api", APIS)
def test_a_plain_body_is_only_given_the_fixed_values(api: Api) -> None:
    before = body_of(api)
    result = rewritten(api, before)
    fixed = {"stream": False} | ({"store": False} if api == "openai.responses" else {})

    assert result.body == {**BODIES[api], **fixed}
    assert result.stripped == ()
    assert result.max_output_tokens == 100
    assert before == BODIES[api]


@pytest.mark.parametrize("api", APIS)
def test_the_offer_is_checked_in_a_fixed_order(api: Api) -> None:
    others = frozenset(APIS) - {api}

    assert apply(api, body_of(api), apis=others, model="x") == RequestDenied("unsupported_api")
    assert apply(api, body_of(api), model="x") == RequestDenied("unknown_model")
    assert apply(api, body_of(api, model="other")) == RequestDenied("invalid_message")
    assert apply(api, body_of(api, model=None)) == RequestDenied("invalid_message")
    assert apply(api, body_of(api), stream=True, streaming=False) == RequestDenied(
        "unsupported_feature"
    )


@pytest.mark.parametrize(("api", "change"), HOSTED)
def test_what_a_provider_would_run_is_stripped_or_denied(api: Api, change: dict[str, Any]) -> None:
    kept = BODIES[api]["tools"]
    body = body_of(api, **change)
    if "tools" in change:
        body["tools"] = [*kept, *change["tools"]]
    result = rewritten(api, body)

    assert result.body["tools"] == kept
    assert result.body.keys() <= {*BODIES[api], "stream", "store"}
    assert sum(count for _, count in result.stripped) == 1
    assert apply(api, body, on_hosted_tool="deny") == RequestDenied("hosted_tool_denied")


def test_a_namespace_keeps_its_own_tools_only() -> None:
    member = {"type": "function", **FUNCTION}
    space = {"type": "namespace", "name": "mcp__broker", "tools": [member, {"type": "mcp"}]}
    result = rewritten("openai.responses", body_of("openai.responses", tools=[space]))

    assert result.body["tools"] == [{**space, "tools": [member]}]
    assert result.stripped == (("hosted_tool", 1),)


@pytest.mark.parametrize("api", APIS)
def test_a_choice_of_a_tool_that_is_gone_goes_with_it(api: Api) -> None:
    hosted = {"type": "web_search", "name": "web_search"}
    chosen = {"type": "web_search", "name": "web_search"}
    only = rewritten(api, body_of(api, tools=[hosted], tool_choice=chosen)).body
    beside = rewritten(
        api, body_of(api, tools=[*BODIES[api]["tools"], hosted], tool_choice=chosen)
    ).body
    other = rewritten(
        api, body_of(api, tools=[*BODIES[api]["tools"], hosted], tool_choice="auto")
    ).body

    assert "tools" not in only
    assert "tool_choice" not in only
    assert "tool_choice" not in beside
    assert other["tool_choice"] == "auto"


@pytest.mark.parametrize("tools", ["read", {"name": "read"}, ["read"], [None], 1])
@pytest.mark.parametrize("api", APIS)
def test_tools_of_another_form_are_not_guessed_at(api: Api, tools: Any) -> None:
    assert apply(api, body_of(api, tools=tools)) == RequestDenied("invalid_message")


@pytest.mark.parametrize(
    "change",
    [
        {"store": True},
        {"background": True},
        {"previous_response_id": "r1"},
        {"conversation": "c1"},
        {"conversation": {"id": "c1"}},
        {"prompt": {"id": "p1"}},
    ],
)
@pytest.mark.parametrize("api", APIS)
def test_nothing_is_kept_or_found_at_the_provider(api: Api, change: dict[str, Any]) -> None:
    assert apply(api, body_of(api, **change)) == RequestDenied("unsupported_feature")
    absent = dict.fromkeys(change, None)
    assert isinstance(apply(api, body_of(api, **absent)), Rewritten)


REMOTE: list[tuple[Api, dict[str, Any]]] = [
    ("openai.chat", {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}),
    ("openai.chat", {"type": "image_url", "image_url": {"url": "DATA:image/png;base64,AA=="}}),
    ("openai.chat", {"type": "image_url", "image_url": {}}),
    ("openai.chat", {"type": "file", "file": {"file_id": "f1"}}),
    ("openai.chat", {"type": "file", "file": {"file_id": "f1", "file_data": "data:,x"}}),
    ("openai.responses", {"type": "input_image", "image_url": "file:///etc/passwd"}),
    ("openai.responses", {"type": "input_image", "file_id": "f1"}),
    ("openai.responses", {"type": "input_image", "image_url": "data:,x", "file_id": "f1"}),
    ("openai.responses", {"type": "input_file", "file_url": "https://example.org/a.pdf"}),
    (
        "openai.responses",
        {"type": "input_file", "file_data": "data:,x", "file_url": "https://example.org"},
    ),
    ("anthropic.messages", {"type": "image", "source": {"type": "url", "url": "https://x"}}),
    ("anthropic.messages", {"type": "document", "source": {"type": "file", "file_id": "f"}}),
    ("anthropic.messages", {"type": "document"}),
    ("anthropic.messages", {"type": "container_upload", "file_id": "f"}),
    (
        "anthropic.messages",
        {
            "type": "tool_result",
            "content": [{"type": "image", "source": {"type": "url", "url": "https://x"}}],
        },
    ),
    (
        "anthropic.messages",
        {
            "type": "document",
            "source": {
                "type": "content",
                "content": [{"type": "image", "source": {"type": "url", "url": "https://x"}}],
            },
        },
    ),
]
INLINE: list[tuple[Api, dict[str, Any]]] = [
    ("openai.chat", {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}),
    ("openai.chat", {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}),
    ("openai.chat", {"type": "file", "file": {"file_data": "data:application/pdf;base64,AA=="}}),
    ("openai.responses", {"type": "input_image", "image_url": "data:image/png;base64,AA=="}),
    ("openai.responses", {"type": "input_file", "file_data": "data:text/plain;base64,AA=="}),
    ("anthropic.messages", {"type": "image", "source": {"type": "base64", "data": "AA=="}}),
    ("anthropic.messages", {"type": "document", "source": {"type": "text", "data": "x"}}),
    ("anthropic.messages", {"type": "tool_use", "input": {"type": "image", "url": "https://x"}}),
    ("anthropic.messages", {"type": "tool_result", "content": "https://x"}),
]
UNKNOWN: list[tuple[Api, dict[str, Any]]] = [
    ("openai.chat", {"type": "video_url", "video_url": {"url": "https://x"}}),
    ("openai.responses", {"type": "input_video"}),
    ("anthropic.messages", {"type": "server_tool_use", "name": "web_search"}),
    ("anthropic.messages", {"type": "video", "source": {"type": "url", "url": "https://x"}}),
    ("anthropic.messages", {}),
]


@pytest.mark.parametrize(("api", "part"), REMOTE)
def test_media_that_a_provider_would_fetch_is_denied(api: Api, part: dict[str, Any]) -> None:
    assert apply(api, with_part(api, part)) == RequestDenied("remote_media_denied")


@pytest.mark.parametrize(("api", "part"), INLINE)
def test_inline_media_and_free_tool_input_pass(api: Api, part: dict[str, Any]) -> None:
    assert isinstance(apply(api, with_part(api, part)), Rewritten)


@pytest.mark.parametrize(("api", "part"), UNKNOWN)
def test_a_part_that_nobody_knows_is_not_forwarded(api: Api, part: dict[str, Any]) -> None:
    assert apply(api, with_part(api, part)) == RequestDenied("unsupported_feature")


@pytest.mark.parametrize("kind", ["item_reference", "mcp_call", "computer_call_output", "new"])
def test_items_that_a_provider_ran_or_keeps_are_not_forwarded(kind: str) -> None:
    body = body_of("openai.responses", input=[{"type": kind, "id": "i1"}])

    assert apply("openai.responses", body) == RequestDenied("unsupported_feature")


def test_a_tool_result_of_the_responses_dialect_is_looked_into() -> None:
    picture = {"type": "input_image", "image_url": "https://x"}
    for output, passes in ([picture], False), ("https://x", True):
        item = {"type": "function_call_output", "call_id": "c", "output": output}
        body = body_of("openai.responses", input=[item])
        assert isinstance(apply("openai.responses", body), Rewritten) is passes


@pytest.mark.parametrize(
    ("api", "names"),
    [
        ("openai.chat", ("max_tokens", "max_completion_tokens")),
        ("openai.responses", ("max_output_tokens",)),
        ("anthropic.messages", ("max_tokens",)),
    ],
)
def test_the_length_of_an_answer_always_has_a_bound(api: Api, names: tuple[str, ...]) -> None:
    bare = {name: value for name, value in BODIES[api].items() if name not in names}

    assert rewritten(api, bare).max_output_tokens == 1000
    assert max(rewritten(api, bare).body.get(name, 0) for name in names) == 1000
    for name in names:
        large = rewritten(api, {**bare, name: 10**6})
        assert (large.body[name], large.max_output_tokens) == (1000, 1000)
        small = rewritten(api, {**bare, name: 7})
        assert (small.body[name], small.max_output_tokens) == (7, 7)
        for wrong in (0, -1, True, 1.5, "100", [1]):
            assert apply(api, {**bare, name: wrong}) == RequestDenied("invalid_message")


@pytest.mark.parametrize("api", APIS)
def test_who_the_user_is_is_not_the_agents_to_say(api: Api) -> None:
    said = {"user": "eve", "safety_identifier": "eve", "metadata": {"user_id": "eve", "x": "eve"}}
    result = rewritten(api, body_of(api, **said))

    assert "eve" not in json.dumps(result.body)
    if api == "anthropic.messages":
        assert result.body["metadata"] == {"user_id": "attempt-1"}
    else:
        assert result.body["user"] == result.body["safety_identifier"] == "attempt-1"


def test_one_answer_only() -> None:
    assert rewritten("openai.chat", body_of("openai.chat", n=5)).body["n"] == 1


def test_an_answer_is_never_stored() -> None:
    assert rewritten("openai.responses", body_of("openai.responses")).body["store"] is False


@pytest.mark.parametrize("api", APIS)
def test_a_field_that_nobody_knows_is_left_out_and_counted(api: Api) -> None:
    result = rewritten(api, body_of(api, service_tier="priority", plugins=[{"id": "web"}]))

    assert result.body.keys() <= {*BODIES[api], "stream", "store"}
    assert result.stripped == (("unknown_field", 2),)


@pytest.mark.parametrize("api", APIS)
def test_only_known_headers_pass(api: Api) -> None:
    headers = {"anthropic-version": "2023-06-01", "authorization": "Bearer x", "cookie": "x"}
    result = rewritten(api, body_of(api), headers=headers)
    passed = {"anthropic-version": "2023-06-01"} if api == "anthropic.messages" else {}

    assert result.headers == passed
    assert result.stripped == (("header", 3 - len(passed)),)


@pytest.mark.parametrize("conversation", [None, {}, 5, [None], ["text"]])
@pytest.mark.parametrize("api", APIS)
def test_a_conversation_of_another_form_is_invalid(api: Api, conversation: Any) -> None:
    name = "input" if api == "openai.responses" else "messages"

    assert apply(api, body_of(api, **{name: conversation})) == RequestDenied("invalid_message")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "content",
                    "role",
                    "source",
                    "output",
                    "tools",
                    "image_url",
                    "file",
                    "name",
                ]
            ),
            inner | st.sampled_from(["message", "image", "document", "tool_result", "namespace"]),
            max_size=3,
        )
    ),
    max_leaves=10,
)


@given(api=st.sampled_from(APIS), conversation=JSON, tools=JSON, choice=JSON)
def test_any_json_gives_an_answer_and_no_exception(
    api: Api, conversation: Any, tools: Any, choice: Any
) -> None:
    name = "input" if api == "openai.responses" else "messages"
    body = body_of(api, **{name: conversation}, tools=tools, tool_choice=choice)

    assert isinstance(apply(api, body), Rewritten | RequestDenied)
