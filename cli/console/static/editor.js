// The editor of statements: CodeMirror with the words and names of this server.
//
// It lives below a shadow root, because there CodeMirror keeps its styles in constructed style sheets; in the
// document it would add <style> elements, which the policy of these pages forbids.

import { get } from "./api.js";
import { acceptCompletion, autocompletion, bracketMatching, closeBrackets, closeBracketsKeymap, completionKeymap, completionStatus, Decoration, defaultKeymap, drawSelection, EditorState, EditorView, highlightSpecialChars, HighlightStyle,
  history, historyKeymap, ifNotIn, keymap, lineNumbers, MySQL, placeholder, Prec, search, searchKeymap, SQLDialect, StateEffect, StateField, syntaxHighlighting, tags } from "./codemirror.js";
import { h } from "./dom.js";

const HINT = "Ctrl Enter runs the selection or all. Ctrl Space lists names; Tab or Enter takes one, Escape closes the list. Otherwise Tab leaves the editor.";
const NAMES = /[\p{L}\p{N}_$.]*$/u;

const colours = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--s-word)", fontWeight: "600" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--s-text)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--s-number)" },
  { tag: [tags.typeName, tags.standard(tags.name)], color: "var(--s-type)" },
  { tag: tags.comment, color: "var(--soft)", fontStyle: "italic" },
]);

