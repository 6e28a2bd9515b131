"""Asks the model of a session, tells what it says as it comes, and keeps it before anybody acts on it."""

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

from paddock.agents import pictures
from paddock.agents.client import ModelClient, ModelError
from paddock.agents.compaction import Compaction, tokens
from paddock.agents.engines.base import CallPiece, Piece, Reply, Speech, TextPiece, ThoughtPiece, ToolSpec
from paddock.agents.files import Files
from paddock.agents.journal import Journal, Question, Spent, question_digest
from paddock.agents.schemas import shallow
from paddock.agents.speech import NOTHING, Saying, Spoken
from paddock.agents.spending import check_budget
from paddock.auth.keys import Keys
from paddock.config.schema import Config
from paddock.errors import NotFound
from paddock.events.log import EventLog
from paddock.llm.formats.openai_chat.answer import finish_reason
from paddock.llm.neutral import Delta, Finished, PartStarted, Refusal, Text, Thinking, ToolCall, Usage
from paddock.llm.wire.server import Door, Listener
from paddock.model.keys import SESSION_KEY, Scope, Terms
from paddock.model.sessions import Call, Session
from paddock.store.database import Store
from paddock.store.replies import Recorded

__all__ = ["ModelError", "Voice"]

MOST_CALLS = 500
"""Calls of one answer."""
LONGEST_ANSWER = 16 * 2**20
"""Characters of one answer, its thoughts and calls included."""
_SMALLER = (1.0, 0.5)
"""Shares of the model's context that are tried: by our estimate, and when the model itself finds it too long."""


