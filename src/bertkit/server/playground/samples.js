// The same call in a shell, in Python and on the command line of bertkit.

/** A word for a POSIX shell. */
export const quoted = (text) => (/^[\w./:=@%+-]+$/.test(text) ? text : `'${String(text).replaceAll("'", "'\\''")}'`);

/** A value as Python writes it. */
export function python(value) {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object") {
    return `{${Object.entries(value).map(([key, each]) => `${python(key)}: ${python(each)}`).join(", ")}}`;
  }
  return JSON.stringify(value);
}

/** Arguments of a call: first those without a name, then the keywords that are set. */
function callOf(values, keywords = {}) {
  const named = Object.entries(keywords).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return [...values.map(python), ...named.map(([key, value]) => `${key}=${python(value)}`)].join(", ");
}

/** A line that prints a call: names of variables, then values, then keywords that are set. */
export const called = (name, variables, values, keywords = {}) =>
  `print(${name}(${[...variables, callOf(values, keywords)].filter(Boolean).join(", ")}))`;

export function curl(route, body, hasKey) {
  const place = new URL(route, document.baseURI).href;
  const key = hasKey ? ` \\\n  -H "authorization: Bearer $KEY"` : "";
  return `curl ${place} \\\n  -H 'content-type: application/json'${key} \\\n  -d ${quoted(JSON.stringify(body))}`;
}

/** A call of `bertkit.pipeline`. */
export function piped(task, source, values, keywords) {
  return [
    "from bertkit import pipeline",
    "",
    `pipe = pipeline(${python(task)}, model=${python(source)})`,
    called("pipe", [], values, keywords),
  ].join("\n");
}

/** A call of a function that is imported. */
export function imported(module, name, values, keywords) {
  return [`from ${module} import ${name}`, "", called(name, [], values, keywords)].join("\n");
}

/** A line of the shell: `bertkit NAME --model SOURCE ...`. Options that are null or false are left out. */
export function command(name, source, words, options = {}) {
  const given = Object.entries(options).filter(([, value]) => value !== undefined && value !== null && value !== false);
  const said = given.map(([key, value]) => (value === true ? `--${key}` : `--${key} ${quoted(String(value))}`));
  const end = words.some((word) => word.startsWith("-")) ? ["--"] : []; // of the options
  return ["bertkit", name, "--model", quoted(source), ...said, ...end, ...words.map(quoted)].join(" ");
}
