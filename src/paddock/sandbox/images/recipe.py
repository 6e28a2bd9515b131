"""Image recipes: schema, loading and precise errors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, Field, ValidationError, field_validator, model_validator

from paddock.config.yaml_files import explain_validation_error, locate_field, parse_yaml, unknown_name_message
from paddock.errors import ConfigError
from paddock.model.sandbox import FrozenModel, ImageService, SandboxUser

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


class RecipeImageFile(FrozenModel):
    """A file of the image, inline or from the recipe's directory."""

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
    def _one_origin(self) -> RecipeImageFile:
        if (self.content is None) == (self.source is None):
            raise ValueError("needs either 'content' or 'source', and not both")
        return self


class RecipeUser(SandboxUser):
    """User of the sandbox's processes."""

    name: str = Field(default="agent", pattern=r"^[a-z_][a-z0-9_-]{0,31}$")
    uid: int = Field(default=1000, ge=0, le=60000)
    gid: int = Field(default=1000, ge=0, le=60000)
    home: ImagePath = "/home/agent"
    shell: ImagePath = "/bin/bash"

    @field_validator("home")
    @classmethod
    def _of_its_own(cls, value: str) -> str:
        # The builder chowns the home directory to the user.
        parts = PurePosixPath(value).parts
        if len(parts) < 2 or (len(parts) == 2 and parts[1] in _SYSTEM_DIRECTORIES) or parts[1] in ("usr", "etc"):
            raise ValueError("must be a directory of the user's own, such as /home/agent")
        return value


class RecipeService(ImageService):
    """A service started in every sandbox of the image."""

    env: Mapping[Variable, Value] = {}
    ready: ImagePath | None = None


class Recipe(FrozenModel):
    """An image recipe. Steps run in the order apt, user, pip, npm, files, run."""

    description: str = ""
    base: str
    """`debian:SUITE`, or the name of the base recipe."""
    apt: tuple[AptPackage, ...] = ()
    pip: tuple[LanguagePackage, ...] = ()
    npm: tuple[LanguagePackage, ...] = ()
    files: Mapping[ImagePath, RecipeImageFile] = {}
    user: RecipeUser | None = None
    """User of the sandbox's processes, or `root`. Default: the base's user."""
    env: Mapping[Variable, Value] = {}
    run: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Shell commands, run as root of the image in /tmp; the first failure stops the build."""
    services: tuple[RecipeService, ...] = ()
    nested_namespaces: bool | None = None
    """Whether programs may create user namespaces, as browsers do. Default: as in the base."""

    root_mode: bool = False
    """Set by `user: root`: programs run as root of a user namespace."""

    @model_validator(mode="before")
    @classmethod
    def _root_as_user(cls, value: object) -> object:
        if isinstance(value, dict) and value.get("user") == "root":
            return {**{name: field for name, field in value.items() if name != "user"}, "root_mode": True}
        return value

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
        """Return whether it changes files of its base, or only metadata."""
        return bool(self.suite or self.apt or self.pip or self.npm or self.files or self.user or self.run)

    @property
    def suite(self) -> str | None:
        """Return the Debian suite, or None for a recipe based on another recipe."""
        match = _DEBIAN.fullmatch(self.base)
        return match.group(1) if match else None


def is_recipe_name(name: str) -> bool:
    """Return whether a name is valid for a recipe."""
    return bool(_NAME.fullmatch(name)) and name != HOST


def check_recipe_name(name: str) -> None:
    """Raise `ConfigError` for an invalid recipe name."""
    if not is_recipe_name(name):
        raise ConfigError(f"'{name}' is not a valid recipe name: use a-z, 0-9 and '-', and not '{HOST}'")


def load_recipe(path: Path) -> Recipe:
    """Read a recipe file. Raises `ConfigError` naming file, line and field."""
    check_recipe_name(path.stem)
    try:
        return parse_recipe(path.read_text(encoding="utf-8"), path)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error


def parse_recipe(text: str, path: Path) -> Recipe:
    """Parse a recipe; errors name `path`."""
    tree, data = parse_yaml(text, path)
    if not isinstance(data, dict):
        raise ConfigError(f"{path}:1: a recipe is a mapping that starts with 'base: debian:bookworm'")
    try:
        return Recipe.model_validate(data)
    except ValidationError as error:
        complaints = [_complaint(path, tree, detail) for detail in error.errors(include_url=False)]
        raise ConfigError("\n".join(complaints)) from error


def recipe_source_path(recipe_path: Path, target: str, file: RecipeImageFile) -> Path:
    """Return a file's source path. Raises `ConfigError` if it is missing or outside the recipe's directory."""
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
    line, written = locate_field(tree, [part for part in detail["loc"] if part not in ("[key]", "str")])
    field = ".".join(str(part) for part in written)
    return f"{path}:{line}: {field or 'recipe'}: {_advice(detail)}"


def _advice(detail: Mapping[str, Any]) -> str:
    if detail["type"] == "extra_forbidden":
        return unknown_name_message(detail["loc"][-1], sorted(_fields_at(detail["loc"][:-1])))
    return explain_validation_error(detail)


def _fields_at(location: Sequence[str | int]) -> list[str]:
    models: dict[str, type[FrozenModel]] = {"files": RecipeImageFile, "user": RecipeUser, "services": RecipeService}
    model = models.get(str(location[0]), Recipe) if location else Recipe
    return list(model.model_fields)
