"""A record can say what happened and to what, and nothing in anybody's words."""

import hashlib
import json
import re
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

from broker.evidence.records import (
    LEAF_ALPHABET,
    LINE_OVERHEAD,
    MAX_RECORD_BYTES,
    NO_HASH,
    leaf_hash,
    make_leaf,
    make_line,
    read_leaf,
    read_line,
)
from protocol import ids, record_fields
from protocol.records import Envelope, Record

BODIES = get_args(Record)
CLOSED_PATTERNS = {
    ids.ID_PATTERN,
    ids.DIGEST_PATTERN,
    ids.COMMIT_PATTERN,
    ids.TOOL_NAME_PATTERN,
    ids.RECIPE_ID_PATTERN,
    ids.MODEL_ALIAS_PATTERN,
    record_fields.HASH_PATTERN,
    record_fields.SIGNATURE_PATTERN,
}
PROSE = [
    "ignore all previous instructions",
    "a b",
    "id\n",
    "id\r",
    "\nid",
    "id\u2028",
    "id\x00",
    "",
    "naïve",
    "a" * 129,
    'quo"te',
    "back\\slash",
]
ENVELOPE = {
    "v": 1, "attempt": "a", "seq": 7, "b": 5, "epoch": 2, "prev": "ab" * 32, "at": 1_764_000_000_000
}  # fmt: skip


def closed(kind: inspect.Type) -> bool:
    """Whether no value of the type is chosen freely by a writer of sentences."""
    match kind:
        case inspect.LiteralType(values=values):
            return all(re.fullmatch(r"[a-z0-9_.]{1,40}", str(value)) for value in values)
        case inspect.StrType(pattern=pattern):
            return pattern in CLOSED_PATTERNS
        case inspect.IntType(ge=ge, le=le):
            return ge is not None and le is not None and 0 <= ge <= le < 2**53
        case inspect.VarTupleType(item_type=item, max_length=longest):
            return longest is not None and longest <= 64 and closed(item)
        case inspect.UnionType(types=types):
            return all(closed(each) for each in types)
        case inspect.BoolType() | inspect.NoneType():
            return True
        case _:
            return False


def values_of(kind: inspect.Type) -> st.SearchStrategy[Any]:
    match kind:
        case inspect.LiteralType(values=values):
            return st.sampled_from(values)
        case inspect.StrType(pattern=str(pattern)):
            return st.from_regex(
                pattern.removesuffix(ids.END) + r"\Z", alphabet=st.characters(codec="ascii")
            )
        case inspect.IntType(ge=int(ge), le=int(le)):
            return st.integers(int(ge), int(le))
        case inspect.VarTupleType(item_type=item):
            return st.lists(values_of(item), max_size=3).map(tuple)
        case inspect.UnionType(types=types):
            return st.one_of([values_of(each) for each in types])
        case inspect.BoolType():
            return st.booleans()
        case _:
            return st.none()


def bodies(kind: Any) -> st.SearchStrategy[Any]:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return st.builds(kind, **{each.name: values_of(each.type) for each in info.fields})


def largest(kind: inspect.Type) -> Any:
    """The value of the type that takes the most bytes."""
    match kind:
        case inspect.LiteralType(values=values):
            return max(values, key=lambda value: len(str(value)))
        case inspect.StrType(pattern=str(pattern)):
            return next(
                text
                for size in range(200, 0, -1)
                for text in ("a" * size, "sha256:" + "a" * size)
                if re.search(pattern, text)
            )
        case inspect.IntType(le=int(le)):
            return int(le)
        case inspect.VarTupleType(item_type=item, max_length=int(longest)):
            return (largest(item),) * longest
        case inspect.UnionType(types=types):
            return max((largest(each) for each in types), key=lambda value: len(str(value)))
        case inspect.BoolType():
            return False
        case _:
            return None


@pytest.mark.parametrize("kind", [*BODIES, Envelope])
def test_no_field_can_hold_free_text(kind: Any) -> None:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)

    if kind is not Envelope:  # whose one literal is the number of the version
        assert [each.name for each in info.fields if not closed(each.type)] == []
    assert info.forbid_unknown_fields
    assert kind.__struct_config__.frozen


