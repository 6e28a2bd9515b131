"""Several servers as one: all that a caller may use, or the servers of a set.

Tools and prompts carry the name of their server. A server that is slow or down does not hide the others: its tools stay
from its last list, and `_meta` of the list names it and says why.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from msgspec import Raw

from paddock.errors import InvalidInput, NotFound, PaddockError, Unavailable
from paddock.mcp.gateway.envelopes import RawObject, decisive_text, encode_raw, raw_object, raw_text, with_raw_params
from paddock.mcp.gateway.merged_listen import listen_to_all
from paddock.mcp.gateway.resource_routes import (
    find_resource_owner,
    merge_resources,
    split_qualified_uri,
    with_content_uri,
)
from paddock.mcp.gateway.server_lists import LIST_FIELDS, ListItem, ServerList, ServerLists
from paddock.mcp.gateway.tool_names import aggregate_name, server_prefix
from paddock.mcp.gateway.tool_rules import TOOLS_CALL, ToolNames
from paddock.mcp.protocol import CallContext, JsonRpcMessage, McpEndpoint
from paddock.mcp.protocol.messages import INVALID_PARAMS, METHOD_NOT_FOUND, make_error, make_result
from paddock.mcp.protocol.revisions import (
    COMPLETE,
    DISCOVER,
    LISTEN,
    META_SERVER_INFO,
    RESULT_TYPE,
    SUPPORTED_REVISIONS,
)

PAGE_SIZE = 2000
"""Items of one page of an aggregate's list."""
META_MISSING = "paddock/missing"
"""Field of `_meta` of a list: servers whose list is missing or old, with the reasons."""
MAX_SHOWN = 100
MAX_RENAMED_AT_ONCE = 500
"""Items that are renamed on the event loop; more would hold it."""
CAPABILITIES = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
    "logging": {},
}


class MemberNames:
    """Names of one server's tools and prompts in an aggregate; `rules` are the rules of a set."""

    def __init__(self, server: str, rules: ToolNames | None = None, renamed: Mapping[str, str] | None = None) -> None:
        self.server = server
        self.prefix = server_prefix(server)
        self._rules = rules
        self._renamed = renamed or {}
        self.exact_names = {
            name: own for own, name in self._renamed.items() if rules is None or rules.offered_name(own) is not None
        }
        """The server's name of a tool by the name that the set gives it."""

    def tool_name(self, own: str) -> str | None:
        """Return the aggregate's name of a tool; None if the set leaves it out."""
        if self._rules is not None and self._rules.offered_name(own) is None:
            return None
        return self._renamed.get(own) or aggregate_name(self.server, own)

    def prompt_name(self, own: str) -> str:
        return aggregate_name(self.server, own)


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateMember:
    """One server of an aggregate."""

    names: MemberNames
    endpoint: McpEndpoint
    lists: ServerLists

    @property
    def server(self) -> str:
        return self.names.server

    @property
    def prefix(self) -> str:
        return self.names.prefix


@dataclass(frozen=True, slots=True)
class _Route:
    """Where a request goes, and with which parameters."""

    member: AggregateMember
    params: RawObject
    own_uri: str | None = None
    shown_uri: str | None = None


