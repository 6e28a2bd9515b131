"""Words of the console for what the server says by code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from paddock.api.errors import _MEANINGS
from paddock.model.runs import ReasonCode
from paddock.runs.issues import IssueCode

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src/paddock"
NOT_IN_CONSOLE = ("cli", "inside")
"""Packages whose errors never reach the console."""


def words(language: str, room: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / f"web/src/i18n/{language}/{room}.json").read_text())
    return found


def test_every_error_code_has_a_chinese_sentence() -> None:
    codes = {code for code, _ in _MEANINGS.values()}
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
