/* Puts the chat page together: which conversation is open, what the parts show, and what the reader does. */

import * as api from "./api.js";
import { Announcer } from "./announcer.js";
import { Chat } from "./chat.js";
import { Composer } from "./composer.js";
import { conditionOf } from "./condition.js";
import { ConversationList } from "./conversations.js";
import { byId } from "./dom.js";
import { Drafts } from "./drafts.js";
import { Drawer } from "./drawer.js";
import { Models } from "./models.js";
import { ChatSocket } from "./socket.js";
import { StatusLine } from "./status-line.js";
import { Thread } from "./thread.js";
import { Turn } from "./turn.js";

const UNHURRIED_MS = 1200; // a connection that opens sooner is not worth a word
const MESSAGE_MS = 6000;
const WATCH_MS = 3000;
const TITLE_WORDS = 60; // characters of a first question that stand for a title until the server names it

class Page {
  constructor() {
    const { user, signIn, member } = document.body.dataset;
    this.signInAddress = signIn;
    this.isMember = member !== undefined;
    this.connection = { name: "connecting" };
    this.slow = false;
    this.wasWarming = false;
    this.message = null;
    this.conversations = [];
    this.known = new Map(); // conversations with an answer that is being written
    this.drafts = new Drafts(user);
    this.current = { id: null, turns: [] };
    this.build();
  }

  build() {
    this.drawer = new Drawer({
      sidebar: byId("sidebar"), main: byId("main"), scrim: byId("scrim"), opener: byId("drawer-open"), closer: byId("drawer-close"),
    });
    this.announcer = new Announcer(byId("announcer"));
    this.status = new StatusLine({ root: byId("status"), text: byId("status-text"), action: byId("status-action") });
    this.thread = new Thread({
      scroller: byId("thread"), turns: byId("turns"), welcome: byId("welcome"), loading: byId("loading"), jump: byId("jump"),
      actions: { retry: (turn) => this.retry(turn), edit: (turn) => this.edit(turn), say: (text) => this.announcer.say(text) },
    });
    this.list = new ConversationList(byId("conversations"), byId("delete-dialog"), {
      open: (id) => this.open(id), rename: (id, title) => this.rename(id, title), remove: (id) => this.remove(id),
    });
    this.models = new Models({
      slot: byId("model"), caveat: byId("caveat"), onChange: () => this.modelsChanged(), onSignedOut: () => this.setConnection({ name: "signed-out" }),
    });
    this.composer = new Composer({
      form: byId("composer"), input: byId("question"), send: byId("send"), stop: byId("stop"),
      onAsk: (text) => this.ask(text), onStop: () => this.stop(), save: (text) => this.drafts.saveDraft(this.current.id, text),
    });
    this.chat = new Chat({ model: () => this.models.name, unsent: this.drafts.unsent(), on: this.chatEvents() });
  }

  chatEvents() {
    return {
      changed: (turn, conversation) => this.turnChanged(turn, conversation),
      begun: (conversation, turn) => this.answerBegun(conversation, turn),
      ended: (turn, conversation) => this.answerEnded(turn, conversation),
      lost: (conversation) => this.watch(conversation, 0),
      unsent: (questions) => this.drafts.saveUnsent(questions),
    };
  }

  start() {
    if (!this.isMember) {
      this.thread.show([]);
      byId("question").disabled = true;
      return;
    }
    this.listen();
    this.route();
    this.models.refresh();
    this.reloadList();
    this.chat.socket = new ChatSocket({
      onState: (state) => this.setConnection(state),
      onEvent: (event) => this.chat.receive(event),
      isSignedOut: () => api.listModels().then(() => false, (error) => error instanceof api.SignedOut),
    });
  }

  listen() {
    const shortcut = /Mac|iP/.test(navigator.platform) ? "⌘⇧O" : "Ctrl+Shift+O";
    byId("new-shortcut").textContent = shortcut;
    byId("new-conversation").addEventListener("click", () => this.begin());
    byId("sign-out").addEventListener("submit", () => {
      this.drafts.forget();
      api.freshenToken();
    });
    for (const example of document.querySelectorAll("[data-example]")) {
      example.addEventListener("click", () => this.example(example.textContent));
    }
    addEventListener("hashchange", () => this.route());
    for (const name of ["online", "offline"]) addEventListener(name, () => this.refresh());
    addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    if (event.code === "KeyO" && event.shiftKey && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      this.begin();
    } else if (event.key === "Escape" && !event.isComposing && !byId("delete-dialog").open) {
      if (this.drawer.isOpen) this.drawer.close();
      else this.stop();
    }
  }

