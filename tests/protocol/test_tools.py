"""The inputs of the built-in tools: taken as their form says, or refused with a pointer."""

from typing import Any

import jsonschema
import pytest

from protocol.messages import ToolOffer
from protocol.tools import (
    TOOL_FORMS,
    ApplyPatchInput,
    DeleteFileInput,
    EditFileInput,
    InputRejected,
    ListFilesInput,
    ReadFileInput,
    RunRecipeInput,
    SearchFilesInput,
    TextEdit,
    WriteFileInput,
    decode_tool_input,
)

DIGEST = "sha256:" + "a" * 64
#: Short enough in characters and too long in bytes.
LONG = "é" * 300_000
EDIT = {"old": "b", "new": "c"}

ACCEPTED: list[tuple[str, dict[str, Any], Any]] = [
    ("read_file", {"path": "a"}, ReadFileInput(path="a")),
    ("read_file", {"path": "é" * 512}, ReadFileInput(path="é" * 512)),
    (
        "read_file",
        {"path": "a", "startLine": 1, "maxLines": 2},
        ReadFileInput(path="a", start_line=1, max_lines=2),
    ),
    (
        "read_file",
        {"path": "a", "encoding": "base64", "startByte": 0},
        ReadFileInput(path="a", encoding="base64", start_byte=0),
    ),
    ("list_files", {}, ListFilesInput()),
    ("list_files", {"prefix": "src/", "limit": 9}, ListFilesInput(prefix="src/", limit=9)),
    ("search_files", {"query": "x", "regex": True}, SearchFilesInput(query="x", regex=True)),
    (
        "apply_patch",
        {"patch": "", "baseDigest": DIGEST},
        ApplyPatchInput(patch="", base_digest=DIGEST),
    ),
    (
        "edit_file",
        {"path": "a", "digest": DIGEST, "edits": [{"old": "a", "new": ""}, EDIT | {"count": 2}]},
        EditFileInput(
            path="a",
            digest=DIGEST,
            edits=(TextEdit(old="a", new=""), TextEdit(old="b", new="c", count=2)),
        ),
    ),
    ("write_file", {"path": "a", "content": ""}, WriteFileInput(path="a", content="")),
    (
        "write_file",
        {
            "path": "a",
            "content": "AP8=",
            "encoding": "base64",
            "digest": DIGEST,
            "executable": True,
        },
        WriteFileInput(path="a", content="AP8=", encoding="base64", digest=DIGEST, executable=True),
    ),
    ("delete_file", {"path": "a", "digest": DIGEST}, DeleteFileInput(path="a", digest=DIGEST)),
    ("run_recipe", {"recipeId": "test"}, RunRecipeInput(recipe_id="test")),
]

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("read_file", {}, ""),
    ("read_file", {"path": ""}, "/path"),
    ("read_file", {"path": 1}, "/path"),
    ("read_file", {"path": "a" * 1025}, "/path"),
    ("read_file", {"path": "é" * 513}, "/path"),
    ("read_file", {"path": "a", "mode": "rw"}, ""),
    ("read_file", {"path": "a", "startLine": 0}, "/startLine"),
    ("read_file", {"path": "a", "startLine": 1.0}, "/startLine"),
    ("read_file", {"path": "a", "startLine": True}, "/startLine"),
    ("read_file", {"path": "a", "startLine": 2**53}, "/startLine"),
    ("read_file", {"path": "a", "encoding": "latin1"}, "/encoding"),
    ("read_file", {"path": "a", "startByte": 0}, ""),
    ("read_file", {"path": "a", "encoding": "base64", "maxLines": 1}, ""),
    ("list_files", {"limit": 0}, "/limit"),
    ("list_files", {"prefix": None}, "/prefix"),
    ("search_files", {"query": ""}, "/query"),
    ("search_files", {"query": "é" * 513}, "/query"),
    ("search_files", {"query": "a", "regex": "true"}, "/regex"),
    ("apply_patch", {"patch": "", "baseDigest": DIGEST + "\n"}, "/baseDigest"),
    ("apply_patch", {"patch": ["a"]}, "/patch"),
    ("edit_file", {"path": "a", "edits": [EDIT]}, ""),
    ("edit_file", {"path": "a", "digest": DIGEST, "edits": []}, "/edits"),
    ("edit_file", {"path": "a", "digest": DIGEST, "edits": [EDIT] * 1001}, "/edits"),
    ("edit_file", {"path": "a", "digest": DIGEST, "edits": [EDIT | {"old": ""}]}, "/edits/0/old"),
    ("edit_file", {"path": "a", "digest": DIGEST, "edits": [EDIT | {"all": True}]}, "/edits/0"),
    (
        "edit_file",
        {"path": "a", "digest": DIGEST, "edits": [EDIT, EDIT | {"count": 0}]},
        "/edits/1/count",
    ),
    ("edit_file", {"path": "a", "digest": DIGEST, "edits": [EDIT | {"new": LONG}]}, "/edits/0/new"),
    ("write_file", {"path": "a"}, ""),
    ("write_file", {"path": "a", "content": LONG}, "/content"),
    ("write_file", {"path": "a", "content": "", "digest": "sha256:0"}, "/digest"),
    ("write_file", {"path": "a", "content": "", "executable": 1}, "/executable"),
    ("write_file", {"path": "a", "content": "AP8", "encoding": "base64"}, ""),
    ("write_file", {"path": "a", "content": "A-_=", "encoding": "base64"}, ""),
    ("write_file", {"path": "a", "content": "é", "encoding": "base64"}, ""),
    ("delete_file", {"path": "a"}, ""),
    ("delete_file", {"path": "a", "digest": DIGEST, "force": True}, ""),
    ("run_recipe", {"recipe": "test"}, ""),
    ("run_recipe", {"recipeId": "r" * 129}, "/recipeId"),
]

