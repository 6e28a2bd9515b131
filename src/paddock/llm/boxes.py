"""Lets every sandbox reach the proxy: a socket and a key of its own, and the variables that programs look for.

The socket tells which sandbox asks, whatever key it shows. The key goes into the box and nowhere else: only its digest
is stored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import structlog
from pydantic import ValidationError

from paddock.auth.keys import Keys
from paddock.config.llm import LlmConfig
from paddock.errors import ConfigError, InvalidInput, PaddockError
from paddock.fleet.requests import CreateSandbox
from paddock.fleet.sockets import hole_socket
from paddock.llm.callers import pattern_of
from paddock.llm.extensions import EXTENSION, EXTENSIONS
from paddock.llm.scripted import script_name
from paddock.llm.wire.server import Door, Listener
from paddock.model.keys import Rates, Scope, Terms
from paddock.model.sandbox import Hole, Sandbox

NAME = "llm"
PORT = 8421
"""Where the proxy is in every box, on 127.0.0.1."""
CONNECTIONS = 256
"""That one box may have open at a time."""
BUDGET = "budget-"
RUN = f"{EXTENSION}.run"
KEPT_FOR = timedelta(hours=1)
"""How long the key of a sandbox that has ended stays known, so that whoever shows it is told why it fails."""
log = structlog.get_logger()


@dataclass(frozen=True)
class Wishes:
    """What the owner of a sandbox has asked for in its extensions."""

    wanted: bool
    terms: Terms


class Boxes:
    """The attendant of a fleet that lets its sandboxes ask models."""

    def __init__(self, settings: LlmConfig, keys: Keys, door: Door) -> None:
        self._terms = default_terms(settings)
        self._keys = keys
        self._door = door
        self._served: dict[str, Listener] = {}
        self._on = settings.sandboxes
        self._has_models = bool(settings.models)

    @property
    def holes(self) -> tuple[Hole, ...]:
        return (Hole(name=NAME, port=PORT),) if self._on else ()

    def check(self, request: CreateSandbox) -> None:
        """Raise `InvalidInput` for extensions that make no sense, and holes where ours is."""
        read_wishes(request.extensions, self._terms)
        if self._on and any(hole.name == NAME or hole.port == PORT for hole in request.holes):
            raise InvalidInput(f"the hole {NAME} and port {PORT} of a sandbox are those of the LLM proxy; use others")

    async def prepare(self, sandbox: Sandbox) -> Mapping[str, str]:
        """Make the sandbox's key, and say where the proxy is, in all the ways that programs know."""
        wishes = read_wishes(sandbox.extensions, self._terms)
        if not (self._serves(sandbox) and wishes.wanted):
            return {}
        terms = wishes.terms.model_copy(update={"sandbox": sandbox.id})
        _, secret = await self._keys.create(
            f"sandbox {sandbox.id}",
            sandbox.tenant,
            [Scope.LLM_USE],
            sandbox.expires_at,
            terms=terms,
            owner=sandbox.subject,
        )
        return variables(secret, sandbox.env)

    async def started(self, sandbox: Sandbox, holes: Path) -> None:
        """Serve the sandbox's socket, in place of what an earlier server has left there."""
        if not (self._serves(sandbox) and sandbox.extensions.get(EXTENSION, "on").strip() == "on"):
            return
        serving = await self._listen(holes, sandbox.id)
        earlier = self._served.pop(sandbox.id, None)
        self._served[sandbox.id] = serving
        if earlier is not None:
            await earlier.close()

    async def renewed(self, sandbox: Sandbox) -> None:
        """Let its key work as long as itself."""
        if sandbox.expires_at is not None:
            await self._keys.prolong_for_sandbox(sandbox.id, sandbox.expires_at)

    async def ended(self, sandbox_id: str) -> None:
        """Close its socket and revoke its key, whatever becomes of either."""
        serving = self._served.pop(sandbox_id, None)
        if serving is not None:
            await serving.close()
        try:
            await self._keys.revoke_for_sandbox(sandbox_id)
        except PaddockError as error:
            # Without its socket the key is good for nothing; `attended` will tell of it again.
            log.warning("the key of a sandbox could not be revoked yet", sandbox=sandbox_id, error=str(error))

    async def attended(self) -> Collection[str]:
        """Sandboxes that have a socket or a key. Keys of long ended ones are forgotten on the way."""
        await self._keys.forget_sandboxes(KEPT_FOR)
        return {*self._served, *await self._keys.sandboxes()}

    async def close(self) -> None:
        """Stop serving. Boxes keep their keys, and the next server serves them again."""
        while self._served:
            await self._served.popitem()[1].close()

    def _serves(self, sandbox: Sandbox) -> bool:
        """Whether there is anything to ask: without models, only the scripts of runs."""
        return self._on and (self._has_models or RUN in sandbox.extensions)

    async def _listen(self, holes: Path, sandbox_id: str) -> Listener:
        listener: Listener | None = None
        try:
            async with hole_socket(holes, NAME) as bound:
                listener = await self._door.listen(bound, sandbox_id, max_connections=CONNECTIONS)
        except BaseException:
            if listener is not None:
                await listener.close()
            raise
        return listener


