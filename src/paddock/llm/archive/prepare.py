"""Makes an exchange ready to be stored: nothing secret in it, cut into pieces, small."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256

from paddock.llm.archive.packing import Packer, to_bytes, to_pieces, unpack
from paddock.llm.archive.preview import preview_of
from paddock.llm.archive.redact import Redactor
from paddock.llm.archive.split import join, literals, map_literals, split
from paddock.llm.exchange import Caller, Exchange, Outcome
from paddock.llm.neutral import Usage
from paddock.model.exchanges import Fresh, Piece, Stored, Summary

_REMEMBERED = 8_000
_FEW = 1000
_SMALL = 2000


class Preparer:
    """Prepares exchanges, one after the other, in one thread at a time. `known` says which digests are stored."""

    def __init__(self, redactor: Redactor, known: Callable[[bytes], bool]) -> None:
        self._redactor = redactor
        self._known = known
        self._pack = Packer().pack
        self._clean: dict[bytes, None] = {}
        """Digests of what was looked through and needs nothing taken out."""
        self._digests: dict[bytes, bytes] = {}
        """Digests of what many exchanges share and what is clean."""

    def prepare(self, exchange: Exchange) -> Fresh:
        caller, usage, clean = exchange.caller, exchange.usage, self._clean
        parts = split(exchange.request, exchange.operation)
        prompt = [(sha256(raw).digest()[:16], raw) for raw in parts.prompt]
        thread = [(sha256(raw).digest()[:16], raw) for raw in parts.thread]
        unseen = [said for said in (*prompt, *thread) if said[0] not in clean]
        response: Sequence[tuple[float, bytes]] = exchange.response
        answer = response[0][1] if len(response) == 1 else b"".join([piece for _, piece in response])
        preview = preview_of(parts.thread)
        texts = [exchange.model, exchange.client, exchange.conversation, exchange.error, exchange.provider_model]
        words = "\n".join([*filter(None, texts), *exchange.notes])
        skeleton = parts.skeleton
        between = [] if skeleton in self._digests else literals(parts)
        everything = b"\n".join([words.encode(errors="replace"), answer, *between, *[raw for _, raw in unseen]])
        doubtful = self._redactor.suspects(everything)
        if doubtful:
            map_literals(parts, self._redactor.json if parts.json else self._redactor.plain)
            skeleton = parts.skeleton
            if response:
                response = self._redactor.answer(response, exchange.stream)
        elif unseen:
            self._remember(unseen)
        if exchange.stream and response:
            response = self._redactor.stream(response)
        if doubtful or not words.isascii():
            text = self._text
            notes = [text(note) for note in exchange.notes]
            model, client, conversation, error, provider_model = [each and text(each) for each in texts]
        else:
            notes = exchange.notes
            model, client, conversation, error, provider_model = texts
        whose = self._piece(f"{caller.tenant}\n{caller.sandbox or ''}\n{caller.key_id}".encode())
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
            *((usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning) if usage else _NONE),
            int(exchange.estimated),
            -1 if exchange.cost is None else exchange.cost,
            -1 if exchange.first_byte is None else exchange.first_byte,
            exchange.total,
            exchange.retries,
            json.dumps(notes) if notes else "",
            len(exchange.request),
            len(answer),
            self._text(preview) if doubtful else preview,
            caller.subject or "",
        )
        return Fresh(
            row,
            [whose, *[self._said(*said, doubtful) for said in prompt], self._piece(skeleton)],
            [whose, *[self._said(*said, doubtful) for said in thread]],
            self._pack(to_bytes(response)) if response else b"",
        )

    def _said(self, digest: bytes, raw: bytes, doubtful: bool) -> Piece:
        if doubtful and digest not in self._clean:
            cleaned = self._redactor.json(raw)
            if cleaned is not raw:
                return self._piece(cleaned)
            self._remember([(digest, raw)])
        return Piece(digest, raw, None if self._known(digest) else self._pack(raw))

    def _piece(self, raw: bytes) -> Piece:
        """Something that many exchanges have."""
        digest = self._digests.get(raw)
        if digest is None:
            digest = sha256(raw).digest()[:16]
            if len(raw) < _SMALL:
                if len(self._digests) >= _FEW:
                    self._digests.clear()
                self._digests[raw] = digest
        return Piece(digest, raw, None if self._known(digest) else self._pack(raw))

    def _remember(self, said: Iterable[tuple[bytes, bytes]]) -> None:
        self._clean.update(dict.fromkeys([digest for digest, _ in said]))
        if len(self._clean) > _REMEMBERED:
            for old in list(self._clean)[: _REMEMBERED // 2]:
                del self._clean[old]

    def _text(self, text: str) -> str:
        text = self._redactor.text(text)
        return text if text.isascii() else text.encode(errors="replace").decode()


_NONE = (-1, -1, -1, -1, -1)


def restore(stored: Stored) -> Exchange:
    """An exchange as it was prepared."""
    *told, skeleton = [unpack(packed) for packed in stored.prompt[1:]]
    return to_exchange(
        stored.summary,
        join(skeleton, told, [unpack(packed) for packed in stored.thread[1:]]),
        to_pieces(unpack(stored.response)) if stored.response else [],
    )


def to_exchange(summary: Summary, request: bytes, response: Iterable[tuple[float, bytes]]) -> Exchange:
    """A summary and what was said as one."""
    return Exchange(
        id=summary.id,
        at=summary.at,
        caller=Caller(summary.tenant, summary.key_id, summary.sandbox, summary.run, summary.session, summary.user),
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
        outcome=Outcome(summary.outcome),
        error=summary.error,
        response=list(response),
        usage=usage_of(summary),
        estimated=summary.estimated,
        cost=summary.cost,
        first_byte=summary.first_byte,
        total=summary.total,
        retries=summary.retries,
        notes=list(summary.notes),
    )


def usage_of(summary: Summary) -> Usage | None:
    if summary.input is None:
        return None
    return Usage(
        summary.input,
        summary.output or 0,
        summary.cache_read or 0,
        summary.cache_write or 0,
        summary.reasoning or 0,
    )
