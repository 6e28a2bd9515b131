// A site over TLS: pages, a video in ranges, a download and a WebSocket. HTTP/2, and HTTP/1.1 for the WebSocket.
// Usage: node tls_site.mjs KEY CERTIFICATE; prints the port.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { createSecureServer } from "node:http2";

const [key, cert] = process.argv.slice(2).map((path) => readFileSync(path));
const SECONDS = 120;
const PART = 1_000_000; // Largest answer, which is shorter than what players ask for.
const video = silentWave(SECONDS);
const PAGE = `<!doctype html><title>The cinema</title><h1>Welcome to the cinema</h1>
<p id="protocol"></p><p id="range"></p><video id="video" src="/video" preload="metadata"></video><p id="socket"></p><a id="download" href="/ticket.bin" download>Ticket</a>
<script>
  const show = (id, text) => { document.getElementById(id).textContent = text; };
  fetch("/hello").then((answer) => answer.text()).then((text) => show("protocol", text));
  const video = document.getElementById("video");
  video.onloadedmetadata = () => { video.currentTime = 100; };
  video.onseeked = () => fetch("/ranges").then((answer) => answer.text()).then((text) => show("range", text));
  video.onerror = () => show("range", "the video failed: " + video.error.message);
  const socket = new WebSocket("wss://" + location.host + "/socket");
  socket.onopen = () => socket.send("ping");
  socket.onmessage = (event) => show("socket", "socket says " + event.data);
  socket.onerror = () => show("socket", "socket failed");
</script>`;

const ranges = new Set();

/** A WAV file without sound, which is large enough that players do not load all of it. */
function silentWave(seconds) {
  const rate = 44_100;
  const header = Buffer.alloc(44);
  header.write("RIFF", 0);
  header.writeUInt32LE(36 + rate * 4 * seconds, 4);
  header.write("WAVEfmt ", 8);
  header.writeUInt32LE(16, 16);
  header.writeUInt16LE(1, 20);
  header.writeUInt16LE(2, 22);
  header.writeUInt32LE(rate, 24);
  header.writeUInt32LE(rate * 4, 28);
  header.writeUInt16LE(4, 32);
  header.writeUInt16LE(16, 34);
  header.write("data", 36);
  header.writeUInt32LE(rate * 4 * seconds, 40);
  return Buffer.concat([header, Buffer.alloc(rate * 4 * seconds)]);
}

const server = createSecureServer({ key, cert, allowHTTP1: true }, (request, response) => {
  if (request.url === "/") return response.writeHead(200, { "content-type": "text/html" }).end(PAGE);
  if (request.url === "/hello") return response.end(`HTTP/${request.httpVersion}`);
  if (request.url === "/ranges") return response.end(`seeked in ${[...ranges].some((first) => first > 1e6)}`);
  if (request.url === "/ticket.bin") return response.end(video.subarray(0, 1_500_000));
  if (request.url === "/video") {
    const [, first, last] = /bytes=(\d+)-(\d*)/.exec(request.headers.range ?? "bytes=0-") ?? [];
    ranges.add(Number(first));
    const end = Math.min(last ? Number(last) : video.length - 1, Number(first) + PART - 1, video.length - 1);
    const range = `bytes ${first}-${end}/${video.length}`;
    const part = video.subarray(Number(first), end + 1);
    const headers = { "content-range": range, "content-length": part.length, "content-type": "audio/wav" };
    return response.writeHead(206, { ...headers, "accept-ranges": "bytes", etag: '"1"' }).end(part);
  }
  response.writeHead(404).end();
});
server.on("upgrade", (request, socket) => {
  const accept = createHash("sha1").update(`${request.headers["sec-websocket-key"]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
  socket.write(`HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`);
  socket.once("data", (frame) => {
    const mask = frame.subarray(2, 6);
    const text = Buffer.from(frame.subarray(6, 6 + (frame[1] & 0x7f)).map((byte, index) => byte ^ mask[index % 4]));
    socket.write(Buffer.concat([Buffer.from([0x81, text.length + 5]), Buffer.from("echo "), text]));
  });
  socket.on("error", () => socket.destroy());
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
