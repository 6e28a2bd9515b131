"""Fields of notifications by which they are assigned to requests and subscriptions."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Raw, UnsetType

from paddock.errors import InvalidInput
from paddock.mcp.protocol import JsonRpcMessage
from paddock.mcp.protocol.revisions import META_SUBSCRIPTION, PROGRESS_TOKEN


class _NotificationMeta(msgspec.Struct):
    subscription: int | str | UnsetType = msgspec.field(default=UNSET, name=META_SUBSCRIPTION)


class NotificationFields(msgspec.Struct):
    """Absent fields, and fields that are not known, are ignored."""

    meta: _NotificationMeta = msgspec.field(default_factory=_NotificationMeta, name="_meta")
    progress_token: int | str | UnsetType = msgspec.field(default=UNSET, name=PROGRESS_TOKEN)
    request_id: int | str | None = msgspec.field(default=None, name="requestId")
    level: str | None = None
    uri: str | None = None


_NOTIFICATION = msgspec.json.Decoder(NotificationFields)


def notification_fields(message: JsonRpcMessage) -> NotificationFields:
    """Decode the parameters of a notification. Raises `InvalidInput`."""
    try:
        return _NOTIFICATION.decode(message.params) if isinstance(message.params, Raw) else NotificationFields()
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise InvalidInput("a notification has invalid parameters") from None
