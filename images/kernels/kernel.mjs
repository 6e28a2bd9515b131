// Kernel of JavaScript and TypeScript contexts: runs cells in this process, as docs/reference/inside.md describes.
//
// V8's REPL mode keeps declarations between cells and awaits at the top level.
// Cells run in the main thread; a worker reads the commands, so that it can interrupt a cell that never returns.
import fs from 'node:fs';
import inspector from 'node:inspector';
import { createRequire } from 'node:module';
import { Socket } from 'node:net';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { inspect } from 'node:util';
import { Worker, isMainThread, parentPort, workerData } from 'node:worker_threads';

const MAX_TEXT = 1_000_000;
const RESPONSE_MILLISECONDS = 200;
const [RECEIVED, HANDLED] = [0, 1];
const RICH_FORMATS = [['toHTML', 'text/html'], ['toMarkdown', 'text/markdown'], ['toSVG', 'image/svg+xml']];
const language = process.argv[2];

if (isMainThread) startKernel();
else readCommands();

function readCommands() {
  const session = new inspector.Session();
  session.connectToMainThread();
  const counters = new Int32Array(workerData.counters);
  let pending = '';
  // A blocking read would hold up `process.exit`.
  const commands = new Socket({ fd: workerData.commands, writable: false });
  commands.setEncoding('utf8');
  commands.on('end', () => process.kill(process.pid, 'SIGKILL')); // The daemon has ended; a cell may still be busy.
  commands.on('data', (text) => {
    const lines = (pending + text).split('\n');
    pending = lines.pop();
    for (const line of lines) forward(JSON.parse(line));
  });

  function forward(message) {
    const received = Atomics.add(counters, RECEIVED, 1) + 1;
    parentPort.postMessage(message);
    if (!message.interrupt) return;
    // A main thread that waits for something handles the message itself; one that computes has to be stopped.
    const deadline = Date.now() + RESPONSE_MILLISECONDS;
    for (let handled; (handled = Atomics.load(counters, HANDLED)) < received;) {
      if (Atomics.wait(counters, HANDLED, handled, Math.max(0, deadline - Date.now())) !== 'timed-out') continue;
      session.post('Runtime.terminateExecution');
      return;
    }
  }
}

