"""Makes the rows and events of a new session out of what a bundle says, and believes none of it unchecked."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

from paddock.agents.agents import engine_of, known_agents, model_for
from paddock.agents.loose import NOT_RUN, WITHDRAWN, Loose
from paddock.agents.schemas import shallow
from paddock.config.schema import Config
from paddock.errors import InvalidInput
from paddock.fleet.kinds import Kinds
from paddock.fleet.requests import new_id
from paddock.model.events import EventType
from paddock.model.owners import owner_of_new
from paddock.model.session_events import EVENTS
from paddock.model.sessions import (
    Action,
    Approval,
    ApprovalState,
    Call,
    CallRecord,
    CallResult,
    CallState,
    Content,
    FileContent,
    Message,
    Origin,
    Session,
    SessionState,
    SessionUsage,
    TextContent,
)
from paddock.store.events import Happening
from paddock.store.session_stream import stream_of

M = TypeVar("M", bound=BaseModel)
Imported: TypeAlias = Message | CallRecord | Approval | Happening
LONGEST_LINE = 32 * 2**20
MOST_LINES = 5_000_000
_VERSIONS = (1,)
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")
_MOST_TURNS = 10_000_000
_MOST_USED = 2**53
_MOST_STEPS = 1000
_FIRST, _LAST = datetime(1900, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
_DEEPEST = 128
"""Levels of what happened; what is deeper could be kept but not told."""


class Importer:
    """One import. `session` is asked for first, then all of `read`, then `finished`."""

    def __init__(
        self,
        config: Config,
        engines: Collection[str],
        session_id: str,
        tenant: str,
        by: str | None,
        default_model: str | None,
    ) -> None:
        self._config = config
        self._default_model = default_model
        self._engines = engines
        self._id = session_id
        self._tenant = tenant
        self._owner = owner_of_new(tenant, config.sharing.default)
        self._by = by
        self._approvals: dict[str, str] = {}
        """The ids that approvals have here, by those that they had."""
        self._files: Path | None = None
        self._turn = 0
        self._open = Loose()

    def session(self, path: Path) -> Session:
        """What the session will be: as it was, as far as this server has what it needs, and with nothing under way."""
        try:
            document = json.loads(_lines(path, most=1).__next__()[1])
            if document.get("version") not in _VERSIONS:
                raise InvalidInput("the bundle was made by a newer Paddock; upgrade this one")
            old = Session.model_validate(document.get("session"))
        except (FileNotFoundError, StopIteration):
            raise InvalidInput("this is no bundle of a session: it has no session.json") from None
        except (ValueError, AttributeError, RecursionError) as error:
            raise InvalidInput(f"session.json in the bundle makes no sense: {_short(error)}") from None
        _check_id(old.id, "session.json")
        agent = old.agent if old.agent in known_agents(self._engines) else self._config.chat.agent
        kinds = {kind.name for kind in Kinds.load(self._config)}
        now = datetime.now(UTC)
        rules = tuple(rule for rule in old.policy.rules if rule.action is not Action.ALLOW)
        return old.model_copy(
            update={
                "id": self._id,
                "tenant": str(self._tenant),
                "subject": self._owner.subject,
                "visibility": self._owner.visibility,
                "agent": agent,
                "engine": engine_of(agent, self._engines),
                "model": self._model(old.model),
                "kinds": tuple(kind for kind in old.kinds if kind in kinds),
                # Whoever made the bundle does not decide what runs here without being asked about.
                "policy": old.policy.model_copy(update={"rules": rules, "allow_all": ()}),
                "state": SessionState.IDLE,
                "error": None,
                "budget": None if old.budget is None else min(old.budget, _MOST_USED),
                "plan": old.plan[:_MOST_STEPS],
                "usage": _usage(old.usage),
                "sandboxes": {},
                "origin": Origin(session=old.id),
                "created_by": self._by,
                "created_at": now,
                "changed_at": now,
            }
        )

    def _model(self, old: str) -> str:
        known = "*" not in old and self._config.llm.serves(old)
        return old if known else model_for(self._config, self._default_model)

    def read(self, place: Path) -> Iterator[Imported]:
        """Everything but the session. Raises `InvalidInput` at the first line that is wrong."""
        self._files = place / "files"
        for where, line in _lines(place / "messages.jsonl"):
            yield self._message(where, line)
        for where, line in _lines(place / "approvals.jsonl"):
            yield self._approval(where, line)
        for where, line in _lines(place / "calls.jsonl"):
            yield self._call(where, line)
        for where, line in _lines(place / "events.jsonl"):
            yield self._event(where, line)
        for event in self._open.ends():
            yield Happening(stream_of(self._id), event.event, event.data(), self._tenant, audience=self._owner.audience)

    def finished(self, session: Session) -> Session:
        """The session with what is known after all was read."""
        return session.model_copy(update={"turn": self._turn})

    def _message(self, where: str, line: bytes) -> Message:
        return self._own_message(where, _parsed(Message, where, line))

    def _own_message(self, where: str, message: Message) -> Message:
        _check_id(message.id, where)
        for call in message.calls:
            self._check_call(where, call)
        _check_moments(where, message.at)
        self._check_turn(where, message.turn)
        self._check_files(where, message.content)
        return message.model_copy(update={"session": self._id})

    def _call(self, where: str, line: bytes) -> CallRecord:
        record = _parsed(CallRecord, where, line)
        self._check_call(where, record.call)
        _check_moments(where, record.created_at, record.changed_at)
        self._check_turn(where, record.turn)
        result = record.result
        if result is None:
            result = CallResult(content=(TextContent(text=NOT_RUN),), failed=True)
        self._check_files(where, result.content)
        changes = {"session": self._id, "state": CallState.DONE, "result": result, "sandbox_id": None}
        return record.model_copy(update=changes)

    def _approval(self, where: str, line: bytes) -> Approval:
        return self._own_approval(where, _parsed(Approval, where, line), settled=True)

    def _own_approval(self, where: str, approval: Approval, *, settled: bool) -> Approval:
        _check_id(approval.id, where)
        _check_id(approval.call_id, where)
        _check_moments(where, approval.created_at, approval.expires_at, approval.decided_at)
        self._check_turn(where, approval.turn)
        changes: dict[str, Any] = {"id": self._named(approval.id), "session": self._id, "tenant": self._tenant}
        if settled and approval.state is ApprovalState.PENDING:
            changes |= {"state": ApprovalState.WITHDRAWN, "reason": WITHDRAWN, "decided_at": datetime.now(UTC)}
        return approval.model_copy(update=changes)

    def _event(self, where: str, line: bytes) -> Happening:
        try:
            document = json.loads(line)
            kind = EventType(document["type"])
            at = datetime.fromisoformat(document["at"])
            data = document["data"]
            if kind not in EVENTS or kind.last or at.tzinfo is None or not _FIRST <= at <= _LAST:
                raise ValueError(f"{kind} is nothing that happens in a session that is there")
            if not shallow(data, _DEEPEST):
                raise ValueError("it is nested too deeply")
            event = EVENTS[kind].model_validate(data)
        except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
            raise InvalidInput(f"{where} in the bundle makes no sense: {_short(error)}") from None
        changes: dict[str, Any] = {}
        if isinstance(message := getattr(event, "message", None), Message):
            changes["message"] = self._own_message(where, message)
        if isinstance(approval := getattr(event, "approval", None), Approval):
            changes["approval"] = self._own_approval(where, approval, settled=False)
        if isinstance(named := getattr(event, "approval_id", None), str):
            changes["approval_id"] = self._named(named)
        event = event.model_copy(update=changes)
        self._open.see(event)
        return Happening(stream_of(self._id), kind, event.data(), self._tenant, at, self._owner.audience)

    def _named(self, approval: str) -> str:
        return self._approvals.setdefault(approval, new_id("apr"))

    def _check_call(self, where: str, call: Call) -> None:
        _check_id(call.id, where)
        if len(call.name) > 1000:
            raise InvalidInput(f"{where} in the bundle names no tool")

    def _check_turn(self, where: str, turn: int) -> None:
        if not 0 <= turn <= _MOST_TURNS:
            raise InvalidInput(f"{where} in the bundle is of no turn: {turn}")
        self._turn = max(self._turn, turn)

    def _check_files(self, where: str, content: tuple[Content, ...]) -> None:
        for part in content:
            if isinstance(part, FileContent) and (self._files is None or not (self._files / part.file).exists()):
                raise InvalidInput(f"{where} in the bundle names a file that is not in it: {part.file}")


def _usage(said: SessionUsage) -> SessionUsage:
    """What a bundle says was used, which counts against the budget and so is never less than nothing."""
    cost = said.cost if said.cost is not None and 0 <= said.cost <= _MOST_USED else None
    return SessionUsage(
        requests=min(max(0, said.requests), _MOST_USED),
        input_tokens=min(max(0, said.input_tokens), _MOST_USED),
        output_tokens=min(max(0, said.output_tokens), _MOST_USED),
        cost=cost,
    )


def _lines(path: Path, most: int = MOST_LINES) -> Iterator[tuple[str, bytes]]:
    """Lines, each with words for where it is; none if there is no such file."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for number in range(1, most + 1):
            line = file.readline(LONGEST_LINE + 1)
            if not line:
                return
            if len(line) > LONGEST_LINE:
                raise InvalidInput(f"line {number} of {path.name} in the bundle is too long")
            yield f"line {number} of {path.name}", line
        if most > 1 and file.readline(1):
            raise InvalidInput(f"{path.name} in the bundle has too many lines")


def _parsed(kind: type[M], where: str, line: bytes) -> M:
    try:
        return kind.model_validate_json(line)
    except ValidationError as error:
        raise InvalidInput(f"{where} in the bundle makes no sense: {_short(error)}") from None


def _check_id(given: str, where: str) -> None:
    if not _ID.fullmatch(given):
        raise InvalidInput(f"{where} in the bundle has an id that is none: {given[:100]!a}")


def _check_moments(where: str, *moments: datetime | None) -> None:
    for moment in moments:
        if moment is not None and not _FIRST <= moment <= _LAST:
            raise InvalidInput(f"{where} in the bundle is of no time that ever was: {moment}")


def _short(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc']))[:200]}: {first['msg'][:200]}"
    return ascii(str(error)[:200])
