// Hold a conversation of two prompts and a tool call with the Vercel AI SDK, and print what happened as JSON.
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";

const { BASE_URL, API_KEY, MODEL, STREAM } = process.env;
let references = 0;

async function countReferences(address, request) {
  const items = JSON.parse(request.body).input;
  references += items.filter((item) => item.type === "item_reference").length;
  return fetch(address, request);
}

const openai = createOpenAI({ baseURL: BASE_URL, apiKey: API_KEY, fetch: countReferences });
const look = tool({
  description: "Look somewhere.",
  inputSchema: jsonSchema({ type: "object", properties: { where: { type: "string" } }, required: ["where"] }),
  execute: ({ where }) => `a tree ${where}`,
});

async function ask(messages) {
  // The default model of the provider is one of the Responses API, which stores answers.
  const options = { model: openai(MODEL), messages, tools: { look }, stopWhen: stepCountIs(4), maxRetries: 0 };
  if (STREAM !== "true") {
    const answer = await generateText(options);
    return { text: answer.text, messages: answer.response.messages };
  }
  const answer = streamText({ ...options, onError: ({ error }) => console.error(error) });
  return { text: await answer.text, messages: (await answer.response).messages };
}

const first = [{ role: "user", content: "What do you see?" }];
const seen = await ask(first);
const second = await ask([...first, ...seen.messages, { role: "user", content: "Which kind?" }]);
console.log(JSON.stringify({ texts: [seen.text, second.text], references }));
