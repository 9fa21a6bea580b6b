"""Registries: exact names, ids that stay, digests that move with what they cover."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.policy.canonical import LabelError
from broker.policy.paths import PathRegistry
from broker.policy.readers import Readers
from broker.policy.registry import (
    DestinationRegistry,
    RecipeEntry,
    RecipeRegistry,
    RegisteredIds,
    RouteEntry,
    RouteRegistry,
    registered_ids_digest,
)
from protocol.errors import Refusal
from protocol.ids import Digest, ModelAlias, RecipeId, RepoPath
from tests.policy import attempt

OTHER = Digest("sha256:" + "e" * 64)
NAMES = st.sampled_from(["a", "b", "src/a", "src/b", "src/deep/c", "lib/x", "lib-2/y", "z/z/z"])


def tree(number: int) -> Digest:
    return Digest(f"sha256:{number:064x}")


def registry(*paths: str, version: int = 1, at: int = 0) -> PathRegistry:
    rows = [(RepoPath(path), 1, OTHER) for path in paths]
    return PathRegistry.build(rows, tree_digest=tree(at), version=version)


def test_ids_follow_the_byte_order_of_the_paths() -> None:
    made = registry("b", "a/c", "a-b", "é")

    assert [made.files.find(path) for path in ("a-b", "a/c", "b", "é")] == [
        "file:000001", "file:000002", "file:000003", "file:000004",
    ]  # fmt: skip
    assert made.directories.find("a") == "dir:000001"
    assert made.directories.find("") == "dir:000000"
    assert len(made) == 4


@given(st.permutations(["b", "a/c", "a-b", "é", "a/d/e"]))
def test_the_order_of_the_input_changes_nothing(order: list[str]) -> None:
    assert registry(*order).digest == registry("b", "a/c", "a-b", "é", "a/d/e").digest


def test_the_digest_covers_tree_version_and_ids() -> None:
    digests = {
        registry("a", "b").digest,
        registry("a", "c").digest,
        registry("a", "b", version=2).digest,
        registry("a", "b", at=1).digest,
        registry("a", "b", "c").digest,
        registry("a", "b").replace({}, tree_digest=tree(0)).digest,
    }

    assert len(digests) == 6


def test_the_conversion_is_bound_to_the_registry() -> None:
    one, two = registry("a"), registry("a", at=1)

    assert one.conversion.digest != two.conversion.digest
    assert one.conversion.digest != one.directory_conversion.digest
    assert one.conversion.output == one.conversion.output


def test_ids_of_surviving_files_stay_and_none_is_given_twice() -> None:
    one = registry("a", "b", "c")
    two = one.replace(
        {RepoPath("b"): None, RepoPath("d/e"): (2, OTHER), RepoPath("a"): (9, OTHER)},
        tree_digest=tree(1),
    )
    three = two.replace({RepoPath("b"): (1, OTHER), RepoPath("d/e"): None}, tree_digest=tree(2))

    assert [two.files.find(path) for path in "abc"] == ["file:000001", None, "file:000003"]
    assert two.files.find("d/e") == "file:000004"
    assert (two.directories.find("d"), three.directories.find("d")) == ("dir:000001", None)
    assert three.files.find("b") == "file:000005"
    assert two.file("a") is not None
    assert two.version == 2
    assert one.files.find("b") == "file:000002"


def test_a_rebuilt_registry_keeps_the_ids_of_the_one_before() -> None:
    one = registry("b", "c")
    two = PathRegistry.build(
        [(RepoPath(path), 1, OTHER) for path in ("a", "b")],
        tree_digest=tree(1),
        version=2,
        previous=one,
    )

    assert [two.files.find(path) for path in "abc"] == ["file:000003", "file:000001", None]


class OneRegistryOverManyPatches(RuleBasedStateMachine):
    """Against the simplest model: a map of names that were ever given to ids."""

    def __init__(self) -> None:
        super().__init__()
        self.real = registry("a", "src/a")
        self.model = {"a": "file:000001", "src/a": "file:000002"}
        self.given: set[str] = set(self.model.values())
        self.digests = {self.real.digest}

    @rule(names=st.sets(NAMES, min_size=1))
    def add_or_change(self, names: set[str]) -> None:
        self._replace({RepoPath(name): (1, OTHER) for name in names})

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        names = data.draw(st.sets(st.sampled_from(sorted(self.model)), min_size=1))
        self._replace({RepoPath(name): None for name in names})

    def _replace(self, changes: dict[RepoPath, tuple[int, Digest] | None]) -> None:
        self.real = self.real.replace(changes, tree_digest=tree(len(self.digests)))
        for name, change in changes.items():
            if change is None:
                del self.model[name]
            elif name not in self.model:
                found = self.real.files.find(name)
                assert found is not None
                assert found not in self.given
                self.given.add(found)
                self.model[name] = found
        assert self.real.digest not in self.digests
        self.digests.add(self.real.digest)

    @invariant()
    def every_name_has_its_id_and_its_directories(self) -> None:
        for name, found in self.model.items():
            assert self.real.files.find(name) == found
            parent = name.rpartition("/")[0]
            assert self.real.nearest_directory(name) == parent
        assert len(self.real) == len(self.model)
        parents = {"", *(name.rpartition("/")[0] for name in self.model)}
        ids = {self.real.directories.find(parent) for parent in parents}
        assert None not in ids
        assert len(ids) == len(parents)


TestOneRegistryOverManyPatches = OneRegistryOverManyPatches.TestCase


def test_a_new_file_belongs_to_its_nearest_directory() -> None:
    made = attempt.paths()

    assert made.nearest_directory("src/deep/new/x/y.py") == "src/deep"
    assert made.nearest_directory("srcx/y.py") == ""
    assert made.nearest_directory("top.txt") == ""
    assert made.nearest_directory("src/a.py/child") == "src"


def test_readers_below_a_directory_are_those_of_every_file() -> None:
    made, everyone = attempt.paths(), Readers(("agent", attempt.OWNER))
    owner = Readers((attempt.OWNER,))

    assert made.readers_below("", otherwise=everyone) == owner
    assert made.readers_below("keys", otherwise=everyone) == owner
    assert made.readers_below("src", otherwise=everyone) == everyone
    assert made.readers_below("key", otherwise=everyone) == everyone
    assert made.readers_of("keys/owner.txt", otherwise=everyone) == owner
    assert made.readers_of("src/a.py", otherwise=everyone) == everyone
    after = made.replace({RepoPath("keys/owner.txt"): (3, OTHER)}, tree_digest=tree(1))
    assert after.readers_of("keys/owner.txt", otherwise=everyone) == owner


def test_a_restriction_never_widens() -> None:
    wide = registry("a").replace(
        {}, tree_digest=tree(1), restricted={"a": Readers(("agent", "stranger"))}
    )

    assert wide.readers_of("a", otherwise=Readers(("agent",))) == Readers(("agent",))


@pytest.mark.parametrize("values", [["a", "a"], ["a", ""]])
def test_a_destination_registry_is_of_its_form(values: list[str]) -> None:
    with pytest.raises(LabelError) as refused:
        DestinationRegistry("places", values)

    assert refused.value.code == "registry_malformed"


@pytest.mark.parametrize("values", [{"": "x"}, {"x": ""}])
def test_registered_ids_are_of_their_form(values: dict[str, str]) -> None:
    with pytest.raises(LabelError) as refused:
        RegisteredIds("ids", values)

    assert refused.value.code == "registry_malformed"


def test_a_registry_keeps_a_copy() -> None:
    values = {"one": "id:1"}
    made = RegisteredIds("ids", values)
    values["two"] = "id:2"

    assert made.find("two") is None
    assert made.registry_digest == registered_ids_digest({"one": "id:1"})


@pytest.mark.parametrize("name", ["__proto__", "constructor", "toString", "hasOwnProperty"])
def test_a_registry_has_its_own_keys_only(name: str) -> None:
    assert RegisteredIds("ids", {"one": "id:1"}).find(name) is None
    assert RegisteredIds("ids", {name: "id:1"}).find(name) == "id:1"
    assert name not in DestinationRegistry("places", ["here"])


@pytest.mark.parametrize(
    "image",
    ["registry.example/app:latest", "", "sha256:" + "9" * 63, "sha256:" + "G" * 64,
     "a b@sha256:" + "9" * 64, "sha256:" + "9" * 64 + "\n"],
)  # fmt: skip
def test_an_image_is_pinned_by_digest(image: str) -> None:
    entry = RecipeEntry(recipe_id=RecipeId("test"), definition_digest=OTHER, image=image)
    with pytest.raises(Refusal) as refused:
        RecipeRegistry([entry])

    assert refused.value.code == "catalog_unpinned_image"


def test_a_recipe_registry_covers_definitions_and_images() -> None:
    def made(**change: Any) -> RecipeRegistry:
        entry = {"recipe_id": RecipeId("test"), "definition_digest": OTHER, "image": attempt.IMAGE}
        return RecipeRegistry([RecipeEntry(**(entry | change))])

    digests = {
        made().digest,
        made(recipe_id=RecipeId("other")).digest,
        made(definition_digest=tree(1)).digest,
        made(image="sha256:" + "9" * 64).digest,
    }
    assert len(digests) == 4
    with pytest.raises(Refusal):
        RecipeRegistry([*made()._entries.values(), *made()._entries.values()])


def test_an_empty_catalog_and_no_models_are_fine() -> None:
    assert RecipeRegistry([]).ids.find("test") is None
    assert RouteRegistry([]).providers == ()


def test_a_route_names_its_provider() -> None:
    made = attempt.routes()

    assert made.providers == ("provider:primary",)
    assert made.entry("model:small").route == "primary"
    assert made.definition_digest("model:small") != made.definition_digest("model:main")
    entry = RouteEntry(alias=ModelAlias("main"), route="primary")
    with pytest.raises(LabelError):
        RouteRegistry([entry, entry])
