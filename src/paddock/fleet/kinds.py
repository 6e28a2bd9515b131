"""Kinds of sandboxes (code, linux, browser, …) that can be requested by name.

Kinds are plugins, loaded from the entry point group `paddock.kinds`, Paddock's own included. The configuration may
change image and limits of a kind, and add kinds.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Self

from pydantic import ValidationError

from paddock.config.network_policy import NetworkPreset
from paddock.config.sandbox_kinds import SandboxKindConfig
from paddock.config.schema import Config, SandboxesConfig
from paddock.errors import ConfigError, InvalidInput
from paddock.model.sandbox import SandboxLimits
from paddock.model.screens import SandboxKind

ENTRY_POINT_GROUP = "paddock.kinds"
WEB_POLICY = (f"allow {NetworkPreset.WEB}",)

CODE = SandboxKind(
    name="code",
    title="Code",
    image="code",
    description="A shell, Python and files, without a screen; for writing and running programs.",
)
LINUX = SandboxKind(
    name="linux",
    title="Linux (LXDE)",
    image="desktop",
    description="A Linux desktop with mouse, keyboard, windows, an editor, a terminal and a file manager.",
    screen=True,
    limits=SandboxLimits(memory=3 * 2**30, pids=1024),
)
BROWSER = SandboxKind(
    name="browser",
    title="Chromium",
    image="browser",
    description="A Chromium browser: pages, tabs, forms, downloads, and what its user sees.",
    screen=True,
    limits=SandboxLimits(memory=4 * 2**30, pids=2048),
    network=WEB_POLICY,
)
WINDOWS = SandboxKind(
    name="windows",
    title="Windows (Wine)",
    image="windows",
    description="64-bit Windows programs (Wine), with cmd, notepad and drive C:. It is not Windows itself.",
    screen=True,
    limits=SandboxLimits(memory=4 * 2**30, pids=2048),
)
MOBILE = SandboxKind(
    name="mobile",
    title="Mobile (web)",
    image="mobile",
    description="A phone's screen that shows web pages and is tapped and swiped. It is not Android.",
    screen=True,
    limits=SandboxLimits(memory=4 * 2**30, pids=2048),
    network=WEB_POLICY,
)


class SandboxKinds:
    """The available kinds by name."""

    def __init__(self, kinds: Iterable[SandboxKind], settings: SandboxesConfig) -> None:
        self._kinds = {kind.name: kind for kind in kinds}
        self._defaults = SandboxLimits(**settings.limits.model_dump())
        self._bounds = settings.max_limits.model_dump(exclude_none=True)

    @classmethod
    def load_installed(cls, config: Config) -> Self:
        """Load the installed kinds and apply the configuration. Raises `ConfigError` for invalid kinds."""
        found = {entry.name: _load_kind(entry) for entry in entry_points(group=ENTRY_POINT_GROUP)}
        for name, own in config.kinds.items():
            found[name] = _apply_config(name, found.get(name), own)
        positions = {kind.name: position for position, kind in enumerate((CODE, LINUX, BROWSER, WINDOWS, MOBILE))}
        return cls(sorted(found.values(), key=lambda kind: positions.get(kind.name, len(positions))), config.sandboxes)

    def __iter__(self) -> Iterator[SandboxKind]:
        return iter(self._kinds.values())

    def get(self, name: str) -> SandboxKind:
        """Return the kind of this name. Raises `InvalidInput` listing the known kinds."""
        if name in self._kinds:
            return self._kinds[name]
        known = ", ".join(self._kinds)
        suggestions = difflib.get_close_matches(name, self._kinds, 1)
        hint = f", did you mean {suggestions[0]}?" if suggestions else ";"
        raise InvalidInput(f"there is no kind {name[:80]!r}{hint} known are: {known}")

    def kind_of_image(self, image: str) -> SandboxKind | None:
        """Return the kind with a screen that uses this image, so that requests may name only the image."""
        fitting = [kind for kind in self if kind.screen and kind.image == image]
        return fitting[0] if len(fitting) == 1 else None

    def default_limits(self, kind: SandboxKind | None) -> SandboxLimits:
        """Return the default limits of a kind, bounded by `sandboxes.max_limits`."""
        own = {} if kind is None else kind.limits.model_dump(exclude_none=True)
        bounded = {name: min(value, self._bounds.get(name, value)) for name, value in own.items()}
        return self._defaults.model_copy(update=bounded)


def _load_kind(entry: EntryPoint) -> SandboxKind:
    try:
        kind = entry.load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"the kind {entry.name!r} cannot be loaded: {error}") from error
    if not isinstance(kind, SandboxKind) or kind.name != entry.name:
        raise ConfigError(
            f"entry point {entry.value} of kind {entry.name!r} is not a Kind of that name; "
            "report it to the package's authors"
        )
    return kind


def _apply_config(name: str, known: SandboxKind | None, own: SandboxKindConfig) -> SandboxKind:
    settings = own.model_dump(exclude_none=True, exclude={"limits"})
    limits = own.limits.model_dump(exclude_none=True)
    if known is not None:
        return known.model_copy(update={**settings, "limits": known.limits.model_copy(update=limits)})
    if own.image is None:
        raise ConfigError(f"kinds.{name}: a new kind needs an image; set kinds.{name}.image")
    try:
        return SandboxKind.model_validate({"title": name, **settings, "name": name, "limits": limits})
    except ValidationError:
        raise ConfigError(f"kinds: {name!r} is not a valid kind name; use lower-case letters and digits") from None
