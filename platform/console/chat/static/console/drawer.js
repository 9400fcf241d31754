/* The sidebar as a drawer where the window is narrow. */

const NARROW = matchMedia("(max-width: 50rem)");

export class Drawer {
  constructor({ sidebar, main, scrim, opener, closer }) {
    Object.assign(this, { sidebar, main, scrim, opener });
    opener.addEventListener("click", () => this.open());
    closer.addEventListener("click", () => this.close());
    scrim.addEventListener("click", () => this.close());
    NARROW.addEventListener("change", () => this.close());
    this.close();
  }

  get isOpen() {
    return document.body.hasAttribute("data-drawer");
  }

  open() {
    this.set(true);
    this.sidebar.querySelector("button").focus();
  }

  close() {
    const hadFocus = this.isOpen && this.sidebar.contains(document.activeElement);
    this.set(false);
    if (hadFocus) this.opener.focus();
  }

  set(open) {
    document.body.toggleAttribute("data-drawer", open);
    this.opener.setAttribute("aria-expanded", String(open));
    this.scrim.hidden = !open;
    this.main.inert = open;
    this.sidebar.inert = NARROW.matches && !open;
  }
}
