"""The tools of sandboxes, by the command line."""

from __future__ import annotations

import json
import re

from tests.e2e.cli_driver import Server


def test_tools_are_listed_and_shown(server: Server, sandbox: str) -> None:
    listed = server.text("tool", "list", sandbox)
    assert listed.splitlines()[0].split() == ["NAME", "ARGUMENTS", "DESCRIPTION"]
    assert "read_file" in listed and "path [start_line]" in listed
    assert {"name", "inputSchema", "input"} <= server.json("tool", "list", sandbox)[0].keys()
    shown = server.text("tool", "show", sandbox, "write_file")
    assert re.search(r"^content +text +required", shown, re.MULTILINE)
    shown = server.text("tool", "show", sandbox, "list_directory")
    assert re.search(r"^depth +whole number, 1 to \d+ +1 ", shown, re.MULTILINE), shown


def test_a_tool_is_called_with_words_or_json(server: Server, sandbox: str) -> None:
    server.run("tool", "call", sandbox, "write_file", "path=/tmp/tool/a.txt", "content=12")
    assert server.text("tool", "call", sandbox, "read_file", "path=/tmp/tool/a.txt") == "12"
    arguments = json.dumps({"path": "/tmp/tool", "depth": 1})
    assert "a.txt" in server.text("tool", "call", sandbox, "list_directory", "--json-arguments", arguments)
    result = server.json("tool", "call", sandbox, "read_file", "path=/tmp/tool/a.txt")
    assert result["isError"] is False


def test_what_goes_wrong_is_one_line_and_an_exit_code(server: Server, sandbox: str) -> None:
    for words, code, said in (
        (["read_file", "path=/no/such"], 1, "error: no such file or directory: /no/such"),
        (["read_fil", "path=/"], 1, "did you mean read_file?"),
        (["list_directory", "depth=deep"], 2, "depth=deep: must be a whole number"),
        (["list_directory", "depth=99"], 1, "'depth'"),
        (["read_file", "path"], 2, "'path' is not NAME=VALUE"),
        (["read_file", "--json-arguments", "[1]"], 2, "must be an object"),
        (["read_file", "path=/tmp", "--json-arguments", "{}"], 2, "give one"),
        (["list_directory", "--save", "/tmp/x.png"], 1, "no picture"),
    ):
        done = server.run("tool", "call", sandbox, *words)
        assert done.returncode == code, (words, done.stderr)
        assert said in done.stderr.decode(), (words, done.stderr)
        assert b"Traceback" not in done.stderr


def test_a_sandbox_without_a_screen_has_no_screenshot(server: Server, sandbox: str) -> None:
    done = server.run("sandbox", "screenshot", sandbox, "-o", "/tmp/never.png")
    assert done.returncode == 1 and done.stderr.startswith(b"error: ")
    assert server.run("sandbox", "screenshot", sandbox, "-o", "/tmp/never.bmp").returncode == 2
