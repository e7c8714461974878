import assert from "node:assert/strict";
import { checkScores, checkVectors, documents, refused, require, shown, url } from "./client_helpers.mjs";

const { InferenceClient } = require("@huggingface/inference");
const at = (model) => new InferenceClient().endpoint(`${url}/models/${model}`);
const scores = (found) => found.map((each) => each.score);
const text = "the man went to the bank";

checkVectors("featureExtraction", await at("vectors").featureExtraction({ inputs: documents }), 3);
const similar = await at("vectors").sentenceSimilarity({
  inputs: { source_sentence: documents[0], sentences: documents },
});
assert.equal(similar.length, 3);
shown("sentenceSimilarity", similar);
checkScores("textClassification", scores(await at("labels").textClassification({ inputs: documents[0] })));
const tags = await at("tags").tokenClassification({ inputs: text });
tags.forEach((tag) => assert.equal(text.slice(tag.start, tag.end), tag.word));
shown("tokenClassification", tags);
const context = `${text} . the film was good`;
const answer = await at("answers").questionAnswering({ inputs: { question: "who went ?", context } });
assert.equal(context.slice(answer.start, answer.end), answer.answer);
shown("questionAnswering", answer);
checkScores("fillMask", scores(await at("masks").fillMask({ inputs: "the man went to the [MASK]" })));
const judged = await at("nli").zeroShotClassification({
  inputs: documents[0],
  parameters: { candidate_labels: ["film", "bank"] },
});
checkScores("zeroShotClassification", scores(judged));
await refused("an unknown model", 404, at("none-such").featureExtraction({ inputs: "a" }));
