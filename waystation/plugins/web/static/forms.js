// A form is sent without leaving its page: what was typed and chosen stays there until it is accepted.
"use strict";
const GONE = "The server does not answer, and may not have received this. Your text is still here: send it again when the server answers.";
const SIGNED_OUT = "You are signed out: sign in in another tab, then send this again. Your text is still here.";

const complain = (form, words) => {
  const line = form.querySelector(":scope > .fault") ?? document.createElement("p");
  line.className = "fault";
  line.tabIndex = -1;
  line.setAttribute("role", "alert");
  line.textContent = words;
  form.prepend(line);
  line.focus();
};

// The form as it came back, with the files that it had: no server can put those in.
const swap = (form, fresh) => {
  for (const files of form.querySelectorAll("input[type=file]")) {
    const place = fresh.querySelector(`input[name="${files.name}"]`);
    if (!place) continue;
    for (const name of ["aria-invalid", "aria-describedby"]) {
      if (place.hasAttribute(name)) files.setAttribute(name, place.getAttribute(name));
      else files.removeAttribute(name);
    }
    if (!files.closest("[data-uploads]")) place.replaceWith(files);
  }
  const zone = form.querySelector("[data-uploads]");
  if (zone) fresh.querySelector("[data-uploads]")?.replaceWith(zone);
  form.replaceWith(fresh);
  asTyped(fresh);
  (fresh.querySelector("[aria-invalid]") ?? fresh.querySelector(".fault") ?? fresh.querySelector("[autofocus]"))?.focus();
};

// A page that answers without an address of its own, such as that of a new link, which is shown once.
const show = (page) => {
  const main = page.querySelector("main");
  document.querySelector("main").replaceWith(main);
  localTimes(main);
  main.tabIndex = -1;
  main.focus();
};

// A form that is being sent says what happens, and has neither a button nor the faults of the time before.
const idle = (form) => {
  form.removeAttribute("aria-busy");
  for (const one of form.querySelectorAll("button[data-idle]")) { one.disabled = false; delete one.dataset.idle; }
  form.querySelector(":scope > .busy")?.remove();
};
const wait = (form) => {
  form.setAttribute("aria-busy", "true");
  for (const one of form.querySelectorAll(".fault")) one.remove();
  for (const one of form.querySelectorAll("[aria-invalid]")) {
    one.removeAttribute("aria-invalid");
    one.removeAttribute("aria-describedby");
  }
  for (const one of form.querySelectorAll("button:enabled")) { one.disabled = true; one.dataset.idle = ""; }
  if (!form.dataset.busy) return;
  const line = Object.assign(document.createElement("p"), { className: "busy small" });
  line.setAttribute("role", "status");
  form.append(line);
  line.textContent = form.dataset.busy;
};
// A page that comes back as the browser kept it: its form is no longer being sent.
addEventListener("pageshow", ({ persisted }) => {
  if (persisted) document.querySelectorAll("form[aria-busy=true]").forEach(idle);
});

const send = async (form, to) => {
  const body = new FormData(form);
  for (const [zone, files] of uploads) if (form.contains(zone)) files.fill(body);
  const answer = await fetch(to, { method: "POST", body, headers: { accept: "text/html" } }).catch(() => null);
  if (answer?.redirected) return answer.url;
  const text = await answer?.text().catch(() => null);
  if (!text) return complain(form, GONE);
  const page = new DOMParser().parseFromString(text, "text/html");
  const fresh = page.getElementById(form.id);
  if (answer.ok && !fresh?.matches("[data-back]")) return show(page);
  if (fresh) return swap(form, fresh);
  return complain(form, answer.status === 401 ? SIGNED_OUT : page.querySelector(".detail")?.textContent ?? `The server answers ${answer.status}: nothing was changed.`);
};

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.matches("[data-stay]")) return;
  event.preventDefault();
  if (form.getAttribute("aria-busy") === "true") return;
  const pressed = event.submitter;
  const sending = send(form, pressed?.getAttribute("formaction") || form.getAttribute("action"));
  wait(form);
  const next = await sending;
  if (next) return location.assign(next);
  idle(form);
  if (document.activeElement === document.body) pressed?.focus();
});
