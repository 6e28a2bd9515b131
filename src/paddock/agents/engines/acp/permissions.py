"""Permissions that an agent program asks for, and how a verdict is put into its words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from acp import schema

from paddock.agents.engines.base import Verdict
from paddock.model.sessions import Choice

CANCELLED: Mapping[str, Any] = {"outcome": {"outcome": "cancelled"}}


def choices_of(request: schema.RequestPermissionRequest) -> list[Choice]:
    return [Choice(id=option.option_id, label=option.name) for option in request.options]


def answer(verdict: Verdict, options: Sequence[schema.PermissionOption]) -> Mapping[str, Any]:
    """The option that says the same as a verdict."""
    chosen = next((option for option in options if option.option_id == verdict.choice), None)
    if chosen is None or not _agrees(verdict, chosen):
        chosen = _option(verdict, options)
    if chosen is None:
        return CANCELLED
    return {"outcome": {"outcome": "selected", "optionId": chosen.option_id}}


def _agrees(verdict: Verdict, option: schema.PermissionOption) -> bool:
    return option.kind.startswith("allow") == verdict.allowed


def _option(verdict: Verdict, options: Sequence[schema.PermissionOption]) -> schema.PermissionOption | None:
    if verdict.allowed:
        # What it is allowed for ever it never asks about again, so nobody could change their mind.
        kinds = ("allow_always", "allow_once") if verdict.always else ("allow_once",)
    else:
        kinds = ("reject_once", "reject_always")
    return next((option for kind in kinds for option in options if option.kind == kind), None)
