"""What a recipe says, and precise complaints about recipes that say it wrongly."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, Field, ValidationError, field_validator, model_validator

from paddock.config.yamls import advice, place, read_tree, unknown
from paddock.errors import ConfigError
from paddock.model.sandbox import Frozen, Service, User

HOST = "host"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_DEBIAN = re.compile(r"debian:([a-z][a-z-]*)")
_SYSTEM_DIRECTORIES = frozenset(
    {"bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "media", "mnt", "opt", "proc", "run"}
    | {"sbin", "srv", "sys", "tmp", "usr", "var"}
)


def _not_an_option(value: str) -> str:
    if value.startswith("-") or not value.strip() or "\n" in value:
        raise ValueError("must be the name of a package, not an option")
    return value


def _absolute(value: str) -> str:
    path = PurePosixPath(value)
    if not path.is_absolute() or ".." in path.parts or "\0" in value or "\n" in value:
        raise ValueError("must be an absolute path in the image without '..', such as /etc/motd")
    return str(path)


AptPackage = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9+.-]*[a-z0-9+](:[a-z0-9]+)?(=[A-Za-z0-9.+~:-]+)?$")]
LanguagePackage = Annotated[str, AfterValidator(_not_an_option)]
ImagePath = Annotated[str, AfterValidator(_absolute)]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Value = Annotated[str, Field(pattern=r"^[^\x00]*$")]


class RecipeFile(Frozen):
    """A file put into the image, written in the recipe or taken from beside it."""

    content: str | None = None
    source: str | None = None
    """A path relative to the recipe's directory."""
    mode: str = Field(default="0644", pattern=r"^0?[0-7]{3,4}$")

    @field_validator("mode", mode="before")
    @classmethod
    def _quoted(cls, value: object) -> object:
        if isinstance(value, int):
            raise ValueError('must be quoted, such as mode: "0644", because YAML reads the bare number differently')
        return value

    @model_validator(mode="after")
    def _one_origin(self) -> RecipeFile:
        if (self.content is None) == (self.source is None):
            raise ValueError("needs either 'content' or 'source', and not both")
        return self


class RecipeUser(User):
    """Who the box's processes are."""

    name: str = Field(default="agent", pattern=r"^[a-z_][a-z0-9_-]{0,31}$")
    uid: int = Field(default=1000, ge=0, le=60000)
    gid: int = Field(default=1000, ge=0, le=60000)
    home: ImagePath = "/home/agent"
    shell: ImagePath = "/bin/bash"

    @field_validator("home")
    @classmethod
    def _of_its_own(cls, value: str) -> str:
        # The builder gives the home and all below it to the user.
        parts = PurePosixPath(value).parts
        if len(parts) < 2 or (len(parts) == 2 and parts[1] in _SYSTEM_DIRECTORIES) or parts[1] in ("usr", "etc"):
            raise ValueError("must be a directory of the user's own, such as /home/agent")
        return value


class RecipeService(Service):
    """A program that runs in every box of the image."""

    env: Mapping[Variable, Value] = {}
    ready: ImagePath | None = None


class Recipe(Frozen):
    """How to make an image. Steps run in the order apt, user, pip, npm, files, run."""

    description: str = ""
    base: str
    """`debian:SUITE`, or the name of the recipe this one adds to."""
    apt: tuple[AptPackage, ...] = ()
    pip: tuple[LanguagePackage, ...] = ()
    npm: tuple[LanguagePackage, ...] = ()
    files: Mapping[ImagePath, RecipeFile] = {}
    user: RecipeUser | None = None
    """Who the box's processes are; the base's user if not given."""
    env: Mapping[Variable, Value] = {}
    run: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Shell commands, as root of the image, in /tmp, stopping at the first that fails."""
    services: tuple[RecipeService, ...] = ()
    nested_namespaces: bool | None = None
    """Whether programs may make user namespaces (browsers do); as in the base if not given."""

    @field_validator("base")
    @classmethod
    def _known_sort(cls, value: str) -> str:
        if value == HOST:
            raise ValueError("cannot be 'host', this machine itself; use debian:SUITE or another recipe's name")
        if not (_DEBIAN.fullmatch(value) or _NAME.fullmatch(value)):
            raise ValueError("must be debian:SUITE, such as debian:bookworm, or another recipe's name")
        return value

    @model_validator(mode="after")
    def _services_differ(self) -> Recipe:
        names = [service.name for service in self.services]
        if len(set(names)) != len(names):
            raise ValueError("two services have the same name")
        return self

    @property
    def changes_files(self) -> bool:
        """Whether it makes other files of its base's, or only says other things about them."""
        return bool(self.suite or self.apt or self.pip or self.npm or self.files or self.user or self.run)

    @property
    def suite(self) -> str | None:
        """The Debian suite this recipe starts from, or None when it starts from another recipe."""
        match = _DEBIAN.fullmatch(self.base)
        return match.group(1) if match else None


def is_name(name: str) -> bool:
    """Whether a recipe could have this name."""
    return bool(_NAME.fullmatch(name)) and name != HOST


def check_name(name: str) -> None:
    """Refuse names that cannot be a recipe's."""
    if not is_name(name):
        raise ConfigError(f"'{name}' cannot be a recipe's name: use a-z, 0-9 and '-', and not '{HOST}'")


def load_recipe(path: Path) -> Recipe:
    """Read a recipe file. Raises `ConfigError` naming file, line and field."""
    check_name(path.stem)
    try:
        return parse_recipe(path.read_text(encoding="utf-8"), path)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error


def parse_recipe(text: str, path: Path) -> Recipe:
    """Check the text of a recipe; `path` is what complaints call it."""
    tree, data = read_tree(text, path)
    if not isinstance(data, dict):
        raise ConfigError(f"{path}:1: a recipe is a mapping that starts with 'base: debian:bookworm'")
    try:
        return Recipe.model_validate(data)
    except ValidationError as error:
        complaints = [_complaint(path, tree, detail) for detail in error.errors(include_url=False)]
        raise ConfigError("\n".join(complaints)) from error


def source_path(recipe_path: Path, target: str, file: RecipeFile) -> Path:
    """Where a file's source is. Raises `ConfigError` when it is outside the recipe's directory or missing."""
    assert file.source is not None
    directory = recipe_path.parent.resolve()
    source = (directory / file.source).resolve()
    if not source.is_relative_to(directory):
        raise ConfigError(
            f"{recipe_path}: files.{target}.source: '{file.source}' is outside the recipe's directory; "
            "copy it there, or write it as 'content'"
        )
    if not source.is_file():
        raise ConfigError(f"{recipe_path}: files.{target}.source: there is no file '{file.source}' beside the recipe")
    return source


def _complaint(path: Path, tree: yaml.Node | None, detail: Mapping[str, Any]) -> str:
    line, written = place(tree, [part for part in detail["loc"] if part not in ("[key]", "str")])
    field = ".".join(str(part) for part in written)
    return f"{path}:{line}: {field or 'recipe'}: {_advice(detail)}"


def _advice(detail: Mapping[str, Any]) -> str:
    if detail["type"] == "extra_forbidden":
        return unknown(detail["loc"][-1], sorted(_fields_at(detail["loc"][:-1])))
    return advice(detail)


def _fields_at(location: Sequence[str | int]) -> list[str]:
    models: dict[str, type[Frozen]] = {"files": RecipeFile, "user": RecipeUser, "services": RecipeService}
    model = models.get(str(location[0]), Recipe) if location else Recipe
    return list(model.model_fields)
