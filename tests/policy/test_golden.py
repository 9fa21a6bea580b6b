"""The golden vectors of ``@odla-ai/camel``: equal text, equal digests, equal reasons.

Where the strict face answers differently, ``hardening.json`` says how; the few places
where it must differ beyond that file are listed here with their reason.
"""

import hashlib
from typing import Any

import pytest

from broker.policy.canonical import LabelError, canonical_value, close_value
from broker.policy.conversions import ConversionRejected, Converter
from broker.policy.evaluator import evaluate
from broker.policy.labels import dependencies_of, merge_provenance
from broker.policy.policy_input import canonical_input
from broker.policy.readers import intersect_readers
from broker.policy.registry import (
    RegisteredIds,
    destination_registry_digest,
    registered_ids_digest,
)
from broker.policy.tool_table import TOOLS
from tests.policy.vectors import Builder, Unsupported, built, by_name, load, plain, policy, readers

EFFECTS = by_name("effect_policy")
TOOL_VECTORS = by_name("three_tools")
STRICT = {(one["file"], one["name"]): one["strict"] for one in load("hardening")}

#: Vectors whose strict answer differs, though hardening.json does not list them.
BEYOND = {
    # policy.md 4.7: argument_not_authentic comes first, whatever the role.
    "unsafe_instruction_argument: forged object": "deny argument_not_authentic",
    # policy.md 4.2: code_execution always asks; a standing grant answers.
    "approvalEffects [] turns approvals off": "require_approval effect_requires_approval",
    "recipe: pre-authorised": "require_approval effect_requires_approval",
    # policy.md 4.2 and hardening: there is no policy that confines an Unsafe selector.
    "unsafe_selector_too_large": "deny unsafe_selector_not_confined",
    "unsafe_selector_provider_mismatch: other provider": "deny unsafe_selector_not_confined",
    "unsafe_selector_provider_mismatch: no destination argument": (
        "deny unsafe_selector_not_confined"
    ),
    "precedence: control dependency before provider mismatch": (
        "deny unsafe_selector_not_confined"
    ),
    "precedence: provider mismatch before invalid reader": "deny unsafe_selector_not_confined",
}


def expected(file: str, vector: dict[str, Any]) -> str:
    name = vector["name"]
    if name in BEYOND:
        return BEYOND[name]
    if (file, name) in STRICT:
        return STRICT[(file, name)]
    outcome = vector["outcome"]
    return f"{outcome['outcome']} {outcome.get('reasonCode', '')}".strip()


def said(decision: Any) -> str:
    if decision.outcome == "allow":
        return "allow"
    return f"{decision.outcome} {decision.reason}"


@pytest.mark.parametrize("name", BEYOND)
def test_what_differs_beyond_hardening_still_differs(name: str) -> None:
    vector = {**EFFECTS, **TOOL_VECTORS}[name]
    outcome = vector["outcome"]

    assert BEYOND[name] != f"{outcome['outcome']} {outcome.get('reasonCode', '')}".strip()
    assert not any(listed == name for _, listed in STRICT)


@pytest.mark.parametrize("name", TOOL_VECTORS)
def test_the_three_tools_have_the_packages_text_and_digest(name: str) -> None:
    vector = TOOL_VECTORS[name]
    policy_input, facts = built(vector, tools=TOOLS, untrusted=True)
    decision = evaluate(policy_input, facts=facts)

    assert canonical_input(policy_input).decode() == vector["canonical"]
    assert decision.action_digest == "sha256:" + vector["sha256"]
    assert said(decision) == expected("three_tools", vector).split(" with ")[0]


def test_our_three_descriptors_are_the_vectors_ones() -> None:
    for name, vector in TOOL_VECTORS.items():
        if "downgraded" in name:
            continue
        policy_input, _ = built(vector, tools=TOOLS)

        assert policy_input.tool is TOOLS.find(vector["input"]["tool"]["name"])


@pytest.mark.parametrize("name", EFFECTS)
def test_effect_vectors_have_the_packages_digest_and_the_strict_reason(name: str) -> None:
    vector = EFFECTS[name]
    try:
        policy_input, facts = built(vector)
    except Unsupported:
        # There is no input with a member that nobody knows.
        assert STRICT[("effect_policy", name)] == "deny invalid_descriptor"
        return
    except LabelError:
        assert STRICT[("effect_policy", name)] == "error label_not_safe at construction"
        return
    decision = evaluate(policy_input, facts=facts)

    assert said(decision) == expected("effect_policy", vector)
    if has_our_form(vector):
        if "canonical" in vector:
            assert canonical_input(policy_input).decode() == vector["canonical"]
        assert decision.action_digest == "sha256:" + vector["sha256"]


def has_our_form(vector: dict[str, Any]) -> bool:
    """Whether the strict face can write the vector's input at all."""
    return (
        "sha256" in vector
        and "unsafeSelectorPolicy" not in vector["input"]["tool"]
        and all(name.isidentifier() for name in vector["input"]["args"])
        and all(value["ctor"] != "forged" for value in vector["values"].values())
    )


