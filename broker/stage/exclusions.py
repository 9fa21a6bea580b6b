"""The one table of what is never staged, and why; names are only looked at, never followed.

Every part of the stage asks here: staging, reads, searches, patches. Names are folded
for the decision only (compatibility form, case, trailing dots and spaces, a stream
suffix), so that no other spelling of a denied name passes; what is staged keeps its
spelling. Rows of untracked names (build output) do not bind tracked files: a project
that commits its ``dist`` needs it.
"""

import re
import unicodedata
from collections.abc import Collection
from functools import lru_cache
from typing import Final

from broker.stage.credential_shapes import (
    BY_NAME,
    HEAD_BYTES,
    credential_of_content,
    is_public_pem,
    is_public_ssh_key,
)
from protocol.decision_codes import ExclusionReason

__all__ = [
    "HEAD_BYTES",
    "RULES_VERSION",
    "exclusion_of_content",
    "exclusion_of_path",
    "exclusion_of_untracked",
    "fold_name",
    "fold_path",
    "needs_content",
    "suspects",
]

#: Raise it whenever a rule changes: remembered verdicts of older rules are void.
RULES_VERSION: Final = 1

#: A folder or file of this name, at any depth, tracked or not.
_NAMES: Final[dict[str, ExclusionReason]] = {
    # The repository itself: history, hooks, configuration that can name programs.
    ".git": "git_metadata",
    "git~1": "git_metadata",
    # Working state of this and related tools; references appear under the last one.
    ".airlock": "tool_state",
    ".odla": "tool_state",
    ".odla-references": "tool_state",
    ".wrangler": "tool_state",
    # Installed third-party code; an image or a recipe brings its own.
    "node_modules": "dependencies",
    # Values for a running program, secrets among them.
    ".env": "environment_file",
    ".dev.vars": "environment_file",
    # Files whose only purpose is to hold a credential.
    ".boto": "credential_file",
    ".dockercfg": "credential_file",
    ".git-credentials": "credential_file",
    ".htpasswd": "credential_file",
    ".mylogin.cnf": "credential_file",
    ".pgpass": "credential_file",
    ".s3cfg": "credential_file",
    ".vault-token": "credential_file",
    "application_default_credentials.json": "credential_file",
    "authorized_keys": "credential_file",
    "credentials.json": "credential_file",
    "credentials.tfrc.json": "credential_file",
    "kubeconfig": "credential_file",
    # Keys, by the names that their tools give them.
    ".gnupg": "private_key",
    ".ssh": "private_key",
    "id_dsa": "private_key",
    "id_ecdsa": "private_key",
    "id_ecdsa_sk": "private_key",
    "id_ed25519": "private_key",
    "id_ed25519_sk": "private_key",
    "id_rsa": "private_key",
    "secring.gpg": "private_key",
    # Folders in which a cloud provider's program keeps its log-in.
    ".aliyun": "cloud_credentials",
    ".aws": "cloud_credentials",
    ".azure": "cloud_credentials",
    ".bluemix": "cloud_credentials",
    ".fly": "cloud_credentials",
    ".gcloud": "cloud_credentials",
    ".kube": "cloud_credentials",
    ".oci": "cloud_credentials",
    ".terraform.d": "cloud_credentials",
}

#: The same for forms of names, tried in this order.
_FORMS: Final[tuple[tuple[re.Pattern[str], ExclusionReason], ...]] = (
    (re.compile(r"\.env\..*\Z", re.S), "environment_file"),
    (re.compile(r"\.dev\.vars\..*\Z", re.S), "environment_file"),
    (re.compile(r"(?:.*[-_.])?service[-_.]?account(?:[-_.].*)?\.json\Z", re.S), "credential_file"),
    (re.compile(r"(?:.*[-_.])?client[-_]secrets?(?:[-_.].*)?\.json\Z", re.S), "credential_file"),
    (re.compile(r".*firebase-adminsdk.*\.json\Z", re.S), "credential_file"),
    (re.compile(r".*kubeconfig(?:\.ya?ml|\.json)?\Z", re.S), "credential_file"),
    (re.compile(r".*\.tfstate(?:\.backup)?\Z", re.S), "credential_file"),
    (re.compile(r".*\.(?:p12|pfx|jks|keystore|ppk|kdbx)\Z", re.S), "private_key"),
)

