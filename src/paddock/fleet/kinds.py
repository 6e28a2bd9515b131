"""The sorts of computer that can be asked for by name.

Kinds are plugins: whatever the entry points of the group `paddock.kinds` lead to, Paddock's own among them. The
configuration may give a kind another image or other limits, and add kinds of its own.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Self

from pydantic import ValidationError

from paddock.config.kinds import KindConfig
from paddock.config.schema import Config, SandboxesConfig
from paddock.errors import ConfigError, InvalidInput
from paddock.model.sandbox import Limits
from paddock.model.screens import Kind

GROUP = "paddock.kinds"

CODE = Kind(
    name="code",
    title="Code",
    image="code",
    description="A shell, Python and files, without a screen; for writing and running programs.",
)
LINUX = Kind(
    name="linux",
    title="Linux (LXDE)",
    image="desktop",
    description="A Linux desktop with mouse, keyboard, windows, an editor, a terminal and a file manager.",
    screen=True,
    limits=Limits(memory=3 * 2**30, pids=1024),
)
BROWSER = Kind(
    name="browser",
    title="Chromium",
    image="browser",
    description="A Chromium browser: pages, tabs, forms, downloads, and what its user sees.",
    screen=True,
    limits=Limits(memory=4 * 2**30, pids=2048),
)
WINDOWS = Kind(
    name="windows",
    title="Windows (Wine)",
    image="windows",
    description="Windows programs of 64 bits under Wine, with cmd, notepad and drive C:. It is not Windows itself.",
    screen=True,
    limits=Limits(memory=4 * 2**30, pids=2048),
)
MOBILE = Kind(
    name="mobile",
    title="Mobile (web)",
    image="mobile",
    description="A phone's screen that shows web pages and is tapped and swiped. It is not Android.",
    screen=True,
    limits=Limits(memory=4 * 2**30, pids=2048),
)


class Kinds:
    """All kinds there are, by name."""

    def __init__(self, kinds: Iterable[Kind], settings: SandboxesConfig) -> None:
        self._kinds = {kind.name: kind for kind in kinds}
        self._defaults = Limits(**settings.limits.model_dump())
        self._bounds = settings.max_limits.model_dump(exclude_none=True)

    @classmethod
    def load(cls, config: Config) -> Self:
        """What is installed, as the settings change it. Raises `ConfigError` for settings that make no kind."""
        found = {entry.name: _load(entry) for entry in entry_points(group=GROUP)}
        for name, own in config.kinds.items():
            found[name] = _changed(name, found.get(name), own)
        known = {kind.name: place for place, kind in enumerate((CODE, LINUX, BROWSER, WINDOWS, MOBILE))}
        return cls(sorted(found.values(), key=lambda kind: known.get(kind.name, len(known))), config.sandboxes)

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._kinds.values())

    def get(self, name: str) -> Kind:
        """The kind of this name. Raises `InvalidInput` that tells which there are."""
        if name in self._kinds:
            return self._kinds[name]
        known = ", ".join(self._kinds)
        near = difflib.get_close_matches(name, self._kinds, 1)
        hint = f", did you mean {near[0]}?" if near else ";"
        raise InvalidInput(f"there is no kind {name[:80]!r}{hint} known are: {known}")

    def of_image(self, image: str) -> Kind | None:
        """The kind with a screen that this image is made for, so that asking for the image is enough."""
        fitting = [kind for kind in self if kind.screen and kind.image == image]
        return fitting[0] if len(fitting) == 1 else None

    def limits(self, kind: Kind | None) -> Limits:
        """What a box gets that asks for nothing: what suits its kind, but no more than anybody may ask for."""
        own = {} if kind is None else kind.limits.model_dump(exclude_none=True)
        bounded = {name: min(value, self._bounds.get(name, value)) for name, value in own.items()}
        return self._defaults.model_copy(update=bounded)


def _load(entry: EntryPoint) -> Kind:
    try:
        kind = entry.load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"the kind {entry.name!r} cannot be loaded: {error}") from error
    if not isinstance(kind, Kind) or kind.name != entry.name:
        raise ConfigError(f"the kind {entry.name!r} of {entry.value} is not one; ask who made the package")
    return kind


def _changed(name: str, known: Kind | None, own: KindConfig) -> Kind:
    given = own.model_dump(exclude_none=True, exclude={"limits"})
    limits = own.limits.model_dump(exclude_none=True)
    if known is not None:
        return known.model_copy(update={**given, "limits": known.limits.model_copy(update=limits)})
    if own.image is None:
        raise ConfigError(f"kinds.{name}: a new kind needs an image; set kinds.{name}.image")
    try:
        return Kind.model_validate({"title": name, **given, "name": name, "limits": limits})
    except ValidationError:
        raise ConfigError(f"kinds: {name!r} is no name of a kind; use small letters and digits") from None
