// What can be asked of a model: fields of the form, examples, the request, the same call elsewhere, and how an answer
// looks. `fields` and `examples` are functions of the model, as GET /v1/info describes it.
import { linesOf } from "./dom.js";
import { attention, map, similarities } from "./pictures.js";
import { called, command, imported, piped, python, quoted } from "./samples.js";
import * as views from "./views.js";

const text = (label = "Text", name = "input") => ({ name, label, kind: "text" });
const second = { name: "pair", label: "Second text", kind: "line", optional: true };
const lines = (label, name = "lines") => ({ name, label, kind: "lines", hint: "One on each line." });
const LONG = {
  name: "overflow",
  label: "Long texts",
  kind: "choice",
  choices: [["", "as the model was trained, else refuse"], ["error", "refuse"], ["truncate", "cut the end"]],
};
const LONG_OR_WINDOWS = { ...LONG, choices: [...LONG.choices, ["window", "read in windows"]] };
const count = (name, label, value, least = 1, most = 100) => ({ name, label, kind: "number", value, least, most });

const given = (values) => (values.pair ? [values.input, values.pair] : values.input);
const overflow = (values) => (values.overflow ? { overflow: values.overflow } : {});
const cut = (values) => (values.overflow === "truncate" ? { truncation: true } : {});
const truncate = (values) => ({ truncate: values.overflow === "truncate" });
const NO_COMMAND = "# There is no command for this: use Python or the server.";
const NEEDS_TORCH = "# Needs torch.\n";

/** What a model gives that can be explained. */
const kindOf = ({ tasks }) => ["tag", "answer"].find((task) => tasks.includes(task)) ?? "classify";
const PREDICTED = { classify: "prediction", tag: "tag of a word", answer: "answer" };
const PIPELINES = { classify: "text-classification", tag: "token-classification", answer: "question-answering" };
const labelField = (model, usual) => ({
  name: "label", label: "Label", kind: "choice", choices: [["", usual], ...(model.labels ?? []).map((name) => [name, name])],
});
const EXPLAINED = {
  classify: (model) => [text(), second, labelField(model, "the most probable one")],
  tag: (model) => [
    text(),
    { name: "word", label: "Word", kind: "line", optional: true, hint: "As it is written, or its number from 1; empty: the one whose tag is surest." },
    labelField(model, "the most probable one"),
  ],
  answer: () => [
    { name: "input", label: "Question", kind: "line" },
    text("Text with the answer", "pair"),
    { name: "label", label: "Answer", kind: "line", optional: true, hint: "A piece of the text; empty: the model's own." },
  ],
};

const SENTENCES = [
  "The river burst its banks after the storm.",
  "Heavy rain flooded the valley.",
  "The bank raised its interest rates.",
  "She took out a loan for her house.",
  "The cat slept on the sofa.",
  "A kitten was napping on the couch.",
];

