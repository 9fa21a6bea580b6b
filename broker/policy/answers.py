"""Which error code an agent is told for each reason: one closed table.

The ledger keeps the exact reason. The wire is coarser wherever the difference would
tell what a filter hid: a file that is filtered and one that does not exist are one code.
"""

from collections.abc import Mapping
from typing import Final

from protocol.codes import WireCode
from protocol.decision_codes import DecisionReason

#: Reasons that mean something else to the user of another tool; by descriptor name.
_BY_TOOL: Final[Mapping[str, Mapping[DecisionReason, WireCode]]] = {
    # A file that the agent may not read is, for the agent, not there.
    "workspace.read": {"reader_mismatch": "not_found"},
    "workspace.list": {"reader_mismatch": "not_found"},
    "workspace.search": {"reader_mismatch": "not_found"},
    "recipe.run": {"selector_not_registered": "recipe_unknown"},
    "inference.send": {
        "selector_not_registered": "unknown_model",
        "payload_too_large": "context_too_large",
    },
    "workspace.patch": {
        "selector_not_registered": "patch_conflict",
        "payload_too_large": "patch_too_large",
    },
}

_TABLE: Final[Mapping[DecisionReason, WireCode]] = {
    "attempt_unknown": "state_conflict",
    "attempt_not_active": "cancelled",
    "request_id_reused": "state_conflict",
    "call_limit_exceeded": "limit_exceeded",
    "unknown_tool": "unknown_tool",
    "invalid_descriptor": "internal_error",
    "argument_shape_mismatch": "invalid_input",
    "argument_schema_invalid": "invalid_input",
    "payload_too_large": "too_large",
    "patch_malformed": "patch_malformed",
    "patch_too_many_files": "patch_too_large",
    "patch_path_not_canonical": "patch_path_denied",
    "patch_path_protected": "patch_path_denied",
    "patch_path_secret": "patch_path_denied",
    "patch_path_reference": "patch_path_denied",
    "patch_mode_forbidden": "patch_path_denied",
    "patch_binary_too_large": "patch_too_large",
    "patch_target_duplicate": "patch_malformed",
    "patch_path_collision": "patch_path_denied",
    "selector_not_registered": "not_found",
    "selector_out_of_range": "invalid_input",
    "conversion_limit_exceeded": "limit_exceeded",
    "argument_not_authentic": "internal_error",
    "argument_role_mismatch": "internal_error",
    "unsafe_instruction_argument": "unsafe_instruction_argument",
    "unsafe_authority_argument": "unsafe_authority_argument",
    "authority_not_control_owned": "permission_denied",
    "unsafe_destination_argument": "destination_not_registered",
    "destination_not_control_owned": "destination_not_registered",
    "destination_not_registered": "destination_not_registered",
    "unsafe_selector_not_confined": "unsafe_selector_not_confined",
    "unsafe_selector_too_large": "unsafe_selector_not_confined",
    "unsafe_selector_is_destination": "unsafe_selector_not_confined",
    "unsafe_control_dependency": "unsafe_privileged_flow",
    "untrusted_control_flow": "unsafe_privileged_flow",
    "unsafe_selector_provider_mismatch": "unsafe_selector_not_confined",
    "invalid_reader": "internal_error",
    "reader_mismatch": "reader_mismatch",
    "reader_required": "reader_mismatch",
    "effect_requires_approval": "approval_required",
    "approval_mismatch": "approval_mismatch",
    "approval_expired": "approval_expired",
    "approval_consumed": "approval_mismatch",
    "approval_revoked": "approval_denied",
    "approval_denied": "approval_denied",
    "approver_not_authorized": "approval_denied",
    "source_changed": "source_changed",
    "action_digest_mismatch": "approval_mismatch",
    "decision_not_authentic": "internal_error",
    "decision_expired": "approval_expired",
    "patch_does_not_apply": "patch_conflict",
    "effect_outside_targets": "patch_conflict",
    "container_unavailable": "engine_unavailable",
    "evaluation_error": "internal_error",
}


def wire_code(reason: DecisionReason, *, tool: str) -> WireCode:
    """The code for ``reason``; ``tool`` is the descriptor's name (``workspace.read``, ...).

    KeyError for ``allowed``, which is no error.
    """
    return _BY_TOOL.get(tool, {}).get(reason) or _TABLE[reason]
