"""The rows of an index judged by name, kind and content; nothing outside of the index is read."""

from collections.abc import Mapping
from typing import Final

from broker.stage.blobs import Blobs
from broker.stage.bounds import StageBounds
from broker.stage.content_cache import MARK_PLAIN
from broker.stage.exclusions import needs_content, suspects
from broker.stage.index_file import Index, IndexFolder, IndexRow
from broker.stage.names import PathJudge, printable
from broker.stage.store import Blob, BlobId
from broker.stage.tracking import StatForm, TrackedFolder, mode_of
from broker.stage.tree import Entry
from protocol.decision_codes import ExclusionReason

__all__ = ["IndexJudge", "reason_of_kind"]

_TYPE_MASK: Final = 0o170000
_REGULAR: Final = 0o100000


def reason_of_kind(mode: int) -> ExclusionReason | None:
    """Why what git stores with ``mode`` is not staged; ``None`` for a regular file."""
    match mode & _TYPE_MASK:
        case 0o100000:
            return None
        case 0o120000:
            return "symlink"
        case 0o160000:
            return "submodule"
        case _:
            return "special_file"


class IndexJudge:
    """Makes tracked folders of an index, and notes what is hidden in ``hidden``."""

    def __init__(
        self,
        names: PathJudge,
        blobs: Blobs,
        *,
        hidden: dict[str, ExclusionReason],
        form: StatForm,
        bounds: StageBounds,
    ) -> None:
        self._names: Final = names
        self._blobs: Final = blobs
        self._hidden: Final = hidden
        self._form: Final = form
        self._bounds: Final = bounds

    def folders(self, index: Index) -> dict[str, TrackedFolder]:
        """Every folder with a file that may be staged, each after the one above it."""
        for raw in sorted(index.unmerged):
            if self._names.text_of(raw) is not None:
                self._hidden[printable(raw)] = "unmerged"
        judged: dict[str, TrackedFolder] = {}
        files = 0
        for path, folder in index.folders.items():
            if path and path.rpartition("/")[0] not in judged:
                continue
            if path and not self._names.allows(_raw(path)):
                continue
            rows = self._regular(folder)
            files += len(rows)
            judged[path] = self._tracked(path, rows)
        self._bounds.check_count(files)
        return _with_files(judged)

    def _regular(self, folder: IndexFolder) -> dict[str, IndexRow]:
        rows = folder.rows
        allowed = self._names.texts_of(folder.path, rows.keys())
        if len(allowed) == len(rows) and all(row.kind == _REGULAR for row in rows.values()):
            return rows
        regular: dict[str, IndexRow] = {}
        for name, row in rows.items():
            if name not in allowed:
                continue
            reason = reason_of_kind(row.mode)
            if reason is None:
                regular[name] = row
            else:
                self._hidden[printable(_raw(folder.prefix + name))] = reason
        return regular

    def _tracked(self, path: str, rows: Mapping[str, IndexRow]) -> TrackedFolder:
        """The folder with what is known and harmless apart from the rows to look at."""
        known: dict[str, Entry] = {}
        others: dict[str, IndexRow] = {}
        suspected = frozenset(suspects(rows.keys(), below=""))
        get, most = self._blobs.known, self._bounds.file_bytes
        for name, row in rows.items():
            content = None if row.marks else get(row.oid)
            if (
                content is None
                or content.mark != MARK_PLAIN
                or content.size != row.size
                or content.size > most
                or (name in suspected and needs_content(name))
            ):
                others[name] = row
            else:
                blob = Blob(BlobId(row.oid), content.size, content.digest)
                known[name] = Entry(mode_of(row.mode), blob)
        folder = TrackedFolder(path, others)
        folder.suspects = suspected
        folder.know(known, rows, self._form)
        return folder


def _with_files(judged: dict[str, TrackedFolder]) -> dict[str, TrackedFolder]:
    """Without the folders that have no file at any depth."""
    kept: set[str] = set()
    for path, folder in reversed(judged.items()):
        if folder.rows or folder.names or path in kept:
            kept.update((path, path.rpartition("/")[0]))
    return {path: folder for path, folder in judged.items() if path in kept or not path}


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
