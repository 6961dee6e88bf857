// Guesses of an upload: its format, separator, whether it begins with names, and which column goes where.

export const delimiterNames = { ",": "comma", "\t": "tab", ";": "semicolon", "|": "bar" };

/** Splits the first lines of CSV; a value in double quotes may contain separators and ends of lines. */
export function parseText(text, separator, most = 50) {
  const rows = [[""]];
  let isQuoted = false;
  for (let i = 0; i < text.length; i++) {
    const row = rows.at(-1);
    const letter = text[i];
    if (letter === '"') {
      if (isQuoted && text[i + 1] === '"') row[row.length - 1] += text[++i];
      else isQuoted = !isQuoted;
    } else if (letter === separator && !isQuoted) row.push("");
    else if (letter === "\n" && !isQuoted) {
      row[row.length - 1] = row.at(-1).replace(/\r$/, "");
      if (rows.length === most) return rows;
      rows.push([""]);
    } else row[row.length - 1] += letter;
  }
  return rows.filter((row) => row.length > 1 || row[0] !== "");
}

/** Returns {format, separator, hasNames, isList, mapped}; what is given is not guessed. */
export function guess(name, text, columns, separator, hasNames) {
  const format = formatOf(name, text);
  const found = separator ?? separatorOf(text);
  const rows = format === "csv" ? parseText(text, found, 20) : [];
  const first = rows[0] ?? [];
  const known = new Map(columns.map((column) => [plain(column.name), column.name]));
  const named = first.filter((value) => known.has(plain(value))).length;
  const isHead = hasNames ?? (named * 2 >= first.length && named > 0);
  const mapped = first.map((value, i) => (isHead && named ? known.get(plain(value)) ?? "" : columns[i]?.name ?? ""));
  return { format, separator: found, hasNames: isHead, isList: text.trimStart().startsWith("["), mapped };
}

function formatOf(name, text) {
  if (/\.(parquet|orc)$/i.test(name)) return name.toLowerCase().endsWith("orc") ? "orc" : "parquet";
  if (text.startsWith("PAR1")) return "parquet";
  return /^\s*[[{]/.test(text) ? "json" : "csv";
}

/** Chooses the separator by which the most lines have the same number of columns, more than one. */
function separatorOf(text) {
  const score = (separator) => {
    const sizes = parseText(text, separator, 20).map((row) => row.length);
    return sizes[0] > 1 ? sizes.filter((size) => size === sizes[0]).length * 100 + sizes[0] : 0;
  };
  return Object.keys(delimiterNames).reduce((best, each) => (score(each) > score(best) ? each : best), ",");
}

function plain(name) {
  return name.toLowerCase().replaceAll(/[^\p{L}\p{N}]/gu, "");
}
