"""Shared parts of OpenAI's two formats: errors, reasoning effort, usage, and media in data URLs."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, Literal
from uuid import uuid4

from paddock.llm.formats.base import UntranslatableRequest
from paddock.llm.formats.json_fields import JsonFields
from paddock.llm.formats.neutral import ModelFailure, ModelMedia, ModelRequest, ReasoningEffort, TokenUsage
from paddock.llm.formats.translation_notes import add_translation_note

_CODE_BY_ERROR_KIND = {
    "authentication_error": "invalid_api_key",
    "rate_limit_error": "rate_limit_exceeded",
    "overloaded_error": "server_is_overloaded",
    "not_found_error": "model_not_found",
}
_CONTEXT_TOO_LONG = re.compile(r"prompt is too long|context (length|window)|maximum number of tokens", re.IGNORECASE)
_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),", re.IGNORECASE)
_NON_REASONING_MODELS = re.compile(r"(.*/)?(gpt-[34](?!\d)|chatgpt-|gpt-5[\d.]*-chat)")
_ALWAYS_REASONING_MODELS = re.compile(r"(.*/)?(o\d|gpt-5(?![.\d])|gpt-oss)")
_FIXED_SAMPLING_MODELS = re.compile(r"(.*/)?(o\d|gpt-[5-9](?![\d.]*-chat))")
_MINIMAL_EFFORT_MODELS = re.compile(r"(.*/)?gpt-5(?![.\d])")
_XHIGH_EFFORT_MODELS = re.compile(r"(.*/)?gpt-(5\.\d|[6-9])")
"""Models that accept the efforts `none` and `xhigh`, but not `minimal`."""
_AUDIO_MEDIA_TYPES = {"mp3": "audio/mpeg", "wav": "audio/wav"}


def new_prefixed_id(prefix: str) -> str:
    return prefix + uuid4().hex


def untranslatable_field_note(field: str) -> str:
    """Return the note about a field that affects the answer and that only the client's format has."""
    return f"{field}: the provider's format has no such field"


def openai_error_code(failure: ModelFailure) -> str | None:
    """Return OpenAI's error code. On `context_length_exceeded`, codex shortens its history."""
    if failure.code:
        return failure.code
    if failure.kind in ("invalid_request_error", "request_too_large") and _CONTEXT_TOO_LONG.search(failure.message):
        return "context_length_exceeded"
    return _CODE_BY_ERROR_KIND.get(failure.kind)


def openai_error_object(failure: ModelFailure) -> dict[str, Any]:
    kind = "server_error" if failure.kind in ("api_error", "overloaded_error", "timeout_error") else failure.kind
    return {"message": failure.message, "type": kind, "param": None, "code": openai_error_code(failure)}


def read_reasoning_effort(fields: JsonFields, name: str) -> ReasoningEffort | None:
    word = fields.optional_text(name)
    if word is None:
        return None
    try:
        return ReasoningEffort(word)
    except ValueError:
        raise fields.error(f"should be one of {', '.join(ReasoningEffort)}", name) from None


def requested_reasoning_effort(request: ModelRequest) -> ReasoningEffort | None:
    """Return the requested effort, or the nearest one to a requested token budget."""
    if request.effort is not None or request.thinking_budget is None:
        return request.effort
    if request.thinking_budget <= 0:
        return ReasoningEffort.NONE
    if request.thinking_budget <= 4096:
        return ReasoningEffort.LOW
    return ReasoningEffort.MEDIUM if request.thinking_budget <= 16384 else ReasoningEffort.HIGH


def supported_reasoning_effort(request: ModelRequest) -> str | None:
    """Return the nearest supported effort; `None` if none was requested or none is supported."""
    effort = requested_reasoning_effort(request)
    if effort is None:
        return None
    if _NON_REASONING_MODELS.match(request.model):
        if effort is not ReasoningEffort.NONE:
            add_translation_note(request.notes, "the reasoning effort was left out: this model does not reason")
        return None
    written = effort
    if not _XHIGH_EFFORT_MODELS.match(request.model):
        if effort in (ReasoningEffort.XHIGH, ReasoningEffort.MAX):
            written = ReasoningEffort.HIGH
        elif effort is ReasoningEffort.NONE and _ALWAYS_REASONING_MODELS.match(request.model):
            written = ReasoningEffort.MINIMAL
        if written is ReasoningEffort.MINIMAL and not _MINIMAL_EFFORT_MODELS.match(request.model):
            written = ReasoningEffort.LOW
    elif effort is ReasoningEffort.MAX:
        written = ReasoningEffort.XHIGH
    elif effort is ReasoningEffort.MINIMAL:
        written = ReasoningEffort.LOW
    if written is not effort:
        add_translation_note(request.notes, f"effort `{effort}` became `{written}`, the nearest this model takes")
    return written.value


