"""Gets an answer from whoever can give one: asks again after passing trouble, then asks the fallbacks.

All of it happens before the client has been sent a byte. An answer that breaks off later cannot be mended here.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from dataclasses import dataclass

from paddock.errors import PaddockError
from paddock.llm.callers import Holder
from paddock.llm.calls import Call
from paddock.llm.exchange import Exchange
from paddock.llm.formats.failures import kind_of
from paddock.llm.formats.registry import FORMATS
from paddock.llm.limits import Limits, Permit
from paddock.llm.neutral import Failure
from paddock.llm.offload.pool import WorkerPool
from paddock.llm.passing import retry_after, value_of
from paddock.llm.preparing import Prepared, prepare
from paddock.llm.provider_advice import address_advice
from paddock.llm.providers.base import Answered, Ask, says_bad_key
from paddock.llm.providers.http import HttpProvider
from paddock.llm.providers.replay import Miss, ReplayProvider
from paddock.llm.routes import Route, Routes
from paddock.llm.wire.base import Broken, CannotConnect, Headers, HttpRequest, TimedOut, UpstreamError

RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
CLIENTS_FAULT = frozenset({400, 413, 422})
"""What another provider would most likely refuse too."""
PROVIDER_KEY_REFUSED = "provider_key_refused"
"""The code of errors about the key that a provider is configured with, which is not the client's."""
BACKOFF = 0.25
LONGEST_BACKOFF = 4.0
LONGEST_WAIT = 5.0
"""Seconds a provider may ask to be left alone for and still be asked again; clients can wait longer than we do."""


class NoAnswer(Exception):
    """Nobody answered, or the last one asked said no."""

    def __init__(
        self,
        failure: Failure,
        *,
        wait: float | None = None,
        passing: bool = True,
        told: tuple[str, Headers, bytes] | None = None,
    ) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.wait = wait
        """Seconds after which asking again may help."""
        self.passing = passing
        """Whether asking again may help at all."""
        self.told = told
        """The provider's own words, when it spoke: its format, its headers and the body."""


@dataclass(slots=True)
class Given:
    """A provider's answer, of which the whole body or the first piece is there."""

    route: Route
    prepared: Prepared
    answered: Answered
    body: bytes
    streams: bool
    """Whether more pieces follow `body`."""
    recorder: ReplayProvider | None = None
    """A recording that had no answer, and learns this one."""


class Asker:
    def __init__(self, routes: Routes, limits: Limits, workers: WorkerPool) -> None:
        self._workers = workers
        self._routes = routes
        self._limits = limits

    def enter(self, holder: Holder | None, route: Route) -> Permit:
        """Leave to ask; without a holder, for a fallback of a request that was let in already. Raises `TooMany`."""
        return self._limits.enter(
            holder, route.name, route.settings.limits, route.provider.name, route.provider_settings.limits
        )

    async def ask(
        self, call: Call, http: HttpRequest, exchange: Exchange, route: Route, permits: list[Permit]
    ) -> Given:
        """Ask until somebody answers. Raises `NoAnswer`, and `PaddockError` for a request that cannot be said.

        Leave to ask the fallbacks is added to `permits`.
        """
        problem: NoAnswer | PaddockError | None = None
        recorder: ReplayProvider | None = None
        waiting = deque([route, *self._routes.fallbacks(route)])
        asked: list[tuple[str, str]] = []
        while waiting:
            candidate = waiting.popleft()
            if (candidate.name, candidate.model) in asked:
                continue  # Recordings may send to each other what none of them has.
            if asked:
                exchange.notes.append(f"{asked[-1][0]} did not answer; asked {candidate.name}")
            asked.append((candidate.name, candidate.model))
            exchange.route, exchange.provider = candidate.name, candidate.provider.name
            exchange.provider_kind, exchange.provider_model = candidate.provider.kind, candidate.model
            try:
                if candidate is not route:
                    permits.append(self.enter(None, candidate))
                given = await self._allowed(call, http, exchange, candidate)
            except Miss as miss:
                exchange.notes.append(f"{candidate.provider.name} has no answer: {miss.reason}")
                if isinstance(candidate.provider, ReplayProvider):
                    recorder = candidate.provider
                waiting.appendleft(self._routes.resolve(miss.model))
            except NoAnswer as error:
                problem = error
                if error.failure.status in CLIENTS_FAULT:
                    break
            except PaddockError as error:
                # What the first cannot be told, the client must say otherwise; that a fallback understands it is luck.
                problem = problem or error
                if candidate is route:
                    break
            else:
                given.recorder = recorder
                return given
        raise problem or NoAnswer(Failure(404, "no recording has an answer", kind_of(404)), passing=False)

    async def _allowed(self, call: Call, http: HttpRequest, exchange: Exchange, route: Route) -> Given:
        """Ask one, unless it keeps failing and is left alone."""
        wait = route.circuit.allow()
        if wait is not None:
            message = f"provider {route.provider.name} is failing; it is asked again in {math.ceil(wait)} s"
            raise NoAnswer(Failure(503, message, "overloaded_error"), wait=wait)
        try:
            prepared = await prepare(call, http, exchange, route, self._workers)
            exchange.provider_format = prepared.ask.format
            try:
                return await self._once(prepared, route)
            except NoAnswer as error:
                return await self._again(error, prepared, exchange, route)
        except NoAnswer:
            raise
        except BaseException:
            route.circuit.cancelled()
            raise

    async def _again(self, problem: NoAnswer, prepared: Prepared, exchange: Exchange, route: Route) -> Given:
        """Ask once more after passing trouble, as often as that may help."""
        for attempt in range(route.provider_settings.retries):
            if not problem.passing:
                break
            pause = min(BACKOFF * 2**attempt, LONGEST_BACKOFF) * random.uniform(0.5, 1.0)  # noqa: S311
            if problem.wait is not None:
                if problem.wait > LONGEST_WAIT:
                    break
                pause = problem.wait
            exchange.retries += 1
            exchange.notes.append(f"asked {route.provider.name} again: {problem.failure.message[:200]}")
            await asyncio.sleep(pause)
            try:
                return await self._once(prepared, route)
            except NoAnswer as error:
                problem = error
        raise problem

    async def _once(self, prepared: Prepared, route: Route) -> Given:
        ask = prepared.ask
        answered: Answered | None = None
        try:
            answered = await route.provider.send(ask)
            if answered.status < 300:
                given = await _received(prepared, route, answered)
                route.circuit.succeeded()
                self._routes.keys.accepted(route.provider.name)
                self._routes.answered.add(route.provider.name)
                answered = None
                return given
            body = await answered.read()
            for secret in route.provider.secrets:
                body = body.replace(secret, b"[redacted]")
        except UpstreamError as error:
            route.circuit.failed()
            raise _unreached(ask, route, error) from None
        finally:
            if answered is not None:
                answered.close()
        if answered.status >= 500:
            route.circuit.failed()
        else:
            route.circuit.succeeded()
        if _about_key(answered.status, body):
            self._routes.keys.refused(route.provider.name, answered.status)
        raise _refused(ask, route, answered, body, self._routes.key_advice(route.provider.name))


