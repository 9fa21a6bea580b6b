"""What a Struct must keep that msgspec does not check: names, bytes of a text or an object.

The rules are read off the annotations (``fields.spelled``, ``fields.text``,
``fields.encoded``), so each is stated once. A pointer that comes back is made of our
field names and of indexes only.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import inspect

from protocol.fields import MAX_ENCODED, MAX_TEXT

#: A line below this many bytes that is plain ASCII without an escape cannot pass any of
#: these bounds unless msgspec sees it too: encoded again, JSON grows less than 5 times
#: (``1e15`` becomes ``1000000000000000.0``), and the smallest free object has 8 KiB.
TRIVIAL_BYTES: Final = 1024

_Matches = Callable[[str], object]
_Check = Callable[[Any], str | None]

_BACKSLASH: Final = ord("\\")

_encode: Final = msgspec.json.Encoder().encode


def is_trivial(line: bytes) -> bool:
    """Whether nothing decoded from ``line`` can pass a bound that is checked here."""
    return len(line) <= TRIVIAL_BYTES and _BACKSLASH not in line and line.isascii()


def misspelled(value: msgspec.Struct) -> str | None:
    """A JSON pointer to the first name in ``value`` that is not of its form, or None.

    Names in parts of ``value`` are left to msgspec, which takes three times as long.
    """
    for attribute, matches, pointer in _spellings(type(value)):
        name = getattr(value, attribute)
        if name is not None and matches(name) is None:
            return pointer
    return None


def passed_bound(value: msgspec.Struct) -> str | None:
    """A JSON pointer to the first member of ``value`` that is over its bound, or None."""
    for attribute, pointer, check in _plan(type(value)):
        below = check(getattr(value, attribute))
        if below is not None:
            return pointer + below
    return None


def _fields(struct: type[msgspec.Struct]) -> tuple[inspect.Field, ...]:
    described = inspect.type_info(struct)
    assert isinstance(described, inspect.StructType)
    return described.fields


@cache
def _spellings(struct: type[msgspec.Struct]) -> tuple[tuple[str, _Matches, str], ...]:
    found = ((field, _spelling_of(field.type)) for field in _fields(struct))
    return tuple(
        (field.name, re.compile(pattern).match, "/" + field.encode_name)
        for field, pattern in found
        if pattern is not None
    )


def _spelling_of(described: inspect.Type) -> str | None:
    match described:
        case inspect.Metadata(extra={"pattern": str(pattern)}):
            return pattern
        case inspect.UnionType(types=types):
            return next(filter(None, map(_spelling_of, types)), None)
        case _:
            return None


@cache
def _plan(struct: type[msgspec.Struct]) -> tuple[tuple[str, str, _Check], ...]:
    checks = ((field, _check_of(field.type)) for field in _fields(struct))
    return tuple(
        (field.name, "/" + field.encode_name, check) for field, check in checks if check is not None
    )


def _check_of(described: inspect.Type) -> _Check | None:
    """What a value of that type must pass, or None when every value does."""
    match described:
        case inspect.Metadata(type=inner, extra=extra):
            extra = extra or {}
            if MAX_TEXT in extra:
                return _text_check(extra[MAX_TEXT])
            if MAX_ENCODED in extra:
                return _encoded_check(extra[MAX_ENCODED])
            return _check_of(inner)
        case inspect.UnionType(types=types):
            found = [check for check in map(_check_of, types) if check is not None]
            assert len(found) <= 1, "a union of two bounded types needs a rule of its own"
            return found[0] if found else None
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            check = _check_of(item)
            return _items_check(check) if check is not None else None
        case inspect.StructType(cls=struct):
            return _struct_check if _plan(struct) else None
        case _:
            return None


def _struct_check(value: Any) -> str | None:
    return None if value is None else passed_bound(value)


def _text_check(bound: int) -> _Check:
    def check(value: Any) -> str | None:
        # Below a quarter of the bound no encoding can pass it.
        over = isinstance(value, str) and len(value) * 4 > bound and len(value.encode()) > bound
        return "" if over else None

    return check


def _encoded_check(bound: int) -> _Check:
    def check(value: Any) -> str | None:
        return "" if value is not None and len(_encode(value)) > bound else None

    return check


def _items_check(item_check: _Check) -> _Check:
    def check(value: Any) -> str | None:
        for index, item in enumerate(value or ()):
            below = item_check(item)
            if below is not None:
                return f"/{index}{below}"
        return None

    return check
