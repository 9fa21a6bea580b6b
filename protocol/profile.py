"""One line as a JSON object in the I-JSON profile: the checks that msgspec does not make.

msgspec takes the last of two equal keys, any depth that the stack allows and any
integer. The checks here are exact and need no second parser:

* A key that came twice is gone from the decoded value, so encoding that value again
  gives fewer colons than the line has. Colons in texts are on both sides; one that was
  written as ``\\u003a`` is counted for the line too.
* Brackets outside of texts are steps up and down; the highest sum is the depth. It is
  looked at before the line is decoded, so no decoder runs deep into the stack.
* An integer out of range has at least 16 digits in a row; where the line has such a
  run anywhere, the decoded integers are looked at.

Only a line that is refused already is looked at again, to name the reason.
"""

import json
from collections.abc import Callable
from itertools import accumulate
from typing import Any, Final, NoReturn, TypeVar

import msgspec

from protocol.codes import FrameReason
from protocol.errors import RemoteProtocolError
from protocol.limits import MAX_BODY_DEPTH, MAX_DEPTH, MAX_SAFE_INTEGER

M = TypeVar("M")

#: Members that may nest to ``MAX_BODY_DEPTH``, by the type of their message.
_DEEP_MEMBERS: Final[dict[Any, tuple[str, ...]]] = {
    "inference.request": ("body",),
    "inference.response": ("response", "events"),
}
_AS_STEPS: Final = bytes(
    {0x5B: 0x01, 0x7B: 0x01, 0x5D: 0xFF, 0x7D: 0xFF}.get(byte, byte) for byte in range(256)
)
_NO_MARKS: Final = bytes(byte for byte in range(256) if byte not in b'[]{}"')
_NO_ESCAPES: Final = bytes(byte for byte in _NO_MARKS if byte not in b"\\/bfnrtu")
_DIGITS_AS_ZERO: Final = bytes(0x30 if 0x30 <= byte <= 0x39 else byte for byte in range(256))
_LONG_RUN: Final = b"0" * len(str(MAX_SAFE_INTEGER))
_BACKSLASH: Final = ord("\\")
_BRACKET: Final = ord("[")
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"

_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode
_encode: Final = msgspec.json.Encoder().encode


def decode_object(line: bytes) -> dict[str, Any]:
    """The object that ``line`` is, every part of it within the profile.

    Raises:
        RemoteProtocolError: ``malformed_frame`` with its reason.
    """
    colons = line.count(b":")
    depth = nesting(line) if _may_be_deep(line, colons) else 0
    if depth > MAX_BODY_DEPTH + 1 or (depth > MAX_DEPTH and not _may_be_inference(line)):
        raise RemoteProtocolError("malformed_frame", "too_deep")
    try:
        value = _decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        value = None
    if value is None:
        # Raised out here, so that what msgspec said is not its context.
        raise RemoteProtocolError("malformed_frame", reason_of(line))
    if depth > MAX_DEPTH and _is_too_deep(value):
        raise RemoteProtocolError("malformed_frame", "too_deep")
    if _BACKSLASH in line:
        colons += _escaped_colons(line)
    if _encode(value).count(b":") != colons:
        raise RemoteProtocolError("malformed_frame", "duplicate_key")
    if line.translate(_DIGITS_AS_ZERO).find(_LONG_RUN) >= 0 and _has_unsafe_integer(value):
        raise RemoteProtocolError("malformed_frame", "number_out_of_range")
    return value


