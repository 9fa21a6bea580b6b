"""An image is refused for what its configuration says, and for saying what nobody understands."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.engines.image_preflight import (
    MAX_IMAGE_BYTES,
    MAX_IMAGE_LAYERS,
    agent_protocols,
    check_image,
    forbidden_in,
    parse_image_config,
    parse_image_inspect,
)
from protocol.errors import Refusal

GOOD: dict[str, Any] = {
    "Architecture": "amd64",
    "Os": "linux",
    "Size": 1000,
    "RootFS": {"Type": "layers", "Layers": ["sha256:" + "0" * 64]},
    "Config": {"User": "10001:10001", "Labels": {"dev.airlock.agent-protocol": "1"}},
}


def inspect(config: dict[str, Any] | None = None, **fields: Any) -> bytes:
    document = {**GOOD, **fields}
    document["Config"] = {**GOOD["Config"], **(config or {})}
    return json.dumps([document]).encode()


def reasons(data: bytes, *, replaced: bool = False) -> tuple[str, ...]:
    return forbidden_in(
        parse_image_inspect(data),
        architecture="amd64",
        user_replaced=replaced,
        entrypoint_replaced=replaced,
    )


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (inspect({"Volumes": {"/data": {}}}), "volumes"),
        (inspect({"Healthcheck": {"Test": ["CMD", "true"]}}), "healthcheck"),
        (inspect(HealthCheck={"Test": ["CMD", "true"]}), "healthcheck"),
        (inspect({"User": ""}), "root_user"),
        (inspect({"User": "0"}), "root_user"),
        (inspect({"User": "00:10001"}), "root_user"),
        (inspect({"User": "root"}), "root_user"),
        (inspect({"User": "toor"}), "root_user"),
        (inspect({"Entrypoint": ["/entry"]}), "entrypoint"),
        (inspect(Architecture="arm64"), "architecture"),
        (inspect(Os="windows"), "operating_system"),
        (inspect(RootFS={"Layers": []}), "too_many_layers"),
        (inspect(RootFS={"Layers": ["x"] * (MAX_IMAGE_LAYERS + 1)}), "too_many_layers"),
        (inspect(Size=MAX_IMAGE_BYTES + 1), "too_large"),
    ],
)
def test_each_reason_alone_refuses(data: bytes, reason: str) -> None:
    assert reasons(data) == (reason,)
    with pytest.raises(Refusal) as refused:
        check_image(
            parse_image_inspect(data),
            architecture="amd64",
            user_replaced=False,
            entrypoint_replaced=False,
        )
    assert refused.value.code == "image_forbidden"


def test_what_the_command_line_replaces_does_not_count() -> None:
    data = inspect({"User": "root", "Entrypoint": ["/entry"]})

    assert reasons(data) == ("root_user", "entrypoint")
    assert reasons(data, replaced=True) == ()


def test_a_good_image_has_no_reason() -> None:
    assert reasons(inspect()) == ()
    assert reasons(inspect({"Volumes": None, "Labels": None, "Entrypoint": None})) == ()


@pytest.mark.parametrize(
    ("label", "versions"),
    [
        ("1", {1}),
        ("1,2", {1, 2}),
        ("", set()),
        ("1,", set()),
        ("1\n", set()),
        ("one", set()),
        ("²", set()),
        ("-1", set()),
        ("99999", set()),
    ],
)
def test_only_a_comma_list_of_versions_is_a_protocol(label: str, versions: set[int]) -> None:
    data = inspect({"Labels": {"dev.airlock.agent-protocol": label}})

    assert agent_protocols(parse_image_inspect(data)) == versions


@pytest.mark.parametrize(
    "document",
    [
        {},
        [],
        [GOOD, GOOD],
        [{"Config": []}],
        [{**GOOD, "Size": "big"}],
        [{**GOOD, "Os": None}],
        [{**GOOD, "RootFS": []}],
        [{**GOOD, "Config": {"User": 0}}],
        [{**GOOD, "Config": {"Labels": ["x"]}}],
    ],
)
def test_a_document_of_another_form_is_refused(document: object) -> None:
    with pytest.raises(Refusal):
        parse_image_inspect(json.dumps(document).encode())


@given(
    st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    ["Config", "config", "rootfs", "RootFS", "diff_ids", "Layers", "Labels", "User"]
                ),
                inner,
            )
        ),
    ).map(lambda value: json.dumps(value).encode())
)
def test_nothing_but_a_refusal_is_ever_raised(data: bytes) -> None:
    for parse in (parse_image_inspect, parse_image_config):
        with contextlib.suppress(Refusal):
            parse(data)
