"""Lines that an agent must not send, each with what it gets: class, code, reason.

Class F ends the attempt with a violation, E is answered with an error, D is dropped. Each
is a whole line with its LF, meant for a running attempt in which ``GOOD`` would be taken.
"""

from typing import Final, Literal, NamedTuple

from protocol.codes import FrameReason, ViolationCode, WireCode
from tests.protocol.frames import event_line, inference_line, line, ready_line, tool_line

MAX_SAFE: Final = 2**53 - 1


class BadLine(NamedTuple):
    name: str
    data: bytes
    kind: Literal["F", "E", "D"]
    code: ViolationCode | WireCode
    reason: FrameReason | None = None


def _message(text: bytes) -> bytes:
    """An event whose data has ``text`` as the raw JSON of one member."""
    return b'{"v":1,"type":"event","kind":"x.test.any","data":{"a":' + text + b"}}\n"


def _inference(body: bytes, other: bytes = b"1") -> bytes:
    return b'{"v":1,"type":"inference.request","body":%s,"b":{"a":%s}}\n' % (body, other)


_DEEP: Final = b"[" * 63 + b"]" * 63

MALFORMED: Final[tuple[BadLine, ...]] = tuple(
    BadLine(name, data, "F", "malformed_frame", reason)
    for name, data, reason in (
        ("a byte that is not UTF-8", _message(b'"\xff"'), "not_utf8"),
        ("an overlong encoding", _message(b'"\xc0\xaf"'), "not_utf8"),
        ("a surrogate encoded in UTF-8", _message(b'"\xed\xa0\x80"'), "not_utf8"),
        ("a cut character", _message(b'"\xe2\x82"'), "not_utf8"),
        ("UTF-16", "{}".encode("utf-16-be") + b"\n", "nul_byte"),
        ("a byte order mark", b"\xef\xbb\xbf" + event_line(), "byte_order_mark"),
        ("a raw NUL in a text", _message(b'"\x00"'), "nul_byte"),
        ("a NUL after the message", event_line()[:-1] + b"\x00\n", "nul_byte"),
        ("a log line", b"Starting agent...\n", "not_json"),
        ("half a message", event_line()[:-2] + b"\n", "not_json"),
        ("two messages in a line", event_line()[:-1] + event_line(), "not_json"),
        ("a comma too many", b'{"v":1,}\n', "not_json"),
        ("single quotes", b"{'v':1}\n", "not_json"),
        ("a raw control character", _message(b'"\x01"'), "not_json"),
        ("a raw tab in a text", _message(b'"\t"'), "not_json"),
        ("a carriage return in a text", _message(b'"\r"'), "not_json"),
        ("NaN", _message(b"NaN"), "not_json"),
        ("Infinity", _message(b"-Infinity"), "not_json"),
        ("a leading zero", _message(b"01"), "not_json"),
        ("a bad escape", _message(b'"\\x"'), "not_json"),
        ("an array", b"[" + event_line()[:-1] + b"]\n", "not_object"),
        ("a text", b'"hello"\n', "not_object"),
        ("null", b"null\n", "not_object"),
        ("a number", b"1\n", "not_object"),
        ("65 levels", _message(_DEEP), "too_deep"),
        ("65 levels of objects", _message(b'{"a":' * 63 + b"1" + b"}" * 63), "too_deep"),
        ("a thousand levels", _message(b"[" * 1000 + b"]" * 1000), "too_deep"),
        ("levels that never close", _message(b"[" * 100_000), "too_deep"),
        ("depth beside a body", _inference(b"[]", other=_DEEP), "too_deep"),
        ("a body of 129 levels", _inference(b"[" * 129 + b"]" * 129), "too_deep"),
        ("a key twice", b'{"v":1,"v":1,"type":"event"}\n', "duplicate_key"),
        ("a key twice, deep", _message(b'{"b":1,"b":1}'), "duplicate_key"),
        ("a key twice in an array", _message(b'[{"b":1,"b":2}]'), "duplicate_key"),
        ("a key twice, once as an escape", _message(b'{"b":1,"\\u0062":2}'), "duplicate_key"),
        ("a key twice, an escaped colon", _message(b'{"b":1,"b":"\\u003A"}'), "duplicate_key"),
        ("an empty key twice", _message(b'{"":1,"":2}'), "duplicate_key"),
        ("a lone high surrogate", _message(b'"\\ud800"'), "lone_surrogate"),
        ("a lone low surrogate", _message(b'"\\uDC00x"'), "lone_surrogate"),
        ("surrogates in the wrong order", _message(b'"\\udc00\\ud800"'), "lone_surrogate"),
        ("a lone surrogate in a key", _message(b'{"\\ud800":1}'), "lone_surrogate"),
        ("2 to the 53rd", _message(b"%d" % (MAX_SAFE + 1)), "number_out_of_range"),
        ("minus 2 to the 53rd", _message(b"-%d" % (MAX_SAFE + 1)), "number_out_of_range"),
        ("2 to the 64th", _message(b"18446744073709551616"), "number_out_of_range"),
        ("400 digits", _message(b"[" + b"9" * 400 + b"]"), "number_out_of_range"),
        ("5000 digits", _message(b"9" * 5000), "number_out_of_range"),
        ("1e400", _message(b"1e400"), "number_out_of_range"),
    )
)


def _hidden(size: int) -> bytes:
    """A tool request that has its type at the end."""
    return b'{"v":1,"input":{"a":"%s"},"requestId":"r1","type":"tool.request"}\n' % (b"x" * size)


