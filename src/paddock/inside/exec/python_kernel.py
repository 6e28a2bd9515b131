"""The process behind a Python context: runs cells in one namespace and reports on a socket.

It runs under the Python of the sandbox's user. The daemon sends one JSON line per cell, together with
the descriptors for its output.
"""

from __future__ import annotations

import ast
import json
import linecache
import os
import signal
import socket
import sys
import traceback
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CHANNEL_VARIABLE = "PADDOCK_KERNEL_FD"
MAX_TEXT = 1_000_000

_REPRESENTATIONS = (
    ("_repr_html_", "text/html"),
    ("_repr_markdown_", "text/markdown"),
    ("_repr_svg_", "image/svg+xml"),
    ("_repr_png_", "image/png"),
    ("_repr_jpeg_", "image/jpeg"),
    ("_repr_latex_", "text/latex"),
    ("_repr_json_", "application/json"),
)


def serve_python_kernel() -> int:
    descriptor = int(os.environ.pop(CHANNEL_VARIABLE))
    os.environ.setdefault("MPLBACKEND", "Agg")
    PythonKernel(socket.socket(fileno=descriptor)).run()
    return 0


class PythonKernel:
    """Runs one cell at a time in one namespace."""

    def __init__(self, channel: socket.socket) -> None:
        channel.set_inheritable(False)
        self._channel = channel
        self._count = 0
        self._running = False
        self._loop: Any = None
        self._module = types.ModuleType("__main__")
        self._module.__dict__.update(display=self._display, __builtins__=__builtins__)
        sys.modules["__main__"] = self._module
        sys.path[0] = ""
        sys.argv = [""]
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
        signal.signal(signal.SIGINT, self._interrupt)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    def run(self) -> None:
        pending = b""
        while True:
            data, descriptors, _, _ = socket.recv_fds(self._channel, 65536, 2)
            if not data:
                return
            self._redirect(descriptors)
            pending += data
            while b"\n" not in pending:
                more = self._channel.recv(1 << 20)
                if not more:
                    return
                pending += more
            line, _, pending = pending.partition(b"\n")
            self._execute(json.loads(line)["code"])

    def _execute(self, source: str) -> None:
        self._count += 1
        try:
            # A client may interrupt the cell as soon as it reads the start event.
            self._running = True
            self._send(count=self._count)
            self._run_cell(source)
            self._show_figures()
        except BaseException as error:
            self._running = False
            self._report(error)
        self._running = False
        self._flush()
        self._redirect_to_null()
        self._send(done=True)

    def _run_cell(self, source: str) -> None:
        name = f"<cell {self._count}>"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        tree = ast.parse(source, name)
        last = tree.body[-1] if tree.body else None
        if isinstance(last, ast.Expr):
            tree.body.pop()
        if tree.body:
            self._evaluate(tree, name, "exec")
        if isinstance(last, ast.Expr):
            value = self._evaluate(ast.Expression(last.value), name, "eval")
            if value is not None and not source.rstrip().endswith(";"):
                self._module.__dict__["_"] = value
                self._show(value)

    def _evaluate(self, tree: ast.AST, name: str, mode: str) -> object:
        code = compile(tree, name, mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)  # type: ignore[call-overload]
        value = eval(code, self._module.__dict__)
        if code.co_flags & 0x80:
            return self._event_loop().run_until_complete(value)
        return value

    def _event_loop(self) -> Any:
        if self._loop is None:
            import asyncio

            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)
        return self._loop

    def _display(self, *values: object) -> None:
        for value in values:
            self._show(value)

    def _show(self, value: object) -> None:
        self._flush()
        self._send(result=mime_representations(value))

    def _show_figures(self) -> None:
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is None:
            return
        import io

        for number in pyplot.get_fignums():
            buffer = io.BytesIO()
            pyplot.figure(number).savefig(buffer, format="png", bbox_inches="tight")
            self._flush()
            self._send(result={"text/plain": f"<Figure {number}>", "image/png": _base64(buffer.getvalue())})
        pyplot.close("all")

    def _report(self, error: BaseException) -> None:
        frames = error.__traceback__
        while frames is not None and not frames.tb_frame.f_code.co_filename.startswith("<cell "):
            frames = frames.tb_next
        try:
            lines = traceback.format_exception(type(error), error, frames)
        except Exception as broken:
            lines = [f"{type(error).__name__} (no traceback: {broken!r})"]
        self._flush()
        text = "".join(lines).splitlines()
        self._send(error={"ename": type(error).__name__, "evalue": _safe_text(error), "traceback": text})

    def _interrupt(self, number: int, frame: object) -> None:
        if self._running:
            raise KeyboardInterrupt

    def _redirect(self, descriptors: list[int]) -> None:
        for number, descriptor in enumerate(descriptors, start=1):
            os.dup2(descriptor, number)
            os.close(descriptor)

    def _redirect_to_null(self) -> None:
        null_fd = os.open(os.devnull, os.O_WRONLY)
        self._redirect([null_fd, os.dup(null_fd)])

    def _flush(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError, AttributeError):
                pass

    def _send(self, **message: object) -> None:
        self._channel.sendall(json.dumps(message, default=str).encode("ascii") + b"\n")


def mime_representations(value: object) -> dict[str, object]:
    """Return a value as text and in every rich format it offers, keyed by MIME type."""
    representations: dict[str, object] = {"text/plain": _safe_text(value, repr)}
    for method, kind in _REPRESENTATIONS:
        function = getattr(value, method, None)
        if function is None or isinstance(value, type):
            continue
        try:
            shown = function()
        except Exception:
            continue
        shown = shown[0] if isinstance(shown, tuple) and shown else shown
        if shown is not None:
            representations[kind] = _base64(shown) if isinstance(shown, bytes) else shown
    return representations


def _safe_text(value: object, render: Any = str) -> str:
    try:
        text: str = render(value)
    except Exception as error:
        text = f"<{type(value).__name__} without a readable repr: {type(error).__name__}>"
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…"


def _base64(data: bytes) -> str:
    from binascii import b2a_base64

    return b2a_base64(data, newline=False).decode("ascii")