class Voice:
    """The one way from sessions to models: through the proxy, with a key for each session."""

    def __init__(
        self,
        store: Store,
        events: EventLog,
        config: Config,
        keys: Keys,
        door: Door,
        files: Files,
        parked: Callable[[Session], Awaitable[object]],
        price: Callable[[str, Usage], float | None],
    ) -> None:
        self._price = price
        self._config = config
        self._keys = keys
        self._door = door
        self._files = files
        self._parked = parked
        self._journal = Journal(store, events, config.chat.steps)
        self._compaction = Compaction(self._journal, files)
        self._secrets: dict[str, tuple[str, str]] = {}
        self._making = asyncio.Lock()
        self._directory: int | None = None
        self._socket: Path | None = None
        self._listener: Listener | None = None
        self._client: ModelClient | None = None

    async def open(self) -> None:
        """Open the socket, and revoke the keys that an earlier server has left."""
        await self._keys.revoke_for_sessions()
        self._socket = await asyncio.to_thread(self._place)
        self._listener = await self._door.listen_unix(self._socket)
        self._client = ModelClient(self._socket)

    async def close(self) -> None:
        """Close the socket, once all that was said is kept. Idempotent."""
        await self._journal.close()
        client, self._client = self._client, None
        if client is not None:
            await client.close()
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.close()
        held, self._secrets = self._secrets, {}
        await asyncio.gather(*(self._keys.revoke(key_id) for key_id, _ in held.values()), return_exceptions=True)
        directory, self._directory = self._directory, None
        if directory is not None:
            os.close(directory)

    async def recover(self, session: Session) -> None:
        """Tell the end of messages that an earlier server has begun."""
        await self._journal.recover(session)

    async def endpoint(self, session: Session) -> tuple[str, str]:
        """Where the models of a session are asked: the path of a Unix socket, and a key."""
        assert self._socket is not None, "it is not open"
        return str(self._socket), await self._secret(session)

    async def forget(self, session_id: str) -> None:
        """The session is gone: revoke its key. Idempotent."""
        self._journal.forget(session_id)
        held = self._secrets.pop(session_id, None)
        if held is not None:
            try:
                await self._keys.revoke(held[0])
            except NotFound:
                pass

    def speaking(self, session: Session, turn: int) -> Speech:
        """For an agent that asks models by itself."""
        return Spoken(self._journal, session, turn)

    async def ask(
        self,
        session: Session,
        turn: int,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[ToolSpec] = (),
        *,
        by: str | None = None,
        fresh: bool = False,
    ) -> AsyncGenerator[Piece, None]:
        """Ask the model, as `Turn.ask` says.

        The same question within a turn cannot be told from one that is asked again after a restart, and gets the
        answer it got; a turn that is `fresh` has asked none yet. Raises `TurnLimit`, `BudgetSpent`, `ModelError`.
        """
        await self._journal.recover(session)
        question = Question(turn, question_digest(by, messages, tools))
        current, recorded = await self._journal.recall(session, question, fresh=fresh)
        await self._parked(current)
        await self._journal.limit(session, question, again=recorded is not None)
        if recorded is not None:
            for piece in _again(recorded):
                yield piece
            return
        check_budget(current, self._config.chat.budget)
        secret = await self._secret(session)
        answer = _Answer(Saying(self._journal, session, turn, await self._journal.count(session, turn), by))
        answer.saying.begin()
        asked = 0
        try:
            for share in _SMALLER:
                said = await self._prepared(session, current, messages, tools, secret, share)
                asked = tokens(said, self._config.chat.pictures)
                try:
                    async with aclosing(self._asking.ask(secret, current.model, said, tools)) as events:
                        async for event in events:
                            if (said_now := answer.take(event)) is not None:
                                yield said_now
                                await answer.saying.room()
                    break
                except ModelError as error:
                    if not error.too_long or answer.saying.started or share == _SMALLER[-1]:
                        raise
            calls = answer.calls()
            spent = self._priced(current.model, answer, asked)
            message = await answer.saying.finish(calls, spent, question, answer.finish)
        except ModelError as error:
            if error.status == 401:
                self._secrets.pop(session.id, None)
            spent = self._priced(current.model, answer, asked) if answer.saying.started else NOTHING
            await self._journal.bounded(answer.saying.cut(f"error: {error.message[:500]}", spent))
            raise
        except (asyncio.CancelledError, GeneratorExit):
            spent = self._priced(current.model, answer, asked) if asked else NOTHING
            await self._journal.bounded(answer.saying.cut("cancelled", spent))
            raise
        except Exception as error:
            spent = self._priced(current.model, answer, asked) if asked else NOTHING
            await self._journal.bounded(answer.saying.cut(f"error: {type(error).__name__}", spent))
            raise
        for call in message.calls:
            yield CallPiece(call)
        yield Reply(message, answer.finish, spent.input_tokens, spent.output_tokens)

    async def _prepared(
        self,
        session: Session,
        current: Session,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[ToolSpec],
        secret: str,
        share: float,
    ) -> list[dict[str, Any]]:
        """What the model is sent: short enough, with its newest pictures, in a way that every server takes."""
        chat = self._config.chat
        context = int(chat.contexts.get(current.model, chat.context) * share)
        described = sum(len(self._asking.described(tool)) for tool in tools) // 4
        room = max(context - described, context // 4)

        async def ask(said: Sequence[Mapping[str, Any]]) -> tuple[str, Spent]:
            return await self._gather(current, secret, said)

        said = await self._compaction.fit(current, messages, ask, room=room, pictures=chat.pictures)
        said = pictures.after_results(pictures.newest(said, chat.pictures))
        return await pictures.inline(said, lambda sha: self._files.read(session.id, sha))

    async def _gather(self, session: Session, secret: str, said: Sequence[Mapping[str, Any]]) -> tuple[str, Spent]:
        """Ask without telling anybody."""
        texts: list[str] = []
        kinds: dict[int, bool] = {}
        used: Usage | None = None
        async with aclosing(self._asking.ask(secret, session.model, said)) as events:
            async for event in events:
                if isinstance(event, PartStarted):
                    kinds[event.index] = isinstance(event.part, Text)
                    if isinstance(event.part, Text):
                        texts.append(event.part.text)
                elif isinstance(event, Delta) and kinds.get(event.index):
                    texts.append(event.text)
                elif isinstance(event, Finished):
                    used = event.usage
        text = "".join(texts)
        return text, self._cost(session.model, _spent(used, tokens(said, 0), len(text)), used)

    def _priced(self, model: str, answer: _Answer, asked: int) -> Spent:
        return self._cost(model, answer.spent(asked), answer.used)

    def _cost(self, model: str, spent: Spent, used: Usage | None) -> Spent:
        """What was spent, in money too; by estimate where the provider does not count."""
        return replace(spent, cost=self._price(model, used or Usage(spent.input_tokens, spent.output_tokens)))

    @property
    def _asking(self) -> ModelClient:
        if self._client is None:
            raise ModelError("the server is stopping", 503)
        return self._client

    async def _secret(self, session: Session) -> str:
        held = self._secrets.get(session.id)
        if held is None:
            async with self._making:
                held = self._secrets.get(session.id)
                if held is None:
                    key, secret = await self._keys.create(
                        SESSION_KEY + session.id,
                        session.tenant,
                        [Scope.LLM_USE],
                        terms=Terms(session=session.id),
                        owner=session.subject,
                    )
                    held = self._secrets[session.id] = key.id, secret
        return held[1]

    def _place(self) -> Path:
        """Where the socket is: in a directory that only we get to, and by way of a descriptor of it.

        A socket's address has room for 107 bytes, and the data directory's path may be longer.
        """
        directory = self._config.data / "agents"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)
        self._directory = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        return Path(f"/proc/self/fd/{self._directory}/models.sock")


