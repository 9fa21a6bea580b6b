"""A scripted answer is the same in every dialect, whole or streamed, and never half of one."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
import trio

from broker.attempts.budget import NOTHING, BudgetCounter, InferenceBudget
from broker.attempts.inference import (
    Emit,
    Failed,
    Finished,
    InferenceCall,
    InferenceSource,
    ScriptedSpec,
    parse_inference_spec,
    prepare_call,
)
from broker.attempts.relay import Served, serve_call
from broker.attempts.request_rules import RequestDenied, RequestRules
from broker.attempts.scripted import MAX_SCRIPT_BYTES, ScriptedSource, parse_script
from protocol.errors import Refusal
from protocol.messages import Api, InferenceRequest, InferenceResponse, ProviderEvent, Usage

APIS: tuple[Api, ...] = get_args(Api)
MAX_BYTES = 8 * 1024 * 1024
LONG = "".join(f"line {n}: ünïcödé \u2028 \x85 🙂\n" for n in range(200))
ANSWERS: list[dict[str, Any]] = [
    {"text": "Hello."},
    {"text": LONG},
    {"toolCalls": [{"name": "apply_patch", "input": {"patch": LONG}}]},
    {"toolCalls": [{"name": "a", "input": {}}, {"name": "b", "input": {"x": [1, None]}}]},
    {"text": "Both.", "toolCalls": [{"name": "a", "input": {"x": 1}}]},
    {"text": "Cut", "finish": "length"},
    {},
]


def rules() -> RequestRules:
    return RequestRules(
        apis=frozenset(APIS),
        models={"main": 4096},
        streaming=True,
        on_hosted_tool="strip",
        user="attempt-1",
    )


def counter(**bounds: int) -> BudgetCounter:
    every: dict[str, int | None] = {
        "requests": None,
        "input_tokens": None,
        "output_tokens": None,
    }
    return BudgetCounter(InferenceBudget(**{**every, **bounds}))


def request(
    api: Api, *, stream: bool = False, text: str = "hello", **fields: Any
) -> InferenceRequest:
    name = "input" if api == "openai.responses" else "messages"
    body: dict[str, Any] = {"model": "main", name: [{"role": "user", "content": text}]}
    if api == "openai.chat" and stream:
        body["stream_options"] = {"include_usage": True}
    values = {"request_id": "r1", "api": api, "model": "main", "stream": stream, "body": body}
    return InferenceRequest(**{**values, **fields})


def call_for(asked: InferenceRequest, budget: BudgetCounter | None = None) -> InferenceCall:
    call = prepare_call(
        asked,
        attempt_id="a1",
        rules=rules(),
        budget=budget or counter(),
        timeout_seconds=5,
    )
    assert isinstance(call, InferenceCall), call
    return call


async def serve(
    source: InferenceSource,
    asked: InferenceRequest,
    *,
    budget: BudgetCounter | None = None,
    max_response_bytes: int = MAX_BYTES,
) -> tuple[Served, list[InferenceResponse]]:
    budget = budget or counter()
    frames: list[InferenceResponse] = []
    served = await serve_call(
        call_for(asked, budget),
        source=source,
        budget=budget,
        send=frames.append,
        max_response_bytes=max_response_bytes,
    )
    assert [frame.index for frame in frames] == list(range(len(frames)))
    assert [frame.final for frame in frames] == [False] * (len(frames) - 1) + [True]
    assert served.frames == len(frames)
    return served, frames


def script(*answers: dict[str, Any], **match: Any) -> ScriptedSource:
    lines = [json.dumps({"match": match, "answer": answer}) for answer in answers]
    return ScriptedSource(parse_script("\n".join(lines).encode()))


# A client of each dialect, as an agent has one: from a body or from events to the same facts.

Said = tuple[str, list[tuple[str, str, Any]]]


def read_body(api: Api, body: dict[str, Any]) -> Said:
    text, calls = "", []
    match api:
        case "openai.chat":
            (choice,) = body["choices"]
            text = choice["message"]["content"] or ""
            for call in choice["message"].get("tool_calls", []):
                function = call["function"]
                calls.append((call["id"], function["name"], json.loads(function["arguments"])))
        case "openai.responses":
            for item in body["output"]:
                if item["type"] == "message":
                    text += "".join(part["text"] for part in item["content"])
                else:
                    calls.append((item["call_id"], item["name"], json.loads(item["arguments"])))
        case "anthropic.messages":
            for block in body["content"]:
                if block["type"] == "text":
                    text += block["text"]
                else:
                    calls.append((block["id"], block["name"], block["input"]))
    return text, calls


def read_stream(api: Api, events: Sequence[ProviderEvent]) -> Said:
    text = ""
    calls: dict[int, list[str]] = {}
    for event in events:
        data: Any = event.data
        if api == "openai.chat" and data != "[DONE]":
            assert event.event is None
            for choice in data["choices"]:
                text += choice["delta"].get("content") or ""
                for part in choice["delta"].get("tool_calls", []):
                    call = calls.setdefault(part["index"], ["", "", ""])
                    call[0] += part.get("id", "")
                    call[1] += part["function"].get("name", "")
                    call[2] += part["function"]["arguments"]
        elif api == "openai.responses":
            assert data["type"] == event.event
            if event.event == "response.output_text.delta":
                text += data["delta"]
            elif event.event == "response.output_item.added" and "call_id" in data["item"]:
                calls[data["output_index"]] = [data["item"]["call_id"], data["item"]["name"], ""]
            elif event.event == "response.function_call_arguments.delta":
                calls[data["output_index"]][2] += data["delta"]
        elif api == "anthropic.messages":
            assert data["type"] == event.event
            if event.event == "content_block_start" and data["content_block"]["type"] != "text":
                block = data["content_block"]
                calls[data["index"]] = [block["id"], block["name"], ""]
            elif event.event == "content_block_delta":
                text += data["delta"].get("text", "")
                if "partial_json" in data["delta"]:
                    calls[data["index"]][2] += data["delta"]["partial_json"]
    return text, [(one, name, json.loads(rest)) for one, name, rest in calls.values()]


@pytest.mark.parametrize(("api", "answer"), list(itertools.product(APIS, ANSWERS)))
async def test_whole_and_streamed_say_the_same(api: Api, answer: dict[str, Any]) -> None:
    counted = {**answer, "usage": {"inputTokens": 30, "outputTokens": 20}}
    served, (whole,) = await serve(script(counted), request(api))
    streamed_served, streamed = await serve(script(counted), request(api, stream=True))
    events = [event for frame in streamed for event in frame.events]
    said = read_body(api, whole.response)

    assert said[0] == answer.get("text", "")
    assert [(name, rest) for _, name, rest in said[1]] == [
        (call["name"], call["input"]) for call in answer.get("toolCalls", [])
    ]
    assert read_stream(api, events) == said
    assert served.code is streamed_served.code is None
    assert whole.finish_reason == streamed[-1].finish_reason
    assert whole.usage == streamed[-1].usage == served.usage == streamed_served.usage
    assert streamed[-1].response is None


def test_the_streams_of_two_dialects_number_and_close_their_parts() -> None:
    async def collect(api: Api) -> list[ProviderEvent]:
        _, frames = await serve(script(ANSWERS[4]), request(api, stream=True))
        return [event for frame in frames for event in frame.events]

    responses = trio.run(collect, "openai.responses")
    messages = trio.run(collect, "anthropic.messages")
    numbers = [event.data["sequence_number"] for event in responses]  # type: ignore[index]
    names = [event.event for event in messages]

    assert numbers == list(range(len(responses)))
    assert names.count("content_block_start") == names.count("content_block_stop") == 2
    assert (names[0], names[-2:]) == ("message_start", ["message_delta", "message_stop"])


class Fake:
    """A source that says what it is told to: events, a pause, a result."""

    def __init__(
        self, events: Sequence[ProviderEvent], result: Finished | Failed, *, pause: float = 0
    ) -> None:
        self.events = events
        self.result = result
        self.pause = pause

    async def answer(self, call: InferenceCall, emit: Emit) -> Finished | Failed:
        for event in self.events:
            emit([event])
            await trio.lowlevel.checkpoint()
        await trio.sleep(self.pause)
        return self.result


USAGE = Usage(input_tokens=3, output_tokens=4)
STREAMED = Finished(usage=USAGE, finish="stop", response=None)


@pytest.mark.parametrize(("api", "answer"), list(itertools.product(APIS, ANSWERS)))
async def test_a_stream_cut_after_any_event_is_never_a_success(
    api: Api, answer: dict[str, Any]
) -> None:
    _, frames = await serve(script(answer), request(api, stream=True))
    events = [event for frame in frames for event in frame.events]
    for length in range(len(events)):
        budget = counter()
        served, cut = await serve(
            Fake(events[:length], STREAMED), request(api, stream=True), budget=budget
        )
        assert served.code == "upstream_error"
        assert (cut[-1].ok, cut[-1].response) == (False, None)
        assert budget.used.output_tokens == USAGE.output_tokens
    late, _ = await serve(Fake([*events, events[0]], STREAMED), request(api, stream=True))
    assert late.code == "upstream_error"


CUT_BODIES: list[tuple[Api, dict[str, Any]]] = [
    ("openai.chat", {"choices": []}),
    ("openai.chat", {"choices": [{"message": {"content": "x"}, "finish_reason": None}]}),
    (
        "openai.chat",
        {
            "choices": [
                {
                    "finish_reason": "tool_calls",
                    "message": {"tool_calls": [{"function": {"name": "a", "arguments": '{"x": '}}]},
                }
            ]
        },
    ),
    ("openai.responses", {"status": "in_progress", "output": []}),
    (
        "openai.responses",
        {"status": "completed", "output": [{"type": "function_call", "arguments": "{"}]},
    ),
    ("anthropic.messages", {"content": [], "stop_reason": None}),
    ("anthropic.messages", {"error": {"type": "overloaded_error"}}),
]


@pytest.mark.parametrize(("api", "body"), CUT_BODIES)
async def test_a_body_without_its_end_is_never_a_success(api: Api, body: dict[str, Any]) -> None:
    served, (frame,) = await serve(
        Fake([], Finished(usage=USAGE, finish="stop", response=body)), request(api)
    )

    assert served.code == "upstream_error"
    assert frame.error is not None
    assert frame.response is None
    assert served.usage == USAGE


@pytest.mark.parametrize("api", APIS)
async def test_a_source_that_answers_in_the_wrong_manner_is_an_error(api: Api) -> None:
    _, (whole,) = await serve(script({"text": "x"}), request(api))
    body = Finished(usage=USAGE, finish="stop", response=whole.response)

    assert (await serve(Fake([], body), request(api, stream=True)))[0].code == "upstream_error"
    assert (await serve(Fake([], STREAMED), request(api)))[0].code == "upstream_error"


async def test_a_source_out_of_time_costs_what_was_held() -> None:
    budget = counter()
    asked = request("openai.chat", timeout_ms=20)
    served, (frame,) = await serve(Fake([], STREAMED, pause=5), asked, budget=budget)

    assert served.code == "upstream_timeout"
    assert frame.error is not None
    assert frame.error.retryable
    assert budget.used.output_tokens == 4096
    assert budget.used == budget.committed


async def test_a_failure_before_the_first_token_costs_one_request_and_no_token() -> None:
    budget = counter()
    served, (frame,) = await serve(
        Fake([], Failed("upstream_overloaded", retry_after_ms=500)),
        request("openai.chat"),
        budget=budget,
    )

    assert served.code == "upstream_overloaded"
    assert frame.error is not None
    assert (frame.error.retryable, frame.error.retry_after_ms) == (True, 500)
    assert (budget.used.requests, budget.used.output_tokens) == (1, 0)


async def test_a_cancelled_call_sends_no_final_and_keeps_the_account() -> None:
    budget = counter()
    frames: list[InferenceResponse] = []
    with trio.move_on_after(0.02):
        await serve_call(
            call_for(request("openai.chat"), budget),
            source=Fake([], STREAMED, pause=5),
            budget=budget,
            send=frames.append,
            max_response_bytes=MAX_BYTES,
        )

    assert frames == []
    assert budget.used == budget.committed
    assert budget.used.requests == 1


async def test_the_budget_is_exact_when_calls_overlap() -> None:
    budget = counter(requests=3)
    codes: list[str | None] = []

    async def one() -> None:
        source = Fake([], Failed("upstream_error"), pause=0.01)
        served, _ = await serve(source, request("openai.chat"), budget=budget)
        codes.append(served.code)

    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(one)

    assert sorted(map(str, codes)) == ["budget_exhausted"] * 5 + ["upstream_error"] * 3
    assert budget.used.requests == 3


def test_what_is_left_of_the_budget_bounds_the_answer_and_its_end_is_final() -> None:
    budget = counter(output_tokens=100)
    call = call_for(request("openai.chat"), budget)
    assert call.max_output_tokens == call.body["max_completion_tokens"] == 100
    assert budget.committed == NOTHING
    held = budget.reserve(input_tokens=0, output_tokens=100)
    assert held is not None

    denied = prepare_call(
        request("openai.chat"), attempt_id="a1", rules=rules(), budget=budget, timeout_seconds=5
    )

    assert denied == RequestDenied("budget_exhausted")


async def test_frames_of_a_stream_are_bounded_and_an_answer_too() -> None:
    answer = {"text": "x" * 600_000}
    for api in ("openai.chat", "anthropic.messages"):
        served, frames = await serve(script(answer), request(api, stream=True))
        assert served.code is None
        assert all(1 <= len(frame.events) <= 64 for frame in frames[:-1])
    small, (frame,) = await serve(
        script(answer), request("openai.chat"), max_response_bytes=500_000
    )
    assert small.code == "result_too_large"
    assert frame.response is None
    flood, _ = await serve(
        script(answer), request("openai.chat", stream=True), max_response_bytes=500_000
    )
    assert flood.code == "result_too_large"


async def test_the_last_event_may_be_larger_than_a_streaming_frame() -> None:
    big = {"type": "response.completed", "response": {"output": [], "pad": "x" * 300_000}}
    last = ProviderEvent(event="response.completed", data=big)
    served, (frame,) = await serve(Fake([last], STREAMED), request("openai.responses", stream=True))

    assert served.code is None
    assert frame.events == (last,)


# Scripts.


async def test_the_first_rule_that_matches_answers_and_counts_for_each_attempt() -> None:
    lines: list[dict[str, Any]] = [
        {"match": {"purpose": "side"}, "answer": {"text": "side"}},
        {"match": {"turn": 2}, "answer": {"text": "second"}},
        {"match": {"contains": "red"}, "times": 1, "answer": {"text": "red once"}},
        {"match": {"api": "openai.chat", "model": "main"}, "answer": {"text": "chat"}},
    ]
    source = ScriptedSource(parse_script("\n\n".join(map(json.dumps, lines)).encode()))

    async def said(attempt: str, asked: InferenceRequest) -> str | None:
        call = prepare_call(
            asked, attempt_id=attempt, rules=rules(), budget=counter(), timeout_seconds=5
        )
        assert isinstance(call, InferenceCall)
        answer = await source.answer(call, lambda events: None)
        if isinstance(answer, Failed):
            return answer.code
        assert answer.response is not None
        return read_body(asked.api, answer.response)[0]

    red = request("openai.chat", text="a red thing")
    assert await said("a", red) == "red once"
    assert await said("a", red) == "second"
    assert await said("a", red) == "chat"
    assert await said("b", red) == "red once"
    assert await said("a", request("openai.chat", purpose="side")) == "side"
    assert await said("a", request("anthropic.messages")) == "upstream_error"


async def test_contains_looks_at_the_last_message_only() -> None:
    source = script({"text": "yes"}, contains="needle")
    early = [{"role": "user", "content": "needle"}, {"role": "user", "content": "hay"}]
    late = [{"role": "tool", "content": [{"type": "text", "text": "a needle here"}]}]
    for messages, code in (early, "upstream_error"), (late, None), ([], "upstream_error"):
        asked = request("openai.chat", body={"model": "main", "messages": messages})
        assert (await serve(source, asked))[0].code == code


async def test_a_script_can_fail_and_can_speak_for_itself() -> None:
    raw = {"choices": [{"finish_reason": "stop", "message": {"content": "raw"}}]}
    source = ScriptedSource(
        parse_script(
            b'{"match": {"turn": 1}, "answer": {"error": "rate_limited"}}\n'
            + json.dumps({"match": {}, "answer": {"raw": raw}}).encode()
        )
    )
    limited, (frame,) = await serve(source, request("openai.chat"))
    assert limited.code == "rate_limited"
    assert frame.error is not None
    assert frame.error.retry_after_ms
    assert (await serve(source, request("openai.chat")))[1][0].response == raw
    assert (await serve(source, request("openai.chat", stream=True)))[0].code == "upstream_error"
    events = [
        {"data": {"choices": [{"delta": {}, "finish_reason": "stop"}]}},
        {"data": "[DONE]"},
    ]
    streamed = script({"raw": {"events": events}})
    assert (await serve(streamed, request("openai.chat", stream=True)))[0].code is None


async def test_the_figures_of_a_script_are_the_usage() -> None:
    figures = {"inputTokens": 11, "outputTokens": 7, "cachedInputTokens": 5}
    served, (frame,) = await serve(
        script({"text": "x", "usage": figures}), request("anthropic.messages")
    )

    assert served.usage == Usage(input_tokens=11, output_tokens=7, cached_input_tokens=5)
    assert frame.response["usage"]["cache_read_input_tokens"] == 5


MALFORMED = [
    b"{",
    b"[]",
    b"null",
    b'{"match": {}}',
    b'{"answer": {}}',
    b'{"match": {}, "answer": {}, "extra": 1}',
    b'{"match": {"api": "openai"}, "answer": {}}',
    b'{"match": {"turn": 0}, "answer": {}}',
    b'{"match": {"turn": 1.0}, "answer": {}}',
    b'{"match": {"turn": true}, "answer": {}}',
    b'{"match": {}, "match": {}, "answer": {}}',
    b'{"match": {"turn": 1, "turn": 1}, "answer": {}}',
    b'{"match": {"turn": 1, "\\u0074urn": 2}, "answer": {}}',
    b'{"match": {}, "answer": {"toolCalls": [{"name": "a", "input": {"x": 1, "x": 2}}]}}',
    b'{"match": {}, "answer": {"toolCalls": [{"name": "", "input": {}}]}}',
    b'{"match": {}, "answer": {"text": "x", "error": "upstream_error"}}',
    b'{"match": {}, "answer": {"text": "x", "raw": {}}}',
    b'{"match": {}, "answer": {"error": "policy_denied"}}',
    b'{"match": {}, "answer": {"text": "\xff"}}',
    b'{"match": {}, "answer": {"text": "\\ud800"}}',
    b'{"match": {}, "answer": {"raw": {"x": NaN}}}',
    b'{"match": {}, "answer": {"raw": ' + b'{"x":' * 5000 + b"1" + b"}" * 5000 + b"}}",
    b'\xef\xbb\xbf{"match": {}, "answer": {}}',
    b'{"match": {}, "answer": {"usage": {"inputTokens": -1, "outputTokens": 0}}}',
]


@pytest.mark.parametrize("line", MALFORMED)
def test_a_malformed_line_is_refused_by_its_number(line: bytes) -> None:
    good = b'{"match": {}, "answer": {}}\n\n'
    with pytest.raises(Refusal) as refused:
        parse_script(good + line + b"\n" + good)

    assert (refused.value.code, refused.value.figure) == ("inference_malformed", 3)


def test_a_script_is_a_file_of_bounded_size(tmp_path: Path) -> None:
    with pytest.raises(Refusal) as missing:
        ScriptedSource.load(tmp_path / "nothing")
    with (tmp_path / "large").open("wb") as stream:
        stream.truncate(MAX_SCRIPT_BYTES + 1)
    with pytest.raises(Refusal) as large:
        ScriptedSource.load(tmp_path / "large")

    assert missing.value.code == "file_not_found"
    assert (large.value.code, large.value.figure) == ("file_too_large", MAX_SCRIPT_BYTES)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("anthropic:claude", "unsupported"),
        ("openai:gpt", "unsupported"),
        ("compatible:http://localhost#m", "unsupported"),
        ("control", "unsupported"),
        ("", "inference_malformed"),
        ("scripted", "inference_malformed"),
        ("scripted:", "inference_malformed"),
        ("control:x", "inference_malformed"),
        ("anthropic:", "inference_malformed"),
        ("Scripted:x", "inference_malformed"),
        ("other:x", "inference_malformed"),
    ],
)
def test_a_specification_is_known_or_refused(text: str, code: str) -> None:
    with pytest.raises(Refusal) as refused:
        parse_inference_spec(text)

    assert refused.value.code == code


def test_a_scripted_specification_names_a_file() -> None:
    assert parse_inference_spec("scripted:a:b.jsonl") == ScriptedSpec(Path("a:b.jsonl"))
