"""The environment and working directory that processes in the sandbox start with."""

from __future__ import annotations

import os
import re

from ..errors import invalid_body_error
from ..settings import DaemonSettings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_ENTRY = re.compile(
    rf"""^[ \t]*(?:export[ \t]+)?({_NAME})[ \t]*=[ \t]*(?:'([^']*)'|"((?:[^"\\]|\\.)*)"|([^\r\n]*))[ \t]*\r?$""",
    re.MULTILINE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}
_VARIABLE = re.compile(rf"\$(?:({_NAME})|\{{({_NAME})\}})")


class ProcessEnvironment:
    """Merges variables; later sources win: the daemon's, the sandbox's, the env file's, the request's."""

    def __init__(self, settings: DaemonSettings) -> None:
        self._user = settings.user
        self._bins = settings.path_directories
        self._env_file = os.path.join(settings.state, "env")
        self.sandbox_variables = settings.env
        self.cwd = settings.cwd

    def variables(self, extra: Mapping[str, str]) -> dict[str, str]:
        variables = {"PATH": _DEFAULT_PATH, "LANG": "C.UTF-8", "EXECD_ENVS": self._env_file, **os.environ}
        for name, value in (("USER", self._user.name), ("HOME", self._user.home), ("SHELL", self._user.shell)):
            if value:
                variables[name] = value
        variables.update(self.sandbox_variables)
        if self._bins:
            variables["PATH"] = ":".join((*self._bins, variables["PATH"]))
        variables.update(read_env_file(variables["EXECD_ENVS"]))
        variables.update(extra)
        return variables

    def working_directory(self, wanted: str, variables: Mapping[str, str]) -> str:
        """Expand `~` and variables in a working directory and check that it exists."""
        path = wanted or self.cwd
        if "\0" in path:
            raise invalid_body_error("cwd must not contain NUL")
        if path == "~" or path.startswith("~/"):
            path = (variables.get("HOME") or "/") + path[1:]
        path = os.path.join(self.cwd, _VARIABLE.sub(lambda match: _lookup(match, variables), path))
        if not os.path.isdir(path):
            raise invalid_body_error(f"the working directory does not exist: {path}")
        return path


def read_env_file(path: str) -> dict[str, str]:
    """Read KEY=VALUE lines: bare, 'verbatim' or "escaped"; the last value of a name wins."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as stream:
            text = stream.read()
    except OSError:
        return {}
    variables = {}
    for name, verbatim, escaped, bare in _ENTRY.findall(text):
        if escaped:
            verbatim = _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), escaped)
        variables[name] = verbatim or bare.strip()
    return variables


def _lookup(match: re.Match[str], variables: Mapping[str, str]) -> str:
    name = match[1] or match[2]
    if name not in variables:
        raise invalid_body_error(f"cwd refers to ${name}, which is not set")
    return variables[name]
