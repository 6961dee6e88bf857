// Elements, and values as texts. Nothing here parses HTML, so no value of a table can become an element.

/** Makes an element; properties that begin with "on" are listeners, `class`, `aria-…` and others attributes. */
export function h(tag, properties, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "value") made.value = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

/** Makes an element of SVG. */
export function svg(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes ?? {})) made.setAttribute(name, value);
  made.append(...children.flat(3).filter((child) => child !== null && child !== undefined));
  return made;
}

/** Replaces the children of an element. */
export function fill(parent, ...children) {
  parent.replaceChildren(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return parent;
}

const whole = new Intl.NumberFormat("en");

export function count(value) {
  return value === undefined || value === null ? "" : whole.format(value);
}

export function bytes(value) {
  if (value === undefined || value === null) return "";
  let number = value;
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (number < 1024 || unit === "TiB") return `${number < 10 && unit !== "B" ? number.toFixed(1) : Math.round(number)} ${unit}`;
    number /= 1024;
  }
}

export function seconds(value) {
  if (value < 60) return `${Math.round(value)} s`;
  if (value < 3600) return `${Math.round(value / 60)} min`;
  if (value < 172800) return `${Math.round(value / 3600)} h`;
  return `${Math.round(value / 86400)} d`;
}

/** A moment in UTC, as every other output of the store shows it. */
export function moment(ms) {
  return ms ? new Date(ms).toISOString().replace("T", " ").slice(0, 19) : "";
}

export function ago(ms) {
  return ms ? `${seconds(Math.max(Date.now() - ms, 0) / 1000)} ago` : "";
}

/** A cell of a result: NULL is no text, and a time loses digits that are all zero. */
export function cell(value, kind) {
  if (value === null) return h("span", { class: "null" }, "NULL");
  return kind === "time" ? value.replace(/\.?0+$/, (end) => (end[0] === "." ? "" : /\.\d*$/.test(value) ? "" : end)) : value;
}

/**
 * Makes a table. A column is [heading, row => content, class]; rows are clickable where `choose` is given, by
 * mouse and by Enter.
 */
export function grid(caption, columns, rows, { choose, chosen, low, empty } = {}) {
  if (!rows.length) return h("p", { class: "soft" }, empty ?? "None.");
  const body = rows.map((row) => {
    const line = h("tr", { class: chosen?.(row) ? "chosen" : null }, columns.map(([, show, kind]) => h("td", { class: kind }, show(row))));
    if (choose) {
      line.tabIndex = 0;
      line.addEventListener("click", () => choose(row));
      line.addEventListener("keydown", (event) => {
        if (event.key === "Enter" && event.target === line) choose(row);
      });
    }
    return line;
  });
  const heads = columns.map(([name, , kind]) => h("th", { scope: "col", class: kind === "num" ? "num" : kind === "less" ? "less" : null }, name));
  return h("div", { class: `scroll${low ? " low" : ""}`, tabindex: "0", role: "region", "aria-label": caption },
    h("table", {}, h("caption", { class: "hidden" }, caption), h("thead", {}, h("tr", {}, heads)), h("tbody", {}, body)));
}

export function field(label, input) {
  return h("label", { class: "field" }, label, input);
}

export function note(kind, ...children) {
  return h("div", { class: `note ${kind}`, role: kind === "error" ? "alert" : "status" }, children);
}

export function badge(text) {
  const kinds = { VISIBLE: "ok", FINISHED: "ok", RUNNING: "ok", live: "ok", ABORTED: "error", CANCELLED: "error", PAUSED: "warn" };
  return h("span", { class: `badge ${kinds[text] ?? "soft"}` }, text);
}

export function card(title, ...children) {
  return h("section", { class: "card" }, title ? h("h2", {}, title) : null, children);
}
