"""Which pictures a model is shown, and where they stand in what it is told."""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from paddock.agents.engines.base import FILE_SCHEME
from paddock.agents.files import sniff
from paddock.errors import NotFound

_SHA = re.compile(r"[0-9a-f]{64}")
Said = dict[str, Any]
"""One message in the words of Chat Completions."""


def is_picture(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "image_url"


def address(part: Mapping[str, Any]) -> str:
    """Where a picture is; some write it without the object around it."""
    image = part.get("image_url")
    found = image.get("url") if isinstance(image, Mapping) else image
    return found if isinstance(found, str) else ""


def count(messages: Iterable[Mapping[str, Any]]) -> int:
    return sum(is_picture(part) for message in messages for part in parts_of(message))


def parts_of(message: Mapping[str, Any]) -> Sequence[Any]:
    """The parts of a message; a text by itself is none."""
    content = message.get("content")
    return content if isinstance(content, list | tuple) else ()


def newest(messages: Sequence[Mapping[str, Any]], keep: int) -> list[Said]:
    """The messages with their newest pictures; in the place of older ones stands a note."""
    too_many = max(0, count(messages) - keep)
    said: list[Said] = []
    for message in messages:
        if too_many and any(is_picture(part) for part in parts_of(message)):
            parts: list[Any] = []
            for part in parts_of(message):
                old = too_many > 0 and is_picture(part)
                too_many -= old
                parts.append(_note(part, "left out, there are newer ones") if old else part)
            message = {**message, "content": parts}
        said.append(dict(message))
    return said


def after_results(messages: Sequence[Mapping[str, Any]]) -> list[Said]:
    """The pictures of tools' results moved to a message of their own right after them.

    Most servers take no pictures within a result. Whatever text a result has stays in it.
    """
    said: list[Said] = []
    shown: list[Any] = []
    for message in messages:
        if message.get("role") != "tool":
            said += _showing(shown)
            shown = []
            said.append(dict(message))
            continue
        pictures = [part for part in parts_of(message) if is_picture(part)]
        if pictures:
            name = message.get("name") or message.get("tool_call_id") or "a tool"
            shown += [{"type": "text", "text": f"<shown>by {name}</shown>"}, *pictures]
        # Its name is of no use to servers, and some refuse what they do not know.
        bare = {key: value for key, value in message.items() if key != "name"}
        said.append({**bare, "content": _text_only(message)})
    return said + _showing(shown)


def _showing(shown: list[Any]) -> list[Said]:
    return [{"role": "user", "content": shown}] if shown else []


def _text_only(message: Mapping[str, Any]) -> Any:
    """The text of a result as one, which every server takes."""
    content = message.get("content")
    if not isinstance(content, list | tuple):
        return content or ""
    texts = [str(part["text"]) for part in content if isinstance(part, Mapping) and part.get("type") == "text"]
    if any(is_picture(part) for part in content):
        texts.append("[the picture follows]")
    return "\n".join(texts)


async def inline(messages: Sequence[Mapping[str, Any]], read: Callable[[str], Awaitable[bytes]]) -> list[Said]:
    """The messages with the pictures of the session in them, which `read` gives by their SHA-256."""
    said: list[Said] = []
    for message in messages:
        if any(is_picture(part) for part in parts_of(message)):
            parts = [await _inline(part, read) if is_picture(part) else part for part in parts_of(message)]
            message = {**message, "content": parts}
        said.append(dict(message))
    return said


async def _inline(part: Mapping[str, Any], read: Callable[[str], Awaitable[bytes]]) -> Mapping[str, Any]:
    where = address(part)
    if not where.startswith(FILE_SCHEME):
        return part
    sha = where.removeprefix(FILE_SCHEME)
    if not _SHA.fullmatch(sha):
        return _note(part, "is no file of this session")
    try:
        data = await read(sha)
    except NotFound:
        return _note(part, "is no longer there")
    mime = sniff(data[:16])
    if mime is None:
        return _note(part, "is none that a model can see")
    # Pictures are megabytes at most, and there are a few.
    url = f"data:{mime};base64,{base64.b64encode(data).decode()}"
    image = part.get("image_url")
    detail = {"detail": image["detail"]} if isinstance(image, Mapping) and "detail" in image else {}
    return {"type": "image_url", "image_url": {"url": url, **detail}}


def _note(part: Mapping[str, Any], why: str) -> Said:
    where = address(part)
    name = f" {where.removeprefix(FILE_SCHEME)[:12]}" if where.startswith(FILE_SCHEME) else ""
    return {"type": "text", "text": f"[picture{name} {why}]"}