@pytest.mark.parametrize("vector", load("registry_digests"), ids=lambda vector: vector["name"])
def test_registries_have_the_packages_digests(vector: dict[str, Any]) -> None:
    match vector["fn"]:
        case "destinationRegistryDigest":
            assert destination_registry_digest(vector["input"]) == vector["digest"]
        case "registeredIdRegistryDigest":
            assert registered_ids_digest(plain(vector["input"])) == vector["digest"]
        case "conversionPolicyDigest":
            try:
                made = policy(plain(vector["input"]))
            except Unsupported:
                return
            assert made.digest == vector["digest"]


@pytest.mark.parametrize("vector", load("canonical_json"), ids=lambda vector: vector["name"])
def test_canonical_text_is_the_packages_or_is_refused(vector: dict[str, Any]) -> None:
    try:
        text = canonical_value(close_value(plain(vector["value"])))
    except (LabelError, Unsupported):
        # What canonical JSON carries with a loss (W24, W25, W30), and what JSON has not.
        assert not _is_closed(vector["value"])
        return

    assert text.decode() == vector["canonical"]
    assert hashlib.sha256(text).hexdigest() == vector["sha256"]


def _is_closed(value: Any) -> bool:
    if isinstance(value, float):
        return False
    if isinstance(value, int):
        return abs(value) < 2**53
    if isinstance(value, str):
        return not any("\ud800" <= char <= "\udfff" for char in value)
    if isinstance(value, list):
        return all(map(_is_closed, value))
    if isinstance(value, dict):
        return value.get("$js") == "object" and all(
            _is_closed(key) and key != "$bytes" and _is_closed(member)
            for key, member in value["entries"]
        )
    return True


CONVERSIONS = [one for one in load("conversions") if one["op"] in ("integer", "registeredId")]


@pytest.mark.parametrize("vector", CONVERSIONS, ids=lambda vector: vector["name"])
def test_conversions_emit_the_packages_records(vector: dict[str, Any]) -> None:
    converter = Converter()
    for result in vector.get("results", ({},)):
        try:
            source = Builder({"source": vector["source"]}).made["source"]
            chosen = policy(plain(vector["policy"]))
            if vector["op"] == "integer":
                made = converter.integer(source, policy=chosen)
            else:
                ((registry_id, one),) = plain(vector["registeredIds"]).items()
                registry = RegisteredIds(registry_id, one["values"])
                made = converter.registered_id(source, policy=chosen, registry=registry)
        except (ConversionRejected, LabelError, Unsupported):
            strict = {name for file, name in STRICT if file == "conversions"}
            # A bound outside of I-JSON is not a bound (W13).
            assert "ok" not in result or vector["name"] in {*strict, "integer wide 2^53-1"}
            continue
        assert "ok" in result
        assert made.datum is not None
        assert result["ok"]["value"] == made.value
        assert result["ok"]["datumId"] == made.datum.datum_id
        assert result["ok"]["conversionRecordId"] == made.datum.record_id
        assert result["ok"]["conversionDigest"] == made.datum.conversion_digest


LABELS = load("labels")


@pytest.mark.parametrize("vector", LABELS, ids=lambda vector: vector["name"])
def test_label_algebra_is_the_packages_but_for_its_gaps(vector: dict[str, Any]) -> None:
    match vector["fn"]:
        case "intersectReaders":
            found = intersect_readers(map(readers, vector["input"]))
            wanted = readers(vector["output"])
            assert found == (
                wanted if vector["input"] else readers({"kind": "x", "principalIds": []})
            )
        case "canRead":
            who, principal = vector["input"]
            assert readers(who).admit(principal) is vector["output"]
        case "mergeProvenance":
            made = Builder(vector["values"]).made.values()
            assert [(one.kind, one.id, one.digest) for one in merge_provenance(made)] == [
                (one["kind"], one["id"], one.get("digest")) for one in vector["output"]
            ]
        case "dependenciesOf":
            made = Builder(vector["values"]).made.values()
            found = [
                (one.ref.kind, one.ref.id, one.influence, one.safety_at_use)
                for one in dependencies_of(made, vector["influence"])
            ]
            # Ours keeps both digests of one source (W35).
            assert list(dict.fromkeys(found)) == [
                (one["ref"]["kind"], one["ref"]["id"], one["influence"], one["promptSafetyAtUse"])
                for one in vector["output"]
            ]
        case "label":
            try:
                value = Builder(vector["values"]).made["v"]
            except LabelError:
                assert vector["name"] == "label control constant"
                return
            label = vector["output"]["label"]
            assert value.readers == readers(label["readers"])
            assert [one.id for one in value.provenance] == [
                one["id"] for one in label["provenance"]
            ]
