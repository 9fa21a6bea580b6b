"""The canonical text of a closed value, byte for byte as ``@odla-ai/camel`` writes it.

Nothing here decides anything, and nothing is ever guessed: a value that canonical JSON
cannot carry without loss is refused. Members are ordered as camel orders them
(array-index names first and by number, the others by UTF-16 code unit), so an open map
of registered ids has the same digest on both sides.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

import msgspec

from protocol.decision_codes import LABEL_TEXT, LabelCode
from protocol.errors import AirlockError

Value: TypeAlias = "str | bytes | int | bool | tuple[Value, ...] | Mapping[str, Value] | None"

#: Integers that every reader of JSON keeps exactly (RFC 7493, I-JSON).
MAX_SAFE_INTEGER: Final = 2**53 - 1

#: ECMAScript's last array index; a name at or below it is ordered as a number.
_MAX_ARRAY_INDEX: Final = 2**32 - 2

#: camel writes bytes as this one member, so no map may use its name.
_BYTES_MEMBER: Final = "$bytes"

_encode: Final = msgspec.json.Encoder().encode


class LabelError(AirlockError):
    """A labelled value may not be made from this: our caller's mistake, nothing was made."""

    def __init__(self, code: LabelCode) -> None:
        super().__init__(LABEL_TEXT[code])
        self.code: Final = code


def close_value(value: object) -> Value:
    """A private, immutable copy of ``value``; ``LabelError`` when it is not of a closed type.

    Closed are text, bytes, booleans, null, integers within I-JSON, tuples and maps with
    text names. A map is copied, so no later change of the caller's object reaches it.
    """
    if value is None or isinstance(value, (str, bytes, bool)):
        return value
    if isinstance(value, int):
        if not -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
            raise LabelError("label_value_not_closed")
        return value
    if isinstance(value, tuple):
        return tuple(map(close_value, value))
    if isinstance(value, Mapping):
        if _BYTES_MEMBER in value or not all(isinstance(name, str) for name in value):
            raise LabelError("label_value_not_closed")
        return MappingProxyType({name: close_value(member) for name, member in value.items()})
    nested = getattr(type(value), "is_labelled", False)
    raise LabelError("label_unsafe_nested" if nested else "label_value_not_closed")


def canonical_text(text: str) -> bytes:
    """``text`` as a JSON string; ``LabelError`` when it holds a lone surrogate."""
    try:
        return _encode(text)
    except UnicodeEncodeError:
        raise LabelError("label_value_not_closed") from None


def canonical_value(value: Value) -> bytes:
    """The canonical JSON of a closed value (see ``close_value``)."""
    if isinstance(value, str):
        return canonical_text(value)
    if value is None or isinstance(value, int):
        return _encode(value)
    if isinstance(value, bytes):
        return b'{"$bytes":' + _encode(list(value)) + b"}"
    if isinstance(value, tuple):
        return b"[" + b",".join(map(canonical_value, value)) + b"]"
    members = (
        canonical_text(name) + b":" + canonical_value(value[name]) for name in member_order(value)
    )
    return b"{" + b",".join(members) + b"}"


def member_order(names: Iterable[str]) -> list[str]:
    """``names`` in the order in which camel writes the members of an object."""
    indexes: list[str] = []
    others: list[str] = []
    for name in names:
        (indexes if _is_array_index(name) else others).append(name)
    indexes.sort(key=int)
    others.sort(key=utf16)
    return indexes + others


def utf16(text: str) -> bytes:
    """The key by which camel sorts text: its UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass")


def _is_array_index(name: str) -> bool:
    return (
        name.isascii()
        and name.isdigit()
        and (name == "0" or not name.startswith("0"))
        and len(name) <= 10
        and int(name) <= _MAX_ARRAY_INDEX
    )
