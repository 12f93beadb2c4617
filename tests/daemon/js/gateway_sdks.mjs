// The official SDKs for JavaScript through a gateway: streamed and whole, tools, a picture, thinking. Prints one JSON object.
import { createRequire } from "node:module";

const require = createRequire(`${process.env.NODE_PATH}/`);
const Anthropic = require("@anthropic-ai/sdk").default;
const OpenAI = require("openai").default;
const [url, key, picture] = process.argv.slice(2);
const claude = new Anthropic({ baseURL: url, apiKey: key, maxRetries: 0 });
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
const found = {};

const source = { type: "base64", media_type: "image/png", data: picture };
const tools = [{ name: "look", description: "Looks.", input_schema: { type: "object" } }];
const history = [{ role: "user", content: [{ type: "image", source }, { type: "text", text: "look" }] }];
const first = await claude.messages.create({ model: "far", max_tokens: 99, messages: history, tools });
found.call = first.content.find((block) => block.type === "tool_use")?.name;
const result = { type: "tool_result", tool_use_id: first.content.at(-1).id, content: [{ type: "image", source }] };
history.push({ role: "assistant", content: first.content }, { role: "user", content: [result] });
const stream = claude.messages.stream({ model: "far", max_tokens: 99, messages: history, tools });
const final = await stream.finalMessage();
found.anthropic = final.content.find((block) => block.type === "text")?.text;
found.thinking = final.content.find((block) => block.type === "thinking")?.thinking;
history.push({ role: "assistant", content: final.content }, { role: "user", content: "again" });
found.again = (await claude.messages.create({ model: "far", max_tokens: 99, messages: history, tools })).content.at(-1).text;

const ask = [{ role: "user", content: [
  { type: "text", text: "see" },
  { type: "image_url", image_url: { url: `data:image/png;base64,${picture}` } },
] }];
found.chat = (await openai.chat.completions.create({ model: "far", messages: ask })).choices[0].message.content;
found.chunks = "";
const chunks = await openai.chat.completions.create({
  model: "far", messages: ask, stream: true, stream_options: { include_usage: true },
});
for await (const chunk of chunks) {
  found.chunks += chunk.choices[0]?.delta?.content ?? "";
  found.usage = chunk.usage?.total_tokens ?? found.usage;
}
found.response = (await openai.responses.create({ model: "far", input: "hi" })).output_text;
const events = await openai.responses.create({ model: "far", input: "hi", stream: true });
found.events = [];
for await (const event of events) found.events.push(event.type);
found.models = (await openai.models.list()).data.map((model) => model.id).includes("far");
try {
  await claude.messages.create({ model: "nobody/none", max_tokens: 9, messages: [{ role: "user", content: "x" }] });
} catch (error) {
  found.error = error instanceof Anthropic.NotFoundError;
}
console.log(JSON.stringify(found));
