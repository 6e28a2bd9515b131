"""Sign-ins at MCP servers that fail or are attacked."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import aiohttp
import pytest
from aiohttp import web

from paddock.auth.sealing import SecretSealer
from paddock.config.mcp import McpConfig
from paddock.config.outgoing_proxy import OutgoingProxies
from paddock.errors import Forbidden, McpSignInFailed, McpSignInNeeded, PaddockError, Unavailable
from paddock.events.event_log import EventLog
from paddock.mcp.address_policy import McpAddressPolicy
from paddock.mcp.gateway.factory import open_mcp_services
from paddock.mcp.gateway.services import McpServices
from paddock.mcp.http_client import McpHttpClient
from paddock.mcp.oauth import oauth_http, pending_sign_ins
from paddock.mcp.oauth.oauth_http import OAuthClients, OAuthHttp
from paddock.mcp.oauth.public_address import PublicAddress
from paddock.mcp.protocol import CallContext
from paddock.mcp.protocol.messages import make_request
from paddock.mcp.protocol.revisions import META_CLIENT_CAPABILITIES, META_CLIENT_INFO, META_REVISION, STATELESS_REVISION
from paddock.mcp.upstreams.base import UpstreamDependencies
from paddock.model.mcp import McpServer
from paddock.store.database import Store
from tests.support.fake_sign_in_server import Answer, FakeSignInServer, fake_sign_in_server

ADA = CallContext(tenant="default", caller="user:ada", names=("ada",))
BOB = replace(ADA, caller="user:bob", names=("bob",))
ADDRESS = PublicAddress("http://127.0.0.1:8420")
METADATA = "http://169.254.169.254/latest/meta-data"
RESOURCE_PATH = "/.well-known/oauth-protected-resource/mcp"
ISSUER_PATH = "/.well-known/oauth-authorization-server"
pytestmark = pytest.mark.anyio


@dataclass
class Setup:
    services: McpServices
    fake: FakeSignInServer
    directory: Path

    @property
    def server(self) -> McpServer:
        return self.services.gateway.directory.find("suite", ADA).server

    async def call(self, context: CallContext = ADA, method: str = "tools/call") -> dict[str, Any]:
        meta = {META_REVISION: STATELESS_REVISION, META_CLIENT_INFO: {"name": "tests", "version": "1"}}
        params = {"name": "whoami", "arguments": {}} if method == "tools/call" else {}
        request = make_request(1, method, {**params, "_meta": {**meta, META_CLIENT_CAPABILITIES: {}}})
        endpoint = self.services.gateway.resolve("suite", context)
        async with aclosing(endpoint.exchange(request, context)) as messages:
            async for message in messages:
                if message.is_response:
                    return message.result_object()
        raise AssertionError("no response")

    async def authorize(self, context: CallContext = ADA) -> dict[str, str]:
        """Begin a sign-in, and return the parameters with which the authorization server answers."""
        started = await self.services.sign_ins.start(self.server, context, ADDRESS)
        async with (
            aiohttp.ClientSession() as browser,
            browser.get(started.authorization_url, allow_redirects=False) as answer,
        ):
            return {name: values[0] for name, values in parse_qs(urlsplit(answer.headers["Location"]).query).items()}

    async def finish(self, answer: dict[str, str]) -> None:
        names = ("state", "code", "iss", "error")
        state, code, issuer, error = (answer.get(name) for name in names)
        found = self.services.sign_ins.receive(state or "", code, issuer, error)
        await self.services.sign_ins.confirm(found.secret)

    async def sign_in(self, context: CallContext = ADA) -> None:
        await self.finish(await self.authorize(context))


@pytest.fixture(scope="module")
def module_fake() -> Iterator[FakeSignInServer]:
    with fake_sign_in_server() as fake:
        yield fake


@pytest.fixture
def fake(module_fake: FakeSignInServer) -> FakeSignInServer:
    module_fake.reset()
    return module_fake


@pytest.fixture
async def setup(fake: FakeSignInServer, tmp_path: Path) -> AsyncIterator[Setup]:
    async with open_setup(fake, tmp_path) as setup:
        yield setup


@asynccontextmanager
async def open_setup(fake: FakeSignInServer, directory: Path, **oauth: Any) -> AsyncIterator[Setup]:
    server = {"name": "suite", "kind": "internet", "url": fake.url} | ({"oauth": oauth} if oauth else {})
    settings = McpConfig.model_validate({"allow": ["127.0.0.1"], "servers": [server]})
    async with AsyncExitStack() as held:
        store = await held.enter_async_context(await Store.open(directory / "paddock.db"))
        events = await EventLog.open(store)
        held.callback(events.close)
        client = McpHttpClient(McpAddressPolicy(settings.allow), OutgoingProxies())
        internet = McpHttpClient(McpAddressPolicy(), OutgoingProxies())
        held.push_async_callback(client.close)
        held.push_async_callback(internet.close)
        services = await open_mcp_services(
            settings,
            store,
            events,
            UpstreamDependencies(client=client, internet_client=internet),
            held,
            make_mask=lambda secrets: str,
            sealer=SecretSealer.open(directory / "key"),
        )
        yield Setup(services, fake, directory)


def redirect(target: str) -> Answer:
    return lambda request: web.Response(status=302, headers={"Location": target})


def with_body(content: bytes) -> Answer:
    return lambda request: web.Response(body=content)


def text_of(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


async def test_a_call_without_a_sign_in_names_the_command(setup: Setup) -> None:
    with pytest.raises(McpSignInNeeded, match="paddock mcp login suite"):
        await setup.call()
    await setup.sign_in()
    assert text_of(await setup.call()).startswith("token ")


async def test_each_user_has_a_token_of_its_own(setup: Setup) -> None:
    await setup.sign_in(ADA)
    with pytest.raises(McpSignInNeeded):
        await setup.call(BOB)
    with pytest.raises(McpSignInNeeded):
        await setup.call(replace(ADA, tenant="others"))
    await setup.sign_in(BOB)
    assert text_of(await setup.call(ADA)) != text_of(await setup.call(BOB))
    sent = {each.headers.get("Authorization") for each in setup.fake.requests_to("/mcp")} - {None}
    assert sent == {f"Bearer {token}" for token in setup.fake.access_tokens}


async def test_one_sign_in_of_a_tenant_counts_for_all(fake: FakeSignInServer, tmp_path: Path) -> None:
    async with open_setup(fake, tmp_path, per="tenant") as setup:
        await setup.sign_in(ADA)
        assert await setup.call(BOB)
        with pytest.raises(McpSignInNeeded):
            await setup.call(replace(BOB, tenant="others"))


async def test_tokens_survive_a_restart_and_are_not_readable(fake: FakeSignInServer, tmp_path: Path) -> None:
    async with open_setup(fake, tmp_path) as setup:
        await setup.sign_in()
        tokens = [*fake.access_tokens, *fake.refresh_tokens]
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("paddock.db*"))
    assert b"mcp_oauth_tokens" in stored and not [token for token in tokens if token.encode() in stored]
    async with open_setup(fake, tmp_path) as setup:
        assert await setup.call()
    (tmp_path / "key").unlink()
    async with open_setup(fake, tmp_path) as setup:
        with pytest.raises(McpSignInNeeded):
            await setup.call()


async def test_a_server_with_another_address_gets_no_token(setup: Setup) -> None:
    await setup.sign_in()
    credentials = setup.services.sign_ins.credentials
    assert await credentials.headers(setup.server, ADA)
    for changed in ({"url": "https://evil.example/mcp"}, {"name": "other"}):
        assert not await credentials.headers(setup.server.model_copy(update=changed), ADA)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"iss": "https://evil.example"}, "another authorization server"),
        ({"iss": None}, "does not name its authorization server"),
        ({"iss": "https://evil.example", "error": "access_denied", "code": None}, "another authorization server"),
        ({"error": "access_denied", "code": None}, "refused the sign-in: access_denied"),
        ({"code": None}, "no code"),
    ],
)
async def test_mixed_up_answers_redeem_no_code(setup: Setup, change: dict[str, Any], reason: str) -> None:
    answer = {**await setup.authorize(), **change}
    with pytest.raises(McpSignInFailed, match=reason):
        await setup.finish({name: value for name, value in answer.items() if value is not None})
    assert not setup.fake.requests_to("/token")
    _, attempt = setup.services.sign_ins.find(setup.server, ADA)
    assert attempt is not None and attempt.state == "failed" and reason in (attempt.error or "")


async def test_a_state_counts_once(setup: Setup) -> None:
    answer = await setup.authorize()
    await setup.finish(answer)
    with pytest.raises(McpSignInFailed, match="unknown, was used already"):
        await setup.finish(answer)
    with pytest.raises(McpSignInFailed, match="unknown, was used already"):
        await setup.finish({**answer, "state": "guessed"})
    assert len(setup.fake.requests_to("/token")) == 1


async def test_a_confirmation_counts_once_and_cannot_be_the_state(setup: Setup) -> None:
    answer = await setup.authorize()
    sign_ins = setup.services.sign_ins
    found = sign_ins.receive(answer["state"], answer["code"], answer["iss"], None)
    with pytest.raises(McpSignInFailed):
        await sign_ins.confirm(answer["state"])
    await sign_ins.confirm(found.secret)
    with pytest.raises(McpSignInFailed):
        await sign_ins.confirm(found.secret)
    unanswered = parse_qs(urlsplit((await sign_ins.start(setup.server, BOB, ADDRESS)).authorization_url).query)
    with pytest.raises(McpSignInFailed, match="has not answered"):
        await sign_ins.confirm(unanswered["state"][0])


async def test_an_expired_state_is_refused(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = await setup.authorize()
    monkeypatch.setattr(pending_sign_ins, "LIFETIME", 0.0)
    with pytest.raises(McpSignInFailed, match="expired"):
        await setup.finish(answer)
    assert not setup.fake.requests_to("/token")


async def test_a_foreign_state_signs_in_the_user_who_began(setup: Setup) -> None:
    """The token goes to the person that began the sign-in; the page says so before the code is redeemed."""
    answer = await setup.authorize(BOB)
    found = setup.services.sign_ins.receive(answer["state"], answer["code"], answer["iss"], None)
    assert found.pending.user == "bob" and not setup.fake.requests_to("/token")
    setup.services.sign_ins.refuse(found.secret)
    with pytest.raises(McpSignInNeeded):
        await setup.call(BOB)
    with pytest.raises(McpSignInNeeded):
        await setup.call(ADA)


async def test_one_refresh_serves_all_callers(setup: Setup) -> None:
    setup.fake.lifetime = 1
    await setup.sign_in()
    setup.fake.lifetime = 3600
    results = await asyncio.gather(*(setup.call() for _ in range(20)))
    assert len({text_of(each) for each in results}) == 1
    assert len(setup.fake.token_requests("refresh_token")) == 1


async def test_a_caller_that_leaves_does_not_lose_the_rotated_token(setup: Setup) -> None:
    setup.fake.lifetime = 1
    await setup.sign_in()
    setup.fake.lifetime, setup.fake.hold_refresh = 3600, threading.Event()
    leaving = asyncio.create_task(setup.call())
    while not setup.fake.token_requests("refresh_token"):
        await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    setup.fake.hold_refresh.set()
    assert await setup.call()
    assert len(setup.fake.token_requests("refresh_token")) == 1


async def test_an_expired_refresh_asks_for_a_sign_in(setup: Setup) -> None:
    setup.fake.lifetime = 1
    await setup.sign_in()
    setup.fake.refresh_tokens.clear()
    with pytest.raises(McpSignInNeeded, match="the sign-in has ended"):
        await setup.call()
    token, _ = setup.services.sign_ins.find(setup.server, ADA)
    assert token is None
    with pytest.raises(McpSignInNeeded):
        await setup.call()
    assert len(setup.fake.token_requests("refresh_token")) == 1


async def test_a_broken_token_endpoint_does_not_sign_out(setup: Setup) -> None:
    setup.fake.lifetime = 1
    await setup.sign_in()
    setup.fake.answers["/token"] = lambda request: web.Response(status=503)
    with pytest.raises(McpSignInFailed, match="status 503"):
        await setup.call()
    del setup.fake.answers["/token"]
    assert await setup.call()


async def test_a_revoked_token_is_refreshed(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    await setup.sign_in()
    monkeypatch.setattr("paddock.mcp.oauth.credentials.FRESH_SECONDS", -timedelta(hours=1))
    setup.fake.access_tokens.clear()
    assert await setup.call()
    assert len(setup.fake.token_requests("refresh_token")) == 1


async def test_a_token_that_is_refused_at_once_ends_the_call(setup: Setup) -> None:
    await setup.sign_in()
    setup.fake.answers["/mcp"] = lambda request: web.Response(status=401, headers={"WWW-Authenticate": "Bearer"})
    with pytest.raises(McpSignInNeeded, match="refuses the new token"):
        await setup.call()
    assert len(setup.fake.requests_to("/token")) == 1


async def test_further_scopes_are_asked_for_with_the_earlier_ones(setup: Setup) -> None:
    setup.fake.scopes, setup.fake.tool_scope = "read", "write"
    await setup.sign_in()
    assert await setup.call(method="tools/list")
    with pytest.raises(McpSignInNeeded, match="further scopes write"):
        await setup.call()
    await setup.sign_in()
    assert set(setup.fake.requests_to("/authorize")[-1].fields["scope"].split()) == {"read", "write"}
    assert await setup.call()


@pytest.mark.parametrize(
    "target", [METADATA, "https://169.254.169.254/", "https://[fd00:ec2::254]/", "https://10.0.0.1/"]
)
async def test_discovery_never_leads_to_private_addresses(setup: Setup, target: str) -> None:
    """Not in the metadata of the server, not as issuer, not as endpoint, not by a redirect."""
    fake = setup.fake
    challenge = {"WWW-Authenticate": f'Bearer resource_metadata="{target}"'}

    async def refused() -> None:
        with pytest.raises((Forbidden, McpSignInFailed)) as caught:
            await setup.authorize()
        assert "https" in caught.value.message or "address" in caught.value.message
        fake.reset()

    fake.answers["/mcp"] = lambda request: web.Response(status=401, headers=challenge)
    await refused()
    fake.answers[RESOURCE_PATH] = redirect(target)
    await refused()
    fake.resource["authorization_servers"] = [target]
    await refused()
    fake.answers[ISSUER_PATH] = redirect(target)
    await refused()
    for endpoint in ("token_endpoint", "registration_endpoint", "authorization_endpoint", "revocation_endpoint"):
        fake.metadata[endpoint] = target
        await refused()


async def test_token_requests_are_not_redirected(setup: Setup) -> None:
    setup.fake.answers["/token"] = redirect(f"{setup.fake.origin}/elsewhere")
    with pytest.raises(McpSignInFailed, match="redirects"):
        await setup.sign_in()
    assert not setup.fake.requests_to("/elsewhere")


async def test_servers_on_the_internet_lead_to_public_addresses_only() -> None:
    """Even if the operator allows private ones to servers in the own network."""
    client = McpHttpClient(McpAddressPolicy(["127.0.0.0/8", "10.0.0.0/8"]), OutgoingProxies())
    internet = McpHttpClient(McpAddressPolicy(), OutgoingProxies())
    try:
        clients = OAuthClients(client, internet)
        chosen = await clients.choose(McpServer(name="a", kind="internet", url="https://tools.example.org/mcp"))
        for address in ("https://10.0.0.1/token", "https://127.0.0.1/token", "http://127.0.0.1/token"):
            with pytest.raises(Forbidden):
                await chosen.post_form(address, {})
        private = await clients.choose(McpServer(name="a", kind="remote", url="https://10.0.0.1/mcp", oauth={}))
        assert private.check_address("https://10.0.0.1/token")
        with pytest.raises(Forbidden, match="https"):
            private.check_address("http://10.0.0.1/token")
        with pytest.raises(Forbidden):
            await chosen.get_document("https://localhost:1/")  # A name, checked when it is resolved.
    finally:
        await client.close()
        await internet.close()


@pytest.mark.parametrize("path", [RESOURCE_PATH, ISSUER_PATH, "/register", "/token"])
async def test_huge_and_broken_documents_are_refused(setup: Setup, path: str) -> None:
    for content in (
        b"{" * 10**6,
        b"\xff\x00garbage",
        b"[]",
        b'{"issuer": 5, "resource": [], "client_id": {}}',
        b"[" * 9**5,
    ):
        setup.fake.answers[path] = with_body(content)
        started = time.monotonic()
        with pytest.raises(PaddockError):
            await setup.sign_in()
        assert time.monotonic() - started < 10
    setup.fake.answers.clear()
    await setup.sign_in()


async def test_slow_documents_are_given_up(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    await setup.sign_in()
    monkeypatch.setattr(oauth_http, "REQUEST_TIMEOUT", 0.05)
    setup.fake.hold_refresh = threading.Event()
    http = OAuthHttp(setup.services.sign_ins._clients._client)
    with pytest.raises(Unavailable, match="does not answer within"):
        await http.post_form(f"{setup.fake.origin}/token", {"grant_type": "refresh_token"})
    setup.fake.hold_refresh.set()


@pytest.mark.parametrize(
    ("resource", "metadata", "reason"),
    [
        ({"resource": "https://evil.example/mcp"}, {}, "another resource"),
        ({"authorization_servers": []}, {}, "no authorization server"),
        ({}, {"issuer": "https://honest.example"}, "another issuer"),
        ({}, {"code_challenge_methods_supported": ["plain"]}, "PKCE"),
        ({}, {"registration_endpoint": None}, "by hand"),
        ({}, {"authorization_endpoint": None}, "no page"),
    ],
)
async def test_unusable_metadata_says_why(
    setup: Setup, resource: dict[str, Any], metadata: dict[str, Any], reason: str
) -> None:
    setup.fake.resource |= resource
    setup.fake.metadata |= metadata
    with pytest.raises(McpSignInFailed, match=reason):
        await setup.authorize()
    assert not setup.fake.requests_to("/authorize")


async def test_a_changed_authorization_server_gets_no_tokens_of_the_former(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    await setup.sign_in()
    monkeypatch.setattr("paddock.mcp.oauth.credentials.FRESH_SECONDS", -timedelta(hours=1))
    with fake_sign_in_server() as other:
        setup.fake.issuer = other.origin
        setup.fake.access_tokens.clear()
        with pytest.raises(McpSignInNeeded, match="another authorization server"):
            await setup.call()
        await setup.finish(await setup.authorize())
        assert len(other.requests_to("/register")) == 1 and len(other.token_requests("authorization_code")) == 1
        assert not other.token_requests("refresh_token") and not setup.fake.token_requests("refresh_token")
        setup.fake.access_tokens |= other.access_tokens
        assert await setup.call()


async def test_a_client_registered_by_hand_is_for_one_authorization_server(
    fake: FakeSignInServer, tmp_path: Path
) -> None:
    """A server that names another one does not make the gateway send the secret there, also after a restart."""
    client = {"client_id": "by-hand", "client_secret": "a-secret-of-the-client"}
    fake.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_post"]
    async with open_setup(fake, tmp_path, **client) as setup:
        await setup.sign_in()
        assert fake.token_requests("authorization_code")[0].fields["client_secret"] == client["client_secret"]
    with fake_sign_in_server() as other:
        fake.issuer = other.origin
        async with open_setup(fake, tmp_path, **client) as setup:
            with pytest.raises(McpSignInFailed, match="is registered at"):
                await setup.sign_in()
        assert not other.requests_to("/token") and not other.requests_to("/authorize")
        async with open_setup(fake, tmp_path, **client, issuer=other.origin) as setup:
            await setup.sign_in()


async def test_a_forgotten_client_is_registered_again(setup: Setup) -> None:
    await setup.sign_in()
    await setup.sign_in()
    assert len(setup.fake.requests_to("/register")) == 1
    setup.fake.answers["/token"] = lambda request: web.json_response({"error": "invalid_client"}, status=401)
    with pytest.raises(McpSignInFailed, match="invalid_client"):
        await setup.sign_in()
    setup.fake.answers.clear()
    await setup.sign_in()
    assert len(setup.fake.requests_to("/register")) == 2


async def test_signing_out_revokes(setup: Setup) -> None:
    await setup.sign_in()
    assert await setup.services.sign_ins.sign_out(setup.server, ADA)
    assert len(setup.fake.requests_to("/revoke")) == 1 and not setup.fake.refresh_tokens
    with pytest.raises(McpSignInNeeded):
        await setup.call()


async def test_answers_of_the_authorization_server_cannot_change_the_query(setup: Setup) -> None:
    """An endpoint with parameters of its own keeps them, but cannot replace parameters of the sign-in."""
    given = urlencode({"tenant": "x", "redirect_uri": "https://evil.example", "state": "known"})
    setup.fake.metadata["authorization_endpoint"] = f"{setup.fake.origin}/authorize?{given}"
    started = await setup.services.sign_ins.start(setup.server, ADA, ADDRESS)
    query = parse_qs(urlsplit(started.authorization_url).query)
    assert query["tenant"] == ["x"] and query["redirect_uri"] == [ADDRESS.redirect_uri]
    assert len(query["state"]) == 1 and query["state"] != ["known"] and query["code_challenge_method"] == ["S256"]
