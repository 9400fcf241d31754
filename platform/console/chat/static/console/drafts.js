/* What was typed and not yet answered, kept for this tab across reloads and sign-ins of the same user. */

export class Drafts {
  constructor(user) {
    this.prefix = `bursar.${user}.`;
  }

  draft(conversation) {
    return this.get(`draft.${conversation ?? "new"}`) ?? "";
  }

  saveDraft(conversation, text) {
    this.set(`draft.${conversation ?? "new"}`, text || null);
  }

  /** Questions the server has not begun to answer: `[{id, prompt, conversation}]`. */
  unsent() {
    return this.get("unsent") ?? [];
  }

  saveUnsent(questions) {
    this.set("unsent", questions.length ? questions : null);
  }

  forget() {
    const mine = Object.keys(sessionStorage).filter((key) => key.startsWith(this.prefix));
    for (const key of mine) sessionStorage.removeItem(key);
  }

  get(key) {
    try {
      return JSON.parse(sessionStorage.getItem(this.prefix + key));
    } catch {
      return null; // storage is forbidden, or holds what this page did not write
    }
  }

  set(key, value) {
    try {
      if (value === null) sessionStorage.removeItem(this.prefix + key);
      else sessionStorage.setItem(this.prefix + key, JSON.stringify(value));
    } catch {
      // Full or forbidden: the text is still in the page, it only would not survive a reload.
    }
  }
}
