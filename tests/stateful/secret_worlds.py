"""Two checkouts that differ only in what is filtered: secrets with canaries, or no such files."""

import base64
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from broker.stage.snapshot import Staged, stage_checkout
from tests.attempts.checkouts import RECIPES
from tests.stage.repositories import git, repository, write

VISIBLE: Mapping[str, bytes] = {
    "README.md": b"# A thing\n",
    "value.txt": b"2\n",
    "src/app.py": b"import os\nKEY = os.environ['KEY']\n",
    "src/.env.example": b"KEY=\n",
    "config/app.json": b'{"debug": true}\n',
    "notes/plan.txt": b"one\ntwo\nthree\n",
    "image.bin": bytes(range(256)),
}
_PEM = "-----BEGIN {}PRIVATE KEY-----\n{}\n-----END {}PRIVATE KEY-----\n"


def canary(number: int) -> str:
    """Sixteen characters of its own alphabet, which no visible file or request holds."""
    return f"Qz{number:02}XvKwJyQzHgPf"


def key(kind: str, number: int) -> str:
    return _PEM.format(kind, canary(number) + "A" * 40, kind)


#: Tracked in both; in the second, taken from the working tree and the next commit.
HIDDEN: Mapping[str, str] = {
    ".env": f"TOKEN={canary(0)}\n",
    "config/.env.local": f"TOKEN={canary(1)}\n",
    "deploy/id_rsa": key("RSA ", 2),
    ".aws/credentials": f"[default]\nsecret = {canary(3)}\n",
    "src/.npmrc": f"//registry.example.invalid/:_authToken={canary(4)}\n",
    "notes/key.txt": key("", 5),
    "config/token.json": json.dumps({"access_token": canary(6) + "abcdefgh"}),
    ".git-credentials": f"https://u:{canary(7)}@example.invalid\n",
    "infra/prod.tfstate": json.dumps({"password": canary(8)}),
    "node_modules/x/index.js": f"// {canary(9)}\n",
}
#: Not tracked, and only in the first.
UNTRACKED: Mapping[str, str] = {
    "dist/out.js": f"// {canary(10)}\n",
    "noise.log": f"{canary(11)}\n",
    "notes/KEY.pem": key("EC ", 12),
    ".ENV.production": f"A={canary(13)}\n",
    "vendor/inner/file.txt": f"{canary(14)}\n",
    "Twin.txt": f"{canary(15)}\n",
    "twin.txt": f"{canary(16)}\n",
}
SECRETS = {**HIDDEN, **UNTRACKED}
CANARIES = [canary(number) for number in range(len(SECRETS))]
LINKS = ("link.txt", "notes/folder", "hard.txt")
FORMS = [
    form
    for each in CANARIES
    for form in (
        each.encode(),
        each.lower().encode(),
        each.upper().encode(),
        each.encode().hex().encode(),
        each.encode().hex().upper().encode(),
        each[::-1].encode(),
        # What base64 makes of it wherever it begins; the ends depend on the neighbours.
        *(base64.b64encode(b"." * shift + each.encode())[4:-4] for shift in range(3)),
    )
]


def hold_canaries(data: bytes) -> bool:
    return any(form in data for form in FORMS)


def make_checkouts(folder: Path) -> tuple[Path, Path]:
    """The checkout with secrets, and the same without."""
    base = dict(VISIBLE)
    base |= {path: text.encode() for path, text in HIDDEN.items()}
    base |= {".gitignore": b"*.log\n", "airlock.recipes.json": RECIPES}
    with_secrets = repository(folder / "with", base)
    without = folder / "without" / "with"
    shutil.copytree(with_secrets, without, symlinks=True)
    for path in HIDDEN:
        (without / path).unlink()
    write(with_secrets, {path: text.encode() for path, text in UNTRACKED.items()})
    git(with_secrets / "vendor/inner", "init", "-q")
    (with_secrets / "link.txt").symlink_to(".env")
    (with_secrets / "notes/folder").symlink_to("../.aws")
    os.link(with_secrets / "notes/key.txt", with_secrets / "hard.txt")
    return with_secrets, without


class Worlds:
    """Both stages; each conversation starts from them anew."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stages: list[Staged] = []
        for number, checkout in enumerate(make_checkouts(folder)):
            scratch = folder / f"scratch{number}"
            scratch.mkdir()
            self.stages.append(stage_checkout(checkout, scratch=scratch))
        self.runs = 0
