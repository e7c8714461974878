import assert from "node:assert/strict";
import { checkScores, checkVectors, documents, refused, require, shown, url } from "./client_helpers.mjs";

const { CohereClient, CohereClientV2 } = require("cohere-ai");
const newer = new CohereClientV2({ token: "none", environment: url });
const older = new CohereClient({ token: "none", environment: url });
const asked = { model: "vectors", inputType: "search_document", texts: documents };
const kinds = ["float", "int8", "uint8", "binary", "ubinary", "base64"];
const found = await newer.embed({ ...asked, embeddingTypes: kinds });
checkVectors("v2.embed", found.embeddings.float, 3);
kinds.forEach((kind) => assert.equal(found.embeddings[kind].length, 3, kind));
checkVectors("v1.embed", (await older.embed(asked)).embeddings, 3);
const ranking = { model: "ranks", query: "was it good ?", documents };
checkScores("v2.rerank", (await newer.rerank(ranking)).results.map((each) => each.relevanceScore));
const ranked = await older.rerank({ ...ranking, returnDocuments: true, topN: 2 });
ranked.results.forEach((each) => assert.equal(each.document.text, documents[each.index]));
shown("v1.rerank", ranked.results);
await refused("an unknown model", 404, newer.embed({ ...asked, model: "none-such" }, { maxRetries: 0 }));
await refused("no texts", 400, newer.embed({ ...asked, texts: [] }, { maxRetries: 0 }));
