"""Client-run tools are translated to functions for models that do not know them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from paddock.errors import InvalidInput
from paddock.llm.formats.anthropic import AnthropicFormat
from paddock.llm.formats.base import UntranslatableRequest
from paddock.llm.formats.gemini import GeminiFormat
from paddock.llm.formats.openai_chat import OpenAIChatFormat
from paddock.llm.formats.openai_responses import OpenAIResponsesFormat

TOOLS: list[tuple[dict[str, Any], str | None, set[str]]] = [
    ({"type": "bash_20250124", "name": "bash"}, "bash", {"command", "restart"}),
    ({"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"}, None, {"command", "path", "file_text"}),
    ({"type": "text_editor_20241022", "name": "str_replace_editor"}, None, {"command", "path", "insert_line"}),
    ({"type": "memory_20250818", "name": "memory"}, None, {"command", "path", "old_path", "new_path"}),
    (
        {"type": "computer_20251124", "name": "computer", "display_width_px": 1024, "display_height_px": 768},
        None,
        {"action", "coordinate", "scroll_direction", "region"},
    ),
]


def request_body(tool: dict[str, Any]) -> bytes:
    body = {"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "go"}], "tools": [tool]}
    return json.dumps(body).encode()


@pytest.mark.parametrize(("tool", "name", "fields"), TOOLS)
def test_anthropics_client_tools_become_functions(tool: dict[str, Any], name: str | None, fields: set[str]) -> None:
    request = AnthropicFormat().read_request(request_body(tool))
    written = json.loads(OpenAIChatFormat().write_request(request))["tools"][0]["function"]
    assert written["name"] == (name or tool["name"])
    assert fields <= written["parameters"]["properties"].keys()
    assert not request.notes


def test_the_screen_size_is_in_the_description() -> None:
    request = AnthropicFormat().read_request(request_body(TOOLS[-1][0]))
    assert "1024 x 768" in (request.tools[0].description or "")


def test_anthropic_hosted_tools_are_dropped_with_a_note() -> None:
    request = AnthropicFormat().read_request(request_body({"type": "web_search_20250305", "name": "web_search"}))
    assert request.tools == [] and "web_search_20250305" in request.notes[0]


@pytest.mark.parametrize("kind", ["local_shell", "shell", "apply_patch", "computer_use_preview", "computer"])
def test_openais_client_tools_are_refused_by_name(kind: str) -> None:
    body = json.dumps({"model": "m", "input": "go", "tools": [{"type": kind}]}).encode()
    with pytest.raises(UntranslatableRequest, match=rf"tools\[0\].type is '{kind}'.*offer a function"):
        OpenAIResponsesFormat().read_request(body)


@pytest.mark.parametrize("name", ["computerUse", "computer_use"])
def test_geminis_client_tool_is_refused(name: str) -> None:
    body = {"contents": [{"parts": [{"text": "go"}]}], "tools": [{name: {"environment": "ENVIRONMENT_BROWSER"}}]}
    with pytest.raises(UntranslatableRequest, match="`computerUse` is run by the client"):
        GeminiFormat().read_request(json.dumps(body).encode(), model="m")


CLIENT_RUN_ITEMS: list[tuple[dict[str, Any], dict[str, Any], str, str, str]] = [
    (
        {"type": "local_shell_call", "id": "lsh_1", "action": {"type": "exec", "command": ["ls"], "env": {}}},
        {"type": "local_shell_call_output", "id": "lsh_1", "output": '{"output": "a.txt"}'},
        "local_shell",
        '"command":["ls"]',
        "a.txt",
    ),
    (
        {"type": "shell_call", "action": {"commands": ["ls", "pwd"], "timeout_ms": None}},
        {
            "type": "shell_call_output",
            "output": [{"stdout": "a.txt", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
        },
        "shell",
        '{"commands":["ls","pwd"]}',
        '"stdout":"a.txt"',
    ),
    (
        {"type": "apply_patch_call", "operation": {"type": "create_file", "path": "b", "diff": "+x"}},
        {"type": "apply_patch_call_output", "status": "completed", "output": None},
        "apply_patch",
        '"path":"b"',
        "completed",
    ),
    (
        {"type": "computer_call", "id": "cu_1", "action": {"type": "click", "x": 1, "y": 2}},
        {
            "type": "computer_call_output",
            "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,QUJD"},
        },
        "computer",
        '"type":"click"',
        "data:image/png;base64,QUJD",
    ),
]


@pytest.mark.parametrize(("call", "result", "tool", "arguments", "output"), CLIENT_RUN_ITEMS)
def test_openais_client_run_items_become_calls_and_results(
    call: dict[str, Any], result: dict[str, Any], tool: str, arguments: str, output: str
) -> None:
    result = {"call_id": "call_1", **result} if "id" not in result else result
    items = [{"role": "user", "content": "go"}, {"call_id": "call_1", "status": "completed", **call}, result]
    request = OpenAIResponsesFormat().read_request(json.dumps({"model": "m", "input": items}).encode())
    assert not request.notes
    messages = json.loads(OpenAIChatFormat().write_request(request))["messages"]
    [written] = messages[1]["tool_calls"]
    assert written["function"]["name"] == tool and arguments in written["function"]["arguments"]
    assert messages[2]["role"] == "tool" and messages[2]["tool_call_id"] == written["id"] == "call_1"
    assert output in json.dumps(messages[2:]).replace("\\", "")


def test_a_failed_patch_is_an_error() -> None:
    items = [
        {"type": "apply_patch_call", "call_id": "c", "operation": {"type": "delete_file", "path": "b"}},
        {"type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": "no such file"},
    ]
    request = OpenAIResponsesFormat().read_request(json.dumps({"model": "m", "input": items}).encode())
    [result] = json.loads(AnthropicFormat().write_request(request))["messages"][-1]["content"]
    assert result["is_error"] and "no such file" in json.dumps(result["content"])


def test_a_screenshot_stored_at_openai_is_refused() -> None:
    items = [
        {"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot", "file_id": "f-1"}}
    ]
    with pytest.raises(InvalidInput, match=r"input\[0\]\.output\.image_url is missing"):
        OpenAIResponsesFormat().read_request(json.dumps({"model": "m", "input": items}).encode())
