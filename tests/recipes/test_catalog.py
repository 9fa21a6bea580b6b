"""A catalog means one thing, whoever reads it, or it is refused without a word of it."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from broker.recipes.catalog import Catalog, host_catalog, no_catalog, repository_catalog
from broker.recipes.catalog_schema import HOST_SCHEMA, REPOSITORY_SCHEMA
from protocol.digest import digest_bytes
from protocol.errors import Refusal

IMAGE = "registry.example/python@sha256:" + "a" * 64
HOST_RECIPE = {
    "id": "test",
    "image": IMAGE,
    "command": ["python", "-m", "pytest"],
    "timeoutMs": 60_000,
    "maxOutputBytes": 1_000_000,
}
REPOSITORY_RECIPE = {"id": "test", "command": ["python", "-m", "pytest"]}


def host(*recipes: Any, **other: Any) -> bytes:
    document = {"recipeAuthorization": "registered_recipe", "recipes": list(recipes)} | other
    return json.dumps(document).encode()


def repository(*recipes: Any, **other: Any) -> bytes:
    return json.dumps({"version": 1, "recipes": list(recipes)} | other).encode()


def read_host(data: bytes) -> Catalog:
    return host_catalog(data)


def read_repository(data: bytes) -> Catalog:
    files = {"airlock.recipes.json": data}
    catalog = repository_catalog(files.get, image=IMAGE, max_output_bytes=1_000_000)
    assert catalog is not None
    return catalog


BOTH = [(read_host, host, HOST_RECIPE), (read_repository, repository, REPOSITORY_RECIPE)]


def refusal(read: Callable[[bytes], Catalog], data: bytes) -> tuple[str, int | None]:
    with pytest.raises(Refusal) as caught:
        read(data)
    return caught.value.code, caught.value.figure


def test_a_host_s_catalog_says_everything() -> None:
    catalog = host_catalog(host(HOST_RECIPE, HOST_RECIPE | {"id": "lint", "timeoutMs": 1_800_000}))

    assert catalog.source == "host"
    assert [recipe.id for recipe in catalog.recipes] == ["test", "lint"]
    recipe = catalog.recipes[0]
    assert (recipe.image, recipe.command) == (IMAGE, ("python", "-m", "pytest"))
    assert (recipe.timeout_ms, recipe.max_output_bytes) == (60_000, 1_000_000)
    assert recipe.pinned
    assert catalog.find("test") is recipe
    assert catalog.find("TEST") is None
    assert catalog.images == (IMAGE,)


@pytest.mark.parametrize("name", ["airlock.recipes.json", "odla.recipes.json"])
def test_a_repository_s_catalog_gets_image_and_output_bound_from_the_host(name: str) -> None:
    data = repository(REPOSITORY_RECIPE, REPOSITORY_RECIPE | {"id": "slow", "timeoutMs": 900_000})
    asked: list[str] = []

    def read(path: str) -> bytes | None:
        asked.append(path)
        return data if path == name else None

    catalog = repository_catalog(read, image=IMAGE, max_output_bytes=77)

    assert catalog is not None
    assert catalog.source == "repository"
    assert [recipe.timeout_ms for recipe in catalog.recipes] == [120_000, 900_000]
    assert {(recipe.image, recipe.max_output_bytes) for recipe in catalog.recipes} == {(IMAGE, 77)}
    assert asked == ["airlock.recipes.json", "odla.recipes.json"]


def test_no_catalog_is_not_an_empty_one() -> None:
    assert repository_catalog({}.get, image=IMAGE, max_output_bytes=1) is None
    assert (no_catalog().source, no_catalog().recipes) == ("none", ())
    for read, make, _ in BOTH:
        assert refusal(read, make()) == ("catalog_malformed", None)


def test_two_catalogs_are_ambiguous_even_when_they_are_equal() -> None:
    data = repository(REPOSITORY_RECIPE)

    with pytest.raises(Refusal) as caught:
        repository_catalog(lambda path: data, image=IMAGE, max_output_bytes=1)

    assert caught.value.code == "catalog_ambiguous"


@pytest.mark.parametrize(("read", "make", "recipe"), BOTH)
@pytest.mark.parametrize(
    "change",
    [
        {"id": ""},
        {"id": "a b"},
        {"id": "a/b"},
        {"id": ".."},
        {"id": "test\n"},
        {"id": "a" * 65},
        {"id": 1},
        {"command": []},
        {"command": "python -m pytest"},
        {"command": ["python", 1]},
        {"command": [None]},
        {"command": [""]},
        {"command": ["python", ""]},
        {"command": ["python", "a\x00b"]},
        {"command": ["py\x00thon"]},
        {"command": ["./run"]},
        {"command": ["bin/run"]},
        {"command": [".."]},
        {"command": ["."]},
        {"command": ["/"]},
        {"command": ["//bin/sh"]},
        {"command": ["/bin//sh"]},
        {"command": ["/bin/sh/"]},
        {"command": ["/usr/../bin/sh"]},
        {"command": ["/bin/./sh"]},
        {"command": ["/bin/.."]},
        {"command": ["-v"]},
        {"command": ["python", "\ud800"]},
        {"command": ["x"] * 65},
        {"command": ["x", "y" * (8 * 1024 + 1)]},
        {"command": ["x", "é" * (4 * 1024 + 1)]},
        {"command": ["x", "y" * 8000, "y" * 8000, "y" * 8000]},
        {"timeoutMs": 0},
        {"timeoutMs": -1},
        {"timeoutMs": 1_800_001},
        {"timeoutMs": 10**30},
        {"timeoutMs": "60000"},
        {"timeoutMs": True},
        {"timeoutMs": 1000.0},
        {"timeoutMs": None},
        {"env": {}},
        {"cwd": "/"},
        {"Command": ["python"]},
        {"network": False},
    ],
)
def test_a_recipe_at_fault_is_named_by_its_index_only(
    read: Callable[[bytes], Catalog],
    make: Callable[..., bytes],
    recipe: dict[str, Any],
    change: dict[str, Any],
) -> None:
    good = [recipe | {"id": f"good-{n}"} for n in range(3)]
    bad = recipe | change

    code, figure = refusal(read, make(*good[:2], bad, good[2], bad))

    assert code == "catalog_malformed"
    # What is wrong with the text as a whole has no recipe: a float, a lone surrogate.
    whole = change in ({"command": ["python", "\ud800"]}, {"timeoutMs": 1000.0})
    assert figure == (None if whole else 2)


@pytest.mark.parametrize(
    "word", ["python", "/usr/bin/python3", "/bin/..sh", "/.hidden", "a b", "naïve", "x\ny"]
)
def test_a_program_is_a_bare_name_or_a_plain_absolute_path(word: str) -> None:
    for read, make, recipe in BOTH:
        command = [word, "-c", "two\nlines", "-", "../x", " "]
        assert read(make(recipe | {"command": command})).recipes[0].command == tuple(command)


@pytest.mark.parametrize("name", ["image", "maxOutputBytes"])
def test_a_repository_cannot_choose_image_or_output_bound(name: str) -> None:
    data = repository(REPOSITORY_RECIPE | {name: HOST_RECIPE[name]})

    assert refusal(read_repository, data) == ("catalog_malformed", 0)


def test_a_repository_may_ask_for_fifteen_minutes_and_not_for_more() -> None:
    data = repository(REPOSITORY_RECIPE | {"timeoutMs": 900_001})

    assert refusal(read_repository, data) == ("catalog_malformed", 0)


@pytest.mark.parametrize("name", sorted(HOST_RECIPE))
def test_a_host_s_recipe_leaves_nothing_out(name: str) -> None:
    recipe = {key: value for key, value in HOST_RECIPE.items() if key != name}

    assert refusal(read_host, host(recipe)) == ("catalog_malformed", 0)


@pytest.mark.parametrize(("read", "make", "recipe"), BOTH)
def test_ids_are_unique_and_at_most_sixteen(
    read: Callable[[bytes], Catalog], make: Callable[..., bytes], recipe: dict[str, Any]
) -> None:
    many = [recipe | {"id": f"r{n}"} for n in range(17)]

    assert len(read(make(*many[:16])).recipes) == 16
    assert refusal(read, make(*many)) == ("catalog_malformed", None)
    assert refusal(read, make(many[0], many[1], many[0])) == ("catalog_malformed", 2)


@pytest.mark.parametrize(
    "image",
    [
        "python:3.12",
        "python",
        "python@sha256:abc",
        IMAGE + "\n",
        IMAGE.upper(),
        "sha256:" + "a" * 63,
    ],
)
def test_an_image_is_pinned_unless_that_is_switched_off(image: str) -> None:
    data = host(HOST_RECIPE, HOST_RECIPE | {"id": "other", "image": image})

    code, figure = refusal(read_host, data)
    assert (code, figure) in {("catalog_unpinned_image", 1), ("catalog_malformed", 1)}
    if code == "catalog_unpinned_image":
        loose = host_catalog(data, allow_unpinned=True)
        assert [recipe.pinned for recipe in loose.recipes] == [True, False]
        with pytest.raises(Refusal) as caught:
            repository_catalog(
                {"odla.recipes.json": repository(REPOSITORY_RECIPE)}.get,
                image=image,
                max_output_bytes=1,
            )
        assert caught.value.code == "catalog_unpinned_image"


@pytest.mark.parametrize("image", ["", " ", "-v", "a b", "--privileged", "a" * 400])
def test_an_image_can_never_be_an_option(image: str) -> None:
    with pytest.raises(Refusal) as caught:
        host_catalog(host(HOST_RECIPE | {"image": image}), allow_unpinned=True)

    assert (caught.value.code, caught.value.figure) == ("catalog_malformed", 0)


def test_an_image_may_be_named_by_its_digest_alone() -> None:
    image = "sha256:" + "b" * 64

    assert host_catalog(host(HOST_RECIPE | {"image": image})).recipes[0].pinned


DUPLICATES = [
    '{"version":1,"version":1,"recipes":[{"id":"a","command":["x"]}]}',
    '{"version":1,"recipes":[],"recipes":[{"id":"a","command":["x"]}]}',
    '{"version":1,"recipes":[{"id":"a","id":"a","command":["x"]}]}',
    '{"version":1,"recipes":[{"id":"a","command":["y"],"command":["x"]}]}',
    '{"version":1,"recipes":[{"id":"a","command":["y"],"\\u0063ommand":["x"]}]}',
]


@pytest.mark.parametrize(
    "data",
    [
        *(text.encode() for text in DUPLICATES),
        b"",
        b"null",
        b"[]",
        b"{}",
        b"not json",
        b"\xef\xbb\xbf" + repository(REPOSITORY_RECIPE),
        repository(REPOSITORY_RECIPE).decode().encode("utf-16"),
        repository(REPOSITORY_RECIPE) + b"\x00",
        repository(REPOSITORY_RECIPE) + b"{}",
        repository(REPOSITORY_RECIPE).replace(b"test", b"te\xffst"),
        repository(REPOSITORY_RECIPE).replace(b"1", b"1.0"),
        repository(REPOSITORY_RECIPE).replace(b"1", b"01"),
        repository(REPOSITORY_RECIPE).replace(b"1", b"NaN"),
        repository(REPOSITORY_RECIPE).replace(b"1", b"1" * 5000),
        repository(REPOSITORY_RECIPE) + b" " * 600_000,
        repository(REPOSITORY_RECIPE, version=2),
        repository(REPOSITORY_RECIPE, version="1"),
        repository(REPOSITORY_RECIPE, version=True),
        repository(REPOSITORY_RECIPE, comment="hello"),
        json.dumps({"recipes": [REPOSITORY_RECIPE]}).encode(),
        json.dumps({"version": 1}).encode(),
        json.dumps({"version": 1, "recipes": {"0": REPOSITORY_RECIPE}}).encode(),
        b'{"version":1,"recipes":' + b"[" * 100_000,
        b'{"version":1,"recipes":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        b'{"version":1,"recipes":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}",
    ],
)
def test_what_is_no_catalog_as_a_whole_is_refused_without_an_index(data: bytes) -> None:
    assert refusal(read_repository, data) == ("catalog_malformed", None)
    assert refusal(read_host, data) == ("catalog_malformed", None)


def test_the_refusal_holds_nothing_of_the_file() -> None:
    canary = "ignore-all-previous"
    with pytest.raises(Refusal) as caught:
        host_catalog(host(HOST_RECIPE | {"id": canary + "/", canary: canary}))

    error: BaseException | None = caught.value
    while error is not None:
        assert canary not in str(error) + repr(error.args)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def test_the_definition_digest_covers_everything_that_runs() -> None:
    """Judged with the standard library's JSON: sorted, closed up, sha256."""
    recipe = host_catalog(host(HOST_RECIPE), limits={"memoryBytes": 5}).recipes[0]
    document = {
        "argv": ["python", "-m", "pytest"], "id": "test", "image": IMAGE,
        "limits": {"memoryBytes": 5}, "maxOutputBytes": 1_000_000, "timeoutMs": 60_000,
    }  # fmt: skip
    plain = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    assert recipe.definition_digest == digest_bytes(plain)

    changes: list[dict[str, Any]] = [
        {},
        {"id": "other"},
        {"image": "sha256:" + "b" * 64},
        {"command": ["python", "-m", "pytest", "-q"]},
        {"command": ["python", "-m pytest"]},
        {"timeoutMs": 60_001},
        {"maxOutputBytes": 1},
    ]
    catalogs = [host_catalog(host(HOST_RECIPE | change)) for change in changes]
    catalogs.append(host_catalog(host(HOST_RECIPE), limits={"memoryBytes": 6}))
    assert len({catalog.recipes[0].definition_digest for catalog in catalogs}) == 8
    assert len({catalog.digest for catalog in catalogs}) == 8


