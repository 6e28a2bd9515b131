"""Encode model lists in the shape of each wire format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from paddock.llm.formats.json_fields import encode_json


@dataclass(frozen=True, slots=True)
class ModelListEntry:
    """A model in a model list."""

    id: str
    owner: str = "paddock"
    created: int = 0
    """Unix time; 0 if unknown."""
    name: str | None = None
    """Display name; defaults to the ID."""
    context: int | None = None
    """Maximum number of prompt tokens."""
    output: int | None = None
    """Maximum number of answer tokens."""


def write_model_list(form: str, models: Sequence[ModelListEntry]) -> bytes:
    """Encode a model list in the format with this name."""
    if form == "gemini":
        return encode_json({"models": [_gemini_entry(model) for model in models]})
    if form == "anthropic":
        listed = [_anthropic_entry(model) for model in models]
        ends = {"first_id": models[0].id if models else None, "last_id": models[-1].id if models else None}
        return encode_json({"data": listed, "has_more": False, **ends})
    return encode_json({"object": "list", "data": [_openai_entry(model) for model in models]})


def write_model_list_entry(form: str, model: ModelListEntry) -> bytes:
    """Encode a single model in the format with this name."""
    shapes: dict[str, Callable[[ModelListEntry], dict[str, Any]]] = {
        "gemini": _gemini_entry,
        "anthropic": _anthropic_entry,
    }
    return encode_json(shapes.get(form, _openai_entry)(model))


def _openai_entry(model: ModelListEntry) -> dict[str, Any]:
    return {"id": model.id, "object": "model", "created": model.created, "owned_by": model.owner}


def _anthropic_entry(model: ModelListEntry) -> dict[str, Any]:
    return {
        "type": "model",
        "id": model.id,
        "display_name": model.name or model.id,
        "created_at": datetime.fromtimestamp(model.created, UTC).isoformat().replace("+00:00", "Z"),
        "lifecycle": "active",
        "max_input_tokens": model.context,
        "max_tokens": model.output,
    }


def _gemini_entry(model: ModelListEntry) -> dict[str, Any]:
    written: dict[str, Any] = {
        "name": f"models/{model.id}",
        "displayName": model.name or model.id,
        "supportedGenerationMethods": ["generateContent", "streamGenerateContent", "countTokens", "embedContent"],
    }
    if model.context is not None:
        written["inputTokenLimit"] = model.context
    if model.output is not None:
        written["outputTokenLimit"] = model.output
    return written
