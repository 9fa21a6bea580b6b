"""Labels: nothing is made without the seal, nothing changes, readers never widen."""

import ast
import copy
import pickle
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.policy.canonical import LabelError, canonical_value
from broker.policy.conversion_policy import ConversionPolicy, IntegerOutput
from broker.policy.conversions import MAX_LIST_ITEMS, ConversionRejected, Converter, safe_list
from broker.policy.decision import DECISION_SEAL, Decision, is_authentic_decision
from broker.policy.ingress import Ingress
from broker.policy.labels import SEAL, Ref, Safe, Unsafe, is_authentic
from broker.policy.readers import NOBODY, PUBLIC, Readers, intersect_readers
from broker.policy.registry import RegisteredIds

INGRESS = Ingress()
IDS = RegisteredIds("ids", {"one": "id:1", "two": "id:2", "uno": "id:1"})
POLICY = IDS.conversion("ids.v1", maximum_source_bytes=100)
NUMBER = ConversionPolicy(
    "number.v1", output=IntegerOutput(minimum=-5, maximum=5), maximum_source_bytes=32
)
READER_SETS = st.one_of(
    st.just(PUBLIC), st.sets(st.sampled_from("abcde")).map(lambda names: Readers(names))
)


def unsafe(value: Any, readers: Readers = PUBLIC) -> Unsafe:
    return INGRESS.quarantined_output(value, run_id="a/r/f", digest="d", readers=readers)


def constant(value: Any, readers: Readers = PUBLIC) -> Safe:
    return INGRESS.constant(value, identity="c", readers=readers)


def test_only_the_minting_modules_hold_the_seal() -> None:
    folder = Path(__file__).parent.parent.parent / "broker"
    holders: dict[str, set[str]] = {"SEAL": set(), "DECISION_SEAL": set()}
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if alias.name in holders:
                        holders[alias.name].add(str(path.relative_to(folder)))

    assert holders == {
        "SEAL": {"policy/ingress.py", "policy/conversions.py"},
        "DECISION_SEAL": {"policy/evaluator.py"},
    }


def test_only_the_mint_makes_an_ingress() -> None:
    folder = Path(__file__).parent.parent.parent / "broker"
    makers = {
        str(path.relative_to(folder))
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Ingress"
    }

    assert makers == {"policy/mint.py"}


@pytest.mark.parametrize("kind", [Safe, Unsafe, Decision])
def test_there_is_no_public_constructor(kind: Any) -> None:
    count = len(kind.__struct_fields__)
    for brand in (None, object(), "seal", SEAL if kind is Decision else DECISION_SEAL):
        with pytest.raises(TypeError):
            kind(brand, *[None] * (count - 1))


@pytest.mark.parametrize("value", [unsafe("x"), constant("x")])
def test_a_changed_copy_is_refused(value: Any) -> None:
    for change in ({"value": "y"}, {"readers": PUBLIC}, {}):
        with pytest.raises(TypeError):
            msgspec.structs.replace(value, **change)
    with pytest.raises((TypeError, AttributeError)):
        pickle.loads(pickle.dumps(value))
    with pytest.raises(AttributeError):
        value.value = "y"
    assert copy.copy(value).value == value.value


def test_what_only_looks_like_a_value_is_not_authentic() -> None:
    class Duck:
        brand = constant("x").brand
        value = "x"
        readers = PUBLIC

    for forged in (Duck(), {"value": "x"}, None, "x", 1, (), Safe, Unsafe):
        assert not is_authentic(forged)
    with pytest.raises(TypeError):
        object.__new__(Safe)
    assert not is_authentic_decision({"outcome": "allow"})


def test_a_value_never_shows_its_text() -> None:
    for value in (unsafe("CANARY"), constant("CANARY")):
        assert "CANARY" not in f"{value!r}{value!s}{[value]}"


def test_a_constant_is_a_copy() -> None:
    given_ = {"a": ("x",)}
    value = constant(given_)
    given_["a"] = ("y",)

    assert value.value == {"a": ("x",)}
    assert value.body == constant({"a": ("x",)}).body
    with pytest.raises(TypeError):
        value.value["a"] = 1  # type: ignore[index, call-overload]


