"""One attempt with a small tree, two recipes and two models, for the tests of the policy."""

from broker.policy.evaluator import Facts
from broker.policy.readers import Readers
from broker.policy.registry import (
    PathRegistry,
    RecipeEntry,
    RecipeRegistry,
    RouteEntry,
    RouteRegistry,
)
from broker.policy.tools import AttemptMint, Principals, RequestRef
from protocol.ids import Digest, Id, ModelAlias, RecipeId, RepoPath

TREE = Digest("sha256:" + "7" * 64)
NEXT_TREE = Digest("sha256:" + "8" * 64)
BUNDLE = Digest("sha256:" + "b" * 64)
IMAGE = "registry.example/app-build@sha256:" + "9" * 64
OWNER = "owner:u_1"

FILES = {
    "README.md": (12, Digest("sha256:" + "1" * 64)),
    "keys/owner.txt": (7, Digest("sha256:" + "2" * 64)),
    "src/a.py": (1234, Digest("sha256:" + "5" * 64)),
    "src/deep/b.py": (5, Digest("sha256:" + "6" * 64)),
}
RESTRICTED = {"keys/owner.txt": Readers((OWNER,))}


def request(ordinal: int = 1, *, frame: str = "d") -> RequestRef:
    return RequestRef(ordinal, Id(f"req_{ordinal}"), Digest("sha256:" + frame * 64))


def paths() -> PathRegistry:
    return PathRegistry.build(
        ((RepoPath(path), *row) for path, row in FILES.items()),
        tree_digest=TREE,
        restricted=RESTRICTED,
    )


def recipes() -> RecipeRegistry:
    return RecipeRegistry(
        RecipeEntry(
            recipe_id=RecipeId(name), definition_digest=Digest("sha256:" + digit * 64), image=IMAGE
        )
        for name, digit in (("test", "4"), ("gates", "3"))
    )


def routes() -> RouteRegistry:
    return RouteRegistry(
        RouteEntry(alias=ModelAlias(alias), route=route)
        for alias, route in (("main", "primary"), ("small", "primary"))
    )


def mint(*providers: str) -> AttemptMint:
    return AttemptMint(
        Id("at_01"),
        task_digest=Digest("sha256:" + "a" * 64),
        bundle_digest=BUNDLE,
        principals=Principals(owner=OWNER, providers=providers),
    )


def facts(of: AttemptMint) -> Facts:
    return of.facts(recipes().images, routes().routes)
