"""What can happen, and the record of one thing that did."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pydantic import AwareDatetime

from paddock.model.sandbox import Frozen


class EventType(StrEnum):
    SANDBOX_CREATED = "sandbox.created"
    SANDBOX_RUNNING = "sandbox.running"
    SANDBOX_PAUSED = "sandbox.paused"
    SANDBOX_RESUMED = "sandbox.resumed"
    SANDBOX_RENEWED = "sandbox.renewed"
    SANDBOX_ADOPTED = "sandbox.adopted"
    SANDBOX_STOPPING = "sandbox.stopping"
    SANDBOX_SHARED = "sandbox.shared"
    """Its visibility has changed."""
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
    """The screen has changed: `etag`, `width`, `height`, and the `cause`, a tool's name or `timer`."""
    INPUT_TAKEN = "input.taken"
    """A person has taken mouse and keyboard: `viewer`, `name`, and `from`, who had them before."""
    INPUT_RELEASED = "input.released"
    """They are the agent's again: `viewer`, `name`, `reason`."""
    RECORDING_STARTED = "recording.started"
    """`recording_id`."""
    RECORDING_STOPPED = "recording.stopped"
    """`recording_id`, `frames`, `size`, `reason`."""
    FILE_CHANGED = "file.changed"
    """A tool has written `paths`: `tool`."""
    FILE_MOVED = "file.moved"
    """Data went from box to box: `source`, `source_path`, `destination`, `destination_path`, `size`, `sha256`."""
    TOOL_CALLED = "tool.called"
    """`name`, `seconds`, `failed`; not the arguments, which may hold secrets."""
    RUN_QUEUED = "run.queued"
    RUN_STARTED = "run.started"
    """An attempt has begun: `attempt`, `model`, `scripted`."""
    RUN_STAGE = "run.stage"
    """`stage` has begun."""
    RUN_SANDBOX = "run.sandbox"
    """It has a sandbox: `sandbox_id`, `image`."""
    RUN_TEXT = "run.text"
    """The agent said `text`."""
    RUN_THINKING = "run.thinking"
    RUN_TOOL_CALL = "run.tool_call"
    """`id`, `name`, `arguments`."""
    RUN_TOOL_RESULT = "run.tool_result"
    """`id`, `text`, `failed`."""
    RUN_USAGE = "run.usage"
    """What it has asked of models so far: `turns`, `requests`, `input_tokens`, `output_tokens`, `cost`."""
    RUN_OUTPUT = "run.output"
    """The entrypoint wrote `text` to `stream`, and nobody knows what it means."""
    RUN_ERROR = "run.error"
    """The agent told of an error: `message`."""
    RUN_CHECKED = "run.checked"
    RUN_DELIVERED = "run.delivered"
    """`path`, `size`, `sha256`."""
    RUN_MISSING = "run.missing"
    """`path`, `required`, `reason`."""
    RUN_SHARED = "run.shared"
    """Its visibility has changed."""
    RUN_CANCELLING = "run.cancelling"
    RUN_RETRYING = "run.retrying"
    """An attempt ended as `state`, `reason`; the next begins after `wait` seconds."""
    RUN_ENDED = "run.ended"
    """`state`, `ended_by`, `reason`."""
    # Those of chat sessions; model/session_events.py says what each holds.
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
    def last(self) -> bool:
        """Whether nothing can follow it in its stream, whose name is never used again."""
        return self in (
            EventType.SANDBOX_ENDED,
            EventType.SANDBOX_FAILED,
            EventType.SNAPSHOT_DELETED,
            EventType.RUN_ENDED,
            EventType.SESSION_DELETED,
        )


class Event(Frozen):
    """One thing that happened."""

    sequence: int
    """Its place among all events; grows, never reused, may have gaps."""
    stream: str
    """What it happened to, such as `sandbox/ID`."""
    number: int
    """Its place in its stream: 1, 2, 3 …"""
    type: EventType
    tenant: str
    audience: str | None = None
    """The only subject that sees it, while what it happened to is private."""
    at: AwareDatetime
    data: Mapping[str, Any] = {}


def sandbox_stream(sandbox_id: str) -> str:
    """The name of the stream in which a sandbox's events are told."""
    return f"sandbox/{sandbox_id}"
