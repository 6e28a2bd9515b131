"""Compared gateways, each with one worker, and a fast fake provider behind them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

SOURCES = Path(__file__).parent / "llm"
LITELLM = Path(__file__).parent.parent / ".venv-litellm"
START = 120.0
LIMIT = 10**9
"""A bound that is checked with every request and never met."""


@dataclass(frozen=True)
class Gateway:
    """A gateway on a local port."""

    name: str
    port: int
    process: int
    key: str = "sk-bench"
    data: Path | None = field(default=None, compare=False)
    """Where it keeps what was said."""

    def request(self, path: str, body: Mapping[str, object]) -> bytes:
        """A whole HTTP request, as the makers' own clients send it."""
        content = json.dumps(body, separators=(",", ":")).encode()
        anthropic = path.endswith("/messages")
        headers = {
            "Host": f"127.0.0.1:{self.port}",
            "Content-Type": "application/json",
            "Accept": "application/json",
            "User-Agent": "bench/1.0",
            **({"anthropic-version": "2023-06-01", "x-api-key": self.key} if anthropic else {}),
            **({} if anthropic else {"Authorization": f"Bearer {self.key}"}),
            "Content-Length": str(len(content)),
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + content

    def cpu(self) -> float:
        """Processor seconds that it and its children have taken, to the nanosecond."""
        return sum(cpu_of(process) for process in family(self.process))

    def memory(self) -> int:
        """Bytes that are resident."""
        return sum(_resident(process) for process in family(self.process))


class Upstream:
    """The provider: answers at once, always with the same words."""

    def __init__(self, port: int, process: int) -> None:
        self.port = port
        self.process = process

    def _get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            return bytes(answer.read())

    def pace(self, seconds: float) -> None:
        """Let this pass between the events of a stream."""
        self._get(f"/pace/{round(seconds * 1e6)}")

    def seen(self) -> dict[str, int]:
        return dict(json.loads(self._get("/seen")))

    def cpu(self) -> float:
        return cpu_of(self.process)


def cpu_of(process: int) -> float:
    # CPU clock id of a process, computed as in clock_getcpuclockid(3).
    try:
        return time.clock_gettime(~process << 3 | 2)
    except OSError:
        return 0.0


def family(process: int) -> list[int]:
    """A process and all that it started."""
    found = [process]
    for each in found:
        with suppress(OSError):
            for task in Path(f"/proc/{each}/task").iterdir():
                with suppress(OSError):
                    found += [int(child) for child in (task / "children").read_text().split()]
    return found


def _resident(process: int) -> int:
    with suppress(OSError, StopIteration):
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
    return 0


def build(name: str, directory: Path) -> Path:
    """Compile one of the programs beside this file."""
    built = directory / name
    command = ("gcc", "-O2", "-Wall", "-Wno-format-truncation", "-o", str(built), str(SOURCES / f"{name}.c"))
    subprocess.run(command, check=True)
    return built


def program(name: str) -> str | None:
    """Return the path of a program; servers may be in sbin directories."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@asynccontextmanager
async def _running(
    directory: Path, *words: str, environment: Mapping[str, str] | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A server from start to end, with its output in `log`."""
    inherited = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    with (directory / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *words, stdout=log, stderr=log, cwd=directory, env={**inherited, **(environment or {})}
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(process.wait(), 30)
            except TimeoutError:
                process.kill()
                await process.wait()


async def _until_open(port: int, process: asyncio.subprocess.Process, directory: Path, patience: float = START) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(patience):
            while process.returncode is None:
                with suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    return
                await asyncio.sleep(0.1)
    log = (directory / "log").read_text(errors="replace")
    raise RuntimeError(f"nothing listens on port {port}; its log ends with:\n{log[-2000:]}")


@asynccontextmanager
async def upstream(directory: Path) -> AsyncIterator[Upstream]:
    process = await asyncio.create_subprocess_exec(str(build("upstream", directory)), stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield Upstream(int(await process.stdout.readline()), process.pid)
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def nginx(directory: Path, provider: Upstream) -> AsyncIterator[list[Gateway]]:
    """A plain reverse proxy: connections kept open on both sides, nothing buffered."""
    port = free_port()
    (directory / "nginx.conf").write_text(f"""
        daemon off; master_process off; worker_processes 1; pid {directory}/pid; error_log stderr error;
        {"user root;" if os.geteuid() == 0 else ""}
        events {{ worker_connections 4096; }}
        http {{
            access_log off; keepalive_requests 1000000000; client_body_buffer_size 1m; client_max_body_size 64m;
            client_body_temp_path {directory}/body; proxy_temp_path {directory}/proxy;
            fastcgi_temp_path {directory}/fastcgi; uwsgi_temp_path {directory}/uwsgi; scgi_temp_path {directory}/scgi;
            upstream provider {{ server 127.0.0.1:{provider.port}; keepalive 256; keepalive_requests 1000000000; }}
            server {{
                listen 127.0.0.1:{port};
                location / {{
                    proxy_pass http://provider; proxy_http_version 1.1; proxy_set_header Connection "";
                    proxy_buffering off;
                }}
            }}
        }}
    """)
    async with _running(
        directory, program("nginx") or "nginx", "-p", str(directory), "-c", "nginx.conf", "-e", "stderr"
    ) as process:
        await _until_open(port, process, directory)
        yield [Gateway("nginx", port, process.pid)]


@asynccontextmanager
async def litellm(directory: Path, provider: Upstream) -> AsyncIterator[list[Gateway]]:
    """LiteLLM's proxy as its page on production says: one worker, errors logged only, a master key, no database."""
    port = free_port()
    address = f"http://127.0.0.1:{provider.port}"
    key = "sk-upstream"
    settings = {
        "model_list": [
            {
                "model_name": "bench",
                "litellm_params": {"model": "openai/bench-model", "api_base": f"{address}/v1", "api_key": key},
            },
            {
                "model_name": "bench-claude",
                "litellm_params": {"model": "anthropic/bench-model", "api_base": address, "api_key": key},
            },
        ],
        "general_settings": {"master_key": "sk-bench"},
        # Otherwise Anthropic's format would be translated to OpenAI's Responses, which is different work.
        "litellm_settings": {"set_verbose": False, "use_chat_completions_url_for_anthropic_messages": True},
    }
    (directory / "config.yaml").write_text(json.dumps(settings))
    environment = {"LITELLM_LOG": "ERROR", "LITELLM_MODE": "PRODUCTION", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    address_words = ("--host", "127.0.0.1", "--port", str(port))
    # Connections are kept as long as nginx keeps them.
    words = ("--config", "config.yaml", *address_words, "--num_workers", "1", "--keepalive_timeout", "75")
    async with _running(directory, str(LITELLM / "bin/litellm"), *words, environment=environment) as process:
        await _until_open(port, process, directory)
        yield [Gateway("litellm", port, process.pid)]


@asynccontextmanager
async def paddock(directory: Path, provider: Upstream, listen: int | None = None) -> AsyncIterator[list[Gateway]]:
    """Paddock with default settings, on its main port and, with `listen`, on the model listener.

    Keys, limits, usage and the archive are on.
    """
    address = f"http://127.0.0.1:{provider.port}"
    bounds = {"concurrency": LIMIT, "requests_per_minute": LIMIT, "tokens_per_minute": LIMIT}
    models: dict[str, object] = {
        "providers": {
            "openai": {"kind": "openai", "base_url": f"{address}/v1", "key": "sk-upstream", "limits": bounds},
            "anthropic": {"kind": "anthropic", "base_url": address, "key": "sk-upstream", "limits": bounds},
        },
        "models": {"bench": "openai/bench-model", "bench-claude": "anthropic/bench-model"},
        "tenant_limits": bounds,
    }
    if listen is not None:
        models["listen"] = f"127.0.0.1:{listen}"
    data = directory / "data"
    data.mkdir()
    settings = directory / "paddock.yaml"
    settings.write_text(json.dumps({"data": str(data), "server": {"port": 0}, "llm": models}))
    command = (sys.executable, "-m", "paddock")
    async with _running(directory, *command, "serve", "--config", str(settings)) as process:
        async with asyncio.timeout(START):
            while not (data / "server.json").exists():
                if process.returncode is not None:
                    raise RuntimeError(f"it ended at once:\n{(directory / 'log').read_text(errors='replace')[-2000:]}")
                await asyncio.sleep(0.05)
        port = int(json.loads((data / "server.json").read_text())["url"].rstrip("/").rpartition(":")[2])
        key = await _paddock_key(command, data)
        doors = [Gateway("paddock", port, process.pid, key, data)]
        if listen is not None:
            # The server says where it is once everything is open.
            await _until_open(listen, process, directory, patience=5)
            doors.append(Gateway("paddock listen", listen, process.pid, key, data))
        yield doors


async def _paddock_key(command: tuple[str, ...], data: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        *(*command, "key", "create", "bench", "--scope", "llm:use", "--data", str(data), "--json"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"paddock key create: {errors.decode(errors='replace').strip()}")
    return str(json.loads(output)["secret"])
