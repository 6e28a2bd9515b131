"""What callers ask of the fleet."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Literal, Protocol

from pydantic import Field

from paddock.model.owners import Owned, Visibility
from paddock.model.sandbox import Frozen, Hole, Image, Limits


class VolumeRequest(Frozen):
    """A directory the sandbox wants to see: the host's own, or a named one that outlives it."""

    name: str
    host_path: str | None = None
    claim: str | None = None
    """Name of a volume Paddock keeps for the tenant."""
    create: bool = True
    """Whether a named volume that does not exist is made."""
    delete_with_sandbox: bool = False
    """Whether a named volume made for this sandbox goes with it."""
    target: str = Field(pattern=r"^/")
    read_only: bool = False
    sub_path: str | None = None


class CreateSandbox(Frozen):
    """A sandbox to be made."""

    image: str | None = None
    """Name of an image; the configured default when neither this nor `snapshot` nor `pool` is given."""
    snapshot: str | None = None
    pool: str | None = None
    kind: str | None = None
    """The sort of computer it is to be; its image is that of the kind unless one is given."""
    timeout: float | Literal["default"] | None = "default"
    """Seconds it may live; `None` until it is deleted."""
    entrypoint: tuple[str, ...] | None = None
    env: Mapping[str, str] = {}
    name: str | None = None
    """A name that no other live sandbox of the tenant may have; it is in the metadata too."""
    metadata: Mapping[str, str] = {}
    extensions: Mapping[str, str] = {}
    limits: Limits = Limits()
    volumes: tuple[VolumeRequest, ...] = ()
    holes: tuple[Hole, ...] = ()
    network_default: str | None = None
    visibility: Visibility | None = None
    """Who sees it; as configured if not given."""
    owner: Owned | None = None
    """Owner and visibility of the session or run that it is for."""
    request_key: str | None = None
    """The caller's own name for this request: asking again with the same one gives the same sandbox."""


class ImageSource(Protocol):
    """Where images are found by name."""

    def resolve(self, reference: str) -> Image: ...


def new_id(prefix: str = "sb") -> str:
    return f"{prefix}-{secrets.token_hex(8)}"
