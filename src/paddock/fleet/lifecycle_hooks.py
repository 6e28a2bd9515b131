"""Lifecycle hooks: components that provide services to sandboxes and clean up when they end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import structlog

from paddock.fleet.fleet_requests import SandboxRequest
from paddock.model.sandbox import Sandbox, UplinkService
from paddock.sandbox.base import BackendFeature, Record, SandboxBackend

log = structlog.get_logger()


class LifecycleHook(Protocol):
    """Called by the fleet for every sandbox. The `on_…` methods may be called repeatedly."""

    @property
    def uplink_services(self) -> tuple[UplinkService, ...]:
        """Uplink services of every sandbox, pooled ones included."""
        ...

    def check_request(self, request: SandboxRequest) -> None:
        """Raise `InvalidInput` for an invalid request, before anything is created."""
        ...

    async def environment(self, sandbox: Sandbox) -> Mapping[str, str]:
        """Return variables for a starting sandbox; the owner's take precedence. They are not stored."""
        ...

    async def on_started(self, sandbox: Sandbox, uplinks: Path) -> None:
        """Handle a started or adopted sandbox; `uplinks` is the directory of its sockets."""
        ...

    async def on_renewed(self, sandbox: Sandbox) -> None:
        """Handle a changed expiry time."""
        ...

    async def on_ended(self, sandbox_id: str) -> None:
        """Clean up for a sandbox that has ended, is about to end, or failed to start."""
        ...

    async def tracked_sandboxes(self) -> Collection[str]:
        """Return ids of the sandboxes that the hook holds resources for."""
        ...


class LifecycleHooks:
    """Calls all hooks of a fleet; none if the backend has no uplink services.

    Hooks are called in turn, and the failure of one does not keep the others from being called.
    """

    def __init__(self, hooks: Sequence[LifecycleHook], backend: SandboxBackend) -> None:
        self._hooks = tuple(hooks) if BackendFeature.UPLINK in backend.features else ()
        self._backend = backend

    @property
    def uplink_services(self) -> tuple[UplinkService, ...]:
        return tuple(service for hook in self._hooks for service in hook.uplink_services)

    def check_request(self, request: SandboxRequest) -> None:
        for hook in self._hooks:
            hook.check_request(request)

    async def environment(self, sandbox: Sandbox) -> Mapping[str, str]:
        # If one hook raises, the sandbox is not started and `on_ended` is called for all.
        found: dict[str, str] = {}
        for hook in self._hooks:
            found |= await hook.environment(sandbox)
        return found

    async def on_started(self, sandbox: Sandbox, record: Record) -> None:
        if self._hooks:
            uplinks = self._backend.uplink_directory(record)
            await self._call_all(sandbox.id, lambda hook: hook.on_started(sandbox, uplinks))

    async def on_renewed(self, sandbox: Sandbox) -> None:
        await self._call_all(sandbox.id, lambda hook: hook.on_renewed(sandbox))

    async def on_ended(self, sandbox_id: str) -> None:
        await self._call_all(sandbox_id, lambda hook: hook.on_ended(sandbox_id))

    async def tracked_sandboxes(self) -> Collection[str]:
        found: set[str] = set()
        await self._call_all(None, lambda hook: _add_tracked(hook, found))
        return found

    async def _call_all(self, sandbox_id: str | None, call: Callable[[LifecycleHook], Awaitable[None]]) -> None:
        """Call every hook, then raise the first error."""
        problems: list[Exception] = []
        for hook in self._hooks:
            try:
                await call(hook)
            except Exception as error:
                problems.append(error)
        for other in problems[1:]:
            log.error("another lifecycle hook failed", sandbox=sandbox_id, error=repr(other))
        if problems:
            raise problems[0]


async def _add_tracked(hook: LifecycleHook, found: set[str]) -> None:
    found.update(await hook.tracked_sandboxes())
