"""What an image's configuration may say before it is run: a pure judgement of a parsed document.

Reads neither the image nor the engine; a configuration that is not understood is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from protocol.errors import Refusal

ForbiddenReason = Literal[
    "volumes",
    "healthcheck",
    "root_user",
    "entrypoint",
    "architecture",
    "operating_system",
    "too_many_layers",
    "too_large",
]
"""Why an image's configuration is not allowed."""

#: Overlay mounts stop at 128 lower folders on old kernels; engines add some of their own.
MAX_IMAGE_LAYERS: Final = 100
#: An agent with a language runtime and its tools; beyond that it is not an adapter any more.
MAX_IMAGE_BYTES: Final = 8 * 1024**3
#: An inspect document is a few kilobytes; labels and history can make it longer.
MAX_INSPECT_BYTES: Final = 1024 * 1024

_PROTOCOL_LABEL: Final = "dev.airlock.agent-protocol"
#: ``quarantine``: the image's runtime may print before its first frame (protocol.md 3.9).
_NOISE_LABEL: Final = "dev.airlock.stdout-noise"
_MAX_VERSION_DIGITS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageConfig:
    """The parts of an image's configuration that something is decided on."""

    architecture: str
    operating_system: str
    user: str
    volumes: bool
    healthcheck: bool
    entrypoint: bool
    layers: int
    size_bytes: int | None  #: ``None`` where the document does not say
    protocol_label: str
    noise_label: str

    @property
    def quarantines_noise(self) -> bool:
        """Whether text before the first frame is dropped, not a violation."""
        return self.noise_label == "quarantine"


def parse_image_inspect(data: bytes) -> ImageConfig:
    """One image of ``podman|docker image inspect``, or ``Refusal("image_forbidden")``."""
    document = _decode(data)
    match document:
        case [{"Config": {} as config} as image]:
            layers = _mapping(image.get("RootFS")).get("Layers")
            size = image.get("Size")
            return _image_config(
                config,
                architecture=image.get("Architecture"),
                operating_system=image.get("Os"),
                layers=layers,
                size=size,
                healthcheck=image.get("HealthCheck"),
            )
        case _:
            raise Refusal("image_forbidden")


def parse_image_config(data: bytes) -> ImageConfig:
    """An OCI image configuration, or ``Refusal("image_forbidden")``."""
    document = _decode(data)
    match document:
        case {"config": {} as config, "rootfs": {"diff_ids": layers}}:
            return _image_config(
                config,
                architecture=document.get("architecture"),
                operating_system=document.get("os"),
                layers=layers,
                size=None,
                healthcheck=None,
            )
        case _:
            raise Refusal("image_forbidden")


def forbidden_in(
    config: ImageConfig, *, architecture: str, user_replaced: bool, entrypoint_replaced: bool
) -> tuple[ForbiddenReason, ...]:
    """Every reason against running ``config`` on ``architecture`` (in OCI words); none is a yes.

    ``user_replaced`` and ``entrypoint_replaced`` say that the engine's command line names its
    own, so that the image's does not count.
    """
    size = config.size_bytes or 0
    checks: tuple[tuple[bool, ForbiddenReason], ...] = (
        (config.volumes, "volumes"),
        (config.healthcheck, "healthcheck"),
        (not user_replaced and _is_root(config.user), "root_user"),
        (not entrypoint_replaced and config.entrypoint, "entrypoint"),
        (config.architecture != architecture, "architecture"),
        (config.operating_system != "linux", "operating_system"),
        (not 1 <= config.layers <= MAX_IMAGE_LAYERS, "too_many_layers"),
        (size > MAX_IMAGE_BYTES, "too_large"),
    )
    return tuple(reason for found, reason in checks if found)


def check_image(
    config: ImageConfig, *, architecture: str, user_replaced: bool, entrypoint_replaced: bool
) -> None:
    """Nothing, or ``Refusal("image_forbidden")`` if there is a reason against ``config``."""
    if forbidden_in(
        config,
        architecture=architecture,
        user_replaced=user_replaced,
        entrypoint_replaced=entrypoint_replaced,
    ):
        raise Refusal("image_forbidden")


def agent_protocols(config: ImageConfig) -> frozenset[int]:
    """The protocol versions that the image's label offers; a malformed label offers none."""
    parts = config.protocol_label.split(",")
    if not all(
        part.isascii() and part.isdigit() and len(part) <= _MAX_VERSION_DIGITS for part in parts
    ):
        return frozenset()
    return frozenset(int(part) for part in parts)


def _image_config(
    config: Mapping[str, Any],
    *,
    architecture: object,
    operating_system: object,
    layers: object,
    size: object,
    healthcheck: object,
) -> ImageConfig:
    if not isinstance(layers, list) or not isinstance(size, int | None):
        raise Refusal("image_forbidden")
    labels = _mapping(config.get("Labels"))
    return ImageConfig(
        architecture=_text(architecture),
        operating_system=_text(operating_system),
        user=_text(config.get("User", "")),
        volumes=bool(config.get("Volumes")),
        healthcheck=bool(config.get("Healthcheck")) or bool(healthcheck),
        entrypoint=bool(config.get("Entrypoint")),
        layers=len(layers),
        size_bytes=size,
        protocol_label=_text(labels.get(_PROTOCOL_LABEL, "")),
        noise_label=_text(labels.get(_NOISE_LABEL, "")),
    )


def _is_root(user: str) -> bool:
    """Whether ``USER[:GROUP]`` is root or cannot be told from it: names are the image's own."""
    name = user.partition(":")[0]
    return not (name.isascii() and name.isdigit() and int(name) != 0)


def _decode(data: bytes) -> Any:
    if len(data) > MAX_INSPECT_BYTES:
        raise Refusal("image_forbidden")
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        raise Refusal("image_forbidden") from None


def _mapping(value: object) -> Mapping[str, Any]:
    """``value`` as a JSON object; absent is empty, anything else is refused."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Refusal("image_forbidden")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise Refusal("image_forbidden")
    return value
