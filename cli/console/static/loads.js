// Loads and jobs: newest loads with their errors and rejected rows, routine loads, and the upload of a file.

import { get, load, preview as firstRows, query, quoted } from "./api.js";
import { badge, bytes, card, count, field, fill, grid, h, moment, note } from "./dom.js";
import { delimiterNames, guess, parseText } from "./preview.js";
import { write } from "./sql.js";

const SAMPLE_BYTES = 65536;

export async function loads(main, _rest, session) {
  const list = h("div", {});
  const jobs = h("div", {});
  const detail = h("div", { "aria-live": "polite" });
  const search = h("input", { type: "search", placeholder: "Label or table …", "aria-label": "Label or table contains" });
  const status = h("select", { "aria-label": "State" }, [["", "All states"], ["PREPARE", "Running"], ["VISIBLE", "Visible"], ["PRECOMMITTED", "Pre-committed"], ["ABORTED", "Aborted"]]
    .map(([value, text]) => h("option", { value }, text)));
  const at = { before: null };

  const showRejected = async (each) => {
    const found = await get(`rejected/${each.txn_id}`);
    fill(detail, h("section", { class: "card" }, h("div", { class: "row between" }, h("h2", {}, `Load ${each.label}`), h("button", { onclick: () => fill(detail) }, "Close")),
      each.reason ? note("error", each.reason) : null,
      grid("Rejected rows", [["Line", (row) => count(row.line), "num"], ["Reason", (row) => row.reason, "wide"], ["Row", (row) => row.row, "wide mono"]], found.rows,
        { empty: "No rejected rows are kept of this load: it rejected none, or newer logs took their place." })));
    detail.scrollIntoView({ block: "nearest" });
  };
  const showLoads = async () => {
    const found = await get("loads", { before: at.before, status: status.value, like: search.value, limit: 50 });
    fill(list, grid("Loads", [["State", (l) => badge(l.status)], ["Label", (l) => h("button", { onclick: () => showRejected(l) }, l.label), "wide"], ["Table", (l) => l.table, "wide"],
      ["Operation", (l) => l.operation, "nowrap"], ["Began (UTC)", (l) => moment(l.begun_ms), "nowrap"], ["Seconds", (l) => (((l.finished_ms || Date.now()) - l.begun_ms) / 1000).toFixed(1), "num"],
      ["Loaded", (l) => count(l.metrics?.rows_loaded), "num"], ["Filtered", (l) => count(l.metrics?.rows_filtered), "num"], ["Late", (l) => count(l.metrics?.rows_late), "num"],
      ["Version", (l) => (l.version ? count(l.version) : ""), "num"], ["Error", (l) => l.reason, "wide error"]], found.loads, { empty: "No load of a table that you may load." }),
    h("div", { class: "row" }, h("button", { disabled: at.before === null, onclick: () => move(null) }, "Newest"), h("button", { disabled: found.before === null, onclick: () => move(found.before) }, "Older")));
  };
  const move = (before) => {
    at.before = before;
    return showLoads();
  };
  let typed;
  search.addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(() => move(null), 200);
  });
  status.addEventListener("change", () => move(null));
  const showJobs = async () => fill(jobs, jobTables(await get("jobs"), showJobs));
  await Promise.all([showLoads(), showJobs()]);
  fill(main, h("h1", {}, "Loads and jobs"), upload(session),
    h("section", { class: "card" }, h("div", { class: "row between" }, h("h2", {}, "Loads"), h("div", { class: "row" }, search, status)), list), detail, jobs);
  return async () => {
    const isIdle = !main.contains(document.activeElement) || document.activeElement === main;
    if (isIdle && at.before === null) await showLoads();
    if (isIdle) await showJobs();
  };
}

function jobTables(found, again) {
  const place = h("div", {});
  const act = (job, verb) => async () => {
    try {
      await query(`${verb} ROUTINE LOAD FOR ${quoted(job.database)}.${quoted(job.name)}`);
      await again();
    } catch (error) {
      fill(place, note("error", error.message));
    }
  };
  const alter = (job) => () => write(`ALTER ROUTINE LOAD FOR ${quoted(job.database)}.${quoted(job.name)}\nPROPERTIES ("max_error_number" = "0", "max_batch_interval" = "10");`);
  const buttons = (job) => (job.has_ended ? "" : job.state === "PAUSED" ? [h("button", { onclick: act(job, "RESUME"), "aria-label": `Resume ${job.name}` }, "Resume"), h("button", { onclick: alter(job), "aria-label": `Alter ${job.name}` }, "Alter …")] : [h("button", { onclick: act(job, "PAUSE"), "aria-label": `Pause ${job.name}` }, "Pause")]);
  return [card("Routine loads", place, grid("Routine loads", [["Job", (j) => `${j.database}.${j.name}`, "wide"], ["Table", (j) => j.table || "many"], ["Source", (j) => j.source], ["State", (j) => badge(j.state)],
    ["Lag", (j) => count(j.lag), "num"], ["Loaded", (j) => count(j.loaded), "num"], ["Errors", (j) => count(j.errors), "num"], ["Reason", (j) => j.reason || j.other, "wide"], ["Action", buttons]],
  found.routine, { empty: "None that you may load. CREATE ROUTINE LOAD in SQL makes one." })),
  card("Broker loads", grid("Broker loads", [["Label", (j) => `${j.database}.${j.label}`, "wide"], ["State", (j) => badge(j.state)], ["Files", (j) => `${count(j.files_done)} of ${count(j.files)}`, "num"],
    ["Read", (j) => `${bytes(j.bytes_done)} of ${bytes(j.bytes)}`, "num"], ["Loaded", (j) => (j.loaded < 0 ? "" : count(j.loaded)), "num"], ["Filtered", (j) => (j.filtered < 0 ? "" : count(j.filtered)), "num"],
    ["Began (UTC)", (j) => moment(j.created_ms), "nowrap"], ["Error", (j) => j.error, "wide error"]], found.broker, { low: true, empty: "None that you may load. LOAD LABEL in SQL makes one." }))];
}