@pytest.mark.parametrize(
    "value",
    [
        1.5, float("nan"), 2**53, -(2**53), [1], {1: "x"}, {"$bytes": (1,)}, {"x"}, object(),
        {"a": 1.5}, (1, [2]), {"a": {"b": 0.0}}, "\ud800", ("x\udfff",), {"\ud800": 1},
    ],
)  # fmt: skip
def test_a_value_is_of_a_closed_type(value: Any) -> None:
    with pytest.raises(LabelError) as refused:
        constant(value)

    assert refused.value.code == "label_value_not_closed"


@pytest.mark.parametrize("nested", [unsafe("x"), constant("x")])
def test_no_labelled_value_hides_in_another(nested: Any) -> None:
    for value in (nested, (nested,), {"a": nested}, {"a": ({"b": nested},)}):
        with pytest.raises(LabelError) as refused:
            constant(value)

        assert refused.value.code == "label_unsafe_nested"


def test_bytes_are_told_from_a_map_of_them() -> None:
    assert canonical_value(b"\x00\xff") == b'{"$bytes":[0,255]}'


def test_identities_are_never_empty() -> None:
    for wrong in (
        lambda: INGRESS.constant("x", identity="", readers=PUBLIC),
        lambda: INGRESS.user_instruction("x", identity="", readers=PUBLIC),
        lambda: INGRESS.system_policy("x", identity="", readers=PUBLIC),
        lambda: INGRESS.quarantined_output("x", run_id="", digest="d", readers=PUBLIC),
        lambda: INGRESS.quarantined_output("x", run_id="r", digest="", readers=PUBLIC),
        lambda: INGRESS.external("x", readers=PUBLIC, provenance=()),
        lambda: Readers(("a", "")),
    ):
        with pytest.raises(LabelError) as refused:
            wrong()

        assert refused.value.code == "label_identity_empty"


@given(st.lists(st.tuples(st.text("a:", min_size=1), st.text("a:")), min_size=2, max_size=2))
def test_a_joined_identity_is_read_in_one_way(pairs: list[tuple[str, str]]) -> None:
    joined = []
    for identity, digest in pairs:
        for named in (digest, "sha256:" + digest):
            for start in (identity, identity + ":sha256"):
                try:
                    ref = Ref("tool", start, named or None)
                except LabelError:
                    continue
                joined.append((f"{ref.kind}:{ref.id}:{ref.digest or ''}", (ref.id, ref.digest)))

    assert len({text for text, _ in joined}) == len(dict.fromkeys(joined))


@given(st.lists(READER_SETS))
def test_readers_of_several_are_at_most_the_readers_of_each(sets: list[Readers]) -> None:
    result = intersect_readers(sets)

    assert all(result.within(one) for one in sets)
    for name in "abcde":
        assert result.admit(name) == (bool(sets) and all(one.admit(name) for one in sets))


@pytest.mark.parametrize("digest", ["a:b", "sha256:a:b", "sha512:a", ":"])
def test_a_digest_has_at_most_its_prefix(digest: str) -> None:
    with pytest.raises(LabelError) as refused:
        Ref("tool", "x", digest)

    assert refused.value.code == "label_identity_ambiguous"


def test_of_nothing_nobody_is_a_reader() -> None:
    assert intersect_readers(()) == NOBODY
    assert safe_list(()).readers == NOBODY


@given(st.one_of(st.text(), st.sampled_from(["one", "two", "uno"])), READER_SETS)
def test_a_conversion_gives_a_registered_id_or_nothing(text: str, readers: Readers) -> None:
    source = unsafe(text, readers)
    if text not in ("one", "two", "uno"):
        with pytest.raises(ConversionRejected) as rejected:
            Converter().registered_id(source, policy=POLICY, registry=IDS)
        assert rejected.value.reason == "selector_not_registered"
        return
    made = Converter().registered_id(source, policy=POLICY, registry=IDS)

    assert made.value in ("id:1", "id:2")
    assert made.readers == readers


