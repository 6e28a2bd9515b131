"""Reasoning in Chat Completions, which servers other than OpenAI expose in different ways.

`reasoning_content` or `reasoning` is the text. `reasoning_details` is OpenRouter's field with signatures: a provider's
own details are kept unchanged, and signatures of other formats are sent to clients in the same field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from paddock.llm.formats.json_fields import JsonFields
from paddock.llm.formats.neutral import ModelRequest, ModelThinking, ProviderSignature, ReasoningEffort, ToolChoice
from paddock.llm.formats.openai_shared import requested_reasoning_effort, supported_reasoning_effort
from paddock.llm.formats.thought_signatures import (
    CHAT_FAMILY,
    format_thought_signature,
    is_foreign_signature,
    parse_call_thought_signature,
    parse_signed_thought,
)
from paddock.llm.formats.translation_notes import add_translation_note

_BUDGETS = {ReasoningEffort.MINIMAL: 1024, ReasoningEffort.LOW: 4096, ReasoningEffort.MEDIUM: 12_288}
_MAX_BUDGET = 32_768
_STREAMING_ONLY = re.compile(r"(.*/)?qwen3-[\d.]+b(-a[\d.]+b)?$")
"""DashScope models that reason only in streams."""


def read_reasoning_text(message: JsonFields) -> str:
    return message.optional_text("reasoning_content") or message.optional_text("reasoning") or ""


def read_reasoning_details(message: JsonFields) -> list[dict[str, Any]]:
    """Return the reasoning details of a message; malformed ones are ignored instead of failing the answer."""
    found = message.get("reasoning_details")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def read_chat_thoughts(message: JsonFields) -> list[ModelThinking]:
    text, details = read_reasoning_text(message), read_reasoning_details(message)
    marked_details = [each for each in details if _detail_signature(each).startswith("paddock:")]
    if marked_details:
        signed = [
            parse_signed_thought(_detail_text(each), _detail_signature(each), CHAT_FAMILY) for each in marked_details
        ]
        signed_text = "".join(each.text for each in signed)
        return (
            signed if signed_text == text or not text else [ModelThinking(text), *signed] if not signed_text else signed
        )
    text = text or join_reasoning_details_text(details)
    signature = reasoning_details_signature(details)
    return [ModelThinking(text, signature)] if text or signature else []


def _detail_text(detail: dict[str, Any]) -> str:
    text = detail.get("text") or detail.get("summary")
    return text if isinstance(text, str) else ""


def _detail_signature(detail: dict[str, Any]) -> str:
    signature = detail.get("signature") or detail.get("data")
    return signature if isinstance(signature, str) else ""


def join_reasoning_details_text(details: Iterable[dict[str, Any]]) -> str:
    return "".join(map(_detail_text, details))


def reasoning_details_signature(details: list[dict[str, Any]]) -> ProviderSignature | None:
    """Return all details as one signature if any of them is signed; a `paddock:` marker is decoded."""
    signed = [each for each in details if _detail_signature(each)]
    if not signed:
        return None
    if len(signed) == 1 and _detail_signature(signed[0]).startswith("paddock:"):
        return parse_call_thought_signature(_detail_signature(signed[0]), CHAT_FAMILY)
    return ProviderSignature(json.dumps(details, ensure_ascii=False, separators=(",", ":")), CHAT_FAMILY)


def split_redacted_thoughts(details: list[dict[str, Any]]) -> tuple[list[ModelThinking], list[dict[str, Any]]]:
    """Split off redacted thoughts of other providers that another proxy marked; return them and the rest."""
    signed: list[ModelThinking] = []
    rest: list[dict[str, Any]] = []
    for each in details:
        found = parse_signed_thought("", _detail_signature(each), CHAT_FAMILY)
        if found.redacted is not None:
            signed.append(found)
        else:
            rest.append(each)
    return signed, rest


class ReasoningDetails:
    """Merges the reasoning details of a stream: details of the same type and index are pieces of one."""

    def __init__(self) -> None:
        self._merged_details: list[tuple[dict[str, Any], dict[str, list[str]]]] = []
        """Each detail with the pieces of its text fields."""

    def add(self, more: list[dict[str, Any]]) -> None:
        for piece in more:
            last = self._merged_details[-1][0] if self._merged_details else {}
            if not last or (last.get("type"), last.get("index")) != (piece.get("type"), piece.get("index")):
                self._merged_details.append((dict(piece), {}))
            known, texts = self._merged_details[-1]
            for name, value in piece.items():
                if name in ("text", "summary", "data") and isinstance(value, str):
                    texts.setdefault(name, []).append(value)
                elif value is not None:
                    known[name] = value

    def merged(self) -> list[dict[str, Any]]:
        return [
            known | {name: "".join(pieces) for name, pieces in texts.items()} for known, texts in self._merged_details
        ]


def write_reasoning_details(thoughts: Iterable[ModelThinking], first: int = 0) -> list[dict[str, Any]]:
    """Write details that carry the signatures of thoughts; clients merge pieces by their index."""
    details: list[dict[str, Any]] = []
    for each in thoughts:
        index = first + len(details)
        if each.redacted is not None:
            data = format_thought_signature(each.redacted, CHAT_FAMILY, redacted=True)
            details.append({"type": "reasoning.encrypted", "index": index, "data": data})
        elif each.signature and is_foreign_signature(each.signature, CHAT_FAMILY):
            signature = format_thought_signature(each.signature, CHAT_FAMILY)
            details.append({"type": "reasoning.text", "index": index, "text": each.text, "signature": signature})
        elif isinstance(each.signature, ProviderSignature):
            details += unpack_reasoning_details(each.signature)
    return details


def unpack_reasoning_details(signature: str) -> list[dict[str, Any]]:
    """Decode the provider's own details from the signature that holds them."""
    try:
        found = json.loads(signature)
    except (ValueError, RecursionError):
        return []
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def write_chat_thinking_settings(request: ModelRequest, body: dict[str, Any]) -> None:
    """Add the reasoning settings to a request, in the dialect of the server."""
    effort = requested_reasoning_effort(request)
    match request.extra.get("thinking_dialect", "effort"):
        case "enable_thinking":
            _write_enable_thinking(request, effort, body)
        case "type":
            if effort is not None:
                body["thinking"] = {"type": "disabled" if effort is ReasoningEffort.NONE else "enabled"}
        case "none":
            if effort is not None:
                add_translation_note(
                    request.notes, "the reasoning effort was left out: this provider has no setting for it"
                )
        case _:
            word = supported_reasoning_effort(request)
            if word is not None:
                body["reasoning_effort"] = word


def _write_enable_thinking(request: ModelRequest, effort: ReasoningEffort | None, body: dict[str, Any]) -> None:
    wants = None if effort is None else effort is not ReasoningEffort.NONE
    if wants is not False:
        forced = request.tool_choice in (ToolChoice.ANY, ToolChoice.NAMED)
        as_json = request.json_mode or request.json_schema is not None
        if (not request.stream and _STREAMING_ONLY.match(request.model)) or (wants and (forced or as_json)):
            if wants:
                add_translation_note(
                    request.notes, "thinking was turned off: this model refuses it for this kind of answer"
                )
            wants = False
    if wants is not None:
        body["enable_thinking"] = wants
    if wants:
        budget = request.thinking_budget or (_BUDGETS.get(effort) if effort is not None else None)
        if budget:
            body["thinking_budget"] = min(budget, _MAX_BUDGET)
