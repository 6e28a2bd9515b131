"""The reference page of wire formats matches the code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from paddock.config.llm import LlmConfig
from paddock.errors import InvalidInput
from paddock.llm import request_kind
from paddock.llm.formats import (
    openai_shared,
    provider_errors,
    sse,
    stream_end,
    thought_signatures,
    tool_names,
    translation_notes,
)
from paddock.llm.formats.anthropic import answer as anthropic_answer
from paddock.llm.formats.anthropic import request_writer as anthropic_write
from paddock.llm.formats.base import BrokenModelStream
from paddock.llm.formats.gemini import answer as gemini_answer
from paddock.llm.formats.gemini import request_reader as gemini_read
from paddock.llm.formats.gemini import request_writer as gemini_write
from paddock.llm.formats.gemini import schema_conversion as gemini_schema
from paddock.llm.formats.neutral import (
    FinishReason,
    MessageRole,
    ModelAnswer,
    ModelFailure,
    ModelMessage,
    ModelRequest,
    ModelText,
    ModelThinking,
    ModelToolCall,
    ReasoningEffort,
    TokenUsage,
)
from paddock.llm.formats.openai_chat import answer as chat_answer
from paddock.llm.formats.openai_chat import reasoning
from paddock.llm.formats.openai_chat.request_reader import UNTRANSLATABLE_CHAT_FIELDS
from paddock.llm.formats.openai_chat.request_writer import _MAX_CALL_ID_LENGTH as CHAT_ID
from paddock.llm.formats.openai_responses import item_reference_bodies
from paddock.llm.formats.openai_responses.request_reader import UNTRANSLATABLE_RESPONSES_FIELDS
from paddock.llm.formats.openai_responses.request_writer import _MAX_CALL_ID_LENGTH as RESPONSES_ID
from paddock.llm.formats.openai_responses.request_writer import _MIN_OUTPUT_TOKENS
from paddock.llm.formats.registry import FORMATS
from paddock.llm.formats.stream_end import StreamEndDetector, StreamEnding
from paddock.llm.formats.token_counting import MEDIA_TOKENS
from paddock.llm.gateway import gateway, header_filter, recent_answers
from paddock.llm.gateway.retries_and_fallbacks import CLIENT_FAULT_STATUSES, MAX_RETRY_AFTER, RETRIED_STATUSES
from paddock.llm.offload import worker_tasks
from paddock.llm.providers import local_response

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs/reference/llm-formats.md").read_text()
SOURCES = ROOT / "src/paddock/llm/formats"
NOTHING = "\N{EN DASH}"


def tables(heading: str) -> list[list[list[str]]]:
    """Return the cells of each table under a heading, without header rows."""
    found = re.search(rf"^##+ {re.escape(heading)}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, f"the page has no section {heading!r}"
    blocks = re.findall(r"(?:^\|.*\n)+", found[1], re.MULTILINE)
    return [[_cells(line) for line in block.splitlines()[2:]] for block in blocks]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split(" | ")]


def codes(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def bare(cell: str) -> str:
    """Return the text of a cell without code marks."""
    return cell.strip("`")


def messages_body(format: str, role: str) -> bytes:
    """Return a request with one message of this role."""
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
    """Return the roles that a format accepts, by its own account."""
    if format == "gemini":
        return set(gemini_read._ROLES)
    with pytest.raises(InvalidInput) as refused:
        FORMATS[format].read_request(messages_body(format, "narrator"))
    return set(re.split(r", | or ", refused.value.message.partition("should be ")[2]))


def test_page_lists_all_formats() -> None:
    first = PAGE.partition("## Addresses")[0]
    assert re.findall(r"^\| `([^`]+)`", first, re.MULTILINE) == list(FORMATS)


def test_page_lists_paths() -> None:
    fixed: dict[str, tuple[str, str]] = {}
    methods: dict[str, str] = {}
    for address, format, operation in tables("Addresses")[0]:
        _, colon, method = bare(address).partition(":")
        if colon:
            assert bare(format) == "gemini" and request_kind.is_model_path(bare(address))
            methods[method] = bare(operation)
        else:
            fixed[bare(address)] = (bare(format), bare(operation))
    assert fixed == request_kind._FIXED
    assert methods == request_kind._GEMINI_METHODS


def test_page_lists_filtered_headers() -> None:
    both, from_client, from_provider = ({word.encode() for word in codes(row[1])} for row in tables("Headers")[0])
    assert both == header_filter._HOP_BY_HOP
    assert from_client == header_filter._DROPPED_FROM_CLIENT - header_filter._HOP_BY_HOP
    assert from_provider == header_filter._DROPPED_FROM_PROVIDER - header_filter._HOP_BY_HOP
    assert {word.encode() for word in codes(PAGE.partition("## Same format")[0])} >= set(header_filter._SESSION_HEADERS)


def test_page_lists_roles() -> None:
    page_roles: dict[str, set[str]] = {}
    for format, role, taken in (map(bare, row) for row in tables("Roles")[0]):
        request = FORMATS[format].read_request(messages_body(format, role), model="m")
        assert [message.role for message in request.messages] == [MessageRole(taken)], (format, role)
        page_roles.setdefault(format, set()).add(role)
    assert page_roles == {format: roles_known(format) for format in FORMATS}


def test_page_shows_position_of_system_messages() -> None:
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
            ModelMessage(MessageRole.SYSTEM, [ModelText("FIRST")]),
            ModelMessage(MessageRole.USER, [ModelText("question")]),
            ModelMessage(MessageRole.ASSISTANT, [ModelText("answer")]),
            ModelMessage(MessageRole.SYSTEM, [ModelText("LATER")]),
        ]
        body = json.loads(FORMATS[format].write_request(ModelRequest(model, messages)))
        assert (_position_of(body, "FIRST"), _position_of(body, "LATER")) == rows[name], name


def _position_of(body: dict[str, Any], word: str) -> str:
    """Return the role of the turn that contains the word, or the body field that does."""
    for turn in next(body[name] for name in ("messages", "input", "contents") if name in body):
        if word in json.dumps(turn):
            return str(turn["role"])
    return next(name for name, value in body.items() if word in json.dumps(value))


def test_page_lists_signatures_and_makers() -> None:
    for maker in (
        thought_signatures.ANTHROPIC_FAMILY,
        thought_signatures.OPENAI_FAMILY,
        thought_signatures.CHAT_FAMILY,
        thought_signatures.GEMINI_FAMILY,
    ):
        assert f"`{maker}`" in PAGE.partition("MAKER is ")[2][:120]
    thought = thought_signatures.parse_signed_thought("", "paddock:gemini:SEAL", thought_signatures.ANTHROPIC_FAMILY)
    assert (
        thought_signatures.format_thought_signature(thought.signature or "", thought_signatures.ANTHROPIC_FAMILY)
        == "paddock:gemini:SEAL"
    )
    redacted = thought_signatures.parse_signed_thought(
        "", "paddock:anthropic.redacted:SEAL", thought_signatures.OPENAI_FAMILY
    )
    assert (
        thought_signatures.format_thought_signature(
            redacted.redacted or "", thought_signatures.OPENAI_FAMILY, redacted=True
        )
        == "paddock:anthropic.redacted:SEAL"
    )
    assert f"`{gemini_write._SKIP_SIGNATURE_CHECK}`" in PAGE


def test_page_lists_budgets_of_efforts() -> None:
    rows = {bare(row[0]): [None if cell == NOTHING else int(cell) for cell in row[1:]] for row in tables("How much")[0]}
    assert list(rows) == list(ReasoningEffort)
    for effort in ReasoningEffort:
        known = (anthropic_write._BUDGETS, gemini_write._BUDGETS, reasoning._BUDGETS)
        assert rows[effort] == [budgets.get(effort) for budgets in known], effort
    for budget, effort in ((4096, ReasoningEffort.LOW), (16384, ReasoningEffort.MEDIUM), (16385, ReasoningEffort.HIGH)):
        assert openai_shared.requested_reasoning_effort(ModelRequest("m", [], thinking_budget=budget)) is effort


def test_page_lists_thinking_dialects() -> None:
    for dialect, described_fields, _ in tables("How much")[1]:
        request = ModelRequest(
            "qwen", [ModelMessage(MessageRole.USER, [ModelText("x")])], effort=ReasoningEffort.LOW, stream=True
        )
        request.extra["thinking_dialect"] = bare(dialect)
        body = json.loads(FORMATS["openai-chat"].write_request(request))
        plain = {"model", "messages", "stream", "stream_options"}
        assert set(body) - plain == {word.partition(".")[0] for word in codes(described_fields)}, dialect
        assert bool(request.notes) is (described_fields == NOTHING)


def answer_body(format: str, word: str) -> bytes:
    """Return a complete answer with this stop reason."""
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


def test_page_lists_stop_reasons_of_providers() -> None:
    page_reasons: dict[str, set[str]] = {}
    for format, word, taken in (map(bare, row) for row in tables("Read")[0]):
        page_reasons.setdefault(format, set()).add(word)
        if taken == "failure":
            with pytest.raises(BrokenModelStream):
                FORMATS[format].read_answer(answer_body(format, word))
        else:
            assert FORMATS[format].read_answer(answer_body(format, word)).finish is FinishReason(taken), (format, word)
    assert page_reasons["anthropic"] == set(anthropic_answer._FINISH_BY_STOP_REASON)
    assert page_reasons["gemini"] == set(gemini_answer._FINISH_BY_REASON) | gemini_answer.GEMINI_ERROR_FINISH_REASONS
    assert page_reasons["openai-chat"] == set(
        chat_answer._FINISH_BY_REASON
    ) | chat_answer.CHAT_FAILED_FINISH_REASONS | {
        "stop",
        "tool_calls",
    }


@pytest.mark.parametrize("format", FORMATS)
def test_answer_with_calls_ends_for_tools(format: str) -> None:
    answer = ModelAnswer("a", "m", [ModelToolCall("c", "f", "{}")], FinishReason.TOOLS)
    assert FORMATS[format].read_answer(FORMATS[format].write_answer(answer)).finish is FinishReason.TOOLS


def test_page_lists_stop_reasons_for_clients() -> None:
    rows = {bare(row[0]): [bare(cell) for cell in row[1:]] for row in tables("Written")[0]}
    assert list(rows) == list(FinishReason)
    for finish in FinishReason:
        written = [
            _reason(json.loads(form.write_answer(ModelAnswer("a", "m", [], finish)))) for form in FORMATS.values()
        ]
        assert rows[finish] == written, finish


def _reason(body: dict[str, Any]) -> str:
    if "choices" in body:
        return str(body["choices"][0]["finish_reason"])
    if "candidates" in body:
        return str(body["candidates"][0]["finishReason"])
    if "output" in body:
        return str(body["incomplete_details"]["reason"] if body["incomplete_details"] else body["status"])
    return str(body["stop_reason"])


def test_page_lists_usage_fields() -> None:
    answer = ModelAnswer("a", "m", [], FinishReason.STOP, usage=TokenUsage(100, 40, 30, 20, 10))
    assert [bare(row[0]) for row in tables("Usage")[0]] == list(FORMATS)
    for format, *columns in tables("Usage")[0]:
        body = json.loads(FORMATS[bare(format)].write_answer(answer))
        read_values = [_at(body, codes(column)[0]) if column != NOTHING else None for column in columns]
        partly = {"anthropic": [50, 40, 30, 20, 10], "gemini": [100, 30, 30, None, 10]}
        assert read_values == partly.get(bare(format), [100, 40, 30, 20, 10]), format
    assert f"{MEDIA_TOKENS} for a" in PAGE


def _at(body: Any, path: str) -> Any:
    for step in path.split("."):
        body = body[step]
    return body


def test_page_lists_error_types() -> None:
    rows = {int(row[0]): [None if cell == NOTHING else bare(cell) for cell in row[1:]] for row in tables("Errors")[0]}
    assert list(rows) == list(provider_errors.ERROR_KINDS_BY_STATUS)
    for status, words in rows.items():
        failure = ModelFailure(status, "no", provider_errors.error_kind_for_status(status))
        anthropic = json.loads(FORMATS["anthropic"].write_failure(failure))["error"]["type"]
        gemini = json.loads(FORMATS["gemini"].write_failure(failure))["error"]
        assert gemini["code"] == status
        for format in ("openai-chat", "openai-responses"):
            openai = json.loads(FORMATS[format].write_failure(failure))["error"]
            assert words == [anthropic, openai["type"], openai["code"], gemini["status"]], status


def test_page_lists_statuses_of_refusals() -> None:
    rows = {bare(row[0]): int(row[1]) for row in tables("Errors")[1]}
    assert rows == {kind.__name__: status for kind, status in gateway._STATUSES.items()} | {"InvalidInput": 400}


def test_page_lists_retried_statuses() -> None:
    [line] = re.findall(r"The statuses (.*?) are retried", PAGE, re.DOTALL)
    assert {int(word) for word in re.findall(r"\d+", line)} == RETRIED_STATUSES
    [line] = re.findall(r"except after (.*?)\. A provider", PAGE, re.DOTALL)
    assert {int(word) for word in re.findall(r"\d+", line)} == CLIENT_FAULT_STATUSES
    assert f"more than {MAX_RETRY_AFTER:.0f} seconds" in PAGE


def code_strings() -> str:
    """Return all sources of the formats, with texts on several lines joined."""
    source = "\n".join(path.read_text() for path in sorted(SOURCES.rglob("*.py")))
    return re.sub(r'"\s*\n\s*f?"', "", source)


@pytest.mark.parametrize("heading", ["What is refused", "What is left out with a note"])
def test_page_quotes_messages_of_the_code(heading: str) -> None:
    source = code_strings()
    for *_, cell in tables(heading)[0]:
        for piece in codes(cell)[0].split("\N{HORIZONTAL ELLIPSIS}"):
            assert piece.strip(" `") in source, cell


def test_page_lists_noted_fields() -> None:
    for format, noted in (
        ("openai-chat", UNTRANSLATABLE_CHAT_FIELDS),
        ("openai-responses", UNTRANSLATABLE_RESPONSES_FIELDS),
    ):
        [cell] = [
            row[1]
            for row in tables("What is left out with a note")[0]
            if bare(row[0]) == format and "no such field" in row[1]
        ]
        assert set(codes(cell)[1:]) == noted


def test_page_lists_ends_of_streams() -> None:
    assert {bare(row[0]) for row in tables("How streams end")[0]} == set(FORMATS)
    for format, finished, failed in tables("How streams end")[0]:
        for cell, ending in ((finished, StreamEnding.FINISHED), (failed, StreamEnding.FAILED)):
            for word in codes(cell):
                watch = StreamEndDetector(bare(format))
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
        return sse.encode_server_sent_event({"error": {"message": "no"}})
    return (
        sse.encode_server_sent_event(values[word])
        if word in values
        else sse.encode_server_sent_event({"type": word}, word)
    )


def test_page_lists_limits() -> None:
    rows = {row[0]: row[1] for row in tables("Limits")[0]}
    mebibyte = 2**20
    assert rows == {
        "request": f"{LlmConfig().max_body // mebibyte} MiB, `llm.max_body`",
        "values of a request that is translated, or answered by a script or a recording": f"{worker_tasks.MAX_VALUES}",
        "answers whose items one request may refer to": (
            f"{item_reference_bodies.MAX_REFERENCED_ANSWERS}, "
            f"with {item_reference_bodies.MAX_ADDED_ITEM_BYTES // mebibyte} MiB together"
        ),
        "recent answers in memory for references": (
            f"{recent_answers.MAX_RECENT_ANSWERS}, with {recent_answers.MAX_BYTES // mebibyte} MiB together "
            f"and {recent_answers.MAX_KEY_BYTES // mebibyte} MiB of one key"
        ),
        "event of a translated stream": f"{sse.MAX_EVENT_BYTES // mebibyte} MiB",
        "event of a relayed stream that may end it": f"{stream_end.MAX_EVENT_BYTES // mebibyte} MiB",
        "answer in one piece": f"{local_response.MAX_BYTES // mebibyte} MiB",
        "name of a tool at a provider": f"{tool_names._MAX_LENGTH} characters",
        "id of a call in `openai-chat`": f"{CHAT_ID} characters",
        "id of a call in `openai-responses`": f"{RESPONSES_ID} characters",
        "message of a provider's error": f"{provider_errors._MAX_MESSAGE_LENGTH} characters",
        "parts of Gemini's schemas": f"{gemini_schema._MAX_PARTS}, with {gemini_schema._MAX_CHARACTERS} characters",
        "notes of a translation": f"{translation_notes.MAX_NOTES}",
    }
    assert f"{anthropic_write._DEFAULT_MAX_TOKENS} if not set" in PAGE
    assert f"at least {_MIN_OUTPUT_TOKENS}" in PAGE


def test_page_shows_where_unsigned_thoughts_are_written() -> None:
    messages = [
        ModelMessage(MessageRole.USER, [ModelText("x")]),
        ModelMessage(MessageRole.ASSISTANT, [ModelThinking("HM"), ModelText("y")]),
        ModelMessage(MessageRole.USER, [ModelText("z")]),
    ]
    models = {
        "openai-chat": "qwen3",
        "openai-responses": "gpt-5",
        "anthropic": "claude-sonnet-4-5",
        "gemini": "gemini-3",
    }
    formats_with_thought = {
        name for name in FORMATS if b"HM" in FORMATS[name].write_request(ModelRequest(models[name], messages))
    }
    assert formats_with_thought == {"openai-chat", "gemini"}
    assert b"HM" not in FORMATS["openai-chat"].write_request(ModelRequest("gpt-5", messages))
