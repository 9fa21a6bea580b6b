"""The closed list of what may run in an attempt: ids, commands, images, bounds, digests.

A host's catalog says everything itself. A repository's says commands and time limits
only, is read from the trusted base and never from a candidate, and gets its image and
its output bound from the host. Nothing here runs anything.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

from broker.recipes.catalog_schema import (
    HOST,
    IMAGE_PATTERN,
    MAX_OUTPUT_BYTES,
    PINNED_IMAGE_PATTERN,
    REPOSITORY,
    parse_catalog,
)
from protocol.digest import digest_value
from protocol.errors import Refusal
from protocol.ids import Digest, RecipeId

#: Where a repository may keep its catalog, at the root of the trusted base.
REPOSITORY_FILES: Final = ("airlock.recipes.json", "odla.recipes.json")
DEFAULT_TIMEOUT_MS: Final = 120_000
#: No resource limits beside the two that every recipe has.
NO_LIMITS: Final[Mapping[str, int]] = MappingProxyType({})

CatalogSource = Literal["host", "repository", "none"]

_PINNED: Final = re.compile(PINNED_IMAGE_PATTERN)
_IMAGE: Final = re.compile(IMAGE_PATTERN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One registered command. ``definition_digest`` covers all of it and the host's limits."""

    id: RecipeId
    image: str  #: a name with ``@sha256:``, or ``sha256:`` alone, unless unpinned was allowed
    command: tuple[str, ...]  #: argv; the first word is a bare name or an absolute path
    timeout_ms: int
    max_output_bytes: int  #: standard output and error together
    definition_digest: Digest

    @property
    def pinned(self) -> bool:
        """Whether the image is named by its digest."""
        return _PINNED.match(self.image) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """The recipes of one attempt in the order of their file, and who wrote it."""

    source: CatalogSource
    recipes: tuple[Recipe, ...]
    digest: Digest

    def find(self, recipe_id: str) -> Recipe | None:
        """The recipe of exactly that id."""
        return next((recipe for recipe in self.recipes if recipe.id == recipe_id), None)

    @property
    def images(self) -> tuple[str, ...]:
        """Every image that a recipe may run in, sorted, each once."""
        return tuple(sorted({recipe.image for recipe in self.recipes}))


def host_catalog(
    data: bytes, *, allow_unpinned: bool = False, limits: Mapping[str, int] = NO_LIMITS
) -> Catalog:
    """The catalog in a host's file.

    ``limits`` are the resource limits that a run gets, by name; the definition digests
    cover them. Raises ``Refusal``: ``catalog_malformed`` or ``catalog_unpinned_image``,
    with the index of the recipe as its figure where one is at fault.
    """
    entries = parse_catalog(data, schema=HOST)
    for index, entry in enumerate(entries):
        if not allow_unpinned and _PINNED.match(entry["image"]) is None:
            raise Refusal("catalog_unpinned_image", figure=index)
    return _catalog("host", entries, limits)


def repository_catalog(
    read: Callable[[str], bytes | None],
    *,
    image: str,
    max_output_bytes: int,
    allow_unpinned: bool = False,
    limits: Mapping[str, int] = NO_LIMITS,
) -> Catalog | None:
    """The catalog that the trusted base has, or None where it has none.

    ``read`` gives a file of the base's root by name, or None. ``image`` and
    ``max_output_bytes`` are the host's and hold for every recipe. Raises ``Refusal``:
    ``catalog_ambiguous`` for two files, ``catalog_malformed`` with the index of the
    recipe at fault where there is one, ``catalog_unpinned_image``.
    """
    if not 1 <= max_output_bytes <= MAX_OUTPUT_BYTES or _IMAGE.match(image) is None:
        raise Refusal("catalog_malformed")
    if not allow_unpinned and _PINNED.match(image) is None:
        raise Refusal("catalog_unpinned_image")
    found = [data for name in REPOSITORY_FILES if (data := read(name)) is not None]
    if not found:
        return None
    if len(found) > 1:
        raise Refusal("catalog_ambiguous")
    fixed = {"image": image, "maxOutputBytes": max_output_bytes, "timeoutMs": DEFAULT_TIMEOUT_MS}
    entries = [fixed | entry for entry in parse_catalog(found[0], schema=REPOSITORY)]
    return _catalog("repository", entries, limits)


def no_catalog() -> Catalog:
    """The catalog of an attempt in which nothing may run."""
    return _catalog("none", [], NO_LIMITS)


def _catalog(
    source: CatalogSource, entries: list[dict[str, Any]], limits: Mapping[str, int]
) -> Catalog:
    recipes = tuple(_recipe(entry, limits) for entry in entries)
    definitions = [recipe.definition_digest for recipe in recipes]
    digest = digest_value({"definitions": definitions, "source": source})
    return Catalog(source=source, recipes=recipes, digest=digest)


def _recipe(entry: dict[str, Any], limits: Mapping[str, int]) -> Recipe:
    definition = {
        "argv": entry["command"],
        "id": entry["id"],
        "image": entry["image"],
        "limits": dict(limits),
        "maxOutputBytes": entry["maxOutputBytes"],
        "timeoutMs": entry["timeoutMs"],
    }
    return Recipe(
        id=RecipeId(entry["id"]),
        image=entry["image"],
        command=tuple(entry["command"]),
        timeout_ms=entry["timeoutMs"],
        max_output_bytes=entry["maxOutputBytes"],
        definition_digest=digest_value(definition),
    )
