"""Model requests of sessions: replies are emitted as they stream and stored before they are used."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from paddock.agents.engines.base import (
    CallPiece,
    MessageWriter,
    ModelReply,
    ReplyPiece,
    TextPiece,
    ThoughtPiece,
    ToolSpec,
)
from paddock.agents.json_schema_validation import is_nested_at_most
from paddock.agents.model import message_images
from paddock.agents.model.compaction import ConversationCompactor, estimate_tokens
from paddock.agents.model.message_writer import NO_USAGE, ExternalMessageWriter, StreamedAgentMessage
from paddock.agents.model.model_client import LlmProxyClient, ModelError
from paddock.agents.model.reply_journal import ModelQuestionKey, ModelReplyJournal, RequestUsage, model_question_digest
from paddock.agents.model.sandbox_spending import check_session_budget
from paddock.agents.session_files import SessionFiles
from paddock.auth.api_keys import ApiKeys
from paddock.config.schema import Config
from paddock.errors import NotFound
from paddock.events.event_log import EventLog
from paddock.llm.formats.neutral import (
    AnswerPartDelta,
    AnswerPartStarted,
    AnswerStreamFinished,
    ModelRefusal,
    ModelText,
    ModelThinking,
    ModelToolCall,
    TokenUsage,
)
from paddock.llm.formats.openai_chat.answer import write_chat_finish_reason
from paddock.llm.wire.http_server import HttpListener, HttpServer
from paddock.model.keys import SESSION_KEY, ApiKeyTerms, Scope
from paddock.model.sessions import Session, ToolCall
from paddock.store.chat_sessions.reply_store import RecordedModelReply
from paddock.store.database import Store

__all__ = ["ModelError", "SessionModelClient"]

MAX_CALLS = 500
"""Maximum tool calls in one reply."""
MAX_REPLY_CHARACTERS = 16 * 2**20
"""Maximum characters of one reply, including thoughts and calls."""
_CONTEXT_SHARES = (1.0, 0.5)
"""Shares of the context window to fill: the first attempt, and the retry if the model finds it too long."""


class SessionModelClient:
    """Sends model requests of sessions through the model proxy, with one API key per session."""

    def __init__(
        self,
        store: Store,
        events: EventLog,
        config: Config,
        keys: ApiKeys,
        http_server: HttpServer,
        files: SessionFiles,
        wait_while_paused: Callable[[Session], Awaitable[object]],
        estimate_cost: Callable[[str, TokenUsage], float | None],
    ) -> None:
        self._estimate_cost = estimate_cost
        self._config = config
        self._keys = keys
        self._http_server = http_server
        self._files = files
        self._wait_while_paused = wait_while_paused
        self._journal = ModelReplyJournal(store, events, config.chat.steps)
        self._compactor = ConversationCompactor(self._journal, files)
        self._keys_by_session: dict[str, tuple[str, str]] = {}
        self._key_lock = asyncio.Lock()
        self._directory: int | None = None
        self._socket: Path | None = None
        self._listener: HttpListener | None = None
        self._client: LlmProxyClient | None = None

    async def open(self) -> None:
        """Open the socket and revoke session keys left by an earlier server."""
        await self._keys.revoke_for_sessions()
        self._socket = await asyncio.to_thread(self._open_socket_directory)
        self._listener = await self._http_server.listen_unix(self._socket)
        self._client = LlmProxyClient(self._socket)

    async def close(self) -> None:
        """Close the socket after pending messages are stored. Idempotent."""
        await self._journal.close()
        client, self._client = self._client, None
        if client is not None:
            await client.close()
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.close()
        session_keys, self._keys_by_session = self._keys_by_session, {}
        await asyncio.gather(
            *(self._keys.revoke(key_id) for key_id, _ in session_keys.values()), return_exceptions=True
        )
        directory, self._directory = self._directory, None
        if directory is not None:
            os.close(directory)

    async def end_interrupted_messages(self, session: Session) -> None:
        """Emit the end of messages that an earlier server began."""
        await self._journal.end_interrupted_messages(session)

    async def connection_details(self, session: Session) -> tuple[str, str]:
        """Return how to reach the session's models: the path of a Unix socket and a key."""
        assert self._socket is not None, "the session model is not open"
        return str(self._socket), await self._session_key(session)

    async def revoke_key(self, session_id: str) -> None:
        """Revoke the key of a deleted session. Idempotent."""
        self._journal.forget_session(session_id)
        session_key = self._keys_by_session.pop(session_id, None)
        if session_key is not None:
            try:
                await self._keys.revoke(session_key[0])
            except NotFound:
                pass

    def start_message(self, session: Session, turn: int) -> MessageWriter:
        """Start a message of an agent that asks models itself."""
        return ExternalMessageWriter(self._journal, session, turn)

    async def ask_model(
        self,
        session: Session,
        turn: int,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[ToolSpec] = (),
        *,
        by: str | None = None,
        is_new_turn: bool = False,
    ) -> AsyncGenerator[ReplyPiece, None]:
        """Ask the model; implements `Turn.ask_model`.

        A question repeated within a turn is indistinguishable from one repeated after a restart and gets the recorded
        reply; a `is_new_turn` turn has no recorded replies. Raises `TurnLimitReached`, `BudgetSpent`, `ModelError`.
        """
        await self._journal.end_interrupted_messages(session)
        question = ModelQuestionKey(turn, model_question_digest(by, messages, tools))
        current, recorded = await self._journal.find_reply(session, question, is_new_turn=is_new_turn)
        await self._wait_while_paused(current)
        await self._journal.check_step_limit(session, question, is_repeated=recorded is not None)
        if recorded is not None:
            for piece in _recorded_pieces(recorded):
                yield piece
            return
        check_session_budget(current, self._config.chat.budget)
        key = await self._session_key(session)
        builder = _ReplyBuilder(
            StreamedAgentMessage(self._journal, session, turn, await self._journal.count_step(session, turn), by)
        )
        builder.message.begin_step()
        question_tokens = 0
        try:
            for share in _CONTEXT_SHARES:
                messages_to_send = await self._prepare_messages(session, current, messages, tools, key, share)
                question_tokens = estimate_tokens(messages_to_send, self._config.chat.pictures)
                try:
                    async with aclosing(
                        self._open_client.stream_reply(key, current.model, messages_to_send, tools)
                    ) as events:
                        async for event in events:
                            if (new_piece := builder.add_event(event)) is not None:
                                yield new_piece
                                await builder.message.wait_for_space()
                    break
                except ModelError as error:
                    if not error.is_too_long or builder.message.started or share == _CONTEXT_SHARES[-1]:
                        raise
            calls = builder.calls()
            request_usage = self._usage_with_cost(current.model, builder, question_tokens)
            message = await builder.message.finish(calls, request_usage, question, builder.finish)
        except ModelError as error:
            if error.status == 401:
                self._keys_by_session.pop(session.id, None)
            request_usage = (
                self._usage_with_cost(current.model, builder, question_tokens) if builder.message.started else NO_USAGE
            )
            await self._journal.run_to_completion(
                builder.message.cut_off(f"error: {error.message[:500]}", request_usage)
            )
            raise
        except (asyncio.CancelledError, GeneratorExit):
            request_usage = (
                self._usage_with_cost(current.model, builder, question_tokens) if question_tokens else NO_USAGE
            )
            await self._journal.run_to_completion(builder.message.cut_off("cancelled", request_usage))
            raise
        except Exception as error:
            request_usage = (
                self._usage_with_cost(current.model, builder, question_tokens) if question_tokens else NO_USAGE
            )
            await self._journal.run_to_completion(
                builder.message.cut_off(f"error: {type(error).__name__}", request_usage)
            )
            raise
        for call in message.calls:
            yield CallPiece(call)
        yield ModelReply(message, builder.finish, request_usage.input_tokens, request_usage.output_tokens)

    async def _prepare_messages(
        self,
        session: Session,
        current: Session,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[ToolSpec],
        key: str,
        share: float,
    ) -> list[dict[str, Any]]:
        """Return the messages to send: compacted, with the newest images, in a form all providers accept."""
        chat = self._config.chat
        context = int(chat.contexts.get(current.model, chat.context) * share)
        tool_tokens = sum(len(self._open_client.tool_json(tool)) for tool in tools) // 4
        max_tokens = max(context - tool_tokens, context // 4)

        async def ask_silently(messages_to_send: Sequence[Mapping[str, Any]]) -> tuple[str, RequestUsage]:
            return await self._ask_silently(current, key, messages_to_send)

        messages_to_send = await self._compactor.fit_messages(
            current, messages, ask_silently, max_tokens=max_tokens, max_images=chat.pictures
        )
        messages_to_send = message_images.move_images_after_results(
            message_images.keep_newest_images(messages_to_send, chat.pictures)
        )
        return await message_images.inline_session_images(
            messages_to_send, lambda sha: self._files.read_file(session.id, sha)
        )

    async def _ask_silently(
        self, session: Session, key: str, messages_to_send: Sequence[Mapping[str, Any]]
    ) -> tuple[str, RequestUsage]:
        """Ask the model without emitting events."""
        texts: list[str] = []
        kinds: dict[int, bool] = {}
        token_usage: TokenUsage | None = None
        async with aclosing(self._open_client.stream_reply(key, session.model, messages_to_send)) as events:
            async for event in events:
                if isinstance(event, AnswerPartStarted):
                    kinds[event.index] = isinstance(event.part, ModelText)
                    if isinstance(event.part, ModelText):
                        texts.append(event.part.text)
                elif isinstance(event, AnswerPartDelta) and kinds.get(event.index):
                    texts.append(event.text)
                elif isinstance(event, AnswerStreamFinished):
                    token_usage = event.usage
        text = "".join(texts)
        return text, self._add_cost(
            session.model, _count_usage(token_usage, estimate_tokens(messages_to_send, 0), len(text)), token_usage
        )

    def _usage_with_cost(self, model: str, builder: _ReplyBuilder, question_tokens: int) -> RequestUsage:
        return self._add_cost(model, builder.usage(question_tokens), builder.token_usage)

    def _add_cost(self, model: str, request_usage: RequestUsage, token_usage: TokenUsage | None) -> RequestUsage:
        """Add the cost to the usage; estimated where the provider reports no tokens."""
        return replace(
            request_usage,
            cost=self._estimate_cost(
                model, token_usage or TokenUsage(request_usage.input_tokens, request_usage.output_tokens)
            ),
        )

    @property
    def _open_client(self) -> LlmProxyClient:
        if self._client is None:
            raise ModelError("the server is stopping", 503)
        return self._client

    async def _session_key(self, session: Session) -> str:
        session_key = self._keys_by_session.get(session.id)
        if session_key is None:
            async with self._key_lock:
                session_key = self._keys_by_session.get(session.id)
                if session_key is None:
                    api_key, key = await self._keys.create(
                        SESSION_KEY + session.id,
                        session.tenant,
                        [Scope.LLM_USE],
                        terms=ApiKeyTerms(session=session.id),
                        owner=session.subject,
                    )
                    session_key = self._keys_by_session[session.id] = api_key.id, key
        return session_key[1]

    def _open_socket_directory(self) -> Path:
        """Return the socket path below /proc/self/fd, in a directory that only the server can access.

        Socket addresses are limited to 107 bytes, and the path of the data directory may be longer.
        """
        directory = self._config.data / "agents"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)
        self._directory = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        return Path(f"/proc/self/fd/{self._directory}/models.sock")


