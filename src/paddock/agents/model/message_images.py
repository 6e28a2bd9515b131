"""Images in model requests: which ones are kept, and where they are placed."""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from paddock.agents.engines.base import FILE_SCHEME
from paddock.agents.session_files import detect_image_type
from paddock.errors import NotFound

_SHA = re.compile(r"[0-9a-f]{64}")
ChatMessage = dict[str, Any]
"""One message in the Chat Completions format."""


def is_image_part(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "image_url"


def image_part_url(part: Mapping[str, Any]) -> str:
    """Return the URL of an image part; also accepts a bare string."""
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, Mapping) else image
    return url if isinstance(url, str) else ""


def count_images(messages: Iterable[Mapping[str, Any]]) -> int:
    return sum(is_image_part(part) for message in messages for part in message_content_parts(message))


def message_content_parts(message: Mapping[str, Any]) -> Sequence[Any]:
    """Return the content parts of a message; plain text has none."""
    content = message.get("content")
    return content if isinstance(content, list | tuple) else ()


def keep_newest_images(messages: Sequence[Mapping[str, Any]], keep: int) -> list[ChatMessage]:
    """Keep the newest images; replace older ones with a note."""
    surplus = max(0, count_images(messages) - keep)
    result: list[ChatMessage] = []
    for message in messages:
        if surplus and any(is_image_part(part) for part in message_content_parts(message)):
            parts: list[Any] = []
            for part in message_content_parts(message):
                is_old = surplus > 0 and is_image_part(part)
                surplus -= is_old
                parts.append(_image_note(part, "left out, there are newer ones") if is_old else part)
            message = {**message, "content": parts}
        result.append(dict(message))
    return result


def move_images_after_results(messages: Sequence[Mapping[str, Any]]) -> list[ChatMessage]:
    """Move images of tool results into a message of their own after the results.

    Most providers accept no images in results. The text of a result stays in it.
    """
    result: list[ChatMessage] = []
    images: list[Any] = []
    for message in messages:
        if message.get("role") != "tool":
            result += _image_messages(images)
            images = []
            result.append(dict(message))
            continue
        result_images = [part for part in message_content_parts(message) if is_image_part(part)]
        if result_images:
            name = message.get("name") or message.get("tool_call_id") or "a tool"
            images += [{"type": "text", "text": f"<shown>by {name}</shown>"}, *result_images]
        # Providers do not use the name, and some reject unknown fields.
        without_name = {key: value for key, value in message.items() if key != "name"}
        result.append({**without_name, "content": _result_text(message)})
    return result + _image_messages(images)


def _image_messages(images: list[Any]) -> list[ChatMessage]:
    return [{"role": "user", "content": images}] if images else []


def _result_text(message: Mapping[str, Any]) -> Any:
    """Return the text of a result as one string, which all providers accept."""
    content = message.get("content")
    if not isinstance(content, list | tuple):
        return content or ""
    texts = [str(part["text"]) for part in content if isinstance(part, Mapping) and part.get("type") == "text"]
    if any(is_image_part(part) for part in content):
        texts.append("[the picture follows]")
    return "\n".join(texts)


async def inline_session_images(
    messages: Sequence[Mapping[str, Any]], read_image: Callable[[str], Awaitable[bytes]]
) -> list[ChatMessage]:
    """Replace references to session images with data URLs; `read_image` returns an image by its SHA-256."""
    result: list[ChatMessage] = []
    for message in messages:
        if any(is_image_part(part) for part in message_content_parts(message)):
            parts = [
                await _inline_image(part, read_image) if is_image_part(part) else part
                for part in message_content_parts(message)
            ]
            message = {**message, "content": parts}
        result.append(dict(message))
    return result


async def _inline_image(part: Mapping[str, Any], read_image: Callable[[str], Awaitable[bytes]]) -> Mapping[str, Any]:
    url = image_part_url(part)
    if not url.startswith(FILE_SCHEME):
        return part
    sha = url.removeprefix(FILE_SCHEME)
    if not _SHA.fullmatch(sha):
        return _image_note(part, "is no file of this session")
    try:
        data = await read_image(sha)
    except NotFound:
        return _image_note(part, "is no longer there")
    mime = detect_image_type(data[:16])
    if mime is None:
        return _image_note(part, "is none that a model can see")
    # A few images of some megabytes each.
    url = f"data:{mime};base64,{base64.b64encode(data).decode()}"
    image = part.get("image_url")
    detail = {"detail": image["detail"]} if isinstance(image, Mapping) and "detail" in image else {}
    return {"type": "image_url", "image_url": {"url": url, **detail}}


def _image_note(part: Mapping[str, Any], reason: str) -> ChatMessage:
    url = image_part_url(part)
    name = f" {url.removeprefix(FILE_SCHEME)[:12]}" if url.startswith(FILE_SCHEME) else ""
    return {"type": "text", "text": f"[picture{name} {reason}]"}
