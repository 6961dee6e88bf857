// One table: its columns, the time line of its versions, segments, the history of a key, and lateness.

import { get, literal, query, quoted } from "./api.js";
import { lateness as latenessChart, segments as segmentPicture, stackedBars } from "./charts.js";
import { badge, bytes, card, cell, count, field, fill, grid, h, moment, note, seconds } from "./dom.js";

const TABS = [["versions", "Versions"], ["columns", "Columns"], ["segments", "Segments"], ["key", "Key history"], ["lateness", "Lateness"]];
const PARTS = [["loaded", "counted", (v) => Math.max(v.rows_loaded - v.rows_late - v.rows_superseded - v.rows_too_late - v.rows_deleted, 0)],
  ["late", "late (lost to a stored row)", (v) => v.rows_late + v.rows_too_late], ["superseded", "superseded (lost within the load)", (v) => v.rows_superseded],
  ["filtered", "filtered (rejected)", (v) => v.rows_filtered], ["deleted", "deleted", (v) => v.rows_deleted]];
const PAGE = 100;
const NUMBERS = /^(TINYINT|SMALLINT|INT|BIGINT|LARGEINT|BOOLEAN)/;

export async function table(main, [database, name, tab = "versions"]) {
  const path = `table/${encodeURIComponent(database)}/${encodeURIComponent(name)}`;
  const about = await get(path);
  const place = h("div", {});
  const tabs = TABS.map(([each, title]) => h("a", { href: `#/${path}/${each}`, "aria-current": each === tab ? "page" : null }, title));
  fill(main, h("h1", {}, `${database}.${name}`),
    h("p", { class: "soft" }, `${about.kind} (${about.key.join(", ") || "none"}) · ${count(about.rows)} rows · version ${count(about.version)}, readable from ${count(about.oldest)} · ${count(about.segments)} segments`),
    h("nav", { class: "tabs", "aria-label": "Parts of the table" }, tabs), place);
  const given = { about, path, sqlName: `${quoted(database)}.${quoted(name)}`, textName: literal(`${database}.${name}`) };
  const views = { versions, columns, segments, key, lateness };
  return (views[tab] ?? versions)(place, given);
}

async function columns(place, { about, sqlName }) {
  const created = await query(`SHOW CREATE TABLE ${sqlName}`).then((found) => found[0].rows[0][1], () => "");
  fill(place, card("Columns", grid("Columns", [["Name", (c) => c.name, "mono"], ["Type", (c) => c.type, "mono"], ["Key", (c) => (c.key ? "key" : "")],
    ["NULL", (c) => (c.nullable ? "may be" : "never")], ["Comment", (c) => c.comment, "wide"]], about.columns)),
  created ? card("CREATE TABLE", h("pre", { class: "block", tabindex: "0" }, created)) : null);
}

