// Charts: uPlot for series, SVG for segments and distributions. Each stands beside a table of the same values.

import uPlot from "./uplot.js";
import { bytes, count, h, seconds, svg } from "./dom.js";

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function axes(xValues) {
  const line = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
  return [{ ...line, values: xValues }, { ...line, size: 64, values: (_, ticks) => ticks.map((tick) => count(tick)) }];
}

/** Draws in a box and again when the width of the box changes. */
function drawn(box, make) {
  let plot = null;
  let width = 0;
  const draw = () => {
    const wanted = Math.floor(box.clientWidth);
    if (!wanted || wanted === width) return;
    width = wanted;
    plot?.destroy();
    plot = make(wanted);
  };
  new ResizeObserver(draw).observe(box);
  return box;
}

export function showTip(event, text) {
  let tip = document.querySelector(".tip");
  if (!text) return tip?.remove();
  tip ??= document.body.appendChild(h("div", { class: "tip", role: "presentation" }));
  tip.textContent = text;
  tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)}px`;
}

/**
 * Draws stacked bars.
 *
 * parts: [{name, colour (a CSS variable), values}], from the bottom to the top
 * label: index => text of the x axis; tip: index => text; choose: index => void
 */
export function stackedBars(description, parts, { label, tip, choose }) {
  const size = parts[0].values.length;
  let before = new Array(size).fill(0);
  const stacked = parts.map((part) => (before = before.map((value, i) => value + part.values[i])));
  const box = h("div", { class: "chart", role: "img", "aria-label": description });
  let plot = null;
  drawn(box, (width) => {
    plot = new uPlot({
      width, height: 190, padding: [10, 8, 0, 0], legend: { show: false },
      cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
      scales: { x: { time: false, range: [-0.6, size - 0.4] }, y: { range: (_, low, high) => [0, Math.max(high, 1) * 1.08] } },
      axes: axes((_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? label(tick) ?? "" : ""))),
      series: [{}, ...stacked.map((_, i) => {
        const ink = colour(parts[parts.length - 1 - i].colour);
        return { fill: ink, stroke: ink, width: 0, paths: uPlot.paths.bars({ size: [0.8, 60] }), points: { show: false } };
      })],
    }, [[...Array(size).keys()], ...stacked.toReversed()], box);
    return plot;
  });
  const at = (event) => {
    if (!plot) return -1;
    const left = event.clientX - plot.over.getBoundingClientRect().left;
    const index = Math.round(plot.posToVal(left, "x"));
    return index >= 0 && index < size ? index : -1;
  };
  box.addEventListener("pointermove", (event) => showTip(event, at(event) >= 0 ? tip(at(event)) : ""));
  box.addEventListener("pointerleave", (event) => showTip(event, ""));
  if (choose) box.addEventListener("click", (event) => at(event) >= 0 && choose(at(event)));
  return box;
}

/** Draws columns of numbers over a column of numbers or times. */
export function lines(description, x, series, isTime) {
  const inks = ["--c-loaded", "--c-late", "--c-superseded", "--c-filtered", "--c-deleted"];
  const box = h("div", { class: "chart", role: "img", "aria-label": description });
  return drawn(box, (width) => new uPlot({
    width, height: 280, padding: [10, 24, 0, 0], legend: { show: false },
    scales: { x: { time: isTime } }, tzDate: (stamp) => uPlot.tzDate(new Date(stamp * 1000), "Etc/UTC"),
    axes: isTime ? [{ ...axes()[0], values: undefined, space: 90 }, axes()[1]] : axes((_, ticks) => ticks.map((tick) => String(tick))),
    series: [{}, ...series.map((_, i) => ({ stroke: colour(inks[i % inks.length]), width: 2, dash: i < inks.length ? [] : [6, 4] }))],
  }, [x, ...series.map((each) => each.values)], box));
}

/** Draws how many rows came how late: those that count, and on top those that lost. */
export function lateness(found) {
  const high = Math.max(...found.bars.map((_, i) => found.counted[i] + found.lost[i]), 1);
  const line = 24;
  const picture = svg("svg", { viewBox: `0 0 640 ${found.bars.length * line + 6}`, width: "100%", class: "low-picture", role: "img", "aria-label": `Rows by lateness of ${found.column}` });
  found.bars.forEach((name, i) => {
    const y = i * line + 3;
    const good = (430 * found.counted[i]) / high;
    const bad = (430 * found.lost[i]) / high;
    picture.append(
      svg("text", { x: 96, y: y + 15, "text-anchor": "end", class: "soft" }, name),
      svg("rect", { x: 104, y, width: good, height: line - 6, class: "b-counted" }),
      svg("rect", { x: 104 + good, y, width: bad, height: line - 6, class: "b-lost" }),
      svg("text", { x: 110 + good + bad, y: y + 15 }, count(found.counted[i] + found.lost[i])),
    );
  });
  return picture;
}

/** Draws each segment as a bar from its smallest to its largest key; its dead share is hatched. */
export function segments(found, most = 200) {
  const shown = found.segments.slice(-most);
  const isNumber = shown.every((each) => [each.low, each.high].every((end) => end === null || (end !== "" && Number.isFinite(Number(end)))));
  const compare = isNumber ? (a, b) => Number(a) - Number(b) : (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  const ends = [...new Set(shown.flatMap((each) => [each.low, each.high]).filter((end) => end !== null))].sort(compare);
  const places = new Map(ends.map((end, i) => [end, i]));
  const last = Math.max(ends.length - 1, 1);
  const line = 20;
  const picture = svg("svg", { viewBox: `0 0 900 ${shown.length * line + 30}`, width: "100%", role: "img", "aria-label": `Key ranges of ${shown.length} segments` },
    svg("defs", {}, svg("pattern", { id: "dead", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      svg("rect", { width: 3, height: 6, class: "b-lost" }))));
  shown.toReversed().forEach((each, i) => {
    const left = each.low === null ? 0 : places.get(each.low);
    const right = each.high === null ? last : places.get(each.high);
    const x = 110 + (780 * left) / last;
    const width = Math.max((780 * (right - left)) / last, 8);
    const dead = (width * each.dead) / Math.max(each.rows, 1);
    const y = i * line + 4;
    const bar = svg("g", {}, svg("rect", { x, y, width, height: line - 6, rx: 2, class: each.next ? "next" : "live" }),
      svg("rect", { x: x + width - dead, y, width: dead, height: line - 6, class: "dead" }),
      svg("rect", { x, y, width, height: line - 6, rx: 2, class: "edge" }));
    const text = `version ${each.created}, ${count(each.rows)} rows, ${count(each.dead)} dead\n${bytes(each.bytes)}, ${seconds(each.age_seconds)} old, ${each.home}\n` +
      `${found.key}: ${each.low ?? "?"} to ${each.high ?? "?"}\n${each.why}`;
    bar.addEventListener("pointermove", (event) => showTip(event, text));
    bar.addEventListener("pointerleave", (event) => showTip(event, ""));
    picture.append(svg("text", { x: 102, y: y + 12, "text-anchor": "end", class: "soft" }, `v${each.created}`), bar);
  });
  const foot = shown.length * line + 20;
  picture.append(svg("text", { x: 110, y: foot, class: "soft" }, `${found.key} ${ends[0] ?? ""}`.slice(0, 40)),
    svg("text", { x: 890, y: foot, "text-anchor": "end", class: "soft" }, String(ends[ends.length - 1] ?? "").slice(0, 40)));
  return picture;
}

/** A bar that is filled to a share. */
export function meter(label, share) {
  const part = Math.min(Math.max(share, 0), 1);
  const bar = svg("svg", { viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" }, svg("rect", { width: part * 100, height: 6 }));
  return h("div", { class: `meter${part > 0.9 ? " full" : ""}`, role: "meter", "aria-label": label, "aria-valuemin": "0", "aria-valuemax": "100", "aria-valuenow": Math.round(part * 100) }, bar);
}

