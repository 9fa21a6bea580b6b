"""Mutation fuzzing of the patch grammars, run by hand; pytest does not collect it.

``python -m tests.stage.fuzz_patches --seconds 600 [--seed N] [--out FOLDER]``

Any bytes are a plan that applies or is refused, or a refusal: no other exception, and no
parse of at most 256 KiB takes more than 50 ms of processor time. Inputs that reach a new
place (the lines that a refusal came through, or the shape of a plan), or that are slower
than any before of their size, are kept and mutated further.
"""

import argparse
import gc
import json
import math
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from broker.stage.begin_patch import parse_any_patch, parse_begin_patch
from broker.stage.confinement import confine
from broker.stage.patch_grammar import parse_patch
from broker.stage.patch_plan import AGENT_BOUNDS, PatchPlan, PatchRefusal
from broker.stage.patching import apply_plan
from broker.stage.tree import StagedTree
from tests.stage.differential.mutations import mutated
from tests.stage.differential.trees import changed, tree
from tests.stage.differential.writer import style, write
from tests.stage.patches import Exact, scratch_store, tree_of

CORPUS: Final = Path(__file__).parents[1] / "data" / "patch_corpus.json"
MOST_BYTES: Final = AGENT_BOUNDS.text_bytes
SLOWEST_SECONDS: Final = 0.05
#: How often a slow input is tried again: only what is always slow is.
TRIES: Final = 5
MOST_KEPT: Final = 3_000