@given(st.one_of(st.integers(-8, 8), st.booleans(), st.text(max_size=2), st.none()))
def test_a_conversion_gives_an_integer_in_range_or_nothing(value: Any) -> None:
    if type(value) is not int or not -5 <= value <= 5:
        with pytest.raises(ConversionRejected) as rejected:
            Converter().integer(unsafe(value), policy=NUMBER)
        assert rejected.value.reason == "selector_out_of_range"
        return
    made = Converter().integer(unsafe(value), policy=NUMBER)

    assert type(made.value) is int
    assert made.value == value


def test_what_maps_to_one_member_gives_one_value() -> None:
    one = Converter().registered_id(unsafe("one"), policy=POLICY, registry=IDS)
    uno = Converter().registered_id(unsafe("uno"), policy=POLICY, registry=IDS)

    assert one.value == uno.value
    assert one.body == uno.body


def test_a_source_gives_one_output_to_each_policy() -> None:
    converter = Converter()
    converter.integer(unsafe(1), policy=NUMBER)
    with pytest.raises(ConversionRejected) as rejected:
        converter.integer(unsafe(2), policy=NUMBER)

    assert rejected.value.reason == "conversion_limit_exceeded"


@pytest.mark.parametrize("forged", [None, "one", {"value": "one"}, constant("one")])
def test_nothing_unauthentic_is_converted(forged: Any) -> None:
    with pytest.raises(ConversionRejected) as rejected:
        Converter().registered_id(forged, policy=POLICY, registry=IDS)
    assert rejected.value.reason == "argument_not_authentic"
    with pytest.raises(ConversionRejected) as rejected:
        Converter().integer(forged, policy=NUMBER)
    assert rejected.value.reason == "argument_not_authentic"


@pytest.mark.parametrize("value", [42, True, None, ("one",), {"one": 1}, b"one"])
def test_only_text_is_looked_up(value: Any) -> None:
    with pytest.raises(ConversionRejected) as rejected:
        Converter().registered_id(unsafe(value), policy=POLICY, registry=IDS)

    assert rejected.value.reason == "selector_not_registered"


def test_a_policy_is_of_the_kind_of_its_operation() -> None:
    with pytest.raises(LabelError) as refused:
        Converter().integer(unsafe(1), policy=POLICY)
    assert refused.value.code == "conversion_malformed"
    with pytest.raises(LabelError) as refused:
        Converter().registered_id(unsafe("one"), policy=NUMBER, registry=IDS)
    assert refused.value.code == "conversion_digest_mismatch"


def test_a_conversion_and_its_registry_belong_together() -> None:
    other = RegisteredIds("ids", {"one": "id:9"})
    with pytest.raises(LabelError) as refused:
        Converter().registered_id(unsafe("one"), policy=POLICY, registry=other)

    assert refused.value.code == "conversion_digest_mismatch"


def test_a_list_of_unsafe_values_is_not_safe() -> None:
    with pytest.raises(LabelError) as refused:
        safe_list((constant("x"), unsafe("y")))  # type: ignore[arg-type]
    assert refused.value.code == "label_not_safe"
    with pytest.raises(LabelError) as refused:
        safe_list(("x",))  # type: ignore[arg-type]
    assert refused.value.code == "label_not_authentic"
    with pytest.raises(ConversionRejected):
        safe_list((constant("x"),) * (MAX_LIST_ITEMS + 1))


@pytest.mark.parametrize(
    "output", [IntegerOutput(minimum=1, maximum=0), IntegerOutput(minimum=0, maximum=2**53)]
)
def test_a_conversion_policy_is_of_its_form(output: IntegerOutput) -> None:
    with pytest.raises(LabelError) as refused:
        ConversionPolicy("x", output=output, maximum_source_bytes=1)
    assert refused.value.code == "conversion_malformed"
    with pytest.raises(LabelError):
        ConversionPolicy("", output=NUMBER.output, maximum_source_bytes=1)
