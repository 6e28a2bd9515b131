"""Requests to the fleet: creating sandboxes and mounting volumes."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Literal, Protocol

from pydantic import Field

from paddock.config.network_policy import NetworkRules
from paddock.model.owners import Ownership, Visibility
from paddock.model.sandbox import FrozenModel, Image, Sandbox, SandboxLimits, UplinkService


class VolumeRequest(FrozenModel):
    """A directory to mount: a host path, or a named volume that outlives the sandbox."""

    name: str
    host_path: str | None = None
    claim: str | None = None
    """Name of a volume Paddock keeps for the tenant."""
    create: bool = True
    """Create the named volume if it does not exist."""
    delete_with_sandbox: bool = False
    """Delete a named volume that was created for this sandbox when the sandbox is deleted."""
    target: str = Field(pattern=r"^/")
    read_only: bool = False
    sub_path: str | None = None


class SandboxRequest(FrozenModel):
    """Request to create a sandbox."""

    image: str | None = None
    """Name of an image; the configured default when neither this nor `snapshot` nor `pool` is given."""
    snapshot: str | None = None
    pool: str | None = None
    kind: str | None = None
    """Kind of sandbox; the kind's image is used unless one is given."""
    timeout: float | Literal["default"] | None = "default"
    """Lifetime in seconds; `None` until it is deleted."""
    entrypoint: tuple[str, ...] | None = None
    env: Mapping[str, str] = {}
    name: str | None = None
    """A name that no other live sandbox of the tenant may have; it is in the metadata too."""
    metadata: Mapping[str, str] = {}
    extensions: Mapping[str, str] = {}
    limits: SandboxLimits = SandboxLimits()
    volumes: tuple[VolumeRequest, ...] = ()
    uplink_services: tuple[UplinkService, ...] = ()
    credential_vault: bool = False
    """Whether requests of its programs may get credentials from a vault."""
    network: NetworkRules | None = None
    """Network policy; `None` means that of the kind, or else `network.default`."""
    user: Literal["root"] | None = None
    """User of the programs: `root` of a user namespace; `None` means the image's user."""
    visibility: Visibility | None = None
    """Visibility; the configured default if not given."""
    owner: Ownership | None = None
    """Owner and visibility of the session or run that the sandbox is for."""
    request_key: str | None = None
    """Idempotency key: repeating a request with the same key returns the same sandbox."""


class NetworkPolicyEnforcer(Protocol):
    """Checks and enforces the network policies of sandboxes."""

    def check_policy(self, tenant: str, rules: tuple[str, ...]) -> None:
        """Raise `InvalidInput` if the bounds of the tenant allow nothing of a policy."""
        ...

    async def apply_policy(self, sandbox: Sandbox) -> int:
        """Enforce a changed policy at once; return the number of connections it closed."""
        ...

    async def sandbox_files(self, sandbox: Sandbox, *, is_root: bool) -> Mapping[str, bytes]:
        """Return contents of files by path in the sandbox, called before it starts."""
        ...


class ImageResolver(Protocol):
    """Resolves image names."""

    def resolve(self, reference: str) -> Image: ...


def new_id(prefix: str = "sb") -> str:
    return f"{prefix}-{secrets.token_hex(8)}"
