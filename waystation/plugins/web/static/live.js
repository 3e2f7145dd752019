// What a page shows while things change: it is renewed when something has happened, says when the server does not
// answer, and never overwrites what is being typed. One connection for each page that is being looked at.
"use strict";
const live = document.getElementById("live");
const events = document.body.dataset.events;

// Whether a field has something that was typed, chosen or ticked, and not sent.
const isTyped = (field) => {
  if (field.tagName === "SELECT") {
    const first = [...field.options].findIndex((option) => option.defaultSelected);
    return field.selectedIndex !== Math.max(0, first);
  }
  const ticked = field.type === "checkbox" || field.type === "radio";
  return ticked ? field.checked !== field.defaultChecked : field.value !== field.defaultValue;
};
const isTicked = (field) => field.type === "checkbox" || field.type === "radio";
const fieldsOf = (part) => [...part.querySelectorAll("input, select, textarea")];
const keyOf = (field) => [field.form?.id, field.name, isTicked(field) ? field.value : ""].join("\n");
const nameOfSummary = (one) => one.ariaLabel ?? one.textContent;
const labelOf = (field) => (field.labels?.[0]?.firstChild?.textContent || field.name).trim();
// A form that came back as it was sent: its fields count as typed.
const asTyped = (form) => {
  for (const field of form.querySelectorAll("input:not([type=hidden], [type=radio]), textarea")) {
    const { value, checked } = field;
    field.defaultValue = field.type === "checkbox" ? value : "";
    field.defaultChecked = false;
    Object.assign(field, field.type === "checkbox" ? { checked } : field.type === "file" ? {} : { value });
  }
};
document.querySelectorAll("form[data-back]").forEach(asTyped);
// An amount that is typed is chosen; without one, the suggested amount is chosen again.
const chooseAmount = (field) => {
  const one = field.form.querySelector(field.value ? "input[name=choice][value=other]" : "input[name=choice][data-suggested]");
  if (one) one.checked = true;
};

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

// A card of a request that has just appeared is not answered by a press that was meant for what was in its place.
const SETTLED = 1000;
const requestForms = (part) => [...part.querySelectorAll("article.request form[id]")];
const appeared = new Map();
const settle = () => {
  const forms = requestForms(document), now = Date.now();
  for (const id of appeared.keys()) if (!forms.some((form) => form.id === id)) appeared.delete(id);
  for (const form of forms) {
    if (!appeared.has(form.id)) appeared.set(form.id, now);
    const left = appeared.get(form.id) + SETTLED - now;
    if (left <= 0) continue;
    const buttons = [...form.querySelectorAll("button")];
    for (const one of buttons) one.disabled = true;
    setTimeout(() => { for (const one of buttons) one.disabled = false; }, left);
  }
};
// Whether another request would take the place of one that is shown.
const wouldReplace = (fresh) => {
  const next = requestForms(fresh);
  return requestForms(live).some(({ id }, place) => next[place] && next[place].id !== id);
};

// Milliseconds. The server sends something every 3 seconds: after 8 without anything, the page says so.
const HEARTBEAT = 3, SILENCE = 8000, AGAIN = 3000, PATIENCE = 8000, SOON = 400, LATER = 4000, NOW_AND_THEN = 30000;

// The number of requests that wait, in the header and in the tab's title.
const title = document.title;
let waiting = null;
const showWaiting = (count) => {
  const badge = document.getElementById("badge");
  badge.hidden = !count;
  badge.textContent = count || "";
  badge.setAttribute("aria-label", `${count} waiting`);
  document.title = count ? `(${count}) ${title}` : title;
  if (waiting !== null && count > waiting && document.hidden && window.Notification?.permission === "granted") {
    new Notification("Waystation", { body: count === 1 ? "One request waits for your answer." : `${count} requests wait for your answer.` });
  }
  waiting = count;
};
// Returns the status of the answer; 0: the server does not answer.
const countWaiting = async () => {
  try {
    const answer = await fetch("/v1/approvals", { signal: AbortSignal.timeout(PATIENCE) });
    if (answer.ok) showWaiting((await answer.json()).length);
    return answer.status;
  } catch {
    return 0;
  }
};

