// A page that changes: it is asked for again when something has happened, and what is new is put in. While somebody
// writes there, it says that there is something new instead. Where the server does not answer, it says that, and goes on
// by itself.
"use strict";
const live = document.getElementById("live");

// What somebody wrote, chose or ticked, and has not sent.
const isTyped = (field) => {
  if (field.tagName === "SELECT") {
    const first = [...field.options].findIndex((option) => option.defaultSelected);
    return field.selectedIndex !== Math.max(0, first);
  }
  return field.type === "checkbox" ? field.checked !== field.defaultChecked : field.value !== field.defaultValue;
};
const fieldsOf = (part) => [...part.querySelectorAll("input, select, textarea")];
const keyOf = (field) => [field.form?.id, field.name, field.type === "checkbox" ? field.value : ""].join("\n");
const labelOf = (field) => (field.labels?.[0]?.firstChild?.textContent || field.name).trim();
// A form that came back as it was sent: its fields count as typed.
const asTyped = (form) => {
  for (const field of form.querySelectorAll("input:not([type=hidden]), textarea")) {
    const { value, checked } = field;
    field.defaultValue = field.type === "checkbox" ? value : "";
    field.defaultChecked = false;
    Object.assign(field, field.type === "checkbox" ? { checked } : field.type === "file" ? {} : { value });
  }
};
document.querySelectorAll("form[data-back]").forEach(asTyped);

// Lines above everything, which stay in sight.
const bars = Object.assign(document.createElement("div"), { className: "bars" });
bars.setAttribute("role", "status");
document.querySelector("main").prepend(bars);
const bar = (id, words, ...more) => {
  const line = document.getElementById(id) ?? Object.assign(document.createElement("p"), { id });
  if (line.firstChild?.textContent !== words) line.replaceChildren(document.createTextNode(words), ...more);
  if (!line.parentElement) bars.append(line);
};
const withoutBar = (id) => document.getElementById(id)?.remove();
const button = (words, act) => {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = words;
  made.addEventListener("click", act);
  return made;
};

// Milliseconds: the server lets hear of itself every 5 seconds, where nothing happens.
const SILENCE = 12000, AGAIN = 3000, PATIENCE = 8000, SOON = 400, LATER = 4000, NOW_AND_THEN = 30000;

