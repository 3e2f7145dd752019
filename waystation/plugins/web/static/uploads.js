// Files and folders that are chosen or dropped for a task: each is read by the server before the task starts, so that
// a person sees which can be used. The list belongs to the page, not to the form: a refused form does not lose it.
"use strict";
const UNUSABLE = new Set(["scanned", "locked", "too large", "unreadable"]);
const ORDER = ["ready", "scanned", "locked", "too large", "unreadable", "not checked", "reading"];
const MEGABYTE = 1e6, FORM_OVERHEAD = 200_000, TEXT_OVERHEAD = 400;
// One request reads few small files, or one large one, so that each shows its state soon. The server reads two at once.
const FILES_OF_A_CHECK = 4, BYTES_OF_A_CHECK = MEGABYTE, CHECKS_AT_ONCE = 2;

const element = (tag, properties, ...children) => {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
};
const megabytes = (bytes) => `${(bytes / MEGABYTE).toFixed(1)} MB`;

// All files of a dropped folder, with their paths. Hidden ones are left out, as `submit --docs` does.
const filesOf = async (entry, path = "") => {
  if (entry.name.startsWith(".")) return [];
  if (entry.isFile) return [[await new Promise((done, fail) => entry.file(done, fail)), path + entry.name]];
  const reader = entry.createReader(), found = [];
  for (let batch; (batch = await new Promise((done, fail) => reader.readEntries(done, fail))).length;) found.push(...batch);
  return (await Promise.all(found.map((one) => filesOf(one, `${path}${entry.name}/`)))).flat();
};

class Uploads {
  constructor(zone) {
    this.zone = zone;
    this.items = [];
    this.waiting = [];
    this.checks = 0;
    this.held = false;
    this.changed = () => {};
    this.most = Number(zone.dataset.bytes) - FORM_OVERHEAD;
    this.mostFiles = Number(zone.dataset.files);
    this.inputs = [...zone.querySelectorAll("input[type=file]")];
    this.sum = zone.querySelector(".sum");
    this.list = zone.querySelector("ul");
    this.tells = zone.querySelector(".tells");
    for (const input of this.inputs) {
      input.addEventListener("change", () => {
        const chosen = [...input.files].map((file) => [file, file.webkitRelativePath || file.name]);
        input.value = "";
        this.add(chosen.filter(([, path]) => !path.split("/").some((part) => part.startsWith("."))));
      });
    }
    zone.addEventListener("dragover", (event) => { event.preventDefault(); zone.classList.add("over"); });
    zone.addEventListener("dragleave", () => zone.classList.remove("over"));
    zone.addEventListener("drop", async (event) => {
      event.preventDefault();
      zone.classList.remove("over");
      // Both are only available before the first wait. A file without a folder needs no entry, and may have none.
      const items = [...event.dataTransfer.items].filter((item) => item.kind === "file");
      const dropped = items.map((item) => [item.webkitGetAsEntry(), item.getAsFile()]);
      this.add((await Promise.all(dropped.map(([entry, file]) => (
        entry?.isDirectory ? filesOf(entry) : file.name.startsWith(".") ? [] : [[file, file.name]]
      )))).flat());
    });
  }

  get usable() { return this.items.filter((one) => !UNUSABLE.has(one.state)); }
  get unusable() { return this.items.filter((one) => UNUSABLE.has(one.state)); }

  add(chosen) {
    if (this.held) return;
    const again = new Set(chosen.map(([, path]) => path));
    this.items = this.items.filter((one) => !(one.lost && again.has(one.path)));
    const known = new Set(this.items.map((one) => one.path));
    const fresh = chosen.filter(([, path]) => !known.has(path)).map(([file, path]) => {
      const tooLarge = file.size > this.most;
      const reason = `${megabytes(file.size)}; a form takes at most ${megabytes(this.most)}. Use \`waystation submit --docs\` for this file`;
      return { file, path, state: tooLarge ? "too large" : "reading", reason: tooLarge ? reason : "" };
    });
    this.items.push(...fresh);
    this.show();
    this.check(fresh.filter((one) => one.state === "reading"));
  }

  // Reads files in small parts. The server remembers their texts for a while: it need not read them again to start.
  check(items) {
    this.waiting.push(...items);
    while (this.checks < CHECKS_AT_ONCE && this.waiting.length) this.checkNext();
  }

  async checkNext() {
    this.checks += 1;
    while (this.waiting.length) {
      let bytes = 0, count = 0;
      while (count < Math.min(FILES_OF_A_CHECK, this.waiting.length)) {
        bytes += this.waiting[count].file.size;
        if (count && bytes > BYTES_OF_A_CHECK) break;
        count += 1;
      }
      await this.checkAtOnce(this.waiting.splice(0, count));
      this.show();
    }
    this.checks -= 1;
  }

  // While the form is sent, no file can be added or removed.
  hold(held) {
    this.held = held;
    for (const one of this.zone.querySelectorAll("button, input")) one.disabled = held;
  }

  // Resolves when every file has been read, or `signal` is aborted. Calls `tell` with the numbers of files read and of all.
  waitUntilRead(tell, signal) {
    return new Promise((done) => {
      this.changed = () => {
        const reading = this.items.filter((one) => one.state === "reading").length;
        tell(this.items.length - reading, this.items.length);
        if (reading && !signal.aborted) return;
        this.changed = () => {};
        done();
      };
      signal.addEventListener("abort", () => this.changed());
      this.changed();
    });
  }

