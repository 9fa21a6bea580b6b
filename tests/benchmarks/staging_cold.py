"""Staging a clean checkout for the first time, nothing remembered from before.

What is timed for ours: ``stage_checkout`` from its call until the sha256 tree digest of
all files is known, with a fresh scratch folder and an empty content cache, which it
fills. For ``cp -a``: a copy of the same files
without ``.git`` into a fresh folder. For ``git worktree add``: a fresh worktree of the
same commit. Both programs' times include their start, about 2 ms. The files are in the
page cache for all.
"""

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from time import perf_counter

from broker.stage.snapshot import stage_checkout
from tests.benchmarks.folders import disk_folder, file_system, memory_folder
from tests.benchmarks.model import Goal, Measure, Row, Sizes, Subject, Unit
from tests.benchmarks.repositories import git, make_checkout

OURS = "airlock"
COPY = "cp -a"
WORKTREE = "git worktree add"

#: Below this many files the start of a program counts as much as the copying, so the
#: design asks only for no loss.
SMALL_CHECKOUT = 1_000


def rows(sizes: Sizes) -> Iterator[Row]:
    """One row for each size of checkout, in memory."""
    return _rows(sizes, memory_folder)


def rows_on_disk(sizes: Sizes) -> Iterator[Row]:
    """The same where temporary files go: the journal and the allocator take part."""
    return _rows(sizes, disk_folder)


def _rows(sizes: Sizes, place: Callable[[], AbstractContextManager[Path]]) -> Iterator[Row]:
    for files in sizes.checkouts:
        # The folder outlives the row, which is measured before the next is asked for.
        with place() as folder:
            paths = make_checkout(folder / "checkout", files=files)
            bound = 1.0 if files < SMALL_CHECKOUT else 0.35
            yield Row(
                name=f"staging, cold, {files:,} files, {file_system(folder)}",
                unit=Unit.MILLISECONDS,
                subjects=(
                    Subject(name=OURS, open=partial(open_ours, folder, files), ours=True),
                    Subject(name=COPY, open=partial(_open_copy, folder, paths)),
                    Subject(name=WORKTREE, open=partial(_open_worktree, folder)),
                ),
                goals=(Goal(subject=OURS, bound=bound, against=COPY),),
                rounds=3 if files > 10_000 else 7,
            )


@contextmanager
def open_ours(folder: Path, files: int, cache: Path | None = None) -> Iterator[Measure]:
    """Stagings of ``folder``'s checkout; without ``cache`` each has an empty one of its own."""
    numbers = count()

    def measure() -> list[float]:
        scratch = folder / f"scratch{next(numbers)}"
        scratch.mkdir()
        start = perf_counter()
        staged = stage_checkout(folder / "checkout", scratch=scratch, cache=cache or scratch)
        digest = staged.tree.digest
        taken = perf_counter() - start
        assert staged.tree.files == files
        assert digest.startswith("sha256:")
        staged.tree.store.close()
        return [taken]

    yield measure


@contextmanager
def _open_copy(folder: Path, paths: Sequence[str]) -> Iterator[Measure]:
    tops = sorted({folder / "checkout" / path.split("/")[0] for path in paths})
    numbers = count()

    def measure() -> list[float]:
        copy = folder / f"copy{next(numbers)}"
        copy.mkdir()
        start = perf_counter()
        subprocess.run(["cp", "-a", "-t", copy, "--", *tops], check=True)
        return [perf_counter() - start]

    yield measure


@contextmanager
def _open_worktree(folder: Path) -> Iterator[Measure]:
    numbers = count()

    def measure() -> list[float]:
        target = folder / f"worktree{next(numbers)}"
        start = perf_counter()
        git(folder / "checkout", "worktree", "add", "--detach", "--force", target)
        return [perf_counter() - start]

    yield measure