function startKernel() {
  const commands = Number(process.env.PADDOCK_KERNEL_COMMANDS);
  const replies = Number(process.env.PADDOCK_KERNEL_REPLIES);
  delete process.env.PADDOCK_KERNEL_COMMANDS;
  delete process.env.PADDOCK_KERNEL_REPLIES;
  const send = (reply) => fs.writeSync(replies, JSON.stringify(reply) + '\n');
  const session = new inspector.Session();
  session.connect();
  const post = (method, parameters) => new Promise((done) => {
    session.post(method, parameters, (error, answer) => done(error ? null : answer));
  });

  const here = pathToFileURL(resolve('cell.mjs')).href;
  const importModule = (name, options) => import(import.meta.resolve(String(name), here), options);
  const showing = { value: undefined };
  const show = (value) => { showing.value = value; };
  Object.assign(globalThis, { require: createRequire(here), module: { exports: {} }, exports: {} });
  for (const [name, value] of Object.entries({ __paddock_import: importModule, __paddock_show: show })) {
    Object.defineProperty(globalThis, name, { value });
  }
  globalThis.display = (value) => send({ result: represent(value) });

  const rewrite = loadRewriter();
  let interrupted = () => {};
  let running = 0;
  const counters = new Int32Array(new SharedArrayBuffer(8));
  const queue = [];
  let busy = false;
  const worker = new Worker(new URL(import.meta.url), { workerData: { commands, counters: counters.buffer }, stdin: false });
  worker.on('message', (message) => {
    Atomics.add(counters, HANDLED, 1);
    Atomics.notify(counters, HANDLED);
    if (message.interrupt) {
      if (message.interrupt === running) interrupted();
      return;
    }
    queue.push(message);
    if (!busy) runQueue();
  });
  process.on('SIGINT', () => {}); // Interrupts come as commands; the signal is for programs that a cell has started.
  process.on('exit', () => session.disconnect()); // Node waits for debuggers and says so.
  process.on('uncaughtException', (error) => process.stderr.write(`Uncaught ${describe(error)}\n`));

  async function runQueue() {
    busy = true;
    while (queue.length) await runCell(queue.shift());
    busy = false;
  }

  async function runCell({ cell, code }) {
    running = cell;
    send({ count: cell });
    const stop = new Promise((done) => { interrupted = () => done(null); });
    try {
      const expression = `${rewrite(code)}\n//# sourceURL=cell-${cell}`;
      const options = { expression, replMode: true, awaitPromise: true, objectGroup: 'cell', includeCommandLineAPI: false };
      const answer = await Promise.race([post('Runtime.evaluate', options), stop]);
      await sendOutcome(answer);
    } catch (error) {
      const evalue = clip(String(error.message)); // The code could not be parsed; the frames are the parser's.
      send({ error: { ename: error.name, evalue, traceback: [`${error.name}: ${evalue}`] } });
    }
    await post('Runtime.releaseObjectGroup', { objectGroup: 'cell' });
    interrupted = () => {};
    running = 0;
    send({ done: true });
  }

  async function sendOutcome(answer) {
    if (!answer) {
      return send({ error: { ename: 'Interrupted', evalue: 'the cell was interrupted', traceback: ['Interrupted: the cell was interrupted'] } });
    }
    const { result, exceptionDetails } = answer;
    const argument = 'objectId' in result ? { objectId: result.objectId }
      : 'unserializableValue' in result ? { unserializableValue: result.unserializableValue } : { value: result.value };
    if (result.type === 'undefined' && !exceptionDetails) return;
    const functionDeclaration = 'function (value) { __paddock_show(value); }';
    const context = await post('Runtime.evaluate', { expression: 'globalThis', objectGroup: 'cell' });
    await post('Runtime.callFunctionOn', { objectId: context.result.objectId, functionDeclaration, arguments: [argument] });
    const { value } = showing;
    showing.value = undefined;
    if (exceptionDetails) return sendError(value, exceptionDetails);
    globalThis._ = value;
    send({ result: represent(value) });
  }

  function sendError(error, details) {
    const isError = error instanceof Error;
    const traceback = describe(error).split('\n');
    if (error instanceof SyntaxError && details?.url && traceback.length === 1) {
      traceback.push(`    at ${details.url}:${details.lineNumber + 1}:${details.columnNumber + 1}`);
    }
    const evalue = isError ? clip(String(error.message)) : describe(error);
    send({ error: { ename: isError ? String(error.name) : 'Uncaught', evalue, traceback } });
  }
}

function represent(value) {
  const representations = { 'text/plain': describe(value) };
  for (const [method, kind] of RICH_FORMATS) {
    try {
      if (typeof value?.[method] === 'function') representations[kind] = String(value[method]());
    } catch {
      // A value that cannot show itself has only its text.
    }
  }
  return representations;
}

