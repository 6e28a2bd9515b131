"""Names and layout stay plain: no metaphors, no crowded folders, one meaning per class name."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("src", "tests", "bench", "scripts", "web/src")
MOST_FILES = 30
AVOIDED_MODULES = set(
    "voice speech telling hearing judging parking loose opening hands deeds seat shelf films wall attendant attendance "
    "keeper excess doors doorway greetings greeting habits likeness letters scribe passing asking answering retold "
    "seals rooms deaths harvest intake whole trial "
    "nursery talk rehearsal rehearsed wish why doing box boxes pen yard desk centre hole holes house".split()
)
AVOIDED_CLASS_WORDS = re.compile(
    r"Box(?!es$)|Pen(?![a-z])|Yard|Door|House|Voice|Hands(?!hake)|Seat|Shelf|Letter|Scribe|Deeds|Means(?![a-z])|Asked|Said(?![a-z])|Attend(ant|ance)"
    r"|Keeper|Hole(?![a-z])|Holes|Saying|Spoken|Telling|Hearing|Nursery|Wish|Retold|Rehears|Greeting|Habits|Harvest|Intake|Deaths|Place(?![a-z])"
)
ALLOWED_CLASSES = {"Toolbox", "Checkbox"}
SAME_MEANING: dict[str, str] = {}
"""Class names that several modules define on purpose, with the meaning they share."""


def python_files(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from (path for path in (ROOT / folder).rglob("*.py") if "__pycache__" not in path.parts)


def classes(path: Path) -> Iterator[str]:
    """Names of classes defined at the top level of a module."""
    yield from (node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef))


def source_files() -> Iterator[Path]:
    for folder in SOURCES:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".ts", ".tsx") and not {"node_modules", "__pycache__"} & set(path.parts):
                yield path


def test_modules_have_plain_names() -> None:
    found = [
        str(path.relative_to(ROOT)) for path in source_files() if path.stem.removeprefix("test_") in AVOIDED_MODULES
    ]
    assert found == []


def test_classes_have_plain_names() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in python_files("src", "tests", "bench", "scripts")
        for name in classes(path)
        if AVOIDED_CLASS_WORDS.search(name.replace("Sandbox", "")) and name not in ALLOWED_CLASSES
    ]
    assert found == []


def test_no_folder_is_crowded() -> None:
    counts = Counter(str(path.parent.relative_to(ROOT)) for path in source_files())
    assert {folder: count for folder, count in counts.items() if count > MOST_FILES} == {}


def test_class_names_have_one_meaning() -> None:
    where: dict[str, list[str]] = defaultdict(list)
    for path in python_files("src"):
        for name in classes(path):
            if not name.startswith("_"):
                where[name].append(str(path.relative_to(ROOT / "src/paddock")))
    shared = {name: paths for name, paths in where.items() if len(paths) > 1 and name not in SAME_MEANING}
    assert shared == {}


@pytest.mark.parametrize("name", sorted(SAME_MEANING))
def test_allowed_names_are_still_shared(name: str) -> None:
    """Keep the list of exceptions short."""
    assert sum(name in classes(path) for path in python_files("src")) > 1
