/* The block structure of Markdown, as far as chat needs it: lines in, a small tree out.
 *
 * Every line is looked at a bounded number of times and nesting ends at MAX_DEPTH, so that no input is slower than
 * linear. What is deeper or not understood becomes a paragraph of plain text. HTML is not understood on purpose. */

export const MAX_DEPTH = 8;
const MAX_COLUMNS = 64;
const TAB = 4;

/** The blocks of `lines`, each with the index of its first line and of the line after its last. */
export function parseBlocks(lines, depth = 0) {
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (isBlank(lines[at])) {
      at += 1;
      continue;
    }
    const block = readBlock(lines, at, depth);
    block.line = at;
    blocks.push(block);
    at = block.end;
  }
  return blocks;
}

function readBlock(lines, at, depth) {
  return (
    readFence(lines, at) ??
    readHeading(lines[at], at) ??
    (isRule(lines[at]) ? { kind: "rule", end: at + 1 } : null) ??
    (depth < MAX_DEPTH ? readQuote(lines, at, depth) ?? readList(lines, at, depth) : null) ??
    readTable(lines, at, depth) ??
    readParagraph(lines, at, depth)
  );
}

function startsBlock(lines, at, depth) {
  const line = lines[at];
  if (fenceOf(line) || headingLevel(line) || isRule(line) || isTableStart(lines, at)) return true;
  if (depth >= MAX_DEPTH) return false;
  if (line.trimStart().startsWith(">")) return true;
  const mark = markerOf(line);
  return mark !== null && mark.text !== "" && (!mark.ordered || mark.number === 1);
}

const isBlank = (line) => line.trim() === "";

function readParagraph(lines, at, depth) {
  let end = at + 1;
  while (end < lines.length && !isBlank(lines[end]) && !startsBlock(lines, end, depth)) end += 1;
  const text = lines.slice(at, end).map((line) => line.trimStart()).join("\n").trimEnd();
  return { kind: "paragraph", text, end };
}

function headingLevel(line) {
  const bare = line.trimStart();
  let level = 0;
  while (level < 7 && bare[level] === "#") level += 1;
  return level >= 1 && level <= 6 && (bare.length === level || /\s/.test(bare[level])) ? level : 0;
}

function readHeading(line, at) {
  const level = headingLevel(line);
  if (!level) return null;
  let text = line.trimStart().slice(level).trim();
  let tail = text.length;
  while (tail > 0 && text[tail - 1] === "#") tail -= 1;
  if (tail === 0 || /\s/.test(text[tail - 1])) text = text.slice(0, tail).trimEnd();
  return { kind: "heading", level, text, end: at + 1 };
}

function isRule(line) {
  const first = line.trimStart()[0];
  if (first !== "-" && first !== "*" && first !== "_") return false;
  const bare = line.replace(/[ \t]/g, "");
  return bare.length >= 3 && bare === first.repeat(bare.length);
}

function fenceOf(line) {
  const bare = line.trimStart();
  const mark = bare[0];
  if (mark !== "`" && mark !== "~") return null;
  let length = 0;
  while (bare[length] === mark) length += 1;
  const info = bare.slice(length);
  if (length < 3 || (mark === "`" && info.includes("`"))) return null;
  return { mark, length, indent: indentOf(line), language: info.trim().split(/\s/, 1)[0].slice(0, 40) };
}

function readFence(lines, at) {
  const fence = fenceOf(lines[at]);
  if (!fence) return null;
  let end = at + 1;
  while (end < lines.length && !closesFence(lines[end], fence)) end += 1;
  const text = lines.slice(at + 1, end).map((line) => dedent(line, fence.indent)).join("\n");
  return { kind: "code", language: fence.language, text, end: Math.min(end + 1, lines.length) };
}

function closesFence(line, fence) {
  const bare = line.trim();
  return bare.length >= fence.length && bare === fence.mark.repeat(bare.length);
}

function readQuote(lines, at, depth) {
  if (!lines[at].trimStart().startsWith(">")) return null;
  const inner = [];
  let end = at;
  for (; end < lines.length; end += 1) {
    const bare = lines[end].trimStart();
    if (bare.startsWith(">")) inner.push(bare.slice(bare[1] === " " ? 2 : 1));
    else if (bare === "" || isBlank(inner.at(-1)) || startsBlock(lines, end, depth)) break;
    else inner.push(bare);
  }
  return { kind: "quote", blocks: parseBlocks(inner, depth + 1), end };
}

