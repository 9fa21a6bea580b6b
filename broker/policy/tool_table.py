"""The closed table of what an agent may ask for: the reference's three tools and ours.

``workspace.read``, ``workspace.patch`` and ``recipe.run`` are golden: their digests and
those of inputs to them equal the package's. Listing and searching are reads of every file
below a directory; a prompt to a model is a send. The table never grows at run time.
"""

from typing import Final

from broker.policy.canonical import Value
from broker.policy.descriptors import DescriptorTable, Effect, Role, ToolDescriptor

#: Longest patch text (protocol.md 3.7, ``maxPatchBytes``; camel's checkpoint bound).
MAX_PATCH_BYTES: Final = 262_144

#: Most files of one patch (stage.md, "Patches").
MAX_PATCH_TARGETS: Final = 64

#: Longest text of a search and of a cursor: neither needs more, and both are digested.
MAX_QUERY_BYTES: Final = 4096

#: First line or byte that a read may start at: the vectors' bound.
MAX_OFFSET: Final = 1_048_576

#: Most lines, bytes or entries that one answer may be asked for: the vectors' bound.
MAX_LIMIT: Final = 65_536


def _text(maximum: int) -> Value:
    return {"type": "string", "maxLength": maximum}


def _tool(
    name: str,
    *,
    effect: Effect,
    required: tuple[str, ...],
    properties: dict[str, Value],
    roles: dict[str, Role],
) -> ToolDescriptor:
    return ToolDescriptor(
        name,
        version=1,
        effect=effect,
        policy_id=f"{name}.v1",
        input_schema={
            "type": "object",
            "additionalProperties": False,
            "required": required,
            "properties": properties,
        },
        argument_roles={"attempt": "authority", **roles},
    )


READ: Final = _tool(
    "workspace.read",
    effect="scoped_data_read",
    required=("path",),
    properties={
        "path": _text(1024),
        "offset": {"type": "integer"},
        "limit": {"type": "integer"},
    },
    roles={
        "source": "authority",
        "file": "selector",
        "handle": "authority",
        "offset": "selector",
        "limit": "selector",
    },
)
LIST: Final = _tool(
    "workspace.list",
    effect="scoped_data_read",
    required=(),
    properties={
        "prefix": _text(1024),
        "cursor": _text(MAX_QUERY_BYTES),
        "limit": {"type": "integer"},
    },
    roles={
        "source": "authority",
        "directory": "selector",
        "handle": "authority",
        "cursor": "payload",
        "limit": "selector",
    },
)
SEARCH: Final = _tool(
    "workspace.search",
    effect="scoped_data_read",
    required=("query",),
    properties={
        "query": _text(MAX_QUERY_BYTES),
        "regex": {"type": "boolean"},
        "prefix": _text(1024),
        "limit": {"type": "integer"},
    },
    roles={
        "source": "authority",
        "directory": "selector",
        "handle": "authority",
        "query": "payload",
        "limit": "selector",
    },
)
PATCH: Final = _tool(
    "workspace.patch",
    effect="reversible_mutation",
    required=("patch",),
    properties={"patch": _text(MAX_PATCH_BYTES)},
    roles={"source": "authority", "targets": "selector", "patch": "payload"},
)
RECIPE: Final = _tool(
    "recipe.run",
    effect="code_execution",
    required=("recipe",),
    properties={"recipe": _text(160)},
    roles={
        "source": "authority",
        "recipe": "selector",
        "definition": "authority",
        "image": "destination",
    },
)
INFERENCE: Final = _tool(
    "inference.send",
    effect="external_send",
    required=("model", "body"),
    properties={"model": _text(128), "body": {"type": "object"}},
    roles={
        "model": "selector",
        "definition": "authority",
        "route": "destination",
        "body": "payload",
    },
)

TOOLS: Final = DescriptorTable((READ, LIST, SEARCH, PATCH, RECIPE, INFERENCE))
