"""From an asked patch, recipe or prompt to the labelled input that is decided on.

The choice of the agent is converted into registered ids at once and for good; the text
of a patch and of a prompt stays Unsafe for ever. What cannot be converted is a
``ConversionRejected``, which the gate turns into a deny. Nothing is performed here.
"""

from collections.abc import Sequence
from typing import Literal

from broker.policy.conversions import ConversionRejected, Converter, safe_list
from broker.policy.decision import RequestRef, Subject
from broker.policy.fields import agent_text, registered_ids
from broker.policy.labels import Safe
from broker.policy.mint import AttemptMint
from broker.policy.paths import PathRegistry
from broker.policy.policy_input import Argument, PolicyInput
from broker.policy.readers import PUBLIC, Readers
from broker.policy.registry import RecipeRegistry, RouteRegistry
from broker.policy.tool_table import (
    INFERENCE,
    MAX_PATCH_BYTES,
    MAX_PATCH_TARGETS,
    MAX_QUERY_BYTES,
    PATCH,
    RECIPE,
)
from protocol.ids import Digest

TargetKind = Literal["added", "modified", "deleted", "mode"]
"""What a patch does to one path. Only an added one need not exist."""


def patch_input(
    mint: AttemptMint,
    registry: PathRegistry,
    request: RequestRef,
    *,
    source_digest: Digest,
    targets: Sequence[tuple[str, TargetKind]],
    patch_digest: Digest,
    patch_bytes: bytes,
) -> PolicyInput:
    """A patch of the staged copy: every path of its plan, and its text, which stays Unsafe.

    A created file stands as its nearest registered directory.
    """
    if len(patch_bytes) > MAX_PATCH_BYTES:
        raise ConversionRejected("payload_too_large")
    if len(targets) > MAX_PATCH_TARGETS:
        raise ConversionRejected("patch_too_many_files")
    if not targets:
        raise ConversionRejected("patch_malformed")
    if source_digest != registry.tree_digest:
        raise ConversionRejected("source_changed")
    try:
        text = patch_bytes.decode()
    except UnicodeDecodeError:
        raise ConversionRejected("patch_malformed") from None
    converter = Converter()
    ids = safe_list(
        tuple(
            _target(mint, registry, request, converter, number, path, kind)
            for number, (path, kind) in enumerate(targets)
        )
    )
    patch = mint.payload(text, request=request, field="patch")
    return PolicyInput(
        mint.answers,
        PATCH,
        (
            mint.attempt,
            Argument("patch", "payload", patch),
            mint.source(source_digest),
            Argument("targets", "selector", ids),
        ),
        request,
        Subject(source_digest, registered_ids(ids), payload_digest=patch_digest),
    )


def recipe_input(
    mint: AttemptMint,
    recipes: RecipeRegistry,
    request: RequestRef,
    *,
    source_digest: Digest,
    recipe_id: object,
) -> PolicyInput:
    """A run of one registered recipe on a fresh copy of the tree ``source_digest``."""
    text = agent_text(recipe_id, MAX_QUERY_BYTES, "selector_not_registered")
    recipe = Converter().registered_id(
        mint.agent_wrote(text, request=request, field="recipe"),
        policy=recipes.conversion,
        registry=recipes.ids,
    )
    (name,) = registered_ids(recipe)
    entry = recipes.entry(name)
    definition = mint.constant(
        entry.definition_digest, identity=f"recipe.definition.{name}", readers=PUBLIC
    )
    image = mint.constant(entry.image, identity=f"image.{name}", readers=PUBLIC)
    bound = (recipes.images.registry_id, recipes.images.digest)
    return PolicyInput(
        mint.answers,
        RECIPE,
        (
            mint.attempt,
            Argument("definition", "authority", definition),
            Argument("image", "destination", image, bound),
            Argument("recipe", "selector", recipe),
            mint.source(source_digest),
        ),
        request,
        Subject(source_digest, (name,), entry.definition_digest, entry.image),
    )


def inference_input(
    mint: AttemptMint,
    routes: RouteRegistry,
    request: RequestRef,
    *,
    model: object,
    body_digest: Digest,
    body_bytes: int,
    readers: Readers,
) -> PolicyInput:
    """A prompt to a registered model. ``readers`` may read what the body may hold."""
    text = agent_text(model, MAX_QUERY_BYTES, "selector_not_registered")
    chosen = Converter().registered_id(
        mint.agent_wrote(text, request=request, field="model"),
        policy=routes.conversion,
        registry=routes.ids,
    )
    (name,) = registered_ids(chosen)
    entry, definition_digest = routes.entry(name), routes.definition_digest(name)
    definition = mint.constant(
        definition_digest, identity=f"model.definition.{name}", readers=PUBLIC
    )
    route = mint.constant(entry.route, identity=f"route.{name}", readers=PUBLIC)
    bound = (routes.routes.registry_id, routes.routes.digest)
    body = mint.payload(
        {"bytes": body_bytes, "digest": body_digest}, request=request, field="body", readers=readers
    )
    return PolicyInput(
        mint.prompt(entry.provider),
        INFERENCE,
        (
            mint.attempt,
            Argument("body", "payload", body),
            Argument("definition", "authority", definition),
            Argument("model", "selector", chosen),
            Argument("route", "destination", route, bound),
        ),
        request,
        Subject(None, (name,), definition_digest, entry.route, body_digest),
    )


def _target(
    mint: AttemptMint,
    registry: PathRegistry,
    request: RequestRef,
    converter: Converter,
    number: int,
    path: str,
    kind: TargetKind,
) -> Safe:
    source = path if kind != "added" else registry.nearest_directory(path)
    wrote = mint.agent_wrote(source, request=request, field=f"target{number}")
    if kind == "added":
        return converter.registered_id(
            wrote, policy=registry.directory_conversion, registry=registry.directories
        )
    return converter.registered_id(wrote, policy=registry.conversion, registry=registry.files)
