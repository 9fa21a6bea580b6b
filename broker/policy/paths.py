"""Which paths of the stage may be named, and by which opaque id the policy knows them.

Look-up is exact: ``./a``, another case, another normalization and a path that was
filtered are all simply not there. Ids say nothing of the name and stay with a file for
as long as it survives; an id is never given twice. One registry belongs to one tree and
never changes; a patch makes the next version.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Final, NamedTuple, final

import msgspec

from broker.policy.canonical import canonical_text
from broker.policy.conversion_policy import ConversionPolicy, RegisteredIdOutput
from broker.policy.readers import Readers, intersect_readers
from protocol.ids import MAX_PATH_BYTES, Digest, RepoPath

FILES_ID: Final = "workspace.paths"
DIRECTORIES_ID: Final = "workspace.directories"

_encode: Final = msgspec.json.Encoder().encode


class StagedFile(NamedTuple):
    """What the policy knows of a file: its number, its size in bytes, its content digest."""

    number: int
    size: int
    digest: str

    @property
    def file_id(self) -> str:
        """The opaque id, ``file:000001`` and on."""
        return f"file:{self.number:06d}"


class _Table(NamedTuple):
    """What one version holds. The maps are shared between versions and never changed."""

    files: dict[str, StagedFile]
    directories: dict[str, int]
    next_file: int
    next_directory: int
    restricted: dict[str, Readers]


class PathView(NamedTuple):
    """One kind of path of a registry, in the form that a conversion asks."""

    registry_id: str
    registry_digest: str
    find: Callable[[str], str | None]


@final
class PathRegistry:
    """The named paths of one staged tree.

    ``digest`` (64 hex digits) covers the tree digest, the version, and which path has
    which id; it is made when it is first asked for. Equal digests mean equal ids; the same
    paths reached over another history may have other ids and another digest. Only files
    that not everyone in the attempt may read are in ``restricted``.
    """

    def __init__(
        self, table: _Table, *, tree_digest: Digest, version: int, ancestry: bytes
    ) -> None:
        self._table: Final = table
        self._ancestry: Final = ancestry
        self.tree_digest: Final = tree_digest
        self.version: Final = version

    @classmethod
    def build(
        cls,
        paths: Iterable[tuple[RepoPath, int, Digest]],
        *,
        tree_digest: Digest,
        version: int = 1,
        previous: "PathRegistry | None" = None,
        restricted: Mapping[str, Readers] | None = None,
    ) -> "PathRegistry":
        """The registry of ``paths`` (path, size in bytes, content digest).

        With ``previous`` a path that it knew keeps its id, and new ones get unused ids.
        """
        rows = sorted(paths)
        files: dict[str, StagedFile] = {}
        known = {} if previous is None else previous._table.files
        number = 1 if previous is None else previous._table.next_file
        for path, size, digest in rows:
            old = known.get(path)
            if old is None:
                files[path] = StagedFile(number, size, digest)
                number += 1
            else:
                files[path] = StagedFile(old.number, size, digest)
        directories, next_directory = _directories(
            files,
            {} if previous is None else previous._table.directories,
            0 if previous is None else previous._table.next_directory,
        )
        table = _Table(files, directories, number, next_directory, dict(restricted or {}))
        return cls(table, tree_digest=tree_digest, version=version, ancestry=b"")

    def replace(
        self,
        changes: Mapping[RepoPath, tuple[int, Digest] | None],
        *,
        tree_digest: Digest,
        restricted: Mapping[str, Readers] | None = None,
    ) -> "PathRegistry":
        """The next version, after a patch: (size, content digest) per path, None = deleted.

        Files created by it have the attempt's readers unless ``restricted`` names them.
        """
        table = self._table
        files, readers, number = dict(table.files), dict(table.restricted), table.next_file
        for path, change in sorted(changes.items()):
            old = files.pop(path, None) if change is None else files.get(path)
            if change is None:
                readers.pop(path, None)
            elif old is None:
                files[path] = StagedFile(number, *change)
                number += 1
            else:
                files[path] = StagedFile(old.number, *change)
        readers.update(restricted or {})
        directories, next_directory = table.directories, table.next_directory
        if any((path in files) != (path in table.files) for path in changes):
            directories, next_directory = _directories(files, directories, next_directory)
        return PathRegistry(
            _Table(files, directories, number, next_directory, readers),
            tree_digest=tree_digest,
            version=self.version + 1,
            ancestry=self._next_ancestry(changes, files),
        )

    @cached_property
    def digest(self) -> str:
        """64 hex digits over tree, version and ids."""
        head = (b'{"content":', self._ancestry or self._content, b',"tree":')
        tail = (canonical_text(self.tree_digest), b',"version":%d}' % self.version)
        return hashlib.sha256(b"".join((*head, *tail))).hexdigest()

    @cached_property
    def conversion(self) -> ConversionPolicy:
        """The conversion of a path into a file id."""
        return _conversion("workspace.path.v1", FILES_ID, self.digest)

    @cached_property
    def directory_conversion(self) -> ConversionPolicy:
        """The conversion of a path into a directory id; ``""`` is the root."""
        return _conversion("workspace.directory.v1", DIRECTORIES_ID, self.digest)

    def file(self, path: str) -> StagedFile | None:
        """The file of exactly this path, or None."""
        return self._table.files.get(path)

    def directory(self, path: str) -> str | None:
        """The id of exactly this directory (``""`` is the root), or None."""
        number = self._table.directories.get(path)
        return None if number is None else f"dir:{number:06d}"

    @cached_property
    def files(self) -> "PathView":
        """The file paths, as the registry that their conversion asks."""
        return PathView(FILES_ID, self.digest, self._find_file)

    @cached_property
    def directories(self) -> "PathView":
        """The directory paths, as the registry that their conversion asks."""
        return PathView(DIRECTORIES_ID, self.digest, self.directory)

    def nearest_directory(self, path: str) -> str:
        """The path of the closest registered directory above ``path``."""
        parent = path
        while parent:
            parent = parent.rpartition("/")[0]
            if parent in self._table.directories:
                return parent
        return ""

    def readers_of(self, path: str, *, otherwise: Readers) -> Readers:
        """Who may read a file: ``otherwise``, narrowed where the file is restricted."""
        found = self._table.restricted.get(path)
        return otherwise if found is None else intersect_readers((otherwise, found))

    def readers_below(self, directory: str, *, otherwise: Readers) -> Readers:
        """Who may read every file below ``directory``."""
        prefix = directory + "/" if directory else ""
        found = (
            readers for path, readers in self._table.restricted.items() if path.startswith(prefix)
        )
        return intersect_readers((otherwise, *found))

    def _find_file(self, path: str) -> str | None:
        found = self._table.files.get(path)
        return None if found is None else found.file_id

    def __len__(self) -> int:
        return len(self._table.files)

    @cached_property
    def _content(self) -> bytes:
        """The digest of which path has which id, in byte order of the paths."""
        files = [(path, file.number) for path, file in self._table.files.items()]
        directories = list(self._table.directories.items())
        return _hex(_encode((files, directories)))

    def _next_ancestry(
        self, changes: Mapping[RepoPath, object], files: Mapping[str, StagedFile]
    ) -> bytes:
        """The digest of this version and of what the next one changed: linear in the change.

        Ids follow from the version before, the changed paths, and the rule that new paths
        are numbered in their byte order, so nothing else needs to be digested again.
        """
        rows = [(path, files[path].number if path in files else None) for path in sorted(changes)]
        return _hex(_encode((self.digest, rows)))


def _directories(
    files: Mapping[str, StagedFile], known: dict[str, int], number: int
) -> tuple[dict[str, int], int]:
    """Every directory that holds a file, and the root; ids that were given stay."""
    found: dict[str, int] = {"": known.get("", 0)}
    number = max(number, 1)
    last = ""
    for path in files:
        parent = path.rpartition("/")[0]
        if parent == last:
            continue
        last = parent
        missing: list[str] = []
        while parent not in found:
            missing.append(parent)
            parent = parent.rpartition("/")[0]
        for directory in reversed(missing):
            old = known.get(directory)
            found[directory] = number if old is None else old
            number += old is None
    return found, number


def _conversion(conversion_id: str, registry_id: str, digest: str) -> ConversionPolicy:
    return ConversionPolicy(
        conversion_id,
        output=RegisteredIdOutput(registry_id=registry_id, registry_digest=digest),
        maximum_source_bytes=MAX_PATH_BYTES,
    )


def _hex(data: bytes) -> bytes:
    return b'"' + hashlib.sha256(data).hexdigest().encode() + b'"'
