"""Decodes with msgspec: untyped, or into a tagged union whose fields have bounds.

Usage: decode_msgspec.py MESSAGE_FILE BATCH untyped|typed CONTROL_IN CONTROL_OUT
"""

import sys
from typing import Annotated, Any

import msgspec
from decoding import run

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]


class ToolRequest(
    msgspec.Struct, frozen=True, tag="tool.request", rename="camel", forbid_unknown_fields=True
):
    v: Annotated[int, msgspec.Meta(ge=1, le=1)]
    request_id: Name
    tool: Name
    input: dict[str, Any]


class InferenceRequest(
    msgspec.Struct, frozen=True, tag="inference.request", rename="camel", forbid_unknown_fields=True
):
    v: Annotated[int, msgspec.Meta(ge=1, le=1)]
    request_id: Name
    api: Name
    model: Name
    stream: bool
    body: dict[str, Any]


DECODERS = {
    "untyped": msgspec.json.Decoder(),
    "typed": msgspec.json.Decoder(ToolRequest | InferenceRequest),
}

if __name__ == "__main__":
    run(DECODERS[sys.argv[3]].decode)
