// SQL: an editor with completion, results as a grid and as a chart, EXPLAIN, history and downloads.

import { download, get, query } from "./api.js";
import { lines } from "./charts.js";
import { card, count, field, fill, h, note } from "./dom.js";
import { editor } from "./editor.js";
import { rowsGrid } from "./table.js";

const HISTORY = "seqstore-history";
const DRAFT = "seqstore-draft";

// Of the tab: statements may name values that are nobody else's business.
const history = () => JSON.parse(sessionStorage.getItem(HISTORY) ?? "[]");

/** Opens the view with a statement that the user completes and runs. */
export function write(statement) {
  sessionStorage.setItem(DRAFT, statement);
  location.hash = "#/sql";
}

export async function sql(main, _rest, session) {
  const database = h("select", {}, h("option", { value: "" }, "(none)"), session.databases.map((name) => h("option", { value: name }, name)));
  if (session.databases.length) database.value = session.databases[0];
  const rows = h("select", {}, [100, 1000, 10000].map((each) => h("option", { value: each }, count(each))));
  rows.value = "1000";
  const results = h("div", { "aria-live": "polite" });
  const past = h("select", { "aria-label": "History" });
  const running = { abort: null };
  const showPast = () => fill(past, h("option", { value: "" }, "History …"), history().map((each, i) => h("option", { value: i }, each.replaceAll(/\s+/g, " ").slice(0, 80))));
  past.addEventListener("change", () => {
    if (past.value !== "") text.setText(history()[Number(past.value)]);
    past.value = "";
  });

  const attempt = async (title, given, work) => {
    fill(results, note("good", `${title} …`));
    text.mark(null);
    stop.disabled = false;
    running.abort = new AbortController();
    try {
      await work(running.abort.signal);
    } catch (error) {
      fill(results, error.name === "AbortError" ? note("error", "Stopped.") : refused(error, text, given));
    }
    stop.disabled = true;
  };
  const run = (prefix = "") => {
    const given = text.chosen();
    if (!given.text) return;
    sessionStorage.setItem(HISTORY, JSON.stringify([text.text(), ...history().filter((each) => each !== text.text())].slice(0, 50)));
    showPast();
    return attempt("Running", { ...given, prefix }, async (signal) => {
      const found = await query(prefix + given.text, { database: database.value, limit: Number(rows.value), signal });
      fill(results, found.map((each, i) => outcome(each, found.length > 1 ? `Result ${i + 1}` : "Result")));
    });
  };
  const save = (format) => () => {
    const given = text.chosen();
    return attempt(`Reading all rows as ${format}`, given, async () => {
      await download(given.text, database.value, format);
      fill(results, note("good", `result.${format} is saved.`));
    });
  };
  const stop = h("button", { class: "danger", disabled: true, onclick: () => running.abort?.abort() }, "Stop");
  const text = editor(session, { value: sessionStorage.getItem(DRAFT) ?? history()[0] ?? "", database: () => database.value, run, changed: (now) => sessionStorage.setItem(DRAFT, now) });
  showPast();
  fill(main, h("h1", {}, "SQL"), h("section", { class: "card" }, h("div", { class: "row" }, field("Database", database), field("Rows", rows), field("Earlier", past)),
    text.element,
    h("div", { class: "row" }, h("button", { class: "primary", onclick: () => run() }, "Run"), h("button", { onclick: () => run("EXPLAIN ") }, "Explain"), stop,
      h("button", { onclick: save("csv") }, "Download CSV"), h("button", { onclick: save("parquet") }, "Download Parquet"))), results);
}

/** Shows why a statement was refused, and marks the place in the editor where it is known. */
function refused(error, text, { text: sent, offset, prefix = "" }) {
  if (!error.place) return note("error", error.message);
  // The server counts characters, and JavaScript halves of those that need two.
  const before = Array.from(sent).slice(0, Math.max(error.place.offset - prefix.length, 0)).join("").length;
  const place = text.mark(offset + before);
  if (!place) return note("error", error.message);
  return note("error", h("p", {}, `Line ${place.line}, column ${place.column}: ${error.message.replace(/^line \d+, column \d+: /, "")}`), h("button", { onclick: place.show }, "Go to the place"));
}

function outcome(found, title) {
  if (!found.columns) return card(title, note("good", `${count(found.affected)} rows affected, ${count(found.milliseconds)} ms ${found.info}`), (found.warnings ?? []).map((each) => note("warning", each)));
  const place = h("div", {}, rowsGrid(title, found));
  const chart = chartOf(found);
  const button = chart ? h("button", { "aria-pressed": "false", onclick: () => {
    const isOn = button.getAttribute("aria-pressed") === "true";
    button.setAttribute("aria-pressed", String(!isOn));
    fill(place, isOn ? rowsGrid(title, found) : chart());
  } }, "Chart") : null;
  return h("section", { class: "card" }, h("div", { class: "row between" }, h("h2", {}, title), button), place);
}

/** Returns what draws the rows: numbers over the first time or number; null where there is nothing to draw. */
function chartOf(found) {
  const at = found.columns.findIndex((column) => column.type === "time");
  const numbers = found.columns.map((column, i) => [column, i]).filter(([column]) => column.type === "number");
  const x = at >= 0 ? at : numbers.length > 1 ? numbers[0][1] : -1;
  const drawn = numbers.filter(([, i]) => i !== x);
  if (!drawn.length || found.rows.length < 2) return null;
  return () => {
    const isTime = at >= 0;
    const place = (row, i) => (x < 0 ? i : isTime ? Date.parse(`${row[x]?.replace(" ", "T")}Z`.replace(/^(\d{4}-\d\d-\d\d)Z$/, "$1T00:00Z")) / 1000 : Number(row[x]));
    const points = found.rows.map((row, i) => [place(row, i), row]).filter(([value]) => Number.isFinite(value)).sort(([a], [b]) => a - b);
    const series = drawn.slice(0, 8).map(([column, i]) => ({ name: column.name, values: points.map(([, row]) => (row[i] === null ? null : Number(row[i]))) }));
    const name = x < 0 ? "the row" : found.columns[x].name;
    return [lines(`${series.map((each) => each.name).join(", ")} over ${name}; the grid has the same values`, points.map(([value]) => value), series, isTime),
      h("div", { class: "legend" }, series.map((each, i) => h("span", {}, h("i", { class: `line-${i % 5}` }), each.name)), h("span", {}, `over ${name}`))];
  };
}
