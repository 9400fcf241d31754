/* Markdown within a line: emphasis, code, links. Builds DOM nodes and never parses HTML.
 *
 * Links are made for http, https and mailto alone; an image becomes a link to it, so that nothing is fetched that the
 * reader did not ask for. Emphasis is kept on a bounded stack: no input nests deeper or costs more than linear time. */

const MAX_OPEN = 24;
const MAX_URL = 2048;
const SPECIAL = /[\\`*_~[!<]|https?:\/\//g;
const AUTOLINK = /<((?:https?:\/\/|mailto:)[^\s<>]{1,2048})>/y;
const BARE_URL = /https?:\/\/[^\s<>"`|]{1,2048}/y;
const ESCAPABLE = /[!-/:-@[-`{-~]/;
const PUNCTUATION = /[\p{P}\p{S}]/u;

/** Appends the rendered `text` to `parent`. While `streaming`, what is still open at the end is shown as if closed. */
export function appendInline(parent, text, { streaming = false } = {}) {
  // A mark at the very end may be half of one, and whether it opens or closes is not known yet.
  const certain = streaming ? text.slice(0, text.length - trailingMarks(text)) : text;
  for (const node of new Inline(certain, true, streaming).render()) parent.append(node);
}

/** The address, if it is one that a link may have; null otherwise. */
export function safeAddress(address) {
  if (address.length > MAX_URL || !/^(https?:\/\/|mailto:)/i.test(address)) return null;
  try {
    const url = new URL(address);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

class Inline {
  constructor(text, links, streaming) {
    this.text = text;
    this.links = links;
    this.streaming = streaming;
    this.at = 0;
    this.plain = "";
    this.frames = [{ mark: "", count: 0, nodes: [] }];
    this.open = { "*": 0, _: 0, "~": 0 };
    this.brackets = links ? matchBrackets(text) : new Map();
    this.ticks = null;
  }

  render() {
    while (this.at < this.text.length) {
      SPECIAL.lastIndex = this.at;
      const found = SPECIAL.exec(this.text);
      const next = found ? found.index : this.text.length;
      this.plain += this.text.slice(this.at, next);
      this.at = next;
      if (found) this.special(found[0]);
    }
    while (this.frames.length > 1) this.abandon();
    this.flush();
    return this.frames[0].nodes;
  }

  special(character) {
    if (character === "\\") this.escape();
    else if (character === "`") this.code();
    else if (character === "[" || character === "!") this.bracket(character === "!");
    else if (character === "<" || character.startsWith("http")) this.address(character === "<");
    else this.emphasis(character);
  }

  literal(length) {
    this.plain += this.text.slice(this.at, this.at + length);
    this.at += length;
  }

  flush() {
    if (this.plain) this.frames.at(-1).nodes.push(document.createTextNode(this.plain));
    this.plain = "";
  }

  add(node) {
    this.flush();
    this.frames.at(-1).nodes.push(node);
  }

  escape() {
    const next = this.text[this.at + 1] ?? "";
    if (ESCAPABLE.test(next)) {
      this.plain += next;
      this.at += 2;
    } else if (next === "\n") this.at += 1;
    else this.literal(1);
  }

  code() {
    const length = runLength(this.text, this.at, "`");
    const begin = this.at + length;
    let end = this.closingTicks(length, begin);
    if (end === null && this.streaming && begin < this.text.length) end = this.text.length;
    if (end === null) {
      this.literal(length);
      return;
    }
    const node = document.createElement("code");
    const inner = this.text.slice(begin, end).replaceAll("\n", " ");
    const padded = inner.length > 2 && inner.startsWith(" ") && inner.endsWith(" ") && inner.trim() !== "";
    node.textContent = padded ? inner.slice(1, -1) : inner;
    this.add(node);
    this.at = Math.min(end + length, this.text.length);
  }

  /** Where a run of exactly `length` backticks begins at or after `from`. All runs are found in one pass. */
  closingTicks(length, from) {
    if (!this.ticks) {
      this.ticks = new Map();
      for (const run of this.text.matchAll(/`+/g)) {
        if (!this.ticks.has(run[0].length)) this.ticks.set(run[0].length, { next: 0, starts: [] });
        this.ticks.get(run[0].length).starts.push(run.index);
      }
    }
    const runs = this.ticks.get(length);
    while (runs && runs.next < runs.starts.length && runs.starts[runs.next] < from) runs.next += 1;
    return runs?.starts[runs.next] ?? null;
  }

  emphasis(mark) {
    const length = runLength(this.text, this.at, mark);
    const { opens, closes } = flanks(this.text, this.at, length, mark);
    if (length > 3 || (mark === "~" && length !== 2)) {
      this.literal(length);
      return;
    }
    let rest = length;
    if (closes) rest = this.close(mark, rest);
    if (rest > 0 && opens && this.frames.length <= MAX_OPEN) {
      this.flush();
      this.frames.push({ mark, count: rest, nodes: [] });
      this.open[mark] += 1;
    } else this.plain += mark.repeat(rest);
    this.at += length;
  }

  /** Closes what `count` marks can close; the number that is left over. */
  close(mark, count) {
    let rest = count;
    while (rest > 0 && this.open[mark] > 0) {
      while (this.frames.at(-1).mark !== mark) this.abandon({ asText: true });
      this.flush();
      const frame = this.frames.at(-1);
      const used = Math.min(2, rest, frame.count);
      frame.nodes = [wrap(mark, used, frame.nodes)];
      frame.count -= used;
      rest -= used;
      if (frame.count === 0) {
        this.frames.pop();
        this.open[mark] -= 1;
        this.frames.at(-1).nodes.push(...frame.nodes);
      }
    }
    return rest;
  }

  /** Gives up the innermost open mark: it was text after all, unless the rest has yet to arrive. */
  abandon({ asText = !this.streaming } = {}) {
    this.flush();
    const frame = this.frames.pop();
    this.open[frame.mark] -= 1;
    const { nodes } = this.frames.at(-1);
    if (!asText && frame.count >= 2 && frame.nodes.length) {
      nodes.push(wrap(frame.mark, 2, frame.nodes));
      return;
    }
    nodes.push(document.createTextNode(frame.mark.repeat(frame.count)));
    for (const node of frame.nodes) nodes.push(node);
  }

  bracket(image) {
    const begin = this.at + (image ? 1 : 0);
    const close = this.text[begin] === "[" ? this.brackets.get(begin) : undefined;
    if (close === undefined || this.text[close + 1] !== "(") {
      this.literal(1);
      return;
    }
    const label = this.text.slice(begin + 1, close);
    const destination = readDestination(this.text, close + 2);
    if (destination) {
      const href = safeAddress(destination.address);
      if (!href) {
        this.literal(1);
        return;
      }
      this.add(image ? imageLink(href, label) : link(href, new Inline(label, false, false).render()));
      this.at = destination.end;
    } else if (this.streaming && !/\s/.test(this.text.slice(close + 2, close + 2 + MAX_URL))) {
      this.plain += label; // the address is still arriving
      this.at = this.text.length;
    } else this.literal(1);
  }

  address(angled) {
    const pattern = angled ? AUTOLINK : BARE_URL;
    pattern.lastIndex = this.at;
    const found = this.links ? pattern.exec(this.text) : null;
    if (!found || (!angled && /\w/.test(this.text[this.at - 1] ?? ""))) {
      this.literal(1);
      return;
    }
    const address = angled ? found[1] : trimAddress(found[0]);
    const href = safeAddress(address);
    if (href) this.add(link(href, [document.createTextNode(address)]));
    else this.plain += angled ? found[0] : address;
    this.at += angled ? found[0].length : address.length;
  }
}

function wrap(mark, count, nodes) {
  const name = mark === "~" ? "del" : count === 2 ? "strong" : "em";
  const element = document.createElement(name);
  for (const node of nodes) element.append(node);
  return element;
}

function link(href, nodes) {
  const element = document.createElement("a");
  element.href = href;
  element.title = href;
  element.target = "_blank";
  element.rel = "noopener noreferrer nofollow";
  for (const node of nodes) element.append(node);
  return element;
}

function imageLink(href, alternative) {
  const element = link(href, [document.createTextNode(alternative.trim() || "image")]);
  element.className = "image-link";
  return element;
}

/** Whether a run of marks can open and close emphasis, after CommonMark 0.31 section 6.2. */
function flanks(text, at, length, mark) {
  const before = at > 0 ? text[at - 1] : " ";
  const after = text[at + length] ?? " ";
  const left = !/\s/.test(after) && (!PUNCTUATION.test(after) || /\s/.test(before) || PUNCTUATION.test(before));
  const right = !/\s/.test(before) && (!PUNCTUATION.test(before) || /\s/.test(after) || PUNCTUATION.test(after));
  if (mark !== "_") return { opens: left, closes: right };
  return {
    opens: left && (!right || PUNCTUATION.test(before)),
    closes: right && (!left || PUNCTUATION.test(after)),
  };
}

function runLength(text, at, mark) {
  let end = at;
  while (text[end] === mark) end += 1;
  return end - at;
}

function trailingMarks(text) {
  let begin = text.length;
  while (begin > 0 && "*_~`".includes(text[begin - 1])) begin -= 1;
  return text.length - begin;
}

function matchBrackets(text) {
  const pairs = new Map();
  const open = [];
  for (let at = 0; at < text.length; at += 1) {
    if (text[at] === "\\") at += 1;
    else if (text[at] === "[") open.push(at);
    else if (text[at] === "]" && open.length) pairs.set(open.pop(), at);
  }
  return pairs;
}

/** The address that begins at `from` and where the link ends; null when it does not end. A title is passed over. */
function readDestination(text, from) {
  const window = text.slice(from, from + MAX_URL);
  const angled = /^\s*<([^<>\n]*)>\s*(?:"[^"\n]*"\s*)?\)/.exec(window);
  if (angled) return { address: angled[1], end: from + angled[0].length };
  let depth = 0;
  let at = 0;
  for (; at < window.length && !/\s/.test(window[at]); at += 1) {
    if (window[at] === "(") depth += 1;
    else if (window[at] === ")") {
      if (depth === 0) return { address: window.slice(0, at), end: from + at + 1 };
      depth -= 1;
    }
  }
  const title = /^\s+(?:"[^"\n]*"|'[^'\n]*')?\s*\)/.exec(window.slice(at));
  return title ? { address: window.slice(0, at), end: from + at + title[0].length } : null;
}

/** A bare address without the sentence's punctuation, and without a bracket that was opened before it. */
function trimAddress(address) {
  let end = address.length;
  let surplus = 0;
  for (const character of address) surplus += character === ")" ? 1 : character === "(" ? -1 : 0;
  for (; end > 0; end -= 1) {
    const last = address[end - 1];
    if (last === ")" && surplus > 0) surplus -= 1;
    else if (!/[.,;:!?'"*_~\]}]/.test(last)) break;
  }
  return address.slice(0, end);
}