function upload(session) {
  const target = h("input", { list: "tables", placeholder: "db.table", required: true, "aria-label": "Table" });
  const known = h("datalist", { id: "tables" });
  const file = h("input", { type: "file", "aria-label": "File" });
  const place = h("div", { "aria-live": "polite" });
  const chosen = { file: null, columns: null };
  target.addEventListener("input", async () => {
    const found = await get("tables", { like: target.value, limit: 20 }).catch(() => ({ tables: [] }));
    fill(known, found.tables.filter((each) => each.privileges.includes("LOAD")).map((each) => h("option", { value: `${each.database}.${each.name}` })));
  });
  const look = async () => {
    const wanted = target.value;
    if (!chosen.file || !wanted.includes(".") || (chosen.shown === chosen.file && chosen.target === wanted)) return;
    chosen.shown = chosen.file; // the input tells of its change when it is left, by a click on a button below, too
    chosen.target = wanted;
    const [database, ...rest] = target.value.split(".");
    try {
      const about = await get(`table/${encodeURIComponent(database)}/${encodeURIComponent(rest.join("."))}`);
      const text = await chosen.file.slice(0, SAMPLE_BYTES).text();
      fill(place, mapping(session, chosen.file, { database, name: rest.join(".") }, about, guess(chosen.file.name, text, about.columns), text));
    } catch (error) {
      fill(place, note("error", error.message));
    }
  };
  const take = (given) => {
    chosen.file = given;
    if (given && !target.value) fill(place, note("warning", `${given.name}: name the table that it is for.`));
    return look();
  };
  target.addEventListener("change", look);
  file.addEventListener("change", () => take(file.files[0]));
  const drop = h("div", { class: "drop" }, h("p", {}, "Drop a file of CSV, JSON, Parquet or ORC here, or choose one."), h("div", { class: "row" }, field("Table", target), known, field("File", file)));
  for (const name of ["dragover", "dragleave", "drop"]) {
    drop.addEventListener(name, (event) => {
      event.preventDefault();
      drop.classList.toggle("over", name === "dragover");
      if (name === "drop") take(event.dataTransfer.files[0]);
    });
  }
  return card("Upload a file", drop, place);
}