def test_the_catalog_digest_covers_order_and_source() -> None:
    one, two = HOST_RECIPE, HOST_RECIPE | {"id": "two"}
    same = repository_catalog(
        {"odla.recipes.json": repository(REPOSITORY_RECIPE | {"timeoutMs": 60_000})}.get,
        image=IMAGE,
        max_output_bytes=1_000_000,
    )
    assert same is not None
    alone = host_catalog(host(one))

    assert same.recipes == alone.recipes
    assert same.digest != alone.digest
    assert host_catalog(host(one, two)).digest != host_catalog(host(two, one)).digest


@pytest.mark.parametrize("schema", [HOST_SCHEMA, REPOSITORY_SCHEMA])
def test_the_forms_are_valid_json_schema(schema: dict[str, Any]) -> None:
    Draft202012Validator.check_schema(schema)


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=60) | st.text('{}[]":,versionrcpd01\\', max_size=80).map(str.encode))
def test_any_bytes_are_a_catalog_or_a_refusal(data: bytes) -> None:
    assert refusal(read_repository, data)[0] == "catalog_malformed"
    assert refusal(read_host, data)[0] == "catalog_malformed"


@settings(deadline=None)
@given(st.binary(max_size=3), st.integers(0, 200))
def test_a_catalog_with_bytes_put_in_is_the_same_recipes_or_a_refusal(
    extra: bytes, at: int
) -> None:
    data = repository(REPOSITORY_RECIPE, REPOSITORY_RECIPE | {"id": "b"})
    try:
        catalog = read_repository(data[:at] + extra + data[at:])
    except Refusal as error:
        assert error.code == "catalog_malformed"  # noqa: PT017
    else:
        assert len(catalog.recipes) == 2
