/* Reads the answer out through a live region: whole sentences every few seconds, not every token. */

const EVERY_MS = 4000;
const KEPT = 12;
const MARKS = /\*\*|`+|^(?:#+|>)\s|^[|\s:-]+$/gm; // read out, they would only be in the way

export class Announcer {
  constructor(region) {
    this.region = region;
    this.turn = null;
    this.read = 0;
    this.timer = null;
  }

  say(text) {
    const line = document.createElement("p");
    line.textContent = text;
    this.region.append(line);
    while (this.region.children.length > KEPT) this.region.firstElementChild.remove();
  }

  /** Called with every change of the turn that the reader follows. */
  follow(turn) {
    if (turn !== this.turn) {
      this.turn = turn;
      this.read = 0;
    }
    if (turn.isLive) {
      this.timer ??= setTimeout(() => this.readOn(), EVERY_MS);
      return;
    }
    this.readOn();
    if (turn.status === "finished") this.say("End of the answer.");
    if (turn.status === "cancelled") this.say("Answer stopped.");
  }

  readOn() {
    clearTimeout(this.timer);
    this.timer = null;
    const rest = this.turn.answer.slice(this.read);
    const end = this.turn.isLive ? lastSentenceEnd(rest) : rest.length;
    const words = rest.slice(0, end).replace(MARKS, "").trim();
    this.read += end;
    if (words) this.say(words);
  }
}

function lastSentenceEnd(text) {
  let end = 0;
  for (const match of text.matchAll(/[.!?:]\s|\n/g)) end = match.index + match[0].length;
  return end;
}
