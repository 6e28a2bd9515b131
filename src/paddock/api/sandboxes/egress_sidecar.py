"""Port of the egress sidecar that OpenSandbox's clients expect in a sandbox: network policy and credential vault."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import unquote

from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.types import Receive, Scope, Send

from paddock.api.http.error_responses import describe_validation_errors, send_error_response
from paddock.api.sandboxes.credential_vault import (
    CreateVaultRequest,
    CredentialBindingListResponse,
    CredentialListResponse,
    CredentialVaultEditor,
    PatchVaultRequest,
    describe_binding,
    describe_credential,
    describe_vault,
    find_binding,
    find_credential,
)
from paddock.api.sandboxes.network_policy import NetworkPolicyEditor, PolicyChange, RuleChanges, RuleTargets
from paddock.api.sandboxes.opensandbox_policy import (
    NetworkPolicyRequest,
    delete_rules,
    patch_rules,
    rules_from_policy,
)
from paddock.errors import InvalidInput, NotFound, TooLarge
from paddock.model.sandbox import Sandbox

EGRESS_PORT = 18080
"""Port of OpenSandbox's egress sidecar."""
MAX_BODY = 2 * 2**20
VAULT_PATH = "/credential-vault"
Body = TypeVar("Body")


@dataclass(frozen=True)
class EgressSidecar:
    """Answers requests to the sidecar's port."""

    policies: NetworkPolicyEditor
    vaults: CredentialVaultEditor

    async def serve(self, scope: Scope, receive: Receive, send: Send, sandbox: Sandbox, path: bytes) -> None:
        """Answer a request. Raises `PaddockError` before anything is answered."""
        method = "WEBSOCKET" if scope["type"] == "websocket" else scope["method"]
        if path in (b"/healthz", b"/health") and method == "GET":
            return await _send_json(send, {"status": "ok"})
        if path == b"/policy":
            return await self._serve_policy(method, receive, send, sandbox)
        if path == VAULT_PATH.encode() or path.startswith(VAULT_PATH.encode() + b"/"):
            rest = path.decode("ascii", "replace").removeprefix(VAULT_PATH)
            return await self._serve_vault(method, rest, receive, send, sandbox)
        raise NotFound(f"the network policy is at /policy, the credential vault at {VAULT_PATH}")

    async def _serve_policy(self, method: str, receive: Receive, send: Send, sandbox: Sandbox) -> None:
        if method not in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            return await _refuse_method(send, "/policy", method)
        if method != "GET":
            change = _parse_policy_change(method, await _read_body(receive))
            sandbox = await self.policies.change(sandbox.tenant, sandbox.id, change)
        return await _send_json(send, self.policies.describe(sandbox))

    async def _serve_vault(self, method: str, path: str, receive: Receive, send: Send, sandbox: Sandbox) -> None:
        if path:
            return await self._serve_vault_part(method, path, send, sandbox)
        if method == "GET":
            return await _send_json(send, describe_vault(await self.vaults.get(sandbox)))
        if method == "POST":
            body = _parse_body(TypeAdapter(CreateVaultRequest), await _read_body(receive))
            return await _send_json(send, describe_vault(await self.vaults.create(sandbox, body)), 201)
        if method == "PATCH":
            changes = _parse_body(TypeAdapter(PatchVaultRequest), await _read_body(receive))
            return await _send_json(send, describe_vault(await self.vaults.patch(sandbox, changes)))
        if method == "DELETE":
            await self.vaults.delete(sandbox)
            return await _send_json(send, None, 204)
        return await _refuse_method(send, VAULT_PATH, method)

    async def _serve_vault_part(self, method: str, path: str, send: Send, sandbox: Sandbox) -> None:
        collection, *names = path[1:].split("/")
        if collection not in ("credentials", "bindings") or len(names) > 1:
            raise NotFound(f"{VAULT_PATH} has credentials and bindings")
        if method != "GET":
            return await _refuse_method(send, VAULT_PATH + path, method)
        vault = await self.vaults.get(sandbox)
        answer: BaseModel
        if collection == "credentials" and names:
            answer = describe_credential(find_credential(vault, unquote(names[0])))
        elif collection == "credentials":
            answer = CredentialListResponse(
                revision=vault.revision, credentials=[describe_credential(each) for each in vault.credentials]
            )
        elif names:
            answer = describe_binding(find_binding(vault, unquote(names[0])))
        else:
            answer = CredentialBindingListResponse(
                revision=vault.revision, bindings=[describe_binding(each) for each in vault.bindings]
            )
        return await _send_json(send, answer)


def _parse_policy_change(method: str, body: bytes) -> PolicyChange:
    """Return the change of the policy that a request asks for. Raises `InvalidInput`."""
    if method in ("POST", "PUT"):
        rules = rules_from_policy(_parse_body(TypeAdapter(NetworkPolicyRequest), body or b"{}"))
        return lambda _: rules
    if method == "PATCH":
        changes = _parse_body(TypeAdapter(RuleChanges), body)
        return lambda current: patch_rules(current, changes)
    targets = _parse_body(TypeAdapter(RuleTargets), body)
    return lambda current: delete_rules(current, targets)


def _parse_body(kind: TypeAdapter[Body], body: bytes) -> Body:
    """Parse a JSON body. Raises `InvalidInput` that names the wrong field and shows no values."""
    try:
        return kind.validate_json(body)
    except ValidationError as error:
        problems = [{**problem, "loc": ("body", *problem["loc"])} for problem in error.errors(include_url=False)]
        raise InvalidInput(describe_validation_errors(problems)) from None


async def _read_body(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += bytes(message.get("body", b""))
        if len(body) > MAX_BODY:
            raise TooLarge(f"a request to this port may have {MAX_BODY} bytes")
        if not message.get("more_body"):
            return body


async def _refuse_method(send: Send, path: str, method: str) -> None:
    await send_error_response(send, 405, "METHOD_NOT_ALLOWED", f"{path} does not answer {method}")


async def _send_json(send: Send, answer: BaseModel | object | None, status: int = 200) -> None:
    if isinstance(answer, BaseModel):
        answer = answer.model_dump(mode="json", by_alias=True, exclude_none=True)
    body = b"" if answer is None else json.dumps(answer).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers if answer is not None else []})
    await send({"type": "http.response.body", "body": body})
