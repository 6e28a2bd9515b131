"""Bodies of credential vaults in OpenSandbox's format, and changes of the vaults of sandboxes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from paddock.api.http.body_models import RequestBody, ResponseBody
from paddock.errors import InvalidInput, NotFound, Unsupported
from paddock.events.event_log import EventLog
from paddock.model.credential_vault import (
    CredentialAuth,
    CredentialAuthType,
    CredentialBinding,
    CredentialMatch,
    CredentialVault,
    HeaderCredential,
    VaultCredential,
)
from paddock.model.events import EventType, sandbox_event_stream
from paddock.model.sandbox import Sandbox
from paddock.network.vault.credential_vaults import CredentialVaults
from paddock.network.vault.vault_changes import (
    MAX_BINDINGS,
    MAX_CREDENTIALS,
    MAX_VALUE,
    NewBinding,
    NewCredential,
    VaultPatch,
)

PASSTHROUGH = "passthrough"
_Name = Annotated[str, Field(min_length=1, max_length=100)]
_Texts = Annotated[list[Annotated[str, Field(min_length=1, max_length=1001)]], Field(max_length=100)]


class CredentialSourceRequest(RequestBody):
    type: Literal["inline"] = "inline"
    value: str = Field(max_length=MAX_VALUE, repr=False)
    """The secret value. It is never returned."""


class CredentialRequest(RequestBody):
    name: _Name
    source: CredentialSourceRequest


class CredentialMatchRequest(RequestBody):
    hosts: _Texts = Field(examples=[["api.example.com"]])
    """Host names; `*.` stands for exactly one label."""
    schemes: list[Literal["https", "http"]] | None = Field(default=None, max_length=2)
    """`https` if omitted."""
    ports: list[Annotated[int, Field(ge=1, le=65535)]] | None = Field(default=None, max_length=100)
    """Ports besides 443 and 80, which stand for the port of the scheme."""
    methods: _Texts | None = None
    """All methods if omitted."""
    paths: _Texts | None = Field(default=None, examples=[["/v1/*"]])
    """Paths without query; `*` stands for any characters. All paths if omitted."""


class HeaderCredentialRequest(RequestBody):
    name: _Name
    credential: _Name


class CredentialAuthRequest(RequestBody):
    type: Literal["bearer", "basic", "apiKey", "customHeaders", "passthrough"]
    credential: _Name | None = None
    name: _Name | None = None
    """Header of the type `apiKey`."""
    headers: list[HeaderCredentialRequest] | None = Field(default=None, max_length=20)
    """Headers of the type `customHeaders`."""
    substitutions: list[dict[str, object]] | None = Field(default=None, max_length=100)
    """Not supported."""


class CredentialBindingRequest(RequestBody):
    name: _Name
    match: CredentialMatchRequest
    auth: CredentialAuthRequest


class CreateVaultRequest(RequestBody):
    credentials: list[CredentialRequest] = Field(max_length=MAX_CREDENTIALS)
    bindings: list[CredentialBindingRequest] = Field(max_length=MAX_BINDINGS)


class CredentialMutations(RequestBody):
    add: list[CredentialRequest] | None = Field(default=None, max_length=MAX_CREDENTIALS)
    replace: list[CredentialRequest] | None = Field(default=None, max_length=MAX_CREDENTIALS)
    delete: list[_Name] | None = Field(default=None, max_length=MAX_CREDENTIALS)


class BindingMutations(RequestBody):
    add: list[CredentialBindingRequest] | None = Field(default=None, max_length=MAX_BINDINGS)
    replace: list[CredentialBindingRequest] | None = Field(default=None, max_length=MAX_BINDINGS)
    delete: list[_Name] | None = Field(default=None, max_length=MAX_BINDINGS)


class PatchVaultRequest(RequestBody):
    expected_revision: int | None = Field(default=None, ge=0)
    """Revision that the vault must have; otherwise nothing is changed, and the answer is 409."""
    credentials: CredentialMutations | None = None
    bindings: BindingMutations | None = None


class CredentialResponse(ResponseBody):
    name: str
    source_type: str = "inline"
    revision: int
    """Revision of the vault that set the value."""


class CredentialAuthResponse(ResponseBody):
    type: CredentialAuthType
    name: str | None = None
    credential: str | None = None
    headers: list[HeaderCredential] | None = None


class CredentialMatchResponse(ResponseBody):
    schemes: list[str]
    hosts: list[str]
    ports: list[int] | None = None
    methods: list[str] | None = None
    paths: list[str] | None = None


class CredentialBindingResponse(ResponseBody):
    name: str
    revision: int
    """Revision of the vault that set the binding."""
    match: CredentialMatchResponse
    auth: CredentialAuthResponse


class CredentialVaultResponse(ResponseBody):
    revision: int
    """Number of the last change."""
    credentials: list[CredentialResponse]
    """Credentials without their values."""
    bindings: list[CredentialBindingResponse]


class CredentialListResponse(ResponseBody):
    revision: int
    credentials: list[CredentialResponse]


class CredentialBindingListResponse(ResponseBody):
    revision: int
    bindings: list[CredentialBindingResponse]


class CredentialVaultEditor:
    """Changes and shows vaults; every change publishes an event without values."""

    def __init__(self, vaults: CredentialVaults, events: EventLog) -> None:
        self._vaults = vaults
        self._events = events

    async def get(self, sandbox: Sandbox) -> CredentialVault:
        return await self._vaults.get(sandbox)

    async def create(self, sandbox: Sandbox, body: CreateVaultRequest) -> CredentialVault:
        credentials = [new_credential(each) for each in body.credentials]
        bindings = [new_binding(each) for each in body.bindings]
        return await self._publish(sandbox, await self._vaults.create(sandbox, credentials, bindings))

    async def patch(self, sandbox: Sandbox, body: PatchVaultRequest) -> CredentialVault:
        return await self._publish(sandbox, await self._vaults.patch(sandbox, _patch_from_body(body)))

    async def put(self, sandbox: Sandbox, patch: VaultPatch) -> CredentialVault:
        """Apply a change, creating the vault if there is none."""
        return await self._publish(sandbox, await self._vaults.put(sandbox, patch))

    async def delete(self, sandbox: Sandbox) -> None:
        await self._vaults.delete(sandbox)
        await self._publish_change(sandbox, revision=None, credentials=0, bindings=0)

    async def _publish(self, sandbox: Sandbox, vault: CredentialVault) -> CredentialVault:
        counts = {"credentials": len(vault.credentials), "bindings": len(vault.bindings)}
        await self._publish_change(sandbox, revision=vault.revision, **counts)
        return vault

    async def _publish_change(self, sandbox: Sandbox, **data: int | None) -> None:
        await self._events.append(
            sandbox_event_stream(sandbox.id), EventType.VAULT_CHANGED, data, tenant=sandbox.tenant
        )


def new_credential(body: CredentialRequest) -> NewCredential:
    return NewCredential(body.name, body.source.value)


def new_binding(body: CredentialBindingRequest) -> NewBinding:
    """Convert the body. Raises `Unsupported` for substitutions in requests."""
    if body.auth.type == PASSTHROUGH or body.auth.substitutions:
        raise Unsupported(
            f"bindings.{body.name}.auth: placeholders in requests are not replaced; use the types bearer, basic, "
            "apiKey or customHeaders, which set headers"
        )
    match, auth = body.match, body.auth
    return NewBinding(
        body.name,
        CredentialMatch(
            schemes=tuple(match.schemes or ("https",)),
            ports=tuple(match.ports or ()),
            hosts=tuple(match.hosts),
            methods=tuple(match.methods or ()),
            paths=tuple(match.paths or ()),
        ),
        CredentialAuth(
            type=CredentialAuthType(auth.type),
            credential=auth.credential,
            name=auth.name,
            headers=tuple(HeaderCredential(name=each.name, credential=each.credential) for each in auth.headers or ()),
        ),
    )


def _patch_from_body(body: PatchVaultRequest) -> VaultPatch:
    credentials, bindings = body.credentials or CredentialMutations(), body.bindings or BindingMutations()
    patch = VaultPatch(
        expected_revision=body.expected_revision,
        add_credentials=[new_credential(each) for each in credentials.add or ()],
        replace_credentials=[new_credential(each) for each in credentials.replace or ()],
        delete_credentials=credentials.delete or (),
        add_bindings=[new_binding(each) for each in bindings.add or ()],
        replace_bindings=[new_binding(each) for each in bindings.replace or ()],
        delete_bindings=bindings.delete or (),
    )
    changes = (patch.add_credentials, patch.replace_credentials, patch.delete_credentials)
    if not any((*changes, patch.add_bindings, patch.replace_bindings, patch.delete_bindings)):
        raise InvalidInput("the body changes nothing; give credentials or bindings with add, replace or delete")
    return patch


def describe_vault(vault: CredentialVault) -> CredentialVaultResponse:
    return CredentialVaultResponse(
        revision=vault.revision,
        credentials=[describe_credential(each) for each in vault.credentials],
        bindings=[describe_binding(each) for each in vault.bindings],
    )


def describe_credential(credential: VaultCredential) -> CredentialResponse:
    return CredentialResponse(name=credential.name, revision=credential.revision)


def describe_binding(binding: CredentialBinding) -> CredentialBindingResponse:
    match, auth = binding.match, binding.auth
    return CredentialBindingResponse(
        name=binding.name,
        revision=binding.revision,
        match=CredentialMatchResponse(
            schemes=list(match.schemes),
            hosts=list(match.hosts),
            ports=list(match.ports) or None,
            methods=list(match.methods) or None,
            paths=list(match.paths) or None,
        ),
        auth=CredentialAuthResponse(
            type=auth.type, name=auth.name, credential=auth.credential, headers=list(auth.headers) or None
        ),
    )


def find_credential(vault: CredentialVault, name: str) -> VaultCredential:
    """Return the credential. Raises `NotFound`."""
    for credential in vault.credentials:
        if credential.name == name:
            return credential
    raise NotFound(f"the credential vault has no credential {name[:100]!r}")


def find_binding(vault: CredentialVault, name: str) -> CredentialBinding:
    """Return the binding. Raises `NotFound`."""
    for binding in vault.bindings:
        if binding.name == name:
            return binding
    raise NotFound(f"the credential vault has no binding {name[:100]!r}")
