"""Clients that know only the published definition of the gRPC services."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from .rpc_gateway import Gateway

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[4]
PROTO = ROOT / "src/paddock/mcp/rpc/v1/mcp.proto"
NODE = ROOT / ".make/clis/bin/node"


REFLECTING_CLIENT = """
import sys, grpc
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

class WithKey(grpc.UnaryStreamClientInterceptor, grpc.StreamStreamClientInterceptor):
    def add(self, details):
        return details._replace(metadata=[("authorization", "Bearer good")])
    def intercept_unary_stream(self, call, details, request):
        return call(self.add(details), request)
    def intercept_stream_stream(self, call, details, requests):
        return call(self.add(details), requests)

channel = grpc.intercept_channel(grpc.insecure_channel(sys.argv[1]), WithKey())
database = ProtoReflectionDescriptorDatabase(channel)
print(*sorted(database.get_services()))
pool = DescriptorPool(database)
call = pool.FindServiceByName("paddock.mcp.v1.Tools").FindMethodByName("CallTool")
Request, Event = GetMessageClass(call.input_type), GetMessageClass(call.output_type)
method = channel.unary_stream("/paddock.mcp.v1.Tools/CallTool", Request.SerializeToString, Event.FromString)
for event in method(Request(target="demo", name="count", arguments_json=b'{"to": 2}')):
    print(event.WhichOneof("event"), event.result.text)
"""


async def run_program(*command: str, env: dict[str, str] | None = None) -> list[str]:
    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=env)

    done = await asyncio.to_thread(run)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


async def test_a_program_learns_the_interface_by_reflection(gateway: Gateway) -> None:
    lines = await run_program(sys.executable, "-c", REFLECTING_CLIENT, gateway.address)
    assert {"paddock.mcp.v1.Tools", "paddock.mcp.v1.Transport", "grpc.health.v1.Health"} <= set(lines[0].split())
    assert lines[1:] == ["progress ", "progress ", "result done"]


NODE_CLIENT = """
const grpc = require("@grpc/grpc-js");
const loaded = require("@grpc/proto-loader").loadSync(process.argv[1], {keepCase: true});
const { Tools } = grpc.loadPackageDefinition(loaded).paddock.mcp.v1;
const tools = new Tools(process.argv[2], grpc.credentials.createInsecure());
const key = new grpc.Metadata();
key.set("authorization", "Bearer good");
tools.ListTools({target: "demo"}, key, (error, listed) => {
  if (error) throw error;
  console.log(listed.tools.map((tool) => tool.name).sort().join(" "));
  const call = tools.CallTool({target: "demo", name: "count", arguments_json: Buffer.from('{"to": 2}')}, key);
  call.on("data", (event) => console.log(event.progress ? `progress ${event.progress.progress}` : event.result.text));
  call.on("end", () => {
    const slow = tools.CallTool({target: "demo", name: "sleep"}, key);
    slow.on("data", () => slow.cancel());
    slow.on("error", (error) => { console.log(grpc.status[error.code]); tools.close(); });
  });
});
"""


async def test_a_client_in_javascript(gateway: Gateway) -> None:
    modules = {"NODE_PATH": str(ROOT / ".make/clis/node_modules"), "PATH": "/usr/bin:/bin"}
    lines = await run_program(str(NODE), "-e", NODE_CLIENT, str(PROTO), gateway.address, env=modules)
    assert lines == ["ask count echo fail sleep talk", "progress 1", "progress 2", "done", "CANCELLED"]
    await gateway.demo.wait_for(lambda demo: demo.under_way == 0)


async def test_generated_modules_are_current() -> None:
    await run_program(str(ROOT / "scripts/generate-proto"), "--check")
