"""Staging a checkout again after one file in a hundred was changed.

What is timed for ours: ``stage_checkout`` until the sha256 tree digest is known, with the
content cache that stagings before have filled. For ``git status``: ``git status
--porcelain`` on the same checkout, start of the program (about 2 ms) included.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter

from tests.benchmarks.folders import file_system, memory_folder
from tests.benchmarks.model import Goal, Measure, Row, Sizes, Subject, Unit
from tests.benchmarks.repositories import change_lines, git, is_text, make_checkout
from tests.benchmarks.staging_cold import OURS, open_ours

STATUS = "git status"

#: One file in this many is changed.
CHANGED = 100


def rows(sizes: Sizes) -> Iterator[Row]:
    """One row for each size of checkout."""
    for files in sizes.checkouts:
        with memory_folder() as folder:
            checkout = folder / "checkout"
            paths = make_checkout(checkout, files=files)
            changed = [path for path in paths[::CHANGED] if is_text(path)]
            change_lines(checkout, changed, seed=1)
            cache = folder / "cache"
            cache.mkdir()
            yield Row(
                name=f"staging, warm, {files:,} files, 1% changed, {file_system(folder)}",
                unit=Unit.MILLISECONDS,
                subjects=(
                    Subject(name=OURS, open=partial(open_ours, folder, files, cache), ours=True),
                    Subject(name=STATUS, open=partial(_open_status, folder, len(changed))),
                ),
                goals=(Goal(subject=OURS, bound=2.0, against=STATUS),),
                rounds=5 if files > 10_000 else 15,
            )


@contextmanager
def _open_status(folder: Path, changed: int) -> Iterator[Measure]:
    def measure() -> list[float]:
        start = perf_counter()
        output = git(folder / "checkout", "status", "--porcelain")
        taken = perf_counter() - start
        assert len(output.splitlines()) == changed
        return [taken]

    yield measure
