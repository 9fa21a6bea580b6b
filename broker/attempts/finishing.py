"""Ends an attempt: its patches written and checked, its last record, its document."""

from functools import partial

import trio

from broker.attempts.collect import write_document, write_patches
from broker.attempts.conversation import Ending
from broker.attempts.opening import World
from broker.attempts.prepare import Prepared
from broker.attempts.progress import Counters
from broker.attempts.recorder import Recorder
from broker.attempts.spec import AttemptResult, AttemptSpec, RecipeSummary
from broker.engines.process import Exit
from protocol import records


async def finish(
    spec: AttemptSpec,
    prepared: Prepared,
    world: World,
    recorder: Recorder,
    counters: Counters,
    ending: Ending,
    ended: Exit | None,
) -> AttemptResult:
    """Writes everything that the attempt leaves; the document last."""
    candidate = world.gate.tree
    patches = await trio.to_thread.run_sync(
        partial(write_patches, prepared.staged, candidate, spec.out)
    )
    outcome = ending.outcome or "infrastructure"
    if outcome == "succeeded" and not patches.verified:
        outcome = "infrastructure"
    claim = None if ending.claim is None else ending.claim.status
    exit_code = None if ended is None or ended.kind != "exit" else ended.code
    patch = patches.result
    recorder.append(
        records.AttemptCompleted(
            outcome=outcome,
            claim=claim,
            patch_digest=None if patch is None else patch.digest,
            patch_bytes=0 if patch is None else patch.bytes,
            patch_files=0 if patch is None else patch.files,
            candidate_digest=candidate.digest,
            requests=counters.requests,
            allowed=counters.allow,
            denied=counters.deny,
            required_approval=counters.require_approval,
            violations=len(counters.violations),
            exit_code=exit_code,
        )
    )
    await recorder.sync()
    head = recorder.head()
    result = AttemptResult(
        attempt_id=spec.attempt_id,
        outcome=outcome,
        claim=claim,
        exit_code=exit_code,
        out=spec.out,
        repo=spec.repo,
        base_commit=prepared.staged.base_commit,
        base_digest=prepared.staged.base_tree.digest,
        source_digest=prepared.staged.tree.digest,
        candidate_digest=candidate.digest,
        patch=patch,
        agent_patch=patches.agent,
        local_patch=patches.local,
        recipes=_summaries(world),
        allow=counters.allow,
        deny=counters.deny,
        require_approval=counters.require_approval,
        violations=tuple(counters.violations),
        receipts=(),
        input_tokens=counters.input_tokens,
        output_tokens=counters.output_tokens,
        verified=patches.verified,
        engine=prepared.engine.name,
        engine_version=prepared.engine.version,
        catalog_source=prepared.catalog.source,
        ledger_head=(head.seq, head.h),
    )
    await trio.to_thread.run_sync(write_document, result)
    return result


def _summaries(world: World) -> tuple[RecipeSummary, ...]:
    return tuple(
        RecipeSummary(
            id=run.recipe.id,
            status=run.status,
            exit_code=run.exit_code,
            duration_ms=run.duration_ms,
            source_digest=run.source_digest,
        )
        for run in world.runner.finished
    )
