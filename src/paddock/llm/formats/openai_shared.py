"""What OpenAI's two formats have in common: errors, effort, usage, and media in data URLs."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, Literal
from uuid import uuid4

from paddock.llm.formats.base import Untranslatable
from paddock.llm.formats.fields import Fields
from paddock.llm.formats.notes import note
from paddock.llm.neutral import Effort, Failure, Media, Request, Usage

_CODE_OF_KIND = {
    "authentication_error": "invalid_api_key",
    "rate_limit_error": "rate_limit_exceeded",
    "overloaded_error": "server_is_overloaded",
    "not_found_error": "model_not_found",
}
_TOO_LONG = re.compile(r"prompt is too long|context (length|window)|maximum number of tokens", re.IGNORECASE)
_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),", re.IGNORECASE)
_UNTHINKING = re.compile(r"(.*/)?(gpt-[34](?!\d)|chatgpt-|gpt-5[\d.]*-chat)")
_ALWAYS_THINKING = re.compile(r"(.*/)?(o\d|gpt-5(?![.\d])|gpt-oss)")
_ALWAYS_SAMPLING = re.compile(r"(.*/)?(o\d|gpt-[5-9](?![\d.]*-chat))")
_MINIMAL = re.compile(r"(.*/)?gpt-5(?![.\d])")
_MUCH_EFFORT = re.compile(r"(.*/)?gpt-(5\.\d|[6-9])")
"""Models that take `none` and `xhigh`, but not `minimal`."""
_AUDIO = {"mp3": "audio/mpeg", "wav": "audio/wav"}


def new_id(prefix: str) -> str:
    return prefix + uuid4().hex


def no_word(field: str) -> str:
    """The note about a field that shapes the answer and that only the format it came in can say."""
    return f"{field}: the provider's format has no word for it"


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


def read_effort(fields: Fields, name: str) -> Effort | None:
    word = fields.text_or(name)
    if word is None:
        return None
    try:
        return Effort(word)
    except ValueError:
        raise fields.error(f"should be one of {', '.join(Effort)}", name) from None


def wanted_effort(request: Request) -> Effort | None:
    """The effort asked for, or the one nearest to a budget of tokens."""
    if request.effort is not None or request.thinking_budget is None:
        return request.effort
    if request.thinking_budget <= 0:
        return Effort.NONE
    if request.thinking_budget <= 4096:
        return Effort.LOW
    return Effort.MEDIUM if request.thinking_budget <= 16384 else Effort.HIGH


def written_effort(request: Request) -> str | None:
    """The effort in a word that the model takes; `None` where it was not asked for, or the model refuses any."""
    effort = wanted_effort(request)
    if effort is None:
        return None
    if _UNTHINKING.match(request.model):
        if effort is not Effort.NONE:
            note(request.notes, "the effort to think was left out: this model does not think")
        return None
    written = effort
    if not _MUCH_EFFORT.match(request.model):
        if effort in (Effort.XHIGH, Effort.MAX):
            written = Effort.HIGH
        elif effort is Effort.NONE and _ALWAYS_THINKING.match(request.model):
            written = Effort.MINIMAL
        if written is Effort.MINIMAL and not _MINIMAL.match(request.model):
            written = Effort.LOW
    elif effort is Effort.MAX:
        written = Effort.XHIGH
    elif effort is Effort.MINIMAL:
        written = Effort.LOW
    if written is not effort:
        note(request.notes, f"effort `{effort}` became `{written}`, the nearest this model takes")
    return written.value


def sampling(request: Request) -> dict[str, float]:
    """Temperature and the like, without what models that always think refuse."""
    wanted = {"temperature": request.temperature, "top_p": request.top_p}
    values = {name: value for name, value in wanted.items() if value is not None}
    thinks = _ALWAYS_SAMPLING.match(request.model)
    if thinks and _MUCH_EFFORT.match(request.model) and wanted_effort(request) in (None, Effort.NONE):
        thinks = None
    if thinks and any(value != 1 for value in values.values()):
        note(request.notes, "`temperature` and `top_p` were left out: this model refuses them while it thinks")
        return {}
    return values


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
    details = {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write}
    return {
        prompt: usage.input,
        completion: usage.output,
        "total_tokens": usage.input + usage.output,
        f"{prompt}_details": details,
        f"{completion}_details": {"reasoning_tokens": usage.reasoning},
    }


def read_media(
    kind: Literal["image", "document", "audio"], url: str, name: str | None = None, detail: str | None = None
) -> Media:
    """A data URL's content, or the address as it is."""
    match = _DATA_URL.match(url)
    if match is None:
        return Media(kind, url=url, name=name, detail=detail)
    data = url[match.end() :]
    if ";base64" not in match.group(2).lower():
        data = base64.b64encode(data.encode(errors="replace")).decode()
    return Media(kind, match.group(1) or None, data=data, name=name, detail=detail)


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
