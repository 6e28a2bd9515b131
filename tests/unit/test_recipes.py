"""Recipes: schema, error messages, inheritance and digests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from paddock.errors import ConfigError
from paddock.sandbox.images.apt_sources import (
    AptInstallProgress,
    AptSource,
    choose_apt_sources,
    format_apt_sources,
    read_host_apt_sources,
)
from paddock.sandbox.images.oci_images import canonical_image_reference
from paddock.sandbox.images.recipe import Recipe, parse_recipe
from paddock.sandbox.images.recipe_library import RecipeLibrary, default_recipe_directories, recipe_digest
from paddock.sandbox.images.registry_settings import SETTINGS_INSIDE, collect_package_registry_settings

BASE = "base: debian:bookworm\n"


def write(directory: Path, name: str, text: str) -> Path:
    path = directory / f"{name}.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "r.yaml:1: a recipe is a mapping"),
        ("- a\n", "r.yaml:1: a recipe is a mapping"),
        ("base: [\n", "r.yaml:2: not valid YAML"),
        ("apt: [git]\n", "r.yaml:1: base: is missing; add it"),
        ("base: fedora:40\n", "r.yaml:1: base: must be debian:SUITE"),
        ("base: host\n", "r.yaml:1: base: cannot be 'host'"),
        ("base: x\nbase: y\n", "r.yaml:2: 'base' is written twice; keep one"),
        (BASE + "atp: [git]\n", "r.yaml:2: atp: no such field; did you mean 'apt'?"),
        (BASE + "zzz: 1\n", "r.yaml:2: zzz: no such field; known: apt, base, "),
        (BASE + "description: [1]\n", "r.yaml:2: description: must be text, not [1]"),
        (BASE + "apt: git\n", "r.yaml:2: apt: must be a list, not 'git'"),
        (BASE + "apt:\n  - git\n  - 'Not A Package'\n", "r.yaml:4: apt.1: string should match pattern"),
        (BASE + "apt: ['git-']\n", "r.yaml:2: apt.0: string should match pattern"),
        (BASE + "pip: ['--index-url=x']\n", "r.yaml:2: pip.0: must be the name of a package, not an option"),
        (BASE + "npm: ['-g']\n", "r.yaml:2: npm.0: must be the name of a package, not an option"),
        (BASE + "files:\n  motd: {content: x}\n", "r.yaml:3: files.motd: must be an absolute path in the image"),
        (BASE + "files:\n  /a/../../b: {content: x}\n", "must be an absolute path in the image without '..'"),
        (BASE + "files:\n  /a: {}\n", "r.yaml:3: files./a: needs either 'content' or 'source', and not both"),
        (BASE + "files:\n  /a: {content: x, source: y}\n", "needs either 'content' or 'source', and not both"),
        (BASE + "files:\n  /a:\n    content: x\n    mode: 0644\n", "r.yaml:5: files./a.mode: must be quoted"),
        (BASE + "files:\n  /a:\n    content: x\n    mode: rw\n", "r.yaml:5: files./a.mode: string should match"),
        (BASE + "files:\n  /a:\n    content: x\n    mod: '1'\n", "r.yaml:5: files./a.mod: no such field; did you mean"),
        (BASE + "user: agent\n", "r.yaml:2: user: must be a mapping, not 'agent'"),
        (BASE + "user:\n  nam: agent\n", "r.yaml:3: user.nam: no such field; did you mean 'name'?"),
        (BASE + "user:\n  name: A B\n", "r.yaml:3: user.name: string should match pattern"),
        (BASE + "user:\n  uid: -1\n", "r.yaml:3: user.uid: must be at least 0, not -1"),
        (BASE + "user:\n  gid: many\n", "r.yaml:3: user.gid: must be a whole number, not 'many'"),
        (BASE + "user:\n  home: /usr/lib\n", "r.yaml:3: user.home: must be a directory of the user's own"),
        (BASE + "user:\n  home: /\n", "r.yaml:3: user.home: must be a directory of the user's own"),
        (BASE + "user:\n  shell: bash\n", "r.yaml:3: user.shell: must be an absolute path"),
        (BASE + "env:\n  A-B: c\n", "r.yaml:3: env.A-B: string should match pattern"),
        (BASE + "env:\n  A: 1\n", "r.yaml:3: env.A: must be text, not 1; put it in quotes"),
        (BASE + "run: make\n", "r.yaml:2: run: must be a list, not 'make'"),
        (BASE + "run: ['']\n", "r.yaml:2: run.0: must not be empty"),
        (BASE + "services:\n  - name: x\n", "r.yaml:3: services.0.command: is missing; add it"),
        (BASE + "services:\n  - {name: x, comand: y}\n", "services.0.comand: no such field; did you mean 'command'?"),
        (BASE + "services: [{name: x, command: a}, {name: x, command: b}]\n", "two services have the same name"),
        (BASE + "services: [{name: x, command: a, ready: up}]\n", "services.0.ready: must be an absolute path"),
        (BASE + "services: [{name: x, command: a, after: y}]\n", "services.0.after: must be a list, not 'y'"),
        (BASE + "services: [{name: x, command: []}]\n", "services.0.command: must not be empty"),
        (BASE + "nested_namespaces: 7\n", "r.yaml:2: nested_namespaces: must be true or false, not 7"),
    ],
)
def test_recipe_error_names_file_line_field_and_fix(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_recipe(text, Path("r.yaml"))
    assert complaint in caught.value.message


def test_all_recipe_errors_are_reported_together() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_recipe(BASE + "apt: 1\npip: 2\n", Path("r.yaml"))
    assert len(caught.value.message.splitlines()) == 2


def test_shipped_recipes_are_valid() -> None:
    library = RecipeLibrary(default_recipe_directories()[:1])
    assert "code" in library.names()
    for name in library.names():
        assert library.plan(name).suite


def test_a_later_directory_hides_an_earlier_one(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    for directory, text in ((first, "one"), (second, "two")):
        directory.mkdir()
        write(directory, "r", f"{BASE}description: {text}\n")
    assert RecipeLibrary([first, second]).plan("r").recipe.description == "two"


@pytest.mark.parametrize("source", ["../secret", "/etc/passwd", "link"])
def test_a_source_may_not_leave_the_recipes_directory(tmp_path: Path, source: str) -> None:
    recipes = tmp_path / "recipes"
    recipes.mkdir()
    (tmp_path / "secret").write_text("x")
    (recipes / "link").symlink_to(tmp_path / "secret")
    write(recipes, "r", f"{BASE}files: {{/a: {{source: {source}}}}}\n")
    with pytest.raises(ConfigError, match="outside the recipe's directory"):
        RecipeLibrary([recipes]).plan("r")


def test_a_missing_source_is_named(tmp_path: Path) -> None:
    write(tmp_path, "r", BASE + "files: {/a: {source: nothing}}\n")
    with pytest.raises(ConfigError, match="there is no file 'nothing' beside the recipe"):
        RecipeLibrary([tmp_path]).plan("r")


def test_circular_recipe_bases_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "a", "base: b\n")
    write(tmp_path, "b", "base: a\n")
    with pytest.raises(ConfigError, match="in a circle: a -> b -> a"):
        RecipeLibrary([tmp_path]).plan("a")


def test_unknown_base_error_names_base_and_recipe(tmp_path: Path) -> None:
    write(tmp_path, "a", "base: nothing\n")
    with pytest.raises(ConfigError, match="no recipe named 'nothing', which recipe 'a' is based on; known: a"):
        RecipeLibrary([tmp_path]).plan("a")


def test_recipe_can_run_programs_as_root(tmp_path: Path) -> None:
    write(tmp_path, "low", BASE + "user: root\n")
    write(tmp_path, "high", "base: low\n")
    write(tmp_path, "other", "base: low\nuser: {name: me, home: /home/me}\n")
    plans = {name: RecipeLibrary([tmp_path]).plan(name) for name in ("low", "high", "other")}
    assert [plan.root_mode for plan in plans.values()] == [True, True, False]
    assert plans["low"].user.name == "agent", "root mode keeps the ordinary user's account"
    assert not plans["high"].recipe.changes_files


def test_layer_inherits_and_overrides_base_settings(tmp_path: Path) -> None:
    write(
        tmp_path,
        "low",
        BASE + "env: {A: '1', B: '1'}\nuser: {name: me, home: /home/me}\nnested_namespaces: true\n"
        "services: [{name: x, command: low}, {name: y, command: low}]\n",
    )
    write(tmp_path, "high", "base: low\nenv: {B: '2'}\nservices: [{name: x, command: high}]\n")
    plan = RecipeLibrary([tmp_path]).plan("high")
    assert plan.env == {"A": "1", "B": "2"}
    assert plan.user.name == "me"
    assert plan.nested_namespaces
    assert {service.name: service.command for service in plan.services} == {"x": "high", "y": "low"}
    assert plan.suite == "bookworm"


def test_service_may_depend_on_base_service_but_not_on_unknown_one(tmp_path: Path) -> None:
    write(tmp_path, "low", BASE + "services: [{name: display, command: x, ready: /tmp/up}]\n")
    write(tmp_path, "high", "base: low\nservices: [{name: panel, command: y, after: [display]}]\n")
    assert RecipeLibrary([tmp_path]).plan("high").services[1].after == ("display",)
    write(tmp_path, "high", "base: low\nservices: [{name: panel, command: y, after: [screen]}]\n")
    with pytest.raises(
        ConfigError, match="'panel' comes after 'screen', which is not there; there are: display, panel"
    ):
        RecipeLibrary([tmp_path]).plan("high")


def test_circular_service_dependencies_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "a", BASE + "services: [{name: x, command: c, after: [y]}, {name: y, command: c, after: [x]}]\n")
    with pytest.raises(ConfigError, match=r"services wait for each other: (x -> y -> x|y -> x -> y)"):
        RecipeLibrary([tmp_path]).plan("a")


def test_shipped_screen_kinds_have_display_services() -> None:
    library = RecipeLibrary(default_recipe_directories()[:1])
    plans = {name: library.plan(name) for name in library.names()}
    assert {"code", "desktop", "browser", "windows", "mobile"} <= plans.keys()
    for name in ("desktop", "browser", "windows", "mobile"):
        assert {"display", "windows"} <= {service.name for service in plans[name].services}
        assert plans[name].env["DISPLAY"] == ":1"
        assert plans[name].env["PADDOCK_DISPLAY_SOCKET"].startswith("/tmp/.")  # Which is there from the start.


def test_install_progress_is_read_from_apt_output() -> None:
    lines = ["Reading package lists...", "0 upgraded, 2 newly installed, 0 to remove and 0 not upgraded."]
    lines += ["Get:1 a", "Get:2 b", "Unpacking a", "Unpacking b", "Setting up a", "Setting up b", "Processing triggers"]
    install = AptInstallProgress()
    fractions = [install.follow(line) for line in lines]
    assert fractions == [None, None, 1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6, 1.0, None]


def test_install_progress_never_exceeds_one() -> None:
    install = AptInstallProgress()
    assert install.follow("Get:1 before anybody knows how many") is None
    install.follow("0 upgraded, 1 newly installed, 0 to remove and 0 not upgraded.")
    fractions = [install.follow(f"{stage}x") for stage in ("Get:", "Get:", "Unpacking ", "Unpacking ", "Setting up ")]
    assert fractions == [1 / 3, 1 / 3, 2 / 3, 2 / 3, 1.0]


def test_digest_depends_on_sources_and_bases(tmp_path: Path) -> None:
    write(tmp_path, "low", BASE + "files: {/a: {source: a.txt}}\n")
    write(tmp_path, "high", "base: low\n")
    (tmp_path / "a.txt").write_text("one")
    library = RecipeLibrary([tmp_path])
    before = library.plan("high")
    assert library.plan("high") is before
    (tmp_path / "a.txt").write_text("other")
    assert library.plan("high").digest != before.digest
    (tmp_path / "a.txt").write_text("one")
    assert library.plan("high").digest == before.digest


names = st.from_regex(r"[a-z][a-z0-9]{1,8}", fullmatch=True)
recipes = st.fixed_dictionaries(
    {"base": st.sampled_from(["debian:bookworm", "debian:trixie", "other"])},
    optional={
        "apt": st.lists(names, max_size=4),
        "pip": st.lists(names, max_size=4),
        "npm": st.lists(names, max_size=4),
        "env": st.dictionaries(names, st.text("abc é", max_size=6), max_size=4),
        "run": st.lists(names, max_size=3),
        "files": st.dictionaries(
            names.map("/{}".format), st.fixed_dictionaries({"content": st.text("ab\n", max_size=5)}), max_size=3
        ),
        "nested_namespaces": st.booleans(),
    },
)


def digest(data: dict[str, Any], base: str | None = None, builder: int = 1) -> str:
    return recipe_digest(Recipe.model_validate(data), base, {}, builder)


@given(recipes, st.randoms())
def test_digest_ignores_order_and_spelling(data: dict[str, Any], random: Any) -> None:
    shuffled = dict(random.sample(sorted(data.items(), key=lambda item: item[0]), len(data)))
    for key in ("env", "files"):
        if key in shuffled:
            shuffled[key] = dict(reversed(shuffled[key].items()))
    if "apt" in shuffled:
        shuffled["apt"] = list(reversed(shuffled["apt"]))
    assert digest(yaml.safe_load(yaml.safe_dump(shuffled, sort_keys=False))) == digest(data)
    assert digest({**data, "description": "other words"}) == digest(data)


@given(recipes, st.sampled_from(["apt", "pip", "npm", "run", "env", "files", "base", "user"]))
def test_digest_changes_with_every_build_input(data: dict[str, Any], key: str) -> None:
    changes: dict[str, Any] = {
        "env": {**data.get("env", {}), "ADDED": "1"},
        "files": {**data.get("files", {}), "/added": {"content": "1"}},
        "base": "debian:sid",
        "user": {"name": "somebody"},
    }
    changed = {**data, key: changes.get(key, [*data.get(key, []), "added-one"])}
    assert digest(changed) != digest(data)
    assert digest(data, base="0123") != digest(data)
    assert digest(data, builder=2) != digest(data)


@given(st.lists(names, min_size=2, max_size=4, unique=True))
def test_digest_depends_on_command_order(commands: list[str]) -> None:
    data = {"base": "debian:bookworm", "run": commands}
    assert digest(data) != digest({**data, "run": list(reversed(commands))})


class TestAptSources:
    def test_both_apt_source_formats_are_read_without_third_parties(self, tmp_path: Path) -> None:
        parts = tmp_path / "sources.list.d"
        parts.mkdir()
        (tmp_path / "sources.list").write_text(
            "# deb http://old.test/debian bookworm main\n"
            "deb [arch=amd64 signed-by=/k/corp.gpg] http://mirror.test/debian bookworm main contrib # ours\n"
            "deb http://mirror.test/debian bookworm-backports main\n"
            "deb-src http://mirror.test/debian bookworm main\n"
            "deb http://third.test/linux/debian bookworm stable\n"
        )
        (parts / "security.sources").write_text(
            "Types: deb deb-src\nURIs: http://mirror.test/debian-security\nSuites: bookworm-security sid\n"
            "Components: main\nSigned-By:\n -----BEGIN PGP-----\n .\n abc\n\n"
            "Types: deb\nEnabled: no\nURIs: http://off.test/debian\nSuites: bookworm\nComponents: main\n"
        )
        sources = read_host_apt_sources("bookworm", tmp_path)
        assert [(source.uri, source.suites) for source in sources] == [
            ("http://mirror.test/debian", ("bookworm",)),
            ("http://mirror.test/debian-security", ("bookworm-security",)),
        ]
        assert sources[0].keyring == Path("/k/corp.gpg")
        assert "Signed-By: \n -----BEGIN PGP-----\n .\n abc\n" in format_apt_sources(sources)
        assert read_host_apt_sources("trixie", tmp_path) == []

    def test_configured_mirror_overrides_host_sources(self, tmp_path: Path) -> None:
        (tmp_path / "sources.list").write_text("deb http://mirror.test/debian bookworm main\n")
        assert choose_apt_sources("bookworm", "http://own.test/d", tmp_path)[0].uri == "http://own.test/d"
        lines = "deb http://a.test/x bookworm main\ndeb http://b.test/y bookworm-security main\n"
        assert [source.uri for source in choose_apt_sources("bookworm", lines, tmp_path)] == [
            "http://a.test/x",
            "http://b.test/y",
        ]

    def test_apt_sources_in_image_have_no_password(self) -> None:
        source = AptSource("https://me:secret@mirror.test:81/debian", ("bookworm",), ("main",))
        assert source.public.uri == "https://mirror.test:81/debian"


def test_local_package_directories_are_renamed_in_settings(tmp_path: Path) -> None:
    (tmp_path / "index/simple").mkdir(parents=True)
    (tmp_path / "wheels").mkdir()
    environment = {
        "PIP_FIND_LINKS": f"{tmp_path}/wheels",
        "PIP_EXTRA_INDEX_URL": f"file://{tmp_path}/index/simple https://packages.test/simple",
        "PIP_USER": "1",
        "https_proxy": "http://me:secret@proxy.test:3128",
        "UNRELATED": "x",
    }
    settings = collect_package_registry_settings(tmp_path / "settings", [], environment)
    assert settings.env["PIP_FIND_LINKS"] == f"{SETTINGS_INSIDE}/links/0"
    assert settings.env["PIP_EXTRA_INDEX_URL"].split() == [
        f"file://{SETTINGS_INSIDE}/links/1/simple",
        "https://packages.test/simple",
    ]
    assert settings.directories[f"{SETTINGS_INSIDE}/links/1"] == tmp_path / "index"
    assert settings.env["https_proxy"] == environment["https_proxy"]
    assert not {"PIP_USER", "UNRELATED"} & settings.env.keys()


@pytest.mark.parametrize(
    ("reference", "canonical"),
    [
        ("python:3.12", "docker.io/library/python:3.12"),
        ("docker.io/library/python:3.12", "docker.io/library/python:3.12"),
        ("docker://me/thing", "docker.io/me/thing:latest"),
        ("registry.test:5000/a/b", "registry.test:5000/a/b:latest"),
        ("localhost/a@sha256:" + "0" * 64, "localhost/a@sha256:" + "0" * 64),
        ("oci:/some/layout:tag", "oci:/some/layout:tag"),
        ("Not a reference", None),
        ("--option", None),
        ("../up", None),
    ],
)
def test_oci_references_are_canonicalised(reference: str, canonical: str | None) -> None:
    assert canonical_image_reference(reference) == canonical
