"""Client-run tools are translated to functions for models that do not know them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from paddock.llm.formats.anthropic import Anthropic
from paddock.llm.formats.base import UntranslatableRequest
from paddock.llm.formats.openai_chat import OpenAIChat
from paddock.llm.formats.openai_responses import OpenAIResponses

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


def asked(tool: dict[str, Any]) -> bytes:
    body = {"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "go"}], "tools": [tool]}
    return json.dumps(body).encode()


@pytest.mark.parametrize(("tool", "name", "fields"), TOOLS)
def test_anthropics_client_tools_become_functions(tool: dict[str, Any], name: str | None, fields: set[str]) -> None:
    request = Anthropic().read_request(asked(tool))
    written = json.loads(OpenAIChat().write_request(request))["tools"][0]["function"]
    assert written["name"] == (name or tool["name"])
    assert fields <= written["parameters"]["properties"].keys()
    assert not request.notes


def test_the_screen_size_is_in_the_description() -> None:
    request = Anthropic().read_request(asked(TOOLS[-1][0]))
    assert "1024 x 768" in (request.tools[0].description or "")


def test_tools_that_anthropic_runs_are_still_left_out_with_a_note() -> None:
    request = Anthropic().read_request(asked({"type": "web_search_20250305", "name": "web_search"}))
    assert request.tools == [] and "web_search_20250305" in request.notes[0]


@pytest.mark.parametrize("kind", ["local_shell", "shell", "apply_patch", "computer_use_preview"])
def test_openais_client_tools_are_refused_by_name(kind: str) -> None:
    body = json.dumps({"model": "m", "input": "go", "tools": [{"type": kind}]}).encode()
    with pytest.raises(UntranslatableRequest, match=rf"tools\[0\].type is '{kind}'.*offer a function"):
        OpenAIResponses().read_request(body)
