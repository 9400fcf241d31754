/* Which models there are, which one is asked, and whether it is ready. Polls while it warms up. */

import { listModels, SignedOut } from "./api.js";
import { el } from "./dom.js";

const POLL_MS = 3000;
const STAND_IN = /^smollm2-135m/i; // the demo's model, far smaller than anything one would put to work

export class Models {
  /** `onChange()` is called when the models or their readiness changed, `onSignedOut()` when nobody is signed in. */
  constructor({ slot, caveat, onChange, onSignedOut }) {
    Object.assign(this, { slot, caveat, onChange, onSignedOut });
    this.models = [];
    this.chosen = null;
    this.timer = null;
    this.drawn = "";
  }

  get current() {
    return this.models.find((model) => model.name === this.chosen) ?? this.models[0] ?? null;
  }

  /** Not ready only where the server says so: before it has said anything, a question may be tried. */
  get isWarming() {
    return this.current?.ready === false;
  }

  /** The name to send along; null leaves the choice to the server. */
  get name() {
    return this.models.length > 1 ? this.current.name : null;
  }

  async refresh() {
    clearTimeout(this.timer);
    try {
      this.models = await listModels();
    } catch (error) {
      if (error instanceof SignedOut) {
        this.onSignedOut();
        return;
      }
    }
    this.draw();
    this.onChange();
    if (this.isWarming) this.timer = setTimeout(() => this.refresh(), POLL_MS);
  }

  draw() {
    const names = this.models.map((model) => model.name).join("\n");
    if (names !== this.drawn) this.slot.replaceChildren(...this.chooser());
    this.drawn = names;
    this.caveat.textContent = caveatOf(this.current);
  }

  chooser() {
    if (this.models.length < 2) return this.models.map((model) => model.name);
    const choose = ({ target }) => {
      this.chosen = target.value;
      this.draw();
      this.refresh();
    };
    const options = this.models.map(({ name }) => el("option", { value: name, selected: name === this.current.name }, name));
    return [el("select", { "aria-label": "Model", onchange: choose }, ...options)];
  }
}

function caveatOf(model) {
  if (model?.simulated) return "Answers are simulated: made-up text at a model’s pace.";
  if (model && STAND_IN.test(model.name)) return "The demo model is a small stand-in and is often wrong.";
  return "Answers can be wrong. Check what matters.";
}
