"""``airlock image``: content-addressed local images, built offline."""

import argparse
from collections.abc import Sequence
from typing import Any

from broker.cli import exits
from broker.cli.output import present, print_json, stdout_console
from broker.engines.bundle import build_bundle
from broker.engines.image import RECIPE_IMAGE, LocalImage, build_image, list_images
from broker.locations import bundled, make_state, state_folder


def execute(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    state = make_state(state_folder())
    if arguments.action == "list":
        images = list_images(state)
    else:
        images = (_build(arguments.name, arguments),)
    present(lambda: _show(arguments, images))
    return exits.OK


def _show(arguments: argparse.Namespace, images: Sequence[LocalImage]) -> None:
    if arguments.json:
        documents = [_document(image) for image in images]
        print_json(documents if arguments.action == "list" else documents[0])
        return
    console = stdout_console()
    for image in images:
        console.print(f"{image.name}  {image.reference}")


def _build(name: str, arguments: argparse.Namespace) -> LocalImage:
    state = make_state(state_folder())
    if name == RECIPE_IMAGE:
        return build_image(RECIPE_IMAGE, state=state, bundle=None)
    bundle = build_bundle(name, source=bundled(name), state=state)
    return build_image(name, state=state, bundle=bundle)


def _document(image: LocalImage) -> dict[str, Any]:
    return {
        "name": image.name,
        "reference": image.reference,
        "configDigest": image.config_digest,
        "manifestDigest": image.manifest_digest,
        "diffIds": list(image.diff_ids),
        "adapterDigest": image.adapter_digest,
        "archive": str(image.archive),
    }