function mapping(session, file, { database, name }, about, guessed, text) {
  const result = h("div", { "aria-live": "polite" });
  const preview = h("div", {});
  const curl = h("pre", { class: "block", tabindex: "0" });
  const format = h("select", {}, ["csv", "json", "parquet", "orc"].map((value) => h("option", { value }, value)));
  const separator = h("select", {}, Object.entries(delimiterNames).map(([value, title]) => h("option", { value }, title)));
  const hasNames = h("input", { type: "checkbox" });
  const label = h("input", { placeholder: "made by the server" });
  const ratio = h("input", { type: "number", min: "0", max: "1", step: "0.01", value: "0" });
  format.value = guessed.format;
  separator.value = guessed.separator;
  hasNames.checked = guessed.hasNames;
  let targets = [];
  let fileColumns = null; // of Parquet and ORC, which have names

  const headers = () => {
    const found = { format: format.value === "csv" && hasNames.checked ? "csv_with_names" : format.value };
    if (format.value === "csv") found.column_separator = separator.value === "\t" ? "\\t" : separator.value;
    if (format.value === "csv") found.enclose = '"';
    if (format.value === "json") found[guessed.isList ? "strip_outer_array" : "read_json_by_line"] = "true";
    if (fileColumns) found.columns = byNames(fileColumns, targets);
    else if (targets.length) found.columns = targets.map((select, i) => (select.value ? quoted(select.value) : `skipped_${i + 1}`)).join(",");
    if (!found.columns) delete found.columns;
    if (label.value) found.label = label.value;
    if (Number(ratio.value) > 0) found.max_filter_ratio = ratio.value;
    return found;
  };
  const showCurl = () => {
    const given = Object.entries(headers()).map(([key, value]) => `  -H '${key}: ${value.replaceAll("'", "'\\''")}' \\`).join("\n");
    curl.textContent = `curl --location-trusted -u '${session.user}' \\\n${given}\n  -T '${file.name.replaceAll("'", "'\\''")}' \\\n  '${location.origin}/api/${encodeURIComponent(database)}/${encodeURIComponent(name)}/_stream_load'`;
  };
  const choice = (i, value) => {
    const select = h("select", { "aria-label": `Column ${i + 1} of the file` }, h("option", { value: "" }, "(left out)"), about.columns.map((column) => h("option", { value: column.name }, column.name)));
    select.value = value;
    select.addEventListener("change", showCurl);
    return select;
  };
  const draw = async () => {
    targets = [];
    fileColumns = null;
    const isText = ["csv"].includes(format.value);
    if (isText) {
      const rows = parseText(text, separator.value).slice(0, 12);
      const found = guess(file.name, text, about.columns, separator.value, hasNames.checked);
      targets = found.mapped.map((value, i) => choice(i, value));
      const body = hasNames.checked ? rows.slice(1) : rows;
      fill(preview, sample(targets.map((select) => [select]), body));
    } else if (format.value === "json") fill(preview, h("pre", { class: "block", tabindex: "0" }, text.slice(0, 2000)));
    else {
      const wanted = format.value;
      fill(preview, note("good", "Reading the first rows …"));
      const found = await firstRows(database, name, file, wanted).catch((error) => ({ error }));
      if (format.value !== wanted) return;
      if (found.error) fill(preview, note("warning", `The columns of the file are matched by their names. ${found.error.message}`));
      else {
        fileColumns = found.columns;
        targets = fileColumns.map((column, i) => choice(i, column.target));
        const without = fileColumns.filter((column) => !column.has_values).length;
        fill(preview, h("p", { class: "small soft" }, `${count(found.rows_total)} rows, the first ${count(found.rows.length)} of them:`),
          found.rows.length && without ? note("warning", `The first values of ${count(without)} columns are too far into the file to be shown.`) : null,
          sample(targets.map((select, i) => [select, h("div", {}, fileColumns[i].name), h("div", { class: "small" }, fileColumns[i].type)]),
            found.rows.map((row) => row.map((value, i) => (fileColumns[i].has_values ? value ?? h("span", { class: "null" }, "NULL") : "…")))));
      }
    }
    showCurl();
  };
  for (const input of [format, separator, hasNames]) input.addEventListener("change", draw);
  for (const input of [label, ratio]) input.addEventListener("input", showCurl);
  const button = h("button", { class: "primary", onclick: async () => {
    button.disabled = true;
    const progress = h("progress", { max: "1", value: "0", "aria-label": "Sent" });
    fill(result, progress);
    try {
      await showReply(result, await load(database, name, file, headers(), (share) => (progress.value = share)));
    } catch (error) {
      fill(result, note("error", error.message));
    }
    button.disabled = false;
  } }, `Load ${bytes(file.size)} into ${database}.${name}`);
  draw();
  return [h("div", { class: "row" }, field("Format", format), field("Separator", separator), field("First line has names", hasNames), field("Label", label), field("Rejected share allowed", ratio)), preview,
    h("h2", {}, "The same by curl"), curl, h("div", { class: "row" }, button), result];
}

/** Returns the header that names the columns of a file with names, "" where all are loaded by their own names. */
function byNames(columns, targets) {
  const pairs = columns.map((column, i) => [column.name, targets[i].value]);
  if (pairs.every(([own, target]) => own.toLowerCase() === target.toLowerCase())) return "";
  const used = pairs.filter(([, target]) => target);
  const renamed = used.filter(([own, target]) => own.toLowerCase() !== target.toLowerCase());
  return [...used.map(([own]) => quoted(own)), ...renamed.map(([own, target]) => `${quoted(target)}=${quoted(own)}`)].join(",");
}

/** A table of the first rows of a file; each heading begins with the column that it is for. */
function sample(heads, rows) {
  return h("div", { class: "scroll low", tabindex: "0", role: "region", "aria-label": "First rows" }, h("table", {}, h("caption", { class: "hidden" }, "First rows and their columns"),
    h("thead", {}, h("tr", {}, heads.map((parts) => h("th", { scope: "col" }, parts)))), h("tbody", {}, rows.map((row) => h("tr", {}, heads.map((_, i) => h("td", {}, row[i] ?? "")))))));
}

async function showReply(place, reply) {
  const isGood = reply.Status === "Success" || reply.Status === "Publish Timeout";
  const text = isGood ? `${count(reply.NumberLoadedRows)} rows loaded, ${count(reply.NumberFilteredRows)} rejected, in ${count(reply.LoadTimeMs)} ms; label ${reply.Label}` : `${reply.Status}: ${reply.Message}`;
  const found = reply.NumberFilteredRows && reply.TxnId > 0 ? await get(`rejected/${reply.TxnId}`).catch(() => null) : null;
  fill(place, note(isGood ? "good" : "error", text), found ? grid("Rejected rows of the upload", [["Line", (row) => count(row.line), "num"], ["Reason", (row) => row.reason, "wide"], ["Row", (row) => row.row, "wide mono"]], found.rows, { low: true }) : null);
}
