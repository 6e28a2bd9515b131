"""URIs of resources in an aggregate: unchanged, unless two servers have the same one.

Of two resources with the same URI, the one of the later server is listed as `paddock+SERVER+URI`. That form is always
understood.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from paddock.mcp.gateway.envelopes import (
    encode_raw,
    item_uri,
    replace_field,
    result_fields,
    result_items,
    with_raw_result,
)
from paddock.mcp.gateway.server_lists import ListItem, ServerList, ServerLists
from paddock.mcp.protocol import CallContext, JsonRpcMessage

_SCHEME = "paddock+"


class HasLists(Protocol):
    @property
    def prefix(self) -> str: ...

    @property
    def lists(self) -> ServerLists: ...


M = TypeVar("M", bound=HasLists)


def qualified_uri(prefix: str, uri: str) -> str:
    """Return the URI under which a resource is listed if another server has the same one."""
    return f"{_SCHEME}{prefix}+{uri}"


def split_qualified_uri(uri: str) -> tuple[str, str] | None:
    """Return the server's prefix and its URI; None for an unchanged URI."""
    if not uri.startswith(_SCHEME):
        return None
    prefix, plus, own = uri.removeprefix(_SCHEME).partition("+")
    return (prefix, own) if plus and own else None


def merge_resources(field: str, lists: Iterable[tuple[str, ServerList]]) -> list[ListItem]:
    """Return resources or templates of all servers, by prefix; `field` is the one with the URI."""
    merged: dict[str, ListItem] = {}
    for prefix, found in lists:
        for item in found.items:
            if item.name not in merged:
                merged[item.name] = item
            else:
                uri = qualified_uri(prefix, item.name)
                merged.setdefault(uri, ListItem(uri, replace_field(item.raw, field, uri)))
    return sorted(merged.values(), key=lambda item: item.name)


def find_resource_owner(uri: str, members: Sequence[M], context: CallContext) -> M | None:
    """Return the member that lists a resource, or has the most specific template for it, as far as lists are known."""
    for member in members:
        found = member.lists.known("resources/list", context)
        if found is not None and any(item.name == uri for item in found.items):
            return member
    best: tuple[int, M] | None = None
    for member in members:
        found = member.lists.known("resources/templates/list", context)
        for item in () if found is None else found.items:
            # A regular expression made from a hostile template could take very long.
            head, tail = item.name.partition("{")[0], item.name.rpartition("}")[2]
            if uri.startswith(head) and uri.endswith(tail) and (best is None or len(head) > best[0]):
                best = len(head), member
    return None if best is None else best[1]


def with_content_uri(response: JsonRpcMessage, own: str, shown: str) -> JsonRpcMessage:
    """Return the response of `resources/read` with the URI that the client asked for."""
    result = result_fields(response)
    if "contents" not in result:
        return response
    contents = result_items(result, "contents")
    result["contents"] = encode_raw(
        [replace_field(each, "uri", shown) if item_uri(each) == own else each for each in contents]
    )
    return with_raw_result(response, result)
