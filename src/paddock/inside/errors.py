"""Errors of the HTTP API: status, stable code, and a message that says what to fix."""

from __future__ import annotations


class ApiError(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


def invalid_body_error(message: str) -> ApiError:
    return ApiError(400, "INVALID_REQUEST_BODY", message)


def missing_query_error(name: str) -> ApiError:
    return ApiError(400, "MISSING_QUERY", f"query parameter {name!r} is required")


def not_supported_error(message: str) -> ApiError:
    return ApiError(400, "NOT_SUPPORTED", message)


def file_not_found_error(path: str) -> ApiError:
    return ApiError(404, "FILE_NOT_FOUND", f"no such file or directory: {path}")


def forbidden_error(message: str) -> ApiError:
    return ApiError(403, "FORBIDDEN", message)