async def _received(prepared: Prepared, route: Route, answered: Answered) -> Given:
    """The answer once its first piece is there, which is when it can no longer be asked for again."""
    ask = prepared.ask
    kind = value_of(answered.headers, b"content-type").lower()
    if kind.startswith(b"text/html"):
        raise Broken(f"provider {route.provider.name} answered with a web page; check its base_url")
    streams = ask.stream and (kind.startswith(b"text/event-stream") or ask.array or not kind)
    if not streams:
        body = await answered.read()
        answered.close()
        return Given(route, prepared, answered, body, streams=False)
    first = await answered.piece()
    if not first:
        raise Broken("the answer ended before it began")
    return Given(route, prepared, answered, first, streams=True)


def _unreached(ask: Ask, route: Route, error: UpstreamError) -> NoAnswer:
    status = 504 if isinstance(error, TimedOut) else 502
    message = f"provider {route.provider.name}: {error}"
    if isinstance(error, CannotConnect):
        message += _address_advice(ask, route)
    return NoAnswer(Failure(status, message, kind_of(status)), passing=error.retryable)


def _about_key(status: int, body: bytes) -> bool:
    return status in (401, 403) or says_bad_key(status, body)


def _address_advice(ask: Ask, route: Route) -> str:
    """What to check about the address; sandboxes are not told addresses of the server's network."""
    return address_advice(route.provider_settings) if ask.caller.sandbox is None else ""


def _refused(ask: Ask, route: Route, answered: Answered, body: bytes, key_advice: str) -> NoAnswer:
    status = answered.status
    wait = retry_after(answered.headers)
    if _about_key(status, body):
        # Providers quote parts of the key they refuse, and it is not the client's.
        message = (
            f"provider {route.provider.name} refused the key it is configured with (status {status}); {key_advice}"
        )
        if route.provider_settings.key is None:
            said = FORMATS[ask.format].read_failure(status, body).message
            message = f"provider {route.provider.name} has no key (llm.providers.{route.provider.name}.key): {said}"
        told = 401 if status == 400 else status
        return NoAnswer(Failure(told, message, kind_of(told), PROVIDER_KEY_REFUSED), passing=False)
    if status < 400:
        message = f"provider {route.provider.name} answered with status {status}; check its base_url"
        return NoAnswer(Failure(502, message, kind_of(502)), passing=False)
    failure = FORMATS[ask.format].read_failure(status, body)
    about_model = ask.model in failure.message or "model" in failure.message.lower()
    if status in (404, 405) and isinstance(route.provider, HttpProvider) and not about_model:
        # The path is not there: the address is wrong.
        message = f"provider {route.provider.name}: {failure.message} (status {status}){_address_advice(ask, route)}"
        return NoAnswer(Failure(status, message, failure.kind, failure.code), passing=False)
    quoted = route.provider.secrets
    headers = [pair for pair in answered.headers if not any(secret in pair[1] for secret in quoted)]
    shown = (ask.format, headers, body)
    return NoAnswer(failure, wait=wait, passing=status in RETRIED, told=shown)
