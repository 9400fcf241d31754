/* The button beside a new API key: it copies the key and says so. Without this script there is no button. */

import { copyFrom } from "./clipboard.js";

const SAYS_MS = 4000;

const key = document.getElementById("api-key");
const button = document.getElementById("copy-key");
const outcome = document.getElementById("copy-outcome");
let timer = null;

async function copyKey() {
  const copied = await copyFrom(button, key.textContent.trim());
  button.textContent = copied ? "Copied" : "Copy";
  outcome.textContent = copied ? "The key is copied." : "Copying is not allowed here: select the key and copy it.";
  if (!copied) getSelection().selectAllChildren(key);
  clearTimeout(timer);
  timer = setTimeout(() => (button.textContent = "Copy"), SAYS_MS);
}

button.addEventListener("click", copyKey);
button.hidden = false;
