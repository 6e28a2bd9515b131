"""Images in model requests."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from paddock.agents.engines.base import FILE_SCHEME
from paddock.agents.model.message_images import (
    count_images,
    inline_images,
    keep_newest_images,
    move_images_after_results,
)
from paddock.errors import NotFound

pytestmark = pytest.mark.anyio
PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 20


def picture(name: str, **more: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": FILE_SCHEME + name * 64, **more}}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def result(number: int, *parts: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"call_{number}", "name": "look", "content": list(parts)}


def test_only_the_newest_pictures_stay() -> None:
    said: list[dict[str, Any]] = [
        {"role": "user", "content": [picture("a"), text("and"), picture("b")]},
        {"role": "user", "content": "No picture."},
        result(1, picture("c")),
    ]
    first, second, third = keep_newest_images(said, 2)
    assert first["content"] == [
        text("[picture aaaaaaaaaaaa left out, there are newer ones]"),
        text("and"),
        picture("b"),
    ]
    assert second == said[1] and third == said[2]
    assert count_images(keep_newest_images(said, 0)) == 0 and keep_newest_images(said, 3) == said
    assert count_images(said) == 3, "what was given stays as it is"


def test_pictures_of_results_come_after_all_of_them() -> None:
    said = [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "call_1"}, {"id": "call_2"}]},
        result(1, text("Clicked."), picture("a")),
        result(2, picture("b")),
        {"role": "user", "content": "Well?"},
        result(3, text("one"), text("two")),
        result(4, picture("c")),
    ]
    moved = move_images_after_results(said)
    assert [each["role"] for each in moved] == ["assistant", "tool", "tool", "user", "user", "tool", "tool", "user"]
    assert moved[1] == {
        "role": "tool",
        "tool_call_id": "call_1",
        "content": "Clicked.\n[the picture follows]",
    }
    assert moved[2]["content"] == "[the picture follows]"
    assert moved[3]["content"] == [
        text("<shown>by look</shown>"),
        picture("a"),
        text("<shown>by look</shown>"),
        picture("b"),
    ]
    assert moved[4] == said[3] and moved[5]["content"] == "one\ntwo"
    assert moved[7]["content"][-1] == picture("c")


async def test_pictures_of_the_session_are_put_in() -> None:
    asked: list[str] = []

    async def read(sha: str) -> bytes:
        asked.append(sha)
        if sha[0] == "b":
            raise NotFound("gone")
        return PNG if sha[0] == "a" else b"#!/bin/sh"

    elsewhere = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    astray = {"type": "image_url", "image_url": {"url": f"{FILE_SCHEME}../../paddock.db"}}
    parts = [picture("a", detail="low"), picture("b"), picture("c"), elsewhere, astray, text("Hi.")]
    (message,) = await inline_images([{"role": "user", "content": parts}], read)
    shown, gone, wrong, same, refused, words = message["content"]
    url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    assert shown == {"type": "image_url", "image_url": {"url": url, "detail": "low"}}
    assert gone == text("[picture bbbbbbbbbbbb is no longer there]")
    assert wrong == text("[picture cccccccccccc is none that a model can see]")
    assert same == elsewhere and words == text("Hi.")
    assert refused["type"] == "text" and len(asked) == 3