const follow = () => {
  const page = live?.dataset.page || location.pathname + location.search;
  let source = null, heard = Date.now(), known = heard, begun = 0, renewed = heard, took = 0, asking = false, onceMore = false;
  let soon = null, later = null, again = null, news = false, replies = [];

  const isWriting = () => fieldsOf(live).some((field) => field === document.activeElement || isTyped(field));
  const hangUp = () => { source?.close(); source = null; };
  const hear = () => { heard = known = Date.now(); withoutBar("lost"); answersAgain(); };
  // The newest event that a page shows. Without a new one only its clocks differ.
  const stampOf = (part) => part.dataset.newest ?? part.dataset.after;
  const connect = (after) => {
    hangUp();
    heard = begun = Date.now();
    const watched = live?.dataset.watched ? `&replies=${live.dataset.watched}` : "";
    source = new EventSource(`${events}?heartbeat=${HEARTBEAT}${watched}${after ? `&after=${after}` : ""}`);
    source.addEventListener("open", hear);
    source.addEventListener("alive", () => { hear(); if (live && Date.now() - renewed > NOW_AND_THEN && !isWriting()) renewSoon(); });
    source.addEventListener("replies", ({ data }) => { hear(); replies = JSON.parse(data); showReplies(); });
    source.addEventListener("message", ({ data }) => { hear(); happened(JSON.parse(data).task_id); });
    // A browser retries a refused connection for ever, without ever calling it closed.
    source.addEventListener("error", recover);
  };
  // What agents are thinking and writing, until their replies are steps of the page.
  const showReplies = () => {
    const place = document.getElementById("replies");
    if (!place) return;
    place.hidden = !replies.length;
    place.replaceChildren(...replies.map(({ agent, kind, text, calls_tool }) => {
      const part = Object.assign(document.createElement("div"), { className: `reply ${kind}` });
      const doing = calls_tool ? "preparing a tool call" : kind === "thinking" ? "thinking" : "writing";
      const words = [Object.assign(document.createElement("p"), { className: "small", textContent: `${agent} is ${doing} …` })];
      if (text) words.push(Object.assign(document.createElement("p"), { className: "words", textContent: text }));
      part.replaceChildren(...words);
      return part;
    }));
  };
  // What has happened may show a moment later: then the page is asked for once more.
  const happened = (task) => {
    if (live?.dataset.task && live.dataset.task !== task) return;
    renewSoon();
    clearTimeout(later);
    later = setTimeout(renewSoon, LATER);
  };
  // Several things happen at once; and a page that takes long to make is asked for more rarely.
  const renewSoon = () => {
    if (live && isWriting()) { countWaiting(); return tellNews(); }
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
    const [status, fresh] = live ? await asked() : [await countWaiting(), null];
    asking = false;
    if (document.hidden) return;
    if (!status || status === 401 || (live && !fresh)) return lost(status);
    if (live) {
      countWaiting();
      if (shown) clearTimeout(later);
      const held = wouldReplace(fresh);
      if (shown || !(isWriting() || held)) put(fresh, shown);
      else if (held || stampOf(fresh) !== stampOf(live)) tellNews();
    }
    renewed = Date.now();
    took = renewed - since;
    withoutBar("lost");
    if (!source) connect(fresh?.dataset.after);
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
    say(status);
    clearTimeout(again);
    again = setTimeout(renew, AGAIN);
  };
  const say = (status) => {
    if (status === 404) return bar("lost", "This page no longer exists. ");
    if (status === 401) {
      const link = Object.assign(document.createElement("a"), { href: "/", target: "_blank", textContent: "Sign in" });
      const words = "You are signed out: the server was restarted, or your key was revoked. Sign in in another tab, "
        + "and this page updates again. ";
      return bar("lost", words, link);
    }
    const why = status ? `answers ${status}` : "does not answer";
    const at = new Date(Math.max(known, renewed)).toLocaleTimeString();
    bar("lost", `The server ${why}. This page shows the state at ${at}, and updates again when the server answers.`);
  };

  const tellNews = () => {
    news = true;
    bar("news", live.dataset.task ? "This task has changed. " : "There is something new on this page. ", button("Show it", () => renew(true)));
  };
  // The new page in the place of the old one, with what was typed, opened and chosen there.
  const put = (fresh, shown) => {
    const opened = [...live.querySelectorAll("details[open] > summary")].map(nameOfSummary);
    const typed = fieldsOf(live).filter((field) => field.type !== "hidden" && isTyped(field));
    const labels = new Map(typed.map((field) => [field, labelOf(field)]));
    const chosen = live.contains(document.activeElement) ? document.activeElement : null;
    const moved = [...live.querySelectorAll(".wide")].map((one) => one.scrollLeft);
    live.replaceChildren(...fresh.childNodes);
    for (const name of ["after", "newest"]) if (name in fresh.dataset) live.dataset[name] = fresh.dataset[name];
    showReplies();
    for (const one of live.querySelectorAll("details > summary")) one.parentElement.open ||= opened.includes(nameOfSummary(one));
    live.querySelectorAll(".wide").forEach((one, place) => { one.scrollLeft = moved[place] ?? 0; });
    const places = new Map(fieldsOf(live).map((field) => [keyOf(field), field]));
    const homeless = [], kept = [];
    for (const field of typed) {
      const place = places.get(keyOf(field));
      (place ? kept : homeless).push(place ?? field);
      if (!place) continue;
      if (isTicked(field)) place.checked = field.checked;
      else place.value = field.value;
      if (place.name === "add") chooseAmount(place);
    }
    const texts = homeless.filter((field) => !isTicked(field)).map((field) => `${labels.get(field)}: ${field.value}`);
    if (texts.length) bar("homeless", `This page no longer has the field for your text. ${texts.join("; ")} `, button("Close", () => withoutBar("homeless")));
    news = false;
    withoutBar("news");
    localTimes(live);
    enableCopying(live);
    rememberName(live);
    settle();
    const nameOf = (one) => [one.tagName, one.textContent, one.getAttribute("href")].join("\n");
    const sameAs = (one) => (chosen.id ? one.id === chosen.id : nameOf(one) === nameOf(chosen));
    const parts = () => [...live.querySelectorAll("a, button, summary, [tabindex]")];
    const next = chosen ? places.get(keyOf(chosen)) ?? parts().find(sameAs) : shown ? kept[0] : null;
    next?.focus({ preventScroll: true });
  };

  live?.addEventListener("renew", () => renew(true));
  live?.addEventListener("focusout", () => setTimeout(() => { if (news && !isWriting()) renew(); }));
  // A browser has few connections to a server: pages that nobody looks at leave theirs to others.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { hangUp(); [soon, later, again].forEach(clearTimeout); soon = null; }
    else renew();
  });
  setInterval(() => {
    if (!source || Date.now() - heard <= SILENCE) return;
    say(0);
    recover();
  }, 1000);
  // A page that nobody looks at still shows in its title how much waits.
  setInterval(() => { if (document.hidden) countWaiting(); }, NOW_AND_THEN);
  if (document.hidden) return;
  connect(live?.dataset.after);
  countWaiting();
};