_MISSHAPEN: Final = (
    BadLine("no version", b'{"type":"event"}\n', "F", "version_mismatch"),
    BadLine("version 2", b'{"v":2,"type":"event"}\n', "F", "version_mismatch"),
    BadLine("version 1.0", b'{"v":1.0,"type":"event"}\n', "F", "version_mismatch"),
    BadLine("version true", b'{"v":true,"type":"event"}\n', "F", "version_mismatch"),
    BadLine("version as text", b'{"v":"1","type":"event"}\n', "F", "version_mismatch"),
    BadLine("ready for version 2", ready_line(protocolVersion=2), "F", "version_mismatch"),
    BadLine("no type", b'{"v":1}\n', "F", "unknown_type"),
    BadLine("type null", b'{"v":1,"type":null}\n', "F", "unknown_type"),
    BadLine("type an array", b'{"v":1,"type":[]}\n', "F", "unknown_type"),
    BadLine("an unknown type", line("tool.cancel"), "F", "unknown_type"),
    BadLine("a type in capitals", line("Event"), "F", "unknown_type"),
    BadLine("task.start", line("task.start"), "F", "wrong_direction"),
    BadLine("tool.response", line("tool.response", requestId="r1"), "F", "wrong_direction"),
    BadLine("inference.response", line("inference.response"), "F", "wrong_direction"),
    BadLine("attempt.cancel", line("attempt.cancel"), "F", "wrong_direction"),
    BadLine("no request id", line("tool.request", tool="a", input={}), "F", "malformed_request"),
    BadLine("request id a number", tool_line(1), "F", "malformed_request"),  # type: ignore[arg-type]
    BadLine("an empty request id", tool_line(""), "F", "malformed_request"),
    BadLine("request id with LF", tool_line("r1\n"), "F", "malformed_request"),
    BadLine("request id with U+2028", tool_line("r1\u2028"), "F", "malformed_request"),
    BadLine("request id of 129", tool_line("r" * 129), "F", "malformed_request"),
    BadLine("inference without id", inference_line("!"), "F", "malformed_request"),
    BadLine("a claim of success", line("attempt.complete", status="done"), "F", "invalid_message"),
    BadLine("an empty claim", line("attempt.complete"), "F", "invalid_message"),
    BadLine("a tool in capitals", tool_line(tool="Read"), "E", "invalid_message"),
    BadLine("a tool with LF", tool_line(tool="read_file\n"), "E", "invalid_message"),
    BadLine("an input that is a list", tool_line(input=[]), "E", "invalid_message"),
    BadLine("an unknown member", tool_line(toolName="a"), "E", "invalid_message"),
    BadLine("an intent over its bytes", tool_line(intent="é" * 257), "E", "invalid_message"),
    BadLine("an intent over its length", tool_line(intent="e" * 513), "E", "invalid_message"),
    BadLine("meta without a domain", tool_line(meta={"x": 1}), "E", "invalid_message"),
    BadLine("meta too large", tool_line(meta={"a.b/c": "x" * 8192}), "E", "invalid_message"),
    BadLine("an unknown dialect", inference_line(api="openai"), "E", "invalid_message"),
    BadLine("stream as a number", inference_line(stream=1), "E", "invalid_message"),
    BadLine("a body that is a text", inference_line(body="{}"), "E", "invalid_message"),
    BadLine("timeout 1.0", inference_line(timeoutMs=1.0), "E", "invalid_message"),
    BadLine("timeout true", inference_line(timeoutMs=True), "E", "invalid_message"),
    BadLine("a negative timeout", inference_line(timeoutMs=-1), "E", "invalid_message"),
    BadLine("a header", inference_line(headers={"authorization": "x"}), "E", "invalid_message"),
    BadLine("a stream nobody agreed on", inference_line(stream=True), "E", "unsupported_feature"),
    BadLine("an input of 600 KB", tool_line(input={"a": "x" * 600_000}), "E", "too_large"),
    BadLine("an unknown kind", event_line("agent.dance"), "D", "event_rejected"),
    BadLine("a vendor without a name", event_line("x.vendor"), "D", "event_rejected"),
    BadLine("a vendor kind with LF", event_line("x.a.b\n"), "D", "event_rejected"),
    BadLine("data of another kind", event_line("agent.plan"), "D", "event_rejected"),
    BadLine(
        "an unknown member of data", event_line(data={"text": "", "a": 1}), "D", "event_rejected"
    ),
    BadLine("an unknown member of an event", event_line(extra=1), "D", "event_rejected"),
    BadLine("an event without data", line("event", kind="x.a.b"), "D", "event_rejected"),
    BadLine("text over its bytes", event_line(data={"text": "é" * 32_769}), "D", "event_rejected"),
    BadLine("data of 200 KB", event_line("x.a.b", {"a": "x" * 200_000}), "D", "event_rejected"),
    BadLine("a clock before 1970", event_line(at=-1), "D", "event_rejected"),
    BadLine(
        "state nobody agreed on", event_line("agent.state", {"state": {}}), "D", "event_rejected"
    ),
)

_LARGE: Final = (
    BadLine("a common line over 1 MiB", event_line("x.a.b", "x" * 2**20), "F", "frame_too_large"),
    BadLine("a text over 1 MiB", b"x" * 2**20 + b"\n", "F", "frame_too_large"),
    BadLine("a large line that hides its type", _hidden(2**21), "F", "frame_too_large"),
    BadLine("a large line cut short", _hidden(2**21)[:-3] + b"\n", "F", "frame_too_large"),
    BadLine(
        "inference over 8 MiB", inference_line(body={"a": "x" * 2**23}), "F", "frame_too_large"
    ),
)

BAD_LINES: Final[tuple[BadLine, ...]] = (*MALFORMED, *_MISSHAPEN, *_LARGE)
