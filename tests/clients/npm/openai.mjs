import assert from "node:assert/strict";
import { checkVectors, documents, refused, require, shown, url } from "./client_helpers.mjs";

const { OpenAI } = require("openai");
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const found = await client.embeddings.create({ model: "vectors", input: documents });
checkVectors("embeddings.create", found.data.map((each) => each.embedding), 3);
const floats = await client.embeddings.create({ model: "vectors", input: documents[0], encoding_format: "float" });
checkVectors("encoding_format float", floats.data.map((each) => each.embedding), 1);
floats.data[0].embedding.forEach((number, index) =>
  assert.ok(Math.abs(number - found.data[0].embedding[index]) < 1e-4),
);
const models = [];
for await (const model of client.models.list()) models.push(model.id);
assert.ok(models.includes("vectors"));
shown("models.list", models);
assert.equal((await client.models.retrieve("vectors")).id, "vectors");
const judged = await client.moderations.create({ input: documents, model: "labels" });
assert.equal(judged.results.length, 3);
shown("moderations.create", judged.results[0]);
await refused("an unknown model", 404, client.embeddings.create({ model: "none-such", input: "a" }));
await refused("no text", 400, client.embeddings.create({ model: "vectors", input: "" }));
