"""Formatted results of tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.agents.session_files import SessionFiles
from paddock.agents.tools.tool_results import ToolResultFormatter, cut_middle, failed_result
from paddock.model.screens import ToolResult, ToolResultImage, ToolResultText
from paddock.model.sessions import FileContent

pytestmark = pytest.mark.anyio
SIZE = 1000
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


@pytest.fixture
def files(tmp_path: Path) -> SessionFiles:
    return SessionFiles(tmp_path, 2 * 2**20)


async def test_texts_are_joined_and_short_ones_stay_whole(files: SessionFiles) -> None:
    result = ToolResult(content=(ToolResultText(text="one"), ToolResultText(text="two")), failed=True)
    shown = await ToolResultFormatter(files, SIZE).format_result("s1", "code_x", result)
    assert shown.text == "one\ntwo"
    assert shown.failed and not shown.refused
    assert await files.list_digests("s1") == []


async def test_a_text_of_just_the_size_is_not_cut(files: SessionFiles) -> None:
    shown = await ToolResultFormatter(files, SIZE).format_result(
        "s1", "x", ToolResult(content=(ToolResultText(text="é" * SIZE),))
    )
    assert shown.text == "é" * SIZE


async def test_a_long_text_is_cut_in_the_middle_and_kept_whole(files: SessionFiles) -> None:
    text = "begin " + "x" * 2**20 + " end"
    shown = await ToolResultFormatter(files, SIZE).format_result(
        "s1", "code_x", ToolResult(content=(ToolResultText(text=text),))
    )
    assert len(shown.text) <= SIZE
    assert shown.text.startswith("begin ") and shown.text.endswith(" end")
    assert f"{len(text)} characters in all" in shown.text
    (kept,) = [part for part in shown.content if isinstance(part, FileContent)]
    assert kept.file in shown.text
    assert (kept.type, kept.name, kept.mime) == ("file", "code_x.txt", "text/plain")
    assert (await files.read_file("s1", kept.file)).decode() == text


async def test_what_is_too_large_to_be_kept_says_so(files: SessionFiles) -> None:
    result = ToolResult(
        content=(ToolResultText(text="x" * (3 * 2**20)), ToolResultImage(data=b"\0" * (3 * 2**20), mime="image/png"))
    )
    shown = await ToolResultFormatter(files, SIZE).format_result("s1", "x", result)
    assert shown.text.count("could not be stored") == 2
    assert not [part for part in shown.content if isinstance(part, FileContent)]


async def test_pictures_become_files_after_the_text(files: SessionFiles) -> None:
    result = ToolResult(content=(ToolResultImage(data=PNG, mime="image/png"), ToolResultText(text="a picture")))
    shown = await ToolResultFormatter(files, SIZE).format_result("s1", "linux_screenshot", result)
    text, picture = shown.content
    assert text.type == "text" and isinstance(picture, FileContent)
    assert (picture.type, picture.name, picture.mime, picture.size) == (
        "image",
        "linux_screenshot.png",
        "image/png",
        len(PNG),
    )
    assert await files.read_file("s1", picture.file) == PNG


async def test_of_many_pictures_some_are_left_out(files: SessionFiles) -> None:
    many = ToolResult(content=tuple(ToolResultImage(data=PNG + bytes((n,)), mime="image/png") for n in range(25)))
    shown = await ToolResultFormatter(files, SIZE).format_result("s1", "x", many)
    assert len([part for part in shown.content if isinstance(part, FileContent)]) == 20
    assert "5 more pictures" in shown.text


async def test_data_is_shown_where_there_is_nothing_else(files: SessionFiles) -> None:
    shown = await ToolResultFormatter(files, SIZE).format_result("s1", "x", ToolResult(structured={"größe": 1}))
    assert shown.text == '{"größe": 1}'


async def test_notes_come_first(files: SessionFiles) -> None:
    shown = await ToolResultFormatter(files, SIZE).format_result(
        "s1", "x", ToolResult(content=(ToolResultText(text="yes"),)), None, "mind"
    )
    assert shown.text == "[note] mind\nyes"
    assert failed_result("no", None, "mind").text == "[note] mind\nno"


def test_a_cut_text_is_never_longer_than_it_may_be() -> None:
    for size in (0, 10, 200, 500, 5000):
        assert len(cut_middle("x" * 10_000, size, "somewhere")) <= max(size, 120)
