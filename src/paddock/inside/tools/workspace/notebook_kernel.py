"""The process behind Python cells: the daemon's kernel, with IPython where it is installed."""

from __future__ import annotations

import os
import socket
import sys
import traceback
from importlib import import_module

from ...exec.python_kernel import CHANNEL_VARIABLE, PythonKernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def serve_notebook_kernel() -> int:
    """Run as the kernel process."""
    descriptor = int(os.environ.pop(CHANNEL_VARIABLE))
    os.environ.setdefault("MPLBACKEND", "Agg")
    channel = socket.socket(fileno=descriptor)
    shell = _interactive_shell()
    kernel = PythonKernel(channel) if shell is None else IPythonKernel(channel, shell)
    kernel.run()
    return 0


def _interactive_shell() -> Any:
    """Return IPython's shell class, or None if it is not installed."""
    try:
        return import_module("IPython.core.interactiveshell").InteractiveShell
    except ImportError:
        return None


class IPythonKernel(PythonKernel):
    """Kernel that evaluates cells with IPython: magics, `!commands`, `?help`, top-level await."""

    def __init__(self, channel: socket.socket, shell_class: Any) -> None:
        super().__init__(channel)
        shell = self._shell = shell_class.instance(user_module=self._module)
        shell.colors = "NoColor"
        shell.user_ns["display"] = self._display
        shell.displayhook.__class__ = _hook_class(type(shell.displayhook))
        shell.displayhook.show = self._show
        shell._showtraceback = lambda *_: None
        shell.ask_exit = sys.exit
        shell.showsyntaxerror = lambda *_, **__: None

    def _run_cell(self, source: str) -> None:
        outcome = self._shell.run_cell(source, store_history=True)
        error = outcome.error_before_exec or outcome.error_in_exec
        if error is not None:
            raise error

    def _report(self, error: BaseException) -> None:
        """Report the traceback without IPython's own frames."""
        frames = error.__traceback__
        while frames is not None and "ipython-input" not in frames.tb_frame.f_code.co_filename:
            frames = frames.tb_next
        lines = traceback.format_exception(type(error), error, frames)
        self._flush()
        text = "".join(lines).splitlines()
        self._send(error={"ename": type(error).__name__, "evalue": str(error)[:10_000], "traceback": text})


def _hook_class(base: Any) -> Any:
    """Return a display hook class that sends values instead of printing them."""

    class Hook(base):  # type: ignore[misc]
        def __call__(self, result: object = None) -> None:
            self.check_for_underscore()
            if result is not None and not self.quiet():
                self.update_user_ns(result)
                self.show(result)

    return Hook
