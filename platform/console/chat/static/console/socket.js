/* The connection to /ws/chat: opens it, keeps it alive, opens it again. What is said over it is not its business. */

const SUBPROTOCOL = "bursar.chat.v1";
const PING_MS = 25_000;
const FIRST_DELAY_MS = 500;
const LONGEST_DELAY_MS = 30_000;
const STEADY_MS = 10_000; // open for this long, and the next failure counts as the first again
const SIGNED_OUT = 4401;
const TOO_MANY_FRAMES = 4429;

export class ChatSocket {
  /**
   * `onState` is given `{name, retryAt, code}`: name is connecting, open, waiting (until `retryAt`, ms since the
   * epoch), signed-out or refused (with the close `code`). `isSignedOut` is asked when a connection fails at once:
   * the browser does not tell a refused handshake from a dead network.
   */
  constructor({ onState, onEvent, isSignedOut }) {
    this.onState = onState;
    this.onEvent = onEvent;
    this.isSignedOut = isSignedOut;
    this.socket = null;
    this.failures = 0;
    this.timer = null;
    this.heardSincePing = true;
    setInterval(() => this.ping(), PING_MS);
    addEventListener("online", () => this.retryNow());
    document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && this.retryNow());
    this.connect();
  }

  get isOpen() {
    return this.socket?.readyState === WebSocket.OPEN;
  }

  send(event) {
    if (this.isOpen) this.socket.send(JSON.stringify(event));
  }

  retryNow() {
    if (this.timer === null) return;
    clearTimeout(this.timer);
    this.connect();
  }

  connect() {
    this.timer = null;
    this.onState({ name: "connecting" });
    const address = new URL("/ws/chat", location.href);
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(address, SUBPROTOCOL);
    let openedAt = null;
    socket.onopen = () => {
      openedAt = Date.now();
      this.heardSincePing = true;
      this.onState({ name: "open" });
    };
    socket.onmessage = ({ data }) => {
      this.heardSincePing = true;
      this.onEvent(JSON.parse(data));
    };
    socket.onclose = ({ code }) => this.closed(code, openedAt);
    this.socket = socket;
  }

  async closed(code, openedAt) {
    const steady = openedAt !== null && Date.now() - openedAt > STEADY_MS;
    this.failures = steady ? 0 : this.failures + 1;
    if (code === SIGNED_OUT || (openedAt === null && (await this.isSignedOut()))) {
      this.onState({ name: "signed-out" });
    } else if (code === 4403 || code === 4406) {
      this.onState({ name: "refused", code });
    } else {
      const delay = code === TOO_MANY_FRAMES ? LONGEST_DELAY_MS : this.delay();
      this.timer = setTimeout(() => this.connect(), delay);
      this.onState({ name: "waiting", retryAt: Date.now() + delay });
    }
  }

  /** Exponential, and spread at random so that a restarted server is not met by everyone at once. */
  delay() {
    const longest = Math.min(LONGEST_DELAY_MS, FIRST_DELAY_MS * 2 ** this.failures);
    return longest * (0.5 + Math.random() / 2);
  }

  ping() {
    if (!this.isOpen) return;
    if (this.heardSincePing) {
      this.heardSincePing = false;
      this.send({ type: "ping" });
      return;
    }
    // Nothing came back since the last ping: the network is gone, though the browser has not noticed.
    const silent = this.socket;
    silent.onmessage = silent.onclose = null;
    silent.close();
    this.closed(1006, Date.now());
  }
}
