"""Converts a bundle into the rows and events of a new session, with every value checked."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

from paddock.agents.json_schema_validation import is_nested_at_most
from paddock.agents.sessions.agent_choice import AvailableModels, engine_for_agent, list_agent_names
from paddock.agents.sessions.unfinished_events import RESULT_UNKNOWN, WITHDRAWN_REASON, UnfinishedEventTracker
from paddock.config.schema import Config
from paddock.errors import InvalidInput
from paddock.fleet.fleet_requests import new_id
from paddock.fleet.kinds import SandboxKinds
from paddock.model.events import EventType
from paddock.model.owners import ownership_of_new_object
from paddock.model.session_events import EVENTS
from paddock.model.sessions import (
    Approval,
    ApprovalState,
    CallResult,
    CallState,
    FileContent,
    LedgerCall,
    MessageContent,
    PolicyAction,
    Session,
    SessionMessage,
    SessionOrigin,
    SessionState,
    SessionUsage,
    TextContent,
    ToolCall,
)
from paddock.store.chat_sessions.session_log_entries import session_stream_name
from paddock.store.event_store import NewEvent

M = TypeVar("M", bound=BaseModel)
ImportedRecord: TypeAlias = SessionMessage | LedgerCall | Approval | NewEvent
MAX_LINE_BYTES = 32 * 2**20
MAX_LINES = 5_000_000
_VERSIONS = (1,)
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")
_MAX_TURNS = 10_000_000
_MAX_USAGE = 2**53
_MAX_PLAN_STEPS = 1000
_EARLIEST, _LATEST = datetime(1900, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
_MAX_DEPTH = 128
"""Maximum nesting of event data; deeper data could be stored but not serialized."""


class SessionBundleImporter:
    """One import: call `read_session`, then exhaust `read_records`, then `complete_session`."""

    def __init__(
        self,
        config: Config,
        engines: Collection[str],
        models: AvailableModels,
        session_id: str,
        tenant: str,
        by: str | None,
        default_model: str | None,
    ) -> None:
        self._config = config
        self._models = models
        self._default_model = default_model
        self._engines = engines
        self._id = session_id
        self._tenant = tenant
        self._owner = ownership_of_new_object(tenant, config.sharing.default)
        self._created_by = by
        self._approval_ids: dict[str, str] = {}
        """New approval ids by the ids in the bundle."""
        self._files: Path | None = None
        self._turn = 0
        self._unfinished = UnfinishedEventTracker()

    def read_session(self, path: Path) -> Session:
        """Read the session; it becomes idle, and its agent, model and kinds are limited to the available ones."""
        try:
            document = json.loads(_read_lines(path, max_lines=1).__next__()[1])
            if document.get("version") not in _VERSIONS:
                raise InvalidInput("the bundle was made by a newer Paddock; upgrade this one")
            imported = Session.model_validate(document.get("session"))
        except (FileNotFoundError, StopIteration):
            raise InvalidInput("this is not a session bundle: it has no session.json") from None
        except (ValueError, AttributeError, RecursionError) as error:
            raise InvalidInput(f"session.json in the bundle is invalid: {_short_error(error)}") from None
        _check_id(imported.id, "session.json")
        agent = imported.agent if imported.agent in list_agent_names(self._engines) else self._config.chat.agent
        kinds = {kind.name for kind in SandboxKinds.load_installed(self._config)}
        now = datetime.now(UTC)
        rules = tuple(rule for rule in imported.policy.rules if rule.action is not PolicyAction.ALLOW)
        return imported.model_copy(
            update={
                "id": self._id,
                "tenant": str(self._tenant),
                "subject": self._owner.subject,
                "visibility": self._owner.visibility,
                "agent": agent,
                "engine": engine_for_agent(agent, self._engines),
                "model": self._choose_model(imported.model),
                "kinds": tuple(kind for kind in imported.kinds if kind in kinds),
                # A bundle must not open the network here, nor allow calls without approval.
                "network": () if imported.network == () else None,
                "policy": imported.policy.model_copy(update={"rules": rules, "allow_all": ()}),
                "state": SessionState.IDLE,
                "error": None,
                "budget": None if imported.budget is None else min(imported.budget, _MAX_USAGE),
                "plan": imported.plan[:_MAX_PLAN_STEPS],
                "usage": _bounded_usage(imported.usage),
                "sandboxes": {},
                "origin": SessionOrigin(session=imported.id),
                "created_by": self._created_by,
                "created_at": now,
                "changed_at": now,
            }
        )

    def _choose_model(self, model: str) -> str:
        return model if self._models.has(model) else self._models.resolve(self._default_model)

    def read_records(self, directory: Path) -> Iterator[ImportedRecord]:
        """Read all records except the session. Raises `InvalidInput` at the first invalid line."""
        self._files = directory / "files"
        for where, line in _read_lines(directory / "messages.jsonl"):
            yield self._read_message(where, line)
        for where, line in _read_lines(directory / "approvals.jsonl"):
            yield self._read_approval(where, line)
        for where, line in _read_lines(directory / "calls.jsonl"):
            yield self._read_call(where, line)
        for where, line in _read_lines(directory / "events.jsonl"):
            yield self._read_event(where, line)
        for event in self._unfinished.closing_events():
            yield NewEvent(
                session_stream_name(self._id), event.event, event.data(), self._tenant, audience=self._owner.audience
            )

    def complete_session(self, session: Session) -> Session:
        """Return the session with its turn number, known after all records were read."""
        return session.model_copy(update={"turn": self._turn})

    def _read_message(self, where: str, line: bytes) -> SessionMessage:
        return self._adopt_message(where, _parse_line(SessionMessage, where, line))

    def _adopt_message(self, where: str, message: SessionMessage) -> SessionMessage:
        _check_id(message.id, where)
        for call in message.calls:
            self._check_call(where, call)
        _check_times(where, message.at)
        self._check_turn(where, message.turn)
        self._check_files(where, message.content)
        return message.model_copy(update={"session": self._id})

    def _read_call(self, where: str, line: bytes) -> LedgerCall:
        record = _parse_line(LedgerCall, where, line)
        self._check_call(where, record.call)
        _check_times(where, record.created_at, record.changed_at)
        self._check_turn(where, record.turn)
        result = record.result
        if result is None:
            result = CallResult(content=(TextContent(text=RESULT_UNKNOWN),), failed=True)
        self._check_files(where, result.content)
        changes = {"session": self._id, "state": CallState.DONE, "result": result, "sandbox_id": None}
        return record.model_copy(update=changes)

    def _read_approval(self, where: str, line: bytes) -> Approval:
        return self._adopt_approval(where, _parse_line(Approval, where, line), withdraw_pending=True)

    def _adopt_approval(self, where: str, approval: Approval, *, withdraw_pending: bool) -> Approval:
        _check_id(approval.id, where)
        _check_id(approval.call_id, where)
        _check_times(where, approval.created_at, approval.expires_at, approval.decided_at)
        self._check_turn(where, approval.turn)
        changes: dict[str, Any] = {
            "id": self._map_approval_id(approval.id),
            "session": self._id,
            "tenant": self._tenant,
        }
        if withdraw_pending and approval.state is ApprovalState.PENDING:
            changes |= {"state": ApprovalState.WITHDRAWN, "reason": WITHDRAWN_REASON, "decided_at": datetime.now(UTC)}
        return approval.model_copy(update=changes)

    def _read_event(self, where: str, line: bytes) -> NewEvent:
        try:
            document = json.loads(line)
            kind = EventType(document["type"])
            at = datetime.fromisoformat(document["at"])
            data = document["data"]
            if kind not in EVENTS or kind.ends_stream or at.tzinfo is None or not _EARLIEST <= at <= _LATEST:
                raise ValueError(f"{kind} is not an event of an existing session")
            if not is_nested_at_most(data, _MAX_DEPTH):
                raise ValueError("the event is nested too deeply")
            event = EVENTS[kind].model_validate(data)
        except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
            raise InvalidInput(f"{where} in the bundle is invalid: {_short_error(error)}") from None
        changes: dict[str, Any] = {}
        if isinstance(message := getattr(event, "message", None), SessionMessage):
            changes["message"] = self._adopt_message(where, message)
        if isinstance(approval := getattr(event, "approval", None), Approval):
            changes["approval"] = self._adopt_approval(where, approval, withdraw_pending=False)
        if isinstance(approval_id := getattr(event, "approval_id", None), str):
            changes["approval_id"] = self._map_approval_id(approval_id)
        event = event.model_copy(update=changes)
        self._unfinished.observe(event)
        return NewEvent(session_stream_name(self._id), kind, event.data(), self._tenant, at, self._owner.audience)

    def _map_approval_id(self, approval: str) -> str:
        return self._approval_ids.setdefault(approval, new_id("apr"))

    def _check_call(self, where: str, call: ToolCall) -> None:
        _check_id(call.id, where)
        if len(call.name) > 1000:
            raise InvalidInput(f"{where} in the bundle has an invalid tool name")

    def _check_turn(self, where: str, turn: int) -> None:
        if not 0 <= turn <= _MAX_TURNS:
            raise InvalidInput(f"{where} in the bundle has an invalid turn: {turn}")
        self._turn = max(self._turn, turn)

    def _check_files(self, where: str, content: tuple[MessageContent, ...]) -> None:
        for part in content:
            if isinstance(part, FileContent) and (self._files is None or not (self._files / part.file).exists()):
                raise InvalidInput(f"{where} in the bundle names a file that is not in it: {part.file}")


def _bounded_usage(usage: SessionUsage) -> SessionUsage:
    """Clamp the usage of a bundle to valid values; it counts against the budget."""
    cost = usage.cost if usage.cost is not None and 0 <= usage.cost <= _MAX_USAGE else None
    return SessionUsage(
        requests=min(max(0, usage.requests), _MAX_USAGE),
        input_tokens=min(max(0, usage.input_tokens), _MAX_USAGE),
        output_tokens=min(max(0, usage.output_tokens), _MAX_USAGE),
        cost=cost,
    )


def _read_lines(path: Path, max_lines: int = MAX_LINES) -> Iterator[tuple[str, bytes]]:
    """Yield the lines of a file with a description of their position; nothing if there is no such file."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for number in range(1, max_lines + 1):
            line = file.readline(MAX_LINE_BYTES + 1)
            if not line:
                return
            if len(line) > MAX_LINE_BYTES:
                raise InvalidInput(f"line {number} of {path.name} in the bundle is too long")
            yield f"line {number} of {path.name}", line
        if max_lines > 1 and file.readline(1):
            raise InvalidInput(f"{path.name} in the bundle has too many lines")


def _parse_line(kind: type[M], where: str, line: bytes) -> M:
    try:
        return kind.model_validate_json(line)
    except ValidationError as error:
        raise InvalidInput(f"{where} in the bundle is invalid: {_short_error(error)}") from None


def _check_id(value: str, where: str) -> None:
    if not _ID.fullmatch(value):
        raise InvalidInput(f"{where} in the bundle has an invalid id: {value[:100]!a}")


def _check_times(where: str, *moments: datetime | None) -> None:
    for moment in moments:
        if moment is not None and not _EARLIEST <= moment <= _LATEST:
            raise InvalidInput(f"{where} in the bundle has an invalid time: {moment}")


def _short_error(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first_error = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first_error['loc']))[:200]}: {first_error['msg'][:200]}"
    return ascii(str(error)[:200])
