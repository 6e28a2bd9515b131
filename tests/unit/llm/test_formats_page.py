"""The reference of wire formats says what the code does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from paddock.config.llm import LlmConfig
from paddock.errors import InvalidInput
from paddock.llm import calls, gateway, passing
from paddock.llm.asking import CLIENTS_FAULT, LONGEST_WAIT, RETRIED
from paddock.llm.formats import endings, failures, names, notes, openai_shared, seals, sse
from paddock.llm.formats.anthropic import answer as anthropic_answer
from paddock.llm.formats.anthropic import write as anthropic_write
from paddock.llm.formats.base import BrokenStream
from paddock.llm.formats.counting import MEDIA_TOKENS
from paddock.llm.formats.endings import Ending, EndWatch
from paddock.llm.formats.gemini import answer as gemini_answer
from paddock.llm.formats.gemini import read as gemini_read
from paddock.llm.formats.gemini import schema as gemini_schema
from paddock.llm.formats.gemini import write as gemini_write
from paddock.llm.formats.openai_chat import answer as chat_answer
from paddock.llm.formats.openai_chat import reasoning
from paddock.llm.formats.openai_chat.read_request import NOTED as CHAT_NOTED
from paddock.llm.formats.openai_chat.write_request import _LONGEST_ID as CHAT_ID
from paddock.llm.formats.openai_responses.read_request import NOTED as RESPONSES_NOTED
from paddock.llm.formats.openai_responses.write_request import _FEWEST_TOKENS
from paddock.llm.formats.openai_responses.write_request import _LONGEST_ID as RESPONSES_ID
from paddock.llm.formats.registry import FORMATS
from paddock.llm.neutral import (
    Answer,
    Effort,
    Failure,
    Finish,
    Message,
    Request,
    Role,
    Text,
    Thinking,
    ToolCall,
    Usage,
)
from paddock.llm.offload import tasks
from paddock.llm.providers import local

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/reference/llm-formats.md").read_text()
SOURCES = ROOT / "src/paddock/llm/formats"
NOTHING = "\N{EN DASH}"


def tables(heading: str) -> list[list[list[str]]]:
    """The cells of each table under a heading, without the tables' heads."""
    found = re.search(rf"^##+ {re.escape(heading)}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, f"the page has no section {heading!r}"
    blocks = re.findall(r"(?:^\|.*\n)+", found[1], re.MULTILINE)
    return [[_cells(line) for line in block.splitlines()[2:]] for block in blocks]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split(" | ")]


