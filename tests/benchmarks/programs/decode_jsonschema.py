"""Decodes with the standard library and validates with jsonschema, one schema per type."""

import json
from typing import Any

from decoding import run
from jsonschema import Draft202012Validator

NAME = {"type": "string", "minLength": 1, "maxLength": 128}


def validator(tag: str, fields: dict[str, Any]) -> Draft202012Validator:
    properties = {"v": {"const": 1}, "type": {"const": tag}, "requestId": NAME, **fields}
    return Draft202012Validator(
        {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
    )


VALIDATORS = {
    "tool.request": validator("tool.request", {"tool": NAME, "input": {"type": "object"}}),
    "inference.request": validator(
        "inference.request",
        {
            "api": NAME,
            "model": NAME,
            "stream": {"type": "boolean"},
            "body": {"type": "object"},
        },
    ),
}


def decode(line: bytes) -> Any:
    message = json.loads(line)
    VALIDATORS[message["type"]].validate(message)
    return message


if __name__ == "__main__":
    run(decode)
