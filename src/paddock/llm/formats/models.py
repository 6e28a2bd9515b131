"""Lists of models, as the clients of each format expect them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from paddock.llm.formats.fields import to_bytes


@dataclass(frozen=True, slots=True)
class Listed:
    """A model that may be asked for."""

    id: str
    owner: str = "paddock"
    created: int = 0
    """Seconds since 1970; 0 where nobody knows."""
    name: str | None = None
    """For people; the id where there is none."""
    context: int | None = None
    """Most tokens of a prompt."""
    output: int | None = None
    """Most tokens of an answer."""


def write_models(form: str, models: Sequence[Listed]) -> bytes:
    """All models, in the shape of the format of this name."""
    if form == "gemini":
        return to_bytes({"models": [_gemini(model) for model in models]})
    if form == "anthropic":
        listed = [_anthropic(model) for model in models]
        ends = {"first_id": models[0].id if models else None, "last_id": models[-1].id if models else None}
        return to_bytes({"data": listed, "has_more": False, **ends})
    return to_bytes({"object": "list", "data": [_openai(model) for model in models]})


def write_model(form: str, model: Listed) -> bytes:
    """One model, in the shape of the format of this name."""
    shapes: dict[str, Callable[[Listed], dict[str, Any]]] = {"gemini": _gemini, "anthropic": _anthropic}
    return to_bytes(shapes.get(form, _openai)(model))


def _openai(model: Listed) -> dict[str, Any]:
    return {"id": model.id, "object": "model", "created": model.created, "owned_by": model.owner}


def _anthropic(model: Listed) -> dict[str, Any]:
    return {
        "type": "model",
        "id": model.id,
        "display_name": model.name or model.id,
        "created_at": datetime.fromtimestamp(model.created, UTC).isoformat().replace("+00:00", "Z"),
        "lifecycle": "active",
        "max_input_tokens": model.context,
        "max_tokens": model.output,
    }


def _gemini(model: Listed) -> dict[str, Any]:
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