  // A file that was changed, moved or deleted after it was chosen cannot be sent, and the browser does not say which.
  async findLost(items) {
    const read = await Promise.all(items.map(({ file }) => file.slice(0, 1).arrayBuffer().catch(() => null)));
    const lost = items.filter((_, place) => !read[place]);
    const reason = "changed, moved or deleted after it was chosen; choose it again";
    for (const one of lost) Object.assign(one, { state: "unreadable", reason, lost: true });
    if (lost.length) this.show();
    return lost;
  }

  async checkAtOnce(chosen) {
    const lost = await this.findLost(chosen), items = chosen.filter((one) => !lost.includes(one));
    if (!items.length) return;
    const form = new FormData();
    for (const one of items) form.append("documents", one.file, one.path);
    const answer = await fetch("/v1/documents/check", { method: "POST", body: form }).catch(() => null);
    const found = await answer?.json().catch(() => null);
    if (!answer?.ok || found?.files?.length !== items.length) {
      const reason = found?.detail ?? "the server does not answer; the file is read when the task starts";
      for (const one of items) Object.assign(one, { state: "not checked", reason });
      return;
    }
    items.forEach((one, place) => Object.assign(one, found.files[place], { path: one.path }));
  }

  remove(item) {
    this.items = this.items.filter((one) => one !== item);
    this.waiting = this.waiting.filter((one) => one !== item);
    this.show();
    (this.list.querySelector("button") ?? this.inputs[0]).focus();
  }

  show() {
    const counts = new Map(ORDER.map((state) => [state, this.items.filter((one) => one.state === state).length]));
    const parts = [...counts].filter(([, count]) => count).map(([state, count]) => `${count} ${state}`);
    this.sum.textContent = parts.join(", ");
    this.sum.hidden = this.list.hidden = !this.items.length;
    this.list.replaceChildren(...[...this.unusable, ...this.usable].map((one) => this.row(one)));
    const tokens = this.usable.reduce((sum, one) => sum + (one.tokens ?? 0), 0);
    const left = this.unusable.length ? "Files that cannot be used are left out, and the report lists them. " : "";
    this.tells.textContent = tokens ? `${left}Reading all files once takes about ${tokens.toLocaleString("en")} tokens.` : left;
    this.limit();
    this.changed();
  }

  row(one) {
    const chip = element("span", { className: `phase ${one.state.split(" ").at(-1)}`, textContent: one.state });
    const removes = element("button", { type: "button", className: "plain", textContent: "Remove" });
    removes.setAttribute("aria-label", `Remove ${one.path}`);
    removes.disabled = this.held;
    removes.addEventListener("click", () => this.remove(one));
    const row = element("li", {}, element("span", { className: "name", textContent: one.path }), chip, removes);
    // A part is named with its file, and the file's name stands before it already.
    const parts = (one.left_out ?? []).map(({ name, reason }) => {
      const part = name.startsWith(one.path) ? name.slice(one.path.length).replace(/^, /, "") : name;
      return part ? `${part}: ${reason}` : reason;
    });
    const why = [one.reason, ...parts].filter(Boolean).join("; ");
    if (why) row.append(element("span", { className: "why", textContent: why }));
    return row;
  }

  // What one form cannot take is said at the field, before anything is sent.
  limit() {
    const usable = this.usable, bytes = usable.reduce((sum, one) => sum + one.file.size + TEXT_OVERHEAD, 0);
    const large = `These files have ${megabytes(bytes)}, but a form takes at most ${megabytes(this.most)}. Remove some, or use \`waystation submit --docs\`.`;
    const many = `There are ${usable.length} files, but a form takes at most ${this.mostFiles}. Remove some, or use \`waystation submit --docs\`.`;
    const words = bytes > this.most ? large : usable.length > this.mostFiles ? many : "";
    this.inputs[0].setCustomValidity(words);
  }

  // Puts the files into a form that is sent, with the names of those that are left out.
  fill(form) {
    form.delete("documents");
    for (const one of this.usable) form.append("documents", one.file, one.path);
    const left = this.unusable.map((one) => ({ name: one.path, reason: one.reason || one.state }));
    form.append("left_out", JSON.stringify(left));
  }
}

const uploads = new Map([...document.querySelectorAll("[data-uploads]")].map((zone) => [zone, new Uploads(zone)]));

// Files of other forms: what is too large is said before it is sent.
document.addEventListener("change", ({ target }) => {
  if (target.type !== "file" || target.closest("[data-uploads]")) return;
  const bytes = [...target.files].reduce((sum, file) => sum + file.size, 0);
  const most = Number(target.dataset.bytes), files = Number(target.dataset.files);
  const large = `These files have ${megabytes(bytes)}, but a form takes at most ${Math.floor(most / MEGABYTE)} MB. Choose fewer.`;
  const many = `There are ${target.files.length} files, but a form takes at most ${files}. Choose fewer.`;
  target.setCustomValidity(bytes > most ? large : target.files.length > files ? many : "");
});
