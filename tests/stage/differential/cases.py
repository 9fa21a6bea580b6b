"""One case of the differential test: a tree, a patch, what we say and what stock git says."""

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from broker.stage.confinement import confine
from broker.stage.patch_grammar import parse_patch
from broker.stage.patch_plan import PatchRefusal
from broker.stage.patching import apply_plan
from broker.stage.store import BlobStore
from broker.stage.tree import StagedTree
from tests.stage.differential.judge import GitJudge, listed
from tests.stage.differential.mutations import mutated
from tests.stage.differential.trees import changed, edited, tree
from tests.stage.differential.writer import style, write
from tests.stage.patches import Exact, tree_of

PATCHES_PER_TREE: Final = 5
MUTATED: Final = 0.45
STALE: Final = 0.12
#: How often the working tree is asked too, of the accepted patches.
INDEXED: Final = 0.02


@dataclass
class Tally:
    """What became of the patches of a run."""

    patches: int = 0
    accepted: int = 0
    indexed: int = 0
    known: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)
    differing: list[tuple[Exact, bytes, object, object]] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.patches} patches, {self.accepted} accepted and judged by git apply --cached, "
            f"{self.indexed} of them by --index too; operations {dict(self.operations)}; "
            f"refused {dict(self.refused.most_common())}; git is wrong {dict(self.known)}; "
            f"differing {len(self.differing)}"
        )


def ours(before: StagedTree, patch: bytes, tally: Tally) -> StagedTree | None:
    """What our engine makes of it; ``None`` when it refuses. Another exception is a bug."""
    try:
        plan = parse_patch(patch)
        confine(plan, before)
        after = apply_plan(plan, before)
    except PatchRefusal as refused:
        tally.refused[refused.code] += 1
        return None
    for file in plan.files:
        kind = "binary" if file.change is not None and not isinstance(file.change, tuple) else ""
        tally.operations[f"{kind} {file.operation}".strip()] += 1
    return after


def random_patch(before: Exact, chance: random.Random) -> bytes:
    """A patch that may fit ``before``: true, for another state of it, or with lies."""
    base = before
    if chance.random() < STALE:
        base = {path: (edited(data, chance), mode) for path, (data, mode) in before.items()}
    patch = b""
    while not patch:
        patch = write(changed(base, chance), style(chance), chance)
    return mutated(patch, chance) if chance.random() < MUTATED else patch


def known_reason(before: Exact, patch: bytes) -> str | None:
    """Why git is wrong here and we are not; ``None`` for all else, which must agree."""
    del before, patch
    return None


def run(store: BlobStore, judge: GitJudge, *, seed: int, patches: int) -> Tally:
    """So many random patches, each accepted one judged."""
    chance = random.Random(seed)
    tally = Tally()
    while tally.patches < patches:
        before = tree(chance)
        staged = tree_of(store, before)
        judge.load(before)
        for _ in range(PATCHES_PER_TREE):
            patch = random_patch(before, chance)
            tally.patches += 1
            after = ours(staged, patch, tally)
            if after is not None:
                _judge(judge, before, patch, after, chance, tally)
    return tally


def _judge(
    judge: GitJudge,
    before: Exact,
    patch: bytes,
    after: StagedTree,
    chance: random.Random,
    tally: Tally,
) -> None:
    tally.accepted += 1
    mine, theirs = listed(after), judge.cached(patch)
    if mine == theirs and chance.random() < INDEXED:
        tally.indexed += 1
        theirs = judge.indexed(patch, before)
    if mine == theirs:
        return
    reason = known_reason(before, patch)
    if reason is None:
        tally.differing.append((before, patch, mine, theirs))
    else:
        tally.known[reason] += 1
