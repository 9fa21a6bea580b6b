"""The closed reasons for which an isolation engine is not used, and their texts."""

from typing import Final, Literal

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
