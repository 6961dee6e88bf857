"""Which files a pattern finds, and what whoever may not read them learns: nothing."""

from __future__ import annotations

import glob
from dataclasses import replace
from pathlib import Path

import pytest

from seqstore import AccessDeniedError, InvalidInputError
from seqstore.loaders.broker.files import InputFile, _matches, check_allowed, check_pattern, find_files
from seqstore.loaders.broker.spec import DataDescription
from seqstore.loaders.broker.toml_spec import read_spec

NAMES = ("a.csv", "b.csv", "c.csv", "deep/d.csv", "deep/er/e.csv", "deep/.tmp/f.csv")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where files may be read; there are others beside it."""
    for name in NAMES:
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1\n")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "secret.csv").write_text("1\n")
    return tmp_path / "in"


def found(folder: Path, *patterns: str) -> list[str]:
    files = find_files(DataDescription("t", patterns), [str(folder)])
    return [str(Path(file.uri).relative_to(folder)) for file in files]


@pytest.mark.parametrize(
    "pattern",
    [
        "{}/sec*",
        "{}/nothing*",
        "{}/secret.csv",
        "{}/nothing.csv",
        "{}/**",
        "{}/../*/*",
        "{{{0},{0}/../in}}/*",
        "file://{}/sec%2A",
    ],
)
def test_a_refused_pattern_does_not_tell_what_is_there(
    folder: Path, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody even looks."""
    monkeypatch.setattr(glob, "glob", lambda *args, **more: pytest.fail("looked"))
    given = pattern.format(folder.parent / "out")
    with pytest.raises(AccessDeniedError) as caught:
        found(folder, given)
    said = given if not given.startswith("file:") else f"{folder.parent}/out/sec*"
    assert caught.value.message.startswith(f"{said}: not below a directory")


def test_a_wildcard_is_no_way_out(folder: Path) -> None:
    for name in ("secret.csv", "sec*", "nothing*"):
        with pytest.raises(InvalidInputError, match=r"'\.\.' cannot follow a wildcard"):
            found(folder, f"{folder}/dee*/../../out/{name}")


def test_links_do_not_lead_out(folder: Path) -> None:
    (folder / "link.csv").symlink_to(folder.parent / "out" / "secret.csv")
    (folder / "there").symlink_to(folder.parent / "out")
    for pattern in ("link.csv", "l*.csv", "there/*", "there/nothing*"):
        with pytest.raises(AccessDeniedError):
            found(folder, f"{folder}/{pattern}")


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("[^b].csv", ["a.csv", "c.csv"]),
        ("[!b].csv", ["a.csv", "c.csv"]),
        ("{a,d*/d}.csv", ["a.csv", "deep/d.csv"]),
        ("**/*.csv", ["a.csv", "b.csv", "c.csv", "deep/d.csv", "deep/er/e.csv"]),
        ("deep/**/**", ["deep/d.csv", "deep/er/e.csv"]),
        ("deep/**/e.csv", ["deep/er/e.csv"]),
    ],
)
def test_patterns(folder: Path, pattern: str, names: list[str]) -> None:
    assert found(folder, f"{folder}/{pattern}") == names


@pytest.mark.parametrize("name", ["orders [old]", "what? *", "{a,b}", "[^b]", "[]"])
def test_an_escaped_folder_is_itself(folder: Path, name: str) -> None:
    """What is beside a job file may be read, however its folder is called."""
    place = folder / name
    place.mkdir()
    (place / "a.csv").write_text("1\n")
    pattern = glob.escape(str(place)).replace("{", "[{]") + "/*.csv"
    assert found(place, pattern) == ["a.csv"]
    assert found(place, f"{place}/a.csv") == found(place, f"{place}/[^b].csv") == ["a.csv"]


