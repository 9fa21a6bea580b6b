"""The two forms of a recipe catalog as JSON Schema, and a JSON reader without second meanings.

A catalog decides what runs, so its text must mean one thing to every reader: a key that
is there twice, in any spelling and at any depth, refuses the whole file.
"""

import json
from typing import Any, Final, get_args

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from protocol.errors import Refusal
from protocol.ids import END, RECIPE_ID_PATTERN
from protocol.refusal_codes import CatalogFault, CatalogField

#: A catalog of 16 recipes with the longest commands fits.
MAX_CATALOG_BYTES: Final = 512 * 1024
#: The agent is offered at most this many (protocol.md 3.3).
MAX_RECIPES: Final = 16
#: One command: words, bytes of one word, bytes of all. Far below what execve takes.
MAX_COMMAND_WORDS: Final = 64
MAX_WORD_BYTES: Final = 8 * 1024
MAX_COMMAND_BYTES: Final = 16 * 1024
#: A repository may ask for at most 15 minutes, a host for what a receipt can say (30).
MAX_REPOSITORY_TIMEOUT_MS: Final = 900_000
MAX_HOST_TIMEOUT_MS: Final = 1_800_000
#: Output that is kept of one run; it must fit an artifact.
MAX_OUTPUT_BYTES: Final = 16 * 1024 * 1024

#: A name to be looked up, or an absolute path without ``.``, ``..`` and empty parts. A
#: relative path would name a program of the candidate, which is not registered.
PROGRAM_PATTERN: Final = (
    r"^(?![-./])[^/\u0000]+" + END + r"|^(?:/(?!\.{1,2}(?:/|" + END + r"))[^/\u0000]+)+" + END
)
WORD_PATTERN: Final = r"^[^\u0000]+" + END
#: ``sha256:<hex>`` alone, or a name and ``@sha256:<hex>``.
PINNED_IMAGE_PATTERN: Final = r"^(?:[A-Za-z0-9][A-Za-z0-9._:/-]{0,254}@)?sha256:[0-9a-f]{64}" + END
IMAGE_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,350}" + END

_ID: Final = {"type": "string", "pattern": RECIPE_ID_PATTERN, "not": {"enum": [".", ".."]}}
_COMMAND: Final = {
    "type": "array",
    "prefixItems": [{"type": "string", "pattern": PROGRAM_PATTERN}],
    "items": {"type": "string", "pattern": WORD_PATTERN},
    "minItems": 1,
    "maxItems": MAX_COMMAND_WORDS,
}


def _catalog(fixed: dict[str, Any], recipe: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": fixed
        | {
            "recipes": {
                "type": "array",
                "minItems": 1,
                "maxItems": MAX_RECIPES,
                "items": {
                    "type": "object",
                    "properties": recipe,
                    "required": required,
                    "additionalProperties": False,
                },
            }
        },
        "required": [*fixed, "recipes"],
        "additionalProperties": False,
    }


HOST_SCHEMA: Final = _catalog(
    {"recipeAuthorization": {"const": "registered_recipe"}},
    {
        "id": _ID,
        "image": {"type": "string", "pattern": IMAGE_PATTERN},
        "command": _COMMAND,
        "timeoutMs": {"type": "integer", "minimum": 1, "maximum": MAX_HOST_TIMEOUT_MS},
        "maxOutputBytes": {"type": "integer", "minimum": 1, "maximum": MAX_OUTPUT_BYTES},
    },
    ["id", "image", "command", "timeoutMs", "maxOutputBytes"],
)
REPOSITORY_SCHEMA: Final = _catalog(
    {"version": {"const": 1}},
    {
        "id": _ID,
        "command": _COMMAND,
        "timeoutMs": {"type": "integer", "minimum": 1, "maximum": MAX_REPOSITORY_TIMEOUT_MS},
    },
    ["id", "command"],
)

HOST: Final = Draft202012Validator(HOST_SCHEMA)
REPOSITORY: Final = Draft202012Validator(REPOSITORY_SCHEMA)


def parse_catalog(data: bytes, *, schema: Draft202012Validator) -> list[dict[str, Any]]:
    """The recipes in ``data`` as ``schema`` describes them.

    Raises ``Refusal("catalog_malformed")``; its figure is the index of the first recipe
    at fault, where one is, its field and fault say what is wrong with it. Nothing of the
    text is in the exception.
    """
    document = _strict_json(data)
    faults = [_fault_of(error) for error in schema.iter_errors(document)]
    if faults:
        index, field, fault = min(faults, key=lambda found: -1 if found[0] is None else found[0])
        raise Refusal("catalog_malformed", figure=index, field=field, fault=fault)
    recipes: list[dict[str, Any]] = document["recipes"]
    seen: set[str] = set()
    for index, recipe in enumerate(recipes):
        words = [word.encode() for word in recipe["command"]]
        longest, total = max(map(len, words)), sum(map(len, words))
        if recipe["id"] in seen:
            raise Refusal("catalog_malformed", figure=index, field="id", fault="repeated_id")
        if longest > MAX_WORD_BYTES or total > MAX_COMMAND_BYTES:
            raise Refusal("catalog_malformed", figure=index, field="command", fault="out_of_bounds")
        seen.add(recipe["id"])
    return recipes


_FIELDS: Final[dict[object, CatalogField]] = {field: field for field in get_args(CatalogField)}
_FAULTS: Final[dict[object, CatalogFault]] = {
    "additionalProperties": "unknown_field",
    "required": "missing_field",
    "type": "wrong_type",
    "minimum": "out_of_bounds",
    "maximum": "out_of_bounds",
    "minItems": "out_of_bounds",
    "maxItems": "out_of_bounds",
    "minLength": "out_of_bounds",
    "maxLength": "out_of_bounds",
}


def _fault_of(error: ValidationError) -> tuple[int | None, CatalogField | None, CatalogFault]:
    """Where and what, in our words: recipe index, field, and kind of fault."""
    path = list(error.absolute_path)
    index = path[1] if len(path) > 1 and path[0] == "recipes" else None
    named = [_FIELDS[part] for part in path if part in _FIELDS]
    field = named[-1] if named else None
    if index is not None and field == "recipes":
        field = None  # the recipe itself
    return (
        index if isinstance(index, int) else None,
        field,
        _FAULTS.get(error.validator, "bad_form"),
    )


def _strict_json(data: bytes) -> Any:
    """``data`` as JSON with one meaning: UTF-8, no NUL, no repeated key, integers only."""
    if len(data) > MAX_CATALOG_BYTES:
        raise Refusal("catalog_malformed", fault="too_large")
    if b"\x00" in data:
        raise Refusal("catalog_malformed", fault="nul_byte")
    if data.startswith(b"\xef\xbb\xbf"):
        raise Refusal("catalog_malformed", fault="byte_order_mark")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise Refusal("catalog_malformed", fault="not_utf8") from None
    try:
        document = json.loads(
            text, object_pairs_hook=_object, parse_float=_refuse, parse_constant=_refuse
        )
        # A surrogate that stands alone cannot be written as UTF-8.
        json.dumps(document, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise Refusal("catalog_malformed", fault="not_json") from None
    return document


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise Refusal("catalog_malformed", fault="duplicate_key")
    return members


def _refuse(text: str) -> Any:
    raise Refusal("catalog_malformed", fault="not_an_integer")
