"""Encode exchanges for the store: redacted, split into messages, compressed. And decode them again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

from paddock.llm.archive.compression import Compressor, decode_archived_response, decompress, encode_archived_response
from paddock.llm.archive.message_preview import make_message_preview
from paddock.llm.archive.request_splitting import (
    join_request_body,
    literal_request_bytes,
    map_literal_bytes,
    split_request_body,
)
from paddock.llm.archive.secret_redaction import SecretRedactor
from paddock.llm.exchange import Exchange, ExchangeOutcome, ModelCaller
from paddock.llm.formats.neutral import TokenUsage
from paddock.model.exchanges import (
    ExchangeSummary,
    NewExchange,
    SharedExchangeContent,
    StoredExchange,
    StoredExchangeAnswer,
)

_MAX_CLEAN_DIGESTS = 8_000
_MAX_SHARED_DIGESTS = 1000
_MAX_SHARED_SIZE = 2000


class ExchangeEncoder:
    """Encodes exchanges; use it in one thread at a time. `known` tells which digests are already stored."""

    def __init__(self, redactor: SecretRedactor, known: Callable[[bytes], bool]) -> None:
        self._redactor = redactor
        self._known = known
        self._compress = Compressor().compress
        self._clean: dict[bytes, None] = {}
        """Digests of messages that were checked and contain no secrets."""
        self._digests: dict[bytes, bytes] = {}
        """Digests by content of small pieces that many exchanges share."""

    def encode(self, exchange: Exchange) -> NewExchange:
        caller, usage, clean = exchange.caller, exchange.usage, self._clean
        parts = split_request_body(exchange.request, exchange.operation)
        prompt = [(sha256(raw).digest()[:16], raw) for raw in parts.prompt]
        thread = [(sha256(raw).digest()[:16], raw) for raw in parts.thread]
        unseen = [message for message in (*prompt, *thread) if message[0] not in clean]
        response: Sequence[tuple[float, bytes]] = exchange.response
        answer = response[0][1] if len(response) == 1 else b"".join([piece for _, piece in response])
        preview = make_message_preview(parts.thread)
        texts = [exchange.model, exchange.client, exchange.conversation, exchange.error, exchange.provider_model]
        words = "\n".join([*filter(None, texts), *exchange.notes])
        skeleton = parts.skeleton
        between = [] if skeleton in self._digests else literal_request_bytes(parts)
        all_content = b"\n".join([words.encode(errors="replace"), answer, *between, *[raw for _, raw in unseen]])
        doubtful = self._redactor.may_contain_secrets(all_content)
        if doubtful:
            map_literal_bytes(parts, self._redactor.redact_json if parts.json else self._redactor.redact_bytes)
            skeleton = parts.skeleton
            if response:
                response = self._redactor.redact_response(response, exchange.stream)
        elif unseen:
            self._mark_clean(unseen)
        if exchange.stream and response:
            response = self._redactor.redact_stream(response)
        if doubtful or not words.isascii():
            text = self._clean_text
            notes = [text(note) for note in exchange.notes]
            model, client, conversation, error, provider_model = [each and text(each) for each in texts]
        else:
            notes = exchange.notes
            model, client, conversation, error, provider_model = texts
        owner = self._shared_piece(f"{caller.tenant}\n{caller.sandbox or ''}\n{caller.key_id}".encode())
        row = (
            exchange.id,
            caller.tenant,
            caller.key_id,
            caller.sandbox or "",
            caller.run or "",
            caller.session or "",
            caller.user or "",
            exchange.at,
            exchange.format,
            exchange.operation,
            model,
            int(exchange.stream),
            client,
            conversation or "",
            exchange.route or "",
            exchange.provider or "",
            exchange.provider_kind or "",
            provider_model or "",
            exchange.provider_format or "",
            exchange.status,
            exchange.outcome.value,
            error or "",
            *(
                (usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning)
                if usage
                else _NO_USAGE
            ),
            int(exchange.estimated),
            -1 if exchange.cost is None else exchange.cost,
            -1 if exchange.first_byte is None else exchange.first_byte,
            exchange.total,
            exchange.retries,
            json.dumps(notes) if notes else "",
            len(exchange.request),
            len(answer),
            self._clean_text(preview) if doubtful else preview,
            caller.subject or "",
        )
        return NewExchange(
            row,
            [owner, *[self._message_piece(*message, doubtful) for message in prompt], self._shared_piece(skeleton)],
            [owner, *[self._message_piece(*message, doubtful) for message in thread]],
            self._compress(encode_archived_response(response)) if response else b"",
        )

    def _message_piece(self, digest: bytes, raw: bytes, doubtful: bool) -> SharedExchangeContent:
        if doubtful and digest not in self._clean:
            cleaned = self._redactor.redact_json(raw)
            if cleaned is not raw:
                return self._shared_piece(cleaned)
            self._mark_clean([(digest, raw)])
        return SharedExchangeContent(digest, raw, None if self._known(digest) else self._compress(raw))

    def _shared_piece(self, raw: bytes) -> SharedExchangeContent:
        """Return a piece that many exchanges share."""
        digest = self._digests.get(raw)
        if digest is None:
            digest = sha256(raw).digest()[:16]
            if len(raw) < _MAX_SHARED_SIZE:
                if len(self._digests) >= _MAX_SHARED_DIGESTS:
                    self._digests.clear()
                self._digests[raw] = digest
        return SharedExchangeContent(digest, raw, None if self._known(digest) else self._compress(raw))

    def _mark_clean(self, message: Iterable[tuple[bytes, bytes]]) -> None:
        self._clean.update(dict.fromkeys([digest for digest, _ in message]))
        if len(self._clean) > _MAX_CLEAN_DIGESTS:
            for old in list(self._clean)[: _MAX_CLEAN_DIGESTS // 2]:
                del self._clean[old]

    def _clean_text(self, text: str) -> str:
        text = self._redactor.redact_text(text)
        return text if text.isascii() else text.encode(errors="replace").decode()


_NO_USAGE = (-1, -1, -1, -1, -1)


def decode_archived_exchange(stored: StoredExchange) -> Exchange:
    """Decode a stored exchange."""
    *prompt, skeleton = [decompress(packed) for packed in stored.prompt[1:]]
    return exchange_from_summary(
        stored.summary,
        join_request_body(skeleton, prompt, [decompress(packed) for packed in stored.thread[1:]]),
        decode_archived_response(decompress(stored.response)) if stored.response else [],
    )


@dataclass(frozen=True, slots=True)
class ArchivedAnswer:
    """The answer of an exchange."""

    exchange_id: str
    stream: bool
    body: bytes
    redacted: bool
    """Whether secrets were removed, so that the body is not what the client received."""


def decode_archived_answer(stored: StoredExchangeAnswer) -> ArchivedAnswer:
    """Decode the answer of a stored exchange."""
    pieces = decode_archived_response(decompress(stored.response)) if stored.response else []
    body = b"".join([piece for _, piece in pieces])
    return ArchivedAnswer(stored.id, stored.stream, body, redacted=len(body) != stored.response_size)


def exchange_from_summary(
    summary: ExchangeSummary, request: bytes, response: Iterable[tuple[float, bytes]]
) -> Exchange:
    """Build an exchange from its summary, request and response."""
    return Exchange(
        id=summary.id,
        at=summary.at,
        caller=ModelCaller(summary.tenant, summary.key_id, summary.sandbox, summary.run, summary.session, summary.user),
        format=summary.format,
        operation=summary.operation,
        model=summary.model,
        request=request,
        stream=summary.stream,
        client=summary.client,
        conversation=summary.conversation,
        route=summary.route,
        provider=summary.provider,
        provider_kind=summary.provider_kind,
        provider_model=summary.provider_model,
        provider_format=summary.provider_format,
        status=summary.status,
        outcome=ExchangeOutcome(summary.outcome),
        error=summary.error,
        response=list(response),
        usage=usage_from_summary(summary),
        estimated=summary.estimated,
        cost=summary.cost,
        first_byte=summary.first_byte,
        total=summary.total,
        retries=summary.retries,
        notes=list(summary.notes),
    )


def usage_from_summary(summary: ExchangeSummary) -> TokenUsage | None:
    if summary.input is None:
        return None
    return TokenUsage(
        summary.input,
        summary.output or 0,
        summary.cache_read or 0,
        summary.cache_write or 0,
        summary.reasoning or 0,
    )
