/* The line above the question box that says what is wrong with the connection or the model. */

import { el } from "./dom.js";

export class StatusLine {
  constructor({ root, text, action }) {
    Object.assign(this, { root, text, action });
    this.timer = null;
    this.shown = null;
  }

  /** `tone` is wait or bad; `until` (ms since the epoch) counts down; `action` is `{label, run}` or `{label, href}`. */
  show({ tone, text, until = null, action = null }) {
    const state = JSON.stringify([tone, text, until, action?.label]);
    if (state === this.shown) return;
    this.shown = state;
    clearInterval(this.timer);
    this.root.hidden = false;
    this.root.dataset.tone = tone;
    // The seconds are kept from screen readers, which would read them out every second.
    const seconds = el("span", { "aria-hidden": "true" });
    this.text.replaceChildren(text, seconds);
    this.action.replaceChildren(...(action ? [this.control(action)] : []));
    if (until === null) return;
    const tick = () => (seconds.textContent = ` Next try in ${Math.max(0, Math.ceil((until - Date.now()) / 1000))} s.`);
    this.timer = setInterval(tick, 500);
    tick();
  }

  control({ label, run, href }) {
    if (href) return el("a", { class: "button is-outline", href }, label);
    return el("button", { type: "button", class: "button is-outline", onclick: run }, label);
  }

  clear() {
    clearInterval(this.timer);
    this.shown = null;
    this.root.hidden = true;
    this.text.replaceChildren();
    this.action.replaceChildren();
  }
}
