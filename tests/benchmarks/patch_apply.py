"""A patch from its bytes to the digest of the new tree, and a hostile one to its refusal.

What is timed for ours: ``parse_patch``, ``confine``, ``apply_plan`` and the new tree's
digest, on a tree whose touched files were not read before, and on one where they were
(as after an agent's reads). For ``git apply``: the program on the clean working tree,
its start (about 2 ms) included; going back is not timed. The hostile patch is the same
with one more section, which creates a file above the checkout; git answers with
``git apply --check``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from time import perf_counter

from broker.stage.confinement import confine
from broker.stage.patch_grammar import parse_patch
from broker.stage.patch_plan import RESULT_BOUNDS, PatchPlan, PatchRefusal
from broker.stage.patching import apply_plan
from broker.stage.tree import StagedTree
from tests.benchmarks.model import Goal, Measure, Row, Sizes, Subject, Unit
from tests.benchmarks.patches import HOSTILE_SECTION, SMALL, Patched, described, patched_checkout
from tests.benchmarks.repositories import git, git_fails

OURS = "airlock"
OURS_READ = "airlock, files read before"
GIT = "git apply"
GIT_CHECK = "git apply --check"


def rows(sizes: Sizes) -> Iterator[Row]:
    """Two rows for each size of patch: applied, and refused."""
    for touched, bound in ((SMALL, 0.4), (sizes.patched_files, 1.0)):
        with patched_checkout(sizes, touched=touched) as patched:
            yield Row(
                name=f"apply a {described(patched)}",
                unit=Unit.MILLISECONDS,
                subjects=(
                    Subject(name=OURS, open=partial(_open_ours, patched, False), ours=True),
                    Subject(name=OURS_READ, open=partial(_open_ours, patched, True), ours=True),
                    Subject(name=GIT, open=partial(_open_git, patched)),
                ),
                goals=(
                    Goal(subject=OURS, bound=bound, against=GIT),
                    Goal(subject=OURS_READ, bound=bound, against=GIT),
                ),
                rounds=15,
            )
            yield Row(
                name=f"refuse a hostile {described(patched)}",
                unit=Unit.MILLISECONDS,
                subjects=(
                    Subject(name=OURS, open=partial(_open_ours_hostile, patched), ours=True),
                    Subject(name=GIT_CHECK, open=partial(_open_git_hostile, patched)),
                ),
                goals=(Goal(subject=OURS, bound=0.6, against=GIT_CHECK),),
                rounds=15,
            )


@contextmanager
def _open_ours(patched: Patched, read_before: bool) -> Iterator[Measure]:
    numbers = count()
    label = "read" if read_before else "unread"

    def measure() -> list[float]:
        tree = patched.fresh_tree(f"apply-{label}{next(numbers)}")
        if read_before:
            for path in _touched(parse_patch(patched.patch, bounds=RESULT_BOUNDS)):
                tree.read(path)
        start = perf_counter()
        after = _applied(patched.patch, tree)
        digest = after.digest
        taken = perf_counter() - start
        assert digest != tree.digest
        tree.store.close()
        return [taken]

    yield measure


@contextmanager
def _open_git(patched: Patched) -> Iterator[Measure]:
    def measure() -> list[float]:
        start = perf_counter()
        git(patched.checkout, "apply", patched.patch_file)
        taken = perf_counter() - start
        git(patched.checkout, "apply", "-R", patched.patch_file)
        return [taken]

    yield measure


@contextmanager
def _open_ours_hostile(patched: Patched) -> Iterator[Measure]:
    tree = patched.fresh_tree("hostile")
    hostile = patched.patch + HOSTILE_SECTION

    def measure() -> list[float]:
        start = perf_counter()
        try:
            _applied(hostile, tree)
        except PatchRefusal:
            return [perf_counter() - start]
        raise AssertionError("the hostile patch was applied")

    try:
        yield measure
    finally:
        tree.store.close()


@contextmanager
def _open_git_hostile(patched: Patched) -> Iterator[Measure]:
    hostile_file = patched.folder / "hostile.patch"
    hostile_file.write_bytes(patched.patch + HOSTILE_SECTION)

    def measure() -> list[float]:
        start = perf_counter()
        refused = git_fails(patched.checkout, "apply", "--check", hostile_file)
        taken = perf_counter() - start
        assert refused
        return [taken]

    yield measure


def _applied(patch: bytes, tree: StagedTree) -> StagedTree:
    plan = parse_patch(patch, bounds=RESULT_BOUNDS)
    confine(plan, tree)
    return apply_plan(plan, tree, bounds=RESULT_BOUNDS)


def _touched(plan: PatchPlan) -> list[str]:
    return [file.old_path for file in plan.files if file.old_path is not None]
