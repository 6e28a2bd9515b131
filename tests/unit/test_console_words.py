"""Words of the console for what the server says by code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from paddock.api.http.error_responses import _ERROR_EXAMPLES
from paddock.model.runs import ReasonCode
from paddock.runs.tasks.readiness_issues import IssueCode

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src/paddock"
NOT_IN_CONSOLE = ("cli", "inside")
"""Packages whose errors never reach the console."""


def words(language: str, room: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / f"web/src/i18n/{language}/{room}.json").read_text())
    return found


def test_every_error_code_has_a_chinese_sentence() -> None:
    codes = {code for code, _ in _ERROR_EXAMPLES.values()}
    for path in SOURCES.rglob("*.py"):
        if path.relative_to(SOURCES).parts[0] not in NOT_IN_CONSOLE:
            codes |= set(re.findall(r'^    code(?:: ClassVar\[str\])? = "([A-Z_]+)"', path.read_text(), re.MULTILINE))
    assert {"INTERNAL_ERROR", "MODEL_NOT_FOUND", "INVALID_TASK"} <= codes
    # Add the sentence of a new error to web/src/i18n/zh/errors.json.
    assert codes - words("zh", "errors")["code"].keys() == set()


def test_every_reason_of_a_run_has_a_chinese_sentence() -> None:
    assert {*ReasonCode} == set(words("zh", "runs")["because"])


def test_every_issue_of_a_task_has_words_in_both_languages() -> None:
    # These two quote the task's own fields, which only the server knows.
    quoted = {IssueCode.AGENT_UNFIT, IssueCode.RESOURCES_EXCEEDED}
    for language in ("en", "zh"):
        assert {*IssueCode} - quoted <= words(language, "runs")["issue"].keys()


def texts(language: str) -> dict[str, str]:
    """All texts of the console in a language, by key."""
    found: dict[str, str] = {}

    def collect(key: str, value: object) -> None:
        if isinstance(value, dict):
            for name, each in value.items():
                collect(f"{key}.{name}", each)
        else:
            found[key] = str(value)

    for path in (ROOT / f"web/src/i18n/{language}").glob("*.json"):
        collect(path.stem, json.loads(path.read_text()))
    return found


def test_chinese_texts_use_one_word_for_each_thing() -> None:
    found = texts("zh")
    assert found["errors.noServer"]
    avoided = re.compile("从不|运行的脚本|分自|重新查看|存活时间|构成|还没有任何运行|服务商|^等待您$")
    assert {key: text for key, text in found.items() if avoided.search(text)} == {}


def test_labels_in_the_guide_are_labels_of_the_console() -> None:
    page = (ROOT / "docs/how-to/use-the-console.md").read_text()
    written = re.findall(r"(?<!\*)(\*{1,2})([A-Za-z][^*\n]*)\1(?!\*)", page)
    labels = {part.casefold() for _, label in written for part in label.split(" → ")}
    assert {"see the demo", "take control", "use as template", "share with your team"} <= labels
    assert labels - {text.casefold() for text in texts("en").values()} == set()
