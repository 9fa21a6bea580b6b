"""The JSON profile, judged by the standard library's parser with hooks, a second opinion."""

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from protocol.errors import RemoteProtocolError
from protocol.limits import MAX_BODY_DEPTH, MAX_DEPTH, MAX_SAFE_INTEGER
from protocol.profile import decode_object, nesting


class NotInProfileError(Exception):
    """The second opinion says no."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise NotInProfileError
    return dict(pairs)


def _integer(digits: str) -> int:
    if len(digits) > 17 or abs(int(digits)) > MAX_SAFE_INTEGER:
        raise NotInProfileError
    return int(digits)


def _float(digits: str) -> float:
    if abs(float(digits)) == float("inf"):
        raise NotInProfileError
    return float(digits)


def _refuse(_: str) -> None:
    raise NotInProfileError


def depth_of(value: Any) -> int:
    if not isinstance(value, (dict, list)):
        return 0
    members = value.values() if isinstance(value, dict) else value
    return 1 + max((depth_of(member) for member in members), default=0)


def second_opinion(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(
            line.decode(),
            object_pairs_hook=_pairs,
            parse_int=_integer,
            parse_float=_float,
            parse_constant=_refuse,
        )
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise NotInProfileError from error
    if line.startswith(b"\xef\xbb\xbf") or not isinstance(value, dict):
        raise NotInProfileError
    if value.get("type") != "inference.request" and depth_of(value) > MAX_DEPTH:
        raise NotInProfileError
    return value


def verdict(line: bytes) -> dict[str, Any] | None:
    try:
        return decode_object(line)
    except RemoteProtocolError as error:
        if error.code != "malformed_frame" or error.reason is None:
            raise
        return None


def expected(line: bytes) -> dict[str, Any] | None:
    try:
        return second_opinion(line)
    except NotInProfileError:
        return None


texts = st.text(st.sampled_from('ab:"\\{}[],\u00e9\u2028\U0001f600 \n'), max_size=6)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**54), 2**54)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(texts, values, max_size=5)


@given(objects, st.booleans())
def test_what_json_writes_is_read_as_it_was(value: dict[str, Any], ascii_only: bool) -> None:
    line = json.dumps(value, ensure_ascii=ascii_only).encode()

    assert verdict(line) == expected(line)


PIECES = (
    '{', '}', '[', ']', ':', ',', '"', '\\', '"a"', '"b"', '"a":', '"\\u0061":', '"\\u003a"', ":1",
    "1", "-1", "1.5", "9007199254740992", "1e5", "1e999", "null", "true", "NaN", " ", "\\u003A",
    '\\\\u003a', '\\"', '"\\ud800"', '"\\ud83d\\ude00"', "é", "\0", "\ufeff", "0" * 17,
)  # fmt: skip


@settings(max_examples=500)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
@example('{"a":1,"a":"\\u003a"}')
@example('{"a":1,"b":"\\\\u003a"}')
@example('{"a":"\\u003a\\u003A","b":"\\\\\\u003a"}')
def test_any_line_is_judged_like_the_second_opinion(text: str) -> None:
    for line in (text.encode(), b'{"a":' + text.encode() + b"}"):
        assert verdict(line) == expected(line)


@given(objects, st.data())
def test_a_member_that_is_there_twice_is_always_seen(
    value: dict[str, Any], data: st.DataObject
) -> None:
    name, again = data.draw(texts), data.draw(values)
    inner = json.dumps({name: 1, **value})[:-1] + ", " + json.dumps({name: again})[1:]

    for line in (inner, json.dumps([value])[:-1] + ", " + inner + "]"):
        assert verdict(b'{"q": ' + line.encode() + b"}") is None


@given(objects)
def test_depth_is_counted_outside_of_texts_only(value: dict[str, Any]) -> None:
    assert nesting(json.dumps(value).encode()) == depth_of(value)


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
@pytest.mark.parametrize("levels", [MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1])
def test_depth_at_its_limit(opening: bytes, closing: bytes, levels: int) -> None:
    inner = b"[]" if levels % 2 else b"1"
    inside = levels - 1 - (inner == b"[]")
    line = b'{"a":' + opening * inside + inner + closing * inside + b"}"

    assert (verdict(line) is not None) == (levels <= MAX_DEPTH)


def test_a_type_may_be_spelled_with_escapes() -> None:
    line = b'{"type":"inference\\u002erequest","body":%s}' % (b"[" * 100 + b"]" * 100)

    assert verdict(line) is not None


def test_an_empty_object_is_a_level_without_a_colon() -> None:
    line = b'{"a":' + b"[" * (MAX_DEPTH - 1) + b"{}" + b"]" * (MAX_DEPTH - 1) + b"}"

    assert nesting(line) == MAX_DEPTH + 1
    assert verdict(line) is None


@pytest.mark.parametrize("levels", [MAX_BODY_DEPTH - 1, MAX_BODY_DEPTH, MAX_BODY_DEPTH + 1])
def test_a_body_may_be_deeper_and_nothing_beside_it(levels: int) -> None:
    deep = b"[" * levels + b"]" * levels
    body = b'{"type":"inference.request","body":%s}' % deep
    beside = b'{"type":"inference.request","body":{},"meta":%s}' % deep
    other = b'{"type":"tool.request","body":%s}' % deep

    assert (verdict(body) is not None) == (levels <= MAX_BODY_DEPTH)
    assert verdict(beside) is None
    assert verdict(other) is None


@pytest.mark.parametrize("number", [MAX_SAFE_INTEGER, -MAX_SAFE_INTEGER, 0])
def test_integers_at_their_limit(number: int) -> None:
    assert verdict(b'{"a":[%d]}' % number) == {"a": [number]}
    assert verdict(b'{"a":[%d]}' % (number + (1 if number > 0 else -1) * (number != 0))) == (
        {"a": [0]} if number == 0 else None
    )


def test_long_digits_in_a_text_or_a_fraction_are_no_integer() -> None:
    line = b'{"a":"12345678901234567890","b":0.12345678901234567890}'

    assert verdict(line) == {"a": "12345678901234567890", "b": 0.12345678901234568}


@given(st.binary(max_size=40))
def test_any_bytes_are_an_object_or_refused(data: bytes) -> None:
    assert verdict(data) == expected(data)


SMALL_STACK = """
import threading
from protocol.errors import RemoteProtocolError
from protocol.profile import decode_object

def decode():
    for levels in (128, 129, 1000, 100_000):
        for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
            for end in (closing, b"", b'"\\ud800"'):
                deep = opening * levels + b"1" + end * levels
                try:
                    decode_object(b'{"type":"inference.request","body":' + deep + b"}")
                    seen.append(levels)
                except RemoteProtocolError as error:
                    assert error.reason in ("too_deep", "not_json"), error.reason

seen = []
threading.stack_size(128 * 1024)
thread = threading.Thread(target=decode)
thread.start()
thread.join()
print(seen)
"""


def test_no_depth_reaches_the_end_of_a_small_stack() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SMALL_STACK], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "[128, 128]\n", "")