def codes(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def bare(cell: str) -> str:
    """A cell that is one word, with or without its marks."""
    return cell.strip("`")


def messages_body(format: str, role: str) -> bytes:
    """A request whose one message has this role."""
    match format:
        case "openai-chat":
            body: dict[str, Any] = {"messages": [{"role": role, "content": "x", "tool_call_id": "call"}]}
        case "openai-responses":
            body = {"input": [{"role": role, "content": "x"}]}
        case "anthropic":
            body = {"messages": [{"role": role, "content": "x"}]}
        case _:
            body = {"contents": [{"role": role, "parts": [{"text": "x"}]}]}
    return json.dumps({"model": "m", **body}).encode()


def roles_known(format: str) -> set[str]:
    """The roles that a format takes, by its own word."""
    if format == "gemini":
        return set(gemini_read._ROLES)
    with pytest.raises(InvalidInput) as refused:
        FORMATS[format].read_request(messages_body(format, "narrator"))
    return set(re.split(r", | or ", refused.value.message.partition("should be ")[2]))


def test_the_formats_are_those_there_are() -> None:
    first = PAGE.partition("## Addresses")[0]
    assert re.findall(r"^\| `([^`]+)`", first, re.MULTILINE) == list(FORMATS)


def test_addresses() -> None:
    fixed: dict[str, tuple[str, str]] = {}
    methods: dict[str, str] = {}
    for address, format, operation in tables("Addresses")[0]:
        _, colon, method = bare(address).partition(":")
        if colon:
            assert bare(format) == "gemini" and calls.concerns(bare(address))
            methods[method] = bare(operation)
        else:
            fixed[bare(address)] = (bare(format), bare(operation))
    assert fixed == calls._FIXED
    assert methods == calls._GEMINI_METHODS


def test_headers_that_do_not_pass() -> None:
    both, from_client, from_provider = ({word.encode() for word in codes(row[1])} for row in tables("Headers")[0])
    assert both == passing._HOP
    assert from_client == passing._FROM_CLIENT - passing._HOP
    assert from_provider == passing._FROM_PROVIDER - passing._HOP
    assert {word.encode() for word in codes(PAGE.partition("## Same format")[0])} >= set(passing._SESSIONS)


def test_roles_that_are_read() -> None:
    told: dict[str, set[str]] = {}
    for format, role, taken in (map(bare, row) for row in tables("Roles")[0]):
        request = FORMATS[format].read_request(messages_body(format, role), model="m")
        assert [message.role for message in request.messages] == [Role(taken)], (format, role)
        told.setdefault(format, set()).add(role)
    assert told == {format: roles_known(format) for format in FORMATS}


def test_where_system_messages_are_written() -> None:
    rows = {row[0]: (bare(row[1]), bare(row[2])) for row in tables("Roles")[1]}
    models = {
        "`openai-chat`, a model of OpenAI's": ("openai-chat", "gpt-5"),
        "`openai-chat`, any other": ("openai-chat", "qwen3"),
        "`openai-responses`": ("openai-responses", "gpt-5"),
        "`anthropic`": ("anthropic", "claude-sonnet-4-5"),
        "`gemini`": ("gemini", "gemini-2.5-pro"),
    }
    assert rows.keys() == models.keys()
    for name, (format, model) in models.items():
        messages = [
            Message(Role.SYSTEM, [Text("FIRST")]),
            Message(Role.USER, [Text("question")]),
            Message(Role.ASSISTANT, [Text("answer")]),
            Message(Role.SYSTEM, [Text("LATER")]),
        ]
        body = json.loads(FORMATS[format].write_request(Request(model, messages)))
        assert (_place(body, "FIRST"), _place(body, "LATER")) == rows[name], name


def _place(body: dict[str, Any], word: str) -> str:
    """The role of the turn that has the word, or the member of the body outside of the conversation."""
    for turn in next(body[name] for name in ("messages", "input", "contents") if name in body):
        if word in json.dumps(turn):
            return str(turn["role"])
    return next(name for name, value in body.items() if word in json.dumps(value))


def test_seals_and_their_makers() -> None:
    for maker in (seals.ANTHROPIC, seals.OPENAI, seals.CHAT, seals.GEMINI):
        assert f"`{maker}`" in PAGE.partition("MAKER is ")[2][:120]
    thought = seals.thought("", "paddock:gemini:SEAL", seals.ANTHROPIC)
    assert seals.written(thought.signature or "", seals.ANTHROPIC) == "paddock:gemini:SEAL"
    redacted = seals.thought("", "paddock:anthropic.redacted:SEAL", seals.OPENAI)
    assert seals.written(redacted.redacted or "", seals.OPENAI, redacted=True) == "paddock:anthropic.redacted:SEAL"
    assert f"`{gemini_write._UNSIGNED}`" in PAGE


def test_budgets_of_efforts() -> None:
    rows = {bare(row[0]): [None if cell == NOTHING else int(cell) for cell in row[1:]] for row in tables("How much")[0]}
    assert list(rows) == list(Effort)
    for effort in Effort:
        known = (anthropic_write._BUDGETS, gemini_write._BUDGETS, reasoning._BUDGETS)
        assert rows[effort] == [budgets.get(effort) for budgets in known], effort
    for budget, effort in ((4096, Effort.LOW), (16384, Effort.MEDIUM), (16385, Effort.HIGH)):
        assert openai_shared.wanted_effort(Request("m", [], thinking_budget=budget)) is effort


def test_dialects_of_thinking() -> None:
    for dialect, says, _ in tables("How much")[1]:
        request = Request("qwen", [Message(Role.USER, [Text("x")])], effort=Effort.LOW, stream=True)
        request.extra["thinking_dialect"] = bare(dialect)
        body = json.loads(FORMATS["openai-chat"].write_request(request))
        plain = {"model", "messages", "stream", "stream_options"}
        assert set(body) - plain == {word.partition(".")[0] for word in codes(says)}, dialect
        assert bool(request.notes) is (says == NOTHING)


def answer_body(format: str, word: str) -> bytes:
    """A whole answer that ended with this word."""
    match format:
        case "openai-chat":
            body: dict[str, Any] = {"choices": [{"message": {"content": "x"}, "finish_reason": word}]}
        case "openai-responses":
            body = {"output": [], "status": word}
            if word != "completed":
                body = {"output": [], "status": "incomplete", "incomplete_details": {"reason": word}}
        case "anthropic":
            body = {"content": [], "stop_reason": word}
        case _:
            body = {"candidates": [{"content": {"parts": [{"text": "x"}]}, "finishReason": word}]}
    return json.dumps(body).encode()


def test_stop_reasons_that_are_read() -> None:
    told: dict[str, set[str]] = {}
    for format, word, taken in (map(bare, row) for row in tables("Read")[0]):
        told.setdefault(format, set()).add(word)
        if taken == "failure":
            with pytest.raises(BrokenStream):
                FORMATS[format].read_answer(answer_body(format, word))
        else:
            assert FORMATS[format].read_answer(answer_body(format, word)).finish is Finish(taken), (format, word)
    assert told["anthropic"] == set(anthropic_answer._FINISHES)
    assert told["gemini"] == set(gemini_answer._FINISHES) | gemini_answer.MISTAKES
    assert told["openai-chat"] == set(chat_answer._FINISH) | chat_answer.FAILED | {"stop", "tool_calls"}


@pytest.mark.parametrize("format", FORMATS)
def test_calls_make_an_end_one_for_tools(format: str) -> None:
    answer = Answer("a", "m", [ToolCall("c", "f", "{}")], Finish.TOOLS)
    assert FORMATS[format].read_answer(FORMATS[format].write_answer(answer)).finish is Finish.TOOLS


def test_stop_reasons_that_are_written() -> None:
    rows = {bare(row[0]): [bare(cell) for cell in row[1:]] for row in tables("Written")[0]}
    assert list(rows) == list(Finish)
    for finish in Finish:
        written = [_reason(json.loads(form.write_answer(Answer("a", "m", [], finish)))) for form in FORMATS.values()]
        assert rows[finish] == written, finish


def _reason(body: dict[str, Any]) -> str:
    if "choices" in body:
        return str(body["choices"][0]["finish_reason"])
    if "candidates" in body:
        return str(body["candidates"][0]["finishReason"])
    if "output" in body:
        return str(body["incomplete_details"]["reason"] if body["incomplete_details"] else body["status"])
    return str(body["stop_reason"])


def test_usage_is_told_where_the_page_says() -> None:
    answer = Answer("a", "m", [], Finish.STOP, usage=Usage(100, 40, 30, 20, 10))
    assert [bare(row[0]) for row in tables("Usage")[0]] == list(FORMATS)
    for format, *places in tables("Usage")[0]:
        body = json.loads(FORMATS[bare(format)].write_answer(answer))
        told = [_at(body, codes(place)[0]) if place != NOTHING else None for place in places]
        partly = {"anthropic": [50, 40, 30, 20, 10], "gemini": [100, 30, 30, None, 10]}
        assert told == partly.get(bare(format), [100, 40, 30, 20, 10]), format
    assert f"{MEDIA_TOKENS} for a" in PAGE


def _at(body: Any, path: str) -> Any:
    for step in path.split("."):
        body = body[step]
    return body


def test_words_for_errors() -> None:
    rows = {int(row[0]): [None if cell == NOTHING else bare(cell) for cell in row[1:]] for row in tables("Errors")[0]}
    assert list(rows) == list(failures.KINDS)
    for status, words in rows.items():
        failure = Failure(status, "no", failures.kind_of(status))
        anthropic = json.loads(FORMATS["anthropic"].write_failure(failure))["error"]["type"]
        gemini = json.loads(FORMATS["gemini"].write_failure(failure))["error"]
        assert gemini["code"] == status
        for format in ("openai-chat", "openai-responses"):
            openai = json.loads(FORMATS[format].write_failure(failure))["error"]
            assert words == [anthropic, openai["type"], openai["code"], gemini["status"]], status


def test_statuses_of_refusals() -> None:
    rows = {bare(row[0]): int(row[1]) for row in tables("Errors")[1]}
    assert rows == {kind.__name__: status for kind, status in gateway._STATUSES.items()} | {"InvalidInput": 400}


def test_what_is_asked_again() -> None:
    [line] = re.findall(r"Asked again are (.*?), and what", PAGE, re.DOTALL)
    assert {int(word) for word in re.findall(r"\d+", line)} == RETRIED
    [line] = re.findall(r"except after (.*?)\. A provider", PAGE, re.DOTALL)
    assert {int(word) for word in re.findall(r"\d+", line)} == CLIENTS_FAULT
    assert f"more than {LONGEST_WAIT:.0f} seconds" in PAGE


def said_in_code() -> str:
    """All sources of the formats, with texts that go over several lines put together."""
    source = "\n".join(path.read_text() for path in sorted(SOURCES.rglob("*.py")))
    return re.sub(r'"\s*\n\s*f?"', "", source)


@pytest.mark.parametrize("heading", ["What is refused", "What is left out with a note"])
def test_messages_are_those_of_the_code(heading: str) -> None:
    source = said_in_code()
    for *_, cell in tables(heading)[0]:
        for piece in codes(cell)[0].split("\N{HORIZONTAL ELLIPSIS}"):
            assert piece.strip(" `") in source, cell


def test_fields_that_are_noted() -> None:
    for format, noted in (("openai-chat", CHAT_NOTED), ("openai-responses", RESPONSES_NOTED)):
        [cell] = [
            row[1]
            for row in tables("What is left out with a note")[0]
            if bare(row[0]) == format and "no word" in row[1]
        ]
        assert set(codes(cell)[1:]) == noted


def test_ends_of_streams() -> None:
    assert {bare(row[0]) for row in tables("How streams end")[0]} == set(FORMATS)
    for format, finished, failed in tables("How streams end")[0]:
        for cell, ending in ((finished, Ending.FINISHED), (failed, Ending.FAILED)):
            for word in codes(cell):
                watch = EndWatch(bare(format))
                watch.feed(_last_event(word, bare(format)))
                assert watch.ending is ending, (format, word)


def _last_event(word: str, format: str) -> bytes:
    values: dict[str, Any] = {
        "finish_reason": {"choices": [{"finish_reason": "stop"}]},
        "finishReason": {"candidates": [{"finishReason": "STOP"}]},
        "blockReason": {"promptFeedback": {"blockReason": "SAFETY"}},
    }
    if word == "[DONE]":
        return b"data: [DONE]\n\n"
    if word == "error" and format in ("openai-chat", "gemini"):
        return sse.event_bytes({"error": {"message": "no"}})
    return sse.event_bytes(values[word]) if word in values else sse.event_bytes({"type": word}, word)


def test_limits() -> None:
    rows = {row[0]: row[1] for row in tables("Limits")[0]}
    mebibyte = 2**20
    assert rows == {
        "request": f"{LlmConfig().max_body // mebibyte} MiB, `llm.max_body`",
        "values of a request that is translated, or answered by a script or a recording": f"{tasks.MOST_VALUES}",
        "event of a translated stream": f"{sse.MAX_EVENT // mebibyte} MiB",
        "event of a relayed stream that may end it": f"{endings.LARGEST_EVENT // mebibyte} MiB",
        "answer in one piece": f"{local.LARGEST // mebibyte} MiB",
        "name of a tool at a provider": f"{names._LONGEST} characters",
        "id of a call in `openai-chat`": f"{CHAT_ID} characters",
        "id of a call in `openai-responses`": f"{RESPONSES_ID} characters",
        "message of a provider's error": f"{failures._LONGEST} characters",
        "parts of Gemini's schemas": f"{gemini_schema._MOST}, with {gemini_schema._MOST_CHARACTERS} characters",
        "notes of a translation": f"{notes.MOST}",
    }
    assert f"{anthropic_write._DEFAULT_TOKENS} where nothing was said" in PAGE
    assert f"at least {_FEWEST_TOKENS}" in PAGE


def test_thoughts_without_a_seal_go_where_the_page_says() -> None:
    messages = [
        Message(Role.USER, [Text("x")]),
        Message(Role.ASSISTANT, [Thinking("HM"), Text("y")]),
        Message(Role.USER, [Text("z")]),
    ]
    models = {
        "openai-chat": "qwen3",
        "openai-responses": "gpt-5",
        "anthropic": "claude-sonnet-4-5",
        "gemini": "gemini-3",
    }
    kept = {name for name in FORMATS if b"HM" in FORMATS[name].write_request(Request(models[name], messages))}
    assert kept == {"openai-chat", "gemini"}
    assert b"HM" not in FORMATS["openai-chat"].write_request(Request("gpt-5", messages))