def supported_sampling_settings(request: ModelRequest) -> dict[str, float]:
    """Return the sampling settings that the model accepts; reasoning models accept only the defaults."""
    wanted = {"temperature": request.temperature, "top_p": request.top_p}
    values = {name: value for name, value in wanted.items() if value is not None}
    is_reasoning = _FIXED_SAMPLING_MODELS.match(request.model)
    if (
        is_reasoning
        and _XHIGH_EFFORT_MODELS.match(request.model)
        and requested_reasoning_effort(request) in (None, ReasoningEffort.NONE)
    ):
        is_reasoning = None
    if is_reasoning and any(value != 1 for value in values.values()):
        add_translation_note(
            request.notes, "`temperature` and `top_p` were left out: this model refuses them when it reasons"
        )
        return {}
    return values


def read_openai_usage(fields: JsonFields | None, *, prompt: str, completion: str) -> TokenUsage | None:
    """Parse usage; the fields are called `prompt_tokens` in one format and `input_tokens` in the other."""
    if fields is None:
        return None
    inner, outer = _read_details(fields, f"{prompt}_details"), _read_details(fields, f"{completion}_details")
    return TokenUsage(
        input=fields.token_count(prompt),
        output=fields.token_count(completion),
        cache_read=inner.token_count("cached_tokens") or fields.token_count("prompt_cache_hit_tokens"),
        cache_write=inner.token_count("cache_write_tokens") or inner.token_count("cache_creation_input_tokens"),
        reasoning=outer.token_count("reasoning_tokens"),
    )


def _read_details(fields: JsonFields, name: str) -> JsonFields:
    value = fields.get(name)
    return JsonFields(value if isinstance(value, dict) else {})


def write_openai_usage(usage: TokenUsage, *, prompt: str, completion: str) -> dict[str, Any]:
    details = {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write}
    return {
        prompt: usage.input,
        completion: usage.output,
        "total_tokens": usage.input + usage.output,
        f"{prompt}_details": details,
        f"{completion}_details": {"reasoning_tokens": usage.reasoning},
    }


def read_openai_media(
    kind: Literal["image", "document", "audio"], url: str, name: str | None = None, detail: str | None = None
) -> ModelMedia:
    """Create media from a data URL, or from an ordinary URL."""
    match = _DATA_URL.match(url)
    if match is None:
        return ModelMedia(kind, url=url, name=name, detail=detail)
    data = url[match.end() :]
    if ";base64" not in match.group(2).lower():
        data = base64.b64encode(data.encode(errors="replace")).decode()
    return ModelMedia(kind, match.group(1) or None, data=data, name=name, detail=detail)


def openai_media_url(media: ModelMedia, default_type: str) -> str:
    if media.data is not None:
        return f"data:{media.media_type or default_type};base64,{media.data}"
    if media.url is not None:
        return media.url
    raise UntranslatableRequest(f"a part of kind {media.kind} has neither data nor a URL")


def read_openai_audio(fields: JsonFields) -> ModelMedia:
    audio = fields.object("input_audio")
    media = read_openai_media("audio", audio.text("data"))
    form = audio.optional_text("format")
    if media.data is None and media.url is not None and not media.url.startswith(("http://", "https://")):
        media.data, media.url = media.url, None
    if media.media_type is None and form is not None:
        media.media_type = _AUDIO_MEDIA_TYPES.get(form, f"audio/{form}")
    return media


def write_openai_audio(media: ModelMedia) -> dict[str, Any]:
    if media.data is None:
        raise UntranslatableRequest("audio can only be sent inline to this provider, not by URL")
    form = (media.media_type or "audio/wav").partition("/")[2].removeprefix("x-")
    form = {"mpeg": "mp3", "wave": "wav"}.get(form, form)
    return {"type": "input_audio", "input_audio": {"data": media.data, "format": form}}


def decode_text_document(media: ModelMedia) -> str | None:
    """Decode a plain-text document, which OpenAI accepts only as text; `None` for other media."""
    if media.kind != "document" or media.data is None or not (media.media_type or "").startswith("text/"):
        return None
    try:
        return base64.b64decode(media.data, validate=True).decode()
    except (binascii.Error, ValueError):
        return None
