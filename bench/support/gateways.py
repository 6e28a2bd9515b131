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
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from support.process_usage import process_cpu_seconds, process_memory, process_tree

SOURCE_DIRECTORY = Path(__file__).parent
LITELLM_ENVIRONMENT = Path(__file__).parents[2] / ".venv-litellm"
START_TIMEOUT = 120.0
UNREACHED_LIMIT = 10**9
"""A bound that is checked with every request and never met."""


@dataclass(frozen=True)
class Gateway:
    """A gateway on a local port."""

    name: str
    port: int
    process: int
    key: str = "sk-bench"
    data: Path | None = field(default=None, compare=False)
    """Data directory with the archive."""

    def encode_request(self, path: str, body: Mapping[str, object]) -> bytes:
        """Return the bytes of an HTTP request as the vendor's own client sends it."""
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

    def cpu_seconds(self) -> float:
        """Return CPU seconds of the process and its children, to the nanosecond."""
        return sum(process_cpu_seconds(process) for process in process_tree(self.process))

    def resident_memory(self) -> int:
        """Return the resident memory in bytes."""
        return sum(process_memory(process) for process in process_tree(self.process))


class FakeProvider:
    """The fake provider: responds at once, always with the same text."""

    def __init__(self, port: int, process: int) -> None:
        self.port = port
        self.process = process

    def _get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            return bytes(answer.read())

    def set_pace(self, seconds: float) -> None:
        """Set the seconds between the events of a stream."""
        self._get(f"/pace/{round(seconds * 1e6)}")

    def request_counts(self) -> dict[str, int]:
        return dict(json.loads(self._get("/seen")))

    def cpu_seconds(self) -> float:
        return process_cpu_seconds(self.process)


def compile_program(name: str, directory: Path) -> Path:
    """Compile one of the C programs in this directory."""
    built = directory / name
    command = ("gcc", "-O2", "-Wall", "-Wno-format-truncation", "-o", str(built), str(SOURCE_DIRECTORY / f"{name}.c"))
    subprocess.run(command, check=True)
    return built


def find_program(name: str) -> str | None:
    """Return the path of a program; servers may be in sbin directories."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@asynccontextmanager
async def run_process(
    directory: Path, *words: str, environment: Mapping[str, str] | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a server with its output in `log`."""
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


async def wait_until_listening(
    port: int, process: asyncio.subprocess.Process, directory: Path, patience: float = START_TIMEOUT
) -> None:
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
async def run_fake_provider(directory: Path) -> AsyncIterator[FakeProvider]:
    process = await asyncio.create_subprocess_exec(
        str(compile_program("fake_provider", directory)), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield FakeProvider(int(await process.stdout.readline()), process.pid)
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def run_nginx(directory: Path, provider: FakeProvider) -> AsyncIterator[list[Gateway]]:
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
    async with run_process(
        directory, find_program("nginx") or "nginx", "-p", str(directory), "-c", "nginx.conf", "-e", "stderr"
    ) as process:
        await wait_until_listening(port, process, directory)
        yield [Gateway("nginx", port, process.pid)]


@asynccontextmanager
async def run_litellm(directory: Path, provider: FakeProvider) -> AsyncIterator[list[Gateway]]:
    """LiteLLM's proxy with its recommended production settings: one worker, only errors logged, a master key."""
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
    async with run_process(
        directory, str(LITELLM_ENVIRONMENT / "bin/litellm"), *words, environment=environment
    ) as process:
        await wait_until_listening(port, process, directory)
        yield [Gateway("litellm", port, process.pid)]


@asynccontextmanager
async def serve_paddock(
    directory: Path, settings: Mapping[str, object], scope: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, int, str, Path]]:
    """Run a server on a free port; yield its process, port, a key with one scope, and its data directory."""
    data = directory / "data"
    data.mkdir()
    file = directory / "paddock.yaml"
    file.write_text(json.dumps({"data": str(data), "server": {"port": 0}, **settings}))
    command = (sys.executable, "-m", "paddock")
    async with run_process(directory, *command, "serve", "--config", str(file)) as process:
        async with asyncio.timeout(START_TIMEOUT):
            while not (data / "server.json").exists():
                if process.returncode is not None:
                    raise RuntimeError(f"it ended at once:\n{(directory / 'log').read_text(errors='replace')[-2000:]}")
                await asyncio.sleep(0.05)
        port = int(json.loads((data / "server.json").read_text())["url"].rstrip("/").rpartition(":")[2])
        yield process, port, await _create_paddock_key(command, data, scope), data


@asynccontextmanager
async def run_paddock(
    directory: Path, provider: FakeProvider, listen: int | None = None
) -> AsyncIterator[list[Gateway]]:
    """Paddock with default settings, on its main port and, with `listen`, on the model listener.

    Keys, limits, usage and the archive are on.
    """
    address = f"http://127.0.0.1:{provider.port}"
    bounds = {
        "concurrency": UNREACHED_LIMIT,
        "requests_per_minute": UNREACHED_LIMIT,
        "tokens_per_minute": UNREACHED_LIMIT,
    }
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
    async with serve_paddock(directory, {"llm": models}, "llm:use") as (process, port, key, data):
        listeners = [Gateway("paddock", port, process.pid, key, data)]
        if listen is not None:
            # The server publishes its address once all ports are open.
            await wait_until_listening(listen, process, directory, patience=5)
            listeners.append(Gateway("paddock listen", listen, process.pid, key, data))
        yield listeners


async def _create_paddock_key(command: tuple[str, ...], data: Path, scope: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *(*command, "key", "create", "bench", "--scope", scope, "--data", str(data), "--json"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"paddock key create: {errors.decode(errors='replace').strip()}")
    return str(json.loads(output)["secret"])
