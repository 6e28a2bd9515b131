"""The kinds there are, and how settings change them."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

import pytest

from paddock.config.schema import Config
from paddock.errors import ConfigError, InvalidInput
from paddock.fleet.kinds import ENTRY_POINT_GROUP, SandboxKinds


def load(**settings: Any) -> SandboxKinds:
    return SandboxKinds.load_installed(Config.model_validate(settings))


def test_builtin_kinds_are_loaded_as_plugins() -> None:
    titles = {kind.name: kind.title for kind in load()}
    assert titles == {
        "code": "Code",
        "linux": "Linux (LXDE)",
        "browser": "Chromium",
        "windows": "Windows (Wine)",
        "mobile": "Mobile (web)",
    }
    assert {entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)} >= titles.keys()


def test_error_for_an_unknown_kind_lists_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="known are: code, linux, browser, windows, mobile"):
        load().get("amiga")
    with pytest.raises(InvalidInput, match="did you mean windows"):
        load().get("window")


def test_settings_replace_only_the_image_of_a_kind() -> None:
    changed = load(kinds={"linux": {"image": "ours", "limits": {"pids": 77}}}).get("linux")
    brought = load().get("linux")
    assert (changed.image, changed.limits.pids) == ("ours", 77)
    assert (changed.title, changed.screen, changed.limits.memory) == (brought.title, True, brought.limits.memory)


def test_settings_add_kinds() -> None:
    added = load(kinds={"gimp": {"image": "gimp", "screen": True, "title": "GIMP"}}).get("gimp")
    assert (added.title, added.image, added.screen) == ("GIMP", "gimp", True)


@pytest.mark.parametrize(
    ("kinds", "problem"),
    [
        ({"gimp": {"title": "GIMP"}}, r"set kinds\.gimp\.image"),
        ({"Photo Shop": {"image": "x"}}, "is not a valid kind name"),
    ],
)
def test_invalid_kind_settings_are_rejected(kinds: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        load(kinds=kinds)


def test_kind_limits_override_defaults_up_to_max_limits() -> None:
    kinds = load(sandboxes={"limits": {"memory": "1Gi"}, "max_limits": {"memory": "2Gi"}})
    assert kinds.default_limits(None).memory == 2**30
    assert kinds.default_limits(kinds.get("browser")).memory == 2 * 2**30
    assert kinds.default_limits(kinds.get("browser")).cpu == 2


def test_image_of_one_screen_kind_implies_the_kind() -> None:
    kinds = load(kinds={"other": {"image": "browser", "screen": True}})
    assert (found := kinds.kind_of_image("desktop")) is not None and found.name == "linux"
    assert kinds.kind_of_image("browser") is None, "two kinds share it"
    assert kinds.kind_of_image("code") is None


def test_configured_pool_needs_image_or_kind() -> None:
    with pytest.raises(ValueError, match="needs an image or a kind"):
        Config.model_validate({"pools": [{"name": "p"}]})