#: A tree that the seeds are patches of.
BEFORE: Final[Exact] = {
    "a": (b"".join(b"line %d\n" % number for number in range(60)), 0o100644),
    "d/one": (b"a\nb\n\nc\r\n}\n" * 8 + b"end", 0o100755),
    "ä.txt": (b"\xe4\n\xf6\r\n", 0o100644),
    "bin": (b"\0\1\2" * 40, 0o100644),
    "empty": (b"", 0o100644),
}
BEGIN_SEEDS: Final = (
    b"*** Begin Patch\n*** Update File: a\n@@\n line 1\n-line 2\n+two\n line 3\n*** End Patch\n",
    b"*** Begin Patch\n*** Add File: new/x\n+one\n+\n+two\n*** Delete File: empty\n*** End Patch\n",
    b"*** Begin Patch\n*** Update File: d/one\n*** Move to: d/two\n@@ class A\n@@ def b\n-end\n"
    b"+End\n*** End of File\n*** End Patch\n",
)
PIECES: Final = (
    b"@@ -1 +1 @@\n", b"@@\n", b"@@ a\n", b"\n", b" \n", b"-\n", b"+\n", b" a\n", b"-a\n", b"+a\n",
    b"diff --git a/a b/a\n", b"--- a/a\n+++ b/a\n", b'"', b"\\303\\244", b"\\", b" b/", b"a/",
    b"\r", b"\\ No newline at end of file\n", b"GIT binary patch\n", b"literal 9\n", b"delta 9\n",
    b"z", b"index 0000..0000\n", b"old mode 100644\n", b"*** Update File: a\n",
    b"*** Add File: x\n", b"*** End of File\n", b"*** End Patch\n", b"*** Begin Patch\n",
    b"rename from a\n", b"9" * 20, b"zcmV?d00001", b"\n\n",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Seen:
    """What one input did."""

    place: Hashable  #: where it ended, or the shape of its plan
    seconds: float  #: processor time of the parse


def shape(plan: PatchPlan) -> Hashable:
    return frozenset(
        (
            file.operation,
            type(file.change).__name__,
            int(math.log2(1 + len(file.change))) if isinstance(file.change, tuple) else None,
            file.plain_names,
        )
        for file in plan.files
    )


def run(data: bytes, parse: Callable[[bytes], PatchPlan], staged: StagedTree) -> Seen:
    """One input through grammar, confinement and application. Raises what is a bug."""
    start = time.thread_time()
    try:
        plan = parse(data)
        seconds = time.thread_time() - start
        found = shape(plan)
        try:
            confine(plan, staged)
            apply_plan(plan, staged)
        except PatchRefusal as refused:
            found = (found, refused.code)
    except PatchRefusal as refused:
        seconds = time.thread_time() - start
        frames = traceback.extract_tb(refused.__traceback__)
        found = (refused.code, tuple(frame.lineno for frame in frames[1:]))
    return Seen((parse.__name__, found), seconds)


@dataclass
class Fuzzer:
    """What is kept, and what was found."""

    staged: StagedTree
    chance: random.Random
    kept: list[bytes] = field(default_factory=list)
    places: set[Hashable] = field(default_factory=set)
    slowest: dict[int, float] = field(default_factory=dict)
    slowest_input: bytes = b""
    runs: Counter[str] = field(default_factory=Counter)
    bugs: list[tuple[str, bytes]] = field(default_factory=list)
    out: Path | None = None  #: where inputs that are bugs are left at once

    def add(self, data: bytes) -> None:
        data = data[:MOST_BYTES]
        grammar = self.chance.random()
        parse = parse_any_patch if grammar < 0.5 else parse_patch
        parse = parse_begin_patch if grammar > 0.85 else parse
        self.runs["inputs"] += 1
        self.runs["bytes"] += len(data)
        try:
            seen = run(data, parse, self.staged)
            if seen.seconds > SLOWEST_SECONDS:
                # What the rest of the machine does is not the input's fault.
                gc.collect()
                seconds = min(run(data, parse, self.staged).seconds for _ in range(TRIES))
                seen = Seen(seen.place, min(seconds, seen.seconds))
        except Exception as error:
            self._bug(f"{parse.__name__} {error!r}", data)
            return
        if seen.seconds > SLOWEST_SECONDS:
            self._bug(f"{parse.__name__} {seen.seconds * 1000:.1f} ms", data)
        self._keep(data, seen)

    def _bug(self, what: str, data: bytes) -> None:
        print(f"BUG {len(self.bugs)}: {what}, {len(data)} bytes, {data[:120]!r}", flush=True)
        if self.out is not None:
            (self.out / f"{len(self.bugs):03}.patch").write_bytes(data)
        self.bugs.append((what, data))

    def _keep(self, data: bytes, seen: Seen) -> None:
        size = len(data).bit_length()
        slower = seen.seconds > 1.2 * self.slowest.get(size, 0.0)
        if slower:
            self.slowest[size] = seen.seconds
            if seen.seconds >= max(self.slowest.values()):
                self.slowest_input = data
        if seen.place not in self.places or slower:
            self.places.add(seen.place)
            if len(self.kept) >= MOST_KEPT:
                self.kept.pop(self.chance.randrange(len(self.kept)))
            self.kept.append(data)

    def next(self) -> bytes:
        chance = self.chance
        data = chance.choice(self.kept)
        for _ in range(chance.choice((1, 1, 2, 4))):
            data = self._havoc(data)[:MOST_BYTES]
        return data

    def _havoc(self, data: bytes) -> bytes:
        chance = self.chance
        at = chance.randrange(len(data) + 1)
        to = min(len(data), at + chance.choice((1, 2, 8, 40, 400)))
        match chance.randrange(10):
            case 0 | 1 if len(data) < 20_000:
                return mutated(data, chance)
            case 2:
                return data[:at] + chance.choice(PIECES) + data[at:]
            case 3:
                return data[:at] + chance.choice(PIECES) + data[to:]
            case 4:
                return data[:at] + data[to:]
            case 5:
                times = chance.choice((2, 3, 10, 100, 1_000))
                return data[:at] + data[at:to] * times + data[to:]
            case 6:
                other = chance.choice(self.kept)
                cut = chance.randrange(len(other) + 1)
                return data[:at] + other[cut:]
            case 7:
                # As large as it may be: this is what time is measured on.
                piece = data[at:to] or chance.choice(PIECES)
                return data[:at] + piece * ((MOST_BYTES - len(data)) // len(piece)) + data[to:]
            case 8:
                return data[:at] + chance.randbytes(to - at) + data[to:]
            case _:
                before = b"%d" % chance.choice((0, 1, 2, 9, 99, 262_144, 999_999_999))
                return data[:at] + before + data[at + chance.randrange(3) :]


def seeds(chance: random.Random) -> list[bytes]:
    made = [*BEGIN_SEEDS]
    for _ in range(200):
        before = BEFORE if chance.random() < 0.5 else tree(chance)
        made.append(write(changed(before, chance), style(chance), chance))
    return [data for data in made if data] + corpus()


def corpus() -> list[bytes]:
    """What a fuzzer kept before: small inputs that end in many places."""
    return [text.encode("latin-1") for text in json.loads(CORPUS.read_bytes())["inputs"]]


def fuzz(seconds: float, *, seed: int, out: Path | None) -> Fuzzer:
    """Fuzzes for so long, and tells on standard error how it goes."""
    chance = random.Random(seed)
    with scratch_store() as store:
        fuzzer = Fuzzer(tree_of(store, BEFORE), chance, out=out)
        for data in seeds(chance):
            fuzzer.add(data)
        end = time.monotonic() + seconds
        told = 0.0
        while (now := time.monotonic()) < end:
            fuzzer.add(fuzzer.next())
            if now > told + 30:
                told = now
                print(report(fuzzer), file=sys.stderr, flush=True)
    return fuzzer


def report(fuzzer: Fuzzer) -> str:
    return (
        f"{fuzzer.runs['inputs']} inputs, {fuzzer.runs['bytes'] >> 20} MiB, "
        f"{len(fuzzer.places)} places, slowest parse {max(fuzzer.slowest.values()) * 1000:.1f} ms "
        f"({len(fuzzer.slowest_input)} bytes), {len(fuzzer.bugs)} bugs"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz the patch grammars.")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--out", type=Path, help="where to leave inputs that are bugs")
    given = parser.parse_args()
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
    fuzzer = fuzz(given.seconds, seed=given.seed, out=given.out)
    print(report(fuzzer), f"seed {given.seed}")
    if given.out is not None:
        (given.out / "slowest.patch").write_bytes(fuzzer.slowest_input)
    return 1 if fuzzer.bugs else 0


if __name__ == "__main__":
    sys.exit(main())
