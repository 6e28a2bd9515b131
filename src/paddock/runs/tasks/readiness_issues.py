"""Issues that keep a task from running, or that a user should know before."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from paddock.model.sandbox import FrozenModel


class IssueCode(StrEnum):
    AGENT_NOT_FOUND = "AGENT_NOT_FOUND"
    AGENT_UNFIT = "AGENT_UNFIT"
    """The agent does not support something in the task."""
    SECRET_MISSING = "SECRET_MISSING"  # noqa: S105
    SECRETS_FORBIDDEN = "SECRETS_FORBIDDEN"
    MCP_SERVER_NOT_FOUND = "MCP_SERVER_NOT_FOUND"
    KIND_NOT_FOUND = "KIND_NOT_FOUND"
    IMAGE_NOT_FOUND = "IMAGE_NOT_FOUND"
    RESOURCES_EXCEEDED = "RESOURCES_EXCEEDED"
    MODEL_NOT_FOUND = "MODEL_NOT_FOUND"
    DEFAULT_MODEL = "DEFAULT_MODEL"
    """The server's default model replaces the agent's suggestion."""
    PROVIDER_KEY_REFUSED = "PROVIDER_KEY_REFUSED"
    PROVIDER_UNREACHED = "PROVIDER_UNREACHED"
    """The provider could not list its models and has not answered since."""
    PROVIDER_FAILING = "PROVIDER_FAILING"
    IMAGE_NOT_BUILT = "IMAGE_NOT_BUILT"
    SCRIPT_ANSWERS = "SCRIPT_ANSWERS"


class IssueLevel(StrEnum):
    ERROR = "error"
    """The run would fail or be rejected."""
    NOTICE = "notice"
    """The run starts; information for the user."""


class ReadinessIssue(FrozenModel):
    code: IssueCode
    level: IssueLevel = IssueLevel.ERROR
    field: str
    """Path of the task's field, such as `llm.model`."""
    message: str
    params: Mapping[str, str] = {}
    """Values of the message, for translations."""