#: What a name of one of those forms starts or ends with: most names have neither.
_FORM_STARTS: Final = (".env.", ".dev.vars.")
_FORM_ENDS: Final = (
    *(".json", "kubeconfig", "kubeconfig.yml", "kubeconfig.yaml", ".tfstate", ".backup"),
    *(".p12", ".pfx", ".jks", ".keystore", ".ppk", ".kdbx"),
)

#: Templates without values, which a project ships so that others know what to set.
_TEMPLATES: Final = frozenset(
    {
        f"{name}.{kind}"
        for name in (".env", ".dev.vars")
        for kind in ("example", "sample", "template")
    }
)

#: Two parts that together are a log-in, though each alone is an ordinary name.
_PAIRS: Final[dict[tuple[str, str], ExclusionReason]] = {
    (".config", "gcloud"): "cloud_credentials",
    (".config", "gh"): "cloud_credentials",
    (".docker", "config.json"): "credential_file",
    (".cargo", "credentials"): "credential_file",
    (".cargo", "credentials.toml"): "credential_file",
    (".gem", "credentials"): "credential_file",
}

# fmt: off
#: A folder or file of this name, at any depth, unless it is tracked: what a build, a
#: test run or an installer made and can make again.
_UNTRACKED_NAMES: Final[dict[str, ExclusionReason]] = {
    **dict.fromkeys(
        (
            ".eggs", ".pnpm-store", ".tox", ".nox", ".venv", "__pypackages__",
            "bower_components", "jspm_packages", "site-packages", "venv",
        ),
        "dependencies",
    ),
    **dict.fromkeys(
        (
            ".angular", ".astro", ".build", ".cache", ".dart_tool", ".docusaurus", ".gradle",
            ".hypothesis", ".mypy_cache", ".netlify", ".next", ".nuxt", ".nyc_output", ".output",
            ".parcel-cache", ".pytest_cache", ".ruff_cache", ".serverless", ".svelte-kit",
            ".terraform", ".turbo", ".vercel", ".vite", "__pycache__", "build", "cmakefiles",
            "coverage", "deriveddata", "dist", "htmlcov", "out", "storybook-static", "target",
        ),
        "build_output",
    ),
}
# fmt: on
_UNTRACKED_SUFFIXES: Final = (".egg-info", ".pyc", ".pyo", ".tsbuildinfo")

#: Suffixes of files that are keys unless their content says that they are public.
_KEY_SUFFIXES: Final = (".pem", ".key")

#: Characters that reorder, hide or break a name where a person reads it.
_UNSAFE_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def exclusion_of_path(path: str) -> ExclusionReason | None:
    """Why ``path`` is never in a stage, tracked or not; ``None`` when its name is no reason."""
    before = ""
    *folders, last = path.split("/")
    for name in folders:
        folded, reason = _judge_folder(name)
        reason = reason or _PAIRS.get((before, folded))
        if reason is not None:
            return reason
        before = folded
    folded, reason = _judge(last)
    return reason or _PAIRS.get((before, folded))


def exclusion_of_untracked(path: str) -> ExclusionReason | None:
    """Why ``path`` is not staged when git does not track it: more rows than the tracked have."""
    for name in path.split("/"):
        reason = _judge_untracked(name)
        if reason is not None:
            return reason
    return exclusion_of_path(path)


