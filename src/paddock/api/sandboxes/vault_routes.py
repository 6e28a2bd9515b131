"""Routes for the credential vault of a sandbox; values are written, never read."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field

from paddock.api.http.authorization import SandboxReader, SandboxWriter
from paddock.api.http.body_models import RequestBody
from paddock.api.http.error_responses import openapi_errors
from paddock.api.sandboxes.credential_vault import (
    CreateVaultRequest,
    CredentialAuthRequest,
    CredentialBindingRequest,
    CredentialMatchRequest,
    CredentialVaultEditor,
    CredentialVaultResponse,
    PatchVaultRequest,
    describe_vault,
    new_binding,
)
from paddock.api.services import ApiServices
from paddock.network.vault.vault_changes import MAX_VALUE, NewCredential, VaultPatch

ExpectedRevision = Annotated[int | None, Query(alias="expectedRevision", ge=0)]


class PutCredentialRequest(RequestBody):
    value: str = Field(max_length=MAX_VALUE, repr=False)
    """The secret value. It is never returned."""


class PutBindingRequest(RequestBody):
    match: CredentialMatchRequest
    auth: CredentialAuthRequest


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}/vault", tags=["Credential vault"])
    editor = CredentialVaultEditor(services.vaults, services.events)
    fleet = services.fleet
    reading_errors, errors = openapi_errors(404, 409, 412), openapi_errors(404, 409, 412)

    @router.get("", responses=reading_errors, response_model_exclude_none=True)
    async def get_vault(sandbox_id: str, principal: SandboxReader) -> CredentialVaultResponse:
        """Return the credentials, without their values, and the bindings."""
        return describe_vault(await editor.get(await fleet.get(principal.tenant, sandbox_id)))

    @router.post("", status_code=201, responses=errors, response_model_exclude_none=True)
    async def create_vault(
        sandbox_id: str, body: CreateVaultRequest, principal: SandboxWriter
    ) -> CredentialVaultResponse:
        """Write the first credentials and bindings."""
        return describe_vault(await editor.create(await fleet.get(principal.tenant, sandbox_id), body))

    @router.patch("", responses=errors, response_model_exclude_none=True)
    async def patch_vault(
        sandbox_id: str, body: PatchVaultRequest, principal: SandboxWriter
    ) -> CredentialVaultResponse:
        """Change credentials and bindings together; the next request of the sandbox uses them."""
        return describe_vault(await editor.patch(await fleet.get(principal.tenant, sandbox_id), body))

    @router.delete("", status_code=204, responses=errors)
    async def delete_vault(sandbox_id: str, principal: SandboxWriter) -> Response:
        """Delete all credentials and bindings."""
        await editor.delete(await fleet.get(principal.tenant, sandbox_id))
        return Response(status_code=204)

    @router.put("/credentials/{name}", responses=errors, response_model_exclude_none=True)
    async def put_credential(
        sandbox_id: str,
        name: str,
        body: PutCredentialRequest,
        principal: SandboxWriter,
        expected_revision: ExpectedRevision = None,
    ) -> CredentialVaultResponse:
        """Write a credential, in place of an earlier value."""
        sandbox = await fleet.get(principal.tenant, sandbox_id)
        patch = VaultPatch(expected_revision, put_credentials=[NewCredential(name, body.value)])
        return describe_vault(await editor.put(sandbox, patch))

    @router.delete("/credentials/{name}", responses=errors, response_model_exclude_none=True)
    async def delete_credential(
        sandbox_id: str, name: str, principal: SandboxWriter, expected_revision: ExpectedRevision = None
    ) -> CredentialVaultResponse:
        """Delete a credential that no binding uses."""
        sandbox = await fleet.get(principal.tenant, sandbox_id)
        patch = VaultPatch(expected_revision, delete_credentials=[name])
        return describe_vault(await editor.put(sandbox, patch))

    @router.put("/bindings/{name}", responses=errors, response_model_exclude_none=True)
    async def put_binding(
        sandbox_id: str,
        name: str,
        body: PutBindingRequest,
        principal: SandboxWriter,
        expected_revision: ExpectedRevision = None,
    ) -> CredentialVaultResponse:
        """Bind credentials to requests, in place of an earlier binding of this name."""
        sandbox = await fleet.get(principal.tenant, sandbox_id)
        binding = new_binding(CredentialBindingRequest(name=name, match=body.match, auth=body.auth))
        return describe_vault(await editor.put(sandbox, VaultPatch(expected_revision, put_bindings=[binding])))

    @router.delete("/bindings/{name}", responses=errors, response_model_exclude_none=True)
    async def delete_binding(
        sandbox_id: str, name: str, principal: SandboxWriter, expected_revision: ExpectedRevision = None
    ) -> CredentialVaultResponse:
        """Delete a binding; its requests are sent as the programs wrote them."""
        sandbox = await fleet.get(principal.tenant, sandbox_id)
        patch = VaultPatch(expected_revision, delete_bindings=[name])
        return describe_vault(await editor.put(sandbox, patch))

    return router
