// A form is sent without leaving its page: what was typed and chosen stays there until it is taken.
"use strict";
const GONE = "The server does not answer, and may not have had this. What you typed is still here: send it again once it answers.";
const SIGNED_OUT = "You are signed out: sign in in another tab, then send this again. What you typed is still here.";

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
    place.replaceWith(files);
  }
  form.replaceWith(fresh);
  asTyped(fresh);
  (fresh.querySelector("[aria-invalid]") ?? fresh.querySelector(".fault"))?.focus();
};

const send = async (form, to) => {
  const answer = await fetch(to, { method: "POST", body: new FormData(form), headers: { accept: "text/html" } }).catch(() => null);
  if (answer?.redirected) return answer.url;
  const text = await answer?.text().catch(() => null);
  if (!text) return complain(form, GONE);
  const page = new DOMParser().parseFromString(text, "text/html");
  const fresh = page.getElementById(form.id);
  if (fresh) return swap(form, fresh);
  return complain(form, answer.status === 401 ? SIGNED_OUT : page.querySelector(".detail")?.textContent ?? `The server answers ${answer.status}: nothing was taken.`);
};

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.matches("[data-stay]")) return;
  event.preventDefault();
  if (form.getAttribute("aria-busy") === "true") return;
  form.setAttribute("aria-busy", "true");
  const next = await send(form, event.submitter?.getAttribute("formaction") || form.getAttribute("action"));
  if (next) location.assign(next);
  else form.removeAttribute("aria-busy");
});

// What is too large is said before it is sent.
document.addEventListener("change", ({ target }) => {
  if (target.type !== "file") return;
  const bytes = [...target.files].reduce((sum, file) => sum + file.size, 0);
  const most = Number(target.dataset.bytes), files = Number(target.dataset.files);
  const large = `These files have ${(bytes / 1e6).toFixed(1)} MB, and a form takes ${Math.floor(most / 1e6)} MB. Give fewer, or use \`waystation submit --docs\`.`;
  const many = `These are ${target.files.length} files, and a form takes ${files}. Give fewer, or use \`waystation submit --docs\`.`;
  target.setCustomValidity(bytes > most ? large : target.files.length > files ? many : "");
});
