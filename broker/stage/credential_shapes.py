"""What credentials look like by their bytes: keys, tokens, account files. Looks, never runs.

Patterns are linear (no nested repetition) and are tried only after a plain search for
a word that each of them needs, because every file of a checkout passes through here.
"""

import re
from collections.abc import Callable
from typing import Final, Literal

import re2

ContentReason = Literal["private_key", "credential_content"]

#: How much of a file is looked at. A key file or an account file is far smaller; a
#: credential that hides deeper in a large file is a known limit of a content rule.
HEAD_BYTES: Final = 64 * 1024


def _bytes_only() -> re2.Options:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    return options


_KEY_HEADER: Final = re.compile(
    rb"-----BEGIN (?:[A-Z0-9]{1,16} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
    # A line of its own, or followed by key material even inside of a string literal.
    rb"(?:[ \t]*[\r\n]|[ \t]*\Z|[\s\\nr\"',+]{0,16}[A-Za-z0-9+/]{32})"
)
#: What each of them needs. Every content passes here, and this finds words in half the time.
_KEY_WORDS: Final = re2.compile(b"PRIVATE KEY", options=_bytes_only())
_LINE_START: Final = re.compile(rb"[ \t\"'`(=:>|\xef\xbb\xbf]*\Z")
_PEM_KIND: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]{1,48})-----")
_PUBLIC_KINDS: Final = frozenset(
    {b"CERTIFICATE", b"TRUSTED CERTIFICATE", b"X509 CRL", b"CERTIFICATE REQUEST"}
    | {b"NEW CERTIFICATE REQUEST", b"PUBLIC KEY", b"RSA PUBLIC KEY", b"DH PARAMETERS"}
    | {b"EC PARAMETERS", b"PGP PUBLIC KEY BLOCK", b"PKCS7", b"CMS", b"SSH2 PUBLIC KEY"}
)

_JSON_SECRET: Final = re.compile(
    rb'"(access_?token|refresh_?token|id_?token|client_?secret|secret_?access_?key'
    rb"|aws_?secret_?access_?key|session_?token|auth_?token|api_?key|private_?key"
    rb'|_authtoken|identitytoken)"\s{0,8}:\s{0,8}"([^"\s]{1,4096})',
    re.IGNORECASE,
)
_SERVICE_ACCOUNT: Final = re.compile(rb'"type"\s{0,8}:\s{0,8}"(?:service_account|authorized_user)"')
_DOCKER_AUTHS: Final = re.compile(rb'"auth"\s{0,8}:\s{0,8}"[A-Za-z0-9+/=]{4,}"')
_PLACEHOLDER: Final = re.compile(
    rb"\A(?:\$|<|\{|%|x{3}|\*{3}|your[-_]|example|changeme|placeholder)", re.I
)
#: A secret that stands alone must be as long as real ones are; two need no length.
_LONE_SECRET_BYTES: Final = 16

#: Token literals of large issuers, in JSON values only: source code that only names a
#: form (a scanner, a test) must stay readable.
_ISSUED: Final = re.compile(
    rb'"(?:gh[pousr]_[A-Za-z0-9]{30}|github_pat_[A-Za-z0-9_]{30}|glpat-[A-Za-z0-9_-]{16}'
    rb"|sk-[A-Za-z0-9_-]{24}|xox[abprs]-[A-Za-z0-9-]{16}|npm_[A-Za-z0-9]{30}"
    rb"|pypi-[A-Za-z0-9_-]{30}|AIza[A-Za-z0-9_-]{30}|ya29\.[A-Za-z0-9_-]{16})"
)


def credential_of_content(head: bytes) -> ContentReason | None:
    """Why content that starts with ``head`` is a credential, whatever its name."""
    if _KEY_WORDS.search(head) is not None and has_private_key(head):
        return "private_key"
    first = head[:256].lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if first in (b"{", b"[") and _is_credential_json(head):
        return "credential_content"
    return None


