"""The client that the conformance suite starts: opens the gateway with the suite's server, signs in, and calls a tool.

The suite gives the server's address as the last argument, and the scenario and its data in variables.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp

from paddock.auth.sealing import SecretSealer
from paddock.config.mcp import McpConfig
from paddock.config.outgoing_proxy import OutgoingProxies
from paddock.errors import McpSignInNeeded
from paddock.events.event_log import EventLog
from paddock.mcp.address_policy import McpAddressPolicy
from paddock.mcp.gateway.factory import open_mcp_services
from paddock.mcp.gateway.services import McpServices
from paddock.mcp.http_client import McpHttpClient
from paddock.mcp.oauth.public_address import PublicAddress
from paddock.mcp.protocol import CallContext
from paddock.mcp.protocol.messages import make_request
from paddock.mcp.protocol.revisions import META_CLIENT_CAPABILITIES, META_CLIENT_INFO, META_REVISION, STATELESS_REVISION
from paddock.mcp.upstreams.base import UpstreamDependencies
from paddock.store.database import Store

CONTEXT = CallContext(tenant="default", caller="user:ada", names=("ada",))
MAX_SIGN_INS = 3


class SuiteAddress(PublicAddress):
    """The addresses that the suite knows."""

    @property
    def client_document(self) -> str:
        return "https://conformance-test.local/client-metadata.json"


def declaration(url: str, scenario: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the server's declaration, with the client that the suite has registered."""
    server: dict[str, Any] = {"name": "suite", "kind": "internet", "url": url}
    oauth = {"client_id": given["client_id"]} if "client_id" in given else {}
    for secret, field in (("client_secret", "client_secret"), ("private_key_pem", "private_key")):
        if secret in given:
            oauth[field] = f"${{{secret}}}"
    if scenario.startswith("auth/client-credentials"):
        oauth["grant"] = "client_credentials"
    return {**server, "oauth": oauth} if oauth else server


async def sign_in(services: McpServices) -> None:
    """Begin a sign-in, follow its address as a browser does, and confirm."""
    server = services.gateway.directory.find("suite", CONTEXT).server
    started = await services.sign_ins.start(server, CONTEXT, SuiteAddress("http://localhost:3000"))
    async with (
        aiohttp.ClientSession() as browser,
        browser.get(started.authorization_url, allow_redirects=False) as answer,
    ):
        fields = parse_qs(urlsplit(answer.headers["Location"]).query)
    state, code, issuer, error = (fields.get(name, [None])[0] for name in ("state", "code", "iss", "error"))
    found = services.sign_ins.receive(state or "", code, issuer, error)
    await services.sign_ins.confirm(found.secret)


async def ask(services: McpServices, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a request, after as many sign-ins as it needs."""
    meta = {META_REVISION: STATELESS_REVISION, META_CLIENT_INFO: {"name": "suite-client", "version": "1"}}
    request = make_request(1, method, {**params, "_meta": {**meta, META_CLIENT_CAPABILITIES: {}}})
    for attempt in range(MAX_SIGN_INS + 1):
        try:
            endpoint = services.gateway.resolve("suite", CONTEXT)
            async with aclosing(endpoint.exchange(request, CONTEXT)) as messages:
                async for message in messages:
                    if message.is_response:
                        return message.result_object()
        except McpSignInNeeded:
            if attempt == MAX_SIGN_INS:
                raise
            await sign_in(services)
    raise AssertionError("the gateway ended without a response")


async def main(url: str) -> None:
    given = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    server = declaration(url, os.environ["MCP_CONFORMANCE_SCENARIO"], given)
    settings = McpConfig.model_validate({"allow": ["127.0.0.1", "localhost"], "servers": [server]})
    async with AsyncExitStack() as held:
        directory = Path(held.enter_context(tempfile.TemporaryDirectory()))
        store = await held.enter_async_context(await Store.open(directory / "paddock.db"))
        events = await EventLog.open(store)
        held.callback(events.close)
        client = McpHttpClient(McpAddressPolicy(settings.allow), OutgoingProxies())
        held.push_async_callback(client.close)
        services = await open_mcp_services(
            settings,
            store,
            events,
            UpstreamDependencies(client=client, secrets=given.get),
            held,
            make_mask=lambda secrets: str,
            sealer=SecretSealer.open(directory / "key"),
        )
        tools = (await ask(services, "tools/list", {}))["tools"]
        if tools:
            await ask(services, "tools/call", {"name": tools[0]["name"], "arguments": {}})


asyncio.run(main(sys.argv[-1]))