@dataclass
class _ReplyBuilder:
    """Builds a reply from stream events, and writes its message."""

    message: StreamedAgentMessage
    finish: str = "stop"
    token_usage: TokenUsage | None = None
    _kinds: dict[int, type] = field(default_factory=dict)
    _calls: dict[int, tuple[str, str, list[str]]] = field(default_factory=dict)
    _refused: bool = False
    _length: int = 0

    def add_event(self, event: object) -> ReplyPiece | None:
        """Write an event to the message; return the piece for the engine, if any. Raises `ModelError`."""
        self._check_bounds(event)
        match event:
            case AnswerPartStarted(index=index, part=ModelToolCall() as part):
                call_id = f"call_{secrets.token_hex(12)}"
                self._calls[index] = (call_id, part.name, [])
                self.message.begin_call(call_id, part.name)
                if part.arguments:
                    self._add_arguments(index, part.arguments)
            case AnswerPartStarted(index=index, part=ModelText() | ModelThinking() | ModelRefusal() as part):
                self._kinds[index] = type(part)
                self._refused = self._refused or isinstance(part, ModelRefusal)
                return self._add_text(type(part), part.text)
            case AnswerPartDelta(index=index, text=text) if index in self._calls:
                self._add_arguments(index, text)
            case AnswerPartDelta(index=index, text=text) if index in self._kinds:
                return self._add_text(self._kinds[index], text)
            case AnswerStreamFinished():
                self.finish = write_chat_finish_reason(event.finish, refusal=self._refused)
                self.token_usage = event.usage
        return None

    def _check_bounds(self, event: object) -> None:
        """Raise `ModelError` for replies without end or with too many calls."""
        match event:
            case AnswerPartStarted(part=ModelToolCall() as part):
                self._length += len(part.name) + len(part.arguments)
            case AnswerPartStarted(part=ModelText() | ModelThinking() | ModelRefusal() as part):
                self._length += len(part.text)
            case AnswerPartDelta(text=text):
                self._length += len(text)
        if self._length > MAX_REPLY_CHARACTERS:
            raise ModelError(f"the model's reply is longer than {MAX_REPLY_CHARACTERS} characters")
        if len(self._calls) > MAX_CALLS:
            raise ModelError(f"the model made more than {MAX_CALLS} calls in one reply")

    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(parse_tool_call(call_id, name, "".join(pieces)) for call_id, name, pieces in self._calls.values())

    def usage(self, question_tokens: int) -> RequestUsage:
        """Return the usage that the provider reported, or an estimate."""
        argument_characters = sum(len(piece) for _, _, pieces in self._calls.values() for piece in pieces)
        return _count_usage(self.token_usage, question_tokens, self.message.size + argument_characters)

    def _add_arguments(self, index: int, piece: str) -> None:
        call_id, _, pieces = self._calls[index]
        pieces.append(piece)
        self.message.write_arguments(call_id, piece)

    def _add_text(self, kind: type, text: str) -> ReplyPiece | None:
        if not text:
            return None
        if kind is ModelThinking:
            self.message.write_thought(text)
            return ThoughtPiece(text)
        self.message.write_text(text)
        return TextPiece(text)


