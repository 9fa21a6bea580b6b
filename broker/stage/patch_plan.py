"""What a patch means: one plan for every dialect, complete before anything is touched.

A plan is a value. It is what the policy judges and what the applier executes; nothing
reads the patch text a second time. Making one does no I/O and believes nothing: paths
and modes stand here as the patch wrote them until ``confinement`` has judged them.
"""

from typing import Final, Literal

import msgspec

from protocol.decision_codes import PATCH_TEXT, PatchCode
from protocol.errors import AirlockError

Operation = Literal["create", "modify", "delete", "rename", "copy"]

#: How much of the expected and of the found bytes a refusal carries. Enough for the
#: lines of one usual hunk, small against one answer.
EVIDENCE_BYTES: Final = 2048


class PatchRefusal(AirlockError):
    """The patch is not acceptable; the tree is as it was. The text is a constant.

    ``file`` and ``hunk`` are 0-based indexes, ``line`` is the 1-based line of the patch
    text. ``expected`` and ``found`` are bytes of the patch and of the tree, at most
    ``EVIDENCE_BYTES`` each: payload for the agent, never for a record or a log.
    ``found_line`` is the 1-based line of the file at which ``found`` begins, where a text
    was looked for that has no stated line.
    """

    def __init__(
        self,
        code: PatchCode,
        *,
        file: int | None = None,
        hunk: int | None = None,
        line: int | None = None,
        expected: bytes | None = None,
        found: bytes | None = None,
        found_line: int | None = None,
    ) -> None:
        super().__init__(PATCH_TEXT[code])
        self.code: Final = code
        self.file: Final = file
        self.hunk: Final = hunk
        self.line: Final = line
        self.expected: Final = None if expected is None else expected[:EVIDENCE_BYTES]
        self.found: Final = None if found is None else found[:EVIDENCE_BYTES]
        self.found_line: Final = found_line

    def without_found(self) -> "PatchRefusal":
        """The same without any byte of the tree, and without where it stands."""
        return PatchRefusal(
            self.code, file=self.file, hunk=self.hunk, line=self.line, expected=self.expected
        )


class PatchBounds(msgspec.Struct, frozen=True, kw_only=True):
    """How large a patch and its effect may be. Each bound is on one whole patch."""

    text_bytes: int
    files: int
    hunks: int
    inflated_bytes: int  #: binary parts and what their deltas make, added up
    delta_bytes: int  #: delta instructions, added up
    touched_bytes: int  #: file contents before and after, added up


#: A patch of an agent. 256 KiB of text may hide a thousand times as much in zlib
#: streams, and 64 sections may each name the largest file of the stage: the last three
#: bounds keep both small. Delta instructions are read one by one, which is the slow part.
AGENT_BOUNDS: Final = PatchBounds(
    text_bytes=256 * 1024,
    files=64,
    hunks=1_000,
    inflated_bytes=32 * 1024 * 1024,
    delta_bytes=2 * 1024 * 1024,
    touched_bytes=128 * 1024 * 1024,
)

#: A patch that this side made itself: the result of an attempt, or local changes. It
#: may touch every file of the largest stage; only its text is bounded tightly.
RESULT_BOUNDS: Final = PatchBounds(
    text_bytes=8 * 1024 * 1024,
    files=200_000,
    hunks=1_000_000,
    inflated_bytes=4 * 1024 * 1024 * 1024,
    delta_bytes=1024 * 1024 * 1024,
    touched_bytes=4 * 1024 * 1024 * 1024,
)


class Hunk(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One exchange of lines: ``old`` stands in the file, ``new`` takes its place.

    Both are exact bytes with context and line ends; the last line has none where the
    patch marks it so.
    """

    line: int | None  #: 0-based line at which ``old`` is stated to stand; None: not stated
    agreed: bool  #: the stated lines of both sides fit each other and the hunks before
    old: bytes
    new: bytes
    at_start: bool  #: ``old`` must be the beginning of the file
    at_end: bool  #: ``old`` must be the end of the file
    added: int
    removed: int
    #: Lines, without blanks around them, of which each names a block that holds the next
    #: one and at last ``old``. Only where ``line`` is not stated.
    anchors: tuple[bytes, ...] = ()


class BinaryPart(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One side of a binary patch, inflated, or ``None`` where it is over the bounds."""

    kind: Literal["literal", "delta"]
    body: bytes | None


class BinaryChange(msgspec.Struct, frozen=True, kw_only=True):
    """New content as a whole or as a delta, bound to git ids of both contents.

    The ids are 40 (SHA-1) or 64 (SHA-256) hex digits; all zeros mean absence.
    """

    old_id: bytes
    new_id: bytes
    forward: BinaryPart
    reverse: BinaryPart | None

    @property
    def over_bounds(self) -> bool:
        """Whether a part was too large to be inflated."""
        return self.forward.body is None or (self.reverse is not None and self.reverse.body is None)


class PatchTarget(msgspec.Struct, frozen=True):
    """One path that a plan changes, and how; what the policy decides on."""

    path: str
    kind: Literal["create", "modify", "delete"]


class FilePatch(msgspec.Struct, frozen=True, kw_only=True):
    """One section of a patch: what happens to one file.

    ``old_path`` is ``None`` for create, ``new_path`` for delete; they differ only for
    rename and copy. A mode is ``None`` where the patch states none. ``change`` is
    ``None`` (content kept, or an empty file), hunks, or binary. When ``plain_names`` is
    false a name was not in git's own form, and the paths are worth nothing.
    """

    operation: Operation
    old_path: str | None
    new_path: str | None
    old_mode: int | None
    new_mode: int | None
    plain_names: bool
    change: tuple[Hunk, ...] | BinaryChange | None
    #: False for a delete that does not state what it takes away.
    states_content: bool = True

    def targets(self) -> list[PatchTarget]:
        """The paths that this section changes."""
        if self.operation == "modify" and self.old_path is not None:
            return [PatchTarget(self.old_path, "modify")]
        found = []
        if self.old_path is not None and self.operation != "copy":
            found.append(PatchTarget(self.old_path, "delete"))
        if self.new_path is not None:
            found.append(PatchTarget(self.new_path, "create"))
        return found


class PatchPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a patch says, in the order in which it says it."""

    files: tuple[FilePatch, ...]

    @property
    def added(self) -> int:
        """Lines added by text hunks."""
        return sum(hunk.added for hunk in self._hunks())

    @property
    def removed(self) -> int:
        """Lines removed by text hunks."""
        return sum(hunk.removed for hunk in self._hunks())

    def _hunks(self) -> list[Hunk]:
        changes = [file.change for file in self.files]
        return [hunk for change in changes if isinstance(change, tuple) for hunk in change]


def targets(plan: PatchPlan) -> tuple[PatchTarget, ...]:
    """Every path that ``plan`` changes, in its order.

    A rename deletes one path and creates the other; a copy only creates: its source is
    read and not changed (``sources`` names it).
    """
    return tuple(target for file in plan.files for target in file.targets())


def sources(plan: PatchPlan) -> tuple[str, ...]:
    """Every path whose content ``plan`` carries to another path: renames and copies."""
    return tuple(
        file.old_path
        for file in plan.files
        if file.old_path is not None and file.operation in ("rename", "copy")
    )
