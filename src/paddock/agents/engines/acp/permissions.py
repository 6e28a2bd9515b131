"""Conversion of ACP permission requests and verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from acp import schema

from paddock.agents.engines.base import CallVerdict
from paddock.model.sessions import QuestionChoice

CANCELLED: Mapping[str, Any] = {"outcome": {"outcome": "cancelled"}}


def acp_permission_choices(request: schema.RequestPermissionRequest) -> list[QuestionChoice]:
    return [QuestionChoice(id=option.option_id, label=option.name) for option in request.options]


def acp_permission_response(verdict: CallVerdict, options: Sequence[schema.PermissionOption]) -> Mapping[str, Any]:
    """Return the response that selects the option matching the verdict."""
    chosen = next((option for option in options if option.option_id == verdict.choice), None)
    if chosen is None or not _matches_verdict(verdict, chosen):
        chosen = _option_for_verdict(verdict, options)
    if chosen is None:
        return CANCELLED
    return {"outcome": {"outcome": "selected", "optionId": chosen.option_id}}


def _matches_verdict(verdict: CallVerdict, option: schema.PermissionOption) -> bool:
    return option.kind.startswith("allow") == verdict.allowed


def _option_for_verdict(
    verdict: CallVerdict, options: Sequence[schema.PermissionOption]
) -> schema.PermissionOption | None:
    if verdict.allowed:
        # After `allow_always` the program never asks again, so the decision could not be revoked.
        kinds = ("allow_always", "allow_once") if verdict.always else ("allow_once",)
    else:
        kinds = ("reject_once", "reject_always")
    return next((option for kind in kinds for option in options if option.kind == kind), None)
