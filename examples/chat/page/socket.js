// Socket is a WebSocket that is opened again when it ends, unless that was asked for: after a short while, a longer one each time
// that it fails, and not when all others do.
const shortest = 500, longest = 15_000; // milliseconds
// opening is how long the server has for its first message.
const opening = 10_000;

export class Socket {
	#url;
	#on;
	#socket;
	#timer;
	#live = false;
	failures = 0; // since it was open
	retryAt = 0;  // when it is opened again, if it isn't now

	// url returns where to connect to; it is called each time. on.message gets what the server says, which begins with a message,
	// and on.closed the status and the reason when it doesn't any more.
	constructor(url, on) {
		this.#url = url;
		this.#on = on;
		this.#open();
	}

	get live() { return this.#live; }

	// send reports whether there is a connection to send it by; whether it arrives is another question.
	send(value) {
		if (this.#live) this.#socket.send(JSON.stringify(value));
		return this.#live;
	}

	// again opens a new connection, in the place of one that there is.
	again() {
		this.#drop();
		this.#open();
	}

	// now opens one if that is being waited for.
	now() {
		if (this.retryAt) this.again();
	}

	close() {
		this.#drop();
	}

	#open() {
		this.retryAt = 0;
		const socket = new WebSocket(this.#url());
		this.#socket = socket;
		this.#timer = setTimeout(() => {
			this.#drop();
			this.#ended(1006, "");
		}, opening);
		socket.onmessage = event => {
			if (!this.#live) {
				clearTimeout(this.#timer);
				this.#live = true;
				this.failures = 0;
			}
			this.#on.message(JSON.parse(event.data));
		};
		socket.onclose = event => {
			this.#drop();
			this.#ended(event.code, event.reason);
		};
	}

	// drop forgets the connection.
	#drop() {
		clearTimeout(this.#timer);
		this.#live = false;
		this.retryAt = 0;
		if (!this.#socket) return;
		this.#socket.onmessage = this.#socket.onclose = null;
		this.#socket.close();
		this.#socket = null;
	}

	#ended(code, reason) {
		const wait = Math.min(longest, shortest * 2 ** this.failures++) * (0.5 + Math.random() / 2);
		this.retryAt = Date.now() + wait;
		this.#timer = setTimeout(() => this.#open(), wait);
		this.#on.closed(code, reason);
	}
}
