"""Thoughts in Chat Completions, which OpenAI itself does not tell and others tell in ways of their own.

`reasoning_content` or `reasoning` is the text. `reasoning_details` are OpenRouter's, and hold seals: a provider's own
are kept as they are, and those of other formats are told to clients in the same field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from paddock.llm.formats.fields import Fields
from paddock.llm.formats.notes import note
from paddock.llm.formats.openai_shared import wanted_effort, written_effort
from paddock.llm.formats.seals import CHAT, foreign, signature, thought, written
from paddock.llm.neutral import Effort, Request, Signature, Thinking, ToolChoice

_BUDGETS = {Effort.MINIMAL: 1024, Effort.LOW: 4096, Effort.MEDIUM: 12_288}
_MOST_BUDGET = 32_768
_ONLY_STREAMED = re.compile(r"(.*/)?qwen3-[\d.]+b(-a[\d.]+b)?$")
"""Models of DashScope that think only in streams."""


def read_text(message: Fields) -> str:
    return message.text_or("reasoning_content") or message.text_or("reasoning") or ""


def read_details(message: Fields) -> list[dict[str, Any]]:
    """A message's details, in whatever shape: what cannot be read is no reason to refuse an answer."""
    found = message.get("reasoning_details")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def read_thoughts(message: Fields) -> list[Thinking]:
    text, details = read_text(message), read_details(message)
    ours = [each for each in details if _seal(each).startswith("paddock:")]
    if ours:
        sealed = [thought(_text(each), _seal(each), CHAT) for each in ours]
        told = "".join(each.text for each in sealed)
        return sealed if told == text or not text else [Thinking(text), *sealed] if not told else sealed
    text = text or details_text(details)
    seal = details_seal(details)
    return [Thinking(text, seal)] if text or seal else []


def _text(detail: dict[str, Any]) -> str:
    text = detail.get("text") or detail.get("summary")
    return text if isinstance(text, str) else ""


def _seal(detail: dict[str, Any]) -> str:
    seal = detail.get("signature") or detail.get("data")
    return seal if isinstance(seal, str) else ""


def details_text(details: Iterable[dict[str, Any]]) -> str:
    return "".join(map(_text, details))


def details_seal(details: list[dict[str, Any]]) -> Signature | None:
    """All of a provider's details as one seal, if any of them is sealed; one of ours as what it stands for."""
    sealed = [each for each in details if _seal(each)]
    if not sealed:
        return None
    if len(sealed) == 1 and _seal(sealed[0]).startswith("paddock:"):
        return signature(_seal(sealed[0]), CHAT)
    return Signature(json.dumps(details, ensure_ascii=False, separators=(",", ":")), CHAT)


def redacted_thoughts(details: list[dict[str, Any]]) -> tuple[list[Thinking], list[dict[str, Any]]]:
    """The thoughts of other providers that came sealed from another proxy, and the details that are left."""
    sealed: list[Thinking] = []
    rest: list[dict[str, Any]] = []
    for each in details:
        found = thought("", _seal(each), CHAT)
        if found.redacted is not None:
            sealed.append(found)
        else:
            rest.append(each)
    return sealed, rest


class Details:
    """A stream's details, put together: those of the same kind and index are pieces of one."""

    def __init__(self) -> None:
        self._known: list[tuple[dict[str, Any], dict[str, list[str]]]] = []
        """Each with the pieces of its texts."""

    def add(self, more: list[dict[str, Any]]) -> None:
        for piece in more:
            last = self._known[-1][0] if self._known else {}
            if not last or (last.get("type"), last.get("index")) != (piece.get("type"), piece.get("index")):
                self._known.append((dict(piece), {}))
            known, texts = self._known[-1]
            for name, value in piece.items():
                if name in ("text", "summary", "data") and isinstance(value, str):
                    texts.setdefault(name, []).append(value)
                elif value is not None:
                    known[name] = value

    def whole(self) -> list[dict[str, Any]]:
        return [known | {name: "".join(pieces) for name, pieces in texts.items()} for known, texts in self._known]


def write_details(thoughts: Iterable[Thinking], first: int = 0) -> list[dict[str, Any]]:
    """The details that keep the seals of these thoughts; clients put pieces together by their index."""
    details: list[dict[str, Any]] = []
    for each in thoughts:
        index = first + len(details)
        if each.redacted is not None:
            data = written(each.redacted, CHAT, redacted=True)
            details.append({"type": "reasoning.encrypted", "index": index, "data": data})
        elif each.signature and foreign(each.signature, CHAT):
            seal = written(each.signature, CHAT)
            details.append({"type": "reasoning.text", "index": index, "text": each.text, "signature": seal})
        elif isinstance(each.signature, Signature):
            details += own_details(each.signature)
    return details


def own_details(seal: str) -> list[dict[str, Any]]:
    """The provider's own details, out of the seal they were kept in."""
    try:
        found = json.loads(seal)
    except (ValueError, RecursionError):
        return []
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def write_thinking(request: Request, body: dict[str, Any]) -> None:
    """Say how much to think, in the dialect that the server speaks."""
    effort = wanted_effort(request)
    match request.extra.get("thinking_dialect", "effort"):
        case "enable_thinking":
            _enable_thinking(request, effort, body)
        case "type":
            if effort is not None:
                body["thinking"] = {"type": "disabled" if effort is Effort.NONE else "enabled"}
        case "none":
            if effort is not None:
                note(request.notes, "the effort to think was left out: this provider is not told")
        case _:
            word = written_effort(request)
            if word is not None:
                body["reasoning_effort"] = word


def _enable_thinking(request: Request, effort: Effort | None, body: dict[str, Any]) -> None:
    wants = None if effort is None else effort is not Effort.NONE
    if wants is not False:
        forced = request.tool_choice in (ToolChoice.ANY, ToolChoice.NAMED)
        as_json = request.json_mode or request.json_schema is not None
        if (not request.stream and _ONLY_STREAMED.match(request.model)) or (wants and (forced or as_json)):
            if wants:
                note(request.notes, "thinking was turned off: this model refuses it in an answer of this kind")
            wants = False
    if wants is not None:
        body["enable_thinking"] = wants
    if wants:
        budget = request.thinking_budget or (_BUDGETS.get(effort) if effort is not None else None)
        if budget:
            body["thinking_budget"] = min(budget, _MOST_BUDGET)
