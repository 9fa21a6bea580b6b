"""Where each line of a text stands, so that many searches for runs of lines cost little each.

It finds what a plain search of the whole text finds, and says so when it would not be
quicker. The text is bytes, and is not kept or changed.
"""

from typing import Final

__all__ = ["MAX_LINES", "LinePlaces"]

#: Lines of one text: each costs about 200 bytes here.
MAX_LINES: Final = 200_000

#: A line that stands at more places than this finds nothing quickly.
_MOST_PLACES: Final = 32


class LinePlaces:
    """The lines of ``data`` (at most ``MAX_LINES``), each with the offsets where it begins."""

    def __init__(self, data: bytes) -> None:
        self._data: Final = data
        places: dict[bytes, list[int]] = {}
        offsets: list[int] = []
        offset = 0
        for line in data.split(b"\n"):
            found = places.get(line)
            if found is None:
                places[line] = [offset]
            elif len(found) <= _MOST_PLACES:
                found.append(offset)
            offsets.append(offset)
            offset += len(line) + 1
        self._places: Final = places
        self._offsets: Final = offsets

    def offset(self, line: int) -> int | None:
        """Where line ``line`` (0-based) begins; ``None`` when there are fewer line feeds."""
        return self._offsets[line] if line < len(self._offsets) else None

    def places(self, lines: bytes) -> list[int] | None:
        """Every offset at which ``lines`` stand, whole and ended; ``None``: search for them."""
        if not lines.endswith(b"\n"):
            return None
        offset = 0
        rarest: list[int] | None = None
        before = 0
        for line in lines[:-1].split(b"\n"):
            found = self._places.get(line, [])
            if rarest is None or len(found) < len(rarest):
                rarest, before = found, offset
            if len(rarest) <= 1:
                break
            offset += len(line) + 1
        if rarest is None or len(rarest) > _MOST_PLACES:
            return None
        starts = [place - before for place in rarest if place >= before]
        data = self._data
        return [
            start
            for start in starts
            if (start == 0 or data[start - 1] == 0x0A) and data.startswith(lines, start)
        ]
