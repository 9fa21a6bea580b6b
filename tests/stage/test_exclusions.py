"""The table of what is never staged: each class, as file, as folder, nested, in other spellings."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.stage.exclusions import (
    exclusion_of_content,
    exclusion_of_path,
    exclusion_of_untracked,
    needs_content,
    suspects,
)
from broker.stage.names import collisions, printable

NAMES = {
    ".git": "git_metadata",
    ".odla": "tool_state",
    ".airlock": "tool_state",
    ".wrangler": "tool_state",
    ".odla-references": "tool_state",
    "node_modules": "dependencies",
    ".env": "environment_file",
    ".env.local": "environment_file",
    ".env.production": "environment_file",
    ".env.example.local": "environment_file",
    ".dev.vars": "environment_file",
    ".git-credentials": "credential_file",
    "credentials.json": "credential_file",
    "service-account.json": "credential_file",
    "my-service_account-prod.json": "credential_file",
    "client_secret_123.json": "credential_file",
    "kubeconfig": "credential_file",
    "authorized_keys": "credential_file",
    "prod.tfstate": "credential_file",
    "id_rsa": "private_key",
    "id_ed25519": "private_key",
    ".ssh": "private_key",
    "store.p12": "private_key",
    "store.PFX": "private_key",
    ".aws": "cloud_credentials",
    ".gcloud": "cloud_credentials",
    ".azure": "cloud_credentials",
    ".kube": "cloud_credentials",
}


@pytest.mark.parametrize(("name", "reason"), NAMES.items())
@pytest.mark.parametrize("form", ["{}", "deep/er/{}", "{}/file", "deep/{}/er/file"])
def test_a_denied_name_is_denied_as_file_as_folder_and_nested(
    name: str, reason: str, form: str
) -> None:
    assert exclusion_of_path(form.format(name)) == reason


@pytest.mark.parametrize(
    "name",
    [
        ".ENV",
        ".Env.Local",
        ".env.",
        ".env ",
        ".env. .",
        ".env::$DATA",
        "．env",
        ".eｎv",
        ".GIT",
        ".git ",
        ".git.",
        "GIT~1",
        "ID_RSA",
        "Credentials.JSON",
        ".SSH",
        "AUTHORIZED_KEYS",
        "NODE_MODULES",
        ".ſsh",
        ".aws.",
        ".Ｋube",
    ],
)
def test_another_spelling_of_a_denied_name_is_denied(name: str) -> None:
    assert exclusion_of_path(name) is not None
    assert exclusion_of_path(f"sub/{name}/x") is not None


@pytest.mark.parametrize(
    "path",
    [
        ".env.example",
        ".env.sample",
        ".env.template",
        ".gitignore",
        ".github/x",
        "environment",
        "src/env.py",
        "git",
        "id_rsa.pub",
        "a/.envoy",
        "credentials.py",
        "aws/x",
        "dist/x",
        "build",
        "a b",
        "-x",
        "é",
        "😀",
        "odla.recipes.json",
        "...",
        "a.",
        ".config/app",
        "gcloud/x",
        "service-account.md",
        "x:y",
    ],
)
def test_an_ordinary_name_is_not_denied(path: str) -> None:
    assert exclusion_of_path(path) is None


@pytest.mark.parametrize(
    "path",
    [
        "a\nb",
        "a\tb",
        "a\x7f",
        "a\\b",
        "a\u202eb",
        "a\u200bb",
        "a\u2028b",
        "a//b",
        "",
        "a/../b",
        "./a",
        "\x9f",
    ],
)
def test_a_name_that_deceives_or_leads_elsewhere_is_denied(path: str) -> None:
    assert exclusion_of_path(path) == "name_unsafe"


@pytest.mark.parametrize(
    "name",
    ["dist", "build", "target", ".next", "__pycache__", ".venv", "coverage", "DIST", "x.pyc"],
)
def test_build_output_is_denied_only_where_it_is_not_tracked(name: str) -> None:
    assert exclusion_of_untracked(f"{name}/x" if "." not in name[1:] else name) is not None
    assert exclusion_of_path(f"{name}/x") is None


KEY = b"-----BEGIN %bPRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7\n"
SECRET_CONTENT = {
    "key": ("a.txt", KEY % b"", "private_key"),
    "rsa": ("a", KEY % b"RSA ", "private_key"),
    "openssh": ("a", b"-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n", "private_key"),
    "encrypted": ("a", KEY % b"ENCRYPTED ", "private_key"),
    "pgp": ("a", b"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nlQ\n", "private_key"),
    "after text": ("a", b"Bag Attributes\n  x: y\n" + KEY % b"", "private_key"),
    "crlf": ("a", (KEY % b"EC ").replace(b"\n", b"\r\n"), "private_key"),
    "in a literal": ("a.py", b'K = "' + (KEY % b"").replace(b"\n", b"\\n") + b'"', "private_key"),
    "pem name": ("server.pem", b"anything", "private_key"),
    "der key": ("server.KEY", b"\x30\x82", "private_key"),
    "service account": (
        "any.json",
        json.dumps({"type": "service_account", "private_key": "x"}).encode(),
        "credential_content",
    ),
    "token": ("t.json", b'{"access_token": "ya29abcdefghijklmnop"}', "credential_content"),
    "two tokens": ("t", b'\n {"refresh_token":"a","client_secret":"b"}', "credential_content"),
    "docker": ("x", b'{"auths": {"r": {"auth": "dXNlcjpwYXNz"}}}', "credential_content"),
    "issued": ("x.json", b'["ghp_%b"]' % (b"a" * 36), "credential_content"),
    "npmrc": (".npmrc", b"//registry.example/:_authToken=abc\n", "credential_content"),
    "pypirc": (".pypirc", b"[pypi]\nusername = u\npassword = p\n", "credential_content"),
    "netrc": (".netrc", b"machine m login l password p\n", "credential_content"),
    "envrc": (".envrc", b"export API_TOKEN=abc\n", "credential_content"),
    "pip": ("pip.conf", b"index-url = https://u:p@host/simple\n", "credential_content"),
}


@pytest.mark.parametrize("case", SECRET_CONTENT)
def test_a_credential_is_denied_by_its_content(case: str) -> None:
    path, head, reason = SECRET_CONTENT[case]
    assert exclusion_of_content(path, head) == reason
    assert exclusion_of_content(f"deep/{path}", head) == reason


@pytest.mark.parametrize(
    ("path", "head"),
    [
        ("ca.pem", b"-----BEGIN CERTIFICATE-----\nMIID\n-----END CERTIFICATE-----\n"),
        ("id.key", b"ssh-ed25519 AAAA user\n"),
        (".npmrc", b"save-exact=true\n"),
        (".npmrc", b"//registry.example/:_authToken=${NPM_TOKEN}\n"),
        (".pypirc", b"[distutils]\nindex-servers = pypi\n"),
        ("scan.py", b'if text.startswith("-----BEGIN RSA PRIVATE KEY-----"):\n    found()\n'),
        ("package.json", b'{"name": "x", "scripts": {"token": "y"}}'),
        ("openapi.json", b'{"access_token": "<your token>"}'),
        ("a.py", b'access_token = "abcdefghijklmnopqrstuvwxyz"\n'),
        ("empty", b""),
    ],
)
def test_ordinary_content_is_not_denied(path: str, head: bytes) -> None:
    assert exclusion_of_content(path, head) is None


def test_every_twin_is_named_and_none_is_kept() -> None:
    assert collisions(["a", "b", "c/d"]) == frozenset()
    assert collisions(["README", "readme", "x"]) == {"README", "readme"}
    assert collisions(["é", "e\u0301"]) == {"é", "e\u0301"}
    assert collisions(["Foo/a", "foo/b", "x"]) == {"Foo", "foo"}
    assert collisions(["Foo/a", "foo"]) == {"Foo", "foo"}
    assert collisions(["d/X", "d/x", "d/y"]) == {"d/X", "d/x"}
    assert collisions(["straße", "STRASSE"]) == {"straße", "STRASSE"}


def test_no_two_names_are_shown_the_same_and_none_is_dangerous() -> None:
    names = [
        b"a\xff",
        b"a\\xff",
        b"a\n",
        b"a\\n",
        "a\u202e".encode(),
        b"a\\u{202e}",
        b"\xc3\xa9",
        b"a b",
    ]
    shown = [printable(name) for name in names]
    assert len(set(shown)) == len(names)
    assert all(text.isprintable() for text in shown)
    assert shown[-2:] == ["é", "a b"]


@given(
    st.lists(
        st.one_of(
            st.text(min_size=1, max_size=12),
            st.text(st.sampled_from("aA.-_env~1"), min_size=1, max_size=8),
            st.sampled_from(
                [
                    "a.pem",
                    "X.KEY",
                    ".npmrc",
                    ".NPMRC",
                    "service-account.json",
                    "x.tfstate.backup",
                    ".env",
                    ".ENV.local",
                    "id_rsa",
                    "config.json",
                    "gh",
                    "node_modules",
                    "a.",
                    ".",
                    "..",
                ]
            ),
        ).filter(lambda name: "/" not in name and "\0" not in name),
        unique=True,
    ),
    st.sampled_from(["", "src", ".docker", ".config", ".Cargo", "a b"]),
)
def test_only_suspects_are_ever_judged(names: list[str], below: str) -> None:
    suspected = suspects(names, below=below)
    prefix = below and below + "/"
    for name in set(names) - set(suspected):
        assert exclusion_of_path(prefix + name) == (exclusion_of_path(below) if below else None)
        assert not needs_content(name)


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_a_private_key_is_seen_between_any_bytes(before: bytes, after: bytes) -> None:
    key = b"\n-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n"
    assert exclusion_of_content("a", before + key + after) == "private_key"
