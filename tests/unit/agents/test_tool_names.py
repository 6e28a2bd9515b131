"""Names and effects of sandbox tools."""

from __future__ import annotations

import json

import pytest

from paddock.agents.tools.session_tools import session_tool_specs
from paddock.agents.tools.tool_names import (
    MAX_NAME_LENGTH,
    build_sandbox_tool_specs,
    default_sandbox_tools,
    qualified_tool_name,
    sandbox_tool_effect,
)
from paddock.fleet.kinds import BROWSER, CODE, LINUX, MOBILE, WINDOWS
from paddock.model.screens import SandboxTool


@pytest.mark.parametrize(
    ("kind", "tool", "name"),
    [
        ("linux", "run_shell_command", "linux_run_shell_command"),
        ("browser", "browser_navigate", "browser_navigate"),
        ("mobile", "mobile_click", "mobile_click"),
        ("browser", "read_file", "browser_read_file"),
        ("code", "codec", "code_codec"),
        ("code", "a.b", "code_a_b"),
    ],
)
def test_tool_name_has_kind_prefix_once(kind: str, tool: str, name: str) -> None:
    assert qualified_tool_name(kind, tool) == name


def test_long_tool_names_are_cut_and_stay_unique() -> None:
    one, other = qualified_tool_name("linux", "x" * 100 + "1"), qualified_tool_name("linux", "x" * 100 + "2")
    assert len(one) == len(other) == MAX_NAME_LENGTH
    assert one != other


@pytest.mark.parametrize("kind", [CODE, LINUX, BROWSER, WINDOWS, MOBILE], ids=lambda kind: kind.name)
def test_tools_of_every_kind_are_known_without_sandbox(kind: object) -> None:
    assert isinstance(kind, type(CODE))
    names = [spec.name for spec in build_sandbox_tool_specs(kind.name, default_sandbox_tools(kind))]
    assert len(names) == len(set(names))
    assert {f"{kind.name}_{tool}" for tool in ("read_file", "write_file", "run_shell_command")} <= set(names)
    assert all(name.startswith(f"{kind.name}_") for name in names)


def test_effects_of_builtin_tools() -> None:
    effects = {
        spec.tool: spec.effect
        for kind in (LINUX, BROWSER)
        for spec in build_sandbox_tool_specs(kind.name, default_sandbox_tools(kind))
    }
    for tool in ("run_shell_command", "run_ipython_cell"):
        assert effects[tool] == "command", tool
    for tool in ("write_file", "create_directory", "move_file", "delete_file", "browser_pdf"):
        assert effects[tool] == "write", tool
    for tool in ("read_file", "list_directory", "screenshot", "list_windows", "browser_snapshot"):
        assert effects[tool] == "none", tool
    for tool in ("click_mouse", "input_text", "browser_navigate", "browser_cookies", "set_clipboard"):
        assert effects[tool] == "other", tool


@pytest.mark.parametrize(
    ("name", "effect"),
    [
        ("run_code", "command"),
        ("shell", "command"),
        ("edit_file", "write"),
        ("search_files", "none"),
        ("frobnicate", "other"),
    ],
)
def test_effect_of_tool_without_hints_follows_its_name(name: str, effect: str) -> None:
    assert sandbox_tool_effect(SandboxTool(name=name)) == effect


def test_hints_of_tool_take_precedence_over_its_name() -> None:
    assert sandbox_tool_effect(SandboxTool(name="run_report", read_only=True)) == "none"
    assert sandbox_tool_effect(SandboxTool(name="get_focus", input=True)) == "other"


def test_session_without_sandboxes_has_tools_that_need_none() -> None:
    assert [spec.name for spec in session_tool_specs([])] == ["ask_user", "update_plan", "list_tools"]


def test_moving_needs_two_kinds_and_desktop_tools_need_screen() -> None:
    one = {spec.name for spec in session_tool_specs([CODE])}
    assert "move_between_sandboxes" not in one and "start_desktop" not in one
    assert {"start_terminal", "keep_file", "session_file_to_sandbox", "request_network_access"} <= one
    both = {spec.name: spec for spec in session_tool_specs([CODE, LINUX])}
    assert {"move_between_sandboxes", "screenshot_to_sandbox", "start_desktop", "stop_desktop"} <= set(both)
    assert both["move_between_sandboxes"].effect == "write"
    assert all(spec.kind is None for spec in both.values())


def test_session_tool_schemas_are_simple_and_list_kinds() -> None:
    specs = {spec.name: spec.input_schema for spec in session_tool_specs([CODE, LINUX])}
    properties = specs["screenshot_to_sandbox"]["properties"]
    assert properties["from_kind"]["enum"] == ["linux"]
    assert properties["to_kind"]["enum"] == ["code", "linux"]
    assert specs["update_plan"]["properties"]["steps"]["items"]["properties"]["title"]["type"] == "string"
    assert specs["list_tools"]["properties"]["kind"]["type"] == "string"
    specs_json = json.dumps(specs)
    assert "$ref" not in specs_json and "anyOf" not in specs_json
    for schema in specs.values():
        assert schema["type"] == "object" and schema["additionalProperties"] is False
