"""Parse history items of OpenAI's client-run tools (shell, patches, computer) as function calls and results.

Only OpenAI's models know these item types. As functions, a conversation with them can go on with another model.
"""

from __future__ import annotations

from typing import Any

from paddock.llm.formats.call_arguments import call_arguments_text
from paddock.llm.formats.json_fields import JsonFields
from paddock.llm.formats.neutral import ModelMedia, ModelText, ModelToolCall, ModelToolResult
from paddock.llm.formats.openai_shared import read_openai_media

_TOOL_BY_CALL_TYPE = {
    "local_shell_call": "local_shell",
    "shell_call": "shell",
    "apply_patch_call": "apply_patch",
    "computer_call": "computer",
}
CLIENT_RUN_CALLS = frozenset(_TOOL_BY_CALL_TYPE)
CLIENT_RUN_RESULTS = frozenset(f"{kind}_output" for kind in CLIENT_RUN_CALLS)


def read_client_run_call(item: JsonFields) -> ModelToolCall:
    """Parse a call of a client-run tool."""
    kind = item.text("type")
    if kind == "apply_patch_call":
        arguments: dict[str, Any] = item.mapping("operation")
    elif kind == "computer_call" and "action" not in item:
        arguments = {"actions": item.items("actions")}
    else:
        arguments = item.mapping("action")
    set_arguments = {name: value for name, value in arguments.items() if value is not None}
    return ModelToolCall(item.text("call_id"), _TOOL_BY_CALL_TYPE[kind], call_arguments_text(set_arguments))


def read_client_run_result(item: JsonFields) -> ModelToolResult:
    """Parse the result of a client-run tool. Results of `local_shell` may have the call's ID in `id`."""
    kind = item.text("type")
    call_id = item.text("id") if kind == "local_shell_call_output" and "call_id" not in item else item.text("call_id")
    tool = _TOOL_BY_CALL_TYPE[kind.removesuffix("_output")]
    failed = kind == "apply_patch_call_output" and item.optional_text("status") == "failed"
    return ModelToolResult(call_id, _read_content(item), tool, is_error=failed)


def _read_content(item: JsonFields) -> list[ModelText | ModelMedia]:
    output = item.get("output")
    if item.get("type") == "computer_call_output":
        screenshot = item.object("output")
        if "image_url" not in screenshot:
            raise screenshot.error("is missing: files stored at the provider cannot be passed on", "image_url")
        return [read_openai_media("image", screenshot.text("image_url"))]
    if output is None:
        output = item.optional_text("status") or ""
    text = call_arguments_text(output)
    return [ModelText(text)] if text else []