def variables(secret: str, env: Mapping[str, str]) -> dict[str, str]:
    """What programs in a box look for, but nothing for a family of which the box's owner has set anything."""
    address = f"http://127.0.0.1:{PORT}"
    families = (
        {"PADDOCK_LLM_URL": address, "PADDOCK_LLM_KEY": secret},
        {"OPENAI_BASE_URL": f"{address}/v1", "OPENAI_API_KEY": secret},
        {"ANTHROPIC_BASE_URL": address, "ANTHROPIC_API_KEY": secret},
        {"GOOGLE_GEMINI_BASE_URL": address, "GEMINI_API_KEY": secret},
    )
    others = {"ANTHROPIC_BASE_URL": {"ANTHROPIC_AUTH_TOKEN"}, "GOOGLE_GEMINI_BASE_URL": {"GOOGLE_API_KEY"}}
    found: dict[str, str] = {}
    for family in families:
        names = family.keys() | others.get(next(iter(family)), set())
        if names.isdisjoint(env):
            found |= family
    return found


def default_terms(settings: LlmConfig) -> Terms:
    """What sandboxes may ask that say nothing of it. Raises `ConfigError`."""
    try:
        return Terms(models=settings.sandbox_models, limits=Rates(**settings.sandbox_limits.model_dump()))
    except ValidationError as error:
        raise ConfigError(f"llm.sandbox_models: {_first(error)[1]}") from None


def read_wishes(extensions: Mapping[str, str], defaults: Terms) -> Wishes:
    """What a sandbox's extensions ask for, within what all sandboxes may. Raises `InvalidInput`."""
    said = {name: value.strip() for name, value in extensions.items() if name.startswith(EXTENSION)}
    if not said:
        return Wishes(True, defaults)
    unknown = sorted(said.keys() - EXTENSIONS)
    if unknown:
        raise InvalidInput(f"extensions: there is no {unknown[0][:80]}; known are {', '.join(sorted(EXTENSIONS))}")
    switch = said.pop(EXTENSION, "on")
    if switch not in ("on", "off"):
        raise InvalidInput(f"extensions.{EXTENSION}: write on or off")
    wish: dict[str, Any] = {name.removeprefix(f"{EXTENSION}."): value for name, value in said.items()}
    models = [model.strip() for model in wish.pop("models", "").split(",") if model.strip()]
    budget = {name.removeprefix(BUDGET): wish.pop(name) for name in list(wish) if name.startswith(BUDGET)}
    try:
        terms = Terms(models=tuple(models) or defaults.models, budget=budget, limits=defaults.limits, **wish)
    except ValidationError as error:
        where, problem = _first(error)
        raise InvalidInput(f"extensions.{EXTENSION}.{where}: {problem}") from None
    # The script of a run is no model of anybody's, and answers that run only.
    own = (script_name(terms.run),) if terms.run else ()
    allowed = pattern_of((*defaults.models, *own)) if defaults.models else None
    # What a pattern with a star fits under another, everything fits that it stands for.
    if beyond := [model for model in terms.models if allowed and not allowed.fullmatch(model)]:
        there = ", ".join(defaults.models)
        raise InvalidInput(f"extensions.{EXTENSION}.models: sandboxes may not ask for {beyond[0]}, only for {there}")
    return Wishes(switch == "on", terms)


def _first(error: ValidationError) -> tuple[str, str]:
    """Which wish a problem is with, and what it is."""
    problem = error.errors(include_url=False, include_input=False)[0]
    where = "-".join(str(part) for part in problem["loc"] if isinstance(part, str))
    return where, f"{problem['msg'][:1].lower()}{problem['msg'][1:]}"
