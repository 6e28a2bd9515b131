"""Lifecycle hook that gives sandboxes the network that their policies allow.

The daemon in a sandbox passes each TCP connection to the socket of the uplink service `network`. A thread with its own
event loop decides and relays them, so that bulk transfers do not delay requests to the server.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import structlog

from paddock.config.network import NetworkConfig
from paddock.config.network_policy import describe_network_policy
from paddock.config.outgoing_proxy import OutgoingProxies
from paddock.errors import InvalidInput, PaddockError, Unavailable
from paddock.fleet.fleet_requests import SandboxRequest
from paddock.fleet.uplink_sockets import publish_uplink_socket
from paddock.model.network import ConnectionRecord, ConnectionRefusal
from paddock.model.sandbox import RUN_KEY, SESSION_KEY, Sandbox, UplinkService
from paddock.network.addresses import IPAddress, TargetAddresses
from paddock.network.connection_relay import ConnectionRelay, SandboxIdentity
from paddock.network.daily_bytes import DailyByteCounts
from paddock.network.decision import Decision, NetworkPolicyStack, PolicyRules, preset_rules
from paddock.network.name_lookups import MAX_SANDBOX_LOOKUPS, NameLookups
from paddock.network.package_indexes import PackageIndexes, read_package_indexes
from paddock.network.passed_connection import InvalidPassedConnection, receive_passed_connection
from paddock.network.relay_thread import RelayThread
from paddock.network.sandbox_certificates import SandboxCertificates
from paddock.network.socket_pump import wait_readable
from paddock.network.vault.certificate_authority import upstream_context
from paddock.network.vault.credential_vaults import ActiveVault, CredentialVaults
from paddock.network.vault.trusted_files import trusted_files

NETWORK_UPLINK_NAME = "network"
MESSAGE_TIMEOUT = 2.0
"""Seconds in which the daemon must send the message of a connection."""
MAX_HANDSHAKES = 64
"""Connections of a sandbox whose message has not arrived."""
BURST_SECONDS = 4
STORE_BYTES_SECONDS = 1.0
"""Seconds between writes of byte counts; a crash loses at most that much."""
MAX_LIMIT_REPLIES = 16
"""Connections of a sandbox that are told at the same time which limit they reached."""
log = structlog.get_logger()


class SandboxNetworks:
    """Serves the network of every sandbox; connections of the policy `none` are refused and recorded too."""

    def __init__(
        self,
        config: NetworkConfig,
        record: Callable[[ConnectionRecord], None],
        flush: Callable[[], Awaitable[None]],
        addresses: TargetAddresses,
        daily_bytes: DailyByteCounts,
        indexes: PackageIndexes | None = None,
        proxies: OutgoingProxies | None = None,
        vaults: CredentialVaults | None = None,
    ) -> None:
        """`record` takes connections that ended, on the thread of the server's event loop; `flush` stores them."""
        self._vaults = vaults
        if vaults is not None:
            vaults.on_changed = self._recheck_vault
        self._config = config
        self._record = record
        self._flush = flush
        self.addresses = addresses
        self._lookups = NameLookups()
        self.daily_bytes = daily_bytes
        self._storing_bytes: asyncio.Task[None] | None = None
        self._indexes = indexes or read_package_indexes()
        self.proxies = proxies or OutgoingProxies()
        self._presets = preset_rules(config.git_hosts, (*self._indexes.targets(), *config.package_hosts))
        self._server_bound = PolicyRules(config.bound, self._presets)
        self._certificates = SandboxCertificates(self.proxies.ca_bundle)
        self._sandboxes: dict[str, _SandboxNetwork] = {}
        self.outcomes: Counter[str] = Counter()
        """Ended connections by refusal, or `allowed`, since the server started."""
        self._tenant_connections: Counter[str] = Counter()
        self._thread: RelayThread | None = None

    @property
    def uplink_services(self) -> tuple[UplinkService, ...]:
        """None: the daemon passes connections without a port of its own."""
        return ()

    def check_request(self, request: SandboxRequest) -> None:
        """Raise `InvalidInput` for uplink services of this name."""
        if any(service.name == NETWORK_UPLINK_NAME for service in request.uplink_services):
            raise InvalidInput(
                f"the uplink service {NETWORK_UPLINK_NAME} is reserved for the network; use another name"
            )

    def check_policy(self, tenant: str, rules: Sequence[str]) -> None:
        """Raise `InvalidInput` if the bounds of server and tenant leave nothing of a policy."""
        for setting, bound in self._named_bounds(tenant):
            if rules and not bound.texts:
                raise InvalidInput(
                    f"sandboxes of this server have no network ({setting} is none), so the policy "
                    f"{describe_network_policy(rules)} is not possible; leave it out or ask the operator"
                )

    async def environment(self, sandbox: Sandbox) -> Mapping[str, str]:
        """Return the package indexes and certificates of this machine, for sandboxes that start with a network."""
        found = self._indexes.environment() if sandbox.network else {}
        if sandbox.credential_vault or (sandbox.network and self._certificates.exist):
            found |= self._certificates.environment()
        # Browsers read theirs when they start, and the policy may change later.
        found |= self._certificates.browser_environment(has_vault=sandbox.credential_vault)
        return {name: value for name, value in found.items() if name not in sandbox.env}

    async def on_started(self, sandbox: Sandbox, uplinks: Path) -> None:
        """Serve the sandbox's socket, replacing one that an earlier server left behind."""
        vault = await self._open_vault(sandbox)
        authority = None if vault is None else vault.authority.certificate_pem
        await asyncio.to_thread(self._certificates.write_for_browsers, uplinks, authority)
        if vault is not None or (sandbox.network and self._certificates.exist):
            await asyncio.to_thread(self._certificates.write, uplinks, authority)
        await self.daily_bytes.load(sandbox.id, sandbox.tenant)
        thread = self._open_thread()
        serving = _SandboxNetwork(
            identity=_identity(sandbox),
            policy=self._policy_stack(sandbox),
            limits=self._config,
            owner=self,
            handshakes=asyncio.Semaphore(MAX_HANDSHAKES),
            lookups=asyncio.Semaphore(MAX_SANDBOX_LOOKUPS),
        )
        async with publish_uplink_socket(uplinks, NETWORK_UPLINK_NAME) as listener:
            listener.listen(128)
            listener.setblocking(False)
            thread.call(serving.start, listener)
        earlier = self._sandboxes.pop(sandbox.id, None)
        self._sandboxes[sandbox.id] = serving
        if earlier is not None:
            await thread.run(earlier.close())

    async def on_renewed(self, sandbox: Sandbox) -> None:
        """Do nothing: the network has no expiry of its own."""

    async def on_ended(self, sandbox_id: str) -> None:
        """Close the sandbox's socket and all its connections."""
        serving = self._sandboxes.pop(sandbox_id, None)
        if serving is not None and self._thread is not None:
            await self._thread.run(serving.close())
            await self._store_bytes(self._thread)
            self.daily_bytes.forget_sandbox(sandbox_id)
            await self._flush()
        if self._vaults is not None:
            await self._vaults.forget(sandbox_id)

    async def tracked_sandboxes(self) -> Collection[str]:
        return {*self._sandboxes, *(self._vaults.stored_sandboxes if self._vaults is not None else ())}

    async def sandbox_files(self, sandbox: Sandbox, *, is_root: bool) -> Mapping[str, bytes]:
        """Return the files that make programs trust the certificate authority of the sandbox's vault."""
        vault = await self._open_vault(sandbox, may_fail=True)
        if vault is None:
            return {}
        certificate = vault.authority.certificate_pem

        def make_files() -> Mapping[str, bytes]:
            return trusted_files(self._certificates.read(certificate), certificate, is_root=is_root)

        return await asyncio.to_thread(make_files)

    async def apply_policy(self, sandbox: Sandbox) -> int:
        """Apply a changed policy at once; return the number of connections that it closed."""
        serving = self._sandboxes.get(sandbox.id)
        if serving is None or self._thread is None:
            return 0
        return await self._thread.run(serving.change_policy(self._policy_stack(sandbox)))

    def open_connections(self, sandbox_id: str) -> list[ConnectionRecord]:
        serving = self._sandboxes.get(sandbox_id)
        return [] if serving is None else [relay.record() for relay in list(serving.relays)]

    def effective_rules(self, sandbox: Sandbox) -> tuple[str, ...]:
        """Return the sandbox's rules with expanded presets."""
        return PolicyRules(sandbox.network, self._presets).expanded_texts()

    def bounds(self, tenant: str) -> tuple[str, ...]:
        """Return the rules of the strictest bound: the tenant's, else the server's."""
        return tuple(self._config.tenant_bounds.get(tenant, self._config.bound))

    async def close(self) -> None:
        """Close all connections. Sandboxes keep running, and the next server serves them."""
        thread = self._thread
        if thread is None:
            return
        while self._sandboxes:
            await thread.run(self._sandboxes.popitem()[1].close())
        if self._storing_bytes is not None:
            self._storing_bytes.cancel()
            await asyncio.gather(self._storing_bytes, return_exceptions=True)
        await self._store_bytes(thread)
        self._thread = None
        await asyncio.to_thread(thread.stop)

    def take_connection(self, tenant: str) -> bool:
        """Count a connection of the tenant; return False at its limit. Called on the relay's thread."""
        if self._tenant_connections[tenant] >= self._config.max_tenant_connections:
            return False
        self._tenant_connections[tenant] += 1
        return True

    def give_connection_back(self, tenant: str) -> None:
        self._tenant_connections[tenant] -= 1

    def publish(self, record: ConnectionRecord) -> None:
        """Pass a record to the server's thread."""
        if self._thread is not None:
            self._thread.call_server(self._count_and_record, record)

    def _count_and_record(self, record: ConnectionRecord) -> None:
        self.outcomes[str(record.refusal or "allowed")] += 1
        self._record(record)

    async def resolve(self, name: str, port: int, sandbox_lookups: asyncio.Semaphore) -> Sequence[IPAddress]:
        """Look a name up. Called on the relay's thread. Raises `OSError`."""
        if fixed := self._config.hosts.get(name):
            return [ip_address(fixed)]
        return await self._lookups.look_up(name, port, sandbox_lookups)

    def active_vault(self, sandbox_id: str) -> ActiveVault | None:
        """Return the vault of a sandbox. Called on the relay's thread."""
        return None if self._vaults is None else self._vaults.active(sandbox_id)

    @cached_property
    def upstream_tls(self) -> ssl.SSLContext:
        """Verifies the servers of bound hosts. Used on the relay's thread."""
        return upstream_context(self.proxies.ca_bundle)

    async def _open_vault(self, sandbox: Sandbox, *, may_fail: bool = False) -> ActiveVault | None:
        """Load the vault of a sandbox. Unless `may_fail`, a sandbox with a lost vault goes on without credentials."""
        if self._vaults is None:
            return None
        try:
            return await self._vaults.open(sandbox)
        except Unavailable as error:
            if may_fail:
                raise
            log.error("cannot open credential vault", sandbox=sandbox.id, error=error.message)
            return None

    def _recheck_vault(self, sandbox_id: str) -> None:
        serving = self._sandboxes.get(sandbox_id)
        if serving is not None and self._thread is not None:
            self._thread.call(serving.recheck_vault)

    def _policy_stack(self, sandbox: Sandbox) -> NetworkPolicyStack:
        bounds = [bound for _, bound in self._named_bounds(sandbox.tenant)]
        return NetworkPolicyStack(PolicyRules(sandbox.network, self._presets), bounds, self.addresses)

    def _named_bounds(self, tenant: str) -> list[tuple[str, PolicyRules]]:
        found = [("network.bound", self._server_bound)]
        if tenant in self._config.tenant_bounds:
            setting = f"network.tenant_bounds.{tenant}"
            found.append((setting, PolicyRules(self._config.tenant_bounds[tenant], self._presets, setting)))
        return found

    def _open_thread(self) -> RelayThread:
        if self._thread is None:
            self._thread = RelayThread(asyncio.get_running_loop())
            if self.daily_bytes.is_limited:
                work = self._store_bytes_periodically(self._thread)
                self._storing_bytes = asyncio.create_task(work, name="network byte counts")
        return self._thread

    async def _store_bytes_periodically(self, thread: RelayThread) -> None:
        while True:
            await asyncio.sleep(STORE_BYTES_SECONDS)
            await self._store_bytes(thread)

    async def _store_bytes(self, thread: RelayThread) -> None:
        """Store changed byte counts; a failed write is repeated."""
        if not self.daily_bytes.is_limited:
            return
        counts = await thread.run_function(self.daily_bytes.take_changed)
        try:
            if counts:
                await self.daily_bytes.store(counts)
        except PaddockError as error:
            log.warning("could not store byte counts of sandboxes; will retry", error=error.message)
            await thread.run_function(lambda: self.daily_bytes.mark_changed(counts))


