/* The list of conversations in the sidebar: open, rename in place, delete after a question. */

import { el, icon } from "./dom.js";
import { period } from "./figures.js";

const LONGEST_TITLE = 120;

export class ConversationList {
  /** `actions` has `open(id)`, `rename(id, title)` and `remove(id)`. `dialog` asks before a deletion. */
  constructor(root, dialog, actions) {
    this.root = root;
    this.dialog = dialog;
    this.actions = actions;
    this.shown = { conversations: [], current: null, busy: new Set() };
    this.drawn = null;
    this.renaming = false;
  }

  show(shown) {
    this.shown = shown;
    // Drawing anew what has not changed would take an entry away from under the pointer.
    const state = JSON.stringify([shown.conversations, shown.current, [...shown.busy]]);
    if (this.renaming || state === this.drawn) return;
    this.drawn = state;
    this.draw();
  }

  draw() {
    const { conversations } = this.shown;
    const focused = this.focusedPart();
    const groups = new Map();
    for (const conversation of conversations) {
      const heading = period(conversation.updated_at);
      groups.set(heading, [...(groups.get(heading) ?? []), conversation]);
    }
    const parts = [...groups].flatMap(([heading, members], index) => [
      el("h2", { id: `period-${index}` }, heading),
      el("ul", { "aria-labelledby": `period-${index}` }, ...members.map((conversation) => this.entry(conversation))),
    ]);
    this.root.replaceChildren(...(parts.length ? parts : [el("p", { class: "none" }, "Your conversations will be listed here.")]));
    if (focused) this.root.querySelector(focused)?.focus();
  }

  /** A selector of the control that has the focus, so that drawing the list anew does not lose it. */
  focusedPart() {
    const control = document.activeElement;
    const id = this.root.contains(control) ? control.closest("li")?.dataset.id : null;
    return id ? `[data-id="${CSS.escape(id)}"] [data-part="${control.dataset.part}"]` : null;
  }

  entry({ id, title }) {
    const name = title || "Untitled";
    const current = id === this.shown.current;
    const tool = (part, label, run) =>
      el("button", { type: "button", class: "button is-icon", "data-part": part, title: label, "aria-label": `${label}: ${name}`, onclick: run }, icon(part));
    const entry = el(
      "li",
      { "data-id": id, class: this.shown.busy.has(id) ? "is-busy" : null },
      el(
        "button",
        { type: "button", class: "open", "data-part": "open", dir: "auto", title: name, "aria-current": current && "true", onclick: () => this.actions.open(id) },
        name,
      ),
      tool("rename", "Rename", () => this.beginRename(entry, id, title)),
      tool("delete", "Delete", () => this.confirmDelete(id, name)),
    );
    return entry;
  }

  beginRename(entry, id, title) {
    this.renaming = true;
    const input = el("input", { class: "rename", maxlength: LONGEST_TITLE, "aria-label": "New name", dir: "auto" });
    input.value = title;
    const end = (accepted) => {
      if (!this.renaming) return;
      this.renaming = false;
      const wanted = input.value.trim();
      if (accepted && wanted && wanted !== title) this.actions.rename(id, wanted);
      this.draw();
      if (accepted !== "left") this.root.querySelector(`[data-id="${CSS.escape(id)}"] [data-part="rename"]`)?.focus();
    };
    input.addEventListener("keydown", (event) => {
      if (event.isComposing || (event.key !== "Enter" && event.key !== "Escape")) return;
      event.preventDefault();
      event.stopPropagation(); // Escape would stop an answer as well
      end(event.key === "Enter");
    });
    input.addEventListener("blur", () => end("left"));
    entry.replaceChildren(input);
    input.focus();
    input.select();
  }

  confirmDelete(id, name) {
    this.dialog.querySelector("#delete-name").textContent = name;
    this.dialog.returnValue = "keep";
    this.dialog.showModal();
    this.dialog.onclose = () => this.dialog.returnValue === "delete" && this.actions.remove(id);
  }
}
