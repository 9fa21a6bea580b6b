"""What the agent asks becomes an input: the plain encoding judges the composed bytes."""

import hashlib
import json
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.policy.canonical import canonical_value
from broker.policy.decision import Decision
from broker.policy.evaluator import evaluate
from broker.policy.labels import Dependency, Ref, Safe, Unsafe
from broker.policy.policy_input import PolicyInput, canonical_input
from broker.policy.readers import Readers
from broker.policy.tools import (
    AttemptMint,
    ConversionRejected,
    Principals,
    inference_input,
    list_input,
    patch_input,
    read_input,
    recipe_input,
    search_input,
)
from protocol.digest import canonical_json
from protocol.ids import Digest, Id
from tests.policy import attempt
from tests.policy.vectors import DATA, by_name

PATCH = b"--- a/src/a.py\n+++ b/src/a.py\n@@ -1 +1 @@\n-old\n+new\n"
PATCH_DIGEST = Digest("sha256:" + hashlib.sha256(PATCH).hexdigest())


def read(of: AttemptMint, path: object = "src/a.py", **numbers: object) -> PolicyInput:
    return read_input(of, attempt.paths(), attempt.request(), path=path, **numbers)


def patch(of: AttemptMint, *targets: Any, text: bytes = PATCH) -> PolicyInput:
    return patch_input(
        of,
        attempt.paths(),
        attempt.request(),
        source_digest=attempt.TREE,
        targets=targets or [("src/a.py", "modified"), ("src/new/c.py", "added")],
        patch_digest=PATCH_DIGEST,
        patch_bytes=text,
    )


def recipe(of: AttemptMint, recipe_id: object = "test") -> PolicyInput:
    return recipe_input(
        of, attempt.recipes(), attempt.request(), source_digest=attempt.TREE, recipe_id=recipe_id
    )


def prompt(of: AttemptMint, model: object = "main", readers: Readers | None = None) -> PolicyInput:
    return inference_input(
        of,
        attempt.routes(),
        attempt.request(),
        model=model,
        body_digest=Digest("sha256:" + "c" * 64),
        body_bytes=1000,
        readers=readers or of.request_readers,
    )


def listing(of: AttemptMint, prefix: object = "src") -> PolicyInput:
    return list_input(of, attempt.paths(), attempt.request(), prefix=prefix, cursor="x", limit=5)


def search(of: AttemptMint, prefix: object = "src") -> PolicyInput:
    return search_input(of, attempt.paths(), attempt.request(), query='"é\n', prefix=prefix)


EVERY = [
    lambda of: read(of),
    lambda of: read(of, offset=3, limit=70),
    lambda of: listing(of),
    lambda of: search(of),
    lambda of: patch(of),
    lambda of: recipe(of),
    lambda of: prompt(of),
]


def decided(policy_input: PolicyInput, of: AttemptMint) -> Decision:
    return evaluate(policy_input, facts=attempt.facts(of))


def plain(value: Any) -> Any:
    """The camel document of anything in an input, made of dicts: the second opinion."""
    match value:
        case Ref():
            digest = {} if value.digest is None else {"digest": value.digest}
            return {"kind": value.kind, "id": value.id, **digest}
        case Dependency():
            return {
                "ref": plain(value.ref),
                "influence": value.influence,
                "promptSafetyAtUse": value.safety_at_use,
            }
        case Readers():
            if value.members is None:
                return {"kind": "public"}
            return {"kind": "principals", "principalIds": list(value.members)}
        case Safe() | Unsafe():
            label = {
                "schemaVersion": 1,
                "promptSafety": "safe" if isinstance(value, Safe) else "unsafe",
                "readers": plain(value.readers),
                "provenance": [plain(one) for one in value.provenance],
                "dependencies": [plain(one) for one in value.dependencies],
            }
            document = {"value": plain(value.value), "label": label}
            if isinstance(value, Safe):
                label["safeBasis"] = value.basis
                if value.datum is not None:
                    document |= {
                        "kind": value.datum.kind,
                        "conversionId": value.datum.conversion_id,
                        "conversionDigest": value.datum.conversion_digest,
                        "conversionRecordId": value.datum.record_id,
                        "datumId": value.datum.datum_id,
                    }
            return document
        case dict() | MappingProxyType():
            return {name: plain(member) for name, member in value.items()}
        case tuple() | list():
            return [plain(one) for one in value]
        case _:
            return value


