/* Asks questions and takes the answers: what is said over the socket, which turn it belongs to, and what happens when
 * the connection breaks. A question keeps its id until the server has begun to answer it, so that sending it again
 * after a break starts no second answer. */

import { Turn } from "./turn.js";

const LINGER_MS = 10_000;
const LARGEST_FRAME = 65_536; // bytes

/** An id of our own. `crypto.randomUUID` would do, but exists under HTTPS alone. */
export const newId = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

export class Chat {
  /**
   * `model()` names the model to ask or is null. `on` has `changed(turn, conversation)` after every change,
   * `begun(conversation, turn)` when an answer starts, `ended(turn, conversation)`, `lost(conversation)` when the
   * rest of an answer must be read from the record, and `unsent(questions)` when that list changed.
   */
  constructor({ model, on, unsent }) {
    this.model = model;
    this.on = on;
    this.socket = null; // set by the page, which needs this object to make one
    this.live = new Map(); // question id → {turn, conversation}
    this.unsent = new Map(unsent.map((question) => [question.id, question]));
    this.stopped = new Set(); // ids of questions that were given up while the connection was away
    this.resuming = new Set(); // turns that were asked to be resumed and have not been heard of since
  }

  ask(prompt, conversation) {
    const turn = new Turn({ id: newId(), prompt });
    conversation.turns.push(turn);
    this.dispatch(turn, conversation);
    return turn;
  }

  /** Asks a question again that the server never began to answer. */
  askAgain(turn, conversation) {
    turn.restart();
    this.dispatch(turn, conversation);
  }

  dispatch(turn, conversation) {
    this.live.set(turn.id, { turn, conversation });
    this.unsent.set(turn.id, { id: turn.id, prompt: turn.prompt, conversation: conversation.id });
    this.on.unsent([...this.unsent.values()]);
    const frame = this.frame(turn, conversation);
    if (new TextEncoder().encode(JSON.stringify(frame)).length > LARGEST_FRAME) {
      this.refuse(turn, conversation, { code: "frame_too_large", message: "" });
    } else this.socket.send(frame);
  }

  frame(turn, conversation) {
    const model = this.model();
    return {
      type: "chat.send",
      id: turn.id,
      text: turn.prompt,
      conversation: conversation.id,
      linger_ms: LINGER_MS,
      ...(model && { model }),
    };
  }

  /** The question no longer has to be kept for a reload. */
  forget(turn) {
    if (this.unsent.delete(turn.id)) this.on.unsent([...this.unsent.values()]);
  }

  refuse(turn, conversation, error) {
    turn.fail(error);
    this.end(turn, conversation);
    this.on.changed(turn, conversation);
  }

  /** The server has refused the question under this id: asked again, it is another one. */
  renew(turn) {
    const question = this.unsent.get(turn.id);
    this.unsent.delete(turn.id);
    turn.id = newId();
    if (question) this.unsent.set(turn.id, { ...question, id: turn.id });
    this.on.unsent([...this.unsent.values()]);
  }

  stop(turn) {
    const entry = this.live.get(turn.id);
    if (!entry || turn.stopping) return;
    turn.stopping = true;
    if (this.socket.isOpen) this.cancel(turn);
    else if (turn.exchange === null) {
      turn.status = "cancelled";
      this.stopped.add(turn.id);
      this.forget(turn);
      this.end(turn, entry.conversation);
      this.renew(turn);
    }
    this.on.changed(turn, entry.conversation);
  }

  cancel(turn) {
    const exchange = turn.exchange && { exchange: turn.exchange }; // a resumed answer is known by this alone
    this.socket.send({ type: "chat.cancel", id: turn.id, ...exchange });
  }

  /** The connection is open (again): goes on where it broke. */
  connected() {
    for (const id of this.stopped) this.socket.send({ type: "chat.cancel", id });
    this.stopped.clear();
    for (const { turn, conversation } of [...this.live.values()]) {
      if (turn.exchange) this.resume(turn);
      else this.socket.send(this.frame(turn, conversation));
      if (turn.stopping) this.cancel(turn);
    }
  }

  resume(turn) {
    this.resuming.add(turn);
    this.socket.send({ type: "chat.resume", exchange: turn.exchange, after: turn.seq });
  }

  fillGap(turn) {
    if (turn.exchange === null || turn.askedFrom === turn.seq) return;
    turn.askedFrom = turn.seq;
    this.resume(turn);
  }

  signedOut() {
    for (const { turn, conversation } of [...this.live.values()]) {
      this.refuse(turn, conversation, { code: turn.exchange ? "lost" : "invalid_api_key", message: "" });
    }
  }

  receive(event) {
    if (event.type === "error" && event.error.code === "exchange_not_found" && !event.id) {
      this.resumeRefused();
      return;
    }
    const entry = this.entryOf(event);
    if (!entry) return;
    const { turn, conversation } = entry;
    this.resuming.delete(turn);
    if (event.type === "error" && event.seq === undefined && turn.exchange !== null) {
      this.lose(turn, conversation); // not the answer's end: it could not be followed any further
    } else if (turn.apply(event)) this.applied(turn, conversation, event);
    else this.fillGap(turn);
  }

  applied(turn, conversation, event) {
    if (event.type === "answer.started") this.begin(turn, conversation, event.conversation);
    if (!turn.isLive) this.end(turn, conversation);
    if (turn.status === "failed" && turn.exchange === null) this.renew(turn);
    this.on.changed(turn, conversation);
  }

  resumeRefused() {
    for (const { turn, conversation } of [...this.live.values()]) {
      if (this.resuming.delete(turn)) this.lose(turn, conversation);
    }
  }

  entryOf(event) {
    if (event.id) return this.live.get(event.id);
    // A frame that was not understood names nobody: it was the last one that waits.
    const entries = [...this.live.values()];
    return event.type === "error" ? entries.findLast(({ turn }) => turn.status === "waiting") : undefined;
  }

  begin(turn, conversation, id) {
    conversation.id ??= id;
    for (const other of conversation.turns.filter(({ id: question }) => this.unsent.has(question))) {
      this.unsent.get(other.id).conversation = conversation.id;
    }
    this.forget(turn);
    if (turn.stopping) this.cancel(turn); // the first request may have come before there was an answer to stop
    this.on.begun(conversation, turn);
  }

  end(turn, conversation) {
    this.live.delete(turn.id);
    this.on.ended(turn, conversation);
  }

  /** The server no longer has the events of a running answer: the record will say how it ended. */
  lose(turn, conversation) {
    turn.status = "elsewhere";
    this.end(turn, conversation);
    this.on.changed(turn, conversation);
    this.on.lost(conversation);
  }
}