/** The task's name on the server -> what the page does with it, in the order of the tabs. */
export const TASKS = {
  "fill-mask": {
    title: "Fill mask",
    about: (model) => `Guesses the word in the place of ${model.mask}. The text may have several.`,
    fields: () => [text(), count("top_k", "Guesses", 5), LONG],
    examples: ({ mask }) => [
      { input: `She sat on the ${mask} of the river.` },
      { input: `He put his money in the ${mask}.` },
      { input: `The ${mask} of France is ${mask}.` },
    ],
    body: (values) => ({ input: values.input, top_k: values.top_k, ...overflow(values) }),
    python: (source, values) => piped("fill-mask", source, [values.input], { top_k: values.top_k, ...cut(values) }),
    command: (source, values) => command("fill-mask", source, [values.input], { "top-k": values.top_k, ...truncate(values) }),
    show: (results) => {
      const masks = Array.isArray(results[0][0]) ? results[0] : [results[0]];
      return masks.map((found, at) =>
        views.bars(
          masks.length > 1 ? `Guesses for mask ${at + 1}` : "Guesses",
          "Word",
          found.map((one) => [one.token_str, one.score, one.sequence]),
          Math.max(...found.map((one) => one.score)),
        ),
      );
    },
  },
  "next-sentence": {
    title: "Next sentence",
    about: () => "Does the second text follow the first?",
    fields: () => [{ ...text("First text", "first"), kind: "line" }, { ...text("Second text", "follows"), kind: "line" }, LONG],
    examples: () => [
      { first: "He opened the door.", follows: "It was dark inside." },
      { first: "He opened the door.", follows: "Penguins cannot fly." },
    ],
    body: (values) => ({ input: [values.first, values.follows], ...overflow(values) }),
    python: (source, values) => piped("next-sentence", source, [values.first, values.follows], cut(values)),
    command: (source, values) => command("next-sentence", source, [values.first, values.follows], truncate(values)),
    show: ([found]) => [
      views.bars(`The model says: ${found.is_next >= 0.5 ? "it follows" : "it does not follow"}`, "", [
        ["follows", found.is_next],
        ["does not follow", 1 - found.is_next],
      ]),
    ],
  },
  classify: {
    title: "Classify",
    about: (model) => `Gives each label a score: ${(model.labels ?? []).slice(0, 12).join(", ")}.`,
    fields: (model) => [text(), second, LONG_OR_WINDOWS, ...thresholds(model)],
    examples: () => [
      { input: "A film to remember.", pair: "" },
      { input: "Two hours of my life that I will not get back.", pair: "" },
      { input: "A man is playing a guitar.", pair: "Somebody makes music." },
    ],
    body: (values, model) => ({
      input: values.pair ? [given(values)] : values.input, ...overflow(values), ...movedThresholds(values, model),
    }),
    python: (source, values, model) => {
      const reading = values.overflow === "window" ? { truncation: "windows" } : cut(values);
      const inputs = values.pair ? [values.input, values.pair] : [values.input];
      const all = piped("text-classification", source, inputs, { top_k: "all", ...reading });
      const least = setThresholds(values, model);
      if (!Object.keys(least).length) return all;
      const item = values.pair ? { text: values.input, text_pair: values.pair } : values.input;
      const keywords = Object.entries(reading).map(([name, value]) => `, ${name}=${python(value)}`).join("");
      const decision = model.decides.several
        ? [`(found,) = pipe([${python(item)}], top_k=None${keywords})`,
           'print([one["label"] for one in found if one["score"] >= least.get(one["label"], 0)])']
        : [`(found,) = pipe([${python(item)}]${keywords})`,
           'print(found["label"] if found["score"] >= least.get(found["label"], 0) else None)'];
      return [all, "", `least = ${python(least)}`, ...decision].join("\n");
    },
    command: (source, values, model) => {
      const asked = command("classify", source, [values.input, values.pair].filter(Boolean), {
        pairs: Boolean(values.pair), all: true, ...truncate(values),
      });
      const least = Object.entries(movedThresholds(values, model).thresholds ?? {});
      const flags = least.map(([label, share]) => `--thresholds ${quoted(`${label}=${share}`)}`);
      return flags.length ? `${asked}\n# With these thresholds, for all who ask a server:\nbertkit serve ${[quoted(source), ...flags].join(" ")}` : asked;
    },
    show: ([found], values, model, { chosen }) => views.decided(found, setThresholds(values, model), chosen?.[0]),
  },
  "zero-shot": {
    title: "Zero-shot",
    about: () => "Chooses among labels that the model was not trained on.",
    fields: () => [
      text(),
      { name: "labels", label: "Labels", kind: "line", hint: "With commas between them." },
      { name: "multi_label", label: "Several labels may be right", kind: "flag" },
    ],
    examples: () => [
      { input: "They won 3:1 in the last minute.", labels: "sports, politics, cooking" },
      { input: "Stir the sauce until it thickens.", labels: "sports, politics, cooking" },
    ],
    body: (values) => ({ input: values.input, labels: split(values.labels), multi_label: values.multi_label }),
    python: (source, values) =>
      piped("zero-shot-classification", source, [values.input], {
        candidate_labels: split(values.labels), multi_label: values.multi_label || null,
      }),
    command: (source, values) =>
      command("classify", source, [values.input], {
        labels: split(values.labels).join(", "), "multi-label": values.multi_label,
      }),
    show: ([found]) => [views.bars("Labels", "Label", found.map((one) => [one.label, one.score]))],
  },
  tag: {
    title: "Entities",
    about: () => "Marks names and other entities. A text may be of any length.",
    fields: () => [text()],
    examples: () => [
      { input: "Ada Lovelace was born in London and wrote to Charles Babbage." },
      { input: "The ship left Rotterdam for New York with Captain Jansen." },
    ],
    body: (values) => ({ input: values.input }),
    python: (source, values) =>
      piped("token-classification", source, [values.input], { aggregation_strategy: "simple" }),
    command: (source, values) => command("tag", source, [values.input], { strategy: "simple" }),
    show: ([found], values) => views.entities(values.input, found),
  },
  redact: {
    title: "Redact",
    about: () => "Replaces entities by placeholders, the same entity by the same one.",
    fields: (model) => [
      text(),
      { name: "labels", label: "Types to replace", kind: "line", optional: true, hint: `All, if empty. The model knows: ${typesOf(model).join(", ")}.` },
    ],
    examples: () => [{ input: "Ada Lovelace wrote to Charles Babbage. Ada Lovelace lived in London.", labels: "" }],
    body: (values) => ({ input: values.input, ...(values.labels ? { labels: split(values.labels) } : {}) }),
    python: (source, values) =>
      [
        "from bertkit import pipeline",
        "from bertkit.inference.redaction import redact",
        "",
        `text = ${python(values.input)}`,
        `pipe = pipeline("token-classification", model=${python(source)})`,
        `print(redact(text, pipe(text, aggregation_strategy="simple")${values.labels ? `, ${python(split(values.labels))}` : ""}))`,
      ].join("\n"),
    command: (source, values) =>
      `# Finds them, and replaces nothing:\n${command("tag", source, [values.input], { strategy: "simple" })}`,
    show: ([found], values) => views.redaction(values.input, found),
  },
  answer: {
    title: "Answer",
    about: () => "Finds the answer to a question in a text of any length.",
    fields: () => [
      { name: "question", label: "Question", kind: "line" },
      text("Text with the answer", "context"),
      count("top_k", "Answers", 3, 1, 20),
    ],
    examples: () => [
      { question: "Where did Ada live?", context: "Ada Lovelace wrote the first program. She lived in London." },
      { question: "What did she write?", context: "Ada Lovelace wrote the first program. She lived in London." },
    ],
    body: (values) => ({ input: { question: values.question, context: values.context }, top_k: values.top_k }),
    python: (source, values) =>
      piped("question-answering", source, [], { question: values.question, context: values.context, top_k: values.top_k }),
    command: (source, values) =>
      command("answer", source, [values.question], { context: values.context, "top-k": values.top_k }),
    show: ([found], values) => views.answers(values.context, Array.isArray(found) ? found : [found]),
  },
  choose: {
    title: "Choose",
    about: () => "Which of several choices continues a text, or answers a question?",
    fields: () => [text("Text or question", "context"), lines("Choices", "choices"), LONG],
    examples: () => [
      { context: "She put the kettle on.", choices: "The water boiled.\nThe car started.\nThe sun set." },
      { context: "The power went out.", choices: "The lamp went dark.\nThe lamp lit up." },
    ],
    body: (values) => ({ input: { context: values.context, choices: linesOf(values.choices) }, ...overflow(values) }),
    python: (source, values) => piped("multiple-choice", source, [values.context, linesOf(values.choices)], cut(values)),
    command: () => NO_COMMAND,
    show: ([found], values) => [
      views.bars(`Choices: the model takes “${found.choice}”`, "Choice", linesOf(values.choices).map((choice, at) => [choice, found.scores[at]])),
    ],
  },
  rerank: {
    title: "Rerank",
    about: () => "Orders documents by how relevant they are to a query.",
    fields: () => [{ name: "query", label: "Query", kind: "line" }, lines("Documents")],
    examples: () => [
      { query: "How do I reset my password?", lines: "Click on “Forgot password”.\nWe open at nine.\nPasswords have eight letters." },
    ],
    body: (values) => ({ query: values.query, documents: linesOf(values.lines) }),
    python: (source, values) => piped("text-ranking", source, [values.query, linesOf(values.lines)], { truncation: true }),
    command: (source, values) => command("rerank", source, [values.query, ...linesOf(values.lines)], { truncate: true }),
    show: (results, values) => {
      const documents = linesOf(values.lines);
      const found = results.map((one) => [documents[one.index], one.relevance_score]);
      return [views.bars("Documents, the most relevant first", "Document", found)];
    },
  },
  similarity: {
    title: "Similarity",
    route: "v1/embed",
    about: () => "Compares lines with each other by the vectors that the model makes of them.",
    fields: () => [lines("Lines"), LONG],
    examples: () => [{ lines: SENTENCES.join("\n") }],
    body: (values) => ({ input: linesOf(values.lines), normalize: true, ...overflow(values) }),
    python: (source, values) =>
      [
        "import numpy as np",
        "from bertkit import pipeline",
        "",
        `pipe = pipeline("feature-extraction", model=${python(source)})`,
        `vectors = np.array(pipe(${python(linesOf(values.lines))}, pooling="model", normalize=True))`,
        "print(vectors @ vectors.T)",
      ].join("\n"),
    command: (source, values) =>
      `# Each line with the first:\n${command("similarity", source, linesOf(values.lines), truncate(values))}`,
    show: (results, values) => [similarities(linesOf(values.lines), results)],
  },
  map: {
    title: "Map",
    about: () => "Places lines in a plane, similar ones near each other.",
    fields: () => [
      lines("Lines"),
      { name: "method", label: "Method", kind: "choice", choices: [["pca", "PCA"], ["tsne", "t-SNE (needs scikit-learn on the server)"]] },
      LONG,
    ],
    examples: () => [{ lines: SENTENCES.join("\n"), method: "pca" }],
    body: (values) => ({ input: linesOf(values.lines), method: values.method, ...overflow(values) }),
    python: (source, values) =>
      imported("bertkit.visualize", "embeddings", [linesOf(values.lines)], { model: source, method: values.method }),
    command: (source, values) =>
      `printf '%s\\n' ${linesOf(values.lines).map(quoted).join(" ")} |\n  ${command("visualize embeddings -", source, [], { method: values.method, out: "map.html" })}`,
    show: (found, values) => map(linesOf(values.lines), found),
  },
  explain: {
    title: "Explain",
    about: (model) => `Which words moved the ${PREDICTED[kindOf(model)]}? Each is hidden in turn, and ${kindOf(model) === "tag" ? "the word is tagged" : kindOf(model) === "answer" ? "the answer is scored" : "the label is scored"} again.`,
    fields: (model) => [
      ...EXPLAINED[kindOf(model)](model),
      { name: "by", label: "Method", kind: "choice", choices: [["occlusion", "Occlusion"], ["gradients", "Integrated gradients (need torch on the server)"]] },
      LONG,
    ],
    examples: (model) => TASKS[kindOf(model)].examples(model).map(({ input, pair, question, context }) =>
      question ? { input: question, pair: context } : { input, ...(pair === undefined ? {} : { pair }) }),
    body: (values) => ({
      input: given(values),
      ...(values.label ? { label: values.label } : {}),
      ...(values.word ? { word: values.word } : {}),
      ...(values.by === "gradients" ? { by: values.by } : {}),
      ...overflow(values),
    }),
    python: (source, values, model) => values.by === "gradients"
      ? `${NEEDS_TORCH}${imported("bertkit.visualize", "explain", [values.input, values.pair].filter(Boolean), {
        model: source, label: values.label || null, word: values.word || null, ...cut(values),
      })}`
      : [
        "from bertkit import pipeline",
        "from bertkit.insight.occlusion import occlusion",
        "",
        `pipe = pipeline(${python(PIPELINES[kindOf(model)])}, model=${python(source)})`,
        called("occlusion", ["pipe"], [values.input, values.pair].filter(Boolean), { label: values.label, word: values.word, ...cut(values) }),
      ].join("\n"),
    command: (source, values) =>
      `${NEEDS_TORCH}${command("visualize explain", source, [values.input, values.pair].filter(Boolean), {
        label: values.label || null, word: values.word || null, ...truncate(values),
      })}`,
    show: (found, values) => views.explanation([values.input, values.pair], found),
  },
  attention: {
    title: "Attention",
    about: () => "How much each piece attends to each other one in a layer.",
    fields: () => [
      text(),
      second,
      { name: "layer", label: "Layer", kind: "number", value: "", least: 1, optional: true, hint: "From 1; empty: the top one." },
      LONG,
    ],
    examples: () => [
      { input: "The animal did not cross the street because it was tired.", pair: "", layer: "" },
      { input: "He went to the bank.", pair: "It was closed.", layer: "1" },
    ],
    body: (values) => ({ input: given(values), ...(values.layer ? { layer: values.layer } : {}), ...overflow(values) }),
    python: (source, values) =>
      `${NEEDS_TORCH}${imported("bertkit.visualize", "attention", [values.input, values.pair].filter(Boolean), {
        model: source, layer: values.layer || null, ...cut(values),
      })}`,
    command: (source, values) =>
      `${NEEDS_TORCH}${command("visualize attention", source, [values.input, values.pair].filter(Boolean), {
        layer: values.layer || null, ...truncate(values), out: "attention.html",
      })}`,
    show: (found) => attention(found),
  },
  sparse: {
    title: "Sparse",
    about: () => "Weights of words, for a search engine.",
    fields: () => [text(), count("top_k", "Words", 20, 1, 500)],
    examples: () => [{ input: "The bank of the river." }],
    body: (values) => ({ input: values.input, top_k: values.top_k }),
    python: (source, values) => piped("sparse-encoding", source, [values.input], { top_k: values.top_k }),
    command: (source, values) => command("embed", source, [values.input], { sparse: true }),
    show: ([found]) => {
      const weights = Object.entries(found).sort((a, b) => b[1] - a[1]);
      return [views.bars("Words", "Word", weights, Math.max(...weights.map(([, weight]) => weight), 1e-9))];
    },
  },
  generate: {
    title: "Generate",
    about: () => "Writes a text.",
    fields: () => [text(), count("max_new_tokens", "Most new tokens", 60, 1, 1000)],
    examples: () => [{ input: "translate English to German: The river is wide." }],
    body: (values) => ({ input: values.input, max_new_tokens: values.max_new_tokens }),
    python: (source, values) =>
      piped("text2text-generation", source, [values.input], { max_new_tokens: values.max_new_tokens }),
    command: (source, values) => command("generate", source, [values.input]),
    show: (results) => results.map((found) => views.marked(Object.values(found)[0] ?? "", [])),
  },
  analyze: {
    title: "Analyze",
    about: () => "All heads of the model in one pass of its encoder.",
    fields: () => [text()],
    examples: () => [{ input: "Ann Lee liked the film in Oslo." }],
    body: (values) => ({ input: values.input }),
    python: (source, values) => imported("bertkit", "analyze", [[values.input]], { model: source }),
    command: (source, values) => command("analyze", source, [values.input]),
    show: ([found], values) => Object.entries(found).flatMap(([head, said]) => views.head(head, values.input, said)),
  },
  embed: {
    title: "Vector",
    about: () => "The vector of a text.",
    fields: () => [text(), { name: "normalize", label: "Scale to length 1", kind: "flag" }, LONG],
    examples: () => [{ input: "The bank of the river." }],
    body: (values) => ({ input: values.input, ...(values.normalize ? { normalize: true } : {}), ...overflow(values) }),
    python: (source, values) =>
      piped("feature-extraction", source, [values.input], { pooling: "model", normalize: values.normalize || null, ...cut(values) }),
    command: (source, values) =>
      command("embed", source, [values.input], { normalize: values.normalize, ...truncate(values) }),
    show: ([found]) => views.vector(found),
  },
  tokenize: {
    title: "Pieces",
    about: () => "How the tokenizer cuts a text, and where each piece stands in it.",
    fields: () => [text()],
    examples: () => [{ input: "Unaffable tokenizers cut embeddings into pieces." }, { input: "Straße, naïve, 東京 🙂" }],
    body: (values) => ({ input: values.input }),
    python: (source, values) =>
      [
        "from bertkit import AutoTokenizer",
        "",
        `tokenizer = AutoTokenizer.from_pretrained(${python(source)})`,
        `found = tokenizer(${python(values.input)}, return_offsets_mapping=True)`,
        'print(list(zip(found.tokens(), found["input_ids"], found["offset_mapping"])))',
      ].join("\n"),
    command: () => NO_COMMAND,
    show: ([found]) => views.pieces(found),
  },
};