def document(policy_input: PolicyInput) -> dict[str, Any]:
    arguments = {}
    for one in policy_input.arguments:
        arguments[one.name] = {"role": one.role, "value": plain(one.value)}
        if one.registry is not None:
            arguments[one.name] |= dict(
                zip(("registryId", "registryDigest"), one.registry, strict=True)
            )
    context = policy_input.context
    return {
        "planId": context.plan_id,
        "tool": json.loads(policy_input.tool.body),
        "args": arguments,
        "controlDependencies": plain(context.control),
        "intendedReaderIds": plain(context.readers),
    }


@pytest.mark.parametrize("make", EVERY)
@pytest.mark.parametrize("providers", [(), ("provider:primary",)])
def test_the_composed_text_is_the_plain_canonical_encoding(make: Any, providers: Any) -> None:
    made = make(attempt.mint(*providers))

    assert canonical_input(made) == canonical_json(document(made))


def test_a_recipe_input_is_the_golden_one() -> None:
    vector = by_name("three_tools")["recipe: approval required"]
    of = AttemptMint(
        Id("at_01"),
        task_digest=Digest("Fix the failing test"),
        bundle_digest=attempt.BUNDLE,
        principals=Principals(owner=attempt.OWNER),
        task_id="task_1",
    )
    made = recipe_input(
        of, attempt.recipes(), attempt.request(3), source_digest=attempt.TREE, recipe_id="test"
    )

    assert canonical_input(made).decode() == vector["canonical"]
    assert evaluate(made, facts=attempt.facts(of)).action_digest == "sha256:" + vector["sha256"]


def test_a_read_input_differs_from_the_golden_one_in_its_registry_only() -> None:
    golden = json.loads(by_name("three_tools")["read: allow"]["canonical"])
    of = AttemptMint(
        Id("at_01"),
        task_digest=Digest("Fix the failing test"),
        bundle_digest=attempt.BUNDLE,
        principals=Principals(owner=attempt.OWNER),
        task_id="task_1",
    )
    made = json.loads(canonical_input(read(of, offset=0, limit=65536)))
    for side in (golden, made):
        file, handle = side["args"]["file"]["value"], side["args"]["handle"]["value"]
        for name in ("conversionDigest", "conversionRecordId", "datumId"):
            file.pop(name)
        file["label"]["provenance"][1].pop("digest")
        file.pop("value")
        handle["value"].pop("fileId")
        handle["label"]["provenance"][0].pop("id")

    assert golden == made


@pytest.mark.parametrize(
    ("make", "outcome"),
    [
        (lambda of: read(of), "allow"),
        (lambda of: listing(of), "allow"),
        (lambda of: search(of), "allow"),
        (lambda of: patch(of), "allow"),
        (lambda of: recipe(of), "require_approval"),
        (lambda of: prompt(of), "require_approval"),
    ],
)
def test_each_tool_is_decided_as_its_effect_says(make: Any, outcome: str) -> None:
    of = attempt.mint("provider:primary")

    assert decided(make(of), of).outcome == outcome


def test_target_ids_are_opaque_and_in_the_order_of_the_patch() -> None:
    made = patch(
        attempt.mint(),
        ("src/deep/b.py", "deleted"),
        ("src/a.py", "mode"),
        ("src/new/deep/c.py", "added"),
        ("top.txt", "added"),
    )

    assert made.subject.target_ids == ("file:000004", "file:000003", "dir:000002", "dir:000000")


