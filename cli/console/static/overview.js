// Overview: what is wrong, loads a minute, routine loads, and pages of tables.

import { get } from "./api.js";
import { stackedBars } from "./charts.js";
import { ago, badge, bytes, card, count, fill, grid, h, note } from "./dom.js";

const PAGE = 50;

export async function overview(main, _rest, session) {
  const top = h("div", {});
  const place = h("div", {});
  const search = h("input", { type: "search", placeholder: "Name contains …", "aria-label": "Table name contains" });
  const databases = h("select", { "aria-label": "Database" }, h("option", { value: "" }, "All databases"),
    session.databases.map((name) => h("option", { value: name }, name)));
  const chosen = { offset: 0 };

  const showTables = async () => {
    const found = await get("tables", { db: databases.value, like: search.value, offset: chosen.offset, limit: PAGE });
    const end = Math.min(chosen.offset + PAGE, found.total);
    const move = (by) => async () => {
      chosen.offset = Math.max(chosen.offset + by, 0);
      await showTables();
    };
    fill(place, grid("Tables", [
      ["Table", (t) => (t.privileges.includes("SELECT") ? h("a", { href: `#/table/${encodeURIComponent(t.database)}/${encodeURIComponent(t.name)}` }, `${t.database}.${t.name}`) : `${t.database}.${t.name}`), "wide"],
      ["Rows", (t) => count(t.rows), "num"], ["Size", (t) => bytes(t.bytes), "num"],
      ["Versions", (t) => (t.version ? `${count(t.oldest)} – ${count(t.version)}` : ""), "num"],
      ["Segments", (t) => count(t.segments), "num"], ["Loads/min", (t) => count(t.loads_a_minute), "num"],
      ["Changed", (t) => ago(t.changed_ms), "nowrap"],
    ], found.tables, { empty: search.value || databases.value ? "No table of this name." : "You see no table: GRANT SELECT_PRIV ON db.* TO you, or CREATE TABLE in SQL." }),
    h("div", { class: "row between small soft" }, `${found.total ? chosen.offset + 1 : 0} – ${end} of ${count(found.total)}`,
      h("span", {}, h("button", { onclick: move(-PAGE), disabled: chosen.offset === 0 }, "Previous"), " ",
        h("button", { onclick: move(PAGE), disabled: end >= found.total }, "Next"))));
  };
  const changed = () => {
    chosen.offset = 0;
    return showTables();
  };
  let typed;
  search.addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(changed, 200);
  });
  databases.addEventListener("change", changed);

  const showTop = async () => fill(top, summary(await get("overview")));
  await Promise.all([showTop(), showTables()]);
  fill(main, h("h1", {}, "Overview"), top, h("section", { class: "card" },
    h("div", { class: "row between" }, h("h2", {}, "Tables"), h("div", { class: "row" }, search, databases)), place));
  return async () => {
    await showTop();
    if (!main.contains(document.activeElement) || document.activeElement === main) await showTables();
  };
}

function summary(found) {
  const { activity } = found;
  const last = activity.finished[activity.finished.length - 2] ?? 0;
  const figures = [["Databases", count(found.databases)], ["Tables", count(found.tables)],
    ["Loads in the last full minute", count(last)], ["Running loads", count(activity.running)]];
  const clock = (i) => new Date(activity.minutes[i] * 1000).toISOString().slice(11, 16);
  const wrong = found.findings.map((each) => note(each.severity, h("strong", {}, each.what), ". ", each.advice, " ",
    each.href ? h("a", { href: each.href }, "Open") : null));
  return [
    h("div", { class: "grid" }, figures.map(([name, value]) => h("section", { class: "card span-3" },
      h("div", { class: "figure" }, value), h("div", { class: "soft small" }, name)))),
    h("p", {}),
    card("What is wrong, and what to do", wrong.length ? wrong : note("good", "Nothing that this page knows of.")),
    h("div", { class: "grid" },
      h("section", { class: "card span-6" }, h("h2", {}, "Loads by minute (UTC)"),
        stackedBars("Finished and failed loads of the last 30 minutes",
          [{ colour: "--c-loaded", values: activity.finished }, { colour: "--c-filtered", values: activity.failed }],
          { label: clock, tip: (i) => `${clock(i)}\n${activity.finished[i]} finished, ${activity.failed[i]} failed` }),
        h("div", { class: "legend" }, h("span", {}, h("i", { class: "i-loaded" }), "finished"), h("span", {}, h("i", { class: "i-filtered" }), "failed"))),
      h("section", { class: "card span-6" }, h("h2", {}, "Routine loads"),
        grid("Routine loads", [["Job", (j) => `${j.database}.${j.name}`, "wide"], ["State", (j) => badge(j.state)], ["Lag", (j) => count(j.lag), "num"],
          ["Loaded", (j) => count(j.loaded), "num"], ["Errors", (j) => count(j.errors), "num"]], found.jobs, { low: true, empty: "None that you may load." }))),
    h("p", {}),
  ];
}
