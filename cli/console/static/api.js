// Requests to the server that the page came from; there are no others.

// Of a file that is shown before it is loaded: sent whole up to here, else its end first.
const WHOLE_BYTES = 1 << 20;
const TAIL_BYTES = 1 << 16;
const ROUNDS = 12;

let lostLogin = () => {};

/** Sets what happens when the login has ended. */
export function onLostLogin(call) {
  lostLogin = call;
}

export class Refusal extends Error {
  constructor(message, status, place = null) {
    super(message);
    this.status = status;
    this.place = place;
  }
}

async function answer(response) {
  const found = await response.json().catch(() => ({}));
  if (response.ok) return found;
  if (response.status === 401) lostLogin();
  throw new Refusal(found.error ?? found.Message ?? `the server answered ${response.status}`, response.status, found.place);
}

/** GETs a path below /api/console/, with parameters; empty ones are left out. */
export async function get(path, parameters = {}, signal = undefined) {
  const given = Object.entries(parameters).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const query = new URLSearchParams(given).toString();
  return answer(await fetch(`/api/console/${path}${query ? `?${query}` : ""}`, { signal }));
}

export async function post(path, body, signal = undefined) {
  const headers = { "Content-Type": "application/json" };
  return answer(await fetch(`/api/console/${path}`, { method: "POST", headers, body: JSON.stringify(body), signal }));
}

/**
 * Asks for the first rows of a Parquet or ORC file: sends its end, then the ranges that the server names.
 * Returns {columns, rows, rows_total}.
 */
export async function preview(database, table, file, format) {
  const path = `/api/console/preview/${encodeURIComponent(database)}/${encodeURIComponent(table)}`;
  let parts = file.size <= WHOLE_BYTES ? [[0, file.size]] : [[file.size - TAIL_BYTES, file.size]];
  for (let round = 1; ; round++) {
    const given = new URLSearchParams({ format, size: file.size, parts: parts.map((part) => part.join("-")).join(","), last: round === ROUNDS ? "1" : "" });
    const found = await answer(await fetch(`${path}?${given}`, { method: "POST", body: new Blob(parts.map(([from, to]) => file.slice(from, to))) }));
    if (!found.needs) return found;
    parts = found.needs;
  }
}

/** Runs statements; returns the outcome of each. */
export async function query(sql, { database = "", limit = 1000, signal } = {}) {
  return (await post("query", { sql, database, limit }, signal)).results;
}

/** Runs a query and saves all of its rows as a file. */
export async function download(sql, database, format) {
  const headers = { "Content-Type": "application/json" };
  const response = await fetch("/api/console/download", { method: "POST", headers, body: JSON.stringify({ sql, database, format }) });
  if (!response.ok) await answer(response);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = `result.${format}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** PUTs a file as a stream load; reports the part that was sent. */
export function load(database, table, file, headers, progress) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("PUT", `/api/console/load/${encodeURIComponent(database)}/${encodeURIComponent(table)}?redirected=1`);
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    request.upload.onprogress = (event) => progress(event.loaded / Math.max(event.total, 1));
    request.onload = () => {
      if (request.status === 401) lostLogin();
      try {
        resolve(JSON.parse(request.responseText));
      } catch {
        reject(new Refusal(`the server answered ${request.status}`, request.status));
      }
    };
    request.onerror = () => reject(new Refusal("the connection ended before the answer; the load's label tells its state", 0));
    request.send(file);
  });
}

/** A name in backquotes. */
export function quoted(name) {
  return `\`${name.replaceAll("`", "``")}\``;
}

/** A text in quotes. */
export function literal(text) {
  return `'${text.replaceAll("\\", "\\\\").replaceAll("'", "''")}'`;
}
