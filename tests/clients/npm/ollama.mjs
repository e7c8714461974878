import assert from "node:assert/strict";
import { checkVectors, documents, refused, require, shown, url } from "./client_helpers.mjs";

const { Ollama } = require("ollama");
const client = new Ollama({ host: url });
checkVectors("embed", (await client.embed({ model: "vectors", input: documents })).embeddings, 3);
checkVectors("embed of a text", (await client.embed({ model: "vectors:latest", input: documents[0] })).embeddings, 1);
checkVectors("embeddings", [(await client.embeddings({ model: "vectors", prompt: documents[0] })).embedding], 1);
const names = (await client.list()).models.map((model) => model.name);
assert.ok(names.includes("vectors"));
shown("list", names);
shown("ps", (await client.ps()).models.length);
shown("show", (await client.show({ model: "vectors" })).model_info);
shown("version", await client.version());
await refused("an unknown model", 404, client.embed({ model: "none-such", input: "a" }));