function describe(value) {
  try {
    if (!(value instanceof Error)) return clip(inspect(value, { depth: 6 }));
    // Frames below the cell are the kernel's own.
    const lines = inspect(value).split('\n');
    const end = lines.findIndex((line) => /^\s+at .*(node:inspector|kernel\.mjs)/.test(line));
    const rest = end < 0 ? [] : lines.slice(end).filter((line) => !/^\s+at /.test(line));
    return clip((end < 0 ? lines : lines.slice(0, end).concat(rest)).join('\n').replace(/\n?\s*\{?\s*$/, (tail) => (tail.includes('{') ? '' : tail)));
  } catch (error) {
    return `a value that cannot be shown: ${error}`;
  }
}

function clip(text) {
  return text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}…` : text;
}

// Returns a function that erases types, turns `import` and `export`, which scripts do not have, into script code, and
// makes top-level names variables, so that a later cell can declare them again as anything. Lines keep their numbers.
function loadRewriter() {
  const load = createRequire('/usr/local/lib/node_modules/');
  const types = language === 'typescript' ? load('sucrase') : null;
  let parser = null;
  return (code) => {
    let script = code;
    if (types) {
      const options = { transforms: ['typescript'], keepUnusedImports: true, disableESTransforms: true };
      script = types.transform(code, options).code;
    }
    parser ??= load('acorn');
    let tree;
    try {
      tree = parser.parse(script, { ecmaVersion: 'latest', sourceType: 'module', allowAwaitOutsideFunction: true });
    } catch {
      return script; // V8 says what is wrong.
    }
    return replaceDeclarations(tree, script);
  };
}

function replaceDeclarations(tree, code) {
  const edits = [];
  const replace = (node, text) => {
    const lines = code.slice(node.start, node.end).split('\n').length - text.split('\n').length;
    edits.push([node.start, node.end, text + '\n'.repeat(Math.max(0, lines))]);
  };
  const declare = (node) => {
    if (node.type === 'VariableDeclaration' && /^(let|const)$/.test(node.kind)) {
      edits.push([node.start, node.start + node.kind.length, 'var']);
    } else if (node.type === 'ClassDeclaration') {
      edits.push([node.start, node.start, `var ${node.id.name} = `], [node.end, node.end, ';']);
    }
  };
  for (const node of tree.body) {
    declare(node);
    if (node.type === 'ImportDeclaration') replace(node, importStatement(node));
    else if (node.type === 'ExportNamedDeclaration' && node.declaration) {
      edits.push([node.start, node.declaration.start, '']);
      declare(node.declaration);
    } else if (node.type === 'ExportNamedDeclaration' || node.type === 'ExportAllDeclaration') replace(node, ';');
    else if (node.type === 'ExportDefaultDeclaration') {
      const isNamed = /^(Function|Class)Declaration$/.test(node.declaration.type) && node.declaration.id;
      edits.push([node.start, node.declaration.start, isNamed ? '' : 'exports.default = ']);
      if (isNamed) declare(node.declaration);
    }
  }
  visit(tree, (node) => {
    if (node.type === 'ImportExpression') edits.push([node.start, node.start + 'import'.length, '__paddock_import']);
  });
  // From the end to the start; of edits at one place, the later one is inserted first.
  edits.reverse().sort((left, right) => right[0] - left[0]);
  return edits.reduce((text, [start, end, inserted]) => text.slice(0, start) + inserted + text.slice(end), code);
}

function importStatement(node) {
  const from = `await __paddock_import(${JSON.stringify(node.source.value)}${attributes(node)})`;
  const named = [];
  const statements = [];
  for (const { type, imported, local } of node.specifiers) {
    if (type === 'ImportNamespaceSpecifier') statements.push(`var ${local.name} = ${from};`);
    else named.push(`${type === 'ImportDefaultSpecifier' ? 'default' : JSON.stringify(imported.name ?? imported.value)}: ${local.name}`);
  }
  if (named.length) statements.push(`var { ${named.join(', ')} } = ${from};`);
  return statements.join(' ') || `void (${from});`;
}

function attributes(node) {
  if (!node.attributes?.length) return '';
  const pairs = node.attributes.map(({ key, value }) => `${JSON.stringify(key.name ?? key.value)}: ${JSON.stringify(value.value)}`);
  return `, { with: { ${pairs.join(', ')} } }`;
}

function visit(node, see) {
  if (Array.isArray(node)) for (const each of node) visit(each, see);
  else if (node && typeof node.type === 'string') {
    see(node);
    for (const [name, value] of Object.entries(node)) if (name !== 'type' && typeof value === 'object') visit(value, see);
  }
}
