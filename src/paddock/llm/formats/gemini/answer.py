"""Gemini's answers and errors."""

from __future__ import annotations

import math
import re
import uuid
from typing import Any

from paddock.llm.formats.base import BrokenStream, Untranslatable
from paddock.llm.formats.failures import any_failure
from paddock.llm.formats.fields import Fields, answer_fields, to_bytes
from paddock.llm.formats.gemini.parts import (
    camel,
    carried_thoughts,
    read_call,
    read_media,
    read_thought,
    write_answer_parts,
)
from paddock.llm.formats.notes import note
from paddock.llm.formats.seals import GEMINI, foreign, thought
from paddock.llm.neutral import Answer, Failure, Finish, Part, Text, Thinking, ToolCall, Usage

_FINISHES = {
    "STOP": Finish.STOP,
    "MAX_TOKENS": Finish.LENGTH,
    "SAFETY": Finish.FILTERED,
    "RECITATION": Finish.FILTERED,
    "LANGUAGE": Finish.FILTERED,
    "BLOCKLIST": Finish.FILTERED,
    "PROHIBITED_CONTENT": Finish.FILTERED,
    "SPII": Finish.FILTERED,
    "IMAGE_SAFETY": Finish.FILTERED,
    "IMAGE_PROHIBITED_CONTENT": Finish.FILTERED,
    "IMAGE_RECITATION": Finish.FILTERED,
}
_REASONS = {
    Finish.STOP: "STOP",
    Finish.TOOLS: "STOP",
    Finish.LENGTH: "MAX_TOKENS",
    Finish.REFUSAL: "SAFETY",
    Finish.FILTERED: "SAFETY",
    Finish.PAUSED: "OTHER",
}
MISTAKES = {
    "MALFORMED_FUNCTION_CALL",
    "UNEXPECTED_TOOL_CALL",
    "TOO_MANY_TOOL_CALLS",
    "MISSING_THOUGHT_SIGNATURE",
    "MALFORMED_RESPONSE",
}
"""Answers that are no answer: to end as if all were well would end the client's work with nothing said."""
_STATUSES = {
    "invalid_request_error": "INVALID_ARGUMENT",
    "request_too_large": "INVALID_ARGUMENT",
    "authentication_error": "UNAUTHENTICATED",
    "billing_error": "FAILED_PRECONDITION",
    "permission_error": "PERMISSION_DENIED",
    "not_found_error": "NOT_FOUND",
    "conflict_error": "ABORTED",
    "rate_limit_error": "RESOURCE_EXHAUSTED",
    "overloaded_error": "UNAVAILABLE",
    "timeout_error": "DEADLINE_EXCEEDED",
}


class CallIds:
    """Ids for the calls of one answer, which must not repeat those of earlier answers."""

    def __init__(self, answer_id: str) -> None:
        self._stem = re.sub(r"[^a-zA-Z0-9_-]", "", answer_id) or uuid.uuid4().hex[:12]
        self._count = 0

    def new(self) -> str:
        number, self._count = self._count, self._count + 1
        return f"call_{self._stem}_{number}"


def read_answer(body: bytes) -> Answer:
    fields = answer_fields(body)
    fields = Fields(camel(fields.value), "", BrokenStream)
    if "error" in fields:
        raise fields.error(f"is an error: {any_failure(500, body).message}")
    answer_id = fields.text_or("responseId") or ""
    notes: list[str] = []
    told = _Told()
    candidate = first_candidate(fields)
    reason = None
    if candidate is not None:
        ids = CallIds(answer_id)
        content = candidate.object_or("content")
        for part in content.objects("parts") if content is not None else ():
            for read in read_part(part, ids, notes):
                told.add(read)
        reason = candidate.text_or("finishReason")
        if reason in MISTAKES:
            raise candidate.error(f"is {reason}: {candidate.text_or('finishMessage') or 'the model made a mistake'}")
    elif blocked(fields) is None:
        raise fields.error("are missing", "candidates")
    usage = fields.object_or("usageMetadata")
    parts = told.parts()
    return Answer(
        id=answer_id,
        model=fields.text_or("modelVersion") or "",
        parts=parts,
        finish=Finish.FILTERED
        if candidate is None
        else read_finish(reason, any(isinstance(part, ToolCall) for part in parts)),
        usage=read_usage(usage) if usage is not None else None,
        notes=notes,
    )


def first_candidate(fields: Fields) -> Fields | None:
    return next(fields.objects("candidates"), None)


