"""Everything an attempt needs before its agent starts: stage, catalog, agent, engines, model.

Reads the checkout and writes only below the scratch folder. Nothing of the agent runs yet.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import trio

from broker.attempts.agents import Agent, RecipeBase, find_agent, recipe_base, recipe_root
from broker.attempts.budget import BudgetCounter, InferenceBudget
from broker.attempts.inference import parse_inference_spec
from broker.attempts.inference_side import InferenceSide
from broker.attempts.recipes import RecipePlace
from broker.attempts.request_rules import RequestRules
from broker.attempts.scripted import ScriptedSource
from broker.attempts.spec import AttemptSpec
from broker.engines.engine import Engine
from broker.engines.image import LocalImage, load_image
from broker.engines.image_preflight import agent_protocols
from broker.engines.podman import PodmanEngine
from broker.engines.selection import select_engine
from broker.engines.spec import ImageRoot, Root
from broker.locations import make_state
from broker.policy.registry import RouteEntry, RouteRegistry
from broker.recipes.catalog import Catalog, host_catalog, no_catalog, repository_catalog
from broker.stage.snapshot import Staged, stage_checkout
from protocol.errors import Refusal
from protocol.ids import ModelAlias
from protocol.messages import Api, Budget, InferenceOffer, ModelOffer

#: A recipe's output that is kept and sent back, both streams together.
RECIPE_OUTPUT_BYTES: Final = 256 * 1024

#: Scripted inference: the names an agent may use for the model, and what one answer may have.
SCRIPTED_ALIASES: Final = ("scripted", "scripted-small")
SCRIPTED_APIS: Final[tuple[Api, ...]] = (
    "anthropic.messages",
    "openai.chat",
    "openai.responses",
)
SCRIPTED_OUTPUT_TOKENS: Final = 32_000
SCRIPTED_BUDGET: Final = InferenceBudget(
    requests=1_000, input_tokens=50_000_000, output_tokens=5_000_000
)
#: The version of the agent protocol that is spoken here.
PROTOCOL_VERSION: Final = 1
#: Longest wait for one answer of a model.
INFERENCE_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What an attempt starts from. Its owner closes ``staged.tree.store``."""

    staged: Staged
    catalog: Catalog
    agent: Agent
    engine: Engine
    places: Mapping[str, RecipePlace]
    inference: InferenceSide | None
    quarantine_noise: bool = False  #: the agent's image may print before its first frame


async def prepare(spec: AttemptSpec, *, scratch: Path) -> Prepared:
    """Prepares ``spec`` in ``scratch``. Raises ``Refusal`` or ``Fault``; nothing is left open."""
    # What can be refused without reading the checkout is refused first.
    inference = _inference_side(spec)
    agent = await trio.to_thread.run_sync(
        partial(
            find_agent,
            spec.agent,
            arguments=spec.agent_arguments,
            engine=spec.engine,
            state=spec.state,
            allow_unpinned=spec.allow_unpinned,
        )
    )
    engines = _Engines(spec)
    engine = await engines.open(agent.root, agent.image)
    quarantine = await _speaks_our_protocol(agent, engine)
    staged = await trio.to_thread.run_sync(
        partial(
            stage_checkout,
            spec.repo,
            scratch=scratch,
            ref=spec.ref,
            cache=make_state(spec.state / "cache"),
        )
    )
    try:
        base = await trio.to_thread.run_sync(partial(recipe_base, spec.engine, state=spec.state))
        catalog = _catalog(spec, staged, base)
        places: dict[str, RecipePlace] = {}
        for recipe in catalog.recipes:
            root = await trio.to_thread.run_sync(recipe_root, recipe.image)
            image = base.image if recipe.image == base.reference else None
            opened = await engines.open(root, image)
            places[recipe.id] = RecipePlace(recipe=recipe, engine=opened, root=root)
    except BaseException:
        staged.tree.store.close()
        raise
    return Prepared(
        staged=staged,
        catalog=catalog,
        agent=agent,
        engine=engine,
        places=places,
        inference=inference,
        quarantine_noise=quarantine,
    )


async def _speaks_our_protocol(agent: Agent, engine: Engine) -> bool:
    """``Refusal("agent_incompatible")`` for an image whose label does not offer version 1.

    The label decides before anything of the image runs. Whether its noise is quarantined.
    """
    if not (isinstance(agent.root, ImageRoot) and isinstance(engine, PodmanEngine)):
        return False
    config = await engine.image_config(agent.root.reference)
    if PROTOCOL_VERSION not in agent_protocols(config):
        raise Refusal("agent_incompatible")
    return config.quarantines_noise


class _Engines:
    """The engines of one attempt, each opened once."""

    def __init__(self, spec: AttemptSpec) -> None:
        self._spec: Final = spec
        self._opened: Final[dict[str, Engine]] = {}

    async def open(self, root: Root, image: LocalImage | None) -> Engine:
        """The engine that runs ``root``; a local image is in its store afterwards."""
        kind = type(root).__name__
        engine = self._opened.get(kind)
        if engine is None:
            choice = self._spec.engine
            if choice == "podman" and kind != "ImageRoot":
                choice = "auto"  # a root that only another engine can run
            engine = await select_engine(choice, root, state=self._spec.state)
            await engine.sweep()
            self._opened[kind] = engine
        if image is not None and isinstance(engine, PodmanEngine):
            await trio.to_thread.run_sync(
                partial(load_image, engine.command, image, environment=engine.environment)
            )
        return engine


def _catalog(spec: AttemptSpec, staged: Staged, base: RecipeBase) -> Catalog:
    """The list that gates the attempt: the host's, else the trusted base's, never another."""
    if spec.host_catalog is not None:
        return host_catalog(spec.host_catalog, allow_unpinned=spec.allow_unpinned)

    def read(path: str) -> bytes | None:
        try:
            return staged.base_tree.read(path)
        except KeyError:
            return None

    found = repository_catalog(read, image=base.reference, max_output_bytes=RECIPE_OUTPUT_BYTES)
    return found or no_catalog()


def _inference_side(spec: AttemptSpec) -> InferenceSide | None:
    if spec.inference is None:
        return None
    parsed = parse_inference_spec(spec.inference)
    source = ScriptedSource.load(parsed.path)
    budget = SCRIPTED_BUDGET
    models = tuple(ModelAlias(alias) for alias in SCRIPTED_ALIASES)
    return InferenceSide(
        source=source,
        offer=InferenceOffer(
            apis=SCRIPTED_APIS,
            models=tuple(
                ModelOffer(
                    alias=alias,
                    role="main" if index == 0 else "small",
                    max_output_tokens=SCRIPTED_OUTPUT_TOKENS,
                )
                for index, alias in enumerate(models)
            ),
            streaming=True,
            hosted_tools=(),
            budget=Budget(
                requests=budget.requests,
                input_tokens=budget.input_tokens,
                output_tokens=budget.output_tokens,
            ),
        ),
        rules=RequestRules(
            apis=frozenset(SCRIPTED_APIS),
            models=dict.fromkeys(models, SCRIPTED_OUTPUT_TOKENS),
            streaming=True,
            on_hosted_tool="strip",
            user=f"attempt-{spec.attempt_id}",
        ),
        budget=BudgetCounter(budget),
        routes=RouteRegistry(RouteEntry(alias=alias, route="scripted") for alias in models),
        timeout_seconds=INFERENCE_SECONDS,
        max_response_bytes=spec.limits.max_response_frame_bytes,
    )
