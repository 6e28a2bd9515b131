"""Give each sandbox access to the proxy: a socket, a key, and the environment variables of model clients.

The socket identifies the sandbox regardless of the key. The key exists only inside the sandbox: the server stores just
its digest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import structlog
from pydantic import ValidationError

from paddock.auth.api_keys import ApiKeys
from paddock.config.llm import LlmConfig
from paddock.errors import ConfigError, InvalidInput, PaddockError
from paddock.fleet.fleet_requests import SandboxRequest
from paddock.fleet.uplink_sockets import publish_uplink_socket
from paddock.llm.gateway.llm_extension_names import LLM_EXTENSION, LLM_EXTENSIONS
from paddock.llm.gateway.model_catalog import ModelCatalog
from paddock.llm.metering.key_authentication import compile_model_pattern
from paddock.llm.providers.run_scripts import script_model_name
from paddock.llm.wire.http_server import HttpListener, HttpServer
from paddock.llm.wire.memory_budget import TenantMemoryBudgets
from paddock.model.keys import ApiKeyTerms, KeyRateLimits, Scope
from paddock.model.sandbox import Sandbox, UplinkService

LLM_UPLINK_NAME = "llm"
LLM_UPLINK_PORT = 8421
"""Port of the proxy in every sandbox, on 127.0.0.1."""
MAX_CONNECTIONS = 256
"""Maximum open connections of one sandbox."""
BUDGET_PREFIX = "budget-"
_MODEL_PREFIXES = {
    "PADDOCK_LLM_URL": "PADDOCK_",
    "OPENAI_BASE_URL": "OPENAI_",
    "ANTHROPIC_BASE_URL": "ANTHROPIC_",
    "GOOGLE_GEMINI_BASE_URL": "GEMINI_",
}
"""What the variables of default models begin with, by the first variable of their family."""
_DEFAULT_MODEL_SECONDS = 5.0
"""How long computed default models are reused, because patterns may match many models."""
_MAX_KNOWN_TERMS = 1000
RUN_ID_EXTENSION = f"{LLM_EXTENSION}.run"
REVOKED_KEY_RETENTION = timedelta(hours=1)
"""How long the key of an ended sandbox is kept, so that requests with it get a specific error."""
log = structlog.get_logger()


@dataclass(frozen=True)
class ModelAccess:
    """Access to models, as configured by a sandbox's extensions."""

    enabled: bool
    terms: ApiKeyTerms