/** Types of entities, of tags such as B-PER. */
function typesOf(model) {
  const tags = (model.labels ?? []).filter((tag) => tag !== "O");
  return [...new Set(tags.map((tag) => tag.replace(/^[BIES]-/, "")))];
}

/** A slider for each label of a classifier, which stands where the model or whoever runs the server has put it. */
function thresholds({ decides }) {
  if (!decides) return [];
  const hint = decides.several
    ? "A label is given from this probability on."
    : "If the label that the model decides for is less probable than this, it abstains.";
  return [{ name: "thresholds", label: "Thresholds", kind: "shares", hint, shares: decides.labels.map((label) => [label, usual(decides, label)]) }];
}

const usual = ({ several, tuned, least }, label) => least[label] ?? (several ? tuned[label] ?? 0.5 : 0);

/** Whether a slider, which stands at whole hundredths, was moved. */
const isMoved = (decides, label, share) => Math.abs(share - usual(decides, label)) >= 0.006;

/** All thresholds above 0. */
function setThresholds(values, { decides }) {
  const exact = ([label, share]) => [label, isMoved(decides, label, share) ? share : usual(decides, label)];
  return Object.fromEntries(Object.entries(values.thresholds ?? {}).map(exact).filter(([, share]) => share > 0));
}

/** The field of a request for those that were moved. */
function movedThresholds(values, { decides }) {
  const moved = Object.entries(values.thresholds ?? {}).filter(([label, share]) => isMoved(decides, label, share));
  return moved.length ? { thresholds: Object.fromEntries(moved) } : {};
}

function split(words) {
  return words.split(",").map((word) => word.trim()).filter(Boolean);
}
