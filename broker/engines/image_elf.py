"""The shared libraries that an ELF file needs, read from the file; nothing is ever executed."""

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from protocol.errors import Refusal

_PT_LOAD: Final = 1
_PT_DYNAMIC: Final = 2
_PT_INTERP: Final = 3
_DT_NEEDED: Final = 1
_DT_STRTAB: Final = 5
_DT_RPATH: Final = 15
_DT_RUNPATH: Final = 29
_PROGRAM_HEADER_BYTES: Final = 56
_DYNAMIC_ENTRY_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class ElfFile:
    """What the loader would read: names it needs, folders it is told, its own path."""

    needed: tuple[str, ...]
    search: tuple[str, ...]  #: RPATH and RUNPATH folders, as written
    loader: str | None


@dataclass(frozen=True, slots=True)
class _Segment:
    kind: int
    offset: int
    address: int
    size: int


def is_elf(data: bytes) -> bool:
    """Whether ``data`` starts as an ELF file does."""
    return data.startswith(b"\x7fELF")


def parse_elf(data: bytes) -> ElfFile:
    """The dynamic section of a 64-bit ELF file, or ``Refusal("unsupported")``."""
    try:
        return _parse(data)
    except (struct.error, IndexError, ValueError):
        raise Refusal("unsupported") from None


def find_library(name: str, *, search: tuple[str, ...], origin: Path) -> Path | None:
    """Where the loader finds ``name`` when it has no cache: told folders, then its defaults."""
    told = [
        folder.replace("${ORIGIN}", str(origin)).replace("$ORIGIN", str(origin))
        for folder in search
    ]
    for folder in (*told, *default_folders()):
        candidate = Path(folder) / name
        if candidate.is_file():
            return candidate
    return None


def default_folders() -> tuple[str, ...]:
    """The folders that glibc's loader searches by itself on this machine."""
    triplet = f"{os.uname().machine}-linux-gnu"
    return (f"/lib/{triplet}", f"/usr/lib/{triplet}", "/lib64", "/usr/lib64", "/lib", "/usr/lib")


def _parse(data: bytes) -> ElfFile:
    if not is_elf(data) or data[4] != 2 or data[5] not in (1, 2):
        raise Refusal("unsupported")
    order = "<" if data[5] == 1 else ">"
    segments = _segments(data, order)
    loader = None
    dynamic: list[tuple[int, int]] = []
    for segment in segments:
        if segment.kind == _PT_INTERP:
            loader = _text(data, segment.offset)
        elif segment.kind == _PT_DYNAMIC:
            for at in range(segment.offset, segment.offset + segment.size, _DYNAMIC_ENTRY_BYTES):
                dynamic.append(struct.unpack_from(order + "QQ", data, at))
    strings = next((_to_offset(segments, value) for tag, value in dynamic if tag == _DT_STRTAB), 0)
    needed = tuple(_text(data, strings + value) for tag, value in dynamic if tag == _DT_NEEDED)
    paths = [
        _text(data, strings + value) for tag, value in dynamic if tag in (_DT_RPATH, _DT_RUNPATH)
    ]
    search = tuple(folder for path in paths for folder in path.split(":") if folder)
    return ElfFile(needed, search, loader)


def _segments(data: bytes, order: str) -> list[_Segment]:
    (table,) = struct.unpack_from(order + "Q", data, 32)
    (count,) = struct.unpack_from(order + "H", data, 56)
    segments = []
    for index in range(count):
        at = table + index * _PROGRAM_HEADER_BYTES
        kind, _, offset, address, _, size = struct.unpack_from(order + "IIQQQQ", data, at)
        segments.append(_Segment(kind, offset, address, size))
    return segments


def _to_offset(segments: list[_Segment], address: int) -> int:
    """Where in the file the bytes lie that are loaded at ``address``."""
    for segment in segments:
        if segment.kind == _PT_LOAD and 0 <= address - segment.address < segment.size:
            return segment.offset + address - segment.address
    raise Refusal("unsupported")


def _text(data: bytes, offset: int) -> str:
    return data[offset : data.index(b"\0", offset)].decode()
