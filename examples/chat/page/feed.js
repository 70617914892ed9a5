// Feed is what happens in some rooms, as server-sent events. The browser connects again by itself, and says what it has got, so
// that the server can send what came since.
const retry = 3_000; // milliseconds until this does where the browser doesn't: after an answer that is none

export class Feed {
	#on;
	#source;
	#timer;
	#url = "";

	// on.open is called when a feed begins, or something may be missing from it; on.message and on.people with what happens, and
	// on.lost when it doesn't any more.
	constructor(on) {
		this.#on = on;
	}

	get live() { return this.#source?.readyState === EventSource.OPEN; }

	// follow makes it the feed of these rooms, or of none.
	follow(rooms) {
		const url = rooms.length ? "/feed?" + rooms.map(room => "room=" + encodeURIComponent(room)).join("&") : "";
		if (url === this.#url) return;
		this.#url = url;
		this.#open();
	}

	#open() {
		clearTimeout(this.#timer);
		this.#source?.close();
		this.#source = null;
		if (!this.#url) return;
		const source = new EventSource(this.#url);
		this.#source = source;
		let known = false;
		source.onopen = () => {
			if (!known) this.#on.open();
			else this.#on.resumed();
			known = true;
		};
		source.onerror = () => {
			if (source.readyState === EventSource.CLOSED) this.#timer = setTimeout(() => this.#open(), retry);
			this.#on.lost();
		};
		source.onmessage = event => this.#on.message(JSON.parse(event.data));
		source.addEventListener("people", event => this.#on.people(JSON.parse(event.data)));
		source.addEventListener("reset", () => this.#on.open());
	}
}
