"""Closed registries that a conversion or a destination is checked against, bound by digest.

A registry copies what it is given, verifies the copy, and never changes. It knows exact
keys only: no prototype, no folding, no normalization. Recipes come from the trusted
base, routes from the owner's configuration; nothing here reads a file.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, final

from broker.policy.canonical import LabelError, canonical_text, canonical_value, utf16
from broker.policy.conversion_policy import ConversionPolicy, RegisteredIdOutput
from broker.policy.paths import PathRegistry
from protocol.errors import Refusal
from protocol.ids import Digest, ModelAlias, RecipeId

__all__ = [
    "DestinationRegistry",
    "PathRegistry",
    "RecipeEntry",
    "RecipeRegistry",
    "RegisteredIds",
    "RouteEntry",
    "RouteRegistry",
    "destination_registry_digest",
    "registered_ids_digest",
]

#: Longest text that may name a recipe or a model (camel: recipe.id.v1).
MAX_NAME_BYTES: Final = 160

#: A bare digest, or a name with its digest: nothing that can move.
_PINNED: Final = re.compile(r"(?:[^\s@]+@)?sha256:[0-9a-f]{64}")


def destination_registry_digest(values: Iterable[str]) -> str:
    """camel's digest of a destination registry: its values, sorted, in hex."""
    ordered = sorted(values, key=utf16)
    text = b"[" + b",".join(map(canonical_text, ordered)) + b"]"
    return hashlib.sha256(text).hexdigest()


def registered_ids_digest(values: Mapping[str, str]) -> str:
    """camel's digest of a registered-id registry: the map of candidates, in hex."""
    return hashlib.sha256(canonical_value(values)).hexdigest()


@final
class DestinationRegistry:
    """The closed set of places that an effect may reach."""

    __slots__ = ("_values", "digest", "registry_id")

    def __init__(self, registry_id: str, values: Iterable[str]) -> None:
        listed = tuple(values)
        if registry_id == "" or "" in listed or len(set(listed)) != len(listed):
            raise LabelError("registry_malformed")
        self.registry_id: Final = registry_id
        self._values: Final = frozenset(listed)
        self.digest: Final = destination_registry_digest(listed)

    def __contains__(self, value: object) -> bool:
        return isinstance(value, str) and value in self._values


@final
class RegisteredIds:
    """Candidates and the ids they stand for, with camel's digest."""

    __slots__ = ("_values", "registry_digest", "registry_id")

    def __init__(self, registry_id: str, values: Mapping[str, str]) -> None:
        copied = dict(values)
        if registry_id == "" or "" in copied or "" in copied.values():
            raise LabelError("registry_malformed")
        self.registry_id: Final = registry_id
        self._values: Final = copied
        self.registry_digest: Final = registered_ids_digest(copied)

    def find(self, candidate: str) -> str | None:
        """The id for exactly ``candidate``, or None."""
        return self._values.get(candidate)

    def conversion(self, conversion_id: str, *, maximum_source_bytes: int) -> ConversionPolicy:
        """The conversion into this registry's ids."""
        return ConversionPolicy(
            conversion_id,
            output=RegisteredIdOutput(
                registry_id=self.registry_id, registry_digest=self.registry_digest
            ),
            maximum_source_bytes=maximum_source_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeEntry:
    """One recipe of the trusted catalog: its definition's digest and its pinned image."""

    recipe_id: RecipeId
    definition_digest: Digest
    image: str


@final
class RecipeRegistry:
    """The recipes that may be run. ``Refusal`` for an image that is not pinned by digest."""

    __slots__ = ("_entries", "conversion", "ids", "images")

    def __init__(self, entries: Iterable[RecipeEntry]) -> None:
        listed = tuple(entries)
        if any(_PINNED.fullmatch(entry.image) is None for entry in listed):
            raise Refusal("catalog_unpinned_image")
        self._entries: Final = {f"recipe:{entry.recipe_id}": entry for entry in listed}
        if len(self._entries) != len(listed):
            raise Refusal("catalog_malformed")
        self.ids: Final = RegisteredIds(
            "recipes", {entry.recipe_id: name for name, entry in self._entries.items()}
        )
        self.images: Final = DestinationRegistry(
            "recipe.images", dict.fromkeys(entry.image for entry in listed)
        )
        self.conversion: Final = self.ids.conversion(
            "recipe.id.v1", maximum_source_bytes=MAX_NAME_BYTES
        )

    @property
    def digest(self) -> Digest:
        """What the ledger keeps: ids, definitions and images together."""
        rows = tuple(
            (name, entry.definition_digest, entry.image)
            for name, entry in sorted(self._entries.items())
        )
        return Digest("sha256:" + hashlib.sha256(canonical_value(rows)).hexdigest())

    def entry(self, registered_id: str) -> RecipeEntry:
        """The recipe of a registered id; KeyError for one that no conversion gave."""
        return self._entries[registered_id]


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteEntry:
    """One model that may be asked: the agent's name for it and who will read the prompt.

    ``route`` is the registered destination; the principal is ``provider:<route>``.
    """

    alias: ModelAlias
    route: str

    @property
    def provider(self) -> str:
        """The principal that reads what is sent over this route."""
        return f"provider:{self.route}"


@final
class RouteRegistry:
    """The models that may be asked."""

    __slots__ = ("_entries", "conversion", "ids", "routes")

    def __init__(self, entries: Iterable[RouteEntry]) -> None:
        listed = tuple(entries)
        self._entries: Final = {f"model:{entry.alias}": entry for entry in listed}
        if len(self._entries) != len(listed):
            raise LabelError("registry_malformed")
        self.ids: Final = RegisteredIds(
            "inference.models", {entry.alias: name for name, entry in self._entries.items()}
        )
        self.routes: Final = DestinationRegistry(
            "inference.routes", dict.fromkeys(entry.route for entry in listed)
        )
        self.conversion: Final = self.ids.conversion(
            "inference.model.v1", maximum_source_bytes=MAX_NAME_BYTES
        )

    @property
    def providers(self) -> tuple[str, ...]:
        """Every principal that may read a prompt, once each."""
        return tuple(dict.fromkeys(entry.provider for entry in self._entries.values()))

    def entry(self, registered_id: str) -> RouteEntry:
        """The route of a registered id; KeyError for one that no conversion gave."""
        return self._entries[registered_id]

    def definition_digest(self, registered_id: str) -> Digest:
        """What a standing grant for a model binds: its alias and its route."""
        entry = self._entries[registered_id]
        text = canonical_value({"alias": entry.alias, "route": entry.route})
        return Digest("sha256:" + hashlib.sha256(text).hexdigest())
