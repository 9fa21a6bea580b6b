"""Ends an attempt: its patches written and checked, its last record, its document."""

from functools import partial
from typing import Literal

import trio

from broker.attempts.collect import Patches, write_document, write_patches
from broker.attempts.conversation import Ending
from broker.attempts.opening import World
from broker.attempts.prepare import Prepared
from broker.attempts.progress import Counters
from broker.attempts.recorder import Recorder
from broker.attempts.spec import AttemptResult, AttemptSpec
from broker.engines.process import Exit
from protocol import records
from protocol.codes import Outcome

Claim = Literal["succeeded", "failed", "cancelled", "blocked"]
"""What an agent can say of its own work."""


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
    patches = await trio.to_thread.run_sync(
        partial(write_patches, prepared.staged, world.gate.tree, spec.out)
    )
    recorder.append(
        _last_record(world, counters, patches, _outcome(ending, ended, patches), ending, ended)
    )
    await recorder.sync()
    result = AttemptResult(
        attempt_id=spec.attempt_id,
        outcome=_outcome(ending, ended, patches),
        claim=_claim(ending),
        exit_code=_exit_code(ended),
        exit_kind=None if ended is None else ended.kind,
        out=spec.out,
        repo=spec.repo,
        base_commit=prepared.staged.base_commit,
        base_digest=prepared.staged.base_tree.digest,
        source_digest=prepared.staged.tree.digest,
        candidate_digest=world.gate.tree.digest,
        patch=patches.result,
        agent_patch=patches.agent,
        local_patch=patches.local,
        recipes=tuple(world.runner.finished),
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
        ledger_head=recorder.head(),
    )
    await trio.to_thread.run_sync(write_document, result)
    return result


async def finish_unstarted(spec: AttemptSpec, recorder: Recorder) -> AttemptResult:
    """The result of an attempt that was cancelled before its agent was started."""
    recorder.append(records.AttemptCompleted(outcome="cancelled"))
    await recorder.sync()
    result = AttemptResult(
        attempt_id=spec.attempt_id,
        outcome="cancelled",
        claim=None,
        exit_code=None,
        exit_kind=None,
        out=spec.out,
        repo=spec.repo,
        base_commit=None,
        base_digest=None,
        source_digest=None,
        candidate_digest=None,
        patch=None,
        agent_patch=None,
        local_patch=None,
        recipes=(),
        allow=0,
        deny=0,
        require_approval=0,
        violations=(),
        receipts=(),
        input_tokens=0,
        output_tokens=0,
        verified=False,
        engine=None,
        engine_version=None,
        catalog_source="none",
        ledger_head=recorder.head(),
    )
    await trio.to_thread.run_sync(write_document, result)
    return result


def _last_record(
    world: World,
    counters: Counters,
    patches: Patches,
    outcome: Outcome,
    ending: Ending,
    ended: Exit | None,
) -> records.AttemptCompleted:
    patch = patches.result
    return records.AttemptCompleted(
        outcome=outcome,
        claim=_claim(ending),
        patch_digest=None if patch is None else patch.digest,
        patch_bytes=0 if patch is None else patch.bytes,
        patch_files=0 if patch is None else patch.files,
        candidate_digest=world.gate.tree.digest,
        requests=counters.requests,
        allowed=counters.allow,
        denied=counters.deny,
        required_approval=counters.require_approval,
        violations=len(counters.violations),
        exit_code=_exit_code(ended),
    )


def _outcome(ending: Ending, ended: Exit | None, patches: Patches) -> Outcome:
    """How it ended: a program that never started is not an agent that left, and a result
    whose patch does not give the candidate is not a success."""
    if ended is not None and ended.kind == "never_ran" and ending.claim is None:
        return "infrastructure"
    outcome = ending.outcome or "infrastructure"
    return "infrastructure" if outcome == "succeeded" and not patches.verified else outcome


def _claim(ending: Ending) -> Claim | None:
    return None if ending.claim is None else ending.claim.status


def _exit_code(ended: Exit | None) -> int | None:
    """The agent's exit status; 128 and the number for a signal, as a shell says it."""
    if ended is None or ended.code is None:
        return None
    return (128 + ended.code if ended.kind == "signal" else ended.code) & 0xFF
