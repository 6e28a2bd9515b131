"""The fleet: creates, finds, changes and ends sandboxes and snapshots of many tenants."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from paddock.config.schema import Config
from paddock.errors import (
    Conflict,
    InvalidInput,
    NameTaken,
    PaddockError,
    QuotaExceeded,
    SandboxGone,
    SandboxNotFound,
    Unavailable,
)
from paddock.events.event_log import EventLog
from paddock.fleet.admission import ALIVE_STATES, AdmissionControl, ResolvedSandboxSettings
from paddock.fleet.fleet_requests import ImageResolver, NetworkPolicyEnforcer, SandboxRequest, new_id
from paddock.fleet.kinds import SandboxKinds
from paddock.fleet.lifecycle_hooks import LifecycleHook, LifecycleHooks
from paddock.fleet.pools import PoolManager, ReadyPoolSandbox
from paddock.fleet.port_forwards import PortForwards
from paddock.fleet.snapshot_writer import SnapshotWriter
from paddock.fleet.volumes import GrantedVolumes, VolumeRegistry
from paddock.model.events import EventType, sandbox_event_stream
from paddock.model.owners import (
    Ownership,
    Visibility,
    check_may_share,
    owner_scoped_request_key,
    owner_subject_of_view,
    ownership_of_new_object,
)
from paddock.model.sandbox import (
    KIND_EXTENSION,
    KIND_VARIABLE,
    USER_EXTENSION,
    VAULT_EXTENSION,
    Image,
    Sandbox,
    SandboxLimits,
    SandboxSnapshot,
    SandboxSpec,
    SandboxState,
)
from paddock.sandbox.base import SandboxBackend
from paddock.store.database import Store
from paddock.store.event_store import NewEvent
from paddock.store.pool_store import PoolStore
from paddock.store.sandbox_store import SandboxStore
from paddock.store.snapshot_store import SnapshotStore

if TYPE_CHECKING:
    from paddock.sandbox.daemon.client import DaemonClient

ONGOING_STATES = [SandboxState.RUNNING, SandboxState.PAUSED]


class Fleet:
    """Manages sandboxes. Methods take the calling tenant and hide the sandboxes of other tenants.

    Raises `SandboxNotFound` and the like for unknown ids, `Conflict` if the sandbox's state does not allow the call.
    """

    def __init__(
        self,
        *,
        backend: SandboxBackend,
        images: ImageResolver,
        store: Store,
        events: EventLog,
        config: Config,
        hooks: Sequence[LifecycleHook] = (),
        network: NetworkPolicyEnforcer | None = None,
    ) -> None:
        self.backend = backend
        self.images = images
        self.events = events
        self.config = config
        self.sandboxes = SandboxStore(store)
        self.snapshots = SnapshotStore(store)
        self.volumes = VolumeRegistry(config.data / "volumes", config.sandboxes.allowed_host_paths)
        ports = config.sandboxes.port_range
        self.forwards = PortForwards(
            range(ports.first, ports.last + 1),
            per_sandbox=config.sandboxes.max_endpoints,
            per_tenant=lambda tenant: config.quotas.for_tenant(tenant).endpoints,
        )
        self.hooks = LifecycleHooks(hooks, backend)
        self._network = network
        self.kinds = SandboxKinds.load_installed(config)
        self.pools = PoolManager(backend, images, self.kinds, PoolStore(store), config, self.hooks.uplink_services)
        self._admission = AdmissionControl(
            config,
            images,
            self.kinds,
            self.sandboxes,
            self.snapshots,
            self.pools,
            backend.features,
            network,
        )
        self.starting: dict[str, asyncio.Future[Sandbox]] = {}
        """Sandboxes being started: repeated requests wait for them, and they do not count as leftovers."""
        self._clients: dict[str, DaemonClient] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._snapshot_writer = SnapshotWriter(
            backend, self.snapshots, events, sandbox_lock=self.sandbox_lock, spawn=self.spawn
        )

    def check_limits(self, requested: SandboxLimits) -> None:
        """Raise `InvalidInput` for more than a sandbox may have."""
        self._admission.resolve_limits(requested)

    def check_network(self, tenant: str, policy: tuple[str, ...]) -> None:
        """Raise `InvalidInput` or `Unsupported` for a policy of which nothing can be granted."""
        self._admission.check_network(tenant, policy)

    async def create(self, tenant: str, request: SandboxRequest) -> Sandbox:
        """Create a sandbox and return it running.

        Repeating the call with the same `request_key` returns the first sandbox. After an error nothing is left behind.
        """
        if (stored := owner_scoped_request_key(tenant, request.request_key)) and (
            earlier := await self.sandboxes.by_request_key(tenant, stored, owner_subject_of_view(tenant))
        ):
            return await self._wait_until_started(earlier)
        # Shielded: creation completes even if the caller stops waiting.
        created: Sandbox = await asyncio.shield(self.spawn(self._create(tenant, request)))
        return created

    async def get(self, tenant: str, sandbox_id: str) -> Sandbox:
        return await self.sandboxes.get(sandbox_id, tenant)

    async def list(
        self,
        tenant: str,
        *,
        states: Collection[SandboxState] | None = None,
        metadata: Mapping[str, str] | None = None,
        page: int = 1,
        page_size: int = 20,
    ) -> tuple[Sequence[Sandbox], int]:
        """Return one page, newest first, and the total count."""
        return await self.sandboxes.list(tenant, states=states, metadata=metadata, page=page, page_size=page_size)

    async def delete(self, tenant: str, sandbox_id: str) -> None:
        """End a sandbox and delete its record."""
        sandbox = await self.get(tenant, sandbox_id)
        await self.end_sandbox(sandbox, "deleted", keep=False)

    async def patch_metadata(self, tenant: str, sandbox_id: str, patch: Mapping[str, str | None]) -> Sandbox:
        """Change single entries; `None` removes an entry.

        Raises `NameTaken` if the entry `name` becomes the name of another live sandbox of the tenant.
        """
        name = patch.get("name")
        async with AsyncExitStack() as locks:
            if name is not None:
                await locks.enter_async_context(self.sandbox_lock(f"tenant {tenant}"))
            await locks.enter_async_context(self.sandbox_lock(sandbox_id))
            sandbox = await self.get(tenant, sandbox_id)
            if name is not None and name != sandbox.metadata.get("name") and sandbox.state.alive:
                await self._check_name(tenant, name, lambda other: other.id == sandbox_id)
            changed = {k: v for k, v in {**sandbox.metadata, **patch}.items() if v is not None}
            return await self.sandboxes.update(sandbox_id, metadata=changed)

    async def share(self, tenant: str, sandbox_id: str, visibility: Visibility) -> Sandbox:
        """Change the visibility of a sandbox and its snapshots. Raises `Forbidden` if not the caller's."""
        sandbox = await self.get(tenant, sandbox_id)
        check_may_share(tenant, sandbox)
        kept, _ = await self.snapshots.list(sandbox.tenant, sandbox_id=sandbox_id, page_size=100_000)
        streams = [sandbox_event_stream(sandbox_id), *(f"snapshot/{each.id}" for each in kept)]
        audience = sandbox.model_copy(update={"visibility": visibility}).audience
        changed = NewEvent(
            sandbox_event_stream(sandbox_id), EventType.SANDBOX_SHARED, {"visibility": visibility}, tenant
        )
        return await self.sandboxes.share(
            sandbox_id,
            visibility,
            lambda work: self.events.change_audience(work, lambda _: [changed], streams, audience),
        )

    async def share_owned(self, tenant: str, metadata: Mapping[str, str], owned: Ownership) -> None:
        """Give the owner's sandboxes with this metadata (of a session or run) the visibility of `owned`."""
        found, _ = await self.list(str(tenant), metadata=metadata, page_size=100_000)
        for sandbox in found:
            if sandbox.subject == owned.subject and sandbox.visibility is not owned.visibility:
                await self.share(str(tenant), sandbox.id, owned.visibility)

    async def renew(self, tenant: str, sandbox_id: str, expires_at: datetime) -> Sandbox:
        """Change the expiry time of a sandbox."""
        now = datetime.now(UTC)
        if expires_at <= now:
            raise InvalidInput("expiresAt lies in the past")
        if expires_at > now + timedelta(seconds=self.config.sandboxes.max_timeout):
            raise InvalidInput("expiresAt is further away than sandboxes.max_timeout allows")
        async with self.sandbox_lock(sandbox_id):
            sandbox = await self.get(tenant, sandbox_id)
            if not sandbox.state.alive:
                raise Conflict(f"sandbox {sandbox_id} has ended")
            if sandbox.expires_at is None:
                raise Conflict(f"sandbox {sandbox_id} has no expiry; there is nothing to renew")
            renewed = await self.sandboxes.update(sandbox_id, expires_at=expires_at)
            await self.hooks.on_renewed(renewed)
        await self.publish_event(renewed, EventType.SANDBOX_RENEWED, expires_at=expires_at.isoformat())
        return renewed

    async def change_network(
        self,
        tenant: str,
        sandbox_id: str,
        change: Callable[[tuple[str, ...]], tuple[str, ...]] | None,
    ) -> Sandbox:
        """Replace the network policy of a sandbox by the result of `change`, and enforce it at once.

        `None` restores the default policy of sandboxes of this kind. Changes of one sandbox are enforced in the
        order in which they are stored. Raises as `create` does for a policy that cannot be granted, and `Conflict`
        unless the sandbox is running or paused.
        """
        async with self.sandbox_lock(sandbox_id):
            sandbox = await self.get(tenant, sandbox_id)
            if sandbox.state not in ONGOING_STATES:
                raise Conflict(f"sandbox {sandbox_id} is {sandbox.state}; only a running or paused one can be changed")
            if change is None:
                policy = self._default_network(sandbox)
            else:
                policy = change(sandbox.network)
                self._admission.check_network(sandbox.tenant, policy)
            if policy == sandbox.network:
                return sandbox
            changed = await self.sandboxes.update(sandbox_id, network=policy)
            closed = 0 if self._network is None else await self._network.apply_policy(changed)
        await self.publish_event(changed, EventType.NETWORK_CHANGED, policy=list(policy), closed=closed)
        return changed

    def _default_network(self, sandbox: Sandbox) -> tuple[str, ...]:
        """Return the policy of a request for such a sandbox that names none."""
        try:
            kind = None if sandbox.kind is None else self.kinds.get(sandbox.kind)
        except InvalidInput:
            kind = None  # The kind is no longer configured.
        return self._admission.resolve_network(sandbox.tenant, None, kind)

    async def pause(self, tenant: str, sandbox_id: str) -> Sandbox:
        """Freeze all processes of a sandbox."""
        # Shielded: the change completes even if the caller stops waiting.
        paused: Sandbox = await asyncio.shield(self.spawn(self._pause(tenant, sandbox_id)))
        return paused

    async def resume(self, tenant: str, sandbox_id: str) -> Sandbox:
        resumed: Sandbox = await asyncio.shield(self.spawn(self._resume(tenant, sandbox_id)))
        return resumed

    async def _pause(self, tenant: str, sandbox_id: str) -> Sandbox:
        async with self._transition(tenant, sandbox_id, SandboxState.RUNNING, SandboxState.PAUSING) as sandbox:
            await self.backend.pause(sandbox.record)
            paused = await self.sandboxes.transition(sandbox_id, [SandboxState.PAUSING], SandboxState.PAUSED)
        await self.publish_event(paused, EventType.SANDBOX_PAUSED)
        return paused

    async def _resume(self, tenant: str, sandbox_id: str) -> Sandbox:
        async with self._transition(tenant, sandbox_id, SandboxState.PAUSED, SandboxState.RESUMING) as sandbox:
            await self.backend.resume(sandbox.record)
            resumed = await self.sandboxes.transition(sandbox_id, [SandboxState.RESUMING], SandboxState.RUNNING)
        await self.publish_event(resumed, EventType.SANDBOX_RESUMED)
        return resumed

    async def snapshot(self, tenant: str, sandbox_id: str, name: str | None = None) -> SandboxSnapshot:
        """Start a snapshot of a sandbox's files; it becomes ready in the background."""
        sandbox = await self.get(tenant, sandbox_id)
        if sandbox.state not in ONGOING_STATES:
            raise Conflict(f"sandbox {sandbox_id} is {sandbox.state}; only a running or paused one can be snapshotted")
        self._admission.check_disk()
        quota = self.config.quotas.for_tenant(tenant).snapshots
        if quota is not None and (await self.snapshots.list(sandbox.tenant, page_size=1))[1] >= quota:
            raise QuotaExceeded(f"tenant {tenant} has its {quota} snapshots; delete one first")
        return await self._snapshot_writer.start(sandbox, name)

    async def delete_snapshot(self, tenant: str, snapshot_id: str) -> None:
        await self._snapshot_writer.delete(await self.snapshots.get(snapshot_id, tenant))

    async def running_client(self, tenant: str, sandbox_id: str) -> DaemonClient:
        """Return a client of the daemon of a running sandbox; the fleet closes it when the sandbox ends."""
        sandbox = await self.get(tenant, sandbox_id)
        if sandbox.state is not SandboxState.RUNNING:
            raise Conflict(f"sandbox {sandbox_id} is {sandbox.state}, not {SandboxState.RUNNING}")
        return self.client(sandbox)

    async def open_endpoint(self, tenant: str, sandbox_id: str, port: int) -> tuple[str, str]:
        """Open a direct endpoint: return a host address for a port of the sandbox, and the daemon's token."""
        sandbox = await self.get(tenant, sandbox_id)
        if sandbox.state not in ONGOING_STATES:
            raise Conflict(f"sandbox {sandbox_id} is {sandbox.state}")
        host_port = await self.forwards.open(tenant, sandbox_id, port, self.backend.daemon_address(sandbox.record))
        return f"127.0.0.1:{host_port}", sandbox.token

    def client(self, sandbox: Sandbox) -> DaemonClient:
        from paddock.sandbox.daemon.client import DaemonClient

        if sandbox.id not in self._clients:
            self._clients[sandbox.id] = DaemonClient(self.backend.daemon_address(sandbox.record))
        return self._clients[sandbox.id]

    async def end_sandbox(self, sandbox: Sandbox, reason: str, *, keep: bool, message: str | None = None) -> None:
        """End a sandbox by force. With `keep` it stays listed for a while, with the reason."""
        async with self.sandbox_lock(sandbox.id):
            current = await self.sandboxes.get(sandbox.id)
            if current.state is SandboxState.PENDING and sandbox.id in self.starting:
                raise Conflict(f"sandbox {sandbox.id} is still starting")
            if current.state.alive and current.state is not SandboxState.STOPPING:
                current = await self.sandboxes.transition(
                    current.id, ALIVE_STATES, SandboxState.STOPPING, reason, message
                )
                await self.publish_event(current, EventType.SANDBOX_STOPPING, reason=reason)
            await self._release_resources(current)
            if keep:
                await self.sandboxes.transition(
                    current.id, [SandboxState.STOPPING], SandboxState.TERMINATED, reason, message
                )
            else:
                await self.sandboxes.delete(current.id)
        if current.state is SandboxState.STOPPING:
            await self.publish_event(current, EventType.SANDBOX_ENDED, reason=reason)

    async def record_death(self, sandbox_id: str) -> None:
        """Record that a sandbox has ended by itself."""
        async with self.sandbox_lock(sandbox_id):
            try:
                sandbox = await self.sandboxes.get(sandbox_id)
            except SandboxNotFound:
                return
            if sandbox.state is SandboxState.STOPPING or not sandbox.state.alive:
                return
            status = await self.backend.status(sandbox.record)
            failed = await self.sandboxes.transition(
                sandbox_id, ALIVE_STATES, SandboxState.FAILED, status.reason or "lost", status.message
            )
            await self.disconnect(sandbox_id)
        await self.publish_event(failed, EventType.SANDBOX_FAILED, reason=failed.reason, message=failed.message)

    async def disconnect(self, sandbox_id: str) -> None:
        """Close all connections and call the hooks for a sandbox that has ended or is about to. Idempotent."""
        await self._close_connections(sandbox_id)
        await self.hooks.on_ended(sandbox_id)

    def watch_sandbox(self, sandbox: Sandbox) -> None:
        """Record the death of a sandbox when it happens."""

        async def wait_for_end() -> None:
            await self.backend.wait(sandbox.record)
            await self.record_death(sandbox.id)

        self.spawn(wait_for_end(), name=f"watch {sandbox.id}")

    def sandbox_lock(self, sandbox_id: str) -> asyncio.Lock:
        """Return the lock that serialises changes of one sandbox."""
        return self._locks.setdefault(sandbox_id, asyncio.Lock())

    def spawn(self, work: Any, name: str | None = None) -> asyncio.Task[Any]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def publish_event(self, sandbox: Sandbox, kind: EventType, **data: Any) -> None:
        await self.events.append(sandbox_event_stream(sandbox.id), kind, data, tenant=sandbox.tenant)

    async def close(self) -> None:
        """Cancel tasks and close connections. Sandboxes keep running; the next fleet adopts them."""
        await asyncio.gather(*list(self.starting.values()), return_exceptions=True)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.pools.close()
        await self.forwards.close()
        for client in self._clients.values():
            await client.close()

    async def _create(self, tenant: str, request: SandboxRequest) -> Sandbox:
        self.hooks.check_request(request)
        resolved = await self._admission.check_request(tenant, request)
        async with self.sandbox_lock(f"tenant {tenant}"):
            await self._admission.check_quota(str(tenant), resolved.limits)
            if request.name is not None:
                same = owner_scoped_request_key(tenant, request.request_key)
                await self._check_name(
                    tenant, request.name, lambda other: same is not None and other.request_key == same
                )
            ready = self.pools.take_ready(
                tenant, request, resolved.image, resolved.limits, resolved.kind, resolved.user
            )
            sandbox = self._pending_sandbox(tenant, request, resolved, ready)
            creation_task = asyncio.current_task()
            assert creation_task is not None
            self.starting[sandbox.id] = creation_task
            try:
                kept = await self.sandboxes.insert(sandbox)
            except BaseException:
                del self.starting[sandbox.id]
                raise
            finally:
                if ready:
                    self.pools.release_claim(ready.id)
        try:
            if kept.id != sandbox.id:  # A concurrent request with the same key was first.
                if ready:
                    await self.backend.remove(ready.id)
                return await self._wait_until_started(kept)
            return await self._start_sandbox(sandbox, request, resolved.image, ready)
        finally:
            del self.starting[sandbox.id]

    async def _check_name(self, tenant: str, name: str, is_same: Callable[[Sandbox], bool]) -> None:
        """Raise `NameTaken` when another live sandbox of the tenant has this name."""
        found, _ = await self.sandboxes.list(tenant, states=ALIVE_STATES, metadata={"name": name}, page_size=2)
        others = [each.id for each in found if not is_same(each)]
        if others:
            raise NameTaken(f"sandbox {others[0]} is named {name} already; choose another name, or delete that sandbox")

    def _pending_sandbox(
        self, tenant: str, request: SandboxRequest, resolved: ResolvedSandboxSettings, ready: ReadyPoolSandbox | None
    ) -> Sandbox:
        now = datetime.now(UTC)
        return Sandbox(
            id=ready.id if ready else new_id(),
            tenant=str(tenant),
            **dict(request.owner or ownership_of_new_object(tenant, request.visibility or self.config.sharing.default)),
            backend=self.backend.name,
            image=resolved.image.name,
            state=SandboxState.PENDING,
            created_at=now,
            changed_at=now,
            expires_at=self._admission.expiry_time(request.timeout, now),
            entrypoint=request.entrypoint,
            env=request.env,
            metadata=request.metadata,
            extensions={
                **request.extensions,
                **({KIND_EXTENSION: resolved.kind} if resolved.kind else {}),
                **({USER_EXTENSION: resolved.user} if resolved.user else {}),
                **({VAULT_EXTENSION: "enabled"} if request.credential_vault else {}),
            },
            limits=resolved.limits,
            snapshot=request.snapshot,
            pool=ready.pool if ready else None,
            network=resolved.network,
            network_token=secrets.token_urlsafe(32),
            request_key=owner_scoped_request_key(tenant, request.request_key),
            token=ready.token if ready else secrets.token_urlsafe(32),
        )

    async def _start_sandbox(
        self, sandbox: Sandbox, request: SandboxRequest, image: Image, ready: ReadyPoolSandbox | None
    ) -> Sandbox:
        granted = GrantedVolumes(())
        try:
            granted = self.volumes.grant_volumes(sandbox.tenant, request.volumes)
            env = {**await self.hooks.environment(sandbox), **sandbox.env}
            if sandbox.kind is not None:
                env[KIND_VARIABLE] = sandbox.kind
            record = await self._claim_ready(sandbox, ready, env) if ready else None
            if record is None:
                record = await self._start_new(sandbox, request, image, granted, env)
            running = await self.sandboxes.transition(
                sandbox.id,
                [SandboxState.PENDING],
                SandboxState.RUNNING,
                record=dict(record),
                volumes=dict(granted.volumes),
                write=lambda work: self.events.write_with_events(work, _creation_events),
            )
        except BaseException as error:
            await asyncio.shield(self._undo_creation(sandbox, granted, error))
            raise
        self.watch_sandbox(running)
        return running

    async def _claim_ready(
        self, sandbox: Sandbox, ready: ReadyPoolSandbox, env: Mapping[str, str]
    ) -> Mapping[str, Any] | None:
        """Claim a ready sandbox of a pool; return None and remove it if it turns out to be broken."""
        try:
            await self.hooks.on_started(
                sandbox, ready.record
            )  # Before programs start that may need the hooks' services.
            client = self.client(sandbox.model_copy(update={"record": ready.record}))
            await client.claim(env, sandbox.entrypoint)
            if sandbox.limits != ready.limits:
                await self.backend.limit(ready.record, sandbox.limits)
            return ready.record
        except PaddockError:
            await self._close_connections(sandbox.id)
            await self.backend.remove(ready.id)
            return None

    async def _start_new(
        self, sandbox: Sandbox, request: SandboxRequest, image: Image, granted: GrantedVolumes, env: Mapping[str, str]
    ) -> Mapping[str, Any]:
        spec = SandboxSpec(
            id=sandbox.id,
            image=image,
            token=sandbox.token,
            hostname=sandbox.id,
            env=env,
            entrypoint=sandbox.entrypoint,
            limits=sandbox.limits,
            mounts=granted.mounts,
            uplink_services=(*self.hooks.uplink_services, *request.uplink_services),
            snapshot=sandbox.snapshot,
            user=sandbox.user,
        )
        if sandbox.credential_vault and self._network is not None:
            spec = spec.model_copy(update={"files": await self._network.sandbox_files(sandbox, is_root=spec.root_mode)})
        async with self.pools.start_slot(sandbox.tenant):
            record = await self.backend.start(spec)
        await self.hooks.on_started(sandbox, record)
        return record

    async def _undo_creation(self, sandbox: Sandbox, granted: GrantedVolumes, error: BaseException) -> None:
        await self.disconnect(sandbox.id)
        await self.backend.remove(sandbox.id)
        await asyncio.to_thread(self.volumes.remove_owned_volumes, sandbox.tenant, granted.volumes)
        await self.sandboxes.delete(sandbox.id)
        await self.publish_event(sandbox, EventType.SANDBOX_FAILED, reason="start_failed", message=str(error))

    async def _wait_until_started(self, sandbox: Sandbox) -> Sandbox:
        creation_task = self.starting.get(sandbox.id)
        if creation_task is not None:
            return await asyncio.shield(creation_task)
        return sandbox

    async def _release_resources(self, sandbox: Sandbox) -> None:
        await self.disconnect(sandbox.id)
        try:
            await self.backend.remove(sandbox.id)
        except (OSError, TimeoutError) as error:
            raise Unavailable(f"sandbox {sandbox.id} could not be ended yet: {error}") from error
        await asyncio.to_thread(self.volumes.remove_owned_volumes, sandbox.tenant, sandbox.volumes)

    async def _close_connections(self, sandbox_id: str) -> None:
        await self.forwards.close(sandbox_id)
        client = self._clients.pop(sandbox_id, None)
        if client is not None:
            await client.close()

    @asynccontextmanager
    async def _transition(
        self, tenant: str, sandbox_id: str, before: SandboxState, meanwhile: SandboxState
    ) -> AsyncIterator[Sandbox]:
        """Hold a transitional state during the context; restore the previous state on failure."""
        async with self.sandbox_lock(sandbox_id):
            await self.get(tenant, sandbox_id)
            sandbox = await self.sandboxes.transition(sandbox_id, [before], meanwhile)
            try:
                yield sandbox
            except SandboxGone:
                raise
            except BaseException:
                await asyncio.shield(self.sandboxes.transition(sandbox_id, [meanwhile], before))
                raise


def _creation_events(sandbox: Sandbox) -> list[NewEvent]:
    """Return the events of a newly created sandbox."""
    stream, about = sandbox_event_stream(sandbox.id), {"image": sandbox.image, "metadata": dict(sandbox.metadata)}
    return [
        NewEvent(stream, EventType.SANDBOX_CREATED, about, sandbox.tenant),
        NewEvent(stream, EventType.SANDBOX_RUNNING, {}, sandbox.tenant),
    ]
