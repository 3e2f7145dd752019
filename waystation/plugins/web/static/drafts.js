// What is typed into a form with `data-keep` survives a reload of its page in this tab, until the form is taken. Files
// and secrets are not stored: before chosen files are lost, the browser asks.
"use strict";
const NOT_KEPT = new Set(["hidden", "password", "file", "submit"]);
let leaving = false;

const keptForms = () => [...document.querySelectorAll("form[data-keep]")];
// A follow-up and a schedule that repeats a task have forms of their own at the same path.
const draftKey = (form) => {
  const about = new URLSearchParams(location.search);
  return ["draft", location.pathname, about.get("follow") ?? about.get("task") ?? "", form.id].join(" ");
};
const dropDraft = (form) => sessionStorage.removeItem(draftKey(form));

// A plan may have other steps than the server's: all its fields are kept. Of other forms, what was typed.
const keepDraft = (form) => {
  const typed = fieldsOf(form).filter((field) => field.name && !NOT_KEPT.has(field.type) && isTyped(field));
  if (!typed.length) return dropDraft(form);
  const whole = [...new FormData(form)].filter(([name, value]) => name !== "mark" && typeof value === "string");
  const fields = typed.map((field) => [field.name, isTicked(field) ? field.value : null, isTicked(field) ? field.checked : field.value]);
  try {
    sessionStorage.setItem(draftKey(form), JSON.stringify(form.dataset.keep ? whole : fields));
  } catch {
    dropDraft(form);
  }
};

const restoreFields = (form, draft) => {
  for (const [name, choice, typed] of draft) {
    const field = fieldsOf(form).find((one) => one.name === name && (choice === null ? !isTicked(one) : isTicked(one) && one.value === choice));
    if (!field || NOT_KEPT.has(field.type)) continue;
    if (isTicked(field)) field.checked = typed;
    else field.value = typed;
    for (let part = field.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
  }
  if (form.elements.add?.value) chooseAmount(form.elements.add);
};

// The server makes the form of a plan from its fields, as it does when a step is added.
const restorePlan = async (form, draft) => {
  const body = new FormData();
  for (const [name, value] of draft) body.append(name, value);
  if (body.get("request_id") !== form.elements.request_id.value) return dropDraft(form);
  body.append("mark", form.elements.mark.value);
  const release = hold(form);
  const answer = await post(form.dataset.keep, body);
  release();
  if (answer && answersOk(answer)) read(form, answer);
};

for (const form of keptForms()) {
  const draft = sessionStorage.getItem(draftKey(form));
  if (!draft || form.matches("[data-back]")) continue;
  if (form.dataset.keep) restorePlan(form, JSON.parse(draft));
  else restoreFields(form, JSON.parse(draft));
}

document.addEventListener("input", ({ target }) => target.form?.matches("[data-keep]") && keepDraft(target.form));
document.addEventListener("submit", ({ target }) => {
  if (!target.matches(".who")) return;
  for (const key of Object.keys(sessionStorage)) if (key.startsWith("draft ")) sessionStorage.removeItem(key);
});
addEventListener("beforeunload", (event) => {
  const chosen = [...uploads].some(([zone, files]) => zone.isConnected && files.items.length);
  if (chosen && !leaving) event.preventDefault();
});