@dataclass(eq=False)
class _SandboxNetwork:
    """The connections of one sandbox. Everything but construction happens on the relay's thread."""

    identity: SandboxIdentity
    policy: NetworkPolicyStack
    limits: NetworkConfig
    owner: SandboxNetworks
    handshakes: asyncio.Semaphore
    lookups: asyncio.Semaphore
    relays: set[ConnectionRelay] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _tokens: float = 0.0
    _refilled: float = 0.0
    _refusals: int = 0

    def start(self, listener: socket.socket) -> None:
        self._tokens = float(self.limits.max_new_per_second * BURST_SECONDS)
        self._refilled = time.monotonic()
        # A task that is cancelled before its start does not close the socket itself.
        self._start_task(self._accept(listener)).add_done_callback(lambda _: listener.close())

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def change_policy(self, policy: NetworkPolicyStack) -> int:
        self.policy = policy
        return sum(relay.recheck() for relay in list(self.relays))

    def recheck_vault(self) -> None:
        """Close connections to hosts that have a binding now, so that their programs connect again."""
        for relay in list(self.relays):
            relay.recheck_vault()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self.handshakes.acquire()
            try:
                control, _ = await loop.sock_accept(listener)
            except OSError:
                self.handshakes.release()
                await asyncio.sleep(0.05)  # Out of descriptors: wait until connections end.
                continue
            except BaseException:
                self.handshakes.release()
                raise
            self._start_task(self._serve(control))

    def _start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget_task)
        return task

    def _forget_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("sandbox connection failed", sandbox=self.identity.sandbox, exc_info=error)

    async def _serve(self, control: socket.socket) -> None:
        try:
            with control:
                if not await wait_readable(control.fileno(), MESSAGE_TIMEOUT):
                    return
                passed = receive_passed_connection(control)
        except InvalidPassedConnection as error:
            log.info("invalid connection from sandbox", sandbox=self.identity.sandbox, error=str(error))
            return
        finally:
            self.handshakes.release()
        relay = ConnectionRelay(
            self.identity,
            passed,
            lambda: self.policy,
            self._resolve,
            self.limits.connect_timeout,
            self._account_bytes,
            self.owner.proxies,
            lambda: self.owner.active_vault(self.identity.sandbox),
            lambda: self.owner.upstream_tls,
        )
        limit = self._limit_reached()
        if limit is not None:
            await self._refuse_at_limit(relay, Decision(False, None, ConnectionRefusal.LIMIT, limit))
            return
        self.relays.add(relay)
        try:
            await relay.serve()
        finally:
            self.relays.discard(relay)
            self.owner.give_connection_back(self.identity.tenant)
            self.owner.publish(relay.record())

    async def _refuse_at_limit(self, relay: ConnectionRelay, decision: Decision) -> None:
        """Tell the program which limit is reached; most connections of a flood are only closed."""
        relay.decision = decision
        if self._refusals >= MAX_LIMIT_REPLIES:
            relay.passed.socket.close()
            self.owner.publish(relay.record())
            return
        self._refusals += 1
        try:
            await relay.refuse(decision)
        finally:
            self._refusals -= 1
            self.owner.publish(relay.record())

    async def _resolve(self, name: str, port: int) -> Sequence[IPAddress]:
        return await self.owner.resolve(name, port, self.lookups)

    def _limit_reached(self) -> str | None:
        """Count a new connection; return which limit refuses it, or `None`."""
        now = time.monotonic()
        rate = self.limits.max_new_per_second
        self._tokens = min(rate * BURST_SECONDS, self._tokens + (now - self._refilled) * rate)
        self._refilled = now
        if self._tokens < 1:
            return f"The sandbox opens more than {rate} connections per second (network.max_new_per_second)."
        self._tokens -= 1
        if len(self.relays) >= self.limits.max_connections:
            return f"The sandbox has {self.limits.max_connections} open connections (network.max_connections)."
        if (bytes_limit := self._account_bytes(0)) is not None:
            return bytes_limit
        if not self.owner.take_connection(self.identity.tenant):
            return f"The tenant has {self.limits.max_tenant_connections} connections (network.max_tenant_connections)."
        return None

    def _account_bytes(self, count: int) -> str | None:
        return self.owner.daily_bytes.add(self.identity.sandbox, self.identity.tenant, count)


def _identity(sandbox: Sandbox) -> SandboxIdentity:
    return SandboxIdentity(
        sandbox.id, sandbox.tenant, run=sandbox.metadata.get(RUN_KEY), session=sandbox.metadata.get(SESSION_KEY)
    )
