/* The turns of the open conversation, and where the reader stands in them. */

import { el } from "./dom.js";
import { TurnView } from "./turn-view.js";

const NEAR_END = 48; // pixels

export class Thread {
  constructor({ scroller, turns, welcome, loading, jump, actions }) {
    Object.assign(this, { scroller, list: turns, welcome, loading, jump });
    this.actions = { ...actions, grown: () => this.follow() };
    this.views = new Map();
    this.following = true;
    scroller.addEventListener("scroll", () => this.scrolled(), { passive: true });
    jump.addEventListener("click", () => {
      this.toEnd();
      scroller.focus();
    });
    new ResizeObserver(() => this.follow()).observe(scroller);
  }

  /** Shows a conversation's turns from its end; null while they are being fetched. */
  show(turns) {
    this.views.clear();
    this.list.replaceChildren();
    this.loading.replaceChildren("Opening the conversation…");
    this.loading.hidden = turns !== null;
    this.welcome.hidden = turns === null || turns.length > 0;
    for (const turn of turns ?? []) this.append(turn);
    this.toEnd();
  }

  /** Says in the place of the turns why they are not there. */
  showFailure(text, again) {
    this.loading.hidden = false;
    this.loading.replaceChildren(text, " ", el("button", { type: "button", class: "button is-outline", onclick: again }, "Try again"));
  }

  append(turn) {
    this.welcome.hidden = true;
    const view = new TurnView(turn, this.actions);
    this.views.set(turn, view);
    this.list.append(view.element);
  }

  update(turn) {
    this.views.get(turn)?.update();
  }

  /** Asks a turn anew, in its place at the end. */
  restart(turn) {
    const view = this.views.get(turn);
    view.reset();
    this.list.append(view.element);
    this.toEnd();
  }

  remove(turn) {
    this.views.get(turn)?.element.remove();
    this.views.delete(turn);
    this.welcome.hidden = this.views.size > 0;
  }

  /** While busy, nothing can be asked again. */
  setBusy(busy) {
    this.list.toggleAttribute("data-busy", busy);
  }

  scrolled() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    this.following = scrollHeight - scrollTop - clientHeight < NEAR_END;
    this.jump.hidden = this.following;
  }

  follow() {
    if (this.following) this.scroller.scrollTop = this.scroller.scrollHeight;
    else this.scrolled();
  }

  toEnd() {
    this.following = true;
    this.jump.hidden = true;
    this.follow();
  }
}