const look = {
  "&": { backgroundColor: "var(--card)", color: "var(--text)", border: "1px solid var(--soft)", borderRadius: "6px", fontSize: ".9rem" },
  "&.cm-focused": { outline: "3px solid var(--c-late)", outlineOffset: "2px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.45", maxHeight: "24rem", overflow: "auto" },
  ".cm-content, .cm-gutter": { minHeight: "8.5rem" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-cursor, .cm-dropCursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": { backgroundColor: "var(--bg)", color: "var(--soft)", borderRight: "1px solid var(--line)", borderRadius: "6px 0 0 6px" },
  ".cm-placeholder": { color: "var(--soft)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { background: "var(--chosen)" },
  "&.cm-focused .cm-matchingBracket": { backgroundColor: "var(--hover)", outline: "1px solid var(--accent)" },
  "&.cm-focused .cm-nonmatchingBracket": { backgroundColor: "var(--error-bg)", outline: "1px solid var(--error)" },
  ".cm-fault": { backgroundColor: "var(--error-bg)", textDecoration: "underline wavy var(--error)", textUnderlineOffset: "3px" },
  ".cm-tooltip": { backgroundColor: "var(--card)", color: "var(--text)", border: "1px solid var(--soft)", borderRadius: "6px", boxShadow: "0 6px 20px #0005" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)", maxHeight: "14rem", maxWidth: "min(30rem, 90vw)" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: ".25rem .6rem", display: "flex", justifyContent: "space-between", gap: "1rem" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
  ".cm-completionMatchedText": { textDecoration: "none", fontWeight: "600" },
  ".cm-completionDetail": { fontFamily: "system-ui, sans-serif", fontStyle: "normal", fontSize: ".88em" },
  ".cm-panels": { backgroundColor: "var(--bg)", color: "var(--text)", borderColor: "var(--line)" },
  ".cm-panel.cm-search": { fontFamily: "system-ui, sans-serif", paddingRight: "2rem" },
  ".cm-textfield": { backgroundColor: "var(--card)", border: "1px solid var(--soft)", color: "var(--text)" },
  ".cm-button": { backgroundImage: "none", backgroundColor: "var(--card)", border: "1px solid var(--line)", borderRadius: "6px", color: "var(--text)" },
  ".cm-panel.cm-search [name=close]": { color: "var(--text)", fontSize: "1.2rem", padding: "0 .5rem" },
  ".cm-searchMatch": { backgroundColor: "var(--warn-bg)" },
  ".cm-searchMatch-selected": { backgroundColor: "var(--chosen)" },
  "@media (max-width: 620px)": { ".cm-gutters": { display: "none !important" } },
};

const setFault = StateEffect.define();
const faults = StateField.define({
  create: () => Decoration.none,
  update: (marked, change) => change.effects.reduce((now, effect) => (effect.is(setFault) ? effect.value : now), marked.map(change.changes)),
  provide: (field) => EditorView.decorations.from(field),
});

/** Makes the extension of the language: MySQL's, with the words that statements of this server begin with. */
function language(session) {
  const words = (given) => given.join(" ").toLowerCase();
  return SQLDialect.define({ ...MySQL.spec, keywords: `${MySQL.spec.keywords} ${words(session.words)}`, builtin: `${MySQL.spec.builtin ?? ""} ${words(session.functions)}` }).language.extension;
}

/**
 * Replaces a selection by what is typed. A browser that does so itself keeps the colours of what was there in a style
 * attribute, which the policy refuses, and cuts lines in its own way.
 */
const typing = EditorView.domEventHandlers({
  beforeinput(event, view) {
    if (event.inputType !== "insertText" || !event.data || view.composing || view.state.selection.ranges.length > 1) return false;
    const [from, to] = selected(view);
    if (from === to && !event.data.includes("\n")) return false;
    const text = view.state.toText(event.data);
    const insert = () => view.state.update({ changes: { from, to, insert: text }, selection: { anchor: from + text.length } }, { userEvent: "input.type", scrollIntoView: true });
    if (!view.state.facet(EditorView.inputHandler).some((handle) => handle(view, from, to, event.data, insert))) view.dispatch(insert());
    event.preventDefault();
    return true;
  },
});

/** Returns the ends of the selection of the page, which the state may not have yet. */
function selected(view) {
  const { anchorNode, anchorOffset, focusNode, focusOffset } = view.root.getSelection?.() ?? {};
  const { from, to } = view.state.selection.main;
  if (!anchorNode || !view.contentDOM.contains(anchorNode) || !view.contentDOM.contains(focusNode)) return [from, to];
  return [view.posAtDOM(anchorNode, anchorOffset), view.posAtDOM(focusNode, focusOffset)].sort((a, b) => a - b);
}

/** Returns a name as a statement has it. */
function written(name) {
  return name.split(".").map((part) => (/^[\p{L}_$][\p{L}\p{N}_$]*$/u.test(part) ? part : `\`${part.replaceAll("`", "``")}\``)).join(".");
}

/** Completes words of SQL, functions, and the names that the server tells its user. */
function names(session, database) {
  const words = session.words.map((label) => ({ label, detail: "word" }));
  const functions = session.functions.map((label) => ({ label, detail: "function", apply: `${label}(` }));
  return async (context) => {
    const word = NAMES.exec(context.state.sliceDoc(context.state.doc.lineAt(context.pos).from, context.pos))[0];
    if (!word && !context.explicit) return null;
    const request = new AbortController();
    context.addEventListener("abort", () => request.abort(), { onDocChange: true });
    const text = context.state.doc.toString();
    const tables = [...text.matchAll(/\b(?:from|join|into|update|table)\s+([\p{L}\p{N}_$.`]+)/giu)].map((found) => found[1].replaceAll("`", ""));
    const found = await get("names", { db: database(), word, tables: [...new Set(tables)].join(",") }, request.signal).catch(() => ({ names: [] }));
    const before = word.slice(0, word.lastIndexOf(".") + 1);
    const start = word.toLowerCase();
    const isOf = (each) => start && !before && each.label.toLowerCase().startsWith(start);
    const known = found.names.map(({ name, kind }) => (kind === "column" ? { label: before + name, detail: kind, apply: before + written(name) } : { label: name, detail: kind, apply: written(name) }));
    const isLower = word && word === start;
    const own = words.filter(isOf).map((each) => (isLower ? { ...each, label: each.label.toLowerCase() } : each));
    const options = [...known, ...own, ...functions.filter(isOf)].filter((each) => each.label.toLowerCase() !== start || each.detail === "function").slice(0, 60);
    return options.length ? { from: context.pos - word.length, options, filter: false } : null;
  };
}

/**
 * Makes the editor. `run` is called for Ctrl Enter, `changed` with the text after each change.
 * Returns {element, text, setText, chosen, mark, focus}; `chosen()` is {text, offset} of the selection, or of all.
 */
export function editor(session, { value, database, run, changed }) {
  const host = h("div", { class: "editor" });
  const root = host.attachShadow({ mode: "open" });
  const hint = h("p", { id: "hint" }, HINT);
  const takesTab = (view) => completionStatus(view.state) === "active" && (acceptCompletion(view) || true);
  const keys = [{ key: "Mod-Enter", run: () => (run(), true) }, { key: "Ctrl-Enter", run: () => (run(), true) }, { key: "Tab", run: takesTab }];
  const view = new EditorView({
    root,
    doc: value,
    extensions: [
      Prec.highest(keymap.of(keys)),
      keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...searchKeymap, ...historyKeymap, ...completionKeymap]),
      lineNumbers(), highlightSpecialChars(), history(), drawSelection(), EditorView.lineWrapping, bracketMatching(), closeBrackets(), search(),
      language(session), syntaxHighlighting(colours), faults, typing,
      autocompletion({ override: [ifNotIn(["String", "LineComment", "BlockComment"], names(session, database))], icons: false }),
      placeholder("SELECT …"),
      EditorView.contentAttributes.of({ "aria-label": "Statement", "aria-describedby": "hint", autocapitalize: "off", spellcheck: "false" }),
      EditorView.theme(look, { dark: document.documentElement.dataset.theme === "dark" }),
      EditorState.tabSize.of(2),
      EditorView.updateListener.of((update) => update.docChanged && changed(update.state.doc.toString())),
    ],
  });
  const sheet = new CSSStyleSheet();
  sheet.replaceSync("#hint { color: var(--soft); font-size: .82rem; margin: .35rem 0 0; }");
  root.adoptedStyleSheets = [...root.adoptedStyleSheets, sheet];
  root.append(view.dom, hint);

  const focus = () => view.focus();
  const chosen = () => {
    const { from, to } = view.state.selection.main;
    const all = view.state.doc.toString();
    const isPart = all.slice(from, to).trim() !== "";
    const text = isPart ? all.slice(from, to) : all;
    return { text: text.trim(), offset: (isPart ? from : 0) + text.length - text.trimStart().length };
  };
  const setText = (text) => {
    view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text }, selection: { anchor: text.length }, effects: setFault.of(Decoration.none) });
    focus();
  };
  /** Marks the word at an offset, null for none; returns {line, column, show}. */
  const mark = (offset) => {
    const length = view.state.doc.length;
    if (offset === null || !length) return void view.dispatch({ effects: setFault.of(Decoration.none) });
    const from = Math.min(offset, length - 1);
    const word = /^[\p{L}\p{N}_$]+/u.exec(view.state.sliceDoc(from, Math.min(from + 200, length)))?.[0] ?? " ";
    const line = view.state.doc.lineAt(from);
    const at = from === line.to && from > line.from ? from - 1 : from; // the end of a line shows nothing
    view.dispatch({ effects: setFault.of(at < line.to ? Decoration.set([Decoration.mark({ class: "cm-fault" }).range(at, Math.max(Math.min(from + word.length, line.to), at + 1))]) : Decoration.none) });
    const place = Math.min(offset, length);
    const within = view.state.doc.lineAt(place);
    return { line: within.number, column: place - within.from + 1, show: () => {
      view.dispatch({ selection: { anchor: place }, scrollIntoView: true });
      focus();
    } };
  };
  return { element: host, text: () => view.state.doc.toString(), setText, chosen, mark, focus };
}
