"""All errors a user can see, each with a stable code and a message that says what to do next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar


class PaddockError(Exception):
    """An internal error in Paddock."""

    code: ClassVar[str] = "INTERNAL_ERROR"

    def __init__(self, message: str = "", *, params: Mapping[str, str] | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())
        self.params: Mapping[str, str] = params or {}
        """Values used in the message, for clients with translations by code."""

    @property
    def message(self) -> str:
        return str(self.args[0])


class InvalidInput(PaddockError):
    """The request is not valid."""

    code = "INVALID_INPUT"


class ConfigError(InvalidInput):
    """The configuration is not valid."""

    code = "INVALID_CONFIG"


class Unauthorized(PaddockError):
    """A valid API key is needed."""

    code = "UNAUTHORIZED"


class Forbidden(PaddockError):
    """This key may not do that."""

    code = "FORBIDDEN"


class NotFound(PaddockError):
    """There is no such thing."""

    code = "NOT_FOUND"


class SandboxNotFound(NotFound):
    """There is no such sandbox."""

    code = "SANDBOX_NOT_FOUND"


class SnapshotNotFound(NotFound):
    """There is no such snapshot."""

    code = "SNAPSHOT_NOT_FOUND"


class PoolNotFound(NotFound):
    """There is no such pool."""

    code = "POOL_NOT_FOUND"


class ImageNotFound(NotFound):
    """There is no such image."""

    code = "IMAGE_NOT_FOUND"


class RunNotFound(NotFound):
    """There is no such run."""

    code = "RUN_NOT_FOUND"


class SessionNotFound(NotFound):
    """There is no such session."""

    code = "SESSION_NOT_FOUND"


class Conflict(PaddockError):
    """The thing is not in a state that allows this."""

    code = "CONFLICT"


class NameTaken(Conflict):
    """A live sandbox of the tenant has this name."""

    code = "NAME_TAKEN"


class AlreadyRunning(Conflict):
    """Another Paddock server uses this data directory."""

    code = "ALREADY_RUNNING"


class VaultDisabled(PaddockError):
    """The sandbox was created without a credential vault."""

    code = "VAULT_DISABLED"


class QuotaExceeded(PaddockError):
    """The tenant's quota is used up."""

    code = "QUOTA_EXCEEDED"


class TooLarge(PaddockError):
    """The body is too large."""

    code = "TOO_LARGE"


class Unsupported(PaddockError):
    """This backend cannot do that."""

    code = "UNSUPPORTED"


class Unavailable(PaddockError):
    """The machine cannot do this now."""

    code = "UNAVAILABLE"


class McpTimeout(Unavailable):
    """The MCP server did not answer in time."""

    code = "MCP_TIMEOUT"


class McpSignInNeeded(Conflict):
    """A user must sign in at the MCP server first."""

    code = "MCP_SIGN_IN_NEEDED"


class McpSignInFailed(Conflict):
    """The sign-in at the MCP server failed."""

    code = "MCP_SIGN_IN_FAILED"


class DiskFull(PaddockError):
    """The sandbox has written more than its disk limit."""

    code = "DISK_FULL"


class HostFull(Unavailable):
    """The host's disk is too full to start another sandbox."""

    code = "HOST_FULL"


class SandboxError(PaddockError):
    """The sandbox is broken; the requested action may not have happened."""

    code = "SANDBOX_BROKEN"


class SandboxStartError(SandboxError):
    """The sandbox did not start."""

    code = "SANDBOX_START_FAILED"


class SandboxGone(SandboxError):
    """The sandbox has ended."""

    code = "SANDBOX_GONE"


class SandboxTimeout(SandboxError):
    """The sandbox did not answer in time."""

    code = "SANDBOX_TIMEOUT"


class BuildError(PaddockError):
    """The image could not be built."""

    code = "IMAGE_BUILD_FAILED"


def drop_stack_frames(error: BaseException) -> None:
    """Drop the stack frames of an error and its causes: a frame that refers to the error would never be freed."""
    known: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is not None and id(each) not in known:
            known.add(id(each))
            each.__traceback__ = None
            left += [each.__cause__, each.__context__]