/** A list item's marker: where its text begins and what kind of list it belongs to. */
function markerOf(line) {
  const match = /^[ \t]*(?:([-*+])|(\d{1,9})[.)])(?=[ \t]|$)/.exec(line);
  if (!match) return null;
  const rest = line.slice(match[0].length);
  const text = rest.trimStart();
  const gap = rest.length - text.length;
  return {
    ordered: match[1] === undefined,
    number: Number(match[2] ?? 0),
    indent: indentOf(line),
    width: indentOf(line) + match[0].trimStart().length + (gap >= 1 && gap <= TAB ? gap : 1),
    text,
  };
}

function readList(lines, at, depth) {
  const first = markerOf(lines[at]);
  if (!first) return null;
  const items = [];
  let loose = false;
  let blanks = 0;
  let end = at;
  while (end < lines.length) {
    const mark = markerOf(lines[end]);
    if (!mark || mark.ordered !== first.ordered || isRule(lines[end])) break;
    const item = readItem(lines, end, mark, depth);
    loose ||= item.spaced || blanks > 0;
    ({ blanks, end } = item);
    items.push(item.blocks);
  }
  return { kind: "list", ordered: first.ordered, start: first.number, loose, items, end };
}

function readItem(lines, start, mark, depth) {
  const inner = [mark.text];
  let inset = null; // models indent a nested list by two or three or four: the first continued line decides
  let spaced = false;
  let blanks = 0;
  let end = start + 1;
  for (; end < lines.length; end += 1) {
    const line = lines[end];
    if (isBlank(line)) {
      blanks += 1;
      continue;
    }
    const indent = indentOf(line);
    if (indent >= mark.indent + 2) {
      inset ??= Math.min(indent, mark.width);
      if (blanks) {
        inner.push("");
        spaced = true;
      }
      inner.push(dedent(line, inset));
    } else if (blanks === 0 && !startsBlock(lines, end, depth) && !markerOf(line)) inner.push(line.trimStart());
    else break;
    blanks = 0;
  }
  return { blocks: parseBlocks(inner, depth + 1), spaced, blanks, end };
}

function indentOf(line) {
  let columns = 0;
  for (const character of line) {
    if (character === " ") columns += 1;
    else if (character === "\t") columns += TAB - (columns % TAB);
    else break;
  }
  return columns;
}

function dedent(line, columns) {
  let at = 0;
  let passed = 0;
  while (passed < columns && (line[at] === " " || line[at] === "\t")) {
    passed += line[at] === "\t" ? TAB - (passed % TAB) : 1;
    at += 1;
  }
  return line.slice(at);
}

function isTableStart(lines, at) {
  const rule = lines[at + 1];
  if (rule === undefined || !lines[at].includes("|")) return false;
  if (!/^[\s|:-]+$/.test(rule) || !rule.includes("-") || !rule.includes("|")) return false;
  const columns = cellsOf(rule);
  return (
    columns.length <= MAX_COLUMNS &&
    columns.every((cell) => /^:?-+:?$/.test(cell)) &&
    cellsOf(lines[at]).length === columns.length
  );
}

function readTable(lines, at, depth) {
  if (!isTableStart(lines, at)) return null;
  const align = cellsOf(lines[at + 1]).map(alignment);
  const rows = [];
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|") && !startsBlock(lines, end, depth)) {
    const cells = cellsOf(lines[end]);
    rows.push(align.map((_, column) => cells[column] ?? ""));
    end += 1;
  }
  return { kind: "table", align, head: cellsOf(lines[at]), rows, end };
}

function alignment(rule) {
  if (rule.endsWith(":")) return rule.startsWith(":") ? "center" : "end";
  return "start";
}

/** The cells of a table's line, split at the bars that no backslash precedes. */
function cellsOf(line) {
  const cells = [];
  let cell = "";
  let bare = line.trim();
  if (bare.startsWith("|")) bare = bare.slice(1);
  if (bare.endsWith("|") && !bare.endsWith("\\|")) bare = bare.slice(0, -1);
  for (const part of bare.split("|")) {
    if (part.endsWith("\\")) {
      cell += `${part.slice(0, -1)}|`;
      continue;
    }
    cells.push((cell + part).trim());
    cell = "";
  }
  if (cell) cells.push(cell.trim());
  return cells;
}