async function versions(place, given) {
  const { about, path } = given;
  const chart = h("div", {});
  const list = h("div", {});
  const detail = h("div", { "aria-live": "polite" });
  const chosen = { before: null, one: null, other: null, pages: [] };
  let newest = about.version;

  const choose = async (version) => {
    if (chosen.one !== null && chosen.other === null && version !== chosen.one) chosen.other = version;
    else [chosen.one, chosen.other] = [version, null];
    draw(chosen.found);
    await showDetail(detail, given, chosen, reset);
  };
  const reset = () => {
    chosen.one = chosen.other = null;
    draw(chosen.found);
    fill(detail);
  };
  const draw = (found) => {
    chosen.found = found;
    const shown = found.versions.toReversed();
    fill(chart, stackedBars(`Rows of versions ${shown[0]?.version ?? ""} to ${shown.at(-1)?.version ?? ""}; the table below has the same figures`,
      PARTS.map(([colour, , of]) => ({ colour: `--c-${colour}`, values: shown.map(of) })),
      { label: (i) => (shown[i] ? `v${shown[i].version}` : ""), tip: (i) => tip(shown[i]), choose: (i) => choose(shown[i].version) }));
    fill(list, grid("Versions", [
      ["Version", (v) => [count(v.version), v.version < found.oldest ? " (gone)" : ""], "num"], ["Time (UTC)", (v) => moment(v.time_ms), "nowrap"],
      ["Operation", (v) => v.operation, "nowrap"], ["Loaded", (v) => count(v.rows_loaded), "num"], ["Late", (v) => count(v.rows_late + v.rows_too_late), "num"],
      ["Superseded", (v) => count(v.rows_superseded), "num"], ["Filtered", (v) => count(v.rows_filtered), "num"], ["Replaced", (v) => count(v.rows_replaced), "num"],
      ["Deleted", (v) => count(v.rows_deleted), "num"], ["Label", (v) => v.label, "wide"]],
    found.versions, { choose: (v) => choose(v.version), chosen: (v) => v.version === chosen.one || v.version === chosen.other }));
  };
  const load = async () => draw(await get(`${path}/versions`, { before: chosen.before, limit: PAGE }));
  const older = async () => {
    chosen.pages.push(chosen.before);
    chosen.before = chosen.found.versions.at(-1).version;
    await load();
  };
  const newer = async () => {
    if (chosen.pages.length) chosen.before = chosen.pages.pop();
    await load();
  };
  const to = h("input", { type: "number", min: "1", value: String(about.version), "aria-label": "Go to version" });
  const go = async (event) => {
    event.preventDefault();
    chosen.pages = [null];
    chosen.before = Number(to.value) + 1;
    await load();
  };
  await load();
  fill(place, h("section", { class: "card" }, h("div", { class: "row between" }, h("h2", {}, "Time line of versions"),
    h("form", { class: "row", onsubmit: go }, to, h("button", {}, "Go"), h("button", { type: "button", onclick: newer }, "Newer"), h("button", { type: "button", onclick: older }, "Older"))),
  chart, h("div", { class: "legend" }, PARTS.map(([colour, title]) => h("span", {}, h("i", { class: `i-${colour}` }), title))),
  h("p", { class: "small soft" }, "Choose a version to read the table at it, and a second one to compare the two."), list), detail);
  return async () => {
    if (chosen.before !== null || chosen.one !== null) return;
    const found = await get(`${path}/versions`, { limit: PAGE });
    if (found.version !== newest) draw(found);
    newest = found.version;
  };
}

function tip(v) {
  const parts = PARTS.map(([, title, of]) => [of(v), title]).filter(([rows]) => rows).map(([rows, title]) => `${count(rows)} ${title}`);
  return `Version ${v.version} · ${v.operation}\n${moment(v.time_ms)} UTC${v.label ? `\n${v.label}` : ""}\n${parts.join("\n") || "no rows"}`;
}

async function showDetail(place, { sqlName, textName }, { one, other }, reset) {
  const [first, last] = other === null ? [one, one] : [Math.min(one, other), Math.max(one, other)];
  const text = other === null ? `SELECT * FROM ${sqlName} FOR VERSION AS OF ${one} LIMIT 200`
    : `SELECT * FROM table_changes(${textName}, ${first + 1}, ${last}) LIMIT 500`;
  const title = other === null ? `Rows at version ${one}` : `Changes from version ${first} to ${last}`;
  const body = h("div", {}, h("p", { class: "soft" }, "Reading …"));
  fill(place, h("section", { class: "card" }, h("div", { class: "row between" }, h("h2", {}, title), h("button", { onclick: reset }, "Close")),
    h("pre", { class: "block", tabindex: "0" }, text), body));
  try {
    const [found] = await query(text);
    fill(body, rowsGrid(title, found));
  } catch (error) {
    fill(body, note("error", error.message));
  }
  place.scrollIntoView({ block: "nearest" });
}

/** A grid of a statement's rows. */
export function rowsGrid(title, found, low) {
  const heads = found.columns.map((column, i) => [column.name, (row) => cell(row[i], column.kind ?? column.type), column.type === "number" ? "num" : "wide"]);
  return [grid(title, heads, found.rows, { low, empty: "No rows." }),
    h("p", { class: "small soft" }, `${count(found.rows.length)} rows${found.is_cut ? ", the first ones" : ""} · ${count(found.milliseconds)} ms`)];
}

