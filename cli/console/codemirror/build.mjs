// Writes codemirror.js, one minified module without imports, and its licence to a folder:
// `npm ci --ignore-scripts && node build.mjs FOLDER`, with the packages of package-lock.json.

import { readFile, writeFile } from "node:fs/promises";
import { build } from "esbuild";

const folder = process.argv[2];
const made = await build({
  entryPoints: ["entry.js"],
  bundle: true,
  format: "esm",
  legalComments: "none",
  metafile: true,
  minify: true,
  target: "es2022",
  write: false,
});

const used = new Set(Object.keys(made.metafile.inputs).map((path) => /^node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1]).filter(Boolean));
const packages = [];
const licences = new Map();
for (const name of [...used].sort()) {
  const { version } = JSON.parse(await readFile(`node_modules/${name}/package.json`, "utf8"));
  const text = (await readFile(`node_modules/${name}/LICENSE`, "utf8")).trim();
  packages.push(`${name} ${version}`);
  licences.set(text, [...(licences.get(text) ?? []), `${name} ${version}`]);
}
const banner = `/* CodeMirror, MIT Licence: codemirror-license.txt; made by cli/console/codemirror/build.mjs of\n${packages.map((each) => ` * ${each}`).join("\n")}\n */\n`;
await writeFile(`${folder}/codemirror.js`, banner + made.outputFiles[0].text);
await writeFile(`${folder}/codemirror-license.txt`, [...licences].map(([text, names]) => `${names.join(", ")}\n\n${text}\n`).join("\n----\n\n"));