// A form that met no server says so until one answers.
const answersAgain = () => {
  for (const line of document.querySelectorAll("p.fault[data-unanswered]")) {
    line.removeAttribute("data-unanswered");
    line.className = "remark";
    line.textContent = "The server answers again. It may not have received this, and your text is still here: look first, then send it again.";
  }
};

// Times are written in UTC by the server, and shown in the reader's zone.
const localTimes = (part) => {
  for (const time of part.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.getTime()) || time.title) continue;
    time.title = time.textContent;
    const sameDay = at.toDateString() === new Date().toDateString();
    const day = at.toLocaleDateString(undefined, { day: "numeric", month: "short", year: "numeric" });
    const hour = at.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" });
    time.textContent = sameDay ? `today, ${hour}` : `${day}, ${hour}`;
  }
};

// Buttons that copy their words, or what is at an address. They only work with a script.
const enableCopying = (part) => {
  for (const copies of part.querySelectorAll("button[data-copy], button[data-words]")) {
    copies.hidden = !navigator.clipboard;
    copies.onclick = async () => {
      const words = copies.textContent;
      const answer = copies.dataset.copy ? await fetch(copies.dataset.copy).catch(() => null) : null;
      const text = answer?.ok ? await answer.text() : copies.dataset.words;
      const done = text && await navigator.clipboard.writeText(text).then(() => true, () => false);
      copies.textContent = done ? "Copied" : "Could not be copied";
      setTimeout(() => { copies.textContent = words; }, 2000);
    };
  }
};

// Messages of an agent, which are folded: all of them at once.
const unfolds = document.querySelector("button[data-unfold]");
if (unfolds) {
  unfolds.hidden = false;
  unfolds.addEventListener("click", () => {
    const open = unfolds.textContent === "Expand all";
    for (const one of document.querySelectorAll(".message > details:has(> .line)")) one.open = open;
    unfolds.textContent = open ? "Fold all" : "Expand all";
  });
}

// A name that a person has given once, in this browser.
const rememberName = (part) => {
  for (const field of part.querySelectorAll("input[name=by]")) {
    field.value ||= field.defaultValue = localStorage.getItem("name") ?? "";
    field.addEventListener("change", () => localStorage.setItem("name", field.value));
  }
};

document.addEventListener("input", ({ target }) => {
  if (target.name === "choice" && target.value !== "other") target.form.elements.add.value = "";
  if (target.name === "add") chooseAmount(target);
});

// A new schedule runs in the reader's zone, unless they choose another.
for (const zone of document.querySelectorAll("form:not([data-back]) input[data-zone]")) {
  zone.value = zone.defaultValue = Intl.DateTimeFormat().resolvedOptions().timeZone || zone.value;
}

localTimes(document);
enableCopying(document);
rememberName(document);
settle();
if (events) follow();

// A browser may say by itself that something waits, if a person wants that.
const notifies = document.getElementById("notify");
if (notifies && window.Notification?.permission === "default") {
  notifies.hidden = false;
  notifies.addEventListener("click", async () => { notifies.hidden = (await Notification.requestPermission()) !== "default"; });
}

// Days are drawn oldest first: where they do not fit, the newest are what one sees.
for (const days of document.querySelectorAll("svg.days")) days.parentElement.scrollLeft = days.parentElement.scrollWidth;
