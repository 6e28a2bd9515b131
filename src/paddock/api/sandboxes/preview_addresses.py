"""Addresses of previews: paths below `/preview/`, or names below `server.preview_host`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from starlette.types import Scope

from paddock.api.http.allowed_hosts import host_name_without_port
from paddock.api.http.authorization import read_header
from paddock.auth.preview_links import PreviewLinkSigner
from paddock.model.previews import SandboxPreview

PREVIEW_PATH = re.compile(rb"(/preview/([^/]*))(/.*)?", re.DOTALL)
_HOST_LABEL = re.compile(r"([0-9]{1,5})-([a-z0-9][a-z0-9-]{0,56})")
LINK_PARAMETER = "paddock_preview"
"""Query parameter and cookie with the token, where previews have names of their own."""


@dataclass(frozen=True)
class PathTarget:
    """Target of a request below `/preview/`."""

    prefix: bytes
    """The path up to the token, exactly as sent."""
    token: str
    rest: bytes
    """The remaining path for the program, exactly as sent; empty without a slash after the token."""


@dataclass(frozen=True)
class HostTarget:
    """Target of a request to the name of a preview."""

    sandbox_id: str
    """Empty if the name is malformed."""
    port: int


class PreviewAddresses:
    """Builds and reads addresses of previews."""

    def __init__(self, preview_host: str | None, signer: PreviewLinkSigner) -> None:
        self._host = preview_host
        self.signer = signer

    def read_path(self, scope: Scope) -> PathTarget | None:
        """Return the target of a path, which is matched as sent; `None` for other paths."""
        raw = (scope.get("raw_path") or scope["path"].encode()).partition(b"?")[0]
        found = PREVIEW_PATH.fullmatch(raw)
        if found is None or self._host is not None:
            return None
        prefix, token, rest = found.groups()
        return PathTarget(prefix, token.decode("latin-1"), rest or b"")

    def read_host(self, scope: Scope) -> HostTarget | None:
        """Return the target that the host name denotes; `None` for names that are not below `preview_host`."""
        if self._host is None:
            return None
        name = host_name_without_port(read_header(scope, b"host")).lower()
        if not name.endswith(f".{self._host}"):
            return None
        found = _HOST_LABEL.fullmatch(name.removesuffix(f".{self._host}"))
        return HostTarget("", 0) if found is None else HostTarget(found[2], int(found[1]))

    def address(self, preview: SandboxPreview, server_host: str) -> str:
        """Return the address without a signature, relative to the server's; `server_host` is a `Host` header."""
        if self._host is None:
            return f"/preview/{preview.id}/"
        return f"{self._origin(preview, server_host)}/"

    def link(self, preview: SandboxPreview, server_host: str) -> str:
        """Return the address that needs no sign-in, relative to the server's."""
        if preview.public:
            return self.address(preview, server_host)
        token = self.signer.sign(preview.id)
        if self._host is None:
            return f"/preview/{token}/"
        return f"{self._origin(preview, server_host)}/?{LINK_PARAMETER}={token}"

    def _origin(self, preview: SandboxPreview, server_host: str) -> str:
        port = server_host.rpartition(":")[2] if server_host.rpartition("]")[2].count(":") == 1 else ""
        return f"//{preview.port}-{preview.sandbox}.{self._host}" + (f":{port}" if port.isdigit() else "")
