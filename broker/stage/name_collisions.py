"""Whether a path can stand beside the names of a tree on every file system.

Two names collide when they are one to a file system that folds case or normal form, or
when one is a file where the other needs a folder. Names are compared, never changed.
"""

from typing import Final

from broker.stage.exclusions import fold_path
from broker.stage.tree import StagedTree

__all__ = ["Names"]


class Names:
    """The names of ``tree`` without the files in ``removed``, and those added to it."""

    def __init__(self, tree: StagedTree, *, removed: frozenset[str]) -> None:
        self._tree: Final = tree
        self._removed: Final = removed
        self._added: dict[str, tuple[str, bool]] = {}
        self._folded: dict[str, dict[str, list[str]]] = {}

    def collides(self, path: str) -> bool:
        """Whether a name of the tree is in the way of ``path``.

        The tree's own names do not collide with each other, so only the first part of
        ``path`` that the tree does not have is compared with what lies beside it.
        """
        if self._tree.get(path) is not None:
            return False
        folder = ""
        *above, _ = parts = path.split("/")
        for depth, part in enumerate(parts):
            here = f"{folder}/{part}" if folder else part
            if self._tree.is_directory(here):
                if depth == len(above):
                    return self._remains(here)
            elif self._tree.get(here) is not None:
                return depth < len(above) and here not in self._removed
            else:
                twins = self._names_in(folder).get(fold_path(part), [])
                return any(self._remains(f"{folder}/{twin}" if folder else twin) for twin in twins)
            folder = here
        return False

    def add(self, path: str) -> bool:
        """Add ``path``; false when it collides with a path added before."""
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            prefix = "/".join(parts[:depth])
            name = (prefix, depth < len(parts))
            if self._added.setdefault(fold_path(prefix), name) != name:
                return False
        return True

    def _remains(self, path: str) -> bool:
        """Whether the file ``path``, or any file below it, is not removed."""
        if self._tree.get(path) is not None:
            return path not in self._removed
        return any(file not in self._removed for file, _ in self._tree.items(path))

    def _names_in(self, folder: str) -> dict[str, list[str]]:
        """The names directly in ``folder`` by their folded form."""
        known = self._folded.get(folder)
        if known is None:
            skip = len(folder) + 1 if folder else 0
            names = dict.fromkeys(
                file[skip:].partition("/")[0] for file, _ in self._tree.items(folder)
            )
            known = {}
            for name in names:
                known.setdefault(fold_path(name), []).append(name)
            self._folded[folder] = known
        return known
