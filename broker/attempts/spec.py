"""What an attempt is asked to be, and what came of it: values only."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from broker.engines.spec import AGENT_LIMITS, RECIPE_LIMITS, EngineChoice, SandboxLimits
from protocol.codes import Outcome, ViolationCode
from protocol.ids import CommitSha, Digest, Id
from protocol.limits import Limits

ApproveMode = Literal["never", "ask", "listed"]

#: An attempt of one hour: a model that works on a hard task needs most of it.
DEFAULT_DEADLINE_SECONDS: Final = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSpec:
    """One attempt, as the person or the control plane asked for it."""

    attempt_id: Id
    repo: Path
    ref: str | None
    instruction: str
    agent: str
    agent_arguments: tuple[str, ...]
    host_catalog: bytes | None
    inference: str | None
    engine: EngineChoice
    approve: ApproveMode
    listed_recipes: frozenset[str]  #: with ``listed``: the recipe ids that may run
    out: Path
    state: Path
    deadline_seconds: int
    allow_unpinned: bool
    limits: Limits = field(default_factory=Limits)
    agent_limits: SandboxLimits = AGENT_LIMITS
    recipe_limits: SandboxLimits = RECIPE_LIMITS


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeSummary:
    """One recipe run, as a result names it."""

    id: str
    status: str
    exit_code: int | None
    duration_ms: int
    source_digest: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchSummary:
    """A result patch: its digest, its size, the files it touches."""

    digest: Digest
    bytes: int
    files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult:
    """How an attempt ended and what it left.

    Digests and engine are None for an attempt that was cancelled before anything was staged.
    """

    attempt_id: Id
    outcome: Outcome
    claim: str | None
    exit_code: int | None
    exit_kind: str | None  #: ``exit``, ``signal``, ``oom``, ``timeout``, ``never_ran``
    out: Path
    repo: Path
    base_commit: CommitSha | None
    base_digest: Digest | None
    source_digest: Digest | None
    candidate_digest: Digest | None
    patch: PatchSummary | None
    agent_patch: PatchSummary | None
    local_patch: PatchSummary | None
    recipes: tuple[RecipeSummary, ...]
    allow: int
    deny: int
    require_approval: int
    violations: tuple[ViolationCode, ...]
    receipts: tuple[str, ...]
    input_tokens: int
    output_tokens: int
    engine: str | None
    engine_version: str | None
    catalog_source: str  #: ``host``, ``repository`` or ``none``
    ledger_head: tuple[int, str]  #: sequence number and hash of the last record
    verified: bool  #: the patch files, read back, turn the base into the candidate
