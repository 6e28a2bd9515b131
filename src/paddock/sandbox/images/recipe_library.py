"""Lookup of recipes and computation of their digests."""

from __future__ import annotations

import graphlib
import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from paddock.errors import ConfigError
from paddock.model.sandbox import SandboxUser
from paddock.sandbox.images.recipe import (
    HOST,
    Recipe,
    RecipeService,
    check_recipe_name,
    is_recipe_name,
    load_recipe,
    recipe_source_path,
)

BUILDER_VERSION = 1
"""Builder version, part of every digest: increase it when the builder's output changes."""


@dataclass(frozen=True)
class RecipeBuildPlan:
    """A recipe merged with its bases, ready to build."""

    name: str
    path: Path
    recipe: Recipe
    digest: str
    suite: str
    base: RecipeBuildPlan | None
    sources: Mapping[str, Path]
    """Source paths by path in the image."""

    @property
    def user(self) -> SandboxUser:
        if self.recipe.user is not None:
            return SandboxUser(**self.recipe.user.model_dump())
        return self.base.user if self.base else SandboxUser()

    @property
    def root_mode(self) -> bool:
        return self.recipe.root_mode or (self.recipe.user is None and self.base is not None and self.base.root_mode)

    @property
    def env(self) -> dict[str, str]:
        return {**(self.base.env if self.base else {}), **self.recipe.env}

    @property
    def services(self) -> tuple[RecipeService, ...]:
        own = {service.name for service in self.recipe.services}
        inherited = self.base.services if self.base else ()
        return (*(service for service in inherited if service.name not in own), *self.recipe.services)

    @property
    def nested_namespaces(self) -> bool:
        if self.recipe.nested_namespaces is not None:
            return self.recipe.nested_namespaces
        return self.base.nested_namespaces if self.base else False


@dataclass(frozen=True)
class _Seen:
    stamps: Mapping[Path, tuple[int, int, int]]
    plan: RecipeBuildPlan


class RecipeLibrary:
    """Recipes of several directories; later directories override earlier ones."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self._directories = tuple(directories)
        self._seen: dict[str, _Seen] = {}

    def names(self) -> list[str]:
        found = (path.stem for directory in self._directories for path in directory.glob("*.yaml"))
        return sorted({name for name in found if name != HOST})

    def find(self, name: str) -> Path | None:
        """Return the file of a recipe, or None."""
        if not is_recipe_name(name):
            return None  # An invalid name could lead out of the directory.
        for directory in reversed(self._directories):
            path = directory / f"{name}.yaml"
            if path.is_file():
                return path
        return None

    def plan(self, name: str) -> RecipeBuildPlan:
        """Return the build plan of a recipe. Raises `ConfigError` if it or a base is invalid."""
        return self._plan(name, ())

    def _plan(self, name: str, above: tuple[str, ...]) -> RecipeBuildPlan:
        if name in above:
            raise ConfigError(f"recipes are based on each other in a circle: {' -> '.join((*above, name))}")
        check_recipe_name(name)
        path = self.find(name)
        if path is None:
            needed_by = f", which recipe '{above[-1]}' is based on" if above else ""
            raise ConfigError(f"no recipe named '{name}'{needed_by}; known: {', '.join(self.names()) or 'none'}")
        seen = self._seen.get(name)
        if seen and seen.plan.path == path and self._unchanged(seen, (*above, name)):
            return seen.plan
        # Take the stamp before reading, so that a concurrent change is noticed next time.
        stamps = {path: _stamp(path)}
        recipe = load_recipe(path)
        base = None if recipe.suite else self._plan(recipe.base, (*above, name))
        sources = {
            target: recipe_source_path(path, target, file)
            for target, file in recipe.files.items()
            if file.source is not None
        }
        stamps |= {source: _stamp(source) for source in sources.values()}
        plan = RecipeBuildPlan(
            name=name,
            path=path,
            recipe=recipe,
            digest=recipe_digest(recipe, base.digest if base else None, sources),
            suite=base.suite if base else recipe.suite or "",
            base=base,
            sources=sources,
        )
        _check_order(plan)
        self._seen[name] = _Seen(stamps, plan)
        return plan

    def _unchanged(self, seen: _Seen, above: tuple[str, ...]) -> bool:
        try:
            same = all(_stamp(path) == stamp for path, stamp in seen.stamps.items())
        except OSError:
            return False
        base = seen.plan.base
        return same and (base is None or self._plan(base.name, above) is base)


def _check_order(plan: RecipeBuildPlan) -> None:
    """Raise `ConfigError` for services that wait for unknown services or for each other."""
    known = {service.name: service.after for service in plan.services}
    for name, after in known.items():
        missing = [other for other in after if other not in known]
        if missing:
            raise ConfigError(
                f"{plan.path}: service '{name}' comes after '{missing[0]}', which is not there; "
                f"there are: {', '.join(known)}"
            )
    try:
        graphlib.TopologicalSorter(known).prepare()
    except graphlib.CycleError as error:
        raise ConfigError(f"{plan.path}: services wait for each other: {' -> '.join(error.args[1])}") from None


def recipe_digest(
    recipe: Recipe, base_digest: str | None, sources: Mapping[str, Path], builder_version: int = BUILDER_VERSION
) -> str:
    """Return the SHA-256 of everything a build depends on, independent of the order of mappings and packages."""
    data = recipe.model_dump(mode="json", exclude_defaults=True, exclude={"description"})
    data["apt"] = sorted(set(recipe.apt))
    contents = {target: hashlib.sha256(source.read_bytes()).hexdigest() for target, source in sources.items()}
    for target in contents:
        data["files"][target]["source"] = contents[target]
    document = {
        "architecture": platform.machine(),
        "base": base_digest or recipe.base,
        "builder": builder_version,
        "recipe": data,
    }
    return hashlib.sha256(json.dumps(document, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def default_recipe_directories(configured: Sequence[Path] = ()) -> list[Path]:
    """Return recipe directories, lowest priority first: shipped, user's own, configured."""
    package = Path(__file__).resolve().parents[2]
    checkout = package.parents[1] / "images"
    shipped = checkout if (package.parents[1] / "pyproject.toml").is_file() else package / "recipes"
    return [shipped, Path(platformdirs.user_config_dir("paddock")) / "images", *configured]


def _stamp(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino
