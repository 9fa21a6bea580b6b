"""The closed codes and their texts."""

from typing import Any, get_args

import pytest

from protocol import codes, decision_codes, engine_codes, record_codes, refusal_codes

PAIRS = [
    (codes.ViolationCode, codes.VIOLATION_TEXT),
    (codes.WireCode, codes.WIRE_TEXT),
    (decision_codes.PatchCode, decision_codes.PATCH_TEXT),
    (decision_codes.LabelCode, decision_codes.LABEL_TEXT),
    (refusal_codes.RefusalCode, refusal_codes.REFUSAL_TEXT),
    (refusal_codes.FaultCode, refusal_codes.FAULT_TEXT),
    (engine_codes.EngineReason, engine_codes.ENGINE_TEXT),
    (record_codes.LedgerProblemCode, record_codes.LEDGER_PROBLEM_TEXT),
]


@pytest.mark.parametrize(("literal", "table"), PAIRS)
def test_every_code_has_one_text_and_every_text_a_code(literal: Any, table: dict[str, str]) -> None:
    members = get_args(literal)

    assert len(members) == len(set(members))
    assert set(members) == set(table)


@pytest.mark.parametrize(("literal", "table"), PAIRS)
def test_every_text_is_a_plain_sentence(literal: Any, table: dict[str, str]) -> None:
    for text in table.values():
        assert text[0].isupper()
        assert text.endswith(".")
        assert "{" not in text
        assert len(text.encode()) <= 256


def test_retryable_codes_are_codes() -> None:
    assert set(get_args(codes.WireCode)) >= codes.RETRYABLE
