/* The question box: Enter sends, Shift+Enter begins a line, and what is typed is kept as a draft. */

const SAVE_MS = 300;
const TALLEST = 0.4; // of the window, where the browser cannot size the box by itself

export class Composer {
  /** `onAsk(text)` and `onStop()` are called; `save(text)` keeps the draft. */
  constructor({ form, input, send, stop, onAsk, onStop, save }) {
    Object.assign(this, { input, sendButton: send, stopButton: stop, onAsk, save });
    this.allowed = false;
    this.busy = false;
    this.timer = null;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
    input.addEventListener("keydown", (event) => this.key(event));
    input.addEventListener("input", () => this.edited());
    stop.addEventListener("click", onStop);
    addEventListener("pagehide", () => this.keep());
  }

  /** `allowed`: a question can be taken now. `busy`: an answer is running, which can be stopped. */
  setState({ allowed, busy }) {
    const stopHadFocus = document.activeElement === this.stopButton;
    this.allowed = allowed;
    this.busy = busy;
    this.sendButton.hidden = busy;
    this.stopButton.hidden = !busy;
    if (stopHadFocus && !busy) this.input.focus();
    this.refresh();
  }

  load(text) {
    clearTimeout(this.timer);
    this.timer = null;
    this.input.value = text;
    this.refresh();
  }

  /** Puts `text` before what is in the box. */
  putBack(text) {
    const rest = this.input.value;
    this.load(rest.trim() ? `${text}\n\n${rest}` : text);
    this.keep();
    this.input.focus();
  }

  /** Saves the draft at once. */
  keep() {
    clearTimeout(this.timer);
    this.timer = null;
    this.save(this.input.value);
  }

  key(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    this.submit();
  }

  submit() {
    const text = this.input.value;
    if (!this.allowed || this.busy || text.trim() === "") return;
    this.load("");
    this.keep();
    this.onAsk(sendable(text));
    this.input.focus();
  }

  edited() {
    this.timer ??= setTimeout(() => this.keep(), SAVE_MS);
    this.refresh();
  }

  refresh() {
    this.sendButton.disabled = !this.allowed || this.input.value.trim() === "";
    if (CSS.supports("field-sizing", "content")) return;
    this.input.style.height = "auto";
    this.input.style.height = `${Math.min(this.input.scrollHeight, innerHeight * TALLEST)}px`;
  }
}

/** Without what no model and no database takes: NUL, and the half of an emoji that a cut leaves. */
function sendable(text) {
  const plain = text.replaceAll("\0", "");
  return plain.toWellFormed?.() ?? plain;
}
