"""The closed codes of the ledger: what a diagnostic reports, and why a chain does not hold."""

from typing import Final, Literal

LedgerProblemCode = Literal[
    "ledger_unreadable",
    "ledger_empty",
    "attempt_not_found",
    "record_malformed",
    "record_too_large",
    "hash_mismatch",
    "attempt_mismatch",
    "sequence_broken",
    "chain_broken",
    "batch_broken",
    "epoch_broken",
    "too_many_records",
    "ledger_too_large",
    "torn_tail",
    "rolled_back",
    "head_mismatch",
]
"""Why a ledger does not verify (evidence.md 2.1 to 2.3)."""

LEDGER_PROBLEM_TEXT: Final[dict[LedgerProblemCode, str]] = {
    "ledger_unreadable": "The ledger could not be read.",
    "ledger_empty": "The ledger has no records.",
    "attempt_not_found": "The ledger has no records of that attempt.",
    "record_malformed": "A record is not of its closed form.",
    "record_too_large": "A record is larger than its bound.",
    "hash_mismatch": "A record's hash is not the hash of its content.",
    "attempt_mismatch": "A record belongs to another attempt.",
    "sequence_broken": "A record is missing, repeated or out of order.",
    "chain_broken": "A record does not follow from the one before it.",
    "batch_broken": "A record's batch start contradicts the record before it.",
    "epoch_broken": "A record's epoch is older than the one before it.",
    "too_many_records": "The ledger has more records than an attempt may have.",
    "ledger_too_large": "The ledger has more bytes than an attempt may have.",
    "torn_tail": "The last records were torn before they were durable.",
    "rolled_back": "The ledger ends before the head that is known of it.",
    "head_mismatch": "The ledger does not have the head that is known of it.",
}

DiagnosticCode = Literal[
    "agent_exited",
    "agent_stderr",
    "agent_stdout_quarantined",
    "cleanup_incomplete",
    "events_dropped",
    "guarantee_missing",
    "image_unpinned",
    "invalid_messages",
    "sandbox_destroyed",
    "unsafe_testing",
]
"""What a ``diagnostic`` record may report beside a ``ViolationCode``."""

EngineReason = Literal[
    "not_installed",
    "not_supported",
    "root_not_supported",
    "self_test_failed",
    "user_namespaces_off",
    "subordinate_ids_missing",
    "limits_not_enforced",
    "control_not_enforced",
]
"""Why an isolation engine is not used (engines.md 1.6, 7.2)."""

ENGINE_TEXT: Final[dict[EngineReason, str]] = {
    "not_installed": "The engine is not installed.",
    "not_supported": "This version of airlock cannot drive the engine.",
    "root_not_supported": "The engine cannot run that kind of root.",
    "self_test_failed": "The engine did not start the self-test.",
    "user_namespaces_off": "This user may not make user namespaces here.",
    "subordinate_ids_missing": "This user has no range of subordinate ids.",
    "limits_not_enforced": "Nothing holds the memory or the processes of a sandbox here.",
    "control_not_enforced": "A control that every sandbox must have does not hold here.",
}
