"""What OpenAI's two formats have in common: errors, effort, usage, and media in data URLs."""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Any, Literal
from uuid import uuid4

from paddock.llm.formats.base import Untranslatable
from paddock.llm.formats.failures import kind_of
from paddock.llm.formats.fields import Fields
from paddock.llm.neutral import Effort, Failure, Media, Request, Usage

_STATUS_OF_CODE = {
    "invalid_api_key": 401,
    "insufficient_quota": 429,
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "model_not_found": 404,
    "context_length_exceeded": 400,
    "invalid_prompt": 400,
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "server_is_overloaded": 503,
    "slow_down": 503,
    "overloaded_error": 529,
}
_CODE_OF_KIND = {
    "authentication_error": "invalid_api_key",
    "rate_limit_error": "rate_limit_exceeded",
    "overloaded_error": "server_is_overloaded",
    "not_found_error": "model_not_found",
}
_TOO_LONG = re.compile(r"prompt is too long|context (length|window)|maximum number of tokens", re.IGNORECASE)
_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),", re.IGNORECASE)
_AUDIO = {"mp3": "audio/mpeg", "wav": "audio/wav"}


def new_id(prefix: str) -> str:
    return prefix + uuid4().hex


def read_failure(status: int, body: bytes) -> Failure:
    text = body.decode(errors="replace").strip()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        page = text[:64].lstrip().lower()
        if not text or page.startswith(("<!doctype", "<html")):
            return Failure(status, f"the provider answered {status} without saying why", kind_of(status))
        return Failure(status, text[:2000], kind_of(status))
    return failure_of(value, status) or Failure(status, text[:2000], kind_of(status))


def failure_of(value: Any, status: int | None = None) -> Failure | None:
    """The failure that some JSON tells of, in OpenAI's shape or one near it; `None` when it tells of none."""
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, dict):
        return None
    told = value.get("error") or value
    if isinstance(told, str):
        told = {"message": told}
    if not isinstance(told, dict):
        return None
    message = told.get("message") or told.get("detail") or told.get("msg") or value.get("message")
    if not message and told is value:
        return None
    if not isinstance(message, str):
        message = json.dumps(message or told, ensure_ascii=False)
    code, kind = told.get("code"), told.get("type")
    if status is None:
        status = _status(code, kind)
    return Failure(status, message[:2000], kind_of(status), code if isinstance(code, str) and code else None)


def _status(code: Any, kind: Any) -> int:
    for value in (code, kind):
        if isinstance(value, int) and 400 <= value < 600:
            return value
        if isinstance(value, str):
            if value.isdecimal() and 400 <= int(value) < 600:
                return int(value)
            if value in _STATUS_OF_CODE:
                return _STATUS_OF_CODE[value]
    return 502


def error_code(failure: Failure) -> str | None:
    """OpenAI's code for it. Clients act on some: `context_length_exceeded` makes codex shorten its history."""
    if failure.code:
        return failure.code
    if failure.kind in ("invalid_request_error", "request_too_large") and _TOO_LONG.search(failure.message):
        return "context_length_exceeded"
    return _CODE_OF_KIND.get(failure.kind)


def error_object(failure: Failure) -> dict[str, Any]:
    kind = "server_error" if failure.kind in ("api_error", "overloaded_error", "timeout_error") else failure.kind
    return {"message": failure.message, "type": kind, "param": None, "code": error_code(failure)}


def read_effort(fields: Fields, name: str, notes: list[str]) -> Effort | None:
    word = fields.text_or(name)
    if word is None:
        return None
    if word in ("xhigh", "max"):
        notes.append(f"{fields.at(name)}: {word} became high")
        return Effort.HIGH
    try:
        return Effort(word)
    except ValueError:
        raise fields.error(f"should be one of {', '.join(Effort)}", name) from None


def wanted_effort(request: Request) -> Effort | None:
    """The effort asked for, or the one nearest to a budget of tokens."""
    if request.effort is not None or request.thinking_budget is None:
        return request.effort
    if request.thinking_budget <= 0:
        return None
    if request.thinking_budget <= 4096:
        return Effort.LOW
    return Effort.MEDIUM if request.thinking_budget <= 16384 else Effort.HIGH


def read_usage(fields: Fields | None, *, prompt: str, completion: str) -> Usage | None:
    """Usage, whose numbers are called `prompt_tokens` in one format and `input_tokens` in the other."""
    if fields is None:
        return None
    inner, outer = _details(fields, f"{prompt}_details"), _details(fields, f"{completion}_details")
    return Usage(
        input=fields.count(prompt),
        output=fields.count(completion),
        cache_read=inner.count("cached_tokens") or fields.count("prompt_cache_hit_tokens"),
        cache_write=inner.count("cache_write_tokens") or inner.count("cache_creation_input_tokens"),
        reasoning=outer.count("reasoning_tokens"),
    )


def _details(fields: Fields, name: str) -> Fields:
    value = fields.get(name)
    return Fields(value if isinstance(value, dict) else {})


def write_usage(usage: Usage, *, prompt: str, completion: str) -> dict[str, Any]:
    details = {"cached_tokens": usage.cache_read}
    if usage.cache_write:
        details["cache_write_tokens"] = usage.cache_write
    return {
        prompt: usage.input,
        completion: usage.output,
        "total_tokens": usage.input + usage.output,
        f"{prompt}_details": details,
        f"{completion}_details": {"reasoning_tokens": usage.reasoning},
    }


def read_media(kind: Literal["image", "document", "audio"], url: str, name: str | None = None) -> Media:
    """A data URL's content, or the address as it is."""
    match = _DATA_URL.match(url)
    if match is None:
        return Media(kind, url=url, name=name)
    data = url[match.end() :]
    if ";base64" not in match.group(2).lower():
        data = base64.b64encode(data.encode()).decode()
    return Media(kind, match.group(1) or None, data=data, name=name)


def media_url(media: Media, default_type: str) -> str:
    if media.data is not None:
        return f"data:{media.media_type or default_type};base64,{media.data}"
    if media.url is not None:
        return media.url
    raise Untranslatable(f"a part of kind {media.kind} has neither data nor an address")


def read_audio(fields: Fields) -> Media:
    sound = fields.object("input_audio")
    media = read_media("audio", sound.text("data"))
    form = sound.text_or("format")
    if media.data is None and media.url is not None and not media.url.startswith(("http://", "https://")):
        media.data, media.url = media.url, None
    if media.media_type is None and form is not None:
        media.media_type = _AUDIO.get(form, f"audio/{form}")
    return media


def write_audio(media: Media) -> dict[str, Any]:
    if media.data is None:
        raise Untranslatable("sound can only be sent inline to this provider, not by its address")
    form = (media.media_type or "audio/wav").partition("/")[2].removeprefix("x-")
    form = {"mpeg": "mp3", "wave": "wav"}.get(form, form)
    return {"type": "input_audio", "input_audio": {"data": media.data, "format": form}}


def plain_text(media: Media) -> str | None:
    """The words of a document that is plain text, which OpenAI takes as text only."""
    if media.kind != "document" or media.data is None or not (media.media_type or "").startswith("text/"):
        return None
    try:
        return base64.b64decode(media.data, validate=True).decode()
    except (binascii.Error, ValueError):
        return None


def note(notes: list[str], text: str) -> None:
    """Add a note once."""
    if text not in notes:
        notes.append(text)
