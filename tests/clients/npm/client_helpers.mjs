// What the programs of this folder share. They run in a folder that has the packages:
//     cd FOLDER && node .../tests/clients/npm/openai.mjs http://127.0.0.1:8080
import assert from "node:assert/strict";
import { createRequire } from "node:module";

export const require = createRequire(`${process.cwd()}/`);
export const url = process.argv[2].replace(/\/$/, "");
export const documents = ["the film was good", "a bad film", "the man went to the bank"];

export function shown(call, value) {
  console.log(`${call}: ${JSON.stringify(value)}`.slice(0, 120));
}

export function checkVectors(call, vectors, count) {
  assert.equal(vectors.length, count, call);
  for (const vector of vectors) {
    assert.equal(vector.length, vectors[0].length, call);
    assert.ok(vector.every(Number.isFinite), call);
  }
  shown(call, `${count} vectors of ${vectors[0].length}`);
}

export function checkScores(call, scores) {
  assert.ok(scores.length > 0, call);
  assert.ok(scores.every((score) => 0 <= score && score <= 1), call);
  assert.deepEqual(scores, [...scores].sort((one, other) => other - one), call);
  shown(call, scores);
}

export async function refused(what, status, call) {
  await assert.rejects(call, (error) => {
    const got = error.status ?? error.statusCode ?? error.status_code ?? error.httpResponse?.status;
    assert.equal(got, status, `${what}: ${got} ${error}`);
    shown(what, error.message);
    return true;
  });
}
