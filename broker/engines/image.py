"""Local images: built offline from this machine's own files, known by their digest before any load.

Builds and loads; never pulls, never runs an image, and never trusts a tag.
"""

import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from broker.engines.bundle import ADAPTER_COMMAND, ADAPTER_MOUNT, Bundle, describe_folder
from broker.engines.image_archive import ImageSettings, write_archive
from broker.engines.image_closure import SANDBOX_USER, ImageEntry, complete, host_closure
from protocol.digest import DIGEST_PREFIX, canonical_json
from protocol.errors import Fault, Refusal
from protocol.ids import Digest, parse_digest, parse_id

#: The protocol versions that an image speaks, as a comma list (protocol.md 3.3, ``task.start``).
PROTOCOL_LABEL: Final = "dev.airlock.agent-protocol"
ADAPTER_LABEL: Final = "dev.airlock.adapter-digest"

#: The name of the image that has no adapter: the tools that recipes run with.
RECIPE_IMAGE: Final = "recipe"

#: A load copies a few dozen megabytes and takes a second; a store that is locked takes longer.
_ENGINE_SECONDS: Final = 300
_PATH: Final = "PATH=/usr/local/bin:/usr/bin:/bin"
_REPOSITORY: Final = "localhost/airlock-"
_RECORD_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalImage:
    """An image archive of this machine, and all three digests that name what is in it."""

    name: str  #: ``localhost/airlock-NAME:<12 hex of the configuration digest>``, for people
    config_digest: Digest  #: what podman and older docker call the image's id
    manifest_digest: Digest  #: what newer docker calls the image's id
    diff_ids: tuple[Digest, ...]
    adapter_digest: Digest | None
    archive: Path

    @property
    def reference(self) -> Digest:
        """What an engine is told to run: the configuration digest, never a tag."""
        return self.config_digest


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What is kept beside an archive."""

    name: str
    config_digest: str
    manifest_digest: str
    diff_ids: tuple[str, ...]
    adapter_digest: str | None


def build_image(name: str, *, state: Path, bundle: Bundle | None) -> LocalImage:
    """Build the image of ``bundle``, or the recipe image without one, below ``state/images``.

    Offline: the layer is Python and a few tools of this machine, plus the bundle at
    ``/adapter``. The same machine and bundle give the same bytes. Raises
    ``Refusal("unsupported")`` when this machine's Python cannot be packed, and
    ``Fault("store_unwritable")``.
    """
    parse_id(name)
    entries = complete((*host_closure(), *(_bundle_entries(bundle) if bundle else ())))
    store = state / "images"
    try:
        store.mkdir(mode=0o755, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=store, prefix=".new-") as scratch:
            fresh = Path(scratch) / "image.tar"
            digests = write_archive(
                fresh, repository=_REPOSITORY + name, entries=entries, settings=_settings(bundle)
            )
            image = LocalImage(
                name=digests.name,
                config_digest=digests.config,
                manifest_digest=digests.manifest,
                diff_ids=digests.diff_ids,
                adapter_digest=bundle.digest if bundle else None,
                archive=store / f"{digests.config.removeprefix(DIGEST_PREFIX)}.tar",
            )
            record = Path(scratch) / "image.json"
            record.write_bytes(_write_record(image))
            for path in (fresh, record):
                path.chmod(0o644)
            fresh.rename(image.archive)
            record.rename(image.archive.with_suffix(".json"))
    except OSError as error:
        raise Fault("store_unwritable") from error
    return image


def list_images(state: Path) -> tuple[LocalImage, ...]:
    """The images that were built below ``state``, sorted by name. A damaged record is left out."""
    images = []
    for record in sorted((state / "images").glob("*.json")):
        image = _read_record(record)
        if image is not None and image.archive.is_file():
            images.append(image)
    return tuple(sorted(images, key=lambda image: image.name))


def load_image(engine: Sequence[str], image: LocalImage, *, environment: Mapping[str, str]) -> None:
    """Put ``image`` into the store of the engine that ``engine`` starts, unless it is there.

    ``engine`` is an argument vector up to, not including, the subcommand. What is in the
    store afterwards has the predicted id, else ``Fault("engine_failed")``.
    """
    if is_loaded(engine, image.reference, environment=environment):
        return
    status, _ = _run((*engine, "load", "--quiet", "--input", str(image.archive)), environment)
    if status != 0 or not is_loaded(engine, image.reference, environment=environment):
        raise Fault("engine_failed")


def is_loaded(engine: Sequence[str], reference: str, *, environment: Mapping[str, str]) -> bool:
    """Whether the engine's own store has the image ``sha256:<configuration digest>``. No pull."""
    wanted = parse_digest(reference)
    command = (*engine, "image", "inspect", "--format", "{{.Id}}", wanted)
    status, output = _run(command, environment)
    return status == 0 and output.strip().removeprefix(DIGEST_PREFIX.encode()) == (
        wanted.removeprefix(DIGEST_PREFIX).encode()
    )


def _bundle_entries(bundle: Bundle) -> list[ImageEntry]:
    place = ADAPTER_MOUNT.removeprefix("/")
    return [
        ImageEntry(f"{place}/{file.path}", file.mode, bundle.folder / file.path)
        for file in describe_folder(bundle.folder)
    ]


def _settings(bundle: Bundle | None) -> ImageSettings:
    labels: tuple[tuple[str, str], ...] = ()
    if bundle is not None:
        labels = ((ADAPTER_LABEL, bundle.digest), (PROTOCOL_LABEL, "1"))
    return ImageSettings(
        command=ADAPTER_COMMAND if bundle else ("/bin/sh",),
        user=f"{SANDBOX_USER}:{SANDBOX_USER}",
        environment=(_PATH,),
        labels=labels,
    )


def _write_record(image: LocalImage) -> bytes:
    return canonical_json(
        _Record(
            name=image.name,
            config_digest=image.config_digest,
            manifest_digest=image.manifest_digest,
            diff_ids=image.diff_ids,
            adapter_digest=image.adapter_digest,
        )
    )


def _read_record(path: Path) -> LocalImage | None:
    """The record at ``path``, or ``None``: it must describe the archive beside it."""
    with path.open("rb") as stream:
        data = stream.read(_RECORD_BYTES)
    try:
        record = msgspec.json.decode(data, type=_Record)
        config = parse_digest(record.config_digest)
        image = LocalImage(
            name=record.name,
            config_digest=config,
            manifest_digest=parse_digest(record.manifest_digest),
            diff_ids=tuple(parse_digest(text) for text in record.diff_ids),
            adapter_digest=parse_digest(record.adapter_digest) if record.adapter_digest else None,
            archive=path.with_suffix(".tar"),
        )
    except (msgspec.MsgspecError, Refusal):
        return None
    return image if path.stem == config.removeprefix(DIGEST_PREFIX) else None


def _run(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, bytes]:
    """Run an engine's own command; its words go nowhere, its status and output come back."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(environment),
            timeout=_ENGINE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Fault("engine_failed") from error
    return done.returncode, done.stdout
