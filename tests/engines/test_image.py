"""A local image is built offline, twice the same, and loads as what was predicted."""

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.engines.bundle import Bundle, build_bundle
from broker.engines.image import LocalImage, build_image, is_loaded, list_images, load_image
from broker.engines.image_archive import ImageSettings, write_archive
from broker.engines.image_closure import ImageEntry, complete, host_closure
from broker.engines.image_elf import parse_elf
from broker.engines.image_host import host_root_digest
from broker.engines.image_preflight import agent_protocols, forbidden_in, parse_image_config
from protocol.errors import Fault, Refusal

ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def bundle(state: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    source = tmp_path_factory.mktemp("adapter")
    (source / "__main__.py").write_text(
        "import asyncio, ctypes, hashlib, json, os, sqlite3, ssl, subprocess, sys, unittest\n"
        "tools = subprocess.run(['sh', '-c', 'ls / | wc -l; sed --version | head -1'],"
        " capture_output=True, check=True)\n"
        "print(json.dumps({'uid': os.getuid(), 'path': sys.path[0], 'tools': len(tools.stdout)}))\n"
    )
    return build_bundle("probe", source=source, state=state)


@pytest.fixture(scope="module")
def image(state: Path, bundle: Bundle) -> LocalImage:
    return build_image("fixture", state=state, bundle=bundle)


@pytest.fixture(scope="module")
def podman() -> Iterator[list[str]]:
    """The start of a podman command line with a store of its own."""
    if shutil.which("podman") is None or os.geteuid() != 0:
        if os.environ.get("CI"):
            pytest.fail("podman as root is required in CI")
        pytest.skip("podman as root is not available")
    # podman refuses a run folder whose path is longer than 50 characters.
    store = Path(tempfile.mkdtemp(prefix="ap-"))
    runtime = ("--runtime", "runc") if shutil.which("runc") else ()
    command = ["podman", "--root", str(store / "root"), "--runroot", str(store / "run")]
    command += ["--storage-driver", "overlay", "--cgroup-manager=cgroupfs", *runtime]
    yield command
    subprocess.run(
        [*command, "rmi", "--all", "--force"], capture_output=True, check=False, env=ENVIRONMENT
    )
    shutil.rmtree(store, ignore_errors=True)


def read_archive(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        files: dict[str, bytes] = {}
        for member in archive.getmembers():
            stream = archive.extractfile(member)
            assert stream is not None
            files[member.name] = stream.read()
    return files


def test_the_same_input_gives_the_same_bytes(
    tmp_path: Path, image: LocalImage, bundle: Bundle
) -> None:
    again = build_image("fixture", state=tmp_path, bundle=bundle)

    assert again.archive.read_bytes() == image.archive.read_bytes()
    assert again.config_digest == image.config_digest


def test_the_digests_are_those_of_the_archive(image: LocalImage) -> None:
    files = read_archive(image.archive)
    index = json.loads(files["index.json"])
    for name, data in files.items():
        if name.startswith("blobs/sha256/"):
            assert name.removeprefix("blobs/sha256/") == hashlib.sha256(data).hexdigest()
    (entry,) = index["manifests"]
    manifest = json.loads(files["blobs/sha256/" + entry["digest"][7:]])
    config = json.loads(files["blobs/sha256/" + manifest["config"]["digest"][7:]])

    assert entry["digest"] == image.manifest_digest
    assert manifest["config"]["digest"] == image.config_digest
    assert tuple(config["rootfs"]["diff_ids"]) == image.diff_ids
    assert [layer["digest"] for layer in manifest["layers"]] == list(image.diff_ids)
    assert image.name == f"localhost/airlock-fixture:{image.config_digest[7:19]}"
    assert entry["annotations"]["org.opencontainers.image.ref.name"] == image.name
    assert image.reference == image.config_digest


def test_the_layer_says_nothing_about_who_built_it_or_when(
    image: LocalImage, tmp_path: Path
) -> None:
    layer = read_archive(image.archive)["blobs/sha256/" + image.diff_ids[0][7:]]
    (tmp_path / "layer.tar").write_bytes(layer)
    with tarfile.open(tmp_path / "layer.tar") as archive:
        members = archive.getmembers()
    names = [member.name for member in members]

    assert names == sorted(set(names))
    assert {(m.mtime, m.uid, m.gid, m.uname, m.gname) for m in members} == {(0, 0, 0, "", "")}
    assert {"proc", "dev", "tmp", "work", "etc", "etc/passwd", "adapter/__main__.py"} <= set(names)
    assert not [name for name in names if "__pycache__" in name or "/idlelib" in name]
    assert not [m for m in members if m.mode & 0o6000 or not (m.isfile() or m.isdir() or m.issym())]


def test_its_own_configuration_passes_the_preflight_check(image: LocalImage) -> None:
    files = read_archive(image.archive)
    config = parse_image_config(files["blobs/sha256/" + image.config_digest[7:]])

    reasons = forbidden_in(
        config,
        architecture=config.architecture,
        user_replaced=False,
        entrypoint_replaced=False,
    )

    assert reasons == ()
    assert agent_protocols(config) == {1}


def test_the_recipe_image_has_no_adapter_and_speaks_no_protocol(tmp_path: Path) -> None:
    recipe = build_image("recipe", state=tmp_path, bundle=None)
    files = read_archive(recipe.archive)
    config = json.loads(files["blobs/sha256/" + recipe.config_digest[7:]])

    assert recipe.adapter_digest is None
    assert not config["config"]["Labels"]
    assert {"Volumes", "Healthcheck", "Entrypoint"}.isdisjoint(config["config"])


def test_images_are_listed_from_records_that_match_their_archive(
    tmp_path: Path, bundle: Bundle
) -> None:
    built = build_image("fixture", state=tmp_path, bundle=bundle)
    record = built.archive.with_suffix(".json")
    (tmp_path / "images" / f"{'0' * 64}.json").write_bytes(record.read_bytes())
    (tmp_path / "images" / f"{'1' * 64}.json").write_text("not json")

    assert list_images(tmp_path) == (built,)

    built.archive.unlink()

    assert list_images(tmp_path) == ()
    assert list_images(tmp_path / "nothing") == ()


def test_the_closure_is_what_the_loader_itself_would_load() -> None:
    """The judge is the loader of this machine: ``ld.so --list`` on the interpreter."""
    entries = {entry.path: entry for entry in host_closure()}
    python = Path("/usr/bin/python3").resolve()
    loader = parse_elf(python.read_bytes()).loader
    assert loader is not None
    listed = subprocess.run([loader, "--list", str(python)], capture_output=True, check=True)
    needed = [
        Path(line.split("=>")[1].split("(")[0].strip())
        for line in listed.stdout.decode().splitlines()
        if "=>" in line and "/" in line.split("=>")[1]
    ]

    assert needed
    for library in needed:
        place = str(library.parent.resolve() / library.name).removeprefix("/")
        assert entries[place].content == library.resolve()


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"#!/bin/sh\n", b"\x7fELF\x01\x01" + bytes(60)])
def test_what_is_not_a_64_bit_elf_file_is_refused(data: bytes) -> None:
    with pytest.raises(Refusal) as refused:
        parse_elf(data)

    assert refused.value.code == "unsupported"