  // Which conversation is open

  route() {
    const id = location.hash.slice(1) || null;
    if (id !== this.current.id || !this.routed) this.show(id);
    this.routed = true;
  }

  begin() {
    if (location.hash) history.pushState(null, "", location.pathname);
    this.show(null);
    byId("question").focus();
  }

  open(id) {
    history.pushState(null, "", `#${id}`);
    this.show(id);
    byId("question").focus();
  }

  async show(id) {
    this.drawer.close();
    if (this.routed) this.composer.keep();
    const conversation = this.known.get(id) ?? { id, turns: id === null ? this.unsentTurns(null) : null };
    this.current = conversation;
    this.composer.load(this.drafts.draft(id));
    this.thread.show(conversation.turns);
    this.refresh();
    if (conversation.turns === null) await this.read(conversation);
  }

  async read(conversation) {
    try {
      const { turns } = await api.readConversation(conversation.id);
      const records = turns.map(Turn.fromRecord);
      conversation.turns = [...records, ...this.unsentTurns(conversation.id)];
    } catch (error) {
      if (this.current === conversation) this.readFailed(error, conversation);
      return;
    }
    if (this.current !== conversation) return;
    this.thread.show(conversation.turns);
    this.refresh();
    this.watch(conversation, WATCH_MS);
  }

  readFailed(error, conversation) {
    if (error instanceof api.SignedOut) this.setConnection({ name: "signed-out" });
    else if (error.status === 404) {
      this.tell("That conversation is no longer there.");
      history.replaceState(null, "", location.pathname);
      this.show(null);
      return;
    }
    this.thread.showFailure(error.message, () => this.current === conversation && this.show(conversation.id));
  }

  /** Questions from before a reload that were never answered, as turns that can be asked again. */
  unsentTurns(id) {
    const kept = [...this.chat.unsent.values()].filter((question) => question.conversation === id);
    const waiting = kept.filter((question) => !this.chat.live.has(question.id));
    return waiting.map((question) => {
      const turn = new Turn(question);
      turn.fail({ code: "not_sent", message: "" });
      return turn;
    });
  }

  /** Reads a conversation again while an answer in it is written that this page does not follow. */
  watch(conversation, delay) {
    if (!conversation.turns.some((turn) => turn.status === "elsewhere")) return;
    setTimeout(async () => {
      if (this.current !== conversation) return;
      const read = await api.readConversation(conversation.id).catch(() => null);
      for (const turn of conversation.turns.filter(({ status }) => status === "elsewhere")) {
        const record = read?.turns.find(({ exchange }) => exchange === turn.exchange);
        if (record) turn.settle(record);
        else if (read) turn.fail({ code: "lost", message: "" });
        this.thread.update(turn);
      }
      this.refresh();
      this.watch(conversation, WATCH_MS);
    }, delay);
  }

  // Asking

  get runningTurn() {
    return this.current.turns?.find((turn) => turn.isLive) ?? null;
  }

  ask(text) {
    const turn = this.chat.ask(text, this.current);
    if (this.current.id !== null) this.known.set(this.current.id, this.current);
    this.thread.append(turn);
    this.thread.toEnd();
    this.refresh();
  }

  example(text) {
    if (this.canAsk && !byId("question").value.trim()) this.ask(text);
    else this.composer.putBack(text);
  }

  stop() {
    if (this.runningTurn) this.chat.stop(this.runningTurn);
  }

  retry(turn) {
    if (!this.canAsk || this.runningTurn) return;
    if (turn.error?.code === "conversation_not_found") {
      this.discard(turn);
      this.begin();
      this.ask(turn.prompt);
    } else if (turn.exchange !== null) this.ask(turn.prompt);
    else {
      this.chat.askAgain(turn, this.current);
      this.current.turns.push(...this.current.turns.splice(this.current.turns.indexOf(turn), 1));
      this.thread.restart(turn);
      this.refresh();
    }
    byId("question").focus();
  }

  edit(turn) {
    this.discard(turn);
    this.composer.putBack(turn.prompt);
  }

  discard(turn) {
    this.current.turns.splice(this.current.turns.indexOf(turn), 1);
    this.chat.forget(turn);
    this.thread.remove(turn);
  }

  turnChanged(turn, conversation) {
    if (turn.error?.code === "overloaded") this.models.refresh();
    if (conversation !== this.current) return;
    this.thread.update(turn);
    this.announcer.follow(turn);
    if (!turn.isLive) this.refresh();
  }

