/* Shows Markdown as it arrives. Blocks that are complete stay as they are; only the last one is rendered again, into
 * the nodes that are there already, so that a selection, the focus and the scroll position of a code block survive. */

import { parseBlocks } from "./markdown-blocks.js";
import { appendInline } from "./markdown-inline.js";
import { icon } from "./dom.js";

/** Text to DOM, all at once. */
export function renderMarkdown(root, text) {
  new MarkdownView(root).update(text, { streaming: false });
}

export class MarkdownView {
  constructor(root) {
    this.root = root;
    this.stable = 0; // characters that belong to finished blocks
    this.kept = 0; // elements of finished blocks
  }

  /** Shows `text`, which begins with all that was shown before. While `streaming`, more is to come. */
  update(text, { streaming }) {
    const tail = text.slice(this.stable);
    const lines = splitLines(streaming ? withoutHalfMarks(tail) : tail);
    const blocks = parseBlocks(lines);
    const elements = blocks.map((block, index) => build(block, streaming && index === blocks.length - 1));
    this.place(elements);
    if (blocks.length > 1) {
      // Lines of the source, not of `lines`: a carriage return is dropped from the latter.
      this.stable += offsetOfLine(tail, blocks.at(-1).line);
      this.kept += blocks.length - 1;
    }
  }

  place(elements) {
    elements.forEach((element, index) => {
      const current = this.root.children[this.kept + index];
      if (current) reconcile(current, element);
      else this.root.append(element);
    });
    while (this.root.children.length > this.kept + elements.length) this.root.lastElementChild.remove();
  }
}

const splitLines = (text) => text.split("\n").map((line) => (line.endsWith("\r") ? line.slice(0, -1) : line));

function offsetOfLine(text, line) {
  let offset = 0;
  for (let passed = 0; passed < line; passed += 1) offset = text.indexOf("\n", offset) + 1;
  return offset;
}

/** The text without last lines that could still become something else: a marker alone, a table's first row. */
function withoutHalfMarks(text) {
  const last = text.lastIndexOf("\n") + 1;
  const before = last ? text.lastIndexOf("\n", last - 2) + 1 : 0;
  const line = text.slice(last).trim();
  const previous = text.slice(before, last).trim();
  if (line.startsWith("|") && previous === "") return text.slice(0, last);
  const isFirst = before === 0 || text[before - 2] === "\n";
  const isRule = /^[\s|:-]*$/.test(line) && barsIn(line) < barsIn(previous);
  if (previous.startsWith("|") && isFirst && isRule) return text.slice(0, before);
  return /^(?:([-*+#>|`~=_])\1{0,5}|\d{1,9}[.)]?)$/.test(line) ? text.slice(0, last) : text;
}

const barsIn = (line) => line.split("|").length - 1;

const BUILDERS = { paragraph, heading, code, quote, list, table, rule: () => document.createElement("hr") };

const build = (block, streaming) => BUILDERS[block.kind](block, streaming);

function withText(name, text, streaming) {
  const element = document.createElement(name);
  element.dir = "auto";
  appendInline(element, text, { streaming });
  return element;
}

function paragraph(block, streaming) {
  return withText("p", block.text, streaming);
}

function heading(block, streaming) {
  // The page's own headings are h1 and h2: an answer's begin below them.
  return withText(`h${Math.min(6, block.level + 2)}`, block.text, streaming);
}

function code(block) {
  const figure = document.createElement("figure");
  const caption = document.createElement("figcaption");
  const language = document.createElement("span");
  language.textContent = block.language || "text";
  const button = document.createElement("button");
  button.type = "button";
  button.className = "code-copy";
  button.append(icon("copy"), "Copy");
  caption.append(language, button);
  const pre = document.createElement("pre");
  pre.tabIndex = 0; // so that the keyboard can scroll it
  const content = document.createElement("code");
  content.textContent = block.text;
  pre.append(content);
  figure.className = "code";
  figure.append(caption, pre);
  return figure;
}

function quote(block, streaming) {
  const element = document.createElement("blockquote");
  appendBlocks(element, block.blocks, streaming);
  return element;
}

function appendBlocks(parent, blocks, streaming) {
  blocks.forEach((block, index) => parent.append(build(block, streaming && index === blocks.length - 1)));
}

function list(block, streaming) {
  const element = document.createElement(block.ordered ? "ol" : "ul");
  if (block.ordered && block.start !== 1) element.start = block.start;
  block.items.forEach((blocks, index) => {
    const item = document.createElement("li");
    item.dir = "auto";
    appendItem(item, blocks, block.loose, streaming && index === block.items.length - 1);
    element.append(item);
  });
  return element;
}

function appendItem(item, blocks, loose, streaming) {
  const [first, ...rest] = blocks;
  if (loose || first?.kind !== "paragraph") {
    appendBlocks(item, blocks, streaming);
    return;
  }
  appendInline(item, withTickBox(first.text), { streaming: streaming && rest.length === 0 });
  appendBlocks(item, rest, streaming);
}

const withTickBox = (text) => text.replace(/^\[( |x|X)\](?=\s)/, (_, tick) => (tick === " " ? "☐" : "☑"));

function table(block, streaming) {
  const element = document.createElement("table");
  const head = element.createTHead().insertRow();
  for (const [column, text] of block.head.entries()) head.append(cell("th", text, block.align[column], false));
  const body = element.createTBody();
  for (const [index, row] of block.rows.entries()) {
    const line = body.insertRow();
    const last = streaming && index === block.rows.length - 1;
    for (const [column, text] of row.entries()) line.append(cell("td", text, block.align[column], last));
  }
  const scroller = document.createElement("div");
  scroller.className = "table";
  scroller.tabIndex = 0;
  scroller.append(element);
  return scroller;
}

function cell(name, text, align, streaming) {
  const element = withText(name, text, streaming);
  if (name === "th") element.scope = "col";
  if (align && align !== "start") element.className = `align-${align}`;
  return element;
}

/** Makes `current` look like `wanted`, keeping the nodes that can stay. */
function reconcile(current, wanted) {
  if (current.nodeType === Node.TEXT_NODE && wanted.nodeType === Node.TEXT_NODE) {
    if (wanted.data.startsWith(current.data)) current.appendData(wanted.data.slice(current.data.length));
    else current.data = wanted.data;
  } else if (isSameElement(current, wanted)) reconcileChildren(current, wanted);
  else current.replaceWith(wanted);
}

function reconcileChildren(current, wanted) {
  const children = [...wanted.childNodes];
  const present = [...current.childNodes];
  children.forEach((child, index) => (present[index] ? reconcile(present[index], child) : current.append(child)));
  for (const surplus of present.slice(children.length)) surplus.remove();
}

function isSameElement(one, other) {
  if (one.nodeName !== other.nodeName || one.nodeType !== Node.ELEMENT_NODE) return false;
  if (one.attributes.length !== other.attributes.length) return false;
  return [...one.attributes].every((attribute) => other.getAttribute(attribute.name) === attribute.value);
}
