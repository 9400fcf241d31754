/* Copying text, with the answer shown on the button that was pressed. */

const SHOWN_MS = 1600;

async function copy(text) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  // Without HTTPS browsers offer only this older way, which copies a selection.
  const carrier = document.createElement("textarea");
  carrier.value = text;
  carrier.className = "unseen";
  document.body.append(carrier);
  carrier.select();
  const copied = document.execCommand("copy");
  carrier.remove();
  if (!copied) throw new Error("Copying is not allowed here.");
}

/** Copies `text` and shows on `button` for a moment whether that worked. */
export async function copyFrom(button, text) {
  const had = document.activeElement;
  let outcome = "is-done";
  try {
    await copy(text);
  } catch {
    outcome = "is-refused";
  }
  had?.focus();
  button.classList.add(outcome);
  setTimeout(() => button.classList.remove(outcome), SHOWN_MS);
  return outcome === "is-done";
}
