/* The REST calls of the chat page. */

export class SignedOut extends Error {}

export class Failed extends Error {
  constructor(status, message) {
    super(message);
    this.status = status; // 0: the server was not reached
  }
}

const formToken = document.querySelector("[name=csrfmiddlewaretoken]");

/** Signing in in another window gives a new token, which the cookie holds and this page's form does not. */
export function freshenToken() {
  const current = /(?:^|; )csrftoken=([^;]+)/.exec(document.cookie);
  if (current) formToken.value = current[1];
}

function token() {
  freshenToken();
  return formToken.value;
}

async function call(method, path, body) {
  const headers = { Accept: "application/json" };
  if (method !== "GET") headers["X-CSRFToken"] = token();
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method, headers, body: body && JSON.stringify(body), credentials: "same-origin" });
  } catch {
    throw new Failed(0, "The server cannot be reached.");
  }
  if (response.status === 401 || response.status === 403) throw new SignedOut("You are signed out.");
  if (!response.ok) throw new Failed(response.status, await messageOf(response));
  return response.status === 204 ? null : response.json();
}

async function messageOf(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `The server answered with an error (${response.status}).`;
  }
}

const conversation = (id) => `/api/conversations/${encodeURIComponent(id)}`;

export const listModels = async () => (await call("GET", "/api/models")).models;
export const listConversations = async () => (await call("GET", "/api/conversations")).conversations;
export const readConversation = (id) => call("GET", conversation(id));
export const renameConversation = (id, title) => call("PATCH", conversation(id), { title });
export const deleteConversation = (id) => call("DELETE", conversation(id));
