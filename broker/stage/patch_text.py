"""A place in the text of a patch, line by line; it moves forward and cuts nothing."""

from typing import Final

__all__ = ["PatchText"]


class PatchText:
    """The current line of ``data``, which ends with a line feed, and where it stands.

    ``line`` has no line feed; it is empty, and ``ended()`` holds, after the last one.
    """

    __slots__ = ("after", "at", "data", "line")

    def __init__(self, data: bytes) -> None:
        self.data: Final = data
        self.move(0)

    def move(self, at: int) -> None:
        """Make the line that begins at offset ``at`` the current one."""
        self.at = at
        end = self.data.find(b"\n", at)
        self.line = self.data[at:end] if end >= 0 else b""
        self.after = end + 1 if end >= 0 else at  #: offset of the next line

    def advance(self) -> None:
        """Make the next line the current one."""
        self.move(self.after)

    def ended(self) -> bool:
        """Whether there is no line any more."""
        return self.at >= len(self.data)

    def number(self, at: int | None = None) -> int:
        """The 1-based number of the current line, or of the one at offset ``at``."""
        offset = self.at if at is None else at
        return self.data.count(b"\n", 0, min(offset, len(self.data) - 1)) + 1