def test_a_job_file_finds_what_is_beside_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder is no pattern; a name with brackets may be given as it is."""
    place = folder / "orders [old]"
    place.mkdir()
    for name in ("a.csv", "b[1].csv"):
        (place / name).write_text("1\n")
    job = 'database = "db"\nlabel = "l"\n[[load]]\ntable = "t"\npaths = ["*.csv", "b[1].csv"]\n'
    (place / "job.toml").write_text(job)
    monkeypatch.chdir(folder)
    for file in (place / "job.toml", Path("orders [old]/job.toml")):
        (description,) = read_spec(file).descriptions
        for allowed in ([str(file.parent)], [str(folder), str(file.parent)]):
            names = [Path(each.uri).name for each in find_files(description, allowed)]
            assert names == ["a.csv", "b[1].csv"]
            one = replace(description, paths=description.paths[1:])
            assert [Path(each.uri).name for each in find_files(one, allowed)] == ["b[1].csv"]


@pytest.mark.parametrize(
    "uri",
    [
        "s3://bucket/in/%2E%2E/out/x",
        "s3://bucket/in/%2e./out/*",
        "s3://bucket/in/%2e%2e%2Fout/x",
        "s3://bucket/in/{{..,a}}/out/x",
    ],
)
def test_escaped_dots_are_dots(uri: str) -> None:
    with pytest.raises(InvalidInputError, match=r"'\.\.' cannot be in the URI"):
        find_files(DataDescription("t", (uri,)), ["s3://bucket/in"])


@pytest.mark.parametrize(
    "uri", ["s3://k#:s@bucket/in/a", "s3://k?:s@bucket/in/a", "s3://buck*/in/a", r"s3://k\:s@bucket/in/a"]
)
def test_a_uri_that_others_may_read_differently_is_refused(uri: str) -> None:
    """What is checked must be what is opened; the `#` would end the URI there."""
    with pytest.raises(InvalidInputError, match="expected a URI such as") as caught:
        check_allowed(uri, ["s3://bucket/in"])
    assert ":s@" not in caught.value.message


def test_the_server_that_was_checked_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """pyarrow takes the first of two endpoints."""
    asked = []

    class FileSystem:
        @staticmethod
        def from_uri(uri: str) -> None:
            asked.append(uri)
            raise OSError("not now")

    monkeypatch.setattr("seqstore.loaders.broker.files.pafs.FileSystem", FileSystem)
    given = "s3://bucket/in/a#b?endpoint_override=other:1&endpoint_override=known:1"
    with pytest.raises(InvalidInputError, match="not now"):
        find_files(DataDescription("t", (given,)), ["s3://bucket/in?endpoint_override=known:1"])
    assert asked == ["s3://bucket?endpoint_override=known%3A1"]


def test_a_file_does_not_show_its_keys() -> None:
    server = "s3://k:hidden@bucket?endpoint_override=h:1"
    file = InputFile("s3://k:hidden@bucket/a?b=1/c?endpoint_override=h:1", 1, server=server, key="a?b=1/c")
    assert file.name == "s3://bucket/a?b=1/c"
    assert "hidden" not in repr(file)


@pytest.mark.parametrize("allowed", ["{}/", "file://{}", "/"])
def test_an_allowed_directory_has_more_than_one_spelling(folder: Path, allowed: str) -> None:
    files = find_files(DataDescription("t", (f"{folder}/*.csv",)), [allowed.format(folder)])
    assert len(files) == 3


def test_braces_do_not_multiply_without_a_limit(folder: Path) -> None:
    """Every pair of braces doubled the patterns: thirty of them filled the memory."""
    with pytest.raises(InvalidInputError, match="at most 1,000 paths from the braces"):
        check_pattern(f"{folder}/" + "{a,b}" * 30, [str(folder)])


def test_many_stars_for_depth_do_not_multiply() -> None:
    """Each `**` was tried at each depth for each place of the others."""
    assert not _matches(["a"] * 60, ["**", "a"] * 20 + ["b"])
    assert _matches(["a"] * 60, ["**", "a"] * 20)
    assert _matches(["a", "b"], ["**"])
    assert not _matches(["a", ".b", "c"], ["**", "c"])


@pytest.mark.parametrize(
    "query",
    ["endpoint_override=169.254.169.254", "endpoint_override=10.0.0.7:9000", "endpoint_override=[::1]:80",
     "region=x.evil.example%2F", "region=a@169.254.169.254%2F", "scheme=http&endpoint_override=localhost:1"],
)  # fmt: skip
def test_no_server_is_asked_that_load_paths_do_not_name(query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A statement of a user with LOAD must not make this host send requests to other addresses."""
    asked: list[str] = []

    class Servers:
        from_uri = asked.append

    monkeypatch.setattr("seqstore.loaders.broker.files.pafs.FileSystem", Servers)
    for path in ("in/a.csv", "in/*.csv", "in/{a,b}.csv"):
        with pytest.raises((AccessDeniedError, InvalidInputError)):
            find_files(DataDescription("t", (f"s3://bucket/{path}?{query}",)), ["s3://bucket/in"])
    assert asked == []