#: What the schema that is offered cannot say: bytes, and which members go together.
ONLY_DECODED = [
    ("read_file", {"path": "é" * 513}),
    ("search_files", {"query": "é" * 513}),
    ("read_file", {"path": "a", "startLine": 1.0}),
    ("read_file", {"path": "a", "startByte": 0}),
    ("read_file", {"path": "a", "encoding": "base64", "maxLines": 1}),
    ("apply_patch", {"patch": "", "baseDigest": DIGEST + "\n"}),
    ("edit_file", {"path": "a", "digest": DIGEST, "edits": [EDIT | {"new": LONG}]}),
    ("write_file", {"path": "a", "content": LONG}),
    ("write_file", {"path": "a", "content": "AP8", "encoding": "base64"}),
    ("write_file", {"path": "a", "content": "A-_=", "encoding": "base64"}),
    ("write_file", {"path": "a", "content": "é", "encoding": "base64"}),
]


@pytest.mark.parametrize(("tool", "raw", "expected"), ACCEPTED)
def test_an_input_of_its_form_is_taken(tool: str, raw: dict[str, Any], expected: Any) -> None:
    jsonschema.validate(raw, TOOL_FORMS[tool].input_schema())

    assert decode_tool_input(tool, raw) == expected


@pytest.mark.parametrize(("tool", "raw", "pointer"), REFUSED)
def test_another_input_is_refused_and_not_repeated(
    tool: str, raw: dict[str, Any], pointer: str
) -> None:
    with pytest.raises(InputRejected) as caught:
        decode_tool_input(tool, raw)

    assert (caught.value.code, caught.value.pointer) == ("invalid_input", pointer)
    assert caught.value.__context__ is None
    valid = jsonschema.Draft202012Validator(TOOL_FORMS[tool].input_schema()).is_valid(raw)
    assert valid == ((tool, repr(raw)) in [(name, repr(other)) for name, other in ONLY_DECODED])


def test_what_a_read_asks_for_is_lines_or_bytes() -> None:
    text = ReadFileInput(path="a", start_line=3, max_lines=4)
    data = ReadFileInput(path="a", encoding="base64", start_byte=5, max_bytes=6)

    assert (text.offset, text.count) == (3, 4)
    assert (data.offset, data.count) == (5, 6)


def test_a_content_is_text_or_bytes() -> None:
    assert WriteFileInput(path="a", content="é\r\n").data() == "é\r\n".encode()
    assert WriteFileInput(path="a", content="AP8=", encoding="base64").data() == b"\0\xff"


@pytest.mark.parametrize("name", TOOL_FORMS)
def test_an_offer_has_a_plain_schema(name: str) -> None:
    offer = TOOL_FORMS[name].offer(approval="possible", max_result_bytes=9)

    jsonschema.Draft202012Validator.check_schema(offer.input_schema)
    assert isinstance(offer, ToolOffer)
    assert offer.description.endswith(".")
    for word in ("$ref", "anyOf", "null", "(?!", "maxUtf8Bytes"):
        assert word not in repr(offer.input_schema)
    for member in offer.input_schema["properties"].values():
        assert member["description"].endswith(".")
