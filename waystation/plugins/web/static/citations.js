// The source of a citation is shown next to the report, and the report stays where it is. Where the source is below the
// report, as on a narrow screen, and without this script, a citation leads to the address of its source.
"use strict";
const report = document.querySelector("main .report");
const besideReport = matchMedia("(min-width: 64rem)");
// This script keeps the place itself. A browser that did the same would scroll twice.
document.documentElement.style.overflowAnchor = "none";
let shownSource = location.search, newestClick = 0;

const citationsOf = (source) => [...report.querySelectorAll("a.cite")].filter((one) => source && one.search === source);
const markCitation = (link) => {
  for (const one of report.querySelectorAll("a.cite[aria-current]")) one.removeAttribute("aria-current");
  link?.setAttribute("aria-current", "true");
};

// The page of a source has the same report: only what is next to the report is taken from it.
const putSource = (page, link) => {
  const fresh = page.querySelector("main"), aside = page.getElementById("source");
  const before = link?.getBoundingClientRect().top;
  document.querySelector("main").className = fresh.className;
  report.parentElement.className = fresh.querySelector(".report").parentElement.className;
  document.getElementById("source")?.remove();
  if (aside) report.after(aside);
  markCitation(link);
  if (link) scrollBy({ top: link.getBoundingClientRect().top - before, behavior: "instant" });
  document.getElementById("source")?.focus({ preventScroll: true });
};

// Returns whether it is shown.
const showSource = async (address, link) => {
  const click = ++newestClick;
  const answer = await fetch(address, { headers: { accept: "text/html" } }).catch(() => null);
  const text = answer?.ok ? await answer.text() : "";
  if (click !== newestClick) return true;
  const page = new DOMParser().parseFromString(text, "text/html");
  if (!page.querySelector("main .report")) return false;
  if (link) history.pushState(null, "", address);
  shownSource = location.search;
  putSource(page, link ?? citationsOf(shownSource)[0]);
  return true;
};

document.addEventListener("click", async (event) => {
  const link = event.target.closest?.("a");
  const isPlain = !event.button && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
  if (!link || !isPlain || event.defaultPrevented || !besideReport.matches) return;
  if (link.closest("#source") && link.hash.startsWith("#cite-")) {
    const current = report.querySelector("a.cite[aria-current]");
    if (!current) return;
    event.preventDefault();
    current.focus();
  } else if (report.contains(link) && link.matches(".cite") && link.hash === "#source") {
    event.preventDefault();
    if (!await showSource(link.href, link)) location.assign(link.href);
  }
});
addEventListener("popstate", () => { if (location.search !== shownSource) showSource(location.href); });

// A person who opens a source from another page also sees the sentence that cites it.
const [first] = citationsOf(shownSource);
if (besideReport.matches && first) {
  markCitation(first);
  const isNew = performance.getEntriesByType("navigation")[0]?.type === "navigate";
  if (isNew) addEventListener("load", () => first.scrollIntoView({ block: "center" }));
}
