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
    const answer = await fetch(location.href, { credentials: "same-origin" }).catch(() => null);
    if (!answer || !answer.ok) return lost();
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.getElementById("live");
    behind = writing();
    if (!fresh || behind) return;
    document.getElementById("lost")?.remove();
    live.replaceChildren(...fresh.childNodes);
    if (!fresh.dataset.events) source.close();
    else if (source.readyState === EventSource.CLOSED) lost();
  };
  // What is not followed any more must not look as if it were.
  const lost = () => {
    if (document.getElementById("lost")) return;
    const remark = document.createElement("p");
    remark.id = "lost";
    remark.className = "remark";
    remark.setAttribute("role", "status");
    remark.textContent = "This page is not followed any more: the server was stopped, or you are signed out. Load it again.";
    live.before(remark);
  };
  source.addEventListener("error", () => { if (source.readyState === EventSource.CLOSED) renew(); });
  let waits = null;
  // Several things happen at once: the page is asked for when a moment has passed.
  source.addEventListener("message", () => { waits ??= setTimeout(() => { waits = null; renew(); }, 400); });
  live.addEventListener("focusout", () => setTimeout(() => { if (behind) renew(); }));
}
// Days are drawn oldest first: where they do not fit, the newest are what one sees.
for (const days of document.querySelectorAll("svg.days")) days.parentElement.scrollLeft = days.parentElement.scrollWidth;
