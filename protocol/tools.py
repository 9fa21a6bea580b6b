"""The built-in tools: what each takes, what it gives, and how it is offered to an agent.

Only the forms are here. Whether a path exists, a patch is confined or a recipe is
registered is asked elsewhere, of the typed input that comes out of here.
"""

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from protocol.bounds import passed_bound
from protocol.codec import pointer_of
from protocol.codes import WIRE_TEXT, WireCode
from protocol.errors import AirlockError
from protocol.fields import MAX_TEXT, AgentPart, BrokerPart, text
from protocol.ids import END, MAX_PATH_BYTES, WireDigest
from protocol.limits import KIB, MAX_SAFE_INTEGER, Count
from protocol.messages import ToolOffer

#: Longest query of a search; a pattern of the largest useful size is far below.
MAX_QUERY_BYTES: Final = 1024

#: Longest cursor: it is a path.
MAX_CURSOR_BYTES: Final = MAX_PATH_BYTES

#: Longest patch that is a patch at all; ``maxPatchBytes`` is below and has its own code.
_PATCH_BYTES: Final = 512 * KIB

#: Most edits of one file at once, and most places of one edit: as many as a patch may
#: have hunks.
MAX_EDITS: Final = 1_000

T = TypeVar("T", bound=msgspec.Struct)


def _described(description: str) -> msgspec.Meta:
    return msgspec.Meta(description=description)


_Path = Annotated[str, text(MAX_PATH_BYTES, min_length=1)]
_Prefix = Annotated[
    str, text(MAX_PATH_BYTES), _described("Only paths that start with this text; src/ is a folder.")
]
_Ordinal = Annotated[int, msgspec.Meta(ge=1, le=MAX_SAFE_INTEGER)]
_ReadDigest = Annotated[WireDigest, _described("The digest that read_file gave for the file.")]


class InputRejected(AirlockError):
    """A tool's input is not of its form. ``pointer`` is into the input (RFC 6901)."""

    def __init__(self, pointer: str) -> None:
        self.code: Final[WireCode] = "invalid_input"
        super().__init__(WIRE_TEXT[self.code])
        self.pointer: Final = pointer


class ReadFileInput(AgentPart, frozen=True):
    """Read a file: UTF-8 text by lines, or any bytes as base64."""

    path: Annotated[_Path, _described("Path of the file, relative, with / between its parts.")]
    encoding: Annotated[
        Literal["utf8", "base64"], _described("utf8 gives lines of text, base64 gives bytes.")
    ] = "utf8"
    start_line: Annotated[_Ordinal, _described("First line, from 1; with utf8 only.")] | None = None
    max_lines: Annotated[_Ordinal, _described("Most lines; with utf8 only.")] | None = None
    start_byte: Annotated[Count, _described("First byte, from 0; with base64 only.")] | None = None
    max_bytes: Annotated[_Ordinal, _described("Most bytes; with base64 only.")] | None = None

    def __post_init__(self) -> None:
        other = (
            (self.start_byte, self.max_bytes)
            if self.encoding == "utf8"
            else (self.start_line, self.max_lines)
        )
        if other != (None, None):
            raise ValueError("lines go with utf8 and bytes with base64")

    @property
    def offset(self) -> int | None:
        """The first line or byte that was asked for."""
        return self.start_line if self.encoding == "utf8" else self.start_byte

    @property
    def count(self) -> int | None:
        """The most lines or bytes that were asked for."""
        return self.max_lines if self.encoding == "utf8" else self.max_bytes


class ListFilesInput(AgentPart, frozen=True):
    """List the files of the repository, sorted by path, in pages."""

    prefix: _Prefix = ""
    cursor: (
        Annotated[str, text(MAX_CURSOR_BYTES), _described("The cursor of the page before.")] | None
    ) = None
    limit: Annotated[_Ordinal, _described("Most files of this page.")] | None = None


class SearchFilesInput(AgentPart, frozen=True):
    """Find the lines of text files that hold a text or match a pattern."""

    query: Annotated[
        str,
        text(MAX_QUERY_BYTES, min_length=1),
        _described("A text, or an RE2 pattern if regex is true. It never spans lines."),
    ]
    regex: Annotated[bool, _described("Whether query is a pattern.")] = False
    prefix: _Prefix = ""
    max_matches: Annotated[_Ordinal, _described("Most lines to give.")] | None = None


