"""Words of the console for what the server says by code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from paddock.api.http.error_responses import _ERROR_EXAMPLES
from paddock.errors import InvalidInput
from paddock.model.runs import RunReasonCode
from paddock.model.task import Task
from paddock.runs.presets import PresetLibrary
from paddock.runs.tasks.readiness_issues import IssueCode
from paddock.runs.tasks.task_file_loader import parse_task_document

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src/paddock"
NOT_IN_CONSOLE = ("cli", "inside")
"""Packages whose errors never reach the console."""


def words(language: str, namespace: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / f"web/src/i18n/{language}/{namespace}.json").read_text())
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
    assert {*RunReasonCode} == set(words("zh", "runs")["because"])


def test_every_issue_of_a_task_has_words_in_both_languages() -> None:
    for language in ("en", "zh"):
        assert {*IssueCode} <= words(language, "runs")["issue"].keys()


def has_chinese_text(message: str) -> bool:
    """Return whether the console translates a message of the server that has no code."""
    table = (ROOT / "web/src/ui/format/server-messages.ts").read_text()
    patterns = re.findall(r'^  \[\s*/(.+)/(s?),\s+"(\w+)",?\s*\],$', table, re.MULTILINE)
    assert len(patterns) > 80
    texts_of = words("zh", "errors")["text"]
    return any(
        re.search(pattern.replace("(?<", "(?P<").replace("\\/", "/"), message, re.DOTALL if flag else 0)
        for pattern, flag, key in patterns
        if key in texts_of
    )


TASK = {"name": "a", "goal": "x", "image": "host", "entrypoint": "true"}
CALCULATOR = {"name": "c", "command": "true"}


@pytest.mark.parametrize(
    "invalid_fields",
    [
        {"goal": ""},
        {"goal": 5},
        {"goal": {"file": "goal.md"}},
        {"goal": "\0"},
        {"name": "A b"},
        {"nmae": "a"},
        {"image": "a b"},
        {"kind": "code"},
        {"llm": {"model": "a,b"}},
        {"llm": {"requests": 0}},
        {"env": {"1": "x"}},
        {"env": {"KEY": "x"}, "secrets": ["KEY"]},
        {"secrets": ["KEY", "KEY"]},
        {"entrypoint": [1]},
        {"entrypoint": " "},
        {"entrypoint": None},
        {"agent": "nobody"},
        {"agent": "script", "entrypoint": None},
        {"end": {"output": "("}},
        {"end": {"file": "../x"}},
        {"end": {"timeout": "soon"}},
        {"end": {"says": "x"}},
        {"end": {"verified": True}},
        {"end": {"exit": False}},
        {"inputs": ["a.csv"]},
        {"inputs": [{}]},
        {"inputs": [{"content": "x"}]},
        {"inputs": [{"content": "x", "target": "/etc/x"}]},
        {"inputs": [{"content": "x", "target": "x", "ref": "main"}]},
        {"inputs": [{"git": "x", "ref": "a b"}]},
        {"mcp": [{}]},
        {"mcp": [{**CALCULATOR, "kind": "remote"}]},
        {"mcp": [{"name": "c", "url": "https://h/mcp", "kind": "local"}]},
        {"mcp": [{**CALCULATOR, "headers": {"A": "b"}}]},
        {"mcp": [{"name": "c", "url": "https://h/mcp", "env": {"A": "b"}}]},
        {"mcp": [{"name": "c", "url": "ftp://h"}]},
        {"matrix": {}},
        {"matrix": {"agents": ["codex"]}, "agent": "codex"},
        {"matrix": {"models": ["a"]}, "llm": "b"},
        {"matrix": {"models": [f"m{number}" for number in range(2000)]}},
        {"resources": {"memory": "lots"}},
        {"resources": {"cpu": "many"}},
        {"deliverables": [5]},
    ],
    ids=str,
)
def test_errors_of_a_task_have_chinese_texts(invalid_fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_task_document({**TASK, **invalid_fields}, presets=PresetLibrary(owner="the server"))
    field = re.compile(rf"(?:^|; )(?:{'|'.join([*Task.model_fields, *invalid_fields])}|the task)(?:\.[\w-]+)*: ")
    messages = [text for text in field.split(caught.value.message) if text]
    assert messages and [text for text in messages if not has_chinese_text(text)] == []


def test_problems_of_providers_have_chinese_texts() -> None:
    raised = re.compile(r'(?:ModelListFailed|Upstream(?:Unreachable|TimedOut|Broken))\(f?"([^"]+)"\)')
    found = [
        re.sub(r"\{[^}]*\}", "1", message)
        for name in ("llm/providers/model_list_fetcher.py", "llm/gateway/model_catalog.py", "llm/wire/http_client.py")
        for message in raised.findall((SOURCES / name).read_text())
    ]
    found.remove("the server is stopping")
    assert len(found) >= 6
    assert [message for message in found if not has_chinese_text(message)] == []


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
    avoided = re.compile("从不|运行的脚本|分自|重新查看|存活时间|构成|还没有任何运行|服务商|^等待您$|您的计算机")
    assert {key: text for key, text in found.items() if avoided.search(text)} == {}


def test_chinese_texts_and_pages_use_the_glossary() -> None:
    pages = [ROOT / "README.zh-CN.md", *(ROOT / "docs/zh-CN").rglob("*.md")]
    # Texts for agents and models say 你, texts for readers say 您.
    for_readers = {
        key: text for key, text in texts("zh").items() if not key.startswith(("chat.example", "settings.try"))
    }
    found = {**for_readers, **{str(page.relative_to(ROOT)): page.read_text() for page in pages}}
    avoided = re.compile("你(?!好)|沙盒|供应商|服务商|智能代理|秘钥|登陆|凭证|回放|缺省|交付件|备选模型|降级模型")
    assert len(pages) > 20
    assert {key: each for key, text in found.items() if (each := avoided.findall(text))} == {}


AVOIDED_ENGLISH = {
    "archaic words": r"\b(?:anew|heed(?:s|ed|ing)?|mend(?:s|ed|ing)?|whatever)\b",
    "README": r"what an agent is to do|and it is said|but the holes|on a phone and on a wall|prints what it made",
    "reasons of runs": r"could not be begun|\bentrypoint ended with exit code|the evidence of its end",
    "empty lists and forms": r"(?:run|exchange) is like that|things? to put right|write what is to be done",
    "usage": r"told apart by|how long answers take|until it ends \(9 of 10\)",
    "models": r"its name there|if it cannot answer|^speaks$|^found in$|^well$",
    "keys": r"those that do not work any more|i have kept it|dollars in all",
    "policies": r"whose rules say nothing else|it cannot be changed here|hung on to it",
    "approvals": r"counts as refused in|this very call|answer in its place|letters that cannot be seen|it really is:",
    "answers": r"answer is not whole|it gave nothing back",
    "sandboxes": r"who runs the server|one hour more|lives for|programs of 64 bits",
    "recordings": r"misses pictures|sandboxes that are no more",
    "commands": r"what would steer it|what they have made so far|unless it is to be hard|a scenario is not to be run"
    r"|was not written as it should be|a beginning of it, or a name|stands on what",
}
"""Archaic words, and phrases that were replaced by plain ones."""


def english_texts() -> dict[str, str]:
    """English texts of console and documentation on one line each, by key or path."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    found = {**texts("en"), **{str(page.relative_to(ROOT)): page.read_text() for page in pages}}
    return {name: " ".join(text.split()) for name, text in found.items()}


@pytest.mark.parametrize("subject", AVOIDED_ENGLISH)
def test_english_texts_avoid_replaced_phrases(subject: str) -> None:
    avoided = re.compile(AVOIDED_ENGLISH[subject], re.IGNORECASE)
    found = [(name, match[0]) for name, text in english_texts().items() for match in avoided.finditer(text)]
    assert found == []


@pytest.mark.parametrize(
    ("language", "path", "some"),
    [
        ("en", "docs/how-to/use-the-console.md", {"see the demo", "take control", "share with your team"}),
        ("zh", "docs/zh-CN/how-to/use-the-console.md", {"查看演示", "接管控制", "与团队共享"}),
    ],
    ids=["en", "zh"],
)
def test_labels_in_the_guide_are_labels_of_the_console(language: str, path: str, some: set[str]) -> None:
    written = re.findall(r"(?<!\*)(\*{1,2})([^\W\d_][^*\n]*)\1(?!\*)", (ROOT / path).read_text())
    labels = {part.casefold() for _, label in written for part in label.split(" → ")}
    assert some <= labels
    assert labels - {text.casefold() for text in texts(language).values()} == set()