class SandboxModelAccess:
    """Lifecycle hook that gives sandboxes access to models."""

    def __init__(
        self,
        settings: LlmConfig,
        keys: ApiKeys,
        server: HttpServer,
        catalog: ModelCatalog | None = None,
        memory: TenantMemoryBudgets | None = None,
    ) -> None:
        """`memory` is for the request bodies of sandboxes, by tenant; by default it belongs to their sockets alone."""
        self._terms = default_sandbox_key_terms(settings)
        self._default_models = DefaultModelVariables(catalog) if catalog is not None else None
        self._keys = keys
        self._server = server
        self._memory = memory or TenantMemoryBudgets(server.memory_budget)
        self._listeners: dict[str, HttpListener] = {}
        self._enabled = settings.sandboxes
        self._has_models = bool(settings.models)

    @property
    def uplink_services(self) -> tuple[UplinkService, ...]:
        return (UplinkService(name=LLM_UPLINK_NAME, port=LLM_UPLINK_PORT),) if self._enabled else ()

    def check_request(self, request: SandboxRequest) -> None:
        """Raise `InvalidInput` for invalid extensions, and for uplink services that collide with the proxy's."""
        parse_model_access(request.extensions, self._terms)
        if self._enabled and any(
            service.name == LLM_UPLINK_NAME or service.port == LLM_UPLINK_PORT for service in request.uplink_services
        ):
            raise InvalidInput(
                f"the uplink service {LLM_UPLINK_NAME} and port {LLM_UPLINK_PORT} are those of the model proxy; "
                "use others"
            )

    async def environment(self, sandbox: Sandbox) -> Mapping[str, str]:
        """Create the sandbox's key, and return the environment variables for clients of the proxy."""
        access = parse_model_access(sandbox.extensions, self._terms)
        if not (self._serves_sandbox(sandbox) and access.enabled):
            return {}
        terms = access.terms.model_copy(update={"sandbox": sandbox.id})
        _, secret = await self._keys.create(
            f"sandbox {sandbox.id}",
            sandbox.tenant,
            [Scope.LLM_USE],
            sandbox.expires_at,
            terms=terms,
            owner=sandbox.subject,
        )
        models: Mapping[str, str] = {}
        # A run names its model itself.
        if self._default_models is not None and RUN_ID_EXTENSION not in sandbox.extensions:
            models = await self._default_models.variables(access.terms.models)
        return model_client_environment(secret, sandbox.env, models)

    async def on_started(self, sandbox: Sandbox, uplink_directory: Path) -> None:
        """Serve the sandbox's socket, replacing the socket of an earlier server."""
        if not (self._serves_sandbox(sandbox) and sandbox.extensions.get(LLM_EXTENSION, "on").strip() == "on"):
            return
        serving = await self._listen(uplink_directory, sandbox)
        earlier = self._listeners.pop(sandbox.id, None)
        self._listeners[sandbox.id] = serving
        if earlier is not None:
            await earlier.close()

    async def on_renewed(self, sandbox: Sandbox) -> None:
        """Extend the key to the sandbox's new expiry."""
        if sandbox.expires_at is not None:
            await self._keys.extend_for_sandbox(sandbox.id, sandbox.expires_at)

    async def on_ended(self, sandbox_id: str) -> None:
        """Close the sandbox's socket and revoke its key, even if one of the two fails."""
        serving = self._listeners.pop(sandbox_id, None)
        if serving is not None:
            await serving.close()
        try:
            await self._keys.revoke_for_sandbox(sandbox_id)
        except PaddockError as error:
            # Without its socket the key is useless; `tracked_sandboxes` returns the sandbox again.
            log.warning("could not revoke sandbox key; will retry", sandbox=sandbox_id, error=str(error))

    async def tracked_sandboxes(self) -> Collection[str]:
        """Return sandboxes with a socket or a key. Also deletes keys of sandboxes that ended long ago."""
        await self._keys.delete_old_revoked(REVOKED_KEY_RETENTION)
        return {*self._listeners, *await self._keys.sandbox_ids()}

    async def close(self) -> None:
        """Stop serving. Sandboxes keep their keys, and the next server process serves them again."""
        while self._listeners:
            await self._listeners.popitem()[1].close()

    def _serves_sandbox(self, sandbox: Sandbox) -> bool:
        """Return whether the sandbox can use the proxy; without models, only sandboxes of runs can (run scripts)."""
        return self._enabled and (self._has_models or RUN_ID_EXTENSION in sandbox.extensions)

    async def _listen(self, uplink_directory: Path, sandbox: Sandbox) -> HttpListener:
        listener: HttpListener | None = None
        try:
            async with publish_uplink_socket(uplink_directory, LLM_UPLINK_NAME) as bound:
                # The tenant is known without a key, and all its sockets share one budget.
                listener = await self._server.listen(
                    bound,
                    sandbox.id,
                    max_connections=MAX_CONNECTIONS,
                    memory_budget=self._memory.budget(sandbox.tenant),
                )
        except BaseException:
            if listener is not None:
                await listener.close()
            raise
        return listener


class DefaultModelVariables:
    """The variables that name the default model of agent CLIs, so that their bare commands work."""

    def __init__(self, catalog: ModelCatalog, clock: Callable[[], float] = time.monotonic) -> None:
        self._catalog = catalog
        self._clock = clock
        self._known: dict[tuple[str, ...], tuple[float, Mapping[str, str]]] = {}

    async def variables(self, allowed: tuple[str, ...]) -> Mapping[str, str]:
        """Return the variables for a key with these allowed models; none if there are no models."""
        known = self._known.get(allowed)
        if known is not None and self._clock() < known[0]:
            return known[1]
        await self._catalog.refresh(wait=0)
        found = self._compute(allowed)
        if len(self._known) >= _MAX_KNOWN_TERMS:
            self._known.clear()
        self._known[allowed] = self._clock() + _DEFAULT_MODEL_SECONDS, found
        return found

    def _compute(self, allowed: tuple[str, ...]) -> Mapping[str, str]:
        pattern = compile_model_pattern(allowed)

        def allows(name: str) -> bool:
            return pattern is None or pattern.fullmatch(name) is not None

        models = self._catalog.client_defaults(allows)
        if models is None:
            return {}
        return {
            "PADDOCK_MODEL": models.general,
            "OPENAI_MODEL": models.openai,
            "ANTHROPIC_MODEL": models.anthropic,
            "ANTHROPIC_SMALL_FAST_MODEL": models.anthropic_small,
            "GEMINI_MODEL": models.gemini,
        }


