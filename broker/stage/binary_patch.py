"""``GIT binary patch``: its parts read from text, and applied to bytes.

A part is inflated only as far as its stated size and the bounds allow, so a stream
that grows without end costs nothing. Nothing here touches a tree.
"""

import re
import zlib
from hashlib import sha1, sha256
from typing import Final

from broker.stage import base85
from broker.stage.patch_plan import BinaryPart, PatchBounds
from broker.stage.patch_text import PatchText

__all__ = ["BinaryReader", "Malformed", "apply_part", "git_id"]

_PART: Final = re.compile(rb"(literal|delta) (0|[1-9][0-9]{0,17})")

#: A line of base85 holds at most 52 bytes; its first character tells how many.
_LINE_BYTES: Final = 52
_SIZES: Final[dict[int, int]] = {
    **{ord("A") + index: index + 1 for index in range(26)},
    **{ord("a") + index: index + 27 for index in range(26)},
}


class Malformed(Exception):
    """The part is not what it says. Caught where the file and line are known."""


class BinaryReader:
    """Reads the parts of one patch and keeps count of what they inflate to."""

    def __init__(self, bounds: PatchBounds) -> None:
        self._inflated_left = bounds.inflated_bytes
        self._delta_left = bounds.delta_bytes

    def read(self, text: PatchText) -> BinaryPart:
        """The part at the current line; the line after its empty last one is current then.

        Raises ``Malformed``. A part over the bounds has no body and costs nothing.
        """
        header = _PART.fullmatch(text.line)
        if header is None:
            raise Malformed
        size = int(header[2])
        text.advance()
        packed = _packed(text)
        if header[1] == b"literal":
            return BinaryPart(kind="literal", body=self._take(packed, size))
        return BinaryPart(kind="delta", body=self._take_delta(packed, size))

    def _take(self, packed: bytes, size: int) -> bytes | None:
        if size > self._inflated_left:
            return None
        self._inflated_left -= size
        return _inflated(packed, size)

    def _take_delta(self, packed: bytes, size: int) -> bytes | None:
        if size > self._delta_left:
            return None
        self._delta_left -= size
        body = self._take(packed, size)
        if body is None:
            return None
        _, at = _number(body, 0)
        result_size, _ = _number(body, at)
        if result_size > self._inflated_left:
            return None
        self._inflated_left -= result_size
        return body


def apply_part(part: BinaryPart, source: bytes) -> bytes:
    """What ``part`` (which has a body) makes of ``source``; raises ``Malformed``."""
    assert part.body is not None
    return part.body if part.kind == "literal" else _apply_delta(part.body, source)


def git_id(data: bytes, *, like: bytes) -> bytes:
    """The git blob id of ``data`` in hex, of the hash function that ``like`` is an id of."""
    header = b"blob %d\0" % len(data)
    if len(like) == 40:
        state = sha1(header, usedforsecurity=False)
    else:
        state = sha256(header)
    state.update(data)
    return state.hexdigest().encode()


def _packed(text: PatchText) -> bytes:
    """The deflated bytes of the base85 lines from the current one up to an empty line."""
    end = text.data.find(b"\n\n", text.at)
    # The empty line that ends a part must be there, and a part is never without lines.
    if end < 0 or not text.line:
        raise Malformed
    body = text.data[text.at : end].split(b"\n")
    last_size = _SIZES.get(body[-1][0])
    if last_size is None:
        raise Malformed
    full = _LINE_BYTES // 4 * base85.GROUP + 1
    for line in body[:-1]:
        # Every line but the last is full, as git writes them.
        if len(line) != full or line[0] != 0x7A:
            raise Malformed
    if len(body[-1]) != 1 + -(-last_size // 4) * base85.GROUP:
        raise Malformed
    decoded = base85.decode(b"".join([line[1:] for line in body]))
    if decoded is None:
        raise Malformed
    text.move(end + 2)
    return decoded[: (len(body) - 1) * _LINE_BYTES + last_size]


def _inflated(packed: bytes, size: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        # One byte more than stated is enough to see that there is more.
        data = stream.decompress(packed, size + 1)
    except zlib.error:
        raise Malformed from None
    if len(data) != size or not stream.eof or stream.unused_data:
        raise Malformed
    return data


def _number(delta: bytes, at: int) -> tuple[int, int]:
    """The variable-length number at ``at``, and the index after it."""
    value = shift = 0
    while True:
        # 63 bits are more than any size; a longer number is an attempt to waste time.
        if at >= len(delta) or shift > 56:
            raise Malformed
        byte = delta[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _apply_delta(delta: bytes, source: bytes) -> bytes:
    source_size, at = _number(delta, 0)
    result_size, at = _number(delta, at)
    if source_size != len(source):
        raise Malformed
    pieces: list[bytes] = []
    left = result_size
    end = len(delta)
    while at < end:
        command = delta[at]
        at += 1
        if command & 0x80:
            offset, size, at = _copy_range(delta, at, command)
            if offset + size > source_size or size > left:
                raise Malformed
            pieces.append(source[offset : offset + size])
        else:
            size = command
            if size == 0 or at + size > end or size > left:
                raise Malformed
            pieces.append(delta[at : at + size])
            at += size
        left -= size
    if left:
        raise Malformed
    return b"".join(pieces)


def _copy_range(delta: bytes, at: int, command: int) -> tuple[int, int, int]:
    """Offset and size of a copy, and the index after its operands."""
    operands = command & 0x7F
    end = at + operands.bit_count()
    if end > len(delta):
        raise Malformed
    offset = size = 0
    for bit in range(4):
        if operands >> bit & 1:
            offset |= delta[at] << (8 * bit)
            at += 1
    for bit in range(3):
        if operands >> (4 + bit) & 1:
            size |= delta[at] << (8 * bit)
            at += 1
    return offset, size or 0x10000, at