def blocked(fields: Fields) -> str | None:
    """Why the prompt was refused, if it was."""
    feedback = fields.object_or("promptFeedback")
    return feedback.text_or("blockReason") if feedback is not None else None


def read_part(part: Fields, ids: CallIds, notes: list[str]) -> list[Part]:
    """What a part of an answer amounts to. The seal of a text becomes a thought without words after it."""
    thoughts = carried_thoughts(part)
    if thoughts is not None:
        return [*thoughts, *read_part(part, ids, notes)]
    if "functionCall" in part:
        return [read_call(part, ids.new())]
    if part.get("thought") is True:
        return [read_thought(part)]
    if "text" in part:
        text, signed = part.text("text"), part.text_or("thoughtSignature")
        found: list[Part] = [Text(text)] if text else []
        return [*found, thought("", signed, GEMINI)] if signed else found
    if "inlineData" in part or "fileData" in part:
        try:
            return [read_media(part)]
        except Untranslatable as error:
            note(notes, error.message)
            return []
    if part.value:
        note(notes, f"{', '.join(sorted(part.value))} was left out: only Gemini knows it")
    return []


class _Told:
    """An answer's parts; texts in a row are one, since where Gemini cuts them means nothing."""

    def __init__(self) -> None:
        self._parts: list[tuple[Part, list[str]]] = []
        """Each with the texts that follow its own."""

    def add(self, part: Part) -> None:
        last, more = self._parts[-1] if self._parts else (None, [])
        if isinstance(part, Text) and isinstance(last, Text):
            more.append(part.text)
        elif isinstance(part, Thinking) and isinstance(last, Thinking) and continues(last, part):
            # Another provider's thought comes sealed after it was told in the open.
            if not is_carried(part):
                more.append(part.text)
            last.signature = part.signature or last.signature
        else:
            self._parts.append((part, []))

    def parts(self) -> list[Part]:
        for part, more in self._parts:
            if isinstance(part, Text | Thinking) and more:
                part.text = "".join((part.text, *more))
        return [part for part, _ in self._parts]


def is_carried(part: Thinking) -> bool:
    return part.signature is not None and foreign(part.signature, GEMINI)


def continues(last: Thinking, more: Thinking) -> bool:
    return bool(last.text) and last.signature is None and last.redacted is None and more.redacted is None


def read_finish(reason: str | None, called: bool) -> Finish:
    finish = _FINISHES.get(reason or "", Finish.STOP)
    return Finish.TOOLS if called and finish is Finish.STOP else finish


def read_usage(fields: Fields) -> Usage:
    thoughts = fields.count("thoughtsTokenCount")
    return Usage(
        input=fields.count("promptTokenCount") + fields.count("toolUsePromptTokenCount"),
        output=fields.count("candidatesTokenCount") + thoughts,
        cache_read=fields.count("cachedContentTokenCount"),
        reasoning=thoughts,
    )


def write_usage(usage: Usage) -> dict[str, int]:
    written = {
        "promptTokenCount": usage.input,
        "candidatesTokenCount": max(0, usage.output - usage.reasoning),
        "totalTokenCount": usage.input + usage.output,
    }
    if usage.cache_read:
        written["cachedContentTokenCount"] = usage.cache_read
    if usage.reasoning:
        written["thoughtsTokenCount"] = usage.reasoning
    return written


def write_answer(answer: Answer) -> bytes:
    parts = write_answer_parts(answer.parts)
    return to_bytes(answer_object(answer.id, answer.model, parts, answer.finish, answer.usage))


def answer_object(
    answer_id: str, model: str, parts: list[dict[str, Any]], finish: Finish | None = None, usage: Usage | None = None
) -> dict[str, Any]:
    """A whole answer, or one piece of a stream; the last has the reason why it ended."""
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = _REASONS[finish]
    written: dict[str, Any] = {"candidates": [candidate], "modelVersion": model, "responseId": answer_id}
    if usage is not None:
        written["usageMetadata"] = write_usage(usage)
    return written


def failure_object(failure: Failure) -> dict[str, Any]:
    word = _STATUSES.get(failure.kind, "INTERNAL")
    error: dict[str, Any] = {"code": failure.status, "message": failure.message, "status": word}
    if failure.wait is not None:
        # Google's own clients look for it here, not in a header.
        retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{math.ceil(failure.wait)}s"}
        error["details"] = [retry]
    return {"error": error}


def write_failure(failure: Failure) -> bytes:
    return to_bytes(failure_object(failure))
