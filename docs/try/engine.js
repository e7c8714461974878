// bertkit's engine in WebAssembly: texts go in, numbers come out. All of it is computed in C (engine/native/browser).

const TEXT = new TextEncoder();
const UTF8 = new TextDecoder();

// Whether this browser has vectors of 128 bits: the smallest program that uses one.
const VECTOR_PROGRAM = new Uint8Array([
  0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15, 253, 98, 11,
]);

export function whatIsMissing() {
  if (typeof WebAssembly !== "object") return "WebAssembly";
  if (!WebAssembly.validate(VECTOR_PROGRAM)) return "vectors in WebAssembly (SIMD)";
  if (typeof DecompressionStream !== "function") return "DecompressionStream";
  return null;
}

export class Engine {
  #calls;

  // program: the bytes of bertkit.wasm; model: those of the model's file, unpacked.
  static async load(program, model) {
    const engine = new Engine();
    const { instance } = await WebAssembly.instantiate(program, {});
    engine.#calls = instance.exports;
    engine.#calls._initialize();
    const place = engine.#calls.browser_file(model.length);
    if (!place) throw new Error("The browser has no memory for the model.");
    new Uint8Array(engine.#calls.memory.buffer, place, model.length).set(model);
    engine.#check(engine.#calls.browser_load(model.length));
    return engine;
  }

  // The pieces of a text: {token, id, word, start, end}; places count characters (code points).
  pieces(text) {
    const count = this.#call("browser_pieces", text);
    const numbers = this.#result(Int32Array, 4 * count);
    return Array.from({ length: count }, (_, i) => {
      const [id, word, start, end] = numbers.slice(4 * i, 4 * i + 4);
      return { token: this.#entry(id), id, word, start, end };
    });
  }

  // For each [MASK] of a text its likeliest words: {token, id, probability}.
  fill(text, most) {
    const masks = this.#call("browser_fill", text, most);
    const ids = this.#result(Int32Array, 2 * masks * most);
    const probabilities = this.#result(Float32Array, 2 * masks * most);
    const candidate = (i) => ({ token: this.#entry(ids[2 * i]), id: ids[2 * i], probability: probabilities[2 * i + 1] });
    return Array.from({ length: masks }, (_, mask) =>
      Array.from({ length: most }, (_, i) => candidate(mask * most + i)));
  }

  // The cosines of the vectors of lines: rows of numbers.
  similarities(lines) {
    const count = this.#call("browser_similarities", lines.join("\n"));
    const cosines = this.#result(Float32Array, count * count);
    return lines.map((_, row) => Array.from(cosines.slice(row * count, (row + 1) * count)));
  }

  // The vector of a text, one line: numbers.
  vector(line) {
    if (line.includes("\n")) throw new Error("One line is expected.");
    this.#call("browser_similarities", line);
    return Array.from(this.#result(Float32Array, 1 + this.#calls.browser_width()).slice(1));
  }

  #call(name, text, ...rest) {
    const bytes = TEXT.encode(text);
    const place = this.#calls.browser_text(bytes.length);
    if (!place) throw new Error("The browser has no memory for this text.");
    new Uint8Array(this.#calls.memory.buffer, place, bytes.length).set(bytes);
    return this.#check(this.#calls[name](bytes.length, ...rest));
  }

  #check(found) {
    if (found >= 0) return found;
    const bytes = new Uint8Array(this.#calls.memory.buffer, this.#calls.browser_error());
    throw new Error(UTF8.decode(bytes.subarray(0, bytes.indexOf(0))));
  }

  #result(Type, count) {
    return new Type(this.#calls.memory.buffer, this.#calls.browser_result(), count).slice();
  }

  #entry(id) {
    const place = this.#calls.browser_entry(id);
    return UTF8.decode(new Uint8Array(this.#calls.memory.buffer, place, this.#calls.browser_entry_size(id)));
  }
}
