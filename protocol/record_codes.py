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
    "request_cancelled",
    "sandbox_destroyed",
    "unsafe_testing",
]
"""What a ``diagnostic`` record may report beside a ``ViolationCode``."""
