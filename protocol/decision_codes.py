"""The closed reasons of decisions: of the gate, of patches, of staging, of labels."""

from typing import Final, Literal

DecisionReason = Literal[
    "allowed",
    # attempt
    "attempt_unknown",
    "attempt_not_active",
    "request_id_reused",
    "call_limit_exceeded",
    # descriptor
    "unknown_tool",
    "invalid_descriptor",
    "argument_shape_mismatch",
    "argument_schema_invalid",
    "payload_too_large",
    # patch confinement, in the order of policy.md 4.4
    "patch_malformed",
    "patch_too_many_files",
    "patch_path_not_canonical",
    "patch_path_protected",
    "patch_path_secret",
    "patch_path_reference",
    "patch_mode_forbidden",
    "patch_binary_too_large",
    "patch_target_duplicate",
    "patch_path_collision",
    # conversion
    "selector_not_registered",
    "selector_out_of_range",
    "conversion_limit_exceeded",
    # policy
    "argument_not_authentic",
    "argument_role_mismatch",
    "unsafe_instruction_argument",
    "unsafe_authority_argument",
    "authority_not_control_owned",
    "unsafe_destination_argument",
    "destination_not_control_owned",
    "destination_not_registered",
    "unsafe_selector_not_confined",
    "unsafe_selector_too_large",
    "unsafe_selector_is_destination",
    "unsafe_control_dependency",
    "untrusted_control_flow",
    "unsafe_selector_provider_mismatch",
    "invalid_reader",
    "reader_mismatch",
    "reader_required",
    # approval
    "effect_requires_approval",
    "approval_mismatch",
    "approval_expired",
    "approval_consumed",
    "approval_revoked",
    "approval_denied",
    "approver_not_authorized",
    # before the effect
    "source_changed",
    "action_digest_mismatch",
    "decision_not_authentic",
    "decision_expired",
    # the effect
    "patch_does_not_apply",
    "effect_outside_targets",
    "container_unavailable",
    # always
    "evaluation_error",
]
"""Why the gate said what it said (policy.md 4.4 and 4.7)."""

PatchCode = Literal[
    "patch_malformed",
    "patch_too_many_files",
    "patch_too_many_hunks",
    "patch_path_not_canonical",
    "patch_path_protected",
    "patch_path_secret",
    "patch_path_reference",
    "patch_mode_forbidden",
    "patch_binary_too_large",
    "patch_target_duplicate",
    "patch_path_collision",
    "patch_conflict",
    "patch_no_change",
    "edit_stale",
    "edit_not_found",
    "edit_ambiguous",
    "payload_too_large",
    "effect_outside_targets",
    "stage_bound_exceeded",
]
"""Why a patch was refused (policy.md 4.4, stage.md "Patches")."""

PATCH_TEXT: Final[dict[PatchCode, str]] = {
    "patch_malformed": "The patch is not well formed.",
    "patch_too_many_files": "The patch touches too many files.",
    "patch_too_many_hunks": "The patch has too many hunks.",
    "patch_path_not_canonical": "A path in the patch is not in its plain form.",
    "patch_path_protected": "The patch touches a protected path.",
    "patch_path_secret": "The patch touches a path that is filtered.",
    "patch_path_reference": "The patch touches a read-only reference.",
    "patch_mode_forbidden": "The patch names a mode that is not allowed.",
    "patch_binary_too_large": "A binary part of the patch is too large.",
    "patch_target_duplicate": "The patch names a path twice.",
    "patch_path_collision": "A path in the patch collides with another.",
    "patch_conflict": "The patch does not apply.",
    "patch_no_change": "The patch changes nothing.",
    "edit_stale": "The file is not the one that was read.",
    "edit_not_found": "The text to replace is not in the file.",
    "edit_ambiguous": "The text to replace stands at more or fewer places than the edit says.",
    "payload_too_large": "The patch is larger than its limit.",
    "effect_outside_targets": "The result differs from what the patch names.",
    "stage_bound_exceeded": "The result would pass a bound of the stage.",
}

LabelCode = Literal[
    "label_not_authentic",
    "label_not_safe",
    "label_unsafe_nested",
    "label_value_not_closed",
    "label_identity_empty",
    "label_identity_ambiguous",
    "conversion_malformed",
    "conversion_digest_mismatch",
    "conversion_rejected",
    "descriptor_malformed",
    "descriptor_ambiguous",
    "registry_malformed",
]
"""Why a labelled value, a conversion or a registry was not made (policy.md 4.9, 1.4)."""

LABEL_TEXT: Final[dict[LabelCode, str]] = {
    "label_not_authentic": "A value does not carry an authentic label.",
    "label_not_safe": "An operation on Safe values was given an Unsafe one.",
    "label_unsafe_nested": "A constant may not hold a labelled value.",
    "label_value_not_closed": "A value is not of a closed type.",
    "label_identity_empty": "The identity of a source or a reader is empty.",
    "label_identity_ambiguous": "The identity of a source can be read in two ways.",
    "conversion_malformed": "A conversion policy is not of its form.",
    "conversion_digest_mismatch": "A conversion and its registry do not belong together.",
    "conversion_rejected": "A value is not one that may be converted.",
    "descriptor_malformed": "A tool descriptor is not of its form.",
    "descriptor_ambiguous": "Two tool descriptors have one name.",
    "registry_malformed": "A registry is not of its form.",
}

ExclusionReason = Literal[
    "git_metadata",
    "tool_state",
    "dependencies",
    "build_output",
    "environment_file",
    "credential_file",
    "credential_content",
    "private_key",
    "cloud_credentials",
    "symlink",
    "special_file",
    "submodule",
    "nested_repository",
    "ignored",
    "name_not_utf8",
    "name_unsafe",
    "name_collision",
    "deleted_in_checkout",
    "unmerged",
    "unreadable",
]
"""Why a path of the checkout is not in the stage (stage.md, "What is staged")."""
