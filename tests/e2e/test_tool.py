"""Sandbox tools by the command line."""

from __future__ import annotations

import json
import re

from tests.e2e.cli_driver import PaddockCliServer


def test_tools_are_listed_and_shown(server: PaddockCliServer, sandbox: str) -> None:
    listed = server.output("tool", "list", sandbox)
    assert listed.splitlines()[0].split() == ["NAME", "ARGUMENTS", "DESCRIPTION"]
    assert "read_file" in listed and "path [start_line]" in listed
    assert {"name", "inputSchema", "input"} <= server.json_output("tool", "list", sandbox)[0].keys()
    shown = server.output("tool", "show", sandbox, "write_file")
    assert re.search(r"^content +text +required", shown, re.MULTILINE)
    shown = server.output("tool", "show", sandbox, "list_directory")
    assert re.search(r"^depth +whole number, 1 to \d+ +1 ", shown, re.MULTILINE), shown


def test_tool_is_called_with_pairs_or_json(server: PaddockCliServer, sandbox: str) -> None:
    server.run("tool", "call", sandbox, "write_file", "path=/tmp/tool/a.txt", "content=12")
    assert server.output("tool", "call", sandbox, "read_file", "path=/tmp/tool/a.txt") == "12"
    arguments = json.dumps({"path": "/tmp/tool", "depth": 1})
    assert "a.txt" in server.output("tool", "call", sandbox, "list_directory", "--json-arguments", arguments)
    result = server.json_output("tool", "call", sandbox, "read_file", "path=/tmp/tool/a.txt")
    assert result["isError"] is False


def test_invalid_tool_calls_print_one_line_with_exit_code(server: PaddockCliServer, sandbox: str) -> None:
    for arguments, code, message in (
        (["read_file", "path=/no/such"], 1, "error: no such file or directory: /no/such"),
        (["read_fil", "path=/"], 1, "did you mean read_file?"),
        (["list_directory", "depth=deep"], 2, "depth=deep: must be a whole number"),
        (["list_directory", "depth=99"], 1, "'depth'"),
        (["read_file", "path"], 2, "'path' is not NAME=VALUE"),
        (["read_file", "--json-arguments", "[1]"], 2, "must be an object"),
        (["read_file", "path=/tmp", "--json-arguments", "{}"], 2, "give one"),
        (["list_directory", "--save", "/tmp/x.png"], 1, "no picture"),
    ):
        result = server.run("tool", "call", sandbox, *arguments)
        assert result.returncode == code, (arguments, result.stderr)
        assert message in result.stderr.decode(), (arguments, result.stderr)
        assert b"Traceback" not in result.stderr


def test_sandbox_without_screen_has_no_screenshot(server: PaddockCliServer, sandbox: str) -> None:
    result = server.run("sandbox", "screenshot", sandbox, "-o", "/tmp/never.png")
    assert result.returncode == 1 and result.stderr.startswith(b"error: ")
    assert server.run("sandbox", "screenshot", sandbox, "-o", "/tmp/never.bmp").returncode == 2