@dataclass
class _Answer:
    """What comes of one question."""

    saying: Saying
    finish: str = "stop"
    used: Usage | None = None
    _kinds: dict[int, type] = field(default_factory=dict)
    _calls: dict[int, tuple[str, str, list[str]]] = field(default_factory=dict)
    _refused: bool = False
    _length: int = 0

    def take(self, event: object) -> Piece | None:
        """Tell what an event says, and give what an engine is to see of it at once. Raises `ModelError`."""
        self._bound(event)
        match event:
            case PartStarted(index=index, part=ToolCall() as part):
                call_id = f"call_{secrets.token_hex(12)}"
                self._calls[index] = (call_id, part.name, [])
                self.saying.call(call_id, part.name)
                if part.arguments:
                    self._more(index, part.arguments)
            case PartStarted(index=index, part=Text() | Thinking() | Refusal() as part):
                self._kinds[index] = type(part)
                self._refused = self._refused or isinstance(part, Refusal)
                return self._words(type(part), part.text)
            case Delta(index=index, text=text) if index in self._calls:
                self._more(index, text)
            case Delta(index=index, text=text) if index in self._kinds:
                return self._words(self._kinds[index], text)
            case Finished():
                self.finish = finish_reason(event.finish, refusal=self._refused)
                self.used = event.usage
        return None

    def _bound(self, event: object) -> None:
        """A model that never ends, or calls everything at once, is not to take the server with it."""
        match event:
            case PartStarted(part=ToolCall() as part):
                self._length += len(part.name) + len(part.arguments)
            case PartStarted(part=Text() | Thinking() | Refusal() as part):
                self._length += len(part.text)
            case Delta(text=text):
                self._length += len(text)
        if self._length > LONGEST_ANSWER:
            raise ModelError(f"the answer of the model is longer than {LONGEST_ANSWER} characters")
        if len(self._calls) > MOST_CALLS:
            raise ModelError(f"the model makes more than {MOST_CALLS} calls at once")

    def calls(self) -> tuple[Call, ...]:
        return tuple(read_call(call_id, name, "".join(pieces)) for call_id, name, pieces in self._calls.values())

    def spent(self, asked: int) -> Spent:
        """What it took, by the provider's count or by estimate."""
        written = sum(len(piece) for _, _, pieces in self._calls.values() for piece in pieces)
        return _spent(self.used, asked, self.saying.size + written)

    def _more(self, index: int, piece: str) -> None:
        call_id, _, pieces = self._calls[index]
        pieces.append(piece)
        self.saying.arguments(call_id, piece)

    def _words(self, kind: type, text: str) -> Piece | None:
        if not text:
            return None
        if kind is Thinking:
            self.saying.thought(text)
            return ThoughtPiece(text)
        self.saying.text(text)
        return TextPiece(text)


def read_call(call_id: str, name: str, written: str) -> Call:
    """A call with the arguments that the model wrote, or with what it wrote instead of any."""
    try:
        # Through JSON once more, so that it holds nothing that JSON cannot: no infinities, no halves of characters.
        plain = json.dumps(json.loads(written or "{}"), ensure_ascii=False, allow_nan=False)
        arguments = json.loads(plain.encode(errors="replace"))
    except (ValueError, RecursionError):
        return Call(id=call_id, name=name, malformed=written)
    if not isinstance(arguments, dict) or not shallow(arguments):
        return Call(id=call_id, name=name, malformed=written)
    return Call(id=call_id, name=name, arguments=arguments)


def _again(recorded: Recorded) -> list[Piece]:
    message = recorded.message
    pieces: list[Piece] = []
    if message.thought:
        pieces.append(ThoughtPiece(message.thought))
    if message.text:
        pieces.append(TextPiece(message.text))
    pieces += [CallPiece(call) for call in message.calls]
    return [*pieces, Reply(message, recorded.finish, recorded.input_tokens, recorded.output_tokens, again=True)]


def _spent(used: Usage | None, asked: int, said: int) -> Spent:
    if used is None:
        return Spent(asked, said // 4)
    return Spent(used.input, used.output)
