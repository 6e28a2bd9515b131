"""Settings of the gRPC server of the MCP gateway."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from paddock.config.section import ConfigSection


class McpGrpcConfig(ConfigSection):
    """The MCP gateway over gRPC, for other hosts and for programs that are not MCP clients."""

    listen: str | None = Field(default=None, pattern=r"^(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]]+):\d{1,5}$")
    """`HOST:PORT` to listen on; `paddock serve --grpc` sets `127.0.0.1:8430`. Addresses that others can reach need an
    API key, as the main port does."""
    certificate: Path | None = None
    """File with the TLS certificate and its chain, as PEM. Without it, connections are not encrypted."""
    private_key: Path | None = None
    """File with the certificate's private key, as PEM."""

    @model_validator(mode="after")
    def _check_certificate(self) -> Self:
        if (self.certificate is None) != (self.private_key is None):
            raise ValueError("set both certificate and private_key, or neither")
        return self