  answerBegun(conversation, turn) {
    const { id } = conversation;
    this.known.set(id, conversation);
    const entry = this.conversations.find((other) => other.id === id);
    const updated = { id, title: entry?.title ?? turn.prompt.slice(0, TITLE_WORDS), updated_at: new Date().toISOString() };
    this.conversations = [updated, ...this.conversations.filter((other) => other !== entry)];
    if (conversation === this.current && location.hash !== `#${id}`) {
      history.replaceState(null, "", `#${id}`);
      this.drafts.saveDraft(null, ""); // what is being typed now belongs to the conversation
      this.composer.keep();
    }
    this.refresh();
  }

  answerEnded(turn, conversation) {
    if (!conversation.turns.some((other) => other.isLive)) this.known.delete(conversation.id);
    if (turn.exchange) this.reloadList();
    this.refresh();
  }

  // The list

  async reloadList() {
    try {
      const listed = await api.listConversations();
      // One that has just begun may not be in the server's list yet.
      const begun = this.conversations.filter(({ id }) => this.known.has(id) && !listed.some((other) => other.id === id));
      this.conversations = [...begun, ...listed];
      this.refresh();
    } catch (error) {
      this.failed(error, { silent: true });
    }
  }

  async rename(id, title) {
    const entry = this.conversations.find((conversation) => conversation.id === id);
    const before = entry.title;
    entry.title = title;
    try {
      await api.renameConversation(id, title);
    } catch (error) {
      entry.title = before;
      this.failed(error, { silent: false });
    }
    this.refresh();
  }

  async remove(id) {
    for (const { turn, conversation } of [...this.chat.live.values()]) {
      if (conversation.id === id) this.chat.stop(turn);
    }
    try {
      await api.deleteConversation(id);
    } catch (error) {
      this.failed(error, { silent: false });
      return;
    }
    this.known.delete(id);
    this.conversations = this.conversations.filter((conversation) => conversation.id !== id);
    if (this.current.id === id) {
      this.composer.load("");
      this.begin();
    }
    this.refresh();
  }

  // What the page says of itself

  get canAsk() {
    const { name } = this.connection;
    return this.current.turns !== null && name !== "signed-out" && name !== "refused" && !this.models.isWarming;
  }

  modelsChanged() {
    if (this.wasWarming && !this.models.isWarming) this.announcer.say("The model is ready.");
    this.wasWarming = this.models.isWarming;
    this.refresh();
  }

  setConnection(state) {
    const before = this.connection.name;
    this.connection = state;
    if (state.name === "open") {
      this.slow = false;
      this.chat.connected();
      if (before !== "open") this.models.refresh();
    } else if (state.name === "signed-out") this.chat.signedOut();
    else setTimeout(() => {
      this.slow = this.connection.name !== "open";
      this.refresh();
    }, UNHURRIED_MS);
    this.refresh();
  }

  /** `silent` where the reader did not ask for what failed, and the status line says that the network is gone. */
  failed(error, { silent }) {
    if (error instanceof api.SignedOut) this.setConnection({ name: "signed-out" });
    else if (!silent || error.status !== 0) this.tell(error.message);
  }

  tell(text) {
    this.message = text;
    this.refresh();
    setTimeout(() => {
      if (this.message === text) this.message = null;
      this.refresh();
    }, MESSAGE_MS);
  }

  refresh() {
    const busy = new Set([...this.chat.live.values()].map(({ conversation }) => conversation.id));
    this.list.show({ conversations: this.conversations, current: this.current.id, busy });
    this.composer.setState({ allowed: this.canAsk, busy: this.runningTurn !== null });
    this.thread.setBusy(this.runningTurn !== null || !this.canAsk);
    const title = this.conversations.find((conversation) => conversation.id === this.current.id)?.title;
    document.title = title ? `${title} · Bursar` : "Bursar";
    const { connection, slow, message } = this;
    const condition = conditionOf({ connection, slow, message, isWarming: this.models.isWarming });
    if (condition) this.status.show({ ...condition, action: this.actionFor(condition.remedy) });
    else this.status.clear();
  }

  actionFor(remedy) {
    if (remedy === "retry") return { label: "Try now", run: () => this.chat.socket.retryNow() };
    if (remedy !== "sign-in") return null;
    const next = encodeURIComponent(location.pathname + location.hash);
    return { label: "Sign in", href: `${this.signInAddress}?next=${next}` };
  }
}

new Page().start();