class ApplyPatchInput(AgentPart, frozen=True):
    """Change files with a patch (git unified diff, or *** Begin Patch): all of it or none."""

    patch: Annotated[
        str, text(_PATCH_BYTES), _described("A git unified diff, or a *** Begin Patch text.")
    ]
    base_digest: (
        Annotated[WireDigest, _described("Refuse if the files are not at this source digest.")]
        | None
    ) = None


class TextEdit(AgentPart, frozen=True):
    """Every one of the ``count`` places of ``old`` in a file becomes ``new``."""

    old: Annotated[
        str,
        text(_PATCH_BYTES, min_length=1),
        _described("Text exactly as it stands in the file, with blanks and line ends."),
    ]
    new: Annotated[str, text(_PATCH_BYTES), _described("What takes its place.")]
    count: Annotated[
        int,
        msgspec.Meta(ge=1, le=MAX_EDITS),
        _described("At how many places old stands; all of them change."),
    ] = 1


class EditFileInput(AgentPart, frozen=True):
    """Exchange exact texts in a file that was read before: all of them or none."""

    path: Annotated[_Path, _described("Path of the file.")]
    digest: _ReadDigest
    edits: Annotated[
        tuple[TextEdit, ...],
        msgspec.Meta(min_length=1, max_length=MAX_EDITS),
        _described("Each is looked for in the file as it was read; no two may overlap."),
    ]


class WriteFileInput(AgentPart, frozen=True):
    """Write a whole file: a new one, or one that was read before."""

    path: Annotated[_Path, _described("Path of the file; folders come by themselves.")]
    content: Annotated[str, text(_PATCH_BYTES), _described("All of the new content.")]
    encoding: Annotated[
        Literal["utf8", "base64"], _described("base64 if content stands for any bytes.")
    ] = "utf8"
    digest: (
        Annotated[WireDigest, _described("What read_file gave; leave it out for a new file.")]
        | None
    ) = None
    executable: (
        Annotated[bool, _described("Whether it can be run; left out, that stays as it is.")] | None
    ) = None

    def __post_init__(self) -> None:
        self.data()

    def data(self) -> bytes:
        """The bytes of the content."""
        if self.encoding == "utf8":
            return self.content.encode()
        return b64decode(self.content, validate=True)


class DeleteFileInput(AgentPart, frozen=True):
    """Delete a file that was read before."""

    path: Annotated[_Path, _described("Path of the file.")]
    digest: _ReadDigest


class RunRecipeInput(AgentPart, frozen=True):
    """Run one of the registered recipes (tests, builds) on the current files."""

    recipe_id: Annotated[str, text(128, min_length=1), _described("Id of the recipe.")]
    expected_source_digest: (
        Annotated[WireDigest, _described("Refuse if the files are not at this source digest.")]
        | None
    ) = None


class ReadFileResult(BrokerPart, frozen=True):
    """A window of a file with the totals of the whole: ``text`` or ``base64``."""

    digest: WireDigest
    total_bytes: Count
    text: str | None = None
    start_line: Count | None = None
    lines: Count | None = None
    cut_lines: Count | None = None
    total_lines: Count | None = None
    base64: str | None = None
    start_byte: Count | None = None


class ListedFile(BrokerPart, frozen=True):
    """One file of a listing."""

    path: str
    bytes: Count
    executable: bool = False


class ListFilesResult(BrokerPart, frozen=True):
    """A page of the files, and the cursor of the next page if there is one."""

    files: tuple[ListedFile, ...]
    total: Count
    cursor: str | None = None


class SearchMatch(BrokerPart, frozen=True):
    """One line that was found; ``cut`` says that ``text`` is only a part of it."""

    path: str
    line: Count
    text: str
    cut: bool = False


class SearchFilesResult(BrokerPart, frozen=True):
    """The lines that were found; not ``complete`` where a bound ended the search."""

    matches: tuple[SearchMatch, ...]
    complete: bool
    files_searched: Count
    files_skipped: Count = 0


class ChangedFile(BrokerPart, frozen=True):
    """What a patch did to one path; ``digest`` is of the new content."""

    path: str
    change: Literal["added", "modified", "deleted", "mode"]
    digest: WireDigest | None = None


class ApplyPatchResult(BrokerPart, frozen=True):
    """What a patch changed, and the digest of all files after it."""

    changed: tuple[ChangedFile, ...]
    source_digest: WireDigest