class AggregateEndpoint:
    """Answers for several servers. `title` and `instructions` describe them to clients."""

    def __init__(
        self, members: Iterable[AggregateMember], *, title: str, instructions: str, list_timeout: float
    ) -> None:
        self._members = sorted(members, key=lambda member: member.server)
        self._by_prefix = {member.prefix: member for member in self._members}
        self._title = title
        self._instructions = instructions
        self._list_timeout = list_timeout

    def exchange(self, request: JsonRpcMessage, context: CallContext) -> AsyncGenerator[JsonRpcMessage, None]:
        if request.method == LISTEN:
            return listen_to_all(request, context, self._members)
        if request.method in LIST_FIELDS or request.method == DISCOVER:
            return self._answered(request, context)
        return self._forwarded(request, context)

    async def _answered(self, request: JsonRpcMessage, context: CallContext) -> AsyncGenerator[JsonRpcMessage, None]:
        assert isinstance(request.id, (int, str))
        if request.method == DISCOVER:
            yield make_result(request.id, self._discovered())
        else:
            yield make_result(request.id, await self._listed(request, context))

    async def _forwarded(self, request: JsonRpcMessage, context: CallContext) -> AsyncGenerator[JsonRpcMessage, None]:
        assert isinstance(request.id, (int, str))
        params = raw_object(request.params, "params")
        try:
            route = await self._route(str(request.method), params, context)
        except NotFound as error:
            yield make_error(request.id, INVALID_PARAMS, error.message)
            return
        if route is None:
            yield make_error(request.id, METHOD_NOT_FOUND, f"{self._title} does not have {str(request.method)[:100]}")
            return
        inner = with_raw_params(request, route.params)
        async with aclosing(route.member.endpoint.exchange(inner, context)) as messages:
            async for message in messages:
                if route.shown_uri is not None and route.own_uri is not None and message.is_response:
                    message = with_content_uri(message, route.own_uri, route.shown_uri)
                yield message

    async def _route(self, method: str, params: RawObject, context: CallContext) -> _Route | None:
        if method == TOOLS_CALL:
            member, own = await self._find_tool(decisive_text(params, "name"), context)
            return _Route(member, params | {"name": encode_raw(own)})
        if method == "prompts/get":
            member, own = await self._find_prompt(decisive_text(params, "name"), context)
            return _Route(member, params | {"name": encode_raw(own)})
        if method == "resources/read":
            uri = decisive_text(params, "uri")
            member, own = await self._find_resource(uri, context)
            shown = None if own == uri else uri
            return _Route(member, params | {"uri": encode_raw(own)}, own, shown)
        if method == "completion/complete":
            reference = raw_object(params.get("ref", Raw(b"{}")), "params.ref")
            if raw_text(reference.get("type", Raw(b"0"))) == "ref/prompt":
                member, own = await self._find_prompt(decisive_text(reference, "name"), context)
                reference["name"] = encode_raw(own)
            else:
                member, own = await self._find_resource(decisive_text(reference, "uri"), context)
                reference["uri"] = encode_raw(own)
            return _Route(member, params | {"ref": encode_raw(reference)})
        return None

    async def _find_tool(self, name: str, context: CallContext) -> tuple[AggregateMember, str]:
        for member in self._members:
            if (own := member.names.exact_names.get(name)) is not None:
                return member, own
        return await self._find_named("tools/list", "tool", name, context)

    async def _find_prompt(self, name: str, context: CallContext) -> tuple[AggregateMember, str]:
        return await self._find_named("prompts/list", "prompt", name, context)

    async def _find_named(self, method: str, what: str, name: str, context: CallContext) -> tuple[AggregateMember, str]:
        """Return the member and its own name of a tool or prompt. Raises `NotFound` or `Unavailable`."""
        named = self._by_prefix.get(name.partition("_")[0])
        # Names that were shortened may have lost the end of their server's name.
        candidates = self._members if named is None else [named]
        for member in candidates:
            found = member.lists.known(method, context)
            if found is not None and (own := _former_name(method, member, found, name)) is not None:
                return member, own
        failure: PaddockError | None = None
        for member, found in zip(candidates, await self._fetch_lists(method, candidates, context), strict=True):
            if (own := _former_name(method, member, found, name)) is not None:
                return member, own
            failure = found.failure
        if named is not None and failure is not None:
            raise Unavailable(f"The MCP server {named.server} cannot be used: {failure.message}.")
        raise NotFound(f"Unknown {what}: {name[:100]}.")

    async def _find_resource(self, uri: str, context: CallContext) -> tuple[AggregateMember, str]:
        """Return the member and its own URI of a resource or template. Raises `NotFound`."""
        qualified = split_qualified_uri(uri)
        if qualified is not None and (member := self._by_prefix.get(qualified[0])) is not None:
            return member, qualified[1]
        if (found := find_resource_owner(uri, self._members, context)) is not None:
            return found, uri
        for method in ("resources/list", "resources/templates/list"):
            await self._fetch_lists(method, self._members, context)
        found = find_resource_owner(uri, self._members, context)
        if found is None and len(self._members) == 1:
            found = self._members[0]
        if found is None:
            raise NotFound(f"No MCP server lists the resource {uri[:300]}; read it at the address of its own server.")
        return found, uri

    async def _fetch_lists(
        self, method: str, members: Sequence[AggregateMember], context: CallContext
    ) -> list[ServerList]:
        fresh = [member.lists.fresh(method, context) for member in members]
        found = [each for each in fresh if each is not None]
        if len(found) < len(members):
            gets = (member.lists.get(method, context, self._list_timeout) for member in members)
            found = await asyncio.gather(*gets)
        if not method.startswith("resources/"):
            for member, each in zip(members, found, strict=True):
                if len(each.items) > MAX_RENAMED_AT_ONCE and not each.renamed:
                    await asyncio.to_thread(_renamed, method, member, each)  # Kept by the list.
        return found

    async def _listed(self, request: JsonRpcMessage, context: CallContext) -> dict[str, Any]:
        method = str(request.method)
        field = LIST_FIELDS[method]
        lists = await self._fetch_lists(method, self._members, context)
        missing = [
            {"server": member.server, "reason": found.failure.message, "listed": bool(found.items)}
            for member, found in zip(self._members, lists, strict=True)
            if found.failure is not None
        ]
        if missing and len(missing) == len(lists) and not any(found.items for found in lists):
            reasons = "; ".join(f"{each['server']}: {each['reason']}" for each in missing[:MAX_SHOWN])
            raise Unavailable(f"No MCP server can be used now: {reasons}")
        if sum(len(found.items) for found in lists) > PAGE_SIZE:
            items = await asyncio.to_thread(self._merged, method, lists)
        else:
            items = self._merged(method, lists)
        after = _read_cursor(request)
        rest = items if after is None else [item for item in items if item.name > after]
        now = asyncio.get_running_loop().time()
        lifetime = min((found.expires_at - now for found in lists), default=60.0)
        result: dict[str, Any] = {
            RESULT_TYPE: COMPLETE,
            field: [item.raw for item in rest[:PAGE_SIZE]],
            "ttlMs": max(0, int(lifetime * 1000)),
            "cacheScope": "private",
        }
        if len(rest) > PAGE_SIZE:
            result["nextCursor"] = _make_cursor(rest[PAGE_SIZE - 1].name)
        if missing:
            result["_meta"] = {META_MISSING: missing[:MAX_SHOWN]}
        return result

    def _merged(self, method: str, lists: Sequence[ServerList]) -> Sequence[ListItem]:
        if method.startswith("resources/"):
            field = "uri" if method == "resources/list" else "uriTemplate"
            prefixes = [member.prefix for member in self._members]
            return merge_resources(field, zip(prefixes, lists, strict=True))
        merged: dict[str, ListItem] = {}
        for member, found in zip(self._members, lists, strict=True):
            for item in _renamed(method, member, found)[0]:
                merged.setdefault(item.name, item)
        return sorted(merged.values(), key=lambda item: item.name)

    def _discovered(self) -> dict[str, Any]:
        return {
            RESULT_TYPE: COMPLETE,
            "supportedVersions": list(SUPPORTED_REVISIONS),
            "capabilities": CAPABILITIES,
            "instructions": self._instructions,
            "ttlMs": 60_000,
            "cacheScope": "private",
            "_meta": {META_SERVER_INFO: {"name": self._title, "version": "1"}},
        }


def _renamed(method: str, member: AggregateMember, found: ServerList) -> tuple[Sequence[ListItem], Mapping[str, str]]:
    if method == "tools/list":
        return found.renamed_items(member.names, member.names.tool_name)
    return found.renamed_items((member.names, method), member.names.prompt_name)


def _former_name(method: str, member: AggregateMember, found: ServerList, name: str) -> str | None:
    return _renamed(method, member, found)[1].get(name)


def _make_cursor(name: str) -> str:
    return base64.urlsafe_b64encode(json.dumps({"after": name}).encode()).decode()


def _read_cursor(request: JsonRpcMessage) -> str | None:
    """Return the name after which a page begins. Raises `InvalidInput`."""
    raw = raw_object(request.params, "params").get("cursor")
    if raw is None or bytes(raw) == b"null":
        return None
    text = raw_text(raw)
    try:
        after = json.loads(base64.urlsafe_b64decode(text or ""))["after"]
    except (ValueError, TypeError, KeyError):
        after = None
    if not isinstance(after, str):
        raise InvalidInput("params.cursor: is not a cursor of this list")
    return after