async function segments(place, { path }) {
  const found = await get(`${path}/segments`);
  const dead = found.segments.reduce((sum, each) => sum + each.dead, 0);
  const rows = found.segments.reduce((sum, each) => sum + each.rows, 0);
  fill(place, card(`${count(found.total)} segments of version ${count(found.version)}`,
    note(found.plan.startsWith("Next") ? "warning" : "good", found.plan),
    h("p", { class: "soft small" }, `${count(rows)} stored rows, ${count(dead)} of them dead (${rows ? Math.round((100 * dead) / rows) : 0} %). Newest first; a bar reaches from the smallest to the largest value of ${found.key || "the first key column"}.`),
    found.segments.length ? segmentPicture(found) : null,
    h("div", { class: "legend" }, h("span", {}, h("i", { class: "i-keep" }), "stays"), h("span", {}, h("i", { class: "i-next" }), "next compaction"), h("span", {}, h("i", { class: "i-filtered" }), "hatched: dead share"))),
  card("Segments", grid("Segments", [["Version", (s) => count(s.created), "num"], ["Rows", (s) => count(s.rows), "num"], ["Dead", (s) => count(s.dead), "num"],
    ["Size", (s) => bytes(s.bytes), "num"], ["Age", (s) => seconds(s.age_seconds), "num"], ["From", (s) => s.low ?? "?", "wide"], ["To", (s) => s.high ?? "?", "wide"],
    ["Home", (s) => s.home], ["Next", (s) => (s.next ? badge(s.next) : ""), "nowrap"], ["Why", (s) => s.why, "wide"]], found.segments.toReversed())));
}

async function key(place, { about, textName }) {
  const result = h("div", { "aria-live": "polite" });
  const inputs = about.key.map((name) => h("input", { name, required: true, type: "search" }));
  if (!inputs.length) return void fill(place, note("warning", "A duplicate-key table has no key: no row replaces another."));
  const ask = async (event) => {
    event.preventDefault();
    const values = inputs.map((input) => {
      const { type } = about.columns.find((column) => column.name === input.name);
      return NUMBERS.test(type) && /^-?\d+$/.test(input.value.trim()) ? input.value.trim() : literal(input.value);
    });
    try {
      const [found] = await query(`SELECT * FROM key_history(${textName}, ${values.join(", ")})`);
      fill(result, found.rows.length ? writes(found) : note("warning", "No load that can be read wrote this key: look for it among the rejected rows of Loads and jobs, and compare the spelling."));
    } catch (error) {
      fill(result, note("error", error.message));
    }
  };
  fill(place, h("section", { class: "card" }, h("h2", {}, "Why is a row there, or not?"),
    h("p", { class: "soft" }, "Every write of a key, the load that brought it, its sequence, and why it won or lost."),
    h("form", { class: "row", onsubmit: ask }, inputs.map((input) => field(input.name, input)), h("button", { class: "primary" }, "Show its history")), result));
  inputs[0].focus();
}

function writes(found) {
  const at = Object.fromEntries(found.columns.map((column, i) => [column.name, i]));
  const get_ = (name) => (row) => row[at[name]] ?? "";
  const last = found.rows.findLast((row) => ["live", "tombstone"].includes(row[at.outcome]));
  const verdict = !last ? note("warning", "No write of this key counts today.")
    : last[at.outcome] === "live" ? note("good", `The row of version ${last[at.version]} counts (label ${last[at.label] || "none"}).`)
      : note("warning", `The key is deleted since version ${last[at.version]} (label ${last[at.label] || "none"}).`);
  return [verdict, grid("History of the key", [["Version", get_("version"), "num"], ["Time (UTC)", (row) => cell(row[at.time], "time"), "nowrap"], ["Outcome", (row) => badge(row[at.outcome])],
    ["Why", get_("explanation"), "wide"], ["Sequence", get_("sequence"), "nowrap"], ["Operation", get_("operation"), "nowrap"], ["Label", get_("label"), "wide"], ["Row", get_("row"), "wide mono"]], found.rows)];
}

async function lateness(place, { path }) {
  const found = await get(`${path}/lateness`);
  if (found.reason) return void fill(place, card("Lateness", note("warning", `The lateness of rows is not known: ${found.reason}.`),
    h("p", { class: "soft" }, "It is the time of the load minus the sequence of the row, so the sequence must be a column with dates or times.")));
  fill(place, card(`How late rows arrive: time of the load minus ${found.column} (as UTC)`, latenessChart(found),
    h("div", { class: "legend" }, h("span", {}, h("i", { class: "i-loaded" }), "counts"), h("span", {}, h("i", { class: "i-filtered" }), "lost, or was replaced since")),
    h("p", { class: "small soft" }, `${count(found.rows)} rows of the newest loads whose segments no compaction has merged${found.is_cut ? "; older ones are left out" : ""}.`),
    grid("Rows by lateness", [["Lateness", (row) => row.name], ["Counts", (row) => count(row.counted), "num"], ["Lost or replaced", (row) => count(row.lost), "num"]],
      found.bars.map((name, i) => ({ name, counted: found.counted[i], lost: found.lost[i] })), { low: true })));
}

