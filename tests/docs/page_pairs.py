"""Compare a Chinese page with its English page, element by element."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

from tests.docs.page_reader import ROOT, PageBlock, page_name, read_blocks

CHINESE = Path("docs/zh-CN")
_CODE = re.compile(r"(`+)(.+?)\1")
_LINK = re.compile(r"(!?)\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")
_LINK_TARGET = re.compile(r"\]\([^)]*\)")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_HEADING = re.compile(r"(#{1,6}) +(.*)")
_COMMENT = re.compile(r"\s*<!--.*-->$")
_TABLE_RULE = re.compile(r"\|[-|: ]+\|$")
_LIST_ITEM = re.compile(r"\s*(?:-|\d+\.) ")
_CODE_COMMENT = re.compile(r"(?:^|\s+)#.*")


@dataclass(frozen=True)
class PageElement:
    """A heading, paragraph, list item, table row or code block."""

    line: int
    kind: str
    text: str = ""
    block: tuple[object, ...] = ()
    """Everything of a code block that must be the same in both languages."""
    code: frozenset[str] = frozenset()
    links: frozenset[str] = frozenset()

    @property
    def key(self) -> tuple[object, ...]:
        return self.kind, self.block, self.code, self.links

    @property
    def numbers(self) -> frozenset[str]:
        return frozenset(_NUMBER.findall(_LINK_TARGET.sub("]", _CODE.sub("", self.text))))


def chinese_page(english: Path, root: Path = ROOT) -> Path:
    """Return the path of the Chinese version of a page."""
    path = english.relative_to(root)
    return root / ("README.zh-CN.md" if path.name == "README.md" else CHINESE / path.relative_to("docs"))


def english_page(chinese: Path, root: Path = ROOT) -> Path:
    """Return the path of the English version; an English page is its own."""
    path = chinese.relative_to(root)
    if path.name == "README.zh-CN.md":
        return root / "README.md"
    return root / "docs" / path.relative_to(CHINESE) if path.is_relative_to(CHINESE) else chinese


def find_page_differences(english: Path, root: Path = ROOT) -> list[str]:
    """Return what must change in a page or in its Chinese version, with files and lines."""
    chinese = chinese_page(english, root)
    if not chinese.exists():
        return [f"{page_name(english)}: write its Chinese version, {page_name(chinese)}"]
    problems: list[str] = []
    pages = [read_elements(page, root, problems) for page in (english, chinese)]
    return [*problems, *_compare_elements(english, chinese, *pages)]


def _compare_elements(
    english: Path, chinese: Path, before: list[PageElement], after: list[PageElement]
) -> Iterator[str]:
    matcher = SequenceMatcher(None, [each.key for each in before], [each.key for each in after], autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        olds, news = before[i1:i2], after[j1:j2]
        if tag == "equal" or [each.kind for each in olds] == [each.kind for each in news]:
            for old, new in zip(olds, news, strict=True):
                if found := "; ".join(_describe_difference(old, new)):
                    yield (
                        f"{page_name(chinese)}:{new.line}: the {new.kind} differs from "
                        f"{page_name(english)}:{old.line}: {found}"
                    )
            continue
        place = after[j1].line if j1 < len(after) else "end"
        for old in olds:
            missing = f"the {old.kind} is not in {page_name(chinese)} at {place}"
            yield f"{page_name(english)}:{old.line}: {missing}: {old.text[:70]}"
        for new in news:
            yield f"{page_name(chinese)}:{new.line}: the {new.kind} is not in {page_name(english)}: {new.text[:70]}"


def _describe_difference(old: PageElement, new: PageElement) -> Iterator[str]:
    if old.block != new.block:
        for english, chinese in zip(_flatten(old.block), _flatten(new.block), strict=False):
            if english != chinese:
                yield f"English has {english!r}, Chinese has {chinese!r}"
                break
        else:
            yield "one block has more lines"
    for what, english_set, chinese_set in (("code", old.code, new.code), ("link", old.links, new.links)):
        for each in sorted(english_set - chinese_set):
            yield f"{what} only in English: {each}"
        for each in sorted(chinese_set - english_set):
            yield f"{what} only in Chinese: {each}"
    if missing := sorted(old.numbers - new.numbers):
        yield f"number only in English: {', '.join(missing)}"


def _flatten(values: tuple[object, ...]) -> Iterator[object]:
    for value in values:
        if isinstance(value, tuple):
            yield from _flatten(value)
        else:
            yield value


def read_elements(page: Path, root: Path, problems: list[str]) -> list[PageElement]:
    """Return the elements of a page without the language switch, and append broken links to `problems`."""
    blocks = read_blocks(page)
    # A block that only has `run` comments has no fence.
    fenced = {block.line: block for block in blocks if block.lines or not block.setup}
    elements = [_block_element(block) for block in blocks]
    paragraph: PageElement | None = None
    skip_until = 0
    switch = _language_switch(page, root)
    lines = page.read_text().splitlines()
    if switch not in lines[:4]:
        problems.append(f"{page_name(page)}:3: the language switch is missing: {switch}")
    prose: list[PageElement] = []
    for number, line in enumerate(lines, 1):
        if number <= skip_until:
            continue
        if block := fenced.get(number):
            skip_until = number + len(block.lines) + 1
            paragraph = None
        elif not line.strip() or _COMMENT.match(line) or _TABLE_RULE.match(line) or line == switch:
            paragraph = None
        elif kind := _line_kind(line):
            paragraph = PageElement(number, kind, line.strip())
            prose.append(paragraph)
        elif paragraph is None or paragraph.kind.startswith("heading"):
            paragraph = PageElement(number, "paragraph", line.strip())
            prose.append(paragraph)
        else:
            paragraph = PageElement(paragraph.line, paragraph.kind, f"{paragraph.text} {line.strip()}")
            prose[-1] = paragraph
    elements += [_with_code_and_links(each, page, root, problems) for each in prose]
    return sorted(elements, key=lambda each: each.line)


def _line_kind(line: str) -> str | None:
    if heading := _HEADING.match(line):
        return f"heading of level {len(heading[1])}"
    if line.startswith("|"):
        return "table row"
    return "list item" if _LIST_ITEM.match(line) else None


def _with_code_and_links(element: PageElement, page: Path, root: Path, problems: list[str]) -> PageElement:
    links = set[str]()
    for image, target in _LINK.findall(_CODE.sub("code", element.text)):
        where = f"{page_name(page)}:{element.line}"
        link = _normal_link(target, page, root)
        if link is None:
            problems.append(f"{where}: the link {target} leads nowhere")
        elif link.startswith("English "):
            problems.append(f"{where}: link the Chinese page instead of {target}")
        else:
            links.add(re.sub(r"-(?:zh|light|dark)(?=\.png)", "", link) if image else link)
    code = frozenset(match[1] for match in _CODE.findall(element.text))
    return PageElement(element.line, element.kind, element.text, element.block, code, frozenset(links))


def find_broken_links(page: Path, root: Path = ROOT) -> list[str]:
    """Return relative links and images of any page that lead nowhere, with their lines."""
    problems: list[str] = []
    fenced = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and "简体中文" not in line:
            _with_code_and_links(PageElement(number, "line", line), page, root, problems)
    return problems


def _normal_link(target: str, page: Path, root: Path) -> str | None:
    """Return a link as the English page has it, with the number of the heading. None if it leads nowhere."""
    if re.match(r"[a-z]+:", target):
        return target
    name, _, fragment = target.partition("#")
    path = (page.parent / name).resolve() if name else page
    if not path.exists():
        return None
    english = english_page(path, root)
    if english_page(page, root) != page and english == path and path.suffix == ".md" and _has_chinese(path, root):
        return f"English {target}"
    link = str(english.relative_to(root))
    if not fragment:
        return link
    anchors = heading_anchors(path)
    return f"{link}, heading {anchors.index(fragment) + 1}" if fragment in anchors else None


def _has_chinese(path: Path, root: Path) -> bool:
    translated = path == root / "README.md" or path.is_relative_to(root / "docs")
    return translated and chinese_page(path, root).exists()


def heading_anchors(page: Path) -> list[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    anchors: list[str] = []
    fenced = False
    for line in page.read_text().splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and (heading := _HEADING.match(line)):
            text = _LINK_TARGET.sub("]", heading[2]).strip().lower()
            anchor = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
            copies = sum(re.fullmatch(rf"{re.escape(anchor)}(?:-\d+)?", each) is not None for each in anchors)
            anchors.append(f"{anchor}-{copies}" if anchor in anchors else anchor)
    return anchors


def _language_switch(page: Path, root: Path) -> str:
    english = english_page(page, root)
    other = chinese_page(page, root) if english == page else english
    up = "../" * (len(page.relative_to(root).parts) - 1)
    path = other.relative_to(root)
    # Within `docs`, the path is relative to `docs`.
    link = str(path) if not up else f"{up[3:]}{path.relative_to('docs')}"
    return f"English · [简体中文]({link})" if english == page else f"[English]({link}) · 简体中文"


def _block_element(block: PageBlock) -> PageElement:
    lines = block.lines
    if block.language in ("sh", "yaml", "python"):
        lines = tuple(_CODE_COMMENT.sub("", line).rstrip() for line in lines)
    elif block.language == "text" and "┌" in block.text:
        lines = ()  # Diagrams are translated.
    fields = (block.file, block.typed, block.exit_code, block.skip, block.numbers_vary)
    same = (tuple(each.text for each in block.setup), *fields, lines)
    return PageElement(block.line, f"{block.language} block", block.lines[0] if block.lines else "", same)
