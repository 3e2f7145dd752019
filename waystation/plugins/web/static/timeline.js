// The timeline of a task's activity: its keys, and a time range that is selected with the mouse. Both follow links, so
// that the address always says what is shown.
"use strict";
const KEYS = { "+": "in", "=": "in", "-": "out", 0: "whole", w: "work", "shift ArrowLeft": "earlier", "shift ArrowRight": "later" };
const FEW = 8;

document.addEventListener("keydown", (event) => {
  if (!event.target.closest?.("#timeline") || event.ctrlKey || event.metaKey || event.altKey) return;
  const arrow = event.shiftKey && event.key.startsWith("Arrow");
  const link = document.querySelector(`a[data-zoom="${KEYS[arrow ? `shift ${event.key}` : event.key]}"]`);
  if (!link) return;
  event.preventDefault();
  link.click();
});

// Where the pointer is, in the units of the drawing, within its axis.
const placeOf = (svg, event) => {
  const box = svg.getBoundingClientRect();
  const x = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
  return Math.min(Math.max(x, Number(svg.dataset.left)), Number(svg.dataset.right));
};
const timeAt = (svg, x) => {
  const { left, right, first, last } = svg.dataset;
  const share = (x - left) / (right - left);
  return new Date(Date.parse(first) + share * (Date.parse(last) - Date.parse(first))).toISOString();
};

let range = null;
document.addEventListener("pointerdown", (event) => {
  const svg = event.target.closest?.("svg[data-first]");
  if (!svg || event.button || event.pointerType === "touch") return;
  const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  rect.setAttribute("class", "selection");
  rect.setAttribute("height", svg.viewBox.baseVal.height);
  range = { svg, rect, from: placeOf(svg, event), to: placeOf(svg, event) };
});
document.addEventListener("pointermove", (event) => {
  if (!range) return;
  const { svg, rect, from } = range;
  range.to = placeOf(svg, event);
  if (Math.abs(range.to - from) < FEW) return rect.remove();
  rect.setAttribute("x", Math.min(from, range.to));
  rect.setAttribute("width", Math.abs(range.to - from));
  if (!rect.parentElement) svg.append(rect);
});
document.addEventListener("pointerup", () => {
  if (!range) return;
  const { svg, rect, from, to } = range;
  range = null;
  rect.remove();
  if (Math.abs(to - from) < FEW) return;
  // What lies under the pointer is not clicked.
  const stop = (click) => { click.preventDefault(); click.stopPropagation(); };
  document.addEventListener("click", stop, { capture: true });
  setTimeout(() => document.removeEventListener("click", stop, { capture: true }));
  const address = new URL(location.href);
  address.searchParams.set("since", timeAt(svg, Math.min(from, to)));
  address.searchParams.set("until", timeAt(svg, Math.max(from, to)));
  address.searchParams.delete("first");
  address.searchParams.delete("event");
  address.hash = "timeline";
  location.assign(address);
});
// A link in a drawing would be dragged away.
document.addEventListener("dragstart", (event) => { if (event.target.closest?.("svg[data-first]")) event.preventDefault(); });
