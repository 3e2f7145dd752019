// A form is sent without leaving its page: what was typed and chosen stays there until it is accepted.
"use strict";
const GONE = "The server does not answer, and may not have received this. Your text is still here: send it again when the server answers.";
const SIGNED_OUT = "You are signed out: sign in in another tab, then send this again. Your text is still here.";

const LOST = "Not sent: files were changed, moved or deleted after they were chosen. The list says which. Choose them again, or send the form without them.";

const complain = (form, words) => {
  const line = form.querySelector(":scope > [role=alert]") ?? document.createElement("p");
  line.className = "fault";
  line.toggleAttribute("data-unanswered", words === GONE);
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
  if (fresh.matches("[data-keep]")) keepDraft(fresh);
  (fresh.querySelector("[aria-invalid]") ?? fresh.querySelector(".fault") ?? fresh.querySelector("[autofocus]"))?.focus();
};

// A page that answers without an address of its own, such as that of a new link, which is shown once.
const show = (page) => {
  const main = page.querySelector("main");
  document.querySelector("main").replaceWith(main);
  localTimes(main);
  if (events) countWaiting();
  enableCopying(main);
  main.tabIndex = -1;
  main.focus();
};

// A form whose request is over: what became of it stays in sight, with what was typed, and the page is renewed.
const close = (form, over) => {
  form.remove();
  withoutBar("over");
  bar("over", "", ...over.childNodes, button("Close", () => withoutBar("over")));
  localTimes(bars);
  document.querySelector("#over button").focus();
  live?.dispatchEvent(new Event("renew"));
};

// Sends a body and says how many of its bytes have left; `fetch` cannot. Returns null if there is no answer.
const post = (to, body, sent = () => {}) => new Promise((done) => {
  const request = new XMLHttpRequest();
  request.open("POST", to);
  request.setRequestHeader("accept", "text/html");
  request.upload.addEventListener("progress", ({ loaded }) => sent(loaded));
  request.addEventListener("loadend", () => done(request.status ? request : null));
  request.send(body);
});
const answersOk = (answer) => answer.status >= 200 && answer.status < 300;
const isLed = (answer, to) => answer.responseURL !== new URL(to, location.href).href;

// How much of the files has left the browser, in the words of the button that sends them.
const tellSending = (button, files) => {
  const sizes = files.map((one) => one.size), all = files.length, noun = all === 1 ? "file" : "files";
  return (bytes) => {
    let left = bytes;
    const gone = sizes.findIndex((size) => (left -= size) < 0), count = gone < 0 ? all : gone;
    button.textContent = count < all ? `Sending ${count} of ${all} ${noun} …` : "Starting …";
  };
};

// Waits until the server has read the chosen files, which a person may stop. Returns whether it has.
const waitUntilRead = async (zones, sender) => {
  const stopping = new AbortController(), stop = button("Stop", () => stopping.abort());
  const tell = (read, all) => {
    if (read < all) sender.textContent = `Read ${read} of ${all} ${all === 1 ? "file" : "files"} …`;
    if (read < all && !stop.isConnected) sender.after(stop);
  };
  for (const one of zones) await one.waitUntilRead(tell, stopping.signal);
  stop.remove();
  return !stopping.signal.aborted;
};

// Returns the address of the next page, if the form was taken.
const send = async (form, body, sender) => {
  const to = sender.getAttribute("formaction") || form.getAttribute("action");
  const zones = [...uploads].filter(([zone]) => form.contains(zone)).map(([, files]) => files);
  // What can be checked without the files is checked before they are sent.
  const first = form.dataset.check && zones.some((one) => one.usable.length) ? await check(form, body) : "";
  if (first !== "") return first;
  if (!await waitUntilRead(zones, sender)) return null;
  const files = zones.flatMap((one) => one.usable.map(({ file }) => file));
  const lost = await Promise.all(zones.map((one) => one.findLost(one.usable)));
  if (lost.flat().length) {
    complain(form, LOST);
    return null;
  }
  for (const one of zones) one.fill(body);
  const sent = files.length ? tellSending(sender, files) : () => {};
  sent(0);
  const answer = await post(to, body, sent);
  if (answer && isLed(answer, to)) return answer.responseURL;
  return read(form, answer);
};

// Returns "" if nothing is wrong, null if something is, which the form then says.
const check = async (form, filled) => {
  const body = new FormData();
  for (const [name, value] of filled) if (typeof value === "string") body.append(name, value);
  const answer = await post(form.dataset.check, body);
  return answer?.status === 204 ? "" : read(form, answer);
};

const read = (form, answer) => {
  const text = answer?.responseText;
  if (!text) { complain(form, GONE); return null; }
  const page = new DOMParser().parseFromString(text, "text/html");
  const fresh = page.getElementById(form.id);
  if (answersOk(answer) && !fresh?.matches("[data-back]")) {
    dropDraft(form);
    show(page);
  }
  else if (fresh?.matches("[data-over]")) {
    dropDraft(form);
    close(form, fresh);
  }
  else if (fresh) swap(form, fresh);
  else complain(form, answer.status === 401 ? SIGNED_OUT : page.querySelector(".detail")?.textContent ?? `The server answers ${answer.status}: nothing was changed.`);
  return null;
};

const withoutFaults = (form) => {
  for (const one of form.querySelectorAll(".fault")) one.remove();
  for (const one of form.querySelectorAll("[aria-invalid]")) {
    one.removeAttribute("aria-invalid");
    one.removeAttribute("aria-describedby");
  }
};

// While a form is sent, it says what happens, and its buttons cannot be pressed again. The faults of the time before go.
const hold = (form) => {
  withoutFaults(form);
  const buttons = [...form.querySelectorAll("button:not([type=button])")].map((one) => [one, one.textContent]);
  const zones = [...uploads].filter(([zone]) => form.contains(zone)).map(([, files]) => files);
  form.setAttribute("aria-busy", "true");
  for (const [one] of buttons) one.disabled = true;
  for (const one of zones) one.hold(true);
  const line = Object.assign(document.createElement("p"), { className: "busy small" });
  line.setAttribute("role", "status");
  if (form.dataset.busy) form.append(line);
  line.textContent = form.dataset.busy ?? "";
  return () => {
    form.removeAttribute("aria-busy");
    line.remove();
    for (const [one, words] of buttons) Object.assign(one, { disabled: false, textContent: words });
    for (const one of zones) one.hold(false);
  };
};

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.matches("[data-stay]")) return;
  event.preventDefault();
  if (form.getAttribute("aria-busy") === "true") return;
  const body = new FormData(form);
  const release = hold(form);
  const sender = event.submitter ?? form.querySelector("button:not([type=button])");
  const next = await send(form, body, sender);
  if (!next) {
    release();
    if (document.activeElement === document.body) sender.focus();
    return;
  }
  dropDraft(form);
  leaving = true;
  // A browser may show this page again as it was left.
  addEventListener("pageshow", ({ persisted }) => { if (persisted) { leaving = false; release(); } }, { once: true });
  location.assign(next);
});