def exclusion_of_content(path: str, head: bytes) -> ExclusionReason | None:
    """Why a file named ``path`` that starts with ``head`` is not staged.

    ``head`` is the whole content or its first ``HEAD_BYTES`` bytes.
    """
    name = fold_name(path.rpartition("/")[2])
    holds_secret = BY_NAME.get(name)
    if holds_secret is not None and holds_secret(head):
        return "credential_content"
    reason = credential_of_content(head)
    if reason is None and name.endswith(_KEY_SUFFIXES):
        public = is_public_pem(head) or is_public_ssh_key(head)
        return None if public else "private_key"
    return reason


def needs_content(name: str) -> bool:
    """Whether the verdict on a file of this name depends on its name and content together."""
    folded = fold_name(name)
    return folded in BY_NAME or folded.endswith(_KEY_SUFFIXES)


def suspects(names: Collection[str], *, below: str) -> Collection[str]:
    """Those of ``names``, all in the folder ``below``, that the table may say something of.

    For every other name ``exclusion_of_path`` says what it says of the folder, and
    ``needs_content`` is false. Much quicker than to ask for each.
    """
    if fold_name(below) in _PAIR_STARTS:
        return names
    together = "\0".join(names)
    if _PLAIN_NAMES.fullmatch(together) is None:
        return names
    folded = together.lower().split("\0")
    if _NAMES.keys().isdisjoint(folded) and BY_NAME.keys().isdisjoint(folded):
        return [
            name
            for name, form in zip(names, folded, strict=True)
            if form.endswith(_SUSPECT_ENDS) or form.startswith(_FORM_STARTS)
        ]
    return names


def fold_name(name: str) -> str:
    """The form in which a name is compared with the table: every alias of it is one."""
    if _PLAIN.fullmatch(name) is not None:
        return name.lower()
    folded = name if name.isascii() else unicodedata.normalize("NFKC", name)
    folded = folded.casefold()
    if not folded.isascii():
        folded = unicodedata.normalize("NFKC", folded)
    # ``name:stream`` opens ``name`` on some file systems, as ``name. `` does.
    head, colon, _ = folded.partition(":")
    folded = head if colon and head else folded
    return folded.rstrip(". ") or folded


def fold_path(path: str) -> str:
    """The form in which two paths are the same on a file system that folds case or form."""
    if path.isascii():
        return path.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


#: A name in which folding changes nothing but the case of ASCII letters.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.-]*[A-Za-z0-9_-]")
_PLAIN_NAMES: Final = re.compile(r"[A-Za-z0-9_.-]*[A-Za-z0-9_-](?:\0[A-Za-z0-9_.-]*[A-Za-z0-9_-])*")
_PAIR_STARTS: Final = frozenset(first for first, _ in _PAIRS)
_SUSPECT_ENDS: Final = (*_FORM_ENDS, *_KEY_SUFFIXES)


def _judge(name: str) -> tuple[str, ExclusionReason | None]:
    folded = fold_name(name)
    known = _NAMES.get(folded)
    if known is not None:
        return folded, known
    if name in ("", ".", "..") or _is_unsafe(name):
        return folded, "name_unsafe"
    if not (folded.startswith(_FORM_STARTS) or folded.endswith(_FORM_ENDS)):
        return folded, None
    if folded in _TEMPLATES:
        return folded, None
    for form, reason in _FORMS:
        if form.match(folded) is not None:
            return folded, reason
    return folded, None


#: Folder names are few and come again for each file below them; file names do not.
_judge_folder: Final = lru_cache(maxsize=4_096)(_judge)


def _judge_untracked(name: str) -> ExclusionReason | None:
    folded = fold_name(name)
    if folded.endswith(_UNTRACKED_SUFFIXES):
        return "build_output"
    return _UNTRACKED_NAMES.get(folded)


def _is_unsafe(name: str) -> bool:
    if name.isascii():
        return not name.isprintable() or "\\" in name
    return any(char == "\\" or unicodedata.category(char) in _UNSAFE_CATEGORIES for char in name)
