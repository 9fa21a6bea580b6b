"""What the patch rows start from: a checkout, its stage, and git's own patch for it.

``Patched`` is what every subject of a row starts from; nothing here is timed.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.stage.snapshot import stage_checkout
from broker.stage.store import BlobStore
from broker.stage.tree import Entry, StagedTree
from protocol.ids import RepoPath
from tests.benchmarks.folders import memory_folder
from tests.benchmarks.model import Sizes
from tests.benchmarks.repositories import change_lines, git, is_text, make_checkout

#: Files that the small patch touches.
SMALL: Final = 3

#: A section that no reader may follow: it creates a file above the checkout.
HOSTILE_SECTION: Final = (
    b"diff --git a/../outside.txt b/../outside.txt\n"
    b"new file mode 100644\n"
    b"--- /dev/null\n"
    b"+++ b/../outside.txt\n"
    b"@@ -0,0 +1 @@\n"
    b"+outside\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patched:
    """A clean checkout, a patch for it as a file and as bytes, and the checkout's entries."""

    folder: Path  #: fresh, for whatever a subject needs
    checkout: Path
    patch_file: Path
    patch: bytes
    files: int
    entries: Mapping[RepoPath, Entry]

    def fresh_tree(self, name: str) -> StagedTree:
        """The stage of the checkout in a new store that has read nothing yet.

        The owner closes ``.store``. ``name`` is a new folder for it.
        """
        scratch = self.folder / name
        scratch.mkdir()
        store = BlobStore.open(scratch, alternates=[self.checkout / ".git" / "objects"])
        return StagedTree.build(store, self.entries)


@contextmanager
def patched_checkout(sizes: Sizes, *, touched: int) -> Iterator[Patched]:
    """A checkout of ``sizes.patch_checkout`` files and a patch on ``touched`` of them."""
    with memory_folder() as folder:
        checkout = folder / "checkout"
        paths = make_checkout(checkout, files=sizes.patch_checkout)
        texts = [path for path in paths if is_text(path)]
        step = max(1, len(texts) // touched)
        change_lines(checkout, texts[::step][:touched], seed=2)
        patch = git(checkout, "diff", "--binary", "--full-index")
        patch_file = folder / "change.patch"
        patch_file.write_bytes(patch)
        git(checkout, "apply", "-R", patch_file)
        scratch = folder / "scratch"
        scratch.mkdir()
        tree = stage_checkout(checkout, scratch=scratch).tree
        entries = {path: entry for path in tree.paths if (entry := tree.get(path)) is not None}
        tree.store.close()
        yield Patched(
            folder=folder,
            checkout=checkout,
            patch_file=patch_file,
            patch=patch,
            files=touched,
            entries=entries,
        )


def described(patched: Patched) -> str:
    """How a row names the patch."""
    return f"{patched.files}-file patch ({len(patched.patch) / 1000:,.0f} KB)"
