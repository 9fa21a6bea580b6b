"""How much a stage may hold. A checkout over a bound is refused with the figure, never cut."""

from dataclasses import dataclass
from typing import Final

from protocol.errors import Refusal
from protocol.ids import MAX_PATH_BYTES

#: Files: the largest open-source trees have about 90,000; each costs a tree line, a
#: registry line and a disclosure decision.
MAX_FILES: Final = 100_000

#: One file, bytes: it is held in memory whole when it is read, hashed or patched.
MAX_FILE_BYTES: Final = 32 * 1024 * 1024

#: All files, bytes: a recipe gets a fresh copy, and several run on one machine.
MAX_TOTAL_BYTES: Final = 2 * 1024 * 1024 * 1024

#: Excluded paths that are listed; an excluded folder is one of them.
MAX_EXCLUDED: Final = 100_000

#: Parts of one path: deeper than any real source tree, far below what recursion bears.
MAX_DEPTH: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class StageBounds:
    """The bounds of one staging; the defaults are those of the product."""

    files: int = MAX_FILES
    file_bytes: int = MAX_FILE_BYTES
    total_bytes: int = MAX_TOTAL_BYTES
    path_bytes: int = MAX_PATH_BYTES
    depth: int = MAX_DEPTH
    excluded: int = MAX_EXCLUDED

    def check_count(self, files: int) -> None:
        """Raise ``Refusal("stage_too_many_files")`` when ``files`` is over the bound."""
        if files > self.files:
            raise Refusal("stage_too_many_files", figure=self.files)

    def check_excluded(self, paths: int) -> None:
        """Raise ``Refusal("stage_too_many_files")`` when ``paths`` were excluded one by one."""
        if paths > self.excluded:
            raise Refusal("stage_too_many_files", figure=self.excluded)

    def check_size(self, size: int) -> None:
        """Raise ``Refusal("stage_file_too_large")`` when one file has ``size`` bytes."""
        if size > self.file_bytes:
            raise Refusal("stage_file_too_large", figure=self.file_bytes)

    def check_total(self, size: int) -> None:
        """Raise ``Refusal("stage_too_large")`` when all files have ``size`` bytes."""
        if size > self.total_bytes:
            raise Refusal("stage_too_large", figure=self.total_bytes)

    def check_path(self, path: str) -> None:
        """Raise ``Refusal`` when ``path`` (safe UTF-8 text) is too long or too deep."""
        # A character has at most four bytes: a short text need not be encoded.
        if len(path) * 4 > self.path_bytes and len(path.encode()) > self.path_bytes:
            raise Refusal("stage_path_too_long", figure=self.path_bytes)
        if path.count("/") >= self.depth:
            raise Refusal("stage_too_deep", figure=self.depth)


PRODUCT_BOUNDS: Final = StageBounds()
