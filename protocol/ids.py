"""The scalar types of the wire: what each may contain, and the only doors into them.

Each ``parse_`` takes text as written or refuses it; nothing is trimmed, folded or
normalized. The patterns are anchored with ``(?![\\s\\S])`` where they are published,
because ``$`` also matches before a final line feed.
"""

import re
from typing import Annotated, Final, NewType

import msgspec

from protocol.errors import Refusal

#: Closed with a negative look-ahead: valid and exact in Python and in ECMA-262.
END: Final = r"(?![\s\S])"

ID_PATTERN: Final = r"^[A-Za-z0-9._:-]{1,128}" + END
DIGEST_PATTERN: Final = r"^sha256:[0-9a-f]{64}" + END
COMMIT_PATTERN: Final = r"^(?:[0-9a-f]{40}|[0-9a-f]{64})" + END
TOOL_NAME_PATTERN: Final = r"^[a-z][a-z0-9_]{0,47}" + END
RECIPE_ID_PATTERN: Final = r"^[A-Za-z0-9._-]{1,64}" + END
MODEL_ALIAS_PATTERN: Final = r"^[A-Za-z0-9._:/-]{1,128}" + END

#: Longest path in bytes of UTF-8 (protocol.md 3.2, RelPath).
MAX_PATH_BYTES: Final = 1024

Id = NewType("Id", str)
Digest = NewType("Digest", str)
CommitSha = NewType("CommitSha", str)
RepoPath = NewType("RepoPath", str)
RecipeId = NewType("RecipeId", str)
ToolName = NewType("ToolName", str)
ModelAlias = NewType("ModelAlias", str)

# The same scalars as they stand in a message: msgspec checks them and publishes them.
WireId = Annotated[str, msgspec.Meta(pattern=ID_PATTERN)]
WireDigest = Annotated[str, msgspec.Meta(pattern=DIGEST_PATTERN)]
WireCommit = Annotated[str, msgspec.Meta(pattern=COMMIT_PATTERN)]
WireToolName = Annotated[str, msgspec.Meta(pattern=TOOL_NAME_PATTERN)]
WireRecipeId = Annotated[str, msgspec.Meta(pattern=RECIPE_ID_PATTERN)]
WireModelAlias = Annotated[str, msgspec.Meta(pattern=MODEL_ALIAS_PATTERN)]

_ID: Final = re.compile(ID_PATTERN)
_DIGEST: Final = re.compile(DIGEST_PATTERN)
_COMMIT: Final = re.compile(COMMIT_PATTERN)
_RECIPE_ID: Final = re.compile(RECIPE_ID_PATTERN)
_UNSAFE_IN_PATH: Final = re.compile(r"[\x00-\x1f\x7f\\]")


def parse_id(text: str) -> Id:
    """``text`` as an identifier, or ``Refusal("id_malformed")``."""
    if _ID.match(text) is None:
        raise Refusal("id_malformed")
    return Id(text)


def parse_digest(text: str) -> Digest:
    """``text`` as a sha256 digest, or ``Refusal("digest_malformed")``."""
    if _DIGEST.match(text) is None:
        raise Refusal("digest_malformed")
    return Digest(text)


def parse_commit(text: str) -> CommitSha:
    """``text`` as a full commit id (SHA-1 or SHA-256), or ``Refusal("id_malformed")``."""
    if _COMMIT.match(text) is None:
        raise Refusal("id_malformed")
    return CommitSha(text)


def parse_recipe_id(text: str) -> RecipeId:
    """``text`` as a recipe id, or ``Refusal("id_malformed")``."""
    if _RECIPE_ID.match(text) is None:
        raise Refusal("id_malformed")
    return RecipeId(text)


def parse_repo_path(text: str) -> RepoPath:
    """``text`` as a path inside the stage, or ``Refusal("path_not_confined")``.

    Relative, ``/``-separated, at most ``MAX_PATH_BYTES`` bytes; no empty, ``.`` or
    ``..`` part, no part that is ``.git`` in any case, no backslash or control
    character, no lone surrogate (protocol.md 3.2).
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise Refusal("path_not_confined") from None
    if size > MAX_PATH_BYTES or _UNSAFE_IN_PATH.search(text) is not None:
        raise Refusal("path_not_confined")
    for part in text.split("/"):
        if part in ("", ".", "..") or part.casefold() == ".git":
            raise Refusal("path_not_confined")
    return RepoPath(text)
