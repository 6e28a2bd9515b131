"""Formatted results of tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.agents.session_files import SessionFiles
from paddock.agents.tools.tool_results import ToolResultFormatter, cut_text_middle, failed_tool_result
from paddock.model.screens import ToolResult, ToolResultImage, ToolResultText
from paddock.model.sessions import FileContent

pytestmark = pytest.mark.anyio
SIZE = 1000
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


@pytest.fixture
def files(tmp_path: Path) -> SessionFiles:
    return SessionFiles(tmp_path, 2 * 2**20)


async def test_short_texts_are_joined(files: SessionFiles) -> None:
    result = ToolResult(content=(ToolResultText(text="one"), ToolResultText(text="two")), failed=True)
    formatted = await ToolResultFormatter(files, SIZE).format_result("s1", "code_x", result)
    assert formatted.text == "one\ntwo"
    assert formatted.failed and not formatted.refused
    assert await files.list_digests("s1") == []


async def test_text_of_maximum_size_is_not_cut(files: SessionFiles) -> None:
    formatted = await ToolResultFormatter(files, SIZE).format_result(
        "s1", "x", ToolResult(content=(ToolResultText(text="é" * SIZE),))
    )
    assert formatted.text == "é" * SIZE


async def test_long_text_is_cut_in_the_middle_and_stored(files: SessionFiles) -> None:
    text = "begin " + "x" * 2**20 + " end"
    formatted = await ToolResultFormatter(files, SIZE).format_result(
        "s1", "code_x", ToolResult(content=(ToolResultText(text=text),))
    )
    assert len(formatted.text) <= SIZE
    assert formatted.text.startswith("begin ") and formatted.text.endswith(" end")
    assert f"{len(text)} characters in all" in formatted.text
    (stored,) = [part for part in formatted.content if isinstance(part, FileContent)]
    assert stored.file in formatted.text
    assert (stored.type, stored.name, stored.mime) == ("file", "code_x.txt", "text/plain")
    assert (await files.read_file("s1", stored.file)).decode() == text


async def test_result_too_large_to_store_has_notice(files: SessionFiles) -> None:
    result = ToolResult(
        content=(ToolResultText(text="x" * (3 * 2**20)), ToolResultImage(data=b"\0" * (3 * 2**20), mime="image/png"))
    )
    formatted = await ToolResultFormatter(files, SIZE).format_result("s1", "x", result)
    assert formatted.text.count("could not be stored") == 2
    assert not [part for part in formatted.content if isinstance(part, FileContent)]


async def test_images_become_files_after_the_text(files: SessionFiles) -> None:
    result = ToolResult(content=(ToolResultImage(data=PNG, mime="image/png"), ToolResultText(text="a picture")))
    formatted = await ToolResultFormatter(files, SIZE).format_result("s1", "linux_screenshot", result)
    text, picture = formatted.content
    assert text.type == "text" and isinstance(picture, FileContent)
    assert (picture.type, picture.name, picture.mime, picture.size) == (
        "image",
        "linux_screenshot.png",
        "image/png",
        len(PNG),
    )
    assert await files.read_file("s1", picture.file) == PNG


async def test_number_of_images_is_limited(files: SessionFiles) -> None:
    many = ToolResult(content=tuple(ToolResultImage(data=PNG + bytes((n,)), mime="image/png") for n in range(25)))
    formatted = await ToolResultFormatter(files, SIZE).format_result("s1", "x", many)
    assert len([part for part in formatted.content if isinstance(part, FileContent)]) == 20
    assert "5 more pictures" in formatted.text


async def test_structured_data_is_shown_without_other_content(files: SessionFiles) -> None:
    formatted = await ToolResultFormatter(files, SIZE).format_result("s1", "x", ToolResult(structured={"größe": 1}))
    assert formatted.text == '{"größe": 1}'


async def test_notes_come_first(files: SessionFiles) -> None:
    formatted = await ToolResultFormatter(files, SIZE).format_result(
        "s1", "x", ToolResult(content=(ToolResultText(text="yes"),)), None, "mind"
    )
    assert formatted.text == "[note] mind\nyes"
    assert failed_tool_result("no", None, "mind").text == "[note] mind\nno"


def test_cut_text_has_at_most_maximum_size() -> None:
    for size in (0, 10, 200, 500, 5000):
        assert len(cut_text_middle("x" * 10_000, size, "somewhere")) <= max(size, 120)
