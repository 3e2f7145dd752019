// A task that changes: its page is asked for again, and what is new put in, unless somebody is writing an answer.
"use strict";
const live = document.getElementById("live");
if (live && live.dataset.events) {
  const source = new EventSource(live.dataset.events);
  let behind = false;
  const writing = () => [...live.querySelectorAll("input")].some(
    (field) => field === document.activeElement || field.value !== field.defaultValue);
  const renew = async () => {
    behind = writing();
    if (behind) return;
    const answer = await fetch(location.href, { credentials: "same-origin" });
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.getElementById("live");
    behind = writing();
    if (!fresh || behind) return;
    live.replaceChildren(...fresh.childNodes);
    if (!fresh.dataset.events) source.close();
  };
  let waits = null;
  // Several things happen at once: the page is asked for when a moment has passed.
  source.addEventListener("message", () => { waits ??= setTimeout(() => { waits = null; renew(); }, 400); });
  live.addEventListener("focusout", () => setTimeout(() => { if (behind) renew(); }));
}
// Days are drawn oldest first: where they do not fit, the newest are what one sees.
for (const days of document.querySelectorAll("svg.days")) days.parentElement.scrollLeft = days.parentElement.scrollWidth;
