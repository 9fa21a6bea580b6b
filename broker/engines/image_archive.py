"""A one-layer OCI archive whose every byte follows from its entries; no engine, no clock.

The layer is hashed while it is written, and its name is put in front of it afterwards,
so each file of the host is read once and nothing is written twice.
"""

import hashlib
import io
import os
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from broker.engines.image_closure import ImageEntry
from protocol.digest import DIGEST_PREFIX, canonical_json, digest_bytes
from protocol.ids import Digest

#: A fixed moment: an image says what it is, not when it was made.
_CREATED: Final = "1970-01-01T00:00:00Z"
_BLOCK: Final = tarfile.BLOCKSIZE
_ARCHITECTURES: Final[Mapping[str, str]] = {"x86_64": "amd64", "aarch64": "arm64"}
_MANIFEST_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
_CONFIG_TYPE: Final = "application/vnd.oci.image.config.v1+json"
_LAYER_TYPE: Final = "application/vnd.oci.image.layer.v1.tar"
_NAME_DIGITS: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSettings:
    """What an image's configuration says besides its layer."""

    command: tuple[str, ...]
    user: str
    environment: tuple[str, ...]
    labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveDigests:
    """What a written archive is: its name carries the configuration's digest."""

    name: str
    config: Digest
    manifest: Digest
    diff_ids: tuple[Digest, ...]


class _Hashing(io.RawIOBase):
    """Passes bytes on and keeps their digest."""

    def __init__(self, target: BinaryIO) -> None:
        super().__init__()
        self._target = target
        self._state = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: "bytes | bytearray | memoryview") -> int:  # type: ignore[override]
        self._state.update(data)
        return self._target.write(data)

    def digest(self) -> Digest:
        return Digest(DIGEST_PREFIX + self._state.hexdigest())


def write_archive(
    target: Path, *, repository: str, entries: Sequence[ImageEntry], settings: ImageSettings
) -> ArchiveDigests:
    """Write ``entries``, sorted by path, as an image to ``target`` and say what it is.

    Readable as an OCI archive and as the archive that ``docker load`` takes. The same
    entries and settings give the same bytes.
    """
    with open(target, "wb") as stream:
        stream.write(bytes(_BLOCK))  # the layer's header, once its digest is known
        layer = _Hashing(stream)
        _write_layer(layer, entries)
        size = stream.tell() - _BLOCK
        diff_id = layer.digest()
        stream.seek(0)
        stream.write(_header(_blob_path(diff_id), size))
        stream.seek(0, os.SEEK_END)
        _pad(stream, size)
        config = canonical_json(_config(diff_id, settings))
        manifest = canonical_json(_manifest(config, diff_id, size))
        name = f"{repository}:{digest_bytes(config).removeprefix(DIGEST_PREFIX)[:_NAME_DIGITS]}"
        for path, data in (
            (_blob_path(digest_bytes(config)), config),
            (_blob_path(digest_bytes(manifest)), manifest),
            ("index.json", canonical_json(_index(manifest, name))),
            ("manifest.json", canonical_json(_docker_manifest(config, diff_id, name))),
            ("oci-layout", canonical_json({"imageLayoutVersion": "1.0.0"})),
        ):
            stream.write(_header(path, len(data)))
            stream.write(data)
            _pad(stream, len(data))
        stream.write(bytes(2 * _BLOCK))
    return ArchiveDigests(
        name=name, config=digest_bytes(config), manifest=digest_bytes(manifest), diff_ids=(diff_id,)
    )


def machine_architecture() -> str:
    """This machine's architecture in the words of OCI."""
    machine = os.uname().machine
    return _ARCHITECTURES.get(machine, machine)


def _write_layer(target: _Hashing, entries: Sequence[ImageEntry]) -> None:
    with tarfile.open(fileobj=target, mode="w|", format=tarfile.PAX_FORMAT) as layer:
        for entry in entries:
            _write_entry(layer, entry)


def _write_entry(layer: tarfile.TarFile, entry: ImageEntry) -> None:
    member = tarfile.TarInfo(entry.path)
    member.mode = entry.mode
    if entry.link is not None:
        member.type = tarfile.SYMTYPE
        member.linkname = entry.link
        layer.addfile(member)
    elif entry.content is None:
        member.type = tarfile.DIRTYPE
        layer.addfile(member)
    else:
        content = entry.content if isinstance(entry.content, bytes) else entry.content.read_bytes()
        member.size = len(content)
        layer.addfile(member, io.BytesIO(content))


def _header(path: str, size: int) -> bytes:
    member = tarfile.TarInfo(path)
    member.size = size
    member.mode = 0o644
    return member.tobuf(tarfile.USTAR_FORMAT)


def _pad(stream: BinaryIO, size: int) -> None:
    stream.write(bytes(-size % _BLOCK))


def _blob_path(digest: Digest) -> str:
    return f"blobs/sha256/{digest.removeprefix(DIGEST_PREFIX)}"


def _config(diff_id: Digest, settings: ImageSettings) -> dict[str, object]:
    return {
        "architecture": machine_architecture(),
        "config": {
            "Cmd": list(settings.command),
            "Env": list(settings.environment),
            "Labels": dict(settings.labels),
            "User": settings.user,
            "WorkingDir": "/tmp",
        },
        "created": _CREATED,
        "history": [{"created": _CREATED, "created_by": "airlock image build"}],
        "os": "linux",
        "rootfs": {"diff_ids": [diff_id], "type": "layers"},
    }


def _manifest(config: bytes, layer: Digest, layer_size: int) -> dict[str, object]:
    return {
        "config": {"digest": digest_bytes(config), "mediaType": _CONFIG_TYPE, "size": len(config)},
        "layers": [{"digest": layer, "mediaType": _LAYER_TYPE, "size": layer_size}],
        "mediaType": _MANIFEST_TYPE,
        "schemaVersion": 2,
    }


def _index(manifest: bytes, name: str) -> dict[str, object]:
    reference = {
        "annotations": {"org.opencontainers.image.ref.name": name},
        "digest": digest_bytes(manifest),
        "mediaType": _MANIFEST_TYPE,
        "size": len(manifest),
    }
    return {"manifests": [reference], "schemaVersion": 2}


def _docker_manifest(config: bytes, layer: Digest, name: str) -> list[dict[str, object]]:
    return [
        {
            "Config": _blob_path(digest_bytes(config)),
            "Layers": [_blob_path(layer)],
            "RepoTags": [name],
        }
    ]