def parse_tool_call(call_id: str, name: str, arguments_json: str) -> ToolCall:
    """Parse the arguments that the model wrote; invalid JSON makes a malformed call."""
    try:
        # Encoded and decoded again to reject infinities and replace lone surrogates.
        clean_json = json.dumps(json.loads(arguments_json or "{}"), ensure_ascii=False, allow_nan=False)
        arguments = json.loads(clean_json.encode(errors="replace"))
    except (ValueError, RecursionError):
        return ToolCall(id=call_id, name=name, malformed=arguments_json)
    if not isinstance(arguments, dict) or not is_nested_at_most(arguments):
        return ToolCall(id=call_id, name=name, malformed=arguments_json)
    return ToolCall(id=call_id, name=name, arguments=arguments)


def _recorded_pieces(recorded: RecordedModelReply) -> list[ReplyPiece]:
    message = recorded.message
    pieces: list[ReplyPiece] = []
    if message.thought:
        pieces.append(ThoughtPiece(message.thought))
    if message.text:
        pieces.append(TextPiece(message.text))
    pieces += [CallPiece(call) for call in message.calls]
    return [
        *pieces,
        ModelReply(message, recorded.finish, recorded.input_tokens, recorded.output_tokens, from_records=True),
    ]


def _count_usage(token_usage: TokenUsage | None, question_tokens: int, reply_characters: int) -> RequestUsage:
    if token_usage is None:
        return RequestUsage(question_tokens, reply_characters // 4)
    return RequestUsage(token_usage.input, token_usage.output)
