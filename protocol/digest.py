"""Digests and the canonical bytes they cover.

Canonical JSON here is the subset of RFC 8785 in which it equals the encoding of
the npm package ``@odla-ai/camel``: no floats, integers within I-JSON range, no
lone surrogates, no integer-like keys. msgspec's sorted encoding gives those bytes
for such values (keys outside the basic plane are not used by any closed schema).
"""

import hashlib
from typing import Any, Final

import msgspec

from protocol.ids import Digest

DIGEST_PREFIX: Final = "sha256:"

_encoder: Final = msgspec.json.Encoder(order="sorted")


def canonical_json(value: Any) -> bytes:
    """``value`` as canonical JSON bytes (UTF-8, sorted keys, no white space)."""
    return _encoder.encode(value)


def digest_bytes(data: bytes) -> Digest:
    """``sha256:`` and 64 lower-case hex digits over ``data``."""
    return Digest(DIGEST_PREFIX + hashlib.sha256(data).hexdigest())


def digest_value(value: Any) -> Digest:
    """The digest of ``value``'s canonical JSON."""
    return digest_bytes(_encoder.encode(value))
