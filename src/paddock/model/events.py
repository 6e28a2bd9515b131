"""Event types, and the record of one event."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pydantic import AwareDatetime

from paddock.model.sandbox import FrozenModel


class EventType(StrEnum):
    SANDBOX_CREATED = "sandbox.created"
    SANDBOX_RUNNING = "sandbox.running"
    SANDBOX_PAUSED = "sandbox.paused"
    SANDBOX_RESUMED = "sandbox.resumed"
    SANDBOX_RENEWED = "sandbox.renewed"
    SANDBOX_ADOPTED = "sandbox.adopted"
    SANDBOX_STOPPING = "sandbox.stopping"
    SANDBOX_SHARED = "sandbox.shared"
    """The visibility changed."""
    SANDBOX_ENDED = "sandbox.ended"
    SANDBOX_FAILED = "sandbox.failed"
    SNAPSHOT_CREATED = "snapshot.created"
    SNAPSHOT_READY = "snapshot.ready"
    SNAPSHOT_FAILED = "snapshot.failed"
    SNAPSHOT_DELETED = "snapshot.deleted"
    POOL_CREATED = "pool.created"
    POOL_CHANGED = "pool.changed"
    POOL_DELETED = "pool.deleted"
    DISK_FULL = "disk.full"
    OUT_OF_MEMORY = "oom"
    DESKTOP_STARTED = "desktop.started"
    DESKTOP_STOPPED = "desktop.stopped"
    """`reason`."""
    TERMINAL_READY = "terminal.ready"
    """`name`."""
    TERMINAL_CLOSED = "terminal.closed"
    """`name`, `exit_code`, `reason`."""
    SCREENSHOT_UPDATE = "screenshot.update"
    """The screen changed: `etag`, `width`, `height`, and `cause`, a tool name or `timer`."""
    INPUT_TAKEN = "input.taken"
    """A person took control: `viewer`, `name`, and `from`, the previous holder."""
    INPUT_RELEASED = "input.released"
    """Control went back to the agent: `viewer`, `name`, `reason`."""
    RECORDING_STARTED = "recording.started"
    """`recording_id`."""
    RECORDING_STOPPED = "recording.stopped"
    """`recording_id`, `frames`, `size`, `reason`."""
    FILE_CHANGED = "file.changed"
    """A tool wrote files: `paths`, `tool`."""
    FILE_MOVED = "file.moved"
    """Data moved between sandboxes: `source`, `source_path`, `destination`, `destination_path`, `size`, `sha256`."""
    TOOL_CALLED = "tool.called"
    """`name`, `seconds`, `failed`; no arguments, which may contain secrets."""
    NETWORK_CONNECTION = "network.connection"
    """A connection ended or was refused: `id`, `host`, `port`, `allowed`, `refusal`, `rule`, `sent`, `received`,
    `seconds`. At most 50 per second; the records at `/v1/sandboxes/ID/connections` are complete."""
    NETWORK_CHANGED = "network.changed"
    """The network policy changed: `policy`, and `closed`, the number of connections it ended."""
    VAULT_CHANGED = "vault.changed"
    """The credential vault changed: `revision`, and the numbers of `credentials` and `bindings`."""
    MCP_CALLED = "mcp.called"
    """A call passed the MCP gateway: `id`, `server`, `method`, `target`, `outcome`, `seconds`, `tokens`. At most 50 per
    second; the records at `/v1/mcp/calls` are complete."""
    MCP_TOOL_HELD = "mcp.tool_held"
    """A tool is withheld until a person approves it: `server`, `tool`, `digest`."""
    PREVIEW_OPENED = "preview.opened"
    """A port got a preview, or its preview new terms: `port`, `public`, `expires_at`."""
    PREVIEW_CLOSED = "preview.closed"
    """`port`, `reason` (`deleted`, `expired` or `sandbox_ended`)."""
    RUN_QUEUED = "run.queued"
    RUN_STARTED = "run.started"
    """An attempt started: `attempt`, `model`, `scripted`."""
    RUN_STAGE = "run.stage"
    """`stage` started."""
    RUN_SANDBOX = "run.sandbox"
    """The run has a sandbox: `sandbox_id`, `image`."""
    RUN_TEXT = "run.text"
    """The agent wrote `text`."""
    RUN_THINKING = "run.thinking"
    RUN_TOOL_CALL = "run.tool_call"
    """`id`, `name`, `arguments`."""
    RUN_TOOL_RESULT = "run.tool_result"
    """`id`, `text`, `failed`."""
    RUN_USAGE = "run.usage"
    """Model usage so far: `turns`, `requests`, `input_tokens`, `output_tokens`, `cost`."""
    RUN_OUTPUT = "run.output"
    """The entrypoint wrote `text` to `stream`; no preset rule interprets it."""
    RUN_ERROR = "run.error"
    """The agent reported an error: `message`."""
    RUN_MODEL_FAILED = "run.model_failed"
    """The first model request, or the first after an answered one, failed: `message`, and `retried`, whether agents
    usually repeat such a request."""
    RUN_CHECKED = "run.checked"
    RUN_DELIVERED = "run.delivered"
    """`path`, `size`, `sha256`."""
    RUN_MISSING = "run.missing"
    """`path`, `required`, `reason`."""
    RUN_SHARED = "run.shared"
    """The visibility changed."""
    RUN_CANCELLING = "run.cancelling"
    RUN_RETRYING = "run.retrying"
    """An attempt ended with `state`, `reason`; the next one starts after `wait` seconds."""
    RUN_ENDED = "run.ended"
    """`state`, `ended_by`, `reason`."""
    # Chat sessions; model/session_events.py defines the data of each.
    SESSION_CREATED = "session.created"
    SESSION_CHANGED = "session.changed"
    SESSION_STATE = "session.state"
    SESSION_DELETED = "session.deleted"
    SESSION_SANDBOX = "session.sandbox"
    SESSION_DESKTOP = "session.desktop"
    SESSION_TERMINAL = "session.terminal"
    SESSION_SCREEN = "session.screen"
    SESSION_FILE = "session.file"
    SESSION_COMPACTED = "session.compacted"
    TURN_STARTED = "turn.started"
    TURN_ENDED = "turn.ended"
    STEP_STARTED = "step.started"
    STEP_ENDED = "step.ended"
    PLAN_CHANGED = "plan.changed"
    MESSAGE_RECEIVED = "message.received"
    MESSAGE_STARTED = "message.started"
    MESSAGE_DELTA = "message.delta"
    MESSAGE_ENDED = "message.ended"
    THOUGHT_STARTED = "thought.started"
    THOUGHT_DELTA = "thought.delta"
    THOUGHT_ENDED = "thought.ended"
    CALL_STARTED = "call.started"
    CALL_DELTA = "call.delta"
    CALL_READY = "call.ready"
    CALL_RUNNING = "call.running"
    CALL_OUTPUT = "call.output"
    CALL_RESULT = "call.result"
    APPROVAL_REQUIRED = "approval.required"
    APPROVAL_DECIDED = "approval.decided"
    APPROVAL_EXPIRED = "approval.expired"
    USAGE_CHANGED = "usage.changed"
    TURN_ERROR = "turn.error"

    @property
    def ends_stream(self) -> bool:
        """Return whether this ends its stream; stream names are never reused."""
        return self in (
            EventType.SANDBOX_ENDED,
            EventType.SANDBOX_FAILED,
            EventType.SNAPSHOT_DELETED,
            EventType.RUN_ENDED,
            EventType.SESSION_DELETED,
        )


class EventRecord(FrozenModel):
    """One stored event."""

    sequence: int
    """Position among all events; grows, never reused, may have gaps."""
    stream: str
    """Subject of the event, such as `sandbox/ID`."""
    number: int
    """Position in its stream: 1, 2, 3 …"""
    type: EventType
    tenant: str
    audience: str | None = None
    """The only owner that sees the event, while its object is private."""
    at: AwareDatetime
    data: Mapping[str, Any] = {}


def sandbox_event_stream(sandbox_id: str) -> str:
    """Return the name of a sandbox's event stream."""
    return f"sandbox/{sandbox_id}"


def run_event_stream(run_id: str) -> str:
    """Return the name of a run's event stream."""
    return f"run/{run_id}"


def mcp_event_stream(server: str) -> str:
    """Return the name of the event stream of an MCP server."""
    return f"mcp/{server}"