ALIASES = [
    "/etc/passwd", "./src/a.py", "src//a.py", "src/../src/a.py", "src\\a.py", "SRC/a.py",
    "src/a.py ", "src/a.py.", "src/a.py\x00.png", "src/a.py\n", "src%2Fa.py", "cafe\u0301.py",
    ".env", "config/service-account.json", "node_modules/x/index.js", "constructor", "__proto__",
    "toString", "https://attacker.example/x", "", " ", "src", "src/", "~/x", "src/a.py\u202e",
    "\ud800", "a" * 1025, "a" * 1_000_000,
]  # fmt: skip


@pytest.mark.parametrize("path", ALIASES)
def test_what_is_not_named_exactly_is_not_there(path: str) -> None:
    with pytest.raises(ConversionRejected) as refused:
        read(attempt.mint(), path)

    assert refused.value.reason == "selector_not_registered"
    assert "src" not in str(refused.value)


CORPUS = [
    attack
    for attack in json.loads((DATA / "attack_corpus.json").read_text())["attacks"]
    if attack["stage"] == "conversion" and attack["request"].startswith("{")
]


@pytest.mark.parametrize("attack", CORPUS, ids=lambda attack: attack["id"])
def test_the_attacks_on_conversions_are_rejected_as_expected(attack: dict[str, Any]) -> None:
    of, asked = attempt.mint(), json.loads(attack["request"])
    ask = recipe if attack["tool"] == "recipe" else read
    name = asked.pop("recipe" if ask is recipe else "path", "src/a.py")
    with pytest.raises(ConversionRejected) as refused:
        ask(of, name, **asked)

    assert refused.value.reason == attack["expected_reason"]


@pytest.mark.parametrize("recipe_id", ["TEST", "test; curl x", "recipe:test", "constructor", ""])
def test_a_recipe_is_named_exactly(recipe_id: str) -> None:
    with pytest.raises(ConversionRejected) as refused:
        recipe(attempt.mint(), recipe_id)

    assert refused.value.reason == "selector_not_registered"


@pytest.mark.parametrize("model", ["MAIN", "https://attacker", "route:primary", "__proto__"])
def test_a_model_is_named_exactly(model: str) -> None:
    with pytest.raises(ConversionRejected) as refused:
        prompt(attempt.mint("provider:primary"), model)

    assert refused.value.reason == "selector_not_registered"


@pytest.mark.parametrize("number", [-1, 2**20 + 1, 10**400, True, False, 1.0, 0.5, "1", [1], {}])
def test_a_number_outside_of_its_range_is_rejected(number: object) -> None:
    with pytest.raises(ConversionRejected) as refused:
        read(attempt.mint(), offset=number)

    assert refused.value.reason == "selector_out_of_range"


@pytest.mark.parametrize("limit", [0, 65_537, 10**9])
def test_a_limit_has_a_range_of_its_own(limit: int) -> None:
    with pytest.raises(ConversionRejected) as refused:
        read(attempt.mint(), limit=limit)

    assert refused.value.reason == "selector_out_of_range"


@pytest.mark.parametrize("path", [None, 1, ["src/a.py"], {"value": "src/a.py"}, b"src/a.py"])
def test_a_path_is_text_or_nothing(path: object) -> None:
    with pytest.raises(ConversionRejected) as refused:
        read(attempt.mint(), path)

    assert refused.value.reason == "argument_schema_invalid"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"patch_bytes": b"x" * 262_145}, "payload_too_large"),
        ({"targets": [("src/a.py", "modified")] * 65}, "patch_too_many_files"),
        ({"targets": []}, "patch_malformed"),
        ({"patch_bytes": b"\xff"}, "patch_malformed"),
        ({"source_digest": attempt.NEXT_TREE}, "source_changed"),
        ({"targets": [("src/gone.py", "modified")]}, "selector_not_registered"),
    ],
)
def test_a_patch_is_rejected_before_it_is_an_input(change: Any, reason: str) -> None:
    given = {
        "source_digest": attempt.TREE,
        "targets": [("src/a.py", "modified")],
        "patch_digest": PATCH_DIGEST,
        "patch_bytes": PATCH,
    }
    with pytest.raises(ConversionRejected) as refused:
        patch_input(attempt.mint(), attempt.paths(), attempt.request(), **(given | change))

    assert refused.value.reason == reason


