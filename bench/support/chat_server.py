"""A server with scripted chat sessions, and timers of its requests."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from paddock.events.event_log import EventLog
from paddock.model.session_events import MessageDelta
from paddock.model.sessions import Session, SessionMessage, TextContent
from paddock.store.chat_sessions.session_store import SessionStore
from paddock.store.database import Store
from support.paddock_server import PaddockServer

TENANT = "default"
SHORT_MODEL, LONG_MODEL, BUSY_MODEL = "short", "long", "busy"
REPLY_TOKENS = 4000
BUSY_CALLS = 40
VOCABULARY = (
    "paddock agent sandbox report quarter invoice table window browser file folder answer question picture month "
    "number customer order budget network printer keyboard screen person letter minute yellow market"
).split()
RARE_WORD = "heliotrope"


def scripted_model_settings(directory: Path) -> dict[str, object]:
    """Return proxy settings with scripted models: a short reply, a long one, and a tool call every second."""
    long_reply = " ".join(random.Random(7).choice(VOCABULARY) for _ in range(REPLY_TOKENS))
    look = {"call": {"tool": "code_list_directory", "arguments": {"path": "/workspace"}}}
    wait = {"stall": {"seconds": 1, "times": "always"}}
    busy = [
        [wait, {**look, "call": {**look["call"], "arguments": {"path": f"/{'.' * (n % 2)}"}}}]
        for n in range(BUSY_CALLS)
    ]
    scripts = {
        SHORT_MODEL: {"rules": [{"when": {"last": "."}, "do": [{"say": "Good morning to you."}]}]},
        LONG_MODEL: {"rules": [{"when": {"last": "."}, "do": [{"say": long_reply}]}]},
        BUSY_MODEL: {"turns": [*busy, {"say": "Done."}]},
    }
    providers: dict[str, object] = {}
    for name, script in scripts.items():
        (directory / f"{name}.yaml").write_text(json.dumps(script))
        providers[name] = {"kind": "script", "file": str(directory / f"{name}.yaml")}
    return {"environment": False, "providers": providers, "models": {name: name for name in scripts}}


def _session(number: int, now: datetime) -> Session:
    return Session(
        id=f"ses-{number:016x}",
        tenant=TENANT,
        title=f"Session {number}",
        agent="langgraph",
        engine="langgraph",
        model=SHORT_MODEL,
        kinds=("code",),
        created_at=now,
        changed_at=now,
    )


async def write_sessions(data: Path, messages: int, events: int) -> str:
    """Write sessions into a data directory before its server starts; return the id of the one with the events."""
    data.mkdir(parents=True)
    generator = random.Random(11)
    now = datetime.now(UTC)
    async with await Store.open(data / "paddock.db") as store:
        log = await EventLog.open(store)
        for number in range(messages // 1000):
            session = _session(number, now)

            def write_session(connection: Any, session: Session = session) -> None:
                SessionStore.insert_session(connection, session)
                for index in range(1000):
                    text = " ".join(generator.choice(VOCABULARY) for _ in range(40))
                    if index == 500 and session.id.endswith("7"):
                        text += f" {RARE_WORD}"
                    SessionStore.store_message(
                        connection,
                        SessionMessage(
                            id=f"msg-{index}",
                            session=session.id,
                            turn=index // 4 + 1,
                            role="assistant" if index % 2 else "user",
                            content=(TextContent(text=text),),
                            at=now,
                        ),
                    )

            await store.write(write_session)
        session = _session(0, now)
        for _ in range(events):
            delta = MessageDelta(message_id="msg-1", text=generator.choice(VOCABULARY))
            await log.append(f"session/{session.id}", delta.event, delta.data(), tenant=TENANT)
        log.close()
    return session.id


class ChatServer(PaddockServer):
    """A server with chat sessions."""

    async def create_session(self, **settings: Any) -> str:
        body = {"agent": "langgraph", "kinds": ["code"], "policy": {"allow_all": ["*"]}, **settings}
        return str((await self._call("POST", "/sessions", json=body))["id"])

    async def delete_session(self, session: str) -> None:
        await self._call("DELETE", f"/sessions/{session}")

    async def time_direct_request(self, model: str, text: str) -> float:
        """Return the seconds from a request to a model, through the proxy alone, to the first word of its reply."""
        body = {"model": model, "stream": True, "messages": [{"role": "user", "content": text}]}
        return await self.time_request(json.dumps(body).encode())

    async def time_request(self, body: bytes) -> float:
        """Return the seconds from sending a request to the proxy to the first word of the reply."""
        headers = {"Content-Type": "application/json"}
        started = time.perf_counter()
        async with self._session.post(f"{self._url}/v1/chat/completions", data=body, headers=headers) as response:
            async for line in response.content:
                if b'"content":"' in line.replace(b" ", b"") and b'"content":""' not in line.replace(b" ", b""):
                    elapsed = time.perf_counter() - started
                    await response.read()
                    return elapsed
        raise RuntimeError("there was no answer")

    async def last_model_request(self, session: str) -> bytes:
        """Return the last model request of a session, byte for byte."""
        async with asyncio.timeout(10):
            while not (items := (await self.get_json("/exchanges", session=session, limit="1"))["items"]):
                await asyncio.sleep(0.05)
        address = f"{self._url}/v1/exchanges/{items[0]['id']}"
        async with self._session.get(address, params={"raw": "request"}) as answer:
            return await answer.read()

    async def time_chat_message(self, session: str, text: str) -> float:
        """Return the seconds from sending a message to the first word of the agent's reply."""
        started = time.perf_counter()
        elapsed = 0.0
        headers = {"Accept": "text/event-stream"}
        address = f"{self._url}/v1/sessions/{session}/messages"
        async with self._session.post(address, json={"text": text}, headers=headers) as response:
            if response.status >= 400:
                raise RuntimeError(await response.text())
            async for line in response.content:
                if line == b"event: message.delta\n" and not elapsed:
                    elapsed = time.perf_counter() - started
        if not elapsed:
            raise RuntimeError("there was no answer")
        return elapsed

    async def follow_events(self, session: str) -> AsyncIterator[tuple[float, Mapping[str, Any]]]:
        """Yield events of a session with their delay in seconds."""
        headers = {"Accept": "text/event-stream"}
        timeout = aiohttp.ClientTimeout(total=None)
        address = f"{self._url}/v1/sessions/{session}/events"
        async with self._session.get(address, headers=headers, timeout=timeout) as answer:
            async for line in answer.content:
                if line.startswith(b"data: "):
                    now = time.time()
                    event = json.loads(line[6:])
                    yield now - datetime.fromisoformat(event["at"]).timestamp(), event

    async def get_json(self, path: str, **query: str) -> Any:
        return await self._call("GET", path, params=query, headers={"Accept": "application/json"})
