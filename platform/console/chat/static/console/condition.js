/* What the line above the question box says of the connection and the model: the worst that is true. */

import { closure } from "./refusals.js";

/** `{tone, text, until?, remedy?}` or null. `slow`: the connection has been away for long enough to be worth a word. */
export function conditionOf({ connection, slow, isWarming, message }) {
  const { name, retryAt, code } = connection;
  if (name === "signed-out") {
    return { tone: "bad", text: "You are signed out. What you wrote is kept in this window.", remedy: "sign-in" };
  }
  if (name === "refused") return { tone: "bad", text: closure(code) };
  if (!navigator.onLine) {
    return { tone: "bad", text: "You are offline. What you send is kept and goes out when the connection is back." };
  }
  if (message) return { tone: "wait", text: message };
  if (name === "waiting" && slow) return { tone: "bad", text: "The connection is lost.", until: retryAt, remedy: "retry" };
  if (name === "connecting" && slow) return { tone: "wait", text: "Connecting…" };
  if (!isWarming) return null;
  return { tone: "wait", text: "The model is warming up. You can write meanwhile; sending works once it is ready." };
}
