"""The Chinese pages have the same commands, structure, code and links as the English pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.docs.page_pairs import CHINESE, english_page, find_broken_links, find_page_differences, heading_anchors
from tests.docs.page_reader import ROOT
from tests.docs.translation_record import find_stale_translations, read_record, record_translation

PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("tutorial/*.md")),
    *sorted((ROOT / "docs").glob("how-to/*.md")),
]

ENGLISH = """# Start

English · [简体中文](../zh-CN/tutorial/start.md)

Start it with `--port`, on port 8420. See [the end](#the-end).

<!-- run: mkdir data -->
```sh
paddock serve            # the server
paddock doctor
```

- One item.

## The end

```console
$ paddock sandbox list
ID  STATE
```
"""
TRANSLATED = """# 开始

[English](../../tutorial/start.md) · 简体中文

用 `--port` 启动。端口为 8420。参见[结尾](#结尾)。

<!-- run: mkdir data -->
```sh
paddock serve            # 服务器
paddock doctor
```

- 一项。

## 结尾

```console
$ paddock sandbox list
ID  STATE
```
"""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_chinese_page_matches_english_page(page: Path) -> None:
    assert "\n".join(find_page_differences(page)) == ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_chinese_page_translates_the_current_english_text(page: Path) -> None:
    stale = find_stale_translations(page)
    how = f"Update the Chinese page, then: .venv/bin/python -m tests.docs.translation_record {page.relative_to(ROOT)}"
    assert "\n".join([*stale, how] if stale else []) == ""


def test_every_chinese_page_has_an_english_page() -> None:
    pages = (ROOT / CHINESE).rglob("*.md")
    assert [page for page in pages if not english_page(page).exists()] == []
    assert {*read_record()} == {str(page.relative_to(ROOT)) for page in PAGES}


def test_links_of_all_pages_resolve() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.md")]
    assert len(pages) > 60
    assert [problem for page in pages for problem in find_broken_links(page)] == []


def raw_emphasis(text: str) -> list[str]:
    """Return texts in which `**` or `*` stays visible, as beside Chinese punctuation: `**词。**下一句`."""
    inline = [each.children or [] for each in MarkdownIt("commonmark").enable("table").parse(text)]
    texts = [child.content for children in inline for child in children if child.type == "text"]
    return [each for each in texts if re.search(r"\*\*|(?<![\w.])\*[^ *]", each)]


def test_emphasis_of_all_pages_is_rendered() -> None:
    pages = [*ROOT.glob("README*.md"), *(ROOT / "docs").rglob("*.md")]
    assert {page.name: each for page in pages if (each := raw_emphasis(page.read_text()))} == {}
    assert raw_emphasis("- **一个词。**下一句\n- **一个词** `**`") == ["**一个词。**下一句"]


def differences(root: Path, english: str, chinese: str | None) -> list[str]:
    page, other = root / "docs/tutorial/start.md", root / "docs/zh-CN/tutorial/start.md"
    for path in (page, other):
        path.parent.mkdir(parents=True)
    page.write_text(english)
    if chinese is not None:
        other.write_text(chinese)
    return [each.replace(f"{root}/", "") for each in find_page_differences(page, root)]


def test_equal_pages_have_no_differences(tmp_path: Path) -> None:
    assert differences(tmp_path, ENGLISH, TRANSLATED) == []


def test_missing_chinese_page_is_named(tmp_path: Path) -> None:
    [found] = differences(tmp_path, ENGLISH, None)
    assert found == "docs/tutorial/start.md: write its Chinese version, docs/zh-CN/tutorial/start.md"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "paddock doctor",
            "paddock docter",
            ":8: the sh block differs from docs/tutorial/start.md:8: "
            "English has 'paddock doctor', Chinese has 'paddock docter'",
        ),
        ("run: mkdir data", "run: mkdir dat", "English has 'mkdir data', Chinese has 'mkdir dat'"),
        (
            "ID  STATE",
            "ID  状态",
            ":17: the console block differs from docs/tutorial/start.md:17: English has 'ID  STATE'",
        ),
        ("`--port`", "参数", ":5: the paragraph differs from docs/tutorial/start.md:5: code only in English: --port"),
        ("8420。", "8421。", "number only in English: 8420"),
        ("](#结尾)", "](#end)", ":5: the link #end leads nowhere"),
        ("](#结尾)", "](https://example.com)", "link only in Chinese: https://example.com"),
        ("## 结尾", "### 结尾", ":15: the heading of level 3 is not in docs/tutorial/start.md"),
        (
            "- 一项。\n",
            "",
            "docs/tutorial/start.md:13: the list item is not in docs/zh-CN/tutorial/start.md at 14: - One item.",
        ),
        (
            "paddock doctor\n",
            "paddock doctor\nls\n",
            ":8: the sh block differs from docs/tutorial/start.md:8: one block has more",
        ),
        ("[English](../../tutorial/start.md)", "English", ":3: the language switch is missing: [English]("),
    ],
    ids=[
        "command",
        "hidden-command",
        "output",
        "code",
        "number",
        "anchor",
        "link",
        "heading",
        "item",
        "line",
        "switch",
    ],
)
def test_difference_names_block_and_line(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert old in TRANSLATED
    found = "\n".join(differences(tmp_path, ENGLISH, TRANSLATED.replace(old, new)))
    assert expected in found


def test_link_to_the_english_page_is_found(tmp_path: Path) -> None:
    for name in ("docs/tutorial/other.md", "docs/zh-CN/tutorial/other.md"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("# Other\n")
    chinese = TRANSLATED.replace("- 一项。", "- [另一页](../../tutorial/other.md)。")
    english = ENGLISH.replace("- One item.", "- [Another](other.md).")
    for path in (tmp_path / "docs/tutorial/start.md", tmp_path / "docs/zh-CN/tutorial/start.md"):
        path.write_text(english if "zh-CN" not in str(path) else chinese)
    found = find_page_differences(tmp_path / "docs/tutorial/start.md", tmp_path)
    assert "link the Chinese page instead of ../../tutorial/other.md" in found[0]


def test_broken_links_and_images_are_found(tmp_path: Path) -> None:
    page = tmp_path / "docs/page.md"
    page.parent.mkdir()
    page.write_text(
        "# Page\n\n[Here](#page), [gone](gone.md), [no heading](#gone)\n![Picture](gone.png)\n```sh\n[x](y)\n```\n"
    )
    found = [each.replace(f"{tmp_path}/", "") for each in find_broken_links(page, tmp_path)]
    assert found == [
        "docs/page.md:3: the link gone.md leads nowhere",
        "docs/page.md:3: the link #gone leads nowhere",
        "docs/page.md:4: the link gone.png leads nowhere",
    ]


def test_anchors_are_those_of_github(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `b`, c\n```sh\n# no heading\n```\n## 3. 连接智能体\n## Same\n## Same\n")
    assert heading_anchors(page) == ["a-b-c", "3-连接智能体", "same", "same-1"]


def test_changed_sentence_is_found_until_its_translation_is_recorded(tmp_path: Path) -> None:
    assert differences(tmp_path, ENGLISH, TRANSLATED) == []
    page = tmp_path / "docs/tutorial/start.md"
    record_translation(page, tmp_path)
    page.write_text(ENGLISH.replace("Start it with", "Start\nit with"))
    assert find_stale_translations(page, tmp_path) == []
    page.write_text(ENGLISH.replace("Start it with", "Stop it with").replace("- One item.", "- One item.\n- New item."))
    found = [each.replace(f"{tmp_path}/", "") for each in find_stale_translations(page, tmp_path)]
    changed = "has changed since its translation at docs/zh-CN/tutorial/start.md"
    assert found == [
        f"docs/tutorial/start.md:5: the paragraph {changed}:5: "
        "Stop it with `--port`, on port 8420. See [the end](#the-end).",
        f"docs/tutorial/start.md:14: the list item {changed}:15: - New item.",
    ]
    record_translation(page, tmp_path)
    assert find_stale_translations(page, tmp_path) == []