def test_a_query_and_a_cursor_are_bounded() -> None:
    of, registry, long = attempt.mint(), attempt.paths(), "x" * 4097
    with pytest.raises(ConversionRejected) as refused:
        search_input(of, registry, attempt.request(), query=long)
    assert refused.value.reason == "payload_too_large"
    with pytest.raises(ConversionRejected) as refused:
        list_input(of, registry, attempt.request(), cursor=long)
    assert refused.value.reason == "payload_too_large"


def test_text_that_json_cannot_carry_is_rejected_as_a_payload() -> None:
    with pytest.raises(ConversionRejected) as refused:
        search_input(attempt.mint(), attempt.paths(), attempt.request(), query="\udc00")

    assert refused.value.reason == "argument_schema_invalid"


def test_a_file_that_only_the_owner_may_read_is_denied() -> None:
    of = attempt.mint()

    assert decided(read(of, "keys/owner.txt"), of).reason == "reader_mismatch"
    assert decided(listing(of, "keys"), of).reason == "reader_mismatch"
    assert decided(search(of, ""), of).reason == "reader_mismatch"
    assert decided(listing(of, "src"), of).outcome == "allow"


def test_what_a_provider_may_not_read_is_not_readable_by_the_agent() -> None:
    of = attempt.mint("provider:primary")
    narrow = Readers((f"agent:{of.attempt_id}", attempt.OWNER, "broker"))
    registry = attempt.paths().replace(
        {}, tree_digest=attempt.TREE, restricted={"src/a.py": narrow}
    )
    made = read_input(of, registry, attempt.request(), path="src/a.py")

    assert decided(made, of).reason == "reader_mismatch"
    without = attempt.mint()
    made = read_input(without, registry, attempt.request(), path="src/a.py")
    assert decided(made, without).outcome == "allow"


def test_a_prompt_with_text_that_the_provider_may_not_read_is_denied() -> None:
    of = attempt.mint("provider:primary")

    assert decided(prompt(of, readers=Readers((attempt.OWNER,))), of).reason == "reader_mismatch"


def test_a_prompt_to_a_provider_that_was_not_named_needs_a_reader() -> None:
    of = attempt.mint("provider:other")

    assert decided(prompt(of), of).reason == "reader_required"


def test_the_effect_key_knows_no_request_and_the_decision_id_knows_it() -> None:
    of = attempt.mint()
    one, two = (
        decided(
            recipe_input(
                of,
                attempt.recipes(),
                attempt.request(number),
                source_digest=attempt.TREE,
                recipe_id="test",
            ),
            of,
        )
        for number in (1, 2)
    )

    assert one.effect_key == two.effect_key
    assert one.decision_id != two.decision_id
    assert one.action_digest != two.action_digest
    assert len(one.decision_id) == len("decision_") + 64


@given(st.text(), st.one_of(st.none(), st.integers()), st.one_of(st.none(), st.integers()))
def test_any_read_is_an_input_or_a_rejection(path: str, offset: Any, limit: Any) -> None:
    of = attempt.mint()
    try:
        made = read(of, path, offset=offset, limit=limit)
    except ConversionRejected:
        return

    assert decided(made, of).outcome in ("allow", "deny")
    assert canonical_input(made) == canonical_json(document(made))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(),
        lambda inner: (
            st.lists(inner).map(tuple)
            | st.dictionaries(st.from_regex("[a-z][A-Za-z_]{0,5}", fullmatch=True), inner)
        ),
    )
)
def test_canonical_text_of_closed_names_is_sorted_json(value: Any) -> None:
    assert canonical_value(value) == canonical_json(value)
