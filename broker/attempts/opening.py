"""Opens an attempt: mints its constants, builds its registries and its gate, records the start."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from broker.attempts.approving import Approvals
from broker.attempts.asking import Approver
from broker.attempts.effects import blob_digest
from broker.attempts.eventlog import EventLog
from broker.attempts.gate import EVALUATE, Evaluate, Gate
from broker.attempts.gatebook import EVALUATOR_NUMBER, GateBook
from broker.attempts.prepare import Prepared
from broker.attempts.progress import Counters
from broker.attempts.recipes import RecipeRunner
from broker.attempts.recorder import Recorder
from broker.attempts.spec import AttemptSpec
from broker.policy.approvals import ApprovalBook, StandingGrant
from broker.policy.budget import AttemptBudget
from broker.policy.mint import AttemptMint, Principals
from broker.policy.paths import PathRegistry
from broker.policy.registry import RecipeEntry, RecipeRegistry
from broker.policy.tool_table import INFERENCE, LIST, PATCH, READ, RECIPE, SEARCH
from broker.stage.diff import make_patch
from broker.stage.patch_plan import PatchRefusal
from broker.stage.tree import StagedTree
from protocol import records
from protocol.digest import digest_bytes, digest_value
from protocol.ids import Digest, parse_id

#: The person whose machine this is; a control plane will name its own.
OWNER: Final = "owner:local"
#: Stands for the policy while there is one built-in bundle: its digest names these rules.
BUILT_IN_POLICY: Final = "airlock.policy.v1"
DESCRIPTORS: Final = (READ, LIST, SEARCH, PATCH, RECIPE, INFERENCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The trusted side of one attempt, ready for its first request."""

    gate: Gate
    approvals: Approvals
    runner: RecipeRunner
    recipes: RecipeRegistry
    bundle_digest: Digest


def build_world(
    spec: AttemptSpec,
    prepared: Prepared,
    *,
    recorder: Recorder,
    counters: Counters,
    approver: Approver,
    clock: Callable[[], int],
    runs: Path,
    on_waiting: Callable[[bool], None],
    evaluate: Evaluate = EVALUATE,
) -> World:
    """The gate of ``spec`` and what it stands on. ``runs`` is the folder of recipe copies.

    ``evaluate`` is a parameter so that a test can break it.
    """
    tree, side = prepared.staged.tree, prepared.inference
    bundle = bundle_digest(spec)
    mint = _mint(spec, prepared, bundle)
    recipes = recipe_registry(prepared)
    approvals = Approvals(
        ApprovalBook(
            spec.attempt_id,
            bundle_digest=bundle,
            approvers=(approver.principal,),
            standing=_standing_grants(spec, prepared, bundle),
        ),
        approver=approver,
        recorder=recorder,
        clock=clock,
        on_waiting=on_waiting,
    )
    runner = RecipeRunner(
        prepared.places, attempt_id=spec.attempt_id, limits=spec.recipe_limits, scratch=runs
    )
    destinations = (recipes.images,) if side is None else (recipes.images, side.routes.routes)
    gate = Gate(
        mint=mint,
        facts=mint.facts(*destinations),
        tree=tree,
        registry=path_registry(tree),
        recipes=recipes,
        runner=runner,
        approvals=approvals,
        budget=AttemptBudget(maximum_calls=spec.limits.max_requests),
        book=GateBook(recorder, counters),
        clock=clock,
        max_read_bytes=spec.limits.max_read_bytes,
        evaluate=evaluate,
    )
    return World(
        gate=gate, approvals=approvals, runner=runner, recipes=recipes, bundle_digest=bundle
    )


def _mint(spec: AttemptSpec, prepared: Prepared, bundle: Digest) -> AttemptMint:
    side = prepared.inference
    return AttemptMint(
        spec.attempt_id,
        task_digest=digest_bytes(spec.instruction.encode()),
        bundle_digest=bundle,
        principals=Principals(owner=OWNER, providers=() if side is None else side.routes.providers),
    )


def recipe_registry(prepared: Prepared) -> RecipeRegistry:
    """The registry of the catalog's recipes and of the images they are pinned to."""
    return RecipeRegistry(
        RecipeEntry(
            recipe_id=recipe.id,
            definition_digest=recipe.definition_digest,
            image=recipe.image,
        )
        for recipe in prepared.catalog.recipes
    )


