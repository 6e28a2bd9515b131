"""Parse and write answers, usage and errors of the Gemini API."""

from __future__ import annotations

import math
import re
import uuid
from typing import Any

from paddock.llm.formats.base import BrokenModelStream, UntranslatableRequest
from paddock.llm.formats.gemini.content_parts import (
    camel_case_keys,
    read_gemini_media,
    read_gemini_thought,
    read_gemini_tool_call,
    unpack_foreign_thoughts,
    write_gemini_answer_parts,
)
from paddock.llm.formats.json_fields import JsonFields, encode_json, parse_answer_body
from paddock.llm.formats.neutral import (
    FinishReason,
    MessagePart,
    ModelAnswer,
    ModelFailure,
    ModelText,
    ModelThinking,
    ModelToolCall,
    TokenUsage,
)
from paddock.llm.formats.provider_errors import parse_provider_error
from paddock.llm.formats.thought_signatures import GEMINI_FAMILY, is_foreign_signature, parse_signed_thought
from paddock.llm.formats.translation_notes import add_translation_note

_FINISH_BY_REASON = {
    "STOP": FinishReason.STOP,
    "MAX_TOKENS": FinishReason.LENGTH,
    "SAFETY": FinishReason.FILTERED,
    "RECITATION": FinishReason.FILTERED,
    "LANGUAGE": FinishReason.FILTERED,
    "BLOCKLIST": FinishReason.FILTERED,
    "PROHIBITED_CONTENT": FinishReason.FILTERED,
    "SPII": FinishReason.FILTERED,
    "IMAGE_SAFETY": FinishReason.FILTERED,
    "IMAGE_PROHIBITED_CONTENT": FinishReason.FILTERED,
    "IMAGE_RECITATION": FinishReason.FILTERED,
}
_REASON_BY_FINISH = {
    FinishReason.STOP: "STOP",
    FinishReason.TOOLS: "STOP",
    FinishReason.LENGTH: "MAX_TOKENS",
    FinishReason.REFUSAL: "SAFETY",
    FinishReason.FILTERED: "SAFETY",
    FinishReason.PAUSED: "OTHER",
}
GEMINI_ERROR_FINISH_REASONS = {
    "MALFORMED_FUNCTION_CALL",
    "UNEXPECTED_TOOL_CALL",
    "TOO_MANY_TOOL_CALLS",
    "MISSING_THOUGHT_SIGNATURE",
    "MALFORMED_RESPONSE",
}
"""Finish reasons that mean failure; treating them as a normal end would give the client an empty answer."""
_STATUS_BY_ERROR_KIND = {
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


class GeminiCallIdGenerator:
    """Generates call IDs for one answer, distinct from the IDs of earlier answers."""

    def __init__(self, answer_id: str) -> None:
        self._id_prefix = re.sub(r"[^a-zA-Z0-9_-]", "", answer_id) or uuid.uuid4().hex[:12]
        self._count = 0

    def next_id(self) -> str:
        number, self._count = self._count, self._count + 1
        return f"call_{self._id_prefix}_{number}"


def read_gemini_answer(body: bytes) -> ModelAnswer:
    fields = parse_answer_body(body)
    fields = JsonFields(camel_case_keys(fields.value), "", BrokenModelStream)
    if "error" in fields:
        raise fields.error(f"is an error: {parse_provider_error(500, body).message}")
    answer_id = fields.optional_text("responseId") or ""
    notes: list[str] = []
    answer_parts = _AnswerParts()
    candidate = first_gemini_candidate(fields)
    reason = None
    if candidate is not None:
        ids = GeminiCallIdGenerator(answer_id)
        content = candidate.optional_object("content")
        for part in content.objects("parts") if content is not None else ():
            for read in read_gemini_answer_part(part, ids, notes):
                answer_parts.add(read)
        reason = candidate.optional_text("finishReason")
        if reason in GEMINI_ERROR_FINISH_REASONS:
            raise candidate.error(
                f"is {reason}: {candidate.optional_text('finishMessage') or 'the model made a mistake'}"
            )
    elif gemini_prompt_block_reason(fields) is None:
        raise fields.error("are missing", "candidates")
    usage = fields.optional_object("usageMetadata")
    parts = answer_parts.parts()
    return ModelAnswer(
        id=answer_id,
        model=fields.optional_text("modelVersion") or "",
        parts=parts,
        finish=FinishReason.FILTERED
        if candidate is None
        else read_gemini_finish_reason(reason, any(isinstance(part, ModelToolCall) for part in parts)),
        usage=read_gemini_usage(usage) if usage is not None else None,
        notes=notes,
    )


def first_gemini_candidate(fields: JsonFields) -> JsonFields | None:
    return next(fields.objects("candidates"), None)


def gemini_prompt_block_reason(fields: JsonFields) -> str | None:
    """Return why the prompt was blocked; `None` if it was not."""
    feedback = fields.optional_object("promptFeedback")
    return feedback.optional_text("blockReason") if feedback is not None else None


def read_gemini_answer_part(part: JsonFields, ids: GeminiCallIdGenerator, notes: list[str]) -> list[MessagePart]:
    """Convert a part of an answer. The signature of a text becomes a thought without text after it."""
    thoughts = unpack_foreign_thoughts(part)
    if thoughts is not None:
        return [*thoughts, *read_gemini_answer_part(part, ids, notes)]
    if "functionCall" in part:
        return [read_gemini_tool_call(part, ids.next_id())]
    if part.get("thought") is True:
        return [read_gemini_thought(part)]
    if "text" in part:
        text, signed = part.text("text"), part.optional_text("thoughtSignature")
        found: list[MessagePart] = [ModelText(text)] if text else []
        return [*found, parse_signed_thought("", signed, GEMINI_FAMILY)] if signed else found
    if "inlineData" in part or "fileData" in part:
        try:
            return [read_gemini_media(part)]
        except UntranslatableRequest as error:
            add_translation_note(notes, error.message)
            return []
    if part.value:
        add_translation_note(notes, f"{', '.join(sorted(part.value))} was left out: only Gemini supports it")
    return []


class _AnswerParts:
    """The parts of an answer; consecutive texts are joined, as Gemini splits them arbitrarily."""

    def __init__(self) -> None:
        self._parts: list[tuple[MessagePart, list[str]]] = []
        """Each part with the texts to append to it."""

    def add(self, part: MessagePart) -> None:
        last, more = self._parts[-1] if self._parts else (None, [])
        if isinstance(part, ModelText) and isinstance(last, ModelText):
            more.append(part.text)
        elif (
            isinstance(part, ModelThinking) and isinstance(last, ModelThinking) and continues_gemini_thought(last, part)
        ):
            # A signed thought of another provider repeats text that was already sent without signature.
            if not is_foreign_thought(part):
                more.append(part.text)
            last.signature = part.signature or last.signature
        else:
            self._parts.append((part, []))

    def parts(self) -> list[MessagePart]:
        for part, more in self._parts:
            if isinstance(part, ModelText | ModelThinking) and more:
                part.text = "".join((part.text, *more))
        return [part for part, _ in self._parts]


def is_foreign_thought(part: ModelThinking) -> bool:
    return part.signature is not None and is_foreign_signature(part.signature, GEMINI_FAMILY)


def continues_gemini_thought(last: ModelThinking, more: ModelThinking) -> bool:
    return bool(last.text) and last.signature is None and last.redacted is None and more.redacted is None


def read_gemini_finish_reason(reason: str | None, called: bool) -> FinishReason:
    finish = _FINISH_BY_REASON.get(reason or "", FinishReason.STOP)
    return FinishReason.TOOLS if called and finish is FinishReason.STOP else finish


def read_gemini_usage(fields: JsonFields) -> TokenUsage:
    thoughts = fields.token_count("thoughtsTokenCount")
    return TokenUsage(
        input=fields.token_count("promptTokenCount") + fields.token_count("toolUsePromptTokenCount"),
        output=fields.token_count("candidatesTokenCount") + thoughts,
        cache_read=fields.token_count("cachedContentTokenCount"),
        reasoning=thoughts,
    )


def write_gemini_usage(usage: TokenUsage) -> dict[str, int]:
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


def write_gemini_answer(answer: ModelAnswer) -> bytes:
    parts = write_gemini_answer_parts(answer.parts)
    return encode_json(build_gemini_answer(answer.id, answer.model, parts, answer.finish, answer.usage))


def build_gemini_answer(
    answer_id: str,
    model: str,
    parts: list[dict[str, Any]],
    finish: FinishReason | None = None,
    usage: TokenUsage | None = None,
) -> dict[str, Any]:
    """Build a complete answer, or one chunk of a stream; the last chunk has a finish reason."""
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = _REASON_BY_FINISH[finish]
    written: dict[str, Any] = {"candidates": [candidate], "modelVersion": model, "responseId": answer_id}
    if usage is not None:
        written["usageMetadata"] = write_gemini_usage(usage)
    return written


def gemini_error_object(failure: ModelFailure) -> dict[str, Any]:
    word = _STATUS_BY_ERROR_KIND.get(failure.kind, "INTERNAL")
    error: dict[str, Any] = {"code": failure.status, "message": failure.message, "status": word}
    if failure.wait is not None:
        # Google's own clients read the retry delay from the body, not from a header.
        retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{math.ceil(failure.wait)}s"}
        error["details"] = [retry]
    return {"error": error}


def write_gemini_failure(failure: ModelFailure) -> bytes:
    return encode_json(gemini_error_object(failure))
