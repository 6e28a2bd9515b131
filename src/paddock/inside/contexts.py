"""Code contexts: a language and an interpreter that remembers."""

from __future__ import annotations

import threading

from .environment import Environment
from .errors import ApiError, not_supported
from .interpreters import Interpreter
from .processes import Processes

LANGUAGES = ("python", "bash")
MAX_CONTEXTS = 64


class Context:
    def __init__(self, language: str, interpreter: Interpreter) -> None:
        self.language = language
        self.interpreter = interpreter

    @property
    def id(self) -> str:
        return self.interpreter.id

    def describe(self) -> dict[str, str]:
        return {"id": self.id, "language": self.language}


class Contexts:
    def __init__(self, processes: Processes, environment: Environment, state: str) -> None:
        self._processes = processes
        self._environment = environment
        self._state = state
        self._lock = threading.Lock()
        self._all: dict[str, Context] = {}
        self._defaults: dict[str, str] = {}

    def create(self, language: str, cwd: str = "") -> Context:
        with self._lock:
            return self._create(language, cwd)

    def get(self, identifier: str) -> Context:
        with self._lock:
            context = self._all.get(identifier)
        if context is None:
            raise ApiError(404, "CONTEXT_NOT_FOUND", f"no context {identifier!r}")
        return context

    def default(self, language: str) -> Context:
        """The context of a language for requests that name none."""
        with self._lock:
            context = self._all.get(self._defaults.get(language, ""))
            if context is None:
                context = self._create(language, "")
                self._defaults[language] = context.id
            return context

    def list_all(self, language: str) -> list[Context]:
        with self._lock:
            return [context for context in self._all.values() if not language or context.language == language]

    def delete(self, identifier: str) -> None:
        context = self.get(identifier)
        with self._lock:
            self._all.pop(identifier, None)
        context.interpreter.close()

    def interrupt(self, identifier: str) -> None:
        """Interrupt the execution, or the context, of this id."""
        for context in self.list_all(""):
            if context.interpreter.runs(identifier):
                return context.interpreter.interrupt()
        raise ApiError(404, "CONTEXT_NOT_FOUND", f"nothing runs as {identifier!r}")

    def _create(self, language: str, cwd: str) -> Context:
        if language not in LANGUAGES:
            raise not_supported(f"language {language!r} is not among: {', '.join(LANGUAGES)}")
        if len(self._all) >= MAX_CONTEXTS:
            raise ApiError(400, "RUNTIME_ERROR", f"a box keeps at most {MAX_CONTEXTS} contexts; delete some")
        directory = self._environment.directory(cwd, self._environment.variables({}))
        context = Context(language, self._interpreter(language, directory))
        self._all[context.id] = context
        return context

    def _interpreter(self, language: str, directory: str) -> Interpreter:
        if language == "python":
            from .kernels import PythonKernel

            return PythonKernel(self._processes, self._environment, directory)
        from .shells import Shell

        return Shell(self._processes, self._environment, directory, self._state)
