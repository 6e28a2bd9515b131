"""Record which English text each Chinese page translates, so that a changed sentence is not forgotten.

`docs/zh-CN/translated.txt` has a line per page with a digest of each heading, paragraph, list item and table row.
After you have updated a Chinese page: `.venv/bin/python -m tests.docs.translation_record docs/how-to/PAGE.md`
"""

from __future__ import annotations

import hashlib
import sys
from difflib import SequenceMatcher
from pathlib import Path

from tests.docs.page_pairs import CHINESE, PageElement, chinese_page, read_elements
from tests.docs.page_reader import ROOT, page_name

RECORD = CHINESE / "translated.txt"


def find_stale_translations(english: Path, root: Path = ROOT) -> list[str]:
    """Return the English texts that were added or changed after their translation, with file and line."""
    recorded = read_record(root).get(str(english.relative_to(root)), [])
    elements, chinese = _prose(english, root), chinese_page(english, root)
    places = {index: each.line for index, each in enumerate(_prose(chinese, root))} if chinese.exists() else {}
    matcher = SequenceMatcher(None, recorded, [_digest(each) for each in elements], autojunk=False)
    return [
        f"{page_name(english)}:{elements[index].line}: the {elements[index].kind} has changed since its translation at "
        f"{page_name(chinese)}:{places.get(index, 'end')}: {elements[index].text[:70]}"
        for tag, _, _, begin, end in matcher.get_opcodes()
        if tag != "equal"
        for index in range(begin, end)
    ]


def read_record(root: Path = ROOT) -> dict[str, list[str]]:
    """Return the digests of each English page as it was translated."""
    if not (root / RECORD).exists():
        return {}
    lines = (line.split() for line in (root / RECORD).read_text().splitlines())
    return {page.rstrip(":"): digests for page, *digests in lines}


def record_translation(english: Path, root: Path = ROOT) -> None:
    """Record that the Chinese page translates the English page as it is now."""
    record = read_record(root)
    record[str(english.relative_to(root))] = [_digest(each) for each in _prose(english, root)]
    text = "".join(f"{page}: {' '.join(record[page])}\n" for page in sorted(record))
    (root / RECORD).write_text(text)


def _prose(page: Path, root: Path) -> list[PageElement]:
    return [each for each in read_elements(page, root, []) if not each.kind.endswith("block")]


def _digest(element: PageElement) -> str:
    """Return a digest that does not depend on line breaks."""
    return hashlib.sha256(" ".join(element.text.split()).encode()).hexdigest()[:7]


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        record_translation(Path(argument).resolve())
