"""Code contexts: a language with an interpreter that keeps its state."""

from __future__ import annotations

import threading

from ..errors import ApiError
from .environment import ProcessEnvironment
from .interpreter import Interpreter
from .processes import ProcessRegistry

MAX_CONTEXTS = 64


class CodeContext:
    def __init__(self, language: str, interpreter: Interpreter) -> None:
        self.language = language
        self.interpreter = interpreter

    @property
    def id(self) -> str:
        return self.interpreter.id

    def describe(self) -> dict[str, str]:
        return {"id": self.id, "language": self.language}


class CodeContexts:
    def __init__(self, processes: ProcessRegistry, environment: ProcessEnvironment, state: str) -> None:
        self._processes = processes
        self._environment = environment
        self._state = state
        self._lock = threading.Lock()
        self._all: dict[str, CodeContext] = {}
        self._defaults: dict[str, str] = {}

    def create(self, language: str, cwd: str = "") -> CodeContext:
        with self._lock:
            return self._create(language, cwd)

    def get(self, identifier: str) -> CodeContext:
        with self._lock:
            context = self._all.get(identifier)
        if context is None:
            raise ApiError(404, "CONTEXT_NOT_FOUND", f"no context {identifier!r}")
        return context

    def default(self, language: str) -> CodeContext:
        """Return the default context of a language, for requests that name no context."""
        with self._lock:
            context = self._all.get(self._defaults.get(language, ""))
            if context is None:
                context = self._create(language, "")
                self._defaults[language] = context.id
            return context

    def list_all(self, language: str) -> list[CodeContext]:
        with self._lock:
            return [context for context in self._all.values() if not language or context.language == language]

    def delete(self, identifier: str) -> None:
        context = self.get(identifier)
        with self._lock:
            self._all.pop(identifier, None)
        context.interpreter.close()

    def interrupt(self, identifier: str) -> None:
        """Interrupt the execution or context with this id."""
        for context in self.list_all(""):
            if context.interpreter.has_execution(identifier):
                return context.interpreter.interrupt()
        raise ApiError(404, "CONTEXT_NOT_FOUND", f"no running execution or context {identifier!r}")

    def _create(self, language: str, cwd: str) -> CodeContext:
        if len(self._all) >= MAX_CONTEXTS:
            raise ApiError(400, "RUNTIME_ERROR", f"a sandbox keeps at most {MAX_CONTEXTS} contexts; delete some")
        directory = self._environment.working_directory(cwd, self._environment.variables({}))
        context = CodeContext(language, self._interpreter(language, directory))
        self._all[context.id] = context
        return context

    def _interpreter(self, language: str, directory: str) -> Interpreter:
        if language == "python":
            from .python_interpreter import PythonInterpreter

            return PythonInterpreter(self._processes, self._environment, directory)
        if language == "bash":
            from .bash_interpreter import BashInterpreter

            return BashInterpreter(self._processes, self._environment, directory, self._state)
        from .kernel_programs import KernelProgram, find_kernel_program

        program = find_kernel_program(language, self._environment.variables({}))
        return KernelProgram(self._processes, self._environment, directory, program)
