"""The reference page lists the tools that sandboxes offer."""

from __future__ import annotations

from pathlib import Path

from paddock.fleet.tool_reference import render_tool_reference

PAGE = Path(__file__).parents[3] / "docs/reference/tools.md"
REQUIRED = """
read_file write_file list_directory create_directory move_file delete_file run_shell_command run_ipython_cell screenshot
start_app stop_app input_text window_maximize window_minimize browser_navigate browser_click browser_input
browser_screenshot browser_agent_navigate browser_agent_act browser_agent_extract browser_agent_observe mobile_click
mobile_swipe mobile_input_text mobile_send_key mobile_start_app mobile_stop_app mobile_screenshot
"""


def test_reference_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_tool_reference(), "run `make docs`"


def test_all_documented_tools_exist() -> None:
    headings = {line[4:] for line in render_tool_reference().splitlines() if line.startswith("### ")}
    assert set(REQUIRED.split()) <= headings
