"""Images in model requests."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from paddock.agents.engines.base import FILE_SCHEME
from paddock.agents.model.message_images import (
    count_images,
    inline_session_images,
    keep_newest_images,
    move_images_after_results,
)
from paddock.errors import NotFound

pytestmark = pytest.mark.anyio
PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 20


def image_part(name: str, **image_fields: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": FILE_SCHEME + name * 64, **image_fields}}


def text_part(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def result(number: int, *parts: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"call_{number}", "name": "look", "content": list(parts)}


def test_only_newest_images_stay() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": [image_part("a"), text_part("and"), image_part("b")]},
        {"role": "user", "content": "No picture."},
        result(1, image_part("c")),
    ]
    first, second, third = keep_newest_images(messages, 2)
    assert first["content"] == [
        text_part("[picture aaaaaaaaaaaa left out, there are newer ones]"),
        text_part("and"),
        image_part("b"),
    ]
    assert second == messages[1] and third == messages[2]
    assert count_images(keep_newest_images(messages, 0)) == 0 and keep_newest_images(messages, 3) == messages
    assert count_images(messages) == 3, "what was given stays as it is"


def test_images_of_results_follow_all_results() -> None:
    messages = [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "call_1"}, {"id": "call_2"}]},
        result(1, text_part("Clicked."), image_part("a")),
        result(2, image_part("b")),
        {"role": "user", "content": "Well?"},
        result(3, text_part("one"), text_part("two")),
        result(4, image_part("c")),
    ]
    converted = move_images_after_results(messages)
    assert [each["role"] for each in converted] == ["assistant", "tool", "tool", "user", "user", "tool", "tool", "user"]
    assert converted[1] == {
        "role": "tool",
        "tool_call_id": "call_1",
        "content": "Clicked.\n[the picture follows]",
    }
    assert converted[2]["content"] == "[the picture follows]"
    assert converted[3]["content"] == [
        text_part("<shown>by look</shown>"),
        image_part("a"),
        text_part("<shown>by look</shown>"),
        image_part("b"),
    ]
    assert converted[4] == messages[3] and converted[5]["content"] == "one\ntwo"
    assert converted[7]["content"][-1] == image_part("c")


async def test_session_images_are_inlined() -> None:
    read_digests: list[str] = []

    async def read(sha: str) -> bytes:
        read_digests.append(sha)
        if sha[0] == "b":
            raise NotFound("gone")
        return PNG if sha[0] == "a" else b"#!/bin/sh"

    external_image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    traversal = {"type": "image_url", "image_url": {"url": f"{FILE_SCHEME}../../paddock.db"}}
    parts = [
        image_part("a", detail="low"),
        image_part("b"),
        image_part("c"),
        external_image,
        traversal,
        text_part("Hi."),
    ]
    (message,) = await inline_session_images([{"role": "user", "content": parts}], read)
    inlined, missing, invalid, external, refused, text_after = message["content"]
    url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    assert inlined == {"type": "image_url", "image_url": {"url": url, "detail": "low"}}
    assert missing == text_part("[picture bbbbbbbbbbbb is no longer there]")
    assert invalid == text_part("[picture cccccccccccc is none that a model can see]")
    assert external == external_image and text_after == text_part("Hi.")
    assert refused["type"] == "text" and len(read_digests) == 3
