"""One connection of a sandbox: decide, resolve, connect, compare the TLS server name, relay, record."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeAlias

from paddock.config.outgoing_proxy import OutgoingProxies
from paddock.model.network import ConnectionRecord, ConnectionRefusal
from paddock.network.addresses import IPAddress
from paddock.network.decision import ConnectionTarget, Decision, NetworkPolicyStack
from paddock.network.outgoing_proxy_tunnel import open_proxy_tunnel
from paddock.network.passed_connection import PassedConnection
from paddock.network.refusal_reply import refuse_connection
from paddock.network.socket_pump import SocketPump, close_socket, read_available, wait_readable
from paddock.network.tls_server_name import read_client_hello
from paddock.network.vault.byte_streams import PlainStream, TlsStream
from paddock.network.vault.credential_vaults import ActiveVault
from paddock.network.vault.http_interception import HttpInterception

HELLO_TIMEOUT = 10.0
"""Seconds for the rest of a ClientHello that has begun."""
HANDSHAKE_TIMEOUT = 10.0
"""Seconds for the TLS handshakes of an intercepted connection."""
HTTP_PORT = 80
"""Port of plain HTTP, for which a proxy of http addresses is used."""
MAX_ADDRESSES = 8
"""Addresses of a name that are tried."""
ResolveName: TypeAlias = Callable[[str, int], Awaitable[Sequence[IPAddress]]]


@dataclass(frozen=True)
class SandboxIdentity:
    """Sandbox, tenant, run and session of connections."""

    sandbox: str
    tenant: str
    run: str | None = None
    session: str | None = None


class _Refused(Exception):
    """The connection ends before it is relayed."""

    def __init__(self, decision: Decision, first: bytes = b"") -> None:
        self.decision = decision
        self.first = first


@dataclass(eq=False)
class ConnectionRelay:
    """Relays one connection; `serve` returns when it has ended."""

    identity: SandboxIdentity
    passed: PassedConnection
    policy: Callable[[], NetworkPolicyStack]
    """The current policy of the sandbox."""
    resolve: ResolveName
    connect_timeout: float
    account_bytes: Callable[[int], str | None]
    """Counts bytes against the limits of sandbox and tenant; returns which limit is reached."""
    proxies: OutgoingProxies = OutgoingProxies()
    """Proxies of the server; they get the checked address, never a name."""
    vault: Callable[[], ActiveVault | None] = lambda: None
    """The current credential vault of the sandbox."""
    upstream_tls: Callable[[], ssl.SSLContext] = ssl.create_default_context
    """Verifies servers of intercepted connections."""
    id: str = field(default_factory=lambda: f"conn-{secrets.token_hex(8)}")
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    sent: int = 0
    received: int = 0
    address: IPAddress | None = None
    server_name: str | None = None
    decision: Decision = Decision(False)
    _started: float = field(default_factory=time.monotonic)
    _upstream: socket.socket | None = None
    _finished: asyncio.Event = field(default_factory=asyncio.Event)
    _scheme: str | None = None
    """`https` or `http` once the program has spoken; every other protocol is `http` too."""
    _is_intercepted: bool = False

    @property
    def target(self) -> ConnectionTarget:
        return self.passed.target

    def record(self) -> ConnectionRecord:
        """Return the connection as it is now."""
        address = self.address or self.target.address
        return ConnectionRecord(
            id=self.id,
            sandbox=self.identity.sandbox,
            tenant=self.identity.tenant,
            run=self.identity.run,
            session=self.identity.session,
            started_at=self.started_at,
            duration=time.monotonic() - self._started,
            name=self.target.name,
            address=str(address) if address else None,
            port=self.target.port,
            server_name=self.server_name,
            sent=self.sent,
            received=self.received,
            allowed=self.decision.allowed,
            rule=self.decision.rule,
            refusal=self.decision.refusal,
            message=self.decision.message,
        )

    async def serve(self) -> None:
        """Serve the connection until it ends. Never raises `OSError`."""
        try:
            # Small parts of an answer would otherwise wait for acknowledgements.
            self.passed.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.decision = self.policy().decide(self.target)
            if not self.decision.allowed:
                raise _Refused(self.decision)
            upstream = await self._connect()
            self._upstream = upstream
            try:
                if any(self._is_bound(scheme) for scheme in ("https", "http")):
                    await self._intercept_or_relay(upstream)
                else:
                    await self._relay(upstream)
            finally:
                close_socket(upstream)
            close_socket(self.passed.socket)
        except _Refused as refused:
            self.decision = refused.decision
            await refuse_connection(self.passed.socket, refused.decision, refused.first)
        except OSError as error:
            self._fail(ConnectionRefusal.UNREACHABLE, str(error))
            close_socket(self.passed.socket, reset=True)
        finally:
            if self.passed.socket.fileno() >= 0:
                close_socket(self.passed.socket, reset=True)

    async def refuse(self, decision: Decision) -> None:
        """Refuse the connection without looking at the policy."""
        self.decision = decision
        await refuse_connection(self.passed.socket, decision)

    def recheck(self) -> bool:
        """Close the connection if the policy no longer allows it; return whether it was closed."""
        policy = self.policy()
        decision = policy.decide(self.target)
        if decision.allowed and self.address is not None and self.target.address is None:
            decision = policy.decide_address(self.target, self.address, decision)
        if decision.allowed or not self.decision.allowed:
            return False
        self._fail(ConnectionRefusal.POLICY_CHANGED, f"The policy was changed. {decision.message or ''}".strip())
        self._finished.set()
        return True

    def recheck_vault(self) -> None:
        """Close a connection that is relayed untouched, if its requests could now get credentials."""
        schemes = ("https", "http") if self._scheme is None else (self._scheme,)
        if self._upstream is None or self._is_intercepted or not any(map(self._is_bound, schemes)):
            return
        self._fail(ConnectionRefusal.VAULT, f"A credential binding for {self.target} was added; connect again.")
        self._finished.set()

    def _is_bound(self, scheme: str) -> bool:
        vault = self.vault()
        return vault is not None and vault.binds(scheme, self.target.name, self.target.port)

    def _fail(self, refusal: ConnectionRefusal, message: str) -> None:
        self.decision = Decision(self.decision.allowed, self.decision.rule, refusal, message)

    async def _connect(self) -> socket.socket:
        """Connect to the first address that is allowed and answers. Raises `_Refused`."""
        try:
            async with asyncio.timeout(self.connect_timeout):
                return await self._connect_to_any(await self._addresses())
        except TimeoutError:
            raise self._unreachable(f"it did not answer within {self.connect_timeout:g} s") from None

    async def _addresses(self) -> Sequence[IPAddress]:
        if self.target.address is not None:
            return [self.target.address]
        assert self.target.name is not None
        try:
            found = await self.resolve(self.target.name, self.target.port)
        except OSError as error:
            message = f"{self.target.name} has no address: {error.strerror or error}."
            if self.proxies.https is not None or self.proxies.http is not None:
                message += " The server resolves names itself, also for connections through its proxy."
            raise _Refused(Decision(True, self.decision.rule, ConnectionRefusal.UNRESOLVED, message)) from None
        return found[:MAX_ADDRESSES]

    async def _connect_to_any(self, addresses: Sequence[IPAddress]) -> socket.socket:
        refused: Decision | None = None
        failure = "it has no address"
        for address in addresses:
            decision = self.policy().decide_address(self.target, address, self.decision)
            if not decision.allowed:
                refused = decision
                continue
            self.address = address
            port = self.target.port
            proxy = self.proxies.choose("http" if port == HTTP_PORT else "https", self.target.host, port, address)
            try:
                if proxy is not None:
                    return await open_proxy_tunnel(proxy, str(address), port)
                return await _connect_directly(address, port)
            except OSError as error:
                # The event loop's message lacks the reason.
                failure = os.strerror(error.errno) if error.errno else str(error)
        if refused is not None:
            raise _Refused(refused)
        raise self._unreachable(failure)

    def _unreachable(self, reason: str) -> _Refused:
        message = f"{self.target} cannot be reached: {reason}."
        return _Refused(Decision(True, self.decision.rule, ConnectionRefusal.UNREACHABLE, message))

    async def _intercept_or_relay(self, upstream: socket.socket) -> None:
        """Put credentials into HTTP requests if the host is bound for the scheme that the program speaks."""
        first = await self._first_bytes()
        if first is None:
            return None
        vault = self.vault()
        if not first or self._scheme is None or vault is None or not self._is_bound(self._scheme):
            return await self._relay(upstream, first)
        self._is_intercepted = True
        serving = asyncio.ensure_future(self._intercept(upstream, first, vault))
        ended = asyncio.ensure_future(self._finished.wait())
        try:
            await asyncio.wait((serving, ended), return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
        finally:
            serving.cancel()
            ended.cancel()
            await asyncio.gather(serving, ended, return_exceptions=True)

    async def _intercept(self, upstream: socket.socket, first: bytes, vault: ActiveVault) -> None:
        """Serve HTTP requests between the program and the server. Raises `OSError`."""
        name, port = self.target.name, self.target.port
        assert name is not None and self._scheme is not None
        interception = HttpInterception(self._scheme, name, port, lambda: self.vault() or vault, self._note_refusal)
        if self._scheme == "http":
            program = PlainStream(self.passed.socket, lambda sent, received: None, first)
            return await interception.serve(program, PlainStream(upstream, self._count_both))
        context = vault.authority.context_for(name)
        secure = TlsStream(self.passed.socket, lambda sent, received: None, context, first=first)
        server = TlsStream(upstream, self._count_both, self.upstream_tls(), server_hostname=name)
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT):
                own, other = await asyncio.gather(secure.handshake(), server.handshake(), return_exceptions=True)
        except TimeoutError:
            raise ConnectionAbortedError(f"a TLS handshake took longer than {HANDSHAKE_TIMEOUT:g} s") from None
        if isinstance(own, BaseException):
            raise ConnectionAbortedError(f"the program refused the sandbox's certificate authority: {own}") from None
        if isinstance(other, ssl.SSLCertVerificationError):
            message = f"the certificate of {self.target} cannot be verified: {other.verify_message}"
            return await interception.refuse_first(secure, 502, message)
        if isinstance(other, BaseException):
            return await interception.refuse_first(secure, 502, f"no TLS connection to {self.target}: {other}")
        return await interception.serve(secure, server)

    def _note_refusal(self, message: str) -> None:
        self._fail(ConnectionRefusal.VAULT, f"A request to {self.target} was refused: {message}.")

    async def _relay(self, upstream: socket.socket, read: bytes | None = None) -> None:
        """Copy both directions until both have ended, one failed, or the policy closes the connection.

        `read` are the program's first bytes if they were read and checked already.
        """
        answer = SocketPump(upstream, self.passed.socket, self._count_received, self._end_direction)
        answer.start()  # Some protocols let the server speak first.
        self._open_directions = 2
        request: SocketPump | None = None
        try:
            first = await self._first_bytes() if read is None else read
            if first is not None:
                self._count_sent(len(first))
                request = SocketPump(self.passed.socket, upstream, self._count_sent, self._end_direction)
                request.start(first)
            await self._finished.wait()
        finally:
            answer.stop()
            if request is not None:
                request.stop()

    async def _first_bytes(self) -> bytes | None:
        """Return the first bytes of the program once their TLS server name is checked; `None` if all has ended.

        Raises `_Refused` for another server name than the requested one.
        """
        readable = asyncio.ensure_future(wait_readable(self.passed.socket.fileno(), 1e9))
        ended = asyncio.ensure_future(self._finished.wait())
        try:
            await asyncio.wait((readable, ended), return_when=asyncio.FIRST_COMPLETED)
            if not readable.done():
                return None
        finally:
            readable.cancel()
            ended.cancel()
            await asyncio.gather(readable, ended, return_exceptions=True)
        first = b""
        deadline = time.monotonic() + HELLO_TIMEOUT
        while True:
            more = await read_available(self.passed.socket, max(0.0, deadline - time.monotonic()))
            first += more or b""
            hello = read_client_hello(first)
            self._scheme = "https" if hello.is_tls else "http"
            if not hello.is_tls:
                return first
            if hello.complete or not more:
                break
        self.server_name = hello.server_name
        if not hello.complete or not self._allows_server_name(hello.server_name):
            shown = f"the server name {hello.server_name[:100]}" if hello.server_name else "an unreadable handshake"
            message = f"The TLS connection has {shown}, but it was opened to {self.target}."
            raise _Refused(Decision(False, self.decision.rule, ConnectionRefusal.SERVER_NAME, message), first)
        return first

    def _allows_server_name(self, server_name: str | None) -> bool:
        """Return whether the TLS server name fits the target; clients need not send one."""
        if server_name is None:
            return True
        if self.target.name is not None:
            return server_name == self.target.name
        named = self.policy().decide(ConnectionTarget(self.target.port, name=server_name))
        return bool(server_name) and named.refusal is not ConnectionRefusal.DENY_RULE

    def _count_both(self, sent: int, received: int) -> None:
        self.sent += sent
        self.received += received
        self._account(sent + received)

    def _count_sent(self, count: int) -> None:
        self.sent += count
        self._account(count)

    def _count_received(self, count: int) -> None:
        self.received += count
        self._account(count)

    def _account(self, count: int) -> None:
        limit = self.account_bytes(count)
        if limit is not None:
            self._fail(ConnectionRefusal.LIMIT, limit)
            self._finished.set()

    def _end_direction(self, error: OSError | None) -> None:
        self._open_directions -= 1
        if error is not None or self._open_directions == 0:
            self._finished.set()


async def _connect_directly(address: IPAddress, port: int) -> socket.socket:
    upstream = socket.socket(
        socket.AF_INET if address.version == 4 else socket.AF_INET6, socket.SOCK_STREAM | socket.SOCK_CLOEXEC
    )
    try:
        upstream.setblocking(False)
        upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        upstream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        await asyncio.get_running_loop().sock_connect(upstream, (str(address), port))
    except BaseException:
        close_socket(upstream)
        raise
    return upstream
