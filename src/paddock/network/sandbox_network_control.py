"""Interface of the network of sandboxes for the API, and a stand-in for servers that open no connections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from paddock.model.network import ConnectionRecord
from paddock.model.sandbox import Sandbox


class SandboxNetworkControl(Protocol):
    """Enforces network policies and knows the open connections."""

    @property
    def outcomes(self) -> Mapping[str, int]:
        """Ended connections by refusal, or `allowed`, since the server started."""
        ...

    async def apply_policy(self, sandbox: Sandbox) -> int:
        """Enforce a changed policy at once; return the number of connections it closed."""
        ...

    def open_connections(self, sandbox_id: str) -> Sequence[ConnectionRecord]:
        """Return the open connections with what they transferred so far."""
        ...

    def effective_rules(self, sandbox: Sandbox) -> tuple[str, ...]:
        """Return the rules of a sandbox with presets expanded."""
        ...

    def bounds(self, tenant: str) -> tuple[str, ...]:
        """Return the rules that limit every policy of a tenant."""
        ...

    def check_policy(self, tenant: str, rules: tuple[str, ...]) -> None:
        """Raise `InvalidInput` if the bounds allow nothing of a policy."""
        ...


class UnconnectedSandboxNetworks:
    """No network: nothing is connected, and policies are shown as they are stored."""

    outcomes: Mapping[str, int] = {}

    async def apply_policy(self, sandbox: Sandbox) -> int:
        return 0

    def open_connections(self, sandbox_id: str) -> Sequence[ConnectionRecord]:
        return ()

    def effective_rules(self, sandbox: Sandbox) -> tuple[str, ...]:
        return sandbox.network

    def bounds(self, tenant: str) -> tuple[str, ...]:
        return ()

    def check_policy(self, tenant: str, rules: tuple[str, ...]) -> None:
        return None
