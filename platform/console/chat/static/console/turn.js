/* One question and its answer, and how the server's events change them. Knows nothing of the page. */

export class Turn {
  constructor({ id, prompt }) {
    this.id = id;
    this.prompt = prompt;
    this.answer = "";
    this.exchange = null;
    this.seq = -1;
    this.askedFrom = null; // the sequence number after which missing events were asked for
    this.status = "waiting"; // waiting, streaming, finished, cancelled, failed, elsewhere
    this.stopping = false;
    this.error = null;
    this.retryAt = null;
    this.promptFindings = {};
    this.answerFindings = {};
    this.facts = factsOf({});
  }

  /** A turn as GET /api/conversations/{id} tells it. */
  static fromRecord(record) {
    const turn = new Turn({ id: null, prompt: record.prompt ?? "The text of this question is not kept any more." });
    turn.settle(record);
    return turn;
  }

  get isLive() {
    return this.status === "waiting" || this.status === "streaming";
  }

  /** Takes over how the record says that the exchange ended, or that it has not. */
  settle(record) {
    this.exchange = record.exchange;
    this.answer = record.answer ?? "";
    this.promptFindings = record.findings?.prompt ?? {};
    this.answerFindings = record.findings?.answer ?? {};
    this.facts = factsOf(record);
    this.status = { open: "elsewhere", unknown: "failed" }[record.status] ?? record.status;
    if (this.status === "failed") this.fail({ code: record.error_code || "unknown", message: "" });
  }

  /** Begins anew what the server never began. */
  restart() {
    Object.assign(this, { status: "waiting", seq: -1, stopping: false, error: null, retryAt: null });
  }

  /** False when an event before this one is missing. Events that were seen already change nothing. */
  apply(event) {
    if (event.seq <= this.seq) return true;
    if (event.seq > this.seq + 1) return false;
    if (event.seq !== undefined) this.seq = event.seq;
    if (event.type === "answer.started") this.start(event);
    else if (event.type === "answer.delta") this.answer += event.text;
    else if (event.type === "answer.finished") this.finish(event);
    else if (event.type === "error") this.fail(event.error, event.retry_after_s);
    return true;
  }

  start(event) {
    this.status = "streaming";
    this.exchange = event.exchange;
    this.promptFindings = event.findings ?? {};
    this.facts = factsOf({ model: event.model, simulated: event.simulated });
  }

  finish(event) {
    this.status = event.finish_reason === "cancelled" ? "cancelled" : "finished";
    this.answerFindings = event.findings ?? {};
    this.facts = factsOf({ simulated: this.facts.simulated, ...event });
  }

  fail(error, retryAfterS = null) {
    this.status = "failed";
    this.error = error;
    this.retryAt = retryAfterS ? Date.now() + retryAfterS * 1000 : null;
  }
}

function factsOf(source) {
  return {
    model: source.model,
    simulated: source.simulated,
    finishReason: source.finish_reason,
    tokens: source.usage?.completion_tokens ?? null,
    promptTokens: source.usage?.prompt_tokens ?? null,
    costUsd: source.usage?.cost_usd ?? null,
    ttftMs: source.ttft_ms ?? null,
    e2eMs: source.e2e_ms ?? null,
    receipt: source.receipt ?? null,
  };
}
