"""The golden vectors, built with our own types; what we do not make raises ``Unsupported``."""

import json
from pathlib import Path
from typing import Any

from broker.policy.canonical import LabelError, Value
from broker.policy.conversion_policy import ConversionPolicy, IntegerOutput, RegisteredIdOutput
from broker.policy.conversions import Converter, safe_list
from broker.policy.decision import RequestRef, Subject
from broker.policy.descriptors import DescriptorTable, ToolDescriptor
from broker.policy.evaluator import APPROVAL_EFFECTS, Facts
from broker.policy.ingress import Ingress
from broker.policy.labels import Dependency, Ref
from broker.policy.policy_input import Argument, Context, PolicyInput, ordered
from broker.policy.readers import Readers
from broker.policy.registry import DestinationRegistry, RegisteredIds
from protocol.ids import Digest, Id

DATA = Path(__file__).parent.parent / "data"
REQUEST = RequestRef(1, Id("req_1"), Digest("sha256:" + "d" * 64))
BUNDLE = Digest("sha256:" + "b" * 64)


class Unsupported(Exception):
    """The vector needs something that the strict face does not have."""


def load(name: str) -> list[dict[str, Any]]:
    document = json.loads((DATA / f"{name}.json").read_text())
    return list(document.get("vectors") or document["divergences"])


def by_name(name: str) -> dict[str, dict[str, Any]]:
    return {vector["name"]: vector for vector in load(name)}


def plain(value: Any) -> Any:
    """A vector's value as ours: ``$js`` objects, ``$repeat`` and lists resolved."""
    if isinstance(value, dict):
        if "$js" in value:
            if value["$js"] != "object":
                raise Unsupported
            return {key: plain(member) for key, member in value["entries"]}
        if "$repeat" in value:
            return (value["$repeat"] * value["count"])[: value["slice"]]
        return {key: plain(member) for key, member in value.items()}
    if isinstance(value, list):
        return tuple(map(plain, value))
    return value


def readers(value: dict[str, Any]) -> Readers:
    return Readers(None if value["kind"] == "public" else value["principalIds"])


def ref(value: dict[str, Any]) -> Ref:
    return Ref(value["kind"], value["id"], value.get("digest"))


def policy(value: dict[str, Any]) -> ConversionPolicy:
    output: IntegerOutput | RegisteredIdOutput
    match value["output"]:
        case {"kind": "integer", "minimum": minimum, "maximum": maximum}:
            output = IntegerOutput(minimum=minimum, maximum=maximum)
        case {"kind": "registered_id", "registryId": registry_id, "registryDigest": digest}:
            output = RegisteredIdOutput(registry_id=registry_id, registry_digest=digest)
        case _:
            raise Unsupported
    if value["presentation"] != "json_scalar":
        raise Unsupported
    return ConversionPolicy(
        value["conversionId"],
        output=output,
        maximum_source_bytes=value["maximumSourceBytes"],
        version=value["version"],
        maximum_outputs=value["maximumOutputsPerArtifact"],
    )


class Builder:
    """The values of one vector, by name."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._ingress = Ingress()
        self._converter = Converter()
        self.made: dict[str, Any] = {}
        for name, recipe in values.items():
            self.made[name] = self.build(recipe)

    def build(self, recipe: dict[str, Any]) -> Any:
        value: Value = plain(recipe.get("value"))
        match recipe["ctor"]:
            case "control":
                return self._ingress.constant(
                    value, identity=recipe["id"], readers=readers(recipe["readers"])
                )
            case "user_instruction" | "system_policy" as kind:
                made = getattr(self._ingress, kind)
                return made(value, identity=recipe["id"], readers=readers(recipe["readers"]))
            case "external":
                return self._ingress.external(
                    value,
                    readers=readers(recipe["readers"]),
                    provenance=tuple(map(ref, recipe["provenance"])),
                    dependencies=tuple(
                        Dependency(ref(one["ref"]), one["influence"], one["promptSafetyAtUse"])
                        for one in recipe.get("dependencies", ())
                    ),
                )
            case "quarantined_output":
                return self._ingress.quarantined_output(
                    value,
                    run_id=recipe["runId"],
                    digest=recipe.get("digest"),
                    readers=readers(recipe["readers"]),
                )
            case "conversion":
                return self._conversion(recipe)
            case "safe_list":
                return safe_list(tuple(self.made[name] for name in recipe["inputs"]))
            case "forged":
                return recipe["object"]
            case _:
                raise Unsupported

    def _conversion(self, recipe: dict[str, Any]) -> Any:
        source = self.made[recipe["source"]]
        found = next(
            one
            for one in recipe["registry"]["policies"]
            if one["conversionId"] == recipe["conversionId"]
        )
        match recipe["op"]:
            case "integer":
                return self._converter.integer(source, policy=policy(found))
            case "registeredId":
                registry_id = found["output"]["registryId"]
                ids = recipe["registry"]["registeredIds"][registry_id]["values"]
                return self._converter.registered_id(
                    source, policy=policy(found), registry=RegisteredIds(registry_id, ids)
                )
            case _:
                raise Unsupported


def descriptor(value: dict[str, Any]) -> ToolDescriptor:
    """A descriptor; a policy that confines Unsafe selectors is left out, we have none."""
    return ToolDescriptor(
        value["name"],
        version=value["version"],
        effect=value["effect"],
        policy_id=value["policyId"],
        input_schema=plain(value["inputSchema"]),
        argument_roles=value["argumentRoles"],
    )


def built(
    vector: dict[str, Any], *, tools: DescriptorTable | None = None, untrusted: bool = False
) -> tuple[PolicyInput, Facts]:
    """The input and the facts of one effect vector.

    Without ``tools`` the vector's descriptor is registered, if it is well formed.
    """
    values = Builder(vector["values"]).made
    given = vector["input"]
    if set(given) - {"planId", "tool", "args", "controlDependencies", "intendedReaderIds"}:
        raise Unsupported
    tool = descriptor(given["tool"])
    if tools is None:
        try:
            tools = DescriptorTable((tool,))
        except LabelError:
            tools = DescriptorTable(())
    else:
        found = tools.find(tool.name)
        tool = found if found is not None and found.digest == tool.digest else tool
    intended = given.get("intendedReaderIds")
    arguments = ordered(
        Argument(
            name,
            one["role"],
            values[one["value"][1:]],
            (one["registryId"], one["registryDigest"]) if "registryId" in one else None,
        )
        for name, one in given["args"].items()
    )
    context = Context(
        given["planId"],
        tuple(values[name[1:]] for name in given["controlDependencies"]),
        None if intended is None else tuple(values[name[1:]] for name in intended),
    )
    subject = Subject(Digest("sha256:" + "7" * 64))
    policy_input = PolicyInput(context, tool, arguments, REQUEST, subject)
    return policy_input, facts(vector["config"], tools, untrusted=untrusted)


def facts(config: dict[str, Any], tools: DescriptorTable, *, untrusted: bool) -> Facts:
    registries = []
    for name, one in config.get("destinationRegistries", {}).items():
        registry = DestinationRegistry(name, one["values"])
        if registry.digest == one["digest"]:
            registries.append(registry)
    return Facts(
        attempt_id=Id("at_01"),
        bundle_digest=BUNDLE,
        tools=tools,
        destinations=tuple(registries),
        untrusted_control=untrusted,
        approval_effects=frozenset(config.get("approvalEffects", APPROVAL_EFFECTS)),
    )
