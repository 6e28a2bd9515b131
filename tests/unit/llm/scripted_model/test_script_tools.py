"""Script actions match the right tool among the tools of real agents."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.errors import InvalidInput
from paddock.llm.formats.neutral import ToolDefinition
from paddock.llm.scripted_model import tool_matching
from paddock.llm.scripted_model.sample_arguments import fill_required_arguments, sample_schema_value
from paddock.llm.scripted_model.tool_matching import MatchedToolCall, NoMatchingTool

from .script_helpers import CLIS, cli_tools

CONTENT = "one\ntwo\n"


def tool(name: str, required: list[str] | None = None, **properties: Any) -> ToolDefinition:
    schema = {name: {"type": kind} if isinstance(kind, str) else kind for name, kind in properties.items()}
    wanted = list(properties) if required is None else required
    return ToolDefinition(name, None, {"type": "object", "properties": schema, "required": wanted})


@pytest.mark.parametrize(
    ("cli", "name", "arguments"),
    [
        ("claude", "Bash", {"command": "ls", "description": "List"}),
        ("codex", "exec_command", {"cmd": "ls"}),
        ("opencode", "bash", {"command": "ls"}),
        ("qwen", "run_shell_command", {"command": "ls", "description": "List"}),
        ("gemini", "run_shell_command", {"command": "ls", "description": "List"}),
    ],
)
def test_every_agent_has_a_shell(cli: str, name: str, arguments: dict[str, str]) -> None:
    assert tool_matching.match_shell_tool(cli_tools(cli), "ls", "List") == MatchedToolCall(name, arguments)


@pytest.mark.parametrize(
    ("cli", "name", "arguments"),
    [
        ("claude", "Write", {"file_path": "/workspace/a.txt", "content": CONTENT}),
        ("codex", "exec_command", {"cmd": "cat > a.txt <<'END'\none\ntwo\nEND"}),
        ("opencode", "write", {"filePath": "/workspace/a.txt", "content": CONTENT}),
        ("qwen", "write_file", {"file_path": "/workspace/a.txt", "content": CONTENT}),
        ("gemini", "write_file", {"file_path": "/workspace/a.txt", "content": CONTENT}),
    ],
)
def test_every_agent_writes_files(cli: str, name: str, arguments: dict[str, str]) -> None:
    assert tool_matching.match_write_tool(cli_tools(cli), "a.txt", CONTENT, "/workspace") == MatchedToolCall(
        name, arguments
    )


CLINE = [
    tool("run_commands", commands={"type": "array", "items": {"type": "string"}}),
    tool("read_files", files={"type": "array", "items": {"type": "object"}}),
    tool("editor", ["path", "new_text"], path="string", old_text="string", new_text="string", insert_line="integer"),
]
OPENHANDS = [
    tool("terminal", ["command"], command="string", is_input="boolean", timeout="number", reset="boolean"),
    tool("file_editor", ["command", "path"], command="string", path="string", file_text="string"),
]
VIBE = [
    tool("bash", ["command"], command="string", timeout="integer"),
    tool("read_file", ["file_path"], file_path="string", offset="integer", limit="integer"),
    tool("write_file", ["file_path", "content"], file_path="string", content="string"),
]
KILO = [
    tool("bash", ["command"], command="string", timeout="number", workdir="string", description="string"),
    tool("read", ["filePath"], filePath="string", offset="number", limit="number"),
    tool("edit", ["filePath", "oldString", "newString"], filePath="string", oldString="string", newString="string"),
    tool("write", ["content", "filePath"], content="string", filePath="string"),
    tool("todowrite", todos="array"),
]
KIMI_CODE = [
    tool("Agent", ["prompt", "description"], prompt="string", description="string", subagent_type="string"),
    tool(
        "Bash",
        ["command"],
        command="string",
        cwd="string",
        timeout="integer",
        description="string",
        run_in_background="boolean",
        disable_timeout="boolean",
    ),
    tool("Edit", ["path", "old_string", "new_string"], path="string", old_string="string", new_string="string"),
    tool("FetchURL", url="string"),
    tool("Glob", ["pattern"], pattern="string", path="string"),
    tool(
        "Read",
        ["path"],
        path="string",
        line_offset={"anyOf": [{"type": "integer", "minimum": 1}, {"type": "integer", "exclusiveMaximum": 0}]},
        column_offset="integer",
        n_lines="integer",
        max_chars="integer",
    ),
    tool("TaskOutput", task_id="string"),
    tool("TodoList", [], todos="array"),
    tool("Write", ["path", "content"], path="string", content="string", mode="string"),
]
KIMI_CLI = [
    tool("Task", description="string", subagent_name="string", prompt="string"),
    tool("Shell", ["command"], command="string", timeout="integer"),
    tool("ReadFile", ["path"], path="string", line_offset="integer", n_lines="integer"),
    tool("WriteFile", ["path", "content"], path="string", content="string", mode="string"),
    tool("StrReplaceFile", path="string", edit="object"),
]
PI = [tool("bash", command="string"), tool("read", path="string"), tool("write", path="string", content="string")]


@pytest.mark.parametrize(
    ("offered", "shell", "write", "read"),
    [
        (
            CLINE,
            MatchedToolCall("run_commands", {"commands": ["ls"]}),
            MatchedToolCall("editor", {"path": "/workspace/a.txt", "new_text": CONTENT}),
            MatchedToolCall("read_files", {"files": [{"path": "/workspace/a.txt"}]}),
        ),
        (
            OPENHANDS,
            MatchedToolCall("terminal", {"command": "ls"}),
            MatchedToolCall("file_editor", {"command": "create", "path": "/workspace/a.txt", "file_text": CONTENT}),
            MatchedToolCall("file_editor", {"command": "view", "path": "/workspace/a.txt"}),
        ),
        (
            VIBE,
            MatchedToolCall("bash", {"command": "ls"}),
            MatchedToolCall("write_file", {"file_path": "/workspace/a.txt", "content": CONTENT}),
            MatchedToolCall("read_file", {"file_path": "/workspace/a.txt"}),
        ),
        (
            PI,
            MatchedToolCall("bash", {"command": "ls"}),
            MatchedToolCall("write", {"path": "/workspace/a.txt", "content": CONTENT}),
            MatchedToolCall("read", {"path": "/workspace/a.txt"}),
        ),
        (
            KILO,
            MatchedToolCall("bash", {"command": "ls", "description": "List"}),
            MatchedToolCall("write", {"filePath": "/workspace/a.txt", "content": CONTENT}),
            MatchedToolCall("read", {"filePath": "/workspace/a.txt"}),
        ),
        (
            KIMI_CODE,
            MatchedToolCall("Bash", {"command": "ls", "description": "List"}),
            MatchedToolCall("Write", {"path": "/workspace/a.txt", "content": CONTENT}),
            MatchedToolCall("Read", {"path": "/workspace/a.txt"}),
        ),
        (
            KIMI_CLI,
            MatchedToolCall("Shell", {"command": "ls"}),
            MatchedToolCall("WriteFile", {"path": "/workspace/a.txt", "content": CONTENT}),
            MatchedToolCall("ReadFile", {"path": "/workspace/a.txt"}),
        ),
    ],
    ids=["cline", "openhands", "vibe", "pi", "kilo", "kimi-code", "kimi-cli"],
)
def test_tools_of_other_agents_are_known(
    offered: list[ToolDefinition], shell: MatchedToolCall, write: MatchedToolCall, read: MatchedToolCall
) -> None:
    assert tool_matching.match_shell_tool(offered, "ls", "List") == shell
    assert tool_matching.match_write_tool(offered, "a.txt", CONTENT, "/workspace") == write
    assert tool_matching.match_read_tool(offered, "a.txt", "/workspace") == read


@pytest.mark.parametrize(
    ("cli", "name", "arguments"),
    [
        ("claude", "Read", {"file_path": "/workspace/a.txt"}),
        ("codex", "exec_command", {"cmd": "cat -- a.txt"}),
        ("opencode", "read", {"filePath": "/workspace/a.txt"}),
        ("qwen", "read_file", {"file_path": "/workspace/a.txt"}),
        ("gemini", "read_file", {"file_path": "/workspace/a.txt"}),
    ],
)
def test_every_agent_reads_files(cli: str, name: str, arguments: dict[str, str]) -> None:
    assert tool_matching.match_read_tool(cli_tools(cli), "a.txt", "/workspace") == MatchedToolCall(name, arguments)


@pytest.mark.parametrize("cli", CLIS)
def test_the_order_of_tools_makes_no_difference(cli: str) -> None:
    offered = cli_tools(cli)
    assert tool_matching.match_shell_tool(offered, "ls", "") == tool_matching.match_shell_tool(offered[::-1], "ls", "")
    assert tool_matching.match_write_tool(offered, "a", "b") == tool_matching.match_write_tool(offered[::-1], "a", "b")


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        (tool("shell", command={"type": "array", "items": {"type": "string"}}), {"command": ["sh", "-c", "ls"]}),
        (tool("shell", command={"type": ["array", "string"]}), {"command": "ls"}),
        (tool("execute", command="string", timeout={"type": "integer", "minimum": 5}), {"command": "ls", "timeout": 5}),
        (tool("terminal", command={"anyOf": [{"type": "string"}, {"type": "null"}]}), {"command": "ls"}),
        (tool("mcp__box__run_command", command="string"), {"command": "ls"}),
        (tool("functions.shell", command="string"), {"command": "ls"}),
        (tool("RunCommand", CommandLine="string", Blocking="boolean"), {"CommandLine": "ls", "Blocking": False}),
        (tool("container-exec", cmd={}), {"cmd": "ls"}),
    ],
)
def test_shell_tools_are_found_by_name_and_schema(offered: ToolDefinition, expected: object) -> None:
    use = tool_matching.match_shell_tool([tool("todo_write", todos="array"), offered], "ls", "")
    assert (use.tool, use.arguments) == (offered.name, expected)


def test_own_tools_are_preferred_to_prefixed_ones() -> None:
    offered = [tool("mcp__other__bash", command="string"), tool("Bash", command="string")]
    assert tool_matching.match_shell_tool(offered, "ls", "").tool == "Bash"


def test_similar_names_do_not_match() -> None:
    decoys = [
        tool("KillShell", shell_id="string"),
        tool("BashOutput", bash_id="string"),
        tool("TodoWrite", todos="array"),
        tool("exec", input="string"),
    ]
    with pytest.raises(
        NoMatchingTool, match="runs shell commands; the client offers: KillShell, BashOutput, TodoWrite, exec"
    ):
        tool_matching.match_shell_tool(decoys, "ls", "")
    with pytest.raises(NoMatchingTool, match="writes files or runs shell commands"):
        tool_matching.match_write_tool(decoys, "a", "b")


def test_no_tools_is_a_clear_error() -> None:
    with pytest.raises(NoMatchingTool, match="offers: no tools"):
        tool_matching.match_read_tool([], "a")


def test_an_editor_with_commands_writes_and_reads() -> None:
    editor = tool(
        "str_replace_based_edit_tool", ["command", "path"], command="string", path="string", file_text="string"
    )
    expected = {"command": "create", "path": "/w/a", "file_text": "b"}
    assert tool_matching.match_write_tool([editor], "a", "b", "/w").arguments == expected
    assert tool_matching.match_read_tool([editor], "a", "/w").arguments == {"command": "view", "path": "/w/a"}


def test_a_patch_writes_whole_lines_only() -> None:
    offered = [tool("apply_patch", input="string"), tool("shell", command="string")]
    use = tool_matching.match_write_tool(offered, "a.txt", CONTENT)
    assert use.arguments == {"input": "*** Begin Patch\n*** Add File: a.txt\n+one\n+two\n*** End Patch\n"}
    assert tool_matching.match_write_tool(offered, "a.txt", "no end").tool == "shell"


@settings(max_examples=30)
@given(content=st.text(max_size=300), name=st.text("ab -'\"$`;\\\n*ü", min_size=1, max_size=12))
def test_shell_command_writes_exact_content(tmp_path_factory: pytest.TempPathFactory, content: str, name: str) -> None:
    directory = tmp_path_factory.mktemp("shell")
    command = tool_matching.file_writing_command(f"deep/{name}", content)
    subprocess.run(["sh", "-c", command], cwd=directory, check=True, timeout=10)
    assert (directory / "deep" / name).read_bytes() == content.encode()


def test_file_with_lines_like_the_delimiter_is_written(tmp_path: Path) -> None:
    content = "END\nEND_\n$HOME `id` \\n\n"
    subprocess.run(
        ["sh", "-c", tool_matching.file_writing_command("-a", content)], cwd=tmp_path, check=True, timeout=10
    )
    assert (tmp_path / "-a").read_text() == content


def test_a_file_too_large_for_a_command_is_refused() -> None:
    with pytest.raises(InvalidInput, match="too large for a shell command"):
        tool_matching.match_write_tool([tool("bash", command="string")], "a", "x" * 200_000)


@pytest.mark.parametrize("pattern", ["mcp__calc__add", "add", "mcp__*__add", "*add", "calc__add"])
def test_a_tool_is_called_by_name_or_pattern(pattern: str) -> None:
    offered = [tool("pad"), tool("mcp__calc__add", a="number", b="number")]
    use = tool_matching.match_named_tool(offered, pattern, {"a": 2})
    assert use == MatchedToolCall("mcp__calc__add", {"a": 2, "b": 0})


def test_a_call_of_an_unknown_tool_lists_the_known() -> None:
    with pytest.raises(NoMatchingTool, match=r"is called 'sub'; the client offers: t0, .* and 40 more"):
        tool_matching.match_named_tool([tool(f"t{number}") for number in range(100)], "sub", {})


def test_required_fields_are_filled_by_their_schema() -> None:
    schema = {
        "properties": {
            "a": {"enum": ["x", "y"]},
            "b": {"type": "array", "items": {"type": "integer", "exclusiveMinimum": 2}, "minItems": 2},
            "c": {"$ref": "#/$defs/c"},
            "d": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "e": {"default": 7},
            "f": {"type": ["string", "null"]},
        },
        "required": ["a", "b", "c", "d", "e", "f", "g"],
        "$defs": {"c": {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"]}},
    }
    expected = {"a": "x", "b": [3, 3], "c": {"x": False}, "d": None, "e": 7, "f": None, "g": ""}
    assert fill_required_arguments({}, schema) == expected
    assert fill_required_arguments({"a": "mine"}, schema)["a"] == "mine"


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("#/properties/a"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from("type properties required items anyOf enum $ref minItems minLength minimum a b".split()),
            inner,
            max_size=5,
        )
    ),
    max_leaves=15,
)


@given(JSON)
def test_any_schema_gets_sample_arguments(schema: Any) -> None:
    sample_schema_value(schema)
    offered = ToolDefinition("bash", None, schema if isinstance(schema, dict) else None)
    try:
        tool_matching.match_shell_tool([offered], "ls", "")
    except NoMatchingTool:
        pass
