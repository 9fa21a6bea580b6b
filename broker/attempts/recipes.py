"""The recipes of one attempt: what each runs on, and one run of one of them. Decides nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final, final

import trio

from broker.attempts.faults import fault_of
from broker.attempts.spec import RecipeSummary
from broker.engines.engine import Engine
from broker.engines.spec import Root, SandboxLimits
from broker.policy.action import RecipeAction
from broker.recipes.catalog import Recipe
from broker.recipes.run import RecipeRun, run_recipe
from broker.stage.tree import StagedTree
from protocol.ids import Digest, Id, parse_recipe_id

#: Recipes of one attempt that run at the same time; the others wait for a place. Each may
#: use the limits of a recipe in full, and an agent may ask for all it has in flight.
RUNS_AT_ONCE: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipePlace:
    """A recipe of the trusted catalog, the engine that runs it and the root it runs on."""

    recipe: Recipe
    engine: Engine
    root: Root


@final
class RecipeRunner:
    """Runs the recipes of one attempt, each in a fresh folder below ``scratch``."""

    def __init__(
        self,
        places: Mapping[str, RecipePlace],
        *,
        attempt_id: Id,
        limits: SandboxLimits,
        scratch: Path,
    ) -> None:
        self._places: Final = dict(places)
        self._attempt_id: Final = attempt_id
        self._limits: Final = limits
        self._scratch: Final = scratch
        self._numbers: Final = count(1)
        self._slots: Final = trio.CapacityLimiter(RUNS_AT_ONCE)
        #: Every run that ended, in order, without its output.
        self.finished: Final[list[RecipeSummary]] = []

    def action(self, registered_id: str) -> RecipeAction:
        """What a person is shown about the recipe of ``registered_id``."""
        recipe = self._recipe(registered_id).recipe
        return RecipeAction(
            id=parse_recipe_id(recipe.id),
            recipe_digest=recipe.definition_digest,
            image_digest=Digest(recipe.image.rpartition("@")[2]),
            argv=recipe.command,
            timeout_ms=recipe.timeout_ms,
            max_output_bytes=recipe.max_output_bytes,
        )

    async def run(self, registered_id: str, tree: StagedTree) -> RecipeRun:
        """One run on a fresh copy of ``tree``. Raises ``Fault`` when it could not be run."""
        place = self._recipe(registered_id)
        try:
            async with self._slots:
                result = await run_recipe(
                    place.recipe,
                    tree=tree,
                    engine=place.engine,
                    root=place.root,
                    limits=self._limits,
                    attempt_id=self._attempt_id,
                    folder=self._scratch / f"run-{next(self._numbers)}",
                )
        except BaseExceptionGroup as group:
            if (fault := fault_of(group)) is None:
                raise
            raise fault from group
        self.finished.append(
            RecipeSummary(
                id=result.recipe.id,
                status=result.status,
                exit_code=result.exit_code,
                duration_ms=result.duration_ms,
                source_digest=result.source_digest,
            )
        )
        return result

    def _recipe(self, registered_id: str) -> RecipePlace:
        return self._places[registered_id.removeprefix("recipe:")]