def test_every_cut_of_an_elf_file_is_parsed_or_refused() -> None:
    data = Path("/usr/bin/python3").resolve().read_bytes()[:4096]
    for length in range(0, 4096, 7):
        try:
            parse_elf(data[:length])
        except Refusal:
            continue


def test_names_longer_than_an_old_tar_header_survive(tmp_path: Path) -> None:
    name = "a/" + "long" * 60 + "/" + "é" * 90
    settings = ImageSettings(command=("x",), user="1:1", environment=(), labels=())
    entries = complete([ImageEntry(name, 0o644, b"content")])

    digests = write_archive(tmp_path / "a.tar", repository="r", entries=entries, settings=settings)

    layer = read_archive(tmp_path / "a.tar")["blobs/sha256/" + digests.diff_ids[0][7:]]
    (tmp_path / "layer.tar").write_bytes(layer)
    with tarfile.open(tmp_path / "layer.tar") as archive:
        assert archive.getnames() == [entry.path for entry in entries]


def test_the_host_digest_is_stable() -> None:
    assert host_root_digest() == host_root_digest()


def test_an_engine_that_is_not_there_is_a_fault(image: LocalImage) -> None:
    with pytest.raises(Fault) as fault:
        load_image(["/nonexistent/podman"], image, environment={})

    assert fault.value.code == "engine_failed"


@pytest.mark.engine("podman")
def test_podman_has_the_predicted_image_and_its_python_runs_networkless(
    image: LocalImage, podman: list[str]
) -> None:
    assert not is_loaded(podman, image.reference, environment=ENVIRONMENT)

    load_image(podman, image, environment=ENVIRONMENT)
    load_image(podman, image, environment=ENVIRONMENT)

    inspected = subprocess.run(
        [*podman, "image", "inspect", image.reference],
        capture_output=True,
        check=True,
        env=ENVIRONMENT,
    )
    (document,) = json.loads(inspected.stdout)
    assert document["Digest"] == image.manifest_digest
    assert tuple(document["RootFS"]["Layers"]) == image.diff_ids
    assert document["RepoTags"] == [image.name]
    ran = subprocess.run(
        [
            *podman,
            *("run", "--rm", "--pull=never", "--network=none", "--read-only", "--log-driver=none"),
            *("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=512:512", "--no-hosts"),
            *("--user", "10001:10001", image.reference),
        ],
        capture_output=True,
        check=False,
        env=ENVIRONMENT,
    )
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert (said["uid"], said["path"]) == (10001, "/adapter")
    assert said["tools"] > 10


@pytest.mark.engine("podman")
def test_an_archive_that_was_changed_is_not_loaded_as_the_image(
    image: LocalImage, podman: list[str], tmp_path: Path, bundle: Bundle
) -> None:
    other = build_image("other", state=tmp_path, bundle=None)
    other.archive.write_bytes(image.archive.read_bytes())

    with pytest.raises(Fault):
        load_image(podman, other, environment=ENVIRONMENT)

    assert not is_loaded(podman, other.reference, environment=ENVIRONMENT)