def model_client_environment(secret: str, env: Mapping[str, str], models: Mapping[str, str] = {}) -> dict[str, str]:
    """Return the variables of model clients, omitting each family in which the owner has set a variable.

    `models` are the variables of default models, which belong to the families too.
    """
    address = f"http://127.0.0.1:{LLM_UPLINK_PORT}"
    families = (
        {"PADDOCK_LLM_URL": address, "PADDOCK_LLM_KEY": secret},
        {"OPENAI_BASE_URL": f"{address}/v1", "OPENAI_API_KEY": secret},
        {"ANTHROPIC_BASE_URL": address, "ANTHROPIC_API_KEY": secret},
        {"GOOGLE_GEMINI_BASE_URL": address, "GEMINI_API_KEY": secret},
    )
    other_variables = {"ANTHROPIC_BASE_URL": {"ANTHROPIC_AUTH_TOKEN"}, "GOOGLE_GEMINI_BASE_URL": {"GOOGLE_API_KEY"}}
    found: dict[str, str] = {}
    for family in families:
        names = family.keys() | other_variables.get(next(iter(family)), set())
        if names.isdisjoint(env):
            found |= family
            prefix = _MODEL_PREFIXES[next(iter(family))]
            found |= {name: model for name, model in models.items() if name.startswith(prefix) and name not in env}
    return found


def default_sandbox_key_terms(settings: LlmConfig) -> ApiKeyTerms:
    """Return the key terms of sandboxes without extensions. Raises `ConfigError`."""
    try:
        return ApiKeyTerms(models=settings.sandbox_models, limits=KeyRateLimits(**settings.sandbox_limits.model_dump()))
    except ValidationError as error:
        raise ConfigError(f"llm.sandbox_models: {_first_problem(error)[1]}") from None


def parse_model_access(extensions: Mapping[str, str], defaults: ApiKeyTerms) -> ModelAccess:
    """Parse a sandbox's extensions, within the limits of all sandboxes. Raises `InvalidInput`."""
    own_extensions = {name: value.strip() for name, value in extensions.items() if name.startswith(LLM_EXTENSION)}
    if not own_extensions:
        return ModelAccess(True, defaults)
    unknown = sorted(own_extensions.keys() - LLM_EXTENSIONS)
    if unknown:
        raise InvalidInput(f"extensions: unknown {unknown[0][:80]}; known: {', '.join(sorted(LLM_EXTENSIONS))}")
    switch = own_extensions.pop(LLM_EXTENSION, "on")
    if switch not in ("on", "off"):
        raise InvalidInput(f"extensions.{LLM_EXTENSION}: must be on or off")
    values: dict[str, Any] = {name.removeprefix(f"{LLM_EXTENSION}."): value for name, value in own_extensions.items()}
    models = [model.strip() for model in values.pop("models", "").split(",") if model.strip()]
    budget = {
        name.removeprefix(BUDGET_PREFIX): values.pop(name) for name in list(values) if name.startswith(BUDGET_PREFIX)
    }
    try:
        terms = ApiKeyTerms(models=tuple(models) or defaults.models, budget=budget, limits=defaults.limits, **values)
    except ValidationError as error:
        extension, problem = _first_problem(error)
        raise InvalidInput(f"extensions.{LLM_EXTENSION}.{extension}: {problem}") from None
    # The script of a run is not a shared model: it answers that run only.
    own = (script_model_name(terms.run),) if terms.run else ()
    allowed = compile_model_pattern((*defaults.models, *own)) if defaults.models else None
    # A pattern that matches an allowed pattern as text allows no more names than that pattern does.
    if beyond := [model for model in terms.models if allowed and not allowed.fullmatch(model)]:
        known_models = ", ".join(defaults.models)
        raise InvalidInput(f"extensions.{LLM_EXTENSION}.models: sandboxes may not use {beyond[0]}, only {known_models}")
    return ModelAccess(switch == "on", terms)


def _first_problem(error: ValidationError) -> tuple[str, str]:
    """Return the extension with the first problem, and its message."""
    problem = error.errors(include_url=False, include_input=False)[0]
    extension = "-".join(str(part) for part in problem["loc"] if isinstance(part, str))
    return extension, f"{problem['msg'][:1].lower()}{problem['msg'][1:]}"