class RunRecipeResult(BrokerPart, frozen=True):
    """How a recipe ended. ``exit_code`` is absent where it was stopped."""

    status: Literal["passed", "failed", "timed_out", "output_limited"]
    duration_ms: Count
    stdout: str
    stderr: str
    source_digest: WireDigest
    receipt_digest: WireDigest | None = None
    exit_code: int | None = None


ChangeInput = ApplyPatchInput | EditFileInput | WriteFileInput | DeleteFileInput
ToolInput = ReadFileInput | ListFilesInput | SearchFilesInput | ChangeInput | RunRecipeInput
ToolResult = (
    ReadFileResult | ListFilesResult | SearchFilesResult | ApplyPatchResult | RunRecipeResult
)


@dataclass(frozen=True, slots=True)
class ToolForm:
    """A built-in tool: the docstring of its input is the description that a model reads."""

    name: str
    effect: Literal["read", "patch", "recipe"]
    input: type[ToolInput]
    result: type[ToolResult]

    @property
    def description(self) -> str:
        """One sentence."""
        return (self.input.__doc__ or "").strip()

    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of its input in the words that every model provider takes.

        It is a guide for a model: without references, null and our own keywords, and
        with ``$`` for the end of a pattern. ``decode_tool_input`` has the exact form.
        """
        _, parts = msgspec.json.schema_components([self.input])
        return _object(parts[self.input.__name__], parts)

    def offer(
        self, *, approval: Literal["never", "possible", "always"], max_result_bytes: int
    ) -> ToolOffer:
        """The tool as ``task.start`` offers it."""
        return ToolOffer(
            name=self.name,
            description=self.description,
            input_schema=self.input_schema(),
            effect=self.effect,
            approval=approval,
            max_result_bytes=max_result_bytes,
        )


TOOL_FORMS: Final[Mapping[str, ToolForm]] = MappingProxyType(
    {
        form.name: form
        for form in (
            ToolForm("read_file", "read", ReadFileInput, ReadFileResult),
            ToolForm("list_files", "read", ListFilesInput, ListFilesResult),
            ToolForm("search_files", "read", SearchFilesInput, SearchFilesResult),
            ToolForm("apply_patch", "patch", ApplyPatchInput, ApplyPatchResult),
            ToolForm("edit_file", "patch", EditFileInput, ApplyPatchResult),
            ToolForm("write_file", "patch", WriteFileInput, ApplyPatchResult),
            ToolForm("delete_file", "patch", DeleteFileInput, ApplyPatchResult),
            ToolForm("run_recipe", "recipe", RunRecipeInput, RunRecipeResult),
        )
    }
)


def decode_tool_input(tool_name: str, raw: dict[str, Any]) -> ToolInput:
    """The input of the built-in tool ``tool_name`` (a key of ``TOOL_FORMS``).

    Raises:
        InputRejected: it is not of the tool's form.
    """
    return parse_tool_input(TOOL_FORMS[tool_name].input, raw)


def parse_tool_input(form: type[T], raw: dict[str, Any]) -> T:
    """``raw`` as ``form``, an input Struct of this module.

    Raises:
        InputRejected: it is not of that form.
    """
    try:
        value = msgspec.convert(raw, form)
    except msgspec.ValidationError as error:
        pointer = pointer_of(str(error), raw, form)
    else:
        over = passed_bound(value)
        if over is None:
            return value
        pointer = over
    raise InputRejected(pointer)


def _object(schema: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    """The schema of an object, whose members may be ``parts``."""
    members = schema["properties"].items()
    return {
        "type": "object",
        "properties": {name: _plain(member, parts) for name, member in members},
        "required": schema["required"],
        "additionalProperties": False,
    }


def _plain(schema: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    """The schema of one member, which a caller leaves out rather than say null."""
    options = [option for option in schema.get("anyOf", ()) if option != {"type": "null"}]
    merged = {**(options[0] if options else {}), **schema}
    if "pattern" in merged:
        merged["pattern"] = merged["pattern"].replace(END, "$")
    if "items" in merged:
        part = merged["items"]["$ref"].rpartition("/")[2]
        merged["items"] = _object(parts[part], parts)
    return {
        name: value
        for name, value in merged.items()
        if name not in ("anyOf", MAX_TEXT) and (name, value) != ("default", None)
    }