def decode_plain(line: bytes, decode: Callable[[bytes], M]) -> M | None:
    """What ``decode`` makes of a ``line`` without escapes, or None: then look closer.

    A Struct that comes out is all that the line says, and in the profile. It gives no
    colon for a member that was not in the line (but for one whose default is made by a
    factory, which is the caller's to look at), so equal counts leave no room for one that
    was there twice. A line that has a member with its default value is looked at closer.

    Raises:
        RemoteProtocolError: ``malformed_frame`` with its reason.
    """
    # Spelled out here, because a call costs a tenth of a short message.
    colons = line.count(b":")
    if colons >= MAX_DEPTH or (_BRACKET in line and _may_be_deep(line, colons)):
        return None
    is_json = True
    try:
        message = decode(line)
    except msgspec.ValidationError:
        return None
    except (msgspec.DecodeError, RecursionError):
        is_json = False
    if not is_json:
        # Raised out here, so that what msgspec said is not its context.
        raise RemoteProtocolError("malformed_frame", reason_of(line))
    if (
        _encode(message).count(b":") != colons
        or line.translate(_DIGITS_AS_ZERO).find(_LONG_RUN) >= 0
    ):
        return None
    return message


def _may_be_deep(line: bytes, colons: int) -> bool:
    """Whether ``line`` could nest deeper than ``MAX_DEPTH``, looked at from afar.

    Every object on the way to the innermost value has a member, and so a colon.
    """
    return colons + line.count(b"[") >= MAX_DEPTH


def nesting(line: bytes) -> int:
    """How many containers the innermost value of the JSON ``line`` lies in, itself counted."""
    if _BACKSLASH in line:
        # What may stand behind a backslash stays until the escaped quotes are gone.
        line = line.translate(None, _NO_ESCAPES).replace(b"\\\\", b"").replace(b'\\"', b"")
    # Two quotes side by side can be taken away wherever they are: what is inside of a
    # text stays inside. Then only texts with brackets are left to cut out.
    marks = line.translate(_AS_STEPS, _NO_MARKS).replace(b'""', b"")
    steps = b"".join(marks.split(b'"')[::2])
    return max(accumulate(memoryview(steps).cast("b")), default=0)


def reason_of(line: bytes) -> FrameReason:
    """Why msgspec did not take ``line`` for an object. Names only: it is refused anyway."""
    if line.startswith(_BYTE_ORDER_MARK):
        return "byte_order_mark"
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return "not_utf8"
    if b"\0" in line:
        return "nul_byte"
    try:
        value = _LENIENT.decode(text)
    except RecursionError:
        return "too_deep"
    except ValueError:
        return "not_json"
    if not isinstance(value, dict):
        return "not_object"
    try:
        _encode(value)
    except UnicodeEncodeError:
        return "lone_surrogate"
    except RecursionError:
        return "too_deep"
    return "number_out_of_range"


def _escaped_colons(line: bytes) -> int:
    """How many colons the texts of the JSON ``line`` have as escapes."""
    if line.find(b"\\u003") < 0:
        return 0
    # An escaped backslash may stand before the ``u``: take those pairs away first.
    return line.replace(b"\\\\", b"").lower().count(b"\\u003a")


def _may_be_inference(line: bytes) -> bool:
    """Whether ``line`` could have a type with a member that may be deeper than others."""
    return line.find(b"inference.re") >= 0 or _BACKSLASH in line


def _is_too_deep(value: dict[str, Any]) -> bool:
    """Whether ``value``, deeper than ``MAX_DEPTH``, is so in a member that may not be."""
    kind = value.get("type")
    deep = _DEEP_MEMBERS.get(kind, ()) if isinstance(kind, str) else ()
    if not deep:
        return True
    # That the deep member itself is not too deep, the depth of the line has shown.
    rest = {name: member for name, member in value.items() if name not in deep}
    return nesting(_encode(rest)) > MAX_DEPTH


def _has_unsafe_integer(value: Any) -> bool:
    stack = [value]
    while stack:
        item = stack.pop()
        if type(item) is dict:
            stack.extend(item.values())
        elif type(item) is list:
            stack.extend(item)
        elif type(item) is int and abs(item) > MAX_SAFE_INTEGER:
            return True
    return False


def _no_number(digits: str) -> int:
    """Nothing is done with the number, and turning many digits into one takes long."""
    return len(digits)


def _not_json(constant: str) -> NoReturn:
    raise ValueError("NaN and Infinity are not JSON")


#: Takes what msgspec does not: lone surrogates and numbers out of range.
_LENIENT: Final = json.JSONDecoder(parse_int=_no_number, parse_constant=_not_json)