const follow = () => {
  const page = live.dataset.page || location.pathname + location.search;
  let source = null, heard = 0, begun = 0, renewed = Date.now(), took = 0, asking = false, onceMore = false;
  let soon = null, later = null, again = null, over = false, news = false;

  const isWriting = () => fieldsOf(live).some((field) => field === document.activeElement || isTyped(field));
  const hangUp = () => { source?.close(); source = null; };
  const hear = () => { heard = Date.now(); };
  const connect = (address) => {
    hangUp();
    hear();
    begun = Date.now();
    source = new EventSource(address);
    source.addEventListener("open", hear);
    source.addEventListener("alive", () => { hear(); if (Date.now() - renewed > NOW_AND_THEN && !isWriting()) renewSoon(); });
    source.addEventListener("message", () => { hear(); happened(); });
    source.addEventListener("error", recover);
  };
  // What has happened may show a moment later: then the page is asked for once more.
  const happened = () => {
    renewSoon();
    clearTimeout(later);
    later = setTimeout(renewSoon, LATER);
  };
  // Several things happen at once; and a page that takes long to make is asked for more rarely.
  const renewSoon = () => {
    if (isWriting()) return tellNews();
    soon ??= setTimeout(() => { soon = null; renew(); }, Math.max(SOON, 10 * took));
  };
  const recover = () => {
    hangUp();
    clearTimeout(again);
    again = setTimeout(renew, Math.max(0, begun + AGAIN - Date.now()));
  };

  const renew = async (shown = false) => {
    if (asking) { onceMore = true; return; }
    asking = true;
    const since = Date.now();
    const [status, fresh] = await asked();
    asking = false;
    if (document.hidden) return;
    if (!fresh) return lost(status);
    renewed = Date.now();
    took = renewed - since;
    withoutBar("lost");
    if (shown) clearTimeout(later);
    if (shown || !isWriting()) put(fresh, shown);
    else tellNews();
    over = !fresh.dataset.events;
    if (over) hangUp();
    else if (!source) connect(fresh.dataset.events);
    if (onceMore) { onceMore = false; renewSoon(); }
  };
  const asked = async () => {
    try {
      const answer = await fetch(page, { headers: { accept: "text/html" }, signal: AbortSignal.timeout(PATIENCE) });
      const read = new DOMParser().parseFromString(await answer.text(), "text/html");
      return [answer.status, answer.ok ? read.getElementById("live") : null];
    } catch {
      return [0, null];
    }
  };
  const lost = (status) => {
    hangUp();
    const since = new Date(heard || renewed).toLocaleTimeString();
    if (status === 404) return bar("lost", "This page is not there any more. ");
    if (status === 401) {
      const link = Object.assign(document.createElement("a"), { href: "/", target: "_blank", textContent: "Sign in" });
      const words = "You are signed out: the server was started anew, or your key was revoked. Sign in in another tab, "
        + "and this page goes on by itself. ";
      bar("lost", words, link);
    } else {
      const why = status ? `answers ${status}` : "does not answer";
      bar("lost", `The server ${why}: this page is as it was at ${since}. It goes on by itself once the server is back.`);
    }
    clearTimeout(again);
    again = setTimeout(renew, AGAIN);
  };

  const tellNews = () => {
    news = true;
    bar("news", "There is something new on this page. ", button("Show it", () => renew(true)));
  };
  // The new page in the place of the old one, with what was typed, opened and chosen there.
  const put = (fresh, shown) => {
    const opened = [...live.querySelectorAll("details[open] > summary")].map((one) => one.textContent);
    const typed = fieldsOf(live).filter((field) => field.type !== "hidden" && isTyped(field));
    const labels = new Map(typed.map((field) => [field, labelOf(field)]));
    const chosen = live.contains(document.activeElement) ? document.activeElement : null;
    const moved = [...live.querySelectorAll(".wide")].map((one) => one.scrollLeft);
    live.replaceChildren(...fresh.childNodes);
    for (const one of live.querySelectorAll("details > summary")) one.parentElement.open ||= opened.includes(one.textContent);
    live.querySelectorAll(".wide").forEach((one, place) => { one.scrollLeft = moved[place] ?? 0; });
    const places = new Map(fieldsOf(live).map((field) => [keyOf(field), field]));
    const homeless = [], kept = [];
    for (const field of typed) {
      const place = places.get(keyOf(field));
      (place ? kept : homeless).push(place ?? field);
      if (!place) continue;
      if (field.type === "checkbox") place.checked = field.checked;
      else place.value = field.value;
    }
    const texts = homeless.filter((field) => field.type !== "checkbox").map((field) => `${labels.get(field)}: ${field.value}`);
    if (texts.length) bar("homeless", `What was typed has no place here any more. ${texts.join("; ")} `, button("Close", () => withoutBar("homeless")));
    news = false;
    withoutBar("news");
    const sameAs = (one) => one.tagName === chosen.tagName && one.textContent === chosen.textContent && one.href === chosen.href;
    const parts = () => [...live.querySelectorAll("a, button, summary, [tabindex]")];
    const next = chosen ? places.get(keyOf(chosen)) ?? parts().find(sameAs) : shown ? kept[0] : null;
    next?.focus({ preventScroll: true });
  };

  live.addEventListener("focusout", () => setTimeout(() => { if (news && !isWriting()) renew(); }));
  // A browser has few connections to a server: pages that nobody looks at leave theirs to others.
  document.addEventListener("visibilitychange", () => {
    if (over) return;
    if (document.hidden) { hangUp(); [soon, later, again].forEach(clearTimeout); soon = null; }
    else renew();
  });
  setInterval(() => {
    if (source && (source.readyState === EventSource.CLOSED || Date.now() - heard > SILENCE)) recover();
  }, 1000);
  if (!document.hidden) connect(live.dataset.events);
};
if (live?.dataset.events) follow();

// Days are drawn oldest first: where they do not fit, the newest are what one sees.
for (const days of document.querySelectorAll("svg.days")) days.parentElement.scrollLeft = days.parentElement.scrollWidth;
