// SQL: an editor with completion, results as a grid and as a chart, EXPLAIN, history and downloads.

import { download, get, query } from "./api.js";
import { lines } from "./charts.js";
import { card, count, field, fill, h, note } from "./dom.js";
import { rowsGrid } from "./table.js";

const HISTORY = "seqstore-history";
const DRAFT = "seqstore-draft";
const WORDS = ("ALTER ANALYZE AND AS ASC BETWEEN BY CASE CAST CREATE DATABASE DELETE DESC DESCRIBE DISTINCT DROP ELSE END EXPLAIN FOR FROM GRANT GROUP HAVING HISTORY IN INSERT INTO INTERVAL IS JOIN KEY "
  + "LEFT LIKE LIMIT LOAD MERGE NOT NULL OF ON OPTIMIZE OR ORDER OVER PARTITION PAUSE PROCESSLIST PROPERTIES RESTORE RESUME ROUTINE SELECT SET SHOW TABLE TABLES THEN UNION UNIQUE UPDATE USING VACUUM VALUES VERSION WHEN WHERE WITH "
  + "count( sum( avg( min( max( coalesce( date_trunc( now( key_history( table_changes(").split(" ");

// Of the tab: statements may name values that are nobody else's business.
const history = () => JSON.parse(sessionStorage.getItem(HISTORY) ?? "[]");

/** Opens the view with a statement that the user completes and runs. */
export function write(statement) {
  sessionStorage.setItem(DRAFT, statement);
  location.hash = "#/sql";
}

export async function sql(main, _rest, session) {
  const text = h("textarea", { id: "sql", spellcheck: "false", autocapitalize: "off", "aria-label": "Statement", "aria-autocomplete": "list", "aria-controls": "names", placeholder: "SELECT …   (Ctrl Enter runs, Ctrl Space completes)" });
  text.value = sessionStorage.getItem(DRAFT) ?? history()[0] ?? "";
  sessionStorage.removeItem(DRAFT);
  const database = h("select", {}, h("option", { value: "" }, "(none)"), session.databases.map((name) => h("option", { value: name }, name)));
  if (session.databases.length) database.value = session.databases[0];
  const rows = h("select", {}, [100, 1000, 10000].map((each) => h("option", { value: each }, count(each))));
  rows.value = "1000";
  const results = h("div", { "aria-live": "polite" });
  const past = h("select", { "aria-label": "History" });
  const running = { abort: null };
  const showPast = () => fill(past, h("option", { value: "" }, "History …"), history().map((each, i) => h("option", { value: i }, each.replaceAll(/\s+/g, " ").slice(0, 80))));
  past.addEventListener("change", () => {
    if (past.value !== "") text.value = history()[Number(past.value)];
    past.value = "";
    text.focus();
  });

  const statement = () => text.value.slice(text.selectionStart, text.selectionEnd).trim() || text.value.trim();
  const attempt = async (title, work) => {
    fill(results, note("good", `${title} …`));
    stop.disabled = false;
    running.abort = new AbortController();
    try {
      await work(running.abort.signal);
    } catch (error) {
      fill(results, note("error", error.name === "AbortError" ? "Stopped." : error.message));
    }
    stop.disabled = true;
  };
  const run = (prefix = "") => {
    const given = statement();
    if (!given) return;
    sessionStorage.setItem(HISTORY, JSON.stringify([text.value, ...history().filter((each) => each !== text.value)].slice(0, 50)));
    showPast();
    return attempt("Running", async (signal) => {
      const found = await query(prefix + given, { database: database.value, limit: Number(rows.value), signal });
      fill(results, found.map((each, i) => outcome(each, found.length > 1 ? `Result ${i + 1}` : "Result")));
    });
  };
  const save = (format) => () => attempt(`Reading all rows as ${format}`, async () => {
    await download(statement(), database.value, format);
    fill(results, note("good", `result.${format} is saved.`));
  });
  const stop = h("button", { class: "danger", disabled: true, onclick: () => running.abort?.abort() }, "Stop");
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      run();
    }
  });
  showPast();
  fill(main, h("h1", {}, "SQL"), h("section", { class: "card" }, h("div", { class: "row" }, field("Database", database), field("Rows", rows), field("Earlier", past)),
    editor(text, database),
    h("div", { class: "row" }, h("button", { class: "primary", onclick: () => run() }, "Run"), h("button", { onclick: () => run("EXPLAIN ") }, "Explain"), stop,
      h("button", { onclick: save("csv") }, "Download CSV"), h("button", { onclick: save("parquet") }, "Download Parquet"))), results);
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

/** Puts a list of names below the text where they complete its last word. */
function editor(text, database) {
  const list = h("ul", { class: "popup", id: "names", role: "listbox", "aria-label": "Names", hidden: true });
  const shown = { names: [], at: 0, request: null };
  const word = () => /[\w$.]*$/.exec(text.value.slice(0, text.selectionStart))[0];
  const close = () => {
    list.hidden = true;
    text.removeAttribute("aria-activedescendant");
  };
  const take = (name) => {
    const start = text.selectionStart - word().length;
    text.setRangeText(name, start, text.selectionStart, "end");
    close();
    text.focus();
  };
  const draw = () => {
    fill(list, shown.names.map((each, i) => h("li", { role: "option", id: `name-${i}`, "aria-selected": String(i === shown.at), onmousedown: (event) => { event.preventDefault(); take(each.name); } }, each.name, h("span", { class: "small" }, each.kind))));
    text.setAttribute("aria-activedescendant", `name-${shown.at}`);
    list.children[shown.at]?.scrollIntoView({ block: "nearest" });
  };
  const complete = async (isAsked) => {
    const given = word();
    shown.request?.abort();
    if (!given && !isAsked) return close();
    shown.request = new AbortController();
    const tables = [...text.value.matchAll(/\b(?:from|join|into|update|table)\s+([\w$.`]+)/gi)].map((found) => found[1].replaceAll("`", ""));
    const found = await get("names", { db: database.value, word: given, tables: [...new Set(tables)].join(",") }, shown.request.signal).catch(() => null);
    if (!found || word() !== given) return;
    const words = given.includes(".") ? [] : WORDS.filter((each) => given && each.toLowerCase().startsWith(given.toLowerCase())).map((name) => ({ name, kind: "" }));
    shown.names = [...found.names, ...words].filter((each) => each.name.toLowerCase() !== given.toLowerCase()).slice(0, 50);
    shown.at = 0;
    if (!shown.names.length || document.activeElement !== text) return close();
    list.hidden = false;
    const before = text.value.slice(0, text.selectionStart).split("\n");
    list.style.top = `${Math.min(before.length * 1.3 + 1, 9)}rem`;
    list.style.left = `${Math.min(before.at(-1).length * 0.5 + 0.5, 30)}rem`;
    draw();
  };
  text.addEventListener("input", () => complete(false));
  text.addEventListener("blur", close);
  text.addEventListener("keydown", (event) => {
    if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      complete(true);
    }
    if (list.hidden) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      shown.at = (shown.at + step + shown.names.length) % shown.names.length;
      draw();
    } else if ((event.key === "Enter" && !event.ctrlKey) || event.key === "Tab") {
      event.preventDefault();
      take(shown.names[shown.at].name);
    } else if (event.key === "Escape") close();
  });
  return h("div", { class: "editor row" }, text, list);
}
