"""Answers typed requests with typed answers over trio streams: no policy, stage or ledger.

Usage: trio_answerer.py TEXT_BYTES

What a broker in trio with msgspec cannot be faster than: decode into a tagged union,
encode one Struct, one task that reads and writes.
"""

import sys

import msgspec
import trio
from texts import text_of

#: A pipe holds no more; a larger buffer would be mapped and unmapped for each read.
READ_BYTES = 64 * 1024


class Read(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str


class ToolRequest(
    msgspec.Struct, frozen=True, tag="tool.request", forbid_unknown_fields=True, rename="camel"
):
    v: int
    request_id: str
    tool: str
    input: Read


class Event(msgspec.Struct, frozen=True, tag="event", forbid_unknown_fields=True):
    v: int
    kind: str
    data: msgspec.Raw


class Text(msgspec.Struct, frozen=True, rename="camel"):
    text: str
    total_bytes: int


class ToolResponse(msgspec.Struct, frozen=True, tag="tool.response", rename="camel"):
    v: int
    request_id: str
    index: int
    final: bool
    ok: bool
    result: Text


async def main() -> None:
    text = text_of(int(sys.argv[1]))
    decode = msgspec.json.Decoder(ToolRequest | Event).decode
    encode = msgspec.json.Encoder().encode
    buffer = bytearray()
    async with trio.lowlevel.FdStream(0) as stdin, trio.lowlevel.FdStream(1) as stdout:
        while chunk := await stdin.receive_some(READ_BYTES):
            buffer += chunk
            *lines, rest = bytes(buffer).split(b"\n")
            buffer = bytearray(rest)
            answers = bytearray()
            for line in lines:
                request = decode(line)
                if isinstance(request, ToolRequest):
                    result = Text(text, len(text))
                    answers += encode(ToolResponse(1, request.request_id, 0, True, True, result))
                    answers += b"\n"
            await stdout.send_all(answers)


if __name__ == "__main__":
    trio.run(main)