def path_registry(tree: StagedTree) -> PathRegistry:
    """The registry of every path of ``tree``."""
    return PathRegistry.build(
        ((path, entry.blob.size, blob_digest(entry.blob.digest)) for path, entry in tree.items()),
        tree_digest=tree.digest,
    )


def bundle_digest(spec: AttemptSpec) -> Digest:
    """The digest of the rules that every decision of this attempt is made under."""
    return digest_value(
        {
            "policy": BUILT_IN_POLICY,
            "tools": [tool.digest for tool in DESCRIPTORS],
            "approve": spec.approve,
            "listedRecipes": sorted(spec.listed_recipes),
        }
    )


def _standing_grants(spec: AttemptSpec, prepared: Prepared, bundle: Digest) -> list[StandingGrant]:
    """What the owner allowed by starting the attempt: registered recipes, the offered models.

    With ``ask`` no recipe has one: each run needs the person's yes.
    """
    grants = [
        StandingGrant(
            definition_digest=recipe.definition_digest,
            destination=recipe.image,
            bundle_digest=bundle,
            owner=OWNER,
        )
        for recipe in prepared.catalog.recipes
        if spec.approve == "never"
        or (spec.approve == "listed" and recipe.id in spec.listed_recipes)
    ]
    if (side := prepared.inference) is not None:
        grants += [
            StandingGrant(
                definition_digest=side.routes.definition_digest(f"model:{model.alias}"),
                destination=side.routes.entry(f"model:{model.alias}").route,
                bundle_digest=bundle,
                owner=OWNER,
            )
            for model in side.offer.models
        ]
    return grants


async def record_start(
    spec: AttemptSpec,
    prepared: Prepared,
    world: World,
    *,
    recorder: Recorder,
    events: EventLog,
) -> None:
    """The first records of an attempt, durable before its agent is started."""
    staged, catalog, limits = prepared.staged, prepared.catalog, spec.limits
    excluded = msgspec.json.encode(
        [{"path": item.path, "reason": item.reason} for item in staged.excluded]
    )
    await recorder.keep("task", spec.instruction.encode())
    excluded_digest = await recorder.keep("excluded_paths", excluded)
    budget = None if prepared.inference is None else prepared.inference.offer.budget
    recorder.append(
        records.AttemptStarted(
            task_digest=digest_bytes(spec.instruction.encode()),
            policy_digest=world.bundle_digest,
            limits_digest=digest_value(limits),
            base_commit=staged.base_commit,
            base_digest=staged.base_tree.digest,
            source_digest=staged.tree.digest,
            local_patch_digest=_local_patch_digest(prepared),
            path_registry_digest=Digest("sha256:" + world.gate.registry.digest),
            catalog_source=catalog.source,
            catalog_digest=catalog.digest,
            image_registry_digest=Digest("sha256:" + world.recipes.images.digest),
            agent_digest=prepared.agent.digest,
            engine=prepared.engine.name,
            files=staged.tree.files,
            bytes=staged.tree.bytes,
            excluded=len(staged.excluded),
            excluded_digest=excluded_digest,
            recipes=len(catalog.recipes),
            max_requests=limits.max_requests,
            deadline_ms=spec.deadline_seconds * 1000,
            budget_requests=None if budget is None else budget.requests,
            budget_input_tokens=None if budget is None else budget.input_tokens,
            budget_output_tokens=None if budget is None else budget.output_tokens,
            evaluator_version=EVALUATOR_NUMBER,
            unsafe_testing=spec.allow_unpinned,
        )
    )
    events.broker_event(
        "attempt.started",
        {
            "attemptId": parse_id(spec.attempt_id),
            "recipeCatalog": {
                "source": catalog.source,
                "digest": catalog.digest,
                "recipes": [recipe.id for recipe in catalog.recipes],
            },
            "stage": {"treeDigest": staged.tree.digest, "files": staged.tree.files},
            "engine": prepared.engine.name,
        },
    )
    await recorder.sync()


def _local_patch_digest(prepared: Prepared) -> Digest | None:
    staged = prepared.staged
    if staged.base_tree == staged.tree:
        return None
    try:
        return digest_bytes(make_patch(staged.base_tree, staged.tree))
    except PatchRefusal:
        return None  # above 8 MiB there is no patch; both trees are named
