"""The outgoing patch between the base and a candidate that differs in a few files.

What is timed for ours: ``make_patch``, which also parses and re-applies what it made, in
a store that has read the touched files before, as after the patches of an attempt. For
``git diff``: ``git diff --binary --full-index`` in a working tree with the same changes,
start of the program (about 2 ms) included.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from time import perf_counter

from broker.stage.confinement import confine
from broker.stage.diff import make_patch
from broker.stage.patch_grammar import parse_patch
from broker.stage.patch_plan import RESULT_BOUNDS
from broker.stage.patching import apply_plan
from tests.benchmarks.model import Goal, Measure, Row, Sizes, Subject, Unit
from tests.benchmarks.patches import SMALL, Patched, described, patched_checkout
from tests.benchmarks.repositories import git

OURS = "airlock"
GIT = "git diff --binary"


def rows(sizes: Sizes) -> Iterator[Row]:
    """One row for each size of patch."""
    for touched, bound in ((SMALL, 0.25), (sizes.patched_files, 1.1)):
        with patched_checkout(sizes, touched=touched) as patched:
            yield Row(
                name=f"result, a {described(patched)}",
                unit=Unit.MILLISECONDS,
                subjects=(
                    Subject(name=OURS, open=partial(_open_ours, patched), ours=True),
                    Subject(name=GIT, open=partial(_open_git, patched)),
                ),
                goals=(Goal(subject=OURS, bound=bound, against=GIT),),
                rounds=15,
            )


@contextmanager
def _open_ours(patched: Patched) -> Iterator[Measure]:
    before = patched.fresh_tree("result")
    plan = parse_patch(patched.patch, bounds=RESULT_BOUNDS)
    confine(plan, before)
    after = apply_plan(plan, before, bounds=RESULT_BOUNDS)

    def measure() -> list[float]:
        start = perf_counter()
        patch = make_patch(before, after)
        taken = perf_counter() - start
        assert patch.count(b"diff --git ") == patched.files
        return [taken]

    try:
        yield measure
    finally:
        before.store.close()


@contextmanager
def _open_git(patched: Patched) -> Iterator[Measure]:
    git(patched.checkout, "apply", patched.patch_file)

    def measure() -> list[float]:
        start = perf_counter()
        patch = git(patched.checkout, "diff", "--binary", "--full-index")
        taken = perf_counter() - start
        assert patch == patched.patch
        return [taken]

    try:
        yield measure
    finally:
        git(patched.checkout, "apply", "-R", patched.patch_file)
