// What the WebAssembly program answers under Node, as JSON: node browser_answers.mjs FOLDER < questions.json
//
// FOLDER is one that docs/try/build.py made; questions: {"vectors": [...], "fills": [...], "pieces": [...], "repeats": 1}.
import fs from "node:fs";
import path from "node:path";
import zlib from "node:zlib";

const folder = process.argv[2];
const source = fs.readFileSync(path.join(folder, "engine.js"), "utf8");
const { Engine, whatIsMissing } = await import("data:text/javascript," + encodeURIComponent(source));
const questions = JSON.parse(fs.readFileSync(0, "utf8"));

const file = (name) => fs.readFileSync(path.join(folder, name));
const begun = performance.now();
const model = zlib.gunzipSync(file("bertkit-tiny-en.bin.gz"));
const unpacked = performance.now();
const engine = await Engine.load(file("bertkit.wasm"), new Uint8Array(model));
const loaded = performance.now();
const found = {
  missing: whatIsMissing(),
  fills: questions.fills.map((text) => engine.fill(text, 5)),
  vectors: questions.vectors.map((text) => engine.vector(text)),
  pieces: questions.pieces.map((text) => engine.pieces(text).map((p) => [p.id, p.word, p.start, p.end])),
};
const answered = performance.now();
found.milliseconds = { unpack: unpacked - begun, load: loaded - unpacked, answer: answered - loaded };
process.stdout.write(JSON.stringify(found));
