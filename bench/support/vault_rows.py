"""Rows for the credential vault: HTTPS that the vault decrypts compared with HTTPS that the relay passes on."""

from __future__ import annotations

import asyncio
import json
import ssl
import statistics
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trustme

from support.paddock_server import PaddockServer
from support.result_table import ResultTable

RELAYED = "relayed.test"
BOUND = "bound.test"
BULK = 256 * 2**20
REQUESTS = 1000
CONNECTS = 50
_BLOCK = bytes(256 * 1024)


class SecureSite:
    """An HTTPS server of a certificate authority of its own."""

    def __init__(self, port: int) -> None:
        self.port = port


async def _serve_secure(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer requests of `/SIZE` with so many bytes."""
    try:
        while line := await reader.readline():
            while (await reader.readline()).strip():
                pass
            left = int(line.split()[1].strip(b"/") or b"2")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % left)
            while left > 0:
                writer.write(_BLOCK[: min(left, len(_BLOCK))])
                left -= len(_BLOCK)
                await writer.drain()
    except (ConnectionError, ValueError, ssl.SSLError):
        pass
    finally:
        writer.close()


def write_authority(bundle: Path) -> trustme.CA:
    """Create a certificate authority, and write its certificate for `outgoing.ca_bundle`."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(bundle))
    return authority


@asynccontextmanager
async def serve_secure_site(authority: trustme.CA) -> AsyncIterator[SecureSite]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(RELAYED, BOUND).configure_cert(context)
    server = await asyncio.start_server(_serve_secure, "127.0.0.1", 0, ssl=context)
    try:
        yield SecureSite(server.sockets[0].getsockname()[1])
    finally:
        server.close()


async def measure_vault(
    table: ResultTable, paddock: PaddockServer, client: Path, site: SecureSite, rounds: int
) -> None:
    """Measure a download, requests and connections, with and without a credential."""
    sandbox = await paddock.create_sandbox(
        network=[f"allow {RELAYED}", f"allow {BOUND}"], credentialProxy={"enabled": True}
    )
    await paddock.upload(sandbox, "/workspace/network_client.py", client)
    await paddock.bind_credential(sandbox, BOUND, site.port)

    async def run(mode: str, host: str, amount: int) -> dict[str, float]:
        command = f"python3 network_client.py {mode} {host} {site.port} {amount}"
        found: dict[str, float] = json.loads(await paddock.output_in_sandbox(sandbox, command))
        return found

    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        for host in (RELAYED, BOUND):
            for mode, amount, figure in (
                ("secure-bulk", BULK, "seconds"),
                ("secure-requests", REQUESTS, "per_second"),
                ("secure-connect", CONNECTS, "median"),
            ):
                found.setdefault((mode, host), []).append((await run(mode, host, amount))[figure])
    medians = {key: statistics.median(values) for key, values in found.items()}
    relayed, bound = (BULK / medians["secure-bulk", host] / 1e6 for host in (RELAYED, BOUND))
    table.add("HTTPS bulk, relayed", relayed, "MB/s")
    table.add("HTTPS bulk, vault", bound, "MB/s", against="relayed", ratio=bound / relayed, bar=">= 0.3 x")
    table.check_bar("HTTPS bulk, vault", bound / relayed, 0.3, at_least=True)
    relayed, bound = (medians["secure-requests", host] for host in (RELAYED, BOUND))
    table.add("HTTPS keep-alive, relayed", relayed, "/s")
    table.add("HTTPS keep-alive, vault", bound, "/s", against="relayed", ratio=bound / relayed, bar=">= 0.3 x")
    table.check_bar("HTTPS keep-alive, vault", bound / relayed, 0.3, at_least=True)
    relayed, bound = (medians["secure-connect", host] * 1e3 for host in (RELAYED, BOUND))
    table.add("HTTPS connect and first byte, relayed", relayed, "ms")
    table.add("HTTPS connect and first byte, vault", bound, "ms", against="relayed", ratio=bound / relayed)
