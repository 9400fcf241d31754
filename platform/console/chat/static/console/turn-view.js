/* Shows one turn: the question, the answer as it arrives, what went wrong, and the figures of the answer. */

import { copyFrom } from "./clipboard.js";
import { el, icon } from "./dom.js";
import { cost, count, duration, findings, shortId } from "./figures.js";
import { MarkdownView } from "./markdown.js";
import { explain } from "./refusals.js";

const LONG_QUESTION = 1500;
const SHARE = 5; // at least this many times as long between two renderings as one takes

export class TurnView {
  /** `actions` has `retry(turn)`, `edit(turn)`, `say(text)` and `grown()`, called after anything became taller. */
  constructor(turn, actions) {
    this.turn = turn;
    this.actions = actions;
    this.prose = el("div", { class: "prose" });
    this.thinking = el("p", { class: "thinking" }, "Thinking", el("span", { class: "dots", "aria-hidden": "true" }));
    this.promptMasked = el("p", { class: "masked", hidden: true });
    this.answerMasked = el("p", { class: "masked", hidden: true });
    this.notice = el("div", { class: "notice", hidden: true });
    this.footer = el("footer", { class: "facts" });
    this.element = el(
      "article",
      { class: "turn" },
      this.question(),
      this.promptMasked,
      el("div", { class: "answer" }, el("h3", { class: "unseen" }, "Answer"), this.thinking, this.prose),
      this.answerMasked,
      this.notice,
      this.footer,
    );
    this.element.addEventListener("click", (event) => this.copyCode(event));
    this.drawn = null;
    this.reset();
  }

  question() {
    const long = this.turn.prompt.length > LONG_QUESTION;
    const text = el("p", { dir: "auto", class: "question-text", tabindex: long ? "0" : null }, this.turn.prompt);
    return el("div", { class: "question" }, el("h3", { class: "unseen" }, "You asked"), text);
  }

  /** Forgets what was rendered: the turn begins anew. */
  reset() {
    this.prose.replaceChildren();
    this.markdown = new MarkdownView(this.prose);
    this.pending = null;
    this.cost = 0;
    this.update();
  }

  update() {
    const { turn } = this;
    if (turn.isLive) this.schedule();
    else this.draw();
    const state = [turn.status, turn.stopping, turn.answer === ""].join();
    if (state === this.drawn && turn.isLive) return;
    this.drawn = state;
    this.element.dataset.status = turn.status;
    this.thinking.hidden = turn.answer !== "" || !(turn.isLive || turn.status === "elsewhere");
    this.showMasked();
    this.showNotice();
    this.footer.replaceChildren(...(turn.isLive ? [this.progress()] : this.facts()));
    this.actions.grown();
  }

  schedule() {
    if (this.pending !== null) return;
    // A long block takes long to render again; most of the time stays free for the reader all the same.
    this.pending = setTimeout(() => requestAnimationFrame(() => this.pending !== null && this.draw()), this.cost * SHARE);
  }

  draw() {
    clearTimeout(this.pending);
    this.pending = null;
    const began = performance.now();
    // An answer that was cut off is shown as one that is still arriving: its last mark may lack the closing one.
    this.markdown.update(this.turn.answer, { streaming: this.turn.status !== "finished" });
    this.cost = performance.now() - began;
    this.actions.grown();
  }

  showMasked() {
    const show = (line, where, counts) => {
      const what = findings(counts);
      line.hidden = what === "";
      line.replaceChildren(icon("shield"), el("span", {}, `Masked in ${where}: ${what}.`));
    };
    show(this.promptMasked, "your question", this.turn.promptFindings);
    show(this.answerMasked, "the answer", this.turn.answerFindings);
  }

  progress() {
    const words = this.turn.stopping ? "Stopping…" : this.turn.status === "waiting" ? "Waiting…" : "Answering…";
    return el("span", { class: "progress" }, words);
  }

  showNotice() {
    const { turn } = this;
    clearInterval(this.countdown);
    this.notice.hidden = turn.status !== "failed" && turn.status !== "cancelled";
    if (this.notice.hidden) return;
    const failed = turn.status === "failed";
    this.notice.className = failed ? "notice is-bad" : "notice";
    const { title, advice, detail, action } = failed
      ? explain(turn.error)
      : { title: "This answer was stopped before its end.", advice: null, action: "again" };
    this.notice.replaceChildren(
      icon(failed ? "warning" : "stop"),
      el("div", {}, el("p", { class: "notice-title" }, title), advice && el("p", {}, advice), detail && el("p", { class: "detail" }, detail)),
      this.remedy(action),
    );
    if (failed) this.actions.say(`${title}. ${advice ?? ""}`);
  }

  remedy(action) {
    const edit = action === "edit" && this.turn.exchange === null;
    const words = edit ? "Edit the question" : "Ask again";
    const label = el("span", {}, words);
    const act = edit ? this.actions.edit : this.actions.retry;
    const button = el("button", { type: "button", class: "button is-outline retry", onclick: () => act(this.turn) }, icon("retry"), label);
    if (this.turn.retryAt) this.countDown(button, label, words);
    return button;
  }

  countDown(button, label, words) {
    const tick = () => {
      const left = Math.ceil((this.turn.retryAt - Date.now()) / 1000);
      button.disabled = left > 0;
      label.textContent = left > 0 ? `${words} in ${left} s` : words;
      if (left <= 0) clearInterval(this.countdown);
    };
    this.countdown = setInterval(tick, 500);
    tick();
  }

  facts() {
    const { model, simulated, finishReason, tokens, promptTokens, costUsd, ttftMs, e2eMs, receipt } = this.turn.facts;
    const fact = (text, title) => text && el("span", { class: "fact", title }, text);
    return [
      this.turn.answer && this.copyButton("Copy the answer", this.turn.answer, "Copy"),
      model && fact(model, "The model that answered"),
      simulated && el("span", { class: "badge", title: "No model wrote this: the simulated engine makes up its text" }, "Simulated"),
      finishReason === "length" && el("span", { class: "badge", title: "The answer reached its token limit" }, "Cut at the limit"),
      tokens !== null && fact(count(tokens, "token", "tokens"), `${promptTokens} prompt tokens, ${tokens} answer tokens`),
      costUsd !== null && fact(cost(costUsd), `What this answer cost: ${costUsd} USD`),
      ttftMs !== null && fact(`TTFT ${duration(ttftMs)}`, "Time to first token"),
      e2eMs !== null && fact(`E2E ${duration(e2eMs)}`, "End to end: from the question to the end of the answer"),
      receipt && this.copyButton("Copy the receipt: this answer’s entry in the record", receipt, `Receipt ${shortId(receipt)}`),
    ].filter(Boolean);
  }

  copyButton(title, text, words) {
    const copied = async () => this.actions.say((await copyFrom(button, text)) ? "Copied." : "The browser did not allow copying.");
    const button = el("button", { type: "button", class: "copy", title, "aria-label": title, onclick: copied }, icon("copy"), icon("done"), el("span", {}, words));
    return button;
  }

  async copyCode(event) {
    const button = event.target.closest(".code-copy");
    if (!button) return;
    const copied = await copyFrom(button, button.closest(".code").querySelector("pre").textContent);
    this.actions.say(copied ? "Code copied." : "The browser did not allow copying.");
  }
}
