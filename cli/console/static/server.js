// Server: connections, memory, queues, slow statements, newest events and settings.

import { get, query } from "./api.js";
import { meter } from "./charts.js";
import { bytes, card, count, field, fill, grid, h, note, seconds } from "./dom.js";

const SLOW_MS = 1000;

export async function server(main, _rest, session) {
  const top = h("div", {});
  const message = h("div", {});
  const kill = (process) => async () => {
    try {
      await query(`KILL QUERY ${process.number}`);
      fill(message, note("good", `Statement ${process.number} is told to end.`));
      await showTop();
    } catch (error) {
      fill(message, note("error", error.message));
    }
  };
  const showTop = async () => {
    const found = await get("server");
    fill(top, resources(found), card(`Connections: ${count(found.connections)}${session.is_administrator ? "" : " (yours)"}`, message,
      grid("Connections", [["Id", (p) => count(p.number), "num"], ["User", (p) => p.user], ["Database", (p) => p.database], ["Seconds", (p) => count(p.seconds), "num"], ["Statement", (p) => p.statement || "(idle)", "wide mono"],
        ["Action", (p) => (p.statement ? h("button", { class: "danger", onclick: kill(p), "aria-label": `Kill ${p.number}` }, "Kill") : "")]], found.processes, { low: true, empty: "None besides this page." })));
  };
  await showTop();
  const parts = session.is_administrator ? [await slow(), await events(), await settings()] : [note("warning", "Memory, queues, events and settings need the ADMIN privilege.")];
  fill(main, h("h1", {}, "Server"), top, parts);
  return showTop;
}

function resources(found) {
  if (!found.is_administrator) return null;
  const used = found.memory_bytes / found.memory_limit_bytes;
  const disk = 1 - found.disk_free_bytes / found.disk_bytes;
  const figures = [["Memory", `${bytes(found.memory_bytes)} of ${bytes(found.memory_limit_bytes)}`, used], ["Disk", `${bytes(found.disk_free_bytes)} free of ${bytes(found.disk_bytes)}`, disk]];
  const groups = found.groups.map((group) => `${group.name}: ${count(group.running)} running${group.most === null ? "" : ` of ${count(group.most)}`}, ${count(group.waiting)} waiting`);
  return h("div", {}, h("div", { class: "grid" }, figures.map(([name, text, share]) => h("section", { class: "card span-4" }, h("h2", {}, name), h("p", {}, text), meter(name, share))),
    h("section", { class: "card span-4" }, h("h2", {}, "Workload groups"), groups.map((text) => h("p", {}, text)), h("p", { class: "soft small" }, `Up for ${seconds(found.uptime_seconds)}, ${found.cpus} processors`))), h("p", {}));
}

const EVENT = [["Time (UTC)", (e) => e.time.replace("T", " ").slice(0, 19), "nowrap"], ["Event", (e) => `${e.protocol} ${e.event}`, "nowrap"], ["User", (e) => e.user], ["Outcome", (e) => h("span", { class: e.outcome === "OK" ? "ok" : "error" }, e.outcome)],
  ["ms", (e) => count(e.ms), "num"], ["Rows", (e) => count(e.rows_read || e.rows_written), "num"], ["Statement", (e) => e.statement, "wide mono"]];

async function slow() {
  const found = await get("audit", { ms: SLOW_MS, limit: 20 });
  return card("Slow statements: newest of a second or more", grid("Slow statements", EVENT, found.events, { low: true, empty: "None in the newest part of the audit log." }));
}

async function events() {
  const place = h("div", {});
  const search = h("input", { type: "search", "aria-label": "Event contains", placeholder: "User, text, outcome …" });
  const own = h("input", { type: "checkbox" });
  const show = async () => {
    const found = await get("audit", { like: search.value, limit: 100, console: own.checked ? "1" : "" });
    fill(place, grid("Events", EVENT, found.events, { empty: found.is_cut ? "None in the newest 8 MiB." : "None: or the audit log is off (setting audit_log)." }));
  };
  let typed;
  search.addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(show, 250);
  });
  own.addEventListener("change", show);
  await show();
  return h("section", { class: "card" }, h("div", { class: "row between" }, h("h2", {}, "Audit log, newest first"), h("div", { class: "row" }, search, field("Reads of the console", own), h("button", { onclick: show }, "Refresh"))), place);
}

async function settings() {
  const { settings: all } = await get("settings");
  const search = h("input", { type: "search", "aria-label": "Setting contains", placeholder: "Name or reason …" });
  const place = h("div", {});
  const show = () => {
    const wanted = search.value.toLowerCase();
    const text = (value) => (Array.isArray(value) ? value.join(", ") || "(none)" : value === "" ? "(empty)" : String(value));
    fill(place, grid("Settings", [["Setting", (s) => `${s.section}.${s.name}`, "mono"], ["Value", (s) => (s.is_changed ? h("strong", {}, `${text(s.value)} (default ${text(s.default)})`) : text(s.value)), "wide"], ["Reason", (s) => s.reason, "wide"]],
      all.filter((s) => `${s.name} ${s.reason}`.toLowerCase().includes(wanted))));
  };
  search.addEventListener("input", show);
  show();
  return h("section", { class: "card" }, h("div", { class: "row between" }, h("h2", {}, "Settings and their reasons"), search), place);
}
