/* What a refusal means in plain words, and what to do about it. The codes are those of docs/api.md. */

const AGAIN = "again"; // the same question can be sent again as it is
const EDIT = "edit"; // the question has to change first
const RELOAD = "reload";

const REFUSALS = {
  overloaded: ["The model is busy or still starting", "Your question is kept here. Send it again in a moment.", AGAIN],
  rate_limit_exceeded: ["Too many questions at once", null, AGAIN],
  insufficient_quota: ["The budget is spent", null, AGAIN],
  context_length_exceeded: [
    "The question is too long for the model",
    "Shorten it: the question and its answer have to fit together.",
    EDIT,
  ],
  content_filter: ["The question was refused by policy", "Take the personal data out and ask again.", EDIT],
  frame_too_large: ["The question is too long", "At most 64 KiB fit. Shorten it and send it again.", EDIT],
  empty_text: ["The question is empty", "Write something and send it again.", EDIT],
  conversation_not_found: [
    "This conversation is no longer there",
    "It was deleted, perhaps in another window. Asking again begins a new one.",
    AGAIN,
  ],
  model_not_found: ["That model is no longer offered", "Choose another one below the question box and ask again.", AGAIN],
  already_running: ["An answer is already being written", "Wait until it ends, or stop it, then ask again.", AGAIN],
  audit_unavailable: [
    "The record cannot be written",
    "Nothing is answered unrecorded, so this question waits. Ask again in a moment, or tell your administrator.",
    AGAIN,
  ],
  inspection_unavailable: [
    "Personal data cannot be looked for",
    "Nothing reaches the model uninspected. Ask again in a moment, or tell your administrator.",
    AGAIN,
  ],
  engine_failed: ["The model failed while answering", "What had arrived is kept above. Ask again.", AGAIN],
  deadline_exceeded: ["The answer took too long", "What had arrived is kept above. Ask again, or ask for less.", AGAIN],
  invalid_value: ["The server did not accept the question", null, EDIT],
  duplicate_id: ["The question was sent twice", "Ask again.", AGAIN],
  invalid_api_key: ["You are signed out", "Sign in again: the question is kept here.", AGAIN],
  internal_error: ["The platform failed", "That is not your doing. Ask again, or tell your administrator.", AGAIN],
  outcome_unknown: ["How this answer ended is not known", "The server was interrupted. Ask again.", AGAIN],
  // These arise on this page and never come from the server.
  not_sent: ["This question was not answered yet", "It was kept here. Ask again.", AGAIN],
  lost: ["The rest of this answer is lost", "The connection was away for too long. Ask again.", AGAIN],
  unknown: ["How this answer ended is not known", "The server was interrupted. Ask again.", AGAIN],
};

const UNFORESEEN = ["This page and the server do not understand each other", "Reload the page, then ask again.", RELOAD];

/** `{title, advice, action}` for an error object of the API. */
export function explain(error) {
  const [title, advice, action] = REFUSALS[error.code] ?? UNFORESEEN;
  const known = error.code in REFUSALS;
  return { title, advice: advice ?? error.message, detail: known ? null : error.message, action };
}

const CLOSURES = {
  4403: "This page was opened under an address that the server does not accept. Open it under its own address.",
  4406: "This page is older than the server. Reload it.",
};

/** Why the server will not have this page's socket, for close codes where trying again is no use. */
export const closure = (code) => CLOSURES[code] ?? null;
