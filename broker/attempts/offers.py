"""The first frame of an attempt: what the agent is told, and the closed lists it may ask from."""

from typing import Final, Literal

from broker.attempts.spec import AttemptSpec
from broker.recipes.catalog import Catalog
from broker.stage.snapshot import Staged
from protocol.ids import CommitSha
from protocol.messages import (
    Budget,
    InferenceOffer,
    ModelOffer,
    RecipeOffer,
    Repository,
    Task,
    TaskStart,
    ToolOffer,
)
from protocol.schema import schema_digest
from protocol.tools import TOOL_FORMS

#: Stands for the base of a checkout that has no commit yet.
NO_COMMIT: Final = CommitSha("0" * 40)
#: The one model of an attempt without inference: every request is answered with an error.
NO_MODEL: Final = ModelOffer(alias="none", role="main")


def make_task_start(
    spec: AttemptSpec,
    staged: Staged,
    catalog: Catalog,
    *,
    inference: InferenceOffer | None,
) -> TaskStart:
    """``task.start`` of one attempt."""
    return TaskStart(
        protocol_version=1,
        schema_digest=schema_digest(),
        attempt_id=spec.attempt_id,
        task=Task(instruction=spec.instruction),
        repository=Repository(
            name=spec.repo.name.encode("utf-8", "replace").decode()[:200] or "repository",
            base_commit=staged.base_commit or NO_COMMIT,
            source_digest=staged.tree.digest,
        ),
        tools=_tool_offers(spec, catalog),
        recipes=tuple(
            RecipeOffer(
                id=recipe.id,
                timeout_ms=recipe.timeout_ms,
                max_output_bytes=recipe.max_output_bytes,
                recipe_digest=recipe.definition_digest,
            )
            for recipe in catalog.recipes
        ),
        inference=inference
        or InferenceOffer(
            apis=(), models=(NO_MODEL,), streaming=False, hosted_tools=(), budget=Budget()
        ),
        limits=spec.limits,
        features=("inference_streaming", "request_cancel", "agent_state"),
        deadline_ms=spec.deadline_seconds * 1000,
        resume=None,
    )


def _tool_offers(spec: AttemptSpec, catalog: Catalog) -> tuple[ToolOffer, ...]:
    """The closed tool list; ``run_recipe`` is offered only where there is a recipe."""
    offers = []
    for form in TOOL_FORMS.values():
        if form.effect == "recipe" and not catalog.recipes:
            continue
        approval: Literal["never", "possible", "always"] = "never"
        if form.effect == "recipe" and spec.approve != "never":
            approval = "always" if spec.approve == "ask" else "possible"
        offers.append(
            form.offer(approval=approval, max_result_bytes=spec.limits.max_response_frame_bytes)
        )
    return tuple(offers)