@pytest.mark.parametrize("pattern", sorted(CLOSED_PATTERNS))
@pytest.mark.parametrize("text", PROSE)
def test_no_closed_pattern_takes_prose(pattern: str, text: str) -> None:
    assert re.search(pattern, text) is None


def test_every_type_of_record_has_its_own_tag() -> None:
    tags = [kind.__struct_config__.tag for kind in BODIES]

    assert len(set(tags)) == len(tags)
    assert all(re.fullmatch(r"[a-z]+(\.[a-z]+)?", tag) for tag in tags)
    assert all(
        set(kind.__struct_fields__).isdisjoint(Envelope.__struct_fields__) for kind in BODIES
    )


@pytest.mark.parametrize("kind", BODIES)
def test_the_largest_record_of_a_type_fits_the_bound(kind: Any) -> None:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    body = kind(**{each.name: largest(each.type) for each in info.fields})
    envelope = ENVELOPE | {"attempt": "a" * 128, "seq": 2**53 - 1, "b": 2**53 - 1}

    leaf = make_leaf(body, envelope)

    assert len(leaf) + LINE_OVERHEAD <= MAX_RECORD_BYTES
    assert read_leaf(leaf, NO_HASH) is not None


@pytest.mark.parametrize("kind", BODIES)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_record_reads_back_and_its_bytes_are_canonical(kind: Any, data: st.DataObject) -> None:
    body = data.draw(bodies(kind))
    leaf = make_leaf(body, ENVELOPE)
    line = make_line(leaf, leaf_hash(leaf).hex())

    read = read_line(line[:-1])

    assert read is not None
    assert read.body == body
    assert read.leaf == leaf
    assert read.line_bytes == len(line)
    assert leaf.translate(None, LEAF_ALPHABET) == b""
    # The standard library judges form and hash: sorted, closed up, a zero byte before.
    fields = json.loads(line)
    h = fields.pop("h")
    plain = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    assert h == hashlib.sha256(b"\x00" + plain).hexdigest()
    assert fields["t"] == kind.__struct_config__.tag


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"seq":7', b'"seq":7,"seq":7'),
        (b'"seq":7', b'"seq":7.0'),
        (b'"seq":7', b'"seq": 7'),
        (b'"seq":7', b'"seq":07'),
        (b'"seq":7', b'"seq":-7'),
        (b'"seq":7', b'"seq":true'),
        (b'"seq":7', b'"seq":"7"'),
        (b'"seq":7', b'"seq":9007199254740992'),
        (b'"seq":7', b'"seq":7,"extra":1'),
        (b'"seq":7,', b""),
        (b'"v":1', b'"v":2'),
        (b'"t":"event"', b'"t":"Event"'),
        (b'"t":"event"', b'"t":["event"]'),
        (b'"kind":"agent.log"', b'"kind":"agent.\\u006cog"'),
        (b'"kind":"agent.log"', b'"kind":"x.vendor"'),
        (b'"bytes":3', b'"bytes":3,"text":"hello"'),
        (b'{"at"', b'[{"at"'),
    ],
)
def test_only_the_exact_bytes_of_a_record_are_a_record(before: bytes, after: bytes) -> None:
    body = msgspec.convert(
        {"t": "event", "kind": "agent.log", "digest": "sha256:" + "a" * 64, "bytes": 3}, Record
    )
    leaf = make_leaf(body, ENVELOPE)
    line = make_line(leaf, NO_HASH)[:-1]
    assert before in line

    assert read_line(line) is not None
    assert read_line(line.replace(before, after)) is None
    assert read_leaf(leaf.replace(before, after), NO_HASH) is None


@settings(deadline=None)
@given(st.binary(max_size=200) | st.text('{}[]",:0123abt', max_size=200).map(str.encode))
def test_any_bytes_are_a_record_or_none(data: bytes) -> None:
    assert read_line(data) is None
    assert read_line(b"[" * 60_000) is None
