"""The bytes of one ledger record: a canonical leaf, its hash, and its JSONL line.

A leaf is the canonical JSON of envelope and body, flat, without the hash. Its hash is
sha256 over a zero byte and the leaf, which is also the leaf hash of RFC 6962, so that
one hash serves the chain, the index and a Merkle tree. A line is the same document
with ``h`` in its sorted place. Reading accepts exactly the bytes that writing makes.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, get_args

import msgspec

from protocol.digest import canonical_json
from protocol.records import Envelope, Record

#: ``prev`` of the first record of an attempt.
NO_HASH: Final = "0" * 64
#: One record with its line feed. The largest body holds 64 ids of 128 bytes.
MAX_RECORD_BYTES: Final = 64 * 1024
#: Records of one attempt, and bytes of its lines (evidence.md 2.1).
MAX_RECORDS: Final = 100_000
MAX_LEDGER_BYTES: Final = 64 * 1024 * 1024
#: A line is its leaf, ``"h":"<64 hex>",`` and a line feed.
LINE_OVERHEAD: Final = len('"h":"",') + 64 + 1

#: Every byte that a leaf can have: JSON's structure and the characters of ids and digests.
#: No space, no escape, nothing beyond ASCII: prose does not fit.
LEAF_ALPHABET: Final = b'{}[]",:ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._/-'

_ENVELOPE_FIELDS: Final = frozenset(Envelope.__struct_fields__)
_BODIES: Final[dict[str, type[Record]]] = {
    kind.__struct_config__.tag: kind for kind in get_args(Record)
}


class Head(NamedTuple):
    """The last record of a chain: its sequence number (-1 before the first) and its hash."""

    seq: int
    h: str


EMPTY_HEAD: Final = Head(-1, NO_HASH)


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """One record as read: its parts, its leaf and the hash that was found with it."""

    envelope: Envelope
    body: Record
    leaf: bytes
    h: str

    @property
    def line_bytes(self) -> int:
        """The size of the record's JSONL line with its line feed."""
        return len(self.leaf) + LINE_OVERHEAD


def make_leaf(body: Record, envelope: Mapping[str, int | str]) -> bytes:
    """The canonical bytes of a record without its hash; ``envelope`` has Envelope's fields."""
    fields: dict[str, Any] = msgspec.to_builtins(body)
    fields |= envelope
    return canonical_json(fields)


def leaf_hash(leaf: bytes) -> bytes:
    """The record's hash, 32 bytes: sha256(0x00 || leaf)."""
    return hashlib.sha256(b"\x00" + leaf).digest()


def make_line(leaf: bytes, h: str) -> bytes:
    """The JSONL line of a record, with its line feed."""
    fields = msgspec.json.decode(leaf)
    fields["h"] = h
    return canonical_json(fields) + b"\n"


def read_leaf(leaf: bytes, h: str) -> LedgerRecord | None:
    """The record whose leaf is exactly ``leaf``, or None. ``h`` is not compared here."""
    fields = _object(leaf)
    return None if fields is None else _record(fields, h=h, leaf=leaf)


def read_line(line: bytes) -> LedgerRecord | None:
    """The record whose line is exactly ``line`` (no line feed), or None. ``h`` is only read."""
    fields = _object(line)
    if fields is None or not isinstance(h := fields.get("h"), str) or len(h) != 64:
        return None
    if canonical_json(fields) != line:
        return None
    del fields["h"]
    return _record(fields, h=h, leaf=canonical_json(fields))


def _object(data: bytes) -> dict[str, Any] | None:
    """``data`` as a JSON object of the record alphabet, or None; keys are not checked."""
    if len(data) >= MAX_RECORD_BYTES or data.translate(None, LEAF_ALPHABET):
        return None
    try:
        fields = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def _record(fields: Mapping[str, Any], *, h: str, leaf: bytes) -> LedgerRecord | None:
    tag = fields.get("t")
    if not isinstance(tag, str) or tag not in _BODIES or not fields.keys() >= _ENVELOPE_FIELDS:
        return None
    parts = {name: fields[name] for name in _ENVELOPE_FIELDS}
    rest = {name: value for name, value in fields.items() if name not in parts}
    try:
        envelope = msgspec.convert(parts, Envelope)
        body: Record = msgspec.convert(rest, _BODIES[tag])
    except msgspec.ValidationError:
        return None
    # Written again from the parts, so duplicate keys, floats and defaults cannot hide.
    again = make_leaf(body, msgspec.structs.asdict(envelope))
    return LedgerRecord(envelope, body, leaf, h) if again == leaf else None
