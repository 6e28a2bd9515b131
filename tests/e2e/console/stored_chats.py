"""Chats written directly into a server's database before it starts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import Connection, insert

from paddock.model.keys import DEFAULT_TENANT
from paddock.model.session_events import (
    CallReady,
    CallResulted,
    CallRunning,
    MessageEnded,
    MessageReceived,
    MessageStarted,
    SessionCreated,
    SessionEvent,
    TurnEnded,
    TurnStarted,
)
from paddock.model.sessions import CallResult, Session, SessionMessage, TextContent, ToolCall
from paddock.store.chat_sessions.session_log_entries import session_log_entries
from paddock.store.chat_sessions.session_store import SessionStore, session_model_to_row
from paddock.store.database import Store
from paddock.store.tables import events, session_messages

STARTED_AT = datetime.now(UTC) - timedelta(hours=2)


class StoredChat:
    """A fabricated chat: its session, events and messages."""

    def __init__(self, session_id: str, title: str, model: str = "plain") -> None:
        self.session = Session(
            id=session_id,
            tenant=DEFAULT_TENANT,
            title=title,
            agent="langgraph",
            engine="langgraph",
            model=model,
            kinds=("code",),
            created_at=STARTED_AT,
            changed_at=STARTED_AT,
        )
        self.events: list[SessionEvent] = [
            SessionCreated(title=title, agent="langgraph", model=model, kinds=("code",)),
        ]
        self.messages: list[SessionMessage] = []
        self._turn = 0

    @property
    def id(self) -> str:
        return self.session.id

    def add_turn(
        self, question: str, answer: str, *, results: Mapping[str, str] | None = None, by: str | None = None
    ) -> None:
        """Add a question and a reply, preceded by commands with these results."""
        self._turn += 1
        self.session = self.session.model_copy(update={"turn": self._turn})
        self._add_user_message(question, by)
        self.events.append(TurnStarted(turn=self._turn, cause="message"))
        calls = [
            ToolCall(id=f"call-{self._turn}-{number}", name="code_run_shell_command", arguments={"command": command})
            for number, command in enumerate(results or {})
        ]
        self._add_reply(answer, calls)
        for call, result in zip(calls, (results or {}).values(), strict=True):
            self.events += [
                CallReady(call=call, kind="code", tool="run_shell_command"),
                CallRunning(call_id=call.id),
                CallResulted(call_id=call.id, result=CallResult(content=(TextContent(text=result),), seconds=0.1)),
            ]
        self.events.append(TurnEnded(turn=self._turn, state="done"))

    def _add_user_message(self, text: str, by: str | None) -> None:
        message = self._create_message("user", text).model_copy(update={"by": by})
        self.messages.append(message)
        self.events.append(MessageReceived(message=message))

    def _add_reply(self, text: str, calls: Sequence[ToolCall]) -> None:
        message = self._create_message("assistant", text).model_copy(update={"calls": tuple(calls)})
        self.messages.append(message)
        self.events += [
            MessageStarted(message_id=message.id, turn=self._turn, step=1),
            MessageEnded(message_id=message.id, text=text, calls=tuple(calls)),
        ]

    def _create_message(self, role: str, text: str) -> SessionMessage:
        number = len(self.messages) + 1
        return SessionMessage.model_validate(
            {
                "id": f"msg-{number}",
                "session": self.id,
                "number": number,
                "turn": self._turn,
                "role": role,
                "content": [{"type": "text", "text": text}],
                "at": STARTED_AT + timedelta(seconds=number),
            }
        )


def create_long_chat(session_id: str, messages: int) -> StoredChat:
    """Return a chat with this number of messages; each contains its own number."""
    chat = StoredChat(session_id, f"{messages} messages")
    for number in range(1, messages, 2):
        more = " and more of it" * (number % 7)
        chat.add_turn(f"Question {number}{more}?", f"Answer **{number + 1}**{more}.\n\n- one\n- two")
    return chat


def write_chats(data: Path, chats: Sequence[StoredChat]) -> None:
    """Write chats into the database of a server that is not running."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    asyncio.run(_write_chats(data, chats))


async def _write_chats(data: Path, chats: Sequence[StoredChat]) -> None:
    async with await Store.open(data / "paddock.db") as store:
        for chat in chats:

            def insert_chat(connection: Connection, chat: StoredChat = chat) -> None:
                SessionStore.insert_session(connection, chat.session)
                # In bulk: single inserts of thousands of rows would take too long.
                if chat.messages:
                    connection.execute(
                        insert(session_messages), [session_model_to_row(message) for message in chat.messages]
                    )
                rows = [each._asdict() for each in session_log_entries(chat.session, *chat.events, at=STARTED_AT)]
                connection.execute(insert(events), [{**each, "number": number} for number, each in enumerate(rows, 1)])

            await store.write(insert_chat)