def has_private_key(head: bytes) -> bool:
    """Whether a PEM, OpenSSH or PGP private key starts in ``head``."""
    for match in _KEY_HEADER.finditer(head):
        line = head[max(0, match.start() - 64) : match.start()].rsplit(b"\n", 1)[-1]
        alone = match.group().rstrip().endswith(b"-----")
        if not alone or _LINE_START.match(line) is not None:
            return True
    return False


def is_public_pem(head: bytes) -> bool:
    """Whether ``head`` holds PEM blocks and each is of a public kind."""
    kinds = set(_PEM_KIND.findall(head))
    return bool(kinds) and kinds <= _PUBLIC_KINDS


def is_public_ssh_key(head: bytes) -> bool:
    """Whether ``head`` starts like one line of an OpenSSH public key."""
    return head.startswith((b"ssh-", b"ecdsa-", b"sk-ssh-", b"sk-ecdsa-"))


def _is_credential_json(head: bytes) -> bool:
    if _SERVICE_ACCOUNT.search(head) is not None and (
        b'"private_key' in head or b'"refresh_token"' in head
    ):
        return True
    if b'"auths"' in head and _DOCKER_AUTHS.search(head) is not None:
        return True
    if _ISSUED.search(head) is not None:
        return True
    found = {
        name.lower().replace(b"_", b""): value
        for name, value in _JSON_SECRET.findall(head)
        if _PLACEHOLDER.match(value) is None
    }
    return len(found) > 1 or any(len(value) >= _LONE_SECRET_BYTES for value in found.values())


_NPM: Final = re.compile(
    rb"(?:_authtoken|_auth|_password|npmauthtoken|npmauthident)[\"']?\s{0,8}[=:]\s{0,8}[\"']?[^\s\"'$]",
    re.IGNORECASE,
)
_PASSWORD_LINE: Final = re.compile(
    rb"^[ \t]*(?:password|token)[ \t]{0,8}[=:][ \t]{0,8}[^\s$]", re.I | re.M
)
_NETRC: Final = re.compile(rb"(?:^|\s)(?:password|account)\s{1,8}\S", re.IGNORECASE)
_SHELL_SECRET: Final = re.compile(
    rb"(?:TOKEN|SECRET|PASSWORD|PASSWD|KEY|CREDENTIALS?)[A-Z0-9_]{0,32}=[\"']?[^\s\"'$(`]",
    re.IGNORECASE,
)
_URL_PASSWORD: Final = re.compile(rb"://[^/\s:@\"']{0,128}:[^/\s@\"'$]{1,512}@")


def _holds_npm_token(head: bytes) -> bool:
    return _NPM.search(head) is not None or _URL_PASSWORD.search(head) is not None


def _holds_password_line(head: bytes) -> bool:
    return _PASSWORD_LINE.search(head) is not None or _URL_PASSWORD.search(head) is not None


def _holds_netrc_password(head: bytes) -> bool:
    return _NETRC.search(head) is not None


def _holds_shell_secret(head: bytes) -> bool:
    return _SHELL_SECRET.search(head) is not None or _URL_PASSWORD.search(head) is not None


def _holds_url_password(head: bytes) -> bool:
    return _URL_PASSWORD.search(head) is not None


#: Files that are credentials only when a secret stands in them, by folded name.
BY_NAME: Final[dict[str, Callable[[bytes], bool]]] = {
    ".npmrc": _holds_npm_token,
    ".yarnrc": _holds_npm_token,
    ".yarnrc.yml": _holds_npm_token,
    ".pypirc": _holds_password_line,
    ".my.cnf": _holds_password_line,
    ".netrc": _holds_netrc_password,
    "_netrc": _holds_netrc_password,
    ".envrc": _holds_shell_secret,
    "pip.conf": _holds_url_password,
    "pip.ini": _holds_url_password,
    "uv.toml": _holds_url_password,
    ".gitconfig": _holds_url_password,
}
