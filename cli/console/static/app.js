// The console: login, navigation, theme and keys. Each view is a function that fills <main> and returns what
// is to be called again every few seconds, or nothing.

import { get, onLostLogin, post } from "./api.js";
import { field, fill, h, note } from "./dom.js";
import { loads } from "./loads.js";
import { overview } from "./overview.js";
import { server } from "./server.js";
import { sql } from "./sql.js";
import { table } from "./table.js";

const REFRESH_MS = 5000;
const VIEWS = [["", "Overview", overview, "o"], ["loads", "Loads and jobs", loads, "l"], ["sql", "SQL", sql, "s"], ["server", "Server", server, "v"]];
const KEYS = [["g o", "Overview"], ["g l", "Loads and jobs"], ["g s", "SQL"], ["g v", "Server"], ["/", "Search in this view"],
  ["Ctrl Enter", "Run the selection or all of the statement"], ["Ctrl Space", "Complete a name"], ["Ctrl F", "Search in the statement"], ["Tab", "Take the chosen name, or leave the editor"], ["d", "Dark or light"], ["?", "These keys"]];

const app = document.querySelector("#app");
const state = { session: null, timer: null, shown: 0 };

function theme(wanted) {
  if (wanted) localStorage.setItem("seqstore-theme", wanted);
  const stored = localStorage.getItem("seqstore-theme");
  const dark = stored ? stored === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  return dark;
}

function changeTheme() {
  theme(theme() ? "light" : "dark");
  if (state.session) show(); // charts have the colours they were drawn with
}

function showLogin(message) {
  clearInterval(state.timer);
  state.session = null;
  const user = h("input", { name: "user", autocomplete: "username", required: true, value: "root" });
  const password = h("input", { name: "password", type: "password", autocomplete: "current-password" });
  const place = h("div", {});
  const button = h("button", { class: "primary", type: "submit" }, "Log in");
  const form = h("form", { class: "card login", onsubmit: async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      await post("login", { user: user.value, password: password.value });
      localStorage.setItem("seqstore-login", "1");
      await start();
    } catch (error) {
      fill(place, note("error", error.message));
      button.disabled = false;
      password.focus();
    }
  } }, h("h1", {}, "seqstore"), place, field("User", user), field("Password", password), button);
  if (message) fill(place, note("warning", message));
  fill(app, h("main", { id: "main" }, form));
  document.title = "Log in – seqstore";
  user.focus();
  user.select();
}

async function logOut() {
  await post("logout", {}).catch(() => {});
  localStorage.removeItem("seqstore-login");
  showLogin("");
}

function shell(session) {
  const links = VIEWS.map(([path, name]) => h("a", { href: `#/${path}`, "data-path": path }, name));
  const dialog = h("dialog", { "aria-labelledby": "keys" }, h("h2", { id: "keys" }, "Keys"),
    h("dl", {}, KEYS.map(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])),
    h("form", { method: "dialog" }, h("button", {}, "Close")));
  const bar = h("header", { class: "top" },
    h("a", { class: "brand", href: "#/" }, h("img", { src: "/console/icon.svg", alt: "" }), "seqstore"),
    h("nav", { class: "main", "aria-label": "Views" }, links),
    h("div", { class: "who" }, h("span", { class: "name small" }, `${session.user} · ${session.version}`),
      h("button", { onclick: changeTheme, title: "Dark or light (d)", "aria-label": "Dark or light" }, "◐"),
      h("button", { onclick: () => dialog.showModal(), title: "Keys (?)", "aria-label": "Keys" }, "?"),
      h("button", { onclick: logOut }, "Log out")));
  fill(app, h("a", { class: "skip", href: "#main", onclick: (event) => { event.preventDefault(); document.querySelector("main").focus(); } }, "To the content"),
    bar, h("main", { id: "main", tabindex: "-1" }), dialog);
  state.dialog = dialog;
}

async function show() {
  const number = ++state.shown;
  clearInterval(state.timer);
  document.querySelector(".tip")?.remove();
  const [path, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  const [, name, view] = path === "table" ? ["table", rest.slice(0, 2).join("."), table] : VIEWS.find(([each]) => each === path) ?? VIEWS[0];
  document.title = `${name} – seqstore`;
  for (const link of document.querySelectorAll("nav.main a")) {
    if (link.dataset.path === path || (path === "table" && link.dataset.path === "")) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const main = h("main", { id: "main", tabindex: "-1" });
  let again;
  try {
    again = await view(main, rest, state.session);
  } catch (error) {
    fill(main, h("h1", {}, name), note("error", error.message));
  }
  if (number !== state.shown || !state.session) return;
  document.querySelector("main").replaceWith(main);
  main.dataset.ready = path || "overview";
  if (!again) return;
  let isRunning = false;
  state.timer = setInterval(async () => {
    if (document.hidden || isRunning) return;
    isRunning = true;
    await again().catch(() => {});
    isRunning = false;
  }, REFRESH_MS);
}

async function start() {
  state.session = await get("session");
  shell(state.session);
  await show();
}

let first = "";
addEventListener("keydown", (event) => {
  const [target] = event.composedPath(); // the editor is below a shadow root
  if (!state.session || event.ctrlKey || event.metaKey || event.altKey || target.closest?.("input, textarea, select, [contenteditable=true]")) return;
  const found = first === "g" && VIEWS.find(([, , , key]) => key === event.key);
  first = event.key === "g" ? "g" : "";
  if (found) location.hash = `#/${found[0]}`;
  else if (event.key === "?") state.dialog.showModal();
  else if (event.key === "d") changeTheme();
  else if (event.key === "/") {
    const search = document.querySelector("main input[type=search]");
    if (search) event.preventDefault();
    search?.focus();
  }
});
addEventListener("hashchange", () => state.session && show());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => theme());
theme();
onLostLogin(() => {
  localStorage.removeItem("seqstore-login");
  if (state.session) showLogin("The login has ended: log in again.");
});
// Without a login the server would record a refusal.
if (localStorage.getItem("seqstore-login")) start().catch(() => showLogin(""));
else showLogin("");
