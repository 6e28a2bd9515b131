"""Measured chat sessions and the server that runs them."""

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
from peers import Paddock

TENANT = "default"
SHORT, LONG, BUSY = "short", "long", "busy"
TOKENS = 4000
CALLS = 40
WORDS = (
    "paddock agent sandbox report quarter invoice table window browser file folder answer question picture month "
    "number customer order budget network printer keyboard screen person letter minute yellow market"
).split()
RARE = "heliotrope"


def scripted(directory: Path) -> dict[str, object]:
    """Settings of the proxy with models that follow scripts: a short answer, a long one, and a call every second."""
    said = " ".join(random.Random(7).choice(WORDS) for _ in range(TOKENS))
    look = {"call": {"tool": "code_list_directory", "arguments": {"path": "/workspace"}}}
    wait = {"stall": {"seconds": 1, "times": "always"}}
    busy = [
        [wait, {**look, "call": {**look["call"], "arguments": {"path": f"/{'.' * (n % 2)}"}}}] for n in range(CALLS)
    ]
    scripts = {
        SHORT: {"rules": [{"when": {"last": "."}, "do": [{"say": "Good morning to you."}]}]},
        LONG: {"rules": [{"when": {"last": "."}, "do": [{"say": said}]}]},
        BUSY: {"turns": [*busy, {"say": "Done."}]},
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
        model=SHORT,
        kinds=("code",),
        created_at=now,
        changed_at=now,
    )


async def fill(data: Path, messages: int, events: int) -> str:
    """Write sessions into a data directory before its server starts; the one with so many events is returned."""
    data.mkdir(parents=True)
    words = random.Random(11)
    now = datetime.now(UTC)
    async with await Store.open(data / "paddock.db") as store:
        log = await EventLog.open(store)
        for number in range(messages // 1000):
            session = _session(number, now)

            def work(connection: Any, session: Session = session) -> None:
                SessionStore.begin(connection, session)
                for place in range(1000):
                    text = " ".join(words.choice(WORDS) for _ in range(40))
                    if place == 500 and session.id.endswith("7"):
                        text += f" {RARE}"
                    SessionStore.keep(
                        connection,
                        SessionMessage(
                            id=f"msg-{place}",
                            session=session.id,
                            turn=place // 4 + 1,
                            role="assistant" if place % 2 else "user",
                            content=(TextContent(text=text),),
                            at=now,
                        ),
                    )

            await store.write(work)
        session = _session(0, now)
        for _ in range(events):
            told = MessageDelta(message_id="msg-1", text=words.choice(WORDS))
            await log.append(f"session/{session.id}", told.event, told.data(), tenant=TENANT)
        log.close()
    return session.id


class Chats(Paddock):
    """A server that people chat on."""

    async def begin(self, **settings: Any) -> str:
        body = {"agent": "langgraph", "kinds": ["code"], "policy": {"allow_all": ["*"]}, **settings}
        return str((await self._call("POST", "/sessions", json=body))["id"])

    async def end(self, session: str) -> None:
        await self._call("DELETE", f"/sessions/{session}")

    async def straight(self, model: str, words: str) -> float:
        """Seconds from asking a model, with nothing between but the proxy, to the first word of its answer."""
        body = {"model": model, "stream": True, "messages": [{"role": "user", "content": words}]}
        return await self.asked(json.dumps(body).encode())

    async def asked(self, body: bytes) -> float:
        """Seconds from sending a request to the proxy to the first word of the answer."""
        headers = {"Content-Type": "application/json"}
        began = time.perf_counter()
        async with self._session.post(f"{self._url}/v1/chat/completions", data=body, headers=headers) as answer:
            async for line in answer.content:
                if b'"content":"' in line.replace(b" ", b"") and b'"content":""' not in line.replace(b" ", b""):
                    took = time.perf_counter() - began
                    await answer.read()
                    return took
        raise RuntimeError("there was no answer")

    async def last_request(self, session: str) -> bytes:
        """Return the last model request of a session, byte for byte."""
        async with asyncio.timeout(10):
            while not (items := (await self.get("/exchanges", session=session, limit="1"))["items"]):
                await asyncio.sleep(0.05)
        address = f"{self._url}/v1/exchanges/{items[0]['id']}"
        async with self._session.get(address, params={"raw": "request"}) as answer:
            return await answer.read()

    async def through(self, session: str, words: str) -> float:
        """Seconds from sending a message to the first word of the agent's answer."""
        began = time.perf_counter()
        took = 0.0
        headers = {"Accept": "text/event-stream"}
        address = f"{self._url}/v1/sessions/{session}/messages"
        async with self._session.post(address, json={"text": words}, headers=headers) as answer:
            if answer.status >= 400:
                raise RuntimeError(await answer.text())
            async for line in answer.content:
                if line == b"event: message.delta\n" and not took:
                    took = time.perf_counter() - began
        if not took:
            raise RuntimeError("there was no answer")
        return took

    async def view(self, session: str) -> AsyncIterator[tuple[float, Mapping[str, Any]]]:
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

    async def get(self, path: str, **query: str) -> Any:
        return await self._call("GET", path, params=query, headers={"Accept": "application/json"})
