"""Kept responses of servers: their time, their scope, and changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from paddock.mcp.protocol import CallContext, JsonRpcMessage
from paddock.mcp.protocol.messages import make_error, make_notification, make_request, make_result
from paddock.mcp.upstreams.response_cache import MAX_ENTRIES, ResponseCache

ADA = CallContext(tenant="a", caller="ada")
BOB = replace(ADA, caller="bob")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def _request(method: str = "tools/list", **params: Any) -> JsonRpcMessage:
    return make_request(1, method, {"_meta": {"traceparent": params.pop("trace", "1")}} | params)


def _keep(cache: ResponseCache, request: JsonRpcMessage, context: CallContext = ADA, **result: Any) -> None:
    slot = cache.slot(request, context)
    assert slot is not None
    cache.keep(slot, make_result(1, {"tools": [], "ttlMs": 1000, "cacheScope": "public"} | result))


def _is_kept(cache: ResponseCache, request: JsonRpcMessage, context: CallContext = ADA) -> bool:
    slot = cache.slot(request, context)
    return slot is not None and cache.find(slot) is not None


def test_responses_are_fresh_for_their_time() -> None:
    clock = Clock()
    cache = ResponseCache(clock)
    _keep(cache, _request())
    assert _is_kept(cache, _request(trace="2"))
    assert not _is_kept(cache, _request(cursor="x"))
    clock.now = 1.0
    assert not _is_kept(cache, _request())


def test_private_responses_are_not_shared() -> None:
    cache = ResponseCache(Clock())
    _keep(cache, _request(), cacheScope="private")
    assert _is_kept(cache, _request())
    for other in (BOB, replace(ADA, tenant="b"), replace(ADA, sandbox="s"), replace(ADA, client_session="c")):
        assert not _is_kept(cache, _request(), other)
    _keep(cache, _request(cursor="x"))
    assert _is_kept(cache, _request(cursor="x"), BOB)
    _keep(cache, _request(cursor="y"), cacheScope="everybody")
    assert not _is_kept(cache, _request(cursor="y"), BOB)


def test_clients_with_other_capabilities_get_other_responses() -> None:
    cache = ResponseCache(Clock())
    _keep(cache, _request())
    request = make_request(1, "tools/list", {"_meta": {"io.modelcontextprotocol/clientCapabilities": {"roots": {}}}})
    assert not _is_kept(cache, request)


def test_some_responses_are_not_kept() -> None:
    cache = ResponseCache(Clock())
    for result in ({"ttlMs": 0}, {"ttlMs": -5}, {"ttlMs": "x"}, {"resultType": "input_required"}):
        _keep(cache, _request(), **result)
        assert not _is_kept(cache, _request())
    slot = cache.slot(_request(), ADA)
    assert slot is not None
    cache.keep(slot, make_error(1, -32603, "no"))
    assert not _is_kept(cache, _request())
    assert cache.slot(_request("tools/call"), ADA) is None
    assert cache.slot(_request(requestState="x"), ADA) is None


def test_changes_make_responses_stale_also_those_under_way() -> None:
    cache = ResponseCache(Clock())
    changed = make_notification("notifications/tools/list_changed", {})
    _keep(cache, _request())
    _keep(cache, _request("prompts/list"))
    slot = cache.slot(_request(cursor="x"), ADA)
    assert slot is not None
    cache.on_notification(changed)
    cache.keep(slot, make_result(1, {"ttlMs": 1000}))
    assert not _is_kept(cache, _request())
    assert not _is_kept(cache, _request(cursor="x"))
    assert _is_kept(cache, _request("prompts/list"))


def test_the_number_of_responses_is_bounded() -> None:
    cache = ResponseCache(Clock())
    for number in range(MAX_ENTRIES + 10):
        _keep(cache, _request(cursor=str(number)))
    assert not _is_kept(cache, _request(cursor="9"))
    assert _is_kept(cache, _request(cursor="10"))
    cache.clear()
    assert not _is_kept(cache, _request(cursor="10"))
