"""Which program an agent reference names, and the root that it runs on. Starts nothing.

A bundled name is a content-addressed adapter, and ``adapter:FOLDER`` makes one of a local
folder; a digest is an image; a folder is an unpacked root file system. Nothing is ever
fetched, and a tag is never believed.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.engines.bundle import ADAPTER_COMMAND, build_bundle
from broker.engines.image import RECIPE_IMAGE, LocalImage, build_image
from broker.engines.image_host import host_root_digest
from broker.engines.spec import EngineChoice, FolderRoot, HostRoot, ImageRoot, Root
from broker.locations import bundled
from protocol.digest import digest_value
from protocol.errors import Refusal
from protocol.ids import Digest

#: A reference that cannot move: a bare digest, or a name with its digest.
PINNED: Final = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._/:-]{0,254}@)?sha256:[0-9a-f]{64}\Z")
_LOCAL_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,63}\Z")

#: An adapter that its author has at hand: ``adapter:FOLDER``, copied before it is run.
_ADAPTER: Final = "adapter"

#: What a folder root starts when no argument names a program.
_FOLDER_COMMAND: Final = ("/adapter/agent",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """A program that speaks the protocol, where it runs, and how it is started."""

    name: str  #: a bundled name, ``adapter``, ``image`` or ``folder``: never the user's text
    root: Root
    argv: tuple[str, ...]
    digest: Digest  #: what the ledger names it by
    image: LocalImage | None = None  #: to be loaded into the engine's store first


def find_agent(
    reference: str,
    *,
    arguments: tuple[str, ...],
    engine: EngineChoice,
    state: Path,
    allow_unpinned: bool,
) -> Agent:
    """The agent that ``reference`` names. Blocking: it may build a local bundle or image.

    Raises ``Refusal`` with ``agent_unknown``, ``image_unpinned`` or ``not_a_directory``.
    """
    kind, _, place = reference.partition(":")
    if kind == _ADAPTER and place and not PINNED.match(reference):
        return _adapter(_ADAPTER, Path(place), arguments, engine=engine, state=state)
    if "/" in reference and not PINNED.match(reference) and Path(reference).is_dir():
        return _folder_agent(Path(reference), arguments)
    if _LOCAL_NAME.match(reference):
        return _adapter(reference, bundled(reference), arguments, engine=engine, state=state)
    if not PINNED.match(reference) and not allow_unpinned:
        raise Refusal("image_unpinned")
    return Agent(
        name="image",
        root=ImageRoot(reference),
        argv=arguments or ADAPTER_COMMAND,
        digest=digest_value(["airlock.image.v1", reference]),
    )


def _adapter(
    name: str, source: Path, arguments: tuple[str, ...], *, engine: EngineChoice, state: Path
) -> Agent:
    bundle = build_bundle(name, source=source, state=state)
    root: Root = HostRoot(bundle.folder, bundle.digest)
    image: LocalImage | None = None
    if engine not in ("auto", "bubblewrap"):
        image = build_image(name, state=state, bundle=bundle)
        root = ImageRoot(image.reference)
    return Agent(
        name=name,
        root=root,
        argv=(*ADAPTER_COMMAND, *arguments),
        digest=bundle.digest,
        image=image,
    )


def _folder_agent(folder: Path, arguments: tuple[str, ...]) -> Agent:
    resolved = folder.resolve()
    if not arguments and not (resolved / _FOLDER_COMMAND[0].lstrip("/")).is_file():
        raise Refusal("agent_unknown")
    # A root file system is not hashed file by file here: its name in the ledger is the
    # name of the place, and the receipt says that no image digest stands behind it.
    digest = digest_value(["airlock.folder.v1", str(resolved)])
    return Agent(
        name="folder",
        root=FolderRoot(resolved, digest),
        argv=arguments or _FOLDER_COMMAND,
        digest=digest,
    )


@dataclass(frozen=True, slots=True)
class RecipeBase:
    """What recipes that name no image run on: its pinned name and, if local, its archive."""

    reference: str
    image: LocalImage | None


def recipe_base(engine: EngineChoice, *, state: Path) -> RecipeBase:
    """The base that the host supplies for a repository's own recipes. Blocking."""
    if engine in ("auto", "bubblewrap"):
        return RecipeBase(f"host@{host_root_digest()}", None)
    image = build_image(RECIPE_IMAGE, state=state, bundle=None)
    return RecipeBase(image.reference, image)


def recipe_root(image: str) -> Root:
    """The root that a recipe pinned to ``image`` runs on; ``Refusal("image_unknown")``.

    ``host@sha256:...`` is this machine's own toolchain, if it still is that one. Blocking.
    """
    if image.startswith("host@"):
        digest = host_root_digest()
        if image != f"host@{digest}":
            raise Refusal("image_unknown")
        return HostRoot(None, digest)
    if not PINNED.match(image):
        raise Refusal("image_unpinned")
    return ImageRoot(image)
